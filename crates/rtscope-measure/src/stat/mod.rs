//! Counting what programs do: by the kernel and the processor, or on a simulated processor.

pub mod branch;
mod simulated;

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus, Stdio},
    time::Instant,
};

use rtscope_model::stat::{
    Count, Counted, CountedBy, CountedProgram, CountedRun, CounterRecord, FORMAT,
};
use rtscope_sys::{
    perf_event::{Counter, CounterKind, is_absent},
    process,
    tree::Tree,
};

pub use self::simulated::Simulator;

/// What is to be counted.
#[derive(Debug)]
pub struct StatOptions {
    /// Names and command lines; their runs take turns.
    pub programs: Vec<(String, Vec<String>)>,
    /// Runs of each.
    pub repeat: u32,
    /// Where to run them; none is this machine's processor.
    pub simulator: Option<Simulator>,
    /// Programs write to our standard error, because our standard output is a document.
    pub output_to_stderr: bool,
    pub tree: Tree,
    /// Version of rtscope, for the record.
    pub version: String,
    /// Wall clock, RFC 3339, for the record.
    pub wall_clock: String,
}

/// Why nothing was counted.
#[derive(Debug, thiserror::Error)]
pub enum StatError {
    #[error("can't run {program}: {cause}")]
    Start { program: String, cause: io::Error },
    #[error("{0}")]
    Simulator(String),
}

/// Runs the programs in turn, and counts.
///
/// # Errors
///
/// When a program or the simulator can't be run. A program that fails is recorded as failed.
pub fn run(options: &StatOptions) -> Result<CounterRecord, StatError> {
    let mut programs: Vec<CountedProgram> = options
        .programs
        .iter()
        .map(|(name, command)| CountedProgram {
            name: name.clone(),
            command: command.clone(),
            runs: Vec::new(),
        })
        .collect();
    // In turn, so that what changes on the machine meanwhile meets both.
    for _ in 0..options.repeat {
        for program in &mut programs {
            let counted = match &options.simulator {
                Some(simulator) => simulator.run(&program.command, options.output_to_stderr)?,
                None => counted(&program.command, options.output_to_stderr)?,
            };
            program.runs.push(counted);
        }
    }
    Ok(CounterRecord {
        format: FORMAT,
        version: options.version.clone(),
        wall_clock: options.wall_clock.clone(),
        kernel: options.tree.read("proc/sys/kernel/osrelease").unwrap_or_default(),
        by: options
            .simulator
            .as_ref()
            .map_or(CountedBy::Kernel, |simulator| CountedBy::Simulator(simulator.version.clone())),
        programs,
    })
}

const fn kind(counted: Counted) -> CounterKind {
    match counted {
        Counted::TaskClockNs => CounterKind::TASK_CLOCK,
        Counted::ContextSwitches => CounterKind::CONTEXT_SWITCHES,
        Counted::Migrations => CounterKind::MIGRATIONS,
        Counted::PageFaults => CounterKind::PAGE_FAULTS,
        Counted::Cycles => CounterKind::CYCLES,
        Counted::Instructions => CounterKind::INSTRUCTIONS,
        Counted::Branches => CounterKind::BRANCHES,
        Counted::BranchMisses => CounterKind::BRANCH_MISSES,
    }
}

/// One run on this machine's processor.
fn counted(command: &[String], output_to_stderr: bool) -> Result<CountedRun, StatError> {
    let mut counters: Vec<Result<Counter, String>> = Counted::ALL
        .into_iter()
        .map(|counted| Counter::of_children(kind(counted)).map_err(|error| reason(&error)))
        .collect();
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    let (elapsed_ns, status) = run_to_end(&mut program, &command[0], output_to_stderr)?;
    let read = |counter: &mut Result<Counter, String>| match counter {
        Ok(counter) => match counter.read() {
            Ok(reading) => Count::Value {
                counted: reading.value,
                enabled_ns: reading.enabled_ns,
                running_ns: reading.running_ns,
                user_only: counter.user_only,
            },
            Err(error) => Count::Absent(error.to_string()),
        },
        Err(why) => Count::Absent(why.clone()),
    };
    let counts = counters.iter_mut().map(read).collect();
    Ok(CountedRun { elapsed_ns, failed: failure(status), counts })
}

/// Why a counter can't be had, in words that say what to do.
fn reason(error: &rtscope_sys::Error) -> String {
    if is_absent(error) {
        "not supported: neither this processor nor its virtualisation offers it".to_owned()
    } else if error.is_permission() {
        "not permitted: run as root, or lower kernel.perf_event_paranoid to 2 or less".to_owned()
    } else {
        error.to_string()
    }
}

/// Runs a program to its end; how long that took, and how it ended.
fn run_to_end(
    program: &mut Command,
    name: &str,
    output_to_stderr: bool,
) -> Result<(u64, ExitStatus), StatError> {
    if output_to_stderr {
        program.stdout(Stdio::from(io::stderr()));
    }
    process::bind_to_us(program, false);
    let start = Instant::now();
    let status =
        program.status().map_err(|cause| StatError::Start { program: name.to_owned(), cause })?;
    Ok((start.elapsed().as_nanos() as u64, status))
}

fn failure(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (_, Some(number)) => Some(format!("signal {number}")),
        _ => Some(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str], repeat: u32) -> StatOptions {
        StatOptions {
            programs: vec![("x".to_owned(), words.iter().map(ToString::to_string).collect())],
            repeat,
            simulator: None,
            output_to_stderr: true,
            tree: Tree::default(),
            version: "0".to_owned(),
            wall_clock: String::new(),
        }
    }

    #[test]
    fn every_run_has_every_counter_or_a_reason() {
        let record = run(&options(&["sh", "-c", "exit 3"], 2)).expect("it runs");
        let runs = &record.programs[0].runs;
        assert_eq!(runs.len(), 2);
        for one in runs {
            assert_eq!(one.failed.as_deref(), Some("exit code 3"));
            assert_eq!(one.counts.len(), Counted::ALL.len());
            for count in &one.counts {
                // A missing counter is never a 0.
                match count {
                    Count::Absent(why) => assert!(why.contains(' '), "{why}"),
                    Count::Value { enabled_ns, .. } => assert!(*enabled_ns > 0, "{count:?}"),
                }
            }
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(&options(&["./no-such-program"], 1)).expect_err("none").to_string();
        assert!(error.contains("./no-such-program"), "{error}");
    }
}
