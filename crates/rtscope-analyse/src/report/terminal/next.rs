//! What to do next: one or two steps that follow from the verdict.

use rtscope_model::{
    finding::{DAMAGE, Weight},
    record::Record,
    time::Nanos,
    verdict::{Statistic, Verdict},
};

use crate::{
    judgement::{CellSummary, Judgement, RequirementOutcome},
    number::exact_us,
    statistics::{claim, dependence::IntervalRefusal, exceedance, quantile},
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
        // An import backs no claim, however long it is.
        Verdict::Pass if record.is_imported() => [None, None],
        Verdict::Pass => [longer(judgement, record), None],
        Verdict::Fail => [Some(look(judgement, record)), None],
        // Nobody can run it longer: the file is as long as it is.
        Verdict::Inconclusive if record.is_imported() => [repair(judgement), None],
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
    let acceptable = codes.iter().find(|code| !DAMAGE.contains(code)).copied();
    let is_damaged = codes.iter().any(|code| DAMAGE.contains(code));
    let accept = acceptable.filter(|_| judgement.verdict != Verdict::Measured).map(|code| {
        format!("if a finding doesn't matter for you, accept it, for example with --accept {code}")
    });
    let again = is_damaged.then(|| {
        "the record is damaged, which can't be accepted: use the record as the run wrote it, or measure \
         again"
            .to_owned()
    });
    codes.first()?;
    let codes = codes.join(", ");
    let see = match judgement.verdict {
        Verdict::Measured => format!("before you rely on the figures, resolve {codes}"),
        _ => format!("resolve {codes}"),
    };
    let steps: Vec<String> = [Some(see), again, accept].into_iter().flatten().collect();
    Some(steps.join("; ") + ".")
}

/// How to get a verdict, with the first round limit above what was seen as an example.
fn ask(judgement: &Judgement) -> Option<String> {
    let maxima = judgement.cells.iter().filter_map(|cell| cell.all.max_ns());
    let max_ns = maxima.max()?;
    let above = exceedance::round_limits_ns(max_ns, max_ns).last().map(|&ns| Nanos(ns).exact())?;
    Some(format!("give your deadline to get a verdict, for example --require 'max<{above}'."))
}

/// How long a run backs the next stronger claim about the tightest limit of the maximum.
fn longer(judgement: &Judgement, record: &Record) -> Option<String> {
    let limits = judgement.outcomes.iter().filter(|o| o.requirement.statistic == Statistic::Max);
    let limit_ns = limits.map(|outcome| outcome.requirement.limit).min()?;
    let shortest_ns = judgement.cells.iter().map(|cell| cell.duration_ns).min()?;
    let now = exceedance::at_most_once_in(shortest_ns);
    let (once_in, words) = CLAIMS.iter().find(|(once_in, _)| once_in.0 > 2 * now.0)?;
    let each = claim::time_for(*once_in, 0);
    let duration = duration(record, each.0.div_ceil(shortest_ns.max(1)));
    let phase = if record.plan.phases.len() > 1 { "each phase" } else { "the phase" };
    Some(format!(
        "to back '{} or more at most {words}', {phase} must last {} without one \
         ({duration}).",
        Nanos(limit_ns).exact(),
        Nanos(each.0.next_multiple_of(1_000_000_000))
    ))
}

/// Where to look for the cause of a fail: at the latencies that broke a requirement.
fn look(judgement: &Judgement, record: &Record) -> String {
    let failed: Vec<&RequirementOutcome> =
        judgement.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Fail).collect();
    let has_failed = |cell: &&CellSummary| failed.iter().any(|outcome| outcome.cell == cell.cell);
    let cells: Vec<&CellSummary> = judgement.cells.iter().filter(has_failed).collect();
    let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
    let rows = cells.iter().flat_map(|cell| cell.threads.iter().map(move |row| (*cell, row)));
    let worst = rows.filter_map(|(cell, row)| Some((row.max_ns()?, cell, row)));
    let worst = worst.max_by_key(|(max_ns, ..)| *max_ns).map(|(max_ns, cell, row)| {
        let least = if row.max_is_at_least() { "at least " } else { "" };
        format!(" The worst was {least}{} in {}, {}.", exact_us(max_ns), cell.name, row.label)
    });
    let limits = failed.iter().filter(|outcome| outcome.requirement.statistic == Statistic::Max);
    let limit_ns = limits.map(|outcome| outcome.requirement.limit).min();
    if record.is_imported() {
        // An import holds no CPU, no load and no plan to run again.
        return format!(
            "to find the cause of the latencies of {}, measure with 'rtscope run'.{}",
            names.join(", "),
            worst.unwrap_or_default()
        );
    }
    let stop = limit_ns.map(|limit_ns| {
        let limit = Nanos(limit_ns).exact();
        format!(" To end a run at the first such latency, add --break-above {limit}.")
    });
    format!(
        "in the report, see when and on which CPU the latencies of {} came.{}{}",
        names.join(", "),
        worst.unwrap_or_default(),
        stop.unwrap_or_default()
    )
}

/// How much longer a run must be for a quantile to be bounded.
fn more_samples(judgement: &Judgement, record: &Record) -> Option<String> {
    let open = judgement.outcomes.iter().filter(|o| o.figures_verdict == Verdict::Inconclusive);
    let factors = open.filter_map(|outcome| {
        let Statistic::Quantile(parts) = outcome.requirement.statistic else { return None };
        let cell = judgement.cells.iter().find(|cell| cell.cell == outcome.cell)?;
        let samples = Some(cell.all.corrected.count()).filter(|&samples| samples > 0)?;
        let found = quantile::dependent(&cell.all.corrected, parts, &cell.blocks, true)?;
        // With an upper end, four times the samples halve the interval; what a phase was too short for
        // takes more.
        Some(match found.refusal() {
            Some(IntervalRefusal::Unordered) => return None,
            Some(_) => 10,
            None => found.samples_for_interval().div_ceil(samples).max(4),
        })
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
