//! `rtscope claim`: how long a run must be to back a claim, and whether a run backs it.

use std::{path::PathBuf, process::ExitCode};

use rtscope_analyse::{
    judgement::{CellSummary, RequirementOutcome},
    number::counted,
    statistics::{
        claim::{self, Claim},
        quantile,
    },
};
use rtscope_model::{
    finding::Weight,
    time::{Nanos, Rounding},
    verdict::{Requirement, Statistic, Verdict},
};
use serde_json::json;

use super::{Refused, print};
use crate::{exit, output::print_folded, record};

/// Check a claim such as "once in 1h", or plan how long to measure
///
/// A claim says that wake-ups reach a latency limit at most once in a given time,
/// for example once in 1h. Without a record rtscope computes how long you must
/// measure to back the claim.
///
/// With a record, rtscope says for each phase whether the record backs the claim with 95 %
/// confidence. You may extend a run until the claim holds: the answer allows for
/// that. Time is wall time. Exceedances that are close together, on any thread,
/// count as one event.
///
/// A record that is Inconclusive backs no claim, and neither does an import.
///
/// Exit code: 0 backed, 2 refuted, 3 still open.
///
/// Examples:
///   rtscope claim --once-in 1d
///   rtscope claim my-run --limit 200us --once-in 1h
///   rtscope run --until 'max < 200us once in 1h'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Record to check the claim against
    run: Option<PathBuf>,
    /// Latency limit; required with a record
    #[arg(short, long, value_name = "LATENCY")]
    limit: Option<Nanos>,
    /// Claimed rate: at most one event per DURATION, for example 1d
    #[arg(long, value_name = "DURATION")]
    once_in: Nanos,
    /// Time between two wake-ups of a thread
    #[arg(short, long, default_value = "1ms", value_name = "DURATION")]
    interval: Nanos,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Events up to which the table goes.
const EVENTS_MAX: u64 = 3;

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if args.once_in == Nanos::ZERO || args.interval == Nanos::ZERO {
        return Err(Refused("--once-in and --interval must be more than 0".to_owned()).into());
    }
    match (&args.run, args.limit) {
        (None, _) => plan_ahead(args),
        (Some(run), Some(limit)) => check(args, run, limit),
        (Some(_), None) => {
            Err(Refused("add the latency limit, for example --limit 200us".to_owned()).into())
        }
    }
}

/// How long it takes, by the number of events on the way.
fn plan_ahead(args: &Args) -> anyhow::Result<ExitCode> {
    let needed: Vec<(u64, Nanos)> =
        (0..=EVENTS_MAX).map(|events| (events, claim::time_for(args.once_in, events))).collect();
    let wakeups = needed[0].1.0 / args.interval.0;
    if args.json {
        let row = |&(events, wall): &(u64, Nanos)| json!({ "events": events, "wall_ns": wall.0 });
        let document = json!({
            "once_in_ns": args.once_in.0,
            "needed": needed.iter().map(row).collect::<Vec<_>>(),
            "wakeups": wakeups,
            "beyond_max": (wakeups > 0).then(|| quantile::beyond_max(wakeups)),
        });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
        return Ok(ExitCode::from(exit::PASS));
    }
    let limit = args
        .limit
        .map_or_else(|| "a latency".to_owned(), |limit| format!("{} or more", limit.unrounded()));
    let mut text = format!(
        "To claim with 95 % confidence that {limit} occurs at most once in {}, measure for:\n",
        args.once_in
    );
    for (events, needed) in &needed {
        let seen = match events {
            0 => "no event".to_owned(),
            n => counted(*n, "event"),
        };
        let needed = needed.rounded(Rounding::Up);
        text += &format!("  {needed:<18} with {seen}\n");
    }
    text += &format!(
        "One thread that wakes every {} then has {}. If they are independent: {}.\n",
        args.interval,
        counted(wakeups, "wake-up"),
        quantile::coverage_sentence(wakeups)
    );
    print_folded(&text)?;
    Ok(ExitCode::from(exit::PASS))
}

/// What a phase says about the claim. One that its figures would decide is open when something speaks against
/// the record.
fn answer(outcome: &RequirementOutcome) -> String {
    let Some(why) = &outcome.withheld_because else { return outcome.sentence.clone() };
    let would = if outcome.figures_verdict == Verdict::Fail { "refute" } else { "back" };
    format!(
        "still open: the figures would {would} the claim, but the record is inconclusive because {why}. A longer run \
         doesn't change that"
    )
}

/// What a record says about the claim, phase by phase. It is judged as a record is that requires the
/// claim and nothing else.
fn check(args: &Args, run: &std::path::Path, limit: Nanos) -> anyhow::Result<ExitCode> {
    let asked =
        Requirement { statistic: Statistic::Max, limit: limit.0, once_in: Some(args.once_in) };
    let judged = record::open_for(run, asked)?;
    let judgement = &judged.judgement;
    if args.json {
        let cell = |cell: &CellSummary| {
            let outcome = judgement.outcomes.iter().find(|outcome| outcome.cell == cell.cell);
            let claimed = claim::of_cell(&judged.record, cell, limit, args.once_in);
            json!({
                "name": cell.name,
                "claim": claimed.map(|claim| Claim { verdict: outcome.map_or(claim.verdict, |o| o.verdict), ..claim }),
                "sentence": outcome.map(answer),
            })
        };
        let document = json!({
            "verdict": judgement.verdict,
            "reasons": judgement.reasons,
            "cells": judgement.cells.iter().map(cell).collect::<Vec<_>>(),
        });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
        return Ok(exit::of_verdict(judgement.verdict));
    }
    let mut text = String::new();
    if judgement.verdict == Verdict::Inconclusive {
        let against = judgement.findings.iter().filter(|f| f.weight >= Weight::PreventsPass);
        against.for_each(|f| {
            text += &format!("This record backs no claim: {} [{}]\n", f.text, f.code)
        });
    }
    text +=
        &format!("{} or more at most once in {}\n", limit.unrounded(), args.once_in.unrounded());
    for outcome in &judgement.outcomes {
        text += &format!("  {}: {}\n", outcome.name, answer(outcome));
    }
    print_folded(&text)?;
    Ok(exit::of_verdict(judgement.verdict))
}
