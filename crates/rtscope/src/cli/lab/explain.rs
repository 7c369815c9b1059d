//! `rtscope lab explain`: the worst wake-ups of a guest, explained by the instructions that it executed.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, anyhow};
use rtscope_analyse::{
    report::{
        explain_lab::{self as report, Explanation},
        lab::{collect::Collected, worst},
    },
    statistics::explain::instructions::{WatchedGuest, above_ns, choose, explain_window},
};
use rtscope_lab::{cache::Cache, explain, tool::Need};
use rtscope_measure::{interrupt::Interrupt, recorder::write_whole};
use rtscope_model::{
    environment::Preemption, instructions::Instructions, record::Record, symbols::KernelSymbols,
};

use super::order::{self, Lab};
use crate::{
    cli::{Refused, ending, print, print_folded},
    exit,
    output::shown,
    record::{self, Additions},
};

/// Explain the worst wake-ups of a guest by its instructions
///
/// The emulator replays the run from the log in the record's folder. Meanwhile a plugin of the emulator records the
/// instructions that the guest executed before each late wake-up. The guest doesn't notice: rtscope compares every byte
/// of the replayed record with the original one, and explains nothing if they differ. The pieces of a latency add up to
/// it exactly.
///
/// rtscope compiles the plugin once with the C compiler of this machine. The guest must be an x86-64 one, and the
/// emulator QEMU 7 or 8. explain.json and explain.html go into the record's folder.
///
/// Examples:
///   rtscope lab explain rtscope-runs/lab-quick-20260101T000000/debian-stock-seed1
///   rtscope lab explain lab/debian-stock-seed1 --cell disk --worst 3
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The record's folder
    record: PathBuf,
    /// Phase to explain, as the plan calls it [default: all]
    #[arg(long, value_name = "PHASE")]
    cell: Vec<String>,
    /// Number of the worst wake-ups of each phase to explain, 1 to 8
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    worst: u8,
    /// Print the document instead of the table
    #[arg(long)]
    json: bool,
    /// Folder of kernels and images [default: that of `lab cache list`]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Whether the verbs that compare kernels explain what they found.
#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    /// Explain the worst wake-up of each kernel under each load, as `rtscope lab explain` does. Each guest that has
    /// one is replayed, which takes about as long as its run
    #[arg(long, conflicts_with_all = ["wall", "kvm"])]
    explain: bool,
}

impl Explain {
    /// A lab for these guests that can also explain them.
    pub(super) fn open_lab(&self, options: &order::Options) -> anyhow::Result<Lab> {
        if !self.explain {
            return Lab::open(options);
        }
        if options.cpus() > 1 {
            let text = "--explain with --smp: only a guest with one CPU has a log that is replayed";
            return Err(Refused(text.to_owned()).into());
        }
        Lab::open_with_tools(options, vec![Need::of("cc", "gcc")])
    }

    /// Explains the worst wake-ups, if that was asked. What can't be explained is a warning on the page: the figures
    /// stand without it.
    pub(super) fn add_to(&self, all: &mut Collected, out: &Path, lab: &Lab) {
        if !self.explain {
            return;
        }
        let records = worst::records(&all.page);
        for (n, record) in records.iter().enumerate() {
            let (name, loads) = (record.folder.display(), record.loads.join(", "));
            if lab.console.interrupt().is_stopped() {
                all.page.warnings.push(format!("{name}: {loads} not explained: interrupted"));
                continue;
            }
            note!("[{}/{}] explaining {name}: {loads}", n + 1, records.len());
            let folder = out.join(&record.folder);
            match explained(&folder, &record.loads, 1, lab.lab.cache(), lab.console.interrupt()) {
                Ok(found) => all.page.add_causes(record, &found),
                Err(why) => {
                    all.page.warnings.push(format!("{name}: {loads} not explained: {why:#}"));
                }
            }
        }
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let cache = order::cache_at(args.cache.as_ref());
    let interrupt = Interrupt::install()?;
    ending::of_programs(&interrupt);
    let all = explained(&args.record, &args.cell, args.worst, &cache, &interrupt)?;
    tell(&args.record, &all, args.json)?;
    Ok(ExitCode::from(exit::PASS))
}

/// Explains the worst wake-ups of some phases of a record, or of all, and keeps document and page in its folder.
fn explained(
    folder: &Path,
    phases: &[String],
    worst: u8,
    cache: &Cache,
    interrupt: &Interrupt,
) -> anyhow::Result<Explanation> {
    let record = record::open(folder, &Additions::default())?.record;
    let (cells, worst) = (cells(&record, phases)?, usize::from(worst));
    let stop = || interrupt.is_stopped();
    let (above_ns, guard) = (above_ns(&record, &cells, worst), order::guard());
    let look = explain::look(folder, above_ns, cache, &guard, &stop, &mut |line| note!("{line}"))?;
    let instructions = Instructions::read(&look.instructions);
    let chosen = choose(&record, &instructions.windows, &cells, worst);
    if chosen.is_empty() {
        return Err(anyhow!(
            "{}: no wake-up is marked. Either the phase has none, or an older rtscope made the record: then run \
             the guest again with this version",
            folder.display()
        ));
    }
    let symbols = look.symbols;
    let symbols = KernelSymbols::parse(symbols).ok_or_else(|| {
        anyhow!("the guest's kernel has no symbols (CONFIG_KALLSYMS): its functions have no names")
    })?;
    let seen = WatchedGuest { instructions: &instructions, symbols: &symbols, shift: look.shift };
    let kernel = record.before.as_ref().map(|before| &before.kernel);
    let all = Explanation {
        format: report::FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        record: folder.display().to_string(),
        kernel: kernel.map_or_else(String::new, |kernel| kernel.release.clone()),
        is_preempt_rt: kernel
            .map(|kernel| kernel.preemption)
            .filter(|model| *model != Preemption::Unknown)
            .map(|model| model == Preemption::RealTime),
        emulator: look.emulator,
        shift: look.shift,
        equal_files: look.files,
        is_whole: instructions.is_whole,
        spikes: chosen.iter().map(|one| explain_window(&seen, one)).collect(),
    };
    keep(folder, &all)?;
    Ok(all)
}

/// The cells of these phases, or all.
fn cells(record: &Record, names: &[String]) -> anyhow::Result<Vec<u32>> {
    let phases = &record.plan.phases;
    let numbered = || (0_u32..).zip(phases);
    for name in names {
        if !phases.iter().any(|phase| phase.name == *name) {
            let all: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
            return Err(Refused(format!(
                "--cell {name}: the plan has no such phase; it has {}",
                all.join(", ")
            ))
            .into());
        }
    }
    let is_meant = |name: &String| names.is_empty() || names.contains(name);
    Ok(numbered().filter(|(_, phase)| is_meant(&phase.name)).map(|(cell, _)| cell).collect())
}

fn text_of(all: &Explanation) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&report::document(all))? + "\n")
}

/// Writes the document and the page into the record's folder.
fn keep(folder: &Path, all: &Explanation) -> anyhow::Result<()> {
    for (name, text) in [("explain.json", text_of(all)?), (report::PAGE, report::page(all))] {
        let path = folder.join(name);
        write_whole(&path, text.as_bytes())
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

/// Prints the document or the table, and says where the page is.
fn tell(folder: &Path, all: &Explanation, json: bool) -> anyhow::Result<()> {
    let page = folder.join(report::PAGE);
    if json {
        note!("Report: {}", page.display());
        return print(&text_of(all)?);
    }
    print_folded(&format!("{}\nReport: {}\n", report::table(all), shown(&page)))
}
