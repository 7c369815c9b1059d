//! How much wake-ups depend on each other, from the slices of a cell.
//!
//! A disturbance makes many wake-ups late at once: those of one CPU one after the other, and those of
//! several CPUs together. A thousand late wake-ups of ten disturbances say no more about a system than
//! ten independent ones. So the cell is cut into blocks of equal time, and the wake-ups of all threads
//! that reach a limit are counted in each. The design effect is how many times larger the variance of
//! these counts is than that of independent wake-ups (L. Kish, Survey Sampling, 1965, section 8.2; batch
//! means: G. S. Fishman, Management Science 24, 1978).
//!
//! Blocks that are shorter than a disturbance cut it into pieces that look independent. So the blocks
//! grow, by doubling, while the design effect grows with them. When it still grows at the longest blocks,
//! the run has too few disturbances to tell how often they come: there is a [`Refusal`] instead.
//!
//! ```text
//! let mut blocks = Blocks::new(layout);
//! slices of one cell, all threads, in any order -> blocks.add(&slice)
//! blocks.measured(limit_ns)     wake-ups as recorded      -> Result<Dependence, Refusal>
//! blocks.corrected(limit_ns)    with missed activations   -> Result<Dependence, Refusal>
//! dependence.inflation()        divide a count by it: the number of independent ones it is worth
//! ```
//!
//! Memory: at most [`BLOCKS_MAX`] blocks of at most a few hundred classes of latency, whatever the length
//! of the run and the number of threads.
//!
//! What it can't show: a disturbance that comes once, or a rhythm longer than a tenth of the cell.

use std::{collections::BTreeMap, fmt};

use rtscope_model::{
    histogram::{Bin, Layout},
    slice::Slice,
    time::Nanos,
};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Most blocks that are kept; when there are more, each two become one.
pub const BLOCKS_MAX: usize = 1_024;

/// The shortest block: 62.5 ms, so that 1 s is a doubled one.
const SHORTEST_NS: u64 = 62_500_000;

/// Classes of latency, 3 % wide: enough to tell who reached a limit, whatever the record's buckets.
const CLASSES: Layout = Layout { unit_ns: 1, exact: 64 };

/// The fewest blocks from which a variance is estimated.
const BLOCKS_MIN: usize = 5;

/// The 97.5 % quantile of the normal distribution.
const NORMAL: f64 = 1.959_963_985;

/// How much the wake-ups that reach a limit depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dependence {
    /// How many times larger the variance of their count is than that of independent wake-ups. At
    /// least 1.
    pub design_effect: f64,
    /// Number of independent wake-ups that all wake-ups of the cell are worth: their number divided by
    /// the design effect.
    pub effective: f64,
    /// Length of the blocks that the design effect was found with.
    pub block_ns: u64,
    /// How many such blocks.
    pub blocks: usize,
}

impl Dependence {
    /// What to divide a count by before its interval is computed as that of independent wake-ups: the
    /// design effect, and Student's t for the few blocks that it was estimated from.
    #[must_use]
    pub fn inflation(&self) -> f64 {
        self.design_effect * (student(self.blocks) / NORMAL).powi(2)
    }
}

/// Why nothing can be said about the dependence, and so no interval given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Refusal {
    /// Nothing was measured.
    Nothing,
    /// The cell has too few blocks.
    TooShort {
        /// Length of a cell that has enough.
        needed_ns: u64,
    },
    /// The design effect still grows at the longest blocks: disturbances nearly as long as the cell.
    Slow,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Nothing => f.write_str("nothing was measured"),
            Refusal::TooShort { needed_ns } => write!(
                f,
                "the phase is too short to tell how wake-ups depend on each other: an interval needs at \
                 least {}",
                Nanos(*needed_ns)
            ),
            Refusal::Slow => f.write_str(
                "late wake-ups come in spells that are long compared with the phase: an interval needs a \
                 longer phase",
            ),
        }
    }
}

/// Counts of one kind in a block: how many latencies in each class, ascending.
#[derive(Clone, Debug, Default)]
struct Counts(Vec<(u32, u64)>);

impl Counts {
    fn add(&mut self, class: u32, count: u64) {
        match self.0.binary_search_by_key(&class, |known| known.0) {
            Ok(at) => self.0[at].1 += count,
            Err(at) => self.0.insert(at, (class, count)),
        }
    }

    fn merge(&mut self, other: &Counts) {
        other.0.iter().for_each(|&(class, count)| self.add(class, count));
    }

    /// All, and those from a class on.
    fn from(&self, class: u32) -> (u64, u64) {
        let split = self.0.partition_point(|known| known.0 < class);
        let sum = |part: &[(u32, u64)]| part.iter().map(|known| known.1).sum::<u64>();
        let beyond = sum(&self.0[split..]);
        (sum(&self.0[..split]) + beyond, beyond)
    }
}

/// What all threads saw in one block.
#[derive(Clone, Debug, Default)]
struct Block {
    measured: Counts,
    omitted: Counts,
}

/// Wake-ups of one block: how many there were, and how many of them reached a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// All wake-ups.
    pub of: u64,
    /// Those that reached the limit.
    pub beyond: u64,
}

/// The wake-ups of a cell in blocks of equal time, all threads together.
#[derive(Clone, Debug)]
pub struct Blocks {
    layout: Layout,
    block_ns: u64,
    /// By the number of the block since the start of the run.
    blocks: BTreeMap<u64, Block>,
}

impl Blocks {
    /// Without any slice; the slices to come have bins of this layout.
    #[must_use]
    pub fn new(layout: Layout) -> Blocks {
        Blocks { layout, block_ns: SHORTEST_NS, blocks: BTreeMap::new() }
    }

    /// Adds a slice of any thread, in any order. A slice goes to the block that holds its middle; blocks
    /// are never much shorter than the longest slice.
    pub fn add(&mut self, slice: &Slice) {
        let length_ns = slice.end_ns.saturating_sub(slice.start_ns);
        // Slices are cut at the first expiry after their end: a millisecond more is still a second.
        while self.block_ns < length_ns - length_ns / 4 {
            self.double();
        }
        let middle_ns = slice.start_ns + length_ns / 2;
        let layout = self.layout;
        let block = self.blocks.entry(middle_ns / self.block_ns).or_default();
        add_bins(&mut block.measured, layout, &slice.bins);
        add_bins(&mut block.omitted, layout, &slice.omitted);
        if slice.unplaced.count > 0 {
            block.measured.add(CLASSES.index(slice.unplaced.from_ns), slice.unplaced.count);
        }
        while self.span() > BLOCKS_MAX as u64 {
            self.double();
        }
    }

    /// Length of a block.
    #[must_use]
    pub fn block_ns(&self) -> u64 {
        self.block_ns
    }

    /// The dependence of the wake-ups that reach a limit, as recorded.
    ///
    /// # Errors
    ///
    /// When the cell is too short, or its disturbances too long, to tell.
    pub fn measured(&self, limit_ns: u64) -> Result<Dependence, Refusal> {
        estimate(&self.shares(limit_ns, false), self.block_ns)
    }

    /// The same of recorded wake-ups and what the missed activations would have seen: all those that one
    /// stall swallowed are in one block, so they count as one event.
    ///
    /// # Errors
    ///
    /// When the cell is too short, or its disturbances too long, to tell.
    pub fn corrected(&self, limit_ns: u64) -> Result<Dependence, Refusal> {
        estimate(&self.shares(limit_ns, true), self.block_ns)
    }

    /// The wake-ups of each block, in the order of time, that reach a limit: to the nearest class of
    /// latency below it.
    #[must_use]
    pub fn shares(&self, limit_ns: u64, with_omitted: bool) -> Vec<Share> {
        let class = CLASSES.index(limit_ns);
        let share = |block: &Block| {
            let (mut of, mut beyond) = block.measured.from(class);
            if with_omitted {
                let omitted = block.omitted.from(class);
                (of, beyond) = (of + omitted.0, beyond + omitted.1);
            }
            Share { of, beyond }
        };
        let Some((first, last)) = self.ends() else { return Vec::new() };
        (first..=last)
            .map(|number| self.blocks.get(&number).map_or_else(Share::default, share))
            .collect()
    }

    fn ends(&self) -> Option<(u64, u64)> {
        Some((*self.blocks.first_key_value()?.0, *self.blocks.last_key_value()?.0))
    }

    /// Blocks from the first to the last.
    fn span(&self) -> u64 {
        self.ends().map_or(0, |(first, last)| last - first + 1)
    }

    fn double(&mut self) {
        self.block_ns = self.block_ns.saturating_mul(2);
        for (number, block) in std::mem::take(&mut self.blocks) {
            let both = self.blocks.entry(number / 2).or_default();
            both.measured.merge(&block.measured);
            both.omitted.merge(&block.omitted);
        }
    }
}

/// Adds bins to classes, those of one class at once.
fn add_bins(counts: &mut Counts, layout: Layout, bins: &[Bin]) {
    let class_of = |bin: &Bin| CLASSES.index(layout.lower_ns(bin.0));
    for same in bins.chunk_by(|a, b| class_of(a) == class_of(b)) {
        counts.add(class_of(&same[0]), same.iter().map(|bin| bin.1).sum());
    }
}

/// The dependence of what was counted in blocks of equal time, in their order.
///
/// # Errors
///
/// When there are too few blocks, or the design effect still grows at the longest of them.
pub fn estimate(shares: &[Share], block_ns: u64) -> Result<Dependence, Refusal> {
    let of: u64 = shares.iter().map(|share| share.of).sum();
    let beyond: u64 = shares.iter().map(|share| share.beyond).sum();
    if of == 0 {
        return Err(Refusal::Nothing);
    }
    if shares.len() < BLOCKS_MIN {
        return Err(Refusal::TooShort { needed_ns: block_ns.saturating_mul(BLOCKS_MIN as u64) });
    }
    let share = beyond as f64 / of as f64;
    let independent = beyond as f64 * (1.0 - share);
    let mut residuals: Vec<f64> =
        shares.iter().map(|one| one.beyond as f64 - share * one.of as f64).collect();
    let (mut best, mut length) = (None::<Dependence>, 1);
    loop {
        let blocks = residuals.len();
        let squares: f64 = residuals.iter().map(|r| r * r).sum();
        let variance = squares * blocks as f64 / (blocks - 1) as f64;
        let found = if independent > 0.0 { (variance / independent).max(1.0) } else { 1.0 };
        if best.is_none_or(|best| found > best.design_effect) {
            let block_ns = block_ns.saturating_mul(length);
            let effective = of as f64 / found;
            best = Some(Dependence { design_effect: found, effective, block_ns, blocks });
        }
        if blocks / 2 < 10 {
            return best.ok_or(Refusal::Nothing);
        }
        residuals = residuals.chunks(2).map(|pair| pair.iter().sum()).collect();
        length *= 2;
    }
}

/// The 97.5 % quantile of Student's t for a variance of so many values.
fn student(values: usize) -> f64 {
    let freedom = values.saturating_sub(1).max(1) as f64;
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random::Random;

    fn shares(counts: &[u64]) -> Vec<Share> {
        counts.iter().map(|&beyond| Share { of: 1_000, beyond }).collect()
    }

    fn slice(thread: u32, start_ms: u64, length_ms: u64, late: u64, omitted: u64) -> Slice {
        let all = length_ms - omitted;
        Slice {
            thread,
            scope: rtscope_model::slice::Scope::Cell(0),
            start_ns: start_ms * 1_000_000,
            end_ns: (start_ms + length_ms) * 1_000_000,
            planned: length_ms,
            recorded: all,
            missed: omitted,
            early: 0,
            migrations: 0,
            min_ns: 5_000,
            max_ns: 90_000,
            max_at_ns: 0,
            max_cpu: 0,
            sum_ns: 0,
            bins: vec![(5, all - late), (90, late)],
            unplaced: rtscope_model::histogram::Unplaced::default(),
            omitted: vec![(70, omitted)],
            omitted_extent: rtscope_model::slice::Extent::default(),
        }
    }

    #[test]
    fn independent_wake_ups_have_a_design_effect_near_one() {
        let mut random = Random::new(1);
        let counts: Vec<u64> =
            (0..500).map(|_| (0..1_000).filter(|_| random.share() < 0.02).count() as u64).collect();
        let found = estimate(&shares(&counts), 1_000_000_000).expect("long enough");
        assert!(found.design_effect < 2.0, "{found:?}");
    }

    #[test]
    fn bursts_count_as_one_event_each() {
        // 50 late wake-ups at once, in every tenth second or so.
        let mut random = Random::new(2);
        let counts: Vec<u64> =
            (0..600).map(|_| if random.share() < 0.1 { 50 } else { 0 }).collect();
        let found = estimate(&shares(&counts), 1_000_000_000).expect("long enough");
        assert!((30.0..100.0).contains(&found.design_effect), "{found:?}");
        assert!((found.effective * found.design_effect - 600_000.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn threads_are_summed_and_the_order_does_not_matter() {
        let late = |second: u64| if second.is_multiple_of(7) { 30 } else { 0 };
        let slices: Vec<Slice> = (0..4u32)
            .flat_map(|thread| {
                (0..40).map(move |second| slice(thread, second * 1_000, 1_001, late(second), 3))
            })
            .collect();
        let fed = |slices: &mut dyn Iterator<Item = &Slice>| {
            let mut blocks = Blocks::new(Layout::default());
            slices.for_each(|slice| blocks.add(slice));
            blocks
        };
        let (one, other) = (fed(&mut slices.iter()), fed(&mut slices.iter().rev()));
        assert_eq!(one.block_ns(), 1_000_000_000);
        assert_eq!(one.shares(50_000, false), other.shares(50_000, false));
        assert_eq!(one.shares(50_000, false)[7], Share { of: 4 * 998, beyond: 120 });
        assert_eq!(one.shares(50_000, true)[7], Share { of: 4 * 1_001, beyond: 132 });
    }

    #[test]
    fn memory_is_bounded_and_long_slices_fit() {
        let mut blocks = Blocks::new(Layout::default());
        (0..5_000).for_each(|second| blocks.add(&slice(0, second * 1_000, 1_000, 1, 0)));
        assert_eq!(blocks.block_ns(), 8_000_000_000);
        assert!(blocks.shares(50_000, false).len() <= BLOCKS_MAX);
        blocks.add(&slice(1, 0, 60_000, 10, 0));
        assert_eq!(blocks.block_ns(), 64_000_000_000);
        let shares = blocks.shares(50_000, false);
        let (of, beyond) =
            shares.iter().fold((0, 0), |sum, one| (sum.0 + one.of, sum.1 + one.beyond));
        assert_eq!((of, beyond), (5_060_000, 5_010));
    }

    #[test]
    fn too_few_blocks_are_refused_with_what_it_takes() {
        let refused = estimate(&shares(&[1, 2, 3]), 1_000_000_000).expect_err("too short");
        assert_eq!(
            refused.to_string(),
            "the phase is too short to tell how wake-ups depend on each other: an interval needs at least \
             5 s"
        );
    }
}
