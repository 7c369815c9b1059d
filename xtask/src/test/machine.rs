//! One lock for all runs of the tests on this machine: a step that measures the machine runs alone.

use std::{
    fs::{File, TryLockError},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

/// How long to wait for another run. A run that takes longer hangs, and running the tests beside it is better than not
/// running them.
const PATIENCE: Duration = Duration::from_secs(40 * 60);

/// Where the lock is: the first for root's runs, the second if the first can't be made.
fn places() -> [PathBuf; 2] {
    ["/run/lock".into(), std::env::temp_dir()].map(|folder: PathBuf| folder.join("rtscope-tests"))
}

/// Held until it is dropped. The kernel releases it when the process ends, however it ends.
pub(super) struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// For steps that may run beside those of another clone. None where no lock can be made.
    pub(super) fn shared() -> Option<MachineLock> {
        hold(open(&places())?, File::try_lock_shared, PATIENCE)
    }

    /// For steps that measure the machine, or change it. None where no lock can be made.
    pub(super) fn alone() -> Option<MachineLock> {
        hold(open(&places())?, File::try_lock, PATIENCE)
    }
}

/// The first file that is there or can be made. Whoever may read it may lock it.
fn open(places: &[PathBuf]) -> Option<File> {
    let open = |path: &PathBuf| File::open(path).or_else(|_| File::create(path));
    places.iter().find_map(|path| open(path).ok())
}

fn hold(
    file: File,
    attempt: fn(&File) -> Result<(), TryLockError>,
    patience: Duration,
) -> Option<MachineLock> {
    let began = Instant::now();
    let mut is_told = false;
    while let Err(TryLockError::WouldBlock) = attempt(&file) {
        if began.elapsed() >= patience {
            return None;
        }
        if !std::mem::replace(&mut is_told, true) {
            println!("           waiting for another run of the tests on this machine");
        }
        thread::sleep(Duration::from_millis(500));
    }
    Some(MachineLock { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_measures_waits_for_what_computes_and_nobody_else_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = ["missing/lock", "lock"].map(|name| folder.path().join(name));
        let at = |attempt: fn(&File) -> Result<(), TryLockError>| {
            hold(open(&places).expect("made"), attempt, Duration::ZERO)
        };
        let (one, two) = (at(File::try_lock_shared), at(File::try_lock_shared));
        assert!(one.is_some() && two.is_some());
        drop(one);
        assert!(at(File::try_lock).is_none());
        drop(two);
        let alone = at(File::try_lock);
        assert!(alone.is_some());
        assert!(at(File::try_lock_shared).is_none() && at(File::try_lock).is_none());
        drop(alone);
        assert!(at(File::try_lock_shared).is_some());
        assert!(open(&places[..1]).is_none(), "without a place there is no lock, and no failure");
    }
}
