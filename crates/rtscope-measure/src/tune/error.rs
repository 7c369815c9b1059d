//! Why settings were not changed. Whatever was changed before the error is restored by then, or said
//! in the events.

use std::{io, path::PathBuf};

use rtscope_model::text::Problem;
use rtscope_sys::Error;

/// Why settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// Not a setting, or not a value of it.
    #[error("{0}")]
    Refused(Problem),
    #[error("{setting}: this system has no {path}", path = path.display())]
    Absent { setting: String, path: PathBuf },
    #[error("can't set the handlers of signals: {0}")]
    Signals(io::Error),
    #[error("{0}{hint}", hint = hint(.0))]
    System(#[from] Error),
    #[error("{setting}: {path} reads {found:?} after {asked:?} was written", path = path.display())]
    NotKept { setting: String, path: PathBuf, asked: String, found: String },
    /// Another run has changed it and will put it back.
    #[error(
        "{setting} is held by the rtscope with process number {pid}, which has changed {path}: \
         wait until it has ended",
        path = path.display()
    )]
    Held { setting: String, path: PathBuf, pid: u32 },
    #[error(
        "{setting}: an rtscope that was killed has left {path} changed: run `rtscope restore` first",
        path = path.display()
    )]
    Left { setting: String, path: PathBuf },
    #[error("{operation} {path}: {source}: without a journal nothing is changed", path = path.display())]
    Journal {
        /// `make`, `lock`, `write`.
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl From<Problem> for TuneError {
    fn from(problem: Problem) -> TuneError {
        TuneError::Refused(problem)
    }
}

fn hint(error: &Error) -> &'static str {
    match (error.is_permission(), rtscope_sys::process::is_root()) {
        (false, _) => "",
        (true, false) => ": system settings are root's to change: run it with sudo",
        (true, true) => ": not even root may change it on this system",
    }
}
