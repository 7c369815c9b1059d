//! Histograms of latencies with buckets of 1 us, as both tools keep them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

/// How often a latency was from n us to below n + 1 us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// Reads what `cyclictest -h` prints: lines `000012 000345`, and comments.
    pub(super) fn of_cyclictest(output: &str) -> Histogram {
        let bucket = |line: &str| {
            let mut words = line.split_whitespace();
            let bucket = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            (words.next().is_none() && bucket.1 > 0).then_some(bucket)
        };
        Histogram(output.lines().filter_map(bucket).collect())
    }

    /// Reads a record's `histograms.json`: all of its cells and threads together.
    pub(super) fn of_record(document: &Value) -> Result<Histogram> {
        let mut counts = BTreeMap::new();
        let histograms = document["histograms"].as_array().context("there are no histograms")?;
        for bin in histograms.iter().filter_map(|h| h["bins"].as_array()).flatten() {
            let bin = bin[0].as_u64().zip(bin[1].as_u64());
            let (index, count) = bin.context("a bin is no pair of numbers")?;
            *counts.entry(index).or_default() += count;
        }
        Ok(Histogram(counts))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The upper edge of the first bucket that holds anything, in us: never 0, so that a ratio of two
    /// exists.
    pub(super) fn min_us(&self) -> f64 {
        self.0.keys().next().map_or(0.0, |&us| us as f64 + 1.0)
    }

    /// A quantile in us: inside its bucket as if latencies lay evenly there, so that two tools that
    /// both count whole microseconds can be compared in finer steps.
    pub(super) fn quantile_us(&self, q: f64) -> f64 {
        let rank = q * self.count() as f64;
        let mut below = 0.0;
        for (&us, &count) in &self.0 {
            if below + count as f64 >= rank {
                return us as f64 + (rank - below) / count as f64;
            }
            below += count as f64;
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CYCLICTEST: &str = "\
# /dev/cpu_dma_latency set to 0us
# Histogram
000000 000000
000003 000002
000004 000006
000010 000002
# Total: 000000010
# Min Latencies: 00003
# Histogram Overflow at cycle number:
# Thread 0:
";

    #[test]
    fn both_forms_say_the_same() {
        let theirs = Histogram::of_cyclictest(CYCLICTEST);
        let document = serde_json::json!({ "histograms": [
            { "bins": [[3, 2], [4, 5]] },
            { "bins": [[4, 1], [10, 2]] },
        ]});
        assert_eq!(Histogram::of_record(&document).expect("a histogram"), theirs);
        assert_eq!((theirs.count(), theirs.min_us()), (10, 4.0));
        assert!(Histogram::of_record(&serde_json::json!({})).is_err());
    }

    #[test]
    fn a_quantile_lies_inside_its_bucket() {
        let histogram = Histogram::of_cyclictest(CYCLICTEST);
        assert_eq!(histogram.quantile_us(0.5), 4.5);
        assert_eq!(histogram.quantile_us(0.9), 10.5);
        assert_eq!(histogram.quantile_us(1.0), 11.0);
        assert_eq!(Histogram::default().quantile_us(0.5), 0.0);
    }
}
