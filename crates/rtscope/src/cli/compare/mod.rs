//! `rtscope compare`: two sides, what changed, and what else differs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::{
    compare::{self, ComparedRun, Comparison},
    report,
};
use rtscope_model::{time::Nanos, verdict::Requirement};

use super::{
    Refused, import,
    wave::{self, import as capture},
};
use crate::{
    exit, lab_folder,
    output::{shown, style},
    record::{self, Additions, Destination, JudgedRecord},
};

/// Compare two sides: do they differ, in what, and by how much
///
/// The first line says whether the sides differ, and in which figures. It allows for the number of figures that
/// were compared. With four or more runs on each side, equal systems are called different in at most about 5 % of
/// comparisons.
///
/// A side is one record or several. Name each record only once. A record is a folder, or the file of
/// another tool that `rtscope import` reads. FOLDER@CELL is one cell of it, so that two loads of one run can be
/// compared. A folder that `rtscope lab run` wrote stands for all of its records, one run for each seed. If it
/// holds several kernels, name one of them: FOLDER@KERNEL or FOLDER@KERNEL@CELL. With two runs or more on each
/// side, the intervals include the differences between runs. Measure three or
/// more of each side, alternately (A B A B A B). Options come before the records.
/// The exit code is 0 even if the sides differ.
///
/// Two captures of the same wave are compared edge by edge. A capture is a file of a logic analyser, or a folder of
/// `rtscope import` or `rtscope wave capture --out`. Their clocks may have different zeros and rates. rtscope
/// computes offset and drift; the remaining differences are the jitter of one or the other. An edge without a partner
/// within a quarter of a period is missing in the other capture. Edges in the gaps of the other capture are counted
/// separately.
///
/// Examples:
///   rtscope compare stock -- rt
///   rtscope compare --limit 50us run@rest -- 'run@message load'
///   rtscope compare a1 a2 a3 -- b1 b2 b3
///   rtscope compare lab@debian-stock -- lab@debian-rt
///   rtscope compare cyclictest-before.txt cyclictest-after.txt
///   rtscope compare --channel pin --channel D0 software analyser.vcd
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Records of A; with two and no `--`, the second is B
    #[arg(required = true)]
    a: Vec<String>,
    /// Records of B
    #[arg(last = true)]
    b: Vec<String>,
    /// Compare at this latency too, not only at the limits of the requirements; repeatable
    #[arg(short, long, value_name = "LATENCY")]
    limit: Vec<Nanos>,
    /// Requirement for both sides, besides those of their plans; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Write the page to FILE; - is standard output [default: rtscope-runs/compare-TIME.html]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    capture: capture::Options,
}

/// A record and the cell that was asked for.
pub(in crate::cli) struct Opened {
    name: String,
    cell: Option<String>,
    judged: JudgedRecord,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (a, b) = sides(&args.a, &args.b)?;
    let out = Destination::new(args.out.as_deref(), "compare", "html");
    out.refuse_two(args.json)?;
    if let Some([a, b]) = captures(args, a, b)? {
        return wave::compare::main([&a, &b], &args.capture, &out, args.json);
    }
    let runs = |side: &[String]| -> anyhow::Result<Vec<String>> {
        let records: Vec<_> =
            side.iter().map(|name| lab_folder::records(name)).collect::<Result<_, _>>()?;
        Ok(records.concat())
    };
    let (a, b) = (runs(a)?, runs(b)?);
    refuse_repeated(a.iter().chain(&b))?;
    let limits_ns: Vec<u64> = args.limit.iter().map(|limit| limit.0).collect();
    let comparison = between(&a, &b, &args.require, &limits_ns)?;
    let document = args.json.then(|| serde_json::to_string_pretty(&comparison)).transpose()?;
    let text = || report::compare::text(&comparison, style()) + "\n";
    out.publish(&report::compare::page(&comparison), document, text)?;
    Ok(ExitCode::from(exit::PASS))
}

/// The sides of `A B` or `A... -- B...`.
pub(in crate::cli) fn sides<'a>(
    a: &'a [String],
    b: &'a [String],
) -> anyhow::Result<(&'a [String], &'a [String])> {
    let (a, b) = match (a, b) {
        ([a, b], []) => (std::slice::from_ref(a), std::slice::from_ref(b)),
        (_, []) => return Err(Refused("name the records of B after `--`".to_owned()).into()),
        sides => sides,
    };
    if let Some(option) = b.iter().find(|name| name.starts_with('-') && !Path::new(name).exists()) {
        let text = format!("{option} comes after `--`: write options before the records");
        return Err(Refused(text).into());
    }
    Ok((a, b))
}

/// Refuses a record that is named twice, on one side or on both: its latencies would count as another run's.
fn refuse_repeated<'a>(names: impl Iterator<Item = &'a String>) -> anyhow::Result<()> {
    let mut known: Vec<(PathBuf, Option<String>)> = Vec::new();
    for name in names {
        let (folder, cell) = split(name);
        // What isn't there is told when it is opened.
        let Ok(path) = std::fs::canonicalize(&folder) else { continue };
        let is_same = |(other, other_cell): &(PathBuf, Option<String>)| {
            let share_cell = match (&cell, other_cell) {
                (Some(a), Some(b)) => compare::is_cell(a, b) || compare::is_cell(b, a),
                _ => true,
            };
            *other == path && share_cell
        };
        if known.iter().any(is_same) {
            let text = format!("{name} is named twice: each record is one run, name it once");
            return Err(Refused(text).into());
        }
        known.push((path, cell));
    }
    Ok(())
}

/// The two captures, where the sides are captures; none where they are records.
fn captures(args: &Args, a: &[String], b: &[String]) -> anyhow::Result<Option<[PathBuf; 2]>> {
    let find = |name: &String| capture::capture_of(Path::new(name), &args.capture);
    let side = |names: &[String]| names.iter().map(find).collect::<anyhow::Result<Vec<_>>>();
    let found = [side(a)?, side(b)?];
    let all = || found.iter().flatten();
    if all().all(Option::is_none) {
        return match args.capture.are_given() {
            true => {
                let text = "--channel, --samplerate and --freq are for captures, but these are records: leave \
                            them out";
                Err(Refused(text.to_owned()).into())
            }
            false => Ok(None),
        };
    }
    if let Some((name, _)) = a.iter().chain(b).zip(all()).find(|(_, found)| found.is_none()) {
        let text = format!(
            "{name} is not a capture, but the other side is: compare a capture with a capture, or a record with \
             a record"
        );
        return Err(Refused(text).into());
    }
    match (&found[0][..], &found[1][..]) {
        ([Some(a)], [Some(b)]) => Ok(Some([a.clone(), b.clone()])),
        _ => {
            Err(Refused("captures are compared two at a time: name one on each side".to_owned())
                .into())
        }
    }
}

/// Compares records by their names on the command line.
pub(super) fn between(
    a: &[String],
    b: &[String],
    require: &[Requirement],
    limits_ns: &[u64],
) -> anyhow::Result<Comparison> {
    let require = shared_requirements(a.iter().chain(b), require)?;
    let open = |names: &[String]| -> anyhow::Result<Vec<Opened>> {
        names.iter().map(|name| opened(name, &require)).collect()
    };
    let (a, b) = (open(a)?, open(b)?);
    Ok(compare::compare(&runs(&a), &runs(&b), limits_ns))
}

pub(super) fn write_page(comparison: &Comparison, out: &Path) -> anyhow::Result<()> {
    record::write(out, report::compare::page(comparison))
}

/// The requirements of every plan and those of the command line: both sides are held to all of them.
pub(in crate::cli) fn shared_requirements<'a>(
    names: impl Iterator<Item = &'a String>,
    asked: &[Requirement],
) -> anyhow::Result<Vec<Requirement>> {
    let mut all = asked.to_vec();
    for name in names {
        let (folder, _) = split(name);
        if folder.is_file() {
            continue;
        }
        for requirement in record::read_plan(&folder)?.require {
            if !all.contains(&requirement) {
                all.push(requirement);
            }
        }
    }
    Ok(all)
}

/// A folder, and the cell after the last `@`, unless the whole is a folder's name.
pub(super) fn split(name: &str) -> (PathBuf, Option<String>) {
    match name.rsplit_once('@') {
        Some((folder, cell)) if !Path::new(name).exists() => {
            (PathBuf::from(folder), Some(cell.to_owned()))
        }
        _ => (PathBuf::from(name), None),
    }
}

pub(in crate::cli) fn opened(name: &str, require: &[Requirement]) -> anyhow::Result<Opened> {
    let (folder, cell) = split(name);
    let additions = Additions { require: require.to_vec(), accept: Vec::new() };
    let judged = match folder.is_file() {
        true => import::judged(&folder, &additions)?,
        false => record::open(&folder, &additions)?,
    };
    let cells = &judged.judgement.cells;
    if let Some(cell) = &cell
        && !cells.iter().any(|known| compare::is_cell(cell, &known.name))
    {
        let names: Vec<&str> = cells.iter().map(|known| known.name.as_str()).collect();
        let text = format!(
            "{} has no cell {cell:?}; its cells are {}",
            folder.display(),
            names.join(", ")
        );
        return Err(Refused(text).into());
    }
    Ok(Opened { name: shown(&folder), cell, judged })
}

pub(in crate::cli) fn runs(side: &[Opened]) -> Vec<ComparedRun<'_>> {
    side.iter()
        .map(|opened| ComparedRun {
            name: &opened.name,
            record: &opened.judged.record,
            judgement: &opened.judged.judgement,
            cell: opened.cell.as_deref(),
        })
        .collect()
}
