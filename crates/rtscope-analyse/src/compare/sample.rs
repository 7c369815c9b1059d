//! One side's latencies, run by run, over buckets that both sides share; and how much the wake-ups of a run
//! depend on each other.
//!
//! Latencies of imports that have no bucket are counted in one more, behind all others: so every rank
//! is right, and what lies in that bucket is not told.
//!
//! Runs of different layouts have few edges in common: a bucket of one lies in two of those that both share. So there are
//! two readings, in which the one side's latencies are as long and the other's as short as they can be, and the reverse.
//! The truth is between them.

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
    /// The largest latency of each, ascending.
    upper_ns: Vec<u64>,
    /// Whether there is one more, for latencies without a bucket.
    has_unplaced: bool,
    /// Edges of each, in nanoseconds, clipped to the smallest and the largest latency of all.
    pub(super) edges: Vec<(f64, f64)>,
}

/// Counts by used bucket.
pub(super) type Counts = Vec<u64>;

/// Where latencies count whose bucket lies in more than one of those that both sides share, or on both sides of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Where their bucket begins.
    Shortest,
    /// Where it ends.
    Longest,
}

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
        blocks.measured_with_wider(limit_ns).map(|found| found.inflation())
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
    pub(super) reading: Reading,
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

/// The buckets of two sides, and A and B: once where all runs have one layout, and in two readings where they don't.
pub(super) fn samples<'a>(
    a: &[Member<'a>],
    b: &[Member<'a>],
) -> (Buckets, Vec<(Sample<'a>, Sample<'a>)>) {
    let all = || a.iter().chain(b).map(|member| &member.cell.all.histogram);
    let layout = Layout::coarsest(all().map(Histogram::layout)).unwrap_or_default();
    let buckets = Buckets::of(all());
    let sample = |members: &[Member<'a>], reading: Reading| {
        let run = |member: &Member<'a>| Run {
            member: *member,
            counts: buckets.counts(&member.cell.all.histogram, reading),
            blocks: blocks(member),
        };
        let runs: Vec<Run<'a>> = members.iter().map(run).collect();
        let sum = |at: usize| runs.iter().map(|run| run.counts[at]).fold(0, u64::saturating_add);
        let all = (0..buckets.edges.len()).map(sum).collect();
        Sample { runs, reading, all, histogram: pooled(members, layout) }
    };
    let (short, long) = (Reading::Shortest, Reading::Longest);
    let readings: &[(Reading, Reading)] = match all().all(|one| one.layout() == layout) {
        true => &[(long, long)],
        false => &[(long, short), (short, long)],
    };
    let both = readings.iter().map(|&(of_a, of_b)| (sample(a, of_a), sample(b, of_b))).collect();
    (buckets, both)
}

/// All latencies of a side. A bucket of another layout counts where it ends, so that no quantile is told too small.
fn pooled(members: &[Member<'_>], layout: Layout) -> Histogram {
    let grain_ns = members.iter().map(|member| member.cell.all.grain_ns).max().unwrap_or(0);
    let mut sum = Histogram::new(layout).cut_to(grain_ns);
    for histogram in members.iter().map(|member| &member.cell.all.histogram) {
        let (min_ns, max_ns) = (histogram.min_ns().unwrap_or(0), histogram.max_ns().unwrap_or(0));
        let place = |(_, end_ns, count)| (layout.index(end_ns), count);
        let bins: Vec<(u32, u64)> = spans(histogram).map(place).collect();
        sum.add_all(&bins, histogram.unplaced(), min_ns, max_ns, histogram.sum_ns());
    }
    sum
}

/// The buckets of a run: the smallest and the largest latency that each can hold, and the count.
fn spans(histogram: &Histogram) -> impl Iterator<Item = (u64, u64, u64)> {
    let (layout, reach_ns) = (histogram.layout(), histogram.reach_ns());
    histogram.bins().into_iter().map(move |(index, count)| {
        let lower_ns = layout.lower_ns(index);
        (lower_ns, layout.upper_ns(index).min(reach_ns).max(lower_ns), count)
    })
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
    fn of<'a>(all: impl Iterator<Item = &'a Histogram> + Clone) -> Buckets {
        let shared = shared(all.clone().flat_map(spans).map(|span| (span.0, span.1)).collect());
        let min_ns = all.clone().filter_map(Histogram::min_ns).min().unwrap_or(0);
        let max_ns = all.clone().map(Histogram::reach_ns).max().unwrap_or(0);
        let edge = |&(lower_ns, upper_ns): &(u64, u64)| {
            (lower_ns.max(min_ns) as f64, upper_ns.min(max_ns) as f64 + 1.0)
        };
        let mut edges: Vec<(f64, f64)> = shared.iter().map(edge).collect();
        let unplaced = all.map(Histogram::unplaced).filter(|unplaced| !unplaced.is_empty());
        let unplaced_from_ns = unplaced.map(|unplaced| unplaced.from_ns).min();
        if let Some(from_ns) = unplaced_from_ns {
            let low = edges.last().map_or(from_ns as f64, |edge| edge.1);
            edges.push((low, low.max(max_ns as f64 + 1.0)));
        }
        let upper_ns = shared.into_iter().map(|bucket| bucket.1).collect();
        Buckets { upper_ns, has_unplaced: unplaced_from_ns.is_some(), edges }
    }

    /// No latency in any bucket.
    fn none(&self) -> Counts {
        vec![0; self.edges.len()]
    }

    /// The latencies of a run whose buckets these are made from.
    fn counts(&self, histogram: &Histogram, reading: Reading) -> Counts {
        let mut counts = self.none();
        if let Some(last) = counts.last_mut().filter(|_| self.has_unplaced) {
            *last = histogram.unplaced().count;
        }
        for (begin_ns, end_ns, count) in spans(histogram) {
            let at_ns = match reading {
                Reading::Shortest => begin_ns,
                Reading::Longest => end_ns,
            };
            counts[self.upper_ns.partition_point(|&upper_ns| upper_ns < at_ns)] += count;
        }
        counts
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
    /// edges of buckets allow. Some of them are reached: beyond the last there is nothing to tell apart.
    pub(super) fn edge_near(&self, counts: &[u64], p: f64) -> usize {
        let total = counts.iter().sum::<u64>() as f64;
        let (rank, mut below) = (total * p, 0.0);
        for (at, &count) in counts.iter().enumerate() {
            let after = below + count as f64;
            if after >= rank {
                let is_last = after >= total;
                return if is_last || rank - below <= after - rank { at } else { at + 1 };
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

    /// The edges of the bucket that holds a latency.
    pub(super) fn around(&self, ns: f64) -> (f64, f64) {
        self.edges[self.edges.partition_point(|edge| edge.1 < ns).min(self.edges.len() - 1)]
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

/// Buckets side by side that hold these, which may overlap. Those that begin in one and end behind it are the least that the
/// next one holds.
fn shared(mut used: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    // Of those that begin together, the widest first.
    used.sort_unstable_by_key(|&(lower_ns, upper_ns)| (lower_ns, u64::MAX - upper_ns));
    let mut shared: Vec<(u64, u64)> = Vec::new();
    // How far those reach that begin in the last one or before.
    let mut reach_ns = 0;
    for (lower_ns, upper_ns) in used {
        let end_ns = shared.last().map_or(0, |bucket| bucket.1);
        if end_ns < reach_ns && end_ns + 1 < lower_ns {
            shared.push((end_ns + 1, reach_ns));
        }
        if shared.last().is_none_or(|bucket| bucket.1 < lower_ns) {
            shared.push((lower_ns, upper_ns.max(reach_ns)));
        }
        reach_ns = reach_ns.max(upper_ns);
    }
    let end_ns = shared.last().map_or(0, |bucket| bucket.1);
    if end_ns < reach_ns {
        shared.push((end_ns + 1, reach_ns));
    }
    shared
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        prop_oneof![
            Just(Layout::default()),
            Just(Layout { unit_ns: 1, exact: 10_000 }),
            Just(Layout { unit_ns: 1_000, exact: 64 })
        ]
    }

    fn recorded(layout: Layout, latencies_ns: &[u64]) -> Histogram {
        let mut histogram = Histogram::new(layout);
        latencies_ns.iter().for_each(|&latency_ns| histogram.record(latency_ns));
        histogram
    }

    #[test]
    fn runs_of_one_layout_keep_their_buckets() {
        let one = recorded(Layout::default(), &[3_100, 9_900, 20_000_000]);
        let other = recorded(Layout::default(), &[3_900, 4_000, 20_100_000]);
        let buckets = Buckets::of([&one, &other].into_iter());
        let wide = (19_968_000.0, 20_100_001.0);
        let edges = [(3_100.0, 4_000.0), (4_000.0, 5_000.0), (9_000.0, 10_000.0), wide];
        assert_eq!(buckets.edges, edges);
        for reading in [Reading::Shortest, Reading::Longest] {
            let counts = [&one, &other].map(|histogram| buckets.counts(histogram, reading));
            assert_eq!(counts, [vec![1, 0, 1, 1], vec![1, 1, 0, 1]]);
        }
    }

    #[test]
    fn no_shared_bucket_is_a_sliver_of_one_that_begins_with_it() {
        let edges = shared(vec![(10_000, 10_999), (10_752, 11_007), (11_000, 11_999)]);
        assert_eq!(edges, [(10_000, 10_999), (11_000, 11_999)]);
        let edges = shared(vec![(0, 9), (8, 12), (20, 29)]);
        assert_eq!(edges, [(0, 9), (10, 12), (20, 29)]);
    }

    proptest! {
        /// Each latency counts once; and the latency at any rank is between those of the two readings.
        #[test]
        fn shared_buckets_lie_side_by_side_and_the_truth_is_between_the_readings(
            runs in prop::collection::vec((layouts(), prop::collection::vec(0u64..40_000_000, 1..60)), 1..4),
        ) {
            let all: Vec<Histogram> =
                runs.iter().map(|(layout, latencies)| recorded(*layout, latencies)).collect();
            let buckets = Buckets::of(all.iter());
            prop_assert!(buckets.edges.iter().all(|edge| edge.0 < edge.1));
            prop_assert!(buckets.edges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            for ((_, latencies), histogram) in runs.iter().zip(&all) {
                let mut sorted = latencies.clone();
                sorted.sort_unstable();
                let edges = [Reading::Shortest, Reading::Longest].map(|reading| {
                    let counts = buckets.counts(histogram, reading);
                    let edges = buckets.edges.iter().zip(counts);
                    edges.flat_map(|(edge, count)| vec![*edge; count as usize]).collect::<Vec<_>>()
                });
                prop_assert_eq!([edges[0].len(), edges[1].len()], [latencies.len(); 2]);
                for (rank, truly_ns) in sorted.into_iter().enumerate() {
                    let (low, high) = (edges[0][rank].0, edges[1][rank].1);
                    prop_assert!((low..high).contains(&(truly_ns as f64)), "{truly_ns}: {low} to {high}");
                }
            }
        }
    }
}
