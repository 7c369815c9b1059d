//! `memory`: takes memory from the kernel, touches each page, gives it back.
//!
//! Exercises page faults, the page allocator and its locks, clearing of pages, and the flushing of
//! translations on other CPUs when memory is given back. It can't show anything of swapping: all
//! workers together stay below three quarters of the memory that the machine and a container leave.
//!
//! A unit of work is a page touched. With transparent huge pages one fault brings in many pages.

use rtscope_sys::{
    mapping::{Pages, page_bytes},
    tree::Tree,
};

use super::{
    LoadDescriptor, LoadError, any_options,
    board::Counter,
    leaves_nothing, needs_nothing,
    options::{LoadOption, ValueKind},
    worker::{Job, Processes},
};
use crate::machine::Limits;

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "workers",
        kind: ValueKind::Workers,
        default: "cpus",
        about: "processes that take and give back memory",
    },
    LoadOption {
        name: "size",
        kind: ValueKind::Size { min: 4 << 10, max: 1 << 40 },
        default: "256MiB",
        about: "memory that each worker takes at a time",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "memory",
    about: "takes memory, touches each page, gives it back",
    unit: |_| "pages",
    options: OPTIONS,
    check: any_options,
    is_here: needs_nothing,
    run,
    clean: leaves_nothing,
};

/// Pages touched between two additions to the counter.
const BATCH: usize = 64;

fn run(job: &Job) -> Result<(), LoadError> {
    let workers = job.options.workers(&job.placement.cpus);
    let size = job.options.size("size");
    let asked_bytes = (size as u64).saturating_mul(workers as u64);
    if let Some(available_bytes) = Limits::read(&Tree::default()).memory_left()
        && asked_bytes > available_bytes / 4 * 3
    {
        return Err(LoadError::Memory { asked_bytes, available_bytes });
    }
    let mut crew = Processes::new(job)?;
    for _ in 0..workers {
        crew.add(&job.placement, |counter| {
            loop {
                touch(&mut Pages::map(size)?, counter);
            }
        })?;
    }
    crew.work()
}

fn touch(pages: &mut Pages, counter: Counter<'_>) {
    let page_bytes = page_bytes();
    for batch in pages.as_mut_slice().chunks_mut(page_bytes * BATCH) {
        let touched = batch.chunks_mut(page_bytes).map(|page| page[0] = 1).count();
        counter.add(touched as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::board::Board;

    #[test]
    fn every_page_is_touched_and_counted() {
        let board = Board::new().expect("memory");
        let mut pages = Pages::map(page_bytes() * BATCH * 2 + 1).expect("memory");
        touch(&mut pages, board.counter(0));
        assert_eq!(board.work(), BATCH as u64 * 2 + 1);
        let slice = pages.as_mut_slice();
        assert!(slice.iter().step_by(page_bytes()).all(|byte| *byte == 1));
    }
}
