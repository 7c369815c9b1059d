//! Scheduling experiments: each application is a thread that is placed, parked, released at a
//! programmed instant, and does a calibrated amount of computing.
//!
//! Measured is the response time: from the programmed release to the clock reading after the last
//! piece of work. It includes the wake-up latency. Other programs on the machine, interrupts and a
//! hypervisor take their part of it, and are not told apart from each other.

mod switches;
mod work;

use std::{
    sync::{Barrier, mpsc},
    thread,
    time::Duration,
};

use rtscope_model::{
    cpu::CpuSet,
    experiment::{
        Application, Experiment, ExperimentRecord, FORMAT, Observed, Run, RunSource,
        SchedulingRules, Where,
    },
    schedule::Placement,
    time::Nanos,
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    process, sched, thread as own,
    tree::Tree,
};

use self::{
    switches::Capture,
    work::{Calibration, Pieces},
};
use crate::environment::throttling;

/// From the last thread's parking to the release.
const LEAD_NS: u64 = 50_000_000;

/// Between the releases of two applications, so that they come to the queue in a known order.
const STAGGER_NS: u64 = 200_000;

/// However it goes wrong, the kernel ends the process after this time and ten times all work.
const LIMIT: Duration = Duration::from_secs(20);

/// What an experiment needs to know besides its applications.
#[derive(Debug)]
pub struct Order {
    /// The experiment.
    pub experiment: Experiment,
    /// The CPU of applications that are placed on one; none is CPU 1, or the first there is.
    pub one: Option<u32>,
    /// The machine's files.
    pub tree: Tree,
    /// Version of rtscope, for the record.
    pub version: String,
    /// Wall clock, RFC 3339, for the record.
    pub wall_clock: String,
}

/// Why an experiment did not happen.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A CPU that isn't there.
    #[error("CPU {asked} can't be used: this process may use CPUs {allowed}")]
    NoSuchCpu {
        /// Asked.
        asked: u32,
        /// There.
        allowed: CpuSet,
    },
    /// A thread could not be placed.
    #[error("{name} can't be {asked}: {source}")]
    Place {
        /// The application.
        name: String,
        /// Its placement.
        asked: Box<Placement>,
        /// What the kernel answered.
        source: rtscope_sys::Error,
    },
    /// The system refused something else.
    #[error(transparent)]
    System(#[from] rtscope_sys::Error),
    /// A thread could not be started, or ended before its time.
    #[error("a thread of the experiment did not run to its end: {0}")]
    Thread(String),
}

impl TaskError {
    /// Whether a permission is lacking.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        match self {
            TaskError::Place { source, .. } | TaskError::System(source) => source.is_permission(),
            _ => false,
        }
    }
}

/// Runs an experiment once.
///
/// # Errors
///
/// When a CPU is absent, or a thread can't be placed as asked; then nothing has run.
pub fn run(order: &Order) -> Result<ExperimentRecord, TaskError> {
    let rules = rules(order)?;
    let experiment = &order.experiment;
    let work = |app: &Application| app.work.unwrap_or(experiment.work);
    let total: u64 = experiment.applications.iter().map(|app| work(app).0).sum();
    process::end_after(LIMIT + Duration::from_nanos(total) * 10);
    let calibration = work::calibrate();
    let tasks: Vec<Task> = experiment
        .applications
        .iter()
        .zip(0u64..)
        .map(|(app, n)| Task {
            name: app.name.clone(),
            asked: place(app, &rules),
            work: work(app),
            offset_ns: app.offset.map_or(n * STAGGER_NS, |offset| offset.0),
            calibration,
        })
        .collect();
    let released = release(&tasks, &order.tree);
    process::end_after(Duration::ZERO);
    let (applications, source, lost) = released?;
    Ok(ExperimentRecord {
        format: FORMAT,
        version: order.version.clone(),
        wall_clock: order.wall_clock.clone(),
        kernel: order.tree.read("proc/sys/kernel/osrelease").unwrap_or_default(),
        experiment: experiment.clone(),
        rules,
        applications,
        source,
        lost,
    })
}

fn rules(order: &Order) -> Result<SchedulingRules, TaskError> {
    let allowed = sched::affinity(sched::SELF)?;
    let first = allowed.iter().next().unwrap_or_default();
    let one = order.one.unwrap_or(if allowed.contains(1) { 1 } else { first });
    if !allowed.contains(one) {
        return Err(TaskError::NoSuchCpu { asked: one, allowed });
    }
    let us = |us: Option<i64>| us.and_then(|us| u64::try_from(us).ok()).map(|us| us * 1_000);
    let limit = throttling(&order.tree);
    let quantum = order.tree.read("proc/sys/kernel/sched_rr_timeslice_ms").ok();
    let quantum_ms: u64 =
        quantum.and_then(|text| text.parse().ok()).filter(|ms| *ms > 0).unwrap_or(100);
    Ok(SchedulingRules {
        cpus: allowed,
        one,
        rr_quantum_ns: quantum_ms * 1_000_000,
        rt_runtime_ns: us(limit.runtime_us),
        rt_period_ns: us(limit.period_us).unwrap_or(1_000_000_000),
    })
}

fn place(app: &Application, rules: &SchedulingRules) -> Placement {
    let cpus = match app.cpus {
        Where::One => [rules.one].into_iter().collect(),
        Where::Free => rules.cpus.clone(),
    };
    Placement { policy: app.policy, priority: app.priority, nice: app.nice, budget: None, cpus }
}

/// What a thread has to do.
struct Task {
    name: String,
    asked: Placement,
    work: Nanos,
    offset_ns: u64,
    calibration: Calibration,
}

/// What a thread hands back, in the clock's own instants.
struct Finished {
    found: Placement,
    start_ns: u64,
    finish_ns: u64,
    cpu_ns: u64,
    preemptions: u64,
    pieces: Pieces,
}

type Released = (Vec<Observed>, RunSource, u64);

/// Starts the threads, releases them, and waits for their end. All are placed before one is
/// released: a thread that can't be ends the experiment.
fn release(tasks: &[Task], tree: &Tree) -> Result<Released, TaskError> {
    let parked = Barrier::new(tasks.len() + 1);
    let started = Barrier::new(tasks.len() + 1);
    let instant = std::sync::atomic::AtomicU64::new(0);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, task) in tasks.iter().enumerate() {
            let (tell, parked, started, instant) = (tell.clone(), &parked, &started, &instant);
            threads.push(scope.spawn(move || {
                own::block_signals();
                own::set_timer_slack_ns(1);
                let placed = placed(task);
                let is_placed = placed.is_ok();
                let _ = tell.send((n, own::id(), placed.as_ref().err().map(ToString::to_string)));
                parked.wait();
                started.wait();
                let release_ns = instant.load(std::sync::atomic::Ordering::Acquire);
                match placed {
                    Ok(found) if release_ns > 0 && is_placed => {
                        Ok(Some(application(task, found, release_ns)))
                    }
                    Ok(_) => Ok(None),
                    Err(error) => Err(error),
                }
            }));
        }
        parked.wait();
        drop(tell);
        let all: Vec<(usize, i32, Option<String>)> = told.iter().take(tasks.len()).collect();
        let sound = all.iter().all(|(_, _, problem)| problem.is_none());
        let mut tids = vec![0; tasks.len()];
        all.iter().for_each(|(n, tid, _)| tids[*n] = *tid);
        let capture = if sound { Capture::start(tree, &tids) } else { None };
        let release_ns = SystemClock::MONOTONIC.now_ns() + LEAD_NS;
        if sound {
            instant.store(release_ns, std::sync::atomic::Ordering::Release);
        }
        started.wait();
        let mut finished = Vec::new();
        for thread in threads {
            let ended = thread.join().map_err(|_| TaskError::Thread("it panicked".to_owned()))?;
            finished.push(ended?);
        }
        let finished: Option<Vec<Finished>> = finished.into_iter().collect();
        let finished =
            finished.ok_or_else(|| TaskError::Thread("it was not released".to_owned()))?;
        Ok(observed(tasks, finished, &tids, capture, release_ns))
    })
}

fn placed(task: &Task) -> Result<Placement, TaskError> {
    let asked = &task.asked;
    let refused = |source| TaskError::Place {
        name: task.name.clone(),
        asked: Box::new(asked.clone()),
        source,
    };
    sched::set_affinity(sched::SELF, &asked.cpus).map_err(refused)?;
    sched::set_policy(sched::SELF, asked).map_err(refused)?;
    sched::placement(sched::SELF).map_err(refused)
}

/// An application from its release to its end.
fn application(task: &Task, found: Placement, release_ns: u64) -> Finished {
    let clock = SystemClock::MONOTONIC;
    let mut pieces = Pieces::new();
    clock.sleep_until_ns(release_ns + task.offset_ns);
    // The CPU time is read within the span on the clock: it can't be longer.
    let start_ns = clock.now_ns();
    let before = own::usage();
    task.calibration.compute(task.work, &clock, &mut pieces);
    let used = own::usage() - before;
    let finish_ns = clock.now_ns();
    Finished {
        found,
        start_ns,
        finish_ns,
        cpu_ns: used.cpu_ns,
        preemptions: used.involuntary_switches,
        pieces,
    }
}

/// The runs that touch a span.
fn inside(runs: &[Run], from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Run> {
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
    let shows = |runs: &[Run], task: &Task, end: &Finished| {
        inside(runs, release_ns + task.offset_ns, end.finish_ns).next().is_some()
    };
    let traced = capture.and_then(|capture| capture.finish(tids)).filter(|traced| {
        let all = traced.runs.iter().zip(tasks).zip(&finished);
        all.into_iter().all(|((runs, task), end)| shows(runs, task, end))
    });
    let since = |ns: u64| ns.saturating_sub(release_ns);
    let mut lost = traced.as_ref().map_or(0, |traced| traced.lost);
    let mut applications = Vec::new();
    for (n, (task, end)) in tasks.iter().zip(finished).enumerate() {
        let finish_ns = end.finish_ns;
        let own_runs = end.pieces.runs();
        lost += if traced.is_none() { end.pieces.lost } else { 0 };
        let runs = traced.as_ref().map_or(&own_runs, |traced| &traced.runs[n]);
        let from = release_ns + task.offset_ns;
        applications.push(Observed {
            name: task.name.clone(),
            asked: task.asked.clone(),
            found: end.found,
            work_ns: task.work.0,
            release_ns: task.offset_ns,
            start_ns: since(end.start_ns),
            finish_ns: since(finish_ns),
            cpu_ns: end.cpu_ns,
            preemptions: end.preemptions,
            runs: inside(runs, from, finish_ns)
                .map(|run| Run {
                    cpu: run.cpu,
                    start_ns: since(run.start_ns.max(from)),
                    end_ns: since(run.end_ns.min(finish_ns)),
                })
                .collect(),
        });
    }
    let source = if traced.is_some() { RunSource::SchedSwitch } else { RunSource::TimeStamps };
    (applications, source, lost)
}
