//! Counters in memory that two processes share: a load counts its work, the control thread reads it
//! whenever it likes, and neither waits for the other.

use std::{
    ffi::c_void,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::AtomicU64,
};

use crate::error::{Error, check};

/// An array of counters, all 0 at first, in anonymous shared memory behind a file descriptor.
#[derive(Debug)]
pub struct SharedCounters {
    memory: NonNull<AtomicU64>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: the memory is only ever reached through atomics, and stays mapped while the value lives.
unsafe impl Send for SharedCounters {}
// SAFETY: as above.
unsafe impl Sync for SharedCounters {}

impl SharedCounters {
    /// New counters.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory or no descriptor left.
    pub fn new(len: usize) -> Result<SharedCounters, Error> {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"rtscope-counters".as_ptr(), libc::MFD_CLOEXEC) };
        check(i64::from(fd), || "memfd_create".to_owned())?;
        // SAFETY: the descriptor is new and ours.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain integers.
        let answer = unsafe { libc::ftruncate(fd, (len * size_of::<AtomicU64>()) as libc::off_t) };
        check(i64::from(answer), || "ftruncate".to_owned())?;
        SharedCounters::map(file, len)
    }

    /// The counters behind a descriptor that a parent passed on.
    ///
    /// # Errors
    ///
    /// When it is not a memory file of at least `len` counters.
    pub fn from_file(file: OwnedFd, len: usize) -> Result<SharedCounters, Error> {
        // SAFETY: stat is plain integers; all zeroes is a value of it.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is valid for one stat.
        let answer = unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) };
        check(i64::from(answer), || "fstat".to_owned())?;
        // Touching a page beyond the end of the file would be SIGBUS.
        if (stat.st_size as u64) < (len * size_of::<AtomicU64>()) as u64 {
            let source = std::io::Error::from_raw_os_error(libc::EINVAL);
            return Err(Error::Call { call: "map counters: too small".to_owned(), source });
        }
        SharedCounters::map(file, len)
    }

    fn map(file: OwnedFd, len: usize) -> Result<SharedCounters, Error> {
        let bytes = len * size_of::<AtomicU64>();
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that is long enough.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address.cast::<AtomicU64>()) {
            Some(memory) if address != libc::MAP_FAILED => Ok(SharedCounters { memory, len, file }),
            _ => Err(Error::last("mmap counters")),
        }
    }

    #[must_use]
    pub fn as_slice(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `len` counters, is aligned to a page, was filled with zeroes by
        // the kernel, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }

    /// The descriptor, to pass on to a child.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

impl Drop for SharedCounters {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        unsafe {
            libc::munmap(self.memory.as_ptr().cast::<c_void>(), self.len * size_of::<AtomicU64>());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_mappings_see_one_memory() {
        let ours = SharedCounters::new(3).expect("memory");
        let file = ours.file().try_clone().expect("a descriptor");
        let theirs = SharedCounters::from_file(file, 3).expect("the same memory");
        theirs.as_slice()[2].fetch_add(7, Ordering::Relaxed);
        assert_eq!(ours.as_slice()[2].load(Ordering::Relaxed), 7);
        let file = ours.file().try_clone().expect("a descriptor");
        assert!(SharedCounters::from_file(file, 4).is_err());
    }
}
