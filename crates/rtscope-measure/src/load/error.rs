//! Why a load could not run.

use std::{io, path::PathBuf};

use rtscope_model::{cpu::CpuSet, schedule::Placement, text::Problem, time::Nanos};

use crate::environment::{do_one_of, not_online};

/// What went wrong with a load, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load's line asks for something that isn't there.
    #[error("{0}")]
    Line(Problem),
    #[error("{0}{advice}", advice = advice(.0))]
    System(#[from] rtscope_sys::Error),
    #[error("no permission for the requested policy; {}", do_one_of(.0))]
    Permission([String; 3]),
    #[error(
        "a worker can't run as {asked}: {source}: run as root, or give this user the permission, for example with \
         \"USER - {limit}\" in /etc/security/limits.d/rtscope.conf",
        limit = if asked.policy.is_real_time() { "rtprio 99" } else { "nice -20" }
    )]
    Place { asked: Box<Placement>, source: rtscope_sys::Error },
    /// No socket for echo requests.
    #[error(
        "{0}: only root may send echo requests, unless this program has CAP_NET_RAW (sudo setcap \
         cap_net_raw+ep PROGRAM) or your group is in net.ipv4.ping_group_range"
    )]
    Icmp(rtscope_sys::Error),
    /// A file, a pipe or a socket failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path or address.
        what: String,
        source: io::Error,
    },
    /// The program that is to become the load's process could not be started.
    #[error("start {}: {source}", program.display())]
    Program { program: PathBuf, source: io::Error },
    /// The option `cpus` names a CPU that is absent.
    #[error("{}; name other CPUs with cpus=", not_online(absent, online))]
    NotOnline {
        /// Asked and absent.
        absent: CpuSet,
        online: CpuSet,
    },
    #[error(
        "can't write to the folder {}: {why}: make it, or name another with {option}=",
        folder.display()
    )]
    Folder {
        /// The option that names it.
        option: &'static str,
        folder: PathBuf,
        why: io::Error,
    },
    /// The option `cpus` leaves no CPU.
    #[error("cpus={asked}, but {why}: write cpus=all, or a set such as cpus=0-3")]
    NoCpu {
        asked: String,
        /// Why that is no CPU.
        why: &'static str,
    },
    /// More memory than is safe.
    #[error(
        "{asked_bytes} bytes are more than three quarters of the {available_bytes} bytes of memory \
         that are available: use fewer workers or a smaller size"
    )]
    Memory {
        /// All workers together.
        asked_bytes: u64,
        /// What the machine and the control groups of this process leave.
        available_bytes: u64,
    },
    /// More open files than the process may have.
    #[error(
        "{needed} open files are needed, but {allowed} are allowed: reduce the load, or raise \
         the limit (ulimit -n)"
    )]
    OpenFiles {
        /// All together.
        needed: u64,
        /// The hard limit.
        allowed: u64,
    },
    /// No video device for tests.
    #[error(
        "this machine has no video test device: load its driver (sudo modprobe vivid), name a camera with device=, or \
         use the load external with your own command"
    )]
    NoVideo,
    /// The program of an `external` load doesn't exist.
    #[error("command {0:?} was not found: install it, or write its full path")]
    NoCommand(String),
    /// The command of an `external` load failed.
    #[error(
        "the command ended with {how} in run {runs}: if that is as it should be, write `|| true` \
         after it"
    )]
    Command {
        /// As `exit code 2`, `signal 11`.
        how: String,
        /// How often it had been started by then.
        runs: u64,
    },
    #[error("worker process {pid} ended with {how}")]
    Worker {
        pid: u32,
        /// As `exit code 2`, `signal 11`.
        how: String,
    },
    /// Something that must not happen.
    #[error("{0}")]
    Broken(&'static str),
    #[error("it reached its time limit")]
    Limit,
    /// The load's process ended, or said why it can't work, before it worked.
    #[error("{how}")]
    Ended { how: String },
    #[error("it did not begin to work within {0}: the machine may be overloaded")]
    Slow(Nanos),
    #[error("only rtscope starts a load's process: use `rtscope load NAME`")]
    NotStartedByUs,
}

impl LoadError {
    /// A failed file, pipe or socket. Costs nothing before it is called: a working loop may have
    /// it.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LoadError {
        move |source| LoadError::Io { what: what.into(), source }
    }

    /// A problem of the line, without a suggestion.
    pub(super) fn line(message: impl Into<String>) -> LoadError {
        LoadError::Line(Problem::new(message))
    }
}

/// What to do when a permission is missing.
fn advice(error: &rtscope_sys::Error) -> &'static str {
    match error.is_permission() {
        true => ": run as root, or give this user the permission",
        false => "",
    }
}
