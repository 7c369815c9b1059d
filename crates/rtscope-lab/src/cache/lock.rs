//! One rtscope at a time unpacks a source or works on a kernel's objects.

use std::fs::{self, File, TryLockError};

use rustix::{
    fs::{FlockOperation, flock},
    io::{Errno, FdFlags, fcntl_setfd},
};

use super::Cache;
use crate::{
    error::LabError,
    progress::{Report, step},
};

/// Held until it is dropped, and until every program that was started meanwhile has ended: what a killed
/// rtscope left behind can't meet the next one.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Cache {
    /// Locks a part of the cache; waits for another rtscope that works there.
    ///
    /// # Errors
    ///
    /// The lock's file can't be made. Where a file system has no locks, nothing is locked.
    pub fn lock(&self, part: &str, report: &mut Report<'_>) -> Result<Lock, LabError> {
        let folder = self.root().join("locks");
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        let path = folder.join(part);
        let file = File::create(&path).map_err(LabError::file("write", &path))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            step(report, "waiting for another rtscope that works on the same source or kernel");
            while flock(&file, FlockOperation::LockExclusive) == Err(Errno::INTR) {}
        }
        // The programs that we start inherit it.
        let _ = fcntl_setfd(&file, FdFlags::empty());
        Ok(Lock { _file: file })
    }

    /// Whether another rtscope works on any part of the cache.
    pub(super) fn is_locked(&self) -> bool {
        let locks = fs::read_dir(self.root().join("locks")).into_iter().flatten().flatten();
        let mut files = locks.filter_map(|entry| File::open(entry.path()).ok());
        files.any(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        sync::mpsc,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::progress::StepProgress;

    #[test]
    fn a_second_one_waits_until_the_first_and_its_programs_have_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let first = cache.lock("tree", &mut |_| panic!("nobody is there")).expect("locked");
        cache.lock("other", &mut |_| panic!("another part")).expect("locked");
        let mut program = Command::new("sleep").arg("1000").spawn().expect("starts");
        drop(first);
        let (said, heard) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut report = |progress| said.send(progress).expect("heard");
                cache.lock("tree", &mut report).expect("locked");
                said.send(StepProgress::Warning("locked".to_owned())).expect("heard");
            });
            let limit = Duration::from_secs(60);
            assert!(matches!(heard.recv_timeout(limit), Ok(StepProgress::Step(_))), "it waits");
            let began = Instant::now();
            program.kill().expect("killed");
            program.wait().expect("gone");
            assert!(matches!(heard.recv_timeout(limit), Ok(StepProgress::Warning(_))), "locked");
            assert!(began.elapsed() < limit);
        });
    }
}
