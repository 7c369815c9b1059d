//! `rtscope claim`: how long a run must be to back a claim, and whether a run backs it.

use std::{path::PathBuf, process::ExitCode};

use rtscope_analyse::{
    judgement::CellSummary,
    number::counted,
    statistics::{claim, quantile},
};
use rtscope_model::{time::Nanos, verdict::Verdict};
use serde_json::json;

use super::{Refused, print};
use crate::{
    exit,
    record::{self, Terms},
};

/// How long must I run to claim "at most once in this time"?
///
/// Without a record it says how long. With one it says, for each cell, whether the run backs the
/// claim at 95 %: exit 0 backed, 2 not so, 3 still open.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A record that shall back the claim
    run: Option<PathBuf>,
    /// The latency that must not be reached; needed with a record
    #[arg(short, long, value_name = "LATENCY")]
    limit: Option<Nanos>,
    /// It is reached at most once in this time of a thread, as 1d
    #[arg(short, long, value_name = "DURATION")]
    once_in: Nanos,
    /// Threads that are watched side by side
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: u64,
    /// Time between two wake-ups of a thread
    #[arg(long, default_value = "1ms", value_name = "DURATION")]
    interval: Nanos,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Exceedances up to which the table goes.
const SEEN_MAX: u64 = 3;

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if args.once_in == Nanos::ZERO || args.interval == Nanos::ZERO {
        return Err(Refused("--once-in and --interval must be more than 0".to_owned()).into());
    }
    match (&args.run, args.limit) {
        (None, _) => plan_ahead(args),
        (Some(run), Some(limit)) => hold_against(args, run, limit),
        (Some(_), None) => Err(Refused("say which latency: --limit 200us".to_owned()).into()),
    }
}

/// How long it takes, by what may be seen on the way.
fn plan_ahead(args: &Args) -> anyhow::Result<ExitCode> {
    let needed: Vec<(u64, Nanos)> =
        (0..=SEEN_MAX).map(|seen| (seen, claim::exposure_for(args.once_in, seen))).collect();
    let wall = |needed: Nanos| Nanos(needed.0.div_ceil(args.threads));
    let wakeups = needed[0].1.0 / args.interval.0;
    if args.json {
        let row = |&(seen, needed): &(u64, Nanos)| json!({ "seen": seen, "exposure_ns": needed.0, "wall_ns": wall(needed).0 });
        let document = json!({
            "once_in_ns": args.once_in.0,
            "threads": args.threads,
            "needed": needed.iter().map(row).collect::<Vec<_>>(),
            "wakeups": wakeups,
            "beyond_max": (wakeups > 0).then(|| quantile::beyond_max(wakeups)),
        });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
        return Ok(ExitCode::from(exit::PASS));
    }
    let limit =
        args.limit.map_or_else(|| "a latency".to_owned(), |limit| format!("{limit} or more"));
    let mut text = format!(
        "To claim at 95 % that {limit} comes at most once in {} of a thread's time, watch {}:\n",
        args.once_in,
        counted(args.threads, "thread")
    );
    for (seen, needed) in &needed {
        let met = if *seen == 0 { "if none comes".to_owned() } else { format!("if {seen} come") };
        text += &format!("  {met:<14} {}\n", wall(*needed));
    }
    text += &format!(
        "At one wake-up in {} that is {}: {}.\n",
        args.interval,
        counted(wakeups, "wake-up"),
        quantile::coverage_sentence(wakeups)
    );
    print(&text)?;
    Ok(ExitCode::from(exit::PASS))
}

/// What a run makes of the claim, cell by cell.
fn hold_against(args: &Args, run: &std::path::Path, limit: Nanos) -> anyhow::Result<ExitCode> {
    let judged = record::open(run, &Terms::default())?;
    let claimed = |cell: &CellSummary| {
        let all = &cell.all;
        (cell.name.clone(), claim::of(&all.histogram, all.exposure_ns, limit, args.once_in))
    };
    let cells: Vec<_> = judged.judgement.cells.iter().map(claimed).collect();
    let any = |verdict| cells.iter().any(|(_, claim)| claim.verdict == verdict);
    let verdict = if any(Verdict::Fail) {
        Verdict::Fail
    } else if any(Verdict::Inconclusive) || cells.is_empty() {
        Verdict::Inconclusive
    } else {
        Verdict::Pass
    };
    if args.json {
        let cells: Vec<_> = cells
            .iter()
            .map(|(name, claim)| json!({ "name": name, "claim": claim, "sentence": claim.sentence() }))
            .collect();
        let document = json!({ "verdict": verdict, "cells": cells });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        for (name, claim) in &cells {
            print(&format!("{name}: {}\n", claim.sentence()))?;
        }
    }
    Ok(exit::of_verdict(verdict))
}
