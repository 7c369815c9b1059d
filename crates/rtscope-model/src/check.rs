//! A program seen from outside: its threads, and what the kernel's events tell of them.

use serde::{Deserialize, Serialize};

use crate::schedule::Placement;

/// What was seen of a program in a look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The command, or the process, as the user named it.
    pub program: String,
    pub look_ns: u64,
    /// Which events could be had.
    pub sources: Sources,
    /// Why none could be had, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untraced: Option<String>,
    /// Events that had no room: the oldest of the look.
    pub lost: u64,
    /// Locked and resident bytes of each process at the end of the look.
    pub memory: Vec<ProcessMemory>,
    /// Its threads at the end of the look, and those that had events.
    pub threads: Vec<ObservedThread>,
}

/// Which of the kernel's events were available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// `sched_switch` and `sched_waking`.
    pub switches: bool,
    /// `hrtimer_start`: the instants that sleeps are programmed for.
    pub timers: bool,
    /// `page_fault_user`.
    pub faults: bool,
    /// `sys_enter_futex`: what a thread blocks on.
    pub futexes: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    pub pid: u32,
    /// Locked (`VmLck`).
    pub locked_bytes: u64,
    /// In memory (`VmRSS`).
    pub resident_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedThread {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// As the kernel had it at the end of the look.
    pub placement: Placement,
    /// Page faults in the look by the counts of `/proc`; none when the thread came or went in it.
    pub faults: Option<u64>,
    pub events: Vec<ThreadEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadEvent {
    /// Instant of `CLOCK_MONOTONIC`, in whole microseconds as the kernel prints it.
    pub at_ns: u64,
    pub what: ThreadEventKind,
}

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadEventKind {
    /// It started a timer that wakes it.
    Timer {
        /// When it expires, of the timer's own clock.
        expires_ns: u64,
        /// Whether it was asked for as a time from now.
        relative: bool,
    },
    Futex {
        /// Operation without flags: 0 and 9 wait, 6 and 13 lock with priority inheritance.
        operation: u32,
        /// The value that it expects.
        value: u64,
        /// Whether it waits for a limited time only.
        limited: bool,
    },
    /// It leaves its CPU.
    Out {
        /// Whether it still wants to run: it was preempted.
        ready: bool,
    },
    /// It is woken.
    Waking {
        /// The thread that wakes it; none in an interrupt.
        by: Option<u32>,
    },
    /// It gets a CPU.
    In,
    /// A page that it touched was not there.
    Fault,
}
