//! Whether a run was steady and its late wake-ups independent: without that no tail can be fitted.
//!
//! All look at ranks instead of latencies, so that one very late wake-up does not decide alone. Each
//! refuses a steady run by chance about once in a hundred.

use rtscope_model::histogram::Histogram;
use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

use super::blocks::Blocks;

/// A check fails below this chance of being wrong about it.
pub(super) const DOUBT: f64 = 0.01;

/// A check of what a fit takes for granted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitCheck {
    /// `trend`, `level`, `dependence` or `bursts`.
    pub name: &'static str,
    /// Whether it holds.
    pub passed: bool,
    /// What was seen, in words.
    pub text: String,
}

/// Checks of the order of the blocks: trend, level, dependence.
pub(super) fn of_order(blocks: &Blocks) -> Vec<FitCheck> {
    let ranks = ranks(&blocks.maxima_ns);
    let (slope, chance) = mann_kendall(&blocks.maxima_ns);
    let way = if slope > 0.0 { "grow" } else { "shrink" };
    let trend = match chance < DOUBT {
        true => format!("the maxima {way} over the run (Mann-Kendall, p = {})", short(chance)),
        false => format!("no trend in the maxima (Mann-Kendall, p = {})", short(chance)),
    };
    let level = kpss(&ranks);
    // The 1 % point of the level test (Kwiatkowski, Phillips, Schmidt and Shin, table 1).
    let steady = level < 0.739;
    let level = match steady {
        true => format!("the maxima keep their level (KPSS {level:.2}, at most 0.74)"),
        false => format!("the maxima do not keep their level (KPSS {level:.2}, more than 0.74)"),
    };
    let lags = 10.min(ranks.len() / 5).max(1);
    let independence = ljung_box(&ranks, lags);
    let dependence = match independence < DOUBT {
        true => format!("blocks depend on each other (Ljung-Box, p = {})", short(independence)),
        false => format!("blocks are independent (Ljung-Box, p = {})", short(independence)),
    };
    vec![
        FitCheck { name: "trend", passed: chance >= DOUBT, text: trend },
        FitCheck { name: "level", passed: steady, text: level },
        FitCheck { name: "dependence", passed: independence >= DOUBT, text: dependence },
    ]
}

/// Whether exceedances come one by one: at a threshold that at most half as many latencies exceed as
/// there are slots, the number of slots hit against what chance would give.
pub(super) fn bursts(blocks: &Blocks, histogram: &Histogram) -> FitCheck {
    let layout = histogram.layout();
    let slots = blocks.slots_ns.len() as f64;
    let exceeding = |limit_ns: u64| histogram.at_or_above(limit_ns).1;
    let edges = blocks.slots_ns.iter().map(|&max_ns| layout.lower_ns(layout.index(max_ns)));
    let mut limits: Vec<u64> = edges.collect();
    limits.sort_unstable();
    limits.dedup();
    let few = limits.partition_point(|&limit| exceeding(limit) as f64 > slots / 2.0);
    let Some(&limit) = limits.get(few) else {
        let text = "the largest latency alone is seen in more than half of the slices".to_owned();
        return FitCheck { name: "bursts", passed: true, text };
    };
    let hit = blocks.slots_ns.iter().filter(|&&max_ns| max_ns >= limit).count() as f64;
    // Balls thrown into urns: mean and variance of the urns that are hit.
    let rate = exceeding(limit) as f64 / slots;
    let due = slots * -(-rate).exp_m1();
    let variance = slots * (-rate).exp() * (1.0 - (1.0 + rate) * (-rate).exp());
    let below = (hit - due) / variance.sqrt().max(1e-9);
    // The blocks estimator of the extremal index, one over the mean size of a burst
    // (R. L. Smith and I. Weissman, Journal of the Royal Statistical Society B 56, 1994).
    let index = (-(1.0 - hit / slots).ln() / rate).min(1.0);
    let passed = !(below < -3.0 && index < 0.8);
    let text = match passed {
        true => format!("late wake-ups come one by one (extremal index {index:.2})"),
        false => format!("late wake-ups come in bursts (extremal index {index:.2})"),
    };
    FitCheck { name: "bursts", passed, text }
}

fn short(chance: f64) -> String {
    if chance < 0.000_1 { "below 0.0001".to_owned() } else { format!("{chance:.4}") }
}

/// Ranks, equal values sharing theirs.
fn ranks(values: &[u64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = |value: &u64| {
        let below = sorted.partition_point(|other| other < value);
        let up_to = sorted.partition_point(|other| other <= value);
        f64::midpoint(below as f64 + 1.0, up_to as f64)
    };
    values.iter().map(rank).collect()
}

fn two_sided(z: f64) -> f64 {
    2.0 * Normal::standard().sf(z.abs())
}

/// The sum of the signs of all differences, and the chance of one as large without a trend
/// (M. G. Kendall, Rank Correlation Methods, with the correction for ties).
fn mann_kendall(values: &[u64]) -> (f64, f64) {
    let n = values.len() as f64;
    let later = |i: usize| {
        values[i + 1..].iter().map(move |b| match b.cmp(&values[i]) {
            std::cmp::Ordering::Less => -1.0,
            std::cmp::Ordering::Equal => 0.0,
            std::cmp::Ordering::Greater => 1.0,
        })
    };
    let sum: f64 = (0..values.len()).flat_map(later).sum();
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let weight = |t: f64| t * (t - 1.0) * (2.0 * t + 5.0);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|same| weight(same.len() as f64)).sum();
    let variance = (weight(n) - ties) / 18.0;
    if variance <= 0.0 {
        return (sum, 1.0);
    }
    (sum, two_sided((sum.abs() - 1.0).max(0.0) / variance.sqrt()))
}

/// The level statistic of Kwiatkowski, Phillips, Schmidt and Shin (Journal of Econometrics 54, 1992)
/// with Bartlett's weights over `4 (n / 100)^(1/4)` lags.
fn kpss(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let rest: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let lags = (4.0 * (n / 100.0).powf(0.25)).floor() as usize;
    let mut variance = covariance(&rest, 0);
    for lag in 1..=lags {
        variance += 2.0 * (1.0 - lag as f64 / (lags as f64 + 1.0)) * covariance(&rest, lag);
    }
    let mut sum = 0.0;
    let mut squares = 0.0;
    for value in &rest {
        sum += value;
        squares += sum * sum;
    }
    if variance <= 0.0 { 0.0 } else { squares / (n * n * variance) }
}

/// Sum of products at a distance, divided by the number of all values.
fn covariance(rest: &[f64], lag: usize) -> f64 {
    let products = rest.iter().zip(&rest[lag.min(rest.len())..]).map(|(a, b)| a * b);
    products.sum::<f64>() / rest.len() as f64
}

/// The chance of so much correlation between neighbours if there were none (G. M. Ljung and
/// G. E. P. Box, Biometrika 65, 1978).
fn ljung_box(values: &[f64], lags: usize) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let rest: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let variance = covariance(&rest, 0);
    if variance <= 0.0 {
        return 1.0;
    }
    let share = |lag: usize| (covariance(&rest, lag) / variance).powi(2) / (n - lag as f64);
    let sum = n * (n + 2.0) * (1..=lags).map(share).sum::<f64>();
    ChiSquared::new(lags as f64).expect("a lag or more").sf(sum)
}

#[cfg(test)]
mod tests {
    use rtscope_model::histogram::Layout;

    use super::*;
    use crate::statistics::random::Random;

    fn blocks(maxima_ns: Vec<u64>) -> Blocks {
        let slots_ns = maxima_ns.clone();
        Blocks { length_ns: 1_000_000_000, slots_ns, maxima_ns, ..Blocks::default() }
    }

    fn noise(seed: u64, n: usize) -> Vec<u64> {
        let mut random = Random::new(seed);
        (0..n).map(|_| 50_000 + (random.exponential() * 10_000.0) as u64).collect()
    }

    #[test]
    fn steady_runs_pass_nearly_always() {
        let mut refused = 0;
        for seed in 0..300 {
            let checks = of_order(&blocks(noise(seed, 120)));
            refused += usize::from(checks.iter().any(|check| !check.passed));
        }
        // Three checks at about 1 %: 9 expected, more than 24 would be a wrong level.
        assert!((1..=24).contains(&refused), "{refused} of 300");
    }

    #[test]
    fn each_fault_is_found_by_its_check() {
        let failed = |values: Vec<u64>| -> Vec<&str> {
            of_order(&blocks(values)).iter().filter(|c| !c.passed).map(|c| c.name).collect()
        };
        let growing = noise(1, 120).iter().zip(0..).map(|(v, i)| v + i * 200).collect();
        assert!(failed(growing).contains(&"trend"));
        let raised = |i: u64| if i < 50 { 30_000 } else { 0 };
        let stepped = noise(2, 120).into_iter().zip(0..).map(|(v, i)| v + raised(i));
        assert!(failed(stepped.collect()).contains(&"level"));
        let waves = noise(3, 120)
            .into_iter()
            .zip(0..)
            .map(|(v, i)| v + if i / 3 % 2 == 0 { 15_000 } else { 0 });
        assert!(failed(waves.collect()).contains(&"dependence"));
    }

    #[test]
    fn textbook_values_come_out() {
        // Ten ascending values: S = 45, variance 125, z = 44 / sqrt(125) = 3.935.
        let (sum, chance) = mann_kendall(&(0..10).collect::<Vec<_>>());
        assert!(sum == 45.0 && (chance - 8.3e-5).abs() < 1e-6, "{chance}");
        assert_eq!(ranks(&[5, 1, 5, 9]), [2.5, 1.0, 2.5, 4.0]);
    }

    #[test]
    fn bursts_are_told_from_single_late_wakeups() {
        // 100 late wake-ups in 400 slices: each in one of its own, or four in each of 25.
        let mut histogram = Histogram::new(Layout::default());
        histogram.add(&[(10, 400_000), (90, 100)], 10_000, 90_000, 4_009_000_000_000);
        let slots = |every: u64| {
            blocks((0..400).map(|i| if i % every == 0 { 90_000 } else { 10_000 }).collect())
        };
        assert!(bursts(&slots(4), &histogram).passed);
        let check = bursts(&slots(16), &histogram);
        assert!(!check.passed && check.text.contains("0.26"), "{}", check.text);
    }
}
