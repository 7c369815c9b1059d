//! `rtscope lab explain`: the worst wake-ups of a guest, explained by the instructions that it executed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::anyhow;
use rtscope_analyse::{
    report::{
        explain as of_events,
        explain_lab::{self as report, Explanation},
        lab::{collect::Collected, worst},
    },
    statistics::explain::{
        agreement, explain as by_events,
        instructions::{LateWakeup, Processor, WatchedGuest, above_ns, choose, explain_window},
    },
};
use rtscope_lab::{cache::Cache, error::LabError, explain, inputs::INPUTS, tool::Need};
use rtscope_measure::signals::Interrupt;
use rtscope_model::{
    environment::Preemption,
    explain::{ExplainRecord, FORMAT as EVENTS_FORMAT},
    guest::{self, VirtualTime},
    instructions::Instructions,
    record::Record,
    symbols::KernelSymbols,
};

use super::guest_options::{self, Lab};
use crate::{
    cli::{Refused, ending, explain::RECORD, print, print_folded},
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
/// The guest must run x86-64 or arm64. rtscope compiles the plugin once with the C compiler of this machine.
/// explain.json and explain.html go into the record's folder. With --events, rtscope runs the guest again and explains
/// that run by its kernel's events. If there is no compiler, or QEMU has no plugins, rtscope prints a message and does
/// the same. A guest that recorded its events (`lab run --events`) isn't run again, even with --wall.
///
/// Examples:
///   rtscope lab explain rtscope-runs/lab-quick-20260101T000000/debian-stock-seed1
///   rtscope lab explain lab/debian-stock-seed1 --cell disk --worst 3
///   rtscope lab explain lab/debian-stock-seed1 --events
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
    /// Explain by the kernel's events instead: if the record has none, the guest runs once more. The emulator needs no
    /// plugins, and this machine no compiler, but recording delays each wake-up; rtscope prints by how much
    #[arg(long, conflicts_with_all = ["cell", "worst"])]
    events: bool,
    /// Print one JSON document instead of the table
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
    pub(super) fn open_lab(&self, options: &guest_options::Options) -> anyhow::Result<Lab> {
        if !self.explain {
            return Lab::open(options);
        }
        if options.cpus() > 1 {
            let text = "--explain doesn't work with --smp: only the log of a guest with one CPU can be replayed";
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
    let cache = guest_options::cache_at(args.cache.as_ref());
    let interrupt = Interrupt::install()?;
    ending::of_programs(&interrupt);
    if args.events {
        explained_by_events(args, &cache, &interrupt)?;
        return Ok(ExitCode::from(exit::PASS));
    }
    match explained(&args.record, &args.cell, args.worst, &cache, &interrupt) {
        Ok(all) => tell(&args.record, &all, args.json)?,
        Err(error) => match error.downcast::<LabError>()? {
            why @ LabError::NoPlugin(_) => {
                note!(
                    "{why}. rtscope runs the guest once more instead, and explains that run by its kernel's events"
                );
                explained_by_events(args, &cache, &interrupt)?;
            }
            other => return Err(other.into()),
        },
    }
    Ok(ExitCode::from(exit::PASS))
}

/// Explains the worst wake-ups of the guest as a run on a machine is explained, and says what that costs.
fn explained_by_events(args: &Args, cache: &Cache, interrupt: &Interrupt) -> anyhow::Result<()> {
    let open = |folder| anyhow::Ok(record::open(folder, &Additions::default())?.record);
    let (folder, events, cost) = if let Some(own) = events_of(&args.record)? {
        let cost =
            "The guest recorded these events itself, so they delayed the wake-ups of this record.";
        (args.record.clone(), own, cost.to_owned())
    } else {
        let without = open(&args.record)?;
        let (stop, guard) = (|| interrupt.is_stopped(), guest_options::guard());
        let mut say = |line: &str| note!("{line}");
        let folder = explain::run_with_events(&args.record, cache, &guard, &stop, &mut say)?;
        let events = events_of(&folder)?.ok_or_else(|| {
            anyhow!("{}: the guest recorded no events; its console may say why", folder.display())
        })?;
        let cost = report::events_cost(&without, &open(&folder)?);
        (folder, events, cost)
    };
    let page = folder.join(report::PAGE);
    record::write_in(&folder, report::PAGE, of_events::page(&events))?;
    if args.json {
        note!("{cost}\nReport: {}", page.display());
        return print(&(serde_json::to_string_pretty(&of_events::document(&events))? + "\n"));
    }
    print_folded(&format!("{}\n{cost}\n\nReport: {}\n", of_events::table(&events), shown(&page)))
}

/// Explains the worst wake-ups of some phases of a record, or of all, and keeps document and page in its folder.
pub(super) fn explained(
    folder: &Path,
    phases: &[String],
    worst: u8,
    cache: &Cache,
    interrupt: &Interrupt,
) -> anyhow::Result<Explanation> {
    let record = record::open(folder, &Additions::default())?.record;
    let (cells, worst) = (cells(&record, phases)?, usize::from(worst));
    let stop = || interrupt.is_stopped();
    let (above_ns, guard) = (above_ns(&record, &cells, worst), guest_options::guard());
    let look = explain::look(folder, above_ns, cache, &guard, &stop, &mut |line| note!("{line}"))?;
    let mut instructions = Instructions::read(&look.instructions);
    if choose(&record, &instructions.windows, &cells, worst).is_empty() {
        let why = match instructions.is_whole {
            true => {
                "Either the phase has none, or an older rtscope made the record: then run the guest again with this version"
            }
            false => "The emulator couldn't write all instructions: is the disk full?",
        };
        return Err(anyhow!("{}: no wake-up is marked. {why}", folder.display()));
    }
    let symbols = look.symbols;
    let symbols = KernelSymbols::parse(symbols).ok_or_else(|| {
        anyhow!("the guest's kernel has no symbols (CONFIG_KALLSYMS): its functions have no names")
    })?;
    instructions.place_kernel(symbols.code());
    let chosen = choose(&record, &instructions.windows, &cells, worst);
    let (arch, shift) = (&look.arch, look.shift);
    let processor =
        Processor::of(arch).ok_or_else(|| anyhow!("rtscope can't decode {arch} instructions"))?;
    let seen = WatchedGuest { instructions: &instructions, symbols: &symbols, processor, shift };
    let kernel = record.before.as_ref().map(|before| &before.kernel);
    let spikes: Vec<LateWakeup> = chosen.iter().map(|one| explain_window(&seen, one)).collect();
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
        events: events_of(folder)?.map(|record| agreement::compare(&spikes, &by_events(&record))),
        spikes,
    };
    keep(folder, &all)?;
    Ok(all)
}

/// The kernel's events around the worst wake-ups of a guest; none where it recorded none.
fn events_of(folder: &Path) -> anyhow::Result<Option<ExplainRecord>> {
    let path = folder.join(guest::EVENTS);
    if !path.is_file() {
        return Ok(None);
    }
    let mut record: ExplainRecord = record::read_document(&path, EVENTS_FORMAT)?;
    // Where time goes on by instructions only, the host can't stop the guest.
    let lab = fs::read_to_string(folder.join(INPUTS)).unwrap_or_default();
    record.is_guest &= VirtualTime::find(&lab).is_none();
    Ok(Some(record))
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
    for (name, text) in [(RECORD, text_of(all)?), (report::PAGE, report::page(all))] {
        record::write_in(folder, name, text)?;
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
