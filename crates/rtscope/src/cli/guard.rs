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

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The process that started this one
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// It runs as it would without rtscope: in real time if rtscope does, and with rtscope's tokens
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
        leave_real_time()?;
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

/// Makes an ordinary program of one that was started in real time: emulators and compilers never sleep, and could lock the
/// machine up.
///
/// # Errors
///
/// The kernel refuses it.
pub(super) fn leave_real_time() -> anyhow::Result<()> {
    let now = sched::placement(sched::SELF)?;
    if now.policy.is_real_time() {
        let nice = sched::nice(sched::SELF)?;
        let ordinary = Placement { policy: Policy::Other, priority: 0, nice, budget: None, ..now };
        sched::set_policy(sched::SELF, &ordinary)?;
    }
    Ok(())
}
