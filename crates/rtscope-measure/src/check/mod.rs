//! A program observed from outside: its threads by `/proc`, and what the kernel's events tell of them.
//!
//! Each switch, wake-up and timer of its threads costs it a microsecond or less while it is traced.
//! What the threads do is read when the look is over.

mod events;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::{
    check::{Observation, ObservedThread, ProcessMemory, Sources},
    thread::Thread,
};
use rtscope_sys::{fork::signal, process, tree::Tree};

pub use self::events::{Trace, read as read_trace};
use crate::{
    environment::{Stat, value},
    processes::Processes,
    ps,
    signals::Interrupt,
    trace::{Instance, Recording, TraceError},
};

/// Buffer of each CPU: some hundred thousand events.
const BUFFER_KIB: u32 = 16_384;

/// Between two readings of `/proc`.
const POLL: Duration = Duration::from_millis(100);

/// How long a program may take to end after each signal.
const END_LIMIT: Duration = Duration::from_secs(2);

/// What to look at.
#[derive(Debug)]
pub enum CheckedProgram {
    /// A command to start, and to end afterwards.
    Command(Vec<OsString>),
    /// A process that runs; it is left running.
    Process(u32),
}

/// How to look.
#[derive(Debug)]
pub struct CheckOptions {
    pub program: CheckedProgram,
    /// Not looked at: what a program does until its loop runs.
    pub settle: Duration,
    /// The look.
    pub duration: Duration,
    pub tree: Tree,
    /// This program and its words, which start another program that dies with this process.
    pub guard: Vec<OsString>,
    /// Whether the program's standard output is thrown away.
    pub quiet: bool,
}

/// Exit code of the guard when it can't run the program, as a shell has it.
pub const NOT_RUN: i32 = 127;

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The program can't be started.
    #[error("can't start {program}: {source}", program = program.display())]
    Start { program: PathBuf, source: std::io::Error },
    #[error(
        "{program} could not be run: check its name and that it is executable; nothing was watched"
    )]
    NotRun { program: String },
    #[error(
        "{program} ended ({how}) in the first {settle:?}, before rtscope began to watch: let it run longer, or set a shorter --settle"
    )]
    Ended {
        program: String,
        /// Its exit status.
        how: String,
        /// Time before the look.
        settle: Duration,
    },
    #[error("there is no process {0}")]
    NoProcess(u32),
    #[error("interrupted before anything was seen")]
    Interrupted,
}

/// Starts the program if it is a command, looks at it, and ends it again.
///
/// # Errors
///
/// When it can't be started, or isn't there when the look begins.
pub fn run(options: &CheckOptions, interrupt: &Interrupt) -> Result<Observation, CheckError> {
    let mut running = Running::start(options)?;
    running.settle(options, interrupt)?;
    let tree = &options.tree;
    let before = Processes::read(tree).family(running.pid);
    if before.is_empty() {
        return Err(CheckError::NoProcess(running.pid));
    }
    let (mut recording, mut untraced) = match Followed::start(tree, &before) {
        Ok(recording) => (Some(recording), None),
        Err(why) => (None, Some(why.to_string())),
    };
    let begin = Instant::now();
    let first = Snapshot::take(tree, &before);
    let mut last = first.clone();
    while begin.elapsed() < options.duration && !interrupt.is_stopped() {
        thread::sleep(POLL.min(options.duration.saturating_sub(begin.elapsed())));
        if let Some(recording) = &mut recording {
            recording.drain();
        }
        let now = Snapshot::take(tree, &before);
        if now.threads.is_empty() || running.has_ended() {
            break;
        }
        last = now;
    }
    let look_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let read = recording.map(Followed::finish).transpose();
    running.end();
    let (trace, sources) = read
        .unwrap_or_else(|error| {
            untraced = Some(format!("the kernel's events can't be read: {error}"));
            None
        })
        .unwrap_or_default();
    Ok(last.observation(
        &first,
        trace,
        Observation {
            program: running.name.clone(),
            look_ns,
            sources,
            untraced,
            ..Observation::default()
        },
    ))
}

/// What the threads do, while it is recorded.
struct Followed {
    recording: Recording,
    sources: Sources,
    trace: Trace,
}

impl Followed {
    fn start(tree: &Tree, pids: &BTreeSet<u32>) -> Result<Followed, TraceError> {
        let mut instance = Instance::new(tree, BUFFER_KIB)?;
        // Threads and processes that these start are followed too.
        let _ = instance.write("options/event-fork", "1");
        let tasks = |pid: &u32| tree.list(format!("proc/{pid}/task"));
        let tids: Vec<String> = pids.iter().flat_map(tasks).collect();
        instance.write("set_event_pid", &tids.join(" "))?;
        let sources = Sources {
            switches: instance.enable("sched/sched_switch")
                && instance.enable("sched/sched_waking"),
            timers: instance.enable("timer/hrtimer_start"),
            faults: instance.enable("exceptions/page_fault_user"),
            futexes: instance.enable("syscalls/sys_enter_futex"),
        };
        Ok(Followed { recording: instance.record()?, sources, trace: Trace::default() })
    }

    /// Takes what has come since. What can't be read can't be at the end either, and is told there.
    fn drain(&mut self) {
        let _ = self.recording.drain(|event| self.trace.see(event));
    }

    fn finish(mut self) -> io::Result<(Trace, Sources)> {
        self.trace.lost = self.recording.finish(|event| self.trace.see(event))?;
        Ok((self.trace, self.sources))
    }
}

/// What `/proc` says of the threads at an instant.
#[derive(Clone, Debug)]
struct Snapshot {
    threads: Vec<Thread>,
    faults: BTreeMap<u32, u64>,
    memory: Vec<ProcessMemory>,
}

impl Snapshot {
    fn take(tree: &Tree, pids: &BTreeSet<u32>) -> Snapshot {
        let mut threads: Vec<Thread> =
            pids.iter().flat_map(|pid| ps::threads_of(tree, *pid)).collect();
        threads.retain(|thread| thread.state != "Z");
        let faults = |thread: &Thread| {
            let (pid, tid) = (thread.pid, thread.tid);
            let stat = tree.read_bytes(format!("proc/{pid}/task/{tid}/stat")).ok()?;
            Some((tid, Stat::parse(&stat)?.faults))
        };
        let faults = threads.iter().filter_map(faults).collect();
        let memory = |pid: &u32| {
            let status = tree.read(format!("proc/{pid}/status")).ok()?;
            let bytes = |key: &str| {
                let kib: u64 = value(&status, key)?.split(' ').next()?.parse().ok()?;
                Some(kib * 1024)
            };
            let (locked_bytes, resident_bytes) = (bytes("VmLck")?, bytes("VmRSS")?);
            Some(ProcessMemory { pid: *pid, locked_bytes, resident_bytes })
        };
        Snapshot { threads, faults, memory: pids.iter().filter_map(memory).collect() }
    }

    fn observation(
        self,
        first: &Snapshot,
        mut trace: events::Trace,
        head: Observation,
    ) -> Observation {
        let observed = |thread: Thread| ObservedThread {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name,
            placement: thread.placement,
            faults: self.faults.get(&thread.tid).and_then(|last| {
                first.faults.get(&thread.tid).map(|first| last.saturating_sub(*first))
            }),
            events: trace.threads.remove(&thread.tid).unwrap_or_default(),
        };
        let threads = self.threads.into_iter().map(observed).collect();
        Observation { lost: trace.lost, memory: self.memory, threads, ..head }
    }
}

/// The program. Dropping it ends it, if it was started here.
pub(crate) struct Running {
    name: String,
    pid: u32,
    child: Option<Child>,
}

impl Running {
    pub(crate) fn start(options: &CheckOptions) -> Result<Running, CheckError> {
        let words = match &options.program {
            CheckedProgram::Process(pid) => {
                return Ok(Running { name: format!("process {pid}"), pid: *pid, child: None });
            }
            CheckedProgram::Command(words) => words,
        };
        let mut all = options.guard.iter().chain(words);
        let program = all.next().cloned().unwrap_or_default();
        let child = Command::new(&program)
            .args(all)
            .stdin(Stdio::null())
            .stdout(if options.quiet { Stdio::null() } else { Stdio::inherit() })
            .spawn()
            .map_err(|source| CheckError::Start { program: program.into(), source })?;
        let name: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        Ok(Running { name: name.join(" "), pid: child.id(), child: Some(child) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the look begins.
    pub(crate) fn settle(
        &mut self,
        options: &CheckOptions,
        interrupt: &Interrupt,
    ) -> Result<(), CheckError> {
        let until = Instant::now() + options.settle;
        while Instant::now() < until {
            if interrupt.is_stopped() {
                return Err(CheckError::Interrupted);
            }
            self.check(options)?;
            thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
        self.check(options)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn check(&mut self, options: &CheckOptions) -> Result<(), CheckError> {
        let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) else {
            return Ok(());
        };
        if status.code() == Some(NOT_RUN) {
            return Err(CheckError::NotRun { program: self.name.clone() });
        }
        let (how, settle) = (status.to_string(), options.settle);
        Err(CheckError::Ended { program: self.name.clone(), how, settle })
    }

    /// Asks the program to end, then makes it.
    pub(crate) fn end(&mut self) {
        for number in [signal::INTERRUPT, signal::TERMINATE, signal::KILL] {
            if self.child.is_none() || self.has_ended() {
                break;
            }
            // Before it heads a group of its own only the process can be named.
            let _ = process::signal_group(self.pid, number) || process::signal(self.pid, number);
            let until = Instant::now() + END_LIMIT;
            while !self.has_ended() && Instant::now() < until {
                thread::sleep(Duration::from_millis(10));
            }
        }
        if let Some(mut child) = self.child.take() {
            // What it has started and left behind.
            let _ = process::signal_group(self.pid, signal::KILL);
            let _ = child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn a_kernel_that_refuses_to_trace_is_asked_why() {
        let fake = FakeTree::new();
        fake.file("sys/kernel/tracing/instances/other/x", "");
        let started = Followed::start(&fake.tree, &BTreeSet::new()).map(drop);
        let why = started.expect_err("an instance without files");
        assert!(why.to_string().contains("can't write"), "{why}");
        assert!(why.to_string().contains("trace_clock"), "{why}");
    }
}
