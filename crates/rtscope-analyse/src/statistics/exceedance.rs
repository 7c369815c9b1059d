//! How often a limit is exceeded: a count, a rate, and the rate's exact Poisson interval.
//!
//! A rate is per second of a thread's time under observation: two threads that are watched for 10 s
//! give 20 s. Exceedances are taken to come independently of each other. Of a count `k` the 95 %
//! interval of the expected count is from the 2.5 % quantile of the gamma distribution of shape
//! `k` to the 97.5 % quantile of that of shape `k + 1` (F. Garwood, Biometrika 28, 1936). When there
//! was none, the bound is one-sided: `-ln 0.05 = 3.0` expected at most, so at most one in a third of
//! the time that was observed.
//!
//! What it can't show: anything that did not happen while it was observed. A disturbance that comes
//! once a day is not in a run of ten minutes, and no statistic can put it there.

use rtscope_model::{histogram::Histogram, time::Nanos};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Gamma, Normal};

use crate::number::{self, grouped};

/// Latencies at or above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Exceedance {
    /// The limit.
    pub limit_ns: u64,
    /// Latencies that surely are at or above it.
    pub surely: u64,
    /// Latencies that may be: more than `surely` only when the limit lies inside a bucket.
    pub at_most: u64,
    /// Out of so many.
    pub of: u64,
    /// `at_most` a second of observation.
    pub per_second: f64,
    /// Lower end of the 95 % interval of the rate, from `surely`.
    pub per_second_low: f64,
    /// Upper end of the 95 % interval of the rate, from `at_most` (one-sided when there was none:
    /// 3.0 / T).
    pub per_second_high: f64,
}

/// Counts the latencies at or above a limit. None when nothing was observed.
#[must_use]
pub fn of(histogram: &Histogram, limit_ns: u64, exposure_ns: u64) -> Option<Exceedance> {
    if exposure_ns == 0 || histogram.count() == 0 {
        return None;
    }
    let (surely, at_most) = histogram.at_or_above(limit_ns);
    let exposure_s = Nanos(exposure_ns).as_secs_f64();
    Some(Exceedance {
        limit_ns,
        surely,
        at_most,
        of: histogram.count(),
        per_second: at_most as f64 / exposure_s,
        per_second_low: poisson_low(surely) / exposure_s,
        per_second_high: poisson_high(at_most) / exposure_s,
    })
}

/// Expected events when none was seen, at 95 %: `-ln 0.05`.
fn expected_when_none() -> f64 {
    -0.05f64.ln()
}

/// Lower end of the 95 % interval of the expected count, of which `k` were seen.
#[must_use]
pub fn poisson_low(k: u64) -> f64 {
    if k == 0 { 0.0 } else { gamma_quantile(k, 0.025) }
}

/// Upper end of the 95 % interval of the expected count, of which `k` were seen.
#[must_use]
pub fn poisson_high(k: u64) -> f64 {
    if k == 0 { expected_when_none() } else { gamma_quantile(k + 1, 0.975) }
}

/// From this shape on the approximation of Wilson and Hilferty (1931) is off by less than one part in 10^8, and
/// the exact quantile takes a time that grows with the root of the shape.
const APPROXIMATED_FROM: u64 = 1_000_000;

fn gamma_quantile(shape: u64, p: f64) -> f64 {
    if shape >= APPROXIMATED_FROM {
        return wilson_hilferty(shape as f64, p);
    }
    Gamma::new(shape as f64, 1.0).expect("a positive shape").inverse_cdf(p)
}

/// A quantile of the gamma distribution of scale 1: the cube root of its values is nearly normal.
fn wilson_hilferty(shape: f64, p: f64) -> f64 {
    let ninth = 1.0 / (9.0 * shape);
    shape * (1.0 - ninth + Normal::standard().inverse_cdf(p) * ninth.sqrt()).powi(3)
}

/// After a time without an event: at 95 % there is at most one in this long, a third of it.
#[must_use]
pub fn at_most_once_in(exposure_ns: u64) -> Nanos {
    Nanos(exposure_ns).scaled(1.0 / expected_when_none())
}

/// How long must pass without an event before "at most once in `interval`" holds at 95 %.
#[must_use]
pub fn exposure_for(interval: Nanos) -> Nanos {
    interval.scaled(expected_when_none())
}

impl Exceedance {
    /// What the count says about the limit, for an observation of `threads` threads that took
    /// `exposure_ns` together.
    #[must_use]
    pub fn sentence(&self, exposure_ns: u64, threads: usize) -> String {
        let limit = Nanos(self.limit_ns).exact();
        let time = Nanos(exposure_ns);
        let (observed, whose) = match threads {
            1 => (format!("{time}"), ""),
            n => (format!("{time} ({n} threads together)"), " of a thread's time"),
        };
        if self.at_most == 0 {
            let once = at_most_once_in(exposure_ns);
            return format!(
                "no latency of {limit} or more in {observed}: at 95 % at most once in {once}{whose}"
            );
        }
        let were = if self.at_most == 1 { "was" } else { "were" };
        let count = match self.surely == self.at_most {
            true => grouped(self.at_most),
            false => format!("{} to {}", grouped(self.surely), grouped(self.at_most)),
        };
        format!(
            "{count} of {} latencies {were} {limit} or more in {observed}: {}, at 95 % between {} and {}",
            grouped(self.of),
            rate(self.per_second),
            rate(self.per_second_low),
            rate(self.per_second_high)
        )
    }
}

/// A rate that can be pictured: `12.3 a second`, `once in 3 min 20 s`.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1.0 => format!("{} a second", number::per_second(r)),
        r if r > 0.0 => format!("once in {}", Nanos::from_secs(1).scaled(1.0 / r)),
        _ => "never".to_owned(),
    }
}

/// Limits in steps of 1, 2 and 5 times a power of ten, in nanoseconds and at least 1 us, from the
/// last one not above the smallest latency to the first one above the largest.
#[must_use]
pub fn round_limits_ns(min_ns: u64, max_ns: u64) -> Vec<u64> {
    let step = |i: u32| [1_000u64, 2_000, 5_000][i as usize % 3].checked_mul(10u64.pow(i / 3));
    let steps: Vec<u64> = (0..48).map_while(step).collect();
    let first = steps.partition_point(|&step| step <= min_ns).saturating_sub(1);
    let last = steps.partition_point(|&step| step <= max_ns).min(steps.len() - 1);
    steps[first..=last].to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtscope_model::histogram::Layout;

    use super::*;

    fn histogram(values_us: &[u64]) -> Histogram {
        let mut histogram = Histogram::new(Layout::default());
        values_us.iter().for_each(|us| histogram.record(us * 1_000));
        histogram
    }

    /// P(at most k) and P(at least k) of a Poisson distribution.
    fn tails(k: u64, mean: f64) -> (f64, f64) {
        let mut chance = (-mean).exp();
        let mut fewer = 0.0;
        for i in 0..k {
            fewer += chance;
            chance *= mean / (i + 1) as f64;
        }
        (fewer + chance, 1.0 - fewer)
    }

    #[test]
    fn intervals_of_large_counts_are_exact_and_take_no_time() {
        for p in [0.025, 0.975] {
            let exact = Gamma::new(1e6, 1.0).expect("a shape").inverse_cdf(p);
            let near = wilson_hilferty(1e6, p);
            assert!((near / exact - 1.0).abs() < 1e-8, "{p}: {near} for {exact}");
        }
        // Counts of a damaged record: the exact quantile did not end within a minute.
        let (low, high) = (poisson_low(1 << 48), poisson_high(1 << 48));
        let width = 2.0 * 1.96 * (1u64 << 24) as f64;
        assert!(((high - low) / width - 1.0).abs() < 1e-3, "{low} to {high}");
    }

    #[test]
    fn bounds_are_those_of_the_tables() {
        let near = |found: f64, table: f64, digits: i32| {
            assert!((found - table).abs() < 0.6 * 10f64.powi(-digits), "{found} is not {table}");
        };
        near(poisson_high(0), 2.996, 3);
        near(poisson_low(1), 0.0253, 4);
        near(poisson_high(1), 5.572, 3);
        near(poisson_low(10), 4.795, 3);
        near(poisson_high(10), 18.390, 3);
        near(poisson_low(100), 81.364, 3);
        near(poisson_high(100), 121.627, 3);
        assert!(poisson_low(0) == 0.0);
    }

    #[test]
    fn a_billion_exceedances_have_an_interval_too() {
        // There the interval is that of the normal distribution.
        let (k, z) = (1_000_000_000u64, 1.959_963_985);
        let width = z * (k as f64).sqrt();
        assert!((poisson_high(k) - k as f64 - width).abs() < 1e-4 * width);
        assert!((k as f64 - poisson_low(k) - width).abs() < 1e-4 * width);
    }

    #[test]
    fn a_limit_inside_a_bucket_is_counted_both_ways() {
        let seen = of(&histogram(&[5, 30, 30, 40]), 30_500, 1_000_000_000).expect("observed");
        assert_eq!((seen.surely, seen.at_most, seen.of), (1, 3, 4));
        assert!(seen.per_second == 3.0);
        assert!(seen.per_second_low == poisson_low(1) && seen.per_second_high == poisson_high(3));
        assert_eq!(of(&histogram(&[]), 1_000, 1_000_000_000), None);
        assert_eq!(of(&histogram(&[1]), 1_000, 0), None);
    }

    #[test]
    fn the_sentence_is_what_the_count_backs() {
        let say = |values_us: &[u64], seconds: u64, threads| {
            let exposure_ns = seconds * 1_000_000_000;
            of(&histogram(values_us), 200_000, exposure_ns)
                .expect("observed")
                .sentence(exposure_ns, threads)
        };
        assert_eq!(
            say(&[5], 20, 2),
            "no latency of 200us or more in 20 s (2 threads together): at 95 % at most once in \
             6.68 s of a thread's time"
        );
        assert_eq!(
            say(&[5], 3_600, 1),
            "no latency of 200us or more in 1 h: at 95 % at most once in 20 min 1 s"
        );
        assert_eq!(
            say(&[5, 200], 10, 1),
            "1 of 2 latencies was 200us or more in 10 s: once in 10 s, at 95 % between once in \
             6 min 34 s and once in 1.79 s"
        );
        assert_eq!(exposure_for(Nanos::from_secs(3_600)).to_string(), "2 h 59 min 44 s");
        assert_eq!(rate(1_234.5), "1,235 a second");
        assert_eq!(rate(0.0), "never");
    }

    #[test]
    fn round_limits_span_the_latencies() {
        assert_eq!(round_limits_ns(2_100, 41_200), [2_000, 5_000, 10_000, 20_000, 50_000]);
        assert_eq!(round_limits_ns(2_000, 5_000), [2_000, 5_000, 10_000]);
        assert_eq!(round_limits_ns(0, 900), [1_000]);
        let widest = round_limits_ns(0, u64::MAX);
        assert_eq!(widest.first().zip(widest.last()), Some((&1_000, &5_000_000_000_000_000_000)));
    }

    proptest! {
        #[test]
        fn an_end_leaves_two_and_a_half_percent(k in 1u64..200) {
            let (_, at_least) = tails(k, poisson_low(k));
            let (at_most, _) = tails(k, poisson_high(k));
            prop_assert!((at_least - 0.025).abs() < 1e-9, "{}", at_least);
            prop_assert!((at_most - 0.025).abs() < 1e-9, "{}", at_most);
        }
    }
}
