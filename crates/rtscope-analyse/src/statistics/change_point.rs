//! Where a series of runs changed its level: after an update, a new board, a new kernel.
//!
//! Pettitt's test finds the split after which values rank differently, and how likely that is by
//! chance (A. N. Pettitt, Applied Statistics 28, 1979); each part is split again until no split is
//! significant. Ranks only: one bad run is no change.
//!
//! What it can't show: changes within the first or last [`PART_MIN`] runs, and what changed.

use serde::Serialize;

/// Runs on each side of a change, at least.
const PART_MIN: usize = 5;

/// A split that chance alone gives more often than this is none.
const CHANCE: f64 = 0.01;

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ChangePoint {
    /// Index of the first value of the new level.
    pub at: usize,
    /// Median up to the change before it.
    pub before: f64,
    /// Median from here up to the next change.
    pub after: f64,
    /// The chance of a split as sharp in a steady series.
    pub chance: f64,
}

/// The changes of a series, in order.
#[must_use]
pub fn of(values: &[f64]) -> Vec<ChangePoint> {
    let mut found: Vec<usize> = Vec::new();
    split(values, 0, &mut found);
    let mut ends: Vec<usize> = [0].into_iter().chain(found).chain([values.len()]).collect();
    // A split was found beside levels that further splits took away: it is placed anew between its
    // neighbours.
    for n in 1..ends.len() - 1 {
        if let Some(sharpest) = sharpest(&values[ends[n - 1]..ends[n + 1]]) {
            ends[n] = ends[n - 1] + sharpest.at;
        }
    }
    let change = |part: &[usize]| {
        let (from, at, to) = (part[0], part[1], part[2]);
        ChangePoint {
            at,
            before: median(&values[from..at]),
            after: median(&values[at..to]),
            chance: sharpest(&values[from..to]).map_or(1.0, |sharpest| sharpest.chance),
        }
    };
    ends.windows(3).map(change).collect()
}

/// Adds the splits of a part of the series that begins at `offset`, in order.
fn split(values: &[f64], offset: usize, found: &mut Vec<usize>) {
    let Some(Split { at, .. }) = sharpest(values).filter(|split| split.chance < CHANCE) else {
        return;
    };
    split(&values[..at], offset, found);
    found.push(offset + at);
    split(&values[at..], offset + at, found);
}

/// A way to part a series in two.
struct Split {
    at: usize,
    chance: f64,
}

/// The split after which values rank most differently; none of a series that is too short.
fn sharpest(values: &[f64]) -> Option<Split> {
    let n = values.len();
    let sharpness = |at: usize| {
        let pairs = values[..at].iter().flat_map(|a| values[at..].iter().map(move |b| (a, b)));
        let sum: f64 =
            pairs.map(|(a, b)| (b - a).partial_cmp(&0.0).map_or(0.0, |o| f64::from(o as i8))).sum();
        sum.abs()
    };
    let candidates = (PART_MIN..=n.checked_sub(PART_MIN)?).map(|at| (sharpness(at), at));
    let (most, at) = candidates.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let n = n as f64;
    let chance = (2.0 * (-6.0 * most * most / (n.powi(3) + n * n)).exp()).min(1.0);
    Some(Split { at, chance })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random::Random;

    #[test]
    fn a_step_and_a_step_back_are_found() {
        let mut random = Random::new(4);
        let level = |i: usize| if (20..45).contains(&i) { 60.0 } else { 40.0 };
        let values: Vec<f64> = (0..70).map(|i| level(i) + 5.0 * random.exponential()).collect();
        let found = of(&values);
        assert_eq!(found.iter().map(|change| change.at).collect::<Vec<_>>(), [20, 45]);
        assert!((found[0].after - found[0].before - 20.0).abs() < 4.0, "{found:?}");
    }

    #[test]
    fn steady_series_and_single_outliers_have_none() {
        let mut wrong = 0;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut values: Vec<f64> = (0..40).map(|_| random.exponential()).collect();
            values[13] = 1e6;
            wrong += usize::from(!of(&values).is_empty());
        }
        assert!(wrong <= 6, "{wrong} of 200");
        assert!(of(&[1.0, 2.0]).is_empty());
    }
}
