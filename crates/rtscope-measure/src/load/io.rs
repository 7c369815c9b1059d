//! `io`: has all files written out, over and over.
//!
//! Exercises file systems, block layer and the disk's driver, as far as there is something to
//! write: other loads and programs provide that, as `disk` does. It can't show anything where
//! nothing is written: then each call returns almost at once.
//!
//! A unit of work is one `sync()`.

use rtscope_sys::mapping::sync_all_files;

use super::{
    LoadDescriptor, LoadError, any_options, leaves_nothing, needs_nothing,
    options::{LoadOption, ValueKind},
    worker::{Job, Processes},
};

const OPTIONS: &[LoadOption] = &[LoadOption {
    name: "workers",
    kind: ValueKind::Workers,
    default: "1",
    about: "processes that call sync",
}];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "io",
    about: "has all files written to disk, over and over (sync)",
    unit: |_| "syncs",
    options: OPTIONS,
    check: any_options,
    is_here: needs_nothing,
    run,
    clean: leaves_nothing,
};

fn run(job: &Job) -> Result<(), LoadError> {
    let mut crew = Processes::new(job)?;
    for _ in 0..job.options.workers(&job.placement.cpus) {
        crew.add(&job.placement, |counter| {
            loop {
                sync_all_files();
                counter.add(1);
            }
        })?;
    }
    crew.work()
}
