//! Late activations of threads with the kernel's events around them: what is explained from.
//!
//! All instants are of `CLOCK_MONOTONIC`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    time::Nanos,
    trace::{Event, Name},
};

/// Version of the format of [`ExplainRecord`].
pub const FORMAT: u32 = 1;

/// What was watched, and what was late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    /// Wall clock, RFC 3339.
    pub wall_clock: String,
    /// By how many nanoseconds the wall clock (since 1970, UTC) was ahead of the clock of the instants, at the end; none
    /// where that isn't known, as in a trace that was recorded before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ahead_ns: Option<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// Whether it is a PREEMPT_RT kernel; none when that isn't known.
    pub is_preempt_rt: Option<bool>,
    /// Whether the machine is a guest.
    pub is_guest: bool,
    /// Whose threads were watched.
    pub program: String,
    /// How long it was watched.
    pub duration: Nanos,
    /// Activations from this latency on are late; none when only the worst were asked for.
    pub above: Option<Nanos>,
    /// How many late activations are kept at most: the worst ones.
    pub kept_max: u32,
    /// Kinds of events that this kernel has.
    pub events: Vec<String>,
    /// Kinds of events that would have helped and that this kernel lacks.
    pub missing: Vec<String>,
    /// The threads.
    pub threads: Vec<WatchedThread>,
    /// Late activations, the worst first.
    pub spikes: Vec<Spike>,
    /// Names of the kernel's functions: an address in an event is an index here, from 1 on; 0 is unknown.
    pub symbols: Vec<String>,
    /// Events that had no room.
    pub lost: u64,
    /// The same by CPU, where it is known and not 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_by_cpu: BTreeMap<u32, u64>,
    /// When the kernel's events were not recorded, to find out what recording them costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
}

/// A time in which the kernel's events were not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A thread that was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedThread {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: Name,
    /// Its priority as the kernel counts: below 100 is real-time.
    pub priority: i32,
    /// How often it was woken and then ran.
    pub activations: u64,
    /// Activations that began with a timer that it had set.
    pub by_timer: u64,
    /// How often it ran after a wake-up, but no event showed the switch to it. Nothing is known about these.
    pub unseen: u64,
    /// Late ones.
    pub late: u64,
    /// The longest latency.
    pub latency_ns_max: u64,
    /// The sum of all.
    pub latency_ns_sum: u64,
}

/// A late activation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spike {
    /// The thread.
    pub tid: u32,
    /// Its priority as the kernel counts.
    pub priority: i32,
    /// The timer that it had set; none where something else woke it.
    pub timer: Option<ExpiredTimer>,
    /// Its wake-up.
    pub waking: Wakeup,
    /// How the thread that woke it had itself been woken, and the one that woke that, back to an interrupt: the
    /// nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakers: Vec<Waker>,
    /// The CPU that it came to run on.
    pub cpu: u32,
    /// When.
    pub switched_ns: u64,
    /// When its system call ended after that, or the last page fault began that it met right then. None where the
    /// kernel's events don't show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned_ns: Option<u64>,
    /// What ran on each of its CPUs when the events begin.
    pub before: Vec<RunningThread>,
    /// What happened on these CPUs, in order.
    pub events: Vec<Event>,
    /// Whether events may be missing among these.
    pub is_lossy: bool,
}

impl Spike {
    /// When it should have run at once: the timer's expiry, or the wake-up.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.timer.map_or(self.waking.at_ns, |timer| timer.expires_ns)
    }

    /// When it was back in its program, or else when it came to run.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.returned_ns.unwrap_or(self.switched_ns)
    }

    /// From its start to its end.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        self.end_ns().saturating_sub(self.start_ns())
    }
}

/// A timer that had expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredTimer {
    /// When it was due.
    pub expires_ns: u64,
    /// How much later than that it had to expire at the latest (`prctl(2)`, `PR_SET_TIMERSLACK`).
    pub slack_ns: u64,
}

/// A wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakeup {
    /// When.
    pub at_ns: u64,
    /// On which CPU.
    pub cpu: u32,
    /// The thread that ran there.
    pub by: u32,
    /// Whether it came from an interrupt, which has nothing to do with that thread.
    pub in_interrupt: bool,
}

/// A thread that woke another one, and its own wake-up before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waker {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: Name,
    /// Its last wake-up before it woke the other.
    pub waking: Wakeup,
}

/// What runs on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningThread {
    /// The CPU.
    pub cpu: u32,
    /// The thread; 0 is the idle one.
    pub tid: u32,
    /// Its name.
    pub name: Name,
    /// Its priority as the kernel counts; none when that isn't known.
    pub priority: Option<i32>,
    /// Whether the CPU is idle.
    pub is_idle: bool,
}
