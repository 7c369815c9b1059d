//! How many times as often: the ratio of two shares, with its interval and how likely chance is.
//!
//! * One run on a side: given the sum of two Poisson counts, the second is binomial. So the interval of
//!   its probability (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934) gives that of the ratio of
//!   the rates, exact for counts of any size (J. Przyborowski and H. Wilenski, Biometrika 31, 1940).
//!   Counts are divided by their [inflation](crate::statistics::dependence::Dependence::inflation) first:
//!   what is left is worth as much as independent wake-ups.
//! * Two runs or more on each side: the run is the unit. Student's t on the logarithms of the runs'
//!   shares, for spreads that may differ (B. L. Welch, Biometrika 34, 1947). A spread is never taken as
//!   smaller than that of Poisson counts.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::beta;
use crate::statistics::dependence::IntervalRefusal;

/// Chance that the ratio lies beyond one end.
const TAIL: f64 = 0.025;

/// The chance from which on a difference may be none.
pub(super) const ALLOWED: f64 = 0.05;

/// Runs of each side from which on the run is the unit.
pub(super) const RUNS_MIN: usize = 2;

/// B's share as a multiple of A's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ShareRatio {
    /// The ratio; none when A has none.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end; none when there is no bound.
    pub high: Option<f64>,
    /// Chance of such a difference, or a larger one, between equal systems.
    #[serde(flatten)]
    pub chance: Chance,
}

/// How likely a difference is between equal systems.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Chance {
    /// Of this figure alone.
    pub p: f64,
    /// Adjusted for all figures of the comparison.
    pub p_adjusted: f64,
}

impl Chance {
    pub(super) fn new(p: f64) -> Chance {
        let p = p.clamp(0.0, 1.0);
        Chance { p, p_adjusted: p }
    }

    /// The larger of the chances in two readings of the same counts; where they lead to opposite differences, that of none.
    pub(super) fn of_either(self, other: Chance, are_opposite: bool) -> Chance {
        Chance::new(if are_opposite { 1.0 } else { self.p.max(other.p) })
    }

    /// Whether the difference is real, at 5 % for all figures of the comparison together.
    #[must_use]
    pub fn is_different(self) -> bool {
        self.p_adjusted < ALLOWED
    }
}

/// What one run counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// So many reached a limit.
    pub(super) beyond: u64,
    pub(super) of: u64,
    /// Number of wake-ups that are worth one independent wake-up.
    pub(super) inflation: Result<f64, IntervalRefusal>,
}

/// The ratio of B's share to A's; none when neither side has any.
///
/// # Errors
///
/// When a run can't tell how its wake-ups depend on each other.
pub(super) fn between(a: &[Counted], b: &[Counted]) -> Result<Option<ShareRatio>, IntervalRefusal> {
    let sums = [a, b]
        .map(|side| side.iter().fold((0, 0), |sum, one| (sum.0 + one.beyond, sum.1 + one.of)));
    let [(beyond_a, of_a), (beyond_b, of_b)] = sums;
    if beyond_a + beyond_b == 0 || of_a == 0 || of_b == 0 {
        return Ok(None);
    }
    if a.len() >= RUNS_MIN && b.len() >= RUNS_MIN {
        return Ok(Some(of_runs(a, b)));
    }
    let (worth_a, worth_b) = (worth(a)?, worth(b)?);
    // A side that counted none shows no dependence: the other's is the best guess.
    let worth_a = worth_a.or(worth_b).unwrap_or(1.0);
    let worth_b = worth_b.unwrap_or(worth_a);
    let scale = of_a as f64 / of_b as f64 * worth_b / worth_a;
    let (a, b) = (beyond_a as f64 / worth_a, beyond_b as f64 / worth_b);
    Ok(Some(ShareRatio {
        ratio: (a > 0.0).then(|| b / a * scale),
        low: odds_low(a, b) * scale,
        high: odds_high(a, b).map(|odds| odds * scale),
        chance: Chance::new(chance(a, b, 1.0 / (1.0 + scale))),
    }))
}

/// What holds in each reading of counts that are not known exactly.
///
/// # Errors
///
/// When one of them has no interval.
pub(super) fn of_readings(
    readings: impl Iterator<Item = Result<Option<ShareRatio>, IntervalRefusal>>,
) -> Result<Option<ShareRatio>, IntervalRefusal> {
    let each = readings.collect::<Result<Vec<Option<ShareRatio>>, IntervalRefusal>>()?;
    Ok(each.into_iter().reduce(of_either).flatten())
}

fn of_either(one: Option<ShareRatio>, other: Option<ShareRatio>) -> Option<ShareRatio> {
    let (Some(one), Some(other)) = (one, other) else {
        // In one reading neither side has any, in the other one or both do: nothing can be said.
        let open = ShareRatio { ratio: None, low: 0.0, high: None, chance: Chance::new(1.0) };
        return one.or(other).map(|_| open);
    };
    let is_more = |seen: ShareRatio| seen.ratio.is_none_or(|ratio| ratio > 1.0);
    Some(ShareRatio {
        ratio: one.ratio.zip(other.ratio).map(|(one, other)| f64::midpoint(one, other)),
        low: one.low.min(other.low),
        high: one.high.zip(other.high).map(|(one, other)| one.max(other)),
        chance: one.chance.of_either(other.chance, is_more(one) != is_more(other)),
    })
}

/// What divides the counts of a side, weighted by the counts; none when there are none.
fn worth(side: &[Counted]) -> Result<Option<f64>, IntervalRefusal> {
    let mut sum = 0.0;
    let counted: u64 = side.iter().map(|one| one.beyond).sum();
    for one in side.iter().filter(|one| one.beyond > 0) {
        sum += one.inflation? * one.beyond as f64;
    }
    Ok((counted > 0).then(|| sum / counted as f64))
}

/// Lower end of the odds of an event being of B, of which `a` were not and `b` were.
fn odds_low(a: f64, b: f64) -> f64 {
    if b > 0.0 { odds(beta::quantile(b, a + 1.0, TAIL)) } else { 0.0 }
}

fn odds_high(a: f64, b: f64) -> Option<f64> {
    (a > 0.0).then(|| odds(beta::quantile(b + 1.0, a, 1.0 - TAIL)))
}

fn odds(p: f64) -> f64 {
    p / (1.0 - p)
}

/// Chance of so uneven counts when each event is of B with the chance `even`: twice the smaller tail.
fn chance(a: f64, b: f64, even: f64) -> f64 {
    let at_least = if b > 0.0 { beta::cdf(b, a + 1.0, even) } else { 1.0 };
    let at_most = if a > 0.0 { 1.0 - beta::cdf(b + 1.0, a, even) } else { 1.0 };
    2.0 * at_least.min(at_most)
}

/// Student's t on the runs' logarithms. Where a run has none, half an event is added to each.
fn of_runs(a: &[Counted], b: &[Counted]) -> ShareRatio {
    let more = if a.iter().chain(b).any(|one| one.beyond == 0) { 0.5 } else { 0.0 };
    let side = |side: &[Counted]| {
        let runs: Vec<&Counted> = side.iter().filter(|one| one.of > 0).collect();
        let log = |one: &&Counted| ((one.beyond as f64 + more) / one.of as f64).ln();
        let poisson: f64 = runs.iter().map(|one| 1.0 / (one.beyond as f64 + more)).sum();
        Values::new(&runs.iter().map(log).collect::<Vec<f64>>(), poisson / runs.len() as f64)
    };
    let found = difference(side(a), side(b));
    let any = |side: &[Counted]| side.iter().any(|one| one.beyond > 0);
    ShareRatio {
        ratio: any(a).then(|| found.value.exp()),
        low: if any(b) { found.low.exp() } else { 0.0 },
        high: any(a).then(|| found.high.exp()),
        chance: found.chance,
    }
}

/// Values of a side's runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    mean: f64,
    /// Variance of the mean.
    variance: f64,
    freedom: f64,
}

impl Values {
    /// A value that has no spread.
    pub(crate) fn exact(value: f64) -> Values {
        Values { mean: value, variance: 0.0, freedom: 1.0 }
    }

    /// `least` is a variance of a single value below which theirs can't be.
    pub(crate) fn new(values: &[f64], least: f64) -> Values {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let freedom = (n - 1.0).max(1.0);
        Values { mean, variance: (squares / freedom).max(least) / n, freedom }
    }
}

/// A difference of means with its interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) chance: Chance,
}

/// B's mean less A's, by Welch's t.
pub(crate) fn difference(a: Values, b: Values) -> Difference {
    let value = b.mean - a.mean;
    let variance = a.variance + b.variance;
    let parts = [a, b].map(|side| side.variance.powi(2) / side.freedom);
    let freedom = variance.powi(2) / parts.iter().sum::<f64>();
    let t = StudentsT::new(0.0, 1.0, freedom.max(1.0)).ok().filter(|_| variance > 0.0);
    let Some(t) = t else {
        let chance = Chance::new(if value == 0.0 { 1.0 } else { 0.0 });
        return Difference { value, low: value, high: value, chance };
    };
    let spread = variance.sqrt();
    let width = t.inverse_cdf(1.0 - TAIL) * spread;
    let p = 2.0 * t.cdf(-(value / spread).abs());
    Difference { value, low: value - width, high: value + width, chance: Chance::new(p) }
}

/// Adjusts the chances of all figures that were looked at: one of them is called different by chance in at
/// most 5 % of comparisons (S. Holm, Scandinavian Journal of Statistics 6, 1979).
pub(crate) fn adjust(mut chances: Vec<&mut Chance>) {
    chances.sort_by(|a, b| a.p.total_cmp(&b.p));
    let mut least = 0.0f64;
    for (left, chance) in (1..=chances.len()).rev().zip(&mut chances) {
        least = least.max(left as f64 * chance.p).min(1.0);
        chance.p_adjusted = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random::Random;

    fn one(beyond: u64, of: u64) -> [Counted; 1] {
        [Counted { beyond, of, inflation: Ok(1.0) }]
    }

    fn ratio(a: (u64, u64), b: (u64, u64)) -> ShareRatio {
        between(&one(a.0, a.1), &one(b.0, b.1)).expect("no refusal").expect("some")
    }

    /// P(at least k) of a binomial distribution, by the sum.
    fn at_least(k: u64, n: u64, p: f64) -> f64 {
        let mut chance = (1.0 - p).powf(n as f64);
        let mut below = 0.0;
        for i in 0..k {
            below += chance;
            chance *= (n - i) as f64 / (i + 1) as f64 * p / (1.0 - p);
        }
        1.0 - below
    }

    #[test]
    fn ends_are_those_of_the_binomial_sums() {
        for (a, b) in [(1, 0), (0, 5), (3, 4), (13, 1), (40, 25)] {
            let ratio = ratio((a, 1_000), (b, 1_000));
            let share = |odds: f64| odds / (1.0 + odds);
            if b > 0 {
                let low = at_least(b, a + b, share(ratio.low));
                assert!((low - TAIL).abs() < 1e-9, "{a} {b}: {low}");
            }
            match ratio.high {
                Some(high) => {
                    let high = 1.0 - at_least(b + 1, a + b, share(high));
                    assert!((high - TAIL).abs() < 1e-9, "{a} {b}: {high}");
                }
                None => assert_eq!(a, 0),
            }
            let tails = [at_least(b, a + b, 0.5), 1.0 - at_least(b + 1, a + b, 0.5)];
            let p = (2.0 * tails[0].min(tails[1])).min(1.0);
            assert!((ratio.chance.p - p).abs() < 1e-9, "{a} {b}: {:?}", ratio.chance);
        }
    }

    #[test]
    fn shares_count_not_numbers() {
        // 13 of 100 against 0 of 100,000: with equal shares 13,000 were due.
        let found = ratio((13, 100), (0, 100_000));
        assert!(found.ratio == Some(0.0) && found.low == 0.0);
        assert!(found.high.is_some_and(|high| (2e-4..4e-4).contains(&high)), "{found:?}");
        assert!(between(&one(0, 10), &one(0, 10)).is_ok_and(|none| none.is_none()));
    }

    /// The spread of a large count was left out beside one of up to 1,000: the interval held 92 %.
    #[test]
    fn large_counts_have_the_exact_interval() {
        for (a, b) in [(5_001u64, 1_000u64), (1_000, 5_001), (20_000, 900), (1_000_000, 900_000)] {
            let found = ratio((a, 1), (b, 1));
            let width = 1.959_964 * (1.0 / a as f64 + 1.0 / b as f64).sqrt();
            let seen = b as f64 / a as f64;
            for (end, normal) in [
                (found.low, seen * (-width).exp()),
                (found.high.expect("high"), seen * width.exp()),
            ] {
                // The ends of the normal distribution are nearly right here.
                let off = (end / normal).ln().abs() / width;
                assert!(off < 0.05, "{a} {b}: {end} is not {normal}");
            }
        }
        let even = ratio((1_000_000_000, 1), (1_000_000_000, 1));
        assert!(even.low > 0.999_9 && even.high.is_some_and(|high| high < 1.000_1));
    }

    #[test]
    fn dependent_counts_are_worth_less() {
        let side = |beyond, inflation| [Counted { beyond, of: 100_000, inflation: Ok(inflation) }];
        let found =
            between(&side(500, 50.0), &side(1_000, 50.0)).expect("no refusal").expect("some");
        let alone = ratio((10, 100_000), (20, 100_000));
        assert!(found.ratio == Some(2.0), "{found:?}");
        assert!((found.low - alone.low).abs() < 1e-9 && found.chance.p == alone.chance.p);
        let slow = [Counted { beyond: 5, of: 10, inflation: Err(IntervalRefusal::Slow) }];
        assert_eq!(between(&slow, &one(1, 10)).map(drop), Err(IntervalRefusal::Slow));
        // What wasn't counted needs no dependence.
        let none = [Counted { beyond: 0, of: 10, inflation: Err(IntervalRefusal::Slow) }];
        assert!(between(&none, &one(1, 10)).is_ok());
    }

    #[test]
    fn welch_is_that_of_an_independent_library() {
        // scipy.stats.ttest_ind([1, 2, 4], [3, 5, 9, 4], equal_var=False)
        let values = |values: &[f64]| Values::new(values, 0.0);
        let found = difference(values(&[1.0, 2.0, 4.0]), values(&[3.0, 5.0, 9.0, 4.0]));
        assert!((found.chance.p - 0.126_763_943).abs() < 1e-6, "{found:?}");
        assert!((found.low + 1.194_854_293).abs() < 1e-4, "{found:?}");
    }

    /// Two sides of three runs of one system whose runs differ by 30 %: the pooled counts excluded 1 in
    /// 68 % of comparisons.
    #[test]
    fn runs_that_differ_are_not_called_different_systems() {
        let mut random = Random::new(3);
        let (mut excluded, comparisons) = (0, 1_000);
        for _ in 0..comparisons {
            let mut side = || -> Vec<Counted> {
                let mut run = |_| {
                    let normal = (-2.0 * random.share().ln()).sqrt()
                        * (std::f64::consts::TAU * random.share()).cos();
                    let beyond = (1_000.0 * (0.3 * normal).exp()).round() as u64;
                    Counted { beyond, of: 100_000, inflation: Ok(1.0) }
                };
                (0..3).map(&mut run).collect()
            };
            let (a, b) = (side(), side());
            let found = between(&a, &b).expect("no refusal").expect("some");
            excluded += u32::from(found.low > 1.0 || found.high.is_some_and(|high| high < 1.0));
        }
        assert!((10..=70).contains(&excluded), "{excluded} of {comparisons}");
    }

    #[test]
    fn holm_steps_down() {
        // By hand: 4 x 0.01, 3 x 0.02 = 0.06, 2 x 0.03 raised to 0.06, 1 x 0.5.
        let mut chances = [0.5, 0.01, 0.03, 0.02].map(Chance::new);
        adjust(chances.iter_mut().collect());
        let found = chances.map(|chance| (chance.p_adjusted * 1e6).round() / 1e6);
        assert_eq!(found, [0.5, 0.04, 0.06, 0.06]);
        assert_eq!(chances.map(Chance::is_different), [false, true, false, false]);
    }
}
