//! `rtscope lab compare`: the worst wake-ups of two guests beside each other, by the instructions that they executed.

use std::{path::PathBuf, process::ExitCode};

use anyhow::anyhow;
use rtscope_analyse::report::compare_lab as report;
use rtscope_measure::signals::Interrupt;

use super::{
    explain::explained,
    guest_options::{self},
};
use crate::{
    cli::{ending, print, print_folded},
    exit,
    output::shown,
    record,
};

/// Compare two guests by the instructions of their worst wake-ups
///
/// rtscope replays both records as `rtscope lab explain` does. It sets the worst wake-ups of each phase side by side:
/// where the time went, and how many instructions each section of the path took. These counts are exact. If the path
/// from the interrupt to the wake-up became 200 instructions longer, the difference is 200, on any machine.
///
/// With --longer-by N, the exit code says whether a section of the shortest path became longer by more than N
/// instructions. This suits continuous integration: compare the kernel before a change with the one after it.
///
/// The page explain-compare.html is written into the second record's folder.
///
/// Exit code: 0. With --longer-by: 2 if a section became longer by more than N instructions.
///
/// Examples:
///   rtscope lab compare lab/debian-stock-seed1 lab/debian-rt-seed1
///   rtscope lab compare old/mine-seed1 new/mine-seed1 --longer-by 50
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The folder of the first record
    record: PathBuf,
    /// The folder of the record that is compared with it
    other: PathBuf,
    /// Phase to compare, as the plan calls it [default: all]
    #[arg(long, value_name = "PHASE")]
    cell: Vec<String>,
    /// Number of the worst wake-ups of each phase to explain, 1 to 8. With more wake-ups, rtscope may
    /// find a shorter path
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=8))]
    worst: u8,
    /// Exit with 2 if a section of the shortest path takes more than N instructions longer in the second record
    #[arg(long, value_name = "N")]
    longer_by: Option<u64>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// Folder of kernels and images [default: that of `lab cache list`]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let cache = guest_options::cache_at(args.cache.as_ref());
    let interrupt = Interrupt::install()?;
    ending::of_programs(&interrupt);
    let explain = |folder| explained(folder, &args.cell, args.worst, &cache, &interrupt);
    let (first, second) = (explain(&args.record)?, explain(&args.other)?);
    let all = report::compare(&first, &second).ok_or_else(|| {
        anyhow!("the two records have no phase in common: compare records of the same plan")
    })?;
    let page = report::page(&all, [&first, &second]);
    let page = record::write_in(&args.other, report::PAGE, page)?;
    if args.json {
        note!("Report: {}", page.display());
        print(&(serde_json::to_string_pretty(&all)? + "\n"))?;
    } else {
        print_folded(&format!("{}\nReport: {}\n", report::table(&all), shown(&page)))?;
    }
    let Some(limit) = args.longer_by else { return Ok(ExitCode::from(exit::PASS)) };
    let longer = report::longer_than(&all, limit);
    longer.iter().for_each(|line| note!("{line}"));
    Ok(ExitCode::from(if longer.is_empty() { exit::PASS } else { exit::FAIL }))
}
