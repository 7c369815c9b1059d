//! One side's latencies, run by run and block by block, over buckets that both sides share.
//!
//! Latencies of imports that have no bucket are counted in one more, behind all others: so every rank
//! is right, and what lies in that bucket is not told.

use std::collections::BTreeMap;

use rtscope_model::{
    histogram::{Histogram, Layout},
    slice::Slice,
};

use super::pairing::Member;

/// Blocks that a run is divided into at most: slices that follow each other are joined.
const BLOCKS_MAX: usize = 100;

/// Buckets of a comparison: those that either side has used.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    layout: Layout,
    /// Used buckets, ascending.
    used: Vec<u32>,
    /// Whether there is one more, for latencies without a bucket.
    has_unplaced: bool,
    /// Edges of each, in nanoseconds, clipped to the smallest and the largest latency of all.
    pub(super) edges: Vec<(f64, f64)>,
}

/// Counts by used bucket.
pub(super) type Counts = Vec<u64>;

/// A side.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The blocks of each run.
    pub(super) runs: Vec<Vec<Counts>>,
    /// All together.
    pub(super) all: Counts,
    /// All together, with exact extremes.
    pub(super) histogram: Histogram,
}

/// The latencies of two sides.
pub(super) fn samples(a: &[Member<'_>], b: &[Member<'_>]) -> (Buckets, Sample, Sample) {
    let layouts = a.iter().chain(b).map(|member| member.cell.all.histogram.layout());
    let coarsest = layouts.max_by_key(|layout| (layout.unit_ns, u32::MAX - layout.exact));
    let layout = coarsest.unwrap_or_default();
    let (of_a, of_b) = (pooled(a, layout), pooled(b, layout));
    let mut both = of_a.clone();
    both.merge(&of_b);
    let buckets = Buckets::new(&both);
    let sample = |members: &[Member<'_>], histogram: Histogram| Sample {
        runs: members.iter().map(|member| blocks(member, &buckets)).collect(),
        all: buckets.counts(layout, &histogram.bins(), histogram.unplaced().count),
        histogram,
    };
    let (a, b) = (sample(a, of_a), sample(b, of_b));
    (buckets, a, b)
}

/// All latencies of a side. A bucket of a finer layout counts where it begins.
fn pooled(members: &[Member<'_>], layout: Layout) -> Histogram {
    let mut sum = Histogram::new(layout);
    for histogram in members.iter().map(|member| &member.cell.all.histogram) {
        let own = histogram.layout();
        let place = |&(index, count): &(u32, u64)| (layout.index(own.lower_ns(index)), count);
        let bins: Vec<(u32, u64)> = histogram.bins().iter().map(place).collect();
        let (min_ns, max_ns) = (histogram.min_ns().unwrap_or(0), histogram.max_ns().unwrap_or(0));
        sum.add_all(&bins, histogram.unplaced(), min_ns, max_ns, histogram.sum_ns());
    }
    sum
}

/// The blocks of a run: its slices by time, all threads together, neighbours joined.
fn blocks(member: &Member<'_>, buckets: &Buckets) -> Vec<Counts> {
    let record = member.run.record;
    let own = record.layout_of(member.cell.cell);
    let mut slots: BTreeMap<u64, Vec<&Slice>> = BTreeMap::new();
    let slices: Vec<&Slice> =
        record.slices_of(member.cell.cell).filter(|s| s.recorded > 0).collect();
    let start_ns = slices.iter().map(|slice| slice.start_ns).min().unwrap_or(0);
    let longest_ns = slices.iter().map(|s| s.end_ns.saturating_sub(s.start_ns)).max().unwrap_or(1);
    for slice in slices {
        slots.entry((slice.start_ns - start_ns) / longest_ns.max(1)).or_default().push(slice);
    }
    let slots: Vec<Vec<&Slice>> = slots.into_values().collect();
    let join = slots.len().div_ceil(BLOCKS_MAX).max(1);
    let block = |slots: &[Vec<&Slice>]| {
        let mut counts = buckets.none();
        for slice in slots.iter().flatten() {
            buckets.add(own, &slice.bins, slice.unplaced.count, &mut counts);
        }
        counts
    };
    slots.chunks(join).map(block).collect()
}

impl Buckets {
    fn new(both: &Histogram) -> Buckets {
        let layout = both.layout();
        let used: Vec<u32> = both.bins().iter().map(|bin| bin.0).collect();
        let (min_ns, max_ns) = (both.min_ns().unwrap_or(0), both.max_ns().unwrap_or(0));
        let edge = |&index: &u32| {
            let low = layout.lower_ns(index).max(min_ns) as f64;
            (low, layout.upper_ns(index).min(max_ns) as f64 + 1.0)
        };
        let mut edges: Vec<(f64, f64)> = used.iter().map(edge).collect();
        let has_unplaced = !both.unplaced().is_empty();
        if has_unplaced {
            let low = edges.last().map_or(both.unplaced().from_ns as f64, |edge| edge.1);
            edges.push((low, low.max(max_ns as f64 + 1.0)));
        }
        Buckets { layout, used, has_unplaced, edges }
    }

    /// No latency in any bucket.
    fn none(&self) -> Counts {
        vec![0; self.edges.len()]
    }

    fn counts(&self, layout: Layout, bins: &[(u32, u64)], unplaced: u64) -> Counts {
        let mut counts = self.none();
        self.add(layout, bins, unplaced, &mut counts);
        counts
    }

    fn add(&self, layout: Layout, bins: &[(u32, u64)], unplaced: u64, counts: &mut [u64]) {
        if let Some(last) = counts.last_mut().filter(|_| self.has_unplaced) {
            *last += unplaced;
        }
        for &(index, count) in bins {
            let index = if layout == self.layout {
                index
            } else {
                self.layout.index(layout.lower_ns(index))
            };
            if let Ok(place) = self.used.binary_search(&index) {
                counts[place] += count;
            }
        }
    }

    /// The latency below which the share `p` lies, latencies being spread evenly in their bucket.
    pub(super) fn quantile_ns(&self, counts: &[u64], p: f64) -> f64 {
        let rank = counts.iter().sum::<u64>() as f64 * p;
        let mut below = 0.0;
        for (&count, &(low, high)) in counts.iter().zip(&self.edges) {
            let count = count as f64;
            if count > 0.0 && below + count >= rank {
                return low + (rank - below) / count * (high - low);
            }
            below += count;
        }
        self.edges.last().map_or(0.0, |edge| edge.1)
    }

    /// The area between two curves over the latencies, of which `difference` is the distance at the
    /// upper end of each bucket.
    pub(super) fn area(&self, difference: &[f64]) -> f64 {
        let (mut area, mut before, mut end) = (0.0, 0.0f64, f64::NAN);
        for (&after, &(low, high)) in difference.iter().zip(&self.edges) {
            if end < low {
                area += before.abs() * (low - end);
            }
            area += f64::midpoint(before.abs(), after.abs()) * (high - low);
            (before, end) = (after, high);
        }
        area
    }
}

/// The share of latencies up to the upper end of each bucket.
pub(super) fn cumulative(counts: &[u64]) -> Vec<f64> {
    let total = counts.iter().sum::<u64>().max(1) as f64;
    let mut sum = 0;
    let share = |&count: &u64| {
        sum += count;
        sum as f64 / total
    };
    counts.iter().map(share).collect()
}
