//! `rtscope wave-subject`: becomes a subject that dies with the sweep, and after a time in any case.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use anyhow::Context;
use rtscope_model::{cpu::CpuSet, time::Nanos};
use rtscope_sys::{
    fork::{self, signal},
    process, sched,
};

use super::PRIORITY;
use crate::{
    cli::place::{PolicyChoice, Scheduling},
    exit,
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The process that started this one
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// The kernel ends it after this time
    #[arg(long, value_name = "TIME")]
    limit: Nanos,
    /// Its CPUs
    #[arg(long, value_name = "SET")]
    cpus: CpuSet,
    /// Its policy
    #[arg(long, value_name = "POLICY")]
    policy: PolicyChoice,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    words: Vec<OsString>,
}

pub(in crate::cli) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    process::new_group();
    // A thread that observes waves blocks nearly every signal, and this process inherits that.
    fork::default_signals();
    if !process::die_with_parent(args.parent, signal::KILL) {
        return Ok(ExitCode::from(exit::ERROR));
    }
    // The timer and the limit outlive the exec.
    let limit = std::time::Duration::from_nanos(args.limit.0);
    process::end_after(limit);
    process::limit_real_time(limit);
    let scheduling = Scheduling::new(args.policy, PRIORITY)?;
    sched::place_exactly(&scheduling.on(args.cpus.clone()))?;
    let (program, words) = args.words.split_first().context("no program")?;
    let refused = Command::new(program).args(words).exec();
    Err(refused).with_context(|| format!("can't run {}", program.to_string_lossy()))
}
