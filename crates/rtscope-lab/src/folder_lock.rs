//! A folder that one process works in at a time.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use crate::error::LabError;

/// Held until it is dropped. Where a file system has no locks, nothing is locked.
#[derive(Debug)]
pub struct FolderLock {
    folder: File,
}

impl FolderLock {
    /// Locks a folder that is there; none if another process has the lock.
    pub(crate) fn of(folder: &Path) -> Result<Option<FolderLock>, LabError> {
        let folder = File::open(folder).map_err(LabError::file("open", folder))?;
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            _ => Ok(Some(FolderLock { folder })),
        }
    }
}

impl Drop for FolderLock {
    /// A process that another thread is just starting has the open folder, too, until it executes its program: to close it
    /// here would not unlock it.
    fn drop(&mut self) {
        let _ = self.folder.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_free_although_a_process_that_just_starts_has_it_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = || FolderLock::of(folder.path()).expect("a folder");
        let held = lock().expect("free");
        let in_the_child = held.folder.try_clone().expect("as fork does");
        assert!(lock().is_none());
        drop(held);
        assert!(lock().is_some());
        drop(in_the_child);
    }
}
