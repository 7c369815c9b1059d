//! One side's latencies, run by run, over buckets that both sides share; and how much the wake-ups of a run
//! depend on each other.
//!
//! Latencies of imports that have no bucket are counted in one more, behind all others: so every rank
//! is right, and what lies in that bucket is not told.

use rtscope_model::histogram::{Histogram, Layout};
use serde::Serialize;

use super::{pairing::Member, ratio};
use crate::statistics::dependence::{self, Blocks, IntervalRefusal, Share};

/// What the intervals of a comparison are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The differences from run to run.
    Runs,
    /// The dependence of wake-ups in each run, seen in its slices.
    Slices,
    /// Nothing: a run is too short, or an import without the order of its latencies. Wake-ups are taken
    /// as independent.
    Independent,
}

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

/// One run of a side.
#[derive(Clone, Debug)]
pub(super) struct Run<'a> {
    pub(super) member: Member<'a>,
    pub(super) counts: Counts,
    /// None when nothing of it shows dependence.
    blocks: Option<&'a Blocks>,
}

impl Run<'_> {
    /// Number of wake-ups at or above a limit that are worth one independent wake-up.
    pub(super) fn inflation(&self, limit_ns: u64) -> Result<f64, IntervalRefusal> {
        let Some(blocks) = self.blocks else { return Ok(1.0) };
        blocks.measured(limit_ns).map(|found| found.inflation())
    }

    /// The same of missed activations.
    pub(super) fn inflation_of_missed(&self) -> Result<f64, IntervalRefusal> {
        let Some(blocks) = self.blocks else { return Ok(1.0) };
        let (with, without) = (blocks.shares(0, true), blocks.shares(0, false));
        let missed =
            |(with, without): (&Share, &Share)| Share { of: with.of, beyond: with.of - without.of };
        let shares: Vec<Share> = with.iter().zip(&without).map(missed).collect();
        dependence::estimate(&shares, blocks.block_ns()).map(|found| found.inflation())
    }
}

/// A side.
#[derive(Clone, Debug)]
pub(super) struct Sample<'a> {
    pub(super) runs: Vec<Run<'a>>,
    /// All together.
    pub(super) all: Counts,
    /// All together, with exact extremes.
    pub(super) histogram: Histogram,
}

impl Sample<'_> {
    /// That of all runs together, each by its number of wake-ups.
    pub(super) fn inflation(&self, limit_ns: u64) -> Result<f64, IntervalRefusal> {
        let (mut sum, mut all) = (0.0, 0.0);
        for run in &self.runs {
            let count = run.member.cell.all.histogram.count() as f64;
            sum += run.inflation(limit_ns)? * count;
            all += count;
        }
        Ok(sum / all)
    }
}

/// What the intervals of two sides are made from.
pub(super) fn basis(a: &Sample<'_>, b: &Sample<'_>) -> Basis {
    if a.runs.len() >= ratio::RUNS_MIN && b.runs.len() >= ratio::RUNS_MIN {
        Basis::Runs
    } else if a.runs.iter().chain(&b.runs).all(|run| run.blocks.is_some()) {
        Basis::Slices
    } else {
        Basis::Independent
    }
}

/// The latencies of two sides.
pub(super) fn samples<'a>(a: &[Member<'a>], b: &[Member<'a>]) -> (Buckets, Sample<'a>, Sample<'a>) {
    let layouts = a.iter().chain(b).map(|member| member.cell.all.histogram.layout());
    let coarsest = layouts.max_by_key(|layout| (layout.unit_ns, u32::MAX - layout.exact));
    let layout = coarsest.unwrap_or_default();
    let (of_a, of_b) = (pooled(a, layout), pooled(b, layout));
    let mut both = of_a.clone();
    both.merge(&of_b);
    let buckets = Buckets::new(&both);
    let run = |member: &Member<'a>| {
        let own = &member.cell.all.histogram;
        let counts = buckets.counts(own.layout(), &own.bins(), own.unplaced().count);
        Run { member: *member, counts, blocks: blocks(member) }
    };
    let sample = |members: &[Member<'a>], histogram: Histogram| Sample {
        runs: members.iter().map(run).collect(),
        all: buckets.counts(layout, &histogram.bins(), histogram.unplaced().count),
        histogram,
    };
    let (a, b) = (sample(a, of_a), sample(b, of_b));
    (buckets, a, b)
}

/// All latencies of a side. A bucket of a finer layout counts where it begins.
fn pooled(members: &[Member<'_>], layout: Layout) -> Histogram {
    let grain_ns = members.iter().map(|member| member.cell.all.grain_ns).max().unwrap_or(0);
    let mut sum = Histogram::new(layout).cut_to(grain_ns);
    for histogram in members.iter().map(|member| &member.cell.all.histogram) {
        let own = histogram.layout();
        let place = |&(index, count): &(u32, u64)| (layout.index(own.lower_ns(index)), count);
        let bins: Vec<(u32, u64)> = histogram.bins().iter().map(place).collect();
        let (min_ns, max_ns) = (histogram.min_ns().unwrap_or(0), histogram.max_ns().unwrap_or(0));
        sum.add_all(&bins, histogram.unplaced(), min_ns, max_ns, histogram.sum_ns());
    }
    sum
}

/// Blocks of a run from which its dependence is estimated.
const BLOCKS_MIN: usize = 5;

/// The blocks of a run; none where there are too few to show dependence, or an import has no order.
fn blocks<'a>(member: &Member<'a>) -> Option<&'a Blocks> {
    let blocks = &member.cell.blocks;
    let is_unordered = blocks.measured(0) == Err(IntervalRefusal::Unordered);
    (!is_unordered && blocks.shares(0, false).len() >= BLOCKS_MIN).then_some(blocks)
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

    /// The first of the buckets from which the share `1 - p` of these counts is reached, as nearly as the
    /// edges of buckets allow.
    pub(super) fn edge_near(&self, counts: &[u64], p: f64) -> usize {
        let rank = counts.iter().sum::<u64>() as f64 * p;
        let mut below = 0.0;
        for (at, &count) in counts.iter().enumerate() {
            let after = below + count as f64;
            if after >= rank {
                return if rank - below <= after - rank { at } else { at + 1 };
            }
            below = after;
        }
        counts.len()
    }

    /// The smallest latency from a bucket on; none from the first or beyond the last, where there is nothing
    /// to tell apart.
    pub(super) fn lower_ns(&self, at: usize) -> Option<u64> {
        (at > 0).then(|| self.edges.get(at).map(|edge| edge.0 as u64)).flatten()
    }

    /// The width of the bucket that holds a latency.
    pub(super) fn width_at(&self, ns: f64) -> f64 {
        let at = self.edges.partition_point(|edge| edge.1 < ns).min(self.edges.len() - 1);
        self.edges[at].1 - self.edges[at].0
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
