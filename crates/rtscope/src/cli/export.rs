//! `rtscope export`: a record in the forms that other programs read.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::builder::PossibleValue;
use rtscope_analyse::export::{
    BuildId, Exported, FORMATS, Format, Lateness, PublishedFiles, Submission, SubmissionOrigin,
    TRACE_FORMATS, TraceFormat,
};
use rtscope_fleet::{journal, pull_lab::http};
use rtscope_model::verdict::Requirement;

use super::{Refused, compare::split, explain, fleet, print_bytes};
use crate::{
    exit,
    record::{self, Additions},
};

/// Write a record for other programs: CSV, JUnit, OpenMetrics...
///
/// The formats are CSV, JSON, those of cyclictest and OSADL, JUnit, KTAP, LAVA, KernelCI, OpenMetrics and more;
/// --format lists them.
///
/// FOLDER@CELL is one cell of a record; the formats of cyclictest and OSADL and the percentile table
/// can hold only one cell. A single format goes to standard output or to --out, several formats go to
/// files in the folder --out. rtscope writes a file under another name and renames it, so that no
/// reader sees half of it. The exit code is 0, whatever the verdict. `rtscope plot` draws SVG and PNG.
///
/// FOLDER may be that of `rtscope fleet run`: junit, ktap, kcidb and openmetrics then hold all places.
///
/// The formats perfetto and trace.dat hold the late activations of `rtscope explain` and
/// `rtscope run --explain`: FOLDER is then the folder of either, or its explain.json.
///
/// Examples:
///   rtscope export run --format junit --out results.xml
///   rtscope export run -f openmetrics --out /var/lib/node_exporter/rtscope.prom
///   rtscope export run@rest --format cyclictest | grep 'Max Latencies'
///   rtscope export run --format csv,csv-histogram,markdown --out results
///   rtscope export run -f kcidb --origin my_lab --build-id maestro:6870c1b2
///   rtscope export run -f kcidb --base-url https://results.example/run
///   rtscope export rtscope-runs/explain-1 -f perfetto --out late.perfetto-trace
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The record's folder, or FOLDER@CELL
    run: String,
    /// Format to write; several separated by commas
    #[arg(short, long, required = true, value_delimiter = ',', value_parser = Names)]
    format: Vec<Choice>,
    /// Write to this file, or with several formats to this folder; - is standard output, as is the default
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Requirement besides those of the plan; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Ignore this finding when computing the verdict; repeatable
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
    /// Name that KernelCI gave to your CI system, for kcidb [default: rtscope]
    #[arg(long, value_name = "NAME")]
    origin: Option<SubmissionOrigin>,
    /// Kernel build that was tested, as KernelCI names it, for kcidb [default: a build of its own, named by the kernel]
    #[arg(long, value_name = "ORIGIN:ID")]
    build_id: Option<BuildId>,
    /// Address at which others can read the files of FOLDER, for the links in kcidb
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut figures, mut traces) = (Vec::new(), Vec::new());
    for choice in &args.format {
        match choice {
            Choice::Figures(format) => figures.push(*format),
            Choice::Trace(format) => traces.push(*format),
        }
    }
    let has_names = args.origin.is_some() || args.build_id.is_some() || args.base_url.is_some();
    if has_names && figures.iter().all(|format| format.name != "kcidb") {
        let text = "--origin, --build-id and --base-url are for the format kcidb";
        return Err(Refused(text.to_owned()).into());
    }
    args.base_url.as_deref().map_or(Ok(()), http::check_address).map_err(Refused)?;
    let mut documents = Vec::new();
    if !figures.is_empty() {
        figures_of(args, &figures, &mut documents)?;
    }
    if !traces.is_empty() {
        traces_of(Path::new(&args.run), &traces, &mut documents)?;
    }
    match (documents.as_slice(), &args.out) {
        ([(_, document)], None) => print_bytes(document)?,
        ([(_, document)], Some(file)) if file.as_os_str() == "-" => print_bytes(document)?,
        ([(_, document)], Some(file)) => write(file, document)?,
        (_, None) => {
            let text = "several formats need a folder for their files, for example --out results";
            return Err(Refused(text.to_owned()).into());
        }
        (several, Some(folder)) => {
            record::make_folder(folder)?;
            for (name, document) in several {
                write(&folder.join(name), document)?;
            }
        }
    }
    Ok(ExitCode::from(exit::PASS))
}

/// A document with the name of its file in a folder.
type Document = (String, Vec<u8>);

/// The figures of a record, or of the places of a fleet.
fn figures_of(
    args: &Args,
    formats: &[&'static Format],
    documents: &mut Vec<Document>,
) -> anyhow::Result<()> {
    let (folder, cell) = split(&args.run);
    let cell = cell.as_deref();
    let additions = Additions { require: args.require.clone(), accept: args.accept.clone() };
    let origin = args.origin.clone().unwrap_or_default();
    let base_url = args.base_url.clone().unwrap_or_default();
    let files = PublishedFiles { base_url, names: Vec::new() };
    let submission = Submission { origin, build: args.build_id.clone(), files };
    let written = match journal::is_fleet(&folder) {
        true => fleet::exported::documents((&folder, cell), &additions, &submission, formats)?,
        false => of_record((&folder, cell), &additions, &submission, formats)?,
    };
    for (format, document) in formats.iter().zip(written) {
        documents.push((format!("{}.{}", format.name, format.ending), document));
    }
    Ok(())
}

fn of_record(
    (folder, cell): (&Path, Option<&str>),
    additions: &Additions,
    submission: &Submission,
    formats: &[&'static Format],
) -> anyhow::Result<Vec<Vec<u8>>> {
    // Each wake-up takes memory: only where it is asked for.
    let judged = match formats.iter().any(|format| format.name == "csv-samples") {
        true => record::open_with_samples(folder, additions)?,
        false => record::open(folder, additions)?,
    };
    let mut subject = Exported::new(&judged.record, &judged.judgement, cell).map_err(Refused)?;
    subject.submission = with_files(submission, "", folder);
    let write = |format: &&'static Format| {
        let document = format.write(&subject);
        Ok(document.map_err(|why| Refused(format!("{}: {why}", format.name)))?)
    };
    formats.iter().map(write).collect()
}

/// Names the files in a record's folder, where others can read them: `below` is its path from the address that was given.
pub(super) fn with_files(submission: &Submission, below: &str, folder: &Path) -> Submission {
    let mut submission = submission.clone();
    if submission.files.base_url.is_empty() {
        return submission;
    }
    let base_url = submission.files.base_url.trim_end_matches('/');
    submission.files.base_url = format!("{base_url}/{below}");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut names: Vec<String> =
        files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    submission.files.names = names;
    submission
}

/// The late activations of a folder, or of its `explain.json`.
fn traces_of(
    path: &Path,
    formats: &[&'static TraceFormat],
    documents: &mut Vec<Document>,
) -> anyhow::Result<()> {
    let folder = match path.is_dir() {
        true => path,
        false => path.parent().unwrap_or(Path::new("")),
    };
    let record = explain::read_record(path)?;
    let pages = folder.join(explain::PAGES);
    let pages = match pages.is_file() {
        true => {
            Some(std::fs::read(&pages).with_context(|| format!("can't read {}", pages.display()))?)
        }
        false => None,
    };
    let lateness = Lateness { record: &record, pages: pages.as_deref() };
    for format in formats {
        let document = format.write(&lateness);
        let document = document.map_err(|why| Refused(format!("{}: {why}", format.name)))?;
        documents.push((format!("late.{}", format.ending), document));
    }
    Ok(())
}

/// Writes a file whole, and says which on standard error: standard output is for documents.
fn write(path: &Path, document: &[u8]) -> anyhow::Result<()> {
    record::write(path, document)?;
    note!("{}", path.display());
    Ok(())
}

/// A format of figures, or of late activations.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Figures(&'static Format),
    Trace(&'static TraceFormat),
}

impl Choice {
    /// All formats, as they are listed.
    fn all() -> impl Iterator<Item = Choice> {
        FORMATS.iter().map(Choice::Figures).chain(TRACE_FORMATS.iter().map(Choice::Trace))
    }

    fn name(self) -> &'static str {
        match self {
            Choice::Figures(format) => format.name,
            Choice::Trace(format) => format.name,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Choice::Figures(format) => format.what,
            Choice::Trace(format) => format.what,
        }
    }
}

/// Reads a format's name, and lists all of them with what they are.
#[derive(Clone, Debug)]
struct Names;

impl clap::builder::TypedValueParser for Names {
    type Value = Choice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let names = clap::builder::PossibleValuesParser::new(Choice::all().map(Choice::name));
        let name = names.parse_ref(command, argument, value)?;
        let known = Choice::all().find(|choice| choice.name() == name);
        known.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidValue))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Choice::all().map(|one| PossibleValue::new(one.name()).help(one.what()))))
    }
}
