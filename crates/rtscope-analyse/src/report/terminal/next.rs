//! What to do next: one or two steps that follow from the verdict.

use rtscope_model::{
    finding::Weight,
    record::Record,
    time::Nanos,
    verdict::{Statistic, Verdict},
};

use crate::{
    judgement::{CellSummary, Judgement},
    statistics::{exceedance, quantile},
};

/// Claims that a longer run may back.
const CLAIMS: [(Nanos, &str); 4] = [
    (Nanos::from_secs(60), "once a minute"),
    (Nanos::from_secs(3_600), "once an hour"),
    (Nanos::from_secs(86_400), "once a day"),
    (Nanos::from_secs(7 * 86_400), "once a week"),
];

/// The steps, the most useful first.
pub(super) fn steps(judgement: &Judgement, record: &Record) -> Vec<String> {
    let steps = match judgement.verdict {
        Verdict::Measured => [repair(judgement), ask(judgement)],
        Verdict::Pass => [longer(judgement, record), None],
        Verdict::Fail => [Some(look(judgement)), None],
        Verdict::Inconclusive => [repair(judgement), more_samples(judgement, record)],
    };
    steps.into_iter().flatten().collect()
}

/// Which findings stand in the way of a pass.
fn repair(judgement: &Judgement) -> Option<String> {
    let mut codes: Vec<&str> = Vec::new();
    for finding in judgement.findings.iter().filter(|f| f.weight >= Weight::PreventsPass) {
        if !codes.contains(&finding.code.as_str()) {
            codes.push(&finding.code);
        }
    }
    let first = codes.first()?;
    let codes = codes.join(", ");
    Some(match judgement.verdict {
        Verdict::Measured => format!("before you rely on the figures, see to {codes}."),
        _ => format!(
            "see to {codes}; what you answer for yourself, accept, as with --accept {first}."
        ),
    })
}

/// How to get a verdict, with the first round limit above what was seen as an example.
fn ask(judgement: &Judgement) -> Option<String> {
    let maxima = judgement.cells.iter().filter_map(|cell| cell.all.max_ns());
    let max_ns = maxima.max()?;
    let above = exceedance::round_limits_ns(max_ns, max_ns).last().map(|&ns| Nanos(ns).exact())?;
    Some(format!("name your deadline to get a verdict, as in --require 'max<{above}'."))
}

/// How long a run backs the next stronger claim about the tightest limit of the maximum.
fn longer(judgement: &Judgement, record: &Record) -> Option<String> {
    let limits = judgement.outcomes.iter().filter(|o| o.requirement.statistic == Statistic::Max);
    let limit_ns = limits.map(|outcome| outcome.requirement.limit).min()?;
    let weakest = judgement.cells.iter().min_by_key(|cell| cell.all.exposure_ns)?;
    let now = exceedance::at_most_once_in(weakest.all.exposure_ns);
    let (claim, words) = CLAIMS.iter().find(|(claim, _)| claim.0 > 2 * now.0)?;
    let threads = weakest.threads.len().max(1) as u64;
    let each = Nanos(exceedance::exposure_for(*claim).0.div_ceil(threads));
    let duration = duration(record, each.0.div_ceil(weakest.duration_ns.max(1)));
    let whose = if threads > 1 { " on each thread" } else { "" };
    let phase = if record.plan.phases.len() > 1 { "each phase" } else { "the phase" };
    Some(format!(
        "to back '{} or more at most {words}{whose}', {phase} must last {} without one \
         ({duration}).",
        Nanos(limit_ns).exact(),
        Nanos(each.0.next_multiple_of(1_000_000_000))
    ))
}

/// Where to look for the cause of a fail.
fn look(judgement: &Judgement) -> String {
    let missed = |cell: &&CellSummary| {
        judgement
            .outcomes
            .iter()
            .any(|outcome| outcome.cell == cell.cell && outcome.verdict == Verdict::Fail)
    };
    let names: Vec<&str> =
        judgement.cells.iter().filter(missed).map(|cell| cell.name.as_str()).collect();
    let noted = judgement.findings.iter().find(|finding| !finding.advice.is_empty());
    let hint = noted.map(|f| format!(" Try first: {} [{}].", f.advice, f.code)).unwrap_or_default();
    format!(
        "in the report, see when and on which CPU the latencies of {} came.{hint}",
        names.join(", ")
    )
}

/// How much longer a run must be for a quantile to be bounded.
fn more_samples(judgement: &Judgement, record: &Record) -> Option<String> {
    let open = judgement.outcomes.iter().filter(|o| o.verdict == Verdict::Inconclusive);
    let factors = open.filter_map(|outcome| {
        let Statistic::Quantile(parts) = outcome.requirement.statistic else { return None };
        let cell = judgement.cells.iter().find(|cell| cell.cell == outcome.cell)?;
        let samples = Some(cell.all.corrected.count()).filter(|&samples| samples > 0)?;
        // With an upper end, four times the samples halve the interval.
        Some(quantile::samples_for_interval(parts).div_ceil(samples).max(4))
    });
    let factor = factors.max()?;
    let duration = duration(record, factor);
    Some(format!("measure {factor} times as long, with {duration}."))
}

/// The option that makes the run, as it was, this many times as long. A factor would be of the
/// plan as it ships, which the run may have scaled already.
fn duration(record: &Record, factor: u64) -> String {
    let phases_ns: u64 = record.plan.phases.iter().map(|phase| phase.expected().0).sum();
    let total_ns = phases_ns.saturating_mul(factor).next_multiple_of(1_000_000_000);
    format!("--duration {}", Nanos(total_ns).exact())
}
