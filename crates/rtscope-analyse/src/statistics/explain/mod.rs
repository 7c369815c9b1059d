//! What was in the way of a late thread: its latency cut into pieces that add up to it, each with a name.
//!
//! A piece says what its CPU did: the one whose timer was to expire until the wake-up, and from there on the one that
//! the thread came to run on. Nested interrupts are taken off what they interrupted. What the events don't show is a
//! piece of its own, `unknown`.
//!
//! How certain: a piece is `measured` where events bound it and name its cause, a `lower-bound` where they show the cause
//! for a part of it only, and `unknown` where only its length is known.

mod cost;
mod cpu;
mod culprit;
pub mod instructions;

use rtscope_model::{
    explain::{ExpiredTimer, ExplainRecord, Spike},
    trace::{Event, Place, Section, What},
};
use serde::Serialize;

pub use self::cost::{WatchCost, cost};
use self::cpu::{Context, Doing, Timeline};
pub use self::culprit::{Culprit, culprits};

/// What kind of thing was in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PieceKind {
    /// The kernel may expire the timer of an ordinary thread so much later.
    TimerSlack,
    /// The CPU was idle and had to wake up.
    IdleExit,
    /// Interrupts were off in the kernel's code.
    InterruptsOff,
    /// A program ran, which can't keep interrupts away: not Linux, but a host, firmware or hardware.
    OutsideLinux,
    /// The host took the CPU away, by what the running thread was charged with.
    Steal,
    /// A device's interrupt, or another one of the CPU's.
    Interrupt,
    /// A soft interrupt.
    Softirq,
    /// The timer's own interrupt, and timers that expired before.
    ExpiryWork,
    /// A thread of a higher priority, or of the same one, ran.
    Interference,
    /// A thread of a lower priority ran on, though this one was ready.
    Blocking,
    /// The scheduler itself, between the last event before the switch and the switch.
    Switching,
    /// The events don't say.
    Unknown,
}

impl PieceKind {
    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            PieceKind::TimerSlack => "timer slack",
            PieceKind::IdleExit => "waking an idle CPU",
            PieceKind::InterruptsOff => "interrupts off",
            PieceKind::OutsideLinux => "probably not Linux (host, firmware or hardware)",
            PieceKind::Steal => "CPU taken by the host",
            PieceKind::Interrupt => "interrupt",
            PieceKind::Softirq => "softirq",
            PieceKind::ExpiryWork => "timer interrupt",
            PieceKind::Interference => "interference",
            PieceKind::Blocking => "blocking",
            PieceKind::Switching => "switching",
            PieceKind::Unknown => "unknown",
        }
    }
}

/// How certain a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// Events bound it and name its cause.
    Measured,
    /// Events show its cause for a part of it.
    LowerBound,
    /// Only its length is known.
    Unknown,
}

impl Certainty {
    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Certainty::Measured => "measured",
            Certainty::LowerBound => "lower bound",
            Certainty::Unknown => "unknown",
        }
    }
}

/// A piece of a latency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// What kind of thing it was.
    pub kind: PieceKind,
    /// Its name: of the interrupt, the thread, the softirq.
    pub name: String,
    /// From when on, `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// How long.
    pub ns: u64,
    /// How certain.
    pub certainty: Certainty,
    /// By what it is that certain.
    pub why: &'static str,
    /// The kernel's function, or what else is known of the place.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// A latency in pieces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// From the timer's expiry, or from the wake-up, to the switch to it.
    pub latency_ns: u64,
    /// The CPU that it came to run on.
    pub cpu: u32,
    /// When it should have run.
    pub at_ns: u64,
    /// Who woke it, where it wasn't its timer.
    pub woken_by: Option<String>,
    /// What was in the way, in the order of time. They add up to the latency.
    pub pieces: Vec<Piece>,
    /// Whether events may be missing.
    pub is_lossy: bool,
}

impl Explained {
    /// Its pieces with those of the same kind and name together, the longest first.
    #[must_use]
    pub fn causes(&self) -> Vec<Piece> {
        let mut all: Vec<Piece> = Vec::new();
        for piece in &self.pieces {
            match all.iter_mut().find(|one| (one.kind, &one.name) == (piece.kind, &piece.name)) {
                Some(one) => one.add(piece),
                None => all.push(piece.clone()),
            }
        }
        all.sort_by_key(|piece| (u64::MAX - piece.ns, piece.at_ns));
        all
    }
}

impl Piece {
    /// Adds another one of the same cause.
    fn add(&mut self, other: &Piece) {
        self.ns += other.ns;
        if self.place.is_none() && other.place.is_some() {
            self.place.clone_from(&other.place);
            (self.certainty, self.why) = (other.certainty, other.why);
        }
    }
}

/// Explains all late activations of a record, the worst first.
#[must_use]
pub fn explain(record: &ExplainRecord) -> Vec<Explained> {
    record.spikes.iter().map(|spike| explain_one(record, spike)).collect()
}

/// Explains one.
#[must_use]
pub fn explain_one(record: &ExplainRecord, spike: &Spike) -> Explained {
    let mut cut = Cut { record, spike, pieces: Vec::new() };
    let start_ns = spike.start_ns();
    let waker = Timeline::new(spike, spike.waking.cpu);
    if let Some(timer) = spike.timer {
        cut.until_waking(&waker, timer);
    }
    let runner = Timeline::new(spike, spike.cpu);
    cut.until_switch(&runner);
    let woken_by = match (spike.timer, spike.waking.in_interrupt) {
        (Some(_), _) => None,
        (None, true) => Some(Cut::context_name(&waker.at(spike.waking.at_ns))),
        (None, false) => Some(waker.at(spike.waking.at_ns).thread_name()),
    };
    let thread = record.threads.iter().find(|thread| thread.tid == spike.tid);
    Explained {
        tid: spike.tid,
        name: thread.map_or_else(String::new, |thread| thread.name.to_string()),
        latency_ns: spike.latency_ns(),
        cpu: spike.cpu,
        at_ns: start_ns,
        woken_by,
        pieces: merged(cut.pieces),
        is_lossy: spike.is_lossy,
    }
}

/// A latency that is being cut.
struct Cut<'a> {
    record: &'a ExplainRecord,
    spike: &'a Spike,
    pieces: Vec<Piece>,
}

impl Cut<'_> {
    fn push(
        &mut self,
        from_ns: u64,
        to_ns: u64,
        kind: PieceKind,
        name: String,
    ) -> Option<&mut Piece> {
        let ns = to_ns.checked_sub(from_ns).filter(|ns| *ns > 0)?;
        let certainty = match kind {
            PieceKind::Unknown => Certainty::Unknown,
            _ => Certainty::Measured,
        };
        let why = why(kind);
        self.pieces.push(Piece { kind, name, at_ns: from_ns, ns, certainty, why, place: None });
        self.pieces.last_mut()
    }

    /// From the timer's expiry to the wake-up, on the CPU of the timer.
    fn until_waking(&mut self, timeline: &Timeline<'_>, timer: ExpiredTimer) {
        let (start_ns, waking_ns) = (timer.expires_ns, self.spike.waking.at_ns);
        let interrupt_ns = timeline.interrupt_of(waking_ns).unwrap_or(waking_ns).max(start_ns);
        let slack_ns = (start_ns + timer.slack_ns).min(interrupt_ns);
        self.push(
            start_ns,
            slack_ns,
            PieceKind::TimerSlack,
            "the timer may expire later".to_owned(),
        );
        for (from_ns, to_ns, context) in timeline.between(slack_ns, interrupt_ns) {
            self.late_interrupt(timeline, (from_ns, to_ns), &context);
        }
        for (from_ns, to_ns, context) in timeline.between(interrupt_ns, waking_ns) {
            match context.innermost() {
                Doing::Section(Section::Expiry(function)) => {
                    let name = self.function(*function).unwrap_or("a timer's function").to_owned();
                    self.push(from_ns, to_ns, PieceKind::ExpiryWork, name);
                }
                Doing::Section(Section::LocalTimer) | Doing::Thread | Doing::Idle => {
                    self.push(from_ns, to_ns, PieceKind::ExpiryWork, OWN_INTERRUPT.to_owned());
                }
                Doing::Section(_) => self.push_section(from_ns, to_ns, &context),
            }
        }
    }

    /// A stretch in which the timer's interrupt was due and didn't come.
    fn late_interrupt(
        &mut self,
        timeline: &Timeline<'_>,
        (from_ns, to_ns): (u64, u64),
        context: &Context,
    ) {
        let running = match context.innermost() {
            Doing::Idle => {
                self.push(from_ns, to_ns, PieceKind::IdleExit, "exit from idle".to_owned());
                return;
            }
            // An interrupt runs with interrupts off. A softirq doesn't: the timer's would have interrupted it.
            Doing::Section(Section::Softirq(_)) | Doing::Thread => Cut::context_name(context),
            Doing::Section(_) => return self.push_section(from_ns, to_ns, context),
        };
        let stolen_ns = timeline.stolen_ns(to_ns, self.spike.switched_ns);
        if stolen_ns.is_some_and(|ns| ns >= (to_ns - from_ns) / 2) {
            self.push(from_ns, to_ns, PieceKind::Steal, format!("while {running} ran"));
            return;
        }
        let (kind, function) = match timeline.interrupted(to_ns, self.spike.switched_ns) {
            Some(Place::User) => (PieceKind::OutsideLinux, None),
            Some(Place::Kernel(number)) => (PieceKind::InterruptsOff, self.function(number)),
            None => (PieceKind::Unknown, None),
        };
        let place = function.map(str::to_owned);
        let name = match kind {
            PieceKind::Unknown => format!("interrupts off in {running}, or not Linux"),
            _ => format!("while {running} ran"),
        };
        // A host may stop its guest in the kernel's code too.
        let is_certain = !self.record.is_guest || stolen_ns.is_some();
        if let Some(piece) = self.push(from_ns, to_ns, kind, name) {
            piece.place = place;
            if kind == PieceKind::InterruptsOff && !is_certain {
                piece.certainty = Certainty::Unknown;
                piece.why = "the stack at the timer's expiry is in the kernel, but the host may have stopped the guest there";
            }
        }
    }

    /// From the wake-up to the switch, on the CPU that the thread came to run on.
    fn until_switch(&mut self, timeline: &Timeline<'_>) {
        let (from_ns, to_ns) = (self.spike.waking.at_ns, self.spike.switched_ns);
        let parts = timeline.between(from_ns, to_ns);
        let last = parts.len().saturating_sub(1);
        for (n, (from_ns, to_ns, context)) in parts.into_iter().enumerate() {
            match context.innermost() {
                Doing::Section(Section::Expiry(_) | Section::LocalTimer) => {
                    self.push(from_ns, to_ns, PieceKind::ExpiryWork, OWN_INTERRUPT.to_owned());
                }
                Doing::Section(_) => self.push_section(from_ns, to_ns, &context),
                Doing::Idle => {
                    self.push(from_ns, to_ns, PieceKind::IdleExit, "exit from idle".to_owned());
                }
                Doing::Thread
                    if context.thread.tid == 0 || context.thread.tid == self.spike.tid =>
                {
                    let (kind, name) = match to_ns - from_ns {
                        ..=IDLE_SWITCH_NS => (PieceKind::Switching, "scheduler".to_owned()),
                        _ => (PieceKind::Unknown, format!("in {}", context.thread_name())),
                    };
                    self.push(from_ns, to_ns, kind, name);
                }
                Doing::Thread => self.held_up(timeline, (from_ns, to_ns), &context, n == last),
            }
        }
    }

    /// Another thread runs though this one is ready.
    fn held_up(
        &mut self,
        timeline: &Timeline<'_>,
        (from_ns, to_ns): (u64, u64),
        context: &Context,
        is_last: bool,
    ) {
        let name = context.thread_name();
        let Some(priority) = context.thread.priority else {
            self.push(from_ns, to_ns, PieceKind::Unknown, format!("{name}, of unknown priority"));
            return;
        };
        // Ordinary threads share a CPU by turns, whatever their nice value.
        let is_fair = priority >= ORDINARY && self.spike.priority >= ORDINARY;
        if priority <= self.spike.priority || is_fair {
            let name = format!("{name} ({})", cpu::priority_text(priority));
            self.push(from_ns, to_ns, PieceKind::Interference, name);
            return;
        }
        // What the scheduler takes at the end of the stretch is no fault of the thread's.
        if is_last && to_ns - from_ns <= SWITCH_NS {
            self.push(from_ns, to_ns, PieceKind::Switching, "scheduler".to_owned());
            return;
        }
        let off_ns = timeline.preempt_off_ns(self.spike.waking.at_ns, from_ns);
        if let (Some(piece), Some(ns)) =
            (self.push(from_ns, to_ns, PieceKind::Blocking, name), off_ns)
        {
            piece.place =
                Some(format!("preemption was off for {} or more", crate::number::exact_us(ns)));
            piece.certainty = Certainty::LowerBound;
            piece.why = "the preempt counts of interrupts show that preemption was off from the first to the last of them, \
                         but not since when and until when";
        }
    }

    fn push_section(&mut self, from_ns: u64, to_ns: u64, context: &Context) {
        let kind = match context.innermost() {
            Doing::Section(Section::Softirq(_)) => PieceKind::Softirq,
            _ => PieceKind::Interrupt,
        };
        let name = Cut::context_name(context);
        self.push(from_ns, to_ns, kind, name);
    }

    fn context_name(context: &Context) -> String {
        match context.innermost() {
            Doing::Section(section) => cpu::section_name(*section),
            Doing::Idle => "idle".to_owned(),
            Doing::Thread => context.thread_name(),
        }
    }

    /// The name of a function of the kernel, by its number in the record.
    fn function(&self, number: u64) -> Option<&str> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        self.record.symbols.get(at).map(String::as_str)
    }
}

/// The name of the work of the timer's interrupt, beside that of the timers.
const OWN_INTERRUPT: &str = "the interrupt itself";

/// Priorities from here on are ordinary threads' (`include/linux/sched/prio.h`).
const ORDINARY: i32 = 100;

/// What a switch takes at most where nothing else is in the way.
const SWITCH_NS: u64 = 5_000;

/// What a switch from the idle thread takes at most: it leaves its idle state first.
const IDLE_SWITCH_NS: u64 = 50_000;

/// By which events a piece of this kind is known.
const fn why(kind: PieceKind) -> &'static str {
    match kind {
        PieceKind::TimerSlack => "hrtimer_start has the earliest and the latest expiry",
        PieceKind::IdleExit => "cpu_idle shows when the CPU was idle",
        PieceKind::InterruptsOff => "the stack at the timer's expiry is in the kernel",
        PieceKind::OutsideLinux => {
            "the stack at the timer's expiry is in a program, which can't keep interrupts away"
        }
        PieceKind::Steal => "sched_stat_runtime charged the thread with less than had passed",
        PieceKind::Interrupt | PieceKind::Softirq => "events mark its begin and its end",
        PieceKind::ExpiryWork => {
            "events mark the begin of the interrupt and of each timer's function"
        }
        PieceKind::Interference => "sched_switch shows the thread and its priority",
        PieceKind::Blocking => {
            "sched_switch shows the thread and its priority, and no event whether preemption was off"
        }
        PieceKind::Switching => {
            "it is what was left until sched_switch, a few microseconds at most"
        }
        PieceKind::Unknown => "no event shows what the CPU did",
    }
}

/// Neighbours of the same cause as one.
fn merged(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match all.last_mut() {
            Some(last) if (last.kind, &last.name) == (piece.kind, &piece.name) => last.add(&piece),
            _ => all.push(piece),
        }
    }
    all
}

/// Events of one CPU.
fn of_cpu(spike: &Spike, cpu: u32) -> impl Iterator<Item = &Event> {
    spike.events.iter().filter(move |event| event.cpu == cpu)
}

/// Whether an event is the begin of something that another one ends.
fn enters(event: &Event) -> Option<Section> {
    match event.what {
        What::Enter(section) => Some(section),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
