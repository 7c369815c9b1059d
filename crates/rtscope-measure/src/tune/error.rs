//! Why settings were not changed. Whatever was changed before the error is restored by then, or said
//! in the events.

use std::{io, path::PathBuf};

use rtscope_model::text::Problem;
use rtscope_sys::{Error, tree::Tree};

use super::{
    change::{Change, ChangeKind, INVALID},
    journal::Author,
};

/// Why settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// Not a setting, or not a value of it.
    #[error("{0}")]
    Refused(Problem),
    #[error("{setting}: this system has no {path}", path = path.display())]
    Absent { setting: String, path: PathBuf },
    #[error("can't install signal handlers: {0}")]
    Signals(io::Error),
    #[error("{0}{hint}", hint = hint(.0))]
    System(#[from] Error),
    #[error("{setting}: {path} reads {found:?} after {asked:?} was written", path = path.display())]
    NotKept { setting: String, path: PathBuf, asked: String, found: String },
    /// Between the look at it and the change, somebody else has changed it: the value seen first is none to go back to.
    #[error(
        "{setting}: {path} was {was:?} at first and is {found:?} now, so something else changes it, for example a \
         service that was stopped for this run: stop it first, then try again",
        path = path.display()
    )]
    ChangedMeanwhile { setting: String, path: PathBuf, was: String, found: String },
    /// Another run has changed it and will put it back.
    #[error(
        "{setting} is held by rtscope process {pid}, which has changed {path}: \
         wait until it has ended",
        path = path.display()
    )]
    Held { setting: String, path: PathBuf, pid: u32 },
    #[error(
        "{setting}: an rtscope that was killed has left {path} changed: run `rtscope restore` first",
        path = path.display()
    )]
    Left { setting: String, path: PathBuf },
    #[error(
        "{setting}: `rtscope tune apply --keep` keeps {path} as it is until the next boot: \
         run `rtscope tune restore` first",
        path = path.display()
    )]
    Kept { setting: String, path: PathBuf },
    #[error(
        "{setting} lasts only while a program holds it, so it can't be kept: leave --keep out, or use idle-latency"
    )]
    EndsWithProcess { setting: String },
    /// A shield that no journal names: rtscope would not know how to restore it.
    #[error(
        "shield: {path} already exists, and no journal mentions it: move its threads away and remove it",
        path = path.display()
    )]
    ShieldThere { path: PathBuf },
    #[error("{operation} {path}: {source}: without a journal, rtscope changes nothing", path = path.display())]
    Journal {
        /// `make`, `lock`, `write`.
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl TuneError {
    /// A shield that is there already has an owner, who is the better answer.
    pub(super) fn or_owner_of_shield(self, tree: &Tree, changed: &[(Change, Author)]) -> TuneError {
        let TuneError::ShieldThere { .. } = &self else { return self };
        let folder = changed.iter().find(|(change, _)| change.kind == ChangeKind::Folder);
        match folder {
            Some((change, author)) => author.refusal("shield", change.place(tree).into()),
            None => self,
        }
    }
}

impl From<Problem> for TuneError {
    fn from(problem: Problem) -> TuneError {
        TuneError::Refused(problem)
    }
}

fn hint(error: &Error) -> &'static str {
    // `EBUSY` on every architecture of Linux.
    const BUSY: i32 = 16;
    if let Error::File { path, .. } = error
        && path.ends_with("proc/sys/kernel/sched_rt_runtime_us")
        && matches!(error.errno(), Some(BUSY | INVALID))
    {
        return ": the limit can't be above the period (sched_rt_period_us), or below what SCHED_DEADLINE threads \
                and control groups (cpu.rt_runtime_us) have reserved";
    }
    match (error.is_permission(), rtscope_sys::process::is_root()) {
        (false, _) => "",
        (true, false) => ": only root may change system settings: run rtscope with sudo",
        (true, true) => ": not even root may change it on this system",
    }
}
