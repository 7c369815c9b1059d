//! `rtscope guard`: becomes another program that dies with a process of ours, also on SIGKILL.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use anyhow::Context;
use rtscope_fleet::pull_lab::token::remove_tokens;
use rtscope_measure::check::NOT_RUN;
use rtscope_model::schedule::{Placement, Policy};
use rtscope_sys::{fork::signal, process, sched};

use crate::exit;

/// How much the program gives way: an emulator must not starve what else the machine does.
const NICE: i8 = 10;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The process that started this one
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// It gives no way to other programs: it runs as it would without rtscope
    #[arg(long)]
    as_is: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    words: Vec<OsString>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    // A group of its own: a Ctrl-C is for rtscope, which ends the program in order.
    process::new_group();
    if !process::die_with_parent(args.parent, signal::KILL) {
        return Ok(ExitCode::from(exit::ERROR));
    }
    if !args.as_is {
        give_way()?;
    }
    let (program, words) = args.words.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(words);
    if !args.as_is {
        // A guest that breaks out of its emulator finds no token beside it. It can still read those of rtscope itself, which
        // is why files are better.
        remove_tokens(&mut command);
    }
    let refused = command.exec();
    note!("rtscope: can't run {}: {refused}", program.to_string_lossy());
    Ok(ExitCode::from(NOT_RUN as u8))
}

/// Makes this process nice. One that gives more way already stays as it is.
fn give_way() -> anyhow::Result<()> {
    let now = sched::placement(sched::SELF)?;
    if now.policy != Policy::Idle {
        let nice = now.nice.max(NICE);
        let polite = Placement { policy: Policy::Other, priority: 0, nice, budget: None, ..now };
        // If that is refused, it runs all the same.
        let _ = sched::set_policy(sched::SELF, &polite);
    }
    Ok(())
}
