//! Drift: periodic loops of our own that sleep relatively and absolutely, and programs that are watched
//! from outside.

pub(crate) mod beat;
mod outside;

use std::{
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::Duration,
};

use rtscope_model::{
    drift::{DriftRecord, FORMAT, LoopActivation, Periodic},
    plan::Sleep,
    schedule::Placement,
    time::Nanos,
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    sched, thread as own,
    tree::Tree,
};

use self::beat::Beat;
pub use self::outside::read_trace;
use crate::{
    signals::Interrupt,
    trace::TraceError,
    watchdog::{UNATTENDED, Watchdog},
};

/// The most activations of a recording: 24 bytes each.
pub const ACTIVATIONS_MAX: u64 = 4_000_000;

/// The longest duration whose activations of a period fit a recording.
#[must_use]
pub const fn longest(period_ns: u64) -> Nanos {
    Nanos(period_ns.saturating_mul(ACTIVATIONS_MAX))
}

/// Work from here on may last as long as what tells that a thread runs away.
const LONG_WORK_NS: u64 = 500_000_000;

/// From the thread's placing to the begin of the recording.
const LEAD_NS: u64 = 20_000_000;

/// Time between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// What is to be measured.
#[derive(Debug)]
pub enum PeriodicSource {
    /// Loops of our own.
    Loops {
        sleeps: Vec<Sleep>,
        /// Whether all run at once, from the same instant on, or one after the other.
        together: bool,
        period_ns: u64,
        /// Computing in each period, as CPU time.
        work_ns: u64,
        /// Where and how they run.
        placement: Placement,
    },
    /// A program, watched from outside.
    Program {
        command: Vec<String>,
        /// The threads to judge, by name or number; none is the one that sleeps most often.
        threads: Vec<String>,
        /// The period that it is meant to have, if that is known.
        period_ns: Option<u64>,
    },
}

/// What a measurement needs to know.
#[derive(Debug)]
pub struct DriftOptions {
    pub source: PeriodicSource,
    pub duration: Nanos,
    pub tree: Tree,
    pub interrupt: Interrupt,
    /// Version of rtscope, for the record.
    pub version: String,
    /// Wall clock, RFC 3339, for the record.
    pub wall_clock: String,
}

/// Why there is nothing to judge.
#[derive(Debug, thiserror::Error)]
pub enum DriftError {
    #[error("the loop can't run as {asked}: {cause}")]
    Place { asked: Box<Placement>, cause: rtscope_sys::Error },
    /// More activations than a recording holds.
    #[error(
        "{activations} activations exceed the {ACTIVATIONS_MAX} that a recording holds: measure for {longest} \
            or less, or use a longer period"
    )]
    TooLong {
        /// Due in the asked time.
        activations: u64,
        /// The longest time at this period.
        longest: Nanos,
    },
    #[error("the loop's thread did not run to its end")]
    Thread,
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("can't run {program}: {cause}")]
    Start { program: String, cause: std::io::Error },
    /// It made no activation.
    #[error("{0}")]
    NotPeriodic(String),
    #[error("can't read the kernel's events: {0}")]
    Read(std::io::Error),
}

impl DriftError {
    /// Whether a real-time permission is lacking.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self, DriftError::Place { cause, .. } if cause.is_permission())
    }
}

/// Measures.
///
/// # Errors
///
/// When a loop can't be placed, the program can't be started, the kernel can't be traced, or no
/// activation was seen.
pub fn run(options: &DriftOptions) -> Result<DriftRecord, DriftError> {
    let (threads, together) = match &options.source {
        PeriodicSource::Loops { sleeps, together, period_ns, work_ns, placement } => {
            let spec =
                LoopSpec { period_ns: *period_ns, work_ns: *work_ns, placement: placement.clone() };
            let sets: Vec<&[Sleep]> =
                if *together { vec![sleeps] } else { sleeps.chunks(1).collect() };
            let threads: Vec<Vec<Periodic>> =
                sets.into_iter().map(|set| loops(options, set, &spec)).collect::<Result<_, _>>()?;
            (threads.concat(), *together)
        }
        PeriodicSource::Program { command, threads, period_ns } => {
            (outside::watch(options, command, threads, *period_ns)?, threads.len() > 1)
        }
    };
    Ok(DriftRecord {
        format: FORMAT,
        version: options.version.clone(),
        wall_clock: options.wall_clock.clone(),
        kernel: options.tree.read("proc/sys/kernel/osrelease").unwrap_or_default(),
        duration: options.duration,
        together,
        threads,
    })
}

/// What all loops of ours have in common.
#[derive(Clone, Debug)]
struct LoopSpec {
    period_ns: u64,
    work_ns: u64,
    placement: Placement,
}

/// What a loop leaves: its place, its missed activations and the others.
type Looped = Result<(Placement, u64, Vec<LoopActivation>), DriftError>;

/// Loops of our own that run at once, each in a thread of its own.
fn loops(
    options: &DriftOptions,
    sleeps: &[Sleep],
    spec: &LoopSpec,
) -> Result<Vec<Periodic>, DriftError> {
    let LoopSpec { period_ns, work_ns, .. } = *spec;
    let activations = options.duration.0 / period_ns;
    if activations > ACTIVATIONS_MAX {
        return Err(DriftError::TooLong { activations, longest: longest(period_ns) });
    }
    let stop = Arc::new(AtomicBool::new(false));
    // Work of a known length may be longer than what tells a thread that it runs away.
    let watchdog = match work_ns {
        ..LONG_WORK_NS => Watchdog::over_sleepers(UNATTENDED),
        _ => Watchdog::over_spinners(options.duration),
    };
    // Placed one after the other, released at once.
    let start_ns = SystemClock::MONOTONIC.now_ns() + LEAD_NS * sleeps.len() as u64;
    let looping: Vec<JoinHandle<Looped>> =
        sleeps.iter().map(|sleep| looping(options, *sleep, start_ns, spec, &stop)).collect();
    while looping.iter().any(|one| !one.is_finished()) {
        watchdog.renew();
        if options.interrupt.is_stopped() {
            stop.store(true, Relaxed);
        }
        thread::sleep(LOOK);
    }
    let looped = looping.into_iter().map(|one| one.join().map_err(|_| DriftError::Thread)?);
    let looped = looped.collect::<Result<Vec<_>, DriftError>>()?;
    let are_alike = sleeps.len() > 1 && sleeps.windows(2).all(|pair| pair[0] == pair[1]);
    let named = |(n, sleep): (usize, &Sleep)| {
        let name = match sleep {
            Sleep::Relative => "delay",
            Sleep::Absolute => "delay until",
        };
        if are_alike { format!("{name} #{}", n + 1) } else { name.to_owned() }
    };
    let names = sleeps.iter().enumerate().map(named);
    let threads = names.zip(sleeps).zip(looped).map(|((name, sleep), looped)| {
        let (found, missed, activations) = looped;
        Periodic {
            name,
            sleep: Some(*sleep),
            period_ns: Some(period_ns),
            work_ns: Some(work_ns),
            placement: Some(found),
            program: None,
            missed,
            activations,
        }
    });
    Ok(threads.collect())
}

/// Starts a loop of our own. One that can't be placed stops the others.
fn looping(
    options: &DriftOptions,
    sleep: Sleep,
    start_ns: u64,
    spec: &LoopSpec,
    stop: &Arc<AtomicBool>,
) -> JoinHandle<Looped> {
    // One more may end the recording, and relative sleeps may be shorter by a clock's resolution.
    let room = options.duration.0 / spec.period_ns + 16;
    let mut noted = Vec::with_capacity(room as usize);
    let (stop, spec, duration_ns) = (stop.clone(), spec.clone(), options.duration.0);
    thread::spawn(move || {
        own::block_signals();
        own::set_timer_slack_ns(1);
        let asked = spec.placement;
        let found = match sched::place(&asked) {
            Ok(found) => found,
            Err(cause) => {
                stop.store(true, Relaxed);
                return Err(DriftError::Place { asked: Box::new(asked), cause });
            }
        };
        let beat = Beat { start_ns, period_ns: spec.period_ns, sleep, duration_ns };
        let missed = beat::run(&SystemClock::MONOTONIC, &beat, &stop, &mut noted, || {
            compute(spec.work_ns);
        });
        Ok((found, missed, noted))
    })
}

/// Uses an amount of CPU time.
fn compute(work_ns: u64) {
    if work_ns == 0 {
        return;
    }
    let until_ns = own::usage().cpu_ns + work_ns;
    while own::usage().cpu_ns < until_ns {
        std::hint::spin_loop();
    }
}
