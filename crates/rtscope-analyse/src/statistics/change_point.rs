//! Where a series of runs changed its level: after an update, a new board, a new kernel.
//!
//! Pettitt's test finds the split after which values rank differently, and how likely that is by
//! chance (A. N. Pettitt, Applied Statistics 28, 1979); each part is split again until no split is
//! significant. Ranks only: one bad run is no change.
//!
//! Runs of a series resemble their neighbours: a machine that was warm or busy stays so for some. The chance is
//! that of fewer independent runs then: `n (1 - r) / (1 + r)` of them, with r the correlation of the ranks of
//! neighbours within a level (G. V. Bayley and J. M. Hammersley, Journal of the Royal Statistical Society
//! Supplement 8, 1946).
//!
//! What it can't show: changes within the first or last [`PART_MIN`] runs, and what changed.

use std::fmt;

use serde::Serialize;

use crate::number::{counted, grouped};

/// Runs on each side of a change, at least.
const PART_MIN: usize = 5;

/// Fewer runs have no split that chance gives less often than [`CHANCE`], however sharp it is.
pub const RUNS_MIN: usize = 16;

/// Maxima of runs are compared when the longest has at most so many times the wake-ups of the shortest.
pub const LENGTHS_APART: f64 = 1.5;

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

/// Why no change is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePointRefusal {
    /// Fewer than [`RUNS_MIN`] runs.
    TooFew { runs: usize },
    /// Maxima of runs of different lengths: the longer one has the larger by chance.
    Lengths {
        /// Wake-ups of the shortest run.
        least: u64,
        /// Of the longest.
        most: u64,
    },
}

impl fmt::Display for ChangePointRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangePointRefusal::TooFew { runs } => write!(
                f,
                "{} can't show a change of level: at least {RUNS_MIN} are needed",
                counted(*runs as u64, "run")
            ),
            ChangePointRefusal::Lengths { least, most } => write!(
                f,
                "cannot compare the maxima of runs with {} to {} wake-ups, because longer runs have larger \
                    maxima: use a quantile such as p99.9",
                grouped(*least),
                grouped(*most)
            ),
        }
    }
}

/// The changes of a series of maxima, of which each is that of so many wake-ups.
///
/// # Errors
///
/// When there are too few runs, or their lengths differ by more than [`LENGTHS_APART`].
pub fn of_maxima(values: &[f64], counts: &[u64]) -> Result<Vec<ChangePoint>, ChangePointRefusal> {
    let least = counts.iter().copied().min().unwrap_or(0);
    let most = counts.iter().copied().max().unwrap_or(0);
    match most as f64 > least as f64 * LENGTHS_APART {
        true => Err(ChangePointRefusal::Lengths { least, most }),
        false => find(values),
    }
}

/// The changes of a series, in order.
///
/// # Errors
///
/// When there are too few runs.
pub fn find(values: &[f64]) -> Result<Vec<ChangePoint>, ChangePointRefusal> {
    if values.len() < RUNS_MIN {
        return Err(ChangePointRefusal::TooFew { runs: values.len() });
    }
    let mut found: Vec<usize> = Vec::new();
    split(values, 1.0, 0, &mut found);
    let effect = repetition(values, &found);
    found.clear();
    split(values, effect, 0, &mut found);
    Ok(changes(values, effect, found))
}

/// How many runs say as much as one independent run, from the ranks of neighbours within the levels that the
/// splits leave.
fn repetition(values: &[f64], splits: &[usize]) -> f64 {
    let rank = |value: &f64| values.iter().filter(|other| other.total_cmp(value).is_lt()).count();
    let ranks: Vec<f64> = values.iter().map(|value| rank(value) as f64).collect();
    let ends: Vec<usize> =
        [0].into_iter().chain(splits.iter().copied()).chain([values.len()]).collect();
    let mut rest: Vec<f64> = Vec::with_capacity(values.len());
    for part in ends.windows(2).map(|ends| &ranks[ends[0]..ends[1]]) {
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        rest.extend(part.iter().map(|rank| rank - mean));
    }
    let products = rest.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
    let squares = rest.iter().map(|rank| rank * rank).sum::<f64>();
    let correlation = if squares > 0.0 { (products / squares).clamp(0.0, 0.95) } else { 0.0 };
    (1.0 + correlation) / (1.0 - correlation)
}

fn changes(values: &[f64], effect: f64, found: Vec<usize>) -> Vec<ChangePoint> {
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
            chance: sharpest(&values[from..to]).map_or(1.0, |sharpest| sharpest.chance(effect)),
        }
    };
    ends.windows(3).map(change).collect()
}

/// Adds the splits of a part of the series that begins at `offset`, in order; `effect` is how many runs say as
/// much as one independent run.
fn split(values: &[f64], effect: f64, offset: usize, found: &mut Vec<usize>) {
    let is_no_chance = |split: &Split| split.chance(effect) < CHANCE;
    let Some(Split { at, .. }) = sharpest(values).filter(is_no_chance) else {
        return;
    };
    split(&values[..at], effect, offset, found);
    found.push(offset + at);
    split(&values[at..], effect, offset + at, found);
}

/// A way to part a series in two.
struct Split {
    at: usize,
    /// How differently values rank before and after it.
    sharpness: f64,
    of: f64,
}

impl Split {
    /// The chance of a split as sharp in a steady series.
    fn chance(&self, effect: f64) -> f64 {
        let square = self.sharpness * self.sharpness / effect;
        (2.0 * (-6.0 * square / (self.of.powi(3) + self.of.powi(2))).exp()).min(1.0)
    }
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
    let (sharpness, at) = candidates.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Split { at, sharpness, of: n as f64 })
}

/// The middle of all values; of an even number the mean of the two in the middle. NaN without a value.
pub(crate) fn median(values: &[f64]) -> f64 {
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
        let found = find(&values).expect("enough runs");
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
            wrong += usize::from(find(&values) != Ok(Vec::new()));
        }
        assert!(wrong <= 6, "{wrong} of 200");
    }

    /// Runs of which each resembles the one before.
    fn alike(seed: u64, n: usize, correlation: f64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut last = 0.0;
        let next = || {
            last = correlation * last + random.exponential() - 1.0;
            last
        };
        std::iter::repeat_with(next).skip(50).take(n).collect()
    }

    #[test]
    fn runs_that_resemble_their_neighbours_are_no_change() {
        for (n, correlation) in [(20, 0.5), (40, 0.5), (80, 0.5), (40, 0.7)] {
            let is_wrong = |seed: &u64| find(&alike(*seed, n, correlation)) != Ok(Vec::new());
            let wrong = (0..200).filter(is_wrong).count();
            // Without allowing for it 16, 34, 46 and 70 of 200.
            assert!(wrong <= 10, "{n} runs, {correlation}: {wrong} of 200");
        }
        // A step of three deviations is still found.
        let step = |i: usize| if i < 40 { 0.0 } else { 3.5 };
        let found = |seed: &u64| {
            let values = alike(*seed, 80, 0.5).into_iter().enumerate();
            find(&values.map(|(i, value)| value + step(i)).collect::<Vec<_>>()) != Ok(Vec::new())
        };
        assert!((0..50).filter(found).count() > 40);
    }

    #[test]
    fn too_few_runs_and_maxima_of_other_lengths_are_refused() {
        let step = |n: usize| (0..n).map(|i| f64::from(u8::from(i >= n / 2))).collect::<Vec<_>>();
        assert_eq!(find(&step(15)), Err(ChangePointRefusal::TooFew { runs: 15 }));
        assert_eq!(find(&step(16)).map(|found| found.len()), Ok(1));
        let counts: Vec<u64> = (0..20).map(|i| if i < 10 { 60_000 } else { 600_000 }).collect();
        let refused = of_maxima(&step(20), &counts).expect_err("other lengths");
        assert!(refused.to_string().contains("60,000 to 600,000 wake-ups"), "{refused}");
        assert_eq!(of_maxima(&step(20), &[60_000; 20]).map(|found| found.len()), Ok(1));
    }

    #[test]
    fn a_series_that_rises_steadily_repeats_itself() {
        // By hand: the ranks less their mean are -1.5, -0.5, 0.5, 1.5; 1.25 of 5 is a correlation of a quarter.
        assert!((repetition(&[1.0, 2.0, 3.0, 4.0], &[]) - 1.25 / 0.75).abs() < 1e-12);
        assert_eq!(repetition(&[1.0, 1.0, 5.0, 5.0], &[2]), 1.0);
        assert_eq!([median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])], [2.0, 2.5]);
    }
}
