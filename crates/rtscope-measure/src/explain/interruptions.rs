//! What runs on a CPU, added up by name while it is watched: a look of a day takes no more memory than one of a second.

use std::{
    collections::{BTreeMap, HashMap},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::{
    cpu::CpuSet,
    interruptions::{FORMAT, Interruption, InterruptionKind, Interruptions, Owner, Sender},
    time::Nanos,
    trace::{Event, Name, Section, What, softirq_name},
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    sched,
    tree::Tree,
};

use super::{ExplainError, LOOK, accounts::Pinned};
use crate::{
    environment,
    signals::Interrupt,
    trace::{Instance, KernelSymbols, Recording},
};

/// Buffer of each CPU. Only one CPU's events and what is sent to it are in it, and they are read each 50 ms.
const BUFFER_KIB: u32 = 8_192;

/// Events of the CPU. The first one has to be there.
const OF_CPU: &[&str] = &[
    "sched/sched_switch",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "timer/hrtimer_expire_entry",
    "timer/hrtimer_expire_exit",
    "workqueue/workqueue_execute_start",
    "workqueue/workqueue_execute_end",
    "nmi/nmi_handler",
];

/// An hour of a look.
const HOUR_NS: u64 = 3_600_000_000_000;

/// Names of which so many are told apart; more count as one.
const ROWS_MAX: usize = 4_096;

/// So many threads are told apart when their times are compared with the kernel's own account.
const THREADS_MAX: usize = 100_000;

/// Senders that an interrupt names.
const SENDERS_MAX: usize = 10;

/// What to watch.
#[derive(Debug)]
pub struct CpuWatchOptions {
    /// The CPU.
    pub cpu: u32,
    /// The thread that the CPU is for.
    pub owner: Option<u32>,
    /// How long.
    pub duration: Duration,
    /// The system's files.
    pub tree: Tree,
    /// Version of rtscope, for the record.
    pub version: String,
    /// Wall clock, RFC 3339, for the record.
    pub wall_clock: String,
}

/// Watches a CPU.
///
/// # Errors
///
/// When there is no such CPU or thread, or the kernel's events can't be read.
pub fn watch(
    options: &CpuWatchOptions,
    interrupt: &Interrupt,
) -> Result<Interruptions, ExplainError> {
    let includes_rtscope = !leave(options.cpu)?;
    let owner = options.owner.map(|tid| {
        let name = options.tree.read(format!("proc/{tid}/comm"));
        name.map(|name| (tid, Name::new(name.trim_end().as_bytes())))
            .map_err(|_| ExplainError::NoSuchThread(tid))
    });
    let owner = owner.transpose()?;
    let (mut recording, missing) = record(&options.tree, options.cpu)?;
    let pinned = Pinned::to(options.cpu, &options.tree);
    let begin_ns = SystemClock::MONOTONIC.now_ns();
    let begin = Instant::now();
    let mut tally = Tally::new(options.cpu, owner.map(|(tid, _)| tid), begin_ns);
    // Switching the events on interrupts all CPUs. What ran since then is only followed.
    recording.drain(|event| tally.see(event)).map_err(ExplainError::Read)?;
    tally.forget();
    while begin.elapsed() < options.duration && !interrupt.is_stopped() {
        thread::sleep(LOOK.min(options.duration.saturating_sub(begin.elapsed())));
        recording.drain(|event| tally.see(event)).map_err(ExplainError::Read)?;
    }
    recording.drain(|event| tally.see(event)).map_err(ExplainError::Read)?;
    let accounts = pinned.compare(&options.tree, &tally.threads);
    let (symbols, ended) = (recording.symbols(), recording.thread_names());
    let lost = recording.finish(|event| tally.see(event)).map_err(ExplainError::Read)?;
    let end_ns = SystemClock::MONOTONIC.now_ns();
    tally.advance(end_ns);
    let name_of = |tid| {
        let name = options.tree.read(format!("proc/{tid}/comm")).ok();
        name.or_else(|| ended.get(&tid).cloned())
    };
    Ok(Interruptions {
        format: FORMAT,
        version: options.version.clone(),
        wall_clock: options.wall_clock.clone(),
        kernel: environment::kernel(&options.tree).release,
        cpu: options.cpu,
        owner: owner.map(|(tid, name)| Owner { tid, name, ran: tally.sum(Key::Owner) }),
        duration: Nanos(end_ns - begin_ns),
        idle: tally.sum(Key::Idle),
        rows: tally.rows(&symbols.unwrap_or_default(), name_of),
        missing,
        includes_rtscope,
        accounts,
        lost,
    })
}

/// Keeps this thread off a CPU; whether there is another one.
fn leave(cpu: u32) -> Result<bool, ExplainError> {
    let online = environment::online(&Tree::default());
    if !online.contains(cpu) {
        return Err(ExplainError::NoCpu { cpu, online });
    }
    // Those that the user allows, if any.
    let all_others = online.without(&CpuSet::from_iter([cpu]));
    let allowed = sched::affinity(sched::SELF).unwrap_or_default().common(&all_others);
    let others = if allowed.is_empty() { all_others } else { allowed };
    Ok(!others.is_empty() && sched::set_affinity(sched::SELF, &others).is_ok())
}

/// Starts the recording of what happens on a CPU and is sent to it; and the events that aren't there.
fn record(tree: &Tree, cpu: u32) -> Result<(Recording, Vec<String>), ExplainError> {
    let mut instance = Instance::new(tree, BUFFER_KIB)?;
    let mut missing = Vec::new();
    let here = format!("CPU == {cpu}");
    let vectors = super::VECTORS.iter();
    let vectors =
        vectors.flat_map(|name| ["entry", "exit"].map(|e| format!("irq_vectors/{name}_{e}")));
    let all: Vec<String> = OF_CPU.iter().map(|event| (*event).to_owned()).chain(vectors).collect();
    instance.switch_on_where(&all[0], &here)?;
    for event in &all[1..] {
        if instance.switch_on_where(event, &here).is_err() && OF_CPU.contains(&event.as_str()) {
            missing.push(event.clone());
        }
    }
    let sent = [
        ("ipi/ipi_send_cpu", format!("cpu == {cpu}")),
        ("ipi/ipi_send_cpumask", format!("cpumask & CPUS{{{cpu}}}")),
    ];
    for (event, to_it) in sent {
        if instance.switch_on_where(event, &to_it).is_err() {
            missing.push(event.to_owned());
        }
    }
    Ok((instance.record()?, missing))
}

/// What runs. The kernel's functions are addresses until the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Idle,
    Owner,
    Thread(Name),
    Work(u64),
    Irq(u32, Name),
    Vector(InterruptionKind),
    Timer(u64),
    Softirq(u32),
    Nmi(u64),
    /// One of too many names.
    Other,
}

#[derive(Debug, Default)]
struct Row {
    count: u64,
    sum_ns: u64,
    worst_ns: u64,
    by_hour: Vec<u64>,
    /// By thread and place that sent it.
    senders: HashMap<(u32, u64), u64>,
}

/// Something that has begun and not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    key: Key,
    /// Of what interrupts others.
    section: Option<Section>,
    /// Its own time so far.
    ran_ns: u64,
}

/// What ran so far.
#[derive(Debug)]
struct Tally {
    cpu: u32,
    owner: Option<u32>,
    begin_ns: u64,
    /// Up to here all time is added up.
    now_ns: u64,
    rows: HashMap<Key, Row>,
    /// How long each thread ran, less what interrupted it.
    threads: HashMap<u32, u64>,
    /// The thread that runs; none before an event tells.
    tid: Option<u32>,
    /// What the thread does, and what interrupts it, one within the other.
    open: Vec<Open>,
    /// Names of threads that came to run.
    names: HashMap<u32, Name>,
    /// Work that threads are at.
    works: HashMap<u32, u64>,
}

impl Tally {
    fn new(cpu: u32, owner: Option<u32>, begin_ns: u64) -> Tally {
        Tally {
            cpu,
            owner,
            begin_ns,
            now_ns: begin_ns,
            rows: HashMap::new(),
            threads: HashMap::new(),
            tid: None,
            open: Vec::new(),
            names: HashMap::new(),
            works: HashMap::new(),
        }
    }

    fn see(&mut self, event: &Event) {
        if let What::InterruptSent { from, callback } = event.what {
            let kind = match callback {
                0 => InterruptionKind::Reschedule,
                _ => InterruptionKind::FunctionCall,
            };
            let senders = &mut self.row(Key::Vector(kind)).senders;
            if senders.len() < ROWS_MAX || senders.contains_key(&(event.tid, from)) {
                *senders.entry((event.tid, from)).or_default() += 1;
            }
            return;
        }
        if event.cpu != self.cpu {
            return;
        }
        self.advance(event.at_ns);
        if let What::Switch { to, to_name, .. } = event.what {
            if self.names.len() >= ROWS_MAX {
                self.names.clear();
            }
            self.names.insert(to, to_name);
            self.run(to);
            return;
        }
        // Some kernels leave out switches to some threads.
        if self.tid != Some(event.tid) {
            self.run(event.tid);
        }
        match event.what {
            What::Enter(section) => self.begin(key(section), Some(section)),
            What::Leave(section) => self.leave(section),
            What::Work { function, begins: true } => {
                self.works.insert(event.tid, function);
                self.run(event.tid);
            }
            What::Work { begins: false, .. } => {
                self.works.remove(&event.tid);
                self.run(event.tid);
            }
            What::Nmi { handler, ns } => self.nmi(handler, ns),
            _ => {}
        }
    }

    /// Adds the time up to an instant to what runs.
    fn advance(&mut self, at_ns: u64) {
        let ns = at_ns.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(at_ns);
        if let Some(open) = self.open.last_mut() {
            open.ran_ns += ns;
            let (key, is_thread) = (open.key, open.section.is_none());
            self.row(key).sum_ns += ns;
            if let (true, Some(tid)) = (is_thread, self.tid)
                && (self.threads.len() < THREADS_MAX || self.threads.contains_key(&tid))
            {
                *self.threads.entry(tid).or_default() += ns;
            }
        }
    }

    /// Begins anew with what runs now.
    fn forget(&mut self) {
        self.rows.clear();
        self.threads.clear();
        self.open.iter_mut().for_each(|open| open.ran_ns = 0);
        let keys: Vec<Key> = self.open.iter().map(|open| open.key).collect();
        keys.into_iter().for_each(|key| self.count(key));
    }

    /// A thread runs, or goes on with something else.
    fn run(&mut self, tid: u32) {
        self.end(0);
        self.tid = Some(tid);
        let name = self.names.get(&tid).copied().unwrap_or_default();
        let key = match (tid, self.works.get(&tid)) {
            (0, _) => Key::Idle,
            (tid, _) if self.owner == Some(tid) => Key::Owner,
            (_, Some(function)) => Key::Work(*function),
            (_, None) => Key::Thread(name),
        };
        self.begin(key, None);
    }

    fn begin(&mut self, key: Key, section: Option<Section>) {
        self.count(key);
        self.open.push(Open { key, section, ran_ns: 0 });
    }

    fn count(&mut self, key: Key) {
        let hour = usize::try_from((self.now_ns - self.begin_ns) / HOUR_NS).unwrap_or(usize::MAX);
        let row = self.row(key);
        row.count += 1;
        if row.by_hour.len() <= hour {
            row.by_hour.resize(hour + 1, 0);
        }
        row.by_hour[hour] += 1;
    }

    fn leave(&mut self, section: Section) {
        let is_meant = |open: &Open| open.section.is_some_and(|one| one.is_of(section));
        if let Some(at) = self.open.iter().rposition(is_meant) {
            self.end(at);
        }
    }

    /// Ends what has begun from a place of the list on.
    fn end(&mut self, from: usize) {
        for open in self.open.split_off(from) {
            let row = self.row(open.key);
            row.worst_ns = row.worst_ns.max(open.ran_ns);
        }
    }

    /// A handler took so long of what runs.
    fn nmi(&mut self, handler: u64, ns: u64) {
        let mut taken_ns = 0;
        if let Some(open) = self.open.last_mut() {
            taken_ns = ns.min(open.ran_ns);
            open.ran_ns -= taken_ns;
            let key = open.key;
            self.row(key).sum_ns -= taken_ns;
        }
        self.begin(Key::Nmi(handler), None);
        if let Some(open) = self.open.last_mut() {
            open.ran_ns = taken_ns;
        }
        self.row(Key::Nmi(handler)).sum_ns += taken_ns;
        self.end(self.open.len() - 1);
    }

    fn row(&mut self, key: Key) -> &mut Row {
        let is_new = self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&key);
        self.rows.entry(if is_new { Key::Other } else { key }).or_default()
    }

    fn sum(&self, key: Key) -> Nanos {
        Nanos(self.rows.get(&key).map_or(0, |row| row.sum_ns))
    }

    /// By name, the longest sum first.
    fn rows(
        mut self,
        symbols: &KernelSymbols,
        name_of: impl Fn(u32) -> Option<String>,
    ) -> Vec<Interruption> {
        self.end(0);
        let hours = (self.now_ns - self.begin_ns).div_ceil(HOUR_NS).max(1);
        let mut all: Vec<Interruption> = Vec::new();
        for (key, row) in self.rows {
            let Some((kind, name)) = named(key, symbols) else { continue };
            let mut by_hour = row.by_hour;
            by_hour.resize(by_hour.len().max(usize::try_from(hours).unwrap_or(1)), 0);
            all.push(Interruption {
                kind,
                name,
                count: row.count,
                sum: Nanos(row.sum_ns),
                worst: Nanos(row.worst_ns),
                by_hour,
                senders: senders(&row.senders, symbols, &name_of),
            });
        }
        all.sort_by(|a, b| {
            b.sum.cmp(&a.sum).then_with(|| (a.kind, &a.name).cmp(&(b.kind, &b.name)))
        });
        all
    }
}

fn key(section: Section) -> Key {
    match section {
        Section::Irq { line, name } => Key::Irq(line, name),
        Section::Softirq(number) => Key::Softirq(number),
        Section::LocalTimer => Key::Vector(InterruptionKind::LocalTimer),
        Section::Reschedule => Key::Vector(InterruptionKind::Reschedule),
        Section::FunctionCall => Key::Vector(InterruptionKind::FunctionCall),
        Section::IrqWork => Key::Vector(InterruptionKind::IrqWork),
        Section::Expiry(function) => Key::Timer(function),
    }
}

/// Kind and name for people; none for what doesn't interrupt.
fn named(key: Key, symbols: &KernelSymbols) -> Option<(InterruptionKind, String)> {
    let function = |address: u64| {
        symbols.function(address).map_or_else(|| "unknown function".to_owned(), str::to_owned)
    };
    Some(match key {
        Key::Idle | Key::Owner => return None,
        Key::Thread(name) if name == Name::default() => {
            (InterruptionKind::Thread, "of unknown name".to_owned())
        }
        Key::Thread(name) => (InterruptionKind::Thread, name.to_string()),
        Key::Work(address) => (InterruptionKind::Work, function(address)),
        Key::Irq(line, name) => (InterruptionKind::Irq, format!("IRQ {line} ({name})")),
        Key::Vector(kind) => (kind, kind.text().to_owned()),
        Key::Timer(address) => (InterruptionKind::Timer, function(address)),
        Key::Softirq(number) => (InterruptionKind::Softirq, softirq_name(number)),
        Key::Nmi(address) => (InterruptionKind::Nmi, function(address)),
        Key::Other => (InterruptionKind::Thread, "others".to_owned()),
    })
}

/// Who sent an interrupt, the most frequent first.
fn senders(
    counts: &HashMap<(u32, u64), u64>,
    symbols: &KernelSymbols,
    name_of: impl Fn(u32) -> Option<String>,
) -> Vec<Sender> {
    let mut by_name: BTreeMap<(String, String), u64> = BTreeMap::new();
    for ((tid, address), count) in counts {
        let thread = match tid {
            0 => "an idle CPU".to_owned(),
            _ => name_of(*tid).map_or_else(
                || "a thread that has ended".to_owned(),
                |name| Name::new(name.trim_end().as_bytes()).to_string(),
            ),
        };
        let function = symbols.function(*address).unwrap_or("unknown function").to_owned();
        *by_name.entry((thread, function)).or_default() += count;
    }
    let named = by_name.into_iter();
    let mut all: Vec<Sender> =
        named.map(|((thread, function), count)| Sender { thread, function, count }).collect();
    all.sort_by_key(|sender| std::cmp::Reverse(sender.count));
    all.truncate(SENDERS_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn tally() -> Tally {
        Tally::new(1, Some(7), 0)
    }

    fn event(at_us: u64, cpu: u32, tid: u32, what: What) -> Event {
        let at_ns = at_us * US;
        Event { at_ns, cpu, tid, in_interrupt: false, preempt_depth: 0, what }
    }

    fn switch(at_us: u64, from: u32, to: u32, name: &str) -> Event {
        let (to_priority, to_name) = (120, Name::new(name.as_bytes()));
        event(at_us, 1, from, What::Switch { from, is_ready: false, to, to_priority, to_name })
    }

    /// Kind, name, count, sum and longest, in microseconds.
    fn rows(mut tally: Tally, end_us: u64) -> Vec<(InterruptionKind, String, u64, u64, u64)> {
        tally.advance(end_us * US);
        let rows = tally.rows(&KernelSymbols::default(), |_| None);
        rows.into_iter()
            .map(|row| (row.kind, row.name, row.count, row.sum.0 / US, row.worst.0 / US))
            .collect()
    }

    #[test]
    fn times_are_each_things_own_and_add_up_to_the_look() {
        let mut tally = tally();
        let disk = Section::Irq { line: 9, name: Name::new(b"disk") };
        let events = [
            switch(0, 0, 7, "motor"),
            event(100, 1, 7, What::Enter(Section::LocalTimer)),
            event(103, 1, 7, What::Enter(Section::Expiry(0x10))),
            event(105, 1, 7, What::Leave(Section::Expiry(0))),
            event(106, 1, 7, What::Leave(Section::LocalTimer)),
            switch(200, 7, 8, "hog"),
            event(250, 1, 8, What::Enter(disk)),
            event(270, 1, 8, What::Leave(disk)),
            switch(300, 8, 0, ""),
            switch(350, 0, 8, "hog"),
            switch(360, 8, 7, "motor"),
        ];
        events.iter().for_each(|event| tally.see(event));
        assert_eq!(tally.sum(Key::Idle), Nanos::from_us(50));
        let timer = InterruptionKind::LocalTimer.text().to_owned();
        let expected = [
            (InterruptionKind::Thread, "hog".to_owned(), 2, 90, 80),
            (InterruptionKind::Irq, "IRQ 9 (disk)".to_owned(), 1, 20, 20),
            (InterruptionKind::LocalTimer, timer, 1, 4, 4),
            (InterruptionKind::Timer, "unknown function".to_owned(), 1, 2, 2),
        ];
        tally.advance(1_000 * US);
        assert_eq!(tally.sum(Key::Owner), Nanos::from_us(200 - 6 + 640));
        assert_eq!(rows(tally, 1_000), expected);
    }

    #[test]
    fn work_has_the_name_of_its_function_also_after_a_preemption() {
        let mut tally = tally();
        let work = |begins| What::Work { function: 0x20, begins };
        let events = [
            switch(0, 0, 5, "kworker/1:1"),
            event(10, 1, 5, work(true)),
            switch(30, 5, 7, "motor"),
            switch(40, 7, 5, "kworker/1:1"),
            event(55, 1, 5, work(false)),
            switch(60, 5, 0, ""),
        ];
        events.iter().for_each(|event| tally.see(event));
        let rows = rows(tally, 60);
        assert_eq!(rows[0], (InterruptionKind::Work, "unknown function".to_owned(), 2, 35, 20));
        assert_eq!((rows[1].0, rows[1].3), (InterruptionKind::Thread, 15));
    }

    #[test]
    fn what_cant_be_masked_is_taken_off_what_it_interrupted() {
        let mut tally = tally();
        let nmi = What::Nmi { handler: 0x30, ns: 4 * US };
        let events = [switch(0, 0, 8, "hog"), event(50, 1, 8, nmi), switch(100, 8, 0, "")];
        events.iter().for_each(|event| tally.see(event));
        let rows = rows(tally, 100);
        assert_eq!(rows[0], (InterruptionKind::Thread, "hog".to_owned(), 1, 96, 96));
        assert_eq!(rows[1], (InterruptionKind::Nmi, "unknown function".to_owned(), 1, 4, 4));
    }

    #[test]
    fn who_sends_an_interrupt_is_named_and_other_cpus_take_no_time() {
        let mut tally = tally();
        tally.see(&switch(0, 0, 7, "motor"));
        for n in 0..3 {
            tally.see(&event(10 + n, 0, 40, What::InterruptSent { from: 1, callback: 9 }));
        }
        tally.see(&event(20, 0, 41, What::Enter(Section::LocalTimer)));
        tally.see(&event(21, 1, 7, What::Enter(Section::FunctionCall)));
        tally.see(&event(24, 1, 7, What::Leave(Section::FunctionCall)));
        tally.advance(100 * US);
        let rows =
            tally.rows(&KernelSymbols::default(), |tid| (tid == 40).then(|| "cc1\n".to_owned()));
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].kind, rows[0].count, rows[0].sum),
            (InterruptionKind::FunctionCall, 1, Nanos::from_us(3))
        );
        assert_eq!((rows[0].senders[0].thread.as_str(), rows[0].senders[0].count), ("cc1", 3));
    }

    #[test]
    fn each_hour_has_its_count_and_too_many_names_count_as_one() {
        let mut tally = tally();
        let hour_us = HOUR_NS / US;
        for at_us in [1, 2, hour_us + 1, 3 * hour_us + 5] {
            tally.see(&switch(at_us, 7, 8, "hog"));
            tally.see(&switch(at_us + 1, 8, 7, "motor"));
        }
        for n in 0..2 * ROWS_MAX {
            tally.see(&switch(3 * hour_us + 10, 7, 9, &format!("n{n}")));
        }
        tally.advance(4 * HOUR_NS);
        let rows = tally.rows(&KernelSymbols::default(), |_| None);
        assert!(rows.len() <= ROWS_MAX + 1, "{}", rows.len());
        let hog = rows.iter().find(|row| row.name == "hog").expect("a row");
        assert_eq!(hog.by_hour, [2, 1, 0, 1]);
        assert!(rows.iter().any(|row| row.name == "others" && row.count > 1_000));
    }
}
