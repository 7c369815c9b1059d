//! rtscope: does this Linux system wake a real-time thread in time, under load?
//!
//! Command line, terminal and exit codes only: what is measured is in `rtscope-measure` and
//! `rtscope-sampler`, what it means is in `rtscope-analyse`.
//!
//! ```sh
//! rtscope run --require 'max < 200us'   # measure at rest and under load: exit code 0 pass, 2 fail, 3 inconclusive
//! rtscope doctor                        # which settings of this machine delay real-time threads
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod output;

mod cli;
mod dropin;
mod exit;
mod failure;
mod history;
mod input;
mod lab_folder;
mod leftovers;
mod plans;
mod png;
mod record;
mod screen;
mod skeletons;
mod tui;

use std::process::ExitCode;

use rtscope_measure::guest_init;

fn main() -> ExitCode {
    rtscope_sys::memory::single_arena();
    if guest_init::is_guest() {
        guest_init::main(env!("CARGO_PKG_VERSION"), record::wall_clock);
        return ExitCode::from(exit::ERROR);
    }
    leftovers::restore_on_panic();
    dropin::main().unwrap_or_else(cli::main)
}
