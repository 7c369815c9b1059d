//! A folder, or what a file stands for, that one process works with at a time.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use crate::error::LabError;

/// Held until it is dropped. Where a file system has no locks, nothing is locked.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Locks a folder that is there; none if another process has the lock.
    pub(crate) fn of(folder: &Path) -> Result<Option<FolderLock>, LabError> {
        File::open(folder).map(FolderLock::with).map_err(LabError::file("open", folder))
    }

    /// Locks an open file or folder; none if another process has the lock.
    pub(crate) fn with(file: File) -> Option<FolderLock> {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            _ => Some(FolderLock { file }),
        }
    }
}

impl Drop for FolderLock {
    /// A process that another thread is just starting has it open, too, until it executes its program: to close it
    /// here would not unlock it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
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
        let in_the_child = held.file.try_clone().expect("as fork does");
        assert!(lock().is_none());
        drop(held);
        assert!(lock().is_some());
        drop(in_the_child);
    }
}
