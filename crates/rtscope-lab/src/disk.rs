//! Space on file systems.

use std::path::Path;

use crate::error::LabError;

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
