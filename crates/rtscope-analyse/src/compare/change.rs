//! What changed from A to B in one pair of cells, with intervals, and what it means for a requirement.

use rtscope_model::{
    histogram::Histogram,
    verdict::{Requirement, Statistic, Verdict},
};
use serde::Serialize;

use super::{
    bootstrap::{self, draws, draws_runs},
    limit::{self, Exceedances},
    pairing::{Member, Pair},
    sample::{self, Buckets, Counts, Sample, cumulative},
};
use crate::{
    number::us,
    statistics::{exceedance, quantile},
};

/// Quantiles that are compared, as far as both sides reach.
const QUANTILES: [u32; 5] = [500_000_000, 990_000_000, 999_000_000, 999_900_000, 999_990_000];

/// Latencies that must lie above a quantile on both sides.
const ABOVE_MIN: f64 = 10.0;

/// Limits that are looked at when none is required.
const LIMITS_UNASKED: usize = 4;

/// One pair of cells.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Name of the cell, or of both.
    pub name: String,
    /// A's figures.
    pub a: Figures,
    /// B's figures.
    pub b: Figures,
    /// What it means, the most important first, in words.
    pub sentences: Vec<String>,
    /// What it means for each requirement.
    pub effects: Vec<Effect>,
    /// How often each limit is reached.
    pub exceedances: Vec<Exceedances>,
    /// How far each quantile moved.
    pub shifts: Vec<Shift>,
    /// How far the distributions are apart.
    pub distance: Distance,
    /// Whether the intervals come from blocks of time; else from order statistics.
    pub blocks_resampled: bool,
    /// Whether the intervals hold the differences from run to run.
    pub runs_resampled: bool,
    /// The latencies, for plots.
    #[serde(skip)]
    pub(crate) histograms: [Histogram; 2],
}

/// One side's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Runs.
    pub runs: usize,
    /// Measured latencies.
    pub recorded: u64,
    /// Swallowed activations; none where that is not known, as of imports.
    pub missed: Option<u64>,
    /// Time under observation, summed over the threads.
    pub exposure_ns: u64,
    /// Their mean.
    pub mean_ns: Option<u64>,
    /// Half are below; none where those have no bucket.
    pub p50_ns: Option<u64>,
    /// The largest of this side's runs: one latency each, and no ground for a comparison.
    pub max_ns: u64,
}

/// What a difference means for a requirement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The requirement.
    pub requirement: Requirement,
    /// A's verdict on it: the worst of its runs.
    pub a: Verdict,
    /// B's.
    pub b: Verdict,
    /// In words.
    pub sentence: String,
}

/// How far a quantile moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shift {
    /// Which, in parts of a billion.
    pub parts: u32,
    /// A's, latencies being spread evenly in their bucket.
    pub a_ns: f64,
    /// B's.
    pub b_ns: f64,
    /// B's less A's.
    pub shift_ns: f64,
    /// Ends of its 95 % interval; none where a side reaches no end.
    pub low_ns: Option<f64>,
    /// Upper end.
    pub high_ns: Option<f64>,
}

/// How far two distributions are apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// Wasserstein's distance: how far the mean latency must be moved to make one from the other; none
    /// where latencies have no bucket.
    pub wasserstein_ns: Option<f64>,
    /// What chance alone reaches in 5 of 100 pairs of equal systems; none without blocks.
    pub by_chance_ns: Option<f64>,
}

/// Compares a pair.
pub(super) fn of(pair: &Pair<'_>, limits_ns: &[u64]) -> Change {
    let (buckets, a, b) = sample::samples(&pair.a, &pair.b);
    let drawn = draws(&a, &b);
    let shifts = shifts(&buckets, &a, &b, drawn.as_deref());
    let distance = distance(&buckets, &a, &b, drawn.as_deref());
    let exceedances: Vec<Exceedances> = limits(pair, limits_ns, &a, &b)
        .into_iter()
        .map(|limit_ns| limit::of(pair, &a, &b, limit_ns))
        .collect();
    let effects = effects(pair, &a, &b);
    let (figures_a, figures_b) = (figures(&pair.a, &a), figures(&pair.b, &b));
    let mut sentences: Vec<String> = effects.iter().map(|effect| effect.sentence.clone()).collect();
    if effects.is_empty() {
        sentences.extend(exceedances.iter().filter_map(Exceedances::sentence).take(1));
    }
    sentences.extend(shift_sentence(&shifts));
    sentences.extend(distance.sentence());
    Change {
        name: pair.name.clone(),
        a: figures_a,
        b: figures_b,
        sentences,
        effects,
        exceedances,
        shifts,
        distance,
        blocks_resampled: drawn.is_some(),
        runs_resampled: drawn.is_some() && draws_runs(&a, &b),
        histograms: [a.histogram, b.histogram],
    }
}

fn figures(members: &[Member<'_>], sample: &Sample) -> Figures {
    let rows = || members.iter().map(|member| &member.cell.all);
    let histogram = &sample.histogram;
    let is_known = rows().all(|row| row.missed_is_known);
    let middle = quantile::rank(histogram.count(), QUANTILES[0]);
    Figures {
        runs: members.len(),
        recorded: histogram.count(),
        missed: is_known.then(|| rows().map(|row| row.missed).sum()),
        exposure_ns: rows().map(|row| row.exposure_ns).sum(),
        mean_ns: histogram.mean_ns().map(|mean_ns| mean_ns.round() as u64),
        p50_ns: histogram.at_rank_ns(middle),
        max_ns: histogram.max_ns().unwrap_or(0),
    }
}

/// The required limits, those asked for, and if there is none some round ones in the tails.
fn limits(pair: &Pair<'_>, asked_ns: &[u64], a: &Sample, b: &Sample) -> Vec<u64> {
    let mut limits: Vec<u64> = asked_ns.to_vec();
    limits.extend(requirements(pair).iter().filter_map(Requirement::limit_ns));
    if limits.is_empty() {
        let far = |side: &Sample| {
            let rank = quantile::rank(side.histogram.count(), 990_000_000);
            side.histogram.at_rank_ns(rank).or(side.histogram.max_ns()).unwrap_or(0)
        };
        let from = far(a).min(far(b));
        let to =
            [a, b].into_iter().filter_map(|side| side.histogram.max_ns()).max().unwrap_or(from);
        let round = exceedance::round_limits_ns(from, to);
        let reached = round.into_iter().filter(|&limit| limit > from && limit <= to);
        limits.extend(reached.take(LIMITS_UNASKED));
    }
    limits.sort_unstable();
    limits.dedup();
    limits
}

/// Every requirement that applies to a cell of the pair.
fn requirements(pair: &Pair<'_>) -> Vec<Requirement> {
    let mut all: Vec<Requirement> = Vec::new();
    for member in pair.a.iter().chain(&pair.b) {
        let outcomes = &member.run.judgement.outcomes;
        for outcome in outcomes.iter().filter(|outcome| outcome.cell == member.cell.cell) {
            if !all.contains(&outcome.requirement) {
                all.push(outcome.requirement);
            }
        }
    }
    all
}

fn effects(pair: &Pair<'_>, a: &Sample, b: &Sample) -> Vec<Effect> {
    let effect = |requirement: Requirement| {
        let (of_a, of_b) = (verdict(&pair.a, requirement)?, verdict(&pair.b, requirement)?);
        let seen = match (requirement.statistic, requirement.limit_ns()) {
            (Statistic::Max, Some(limit_ns)) => limit::of(pair, a, b, limit_ns).sentence(),
            _ => None,
        };
        let sentence = seen.unwrap_or_else(|| verdicts_sentence(requirement, of_a, of_b));
        Some(Effect { requirement, a: of_a, b: of_b, sentence })
    };
    requirements(pair).into_iter().filter_map(effect).collect()
}

/// What a side's runs come to: the worst of them. None where the requirement doesn't apply.
fn verdict(members: &[Member<'_>], requirement: Requirement) -> Option<Verdict> {
    let outcomes = members.iter().flat_map(|member| {
        let of_cell = |cell: u32| cell == member.cell.cell;
        member
            .run
            .judgement
            .outcomes
            .iter()
            .filter(move |outcome| of_cell(outcome.cell) && outcome.requirement == requirement)
    });
    let verdicts: Vec<Verdict> = outcomes.map(|outcome| outcome.verdict).collect();
    let worst = [Verdict::Fail, Verdict::Inconclusive, Verdict::Pass];
    worst.into_iter().find(|verdict| verdicts.contains(verdict))
}

fn verdicts_sentence(requirement: Requirement, a: Verdict, b: Verdict) -> String {
    let meets = |verdict: Verdict| match verdict {
        Verdict::Pass => "meets it",
        Verdict::Fail => "does not meet it",
        _ => "leaves it open",
    };
    match a == b {
        true => format!("{requirement}: each side {}", meets(a)),
        false => format!("{requirement}: A {}, B {}", meets(a), meets(b)),
    }
}

fn shifts(
    buckets: &Buckets,
    a: &Sample,
    b: &Sample,
    drawn: Option<&[(Counts, Counts)]>,
) -> Vec<Shift> {
    let (n_a, n_b) = (a.histogram.count(), b.histogram.count());
    let reached = |parts: &u32| {
        let above = 1.0 - f64::from(*parts) / f64::from(quantile::WHOLE);
        n_a.min(n_b) as f64 * above >= ABOVE_MIN
            && [a, b].into_iter().all(|side| is_placed(&side.histogram, *parts))
    };
    let shift = |parts: u32| {
        let p = f64::from(parts) / f64::from(quantile::WHOLE);
        let (a_ns, b_ns) = (buckets.quantile_ns(&a.all, p), buckets.quantile_ns(&b.all, p));
        let (low_ns, high_ns) = match drawn {
            Some(drawn) => {
                let moved = |(a, b): &(Counts, Counts)| {
                    buckets.quantile_ns(b, p) - buckets.quantile_ns(a, p)
                };
                let (low, high) = bootstrap::interval(drawn.iter().map(moved).collect());
                (Some(low), Some(high))
            }
            None => order_statistics(&a.histogram, &b.histogram, parts),
        };
        Shift { parts, a_ns, b_ns, shift_ns: b_ns - a_ns, low_ns, high_ns }
    };
    QUANTILES.into_iter().filter(reached).map(shift).collect()
}

/// Whether a quantile and the upper end of its interval have buckets.
fn is_placed(histogram: &Histogram, parts: u32) -> bool {
    let has_end = |found: quantile::Quantile| found.high_ns.is_some();
    histogram.unplaced().is_empty() || quantile::of(histogram, parts).is_some_and(has_end)
}

/// From the far ends of both sides' own intervals: wider than need be, and for independent latencies.
fn order_statistics(a: &Histogram, b: &Histogram, parts: u32) -> (Option<f64>, Option<f64>) {
    let (Some(a), Some(b)) = (quantile::of(a, parts), quantile::of(b, parts)) else {
        return (None, None);
    };
    let less = |b: Option<u64>, a: Option<u64>| Some(b? as f64 - a? as f64);
    (less(b.low_ns, a.high_ns), less(b.high_ns, a.low_ns))
}

/// The largest reached quantile that moved for sure, or that none did.
fn shift_sentence(shifts: &[Shift]) -> Option<String> {
    let sure = |shift: &&Shift| {
        shift.low_ns.is_some_and(|low| low > 0.0) || shift.high_ns.is_some_and(|high| high < 0.0)
    };
    let moved: Vec<String> = shifts.iter().filter(sure).map(Shift::sentence).collect();
    match (shifts.is_empty(), moved.is_empty()) {
        (true, _) => None,
        (_, true) => Some("no quantile moved by more than chance".to_owned()),
        _ => Some(format!("from A to B {}", moved.join("; "))),
    }
}

impl Shift {
    /// How far it moved, with its interval, in us.
    #[must_use]
    pub fn sentence(&self) -> String {
        let name = Statistic::Quantile(self.parts);
        let end = |end: Option<f64>| end.map_or_else(|| "no bound".to_owned(), signed_us);
        format!(
            "{name} moves by {} us (95 %: {} to {})",
            signed_us(self.shift_ns),
            end(self.low_ns),
            end(self.high_ns)
        )
    }
}

/// A difference in us with its sign.
pub(crate) fn signed_us(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "+" };
    let ns = ns.abs();
    if ns < 9_995.0 {
        format!("{sign}{:.2}", ns / 1e3)
    } else {
        format!("{sign}{}", us(ns.round() as u64))
    }
}

fn distance(
    buckets: &Buckets,
    a: &Sample,
    b: &Sample,
    drawn: Option<&[(Counts, Counts)]>,
) -> Distance {
    let (whole_a, whole_b) = (cumulative(&a.all), cumulative(&b.all));
    let apart =
        |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| b - a).collect() };
    let seen = apart(&whole_a, &whole_b);
    let is_whole = [a, b].iter().all(|side| side.histogram.unplaced().is_empty());
    if !is_whole {
        return Distance { wasserstein_ns: None, by_chance_ns: None };
    }
    let wasserstein_ns = Some(buckets.area(&seen));
    // Of equal systems the drawn difference would swing around none as it does around the seen one.
    let swing = |(a, b): &(Counts, Counts)| {
        let drawn = apart(&cumulative(a), &cumulative(b));
        buckets.area(&apart(&seen, &drawn))
    };
    let by_chance_ns = drawn.map(|drawn| {
        let mut swings: Vec<f64> = drawn.iter().map(swing).collect();
        swings.sort_by(f64::total_cmp);
        swings[(swings.len() - 1) * 95 / 100]
    });
    Distance { wasserstein_ns, by_chance_ns }
}

impl Distance {
    /// The distance beside what chance reaches; none where it is not known.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let apart_ns = self.wasserstein_ns?;
        let us = |ns: f64| format!("{:.2} us", ns / 1e3);
        let apart = format!("the distributions are {} apart", us(apart_ns));
        Some(match self.by_chance_ns {
            None => apart + " (Wasserstein; too few slices to know what chance does)",
            Some(chance) if apart_ns <= chance => {
                format!("{apart} (Wasserstein), no more than chance reaches ({})", us(chance))
            }
            Some(chance) => format!("{apart} (Wasserstein; chance reaches {})", us(chance)),
        })
    }
}
