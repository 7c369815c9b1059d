//! `rtscope doctor` and `rtscope collect`: what in the settings of a machine can delay a real-time thread.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::builder::PossibleValue;
use rtscope_analyse::{
    doctor::{PURPOSES, Purpose, against, diagnose},
    report::doctor as report,
};
use rtscope_measure::doctor as measure;
use rtscope_model::{
    doctor::{DoctorDocument, FORMAT, MachineFacts, Readiness},
    time::Nanos,
};
use rtscope_sys::tree::Tree;
use serde_json::json;

use super::{Refused, print};
use crate::{
    exit,
    output::{print_folded, shown},
    record::{self, Destination},
};

/// Find settings that delay real-time threads, and what to change
///
/// rtscope reads the kernel, its command line, CPUs, interrupts, limits, services and boot files. It shows the
/// five worst findings, each with the line that changes the setting on this machine. It changes nothing. A
/// contradiction is two settings that work against each other. If the kernel hides something, rtscope says so.
///
/// The deadline decides how severe a finding is. High: the estimated delay is at least half of the deadline. Medium: it
/// is at least a tenth. rtscope leaves out findings that don't matter, and lists their codes.
///
/// Exit code: 0 no finding of severity high, 1 error, 2 at least one finding of severity high, 3 the files don't show a
/// kernel and its CPUs.
///
/// Examples:
///   rtscope doctor
///   rtscope doctor --for ethercat --deadline 200us
///   rtscope doctor --all
///   rtscope doctor --against other.json --json
///   rtscope doctor --root /mnt/card
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Purpose of the machine, which sets the deadline and the topics
    #[arg(long = "for", value_name = "PURPOSE", default_value = PURPOSES[0].name, value_parser = Names)]
    purpose: &'static Purpose,
    /// Longest latency that the purpose allows, 1us to 10s [default: that of the purpose]
    #[arg(long, value_name = "TIME")]
    deadline: Option<Nanos>,
    /// Show all findings, each with its files, its reason and the cost of the change
    #[arg(long)]
    all: bool,
    /// Examine the system files below DIR, for example a mounted SD card, instead of this machine
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    root: Option<PathBuf>,
    /// Examine what `rtscope collect` or `rtscope doctor --json` wrote
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Compare with FILE, which `rtscope collect` or `rtscope doctor --json` wrote on another machine
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Folder for doctor.json and report.html
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Write what rtscope doctor reads into one file, for a bug report
///
/// The file contains only values that doctor's rules read. It has no host name, user names, addresses or disk
/// identifiers. It does name programs with real-time threads. Look at the file before you publish it.
/// `rtscope doctor --from` examines it on any machine.
///
/// Examples:
///   rtscope collect
///   rtscope collect --out machine.json
///   rtscope collect --root /mnt/card --out -
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct CollectArgs {
    /// Read the system files below DIR, for example a mounted SD card, instead of this machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Write to this file; - is standard output [default: rtscope-runs/collect-TIME.json]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The names of purposes on the command line.
#[derive(Clone, Debug)]
pub(super) struct Names;

impl clap::builder::TypedValueParser for Names {
    type Value = &'static Purpose;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<&'static Purpose, clap::Error> {
        let names = clap::builder::PossibleValuesParser::new(PURPOSES.iter().map(|one| one.name));
        let name = names.parse_ref(command, argument, value)?;
        Ok(Purpose::named(&name).unwrap_or(&PURPOSES[0]))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |purpose: &Purpose| PossibleValue::new(purpose.name).help(purpose.about);
        Some(Box::new(PURPOSES.iter().map(value)))
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let deadline = deadline(args.deadline, args.purpose)?;
    let facts = match &args.from {
        Some(file) => read(file)?.facts,
        None => measure::collect(&tree(args.root.as_deref())?),
    };
    let judge =
        |facts: &MachineFacts| diagnose(facts, args.purpose, deadline.0, env!("CARGO_PKG_VERSION"));
    let document = judge(&facts);
    let other = match &args.against {
        Some(file) => Some((shown(file), against::apart(&document, &judge(&read(file)?.facts)))),
        None => None,
    };
    if let Some(folder) = &args.out {
        let text = serde_json::to_string_pretty(&document)? + "\n";
        record::write_in(folder, "doctor.json", &text)?;
        record::write_in(folder, "report.html", report::page(&document))?;
    }
    if args.json {
        let mut value = serde_json::to_value(&document)?;
        if let Some((_, apart)) = &other {
            value["against"] = json!(apart);
        }
        print(&(serde_json::to_string_pretty(&value)? + "\n"))?;
    } else {
        let other =
            other.map_or(String::new(), |(name, apart)| report::against_text(&apart, &name));
        let page = args.out.as_ref().map_or(String::new(), |folder| {
            format!("\nPage: {}\n", shown(folder.join("report.html")))
        });
        print_folded(&(report::text(&document, args.all) + &other + &page))?;
    }
    Ok(ExitCode::from(match document.readiness {
        Readiness::Ready => exit::PASS,
        Readiness::NotReady => exit::FAIL,
        Readiness::NotKnown => exit::INCONCLUSIVE,
    }))
}

pub(super) fn collect(args: &CollectArgs) -> anyhow::Result<ExitCode> {
    let facts = measure::anonymous(&measure::collect(&tree(args.root.as_deref())?));
    if let Some(folder) = &args.root
        && facts.environment.kernel.release.is_empty()
    {
        note!(
            "found no kernel below {}, so the file contains little; name a folder with copies of proc, sys and etc",
            folder.display()
        );
    }
    let general = &PURPOSES[0];
    let document = diagnose(&facts, general, general.deadline_ns, env!("CARGO_PKG_VERSION"));
    let destination = Destination::new(args.out.as_deref(), "collect", "json");
    let text = serde_json::to_string_pretty(&document)? + "\n";
    if destination.write(text.as_bytes())?
        && let Destination::File(file) = &destination
    {
        print(&format!("{}\nLook at it before you publish it.\n", shown(file)))?;
    }
    Ok(ExitCode::from(exit::PASS))
}

/// A document, or that of a folder that `--out` made.
fn read(file: &Path) -> anyhow::Result<DoctorDocument> {
    let inside = file.join("doctor.json");
    let file = if file.is_dir() { &inside } else { file };
    record::read_document(file, FORMAT).map_err(|error| {
        match error.chain().any(|cause| cause.is::<serde_json::Error>()) {
            true => error.context(
                "name a file that rtscope collect or rtscope doctor --json wrote, or a folder that doctor --out wrote",
            ),
            false => error,
        }
    })
}

/// The deadline that was asked, or that of the purpose.
pub(super) fn deadline(asked: Option<Nanos>, purpose: &Purpose) -> anyhow::Result<Nanos> {
    let deadline = asked.unwrap_or(Nanos(purpose.deadline_ns));
    if !(Nanos::from_us(1)..=Nanos::from_secs(10)).contains(&deadline) {
        return Err(Refused(format!("--deadline {deadline}: it must be from 1us to 10s")).into());
    }
    Ok(deadline)
}

/// The tree to read; a folder that isn't there would be a machine without any fact.
pub(super) fn tree(root: Option<&Path>) -> anyhow::Result<Tree> {
    match root {
        None => Ok(Tree::default()),
        Some(folder) if folder.is_dir() => Ok(Tree::under(folder)),
        Some(folder) => {
            let text = format!(
                "--root {}: no such folder; name one with copies of proc, sys and etc",
                shown(folder)
            );
            Err(Refused(text).into())
        }
    }
}
