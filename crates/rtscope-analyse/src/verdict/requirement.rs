//! Each requirement in each cell it applies to, over all threads together.
//!
//! * `max`: the exact maximum against the limit. Meeting it says what the time that was observed
//!   can back, no more: the sentence names how often the limit may still be exceeded at 95 %.
//! * quantiles: the interval against the limit. Pass when its upper end is below, Fail when its
//!   lower end is not, and Inconclusive when the limit lies inside or the run is too short.
//! * `mean`: the exact mean of what was measured.
//! * `missed`: the count.
//! * `max < 200us once in 1h`: a claim, see [`claim`].
//!
//! Quantiles and mean include what the missed activations would have seen, since a requirement is
//! about every activation; the maximum is the same with and without.

use rtscope_model::{
    record::Record,
    time::Nanos,
    verdict::{Requirement, Statistic, Verdict},
};

use crate::{
    judgement::{CellSummary, Outcome, Row},
    number::{counted, exact_us, grouped},
    statistics::{claim, exceedance, quantile},
};

/// What a requirement came to, and the sentence that says so.
type Answer = (Verdict, String);

/// Each requirement in each cell it applies to, in the order of the cells, by the figures alone.
#[must_use]
pub fn outcomes(record: &Record, cells: &[CellSummary]) -> Vec<Outcome> {
    cells.iter().flat_map(|cell| outcomes_in(record, cell)).collect()
}

fn outcomes_in(record: &Record, cell: &CellSummary) -> Vec<Outcome> {
    let phase = record.plan.phases.get(cell.cell as usize);
    let mut asked: Vec<Requirement> = Vec::new();
    for requirement in record.plan.require.iter().chain(phase.iter().flat_map(|p| &p.require)) {
        if !asked.contains(requirement) {
            asked.push(*requirement);
        }
    }
    let outcome = |requirement: Requirement| {
        let (verdict, sentence) = evaluate(record, requirement, cell);
        Outcome {
            requirement,
            cell: cell.cell,
            name: cell.name.clone(),
            verdict,
            figures_verdict: verdict,
            sentence,
            withheld_because: None,
        }
    };
    asked.into_iter().map(outcome).collect()
}

fn evaluate(record: &Record, requirement: Requirement, cell: &CellSummary) -> Answer {
    let row = &cell.all;
    if let Some((limit, once_in)) = requirement.claim() {
        return claimed(record, cell, limit, once_in);
    }
    let answer = match requirement.statistic {
        Statistic::Max => max(row, requirement.limit, cell.threads.len()),
        Statistic::Mean => mean(row, requirement.limit),
        Statistic::Quantile(parts) => {
            quantile(row, requirement.statistic, parts, requirement.limit)
        }
        Statistic::Missed => missed(row, requirement.limit),
    };
    answer.unwrap_or_else(|| (Verdict::Inconclusive, "nothing was measured".to_owned()))
}

fn claimed(record: &Record, cell: &CellSummary, limit: Nanos, once_in: Nanos) -> Answer {
    match claim::of_cell(record, cell, limit, once_in) {
        Some(claim) if claim.wall_ns > 0 => (claim.verdict, claim.sentence()),
        Some(_) => (Verdict::Inconclusive, "nothing was measured".to_owned()),
        None => {
            let text =
                "still open: an import does not say when each latency was, and what was missed";
            (Verdict::Inconclusive, text.to_owned())
        }
    }
}

fn pass_if(met: bool) -> Verdict {
    if met { Verdict::Pass } else { Verdict::Fail }
}

fn max(row: &Row, limit_ns: u64, threads: usize) -> Option<Answer> {
    let max_ns = row.histogram.max_ns()?;
    let mut sentence = format!("the maximum is {}", exact_us(max_ns));
    // A record that doesn't say how long was observed backs no rate, but has its maximum.
    if let Some(exceedance) = exceedance::of(&row.histogram, limit_ns, row.exposure_ns) {
        sentence += &format!("; {}", exceedance.sentence(row.exposure_ns, threads));
    }
    Some((pass_if(max_ns < limit_ns), sentence))
}

fn mean(row: &Row, limit_ns: u64) -> Option<Answer> {
    let mean_ns = row.corrected.mean_ns()?;
    let sentence = format!("the mean of {} is {}", latencies(row), Nanos(mean_ns.round() as u64));
    Some((pass_if(mean_ns < limit_ns as f64), sentence))
}

fn missed(row: &Row, limit: u64) -> Option<Answer> {
    let planned = Some(row.planned).filter(|&planned| planned > 0)?;
    if !row.missed_is_known {
        let text = "what was missed is not in an import".to_owned();
        return Some((Verdict::Inconclusive, text));
    }
    let of = counted(planned, "activation");
    let sentence = match row.missed {
        0 => format!("none of {of} was missed"),
        1 => format!("1 of {of} was missed"),
        n => format!("{} of {of} were missed", grouped(n)),
    };
    Some((pass_if(row.missed <= limit), sentence))
}

fn quantile(row: &Row, name: Statistic, parts: u32, limit_ns: u64) -> Option<Answer> {
    let Some(found) = quantile::of(&row.corrected, parts) else {
        // There are latencies, but at this rank one that is in no bucket.
        let counted = Some(row.corrected.count()).filter(|&count| count > 0)?;
        let unplaced = row.corrected.unplaced().count;
        let text = format!(
            "{name} is not known: {} of {} latencies are in no bucket",
            grouped(unplaced),
            grouped(counted)
        );
        return Some((Verdict::Inconclusive, text));
    };
    let value = format!("{name} of {} is {}", latencies(row), Nanos(found.value_ns));
    let end = |ns: Option<u64>| ns.map(|ns| Nanos(ns).to_string());
    let interval = match (end(found.low_ns), end(found.high_ns)) {
        (Some(low), Some(high)) => format!("at 95 % between {low} and {high}"),
        (Some(low), None) => format!("at 95 % at least {low}"),
        (None, Some(high)) => format!("at 95 % at most {high}"),
        (None, None) => "with no interval".to_owned(),
    };
    let verdict = match (found.low_ns, found.high_ns) {
        (_, Some(high_ns)) if high_ns < limit_ns => Verdict::Pass,
        (Some(low_ns), _) if low_ns >= limit_ns => Verdict::Fail,
        _ => Verdict::Inconclusive,
    };
    let open = match (verdict, found.high_ns) {
        (Verdict::Inconclusive, Some(_)) => ": the limit lies inside, measure longer".to_owned(),
        (Verdict::Inconclusive, None) => {
            let needed = quantile::samples_for_interval(parts);
            format!(": an upper end needs {} latencies", grouped(needed))
        }
        _ => String::new(),
    };
    Some((verdict, format!("{value}, {interval}{open}")))
}

/// How many latencies a statistic is of.
fn latencies(row: &Row) -> String {
    let count = match row.corrected.count() {
        1 => "1 latency".to_owned(),
        n => format!("{} latencies", grouped(n)),
    };
    if row.missed == 0 { count } else { format!("{count}, missed activations among them,") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{statistics::summary, test_support::Run};

    /// The outcomes of a run of one phase with these latencies.
    fn outcome(require: &str, latencies_ns: &[u64]) -> (Verdict, String) {
        let plan = format!(
            "name = \"p\"\n[[phase]]\nname = \"rest\"\nduration = \"1s\"\nrequire = [\"{require}\"]"
        );
        let record = Run::new(&plan, 1).cell(0, &[latencies_ns]).end().record();
        let mut outcomes = outcomes(&record, &summary::cells(&record));
        assert_eq!(outcomes.len(), 1);
        let outcome = outcomes.remove(0);
        assert_eq!((outcome.cell, outcome.name.as_str()), (0, "rest"));
        (outcome.verdict, outcome.sentence)
    }

    /// Latencies of 0, 1, 2... us.
    fn ramp(n: u64) -> Vec<u64> {
        (0..n).map(|us| us * 1_000).collect()
    }

    fn check(require: &str, latencies_ns: &[u64], verdict: Verdict, sentence: &str) {
        assert_eq!(outcome(require, latencies_ns), (verdict, sentence.to_owned()));
    }

    #[test]
    fn a_maximum_is_exact_to_the_nanosecond() {
        let latencies = [vec![5_000; 9_999], vec![80_001]].concat();
        check(
            "max < 80002ns",
            &latencies,
            Verdict::Pass,
            "the maximum is 80.001 us; no latency of 80002ns or more in 10 s: at 95 % at most once in \
             3.34 s",
        );
        check(
            "max < 80001ns",
            &latencies,
            Verdict::Fail,
            "the maximum is 80.001 us; 1 of 10,000 latencies was 80001ns or more in 10 s: once in \
             10 s, at 95 % between once in 6 min 34 s and once in 1.79 s",
        );
    }

    #[test]
    fn a_quantile_is_judged_by_its_interval() {
        // Of 1000 latencies, p50 lies between the 469th and the 532nd.
        let ramp = ramp(1_000);
        check(
            "p50 < 532us",
            &ramp,
            Verdict::Pass,
            "p50 of 1,000 latencies is 500 us, at 95 % between 468 us and 532 us",
        );
        check(
            "p50 < 531us",
            &ramp,
            Verdict::Inconclusive,
            "p50 of 1,000 latencies is 500 us, at 95 % between 468 us and 532 us: the limit lies \
             inside, measure longer",
        );
        check(
            "p50 < 468us",
            &ramp,
            Verdict::Fail,
            "p50 of 1,000 latencies is 500 us, at 95 % between 468 us and 532 us",
        );
    }

    #[test]
    fn a_short_run_bounds_no_high_quantile_from_above() {
        check(
            "p99.9 < 2ms",
            &ramp(900),
            Verdict::Inconclusive,
            "p99.9 of 900 latencies is 899 us, at 95 % at least 896 us: an upper end needs 3,688 \
             latencies",
        );
        assert_eq!(outcome("p99.9 < 800us", &ramp(900)).0, Verdict::Fail);
    }

    #[test]
    fn missed_activations_count_in_quantiles_and_mean() {
        // 99 short latencies and one that swallows 900 activations.
        let mut latencies = vec![10_000; 99];
        latencies.push(900_010_000);
        assert_eq!(outcome("p50 < 1ms", &latencies).0, Verdict::Fail);
        let (verdict, sentence) = outcome("mean < 400ms", &latencies);
        assert_eq!(verdict, Verdict::Fail);
        // (99 * 10 us + the sum of 10 us + i ms for i = 0 to 900) / 1000
        assert_eq!(
            sentence,
            "the mean of 1,000 latencies, missed activations among them, is 405.5 ms"
        );
        check("missed = 899", &latencies, Verdict::Fail, "900 of 1,000 activations were missed");
        check("missed = 900", &latencies, Verdict::Pass, "900 of 1,000 activations were missed");
        check("missed = 0", &[1], Verdict::Pass, "none of 1 activation was missed");
    }

    #[test]
    fn what_was_not_measured_is_open() {
        for require in ["max < 1s", "p50 < 1s", "mean < 1s", "missed = 0"] {
            check(require, &[], Verdict::Inconclusive, "nothing was measured");
        }
    }

    #[test]
    fn a_requirement_of_plan_and_phase_is_judged_once() {
        let plan = "name = \"p\"\nrequire = [\"max < 1ms\", \"missed = 0\"]\n\
                    [[phase]]\nname = \"a\"\nduration = \"1s\"\n\
                    [[phase]]\nname = \"b\"\nduration = \"1s\"\nrequire = [\"max < 1ms\", \"max < 2ms\"]";
        let record = Run::new(plan, 1).cell(0, &[&[1_000]]).cell(1, &[&[1_000]]).end().record();
        let outcomes = outcomes(&record, &summary::cells(&record));
        let asked: Vec<(u32, String)> =
            outcomes.iter().map(|o| (o.cell, o.requirement.to_string())).collect();
        let expected = [
            (0, "max < 1ms"),
            (0, "missed = 0"),
            (1, "max < 1ms"),
            (1, "missed = 0"),
            (1, "max < 2ms"),
        ];
        assert_eq!(asked, expected.map(|(cell, text)| (cell, text.to_owned())));
    }
}
