//! Steps of jobs, a line each: a step is on the disk before what follows it is done.

use std::{
    fs::{self, File, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::error::FleetError;

/// The file of the steps.
#[derive(Debug)]
pub(crate) struct StepLog {
    path: PathBuf,
    file: File,
}

impl StepLog {
    /// Opens the file, or makes it; the log and what it has so far. A line that a killed process left half written must not
    /// swallow the next one.
    ///
    /// # Errors
    ///
    /// It can't be read or written.
    pub(crate) fn open(path: PathBuf) -> Result<(StepLog, Vec<u8>), FleetError> {
        let file = File::options().create(true).append(true).open(&path);
        let mut file = file.map_err(FleetError::file("write", &path))?;
        let text = fs::read(&path).map_err(FleetError::file("read", &path))?;
        if !text.is_empty() && !text.ends_with(b"\n") {
            file.write_all(b"\n").map_err(FleetError::file("write", &path))?;
        }
        Ok((StepLog { path, file }, text))
    }

    /// Writes a step to the disk.
    ///
    /// # Errors
    ///
    /// The disk is full, for example: then the job must not go on.
    pub(crate) fn add(&mut self, line: &impl Serialize) -> Result<(), FleetError> {
        let text = serde_json::to_string(line).unwrap_or_default() + "\n";
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(FleetError::file("write", &self.path))
    }
}

/// Opens a file and locks it, for the one process that works with its folder. Where the file system has no locks, nothing
/// is locked.
///
/// # Errors
///
/// Another process has the lock, or the file can't be written.
pub(crate) fn locked(path: &Path) -> Result<File, FleetError> {
    let file = File::options().create(true).append(true).open(path);
    let file = file.map_err(FleetError::file("write", path))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(FleetError::Refused(format!(
            "another rtscope is using {}: wait until it ends, or stop it",
            path.parent().unwrap_or(path).display()
        ))),
        _ => Ok(file),
    }
}

/// The time now, RFC 3339.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
