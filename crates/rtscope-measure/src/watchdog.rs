//! What keeps a real-time thread of this process from locking the machine up: the kernel tells one that no
//! longer sleeps to end the run (`RLIMIT_RTTIME`, SIGXCPU), and a kernel timer ends the process when nobody looks
//! after its threads any more.

use std::time::Duration;

use rtscope_model::time::Nanos;
use rtscope_sys::{
    process::{self, Deadline, Resource, SoftLimit},
    thread,
};

/// A real-time thread of ours that runs so long without sleeping ends the run; twice as long, the
/// process (see [`Interrupt::install`](crate::signals::Interrupt::install)). A soft limit: loads inherit it, and
/// can lift it.
const RUNAWAY_US: u64 = 1_000_000;

/// How long threads may go on when nobody looks after them: longer than any disk that still works takes to
/// answer.
pub const UNATTENDED: Duration = Duration::from_secs(300);

/// How much longer than planned something may take that computes for a known time.
const GRACE: Duration = Duration::from_secs(30);

/// Holds while real-time threads of this process run. Dropping it puts the limit back and takes the timer back.
#[derive(Debug)]
#[must_use = "dropping it takes it back"]
pub struct Watchdog {
    _runaway: SoftLimit,
    _deadline: Deadline,
    unattended: Duration,
}

impl Watchdog {
    /// Over threads that sleep again and again. The calling thread, which looks after them, calls
    /// [`renew`](Watchdog::renew); when it hasn't for so long, the process ends.
    pub fn over_sleepers(unattended: Duration) -> Watchdog {
        let runaway = SoftLimit::set(Resource::RtTime, RUNAWAY_US);
        // A starved thread that looks after others could not handle the signal.
        thread::leave_cpu_limit_to_others();
        Watchdog { _runaway: runaway, _deadline: Deadline::after(unattended), unattended }
    }

    /// Over threads that compute without a sleep, for about so long: the process ends when they take half a
    /// minute more.
    pub fn over_spinners(planned: Nanos) -> Watchdog {
        let unattended = Duration::from_nanos(planned.0) + GRACE;
        // Whoever handles the timer may be starved, on PREEMPT_RT.
        let longest_us = u64::try_from(unattended.as_micros()).unwrap_or(u64::MAX);
        let runaway = SoftLimit::set(Resource::RtTime, longest_us);
        Watchdog { _runaway: runaway, _deadline: Deadline::after(unattended), unattended }
    }

    /// No thread runs now: the time starts when it is [renewed](Watchdog::renew).
    pub fn rest(&self) {
        process::end_after(Duration::ZERO);
    }

    /// Somebody has looked after the threads: the time starts again.
    pub fn renew(&self) {
        process::end_after(self.unattended);
    }
}
