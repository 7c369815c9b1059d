//! `rtscope explain`: why a thread was late.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use rtscope_analyse::report::{explain as report, interruptions as report_of_cpu};
use rtscope_lab::inputs;
use rtscope_measure::{
    explain::{
        self, ExplainLook, ExplainOptions, Keep, OwnThreads, Pauses, interruptions as watch_cpu,
    },
    signals::Interrupt,
};
use rtscope_model::{
    explain::{ExplainRecord, FORMAT},
    interruptions::{self, Interruptions},
    plan::Plan,
    time::Nanos,
};
use rtscope_sys::tree::Tree;

use super::{Refused, check, wall_clock};
use crate::{exit, output::shown, record};

/// Explain why a thread was late: what was in the way
///
/// rtscope watches the threads of a program through the kernel's events. The
/// program needs no change. A latency lasts from the expiry of the thread's timer,
/// or from its wake-up by something else, until the thread is back in its program.
///
/// rtscope cuts each late activation into pieces that add up to its latency. A
/// piece is an interrupt, a softirq, another thread, an idle CPU, kernel code with
/// interrupts off, or time in which something other than Linux had the CPU. The
/// output names the culprits and what helps against them.
///
/// With --cpu, rtscope shows what else runs on a CPU: interrupts, kernel work and
/// threads by name, how often and for how long. It names the threads on other
/// CPUs that sent the interrupts.
///
/// PATH is a folder that rtscope recorded, or a trace that another program
/// recorded. Such a trace is an uncompressed trace.dat of trace-cmd, the output of
/// `trace-cmd report`, or a copy of /sys/kernel/tracing/trace.
///
/// Exit code: 0 something was explained, or a CPU was watched; 3 nothing was late, no thread was woken, or the events
/// of the CPU are not reliable.
///
/// Examples:
///   sudo rtscope explain -- ./motor --period-us 500
///   sudo rtscope explain --pid 1234 --above 100us --duration 1min
///   sudo rtscope explain --pid 1234 --tid 1240 --json
///   sudo rtscope explain --cpu 3 --tid 1240 --duration 10min
///   rtscope explain rtscope-runs/explain-20200101T000000
///   rtscope explain trace.dat --tid 1240
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Trace of trace-cmd or of the kernel to explain, or a recorded folder to show again
    #[arg(value_name = "PATH", conflicts_with_all = ["words", "from", "pid", "cpu"])]
    path: Option<PathBuf>,
    /// Watch a running process and those that it starts, and leave them running
    #[arg(long, conflicts_with_all = ["words", "from"])]
    pid: Option<u32>,
    /// Watch what runs on this CPU
    #[arg(long, value_name = "N", conflicts_with_all = ["pid", "words", "from", "settle", "above", "worst"])]
    cpu: Option<u32>,
    /// Watch only this thread of the process or of the trace; with --cpu, the thread that the CPU is reserved for
    #[arg(long, conflicts_with = "words")]
    tid: Option<u32>,
    #[command(flatten)]
    lateness: Lateness,
    /// Watch for this long, 200ms to 1d
    #[arg(short, long, value_name = "TIME", default_value = "10s")]
    duration: Nanos,
    /// Time to wait after the start of a command before watching: up to 10min
    #[arg(long, value_name = "TIME", default_value = "1s")]
    settle: Nanos,
    /// Folder or trace to explain again: the same as PATH
    #[arg(long, value_name = "PATH", conflicts_with = "words")]
    pub(super) from: Option<PathBuf>,
    /// Folder for the record and the page [default: rtscope-runs/explain-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Command to start and watch, with its arguments
    #[arg(last = true, required_unless_present_any = ["pid", "cpu", "from", "path"], value_name = "COMMAND")]
    words: Vec<OsString>,
}

impl Args {
    /// What was recorded before.
    fn file(&self) -> Option<&Path> {
        self.path.as_deref().or(self.from.as_deref())
    }

    /// Whether the user chose which activations are late, or whose.
    fn chooses_late(&self) -> bool {
        self.tid.is_some() || self.lateness.above.is_some() || self.lateness.worst != KEPT
    }
}

/// The record's file in its folder.
pub(super) const RECORD: &str = "explain.json";

/// The kernel's pages around what was late, beside the record.
pub(super) const PAGES: &str = "trace.dat";

/// The record's file in the folder of a CPU.
const OF_CPU: &str = "interruptions.json";

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match (args.cpu, args.file()) {
        (Some(cpu), _) => interruptions_of(args, cpu),
        (None, Some(folder)) if folder.join(OF_CPU).is_file() => {
            let format = interruptions::FORMAT;
            show_interruptions(args, folder, &record::read_document_in(folder, OF_CPU, format)?)
        }
        (None, Some(folder)) if folder.is_dir() && args.chooses_late() => {
            let text = "--above, --worst and --tid choose what is recorded, and can't change a recorded folder: leave \
                        them out";
            Err(Refused(text.to_owned()).into())
        }
        _ => late_threads(args),
    }
}

/// Watches a CPU.
fn interruptions_of(args: &Args, cpu: u32) -> anyhow::Result<ExitCode> {
    let duration = looks_for(args)?;
    let wall_clock = wall_clock();
    let folder = record::new_folder(args.out.as_deref(), "explain", &wall_clock, OF_CPU)?;
    let interrupt = Interrupt::install_patient()?;
    let options = watch_cpu::CpuWatchOptions {
        cpu,
        owner: args.tid,
        duration,
        tree: Tree::default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall_clock,
    };
    let record = watch_cpu::watch(&options, &interrupt)?;
    write(&folder, OF_CPU, &record)?;
    show_interruptions(args, &folder, &record)
}

fn show_interruptions(
    args: &Args,
    folder: &Path,
    record: &Interruptions,
) -> anyhow::Result<ExitCode> {
    let page = report_of_cpu::page(record);
    match args.json {
        true => super::tell_json(folder, &page, &report_of_cpu::document(record))?,
        false => super::tell_text(folder, &page, &report_of_cpu::table(record))?,
    }
    Ok(ExitCode::from(if report_of_cpu::is_reliable(record) {
        exit::PASS
    } else {
        exit::INCONCLUSIVE
    }))
}

/// How long to watch.
fn looks_for(args: &Args) -> Result<Duration, Refused> {
    let (shortest, longest) = (Nanos::from_ms(200), Nanos::from_secs(86_400));
    match (shortest..=longest).contains(&args.duration) {
        true => Ok(Duration::from_nanos(args.duration.0)),
        false => Err(Refused(format!("--duration {}: must be from 200ms to 1d", args.duration))),
    }
}

fn late_threads(args: &Args) -> anyhow::Result<ExitCode> {
    let (record, folder) = match args.file() {
        Some(folder) if folder.is_dir() => (read_record(folder)?, folder.to_owned()),
        Some(file) => traced(args, file)?,
        None => measured(args)?,
    };
    let page = report::page(&record);
    match args.json {
        true => super::tell_json(&folder, &page, &report::document(&record))?,
        false => super::tell_text(&folder, &page, &report::table(&record))?,
    }
    Ok(ExitCode::from(if record.spikes.is_empty() { exit::INCONCLUSIVE } else { exit::PASS }))
}

/// Explains a trace in a file.
fn traced(args: &Args, file: &Path) -> anyhow::Result<(ExplainRecord, PathBuf)> {
    // A trace may be long, but it ends.
    let unreadable = || format!("can't read {}", file.display());
    anyhow::ensure!(
        std::fs::metadata(file).with_context(unreadable)?.is_file(),
        "{} is not a regular file",
        file.display()
    );
    let bytes = std::fs::read(file).with_context(unreadable)?;
    let wall_clock = wall_clock();
    let folder = record::new_folder(args.out.as_deref(), "explain", &wall_clock, RECORD)?;
    let keep = args.lateness.keep(wall_clock);
    let record =
        explain::read_trace(&bytes, args.tid, keep).with_context(|| file.display().to_string())?;
    write(&folder, RECORD, &record)?;
    Ok((record, folder))
}

fn measured(args: &Args) -> anyhow::Result<(ExplainRecord, PathBuf)> {
    looks_for(args)?;
    let look = check::watched(args.pid, &args.words, (args.settle, args.duration), args.json)?;
    let wall_clock = wall_clock();
    let folder = record::new_folder(args.out.as_deref(), "explain", &wall_clock, RECORD)?;
    let interrupt = Interrupt::install_patient()?;
    let options = ExplainOptions { look, thread: args.tid, keep: args.lateness.keep(wall_clock) };
    let look = explain::run(&options, &interrupt)?;
    write_look(&folder, &look)?;
    Ok((look.record, folder))
}

/// Reads the record of a folder, or the file itself.
pub(super) fn read_record(path: &Path) -> anyhow::Result<ExplainRecord> {
    if path.join(inputs::INPUTS).is_file() {
        let text = format!(
            "{}: this is the record of a guest: use rtscope lab explain {0}",
            path.display()
        );
        return Err(Refused(text).into());
    }
    match path.is_dir() {
        true if record::is_one(path) && !path.join(RECORD).exists() => {
            let text = format!(
                "{}: nothing in this record says why a wake-up was late, because it was made without --explain or the \
                 kernel's events could not be recorded: measure again, for example with rtscope run --explain --above \
                 100us",
                path.display()
            );
            Err(Refused(text).into())
        }
        true => record::read_document_in(path, RECORD, FORMAT),
        false => record::read_document(path, FORMAT),
    }
}

/// Writes a look's record into its folder, and the kernel's pages.
fn write_look(folder: &Path, look: &ExplainLook) -> anyhow::Result<()> {
    write(folder, RECORD, &look.record)?;
    let Some(pages) = &look.trace_dat else { return Ok(()) };
    record::write_in(folder, PAGES, pages).map(drop)
}

/// Writes a record into its folder.
fn write(folder: &Path, file: &str, record: &impl serde::Serialize) -> anyhow::Result<()> {
    record::write_in(folder, file, serde_json::to_string(record)? + "\n").map(drop)
}

/// Late activations that are kept unless `--worst` says another number.
const KEPT: u32 = 20;

/// What is late, and how much of it is kept.
#[derive(Debug, clap::Args)]
pub(super) struct Lateness {
    /// Count activations with at least this latency as late [default: keep the worst]
    #[arg(long, value_name = "TIME")]
    above: Option<Nanos>,
    /// Number of the worst late activations to keep, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = KEPT, value_parser = clap::value_parser!(u32).range(1..=1000))]
    worst: u32,
}

impl Lateness {
    fn keep(&self, wall_clock: String) -> Keep {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Keep { above: self.above, kept_max: self.worst, version, wall_clock }
    }
}

/// Whether `run` explains what its sampling threads were late by.
#[derive(Debug, clap::Args)]
pub(super) struct OfRun {
    /// Explain the worst wake-ups afterwards, and write explain.html beside the report; recording delays each wake-up
    /// by a few us
    #[arg(long)]
    explain: bool,
    /// Count wake-ups with at least this latency as late, for --explain [default: keep the worst]
    #[arg(long, value_name = "TIME", requires = "explain")]
    above: Option<Nanos>,
}

impl OfRun {
    /// Starts to watch the sampling threads, if that was asked for. A kernel that can't be traced is told of, and the
    /// run goes on.
    pub(super) fn watch(&self, plan: &Plan, wall_clock: &str) -> Option<OwnThreads> {
        if !self.explain {
            return None;
        }
        let phases = u32::try_from(plan.phases.len().max(1)).unwrap_or(u32::MAX);
        let lateness = Lateness { above: self.above, worst: (OF_RUN / phases).max(OF_PHASE) };
        let keep = lateness.keep(wall_clock.to_owned());
        let watched = OwnThreads::watch(&Tree::default(), keep, Pauses::Alternate);
        watched.map_err(|why| note!("rtscope: late wake-ups can't be explained: {why}")).ok()
    }
}

/// Late wake-ups that a run keeps, and at least of each phase.
const OF_RUN: u32 = 20;
const OF_PHASE: u32 = 3;

/// Ends the look of a run, writes what it saw beside the run's record, and returns it as text and the table.
pub(super) fn finish_run(watched: OwnThreads, folder: &Path) -> anyhow::Result<[String; 2]> {
    let look = watched.finish()?;
    write_look(folder, &look)?;
    let record = look.record;
    let page = record::write_in(folder, super::EXPLAINED, report::page(&record))?;
    let table = format!("{}Explained: {}\n", report::table(&record), shown(&page));
    Ok([serde_json::to_string(&record)?, table])
}
