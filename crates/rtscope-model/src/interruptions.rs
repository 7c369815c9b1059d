//! What else ran on a CPU than the thread that the CPU is for.
//!
//! All instants are of `CLOCK_MONOTONIC`.

use serde::{Deserialize, Serialize};

use crate::{time::Nanos, trace::Name};

/// Version of the format of [`Interruptions`].
pub const FORMAT: u32 = 1;

/// What ran on a CPU during a look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruptions {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    /// Wall clock, RFC 3339.
    pub wall_clock: String,
    /// The kernel's release.
    pub kernel: String,
    /// The CPU.
    pub cpu: u32,
    /// The thread that the CPU is for, which doesn't count as an interruption.
    pub owner: Option<Owner>,
    /// How long the CPU was watched.
    pub duration: Nanos,
    /// How long the CPU was idle.
    pub idle: Nanos,
    /// What ran, by kind and name, the longest sum first.
    pub rows: Vec<Interruption>,
    /// Kinds of events that would have helped and that this kernel lacks.
    pub missing: Vec<String>,
    /// Whether rtscope itself could not stay off the CPU.
    pub includes_rtscope: bool,
    /// What the kernel itself counted, where that can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounts: Option<Accounts>,
    /// Events that had no room.
    pub lost: u64,
}

/// CPU time of threads that can run on this CPU only, by the kernel's account (`/proc/TID/schedstat`) and by the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// What the kernel charged them in the look.
    pub charged: Nanos,
    /// How far the events are from that, added up over the threads.
    pub apart: Nanos,
}

impl Accounts {
    /// Whether the events can be believed: they are at most a fifth from the kernel's account. Interrupts explain some
    /// of that: most kernels don't charge them, and the events don't show their way in and out.
    #[must_use]
    pub fn agree(&self) -> bool {
        self.apart.0 <= self.charged.0 / 5
    }
}

/// The thread that a CPU is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: Name,
    /// How long it ran.
    pub ran: Nanos,
}

/// What ran, by name. Its times don't include what interrupted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// What kind of thing.
    pub kind: InterruptionKind,
    /// Its name: of the thread, the interrupt, or the kernel's function.
    pub name: String,
    /// How often it began.
    pub count: u64,
    /// How long in all.
    pub sum: Nanos,
    /// The longest one.
    pub worst: Nanos,
    /// How often it began in each hour of the look.
    pub by_hour: Vec<u64>,
    /// Who had it sent from another CPU, the most frequent first.
    pub senders: Vec<Sender>,
}

/// Who sent an interrupt to another CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// The thread that ran there.
    pub thread: String,
    /// The kernel's function that sent it.
    pub function: String,
    /// How often.
    pub count: u64,
}

/// What kind of thing runs on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptionKind {
    /// A thread.
    Thread,
    /// An item of the kernel's workqueues, by its function.
    Work,
    /// A device's interrupt.
    Irq,
    /// The interrupt of the CPU's own timer, without the timers that expire in it.
    LocalTimer,
    /// A timer that expires, by its function.
    Timer,
    /// A soft interrupt.
    Softirq,
    /// Another CPU asks this one to reschedule.
    Reschedule,
    /// Another CPU has a function called here.
    FunctionCall,
    /// Work that was put off to an interrupt of its own.
    IrqWork,
    /// An interrupt that can't be masked, by its handler.
    Nmi,
}

impl InterruptionKind {
    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            InterruptionKind::Thread => "thread",
            InterruptionKind::Work => "kernel work",
            InterruptionKind::Irq => "interrupt",
            InterruptionKind::LocalTimer => "timer interrupt",
            InterruptionKind::Timer => "timer",
            InterruptionKind::Softirq => "softirq",
            InterruptionKind::Reschedule => "reschedule from another CPU",
            InterruptionKind::FunctionCall => "function call from another CPU",
            InterruptionKind::IrqWork => "irq work",
            InterruptionKind::Nmi => "NMI",
        }
    }
}
