//! `rtscope import`: other tools' results as a record.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use rtscope_analyse::{
    import::{self, Import, ImportOptions, ImportReading, Stream},
    instrument,
};
use rtscope_measure::recorder::{self, RecordFiles};
use rtscope_model::{record::Files, time::Nanos, verdict::Requirement};

use super::{Refused, print, wall_clock, wave::import as capture};
use crate::{
    exit,
    input::{begin, pieces},
    output::{note_lines, shown},
    record::{self, Additions, JudgedRecord},
};

/// Read other tools' results as a record, and captures as waves
///
/// rtscope recognises the format of a file by its first lines. Each run in a file becomes a cell;
/// several files become one record, whose cells can be compared. The record is judged and plotted
/// like any other, and its findings list what the file lacks.
///
/// A logic analyser's capture (VCD, or sigrok's CSV) is analysed like one from `rtscope
/// wave capture`. An unknown level (x, z) is a gap. rtscope lists errors in the file and analyses the rest.
///
/// Examples:
///   rtscope import output.txt
///   rtscope import *.json --out before --require 'max < 100us'
///   cyclictest -q -m -Sp90 -h400 -D1h | rtscope import - --interval 1ms
///   rtscope import piscope.vcd --channel 17 --freq 1kHz
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Results of another tool; - is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Folder for the record and the page [default: rtscope-runs/import-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Format of the files: cyclictest, cyclictest-json, rtla, rt-dataset, jitterdebugger, jitterdebugger-text, osadl,
    /// linuxcnc, columns, vcd or sigrok-csv [default: recognised for each file]
    #[arg(short, long)]
    format: Option<String>,
    /// Unit of the latencies: us or ns [default: the unit named in the file, else us]
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Interval of the threads, if the files don't contain it
    #[arg(short, long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// Requirement for every cell, for example 'max < 200us'; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Ignore this finding when computing the verdict; the record keeps the code; repeatable
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
    /// Print the verdict, or the figures of a capture, as one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    capture: capture::Options,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    check(args)?;
    let mut readings = Vec::new();
    for path in &args.files {
        let (head, source) = begin(path, capture::HEAD_BYTES)?;
        if is_capture(args, &head) {
            check_capture(args)?;
            return capture::main(path, source, &args.capture, args.out.as_deref(), args.json);
        }
        if args.capture.are_given() {
            let text = "--channel, --samplerate and --freq are for captures: leave them out, or the --format";
            return Err(Refused(text.to_owned()).into());
        }
        let reading = read(path, source, args.format.as_deref(), options(args, path))?;
        readings.push((stem_of(path), reading));
    }
    let wall_clock = wall_clock();
    let files = files(&wall_clock, args.require.clone(), readings)?;
    let folder = args.out.clone().unwrap_or_else(|| record::fresh_folder("import", &wall_clock));
    recorder::store(&folder, &files)?;
    let additions = Additions { require: Vec::new(), accept: args.accept.clone() };
    let judged = record::judged(&RecordFiles::from(files), &additions)?;
    let page = judged.publish(&folder)?;
    if args.json {
        print(&judged.json()?)?;
        note!("Report: {}", page.display());
    } else {
        print(&judged.summary())?;
        print(&format!("Report: {}\n", shown(&page)))?;
    }
    Ok(exit::of_record(&judged.judgement, true))
}

/// A file of another tool, judged as a record that is kept nowhere.
pub(super) fn judged(path: &Path, additions: &Additions) -> anyhow::Result<JudgedRecord> {
    let (_, source) = begin(path, capture::HEAD_BYTES)?;
    let options = ImportOptions { name: name_of(path), ..ImportOptions::default() };
    let reading = read(path, source, None, options)?;
    let files = files(&wall_clock(), Vec::new(), vec![(stem_of(path), reading)])?;
    record::judged(&RecordFiles::from(files), additions)
}

fn is_capture(args: &Args, head: &[u8]) -> bool {
    match &args.format {
        Some(format) => capture::FORMATS.iter().any(|(name, _)| name == format),
        None => args.capture.are_given() || instrument::is_capture(head),
    }
}

/// Refuses what a capture has not.
fn check_capture(args: &Args) -> Result<(), Refused> {
    let given = [
        ("--require", !args.require.is_empty()),
        ("--accept", !args.accept.is_empty()),
        ("--interval", args.interval.is_some()),
        ("--unit", args.unit.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Refused(format!("{option}: a capture has edges, not latencies; leave it out")));
    }
    match args.files.len() {
        1 => Ok(()),
        _ => Err(Refused("a capture is imported alone: name one file".to_owned())),
    }
}

/// Refuses what no file could be read with.
fn check(args: &Args) -> Result<(), Refused> {
    if let Some(unit) = args.unit.as_deref().filter(|unit| !["us", "ns"].contains(unit)) {
        return Err(Refused(format!("--unit {unit}: write us or ns")));
    }
    if args.interval == Some(Nanos::ZERO) {
        return Err(Refused("--interval 0: write a time, for example 1ms".to_owned()));
    }
    Ok(())
}

fn options(args: &Args, path: &Path) -> ImportOptions {
    let unit_ns = |unit: &str| if unit == "us" { 1_000 } else { 1 };
    ImportOptions {
        name: name_of(path),
        unit_ns: args.unit.as_deref().map(unit_ns),
        interval_ns: args.interval.map(|interval| interval.0),
    }
}

fn files(
    wall_clock: &str,
    require: Vec<Requirement>,
    readings: Vec<(String, ImportReading)>,
) -> anyhow::Result<Files> {
    let import = Import {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().collect(),
        wall_clock: wall_clock.to_owned(),
        require,
    };
    import::files(&import, readings).map_err(anyhow::Error::msg)
}

/// Reads one file piece by piece.
fn read(
    path: &Path,
    source: impl Read + Send,
    format: Option<&str>,
    options: ImportOptions,
) -> anyhow::Result<ImportReading> {
    let known = capture::FORMATS.map(|(name, _)| name).join(", ");
    let mut stream =
        Stream::open(format, options).map_err(|why| Refused(format!("{why}, {known}")))?;
    let failed = || format!("can't read {}", path.display());
    let feed = |piece: &[u8]| {
        stream.feed(piece);
        !stream.is_endless()
    };
    pieces(source, feed).with_context(failed)?;
    let reading = stream.finish();
    if reading.cells.is_empty() && format.is_none() {
        let formats: Vec<String> = import::formats()
            .chain(capture::FORMATS)
            .map(|(name, reads)| format!("  {name:<19} {reads}"))
            .collect();
        let told: Vec<&str> = reading.findings.iter().map(|f| f.text.as_str()).collect();
        note_lines(&format!("supported formats:\n{}", formats.join("\n")));
        bail!("{}", told.join("; "));
    }
    Ok(reading)
}

fn name_of(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => shown(path),
    }
}

/// What a file's cells are called: its name without the ending, unless every folder has such a file.
fn stem_of(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match (stem.as_deref(), path.parent().and_then(Path::file_name)) {
        (Some("-"), _) => "import".to_owned(),
        (Some("results"), Some(folder)) => folder.to_string_lossy().into_owned(),
        (Some(stem), _) => stem.to_owned(),
        (None, _) => "import".to_owned(),
    }
}
