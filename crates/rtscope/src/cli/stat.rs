//! `rtscope stat`: what a program does, counted.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::report::{
    published::{PublishedBesideOurs, of_table},
    stat as report,
};
use rtscope_measure::stat::{self, Simulator, StatOptions, branch};
use rtscope_model::stat::{CounterRecord, FORMAT};
use rtscope_sys::tree::Tree;

use super::{
    Refused, print,
    published::{self, Choice},
    this_program, wall_clock,
};
use crate::{
    exit,
    output::{print_folded, shown},
    record,
};

/// Count a program's CPU time, page faults, instructions, branches
///
/// rtscope runs a program to its end, and counts its work and that of all
/// processes that it starts: CPU time, context switches, page faults, cycles,
/// instructions and branches. A counter that the machine lacks is "not
/// supported", never 0. --simulate counts instructions, branches and
/// mispredicted branches on valgrind's simulated processor, on every machine.
///
/// Without a command rtscope runs its branch workload: a loop over 32,768 random
/// integers, which adds up all that are at least 128. A processor can predict
/// its branches only if the integers are sorted.
///
/// Exit code: 0 when every run succeeded, 3 when one failed.
///
/// Examples:
///   rtscope stat --repeat 10 -- ./my-program --fast
///   rtscope stat --workload sorted
///   rtscope stat --compare --repeat 10
///   rtscope stat --compare --simulate
///   rtscope stat --compare --published course-lab
///   rtscope stat --compare --repeat 20 --json -- ./old input -- ./new input
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    counting: Counting,
    /// Count on valgrind's simulated processor
    #[arg(long)]
    simulate: bool,
    #[command(flatten)]
    published: Choice,
    /// Folder for the record (stat.json) and the page; nothing is kept without it
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document; the program's output goes to standard error
    #[arg(long)]
    json: bool,
}

/// What is run and counted.
#[derive(Debug, clap::Args)]
pub(super) struct Counting {
    /// Number of runs of each program; with 2 or more, means have intervals
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Compare two commands, written -- A -- B, or the workload unsorted and sorted if there are none
    #[arg(long)]
    compare: bool,
    /// Variant of the branch workload, if there is no command
    #[arg(long, value_name = "ORDER", default_value = "unsorted", value_parser = ["unsorted", "sorted"], conflicts_with = "command")]
    workload: String,
    /// Number of passes of the workload over its integers [default: 3000; simulated 200]
    #[arg(long, value_name = "N", conflicts_with = "command", value_parser = clap::value_parser!(u32).range(1..))]
    passes: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Counting {
    /// How many programs run.
    pub(super) fn runs(&self) -> u64 {
        u64::from(self.repeat) * if self.compare { 2 } else { 1 }
    }

    /// The programs of the commands: one, two with --compare, and none for the workload.
    ///
    /// # Errors
    ///
    /// --compare has another number of commands.
    pub(super) fn commands(&self) -> Result<Vec<&[String]>, Refused> {
        match (self.compare, self.command.is_empty()) {
            (_, true) => Ok(Vec::new()),
            (false, false) => Ok(vec![&self.command]),
            (true, false) => {
                let sides: Vec<&[String]> = self.command.split(|word| word == "--").collect();
                match sides[..] {
                    [a, b] if !a.is_empty() && !b.is_empty() => Ok(vec![a, b]),
                    _ => Err(Refused(
                        "--compare takes two commands: rtscope stat --compare -- A -- B".to_owned(),
                    )),
                }
            }
        }
    }
}

/// The record's file in its folder.
const RECORD: &str = "stat.json";

/// The workload's own process; started by `stat`.
#[derive(Debug, clap::Args)]
pub(super) struct WorkloadArgs {
    /// Sort first
    #[arg(long)]
    sorted: bool,
    /// Passes
    passes: u32,
}

pub(super) fn workload(args: &WorkloadArgs) -> ExitCode {
    branch::run(args.sorted, args.passes);
    ExitCode::from(exit::PASS)
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let published = args.published.entries("none")?;
    let options = StatOptions {
        programs: programs(args)?,
        repeat: args.counting.repeat,
        simulator: args.simulate.then(Simulator::find).transpose()?,
        output_to_stderr: args.json,
        tree: Tree::default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall_clock: wall_clock(),
    };
    let record = stat::run(&options)?;
    let published = match published.is_empty() {
        true => Vec::new(),
        false => of_table(&published, &report::ours(&record, published::whose(&record.kernel))),
    };
    let page = args.out.as_deref().map(|folder| keep(&record, &published, folder)).transpose()?;
    if args.json {
        print(&(serde_json::to_string_pretty(&report::document(&record, &published))? + "\n"))?;
    } else {
        print_folded(&report::table(&record, &published))?;
    }
    if let Some(page) = page {
        note!("Report: {}", page.display());
    }
    let code = code(&record);
    if code == exit::INCONCLUSIVE {
        note!(
            "rtscope: inconclusive, exit code 3: a run of the program failed, so the counts aren't those of its work"
        );
    }
    Ok(ExitCode::from(code))
}

pub(super) fn read(folder: &Path) -> anyhow::Result<CounterRecord> {
    record::read_document_in(folder, RECORD, FORMAT)
}

/// The exit code of a record.
pub(super) fn code(record: &CounterRecord) -> u8 {
    let sound = record.programs.iter().flat_map(|one| &one.runs).all(|run| run.failed.is_none());
    if sound { exit::PASS } else { exit::INCONCLUSIVE }
}

/// Names and command lines of what is to run.
fn programs(args: &Args) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let counting = &args.counting;
    let workload = |options: &str| {
        let usual = if args.simulate { branch::PASSES_SIMULATED } else { branch::PASSES };
        let passes = counting.passes.unwrap_or(usual).to_string();
        let mut words = vec![own_path(), "branch-workload".to_owned(), passes];
        if options == "sorted" {
            words.push("--sorted".to_owned());
        }
        (options.to_owned(), words)
    };
    let named = |words: &[String]| (words.join(" "), words.to_vec());
    let commands = counting.commands()?;
    Ok(match (commands.is_empty(), counting.compare) {
        (false, _) => commands.into_iter().map(named).collect(),
        (true, false) => vec![workload(&counting.workload)],
        (true, true) => vec![workload("unsorted"), workload("sorted")],
    })
}

/// Where this program is: a simulator needs its path, not a link to whoever follows it.
fn own_path() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| this_program());
    shown(path)
}

/// Writes the record and the page.
fn keep(
    counted: &CounterRecord,
    published: &[PublishedBesideOurs],
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    record::write_in(folder, RECORD, &(serde_json::to_string_pretty(counted)? + "\n"))?;
    record::write_in(folder, "report.html", report::page(counted, published))
}
