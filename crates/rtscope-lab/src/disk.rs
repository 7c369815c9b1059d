//! Space on file systems.

use std::{
    fmt,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::error::LabError;

/// Bytes that a file's name may take in its folder.
const NAME_BYTES: u64 = 128;

const MIB: f64 = 1024.0 * 1024.0;

/// What new files and folders take on one file system, in its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub bytes: u64,
    /// Files and folders.
    pub files: u64,
}

impl Demand {
    /// Adds a file of some bytes, in blocks of some bytes, with its name.
    pub fn add_file(&mut self, bytes: u64, block: u64) {
        self.bytes += bytes.next_multiple_of(block.max(1)) + NAME_BYTES;
        self.files += 1;
    }

    /// Adds a folder.
    pub fn add_folder(&mut self, block: u64) {
        self.add_file(1, block);
    }

    /// Adds a folder with all that is in it.
    pub fn add_tree(&mut self, folder: &Path, block: u64) {
        self.add_folder(block);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path().symlink_metadata() {
                Ok(there) if there.is_dir() => self.add_tree(&entry.path(), block),
                Ok(there) => self.add_file(there.len(), block),
                Err(_) => {}
            }
        }
    }
}

/// A file system that new files don't fit on.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortage {
    /// Where it is mounted.
    pub path: PathBuf,
    pub needed: Demand,
    pub free: Demand,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { path, needed, free } = self;
        let path = path.display();
        if needed.bytes <= free.bytes {
            let (needed, free) = (needed.files, free.files);
            return write!(f, "{path} has room for {free} more files and needs {needed}");
        }
        let (has, needs) = (free.bytes as f64 / MIB, needed.bytes as f64 / MIB);
        // Upwards, so that space made after it is enough.
        let lacks = ((needs - has) * 10.0).ceil() / 10.0;
        write!(
            f,
            "{path} has {has:.1} MiB free but needs {needs:.1} MiB: {lacks:.1} MiB are missing"
        )
    }
}

/// Size of a block of the file system that holds a path; on FAT, of a cluster.
pub fn block_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(1, |found| found.f_frsize)
}

/// Whether something doesn't fit on the file system that holds a path. Where free space can't be determined,
/// everything fits.
#[must_use]
pub fn shortage(path: &Path, needed: Demand) -> Option<Shortage> {
    let found = rustix::fs::statvfs(path).ok()?;
    // FAT and others have no table of files, and answer 0.
    let files = if found.f_files == 0 { u64::MAX } else { found.f_favail };
    let free = Demand { bytes: found.f_bavail * found.f_frsize, files };
    let fits = needed.bytes <= free.bytes && needed.files <= free.files;
    (!fits).then(|| Shortage { path: mount_point(path), needed, free })
}

/// The highest folder above a path that is on the same file system.
fn mount_point(path: &Path) -> PathBuf {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let device = |path: &Path| path.metadata().ok().map(|there| there.dev());
    let own = device(&path);
    let same = path.ancestors().take_while(|above| device(above) == own);
    same.last().unwrap_or(&path).to_owned()
}

/// Free space for this user in MiB, on the file system that holds a path or the nearest folder above.
#[must_use]
pub fn free_mib(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|path| path.exists())?;
    let found = rustix::fs::statvfs(there).ok()?;
    Some(found.f_bavail * found.f_frsize / (1024 * 1024))
}

/// Refuses to begin what won't fit. Where free space can't be told, nothing is refused.
///
/// # Errors
///
/// [`LabError::Space`]; `option` says how to give another folder.
pub fn require(path: &Path, needed_mib: u64, option: &'static str) -> Result<(), LabError> {
    match free_mib(path) {
        Some(free_mib) if free_mib < needed_mib => {
            Err(LabError::Space { path: path.to_owned(), free_mib, needed_mib, option })
        }
        _ => Ok(()),
    }
}

/// Size of all files below a folder.
#[must_use]
pub fn size_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.path().symlink_metadata() {
            Ok(there) if there.is_dir() => size_bytes(&entry.path()),
            Ok(there) => there.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_take_whole_blocks() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("inner")).expect("made");
        for (name, bytes) in [("a", 1), ("inner/b", 4096), ("inner/c", 4097)] {
            std::fs::write(folder.path().join(name), vec![0; bytes]).expect("written");
        }
        let mut needed = Demand::default();
        needed.add_tree(folder.path(), 4096);
        // Two folders and two files of one block, one of two.
        assert_eq!(needed, Demand { bytes: 6 * 4096 + 5 * 128, files: 5 });
    }

    #[test]
    fn a_shortage_names_bytes_or_files() {
        let (mib, path) = (1 << 20, PathBuf::from("/boot"));
        let free = Demand { bytes: 3 * mib, files: 2 };
        let short = |bytes, files| {
            Shortage { path: path.clone(), needed: Demand { bytes, files }, free }.to_string()
        };
        assert_eq!(
            short(10 * mib + 1, 9),
            "/boot has 3.0 MiB free but needs 10.0 MiB: 7.1 MiB are missing"
        );
        assert_eq!(short(mib, 9), "/boot has room for 2 more files and needs 9");
        let here = Path::new("/proc");
        let huge = Demand { bytes: u64::MAX, files: 1 };
        assert_eq!(shortage(here, huge).expect("too much").path, here);
        assert_eq!(shortage(here, Demand::default()), None);
    }

    #[test]
    fn what_cannot_fit_is_refused_before_it_begins() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("not/yet/there");
        assert!(require(&missing, 0, "").is_ok());
        let said =
            require(&missing, u64::MAX, " with --cache DIR").expect_err("refused").to_string();
        assert!(
            said.contains("MiB free") && said.ends_with("another folder with --cache DIR"),
            "{said}"
        );
        std::fs::write(folder.path().join("a"), [0; 1000]).expect("written");
        assert_eq!(size_bytes(folder.path()), 1000);
    }
}
