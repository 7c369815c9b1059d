//! `rtscope fleet status`: how far a fleet's run is, without asking the places.

use std::{path::PathBuf, process::ExitCode};

use rtscope_fleet::journal;
use serde_json::json;

use super::judged::{self, Held};
use crate::{
    exit,
    output::{print, print_folded},
};

/// Show the progress of a fleet run
///
/// rtscope reads the folder of `rtscope fleet run`, and connects to no place.
///
/// Examples:
///   rtscope fleet status rtscope-runs/fleet-quick-20260101T000000
///   rtscope fleet status before --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Folder of the fleet run
    folder: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let order = journal::read_order(&args.folder)?;
    let jobs = journal::read_jobs(&args.folder)?;
    let rows: Vec<(&String, usize, String, String)> = order
        .places
        .keys()
        .map(|place| {
            let all = jobs.get(place).map(Vec::as_slice).unwrap_or_default();
            let at = all.last().map(|job| job.at.clone()).unwrap_or_default();
            let step = match judged::held(all) {
                Held::Record(..) => "done".to_owned(),
                Held::Open(step) => step.to_owned(),
                Held::Nothing(why) => format!("no record: {why}"),
            };
            (place, all.len(), step, at)
        })
        .collect();
    if args.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(place, tries, step, at)| {
                json!({ "place": place, "tries": tries, "step": step, "since": at })
            })
            .collect();
        print(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
        return Ok(ExitCode::from(exit::PASS));
    }
    let width = rows.iter().map(|(place, ..)| place.len()).max().unwrap_or(0);
    let lines: Vec<String> = rows
        .iter()
        .map(|(place, _, step, at)| match at.is_empty() {
            true => format!("{place:width$}  {step}\n"),
            false => format!("{place:width$}  {step} (since {at})\n"),
        })
        .collect();
    print_folded(&lines.concat())?;
    if judged::open_jobs(&jobs).next().is_some() {
        print_folded(
            "\nSome places may still have a job: `rtscope fleet collect` fetches the records and releases the places.\n",
        )?;
    }
    Ok(ExitCode::from(exit::PASS))
}
