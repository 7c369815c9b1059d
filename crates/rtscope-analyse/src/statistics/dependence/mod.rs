//! How much wake-ups depend on each other, from the slices of a cell.
//!
//! A disturbance makes many wake-ups late at once: those of one CPU one after the other, and those of
//! several CPUs together. A thousand late wake-ups of ten disturbances say no more about a system than
//! ten independent ones. So the cell is cut into blocks of equal time, and the wake-ups of all threads
//! that reach a limit are counted in each. The design effect is how many times larger the variance of
//! their sum is than that of independent wake-ups (L. Kish, Survey Sampling, 1965, section 8.2). It comes
//! from the slow part of the counts, their first [`WAVES`] cosines ([`cosines`]), so that disturbances of
//! any length count in full, up to about a tenth of the cell.
//!
//! A few clusters say little about how large clusters are: [`Blocks::measured_with_wider`] also looks at more wake-ups.
//!
//! When nearly all that the counts vary is slow, the disturbances are too long for the run, and there is a
//! [`IntervalRefusal`] instead.
//!
//! ```text
//! let mut blocks = Blocks::new(layout);
//! slices of one cell, all threads, in any order -> blocks.add(&slice)
//! blocks.measured(limit_ns)     wake-ups as recorded      -> Result<Dependence, Refusal>
//! blocks.corrected(limit_ns)    with missed activations   -> Result<Dependence, Refusal>
//! dependence.inflation()        divide a count by it: the number of independent ones it is worth
//! ```
//!
//! Memory: at most [`BLOCKS_MAX`] blocks of at most a few hundred classes of latency each, whatever the
//! length of the run and the number of threads.
//!
//! What it can't show: a disturbance that didn't come in the cell, or one that lasted for all of it.

use std::{collections::BTreeMap, fmt};

use rtscope_model::{
    histogram::{Bin, Layout, add_bins},
    slice::Slice,
    time::Nanos,
};
use serde::{Serialize, Serializer};
use statrs::distribution::{Beta, ContinuousCDF};

use super::{cosines, gamma::gamma_quantile};
use crate::number::grouped;

/// Most blocks that are kept; when there are more, each two become one.
pub const BLOCKS_MAX: usize = 1_024;

/// The shortest block, however short the slices are. In a phase of a few seconds shorter blocks make intervals
/// narrow that don't hold: most such phases meet no burst, and nothing in them shows that there are bursts
/// (`docs/method/coverage.md`).
const SHORTEST_NS: u64 = 1_000_000_000;

/// Classes of latency, 3 % wide: enough to tell who reached a limit, whatever the record's buckets.
const CLASSES: Layout = Layout { unit_ns: 1, exact: 64 };

/// Cosines that the design effect is taken from: the slowest has half a wave in the cell, the fastest three.
/// Fewer blocks than twice this many have half as many cosines as blocks.
const WAVES: usize = 6;

/// The share of the dependence that is slow, and the design effect, from which on disturbances are too long
/// for the run.
const SLOW: (f64, f64) = (0.6, 3.0);

/// Few blocks exceed that share by chance: what they exceed in one of fifty cases is allowed.
const SLOW_BY_CHANCE: f64 = 0.98;

/// Independent wake-ups beyond a limit from which on their own clusters show how large clusters are.
pub const EVENTS_KNOWN: f64 = 10.0;

/// Fewer are judged by the clusters of so many times as many. Ten times as many left 6 of 100 intervals of a slowly
/// wandering latency too low (`docs/method/coverage.md`).
const WIDER: f64 = 30.0;

/// Parts of a cell of which the quietest is looked for.
const TENTHS: usize = 10;

/// Design effect from which on a reader is told of it, if it is beyond the noise of its blocks.
const TOLD_FROM: f64 = 1.5;

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
    /// Length of the blocks of time that wake-ups were counted in.
    pub block_ns: u64,
    /// How many such blocks.
    pub blocks: usize,
}

impl Dependence {
    /// What to divide a count by before its interval is computed as that of independent wake-ups: the
    /// design effect, and Student's t for the few cosines that it was estimated from.
    #[must_use]
    pub fn inflation(&self) -> f64 {
        self.design_effect * (cosines::student(waves_in(self.blocks)) / NORMAL).powi(2)
    }

    /// How many independent wake-ups a number of them is worth, in words; none where the design effect
    /// is hardly above 1, or no more than noise.
    #[must_use]
    pub fn sentence(&self, wakeups: u64) -> Option<String> {
        // Of independent wake-ups, a mean square of n cosines has a relative error of sqrt(2 / n).
        let noise = (2.0 / f64::from(waves_in(self.blocks))).sqrt();
        (self.design_effect >= TOLD_FROM.max(1.0 + 2.0 * noise)).then(|| {
            format!(
                "late wake-ups come in clusters: {} count as {} independent ones",
                grouped(wakeups),
                grouped((wakeups as f64 / self.design_effect) as u64)
            )
        })
    }
}

/// How far an interval reaches below and above a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    pub below: f64,
    pub above: f64,
}

impl Margins {
    /// Those of a sum of equal disturbances, and at least one, with this standard deviation. `excess` is the
    /// sum as far as it is known. Much less than one disturbance is none: then the sum is taken as normal.
    fn new(excess: f64, deviation: f64) -> Margins {
        if excess <= 0.5 * deviation {
            return Margins { below: NORMAL * deviation, above: NORMAL * deviation };
        }
        let excess = excess.max(deviation);
        let count = (excess / deviation).powi(2);
        let end = |count_end: f64| excess * (count_end / count - 1.0);
        let gamma = gamma_quantile;
        Margins { below: -end(gamma(count, 0.025)), above: end(gamma(count + 1.0, 0.975)) }
    }
}

/// Why nothing can be said about the dependence, and so no interval given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalRefusal {
    /// Nothing was measured.
    Nothing,
    /// An import that doesn't say when its latencies were.
    Unordered,
    /// All wake-ups are in one block.
    TooShort {
        /// Length of a cell that has two.
        needed_ns: u64,
    },
    /// Disturbances nearly as long as the cell.
    Slow,
}

impl fmt::Display for IntervalRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntervalRefusal::Nothing => f.write_str("nothing was measured"),
            IntervalRefusal::Unordered => f.write_str(
                "the import does not say when each latency occurred, so rtscope can't see whether late \
                    wake-ups come in clusters",
            ),
            IntervalRefusal::TooShort { needed_ns } => write!(
                f,
                "only a phase of at least {} shows whether late wake-ups come in clusters",
                Nanos(*needed_ns)
            ),
            IntervalRefusal::Slow => f.write_str(
                "late wake-ups come in long spells, and this phase contains too few of them: measure until it \
                    contains at least ten",
            ),
        }
    }
}

impl Serialize for IntervalRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Counts of one kind in a block: how many latencies in each class, ascending.
#[derive(Clone, Debug, Default)]
struct Counts {
    classes: Vec<Bin>,
    sum_ns: u128,
}

impl Counts {
    /// Adds bins, those of one class at once.
    fn add_bins(&mut self, layout: Layout, bins: &[Bin], sum_ns: u64) {
        let class_of = |bin: &Bin| CLASSES.index(layout.lower_ns(bin.0));
        for same in bins.chunk_by(|a, b| class_of(a) == class_of(b)) {
            let count = same.iter().fold(0, |sum, bin| bin.1.saturating_add(sum));
            add_bins(&mut self.classes, &[(class_of(&same[0]), count)]);
        }
        self.sum_ns += u128::from(sum_ns);
    }

    fn merge(&mut self, other: &Counts) {
        add_bins(&mut self.classes, &other.classes);
        self.sum_ns += other.sum_ns;
    }

    fn share(&self, class: u32) -> Share {
        let split = self.classes.partition_point(|known| known.0 < class);
        let sum = |part: &[Bin]| part.iter().fold(0, |sum, known| known.1.saturating_add(sum));
        let beyond = sum(&self.classes[split..]);
        Share { of: sum(&self.classes[..split]).saturating_add(beyond), beyond }
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
    most: usize,
    is_ordered: bool,
    block_ns: u64,
    /// By the number of the block since the start of the run.
    blocks: BTreeMap<u64, Block>,
}

impl Blocks {
    /// Without any slice; the slices to come have bins of this layout.
    #[must_use]
    pub fn new(layout: Layout) -> Blocks {
        Blocks::bounded(layout, BLOCKS_MAX)
    }

    /// The same with at most so many blocks, at least 2: for one of many threads.
    #[must_use]
    pub fn bounded(layout: Layout, most: usize) -> Blocks {
        let blocks = BTreeMap::new();
        Blocks { layout, most: most.max(2), is_ordered: true, block_ns: SHORTEST_NS, blocks }
    }

    /// Declares that the slices don't say when their latencies were: every answer is a refusal.
    #[must_use]
    pub fn without_order(self) -> Blocks {
        Blocks { is_ordered: false, ..self }
    }

    /// Adds a slice of any thread, in any order. A slice goes to the block that holds its middle; blocks
    /// are never much shorter than the longest slice.
    pub fn add(&mut self, slice: &Slice) {
        let length_ns = slice.end_ns.saturating_sub(slice.start_ns);
        // Slices are cut at the first expiry after their end: a millisecond more is still a second.
        while self.block_ns < length_ns - length_ns / 4 {
            self.double();
        }
        let middle_ns = slice.start_ns.saturating_add(length_ns / 2);
        let layout = self.layout;
        let block = self.blocks.entry(middle_ns / self.block_ns).or_default();
        block.measured.add_bins(layout, &slice.bins, slice.sum_ns);
        block.omitted.add_bins(layout, &slice.omitted, slice.omitted_extent.sum_ns);
        if slice.unplaced.count > 0 {
            let class = CLASSES.index(slice.unplaced.from_ns);
            add_bins(&mut block.measured.classes, &[(class, slice.unplaced.count)]);
        }
        while self.span() > self.most as u64 {
            self.double();
        }
    }

    #[must_use]
    pub fn block_ns(&self) -> u64 {
        self.block_ns
    }

    /// The dependence of the wake-ups that reach a limit, as recorded.
    ///
    /// # Errors
    ///
    /// When the cell is too short, or its disturbances too long, to tell.
    pub fn measured(&self, limit_ns: u64) -> Result<Dependence, IntervalRefusal> {
        self.estimate(&self.shares(limit_ns, false))
    }

    /// The same of recorded wake-ups and what the missed activations would have seen: all those that one
    /// stall swallowed are in one block, so they count as one event.
    ///
    /// # Errors
    ///
    /// When the cell is too short, or its disturbances too long, to tell.
    pub fn corrected(&self, limit_ns: u64) -> Result<Dependence, IntervalRefusal> {
        self.estimate(&self.shares(limit_ns, true))
    }

    /// The dependence of the wake-ups beyond a quantile of all, which has this value: those that reach
    /// its class of latency or those that are beyond the class, whichever are nearer to the share
    /// that lies beyond the quantile.
    ///
    /// # Errors
    ///
    /// When the cell is too short, or its disturbances too long, to tell.
    pub fn at_quantile(
        &self,
        value_ns: u64,
        beyond: f64,
        with_omitted: bool,
    ) -> Result<Dependence, IntervalRefusal> {
        // The value is the last of its bucket, whose latencies are in the class of the first.
        let class = self.class_of(value_ns);
        let [reaching, above] = [class, class + 1].map(|c| self.shares_from(c, with_omitted));
        let distance = |shares: &[Share]| {
            let all = total(shares);
            (all.beyond as f64 / (all.of as f64 * beyond)).ln().abs()
        };
        let nearer = if distance(&above) < distance(&reaching) { &above } else { &reaching };
        self.estimate(nearer)
    }

    /// The dependence of the wake-ups that reach a limit, as recorded, where they may be too few to show it.
    ///
    /// If they are worth fewer than [`EVENTS_KNOWN`] independent ones, a few clusters say little about how large
    /// clusters are. Then the wake-ups that reach the latency which [`WIDER`] times as many reach show more of them,
    /// and the larger design effect counts, unless disturbances at that latency are too long to tell.
    ///
    /// # Errors
    ///
    /// When the cell is too short, or its disturbances too long, to tell.
    pub fn measured_with_wider(&self, limit_ns: u64) -> Result<Dependence, IntervalRefusal> {
        let shares = self.shares(limit_ns, false);
        let own = self.estimate(&shares)?;
        let count = total(&shares).beyond as f64;
        if count == 0.0 || count / own.inflation() >= EVENTS_KNOWN {
            return Ok(own);
        }
        let class = self.class_reached_by(WIDER * count);
        let wider = class.and_then(|class| self.estimate(&self.shares_from(class, false)).ok());
        Ok(wider.filter(|wider| wider.design_effect > own.design_effect).unwrap_or(own))
    }

    /// The class of latency that a number of wake-ups reach, or the nearest to that which some reach and not all.
    fn class_reached_by(&self, count: f64) -> Option<u32> {
        let mut all: Vec<Bin> = Vec::new();
        self.blocks.values().for_each(|block| add_bins(&mut all, &block.measured.classes));
        // The smallest class is reached by all.
        let smallest = all.first()?.0;
        let mut reaching = 0;
        let reached = all.into_iter().rev().map(|(class, n)| {
            reaching += n;
            (class, (reaching as f64 / count).ln().abs())
        });
        let some = reached.filter(|(class, _)| *class != smallest);
        some.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(class, _)| class)
    }

    /// The class that the latencies of a latency's bucket are counted in.
    fn class_of(&self, latency_ns: u64) -> u32 {
        CLASSES.index(self.layout.lower_ns(self.layout.index(latency_ns)))
    }

    /// How far the 95 % interval of the mean latency reaches from the mean, in nanoseconds, missed
    /// activations included.
    ///
    /// Disturbances only add to a mean, and a run may have met few of them. So what the mean has more than
    /// that of the quietest tenth of the cell is taken as a sum of equal disturbances, as many as give it its
    /// variance. Its interval is that of their number ([`gamma_quantile`]).
    ///
    /// # Errors
    ///
    /// When the cell is too short, or its disturbances too long, to tell.
    pub fn mean_margins_ns(&self) -> Result<Margins, IntervalRefusal> {
        let mut all = Counts::default();
        let mut each = Vec::new();
        for block in self.in_order() {
            let mut both = Counts::default();
            for counts in block.iter().flat_map(|block| [&block.measured, &block.omitted]) {
                both.merge(counts);
            }
            each.push((both.share(0).of as f64, both.sum_ns as f64));
            all.merge(&both);
        }
        if !self.is_ordered {
            return Err(IntervalRefusal::Unordered);
        }
        // Disturbances only add to a mean. A phase of a few seconds that meets none doesn't show what they add.
        if (1..TENTHS).contains(&each.len()) {
            let needed_ns = self.block_ns.saturating_mul(TENTHS as u64);
            return Err(IntervalRefusal::TooShort { needed_ns });
        }
        let n = all.share(0).of as f64;
        let mean_ns = all.sum_ns as f64 / n;
        // A latency is somewhere in its class: a twelfth of the width squared (W. F. Sheppard, 1898).
        let square = |&(class, count): &(u32, u64)| {
            let (low, high) = (CLASSES.lower_ns(class) as f64, CLASSES.lower_ns(class + 1) as f64);
            let width = (high - low).max(self.layout.unit_ns as f64);
            count as f64
                * ((f64::midpoint(low, low + width) - mean_ns).powi(2) + width.powi(2) / 12.0)
        };
        let squares: f64 = all.classes.iter().map(square).sum();
        let residuals: Vec<f64> = each.iter().map(|(of, sum_ns)| sum_ns - mean_ns * of).collect();
        let found = of_residuals(n, &residuals, squares, self.block_ns)?;
        let deviation_ns = (found.inflation() * squares).sqrt() / n;
        Ok(Margins::new(excess(&each, mean_ns), deviation_ns))
    }

    /// The wake-ups of each block, in the order of time, that may reach a limit: with all of the limit's own bucket, and
    /// to the nearest class of latency below it.
    #[must_use]
    pub fn shares(&self, limit_ns: u64, with_omitted: bool) -> Vec<Share> {
        self.shares_from(self.class_of(limit_ns), with_omitted)
    }

    fn shares_from(&self, class: u32, with_omitted: bool) -> Vec<Share> {
        let share = |block: &Block| {
            let measured = block.measured.share(class);
            let omitted = block.omitted.share(class);
            if !with_omitted {
                return measured;
            }
            Share { of: measured.of + omitted.of, beyond: measured.beyond + omitted.beyond }
        };
        self.in_order().map(|block| block.map_or_else(Share::default, share)).collect()
    }

    /// The blocks from the first to the last; none where nothing was recorded.
    fn in_order(&self) -> impl Iterator<Item = Option<&Block>> {
        let (first, last) = self.ends().unwrap_or((1, 0));
        (first..=last).map(|number| self.blocks.get(&number))
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

    fn estimate(&self, shares: &[Share]) -> Result<Dependence, IntervalRefusal> {
        if self.is_ordered {
            estimate(shares, self.block_ns)
        } else {
            Err(IntervalRefusal::Unordered)
        }
    }
}

/// The dependence of what was counted in blocks of equal time, in their order.
///
/// # Errors
///
/// When there are too few blocks, or disturbances are too long, to tell.
pub fn estimate(shares: &[Share], block_ns: u64) -> Result<Dependence, IntervalRefusal> {
    let all = total(shares);
    let share = all.beyond as f64 / all.of as f64;
    let residual = |one: &Share| one.beyond as f64 - share * one.of as f64;
    let residuals: Vec<f64> = shares.iter().map(residual).collect();
    of_residuals(all.of as f64, &residuals, all.beyond as f64 * (1.0 - share), block_ns)
}

/// The design effect from what each block has more than its part of the whole. `independent` is the sum of
/// their squares if wake-ups were independent.
fn of_residuals(
    of: f64,
    residuals: &[f64],
    independent: f64,
    block_ns: u64,
) -> Result<Dependence, IntervalRefusal> {
    let blocks = residuals.len();
    if of < 1.0 {
        return Err(IntervalRefusal::Nothing);
    }
    if blocks < 2 {
        return Err(IntervalRefusal::TooShort { needed_ns: block_ns.saturating_mul(2) });
    }
    let waves = waves_in(blocks);
    // What one cosine has if wake-ups are independent.
    let each = independent / blocks as f64;
    let slow = cosines::energy(residuals, 1..waves + 1);
    let design_effect = if each > 0.0 { slow / (f64::from(waves) * each) } else { 1.0 };
    let all: f64 = residuals.iter().map(|r| r * r).sum();
    // What is left is the part of dependence, slow and in all.
    let slow = slow - f64::from(waves) * each;
    let all = all - (blocks - 1) as f64 * each;
    if design_effect > SLOW.1 && slow > slow_share(blocks) * all {
        return Err(IntervalRefusal::Slow);
    }
    let design_effect = design_effect.max(1.0);
    Ok(Dependence { design_effect, effective: of / design_effect, block_ns, blocks })
}

/// How many cosines of so many blocks give the design effect.
fn waves_in(blocks: usize) -> u32 {
    (blocks / 2).clamp(1, WAVES) as u32
}

/// The share of the dependence in the slow cosines from which on it is too slow. By chance, `n` of `m`
/// cosines have a share that follows a beta distribution.
fn slow_share(blocks: usize) -> f64 {
    let waves = waves_in(blocks) as usize;
    let others = (blocks - 1).saturating_sub(waves);
    let by_chance = Beta::new(waves as f64 / 2.0, others as f64 / 2.0);
    by_chance.map_or(1.0, |share| share.inverse_cdf(SLOW_BY_CHANCE)).max(SLOW.0)
}

/// What the mean has more than the mean of the quietest tenth. Each block has its wake-ups and the sum of
/// their latencies; there is one for each tenth at least.
fn excess(blocks: &[(f64, f64)], mean_ns: f64) -> f64 {
    let mean_of = |tenth: &[(f64, f64)]| {
        let sum = tenth.iter().fold((0.0, 0.0), |sum, block| (sum.0 + block.0, sum.1 + block.1));
        (sum.0 > 0.0).then(|| sum.1 / sum.0)
    };
    let means_ns = blocks.chunks_exact(blocks.len() / TENTHS).filter_map(mean_of);
    mean_ns - means_ns.fold(mean_ns, f64::min)
}

fn total(shares: &[Share]) -> Share {
    let add =
        |sum: Share, one: &Share| Share { of: sum.of + one.of, beyond: sum.beyond + one.beyond };
    shares.iter().fold(Share::default(), add)
}

#[cfg(test)]
mod tests;
