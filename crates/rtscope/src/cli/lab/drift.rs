//! `rtscope lab drift`: `delay` against `delay until` in kernels.

use std::{path::Path, process::ExitCode};

use rtscope_analyse::report::{drift as report, lab::figures, published::Whose};
use rtscope_lab::lab::GuestVerbs;

use super::{
    typed::Typed,
    verb::{self, Guests, Measured, Verb},
};
use crate::cli::drift::{self, Loops};

/// Measure drift of relative and absolute sleeps in kernels
///
/// Each kernel boots in an emulator and runs `rtscope drift` with its two loops. The page and the table
/// compare the drift and the latency of the loops. In virtual time (the default)
/// only the work and the kernel's path from the timer to the thread make
/// relative sleeps drift.
///
/// Examples:
///   rtscope lab drift --kernel debian-stock --kernel debian-rt
///   rtscope lab drift -k debian-rt --period 1ms --work 100us --duration 5s
///   rtscope lab drift -k tiny-6.12-rt --sleep relative --policy other --seeds 5
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    guests: Guests,
    #[command(flatten)]
    loops: Typed<Loops>,
}

/// What virtual time can't say.
const LIMITS: &[&str] = &[
    "The guest's clock is exact: a real clock's own error, tens of us in a second, would add to the drift.",
    "Every instruction takes the same time, and a sleeping CPU wakes at once: on hardware caches and idle states make \
     both loops later. --wall uses this computer's clock instead.",
];

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let loops = &args.loops.options;
    loops.check()?;
    let read = |guest: &Path, _: Whose<'_>| {
        let record = drift::read(&guest.join("drift"))?;
        Ok(Measured {
            figures: figures::of_drift(&record),
            ours: Vec::new(),
            document: report::document(&record),
            page: Some(report::page(&record)),
            code: drift::code(&record),
        })
    };
    let verb = Verb {
        name: "drift",
        words: &args.loops.words,
        out: verb::out("drift"),
        length: loops.length(),
        needs: GuestVerbs::default(),
        limits: LIMITS,
        published: Vec::new(),
        read: &read,
    };
    verb::main(&args.guests, verb)
}
