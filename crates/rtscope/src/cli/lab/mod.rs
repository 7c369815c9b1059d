//! `rtscope lab`: the same plan in many kernels.

pub(super) mod batch;
mod bisect;
mod cache;
mod collect;
mod compare;
mod demo;
mod drift;
mod explain;
mod guest_options;
mod matrix;
mod output;
mod replay;
mod run;
mod sched;
mod stat;
mod teller;
mod throughput;
mod tune;
mod typed;
mod verb;
mod wave;
mod work_order;
mod worst;

use std::process::ExitCode;

use clap::Subcommand;
use rtscope_lab::machine::Machine;

pub(super) use self::guest_options::{cache_at, guard, known_cache};
use super::{ending, print};
use crate::{exit, failure::lab_failure};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    Run(Box<run::Args>),
    Matrix(Box<matrix::Args>),
    Sched(Box<sched::Args>),
    /// Generate square waves in kernels, or find the highest frequency
    ///
    /// Examples:
    ///   rtscope lab wave generate --freq 1kHz -k debian-stock -k debian-rt
    ///   rtscope lab wave sweep --subject c -k debian-rt --load cpu
    #[command(subcommand, verbatim_doc_comment)]
    Wave(Box<wave::Wave>),
    Drift(Box<drift::Args>),
    Stat(Box<stat::Args>),
    Throughput(Box<throughput::Args>),
    Bisect(Box<bisect::Args>),
    Demo(demo::Args),
    Replay(replay::Args),
    Explain(explain::Args),
    Compare(compare::Args),
    Worst(Box<worst::Args>),
    Tune(Box<tune::Args>),
    /// List or delete what the lab keeps: kernels, images, records
    ///
    /// Examples:
    ///   rtscope lab cache list
    ///   rtscope lab cache prune
    #[command(subcommand, verbatim_doc_comment)]
    Cache(cache::Verb),
    /// List the machines that a guest can run on
    ///
    /// Examples:
    ///   rtscope lab machines
    #[command(verbatim_doc_comment)]
    Machines,
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    let outcome = match verb {
        Verb::Run(args) => run::main(args),
        Verb::Matrix(args) => matrix::main(args),
        Verb::Sched(args) => sched::main(args),
        Verb::Wave(verb) => wave::main(verb),
        Verb::Drift(args) => drift::main(args),
        Verb::Stat(args) => stat::main(args),
        Verb::Throughput(args) => throughput::main(args),
        Verb::Bisect(args) => bisect::main(args),
        Verb::Demo(args) => demo::main(args),
        Verb::Replay(args) => replay::main(args),
        Verb::Explain(args) => explain::main(args),
        Verb::Compare(args) => compare::main(args),
        Verb::Worst(args) => worst::main(args),
        Verb::Tune(args) => tune::main(args),
        Verb::Cache(verb) => cache::main(verb),
        Verb::Machines => machines(),
    };
    // Guests that were ended leave a failure, or a verdict that is none.
    if let Some(code) = ending::of_interrupted()
        && !matches!(&outcome, Ok(code) if *code == ExitCode::from(exit::PASS))
    {
        if let Err(error) = outcome {
            note!("rtscope: {}", super::error_text(&error));
        }
        return Ok(ExitCode::from(code));
    }
    outcome.map_err(lab_failure)
}

fn machines() -> anyhow::Result<ExitCode> {
    let shipped = Machine::shipped();
    let width = shipped.iter().map(|machine| machine.name.len()).max().unwrap_or(0);
    for machine in shipped {
        print(&format!("{:width$}  {}\n", machine.name, machine.about))?;
    }
    Ok(ExitCode::from(exit::PASS))
}
