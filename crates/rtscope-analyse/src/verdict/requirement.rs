//! Each requirement in each cell it applies to, over all threads together.
//!
//! * `max`: the exact maximum against the limit. Meeting it says what the time that was observed
//!   can back, no more: the sentence names how often the limit may still be exceeded at 95 %.
//! * quantiles and `mean`: the interval against the limit, as wide as the wake-ups' dependence on each
//!   other makes it. Pass when its upper end is below, Fail when its lower end is not, and Inconclusive
//!   when the limit lies inside, the run is too short, or no interval can be given. A quantile without an interval
//!   fails where so many latencies reach the limit that no dependence explains it.
//! * `missed`: the count. Of a sampler that misses nothing by definition it is no answer.
//! * `late` and `lost`: the counts of a network sampler's frames.
//! * `max < 200us once in 1h`: a claim, see [`claim`].
//!
//! Quantiles and mean include what the missed activations would have seen, since a requirement is
//! about every activation. The maximum is the same with and without, unless an activation was never
//! answered: then it is the time that it had waited at least.

use rtscope_model::{
    frames::Frames,
    plan::{Overrun, Sampler, Sleep},
    record::Record,
    time::{Nanos, Rounding},
    verdict::{Requirement, Statistic, Verdict},
};

use crate::{
    judgement::{CellSummary, FigureRow, RequirementOutcome},
    number::{counted, exact_us, grouped},
    statistics::{
        claim, exceedance,
        quantile::{self, Quantile},
    },
};

/// What a requirement came to, and the sentence that says so.
type Answer = (Verdict, String);

/// Each requirement in each cell it applies to, in the order of the cells, by the figures alone.
#[must_use]
pub fn outcomes(record: &Record, cells: &[CellSummary]) -> Vec<RequirementOutcome> {
    cells.iter().flat_map(|cell| outcomes_in(record, cell)).collect()
}

fn outcomes_in(record: &Record, cell: &CellSummary) -> Vec<RequirementOutcome> {
    let phase = record.plan.phases.get(cell.cell as usize);
    let mut asked: Vec<Requirement> = Vec::new();
    for requirement in record.plan.require.iter().chain(phase.iter().flat_map(|p| &p.require)) {
        if !asked.contains(requirement) {
            asked.push(*requirement);
        }
    }
    let outcome = |requirement: Requirement| {
        let (verdict, mut sentence) = evaluate(record, requirement, cell);
        // Nobody can measure longer what another tool has measured.
        if record.origin_of(cell.cell).is_some()
            && let Some(told) = sentence.strip_suffix(LONGER)
        {
            sentence.truncate(told.len());
        }
        RequirementOutcome {
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
        Statistic::Max => max(cell, requirement.limit),
        Statistic::Mean => mean(row, requirement.limit),
        Statistic::Quantile(parts) => {
            quantile(cell, requirement.statistic, parts, requirement.limit)
        }
        Statistic::Missed => {
            let phase = record.plan.phases.get(cell.cell as usize);
            missed(row, requirement.limit, phase.and_then(|phase| never_misses(&phase.sampler)))
        }
        Statistic::Late => Some(frames(row, requirement.limit, "late", |frames| frames.late)),
        Statistic::Lost => Some(frames(row, requirement.limit, "lost", |frames| frames.lost)),
    };
    let why = match row.recorded {
        0 if row.missed == 0 => "nothing was measured",
        0 => "no latency was measured: every activation was missed",
        _ => "latencies were recorded, but the record doesn't hold them: see the findings",
    };
    answer.unwrap_or_else(|| (Verdict::Inconclusive, why.to_owned()))
}

fn claimed(record: &Record, cell: &CellSummary, limit: Nanos, once_in: Nanos) -> Answer {
    match claim::of_cell(record, cell, limit, once_in) {
        Some(_) if cell.all.recorded + cell.all.missed == 0 => {
            (Verdict::Inconclusive, "still open: nothing was measured".to_owned())
        }
        Some(claim) => (claim.verdict, claim.sentence()),
        None => {
            let text = "still open: an import does not say when each latency occurred or which activations were \
                    missed";
            (Verdict::Inconclusive, text.to_owned())
        }
    }
}

fn pass_if(met: bool) -> Verdict {
    if met { Verdict::Pass } else { Verdict::Fail }
}

fn max(cell: &CellSummary, limit_ns: u64) -> Option<Answer> {
    let (row, watch) = (&cell.all, cell.watch());
    let max_ns = row.max_ns()?;
    if row.max_is_at_least() {
        // How long it would have waited in the end is not known: only a limit that it reached is decided.
        let verdict = if max_ns < limit_ns { Verdict::Inconclusive } else { Verdict::Fail };
        let sentence = format!(
            "the maximum is at least {}, the time that a missed activation had waited",
            exact_us(max_ns)
        );
        return Some((verdict, sentence));
    }
    let mut sentence = match row.max_below_ns() {
        Some(below_ns) => format!("the maximum is {} to {}", exact_us(max_ns), exact_us(below_ns)),
        None => format!("the maximum is {}", exact_us(max_ns)),
    };
    // A record that doesn't say how long was observed backs no rate, but has its maximum.
    if let Some(exceedance) = exceedance::estimate(&row.histogram, limit_ns, watch, &cell.blocks) {
        sentence += &format!("; {}", exceedance.sentence(watch));
    }
    let below_ns = row.max_below_ns().map(|ns| ns as f64);
    Some((is_below(max_ns as f64, below_ns, limit_ns as f64), sentence))
}

/// Whether a value is below a limit. Of one that another tool cut, only what it is below is known too.
fn is_below(from: f64, below: Option<f64>, limit: f64) -> Verdict {
    match below {
        Some(below) if from < limit && below > limit => Verdict::Inconclusive,
        _ => pass_if(from < limit),
    }
}

fn mean(row: &FigureRow, limit_ns: u64) -> Option<Answer> {
    let mean_ns = row.corrected.mean_ns()?;
    let latency = |ns: f64| Nanos(ns.round() as u64);
    let below_ns = row.mean_below_ns();
    let mut value = format!("the mean of {} is {}", latencies(row), latency(mean_ns));
    if let Some(below_ns) = below_ns {
        value += &format!(" to {} (the file has whole units)", latency(below_ns));
    }
    let margins_ns = match row.mean_margins_ns {
        Ok(margins_ns) => margins_ns,
        Err(refusal) => {
            return Some((
                Verdict::Inconclusive,
                format!("{value}, without an interval: {refusal}"),
            ));
        }
    };
    let low_ns = (mean_ns - margins_ns.below).max(0.0);
    let high_ns = below_ns.unwrap_or(mean_ns) + margins_ns.above;
    let limit = limit_ns as f64;
    let (verdict, open) = if high_ns < limit {
        (Verdict::Pass, "")
    } else if low_ns >= limit {
        (Verdict::Fail, "")
    } else {
        (Verdict::Inconclusive, INSIDE)
    };
    let low = end(low_ns.floor() as u64, Rounding::Down, limit_ns);
    let high = end(high_ns.ceil() as u64, Rounding::Up, limit_ns);
    let interval = format!("95 % interval {low} to {high}");
    Some((verdict, format!("{value}, {interval}{open}")))
}

/// How a sampler sleeps that misses nothing by definition, however late it is.
fn never_misses(sampler: &Sampler) -> Option<&'static str> {
    match (sampler.sleep, sampler.overrun) {
        (Sleep::Relative, _) => Some("sleep = \"relative\""),
        (Sleep::Absolute, Overrun::Replay) => Some("overrun = \"replay\""),
        (Sleep::Absolute, Overrun::Skip) => None,
    }
}

fn missed(row: &FigureRow, limit: u64, never_misses: Option<&str>) -> Option<Answer> {
    let planned = Some(row.planned).filter(|&planned| planned > 0)?;
    if !row.missed_is_known && row.missed > limit {
        let text = format!("at least {} were missed", counted(row.missed, "activation"));
        return Some((Verdict::Fail, text));
    }
    if !row.missed_is_known {
        let text = "an import does not say which activations were missed".to_owned();
        return Some((Verdict::Inconclusive, text));
    }
    let of = counted(planned, "activation");
    if let Some(how) = never_misses.filter(|_| row.missed <= limit) {
        let text = format!(
            "with {how} a late wake-up misses no activation, so this requirement says nothing: require \
             a maximum"
        );
        return Some((Verdict::Inconclusive, text));
    }
    let sentence = match row.missed {
        0 => format!("none of {of} was missed"),
        1 => format!("1 of {of} was missed"),
        n => format!("{} of {of} were missed", grouped(n)),
    };
    Some((pass_if(row.missed <= limit), sentence))
}

/// Frames of a network sampler that something happened to.
fn frames(row: &FigureRow, limit: u64, what: &str, of: fn(&Frames) -> u64) -> Answer {
    let Some(frames) = row.frames.as_ref().filter(|frames| frames.sent > 0) else {
        let text = "no frame was sent: this requirement is for a network sampler (sampler.network)";
        return (Verdict::Inconclusive, text.to_owned());
    };
    let (count, sent) = (of(frames), counted(frames.sent, "frame"));
    let sentence = match count {
        0 => format!("none of {sent} was {what}"),
        1 => format!("1 of {sent} was {what}"),
        n => format!("{} of {sent} were {what}", grouped(n)),
    };
    (pass_if(count <= limit), sentence)
}

fn quantile(cell: &CellSummary, name: Statistic, parts: u32, limit_ns: u64) -> Option<Answer> {
    let row = &cell.all;
    let Some(found) = quantile::dependent(&row.corrected, parts, &cell.blocks, true) else {
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
    let verdict = match (found.low_ns, found.high_ns) {
        (_, Some(high_ns)) if high_ns < limit_ns => Verdict::Pass,
        (Some(low_ns), _) if low_ns >= limit_ns => Verdict::Fail,
        _ => Verdict::Inconclusive,
    };
    if let Some(refusal) = found.refusal() {
        let (all, late) = (row.corrected.count(), row.corrected.at_or_above(limit_ns).0);
        if quantile::refutes_below(parts, late, all) {
            let (are, limit) = (if late == 1 { "is" } else { "are" }, Nanos(limit_ns).exact());
            let text = format!(
                "{value}; {} of them {are} {limit} or more, too many for {name} < {limit}, no matter how they \
                 depend on each other",
                grouped(late)
            );
            return Some((Verdict::Fail, text));
        }
        let independent =
            quantile::estimate(&row.corrected, parts).map(|found| interval(&found, limit_ns))?;
        let text = format!(
            "{value}, without an interval: {refusal} ({independent} if wake-ups were independent)"
        );
        return Some((verdict, text));
    }
    let open = match (verdict, found.high_ns) {
        (Verdict::Inconclusive, Some(_)) => INSIDE.to_owned(),
        (Verdict::Inconclusive, None) => {
            format!(
                ": a 95 % upper bound needs at least {} latencies",
                grouped(found.samples_for_interval())
            )
        }
        _ => String::new(),
    };
    let dependence = found.dependence.and_then(Result::ok);
    let worth = dependence.and_then(|found| found.sentence(row.corrected.count()));
    let worth = worth.map(|text| format!(" ({text})")).unwrap_or_default();
    Some((verdict, format!("{value}, {}{worth}{open}", interval(&found, limit_ns))))
}

/// What is said of a limit between the ends of an interval.
const INSIDE: &str = ": the limit lies inside this interval, so measure longer";

/// The advice at its end.
const LONGER: &str = ", so measure longer";

/// An end of an interval, rounded outwards. If rounding would move it across the limit, all its digits are shown.
fn end(ns: u64, rounding: Rounding, limit_ns: u64) -> String {
    let text = Nanos(ns).rounded(rounding);
    let is_below = |ns: Nanos| ns.0 < limit_ns;
    let crosses = text.parse().is_ok_and(|shown| is_below(shown) != is_below(Nanos(ns)));
    if crosses { exact_us(ns) } else { text }
}

fn interval(found: &Quantile, limit_ns: u64) -> String {
    let low = found.low_ns.map(|ns| end(ns, Rounding::Down, limit_ns));
    let high = found.high_ns.map(|ns| end(ns, Rounding::Up, limit_ns));
    match (low, high) {
        (Some(low), Some(high)) => format!("95 % interval {low} to {high}"),
        (Some(low), None) => format!("with 95 % confidence at least {low}"),
        (None, Some(high)) => format!("with 95 % confidence at most {high}"),
        (None, None) => "without an interval".to_owned(),
    }
}

/// How many latencies a statistic is of.
fn latencies(row: &FigureRow) -> String {
    let count = match row.corrected.count() {
        1 => "1 latency".to_owned(),
        n => format!("{} latencies", grouped(n)),
    };
    if row.missed == 0 { count } else { format!("{count}, missed activations among them,") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        statistics::{random::Random, summary},
        test_support::Run,
    };

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
            "the maximum is 80.001 us; no latency of 80.002us or more in 10 s: with 95 % confidence at \
             most once in 3.33 s",
        );
        check(
            "max < 80001ns",
            &latencies,
            Verdict::Fail,
            "the maximum is 80.001 us; 1 of 10,000 latencies was 80.001us or more in 10 s: once in \
             10 s, 95 % interval once in 6 min 35 s to once in 853.5 ms",
        );
    }

    #[test]
    fn a_quantile_is_judged_by_its_interval() {
        // Of 10,000 independent latencies in ten blocks, p50 lies between the 4,871st and the 5,130th.
        let ramps = ramp(1_000).repeat(10);
        check(
            "p50 < 515us",
            &ramps,
            Verdict::Pass,
            "p50 of 10,000 latencies is 500 us, 95 % interval 487 us to 514 us",
        );
        check(
            "p50 < 511us",
            &ramps,
            Verdict::Inconclusive,
            "p50 of 10,000 latencies is 500 us, 95 % interval 487 us to 514 us: the limit lies inside \
             this interval, so measure longer",
        );
        check(
            "p50 < 487us",
            &ramps,
            Verdict::Fail,
            "p50 of 10,000 latencies is 500 us, 95 % interval 487 us to 514 us",
        );
    }

    #[test]
    fn a_short_run_bounds_no_high_quantile_from_above() {
        check(
            "p99.9 < 2ms",
            &ramp(1_000).repeat(4),
            Verdict::Inconclusive,
            "p99.9 of 4,000 latencies is 999 us, with 95 % confidence at least 995 us: a 95 % \
             upper bound needs at least 17,774 latencies",
        );
        check(
            "p99.9 < 2ms",
            &ramp(900),
            Verdict::Inconclusive,
            "p99.9 of 900 latencies is 899 us, without an interval: only a phase of at least 2 s \
             shows whether late wake-ups come in clusters (with 95 % confidence at \
             least 896 us if wake-ups were independent)",
        );
    }

    #[test]
    fn a_limit_that_too_many_latencies_reach_is_refuted_without_an_interval() {
        // In a phase of less than 2 s there is no interval. By hand: 1 % / 2.5 % of 1,000 latencies are 400, and
        // 0.1 % / 2.5 % are 40.
        let late = |count: usize| [vec![10_000; 1_000 - count], vec![90_000; count]].concat();
        for (require, enough) in [("p99 < 80us", 400), ("p99.9 < 80us", 40)] {
            let (verdict, sentence) = outcome(require, &late(enough));
            assert_eq!(verdict, Verdict::Fail, "{sentence}");
            let too_many = format!(
                "; {enough} of them are 80us or more, too many for {require}, no matter how"
            );
            assert!(sentence.contains(&too_many), "{sentence}");
            assert_eq!(outcome(require, &late(enough - 1)).0, Verdict::Inconclusive);
        }
        // All latencies may be late in one spell, half of the time: that is no evidence of a median.
        assert_eq!(outcome("p50 < 1ns", &late(0)).0, Verdict::Inconclusive);
        assert_eq!(outcome("p97.5 < 1ns", &late(0)).0, Verdict::Fail);
    }

    #[test]
    fn latencies_that_come_together_widen_the_interval() {
        // 1.2 % are late, in about one second out of five: the interval of p99 reaches those on time.
        let mut random = Random::new(1);
        let mut second = |_| vec![if random.below(5) == 0 { 100_000 } else { 5_000 }; 60];
        let latencies: Vec<u64> =
            (0..60).flat_map(|n| [second(n), vec![5_000; 940]].concat()).collect();
        let (verdict, sentence) = outcome("p99 < 90us", &latencies);
        assert_eq!(verdict, Verdict::Inconclusive, "{sentence}");
        assert!(sentence.contains("late wake-ups come in clusters: 60,000 count as"), "{sentence}");
        // The same latencies, spread evenly.
        let even: Vec<u64> =
            (0..60_000u64).map(|n| if n.is_multiple_of(83) { 100_000 } else { 5_000 }).collect();
        assert_eq!(outcome("p99 < 90us", &even).0, Verdict::Fail);
    }

    #[test]
    fn a_mean_is_judged_by_its_interval() {
        let latencies = [vec![10_000; 500], vec![20_000; 500]].concat().repeat(10);
        let mean = "the mean of 10,000 latencies is 15 us, 95 % interval 14.8 us to 15.2 us";
        check("mean < 15201ns", &latencies, Verdict::Pass, mean);
        // Rounded, the upper end would lie on the limit that it is below.
        let beside = "the mean of 10,000 latencies is 15 us, 95 % interval 14.8 us to 15.130 us";
        check("mean < 15200ns", &latencies, Verdict::Pass, beside);
        check("mean < 14800ns", &latencies, Verdict::Fail, mean);
        let open = format!("{mean}: the limit lies inside this interval, so measure longer");
        check("mean < 15us", &latencies, Verdict::Inconclusive, &open);
    }

    #[test]
    fn missed_activations_count_in_quantiles_and_mean() {
        // 99 short latencies and one that swallows 900 activations, every second.
        let mut latencies = vec![10_000; 99];
        latencies.push(900_010_000);
        let run = latencies.repeat(200);
        let (verdict, sentence) = outcome("p50 < 1ms", &run);
        assert_eq!(verdict, Verdict::Fail, "{sentence}");
        let (verdict, sentence) = outcome("mean < 300ms", &run);
        assert_eq!(verdict, Verdict::Fail);
        // (99 * 10 us + the sum of 10 us + i ms for i = 0 to 900) / 1000
        let expected = "the mean of 200,000 latencies, missed activations among them, is 405.5 ms, 95 % interval ";
        assert!(sentence.starts_with(expected), "{sentence}");
        check("missed <= 899", &latencies, Verdict::Fail, "900 of 1,000 activations were missed");
        check("missed <= 900", &latencies, Verdict::Pass, "900 of 1,000 activations were missed");
        check("missed = 0", &[1], Verdict::Pass, "none of 1 activation was missed");
    }

    #[test]
    fn a_sampler_that_misses_nothing_by_definition_does_not_pass_for_it() {
        let outcome = |sampler: &str, latencies_ns: &[u64]| {
            let plan = format!(
                "name = \"p\"\n[[phase]]\nname = \"rest\"\nduration = \"1s\"\nrequire = [\"missed = 0\"]\n{sampler}"
            );
            let record = Run::new(&plan, 1).cell(0, &[latencies_ns]).end().record();
            let outcome = outcomes(&record, &summary::cells(&record)).remove(0);
            (outcome.verdict, outcome.sentence)
        };
        for sampler in ["sampler.sleep = \"relative\"", "sampler.overrun = \"replay\""] {
            let (verdict, sentence) = outcome(sampler, &[1_000; 100]);
            assert_eq!(verdict, Verdict::Inconclusive, "{sampler}");
            assert!(sentence.contains("says nothing: require a maximum"), "{sentence}");
            // One that is known to be missed, because nothing answered it, is one.
            assert_eq!(outcome(sampler, &[5_000_000; 10]).0, Verdict::Fail);
        }
        assert_eq!(outcome("", &[1_000; 100]).0, Verdict::Pass);
    }

    #[test]
    fn what_was_not_measured_is_open() {
        for require in ["max < 1s", "p50 < 1s", "mean < 1s", "missed = 0"] {
            check(require, &[], Verdict::Inconclusive, "nothing was measured");
        }
    }

    #[test]
    fn nothing_was_measured_is_not_said_of_recorded_latencies() {
        let plan =
            "name = \"p\"\nrequire = [\"max < 1s\"]\n[[phase]]\nname = \"a\"\nduration = \"1s\"\n";
        let mut run = Run::new(plan, 1).cell(0, &[&[1_000, 2_000]]).end();
        run.slices[0].bins.clear();
        let record = run.record();
        let outcomes = outcomes(&record, &summary::cells(&record));
        let sentence = &outcomes[0].sentence;
        assert!(sentence.starts_with("latencies were recorded, but"), "{sentence}");
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
