//! The command line: one file a verb.

mod check;
mod claim;
pub(crate) mod compare;
mod completions;
mod doctor;
mod drift;
mod ending;
mod explain;
mod export;
mod fleet;
mod guard;
mod help;
mod history;
mod import;
mod kernel;
mod lab;
mod later;
mod load;
mod man;
mod network;
mod new;
mod place;
mod plan;
mod plot;
mod ps;
mod published;
mod report;
mod restore;
mod run;
mod sampler;
mod sched;
mod shape;
mod stat;
mod throughput;
mod tune;
mod until;
mod wave;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};
use rtscope_measure::{RunError, environment, tune::TuneError, wave::WaveError};
use rtscope_model::text::TextError;

use self::later::Later;
use crate::{
    exit,
    failure::{Refused, error_text},
    leftovers,
    output::{self, print, print_bytes, print_folded, shown},
    record::{self, wall_clock},
};

/// How late does this Linux system wake a real-time thread, at rest and under load?
///
/// `rtscope run` measures for 20 seconds and writes a page with the result. A thread on each CPU sleeps
/// until a programmed instant and notes how late it woke: the wake-up latency. With `--require` the
/// run is judged against a limit, and the exit code gives the verdict.
///
/// Exit code: 0 pass (or measured without a requirement), 1 error (including a missing or unreadable file), 2
/// requirement failed, 3 inconclusive, 64 wrong command line or plan.
///
/// Examples:
///   rtscope run
///   rtscope run --require 'max < 200us'
///   rtscope help run
#[derive(Debug, Parser)]
#[command(name = "rtscope", version, max_term_width = 100, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// Use colours: always, never, or auto (colours on a terminal, unless NO_COLOR is set)
    // Last but for the help, also behind options that other structs bring.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true,
        display_order = 990
    )]
    color: clap::ColorChoice,
}

/// What a user types, in the order of the groups in `help::GROUPS`.
#[derive(Debug, Subcommand)]
enum Verb {
    Run(Later<run::Args>),
    /// List, show and check plans
    ///
    /// A plan says what `rtscope run` measures: phases, loads and requirements. A phase is a part of a plan during
    /// which the loads stay the same (or there are none). A cell is the set of figures of one phase.
    ///
    /// Examples:
    ///   rtscope plan list
    ///   rtscope plan show quick > my-plan.toml
    ///   rtscope plan check my-plan.toml
    #[command(subcommand, verbatim_doc_comment)]
    Plan(Later<plan::Verb>),
    Load(Later<load::Args>),
    Throughput(Later<throughput::Args>),
    Network(Later<network::Args>),
    /// Capture, generate or watch square waves; find a limit
    ///
    /// Examples:
    ///   rtscope wave sweep --subject all --quick
    ///   rtscope wave generate memory:test --freq 1kHz
    ///   rtscope wave capture memory:test
    #[command(subcommand, verbatim_doc_comment)]
    Wave(Later<wave::Verb>),
    Report(Later<report::Args>),
    Claim(Later<claim::Args>),
    Plot(Later<plot::Args>),
    Export(Later<export::Args>),
    Import(Later<import::Args>),
    Compare(Later<compare::Args>),
    /// Keep the figures of runs over months: import, list, show, trend
    ///
    /// Examples:
    ///   rtscope history import rtscope-runs/quick-*
    ///   rtscope history list
    ///   rtscope history trend 'message load'
    #[command(subcommand, verbatim_doc_comment)]
    History(Later<history::Verb>),
    #[command(alias = "environment")]
    Doctor(Later<doctor::Args>),
    Collect(Later<doctor::CollectArgs>),
    Ps(Later<ps::Args>),
    /// Run scheduling experiments: who runs when, predicted and measured
    ///
    /// Examples:
    ///   rtscope sched list
    ///   rtscope sched run one-fifo-pinned
    #[command(subcommand, verbatim_doc_comment)]
    Sched(Later<sched::Verb>),
    /// Change, show and restore system settings
    ///
    /// Examples:
    ///   rtscope tune suggest
    ///   rtscope tune apply --dry-run shield=last throttling=off
    ///   sudo rtscope tune apply shield=last -- ./my-loop
    #[command(subcommand, verbatim_doc_comment)]
    Tune(Later<tune::Verb>),
    /// Restore settings that a killed run left changed
    ///
    /// Every command that measures does the same when it starts. What `rtscope tune apply --keep` has changed stays:
    /// `rtscope tune restore` restores it.
    ///
    /// Examples:
    ///   sudo rtscope restore
    #[command(verbatim_doc_comment)]
    Restore,
    Check(Later<check::Args>),
    Explain(Later<explain::Args>),
    Drift(Later<drift::Args>),
    Stat(Later<stat::Args>),
    New(Later<new::Args>),
    /// Compare kernels in an emulator, in virtual time
    ///
    /// rtscope boots each kernel in a guest of QEMU and runs a plan there. A phase is a part of a plan during which
    /// the loads stay the same (or there are none). A cell is one phase in one kernel with one seed; `lab matrix` gives
    /// each cell a guest of its own. Virtual time advances with the instructions that the guest executes, so a busy
    /// computer doesn't change the figures.
    ///
    /// Examples:
    ///   rtscope lab demo
    ///   rtscope lab run --kernel debian-stock --kernel debian-rt
    #[command(subcommand, verbatim_doc_comment)]
    Lab(Later<lab::Verb>),
    /// Build, install and verify a kernel, or go back to the old one
    ///
    /// Examples:
    ///   rtscope kernel build tiny-6.12-rt
    ///   rtscope kernel install my-kernel --root / --layout grub --once
    ///   rtscope kernel verify
    ///   rtscope kernel rollback
    #[command(subcommand, verbatim_doc_comment)]
    Kernel(Later<kernel::Verb>),
    /// Run a plan on many machines and compare them
    ///
    /// A place is a machine that rtscope reaches by ssh, or this one. The file places.toml names the places, or a
    /// labgrid coordinator or a Slurm cluster that provides them.
    ///
    /// Examples:
    ///   rtscope fleet list
    ///   rtscope fleet run --on tag=rt
    ///   rtscope fleet compare before after
    #[command(subcommand, verbatim_doc_comment)]
    Fleet(Later<fleet::Verb>),
    /// Measure with cyclictest's options and output
    ///
    /// A link to rtscope with that name does the same.
    ///
    /// Examples:
    ///   rtscope cyclictest -m -Sp90 -i200 -D10s -q
    ///   rtscope cyclictest --help
    #[command(disable_help_flag = true, verbatim_doc_comment)]
    Cyclictest(FrontEnd),
    /// Pass messages with hackbench's options and output
    ///
    /// A link to rtscope with that name does the same.
    ///
    /// Examples:
    ///   rtscope hackbench -g 2 -l 1000
    ///   rtscope hackbench --help
    #[command(disable_help_flag = true, verbatim_doc_comment)]
    Hackbench(FrontEnd),
    Completions(Later<completions::Args>),
}

impl Verb {
    /// Whether it measures, loads the machine or changes settings: what a killed process left changed would change
    /// what it finds.
    fn measures(&self) -> bool {
        match self {
            Verb::Run(_)
            | Verb::Load(_)
            | Verb::Network(_)
            | Verb::Wave(_)
            | Verb::Check(_)
            | Verb::Stat(_) => true,
            // What was measured before is read again.
            Verb::Throughput(args) => args.from.is_none(),
            Verb::Explain(args) => args.from.is_none(),
            Verb::Drift(args) => args.from.is_none(),
            Verb::Sched(verb) => verb.measures(),
            Verb::Tune(verb) => verb.changes(),
            _ => false,
        }
    }
}

/// What rtscope and its chores start, and no user types. It is a parser of its own, so that no help, completion or
/// suggestion names it.
#[derive(Debug, Parser)]
#[command(name = "rtscope")]
enum Internal {
    Man(man::Args),
    /// Runs a program that must not outlive another process; started by `lab`
    Guard(guard::Args),
    /// The workload of `stat`, which starts it
    BranchWorkload(stat::WorkloadArgs),
    /// A load's own process; started by `run` and `load`
    LoadWorker {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// A task of an order; started by the engines of `lab matrix`
    LabBatch(lab::batch::Args),
    /// What rtscope does at a place; started by `fleet`
    FleetAgent(fleet::agent::Args),
    /// Becomes a subject; started by `wave sweep`
    WaveSubject(wave::runner::Args),
}

/// The words of another tool's command line, for the list of verbs: `dropin` takes them before they
/// are read here, for `-h` means something else there.
#[derive(Debug, clap::Args)]
struct FrontEnd {
    /// The options of that tool
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub(crate) fn main() -> ExitCode {
    let internal = |word: &OsString| Internal::command().find_subcommand(word).is_some();
    let outcome = if std::env::args_os().nth(1).as_ref().is_some_and(internal) {
        match Internal::parse() {
            Internal::Man(args) => man::main(&args),
            Internal::Guard(args) => guard::main(&args),
            Internal::LabBatch(args) => {
                guard::leave_real_time().and_then(|()| lab::batch::main(&args))
            }
            Internal::FleetAgent(args) => fleet::agent::main(&args),
            Internal::BranchWorkload(args) => return stat::workload(&args),
            Internal::LoadWorker { words } => return rtscope_measure::load::worker_main(&words),
            Internal::WaveSubject(args) => wave::runner::main(&args),
        }
    } else {
        match help::parse(std::env::args_os()) {
            Ok(cli) => {
                output::choose_color(cli.color);
                perform(cli.verb)
            }
            Err(e) => {
                if !e.use_stderr() {
                    let _ = e.print();
                    return ExitCode::from(exit::PASS);
                }
                output::choose_color(help::color(std::env::args_os()));
                output::note_usage(&e);
                return ExitCode::from(exit::USAGE);
            }
        }
    };
    outcome.unwrap_or_else(|error| {
        output::note_error(&error_text(&error));
        ExitCode::from(code_of(&error))
    })
}

fn perform(verb: Verb) -> anyhow::Result<ExitCode> {
    if verb.measures() {
        leftovers::restore();
    }
    if matches!(verb, Verb::Lab(_) | Verb::Kernel(_)) {
        guard::leave_real_time()?;
    }
    match verb {
        Verb::Run(args) => run::main(&args),
        Verb::Plan(verb) => plan::main(&verb),
        Verb::Load(args) => load::main(&args),
        Verb::Throughput(args) => throughput::main(&args),
        Verb::Network(args) => network::main(&args),
        Verb::Wave(verb) => wave::main(&verb),
        Verb::Report(args) => report::main(&args),
        Verb::Claim(args) => claim::main(&args),
        Verb::Plot(args) => plot::main(&args),
        Verb::Export(args) => export::main(&args),
        Verb::Import(args) => import::main(&args),
        Verb::Compare(args) => compare::main(&args),
        Verb::History(verb) => history::main(&verb),
        Verb::Doctor(args) => doctor::main(&args),
        Verb::Collect(args) => doctor::collect(&args),
        Verb::Ps(args) => ps::main(&args),
        Verb::Sched(verb) => sched::main(&verb),
        Verb::Tune(verb) => tune::main(&verb),
        Verb::Restore => restore::main(),
        Verb::Check(args) => check::main(&args),
        Verb::Explain(args) => explain::main(&args),
        Verb::Drift(args) => drift::main(&args),
        Verb::Stat(args) => stat::main(&args),
        Verb::New(args) => new::main(&args),
        Verb::Lab(verb) => lab::main(&verb),
        Verb::Fleet(verb) => fleet::main(&verb),
        Verb::Kernel(verb) => kernel::main(&verb),
        Verb::Completions(args) => completions::main(&args),
        Verb::Cyclictest(FrontEnd { options }) | Verb::Hackbench(FrontEnd { options }) => {
            Err(Refused(format!("not understood: {}", options.join(" "))).into())
        }
    }
}

/// What is wrong with the command line or the plan is a usage error; the rest is the surroundings.
fn code_of(error: &anyhow::Error) -> u8 {
    let asked_wrongly = error.is::<TextError>()
        || error.is::<Refused>()
        || matches!(
            error.downcast_ref(),
            Some(TuneError::Refused(_) | TuneError::EndsWithProcess { .. })
        )
        || matches!(
            error.downcast_ref(),
            Some(
                RunError::NoSuchCpu { .. }
                    | RunError::Load { .. }
                    | RunError::Limit(_)
                    | RunError::Intervals(_)
                    | RunError::Tune(TuneError::Refused(_))
            )
        )
        || matches!(error.downcast_ref(), Some(RunError::Network(why)) if why.is_wrong_request())
        || matches!(
            error.downcast_ref(),
            Some(
                WaveError::Address(_)
                    | WaveError::NotReadable(_)
                    | WaveError::Wave(_)
                    | WaveError::Machine(_)
            )
        );
    if asked_wrongly { exit::USAGE } else { exit::ERROR }
}

/// This program, to be run again as a load's process.
fn this_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// The page about late wake-ups in the folder of a run.
const EXPLAINED: &str = "explain.html";

/// Prints one document, and writes a record's page into its folder: who may not write there sees the figures.
fn tell_json(folder: &Path, page: &str, document: &serde_json::Value) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(document)? + "\n"))?;
    note!("Report: {}", write_page(folder, page)?.display());
    Ok(())
}

/// Prints the figures as a table, and writes a record's page into its folder.
fn tell_text(folder: &Path, page: &str, table: &str) -> anyhow::Result<()> {
    print_folded(table)?;
    print_folded(&format!("Report: {}\n", shown(write_page(folder, page)?)))
}

fn write_page(folder: &Path, page: &str) -> anyhow::Result<PathBuf> {
    // The folder of a run has a report of its own: this page is about its late wake-ups.
    let file = if record::is_one(folder) { EXPLAINED } else { "report.html" };
    record::write_in(folder, file, page)
}

/// How this user gets real-time permission.
fn ways_to_permission() -> String {
    let permission = environment::permission::collect();
    let ways = environment::do_one_of(&environment::permission_advice(&permission));
    format!("To get real-time permission, {ways}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_that_reads_a_folder_again_does_not_measure() {
        let measures = |line: &str| {
            let cli = help::parse(line.split(' ').map(OsString::from));
            cli.expect("a command line").verb.measures()
        };
        for verb in ["drift", "throughput", "explain -- true"] {
            assert!(measures(&format!("rtscope {verb}")), "{verb}");
        }
        for verb in ["drift", "throughput", "explain"] {
            assert!(!measures(&format!("rtscope {verb} --from folder")), "{verb}");
        }
    }
}
