//! Why a step at a place was not done.

use std::{io, path::PathBuf};

use rtscope_model::{printable::printable, text::TextError};

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The file of places is wrong.
    #[error(transparent)]
    Places(#[from] TextError),
    /// What was asked makes no sense.
    #[error("{0}")]
    Refused(String),
    #[error("can't {operation} {path}: {cause}", path = path.display())]
    File {
        /// As `read` or `write`.
        operation: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    /// The connection failed or broke, or nothing came for too long: another try may succeed.
    #[error("no connection: {0}")]
    Connection(String),
    /// ssh reached the place and wasn't let in: another try won't be either.
    #[error("{0}")]
    NotLetIn(String),
    /// The program is at the place, and nothing there starts it: the place is too busy, or what held it for the job has
    /// just been ended. Another try may succeed.
    #[error(
        "the run did not start: the place is too busy, or somebody killed the process that starts it"
    )]
    NotBegun,
    /// Slurm has taken the place away: the node is down, for example. Another try may get it.
    #[error("{0}; its run and its record are lost")]
    AllocationEnded(String),
    /// The place was not handed out or not given back, and something of the job may be left there.
    #[error("{0}")]
    Unsettled(String),
    /// The job isn't at the place any more.
    #[error("the lease has ended or somebody removed the job: its run and its record are gone")]
    Gone,
    /// The place answered, and what it says ends the job.
    #[error("{0}")]
    Place(String),
    /// Somebody else has the place.
    #[error("the place is taken by {holder}{}", for_another(*seconds))]
    Taken {
        /// The job's name there, which begins with the user and the host that took it.
        holder: String,
        /// How long at most, where that is known.
        seconds: Option<u64>,
    },
    /// What came is not what a record may be.
    #[error("the place sent an invalid record: {0}")]
    Parcel(String),
    #[error("interrupted")]
    Interrupted,
}

fn for_another(seconds: Option<u64>) -> String {
    seconds
        .map(|seconds| format!(" (its lease ends in {seconds} s at the latest)"))
        .unwrap_or_default()
}

impl FleetError {
    /// For `map_err` of a file operation.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> FleetError {
        let path = path.into();
        move |cause| FleetError::File { operation, path, cause }
    }

    /// What a place said, which may be anything.
    pub(crate) fn said(text: &str) -> FleetError {
        FleetError::Place(printable(text.trim()).into_owned())
    }

    /// Whether it was asked wrongly, rather than that the surroundings fail.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, FleetError::Places(_) | FleetError::Refused(_))
    }

    /// Whether the job is no more, whatever is asked of its place.
    pub(crate) fn is_end_of_job(&self) -> bool {
        matches!(self, FleetError::Gone | FleetError::AllocationEnded(_))
    }

    /// Whether the same may succeed at another time.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use FleetError::{AllocationEnded, Connection, NotBegun, Taken, Unsettled};
        matches!(self, Connection(_) | NotBegun | Taken { .. } | AllocationEnded(_) | Unsettled(_))
    }

    /// Whether the place is out of reach, and nothing more is known.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        matches!(self, FleetError::Connection(_))
    }
}
