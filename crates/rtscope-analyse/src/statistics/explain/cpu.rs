//! What a CPU did when, by its events.

use std::{collections::BTreeMap, rc::Rc};

use rtscope_model::{
    explain::{RunningThread, Spike},
    trace::{Event, Name, Place, Section, What, softirq_name},
};

use super::{enters, of_cpu};

/// What a CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// An interrupt, a softirq, a timer's function.
    Section(Section),
    /// It is idle.
    Idle,
    /// It runs a thread.
    Thread,
    /// An interrupt that can't be masked, by the function that handles it.
    Nmi(u64),
}

/// What a CPU is about: the thread that runs, and what interrupts it, one within the other.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) thread: RunningThread,
    /// Threads that the events name.
    others: Rc<BTreeMap<u32, RunningThread>>,
    /// Begin of each.
    sections: Vec<(Section, u64)>,
    /// Functions of workqueues that threads are in.
    works: BTreeMap<u32, u64>,
    innermost: Doing,
}

impl Context {
    fn new(thread: RunningThread, others: Rc<BTreeMap<u32, RunningThread>>) -> Context {
        let (sections, works, innermost) = (Vec::new(), BTreeMap::new(), Doing::Thread);
        let mut context = Context { thread, others, sections, works, innermost };
        context.settle();
        context
    }

    fn settle(&mut self) {
        self.innermost = match (self.sections.last(), self.thread.is_idle) {
            (Some((section, _)), _) => Doing::Section(*section),
            (None, true) => Doing::Idle,
            (None, false) => Doing::Thread,
        };
    }

    /// What it does.
    pub(super) fn innermost(&self) -> &Doing {
        &self.innermost
    }

    /// The begin of the timer's interrupt that it is in.
    pub(super) fn timer_interrupt(&self) -> Option<u64> {
        let is_timer = |section: &Section| match section {
            Section::LocalTimer => true,
            Section::Irq { name, .. } => name.to_string().contains("timer"),
            _ => false,
        };
        let of = |is_meant: &dyn Fn(&Section) -> bool| {
            self.sections.iter().find(|(section, _)| is_meant(section)).map(|(_, at_ns)| *at_ns)
        };
        of(&is_timer).or_else(|| of(&|section| matches!(section, Section::Expiry(_))))
    }

    /// The softirq that it is in.
    pub(super) fn softirq(&self) -> Option<Section> {
        let mut sections = self.sections.iter().map(|(section, _)| *section);
        sections.find(|section| matches!(section, Section::Softirq(_)))
    }

    pub(super) fn thread_name(&self) -> String {
        thread_text(self.thread.tid, self.thread.name)
    }

    /// The function of a workqueue that the thread is in.
    pub(super) fn work(&self) -> Option<u64> {
        self.works.get(&self.thread.tid).copied()
    }

    fn see(&mut self, event: &Event) {
        match event.what {
            What::Work { function, begins: true } => drop(self.works.insert(event.tid, function)),
            What::Work { begins: false, .. } => drop(self.works.remove(&event.tid)),
            _ => {}
        }
        match event.what {
            What::Switch { to, to_priority, to_name, .. } => {
                self.thread.tid = to;
                self.thread.name = to_name;
                self.thread.priority = Some(to_priority);
                self.thread.is_idle = false;
                // Threads are switched outside of interrupts: what has no end here was cut off.
                self.sections.clear();
            }
            What::Idle { begins } => self.thread.is_idle = begins,
            // A switch that no event showed.
            _ if event.tid != self.thread.tid => {
                self.thread = self.others.get(&event.tid).copied().unwrap_or(RunningThread {
                    cpu: event.cpu,
                    tid: event.tid,
                    ..RunningThread::default()
                });
                self.sections.clear();
                self.enter(event);
            }
            _ => self.enter(event),
        }
        self.settle();
    }

    fn enter(&mut self, event: &Event) {
        match event.what {
            What::Enter(section) => self.sections.push((section, event.at_ns)),
            What::Leave(section) => {
                if let Some(at) = self.sections.iter().rposition(|(one, _)| one.is_of(section)) {
                    self.sections.truncate(at);
                }
            }
            _ => {}
        }
    }
}

/// A thread for people.
pub(super) fn thread_text(tid: u32, name: Name) -> String {
    match (tid, name.to_string()) {
        (0, _) => "the idle thread".to_owned(),
        (tid, name) if name.is_empty() => format!("thread {tid}"),
        (tid, name) => format!("{name}-{tid}"),
    }
}

/// A CPU's events around a late activation.
#[derive(Debug)]
pub(super) struct Timeline<'a> {
    before: RunningThread,
    threads: Rc<BTreeMap<u32, RunningThread>>,
    events: Vec<&'a Event>,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(spike: &'a Spike, cpu: u32) -> Timeline<'a> {
        let before = spike.before.iter().find(|one| one.cpu == cpu).copied();
        let threads = spike.events.iter().filter_map(|event| match event.what {
            What::Switch { to, to_priority, to_name, .. } => {
                let priority = Some(to_priority);
                let thread =
                    RunningThread { cpu, tid: to, name: to_name, priority, is_idle: false };
                Some((to, thread))
            }
            _ => None,
        });
        Timeline {
            before: before.unwrap_or_default(),
            threads: Rc::new(threads.collect()),
            events: of_cpu(spike, cpu).collect(),
        }
    }

    /// What it did right before an instant.
    pub(super) fn at(&self, at_ns: u64) -> Context {
        let mut context = Context::new(self.before, self.threads.clone());
        self.events
            .iter()
            .take_while(|event| event.at_ns < at_ns)
            .for_each(|event| context.see(event));
        context
    }

    /// What it did between two instants, piece by piece.
    pub(super) fn between(&self, from_ns: u64, to_ns: u64) -> Vec<(u64, u64, Context)> {
        let mut parts = Vec::new();
        if from_ns >= to_ns {
            return parts;
        }
        let mut context = self.at(from_ns);
        let mut since_ns = from_ns;
        let within = self.events.iter().filter(|event| (from_ns..to_ns).contains(&event.at_ns));
        for event in within {
            if event.at_ns > since_ns {
                parts.push((since_ns, event.at_ns, context.clone()));
                since_ns = event.at_ns;
            }
            context.see(event);
        }
        parts.push((since_ns, to_ns, context));
        self.nmis().fold(parts, with_nmi)
    }

    /// Interrupts that can't be masked: from when to when, and the function that handled them. Their event comes at their
    /// end, in whatever they interrupted.
    fn nmis(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.events.iter().filter_map(|event| match event.what {
            What::Nmi { handler, ns } => {
                Some((event.at_ns.saturating_sub(ns), event.at_ns, handler))
            }
            _ => None,
        })
    }

    /// Whether it wakes a thread at an instant.
    pub(super) fn wakes(&self, at_ns: u64) -> bool {
        let is_wakeup = |event: &&Event| matches!(event.what, What::Waking { .. });
        self.events.iter().any(|event| event.at_ns == at_ns && is_wakeup(event))
    }

    /// Whether something of a thread happened at an instant.
    pub(super) fn has(&self, at_ns: u64, tid: u32, what: What) -> bool {
        self.events.iter().any(|event| (event.at_ns, event.tid, event.what) == (at_ns, tid, what))
    }

    /// Since when only the scheduler did something before a switch, at most so long: since the last event but those of
    /// the scheduler, or else since its own.
    pub(super) fn switching_since(&self, waking_ns: u64, switched_ns: u64, limit_ns: u64) -> u64 {
        let from_ns = waking_ns.max(switched_ns.saturating_sub(limit_ns));
        let within = |event: &&&Event| (from_ns..switched_ns).contains(&event.at_ns);
        let mut last = self.events.iter().filter(within);
        let is_other = |event: &&&Event| !matches!(event.what, What::Runtime { .. });
        match (last.clone().rfind(is_other), last.next()) {
            (Some(other), _) => other.at_ns,
            (None, _) if from_ns == waking_ns => waking_ns,
            (None, own) => own.map_or(switched_ns, |event| event.at_ns),
        }
    }

    /// The begin of the timer's interrupt in which a wake-up happened.
    pub(super) fn interrupt_of(&self, waking_ns: u64) -> Option<u64> {
        self.at(waking_ns).timer_interrupt()
    }

    /// What the timer's interrupt interrupted, by the stack that the kernel noted then.
    pub(super) fn interrupted(&self, from_ns: u64, to_ns: u64) -> Option<Place> {
        self.events.iter().filter(|event| (from_ns..=to_ns).contains(&event.at_ns)).find_map(
            |event| match event.what {
                What::Interrupted(place) => Some(place),
                _ => None,
            },
        )
    }

    /// What the host took at least from the thread that was interrupted by a wake-up: between two charges it ran so
    /// long, less the interrupts, and was charged with so much. None where there are no two.
    ///
    /// Time after the wake-up doesn't count. A wake-up that leads to a switch keeps the scheduler from reading the clock
    /// again (`rq_clock_skip_update`), so a thread that runs on is charged until the wake-up only.
    pub(super) fn stolen_ns(&self, waking_ns: u64, to_ns: u64) -> Option<u64> {
        let charged = |event: &&&Event| matches!(event.what, What::Runtime { .. });
        let at = self.events.iter().position(|event| {
            event.at_ns >= waking_ns && event.at_ns <= to_ns && charged(&event)
        })?;
        let What::Runtime { ns } = self.events[at].what else { return None };
        let charge = self.events[at];
        let earlier = self.events[..at]
            .iter()
            .rev()
            .find(|event| matches!(event.what, What::Runtime { .. } | What::Switch { .. }))?;
        // Who was charged must be who ran.
        let is_same = match earlier.what {
            What::Switch { to, .. } => to == charge.tid,
            _ => earlier.tid == charge.tid,
        };
        // Most kernels don't charge a thread with interrupts (CONFIG_IRQ_TIME_ACCOUNTING).
        let parts = self.between(earlier.at_ns, waking_ns);
        let of_thread = parts.iter().filter(|(.., context)| *context.innermost() == Doing::Thread);
        let ran_ns: u64 = of_thread.map(|(from_ns, to_ns, _)| to_ns - from_ns).sum();
        is_same.then(|| ran_ns.saturating_sub(ns))
    }

    /// How long preemption was off at least while the thread of an instant ran, from a wake-up on: the longest stretch
    /// between two events that show it, without one between them that shows the opposite. An interrupt's event shows it
    /// of what was interrupted.
    pub(super) fn preempt_off_ns(&self, waking_ns: u64, at_ns: u64) -> Option<u64> {
        let shows =
            |event: &&&Event| enters(event).is_some_and(|s| !matches!(s, Section::Expiry(_)));
        let is_switch = |event: &&&Event| matches!(event.what, What::Switch { .. });
        let switches = || self.events.iter().filter(is_switch).map(|event| event.at_ns);
        let from_ns = switches().take_while(|ns| *ns <= at_ns).last().unwrap_or(0).max(waking_ns);
        let to_ns = switches().find(|ns| *ns > at_ns).unwrap_or(u64::MAX);
        let within = self.events.iter().filter(|event| (from_ns..=to_ns).contains(&event.at_ns));
        let (mut longest_ns, mut since_ns) = (0, None);
        for event in within.filter(shows) {
            if event.preempt_depth == 0 {
                since_ns = None;
                continue;
            }
            let since_ns = *since_ns.get_or_insert(event.at_ns);
            longest_ns = longest_ns.max(event.at_ns - since_ns);
        }
        Some(longest_ns).filter(|ns| *ns > 0)
    }
}

/// Cuts the time of an interrupt that can't be masked out of what it interrupted.
fn with_nmi(
    parts: Vec<(u64, u64, Context)>,
    (begin_ns, end_ns, handler): (u64, u64, u64),
) -> Vec<(u64, u64, Context)> {
    let mut all = Vec::with_capacity(parts.len() + 2);
    for (from_ns, to_ns, context) in parts {
        let (begin_ns, end_ns) = (begin_ns.clamp(from_ns, to_ns), end_ns.clamp(from_ns, to_ns));
        if begin_ns >= end_ns {
            all.push((from_ns, to_ns, context));
            continue;
        }
        let in_nmi = Context { innermost: Doing::Nmi(handler), ..context.clone() };
        let cut = [
            (from_ns, begin_ns, context.clone()),
            (begin_ns, end_ns, in_nmi),
            (end_ns, to_ns, context),
        ];
        all.extend(cut.into_iter().filter(|(from_ns, to_ns, _)| from_ns < to_ns));
    }
    all
}

/// A section's name for people.
pub(super) fn section_name(section: Section) -> String {
    match section {
        Section::Irq { line, name } => format!("IRQ {line} ({name})"),
        Section::Softirq(number) => format!("softirq {}", softirq_name(number)),
        Section::LocalTimer => "local timer".to_owned(),
        Section::Reschedule => "reschedule from another CPU".to_owned(),
        Section::FunctionCall => "function call from another CPU".to_owned(),
        Section::IrqWork => "irq work".to_owned(),
        Section::Expiry(_) => "a timer's function".to_owned(),
    }
}

/// A priority of the kernel in the words of `sched(7)`.
pub(super) fn priority_text(priority: i32) -> String {
    match priority {
        ..0 => "deadline".to_owned(),
        0..100 => format!("real-time priority {}", 99 - priority),
        _ => format!("ordinary, nice {}", priority - 120),
    }
}
