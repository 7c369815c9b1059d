//! `rtscope drift`: periodic threads that sleep for a time, and until an instant; ours, or any program's.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::{number::grouped, report::drift as report};
use rtscope_measure::{
    drift::{self, DriftError, DriftOptions, PeriodicSource},
    signals::Interrupt,
};
use rtscope_model::{
    drift::{DriftRecord, FORMAT},
    plan::Sleep,
    time::Nanos,
};
use rtscope_sys::tree::Tree;

use super::{
    Refused,
    place::{Place, Scheduling},
    wall_clock,
};
use crate::{exit, output::note_lines, record};

/// The period of a loop of ours when none is asked for.
const PERIOD: Nanos = Nanos::from_ms(10);

/// The priority of a loop of ours when none is asked for.
const PRIORITY: u8 = 80;

/// The share of its period that a loop may compute, in percent: the rest is for everything else.
const SHARE_MAX: u64 = 80;

/// Measure drift of relative and absolute sleeps, or of a program
///
/// Without a command two loops run one after the other, each for the duration. `delay` sleeps for the period. `delay
/// until` sleeps until an instant that is a period later each time. Both compute in every period. rtscope prints the
/// drift per hour, with a 95 % interval. The loops run on the last CPU, with fifo:80 where that is permitted.
///
/// With --together two loops run at once, from the same instant on, and rtscope prints when and how far they
/// fall out of step.
///
/// With a command rtscope starts the program, watches it through the kernel's timer and scheduling
/// events, and ends it. It adds nothing to the program. This needs root.
///
/// Examples:
///   rtscope drift
///   rtscope drift --period 1ms --work 200us --duration 30s
///   rtscope drift -- ./my-control-loop --rate 100
///   rtscope drift --together --period 100ms --duration 1min
///   rtscope drift --period 10ms --thread sampler --json -- ./daemon
///   rtscope drift --thread task_a --thread task_b -- ./two-tasks
///   rtscope drift --from rtscope-runs/drift-20200101T000000
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    loops: Loops,
    /// Thread of the program to judge, by name or number; give it twice to see whether two threads keep in step
    /// [default: the one that sleeps most often]
    #[arg(long, value_name = "THREAD", requires = "command")]
    thread: Vec<String>,
    /// Judge a recorded folder again and write its page
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(super) from: Option<PathBuf>,
    /// Folder for the record and the page [default: rtscope-runs/drift-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["work", "sleep", "together"])]
    command: Vec<String>,
}

/// The loops, and for how long they run.
#[derive(Debug, clap::Args)]
pub(super) struct Loops {
    /// Intended period [default: 10ms; with a command: derived from its sleeps]
    #[arg(long, value_name = "TIME")]
    period: Option<Nanos>,
    /// CPU time to compute in each period, up to 80 % of the period [default: 1ms]
    #[arg(long, value_name = "TIME")]
    work: Option<Nanos>,
    /// Run each loop, or watch the program, for this long
    #[arg(short, long, value_name = "TIME", default_value = "10s")]
    duration: Nanos,
    /// Sleep of the loops: relative, absolute, or both
    #[arg(long, value_name = "HOW", default_value = "both", value_parser = ["relative", "absolute", "both"])]
    sleep: String,
    /// Run two loops at once: one of each sleep, or two of the one that --sleep names
    #[arg(long)]
    together: bool,
    #[command(flatten)]
    place: Place,
}

/// The record's file in its folder.
const RECORD: &str = "drift.json";

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.from {
        let record = read(folder)?;
        print_result(&record, folder, args.json)?;
        return Ok(ExitCode::from(exit::PASS));
    }
    let wall_clock = wall_clock();
    let folder = record::new_folder(args.out.as_deref(), "drift", &wall_clock, RECORD)?;
    let options = DriftOptions {
        source: source(args)?,
        duration: args.loops.duration,
        tree: Tree::default(),
        interrupt: Interrupt::install()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall_clock,
    };
    let record = measured(options)?;
    record::write_in(&folder, RECORD, &(serde_json::to_string(&record)? + "\n"))?;
    print_result(&record, &folder, args.json)?;
    Ok(ExitCode::from(code(&record)))
}

pub(super) fn read(folder: &Path) -> anyhow::Result<DriftRecord> {
    record::read_document_in(folder, RECORD, FORMAT)
}

/// The exit code of a record.
pub(super) fn code(record: &DriftRecord) -> u8 {
    let short = record.threads.iter().any(|one| one.activations.len() < 3);
    if short { exit::INCONCLUSIVE } else { exit::PASS }
}

fn source(args: &Args) -> anyhow::Result<PeriodicSource> {
    let loops = &args.loops;
    if args.command.is_empty() {
        loops.check()?;
        return loops.source();
    }
    if let Some(period) = loops.period {
        loops.check_length(period)?;
    }
    loops.check_duration()?;
    if args.thread.len() > 2 {
        return Err(Refused("--thread can be given at most twice".to_owned()).into());
    }
    loops.place.refuse("a command places its threads itself")?;
    Ok(PeriodicSource::Program {
        command: args.command.clone(),
        threads: args.thread.clone(),
        period_ns: loops.period.map(|period| period.0),
    })
}

impl Loops {
    fn own_period(&self) -> Nanos {
        self.period.unwrap_or(PERIOD)
    }

    fn own_work(&self) -> Nanos {
        self.work.unwrap_or(Nanos::from_ms(1).min(Nanos(self.own_period().0 / 10)))
    }

    /// How long all loops run.
    pub(super) fn length(&self) -> Nanos {
        let loops = if self.sleep == "both" && !self.together { 2 } else { 1 };
        Nanos(self.duration.0.saturating_mul(loops))
    }

    /// Refuses what makes no sense on any machine.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let (period, work) = (self.own_period(), self.own_work());
        self.check_duration()?;
        self.check_length(period)?;
        // Both loops compute on one CPU.
        let (share, each) =
            if self.together { (SHARE_MAX / 2, " for each of two loops") } else { (SHARE_MAX, "") };
        if work.0 > period.0 / 100 * share {
            let text = format!(
                "--work {work} is too long for a period of {period}: use at most {share} % of the period{each}"
            );
            return Err(Refused(text).into());
        }
        if self.duration.0 < 3 * (period.0 + work.0) {
            let text = format!("--duration {}: must be at least three periods", self.duration);
            return Err(Refused(text).into());
        }
        self.place.scheduling(PRIORITY)?;
        Ok(())
    }

    fn check_duration(&self) -> Result<(), Refused> {
        match (Nanos::from_ms(10)..=Nanos(86_400_000_000_000)).contains(&self.duration) {
            true => Ok(()),
            false => Err(Refused(format!("--duration {}: must be from 10ms to 1d", self.duration))),
        }
    }

    fn check_length(&self, period: Nanos) -> Result<(), Refused> {
        if !(Nanos::from_us(50)..=Nanos::from_secs(3600)).contains(&period) {
            return Err(Refused(format!("--period {period}: must be from 50us to 1h")));
        }
        let longest = drift::longest(period.0);
        if self.duration <= longest {
            return Ok(());
        }
        Err(Refused(format!(
            "--duration {} at a period of {period} exceeds the {} activations that a recording holds: use \
                --duration {longest} or less, or a longer --period",
            self.duration,
            grouped(drift::ACTIVATIONS_MAX)
        )))
    }

    fn source(&self) -> anyhow::Result<PeriodicSource> {
        let of_one = if self.together { 2 } else { 1 };
        let sleeps = match self.sleep.as_str() {
            "relative" => vec![Sleep::Relative; of_one],
            "absolute" => vec![Sleep::Absolute; of_one],
            _ => vec![Sleep::Relative, Sleep::Absolute],
        };
        let scheduling = self.place.scheduling(PRIORITY)?.unwrap_or(Scheduling::fifo(PRIORITY));
        let placement = scheduling.on(self.place.cpu.or_last()?);
        let (period_ns, work_ns) = (self.own_period().0, self.own_work().0);
        let together = self.together;
        Ok(PeriodicSource::Loops { sleeps, together, period_ns, work_ns, placement })
    }
}

/// Measures; falls back to an ordinary policy where a real-time one is not permitted.
fn measured(mut options: DriftOptions) -> anyhow::Result<DriftRecord> {
    match drift::run(&options) {
        Err(error @ DriftError::Place { .. }) if error.is_permission() => {
            let ways = super::ways_to_permission();
            note_lines(&format!("rtscope: {error}. Measured as an ordinary thread. {ways}"));
            if let PeriodicSource::Loops { placement, .. } = &mut options.source {
                *placement = Scheduling::OTHER.on(placement.cpus.clone());
            }
            Ok(drift::run(&options)?)
        }
        other => Ok(other?),
    }
}

/// Writes the page and prints the figures.
fn print_result(record: &DriftRecord, folder: &Path, json: bool) -> anyhow::Result<()> {
    let page = report::page(record);
    match json {
        true => super::tell_json(folder, &page, &report::document(record)),
        false => super::tell_text(folder, &page, &report::table(record)),
    }
}
