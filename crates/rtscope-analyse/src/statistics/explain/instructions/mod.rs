//! A late wake-up in a guest explained by the instructions that it executed.
//!
//! In virtual time each instruction takes the same time, so the instructions from the programmed expiry to the reading
//! of the clock are the latency. They are cut where the timer's interrupt begins, where it wakes the thread, where the
//! scheduler switches to it and where the thread runs again. A piece ends where another kind of thing begins. The pieces
//! add up to the latency exactly.
//!
//! What can't be known: who runs. The instructions name functions, not threads.

mod choose;
mod code;
mod preempt_count;
mod softirqs;
mod walk;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
};

use rtscope_model::{
    instructions::{Instructions, Window},
    symbols::KernelSymbols,
    trace::Section,
};
use serde::Serialize;

pub(in crate::statistics) use self::choose::origin_ns;
pub(super) use self::softirqs::SOFTIRQS;
pub use self::{
    choose::{ChosenWakeup, above_ns, choose},
    code::Processor,
};
use self::{
    preempt_count::{OffSection, PreemptCount},
    softirqs::{RUN_SOFTIRQS, softirq_of},
    walk::{NodeId, Run, SWITCHES, USER, Walk},
};
use super::{Certainty, Explained, Piece, PieceKind, RETURN, cpu, merged};

/// Functions that wake a thread.
const WAKES: [&str; 2] = ["try_to_wake_up", "wake_up_process"];

/// The name of an interrupt of a device.
pub(super) const DEVICE: &str = "a device";

/// The scheduler's own functions, which say nothing of who called it.
const SCHEDULER: [&str; 9] = [
    "schedule_idle",
    "__schedule",
    "schedule",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_thunk",
    "preempt_schedule_irq",
    "preempt_schedule_notrace",
    "raw_irqentry_exit_cond_resched",
];

/// What every interrupt of a CPU's timer calls.
const TIMER: &str = "hrtimer_interrupt";

/// Functions of the idle thread.
const IDLE: [&str; 2] = ["do_idle", "cpu_startup_entry"];

/// The timer's interrupt comes so much later at most because the hardware's timer counts in coarser steps.
const COARSE_NS: u64 = 1_000;

/// A piece is named after the innermost function that held the CPU for this part of it.
const HELD: f64 = 0.8;

/// Instructions after the one that switches interrupts on until an interrupt begins, at most.
const SETTLES: u64 = 4;

/// Functions that a piece names beside the one that held the CPU.
const NAMED: usize = 3;

/// By what pieces are known.
const WHY: &str = "the emulator recorded the instructions that the guest executed";

/// A late wake-up of a guest.
#[derive(Clone, Debug, Serialize)]
pub struct LateWakeup {
    /// The phase.
    pub phase: String,
    /// Its latency in pieces.
    #[serde(flatten)]
    pub explained: Explained,
    /// Instructions of its parts.
    pub instructions: Paths,
    /// Time in each function without what it called, the longest first.
    pub functions: Vec<FunctionTime>,
    /// Time in each stack without what it called: the outermost function first.
    pub stacks: Vec<StackTime>,
}

/// Instructions of the parts of a late wake-up. A part without a beginning or an end is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Paths {
    /// From the programmed expiry to the timer's interrupt.
    pub expiry_to_interrupt: Option<u64>,
    /// From there to the wake-up.
    pub interrupt_to_wakeup: Option<u64>,
    /// From there to the switch.
    pub wakeup_to_switch: Option<u64>,
    /// From there to the thread's first instruction in user space.
    pub switch_to_user: Option<u64>,
    /// From there to the reading of the clock.
    pub user_to_clock: Option<u64>,
}

impl Paths {
    /// The parts in the order of time.
    #[must_use]
    pub fn parts(&self) -> [Option<u64>; 5] {
        [
            self.expiry_to_interrupt,
            self.interrupt_to_wakeup,
            self.wakeup_to_switch,
            self.switch_to_user,
            self.user_to_clock,
        ]
    }
}

/// Time in a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionTime {
    /// Its name.
    pub name: String,
    /// Time.
    pub ns: u64,
}

/// Time in a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackTime {
    /// Functions, the outermost first.
    pub functions: Vec<String>,
    /// Time.
    pub ns: u64,
}

/// What windows are explained with.
#[derive(Debug)]
pub struct WatchedGuest<'a> {
    /// All that the plugin wrote.
    pub instructions: &'a Instructions,
    /// The guest's.
    pub symbols: &'a KernelSymbols,
    /// The guest's.
    pub processor: Processor,
    /// An instruction takes `2^shift` ns.
    pub shift: u8,
}

/// Explains a late wake-up.
#[must_use]
pub fn explain_window(seen: &WatchedGuest<'_>, chosen: &ChosenWakeup<'_>) -> LateWakeup {
    let walk = walk::walk(seen.instructions, chosen.window, seen.symbols, seen.processor);
    let cut = Cut::new(&walk, chosen.window, seen.shift);
    let mut explained = Explained {
        tid: 0,
        name: chosen.thread.clone(),
        latency_ns: chosen.window.latency_ns,
        cpu: 0,
        at_ns: chosen.window.expiry_ns,
        woken_by: None,
        wakers: Vec::new(),
        pieces: cut.pieces(),
        is_lossy: !seen.instructions.is_whole,
    };
    explained.pieces = merged(explained.pieces);
    LateWakeup {
        phase: chosen.phase.clone(),
        explained,
        instructions: cut.paths(),
        functions: cut.functions(),
        stacks: cut.stacks(),
    }
}

/// A latency that is being cut. Positions are numbers of instructions.
struct Cut<'a> {
    walk: &'a Walk,
    window: &'a Window,
    shift: u8,
    /// Where the latency begins: at the expiry, or where the CPU stopped waiting for it.
    begin: u64,
    /// Where the clock was read.
    end: u64,
    interrupt: Option<u64>,
    wakeup: Option<u64>,
    /// The first switch after the wake-up, to any thread.
    first_switch: Option<u64>,
    switch: Option<u64>,
    user: Option<u64>,
    /// The preempt count, where it is known.
    count: Option<PreemptCount>,
    /// Where interrupts of the timer began.
    timers: HashSet<u64>,
}

/// Instructions of one kind of thing.
struct Part {
    from: u64,
    to: u64,
    kind: PieceKind,
    /// Its name; none where the functions in it give one.
    name: Option<String>,
    /// Instructions of each node.
    nodes: BTreeMap<NodeId, u64>,
}

impl<'a> Cut<'a> {
    fn new(walk: &'a Walk, window: &'a Window, shift: u8) -> Cut<'a> {
        let end = walk.runs.iter().rev().find_map(|run| run.clock_at).unwrap_or(walk.end);
        let due = end.saturating_sub(window.latency_ns >> shift);
        let before_end = || walk.runs.iter().rev().filter(|run| run.at < end);
        // A CPU that waits for the timer executes nothing: the clock goes on by itself.
        let halted = before_end().find_map(|run| run.halt_at).unwrap_or(0);
        let begin = due.max(halted);
        let within = || before_end().take_while(|run| run.at + run.count > begin);
        let entered =
            |run: &&Run, names: &[&str]| run.enters && names.contains(&walk.function(run.node));
        let is_wakeup = |run: &&Run| entered(run, &WAKES) && run.interrupt_at.is_some();
        let sleeper = |run: &&Run| {
            is_wakeup(run)
                && walk.callers(run.node).any(|node| walk.function(node) == "hrtimer_wakeup")
        };
        let woken = within().find(sleeper).or_else(|| within().find(is_wakeup));
        let wakeup = woken.map(|run| run.at);
        let after = |from: Option<u64>| move |run: &&Run| from.is_none_or(|from| run.at > from);
        let switch = within().filter(after(wakeup)).find(|run| entered(run, &SWITCHES));
        let switch = switch.map(|run| run.at);
        let since = |run: &&Run| run.at >= wakeup.unwrap_or(0) && entered(run, &SWITCHES);
        let first_switch = walk.runs.iter().find(since).map(|run| run.at);
        let is_user = |run: &&Run| walk.function(run.node) == USER;
        let user = switch.and_then(|from| {
            let mut later = walk.runs.iter().filter(|run| run.at > from && run.at < end);
            later.find(is_user).map(|run| run.at)
        });
        let interrupt = woken.and_then(|run| run.interrupt_at).map(|at| at.max(begin));
        let users = walk.runs.iter().filter(|run| is_user(run) && run.at < end);
        let users: Vec<u64> = users.map(|run| run.at).collect();
        let count = walk.counts.as_ref().and_then(|all| PreemptCount::follow(all, &users));
        let timers = walk.runs.iter().filter(|run| walk.function(run.node) == TIMER);
        let timers = timers.filter_map(|run| run.interrupt_at).collect();
        Cut {
            walk,
            window,
            shift,
            begin,
            end,
            interrupt,
            wakeup,
            first_switch,
            switch,
            user,
            count,
            timers,
        }
    }

    /// The instant of a position.
    fn at_ns(&self, position: u64) -> u64 {
        let left_ns = (self.end - position) << self.shift;
        (self.window.expiry_ns + self.window.latency_ns).saturating_sub(left_ns)
    }

    /// Runs of the latency, those at its ends cut.
    fn runs(&self) -> impl Iterator<Item = (&'a Run, u64, u64)> {
        let (begin, end) = (self.begin, self.end);
        self.walk.runs.iter().filter_map(move |run| {
            let (from, to) = (run.at.max(begin), (run.at + run.count).min(end));
            (from < to).then_some((run, from, to))
        })
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (expiry_ns, begin_ns) = (self.window.expiry_ns, self.at_ns(self.begin));
        // Less than an instruction is what a division leaves.
        let idle_ns = begin_ns.saturating_sub(expiry_ns);
        if idle_ns >> self.shift > 0 {
            let name = "the CPU waited for the timer".to_owned();
            let kind = PieceKind::IdleExit;
            let (ns, certainty) = (idle_ns, Certainty::Measured);
            pieces.push(Piece {
                kind,
                name,
                at_ns: expiry_ns,
                ns,
                certainty,
                why: WHY,
                place: None,
            });
        }
        for part in self.parts() {
            let at_ns = if pieces.is_empty() { expiry_ns } else { self.at_ns(part.from) };
            let (name, place) = self.named(&part);
            let certainty = match part.kind {
                PieceKind::Unknown => Certainty::Unknown,
                _ => Certainty::Measured,
            };
            let ns = self.at_ns(part.to) - at_ns;
            pieces.push(Piece { kind: part.kind, name, at_ns, ns, certainty, why: WHY, place });
        }
        pieces
    }

    /// Neighbours of one kind and name together.
    fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (run, from, to) in self.runs() {
            for (from, to) in self.split(from, to) {
                let (kind, name) = self.classify(run, from);
                let fits =
                    parts.last().is_some_and(|part| (part.kind, &part.name) == (kind, &name));
                if !fits {
                    parts.push(Part { from, to, kind, name, nodes: BTreeMap::new() });
                }
                if let Some(part) = parts.last_mut() {
                    part.to = to;
                    *part.nodes.entry(run.node).or_default() += to - from;
                }
            }
        }
        parts
    }

    /// A run where the interrupt begins inside of it, which only a latency that begins there has.
    fn split(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        match self.interrupt {
            Some(at) if from < at && at < to => vec![(from, at), (at, to)],
            _ => vec![(from, to)],
        }
    }

    /// What kind of thing an instruction belongs to, and its name where that isn't a function's.
    fn classify(&self, run: &Run, at: u64) -> (PieceKind, Option<String>) {
        let walk = self.walk;
        let context = walk.context(run.node);
        let is_user = walk.function(run.node) == USER;
        let has = |names: &[&str]| context.iter().any(|node| names.contains(&walk.function(*node)));
        let below = |names: &[&str]| {
            let found = context.iter().rposition(|node| names.contains(&walk.function(*node)))?;
            let inner = *context.get(found.checked_sub(1)?)?;
            Some(walk.function(inner).to_owned())
        };
        let interrupt = context
            .last()
            .copied()
            .filter(|node| walk.nodes[*node].is_interrupt && !walk.is_fault(*node));
        if self.switch.is_some_and(|switch| at >= switch) {
            let is_fault = walk.callers(run.node).any(|node| walk.is_fault(node));
            let name = match (interrupt, is_fault, is_user) {
                (Some(node), ..) => {
                    return (PieceKind::Interrupt, Some(self.interrupt_name(node, run)));
                }
                (_, true, _) => "page fault",
                (.., true) => "the thread reads the clock",
                _ => RETURN,
            };
            return (PieceKind::Switching, Some(name.to_owned()));
        }
        if has(&RUN_SOFTIRQS) {
            return match self.interrupt {
                // Softirqs run with interrupts on, but for what they call.
                Some(interrupt) if at < interrupt => self.late_interrupt(is_user),
                // PREEMPT_RT runs them in threads, which are preempted.
                _ if has(&["__schedule"]) => self.scheduler(),
                _ => {
                    let name = below(&RUN_SOFTIRQS).and_then(|handler| softirq_of(&handler));
                    (PieceKind::Softirq, Some(name.unwrap_or_else(|| SOFTIRQS.to_owned())))
                }
            };
        }
        let is_ours = self.interrupt.is_some()
            && run.interrupt_at.map(|at| at.max(self.begin)) == self.interrupt;
        match (interrupt, self.wakeup) {
            (Some(_), _) if has(&["__schedule"]) => self.scheduler(),
            (Some(_), Some(_)) if is_ours => {
                let timer = below(&["__hrtimer_run_queues"]);
                (PieceKind::ExpiryWork, timer.or_else(|| Some("the interrupt itself".to_owned())))
            }
            (Some(node), _) => (PieceKind::Interrupt, Some(self.interrupt_name(node, run))),
            (None, Some(wakeup)) if at >= wakeup && has(&["__schedule"]) => self.scheduler(),
            (None, Some(_)) if has(&IDLE) => {
                (PieceKind::IdleExit, Some("exit from idle".to_owned()))
            }
            (None, Some(wakeup)) if at >= wakeup && self.is_switched(at) => {
                (PieceKind::Interference, None)
            }
            (None, Some(wakeup)) if at >= wakeup => (PieceKind::Blocking, None),
            (None, Some(_)) => self.late_interrupt(is_user),
            (None, None) => (PieceKind::Unknown, None),
        }
    }

    /// What keeps the timer's interrupt away.
    fn late_interrupt(&self, is_user: bool) -> (PieceKind, Option<String>) {
        match is_user || self.is_coarse() {
            true => (PieceKind::ExpiryWork, Some("steps of the hardware's timer".to_owned())),
            false => (PieceKind::InterruptsOff, None),
        }
    }

    /// Whether the interrupt came as late as the steps of the hardware's timer explain.
    fn is_coarse(&self) -> bool {
        self.interrupt.is_some_and(|at| (at - self.begin) << self.shift <= COARSE_NS)
    }

    /// What an interrupt is called: its function without what all of them begin with. On arm64 they have one function,
    /// so what it called says which one it was.
    fn interrupt_name(&self, node: NodeId, run: &Run) -> String {
        let function = self.walk.function(node);
        let name = function.strip_prefix("asm_").unwrap_or(function);
        let name = name.strip_prefix("sysvec_").unwrap_or(name);
        match name {
            "apic_timer_interrupt" => cpu::section_name(Section::LocalTimer),
            _ if run.interrupt_at.is_some_and(|at| self.timers.contains(&at)) => {
                cpu::section_name(Section::LocalTimer)
            }
            "irq_entries_start" | "common_interrupt" => DEVICE.to_owned(),
            _ if name.ends_with("_irq") => DEVICE.to_owned(),
            name => name.to_owned(),
        }
    }

    fn scheduler(&self) -> (PieceKind, Option<String>) {
        (PieceKind::Switching, Some("scheduler".to_owned()))
    }

    /// Whether the CPU switched to another thread between the wake-up and this position.
    fn is_switched(&self, at: u64) -> bool {
        self.first_switch.is_some_and(|switch| switch < at)
    }

    /// The name of a part, and more of the place.
    fn named(&self, part: &Part) -> (String, Option<String>) {
        if let Some(name) = &part.name {
            return (name.clone(), None);
        }
        let name = self.holder(&part.nodes).map_or("the kernel", |node| self.walk.function(node));
        let name = name.to_owned();
        let mut own: BTreeMap<&str, u64> = BTreeMap::new();
        for (node, count) in &part.nodes {
            *own.entry(self.walk.function(*node)).or_default() += count;
        }
        let mut own: Vec<(&str, u64)> = own.into_iter().collect();
        own.sort_by_key(|(function, count)| (Reverse(*count), *function));
        let busiest = own.iter().take(NAMED).map(|(function, count)| {
            format!("{function} {} us", crate::number::us(count << self.shift))
        });
        let mut place = busiest.collect::<Vec<_>>().join(", ");
        let more = match part.kind {
            PieceKind::Blocking => [self.unpreempted(part), self.left()],
            PieceKind::InterruptsOff => [self.masked(part.to), None],
            _ => [None, None],
        };
        for more in more.into_iter().flatten() {
            place = format!("{place}; {more}");
        }
        (name, Some(place))
    }

    /// The innermost function that, with what it called, has most of these instructions.
    fn holder(&self, nodes: &BTreeMap<NodeId, u64>) -> Option<NodeId> {
        let mut inclusive: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (node, count) in nodes {
            for caller in self.walk.callers(*node) {
                *inclusive.entry(caller).or_default() += count;
            }
        }
        let all: u64 = nodes.values().sum();
        let holds = |count: u64| count as f64 >= all as f64 * HELD;
        let most = inclusive.iter().filter(|(_, count)| holds(**count));
        // A function is made before what it calls.
        most.map(|(node, _)| *node).max()
    }

    /// Where the kernel could switch at last: the function that called the scheduler, and its caller.
    fn left(&self) -> Option<String> {
        let run = self.walk.runs.iter().rev().find(|run| Some(run.at) < self.switch)?;
        let callers: Vec<&str> =
            self.walk.callers(run.node).map(|node| self.walk.function(node)).collect();
        let inner = callers.iter().rposition(|function| SCHEDULER.contains(function))?;
        let (first, second) = (callers.get(inner + 1)?, callers.get(inner + 2));
        Some(match second {
            Some(second) => format!("up to {first} in {second}"),
            None => format!("up to {first}"),
        })
    }

    /// Where preemption was disabled and enabled around a part: the section that held the CPU, or the longest one of a
    /// kernel that doesn't switch where preemption is on.
    fn unpreempted(&self, part: &Part) -> Option<String> {
        let (from, to) = (part.from, part.to);
        let shared = |one: &OffSection| one.to.min(to) - one.from.max(from);
        let all: Vec<&OffSection> = self.count.as_ref()?.within(from, to)?.collect();
        let off: u64 = all.iter().map(|one| shared(one)).sum();
        let time = |count: u64| crate::number::us(count << self.shift);
        let on = format!(
            "preemption was enabled for {} us, but the kernel didn't switch there",
            time(to - from - off)
        );
        let Some(longest) = all.into_iter().max_by_key(|one| (shared(one), one.from)) else {
            return Some(on);
        };
        let place = |node: Option<NodeId>| node.map(|node| self.place(node));
        let from_where =
            place(longest.off).unwrap_or_else(|| "code that wasn't recorded".to_owned());
        let (off, to_where) = (time(longest.to - longest.from), place(longest.on)?);
        let functions = format!("disabled in {from_where}, enabled again in {to_where}");
        if shared(longest) as f64 >= (to - from) as f64 * HELD {
            return Some(format!("preemption was disabled for {off} us, {functions}"));
        }
        Some(format!("{on}; it was disabled for at most {off} us at a stretch, {functions}"))
    }

    /// Where interrupts were disabled, and where they were enabled again, so that the one at `at` could begin.
    fn masked(&self, at: u64) -> Option<String> {
        let mut before = self.walk.runs.iter().rev().skip_while(|run| run.at >= at);
        let on = before.clone().next()?;
        // What switched them on is the last thing before the interrupt.
        let is_settled = |run: &&Run| run.masks.is_some() && run.at + run.count + SETTLES <= at;
        let off = before.find(|run| run.masks == Some(true) || is_settled(run))?;
        let is_off = off.masks == Some(true);
        let (off, on) = (self.place(off.node), self.place(on.node));
        is_off.then(|| format!("disabled in {off}, enabled again in {on}"))
    }

    /// A function, and what called it.
    fn place(&self, node: NodeId) -> String {
        let mut callers = self.walk.callers(node).map(|node| self.walk.function(node));
        match (callers.next().unwrap_or("the kernel"), callers.next()) {
            (function, Some(caller)) => format!("{function} ({caller})"),
            (function, None) => function.to_owned(),
        }
    }

    fn paths(&self) -> Paths {
        let between = |from: Option<u64>, to: Option<u64>| to?.checked_sub(from?);
        Paths {
            expiry_to_interrupt: between(Some(self.begin), self.interrupt),
            interrupt_to_wakeup: between(self.interrupt, self.wakeup),
            wakeup_to_switch: between(self.wakeup, self.switch),
            switch_to_user: between(self.switch, self.user),
            user_to_clock: between(self.user, Some(self.end)),
        }
    }

    fn nodes(&self) -> BTreeMap<NodeId, u64> {
        let mut nodes = BTreeMap::new();
        for (run, from, to) in self.runs() {
            *nodes.entry(run.node).or_default() += (to - from) << self.shift;
        }
        nodes
    }

    fn functions(&self) -> Vec<FunctionTime> {
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        for (node, ns) in self.nodes() {
            *all.entry(self.walk.function(node)).or_default() += ns;
        }
        let one = |(name, ns): (&str, u64)| FunctionTime { name: name.to_owned(), ns };
        let mut all: Vec<FunctionTime> = all.into_iter().map(one).collect();
        all.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.name.cmp(&b.name)));
        all
    }

    fn stacks(&self) -> Vec<StackTime> {
        let mut all: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (node, ns) in self.nodes() {
            let callers = self.walk.callers(node);
            let mut functions: Vec<String> =
                callers.map(|node| self.walk.function(node).to_owned()).collect();
            functions.reverse();
            *all.entry(functions).or_default() += ns;
        }
        all.into_iter().map(|(functions, ns)| StackTime { functions, ns }).collect()
    }
}

#[cfg(test)]
mod tests;
