//! Quantiles of latencies, with order-statistic intervals.
//!
//! The p quantile of `n` samples is the sample of rank `ceil(n p)`. Of `n` independent samples, the
//! number that lie below the true quantile is binomial with `n` and `p`, whatever the distribution
//! of the latency: so the ranks of two samples that enclose the true quantile at 95 % follow from
//! the binomial distribution alone (H. A. David and H. N. Nagaraja, Order Statistics, section 7.1).
//!
//! Latencies of a system are not independent: a disturbance makes many late at once. [`estimate`] gives the
//! interval if they were; [`dependent`] takes the ranks at the number of independent latencies that they
//! are worth ([`dependence`](super::dependence)), and stretches them back to all latencies.

use rtscope_model::{histogram::Histogram, verdict::Statistic};

use super::dependence::{Blocks, Dependence, IntervalRefusal};

/// What a quantile's parts are parts of.
pub const WHOLE: u32 = 1_000_000_000;

/// The quantiles of every row: p50, p90, p95, p99, p99.9, p99.99, p99.999, p99.9999.
pub const LADDER: [u32; 8] = [
    500_000_000,
    900_000_000,
    950_000_000,
    990_000_000,
    999_000_000,
    999_900_000,
    999_990_000,
    999_999_000,
];

/// Chance that the true quantile lies beyond one end of its interval: 95 % two-sided.
const TAIL: f64 = 0.025;

/// Chance that a one-sided bound is wrong.
const ONE_SIDED: f64 = 0.05;

/// A quantile of measured latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Which, in parts of a billion: p99.99 is 999,900,000.
    pub parts: u32,
    /// The value at rank ceil(n p): the upper edge of its bucket, clipped to the exact maximum.
    pub value_ns: u64,
    /// Lower end of the 95 % interval; none when the run is too short to have one.
    pub low_ns: Option<u64>,
    /// Upper end of the 95 % interval; none when the run is too short to have one.
    pub high_ns: Option<u64>,
    /// How much the latencies beyond it depend on each other, or why that is not known and there is no
    /// interval. None: the interval takes them as independent.
    pub dependence: Option<Result<Dependence, IntervalRefusal>>,
}

impl Quantile {
    /// Why there is no interval.
    #[must_use]
    pub fn refusal(&self) -> Option<IntervalRefusal> {
        self.dependence.and_then(Result::err)
    }

    /// Samples that its interval needs to have an upper end: more than [`samples_for_interval`] where
    /// they depend on each other.
    #[must_use]
    pub fn samples_for_interval(&self) -> u64 {
        let inflation = self.dependence.and_then(Result::ok).map_or(1.0, |found| found.inflation());
        (samples_for_interval(self.parts) as f64 * inflation).ceil() as u64
    }
}

/// The rank of a quantile among `n` samples, 1 for the smallest: `ceil(n p)`.
#[must_use]
pub fn rank(n: u64, parts: u32) -> u64 {
    let rank = (u128::from(n) * u128::from(parts)).div_ceil(u128::from(WHOLE));
    u64::try_from(rank).expect("a part of n is at most n").max(1)
}

/// A figure of a histogram; none without a latency, and none for what a histogram doesn't hold.
#[must_use]
pub fn statistic_ns(histogram: &Histogram, statistic: Statistic) -> Option<u64> {
    match statistic {
        Statistic::Max => histogram.max_ns(),
        Statistic::Mean => histogram.mean_ns().map(|mean_ns| mean_ns.round() as u64),
        Statistic::Quantile(parts) => histogram.at_rank_ns(rank(histogram.count(), parts)),
        Statistic::Missed | Statistic::Late | Statistic::Lost => None,
    }
}

/// A quantile with its interval if latencies were independent; none when there is no latency.
#[must_use]
pub fn estimate(histogram: &Histogram, parts: u32) -> Option<Quantile> {
    let ranks = interval_ranks(histogram.count(), parts);
    with_ranks(histogram, parts, ranks)
}

/// A quantile of the latencies that these blocks hold, with its interval as they depend on each other;
/// `with_omitted` when the histogram has what the missed activations would have seen. None when there is
/// no latency.
#[must_use]
pub fn dependent(
    histogram: &Histogram,
    parts: u32,
    blocks: &Blocks,
    with_omitted: bool,
) -> Option<Quantile> {
    let n = histogram.count();
    let value_ns = histogram.at_rank_ns(rank(n, parts))?;
    let beyond = f64::from(WHOLE - parts) / f64::from(WHOLE);
    let found = blocks.at_quantile(value_ns, beyond, with_omitted);
    let ranks = found.map_or((None, None), |found| stretched_ranks(n, parts, found.inflation()));
    Some(Quantile { dependence: Some(found), ..with_ranks(histogram, parts, ranks)? })
}

fn with_ranks(
    histogram: &Histogram,
    parts: u32,
    (low, high): (Option<u64>, Option<u64>),
) -> Option<Quantile> {
    Some(Quantile {
        parts,
        value_ns: histogram.at_rank_ns(rank(histogram.count(), parts))?,
        low_ns: low.and_then(|rank| lower_edge_ns(histogram, rank)),
        high_ns: high.and_then(|rank| histogram.at_rank_ns(rank)),
        dependence: None,
    })
}

/// Every quantile of [`LADDER`] as latencies depend on each other; empty when there is no latency.
#[must_use]
pub fn ladder(histogram: &Histogram, blocks: &Blocks) -> Vec<Quantile> {
    LADDER.iter().filter_map(|&parts| dependent(histogram, parts, blocks, false)).collect()
}

/// The lower edge of the bucket that holds a rank, clipped to the exact minimum: the interval is
/// never narrower than what the buckets know.
fn lower_edge_ns(histogram: &Histogram, rank: u64) -> Option<u64> {
    bucket_begin_ns(histogram, histogram.at_rank_ns(rank)?)
}

/// The shortest latency that the bucket of this one may hold: its lower edge, or the exact minimum. None when there is no
/// latency.
#[must_use]
pub fn bucket_begin_ns(histogram: &Histogram, ns: u64) -> Option<u64> {
    let layout = histogram.layout();
    Some(layout.lower_ns(layout.index(ns)).max(histogram.min_ns()?))
}

/// Whether latencies at or above a limit refute that a quantile lies below it, however they depend on each other.
///
/// If it did, a share of at most `1 - p` of all latencies would be expected at or above the limit. By Markov's
/// inequality, `(1 - p) / 0.025` or more of them are there with a chance of at most 2.5 %: for p99 40 %, for p99.9 4 %.
/// Nothing refutes a quantile below p97.5 in this way.
#[must_use]
pub fn refutes_below(parts: u32, at_or_above: u64, n: u64) -> bool {
    let beyond = f64::from(WHOLE - parts) / f64::from(WHOLE);
    n > 0 && at_or_above as f64 / n as f64 >= beyond / TAIL
}

/// How many samples a quantile needs before its interval has an upper end: the fewest of which the
/// largest lies above the quantile with a chance of 97.5 %, `ln(0.025) / ln(p)`.
#[must_use]
pub fn samples_for_interval(parts: u32) -> u64 {
    let beyond = f64::from(WHOLE - parts) / f64::from(WHOLE);
    (TAIL.ln() / (-beyond).ln_1p()).ceil() as u64
}

/// The share of all latencies that at 95 %, one-sided, at most lies beyond the maximum of `n`
/// samples: `1 - 0.05^(1/n)`, near to 3 / n (S. S. Wilks, Annals of Mathematical Statistics 12, 1941). The maximum
/// covers the quantile that is left.
#[must_use]
pub fn beyond_max(n: u64) -> f64 {
    -(ONE_SIDED.ln() / n as f64).exp_m1()
}

/// What the maximum of `n` samples covers, in words: the quantile with as many digits as it deserves,
/// rounded down.
#[must_use]
pub fn coverage_sentence(n: u64) -> String {
    if n == 0 {
        return "no latency was recorded".to_owned();
    }
    let beyond = beyond_max(n);
    let decimals = (-beyond.log10()).ceil().max(2.0) - 2.0;
    let shift = 10f64.powf(decimals);
    let covered = ((1.0 - beyond) * 100.0 * shift).floor() / shift;
    let digits = format!("{covered:.*}", decimals as usize);
    let covered = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => &digits,
    };
    format!(
        "with 95 % confidence, at most 1 wake-up in {} exceeds the observed maximum (p{covered})",
        crate::number::grouped((1.0 / beyond).floor() as u64)
    )
}

/// The ranks of the two samples that enclose the true quantile at 95 %: each end is wrong with a
/// chance of at most 2.5 %, and no narrower pair of ranks has that property. None for an end where
/// no sample is far enough out.
#[must_use]
pub fn interval_ranks(n: u64, parts: u32) -> (Option<u64>, Option<u64>) {
    let whole = f64::from(WHOLE);
    let below = Binomial { n, p: f64::from(parts) / whole, q: f64::from(WHOLE - parts) / whole };
    below.ranks()
}

/// The ranks of an interval among `n` samples that are worth `n / inflation` independent ones: as many
/// samples lie beyond each end as `inflation` times those beyond the end of the independent ones.
fn stretched_ranks(n: u64, parts: u32, inflation: f64) -> (Option<u64>, Option<u64>) {
    let effective = (n as f64 / inflation).floor() as u64;
    let (low, high) = interval_ranks(effective, parts);
    let beyond = |rank: u64| (effective - rank) as f64 * inflation;
    let low = low.map(|rank| (n as f64 - beyond(rank - 1)).floor().max(0.0) as u64 + 1);
    let high = high.map(|rank| n - (beyond(rank).floor() as u64).min(n - 1));
    (low.map(|rank| rank.min(n)), high)
}

/// How many of `n` samples lie below a quantile `p`, with `q = 1 - p`.
///
/// The chance of each count is summed relative to the likeliest, outward from it until the sum no
/// longer changes. Neither factorials nor special functions limit the accuracy that way: the
/// incomplete beta function of `statrs` stops after 140 steps, which is too few from a million
/// samples on. The cost is about 20 standard deviations: 300,000 steps for the median of a
/// billion samples.
struct Binomial {
    n: u64,
    p: f64,
    q: f64,
}

/// The largest standard deviation for which chances are summed: two million steps. Fuzzers use a smaller
/// limit, because most of their inputs have huge counts.
const SUMMED_TO: f64 = if cfg!(fuzzing) { 1e3 } else { 1e5 };

/// A chance below this share of the largest no longer changes a sum of them.
const NEGLIGIBLE: f64 = 1e-20;

impl Binomial {
    fn likeliest(&self) -> u64 {
        (((self.n + 1) as f64 * self.p) as u64).min(self.n)
    }

    /// Counts from the likeliest upwards, each with its chance relative to the first.
    fn upwards(&self) -> impl Iterator<Item = (u64, f64)> {
        let (n, odds) = (self.n, self.p / self.q);
        std::iter::successors(Some((self.likeliest(), 1.0)), move |&(k, chance)| {
            let next = chance * odds * ((n - k) as f64) / ((k + 1) as f64);
            (k < n && next > NEGLIGIBLE).then_some((k + 1, next))
        })
    }

    /// Counts from the likeliest downwards, each with its chance relative to the first.
    fn downwards(&self) -> impl Iterator<Item = (u64, f64)> {
        let (n, odds) = (self.n, self.q / self.p);
        std::iter::successors(Some((self.likeliest(), 1.0)), move |&(k, chance)| {
            let next = chance * odds * (k as f64) / ((n - k + 1) as f64);
            (k > 0 && next > NEGLIGIBLE).then(|| (k - 1, next))
        })
    }

    /// The largest rank with P(fewer lie below) <= 2.5 % and the smallest rank with
    /// P(at least so many lie below) <= 2.5 %.
    fn ranks(&self) -> (Option<u64>, Option<u64>) {
        let deviation = (self.n as f64 * self.p * self.q).sqrt();
        if deviation > SUMMED_TO {
            return self.ranks_of_many(deviation);
        }
        let up_to: f64 = self.downwards().map(|(_, chance)| chance).sum();
        let from: f64 = self.upwards().map(|(_, chance)| chance).sum();
        let allowed = TAIL * (up_to + from - 1.0);
        let low = first_within(self.downwards(), up_to, allowed).map(|k| k + 1);
        (low, first_within(self.upwards(), from, allowed))
    }
}

impl Binomial {
    /// The ranks by the normal distribution, two wider on each side for what it leaves out: the skewness
    /// moves an end by less than half a rank, and rounding by one.
    fn ranks_of_many(&self, deviation: f64) -> (Option<u64>, Option<u64>) {
        let (mean, reach) = (self.n as f64 * self.p, 1.96 * deviation);
        (Some((mean - reach) as u64 - 2), Some((mean + reach) as u64 + 4))
    }
}

/// The first count from which on outward no more than the allowed chance is left.
fn first_within(counts: impl Iterator<Item = (u64, f64)>, total: f64, allowed: f64) -> Option<u64> {
    let mut left = total;
    for (k, chance) in counts {
        if left <= allowed {
            return Some(k);
        }
        left -= chance;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtscope_model::histogram::Layout;

    use super::*;

    #[test]
    fn ranks_of_many_samples_are_those_of_the_sum_or_up_to_four_wider() {
        for (n, p) in [(4_000_000, 0.5), (50_000_000, 0.99), (200_000_000, 0.9999)] {
            let below = Binomial { n, p, q: 1.0 - p };
            let deviation = (n as f64 * below.p * below.q).sqrt();
            let (Some(low), Some(high)) = below.ranks() else { panic!("no ranks") };
            let (Some(wide_low), Some(wide_high)) = below.ranks_of_many(deviation) else {
                panic!("no ranks")
            };
            assert!((wide_low..=wide_low + 4).contains(&low), "{n} {p}: {low} and {wide_low}");
            assert!((high..=high + 4).contains(&wide_high), "{n} {p}: {high} and {wide_high}");
        }
        // A count of a damaged record: the sum did not end within a minute.
        assert!(matches!(interval_ranks(1 << 48, 500_000_000), (Some(_), Some(_))));
    }

    /// The chance of each count, by logarithms of factorials.
    fn chances(n: usize, p: f64) -> Vec<f64> {
        let mut ln_factorial = vec![0.0f64];
        (1..=n).for_each(|k| ln_factorial.push(ln_factorial[k - 1] + (k as f64).ln()));
        let ln_chance = |k: usize| {
            let ways = ln_factorial[n] - ln_factorial[k] - ln_factorial[n - k];
            ways + k as f64 * p.ln() + (n - k) as f64 * (-p).ln_1p()
        };
        (0..=n).map(|k| ln_chance(k).exp()).collect()
    }

    fn histogram(values_ns: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new(Layout { unit_ns: 1, exact: 10_000_000 });
        values_ns.into_iter().for_each(|v| histogram.record(v));
        histogram
    }

    #[test]
    fn ranks_are_those_of_high_precision_arithmetic() {
        // Computed with 30 digits from the same definition.
        for (n, parts, low, high) in [
            (100, 500_000_000, 40, 61),
            (1_000, 990_000_000, 983, 997),
            (36_887, 999_900_000, 36_879, 36_887),
            (1_000_000, 999_900_000, 999_880, 999_920),
            (1_000_000, 500_000_000, 499_020, 500_981),
            (1_000_000_000, 500_000_000, 499_969_010, 500_030_991),
            (1_000_000_000, 900_000_000, 899_981_406, 900_018_594),
            (1_000_000_000, 999_999_000, 999_998_938, 999_999_063),
        ] {
            assert_eq!(interval_ranks(n, parts), (Some(low), Some(high)), "{n} {parts}");
        }
    }

    #[test]
    fn an_end_that_no_sample_reaches_is_none() {
        let needed = samples_for_interval(999_900_000);
        assert_eq!(needed, 36_887);
        assert_eq!(interval_ranks(needed, 999_900_000).1, Some(needed));
        assert_eq!(interval_ranks(needed - 1, 999_900_000).1, None);
        assert_eq!(interval_ranks(5, 500_000_000), (None, None));
        assert_eq!(interval_ranks(6, 500_000_000), (Some(1), Some(6)));
        assert_eq!(interval_ranks(0, 500_000_000), (None, None));
        assert_eq!(estimate(&histogram([]), 500_000_000), None);
    }

    #[test]
    fn the_maximum_covers_what_wilks_says() {
        assert!((beyond_max(59) - 0.05).abs() < 0.001 && beyond_max(59) < 0.05);
        assert!(beyond_max(58) > 0.05);
    }

    #[test]
    fn bucket_edges_widen_an_interval() {
        let mut coarse = Histogram::new(Layout::default());
        (0..1_000u64).for_each(|i| coarse.record(5_500 + i));
        let median = estimate(&coarse, 500_000_000).expect("latencies");
        assert_eq!(
            (median.low_ns, median.value_ns, median.high_ns),
            (Some(5_500), 5_999, Some(6_499))
        );
    }

    #[test]
    fn what_the_maximum_covers_is_said_in_words() {
        let million = coverage_sentence(2_995_731);
        assert!(
            million
                .contains("at most 1 wake-up in 1,000,000 exceeds the observed maximum (p99.9999)"),
            "{million}"
        );
        let few = coverage_sentence(5);
        assert!(few.contains("at most 1 wake-up in 2 exceeds the observed maximum (p54)"), "{few}");
    }

    proptest! {
        #[test]
        fn intervals_cover_and_are_the_narrowest(n in 1usize..1_500, parts in 1_000u32..WHOLE - 1_000) {
            let chances = chances(n, f64::from(parts) / f64::from(WHOLE));
            let fewer_than = |rank: u64| chances[..rank as usize].iter().sum::<f64>();
            let at_least = |rank: u64| chances[rank as usize..].iter().sum::<f64>();
            let (low, high) = interval_ranks(n as u64, parts);
            // The oracle itself is good to about ten digits.
            let within = |chance: f64| chance <= TAIL + 1e-9;
            let beyond = |chance: f64| chance > TAIL - 1e-9;
            match low {
                Some(rank) => {
                    prop_assert!(within(fewer_than(rank)));
                    prop_assert!(beyond(fewer_than(rank + 1)));
                }
                None => prop_assert!(beyond(fewer_than(1))),
            }
            match high {
                Some(rank) => {
                    prop_assert!(within(at_least(rank)));
                    prop_assert!(rank == 0 || beyond(at_least(rank - 1)));
                }
                None => prop_assert!(beyond(at_least(n as u64))),
            }
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_latencies(mut values in proptest::collection::vec(0u64..9_000_000, 1..400)) {
            let histogram = histogram(values.iter().copied());
            let quantiles: Vec<Quantile> =
                LADDER.iter().filter_map(|&parts| estimate(&histogram, parts)).collect();
            values.sort_unstable();
            prop_assert_eq!(quantiles.len(), LADDER.len());
            for quantile in quantiles {
                let exact = (values.len() as f64 * f64::from(quantile.parts) / 1e9).ceil() as usize;
                prop_assert_eq!(quantile.value_ns, values[exact.max(1) - 1]);
                let (low, high) = interval_ranks(values.len() as u64, quantile.parts);
                prop_assert_eq!(quantile.low_ns, low.map(|rank| values[rank as usize - 1]));
                prop_assert_eq!(quantile.high_ns, high.map(|rank| values[rank as usize - 1]));
            }
        }
    }
}
