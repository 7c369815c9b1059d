//! How often a limit is reached on both sides, and who meets it.
//!
//! An import may hold latencies without a bucket: where one of them may lie on either side of the
//! limit, how often it was reached is not known. It is then said how often at least.

use rtscope_model::time::{Nanos, Rounding};
use serde::Serialize;

use super::{
    ratio::{self, Counted, ShareRatio},
    sample::{Reading, Run, Sample},
};
use crate::{number::grouped, statistics::dependence::IntervalRefusal};

/// How often a limit is reached on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exceedances {
    pub limit_ns: u64,
    /// Latencies of A at or above it; none where that is not known.
    pub a: Option<u64>,
    /// So many of A surely are.
    pub a_surely: u64,
    pub a_of: u64,
    /// Latencies of B at or above it; none where that is not known.
    pub b: Option<u64>,
    /// So many of B surely are.
    pub b_surely: u64,
    pub b_of: u64,
    /// How long an activation of A that nobody answered had waited at least, if that reached the limit. It is
    /// no measured latency.
    pub a_waited_ns: Option<u64>,
    /// The same of B.
    pub b_waited_ns: Option<u64>,
    /// B's share as a multiple of A's; none when neither reached it, one is not known, or no interval
    /// can be given.
    pub ratio: Option<ShareRatio>,
    /// Why there is no interval.
    pub refused: Option<IntervalRefusal>,
}

/// Counts at a limit.
pub(super) fn exceedances(readings: &[(Sample<'_>, Sample<'_>)], limit_ns: u64) -> Exceedances {
    let (a, b) = &readings[0];
    let (in_a, a_surely, a_of) = count(a, limit_ns);
    let (in_b, b_surely, b_of) = count(b, limit_ns);
    let side = |side: &Sample<'_>| {
        let counted = |run: &Run<'_>| {
            let histogram = &run.member.cell.all.histogram;
            let (surely, at_most) = histogram.at_or_above(limit_ns);
            Counted {
                beyond: if side.reading == Reading::Longest { at_most } else { surely },
                of: histogram.count(),
                inflation: run.inflation(limit_ns),
            }
        };
        side.runs.iter().map(counted).collect::<Vec<Counted>>()
    };
    let ratios = readings.iter().map(|(a, b)| ratio::between(&side(a), &side(b)));
    let is_known = in_a.is_some() && in_b.is_some();
    let found = if is_known { ratio::of_readings(ratios) } else { Ok(None) };
    let (ratio, refused) = match found {
        Ok(ratio) => (ratio, None),
        Err(refusal) => (None, Some(refusal)),
    };
    let (a_waited_ns, b_waited_ns) = (waited_ns(a, limit_ns), waited_ns(b, limit_ns));
    Exceedances {
        limit_ns,
        a: in_a,
        a_surely,
        a_of,
        b: in_b,
        b_surely,
        b_of,
        a_waited_ns,
        b_waited_ns,
        ratio,
        refused,
    }
}

/// The longest that an activation which nobody answered had waited, if that reached a limit.
fn waited_ns(side: &Sample<'_>, limit_ns: u64) -> Option<u64> {
    let rows = side.runs.iter().map(|run| &run.member.cell.all);
    let waited = rows.filter(|row| row.max_is_at_least()).filter_map(|row| row.max_ns()).max();
    waited.filter(|&waited_ns| waited_ns >= limit_ns)
}

/// How many latencies of a side are at or above a limit, how many surely, and out of how many.
fn count(side: &Sample<'_>, limit_ns: u64) -> (Option<u64>, u64, u64) {
    // Each run by its own buckets: what both sides share may be coarser.
    let runs = || side.runs.iter().map(|run| &run.member.cell.all.histogram);
    let (mut surely, mut at_most) = (0u64, 0u64);
    for (low, high) in runs().map(|histogram| histogram.at_or_above(limit_ns)) {
        (surely, at_most) = (surely.saturating_add(low), at_most.saturating_add(high));
    }
    // Each thread's maximum proves one.
    let threads = side.runs.iter().flat_map(|run| &run.member.cell.threads);
    let of_each: u64 = threads.map(|row| row.histogram.at_or_above(limit_ns).0).sum();
    let surely = surely.max(of_each).min(at_most);
    let is_known = runs().all(|histogram| histogram.unplaced().is_empty()) || surely == at_most;
    (is_known.then_some(at_most), surely, side.histogram.count())
}

/// Missed activations on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Missed {
    pub a: u64,
    /// Of so many activations.
    pub a_of: u64,
    pub b: u64,
    /// Of so many activations.
    pub b_of: u64,
    /// B's share as a multiple of A's; none when neither missed any, or no interval can be given.
    pub ratio: Option<ShareRatio>,
    /// Why there is no interval.
    pub refused: Option<IntervalRefusal>,
}

/// Missed activations of two sides; none where those of one are not known.
pub(super) fn missed(a: &Sample<'_>, b: &Sample<'_>) -> Option<Missed> {
    let rows = || a.runs.iter().chain(&b.runs).map(|run| &run.member.cell.all);
    if !rows().all(|row| row.missed_is_known) {
        return None;
    }
    let counted = |run: &Run<'_>| Counted {
        beyond: run.member.cell.all.missed,
        of: run.member.cell.all.planned,
        inflation: run.inflation_of_missed(),
    };
    let side = |side: &Sample<'_>| side.runs.iter().map(counted).collect::<Vec<Counted>>();
    let sum = |side: &[Counted]| {
        side.iter().fold((0, 0), |sum, one| (sum.0 + one.beyond, sum.1 + one.of))
    };
    let (of_a, of_b) = (side(a), side(b));
    let ((a, a_of), (b, b_of)) = (sum(&of_a), sum(&of_b));
    let (ratio, refused) = match ratio::between(&of_a, &of_b) {
        Ok(ratio) => (ratio, None),
        Err(refusal) => (None, Some(refusal)),
    };
    Some(Missed { a, a_of, b, b_of, ratio, refused })
}

impl Missed {
    /// How many were missed, and whether that may be chance; none when none were.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let of = |missed: u64, of: u64| format!("{} of {}", grouped(missed), grouped(of));
        let counts = format!("{} against {}", of(self.a, self.a_of), of(self.b, self.b_of));
        (self.a + self.b > 0).then(|| {
            format!("missed activations: {counts}; {}", than(self.ratio.as_ref(), self.refused))
        })
    }
}

/// What a ratio says, or why there is none.
fn than(ratio: Option<&ShareRatio>, refused: Option<IntervalRefusal>) -> String {
    match (ratio, refused) {
        (Some(ratio), _) => ratio.sentence(),
        (None, Some(refusal)) => format!("cannot say whether they differ: {refusal}"),
        (None, None) => "the file does not contain the exact count".to_owned(),
    }
}

impl Exceedances {
    /// Who meets the limit, from how many, and whether that may be chance; none when nobody was seen.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        self.sentence_if([None, None])
    }

    /// The same, where the records of A or B are inconclusive although their figures meet the limit: why.
    pub(super) fn sentence_if(&self, withheld: [Option<&str>; 2]) -> Option<String> {
        let limit = Nanos(self.limit_ns).unrounded();
        let counts = format!(
            "{} against {}",
            counted(self.a, self.a_surely, self.a_of),
            counted(self.b, self.b_surely, self.b_of)
        );
        let is_met_by_a = self.a == Some(0) && self.a_waited_ns.is_none();
        let is_met_by_b = self.b == Some(0) && self.b_waited_ns.is_none();
        if is_met_by_a && is_met_by_b {
            return (self.a_of > 0 && self.b_of > 0).then(|| {
                format!(
                    "no latency of {limit} or more on either side: {counts}, nothing to compare"
                )
            });
        }
        let met = if is_met_by_b { Some(("B", "A", withheld[1])) } else { None };
        let met = met.or(is_met_by_a.then_some(("A", "B", withheld[0])));
        let who = match met {
            Some((side, other, None)) => format!("{side} meets {limit}, {other} does not"),
            Some((side, other, Some(_))) => {
                format!("the figures of {side} meet {limit}, those of {other} do not")
            }
            None => format!("neither side meets {limit}"),
        };
        let why = met.and_then(|(side, _, why)| Some((side, why?)));
        let why = why.map(|(side, why)| format!("; {side} is inconclusive because {why}"));
        let waited = [("A", self.a_waited_ns), ("B", self.b_waited_ns)];
        let waited = waited.into_iter().filter_map(|(side, waited_ns)| {
            let waited = Nanos(waited_ns?).rounded(Rounding::Down);
            Some(format!("; a missed activation of {side} had waited at least {waited}"))
        });
        let waited: String = waited.collect();
        let than = match (self.a, self.b) {
            (Some(0), Some(0)) => "no measured latency reached it".to_owned(),
            _ => than(self.ratio.as_ref(), self.refused),
        };
        Some(format!("{who}: {counts}; {than}{waited}{}", why.unwrap_or_default()))
    }
}

/// `13 of 100`, or how many at least.
pub(crate) fn counted(count: Option<u64>, surely: u64, of: u64) -> String {
    match count {
        Some(count) => format!("{} of {}", grouped(count), grouped(of)),
        None => format!("at least {} of {}", grouped(surely), grouped(of)),
    }
}

impl ShareRatio {
    /// The ratio in short: `0.33 times`, `at most 0.33 times`.
    pub(super) fn times(&self) -> String {
        let times = |ratio: f64, rounding| format!("{} times", times(ratio, rounding));
        match (self.ratio, self.high) {
            (Some(ratio), _) if ratio > 0.0 => times(ratio, Rounding::Nearest),
            (Some(_), Some(high)) => format!("at most {}", times(high, Rounding::Up)),
            _ => format!("at least {}", times(self.low, Rounding::Down)),
        }
    }

    /// The ratio with its interval, and whether it may be chance.
    #[must_use]
    pub fn sentence(&self) -> String {
        let high = self.high.map(|high| times(high, Rounding::Up));
        let high = high.unwrap_or_else(|| "no bound".to_owned());
        let low = times(self.low, Rounding::Down);
        if !self.chance.is_different() {
            let alone = self.low > 1.0 || self.high.is_some_and(|high| high < 1.0);
            return match alone {
                false => format!(
                    "too few to separate the sides (B's share is {low} to {high} times A's, 95 % interval)"
                ),
                true => format!(
                    "different if it were the only figure (B's share is {low} to {high} times A's, 95 % interval), \
                     but among so many figures it may be chance"
                ),
            };
        }
        match self.ratio {
            Some(ratio) if ratio > 0.0 => format!(
                "B's share is {} times A's (95 % interval {low} to {high} times)",
                times(ratio, Rounding::Nearest),
            ),
            Some(_) => format!("at 95 % B's share is at most {high} times A's"),
            None => format!("at 95 % B's share is at least {low} times A's"),
        }
    }
}

/// A ratio of shares with the given rounding.
pub(crate) fn times(ratio: f64, rounding: Rounding) -> String {
    let step = match ratio {
        0.0 => return "0".to_owned(),
        r if r >= 99.5 => 1.0,
        r if r >= 0.01 => 0.01,
        r => 10f64.powf(r.log10().floor() - 1.0).max(f64::MIN_POSITIVE),
    };
    let rounded = match rounding {
        Rounding::Nearest => ratio,
        _ => rounding.whole(ratio / step) * step,
    };
    match ratio {
        r if r >= 99.5 => grouped(rounded.round() as u64),
        r if r >= 0.01 => format!("{rounded:.2}"),
        _ => format!("{rounded:.1e}"),
    }
}
