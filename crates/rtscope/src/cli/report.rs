//! `rtscope report`: verdict and page from a record alone.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::report::terminal::verdict_line;
use rtscope_model::verdict::{Requirement, Verdict};

use super::{error_text, print};
use crate::{
    exit, lab_folder,
    output::{print_folded, shown},
    record::{self, Additions, Destination},
};

/// Judge a record again, and write its verdict and its page
///
/// A folder that `rtscope lab run` or `lab matrix` wrote stands for all of its records: rtscope judges each, writes
/// its page, and prints one line with its verdict. The page and the document that compare them (index.html,
/// comparison.json) keep the verdict of the run.
///
/// The run of the record may have been killed. Then rtscope judges what was recorded until then, and
/// the verdict says that the record isn't complete. If rtscope can't write the page, it still prints
/// the figures.
///
/// Examples:
///   rtscope report run
///   rtscope report run --require 'max < 200us' --json
///   rtscope report /srv/records/run --out page.html
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The record's folder
    run: PathBuf,
    /// Requirement besides those of the plan; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Ignore this finding when computing the verdict, now and in later reports: the record keeps the code in
    /// accepted.json; repeatable
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
    /// Write the page to this file or folder, and nothing into the record; - is standard output
    /// [default: report.html in the record's folder, with verdict.json]
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Print the verdict as one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let additions = Additions { require: args.require.clone(), accept: args.accept.clone() };
    let out = args.out.as_deref().map(Destination::named);
    out.iter().try_for_each(|out| out.refuse_two(args.json))?;
    if !record::is_one(&args.run)
        && out.is_none()
        && !args.json
        && let Some(records) = lab_folder::all(&args.run)?
    {
        return all(&args.run, &records, &additions);
    }
    let judged = record::open(&args.run, &additions)?;
    let page = match &out {
        None => judged.publish(&args.run),
        Some(Destination::File(out)) => judged.write_page(out),
        Some(out) => {
            out.write(judged.page().as_bytes())?;
            return Ok(exit::of_record(&judged.judgement, true));
        }
    };
    print(&if args.json { judged.json()? } else { judged.summary() })?;
    match &page {
        Ok(page) if !args.json => print(&format!("Report: {}\n", shown(page)))?,
        Ok(_) => {}
        Err(e) => {
            note!(
                "rtscope: no page was written: {}; name another place for it with --out",
                error_text(e)
            );
        }
    }
    Ok(exit::of_record(&judged.judgement, page.is_ok()))
}

/// Judges every record of a lab's folder. The exit code is that of the worst verdict.
fn all(folder: &Path, records: &[PathBuf], additions: &Additions) -> anyhow::Result<ExitCode> {
    let mut verdicts = Vec::new();
    for path in records {
        let judged = record::open(path, additions)?;
        judged.publish(path)?;
        print_folded(&format!("{}: {}\n", shown(path), verdict_line(&judged.judgement)))?;
        verdicts.push(judged.judgement.verdict);
    }
    let page = folder.join("index.html");
    if page.exists() {
        print_folded(&format!("Comparison of all: {}\n", shown(page)))?;
        if !(additions.require.is_empty() && additions.accept.is_empty()) {
            print_folded(
                "The comparison keeps the verdict of its run. To apply these requirements to it, repeat the command \
                 that made the folder and add them: it boots no guest.\n",
            )?;
        }
    }
    Ok(exit::of_verdict(Verdict::worst(verdicts).unwrap_or(Verdict::Measured)))
}
