//! What the system refused.

use std::{io, path::PathBuf};

use rtscope_model::schedule::Placement;

/// A system call or a file of the system that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{call}: {source}")]
    Call {
        /// The call and what it was for, as `sched_setattr fifo 90`.
        call: String,
        source: io::Error,
    },
    #[error("{operation} {path}: {source}", path = path.display())]
    File {
        /// `read`, `write`, `list`.
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A thread that the kernel placed otherwise, as in a set of CPUs that it may not leave.
    #[error(
        "a thread was asked to run as {asked}, but runs as {found}: name CPUs that are online and that \
         this process may use"
    )]
    Placement {
        /// The place that was asked for.
        asked: Box<Placement>,
        found: Box<Placement>,
    },
}

impl Error {
    /// The error of the system call that has just failed.
    pub(crate) fn last(call: impl Into<String>) -> Error {
        let source = io::Error::last_os_error();
        Error::Call { call: call.into(), source }
    }

    /// The kernel's error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Call { source, .. } | Error::File { source, .. } => source.raw_os_error(),
            Error::Placement { .. } => None,
        }
    }

    /// Whether the caller lacks a permission.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }
}

/// Turns a C return value into a result: -1 is the last error. A `c_long` has 64 bits on some machines
/// and 32 on others.
pub(crate) fn check(value: impl Into<i64>, call: impl FnOnce() -> String) -> Result<i64, Error> {
    let value = value.into();
    if value != -1 {
        return Ok(value);
    }
    // Read first, because making the text may change `errno`.
    let source = io::Error::last_os_error();
    Err(Error::Call { call: call(), source })
}
