//! Finds late activations in the stream of the kernel's events, and keeps what happened around them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

use rtscope_model::{
    explain::{ExpiredTimer, RunningThread, Spike, Waker, Wakeup, WatchedThread},
    trace::{Event, Section, TimerFunction, What},
};

use super::wakeups::Wakeups;
use crate::trace::OTHER_CLOCK_NS;

/// So long before an activation should have run its events are kept: three ticks of the slowest clock, so that what
/// the running thread was charged with is in it.
pub(super) const LEAD_NS: u64 = 30_000_000;

/// A thread that is so long in the kernel after it came to run does more there than to return to its program.
const RETURN_NS: u64 = 5_000_000;

/// A page fault is a part of the return when it follows the end of the system call, or another page fault, so closely.
const FAULT_NS: u64 = 20_000;

/// Events of a CPU that are held for activations to come.
const HELD_MAX: usize = 100_000;

/// Events that a late activation keeps, the last ones.
const KEPT_MAX: usize = 20_000;

/// A CPU.
#[derive(Debug, Default)]
struct Cpu {
    /// What ran when the events that are held begin.
    before: RunningThread,
    events: VecDeque<Event>,
    /// How many timers expire, one within another.
    expiring: u32,
}

impl Cpu {
    fn push(&mut self, event: Event) {
        match event.what {
            What::Enter(Section::Expiry(_)) => self.expiring += 1,
            What::Leave(Section::Expiry(_)) => self.expiring = self.expiring.saturating_sub(1),
            _ => {}
        }
        self.events.push_back(event);
        let is_old = |first: &Event| event.at_ns.saturating_sub(first.at_ns) > 2 * LEAD_NS;
        while self.events.front().is_some_and(is_old) || self.events.len() > HELD_MAX {
            if let Some(first) = self.events.pop_front() {
                follow(&mut self.before, &first);
            }
        }
    }

    /// What ran at an instant, and the events from then on.
    fn since(&self, from_ns: u64) -> (RunningThread, impl Iterator<Item = &Event>) {
        let by_time = self.events.partition_point(|event| event.at_ns < from_ns);
        let at = by_time.max(self.events.len().saturating_sub(KEPT_MAX));
        let mut before = self.before;
        self.events.range(..at).for_each(|event| follow(&mut before, event));
        (before, self.events.range(at..))
    }
}

/// What runs after an event.
fn follow(running: &mut RunningThread, event: &Event) {
    match event.what {
        What::Switch { to, to_priority, to_name, .. } => {
            running.tid = to;
            running.name = to_name;
            running.priority = Some(to_priority);
            running.is_idle = false;
        }
        What::Idle { begins } => running.is_idle = begins,
        _ if event.tid != running.tid => {
            *running =
                RunningThread { cpu: running.cpu, tid: event.tid, ..RunningThread::default() };
        }
        _ => {}
    }
}

/// A thread that is watched.
#[derive(Debug, Default)]
struct Sleeper {
    thread: WatchedThread,
    /// The timers that it has set, the last one of each kind.
    timers: BTreeMap<TimerFunction, ExpiredTimer>,
    /// It was woken, and by its timer or not.
    waking: Option<(Wakeup, bool)>,
    /// Who woke the one that woke it.
    wakers: Vec<Waker>,
    /// It runs: who wakes it then keeps it from going to sleep, and it isn't late.
    is_running: bool,
    /// It may have been woken when nothing was recorded: its next activation isn't known.
    is_unknown: bool,
}

/// What is late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From this latency on; 0 is all.
    pub(super) above_ns: u64,
    /// So many are kept.
    pub(super) kept_max: usize,
    /// What `CLOCK_REALTIME` is ahead.
    pub(super) realtime_ns: u64,
}

/// Takes the kernel's events in their order.
#[derive(Debug)]
pub(super) struct Finder {
    limits: Limits,
    cpus: BTreeMap<u32, Cpu>,
    sleepers: BTreeMap<u32, Sleeper>,
    /// Who woke whom.
    wakeups: Wakeups,
    /// Activations of threads that came to run and aren't back in their programs.
    returning: Vec<Returning>,
    /// The times whose worst activations are kept, in their order.
    phases: Vec<KeptPhase>,
    /// Events were lost, and none was seen since.
    is_after_loss: bool,
    /// Time of the first event after the last loss. In a window that reaches back before it, one thread seems to have
    /// run all the time.
    lost_until_ns: u64,
}

/// A time whose worst activations are kept, however late those of other times are.
#[derive(Debug)]
struct KeptPhase {
    span: Range<u64>,
    spikes: Vec<Spike>,
}

/// An activation whose thread has come to run and isn't back in its program, as far as the events show.
#[derive(Debug)]
struct Returning {
    spike: Spike,
    /// From then on nothing that happens belongs to it.
    until_ns: u64,
}

impl Returning {
    fn new(spike: Spike) -> Returning {
        Returning { until_ns: spike.switched_ns + RETURN_NS, spike }
    }

    /// Whether it is over by the time of an event.
    fn ends_with(&mut self, event: &Event) -> bool {
        let Returning { spike, until_ns } = self;
        match (event.what, spike.returned_ns) {
            _ if event.at_ns > *until_ns => true,
            (What::Switch { to, .. }, _) if to == spike.tid && event.at_ns > spike.switched_ns => {
                *until_ns = event.at_ns + RETURN_NS;
                event.cpu != spike.cpu
            }
            _ if event.tid != spike.tid || event.in_interrupt => false,
            // Another thread goes first.
            (What::Switch { is_ready: true, .. }, _) => {
                *until_ns = spike.switched_ns + LEAD_NS;
                false
            }
            (What::SystemCallEnds, None) | (What::PageFault, Some(_)) => {
                spike.returned_ns = Some(event.at_ns);
                *until_ns = event.at_ns + FAULT_NS;
                false
            }
            (What::Switch { .. }, _) => true,
            (_, returned_ns) => returned_ns.is_some(),
        }
    }
}

impl Finder {
    pub(super) fn new(limits: Limits) -> Finder {
        let mut finder = Finder {
            limits,
            cpus: BTreeMap::new(),
            sleepers: BTreeMap::new(),
            wakeups: Wakeups::default(),
            returning: Vec::new(),
            phases: Vec::new(),
            is_after_loss: false,
            lost_until_ns: 0,
        };
        finder.keep_in(std::slice::from_ref(&(0..u64::MAX)));
        finder
    }

    /// Keeps the worst of each of these times and of no other. Times that are known already may have become shorter.
    pub(super) fn keep_in(&mut self, spans: &[Range<u64>]) {
        for (n, span) in spans.iter().cloned().enumerate() {
            match self.phases.get_mut(n) {
                Some(phase) => {
                    phase.span = span;
                    let KeptPhase { span, spikes } = phase;
                    spikes.retain(|spike| span.contains(&spike.start_ns()));
                }
                None => self.phases.push(KeptPhase { span, spikes: Vec::new() }),
            }
        }
    }

    /// Watches a thread from now on, if it isn't watched yet.
    pub(super) fn watch(&mut self, tid: u32) {
        let thread = WatchedThread { tid, ..WatchedThread::default() };
        self.sleepers.entry(tid).or_insert(Sleeper { thread, ..Sleeper::default() });
    }

    pub(super) fn see(&mut self, event: &Event) {
        if std::mem::take(&mut self.is_after_loss) {
            self.lost_until_ns = event.at_ns;
        }
        let cpu = self.cpus.entry(event.cpu).or_default();
        cpu.before.cpu = event.cpu;
        cpu.push(*event);
        let is_expiring = cpu.expiring > 0;
        self.follow_returns(event);
        if let Some(sleeper) = self.sleepers.get_mut(&event.tid) {
            // Some kernels leave out switches away from some threads: who does something runs.
            if let Some((waking, _)) = sleeper.waking.take() {
                sleeper.take_timer(waking.at_ns);
                sleeper.thread.unseen += 1;
            }
            sleeper.is_running = !matches!(event.what, What::Switch { .. });
        }
        match event.what {
            What::TimerStart { function, expires_ns, slack_ns, .. } if !event.in_interrupt => {
                if let Some(sleeper) = self.sleepers.get_mut(&event.tid)
                    && function.ends_a_sleep()
                {
                    let expires_ns = match expires_ns.saturating_sub(event.at_ns) {
                        OTHER_CLOCK_NS.. => expires_ns.saturating_sub(self.limits.realtime_ns),
                        _ => expires_ns,
                    };
                    sleeper.timers.insert(function, ExpiredTimer { expires_ns, slack_ns });
                }
            }
            What::Waking { tid, name } => {
                let (by, in_interrupt) = (event.tid, event.in_interrupt);
                let waking = Wakeup { at_ns: event.at_ns, cpu: event.cpu, by, in_interrupt };
                if let Some(sleeper) = self.sleepers.get_mut(&tid) {
                    sleeper.thread.name = name;
                    if !sleeper.is_running && sleeper.waking.is_none() {
                        sleeper.waking = Some((waking, is_expiring));
                        sleeper.wakers = self.wakeups.before(tid, waking);
                    }
                }
                self.wakeups.see(Waker { tid, name, waking });
            }
            What::Switch { to, to_priority, to_name, .. } => {
                if let Some(sleeper) = self.sleepers.get_mut(&to) {
                    sleeper.thread.name = to_name;
                    sleeper.thread.priority = to_priority;
                    sleeper.is_running = true;
                    self.returning.extend(sleeper.activation(event).map(Returning::new));
                }
            }
            _ => {}
        }
    }

    /// Keeps the activations that an event ends.
    fn follow_returns(&mut self, event: &Event) {
        let ended: Vec<Returning> =
            self.returning.extract_if(.., |one| one.ends_with(event)).collect();
        ended.into_iter().for_each(|one| self.keep(one.spike));
    }

    /// Keeps the activations that have begun, with what is known of them.
    fn end_returns(&mut self) {
        let all = std::mem::take(&mut self.returning);
        all.into_iter().for_each(|one| self.keep(one.spike));
    }

    fn keep(&mut self, mut spike: Spike) {
        let latency_ns = spike.latency_ns();
        let Some(sleeper) = self.sleepers.get_mut(&spike.tid) else { return };
        let thread = &mut sleeper.thread;
        thread.activations += 1;
        thread.by_timer += u64::from(spike.timer.is_some());
        thread.latency_ns_max = thread.latency_ns_max.max(latency_ns);
        thread.latency_ns_sum += latency_ns;
        if latency_ns < self.limits.above_ns {
            return;
        }
        thread.late += 1;
        let is_in = |phase: &&mut KeptPhase| phase.span.contains(&spike.start_ns());
        let Some(phase) = self.phases.iter_mut().find(is_in) else { return };
        let kept = &mut phase.spikes;
        let is_full = kept.len() >= self.limits.kept_max;
        let least = kept.iter().map(Spike::latency_ns).enumerate().min_by_key(|one| one.1);
        match least {
            Some((_, least_ns)) if is_full && least_ns >= latency_ns => return,
            Some((at, _)) if is_full => drop(kept.swap_remove(at)),
            _ => {}
        }
        let (start_ns, end_ns) = (spike.start_ns().min(spike.waking.at_ns), spike.end_ns());
        let from_ns = start_ns.saturating_sub(LEAD_NS);
        spike.is_lossy |= from_ns < self.lost_until_ns;
        let wakers = spike.wakers.iter().map(|waker| waker.waking.cpu);
        let cpus: BTreeSet<u32> = wakers.chain([spike.cpu, spike.waking.cpu]).collect();
        for cpu in cpus {
            let Some(cpu) = self.cpus.get(&cpu) else { continue };
            let (before, events) = cpu.since(from_ns);
            spike.before.push(before);
            spike.events.extend(events.take_while(|event| event.at_ns <= end_ns));
        }
        spike.events.sort_by_key(|event| event.at_ns);
        kept.push(spike);
    }

    /// From when to when the late activations that are kept lasted, with their lead, the worst first.
    pub(super) fn times(&self) -> Vec<(u64, u64)> {
        let mut spikes: Vec<&Spike> = self.phases.iter().flat_map(|it| &it.spikes).collect();
        spikes.sort_by_key(|spike| u64::MAX - spike.latency_ns());
        let start_ns = |spike: &Spike| spike.start_ns().min(spike.waking.at_ns);
        spikes.iter().map(|one| (start_ns(one).saturating_sub(LEAD_NS), one.end_ns())).collect()
    }

    /// Events of a time had no room: who was woken in it may have been woken otherwise than it seems.
    pub(super) fn lost(&mut self, from_ns: u64) {
        self.end_returns();
        self.is_after_loss = true;
        // The end of a timer's expiry may be among the lost events.
        self.cpus.values_mut().for_each(|cpu| cpu.expiring = 0);
        self.wakeups.forget();
        for sleeper in self.sleepers.values_mut() {
            sleeper.timers.clear();
            sleeper.waking = None;
        }
        for spike in self.phases.iter_mut().flat_map(|phase| &mut phase.spikes) {
            spike.is_lossy |= spike.end_ns() >= from_ns;
        }
    }

    /// Nothing was recorded for a time: what was begun before has no end.
    pub(super) fn forget(&mut self) {
        self.end_returns();
        self.cpus.clear();
        self.wakeups.forget();
        for sleeper in self.sleepers.values_mut() {
            sleeper.timers.clear();
            sleeper.waking = None;
            (sleeper.is_running, sleeper.is_unknown) = (false, true);
        }
    }

    /// The threads, and what was late, the worst first.
    pub(super) fn finish(mut self) -> (Vec<WatchedThread>, Vec<Spike>) {
        self.end_returns();
        let mut spikes: Vec<Spike> = self.phases.into_iter().flat_map(|it| it.spikes).collect();
        spikes.sort_by_key(|spike| (u64::MAX - spike.latency_ns(), spike.switched_ns));
        let threads = self.sleepers.into_values().map(|sleeper| sleeper.thread);
        (threads.filter(|thread| thread.activations + thread.unseen > 0).collect(), spikes)
    }
}

impl Sleeper {
    /// The timer that was due at a wake-up, if there was any. It is over then, and so is a sleep.
    fn take_timer(&mut self, waking_ns: u64) -> Option<ExpiredTimer> {
        let is_due = |timer: &&ExpiredTimer| timer.expires_ns <= waking_ns;
        let due = self.timers.values().filter(is_due).min_by_key(|timer| timer.expires_ns).copied();
        self.timers.retain(|function, timer| {
            *function != TimerFunction::Sleep && timer.expires_ns > waking_ns
        });
        due
    }

    /// The thread comes to run: how it was woken, if it was.
    fn activation(&mut self, switch: &Event) -> Option<Spike> {
        let (waking, by_timer) = self.waking.take()?;
        let timer = self.take_timer(waking.at_ns);
        if std::mem::take(&mut self.is_unknown) {
            return None;
        }
        Some(Spike {
            tid: self.thread.tid,
            priority: self.thread.priority,
            timer: timer.filter(|_| by_timer),
            waking,
            wakers: std::mem::take(&mut self.wakers),
            cpu: switch.cpu,
            switched_ns: switch.at_ns,
            returned_ns: None,
            before: Vec::new(),
            events: Vec::new(),
            is_lossy: false,
        })
    }
}

#[cfg(test)]
#[path = "finder_tests.rs"]
mod tests;
