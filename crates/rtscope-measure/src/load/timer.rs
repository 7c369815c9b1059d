//! `timer`: many periodic timers, whose expiries wake the workers.
//!
//! Exercises timer interrupts, the queues of high-resolution timers, and wake-ups out of
//! interrupts. It can't show anything of timers that share an expiry: their phases are spread over
//! a period.
//!
//! A unit of work is an expiry that a worker has taken. A timer that expires again before that
//! causes no further interrupt, and none is counted: the rate falls below `timers * hz` when the
//! machine can't follow.

use std::time::Duration;

use rtscope_sys::timer::{PeriodicTimer, TimerWait};

use super::{
    LoadDescriptor, LoadError, any_options,
    board::Counter,
    leaves_nothing, needs_nothing,
    options::{LoadOption, ValueKind},
    worker::{Job, Processes, allow_open_files},
};

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "workers",
        kind: ValueKind::Workers,
        default: "cpus",
        about: "processes that share the timers, each on one of the load's CPUs in turn",
    },
    LoadOption {
        name: "timers",
        kind: ValueKind::Number { min: 1, max: 100_000 },
        default: "1000",
        about: "timers in all",
    },
    LoadOption {
        name: "hz",
        kind: ValueKind::Number { min: 1, max: 100_000 },
        default: "20",
        about: "expiries of each timer in a second",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "timer",
    about: "lets many periodic timers expire",
    unit: |_| "expiries",
    options: OPTIONS,
    check: any_options,
    is_here: needs_nothing,
    run,
    clean: leaves_nothing,
};

fn run(job: &Job) -> Result<(), LoadError> {
    let options = &job.options;
    let timers = options.number("timers");
    let interval_ns = 1_000_000_000 / options.number("hz");
    let workers = options.workers(&job.placement.cpus);
    allow_open_files(timers.div_ceil(workers as u64))?;
    let mut crew = Processes::new(job)?;
    for worker in 0..workers {
        crew.add(&job.pinned(worker), |counter| {
            let share = (worker as u64..timers).step_by(workers);
            take_expiries(share.map(|timer| interval_ns * timer / timers), interval_ns, counter)
        })?;
    }
    crew.work()
}

/// Starts a timer for each first expiry, and takes what expires.
fn take_expiries(
    firsts_ns: impl Iterator<Item = u64>,
    interval_ns: u64,
    counter: Counter<'_>,
) -> Result<(), LoadError> {
    let wait = TimerWait::new()?;
    let mut timers = Vec::new();
    for first_ns in firsts_ns {
        let (first, interval) = (Duration::from_nanos(first_ns), Duration::from_nanos(interval_ns));
        let timer = PeriodicTimer::start(first, interval)?;
        wait.add(&timer, timers.len())?;
        timers.push(timer);
    }
    loop {
        let mut taken = 0;
        wait.wait(|name| taken += u64::from(timers[name].take()));
        counter.add(taken);
    }
}
