//! What was in the way of a late thread: its latency cut into pieces that add up to it, each with a name.
//!
//! A piece says what its CPU did: the one whose timer was to expire until the wake-up, and from there on the one that
//! the thread came to run on. Nested interrupts are taken off what they interrupted. What the events don't show is a
//! piece of its own, `unknown`.
//!
//! A piece is `measured` if events bound it and name its cause, a `lower-bound` if they show the cause for a part of it
//! only, and `unknown` if only its length is known.

pub mod agreement;
mod cost;
mod cpu;
mod culprit;
pub mod instructions;

use rtscope_model::{
    explain::{ExpiredTimer, ExplainRecord, Spike, Waker, Wakeup},
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
    /// A program ran, and a program can't disable interrupts. So a host, firmware or hardware had the CPU, not Linux.
    OutsideLinux,
    /// The host took the CPU away, judging by the CPU time that the running thread was charged with.
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
    /// The scheduler itself, between the last event before the switch and the switch, and the way back to the program.
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
    /// From the timer's expiry, or from the wake-up, to its return to its program, or to the switch to it where the
    /// return isn't known.
    pub latency_ns: u64,
    /// The CPU that it came to run on.
    pub cpu: u32,
    /// When it should have run.
    pub at_ns: u64,
    /// Who woke it, where it wasn't its timer.
    pub woken_by: Option<String>,
    /// How that one had been woken, and so on, back to an interrupt where the events show it: the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wakers: Vec<WakerLink>,
    /// What was in the way, in the order of time. They add up to the latency.
    pub pieces: Vec<Piece>,
    /// Whether events may be missing.
    pub is_lossy: bool,
}

/// A thread between an interrupt and the late thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WakerLink {
    /// The thread.
    pub thread: String,
    /// Who woke it.
    pub woken_by: String,
    /// From its wake-up to the next one, which it did.
    pub ns: u64,
}

impl Explained {
    /// Its pieces with those of the same kind and name together, the longest first.
    #[must_use]
    pub fn causes(&self) -> Vec<Piece> {
        let mut all: Vec<Piece> = Vec::new();
        // The place of the longest stands for all.
        let mut pieces: Vec<&Piece> = self.pieces.iter().collect();
        pieces.sort_by_key(|piece| u64::MAX - piece.ns);
        for piece in pieces {
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
        self.at_ns = self.at_ns.min(other.at_ns);
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
    cut.until_return(&runner, waker.interrupt_of(spike.waking.at_ns));
    let woken_by = spike.timer.is_none().then(|| waker_name(&waker, spike.waking));
    let thread = record.threads.iter().find(|thread| thread.tid == spike.tid);
    Explained {
        tid: spike.tid,
        name: thread.map_or_else(String::new, |thread| thread.name.to_string()),
        latency_ns: spike.latency_ns(),
        cpu: spike.cpu,
        at_ns: start_ns,
        wakers: if woken_by.is_some() { wakers(spike) } else { Vec::new() },
        woken_by,
        pieces: merged(cut.pieces),
        is_lossy: spike.is_lossy,
    }
}

/// Who woke a thread: an interrupt by its name, or the thread that ran.
fn waker_name(timeline: &Timeline<'_>, waking: Wakeup) -> String {
    let context = timeline.at(waking.at_ns);
    match (waking.in_interrupt, context.innermost()) {
        (true, Doing::Section(Section::Expiry(_))) => "a timer".to_owned(),
        (true, _) => Cut::context_name(&context),
        (false, _) => context.thread_name(),
    }
}

fn wakers(spike: &Spike) -> Vec<WakerLink> {
    let mut until_ns = spike.waking.at_ns;
    let link = |waker: &Waker| {
        let woken_ns = waker.waking.at_ns;
        let ns = until_ns.saturating_sub(woken_ns);
        until_ns = woken_ns;
        WakerLink {
            thread: cpu::thread_text(waker.tid, waker.name),
            woken_by: waker_name(&Timeline::new(spike, waker.waking.cpu), waker.waking),
            ns,
        }
    };
    spike.wakers.iter().map(link).collect()
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
        let is_handler = matches!(kind, PieceKind::Interrupt | PieceKind::ExpiryWork);
        let (kind, name, why) = match is_handler && ns >= LONG_HANDLER_NS && self.record.is_guest {
            true => (PieceKind::Unknown, format!("{name} or a stop by the host"), LONG_HANDLER),
            false => (kind, name, why(kind)),
        };
        let certainty = match kind {
            PieceKind::Unknown => Certainty::Unknown,
            _ => Certainty::Measured,
        };
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
        // The hardware needs that long, whatever ran.
        let late_ns = interrupt_ns - slack_ns;
        let slack_ns = if late_ns <= HARDWARE_NS {
            self.push(slack_ns, interrupt_ns, PieceKind::ExpiryWork, OWN_INTERRUPT.to_owned());
            interrupt_ns
        } else {
            slack_ns
        };
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
                Doing::Nmi(handler) => self.push_nmi(from_ns, to_ns, *handler),
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
            Doing::Nmi(handler) => return self.push_nmi(from_ns, to_ns, *handler),
        };
        let stolen_ns = timeline.stolen_ns(self.spike.waking.at_ns, self.spike.switched_ns);
        let late_ns = to_ns - from_ns;
        let is_stolen = |ns: &u64| (*ns).min(late_ns) >= STEAL_NS.max(late_ns / 2);
        let steal_ns = stolen_ns.filter(is_stolen).unwrap_or(0).min(late_ns);
        let stolen_to_ns = from_ns + steal_ns;
        self.push(from_ns, stolen_to_ns, PieceKind::Steal, format!("while {running} ran"));
        let from_ns = stolen_to_ns;
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

    /// From the wake-up over the switch to the end, on the CPU that the thread came to run on. `own` is the begin of
    /// the timer's interrupt that the wake-up was in.
    fn until_return(&mut self, timeline: &Timeline<'_>, own: Option<u64>) {
        let (waking_ns, switched_ns) = (self.spike.waking.at_ns, self.spike.switched_ns);
        let switching_ns = timeline.switching_since(waking_ns, switched_ns, SWITCH_NS);
        for (from_ns, to_ns, context) in timeline.between(waking_ns, self.spike.end_ns()) {
            let is_last = to_ns == switched_ns && to_ns - from_ns <= SWITCH_NS;
            match context.innermost() {
                // A later one, such as the tick, has nothing to do with this activation.
                Doing::Section(Section::Expiry(_) | Section::LocalTimer)
                    if own.is_some() && context.timer_interrupt() == own =>
                {
                    self.push(from_ns, to_ns, PieceKind::ExpiryWork, OWN_INTERRUPT.to_owned());
                }
                // A thread in which a softirq runs is preempted: its softirq does nothing then.
                Doing::Section(Section::Softirq(_) | Section::Expiry(_))
                    if (switching_ns..switched_ns).contains(&from_ns) =>
                {
                    self.push(from_ns, to_ns, PieceKind::Switching, "scheduler".to_owned());
                }
                Doing::Section(Section::Expiry(_)) => {
                    let (kind, section) = match context.softirq() {
                        Some(softirq) => (PieceKind::Softirq, softirq),
                        None => (PieceKind::Interrupt, Section::LocalTimer),
                    };
                    self.push(from_ns, to_ns, kind, cpu::section_name(section));
                }
                Doing::Section(_) => self.push_section(from_ns, to_ns, &context),
                Doing::Nmi(handler) => self.push_nmi(from_ns, to_ns, *handler),
                // An idle CPU wakes nobody: an interrupt does, on its way out, after its last event.
                Doing::Idle if own.is_some() && timeline.wakes(to_ns) => {
                    self.push(from_ns, to_ns, PieceKind::ExpiryWork, OWN_INTERRUPT.to_owned());
                }
                Doing::Idle => {
                    self.push(from_ns, to_ns, PieceKind::IdleExit, "exit from idle".to_owned());
                }
                Doing::Thread if context.thread.tid == self.spike.tid && from_ns >= switched_ns => {
                    self.returns(timeline, from_ns, to_ns);
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
                Doing::Thread => self.held_up(timeline, (from_ns, to_ns), &context, is_last),
            }
        }
    }

    /// The thread itself runs, and isn't back in its program.
    fn returns(&mut self, timeline: &Timeline<'_>, from_ns: u64, to_ns: u64) {
        let is_fault = timeline.has(from_ns, self.spike.tid, What::PageFault);
        let name = if is_fault { PAGE_FAULT } else { RETURN };
        let ends_with_fault =
            to_ns == self.spike.end_ns() && timeline.has(to_ns, self.spike.tid, What::PageFault);
        let Some(piece) = self.push(from_ns, to_ns, PieceKind::Switching, name.to_owned()) else {
            return;
        };
        piece.why = if is_fault {
            piece.certainty = Certainty::LowerBound;
            "page_fault_user shows its start, but no event shows its end"
        } else {
            "sys_exit shows when the thread's system call ended"
        };
        if ends_with_fault {
            piece.place = Some("a page fault of unknown length followed".to_owned());
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
            let work = self.work(context);
            if let Some(piece) = self.push(from_ns, to_ns, PieceKind::Interference, name) {
                piece.place = work;
            }
            return;
        }
        // What the scheduler takes at the end of the stretch is no fault of the thread's.
        if is_last {
            self.push(from_ns, to_ns, PieceKind::Switching, "scheduler".to_owned());
            return;
        }
        let off_ns = timeline.preempt_off_ns(self.spike.waking.at_ns, from_ns);
        let off = off_ns
            .map(|ns| format!("preemption was disabled for {} us or more", crate::number::us(ns)));
        let work = self.work(context);
        let Some(piece) = self.push(from_ns, to_ns, PieceKind::Blocking, name) else { return };
        piece.place = match (work, &off) {
            (Some(work), Some(off)) => Some(format!("{work}; {off}")),
            (work, off) => work.or_else(|| off.clone()),
        };
        if off.is_some() {
            piece.certainty = Certainty::LowerBound;
            piece.why = "the preempt counts of interrupts show that preemption was off from the first to the last of them, \
                         but not when it was switched off and on";
        }
    }

    /// What a thread of the kernel works at for others.
    fn work(&self, context: &Context) -> Option<String> {
        self.function(context.work()?).map(|function| format!("it runs {function}"))
    }

    fn push_nmi(&mut self, from_ns: u64, to_ns: u64, handler: u64) {
        let name =
            self.function(handler).map_or_else(|| NMI.to_owned(), |it| format!("{NMI} ({it})"));
        if let Some(piece) = self.push(from_ns, to_ns, PieceKind::Interrupt, name) {
            piece.why = "nmi_handler shows its length";
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
            Doing::Nmi(_) => NMI.to_owned(),
        }
    }

    /// The name of a function of the kernel, by its number in the record.
    fn function(&self, number: u64) -> Option<&str> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        self.record.symbols.get(at).map(String::as_str)
    }
}

/// The name of the way from the switch back to the program.
const RETURN: &str = "return to user space";

/// The name of a page fault on that way.
const PAGE_FAULT: &str = "page fault";

/// The name of an interrupt that can't be masked.
const NMI: &str = "NMI";

/// The name of the work of the timer's interrupt, beside that of the timers.
const OWN_INTERRUPT: &str = "the interrupt itself";

/// Priorities from here on are ordinary threads' (`include/linux/sched/prio.h`).
const ORDINARY: i32 = 100;

/// What a timer's interrupt takes at most to begin where nothing is in the way: the hardware's timer counts in steps,
/// and the kernel's way into an interrupt comes before its first event.
const HARDWARE_NS: u64 = 1_000;

/// The way into an interrupt is outside of its events, so this much less may be charged though no host took it.
const STEAL_NS: u64 = 20_000;

/// If an interrupt in a guest takes this long, the host more likely stopped the guest during it.
const LONG_HANDLER_NS: u64 = 1_000_000;
const LONG_HANDLER: &str = "interrupts rarely take this long: the host may have stopped the guest";

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
            "the timer's interrupt arrived in a program, where interrupts are on; kernel code that returns to it with them \
             off looks the same"
        }
        PieceKind::Steal => "sched_stat_runtime charged the thread with less time than had passed",
        PieceKind::Interrupt | PieceKind::Softirq => "events mark its start and its end",
        PieceKind::ExpiryWork => {
            "events mark the start of the interrupt and of each timer's function"
        }
        PieceKind::Interference => "sched_switch shows the thread and its priority",
        PieceKind::Blocking => {
            "sched_switch shows the thread and its priority, but no event shows whether preemption was off"
        }
        PieceKind::Switching => {
            "it is what was left until sched_switch, a few microseconds at most"
        }
        PieceKind::Unknown => "no event shows what the CPU did",
    }
}

/// Neighbours of the same cause and place as one.
fn merged(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match all.last_mut() {
            Some(last)
                if (last.kind, &last.name, &last.place)
                    == (piece.kind, &piece.name, &piece.place) =>
            {
                last.add(&piece);
            }
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
