//! Latencies gathered into the steps of a plot: whole buckets, so that no count is split.

use rtscope_model::histogram::{Bin, Layout};

use super::scale::{nice_above, nice_below};

/// Ascending edges of steps; the n-th step is from the n-th edge to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edges {
    /// Edges in nanoseconds, at least two.
    pub(crate) edges_ns: Vec<u64>,
    /// Whether steps grow with the latency.
    pub(crate) log: bool,
}

impl Edges {
    /// About `wanted` steps from the smallest to above the largest latency, on edges of buckets.
    pub(crate) fn over(
        layout: Layout,
        (min_ns, max_ns): (u64, u64),
        log: bool,
        wanted: usize,
    ) -> Edges {
        let wanted = wanted.max(1) as f64;
        let first_ns = if log { nice_below(min_ns.max(layout.unit_ns) as f64) as u64 } else { 0 };
        // Latencies that all lie below the first bucket's end still need one step.
        let end_ns = max_ns.max(first_ns).saturating_add(1);
        let ratio = (end_ns as f64 / first_ns.max(1) as f64).powf(1.0 / wanted);
        let width_ns = nice_above(end_ns as f64 / wanted).max(layout.unit_ns as f64) as u64;
        let mut edges_ns = vec![first_ns];
        let mut last_ns = first_ns;
        while last_ns < end_ns {
            let target_ns = if log {
                (last_ns as f64 * ratio) as u64
            } else {
                (last_ns / width_ns + 1).saturating_mul(width_ns)
            };
            last_ns = bucket_edge_ns(layout, target_ns.max(last_ns + 1));
            edges_ns.push(last_ns);
        }
        Edges { edges_ns, log }
    }

    pub(crate) fn len(&self) -> usize {
        self.edges_ns.len() - 1
    }

    /// The step of a latency; below the first it is the first, beyond the last the last.
    pub(crate) fn step_of(&self, latency_ns: u64) -> usize {
        let after = self.edges_ns.partition_point(|&edge| edge <= latency_ns);
        after.saturating_sub(1).min(self.len() - 1)
    }

    /// Adds bins of a layout to counts of steps. A bucket counts where it ends, which is another step than where it begins
    /// only if the steps are made from another layout; the last one, which is open, in the last step.
    pub(crate) fn add(&self, layout: Layout, bins: &[Bin], counts: &mut [u64]) {
        for &(index, count) in bins {
            counts[self.step_of(layout.upper_ns(index))] += count;
        }
    }

    /// Counts of steps.
    pub(crate) fn sums(&self, layout: Layout, bins: &[Bin]) -> Vec<u64> {
        let mut counts = vec![0; self.len()];
        self.add(layout, bins, &mut counts);
        counts
    }

    pub(crate) fn end_ns(&self) -> u64 {
        self.edges_ns[self.len()]
    }
}

/// The first edge between buckets that is not below a latency.
fn bucket_edge_ns(layout: Layout, latency_ns: u64) -> u64 {
    let index = layout.index(latency_ns);
    let lower_ns = layout.lower_ns(index);
    if lower_ns >= latency_ns { lower_ns } else { layout.upper_ns(index).saturating_add(1) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtscope_model::histogram::Histogram;

    use super::*;

    #[test]
    fn short_spans_keep_single_buckets() {
        let edges = Edges::over(Layout::default(), (2_300, 20_400), false, 200);
        assert_eq!(edges.edges_ns[..3], [0, 1_000, 2_000]);
        assert_eq!(edges.end_ns(), 21_000);
        let edges = Edges::over(Layout::default(), (2_300, 900_000), false, 200);
        assert_eq!(edges.edges_ns[..3], [0, 5_000, 10_000]);
    }

    #[test]
    fn steps_grow_with_the_latency_but_never_split_a_bucket() {
        let layout = Layout { unit_ns: 1_000, exact: 100 };
        let edges = Edges::over(layout, (2_300, 90_000_000), true, 200);
        assert_eq!(edges.edges_ns[..4], [2_000, 3_000, 4_000, 5_000]);
        assert!(edges.len() <= 200, "{}", edges.len());
        for &edge in &edges.edges_ns {
            assert_eq!(layout.lower_ns(layout.index(edge)), edge);
        }
    }

    #[test]
    fn extreme_latencies_have_at_least_one_step() {
        for (unit_ns, exact) in [(1, 64), (1_000, 10_000), (u64::MAX, 64), (1, 10_000_000)] {
            let layout = Layout { unit_ns, exact };
            for min_ns in [0, 1, 999, u64::MAX] {
                for max_ns in
                    [0, 1, 999, u64::MAX - 1, u64::MAX].into_iter().filter(|n| *n >= min_ns)
                {
                    for log in [true, false] {
                        let edges = Edges::over(layout, (min_ns, max_ns), log, 60);
                        let what = format!("{layout:?} {min_ns} to {max_ns} log {log}");
                        assert!((1..=400).contains(&edges.len()), "{what}: {} steps", edges.len());
                        assert!(edges.step_of(max_ns) < edges.len(), "{what}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_count_is_lost(
            values in proptest::collection::vec(0u64..20_000_000_000, 1..100),
            unit_ns in prop_oneof![Just(1u64), Just(1_000)],
            log: bool,
        ) {
            let layout = Layout { unit_ns, exact: 1_000 };
            let mut histogram = Histogram::new(layout);
            values.iter().for_each(|&v| histogram.record(v));
            let extremes = (histogram.min_ns().unwrap_or(0), histogram.max_ns().unwrap_or(0));
            let edges = Edges::over(layout, extremes, log, 150);
            prop_assert!(edges.len() <= 400, "{} steps", edges.len());
            prop_assert!(edges.edges_ns.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(edges.end_ns() > extremes.1);
            let sums = edges.sums(layout, &histogram.bins());
            prop_assert_eq!(sums.iter().sum::<u64>(), histogram.count());
            for value in values {
                prop_assert!(sums[edges.step_of(value)] > 0 || value < edges.edges_ns[0]);
            }
        }
    }
}
