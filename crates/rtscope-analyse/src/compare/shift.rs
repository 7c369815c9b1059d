//! How far quantiles moved from A to B.
//!
//! * Several runs on each side: Student's t on the runs' quantiles.
//! * One run on a side: the interval joins those of both quantiles (R. G. Newcombe, Statistics in
//!   Medicine 17, 1998: squares of the distances to the ends are added). They are of order statistics at
//!   the number of independent wake-ups that each side is worth. The chance is that of the two shares
//!   above the quantile of both sides together.
//!
//! A quantile is told as if the latencies of its bucket were evenly spread. Where in its bucket it really lies isn't
//! known, and is the same in each run: so the interval reaches as much further as the buckets of both quantiles allow.

use rtscope_model::{histogram::Histogram, time::Rounding, verdict::Statistic};
use serde::Serialize;

use super::{
    ratio::{self, Chance, Counted, Values},
    sample::{Buckets, Run, Sample},
};
use crate::{
    number::us,
    statistics::{dependence::IntervalRefusal, quantile},
};

/// Quantiles that are compared, as far as both sides reach.
const QUANTILES: [u32; 5] = [500_000_000, 990_000_000, 999_000_000, 999_900_000, 999_990_000];

/// Latencies that must lie above a quantile on both sides.
const ABOVE_MIN: f64 = 10.0;

/// How far a quantile moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shift {
    /// Which, in parts of a billion.
    pub parts: u32,
    /// A's, latencies being spread evenly in their bucket.
    pub a_ns: f64,
    pub b_ns: f64,
    /// B's less A's; with several runs on each side, that of the means of the runs.
    pub shift_ns: f64,
    /// Lower end of its 95 % interval; none where a side reaches no end.
    pub low_ns: Option<f64>,
    pub high_ns: Option<f64>,
    /// How likely such a shift is between equal systems; none when that can't be told.
    #[serde(flatten)]
    pub chance: Option<Chance>,
    /// Why there is no interval.
    pub refused: Option<IntervalRefusal>,
}

/// The shifts of all quantiles that both sides reach, as far as they hold in each reading.
pub(super) fn all(buckets: &Buckets, readings: &[(Sample<'_>, Sample<'_>)]) -> Vec<Shift> {
    let each = readings.iter().map(|(a, b)| of_reading(buckets, a, b));
    let either = |one: Vec<Shift>, other| one.into_iter().zip(other).map(of_either).collect();
    each.reduce(either).unwrap_or_default()
}

/// The same quantile's shift in two readings.
fn of_either((one, other): (Shift, Shift)) -> Shift {
    let chances = one.chance.zip(other.chance);
    let are_opposite = (one.shift_ns > 0.0) != (other.shift_ns > 0.0);
    Shift {
        parts: one.parts,
        a_ns: one.a_ns.max(other.a_ns),
        b_ns: one.b_ns.max(other.b_ns),
        shift_ns: f64::midpoint(one.shift_ns, other.shift_ns),
        low_ns: one.low_ns.zip(other.low_ns).map(|(one, other)| one.min(other)),
        high_ns: one.high_ns.zip(other.high_ns).map(|(one, other)| one.max(other)),
        chance: chances.map(|(one, other)| one.of_either(other, are_opposite)),
        refused: one.refused.or(other.refused),
    }
}

fn of_reading(buckets: &Buckets, a: &Sample<'_>, b: &Sample<'_>) -> Vec<Shift> {
    let (n_a, n_b) = (a.histogram.count(), b.histogram.count());
    let reached = |parts: &u32| {
        let above = 1.0 - share(*parts);
        n_a.min(n_b) as f64 * above >= ABOVE_MIN
            && [a, b].into_iter().all(|side| is_placed(&side.histogram, *parts))
    };
    QUANTILES.into_iter().filter(reached).map(|parts| at_quantile(buckets, a, b, parts)).collect()
}

fn share(parts: u32) -> f64 {
    f64::from(parts) / f64::from(quantile::WHOLE)
}

/// Whether a quantile and the upper end of its interval have buckets.
fn is_placed(histogram: &Histogram, parts: u32) -> bool {
    let has_end = |found: quantile::Quantile| found.high_ns.is_some();
    histogram.unplaced().is_empty() || quantile::estimate(histogram, parts).is_some_and(has_end)
}

fn at_quantile(buckets: &Buckets, a: &Sample<'_>, b: &Sample<'_>, parts: u32) -> Shift {
    let p = share(parts);
    let (a_ns, b_ns) = (buckets.quantile_ns(&a.all, p), buckets.quantile_ns(&b.all, p));
    let ((a_low, a_high), (b_low, b_high)) = (buckets.around(a_ns), buckets.around(b_ns));
    let (less, more) = ((b_ns - b_low) + (a_high - a_ns), (b_high - b_ns) + (a_ns - a_low));
    let mut shift = Shift {
        parts,
        a_ns,
        b_ns,
        shift_ns: b_ns - a_ns,
        low_ns: None,
        high_ns: None,
        chance: None,
        refused: None,
    };
    if a.runs.len() >= ratio::RUNS_MIN && b.runs.len() >= ratio::RUNS_MIN {
        let found = ratio::difference(of_runs(buckets, a, p), of_runs(buckets, b, p));
        (shift.shift_ns, shift.chance) = (found.value, Some(found.chance));
        (shift.low_ns, shift.high_ns) = (Some(found.low), Some(found.high));
    } else {
        match of_each(buckets, a, b, parts) {
            Ok((low_ns, high_ns, chance)) => {
                (shift.low_ns, shift.high_ns, shift.chance) = (low_ns, high_ns, Some(chance));
            }
            Err(refusal) => shift.refused = Some(refusal),
        }
    }
    shift.low_ns = shift.low_ns.map(|low_ns| low_ns - less);
    shift.high_ns = shift.high_ns.map(|high_ns| high_ns + more);
    // A side that saw no burst seems to know its quantile better than it does. What the test of 0 doesn't refute
    // belongs to the interval.
    if shift.chance.is_some_and(|chance| chance.p >= ratio::ALLOWED) {
        shift.low_ns = shift.low_ns.map(|low_ns| low_ns.min(0.0));
        shift.high_ns = shift.high_ns.map(|high_ns| high_ns.max(0.0));
    }
    shift
}

/// The quantile of each run, known to its bucket at best.
fn of_runs(buckets: &Buckets, side: &Sample<'_>, p: f64) -> Values {
    let values: Vec<f64> =
        side.runs.iter().map(|run| buckets.quantile_ns(&run.counts, p)).collect();
    let (low, high) = buckets.around(buckets.quantile_ns(&side.all, p));
    Values::new(&values, (high - low).powi(2) / 12.0)
}

type Interval = (Option<f64>, Option<f64>, Chance);

fn of_each(
    buckets: &Buckets,
    a: &Sample<'_>,
    b: &Sample<'_>,
    parts: u32,
) -> Result<Interval, IntervalRefusal> {
    let (a_ends, b_ends) = (ends(buckets, a, parts)?, ends(buckets, b, parts)?);
    let seen = b_ends.value - a_ends.value;
    let join = |one: Option<f64>, other: Option<f64>| Some((one?.powi(2) + other?.powi(2)).sqrt());
    let low = join(b_ends.below(), a_ends.above()).map(|distance| seen - distance);
    let high = join(b_ends.above(), a_ends.below()).map(|distance| seen + distance);
    Ok((low, high, chance(buckets, a, b, parts)?))
}

/// A side's quantile and the ends of its interval.
struct Ends {
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl Ends {
    fn below(&self) -> Option<f64> {
        Some(self.value - self.low?)
    }

    fn above(&self) -> Option<f64> {
        Some(self.high? - self.value)
    }
}

/// From the ranks of the ends in as many independent wake-ups as the side is worth.
fn ends(buckets: &Buckets, side: &Sample<'_>, parts: u32) -> Result<Ends, IntervalRefusal> {
    let value = buckets.quantile_ns(&side.all, share(parts));
    let worth = side.inflation(value as u64)?;
    let effective = (side.histogram.count() as f64 / worth).floor().max(1.0);
    let (low, high) = quantile::interval_ranks(effective as u64, parts);
    let at = |rank: u64| buckets.quantile_ns(&side.all, (rank as f64 / effective).min(1.0));
    // An end lies in front of its rank's wake-up.
    Ok(Ends { value, low: low.map(|rank| at(rank - 1)), high: high.map(at) })
}

/// The chance of so different shares above the quantile of both sides together.
fn chance(
    buckets: &Buckets,
    a: &Sample<'_>,
    b: &Sample<'_>,
    parts: u32,
) -> Result<Chance, IntervalRefusal> {
    let both: Vec<u64> = a.all.iter().zip(&b.all).map(|(a, b)| a + b).collect();
    let from = buckets.edge_near(&both, share(parts));
    let Some(limit_ns) = buckets.lower_ns(from) else { return Ok(Chance::new(1.0)) };
    let total: u64 = both.iter().sum();
    let beyond: u64 = both[from..].iter().sum();
    // Counts of a share that isn't small vary less than Poisson's.
    let rest = 1.0 - beyond as f64 / total.max(1) as f64;
    let counted = |run: &Run<'_>| Counted {
        beyond: run.counts[from..].iter().sum(),
        of: run.counts.iter().sum(),
        inflation: run.inflation(limit_ns).map(|worth| worth * rest),
    };
    let side = |side: &Sample<'_>| side.runs.iter().map(counted).collect::<Vec<Counted>>();
    Ok(ratio::between(&side(a), &side(b))?.map_or(Chance::new(1.0), |ratio| ratio.chance))
}

/// The quantiles that moved, or that none did; why, where it can't be told.
pub(super) fn sentence(shifts: &[Shift]) -> Option<String> {
    let refused = shifts.iter().find_map(|shift| shift.refused);
    if shifts.iter().all(|shift| shift.chance.is_none()) {
        return refused.map(|refusal| format!("cannot say whether quantiles moved: {refusal}"));
    }
    let moved: Vec<String> =
        shifts.iter().filter(|shift| shift.is_different()).map(Shift::sentence).collect();
    let what = match moved.is_empty() {
        true => {
            "no quantile moved by more than chance and the bucket widths can explain".to_owned()
        }
        false => format!("from A to B {}", moved.join("; ")),
    };
    let open = refused.map_or_else(String::new, |refusal| {
        let open = shifts.iter().filter(|shift| shift.refused.is_some());
        let names = open.map(|shift| Statistic::Quantile(shift.parts).to_string());
        let names: Vec<String> = names.collect();
        format!("; cannot say whether {} moved: {refusal}", names.join(", "))
    });
    Some(what + &open)
}

impl Shift {
    /// Whether it is real: neither chance nor the buckets explain it.
    #[must_use]
    pub fn is_different(&self) -> bool {
        let may_be_none = self.low_ns.is_none_or(|low_ns| low_ns <= 0.0)
            && self.high_ns.is_none_or(|high_ns| high_ns >= 0.0);
        !may_be_none && self.chance.is_some_and(Chance::is_different)
    }

    /// How far it moved, with its interval, in us.
    #[must_use]
    pub fn sentence(&self) -> String {
        let name = Statistic::Quantile(self.parts);
        format!(
            "{name} moves by {} us (95 %: {})",
            signed_us(self.shift_ns, Rounding::Nearest),
            self.ends().join(" to ")
        )
    }

    /// The ends of its interval in us, rounded outwards.
    pub(crate) fn ends(&self) -> [String; 2] {
        let end = |end: Option<f64>, rounding| {
            end.map_or_else(|| "no bound".to_owned(), |end| signed_us(end, rounding))
        };
        [end(self.low_ns, Rounding::Down), end(self.high_ns, Rounding::Up)]
    }
}

/// A difference in us with its sign.
pub(crate) fn signed_us(ns: f64, rounding: Rounding) -> String {
    let step_ns = match ns.abs() {
        ns if ns < 9_995.0 => 10.0,
        ns if ns < 999_950.0 => 100.0,
        _ => 1_000.0,
    };
    let sign = if ns < 0.0 { "-" } else { "+" };
    let ns = (rounding.whole(ns / step_ns) * step_ns).abs();
    if step_ns == 10.0 {
        format!("{sign}{:.2}", ns / 1e3)
    } else {
        format!("{sign}{}", us(ns as u64))
    }
}
