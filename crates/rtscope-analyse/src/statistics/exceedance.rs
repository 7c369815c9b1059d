//! How often a limit is exceeded: a count, a rate, and the rate's exact Poisson interval.
//!
//! A rate is per second of a thread's time under observation: two threads that are watched for 10 s
//! give 20 s. Of a count `k` of independent events the 95 % interval of the expected count is from the
//! 2.5 % quantile of the gamma distribution of shape `k` to the 97.5 % quantile of that of shape `k + 1`
//! (F. Garwood, Biometrika 28, 1936). Exceedances depend on each other, so `k` is divided by their
//! inflation ([`dependence`](super::dependence)), and the ends multiplied by it. Few exceedances don't
//! show whether one event hits all threads: until there are [`EVENTS_KNOWN`] independent ones, it is
//! taken to.
//!
//! When there was none, the bound is one-sided: `-ln 0.05 = 3.0` events expected at most, so at most one
//! in a third of the time on the wall that was observed.
//!
//! What it can't show: anything that did not happen while it was observed. A disturbance that comes
//! once a day is not in a run of ten minutes, and no statistic can put it there.

use rtscope_model::{
    histogram::Histogram,
    time::{Nanos, Rounding},
};
use serde::Serialize;

use super::dependence::{Blocks, Dependence, EVENTS_KNOWN, IntervalRefusal};
use super::gamma::gamma_quantile;
use crate::number::{self, grouped};

/// How long latencies were watched, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct WatchedTime {
    /// Time under observation, summed over the threads.
    pub exposure_ns: u64,
    /// From the first programmed expiry to the last.
    pub wall_ns: u64,
    /// Shortest watched time of any thread. Upper bounds use this time.
    pub by_all_ns: u64,
    pub threads: usize,
}

impl WatchedTime {
    /// For one thread that was watched all the time.
    #[must_use]
    pub fn of_one(wall_ns: u64) -> WatchedTime {
        WatchedTime { exposure_ns: wall_ns, wall_ns, by_all_ns: wall_ns, threads: 1 }
    }

    /// For threads with these watched times. Threads that were never watched are ignored here and have their own
    /// finding.
    #[must_use]
    pub fn of_threads(each_ns: impl Iterator<Item = u64> + Clone, wall_ns: u64) -> WatchedTime {
        WatchedTime {
            exposure_ns: each_ns.clone().fold(0, u64::saturating_add),
            wall_ns,
            by_all_ns: each_ns.clone().filter(|&ns| ns > 0).fold(wall_ns, u64::min),
            threads: each_ns.count().max(1),
        }
    }
}

/// What an interval of a rate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalKind {
    /// Two-sided, as exceedances depend on each other.
    Dependent,
    /// There was none: an upper bound alone, one-sided, of events that may hit all threads.
    UpperBound,
    /// There is no interval.
    Refused,
}

/// 95 % interval of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub per_second_low: f64,
    pub per_second_high: f64,
}

/// Latencies at or above a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exceedance {
    pub limit_ns: u64,
    /// Latencies that surely are at or above it.
    pub surely: u64,
    /// Latencies that may be: more than `surely` only when the limit lies inside a bucket.
    pub at_most: u64,
    pub of: u64,
    /// `at_most` a second of observation.
    pub per_second: f64,
    /// Its interval: the lower end from `surely`, the upper end from `at_most`.
    pub interval: Option<Interval>,
    pub kind: IntervalKind,
    /// The interval if exceedances were independent of each other.
    pub if_independent: Interval,
    /// How much the exceedances depend on each other, or why that is not known.
    pub dependence: Result<Dependence, IntervalRefusal>,
}

/// Counts the latencies at or above a limit. None when nothing was observed.
#[must_use]
pub fn estimate(
    histogram: &Histogram,
    limit_ns: u64,
    watch: WatchedTime,
    blocks: &Blocks,
) -> Option<Exceedance> {
    if watch.exposure_ns == 0 || histogram.count() == 0 {
        return None;
    }
    let (surely, at_most) = histogram.at_or_above(limit_ns);
    let exposure_s = Nanos(watch.exposure_ns).as_secs_f64();
    let dependence = blocks.measured_with_wider(limit_ns);
    let (kind, interval) = match dependence {
        _ if at_most == 0 && watch.by_all_ns > 0 => {
            let per_second_high = expected_when_none() / Nanos(watch.by_all_ns).as_secs_f64();
            (IntervalKind::UpperBound, Some(Interval { per_second_low: 0.0, per_second_high }))
        }
        Ok(found) => {
            let (low, high) = expected(surely, at_most, inflation(&found, at_most, watch.threads));
            let (per_second_low, per_second_high) = (low / exposure_s, high / exposure_s);
            (IntervalKind::Dependent, Some(Interval { per_second_low, per_second_high }))
        }
        Err(_) => (IntervalKind::Refused, None),
    };
    Some(Exceedance {
        limit_ns,
        surely,
        at_most,
        of: histogram.count(),
        per_second: at_most as f64 / exposure_s,
        interval,
        kind,
        if_independent: Interval {
            per_second_low: poisson_low(surely) / exposure_s,
            per_second_high: poisson_high(at_most) / exposure_s,
        },
        dependence,
    })
}

/// The inflation of a count; that of events which hit all threads while there are too few to know whether they do.
fn inflation(found: &Dependence, count: u64, threads: usize) -> f64 {
    let inflation = found.inflation();
    let is_known = count as f64 / inflation >= EVENTS_KNOWN;
    if is_known { inflation } else { inflation.max(threads as f64) }
}

/// The 95 % interval of an expected count, of which `surely` to `at_most` were seen that depend on each
/// other by this inflation.
fn expected(surely: u64, at_most: u64, inflation: f64) -> (f64, f64) {
    let low = match surely {
        0 => 0.0,
        // One event makes at least one wake-up late.
        k => (inflation * gamma_quantile(k as f64 / inflation, 0.025)).max(poisson_low(1)),
    };
    let high = inflation * gamma_quantile(at_most as f64 / inflation + 1.0, 0.975);
    (low, high)
}

/// Expected events when none was seen, at 95 %: `-ln 0.05`.
fn expected_when_none() -> f64 {
    -0.05f64.ln()
}

/// Lower end of the 95 % interval of the expected count, of which `k` were seen.
#[must_use]
pub fn poisson_low(k: u64) -> f64 {
    if k == 0 { 0.0 } else { gamma_quantile(k as f64, 0.025) }
}

/// Upper end of the 95 % interval of the expected count, of which `k` were seen.
#[must_use]
pub fn poisson_high(k: u64) -> f64 {
    if k == 0 { expected_when_none() } else { gamma_quantile(k as f64 + 1.0, 0.975) }
}

/// The 95 % interval of the expected count of latencies of so many threads that may reach a limit, of which `k`
/// were seen; none where their dependence is not known.
#[must_use]
pub fn expected_in(blocks: &Blocks, threads: usize, limit_ns: u64, k: u64) -> Option<(f64, f64)> {
    let found = blocks.measured_with_wider(limit_ns).ok()?;
    Some(expected(k, k, inflation(&found, k, threads)))
}

/// After a time without an event: at 95 % there is at most one in this long, a third of it.
#[must_use]
pub fn at_most_once_in(exposure_ns: u64) -> Nanos {
    Nanos(exposure_ns).scaled(1.0 / expected_when_none())
}

impl Exceedance {
    /// What the count says about the limit, for an observation that was watched so.
    #[must_use]
    pub fn sentence(&self, watch: WatchedTime) -> String {
        let limit = Nanos(self.limit_ns).exact();
        let wall = Nanos(watch.wall_ns);
        let (observed, whose) = match watch.threads {
            1 => (format!("{wall}"), ""),
            n => (format!("{wall} on {n} threads"), " on each thread"),
        };
        if self.at_most == 0 {
            let once = at_most_once_in(watch.by_all_ns).rounded(Rounding::Down);
            let event = if watch.threads > 1 {
                ", where an event that hits all threads counts as one"
            } else {
                ""
            };
            return format!(
                "no latency of {limit} or more in {observed}: with 95 % confidence at most once in \
                 {once}{event}"
            );
        }
        let were = if self.at_most == 1 { "was" } else { "were" };
        let count = match self.surely == self.at_most {
            true => grouped(self.at_most),
            false => format!("{} to {}", grouped(self.surely), grouped(self.at_most)),
        };
        // The ends of an interval have the same form as the figure, and are rounded outwards.
        let said = form(self.per_second);
        let at_most = said(self.per_second, Rounding::Up);
        let figure = match self.surely {
            surely if surely == self.at_most => said(self.per_second, Rounding::Nearest),
            0 => format!("at most {at_most}"),
            surely => {
                let share = surely as f64 / self.at_most as f64;
                format!("between {} and {at_most}", said(self.per_second * share, Rounding::Down))
            }
        };
        let interval = match (self.interval, self.dependence) {
            (Some(ends), _) => format!(
                ", 95 % interval {} to {}",
                said(ends.per_second_low, Rounding::Down),
                said(ends.per_second_high, Rounding::Up)
            ),
            (None, Err(refusal)) => format!(" (no interval: {refusal})"),
            (None, Ok(_)) => String::new(),
        };
        format!(
            "{count} of {} latencies {were} {limit} or more in {observed}: {figure}{whose}{interval}",
            grouped(self.of),
        )
    }
}

/// A rate that can be pictured: `12.3 a second`, `once in 3 min 20 s`.
pub(crate) fn rate(per_second: f64, rounding: Rounding) -> String {
    form(per_second)(per_second, rounding)
}

fn form(per_second: f64) -> fn(f64, Rounding) -> String {
    if per_second < 1.0 { once_in } else { a_second }
}

fn a_second(per_second: f64, rounding: Rounding) -> String {
    format!("{} a second", number::per_second_rounded(per_second, rounding))
}

/// The longer the time, the lower the rate.
fn once_in(per_second: f64, rounding: Rounding) -> String {
    if per_second <= 0.0 {
        return "never".to_owned();
    }
    let time = Nanos::from_secs(1).scaled(1.0 / per_second);
    format!("once in {}", time.rounded(rounding.reversed()))
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
    use crate::test_support::{SECOND_NS, slice_of_histogram as slice_of};

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

    /// A watch of so many seconds, on so many threads, and what each slice of a second saw: its latencies
    /// in us.
    fn seen(
        slices_us: &[&[u64]],
        limit_ns: u64,
        seconds: u64,
        threads: usize,
    ) -> (WatchedTime, Option<Exceedance>) {
        let (mut blocks, mut all) = (Blocks::new(Layout::default()), histogram(&[]));
        for (second, values_us) in (0u64..).zip(slices_us) {
            let one = histogram(values_us);
            blocks.add(&slice_of(0, second, &one));
            all.merge(&one);
        }
        let wall_ns = seconds * SECOND_NS;
        let watch = WatchedTime::of_threads(std::iter::repeat_n(wall_ns, threads), wall_ns);
        (watch, estimate(&all, limit_ns, watch, &blocks))
    }

    #[test]
    fn a_limit_inside_a_bucket_is_counted_both_ways() {
        let seen_in = |seconds| seen(&[&[5, 30, 30, 40], &[5]], 30_500, seconds, 1).1;
        let found = seen_in(1).expect("observed");
        assert_eq!((found.surely, found.at_most, found.of), (1, 3, 5));
        assert!(found.per_second == 3.0);
        let alone = found.if_independent;
        assert!(alone.per_second_low == poisson_low(1) && alone.per_second_high == poisson_high(3));
        let ends = found.interval.expect("two blocks");
        assert!(ends.per_second_low <= alone.per_second_low, "{ends:?}");
        assert!(ends.per_second_high > alone.per_second_high, "{ends:?}");
        assert_eq!(seen(&[&[]], 1_000, 1, 1).1, None);
        assert_eq!(seen_in(0), None);
    }

    #[test]
    fn the_sentence_is_what_the_count_backs() {
        let say = |slices_us: &[&[u64]], seconds, threads| {
            let (watch, found) = seen(slices_us, 200_000, seconds, threads);
            found.expect("observed").sentence(watch)
        };
        assert_eq!(
            say(&[&[5]], 20, 2),
            "no latency of 200us or more in 20 s on 2 threads: with 95 % confidence at most once in 6.67 s, \
             where an event that hits all threads counts as one"
        );
        assert_eq!(
            say(&[&[5]], 3_600, 1),
            "no latency of 200us or more in 1 h: with 95 % confidence at most once in 20 min 1 s"
        );
        assert_eq!(
            say(&[&[5, 200]], 10, 1),
            "1 of 2 latencies was 200us or more in 10 s: once in 10 s (no interval: only a \
             phase of at least 2 s shows whether late wake-ups come in clusters)"
        );
        let mut ten = [&[5u64, 5, 5][..]; 10];
        ten[3] = &[5, 200, 5];
        assert_eq!(
            say(&ten, 10, 1),
            "1 of 30 latencies was 200us or more in 10 s: once in 10 s, 95 % interval once in 6 min 35 s to \
             once in 1.2 s"
        );
        let ends = [Rounding::Down, Rounding::Nearest, Rounding::Up];
        let shown = |per_second| ends.map(|end| rate(per_second, end));
        assert_eq!(shown(1_234.6), ["1,234 a second", "1,235 a second", "1,235 a second"]);
        assert_eq!(shown(0.0), ["never"; 3]);
        assert_eq!(shown(1.0), ["1.00 a second"; 3]);
        // The longer the time, the lower the rate.
        assert_eq!(shown(1.0 / 8.125), ["once in 8.13 s", "once in 8.13 s", "once in 8.12 s"]);
    }

    #[test]
    fn without_an_exceedance_there_is_an_upper_bound_alone() {
        let (_, found) = seen(&[&[5], &[5], &[5]], 200_000, 20, 2);
        let found = found.expect("observed");
        assert_eq!(found.kind, IntervalKind::UpperBound);
        let ends = found.interval.expect("a bound");
        assert_eq!(ends.per_second_low, 0.0);
        assert!((ends.per_second_high - 20f64.ln() / 20.0).abs() < 1e-12);
    }

    #[test]
    fn an_upper_bound_is_of_the_time_in_which_every_thread_was_watched() {
        let watch =
            WatchedTime::of_threads([10, 0, 4].map(|s| s * SECOND_NS).into_iter(), 10 * SECOND_NS);
        assert_eq!((watch.exposure_ns, watch.threads), (14 * SECOND_NS, 3));
        let one = histogram(&[5]);
        let found = estimate(&one, 200_000, watch, &Blocks::new(Layout::default()));
        let found = found.expect("observed");
        assert!(
            (found.interval.expect("a bound").per_second_high - 20f64.ln() / 4.0).abs() < 1e-12
        );
        let said = found.sentence(watch);
        assert!(
            said.contains("in 10 s on 3 threads: with 95 % confidence at most once in 1.33 s"),
            "{said}"
        );
    }

    #[test]
    fn the_expected_count_is_the_rate_by_the_time() {
        let mut blocks = Blocks::new(Layout::default());
        let mut ten = [&[5u64, 5, 5][..]; 10];
        ten[3] = &[5, 200, 5];
        for (second, values_us) in (0u64..).zip(ten) {
            blocks.add(&slice_of(0, second, &histogram(values_us)));
        }
        let (low, high) = expected_in(&blocks, 1, 200_000, 1).expect("an interval");
        let ends = seen(&ten, 200_000, 10, 1).1.and_then(|found| found.interval).expect("the same");
        assert!((low / 10.0 - ends.per_second_low).abs() < 1e-12);
        assert!((high / 10.0 - ends.per_second_high).abs() < 1e-12);
    }

    #[test]
    fn a_limit_inside_a_bucket_leaves_the_rate_open() {
        let (watch, found) = seen(&[&[5, 50_000, 60_000]], 50_000_500, 10, 1);
        let both = found.expect("observed").sentence(watch);
        let words = "1 to 2 of 3 latencies were 50000.5us or more in 10 s: between once in 10 s and once in 5 s (";
        assert!(both.starts_with(words), "{both}");
    }

    #[test]
    fn few_events_may_hit_all_threads() {
        let mut slices = vec![&[5u64][..]; 100];
        slices[7] = &[300];
        let high = |threads| {
            let found = seen(&slices, 200_000, 100, threads).1.expect("observed");
            found.interval.expect("an interval").per_second_high
        };
        // One late wake-up in 100 s: per thread hardly rarer on eight threads than on one. The assumption
        // that one event hits all eight needs no Student's t, which widens the interval of one.
        assert!(high(8) > 0.5 * high(1), "{} {}", high(8), high(1));
        let many: Vec<&[u64]> =
            (0..100).map(|n| if n % 3 == 0 { &[300][..] } else { &[5] }).collect();
        let found =
            seen(&many, 200_000, 100, 8).1.expect("observed").interval.expect("an interval");
        assert!(found.per_second_high < 2.0 * 34.0 / 800.0, "{found:?}");
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

    #[test]
    fn intervals_of_large_counts_take_no_time() {
        // Counts of a damaged record: the exact quantile did not end within a minute.
        let (low, high) = (poisson_low(1 << 48), poisson_high(1 << 48));
        let width = 2.0 * 1.96 * (1u64 << 24) as f64;
        assert!(((high - low) / width - 1.0).abs() < 1e-3, "{low} to {high}");
    }
}
