//! Scheduling experiments: each application is a thread that is placed, parked, released at a
//! programmed instant, and does a calibrated amount of computing.
//!
//! Measured is the response time: from the programmed release to the clock reading after the last
//! piece of work. It includes the wake-up latency. Other programs on the machine, interrupts and a
//! hypervisor take their part of it, and are not told apart from each other.

mod application;
mod rules;
mod switches;
mod work;

use std::{
    path::PathBuf,
    sync::{
        Barrier, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use rtscope_model::{
    cpu::CpuSet,
    sched::{
        Application, CpuInterval, Experiment, ExperimentRecord, FORMAT, JobRun, MutexProtocol,
        ObservedApplication, RunSource, SchedulingRules, Where,
    },
    schedule::Placement,
    time::Nanos,
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    mutex, thread as own,
    tree::Tree,
};

pub use self::switches::{Traced, parse as read_trace};
use self::{
    application::{Finished, Task},
    rules::{Changed, rules},
    switches::Capture,
    work::Calibration,
};
use crate::watchdog::Watchdog;

/// From the last thread's parking to the release.
const LEAD_NS: u64 = 50_000_000;

/// Between the releases of two applications, so that they come to the queue in a known order.
const STAGGER_NS: u64 = 200_000;

/// What an experiment needs to know besides its applications.
#[derive(Debug)]
pub struct SchedOptions {
    pub experiment: Experiment,
    /// The CPU of applications that are placed on one; none is CPU 1, or the first there is.
    pub one: Option<u32>,
    pub tree: Tree,
    /// Where changed settings are written down.
    pub journal: PathBuf,
    /// Version of rtscope, for the record.
    pub version: String,
    /// Wall clock, RFC 3339, for the record.
    pub wall_clock: String,
}

/// Why an experiment did not happen.
#[derive(Debug, thiserror::Error)]
pub enum SchedError {
    #[error("CPU {asked} can't be used: this process may use CPUs {allowed}")]
    NoSuchCpu { asked: u32, allowed: CpuSet },
    /// A thread could not be placed.
    #[error("{name} can't run as {asked}: {source}")]
    Place { name: String, asked: Box<Placement>, source: rtscope_sys::Error },
    /// The system refused something else.
    #[error(transparent)]
    System(#[from] rtscope_sys::Error),
    #[error("a thread of the experiment did not run to its end: {0}")]
    Thread(String),
}

impl SchedError {
    /// Whether a permission is lacking.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        match self {
            SchedError::Place { source, .. } | SchedError::System(source) => source.is_permission(),
            _ => false,
        }
    }
}

/// Runs an experiment once. Its settings are put back before this returns.
///
/// # Errors
///
/// When a CPU is absent, or a thread can't be placed as asked; then nothing has run.
pub fn run(options: &SchedOptions) -> Result<ExperimentRecord, SchedError> {
    let experiment = &options.experiment;
    let mut changed = Changed::by(experiment, &options.tree, &options.journal);
    let rules = rules(options)?;
    let span = |app: &Application| {
        let work = app.work.unwrap_or(experiment.work).0 * u64::from(app.jobs);
        work + app.period.map_or(0, |period| period.0) * u64::from(app.jobs)
    };
    let total: u64 = experiment.applications.iter().map(span).sum();
    let watchdog = Watchdog::over_spinners(Nanos(total.saturating_mul(10)));
    let calibration = work::calibrate(&SystemClock::MONOTONIC);
    let numbered = experiment.applications.iter().zip(0u64..);
    let tasks: Vec<Task> =
        numbered.map(|(app, n)| task(app, n, experiment, &rules, calibration)).collect();
    let mutex = mutex::Mutex::new(experiment.mutex == MutexProtocol::Inherit)?;
    let released = release(&tasks, &mutex, &options.tree);
    drop(watchdog);
    changed.restore();
    let (applications, source, lost) = released?;
    Ok(ExperimentRecord {
        format: FORMAT,
        version: options.version.clone(),
        wall_clock: options.wall_clock.clone(),
        kernel: options.tree.read("proc/sys/kernel/osrelease").unwrap_or_default(),
        experiment: experiment.clone(),
        rules,
        applications,
        source,
        lost,
        changed: std::mem::take(&mut changed.made),
        not_changed: std::mem::take(&mut changed.missing),
    })
}

fn task(
    app: &Application,
    n: u64,
    experiment: &Experiment,
    rules: &SchedulingRules,
    calibration: Calibration,
) -> Task {
    Task {
        name: app.name.clone(),
        asked: place(app, rules),
        slice: app.slice,
        work: app.work.unwrap_or(experiment.work),
        holds: app.holds.unwrap_or_default(),
        offset_ns: app.offset.map_or(n * STAGGER_NS, |offset| offset.0),
        period_ns: app.period.map(|period| period.0),
        jobs: app.jobs,
        calibration,
    }
}

fn place(app: &Application, rules: &SchedulingRules) -> Placement {
    let cpus = match app.cpus {
        Where::One => [rules.one].into_iter().collect(),
        Where::Free => rules.cpus.clone(),
    };
    Placement {
        policy: app.policy,
        priority: app.priority,
        nice: app.nice,
        budget: app.budget(),
        cpus,
    }
}

type Released = (Vec<ObservedApplication>, RunSource, u64);

/// Lets threads do something one after the other, in their order.
#[derive(Default)]
struct Turns {
    next: Mutex<usize>,
    changed: Condvar,
}

impl Turns {
    fn take<T>(&self, own: usize, work: impl FnOnce() -> T) -> T {
        let next = self.next.lock().expect("no thread panics in its turn");
        let mut next =
            self.changed.wait_while(next, |next| *next != own).expect("no thread panics");
        let made = work();
        *next += 1;
        self.changed.notify_all();
        made
    }
}

/// Starts the threads, releases them, and waits for their end. All are placed before one is
/// released, in their order: a thread that can't be ends the experiment.
fn release(tasks: &[Task], mutex: &mutex::Mutex, tree: &Tree) -> Result<Released, SchedError> {
    let (parked, started) = (Barrier::new(tasks.len() + 1), Barrier::new(tasks.len() + 1));
    let (instant, turns) = (AtomicU64::new(0), Turns::default());
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, task) in tasks.iter().enumerate() {
            let (tell, parked, started) = (tell.clone(), &parked, &started);
            let (instant, turns) = (&instant, &turns);
            threads.push(scope.spawn(move || -> Result<Option<Finished>, SchedError> {
                own::block_signals();
                own::set_timer_slack_ns(1);
                let placed = turns.take(n, || task.place());
                let _ = tell.send((n, own::id(), placed.is_ok()));
                parked.wait();
                started.wait();
                let release_ns = instant.load(Ordering::Acquire);
                let placed = placed?;
                (release_ns > 0).then(|| task.run(placed, release_ns, mutex)).transpose()
            }));
        }
        parked.wait();
        drop(tell);
        let all: Vec<(usize, i32, bool)> = told.iter().take(tasks.len()).collect();
        let sound = all.iter().all(|(_, _, is_placed)| *is_placed);
        let mut tids = vec![0; tasks.len()];
        all.iter().for_each(|(n, tid, _)| tids[*n] = *tid);
        let capture = if sound { Capture::start(tree, &tids) } else { None };
        let release_ns = SystemClock::MONOTONIC.now_ns() + LEAD_NS;
        if sound {
            instant.store(release_ns, Ordering::Release);
        }
        started.wait();
        let mut finished = Vec::new();
        for thread in threads {
            let ended = thread.join().map_err(|_| SchedError::Thread("it panicked".to_owned()))?;
            finished.push(ended?);
        }
        let finished: Option<Vec<Finished>> = finished.into_iter().collect();
        let finished =
            finished.ok_or_else(|| SchedError::Thread("it was not released".to_owned()))?;
        Ok(observed(tasks, finished, &tids, capture, release_ns))
    })
}

/// The runs that touch a span.
fn inside(runs: &[CpuInterval], from_ns: u64, to_ns: u64) -> impl Iterator<Item = &CpuInterval> {
    runs.iter().filter(move |run| run.end_ns > from_ns && run.start_ns < to_ns)
}

fn observed(
    tasks: &[Task],
    finished: Vec<Finished>,
    tids: &[i32],
    capture: Option<Capture>,
    release_ns: u64,
) -> Released {
    // A trace that shows nothing of an application's time is none.
    let shows = |runs: &[CpuInterval], task: &Task, end: &Finished| {
        end.placed.is_refused
            || inside(runs, release_ns + task.offset_ns, end.finish_ns()).next().is_some()
    };
    let traced = capture.and_then(|capture| capture.finish(tids)).filter(|traced| {
        let all = traced.runs.iter().zip(tasks).zip(&finished);
        all.into_iter().all(|((runs, task), end)| shows(runs, task, end))
    });
    let since = |ns: u64| ns.saturating_sub(release_ns);
    let shifted = |job: &JobRun| JobRun {
        release_ns: since(job.release_ns),
        start_ns: since(job.start_ns),
        finish_ns: since(job.finish_ns),
        ..*job
    };
    let mut lost = traced.as_ref().map_or(0, |traced| traced.lost);
    let mut applications = Vec::new();
    for (n, (task, end)) in tasks.iter().zip(finished).enumerate() {
        let (start_ns, finish_ns) = (end.start_ns(), end.finish_ns());
        let own_runs = end.pieces.runs();
        lost += if traced.is_none() { end.pieces.lost } else { 0 };
        let runs = traced.as_ref().map_or(&own_runs, |traced| &traced.runs[n]);
        let from = release_ns + task.offset_ns;
        let clipped = |runs: &[CpuInterval]| -> Vec<CpuInterval> {
            let clip = |run: &CpuInterval| CpuInterval {
                cpu: run.cpu,
                start_ns: since(run.start_ns.max(from)),
                end_ns: since(run.end_ns.min(finish_ns)),
            };
            inside(runs, from, finish_ns).map(clip).collect()
        };
        let throttled = traced.as_ref().filter(|_| task.asked.policy.is_real_time());
        applications.push(ObservedApplication {
            name: task.name.clone(),
            asked: task.asked.clone(),
            found: end.placed.found,
            work_ns: task.work.0,
            release_ns: task.offset_ns,
            start_ns: since(start_ns),
            finish_ns: since(finish_ns),
            cpu_ns: end.cpu_ns,
            preemptions: end.preemptions,
            runs: clipped(runs),
            throttled: throttled.map(|traced| clipped(&traced.held_up[n])),
            jobs: match task.period_ns {
                None => Vec::new(),
                Some(_) => end.jobs.iter().map(shifted).collect(),
            },
            is_refused: end.placed.is_refused,
            slice_ns: end.placed.slice_ns,
        });
    }
    let source = if traced.is_some() { RunSource::SchedSwitch } else { RunSource::TimeStamps };
    (applications, source, lost)
}
