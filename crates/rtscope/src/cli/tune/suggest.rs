//! `rtscope tune suggest`: from doctor's findings to the commands that change them.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::{
    doctor::{Purpose, diagnose, suggest},
    report::tune as report,
};
use rtscope_measure::doctor as measure;
use rtscope_model::{
    cpu::CpuSet,
    doctor::{MachineFacts, SuggestionDocument},
    time::Nanos,
};

use super::boot;
use crate::{
    cli::{doctor, print},
    exit,
    failure::Refused,
    output::print_folded,
};

/// Suggest settings for what doctor finds
///
/// The most important suggestions come first. Each has the command that applies it, what it costs, and how certain it
/// is. If only a boot parameter makes the change, the suggestion has the line for this machine's boot loader. The
/// command changes nothing.
///
/// Examples:
///   rtscope tune suggest
///   rtscope tune suggest --for ethercat --deadline 200us --cpus 2-3
///   rtscope tune suggest --root /mnt/card
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Purpose of the machine, which sets the deadline and the topics
    #[arg(long = "for", value_name = "PURPOSE", default_value = rtscope_analyse::doctor::PURPOSES[0].name, value_parser = doctor::Names)]
    purpose: &'static Purpose,
    /// Longest latency that the purpose allows, 1us to 10s [default: that of the purpose]
    #[arg(long, value_name = "TIME")]
    deadline: Option<Nanos>,
    /// CPUs of your real-time threads [default: the isolated ones, or the last core]
    #[arg(short, long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Examine the system files below DIR, for example a mounted SD card, instead of this machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let deadline = doctor::deadline(args.deadline, args.purpose)?;
    let facts = measure::collect(&doctor::tree(args.root.as_deref())?);
    refuse_cpus(args.cpus.as_ref(), &facts)?;
    // The running machine's own root is no other system.
    let root = args.root.as_deref().filter(|root| *root != Path::new("/"));
    let root = root.map(|root| root.to_string_lossy());
    let document = diagnose(&facts, args.purpose, deadline.0, env!("CARGO_PKG_VERSION"));
    let found = suggest::suggest(&document, args.purpose, args.cpus.as_ref(), root.as_deref());
    if args.json {
        print(&(serde_json::to_string_pretty(&found)? + "\n"))?;
    } else {
        print_folded(&report::text(&found))?;
        // The words stand in the suggestions, also for who has to add them by hand.
        let place = args.root.as_deref().unwrap_or(Path::new("/"));
        if found.boot_command.is_some()
            && let Err(error) = boot::layout(place, None)
        {
            print_folded(&format!("\nNote: --boot doesn't work here. {error}\n"))?;
        }
    }
    Ok(ExitCode::from(exit::PASS))
}

/// What changes what doctor finds on this machine.
pub(super) fn suggested(
    facts: &MachineFacts,
    purpose: &Purpose,
    deadline: Nanos,
    cpus: Option<&CpuSet>,
) -> SuggestionDocument {
    let document = diagnose(facts, purpose, deadline.0, env!("CARGO_PKG_VERSION"));
    suggest::suggest(&document, purpose, cpus, None)
}

/// Refuses CPUs for real-time threads that the machine doesn't have, and all of them.
fn refuse_cpus(cpus: Option<&CpuSet>, facts: &MachineFacts) -> Result<(), Refused> {
    let online = &facts.environment.cpus.online;
    let Some(cpus) = cpus else { return Ok(()) };
    if cpus.is_empty() || !cpus.without(online).is_empty() {
        return Err(Refused(format!("--cpus {cpus}: this machine has CPUs {online}")));
    }
    if online.without(cpus).is_empty() {
        let text = format!(
            "--cpus {cpus}: these are all the CPUs of this machine; leave at least one for everything else"
        );
        return Err(Refused(text));
    }
    Ok(())
}
