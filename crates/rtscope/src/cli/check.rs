//! `rtscope check`: a program's periodic behaviour from outside, and the mistakes that it shows.

use std::{ffi::OsString, process::ExitCode, time::Duration};

use rtscope_analyse::{
    report::check as report,
    verdict::check::{Expectation, judge},
};
use rtscope_measure::{
    check::{self, CheckedProgram},
    signals::Interrupt,
};
use rtscope_model::time::Nanos;
use rtscope_sys::tree::Tree;

use super::{Refused, place::PolicyChoice, print, this_program};
use crate::{exit, output::print_folded};

/// Watch a program's periodic threads and name their mistakes
///
/// rtscope shows period, jitter, latency and CPU time of each period, from the kernel's scheduling and timer events.
/// It reports page faults in the loop, memory that is not locked, and an unexpected policy or priority. It
/// also reports drift (relative sleeps), missed periods, and mutexes without priority inheritance. At the end it
/// lists what the events can't show.
///
/// rtscope starts the command, waits for --settle, watches it for --duration, and ends it with SIGINT.
/// Exit code: 0 no findings, 2 findings, 3 no periodic thread.
///
/// Examples:
///   rtscope check -- ./motor --period-us 500
///   rtscope check --expect fifo:80 --period 500us -- ./motor --period-us 500
///   rtscope check --expect fifo:80 -- chrt -f 80 taskset -c 1 ./motor
///   rtscope check --pid 1234 --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Expected policy of the real-time threads, optionally with a priority: fifo:80, rr, other
    #[arg(long, value_name = "POLICY[:PRIORITY]")]
    expect: Option<PolicyChoice>,
    /// Expected period
    #[arg(long, value_name = "TIME")]
    period: Option<Nanos>,
    /// Watch for this long, 200ms to 10min
    #[arg(short, long, value_name = "TIME", default_value = "5s")]
    duration: Nanos,
    /// Time to wait after the start of a command before watching: up to 10min
    #[arg(long, value_name = "TIME", default_value = "1s")]
    settle: Nanos,
    /// Watch a running process instead, and leave it running
    #[arg(long, conflicts_with = "words")]
    pid: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// The command, after --
    #[arg(last = true, required_unless_present = "pid", value_name = "COMMAND")]
    words: Vec<OsString>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let longest = Nanos::from_secs(600);
    if !(Nanos::from_ms(200)..=longest).contains(&args.duration) {
        return Err(
            Refused(format!("--duration {}: must be from 200ms to 10min", args.duration)).into()
        );
    }
    let interrupt = Interrupt::install_patient()?;
    let options = watched(args.pid, &args.words, (args.settle, args.duration), args.json)?;
    let observation = check::run(&options, &interrupt)?;
    let expected = Expectation {
        policy: args.expect.map(|choice| (choice.policy, choice.priority)),
        period_ns: args.period.map(|period| period.0),
    };
    let checked = judge(&observation, &expected);
    match args.json {
        true => print(&(serde_json::to_string_pretty(&report::document(&checked))? + "\n"))?,
        false => print_folded(&report::table(&checked))?,
    }
    let is_periodic = checked.threads.iter().any(|seen| seen.rhythm.is_some());
    Ok(ExitCode::from(match (checked.findings.is_empty(), is_periodic) {
        (false, _) => exit::FAIL,
        (true, true) => exit::PASS,
        (true, false) => exit::INCONCLUSIVE,
    }))
}

/// A program that is watched from outside: a process, or a command that ends with this one. A command settles first.
///
/// # Errors
///
/// Nobody waits so long for a program to settle.
pub(super) fn watched(
    pid: Option<u32>,
    words: &[OsString],
    (settle, duration): (Nanos, Nanos),
    is_json: bool,
) -> Result<check::CheckOptions, Refused> {
    if settle > Nanos::from_secs(600) {
        return Err(Refused(format!("--settle {settle}: must be at most 10min")));
    }
    let parent = std::process::id().to_string();
    let guard = ["guard", "--as-is", "--parent", &parent, "--"].map(OsString::from);
    let (program, settle) = match pid {
        Some(pid) => (CheckedProgram::Process(pid), Duration::ZERO),
        None => (CheckedProgram::Command(words.to_vec()), Duration::from_nanos(settle.0)),
    };
    Ok(check::CheckOptions {
        program,
        settle,
        duration: Duration::from_nanos(duration.0),
        tree: Tree::default(),
        guard: std::iter::once(this_program().into_os_string()).chain(guard).collect(),
        // What the program prints must not stand in the document.
        quiet: is_json,
    })
}
