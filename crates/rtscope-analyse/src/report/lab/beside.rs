//! Our sampler beside cyclictest: both measured the same phase in the same kernel, one after the other.
//!
//! Compared are buckets of a microsecond, as cyclictest counts them: it cuts the nanoseconds off, and so
//! is done with ours. They are two runs under the same loads and not one: their medians and 99th
//! percentiles must meet, their worst cases need not.

use std::{collections::BTreeMap, fmt::Write as _};

use rtscope_model::{guest::Cost, histogram::Histogram};
use serde_json::{Value, json};

use crate::statistics::quantile;

/// Quantiles that are compared, in parts of a billion, with their names.
pub const QUANTILES: [(&str, u32); 3] =
    [("p50", 500_000_000), ("p99", 990_000_000), ("p99.9", 999_000_000)];

/// The quantiles that must meet, of [`QUANTILES`]: above them a few wake-ups decide.
const MUST_MEET: usize = 2;

/// How often each microsecond was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// Count by microsecond, cut off.
    pub counts: BTreeMap<u64, u64>,
    /// Wake-ups beyond the last bucket.
    pub overflow: u64,
    pub max_us: u64,
}

impl Buckets {
    /// What cyclictest printed with `--quiet --histogram=N`: its threads added up.
    ///
    /// # Errors
    ///
    /// There is no histogram in it.
    pub fn of_cyclictest(text: &str) -> Result<Buckets, String> {
        let mut all = Buckets::default();
        let numbers = |text: &str| -> Vec<u64> {
            text.split_whitespace().map_while(|word| word.parse().ok()).collect()
        };
        for line in text.lines() {
            if let Some((name, rest)) = line.strip_prefix('#').and_then(|line| line.split_once(':'))
            {
                match name.trim() {
                    "Max Latencies" => all.max_us = numbers(rest).into_iter().max().unwrap_or(0),
                    "Histogram Overflows" => all.overflow = numbers(rest).into_iter().sum(),
                    _ => {}
                }
            } else if let [us, counts @ ..] = numbers(line).as_slice()
                && counts.iter().any(|count| *count > 0)
            {
                all.counts.insert(*us, counts.iter().sum());
            }
        }
        match all.count() {
            0 => Err("cyclictest printed no histogram".to_owned()),
            _ => Ok(all),
        }
    }

    /// Our own histogram in cyclictest's buckets. One that is wider than a microsecond counts where it ends.
    #[must_use]
    pub fn of_histogram(histogram: &Histogram) -> Buckets {
        let mut counts = BTreeMap::new();
        let max_ns = histogram.max_ns().unwrap_or(0);
        for (index, count) in histogram.bins() {
            let end_ns = histogram.layout().upper_ns(index).min(max_ns);
            *counts.entry(end_ns / 1000).or_insert(0) += count;
        }
        let max_us = max_ns / 1000;
        Buckets { counts, overflow: 0, max_us }
    }

    /// Wake-ups.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.values().sum::<u64>() + self.overflow
    }

    /// The bucket of a quantile; none when it is beyond the last one.
    #[must_use]
    pub fn at(&self, parts: u32) -> Option<u64> {
        let rank = quantile::rank(self.count(), parts);
        let mut seen = 0;
        self.counts.iter().find_map(|(us, count)| {
            seen += count;
            (seen >= rank).then_some(*us)
        })
    }
}

/// One phase, measured by both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseByBoth {
    pub kernel: String,
    pub load: String,
    pub seed: u64,
    pub ours: Buckets,
    /// cyclictest's.
    pub theirs: Buckets,
    /// What our sampling threads cost.
    pub our_cost: Option<Cost>,
    /// What cyclictest's sampling threads cost.
    pub their_cost: Option<Cost>,
}

impl PhaseByBoth {
    /// By how many microseconds the buckets of a quantile differ.
    #[must_use]
    pub fn apart_us(&self, parts: u32) -> Option<u64> {
        Some(self.ours.at(parts)?.abs_diff(self.theirs.at(parts)?))
    }

    /// Whether medians and 99th percentiles are within one bucket.
    #[must_use]
    pub fn meets(&self) -> bool {
        let near = |(_, parts): &(&str, u32)| self.apart_us(*parts).is_some_and(|us| us <= 1);
        QUANTILES[..MUST_MEET].iter().all(near)
    }

    /// The quantiles and the worst case of one side.
    pub(super) fn figures(of: &Buckets) -> String {
        let mut text = String::new();
        for (name, parts) in QUANTILES {
            let us = of.at(parts).map_or("beyond".to_owned(), |us| us.to_string());
            let _ = write!(text, "{name} {us}, ");
        }
        let _ = write!(text, "max {}", of.max_us);
        text
    }

    /// CPU time for each wake-up in nanoseconds: ours and cyclictest's, where both are known.
    #[must_use]
    pub fn costs_ns(&self) -> Option<(f64, f64)> {
        Some((self.our_cost?.each_ns()?, self.their_cost?.each_ns()?))
    }

    /// CPU time for each wake-up in microseconds, in words.
    pub(super) fn cost(&self) -> String {
        let us = |ns: f64| format!("{:.2}", ns / 1e3);
        self.costs_ns().map_or("not known".to_owned(), |(ours, theirs)| {
            format!("{} / {}", us(ours), us(theirs))
        })
    }

    pub(super) fn our_figures(&self) -> String {
        PhaseByBoth::figures(&self.ours)
    }

    pub(super) fn their_figures(&self) -> String {
        PhaseByBoth::figures(&self.theirs)
    }

    pub(super) fn document(&self) -> Value {
        let side = |of: &Buckets| {
            let quantiles = QUANTILES.map(|(name, parts)| (name, of.at(parts)));
            json!({
                "count": of.count(),
                "max_us": of.max_us,
                "overflow": of.overflow,
                "quantiles_us": BTreeMap::from(quantiles),
                "histogram_us": of.counts,
            })
        };
        let costs =
            self.costs_ns().map(|(ours, theirs)| json!({"ours": ours, "cyclictest": theirs}));
        let apart = QUANTILES.map(|(name, parts)| (name, self.apart_us(parts)));
        json!({
            "cell": self.load,
            "ours": side(&self.ours),
            "cyclictest": side(&self.theirs),
            "apart_us": BTreeMap::from(apart),
            "meets": self.meets(),
            "cpu_ns_per_wakeup": costs,
        })
    }

    /// What the two say of each other.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        if self.meets() { "within one bucket" } else { "more than one bucket apart" }
    }

    /// Every bucket that either has: microsecond, ours, theirs, and both as percent of the fullest.
    pub(super) fn rows(&self) -> Vec<(u64, u64, u64, u64, u64)> {
        let (ours, theirs) = (&self.ours.counts, &self.theirs.counts);
        let mut all: Vec<u64> = ours.keys().chain(theirs.keys()).copied().collect();
        all.sort_unstable();
        all.dedup();
        let fullest = ours.values().chain(theirs.values()).copied().max().unwrap_or(1).max(1);
        let row = |us: u64| {
            let of = |counts: &BTreeMap<u64, u64>| counts.get(&us).copied().unwrap_or(0);
            let (a, b) = (of(ours), of(theirs));
            (us, a, b, (a * 100).div_ceil(fullest), (b * 100).div_ceil(fullest))
        };
        all.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::histogram::Layout;

    use super::*;

    /// What `cyclictest -q -h 100 -t2` prints, shortened.
    const TEXT: &str = "\
# cyclictest --quiet --histogram=100
# /dev/cpu_dma_latency set to 0us
# Histogram
000000 000000\t000000
000003 000010\t000002
000004 000080\t000008
000011 000000\t000001
# Total: 000000090 000000011
# Min Latencies: 00003 00003
# Avg Latencies: 00003 00004
# Max Latencies: 00004 00250
# Histogram Overflows: 00000 00001
# Histogram Overflow at cycle number:
# Thread 0:
# Thread 1: 00007
";

    #[test]
    fn cyclictest_s_threads_are_added_up() {
        let all = Buckets::of_cyclictest(TEXT).expect("a histogram");
        assert_eq!(all.counts, [(3, 12), (4, 88), (11, 1)].into());
        assert_eq!((all.overflow, all.max_us, all.count()), (1, 250, 102));
        // Ranks by hand: the 51st of 102 is in bucket 4, the 101st in bucket 11, the 102nd beyond.
        assert_eq!(QUANTILES.map(|(_, parts)| all.at(parts)), [Some(4), Some(11), None]);
        assert!(Buckets::of_cyclictest("policy: fifo: 0.1").is_err());
    }

    #[test]
    fn ours_are_cut_to_the_same_buckets_and_must_meet_within_one() {
        let mut histogram = Histogram::new(Layout::default());
        for ns in [3_999, 4_000, 4_999, 5_000] {
            histogram.record(ns);
        }
        let ours = Buckets::of_histogram(&histogram);
        assert_eq!(ours.counts, [(3, 1), (4, 2), (5, 1)].into());
        assert_eq!(ours.max_us, 5);
        let pair = |theirs: u64| PhaseByBoth {
            kernel: String::new(),
            load: String::new(),
            seed: 1,
            ours: ours.clone(),
            theirs: Buckets { counts: [(theirs, 4)].into(), overflow: 0, max_us: theirs },
            our_cost: Some(Cost { cpu_ns: 20_000, wakeups: 4 }),
            their_cost: (theirs > 0).then_some(Cost { cpu_ns: 21_000, wakeups: 4 }),
        };
        assert!(pair(4).meets() && pair(5).meets());
        assert!(!pair(6).meets() && !pair(2).meets(), "the median of ours is in bucket 4");
        assert_eq!(pair(4).rows()[1], (4, 2, 4, 50, 100));
        assert_eq!(pair(4).costs_ns(), Some((5000.0, 5250.0)));
        assert_eq!((pair(4).cost(), pair(0).cost()), ("5.00 / 5.25".into(), "not known".into()));
    }
}
