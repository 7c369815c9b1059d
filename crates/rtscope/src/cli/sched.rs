//! `rtscope sched`: applications of different policies, started together.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use rtscope_analyse::report::sched as report;
use rtscope_measure::{sched, signals::Interrupt, tune};
use rtscope_model::{
    guest,
    sched::{Experiment, ExperimentRecord, FORMAT},
    text::{Problem, TextError, suggest},
    time::Nanos,
};
use rtscope_sys::tree::Tree;

use super::{Refused, place::OneCpu, print, wall_clock};
use crate::{
    exit,
    record::{self, bounded_text},
};

/// Scheduling experiments: list, show, run, draw again
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List the shipped experiments
    ///
    /// Examples:
    ///   rtscope sched list
    #[command(verbatim_doc_comment)]
    List,
    /// Print an experiment's text, to change it
    ///
    /// Examples:
    ///   rtscope sched show two-rr-pinned > my-experiment.toml
    #[command(verbatim_doc_comment)]
    Show {
        /// A shipped experiment's name
        name: String,
    },
    Run(RunArgs),
    /// Judge a recorded experiment again and write its page
    ///
    /// Examples:
    ///   rtscope sched report rtscope-runs/two-rr-pinned-20260101T000000
    #[command(verbatim_doc_comment)]
    Report {
        /// The record's folder
        folder: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

impl Verb {
    pub(super) fn measures(&self) -> bool {
        matches!(self, Verb::Run(_))
    }
}

/// Run an experiment: response times, measured and predicted
///
/// The prediction follows from the rules of the kernel's scheduler.
/// The applications are released together, and each computes a calibrated amount of work. Real-time
/// applications keep their CPUs busy for a few seconds at most. Real-time throttling and the kernel's
/// fair server stay as they are. Applications that are pinned to one CPU run on CPU 1, or on the first.
///
/// Examples:
///   rtscope sched run one-fifo-pinned
///   rtscope sched run two-rr-pinned --work 1s --cpus 0
///   rtscope sched run my-experiment.toml --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RunArgs {
    /// A shipped experiment's name, or a file; - is standard input
    experiment: String,
    /// CPU time of each application that doesn't define its own work, 1ms to 5s
    #[arg(long, value_name = "TIME")]
    work: Option<Nanos>,
    #[command(flatten)]
    cpu: OneCpu,
    /// Folder for the record and the page [default: rtscope-runs/EXPERIMENT-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The name and text of each shipped experiment.
macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../plans/experiments/", $name, ".toml"))),)*]
    };
}

pub(super) const SHIPPED: &[(&str, &str)] = shipped! {
    "one-fifo-pinned" "one-fifo-free" "two-fifo-pinned" "two-rr-pinned" "two-fifo-free"
    "priority-levels" "rr-quantum" "fifo-starvation" "fifo-starvation-unguarded" "periodic-jobs"
    "inversion-plain" "inversion-inherit" "deadline-admission" "deadline-overrun" "nice-levels"
    "fair-slice" "ada-order"
};

/// Those of the project report.
pub(super) const REPORT: [&str; 5] =
    ["one-fifo-pinned", "one-fifo-free", "two-fifo-pinned", "two-rr-pinned", "two-fifo-free"];

/// The record's file in its folder.
const RECORD: &str = guest::EXPERIMENT;

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List => {
            let mut text = String::new();
            for (name, source) in SHIPPED {
                text += &format!("{name:25} {}\n", Experiment::parse(name, source)?.title);
            }
            print(&text)?;
        }
        Verb::Show { name } => print(&source(name)?)?,
        Verb::Run(args) => return run(args),
        Verb::Report { folder, json } => {
            print_result(&read(folder)?, folder, *json)?;
        }
    }
    Ok(ExitCode::from(exit::PASS))
}

/// The largest experiment.
const EXPERIMENT_BYTES_MAX: u64 = 16 << 20;

/// The text of a shipped experiment or a file.
fn source(name: &str) -> anyhow::Result<String> {
    if let Some((_, text)) = SHIPPED.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_owned());
    }
    if name == "-" {
        return record::bounded(std::io::stdin(), EXPERIMENT_BYTES_MAX)
            .context("can't read an experiment from standard input");
    }
    if name.ends_with(".toml") || name.contains('/') {
        return bounded_text(Path::new(name), EXPERIMENT_BYTES_MAX)
            .with_context(|| format!("can't read {name}"));
    }
    let message = "no shipped experiment of this name; rtscope sched list shows them".to_owned();
    let suggestion = suggest(name, SHIPPED.iter().map(|(known, _)| *known));
    let problems = vec![Problem { line: None, message, suggestion }];
    Err(TextError { name: name.to_owned(), problems }.into())
}

/// An experiment by its name or file, with another amount of work where one is named.
pub(super) fn load(name: &str, work: Option<Nanos>) -> anyhow::Result<Experiment> {
    let mut experiment = Experiment::parse(name, &source(name)?)?;
    if let Some(work) = work {
        if !(Nanos::from_ms(1)..=Nanos::from_secs(5)).contains(&work) {
            return Err(Refused(format!("--work {work}: must be from 1ms to 5s")).into());
        }
        experiment.work = work;
    }
    for (setting, value) in &experiment.settings {
        if let Err(problem) = tune::check(setting, value) {
            return Err(TextError { name: name.to_owned(), problems: vec![problem] }.into());
        }
    }
    Ok(experiment)
}

pub(super) fn read(folder: &Path) -> anyhow::Result<ExperimentRecord> {
    record::read_document_in(folder, RECORD, FORMAT)
}

fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let experiment = load(&args.experiment, args.work)?;
    let wall_clock = wall_clock();
    let folder = record::new_folder(args.out.as_deref(), &experiment.name, &wall_clock, RECORD)?;
    let options = sched::SchedOptions {
        experiment,
        one: args.cpu.asked()?,
        tree: Tree::default(),
        journal: tune::journal_dir(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall_clock,
    };
    // An experiment is short: a signal lets it come to its end, which puts settings back.
    let _interrupt = Interrupt::install_patient()?;
    let record = sched::run(&options).map_err(explained)?;
    record::write_in(&folder, RECORD, &(serde_json::to_string_pretty(&record)? + "\n"))?;
    print_result(&record, &folder, args.json)?;
    // What doesn't read back as asked answers another question.
    Ok(ExitCode::from(if record.is_as_asked() { exit::PASS } else { exit::INCONCLUSIVE }))
}

/// An error with what to do about it.
fn explained(error: sched::SchedError) -> anyhow::Error {
    match &error {
        sched::SchedError::NoSuchCpu { .. } => Refused(error.to_string()).into(),
        problem if problem.is_permission() => {
            let ways = super::ways_to_permission();
            crate::failure::Ways(format!("{error}. {ways}")).into()
        }
        _ => error.into(),
    }
}

/// Writes the page and prints the figures.
fn print_result(record: &ExperimentRecord, folder: &Path, json: bool) -> anyhow::Result<()> {
    let page = report::page(record);
    match json {
        true => super::tell_json(folder, &page, &report::document(record)),
        false => super::tell_text(folder, &page, &report::table(record)),
    }
}
