//! The kernel's events as typed values, whichever way they were read.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::printable::printable;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// The CPU that it happened on.
    pub cpu: u32,
    /// The thread that ran when it happened.
    pub tid: u32,
    /// Whether it happened in an interrupt, which has nothing to do with the thread.
    pub in_interrupt: bool,
    /// How deep preemption was off in the code to which the event belongs. For an interrupt's first event, this is the
    /// interrupted code. The kernel keeps 4 bits of it.
    pub preempt_depth: u8,
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// `sched_switch`: a CPU goes from one thread to another; the idle thread is 0.
    Switch {
        /// The thread that ran.
        from: u32,
        /// Whether that thread was still ready to run.
        is_ready: bool,
        /// The thread that runs now.
        to: u32,
        /// As the kernel counts: below 100 is real-time.
        to_priority: i32,
        to_name: Name,
    },
    /// `sched_waking`: a thread is about to be woken.
    Waking { tid: u32, name: Name },
    /// `hrtimer_start`.
    TimerStart {
        /// What it will do.
        function: TimerFunction,
        /// From here on it may expire, in the clock that the timer counts in.
        expires_ns: u64,
        /// How much later it must expire: the kernel may delay it by this much, to expire timers together.
        slack_ns: u64,
        /// Whether the program asked for a time and not for an instant.
        is_relative: bool,
    },
    /// `page_fault_user`.
    PageFault,
    /// `sys_exit`: the thread's system call ends, and it returns to its program.
    SystemCallEnds,
    /// `sys_enter_futex`, its operation without the flags.
    Futex {
        operation: u32,
        value: u64,
        /// Whether it has a timeout.
        is_limited: bool,
    },
    /// An interrupt, a soft one or a timer's function begins.
    Enter(Section),
    /// The last one that began on this CPU ends.
    Leave(Section),
    /// `cpu_idle`: the CPU goes idle, or wakes from it.
    Idle {
        /// Whether it goes.
        begins: bool,
    },
    /// `sched_stat_runtime`: what the thread that runs was charged with since it was last told.
    Runtime {
        /// CPU time, in a guest without what the host took.
        ns: u64,
    },
    /// The stack of a timer's expiry: what the interrupt had interrupted.
    Interrupted(Place),
    /// `workqueue_execute_start` and `_end`: the thread runs an item of a workqueue.
    Work {
        /// The address of its function.
        function: u64,
        /// Whether it begins.
        begins: bool,
    },
    /// `ipi_send_cpu` and `ipi_send_cpumask`: this CPU interrupts another one.
    InterruptSent {
        /// Where in the kernel.
        from: u64,
        /// The function that the other CPU calls; 0 where it is to reschedule.
        callback: u64,
    },
    /// `nmi_handler`: a handler of an interrupt that can't be masked has ended.
    Nmi {
        /// The address of the handler.
        handler: u64,
        /// How long it took.
        ns: u64,
    },
}

/// What an interrupt interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A program, which can't keep interrupts away.
    User,
    /// The kernel, at an address.
    Kernel(u64),
}

/// Code that interrupts other code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// A device's interrupt.
    Irq {
        line: u32,
        /// Its name; none at the end.
        name: Name,
    },
    /// A soft interrupt, by its number (`include/linux/interrupt.h`).
    Softirq(u32),
    /// The interrupt of the CPU's own timer.
    LocalTimer,
    /// Another CPU asks this one to reschedule.
    Reschedule,
    /// Another CPU has a function called here.
    FunctionCall,
    /// Work that was put off to an interrupt of its own.
    IrqWork,
    /// A timer expires: the address of its function; 0 at the end.
    Expiry(u64),
}

/// The name of a soft interrupt (`include/linux/interrupt.h`).
#[must_use]
pub fn softirq_name(number: u32) -> String {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    NAMES.get(number as usize).map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

impl Section {
    /// Whether it is the same, but for what only its begin tells.
    #[must_use]
    pub fn is_of(self, other: Section) -> bool {
        match (self, other) {
            (Section::Irq { line: a, .. }, Section::Irq { line: b, .. }) => a == b,
            (Section::Expiry(_), Section::Expiry(_)) => true,
            _ => self == other,
        }
    }
}

/// What a timer does when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimerFunction {
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
    #[must_use]
    pub fn named(name: &str) -> TimerFunction {
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
    #[must_use]
    pub fn ends_a_sleep(self) -> bool {
        self != TimerFunction::Other
    }
}

/// A thread's name: the kernel keeps 15 bytes of it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Name([u8; 16]);

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name::new(text.as_bytes())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.to_string()
    }
}

impl Name {
    /// From its bytes, up to the first NUL.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Name {
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
