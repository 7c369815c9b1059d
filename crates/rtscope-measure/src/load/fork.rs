//! `fork`: starts processes that end at once.
//!
//! Exercises the copying of address spaces, process and page tables and their locks, wake-ups of
//! new tasks, and exits; with a `size`, also the copying of pages that a child writes to, and their
//! freeing all at once when it ends. It can't show anything of loading programs: nothing is executed.
//!
//! A unit of work is one process, from its fork until its end was waited for.

use rtscope_sys::{fork::fork_and_wait, mapping::Pages};

use super::{
    LoadDescriptor, LoadError, any_options, leaves_nothing, needs_nothing,
    options::{LoadOption, ValueKind},
    worker::{Job, Processes},
};

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "workers",
        kind: ValueKind::Workers,
        default: "cpus",
        about: "processes that fork and wait, one child at a time",
    },
    LoadOption {
        name: "size",
        kind: ValueKind::Size { min: 0, max: 1 << 30 },
        default: "0B",
        about: "memory that each child writes to before it ends, as a real program would",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "fork",
    about: "starts processes that end at once, and waits for each",
    unit: |_| "forks",
    options: OPTIONS,
    check: any_options,
    is_here: needs_nothing,
    run,
    clean: leaves_nothing,
};

fn run(job: &Job) -> Result<(), LoadError> {
    let size = job.options.size("size");
    let mut crew = Processes::new(job)?;
    for _ in 0..job.options.workers(&job.placement.cpus) {
        crew.add(&job.placement, |counter| {
            // Pages that exist: a child gets copies of them.
            let mut memory = Pages::map(size.max(1))?;
            memory.as_mut_slice().fill(1);
            loop {
                fork_and_wait(&mut memory.as_mut_slice()[..size])?;
                counter.add(1);
            }
        })?;
    }
    crew.work()
}
