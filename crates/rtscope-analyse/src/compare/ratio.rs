//! How many times as often: the ratio of two shares, with its exact interval.
//!
//! Given the sum of two Poisson counts, the second is binomial; so the interval of its probability
//! (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934) gives that of the ratio of the rates, exact
//! and without an assumption about their size (J. Przyborowski and H. Wilenski, Biometrika 31, 1940).

use serde::Serialize;
use statrs::distribution::{Beta, ContinuousCDF, Gamma};

/// Chance that the ratio lies beyond one end.
const TAIL: f64 = 0.025;

/// Counts above this no longer matter to the interval of a much smaller one: it is 1.4 % of them.
const LARGE: u64 = 5_000;

/// B's share as a multiple of A's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio; none when A has none.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end; none when there is no bound.
    pub high: Option<f64>,
}

/// The ratio of `b` of `of_b` to `a` of `of_a`; none when neither has any.
#[must_use]
pub(super) fn of((a, of_a): (u64, u64), (b, of_b): (u64, u64)) -> Option<Ratio> {
    if a + b == 0 || of_a == 0 || of_b == 0 {
        return None;
    }
    let scale = of_a as f64 / of_b as f64;
    let ratio = (a > 0).then(|| b as f64 / a as f64 * scale);
    let high = odds_high(a, b).map(|odds| odds * scale);
    Some(Ratio { ratio, low: odds_low(a, b) * scale, high })
}

/// Lower end of the odds of an event being of B, of which `a` were not and `b` were.
fn odds_low(a: u64, b: u64) -> f64 {
    match (a, b) {
        (_, 0) => 0.0,
        (0, _) | (1..=LARGE, 1..=LARGE) => odds(beta_quantile(b as f64, a as f64 + 1.0, TAIL)),
        _ => large(a, b, -1.0),
    }
}

fn odds_high(a: u64, b: u64) -> Option<f64> {
    match (a, b) {
        (0, _) => None,
        (1..=LARGE, 0..=LARGE) => Some(odds(beta_quantile(b as f64 + 1.0, a as f64, 1.0 - TAIL))),
        _ => Some(large(a, b, 1.0)),
    }
}

/// One end where a count is large: its own spread is nothing beside that of a small one, and two
/// large ones are normal.
fn large(a: u64, b: u64, way: f64) -> f64 {
    let gamma =
        |shape: f64, p: f64| Gamma::new(shape, 1.0).map_or(0.0, |gamma| gamma.inverse_cdf(p));
    let (tail, more) = if way > 0.0 { (1.0 - TAIL, 1.0) } else { (TAIL, 0.0) };
    match (a, b) {
        (_, 0..=1_000) => gamma(b as f64 + more, tail) / a as f64,
        (0..=1_000, _) => b as f64 / gamma(a as f64 + 1.0 - more, 1.0 - tail),
        _ => {
            let (a, b) = (a as f64, b as f64);
            b / a * (way * 1.959_964 * (1.0 / a + 1.0 / b).sqrt()).exp()
        }
    }
}

fn odds(p: f64) -> f64 {
    p / (1.0 - p)
}

/// By bisection of the distribution function, which is more exact than its inverse.
fn beta_quantile(shape_a: f64, shape_b: f64, p: f64) -> f64 {
    let Ok(beta) = Beta::new(shape_a, shape_b) else { return f64::NAN };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if beta.cdf(middle) < p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let ratio = of((a, 1_000), (b, 1_000)).expect("some");
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
        }
    }

    #[test]
    fn shares_count_not_numbers() {
        // 13 of 100 against 0 of 100,000: with equal shares 13,000 were due.
        let ratio = of((13, 100), (0, 100_000)).expect("some");
        assert!(ratio.ratio == Some(0.0) && ratio.low == 0.0);
        assert!(ratio.high.is_some_and(|high| (2e-4..4e-4).contains(&high)), "{ratio:?}");
        assert_eq!(of((0, 10), (0, 10)), None);
    }

    #[test]
    fn large_counts_join_the_exact_ones() {
        for (a, b) in [(LARGE, 10), (10, LARGE), (LARGE, 0), (LARGE, 2_000)] {
            let (exact, near) = (
                of((a, 1), (b, 1)),
                of((a + u64::from(a == LARGE), 1), (b + u64::from(b == LARGE), 1)),
            );
            let (exact, near) = (exact.expect("some"), near.expect("some"));
            assert!((exact.low - near.low).abs() <= 0.02 * exact.low, "{exact:?} {near:?}");
            let (exact, near) = (exact.high.expect("high"), near.high.expect("high"));
            assert!((exact - near).abs() <= 0.02 * exact, "{exact} {near}");
        }
        // Equal rates at a billion: within 0.01 % of 1.
        let even = of((1_000_000_000, 1), (1_000_000_000, 1)).expect("some");
        assert!(even.low > 0.999_9 && even.high.is_some_and(|high| high < 1.000_1));
    }
}
