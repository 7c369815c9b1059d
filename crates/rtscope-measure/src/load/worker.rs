//! The load's own process: its guards, its job, its workers.
//!
//! ```text
//! rtscope          starts, reads the board, stops
//!   load           single-threaded; forks workers, opens their gate, waits for them
//!     worker       placed and read back, waits at the gate, works, counts
//! ```
//!
//! Nothing here may outlive rtscope. Each process asks the kernel for a signal when its parent
//! dies, and each has a kernel timer that ends it at the load's limit, whatever it is doing then. On PREEMPT_RT, a
//! real-time worker may starve whoever handles that timer: a limit of its CPU time ends it there.

use std::{
    io::{PipeReader, PipeWriter, Read},
    os::fd::AsFd,
    process::ExitCode,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::{
    cpu::CpuSet,
    load::LoadLine,
    schedule::{Placement, Policy},
};
use rtscope_sys::{
    fork::{Children, Exit, Waited, default_signals, fork, signal, wait},
    process::{self, Resource, die_with_parent, end_after, limit_real_time},
    sched,
};

use super::{
    LoadDescriptor, LoadError,
    board::{Board, Counter, State},
    options::LoadOptions,
    resolve,
};

/// The environment variable in which a load's process finds its [`LoadLimits`].
pub(super) const LIMITS: &str = "RTSCOPE_LOAD";

/// Time between two looks whether all workers are placed.
const LOOK: Duration = Duration::from_millis(1);

/// What a load's process is told beside its line. Its text form is unique to one start of a load,
/// so that it marks every process that inherits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadLimits {
    /// Who starts it.
    pub(super) parent: u32,
    /// `CLOCK_MONOTONIC` at the start.
    pub(super) began_ns: u64,
    /// How long it may live.
    pub(super) limit_ns: u64,
    /// Where its workers may run.
    pub(super) cpus: CpuSet,
}

impl LoadLimits {
    pub(super) fn write(&self) -> String {
        let LoadLimits { parent, began_ns, limit_ns, cpus } = self;
        format!("{parent} {began_ns} {limit_ns} {cpus}")
    }

    fn read(text: &str) -> Option<LoadLimits> {
        let mut words = text.split(' ');
        Some(LoadLimits {
            parent: words.next()?.parse().ok()?,
            began_ns: words.next()?.parse().ok()?,
            limit_ns: words.next()?.parse().ok()?,
            cpus: words.next()?.parse().ok()?,
        })
    }
}

/// What a load is to do.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) options: LoadOptions,
    /// Where and how its workers run.
    pub(super) placement: Placement,
    /// What it shares with the control thread.
    pub(super) board: Arc<Board>,
    /// The process that started it.
    pub(super) parent: u32,
    until: Instant,
}

impl Job {
    /// The placement of a worker that stays on one of the load's CPUs, which the workers take in
    /// turn.
    pub(super) fn pinned(&self, worker: usize) -> Placement {
        let cpus = &self.placement.cpus;
        let cpu = cpus.iter().nth(worker % cpus.len().max(1));
        Placement { cpus: cpu.into_iter().collect(), ..self.placement.clone() }
    }

    /// Guards the calling process: it dies with this parent and at the load's limit.
    pub(super) fn guard(&self, parent: u32) -> Result<(), LoadError> {
        let alive = die_with_parent(parent, signal::KILL);
        // A limit of 0 would switch the timer off.
        let left = self.until.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        end_after(left);
        // In place of the run's limit: a load that computes never sleeps.
        limit_real_time(left + Duration::from_secs(1));
        if alive { Ok(()) } else { Err(LoadError::NotStartedByUs) }
    }
}

/// The load's process: what the hidden subcommand `load-worker` does with the words behind it.
///
/// Must be called while the process has one thread.
#[must_use]
pub fn worker_main(words: &[String]) -> ExitCode {
    let (descriptor, job) = match accept(words) {
        Ok(accepted) => accepted,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    match prepare(descriptor, &job).and_then(|()| (descriptor.run)(&job)) {
        Ok(()) => {
            job.board.set_state(State::Done);
            ExitCode::SUCCESS
        }
        Err(e) => {
            job.board.fail(&e.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Reads what the parent has passed on: the line in the arguments, the limits in the environment,
/// the board as standard input.
fn accept(words: &[String]) -> Result<(&'static LoadDescriptor, Job), LoadError> {
    let limits = std::env::var(LIMITS).ok().and_then(|text| LoadLimits::read(&text));
    let limits = limits.ok_or(LoadError::NotStartedByUs)?;
    let line: LoadLine = words.join(" ").parse().map_err(LoadError::line)?;
    let (descriptor, options) = resolve(&line).map_err(LoadError::Line)?;
    let file = std::io::stdin().as_fd().try_clone_to_owned();
    let board = Board::from_file(file.map_err(LoadError::io("take the board over"))?)?;
    let job = Job {
        placement: placement_of(&options, limits.cpus)?,
        options,
        board: Arc::new(board),
        parent: limits.parent,
        until: Instant::now() + Duration::from_nanos(limits.limit_ns),
    };
    Ok((descriptor, job))
}

/// The placement that the options ask for. A nice value that isn't given is the process's own.
fn placement_of(options: &LoadOptions, cpus: CpuSet) -> Result<Placement, LoadError> {
    let policy: Policy = options.word("policy").parse().map_err(LoadError::line)?;
    let priority = options.given("priority").and_then(|text| text.parse().ok()).unwrap_or(1);
    let nice = match options.given("nice").and_then(|text| text.parse().ok()) {
        Some(nice) => nice,
        None => sched::nice(sched::SELF)?,
    };
    Ok(Placement {
        policy,
        priority: if policy.has_priority() { priority } else { 0 },
        nice: if policy.is_real_time() { 0 } else { nice },
        budget: None,
        cpus,
    })
}

/// Makes an ordinary, guarded process of what was inherited from a control thread, which may be a
/// real-time one on CPUs of its own.
fn prepare(descriptor: &LoadDescriptor, job: &Job) -> Result<(), LoadError> {
    job.guard(job.parent)?;
    default_signals();
    let nice = sched::nice(sched::SELF)?;
    let own = Placement { policy: Policy::Other, priority: 0, nice, ..job.placement.clone() };
    sched::set_policy(sched::SELF, &own)?;
    sched::set_affinity(sched::SELF, &own.cpus)?;
    // A name of its own in process lists, and the first choice when memory runs out: failures of
    // these two change nothing that is measured.
    let _ = std::fs::write("/proc/self/comm", process_name(descriptor.name));
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

/// How a load's processes are called in process lists, where a name has at most 15 letters.
pub(super) fn process_name(load: &str) -> String {
    format!("load:{load}")
}

/// Places the calling thread and reads back that it is there.
pub(super) fn place(asked: &Placement) -> Result<(), LoadError> {
    sched::place_exactly(asked).map_err(|source| match source.is_permission() {
        true => LoadError::Place { asked: Box::new(asked.clone()), source },
        false => LoadError::System(source),
    })
}

/// Files that a load's process has open beside those that its work needs.
const OTHER_FILES: u64 = 32;

/// Raises the limit of open files as far as a load needs and may.
pub(super) fn allow_open_files(asked: u64) -> Result<(), LoadError> {
    let needed = asked + OTHER_FILES;
    let (soft, hard) = process::limit(Resource::OpenFiles);
    if soft.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let wanted = (Some(needed), hard.map(|hard| hard.max(needed)));
    let allowed = hard.unwrap_or(u64::MAX);
    process::set_limit(Resource::OpenFiles, wanted)
        .map_err(|_| LoadError::OpenFiles { needed, allowed })
}

/// A gate at which workers wait until all are placed, so that none works before the others exist.
/// It opens for all at once, when the last writing end of its pipe is closed.
#[derive(Debug)]
struct Gate {
    reader: Arc<PipeReader>,
    writer: Option<PipeWriter>,
}

impl Gate {
    fn new() -> Result<Gate, LoadError> {
        let (reader, writer) = std::io::pipe().map_err(LoadError::io("make a pipe"))?;
        Ok(Gate { reader: Arc::new(reader), writer: Some(writer) })
    }

    fn open(&mut self) {
        self.writer = None;
    }
}

/// What each worker does before its work: it is placed, says so, and waits.
fn get_ready(board: &Board, asked: &Placement, mut gate: &PipeReader) -> Result<(), LoadError> {
    place(asked)?;
    board.count_placed();
    gate.read(&mut [0]).map_err(LoadError::io("wait at the gate"))?;
    Ok(())
}

fn worker_ended(pid: u32, exit: Exit) -> LoadError {
    match exit {
        Exit::Signal(signal::ALARM) => LoadError::Limit,
        _ => LoadError::Worker { pid, how: exit.to_string() },
    }
}

/// The workers of a load, each a process.
#[derive(Debug)]
pub(super) struct Processes<'a> {
    job: &'a Job,
    gate: Gate,
    members: usize,
}

impl Processes<'_> {
    pub(super) fn new(job: &Job) -> Result<Processes<'_>, LoadError> {
        Ok(Processes { job, gate: Gate::new()?, members: 0 })
    }

    /// Forks a worker, which does `work` once the gate is open.
    pub(super) fn add(
        &mut self,
        asked: &Placement,
        work: impl FnOnce(Counter<'_>) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let (job, gate, index) = (self.job, &mut self.gate, self.members);
        let load = std::process::id();
        fork(|| {
            // The worker's copy of the writing end would keep the gate closed.
            gate.open();
            let outcome = job
                .guard(load)
                .and_then(|()| get_ready(&job.board, asked, &gate.reader))
                .and_then(|()| work(job.board.counter(index)));
            match outcome {
                Ok(()) => 0,
                Err(e) => {
                    job.board.fail(&e.to_string());
                    1
                }
            }
        })?;
        self.members += 1;
        Ok(())
    }

    /// Lets the workers work, and waits until all have ended. When one fails, the load has failed;
    /// the others die with the caller.
    pub(super) fn work(mut self) -> Result<(), LoadError> {
        while self.job.board.placed() < self.members as u64 {
            match wait(Children::Any, false) {
                Waited::Ended(pid, exit) => return Err(worker_ended(pid, exit)),
                Waited::Running | Waited::NoChild => thread::sleep(LOOK),
            }
        }
        self.job.board.set_state(State::Working);
        let began = Instant::now();
        self.gate.open();
        loop {
            match wait(Children::Any, true) {
                Waited::Ended(_, Exit::Code(0)) | Waited::Running => {}
                Waited::Ended(pid, exit) => return Err(worker_ended(pid, exit)),
                Waited::NoChild => break,
            }
        }
        self.job.board.set_took_ns(began.elapsed().as_nanos() as u64);
        Ok(())
    }
}

/// The workers of a load, each a thread of its process.
#[derive(Debug)]
pub(super) struct Threads<'a> {
    job: &'a Job,
    gate: Gate,
    members: usize,
    sender: mpsc::Sender<Result<(), LoadError>>,
    outcomes: mpsc::Receiver<Result<(), LoadError>>,
}

/// Stack of a worker thread: its loop calls little.
const STACK_BYTES: usize = 128 * 1024;

impl Threads<'_> {
    pub(super) fn new(job: &Job) -> Result<Threads<'_>, LoadError> {
        let (sender, outcomes) = mpsc::channel();
        Ok(Threads { job, gate: Gate::new()?, members: 0, sender, outcomes })
    }

    /// Starts a worker, which does `work` once the gate is open.
    pub(super) fn add(
        &mut self,
        asked: &Placement,
        work: impl FnOnce(Counter<'_>) -> Result<(), LoadError> + Send + 'static,
    ) -> Result<(), LoadError> {
        let (board, asked, index) = (Arc::clone(&self.job.board), asked.clone(), self.members);
        let (gate, sender) = (Arc::clone(&self.gate.reader), self.sender.clone());
        let body = move || {
            let ready = get_ready(&board, &asked, &gate);
            // Nobody listens only when another worker has failed already.
            let _ = sender.send(ready.and_then(|()| work(board.counter(index))));
        };
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn(body).map_err(LoadError::io("start a worker thread"))?;
        self.members += 1;
        Ok(())
    }

    /// Lets the workers work, and waits until all have ended. When one fails, the load has failed;
    /// the others end with the process.
    pub(super) fn work(mut self) -> Result<(), LoadError> {
        while self.job.board.placed() < self.members as u64 {
            match self.outcomes.try_recv() {
                Ok(outcome) => outcome?,
                Err(_) => thread::sleep(LOOK),
            }
        }
        self.job.board.set_state(State::Working);
        let began = Instant::now();
        self.gate.open();
        drop(self.sender);
        // Each worker sends once; one that panics drops its sender without a word.
        let outcomes: Vec<()> = self.outcomes.iter().collect::<Result<_, _>>()?;
        self.job.board.set_took_ns(began.elapsed().as_nanos() as u64);
        match outcomes.len() == self.members {
            true => Ok(()),
            false => Err(LoadError::Broken("a worker thread panicked")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_written_and_read() {
        let limits = LoadLimits {
            parent: 12,
            began_ns: 34,
            limit_ns: 56,
            cpus: "0-1,3".parse().expect("a set"),
        };
        assert_eq!(LoadLimits::read(&limits.write()), Some(limits));
        assert_eq!(LoadLimits::read("1 2 x 0"), None);
    }

    #[test]
    fn a_worker_refuses_to_start_by_hand() {
        let error = accept(&["cpu".to_owned()]).expect_err("refused");
        assert!(matches!(error, LoadError::NotStartedByUs));
    }
}
