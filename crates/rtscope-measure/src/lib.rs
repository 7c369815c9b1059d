//! The first half of the data's path: from a plan to a record.
//!
//! ```text
//! plan -> environment -> settings -> place, load, measure -> environment -> record
//! ```
//!
//! The threads that measure are in `rtscope-sampler`. [`run`] is the whole of it on one screen.
//! Everything that happens is told as one stream of events; this crate knows neither statistics nor
//! screens.
//!
//! What a run notes of the machine before it measures:
//!
//! ```
//! use rtscope_measure::environment;
//! use rtscope_sys::tree::Tree;
//!
//! let environment = environment::collect(&Tree::default());
//! assert!(!environment.cpus.online.is_empty());
//! ```

#![forbid(unsafe_code)]

pub mod check;
pub mod doctor;
pub mod drift;
pub mod dropin;
pub mod environment;
pub mod explain;
pub mod guest_init;
pub mod load;
mod machine;
mod other_work;
mod processes;
mod protocol;
pub mod ps;
pub mod recorder;
pub mod sched;
pub mod signals;
pub mod stat;
mod stream;
pub mod throughput;
mod timekeeping;
pub mod trace;
pub mod tune;
pub mod watchdog;
pub mod wave;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use rtscope_model::{
    cpu::CpuSet,
    environment::{Environment, Permission},
    event::{EndReason, Event, FORMAT, Stamped},
    finding::{Finding, Weight},
    plan::Plan,
    schedule::Policy,
};
use rtscope_sampler::{
    GuestExpiries, SampleError,
    network::{self, NetworkError},
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    sched as system_sched, shield,
    tree::Tree,
};

use crate::{
    environment::{
        InterruptCounters, SystemCounters, energy::EnergyCounters, kernel_log::KernelLog,
    },
    load::{Launcher, LoadError},
    protocol::{Conductor, LockedMemory},
    recorder::{RecordError, RecordFiles, Recorder},
    signals::Interrupt,
    stream::Stream,
    timekeeping::{ClockWatch, Reading},
    watchdog::Watchdog,
};

/// What a run needs to know besides its plan.
#[derive(Debug)]
pub struct RunOptions {
    pub plan: Plan,
    /// What the reader of the record must know of the plan, from [`leave_out`].
    pub findings: Vec<Finding>,
    pub folder: PathBuf,
    pub tree: Tree,
    /// Where changed settings are journalled.
    pub journal: PathBuf,
    /// The program that runs loads as `PROGRAM load-worker ...`.
    pub program: PathBuf,
    /// The command line, for the record.
    pub command: Vec<String>,
    /// Version of rtscope, for the record.
    pub version: String,
    /// Wall clock, RFC 3339, for the record.
    pub wall_clock: String,
    /// What ends the run early.
    pub interrupt: Interrupt,
    /// When nobody has looked after the sampling threads for so long (a listener that hangs, a disk
    /// that does not answer), the kernel ends the process: real-time threads don't go on unattended. A good
    /// choice is [`watchdog::UNATTENDED`].
    pub unattended: Duration,
    /// What a guest of the lab is told of its expiries.
    pub expiries: GuestExpiries,
}

/// Why a run did not happen, or ended without a record to judge.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A CPU of the plan is absent.
    #[error("{}", environment::not_online(absent, online))]
    NoSuchCpu {
        /// Asked and absent.
        absent: CpuSet,
        online: CpuSet,
    },
    /// More intervals than threads.
    #[error("{0}")]
    Intervals(String),
    #[error("load {line:?} of phase {phase:?} can't start on this machine: {why}")]
    Load {
        /// Its line in the plan.
        line: String,
        phase: String,
        /// Why, and what to do.
        why: LoadError,
    },
    /// A limit of the system is too low for the plan.
    #[error("{0}")]
    Limit(String),
    #[error("no CPU was found that this process may use: are /proc and /sys mounted?")]
    NoCpu,
    #[error("no permission for the requested policy; {}", environment::do_one_of(.0))]
    Permission([String; 3]),
    /// A sampling thread is not permitted what it was asked.
    #[error("{0}; {ways}", ways = environment::do_one_of(.1))]
    Place(Box<SampleError>, [String; 3]),
    #[error(transparent)]
    Sample(SampleError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("can't place the control thread: {0}")]
    Control(rtscope_sys::Error),
    #[error(transparent)]
    Tune(#[from] tune::TuneError),
}

impl From<SampleError> for RunError {
    fn from(error: SampleError) -> RunError {
        match &error {
            SampleError::Place { asked, .. } if error.is_permission() => {
                let ways = environment::placement_advice(asked);
                RunError::Place(Box::new(error), ways)
            }
            _ => match error {
                SampleError::Network(error) => RunError::Network(error),
                error => RunError::Sample(error),
            },
        }
    }
}

/// What a run left behind.
#[derive(Debug)]
pub struct Finished {
    /// The record, as it is on disk or in memory.
    pub source: RecordFiles,
    /// Why a part of the record is not on disk, if so.
    pub not_written: Option<String>,
}

/// Runs a plan: the left half of the path, from top to bottom.
///
/// # Errors
///
/// When the plan can't be run on this machine or a setting can't be changed. What was recorded up to
/// then is in the record's folder, and every setting is as it was. A setting that is refused before
/// anything was measured leaves no record.
pub fn run(options: &RunOptions, listener: &mut dyn FnMut(&Stamped)) -> Result<Finished, RunError> {
    let before = environment::collect(&options.tree);
    let mut plan = options.plan.clone();
    let permission_finding = permit(&mut plan, before.permission)?;
    let cpu_finding = machine::not_allowed(&plan, &before);
    let (mut sessions, launcher) = lay_out(&plan, &before, &options.tree)?;
    for session in &mut sessions {
        let beat = &mut session.spec.beat;
        beat.offset = options.expiries.applied_to(beat.offset);
    }
    let was_there = options.folder.exists();
    let recorder = Recorder::create(&options.folder, &plan.to_toml())?;

    let mut stream = Stream::new(recorder, listener);
    stream.emit(Event::RunStarted {
        format: FORMAT,
        version: options.version.clone(),
        command: options.command.clone(),
        wall_clock: options.wall_clock.clone(),
        monotonic_ns: stream.start_ns(),
    });
    stream.recorder.environment("environment.before.json", &before);
    let findings = permission_finding.into_iter().chain(cpu_finding);
    let findings = findings.chain(options.findings.iter().cloned());
    findings.for_each(|finding| stream.found(finding));

    // Settings of single phases change between sessions, when nothing is measured.
    let of_run = if changes_by_phase(&plan) { BTreeMap::new() } else { plan.settings.clone() };
    let applied =
        tune::apply(&options.tree, &options.journal, &of_run, &mut |event| stream.emit(event));
    let settings = applied.inspect_err(|_| recorder::remove_unused(&options.folder, was_there))?;
    let outcome = sessions_in_turn(options, &plan, &before, &sessions, launcher, &mut stream);
    settings.restore(&mut |event| stream.emit(event));
    if let (Err(RunError::Tune(_)), false) = (&outcome, stream.recorder.has_measured()) {
        // The settings of the first phase were refused.
        recorder::remove_unused(&options.folder, was_there);
        return outcome.map(|_| unreachable!("it is an error"));
    }

    if options.interrupt.is_runaway() {
        stream.found(Finding::new(
            "runaway",
            Weight::Invalidates,
            "a sampling thread ran for a second without sleeping, so the kernel was asked to end the run: the interval is too short for this machine",
        ));
    }
    let why = *outcome.as_ref().unwrap_or(&EndReason::Failed);
    let after = environment::collect_again(&options.tree, &before);
    stream.recorder.environment("environment.after.json", &after);
    stream.emit(Event::run_ended(why));
    let (source, not_written) = stream.into_recorder().finish();
    outcome.map(|_| Finished { source, not_written })
}

/// Whether a plan can be run on this machine, as far as that is known before it is: its CPUs, its
/// memory, its settings, and what its loads need.
pub fn check_plan(plan: &Plan, tree: &Tree) -> Result<(), RunError> {
    let (mut plan, found) = (plan.clone(), environment::collect(tree));
    machine::leave_out(&mut plan, &found.cpus.usable());
    lay_out(&plan, &found, tree)?;
    let mut asked: Vec<_> = plan.phases.iter().map(|phase| plan.settings_of(phase)).collect();
    asked.dedup();
    for settings in &asked {
        tune::propose(tree, &tune::journal_dir(), settings)?;
    }
    Ok(())
}

/// Leaves out the phases that no machine with a single CPU can measure, if this is one. What was left out is for
/// [`RunOptions::findings`].
pub fn leave_out(plan: &mut Plan, tree: &Tree) -> Option<Finding> {
    machine::leave_out(plan, &environment::usable(tree))
}

/// The sessions of a plan on this machine, and what will start their loads.
fn lay_out(
    plan: &Plan,
    found: &Environment,
    tree: &Tree,
) -> Result<(Vec<machine::SessionPlan>, Launcher), RunError> {
    let sessions = machine::lay_out(plan, found, &machine::Limits::read(tree))?;
    let all = system_sched::affinity(system_sched::SELF).unwrap_or_default();
    let online = found.cpus.online.clone();
    let mut launcher = Launcher { online, ..Launcher::new(CpuSet::default(), all) };
    machine::loads_can_start(plan, &sessions, &mut launcher)?;
    network::check(plan)?;
    Ok((sessions, launcher))
}

/// Lets an ordinary user measure as an ordinary thread where no policy was asked by name, and says so.
fn permit(plan: &mut Plan, permission: Permission) -> Result<Option<Finding>, RunError> {
    let real_time = plan.phases.iter().any(|phase| phase.sampler.policy.is_real_time());
    if permission.real_time || !real_time {
        return Ok(None);
    }
    let ways = environment::permission_advice(&permission);
    if plan.policy_asked {
        return Err(RunError::Permission(ways));
    }
    // Who may not ask for a policy may not lower its nice value either.
    let own_nice = system_sched::placement(system_sched::SELF).map_or(0, |own| own.nice);
    for phase in &mut plan.phases {
        phase.sampler.policy = Policy::Other;
        phase.sampler.nice = phase.sampler.nice.max(own_nice);
    }
    let text = "no real-time permission: measured as an ordinary thread (SCHED_OTHER). These figures \
                say nothing about a real-time thread";
    let advice = format!("do one of these: {}", ways.join(" Or: "));
    Ok(Some(Finding::new("no-real-time-permission", Weight::PreventsPass, text).advise(advice)))
}

/// The CPUs of loads that may run anywhere: a shield keeps them off its CPUs, so they would not read back what they asked.
fn outside_of_shields(all: &CpuSet) -> CpuSet {
    let tree = Tree::default();
    let hierarchies = shield::VERSION_1.iter().chain(&shield::VERSION_2);
    let shielded = hierarchies.filter_map(|at| shield::shielded(&tree, at));
    let outside = shielded.fold(all.clone(), |rest, own| rest.without(&own));
    if outside.is_empty() { all.clone() } else { outside }
}

/// Whether settings of single phases change between sessions.
fn changes_by_phase(plan: &Plan) -> bool {
    plan.phases.iter().any(|phase| !phase.settings.is_empty())
}

/// Runs the sessions with memory locked and a limit on runaway threads, each under the settings of
/// its phases where these have any.
fn sessions_in_turn(
    options: &RunOptions,
    plan: &Plan,
    before: &Environment,
    sessions: &[machine::SessionPlan],
    launcher: Launcher,
    stream: &mut Stream<'_>,
) -> Result<EndReason, RunError> {
    // Put back on every way out: the report is written without it.
    let watchdog = Watchdog::over_sleepers(options.unattended);
    let locked = LockedMemory::lock();
    if let Err(e) = &locked {
        let text = format!(
            "memory is not locked: {e}. A page that the kernel has reclaimed may delay a wake-up"
        );
        stream.found(
            Finding::new("memory-not-locked", Weight::PreventsPass, text)
                .advise("raise the memlock limit (ulimit -l), or run with CAP_IPC_LOCK"),
        );
    }
    let mut conductor = Conductor {
        plan,
        launcher: Launcher { program: options.program.clone(), ..launcher },
        interrupt: &options.interrupt,
        watchdog: &watchdog,
        tree: &options.tree,
        counters: SystemCounters::read(&options.tree),
        interrupts: InterruptCounters::read(&options.tree),
        energy: EnergyCounters::read(&options.tree),
        counters_at_ns: stream.elapsed_ns(),
        queued_ns: timekeeping::queued_ns(&options.tree),
        own_cpu_ns: SystemClock::PROCESS_CPU.now_ns(),
        kernel_log: KernelLog::open(&options.tree),
        real_time_before: &before.real_time_threads,
        others: None,
        clocks: ClockWatch::new(Reading::now()),
        tick: Duration::ZERO,
        progress_at_ns: 0,
        stream,
    };
    let all = conductor.launcher.all.clone();
    let mut why = EndReason::Finished;
    for (i, session) in sessions.iter().enumerate() {
        let phase = &plan.phases[session.cells.start];
        let own = if changes_by_phase(plan) { plan.settings_of(phase) } else { BTreeMap::new() };
        let mut emit = |event| conductor.stream.emit(event);
        // To stop services or to switch swap off may take minutes.
        watchdog.rest();
        let settings = tune::apply(&options.tree, &options.journal, &own, &mut emit)?;
        conductor.launcher.all = outside_of_shields(&all);
        watchdog.renew();
        let ended = conductor.session(i as u32, session);
        watchdog.rest();
        settings.restore(&mut |event| conductor.stream.emit(event));
        if let Some(reason) = ended? {
            why = reason;
            break;
        }
    }
    drop(locked);
    Ok(why)
}
