//! Periodic activations, one by one: what drift is judged from.

use serde::{Deserialize, Serialize};

use crate::{plan::Sleep, schedule::Placement, time::Nanos};

/// Version of the format of [`DriftRecord`].
pub const FORMAT: u32 = 1;

/// One activation. Instants are since the begin of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64)", into = "(u64, u64, u64)")]
pub struct LoopActivation {
    /// It went to sleep: programmed its timer.
    pub armed_ns: u64,
    /// The instant that it programmed.
    pub expiry_ns: u64,
    pub woke_ns: u64,
}

impl From<(u64, u64, u64)> for LoopActivation {
    fn from((armed_ns, expiry_ns, woke_ns): (u64, u64, u64)) -> LoopActivation {
        LoopActivation { armed_ns, expiry_ns, woke_ns }
    }
}

impl From<LoopActivation> for (u64, u64, u64) {
    fn from(one: LoopActivation) -> (u64, u64, u64) {
        (one.armed_ns, one.expiry_ns, one.woke_ns)
    }
}

/// A periodic thread: a loop of our own, or a thread of a program that was watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Periodic {
    pub name: String,
    /// How it sleeps, where that is known because the loop is ours.
    pub sleep: Option<Sleep>,
    /// The intended period; none if it wasn't given.
    pub period_ns: Option<u64>,
    /// Computing in each period, as CPU time; none for a program that was watched.
    pub work_ns: Option<u64>,
    /// As read back, where the loop is ours.
    pub placement: Option<Placement>,
    /// What is known of a program that was watched.
    pub program: Option<WatchedProgram>,
    /// Activations that were skipped because an earlier one was late; known only for a loop of ours.
    pub missed: u64,
    /// Its activations in their order.
    pub activations: Vec<LoopActivation>,
}

/// A program that was watched from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedProgram {
    pub command: Vec<String>,
    pub tid: i32,
    /// Threads that slept on timers, this one included.
    pub threads: u64,
    /// Sleeps that were asked for as a time from now.
    pub relative_sleeps: u64,
    /// Sleeps that were asked for as an instant.
    pub absolute_sleeps: u64,
    /// Wake-ups of the thread by something other than its timer.
    pub other_wakeups: u64,
    /// Events that the kernel lost because its buffer was full.
    pub lost: u64,
    /// How it ended early; none if rtscope ended it.
    pub ended: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriftRecord {
    /// [`FORMAT`].
    pub format: u32,
    pub version: String,
    /// Wall clock at its start, RFC 3339.
    pub wall_clock: String,
    /// `uname -r`.
    pub kernel: String,
    /// How long each thread was meant to be watched.
    pub duration: Nanos,
    /// Whether all were watched at the same time: their instants have one origin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
    /// The threads that were watched.
    #[serde(rename = "subjects")]
    pub threads: Vec<Periodic>,
}
