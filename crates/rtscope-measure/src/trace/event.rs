//! The kernel's events as typed values, whichever way they were read.

use std::fmt;

use rtscope_model::printable::printable;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) cpu: u32,
    /// The thread that ran when it happened.
    pub(crate) tid: u32,
    /// Whether it happened in an interrupt, which has nothing to do with the thread.
    pub(crate) in_interrupt: bool,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// `sched_switch`: a CPU goes from one thread to another; the idle thread is 0.
    Switch {
        from: u32,
        /// Whether who ran would go on if it could.
        is_ready: bool,
        to: u32,
        /// As the kernel counts: below 100 is real-time.
        to_priority: i32,
    },
    /// `sched_waking`: a thread is about to be woken.
    Waking { tid: u32, name: Name },
    /// `hrtimer_start`, in the clock that the timer counts in.
    TimerStart { function: TimerFunction, expires_ns: u64, is_relative: bool },
    /// `page_fault_user`.
    PageFault,
    /// `sys_enter_futex`, its operation without the flags.
    Futex { operation: u32, value: u64, is_limited: bool },
}

/// What a timer does when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerFunction {
    /// Wakes who sleeps in `nanosleep` or waits with a timeout.
    Sleep,
    /// A `timerfd`.
    TimerFd,
    /// A timer of `timer_create`.
    Posix,
    /// A timer of `setitimer`.
    Interval,
    /// Something else, as the kernel's own tick.
    Other,
}

impl TimerFunction {
    /// By the name of the kernel's function.
    pub(crate) fn named(name: &str) -> TimerFunction {
        match name {
            "timerfd_tmrproc" => TimerFunction::TimerFd,
            "posix_timer_fn" => TimerFunction::Posix,
            "it_real_fn" => TimerFunction::Interval,
            // Compilers append to names, as in `hrtimer_wakeup.cfi_jt`.
            _ if name.starts_with("hrtimer_wakeup") => TimerFunction::Sleep,
            _ => TimerFunction::Other,
        }
    }

    /// Whether a program sleeps until it expires.
    pub(crate) fn ends_a_sleep(self) -> bool {
        self != TimerFunction::Other
    }
}

/// A thread's name: the kernel keeps 15 bytes of it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Name([u8; 16]);

impl Name {
    pub(crate) fn new(bytes: &[u8]) -> Name {
        let mut name = Name::default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()).min(15);
        name.0[..end].copy_from_slice(&bytes[..end]);
        name
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        f.write_str(&printable(&String::from_utf8_lossy(&self.0[..end])))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Timestamps from 146 years on are rejected, so that differences of two fit 64 bits. In a trace as text a
/// thread's name can look like a line of the trace.
pub(crate) const INSTANTS_END_NS: u64 = 1 << 62;

/// A futex call's event from its arguments.
pub(super) fn futex(operation: u64, value: u64, timeout: u64) -> Option<What> {
    // The flags say whose the word is and which clock counts.
    const FLAGS: u64 = 0x80 | 0x100;
    let operation = u32::try_from(operation & !FLAGS).ok()?;
    Some(What::Futex { operation, value, is_limited: timeout != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_as_the_kernel_cuts_it_and_printable() {
        assert_eq!(Name::new(b"app\0rest").to_string(), "app");
        assert_eq!(Name::new(b"a name of seventeen").to_string(), "a name of seven");
        assert_eq!(Name::new(b"a\x1b[2J").to_string(), "a\\u001b[2J");
    }

    #[test]
    fn functions_are_known_by_their_names() {
        let names = ["hrtimer_wakeup.cfi_jt", "timerfd_tmrproc", "posix_timer_fn", "it_real_fn"];
        assert!(names.iter().all(|name| TimerFunction::named(name).ends_a_sleep()));
        assert!(!TimerFunction::named("tick_nohz_handler").ends_a_sleep());
    }
}
