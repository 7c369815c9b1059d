//! A line in shared memory: one word that any program can raise and lower with a store.
//!
//! The file is `/dev/shm/rtscope-line-NAME`, 64 bytes in the machine's own byte order:
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | 32-bit word | the level: 0 is low, anything else is high |
//! | 4 | 32-bit word | not used, 0 |
//! | 8 | 64-bit word | optional: how many times the level changed, counted up by the program after each change |
//!
//! A new line is low and has no changes. So a program that counts keeps the count odd while the line is
//! high, and whoever reads both can tell that they belong together.

use std::{
    fs::{File, OpenOptions},
    io::ErrorKind,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use crate::error::Error;

/// Bytes of the file: one cache line.
const BYTES: usize = 64;

/// The words of the file.
#[derive(Debug)]
#[repr(C)]
struct SharedState {
    level: AtomicU32,
    unused: AtomicU32,
    changes: AtomicU64,
}

#[derive(Debug)]
pub struct MemoryLine {
    words: NonNull<SharedState>,
    path: PathBuf,
}

// SAFETY: the memory is only ever reached through atomics, and stays mapped while the value lives.
unsafe impl Send for MemoryLine {}
// SAFETY: as above.
unsafe impl Sync for MemoryLine {}

impl MemoryLine {
    /// The folder of the system's shared memory.
    pub const FOLDER: &str = "/dev/shm";

    /// Opens the line of a name in a folder, and makes it (low, no changes) when there is none.
    ///
    /// # Errors
    ///
    /// When the file can't be made or opened, or is no line: its length is another.
    pub fn open(folder: &Path, name: &str) -> Result<MemoryLine, Error> {
        let path = folder.join(format!("rtscope-line-{name}"));
        let failed = |operation, source| Error::File { operation, path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o666);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        // In a sticky folder, the kernel refuses to "create" a file that is there and belongs to somebody else, even to
        // root (fs.protected_regular).
        let file = options.open(&path).or_else(|e| match e.kind() {
            ErrorKind::NotFound => options.create(true).open(&path),
            _ => Err(e),
        });
        let file = file.map_err(|source| failed("open", source))?;
        let bytes = file.metadata().map_err(|source| failed("look at", source))?.len();
        if bytes == 0 {
            file.set_len(BYTES as u64).map_err(|source| failed("make", source))?;
        } else if bytes != BYTES as u64 {
            // Touching a page beyond the end of the file would be SIGBUS.
            let why = format!("it has {bytes} bytes, not {BYTES}, so it is not a line of rtscope");
            return Err(failed("open", std::io::Error::other(why)));
        }
        let words = map(&file).map_err(|source| failed("map", source))?;
        Ok(MemoryLine { words, path })
    }

    fn state(&self) -> &SharedState {
        // SAFETY: the mapping holds the words, is aligned to a page, and lives as long as `self`.
        unsafe { self.words.as_ref() }
    }

    #[must_use]
    #[inline]
    pub fn is_high(&self) -> bool {
        self.state().level.load(Ordering::Acquire) != 0
    }

    #[inline]
    pub fn set(&self, high: bool) {
        self.state().level.store(u32::from(high), Ordering::Release);
    }

    /// Counts a change that was made. Only one program at a time makes changes.
    #[inline]
    pub fn count_change(&self) {
        let changes = self.state().changes.load(Ordering::Relaxed);
        self.state().changes.store(changes + 1, Ordering::Release);
    }

    /// How many changes its program has counted.
    #[must_use]
    #[inline]
    pub fn changes(&self) -> u64 {
        self.state().changes.load(Ordering::Acquire)
    }

    /// Makes the line low, and its changes 0.
    pub fn reset(&self) {
        self.state().level.store(0, Ordering::Release);
        self.state().changes.store(0, Ordering::Release);
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn map(file: &File) -> Result<NonNull<SharedState>, std::io::Error> {
    // SAFETY: a new mapping at an address of the kernel's choice, of a file that is long enough.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            file.as_raw_fd(),
            0,
        )
    };
    match NonNull::new(address.cast()) {
        Some(words) if address != libc::MAP_FAILED => Ok(words),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Drop for MemoryLine {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.words.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_into_the_file_is_a_level() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().expect("a folder");
        let line = MemoryLine::open(folder.path(), "a").expect("a line");
        assert!(!line.is_high() && line.changes() == 0);
        // What the documented layout says, written by another program.
        let file = OpenOptions::new().write(true).open(line.path()).expect("the file");
        file.write_all_at(&1_u32.to_ne_bytes(), 0).expect("written");
        file.write_all_at(&7_u64.to_ne_bytes(), 8).expect("written");
        assert!(line.is_high() && line.changes() == 7);
        let again = MemoryLine::open(folder.path(), "a").expect("the same line");
        again.set(false);
        again.count_change();
        assert!(!line.is_high() && line.changes() == 8);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rtscope-line-b"), "text").expect("written");
        let error = MemoryLine::open(folder.path(), "b").expect_err("no line");
        assert!(error.to_string().contains("4 bytes"), "{error}");
        assert!(MemoryLine::open(&folder.path().join("none"), "c").is_err());
    }
}
