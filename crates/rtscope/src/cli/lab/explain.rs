//! `rtscope lab explain`: the worst wake-ups of a guest, explained by the instructions that it executed.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, anyhow};
use rtscope_analyse::{
    report::explain_lab::{self as report, Explanation},
    statistics::explain::instructions::{WatchedGuest, above_ns, choose, explain_window},
};
use rtscope_lab::explain;
use rtscope_measure::{interrupt::Interrupt, recorder::write_whole};
use rtscope_model::{
    environment::Preemption, instructions::Instructions, record::Record, symbols::KernelSymbols,
};

use super::order;
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

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let record = record::open(&args.record, &Additions::default())?.record;
    let cells = cells(&record, &args.cell)?;
    let worst = usize::from(args.worst);
    let cache = order::cache_at(args.cache.as_ref());
    let interrupt = Interrupt::install()?;
    ending::of_programs(&interrupt);
    let stop = || interrupt.is_stopped();
    let above_ns = above_ns(&record, &cells, worst);
    let guard = order::guard();
    let look =
        explain::look(&args.record, above_ns, &cache, &guard, &stop, &mut |line| note!("{line}"))?;
    let instructions = Instructions::read(&look.instructions);
    let chosen = choose(&record, &instructions.windows, &cells, worst);
    if chosen.is_empty() {
        return Err(anyhow!(
            "{}: no wake-up is marked. Either the phase has none, or an older rtscope made the record: then run \
             the guest again with this version",
            args.record.display()
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
        record: args.record.display().to_string(),
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
    tell(&args.record, &all, args.json)?;
    Ok(ExitCode::from(exit::PASS))
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

/// Writes the document and the page into the record's folder, and prints one of them.
fn tell(folder: &Path, all: &Explanation, json: bool) -> anyhow::Result<()> {
    let document = serde_json::to_string_pretty(&report::document(all))? + "\n";
    let page = folder.join("explain.html");
    for (path, text) in [(&folder.join("explain.json"), &document), (&page, &report::page(all))] {
        write_whole(path, text.as_bytes())
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    if json {
        note!("Report: {}", page.display());
        return print(&document);
    }
    print_folded(&format!("{}\nReport: {}\n", report::table(all), shown(&page)))
}
