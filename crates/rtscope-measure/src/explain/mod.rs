//! Threads watched by the kernel's events, and what was in the way when one was late.
//!
//! The threads run as they are: nothing is put into them. From when to when: a latency goes from the expiry of the
//! timer that the thread had set, or from its wake-up by something else, to its return to its program, or to the switch
//! to it where the kernel doesn't show the return.

mod accounts;
mod clock_fit;
mod file;
mod finder;
pub mod interruptions;
mod own_threads;
mod wakeups;

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::{
    cpu::CpuSet,
    explain::{ExplainRecord, FORMAT, Pause, Spike},
    published::KernelKind,
    time::Nanos,
    trace::{Name, Place, Section, What},
};
use rtscope_sampler::THREAD_NAME;
use rtscope_sys::{
    clock::{Clock, SystemClock},
    tree::Tree,
};

use self::finder::{Finder, Limits};
pub use self::{
    file::read_trace,
    own_threads::{OwnThreads, Pauses},
};
use crate::{
    check::{self, CheckError, Running},
    environment,
    processes::Processes,
    signals::Interrupt,
    trace::{Instance, KernelSymbols, Recording, TraceError, foreign::TraceDatError},
};

/// Buffer of each CPU: some hundred thousand events, which are read each 50 ms.
const BUFFER_KIB: u32 = 16_384;

/// Between two readings of the kernel's buffer.
const LOOK: Duration = Duration::from_millis(50);

/// So long nothing is recorded, to see what recording costs: two slices of a second, so that one lies wholly within.
const PAUSE: Duration = Duration::from_millis(2_200);

/// From the begin of one such time to that of the next.
const PAUSES_APART: Duration = Duration::from_secs(11);

/// So long the kernel's pages are held for activations to come: longer than events are.
const PAGES_NS: u64 = 200_000_000;

/// Between two searches for processes that were started meanwhile: that reads the files of all.
const SEARCH: Duration = Duration::from_millis(500);

/// Events without which nothing can be said.
const NEEDED: &[&str] = &["sched/sched_switch", "sched/sched_waking"];

/// Events that tell more, where the kernel has them.
const WANTED: &[&str] = &[
    "timer/hrtimer_start",
    "timer/hrtimer_expire_entry",
    "timer/hrtimer_expire_exit",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "power/cpu_idle",
    "sched/sched_stat_runtime",
    "workqueue/workqueue_execute_start",
    "workqueue/workqueue_execute_end",
    "nmi/nmi_handler",
];

/// Events of the watched threads alone, where the kernel has them: what follows the switch to a thread.
const OWN: &[&str] = &["raw_syscalls/sys_exit", "exceptions/page_fault_user"];

/// So many threads at most are named in a filter of such events.
const OWN_THREADS_MAX: usize = 64;

/// Interrupts of x86 that aren't a device's.
const VECTORS: &[&str] =
    &["local_timer", "reschedule", "call_function", "call_function_single", "irq_work"];

/// What a look saw.
#[derive(Debug)]
pub struct ExplainLook {
    /// The record.
    pub record: ExplainRecord,
    /// The kernel's events around what was late, as a file of trace-cmd; none where they could only be read as text.
    pub trace_dat: Option<Vec<u8>>,
}

/// What is late, and what of it is kept.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Activations from this latency on are late; none keeps the worst.
    pub above: Option<Nanos>,
    /// So many late activations are kept.
    pub kept_max: u32,
    /// Version of rtscope, for the record.
    pub version: String,
    /// Wall clock, RFC 3339, for the record.
    pub wall_clock: String,
}

/// What to watch.
#[derive(Debug)]
pub struct ExplainOptions {
    /// The program, and for how long.
    pub look: check::CheckOptions,
    /// Of a process only this thread.
    pub thread: Option<u32>,
    /// What of it to keep.
    pub keep: Keep,
}

/// Why there is nothing to explain.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The program.
    #[error(transparent)]
    Program(#[from] CheckError),
    /// The kernel's trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Reading events.
    #[error("can't read the kernel's events: {0}")]
    Read(std::io::Error),
    /// A trace without any.
    #[error(
        "the file contains no trace events: rtscope reads trace.dat of trace-cmd, what `trace-cmd report` prints, and \
         copies of /sys/kernel/tracing/trace"
    )]
    NoEvents,
    /// A file without anything.
    #[error("the file is empty")]
    EmptyFile,
    /// A file of trace-cmd.
    #[error(transparent)]
    TraceDat(#[from] TraceDatError),
    /// No thread of this number.
    #[error("there is no thread {0}: `rtscope ps` shows the threads of this machine")]
    NoSuchThread(u32),
    /// No such CPU.
    #[error("CPU {cpu} is not online: this machine has {online}")]
    NoCpu {
        /// What was asked for.
        cpu: u32,
        /// The CPUs.
        online: CpuSet,
    },
    /// No such thread.
    #[error("process {pid} has no thread {tid}: `rtscope ps --pid {pid}` shows its threads")]
    NoThread {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
}

/// Watches a program.
///
/// # Errors
///
/// When the program can't be started or isn't there, or the kernel's events can't be read.
pub fn run(options: &ExplainOptions, interrupt: &Interrupt) -> Result<ExplainLook, ExplainError> {
    let look = &options.look;
    let mut running = Running::start(look)?;
    running.settle(look, interrupt)?;
    let pid = running.pid();
    let mut watch = Watch::start(&look.tree, options.keep.clone())?;
    let mut processes = Processes::read(&look.tree).family(pid);
    if processes.is_empty() {
        return Err(CheckError::NoProcess(pid).into());
    }
    if let (Some(tid), false) = (options.thread, watch.follow(&processes, options.thread)) {
        return Err(ExplainError::NoThread { pid, tid });
    }
    let mut searched = Instant::now();
    // Who ends is explained by what was seen of it.
    while watch.begin.elapsed() < look.duration
        && !interrupt.is_stopped()
        && watch.follow(&processes, options.thread)
    {
        thread::sleep(LOOK.min(look.duration.saturating_sub(watch.begin.elapsed())));
        watch.read()?;
        if searched.elapsed() >= SEARCH {
            processes = Processes::read(&look.tree).family(pid);
            searched = Instant::now();
        }
        if running.has_ended() {
            break;
        }
    }
    let record = watch.finish(running.name().to_owned());
    running.end();
    record
}

impl Keep {
    /// In numbers, where `CLOCK_REALTIME` is so much ahead.
    fn limits(&self, realtime_ns: u64) -> Limits {
        Limits {
            above_ns: self.above.map_or(0, |above| above.0),
            kept_max: self.kept_max as usize,
            realtime_ns,
        }
    }
}

/// A look at the events.
struct Watch {
    tree: Tree,
    keep: Keep,
    finder: Finder,
    recording: Recording,
    /// Kinds of events that are there, and that aren't.
    kinds: (Vec<String>, Vec<String>),
    /// The threads whose events of [`OWN`] are recorded.
    own: Vec<u32>,
    begin: Instant,
    /// Events that had no room.
    lost: u64,
    /// The last reading.
    read_ns: u64,
    /// Times in which nothing was recorded.
    pauses: Vec<Pause>,
    /// Since when nothing is recorded.
    paused_ns: Option<u64>,
}

impl Watch {
    fn start(tree: &Tree, keep: Keep) -> Result<Watch, ExplainError> {
        let limits = keep.limits(realtime_ns());
        let (mut recording, there, missing) = record(tree)?;
        recording.keep_pages();
        Ok(Watch {
            tree: tree.clone(),
            keep,
            finder: Finder::new(limits),
            recording,
            kinds: (there, missing),
            own: Vec::new(),
            begin: Instant::now(),
            lost: 0,
            read_ns: SystemClock::MONOTONIC.now_ns(),
            pauses: Vec::new(),
            paused_ns: None,
        })
    }

    /// Watches the threads of processes that there are now, or one of them; whether there is any.
    fn follow(&mut self, processes: &BTreeSet<u32>, only: Option<u32>) -> bool {
        let tasks = |pid: &u32| self.tree.list(format!("proc/{pid}/task"));
        let tids = processes.iter().flat_map(tasks).filter_map(|name| name.parse().ok());
        let meant: Vec<u32> = tids.filter(|tid| only.is_none_or(|only| only == *tid)).collect();
        self.watch(&meant);
        !meant.is_empty()
    }

    fn watch(&mut self, tids: &[u32]) {
        tids.iter().for_each(|tid| self.finder.watch(*tid));
        let named = &tids[..tids.len().min(OWN_THREADS_MAX)];
        if self.own == named {
            return;
        }
        for event in OWN.iter().filter(|event| self.kinds.0.iter().any(|there| there == *event)) {
            // Without the filter the returns of these threads are unknown, and their latencies end with the switch.
            let _ = self.recording.filter(event, &of_threads(named));
        }
        self.own = named.to_vec();
    }

    /// Watches the sampling threads of this process that there are now.
    fn follow_samplers(&mut self) {
        let tasks = format!("proc/{}/task", std::process::id());
        let is_sampler = |tid: &String| {
            let name = self.tree.read(format!("{tasks}/{tid}/comm")).unwrap_or_default();
            name.starts_with(THREAD_NAME)
        };
        let tids = self.tree.list(&tasks);
        let samplers: Vec<u32> =
            tids.iter().filter(|tid| is_sampler(tid)).filter_map(|tid| tid.parse().ok()).collect();
        self.watch(&samplers);
    }

    fn read(&mut self) -> Result<(), ExplainError> {
        let now_ns = SystemClock::MONOTONIC.now_ns();
        let drained = self.recording.drain(|event| self.finder.see(event));
        drained.map_err(ExplainError::Read)?;
        let lost = self.recording.lost();
        if lost > self.lost {
            self.finder.lost(self.read_ns);
        }
        (self.lost, self.read_ns) = (lost, now_ns);
        self.recording.retain_pages(now_ns.saturating_sub(PAGES_NS), &self.finder.times());
        Ok(())
    }

    /// Stops recording for [`PAUSE`] in each [`PAUSES_APART`], so that what it costs can be seen, and goes on.
    fn alternate(&mut self) -> Result<(), ExplainError> {
        let elapsed = self.begin.elapsed();
        let since = elapsed.as_nanos() % PAUSES_APART.as_nanos();
        let ends = (PAUSES_APART / 2).as_nanos();
        let is_due = (ends - PAUSE.as_nanos()..ends).contains(&since);
        match (is_due, self.paused_ns) {
            (true, None) => {
                self.recording.pause(true)?;
                self.paused_ns = Some(SystemClock::MONOTONIC.now_ns());
            }
            (false, Some(_)) => {
                self.end_pause();
                // What was recorded until the pause has been read meanwhile.
                self.finder.forget();
                self.recording.pause(false)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end_pause(&mut self) {
        if let Some(from_ns) = self.paused_ns.take() {
            self.pauses.push(Pause { from_ns, to_ns: SystemClock::MONOTONIC.now_ns() });
        }
    }

    fn finish(mut self, program: String) -> Result<ExplainLook, ExplainError> {
        let duration = Nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.end_pause();
        let symbols = self.recording.symbols();
        let lost = self.recording.drain_all(|event| self.finder.see(event));
        let lost = lost.map_err(ExplainError::Read)?;
        if lost > self.lost {
            self.finder.lost(self.read_ns);
        }
        let lost_by_cpu = self.recording.lost_by_cpu();
        self.recording.retain_pages(u64::MAX, &self.finder.times());
        let (threads, mut spikes) = self.finder.finish();
        let trace_dat = self.recording.trace_dat(&names_in(&spikes));
        // Ends it: what follows takes its time.
        drop(self.recording);
        let symbols = named(&mut spikes, symbols.as_deref());
        let environment = environment::collect(&self.tree);
        let record = ExplainRecord {
            format: FORMAT,
            version: self.keep.version,
            wall_clock: self.keep.wall_clock,
            wall_ahead_ns: SystemClock::REALTIME
                .now_ns()
                .checked_sub(SystemClock::MONOTONIC.now_ns()),
            is_preempt_rt: KernelKind::of(environment.kernel.preemption)
                .map(|kind| kind == KernelKind::RealTime),
            kernel: environment.kernel.release,
            is_guest: environment.virtualisation.is_some(),
            program,
            duration,
            above: self.keep.above,
            kept_max: self.keep.kept_max,
            events: self.kinds.0,
            missing: self.kinds.1,
            threads,
            spikes,
            symbols,
            lost,
            lost_by_cpu,
            pauses: self.pauses,
        };
        Ok(ExplainLook { record, trace_dat })
    }
}

/// Starts the recording: it, the events that are there, and those that aren't.
fn record(tree: &Tree) -> Result<(Recording, Vec<String>, Vec<String>), TraceError> {
    let mut instance = Instance::new(tree, BUFFER_KIB)?;
    for event in NEEDED {
        instance.switch_on(event)?;
    }
    let (mut there, mut missing) = (NEEDED.to_vec(), Vec::new());
    for event in WANTED {
        match instance.enable(event) {
            true => there.push(event),
            false => missing.push((*event).to_owned()),
        }
    }
    for event in OWN {
        match instance.switch_on_where(event, &of_threads(&[])) {
            Ok(()) => there.push(event),
            Err(_) => missing.push((*event).to_owned()),
        }
    }
    let mut there: Vec<String> = there.into_iter().map(str::to_owned).collect();
    for vector in VECTORS {
        for event in ["entry", "exit"].map(|edge| format!("irq_vectors/{vector}_{edge}")) {
            if instance.enable(&event) {
                there.push(event);
            }
        }
    }
    if instance.stacks_of_sleeps() {
        there.push("stack of a timer's expiry".to_owned());
    } else {
        missing.push("stack of a timer's expiry".to_owned());
    }
    Ok((instance.record()?, there, missing))
}

/// A filter of the kernel that lets the events of these threads pass; those of none where there are none.
fn of_threads(tids: &[u32]) -> String {
    let each = tids.iter().map(|tid| format!("common_pid == {tid}"));
    each.reduce(|all, one| format!("{all} || {one}")).unwrap_or("common_pid == -1".to_owned())
}

/// The names of all threads that came to run around these.
fn names_in(spikes: &[Spike]) -> BTreeMap<u32, String> {
    let events = spikes.iter().flat_map(|spike| &spike.events);
    let switched = events.filter_map(|event| match event.what {
        What::Switch { to, to_name, .. } => Some((to, to_name)),
        _ => None,
    });
    let before = spikes.iter().flat_map(|spike| &spike.before).map(|one| (one.tid, one.name));
    let named = |(tid, name): (u32, Name)| (tid, name.to_string());
    before.chain(switched).map(named).filter(|(_, name)| !name.is_empty()).collect()
}

/// Gives the functions that events name by their addresses numbers in a list of their names.
fn named(spikes: &mut [Spike], symbols: Option<&KernelSymbols>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut number = |address: u64| {
        let Some(name) = symbols.and_then(|symbols| symbols.function(address)) else { return 0 };
        let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        at as u64 + 1
    };
    for event in spikes.iter_mut().flat_map(|spike| &mut spike.events) {
        match &mut event.what {
            What::Enter(Section::Expiry(address))
            | What::Interrupted(Place::Kernel(address))
            | What::Work { function: address, .. }
            | What::Nmi { handler: address, .. } => *address = number(*address),
            _ => {}
        }
    }
    names
}

/// What `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC`.
fn realtime_ns() -> u64 {
    SystemClock::REALTIME.now_ns().saturating_sub(SystemClock::MONOTONIC.now_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# entries-in-buffer/entries-written: 9/12   #P:2
          motor-41    [001] d..1.    10.000900: hrtimer_start: hrtimer=0 function=hrtimer_wakeup expires=10001000000 softexpires=10001000000 mode=ABS
          motor-41    [001] d..2.    10.000910: sched_switch: prev_comm=motor prev_pid=41 prev_prio=49 prev_state=S ==> next_comm=hog next_pid=42 next_prio=0
            hog-42    [001] d.h1.    10.001002: local_timer_entry: vector=236
            hog-42    [001] d.h2.    10.001003: hrtimer_expire_entry: hrtimer=0 function=hrtimer_wakeup now=10001002000
            hog-42    [001] d.h3.    10.001004: sched_waking: comm=motor pid=41 prio=49 target_cpu=001
            hog-42    [001] d.h2.    10.001005: hrtimer_expire_exit: hrtimer=0
            hog-42    [001] d.h1.    10.001006: local_timer_exit: vector=236
            hog-42    [001] d..2.    10.003000: sched_switch: prev_comm=hog prev_pid=42 prev_prio=0 prev_state=S ==> next_comm=motor next_pid=41 next_prio=49
          motor-41    [001] d..1.    10.003100: hrtimer_start: hrtimer=0 function=hrtimer_wakeup expires=10005000000 softexpires=10005000000 mode=ABS
";

    fn keep() -> Keep {
        Keep { above: None, kept_max: 3, version: "0".to_owned(), wall_clock: String::new() }
    }

    #[test]
    fn a_filter_names_the_threads_or_none() {
        assert_eq!(of_threads(&[]), "common_pid == -1");
        assert_eq!(of_threads(&[4, 7]), "common_pid == 4 || common_pid == 7");
    }

    #[test]
    fn a_trace_as_text_is_explained_as_one_that_was_watched() {
        let record = read_trace(TRACE.as_bytes(), None, keep()).expect("events");
        assert_eq!(record.threads.len(), 1);
        assert_eq!((record.threads[0].tid, record.threads[0].by_timer, record.lost), (41, 1, 3));
        assert_eq!(record.spikes[0].latency_ns(), 2_000_000);
        assert_eq!(record.spikes[0].waking.by, 42);
        let none = read_trace(TRACE.as_bytes(), Some(99), keep()).expect("events");
        assert!(none.threads.is_empty() && none.spikes.is_empty());
        assert!(matches!(read_trace(b"nothing", None, keep()), Err(ExplainError::NoEvents)));
        for end in 0..TRACE.len() {
            let _ = read_trace(&TRACE.as_bytes()[..end], None, keep());
        }
    }
}
