//! Where a latency falls, and how often: exact buckets to a limit, log-linear beyond, bounded memory.
//!
//! # Error bound
//!
//! Let `u` be the unit (1 us or 1 ns), `v` a latency in whole units, `E` the number of exact buckets.
//!
//! * `v < E`: one bucket a unit. The latency is known to within one unit.
//! * `v >= E`: with `m` the position of the highest set bit of `v`, the bucket is picked by `m` and
//!   the [`SUB_BITS`] bits below it, so its width is `2^(m - SUB_BITS)` units and its lower edge is at
//!   least `2^m`. The width is therefore at most `2^-SUB_BITS` = 1/32 = 3.1 % of the latency.
//! * The last bucket has no upper end, and so no such bound. It begins at 63/64 of 2^([`TOP_BIT`] + 1) units:
//!   with a unit of 1 ns at 2 h 24 min, with 1 us at 100 days.
//!
//! The minimum, the maximum and the sum are kept beside the buckets, exact to the nanosecond.
//!
//! A quantile is the upper edge of its bucket, clipped to the exact maximum: never understated.
//!
//! ```
//! use rtscope_histogram::{Histogram, Layout};
//!
//! let mut histogram = Histogram::new(Layout { unit_ns: 1_000, exact: 200 });
//! [12_300, 12_900, 250_000].into_iter().for_each(|latency_ns| histogram.record(latency_ns));
//! assert_eq!((histogram.count(), histogram.max_ns()), (3, Some(250_000)));
//! ```
//!
//! It is a crate of its own because simulations and long imports spend their time here: tests compile it optimized, and
//! need not compile all of `rtscope-model` so.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// Sub-buckets of each power of two beyond the exact buckets: 2^5 = 32.
pub const SUB_BITS: u32 = 5;

/// Highest power of two of units that is told apart.
pub const TOP_BIT: u32 = 42;

/// The fewest exact buckets a layout may have: the log-linear part starts where its buckets are
/// wider than one unit.
pub const EXACT_MIN: u32 = 1 << (SUB_BITS + 1);

/// The most exact buckets a layout may have.
pub const EXACT_MAX: u32 = 10_000_000;

/// How latencies map to buckets. Two histograms can be added only when their layouts are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "LayoutText")]
pub struct Layout {
    /// Width of an exact bucket, at least 1 ns: of our own runs 1 or 1000 ns, of imports what the other tool has.
    pub unit_ns: u64,
    /// Number of exact buckets, [`EXACT_MIN`] to [`EXACT_MAX`].
    pub exact: u32,
}

/// A layout as a file holds it.
#[derive(Deserialize)]
struct LayoutText {
    unit_ns: u64,
    exact: u32,
}

impl TryFrom<LayoutText> for Layout {
    type Error = String;

    fn try_from(LayoutText { unit_ns, exact }: LayoutText) -> Result<Layout, String> {
        if unit_ns == 0 || !(EXACT_MIN..=EXACT_MAX).contains(&exact) {
            return Err(format!("{exact} buckets of {unit_ns} ns are not a histogram of rtscope"));
        }
        Ok(Layout { unit_ns, exact })
    }
}

impl Default for Layout {
    /// 1 us to 10 ms.
    fn default() -> Layout {
        Layout { unit_ns: 1_000, exact: 10_000 }
    }
}

/// Group and sub-bucket of a value in units, as one ascending number.
const fn log_position(value: u64) -> u32 {
    let top = 63 - value.leading_zeros();
    if top > TOP_BIT {
        return ((TOP_BIT + 1) << SUB_BITS) - 1;
    }
    let sub = (value >> (top - SUB_BITS)) as u32 & ((1 << SUB_BITS) - 1);
    (top << SUB_BITS) + sub
}

impl Layout {
    /// How many buckets there are: the memory of a dense histogram is a counter for each.
    #[must_use]
    pub const fn buckets(self) -> u32 {
        self.exact + ((TOP_BIT + 1) << SUB_BITS) - log_position(self.exact as u64)
    }

    #[must_use]
    #[inline]
    pub const fn index(self, latency_ns: u64) -> u32 {
        // The common unit by a constant, so that the compiler multiplies instead of dividing.
        let value =
            if self.unit_ns == 1_000 { latency_ns / 1_000 } else { latency_ns / self.unit_ns };
        if value < self.exact as u64 {
            value as u32
        } else {
            self.exact + (log_position(value) - log_position(self.exact as u64))
        }
    }

    /// The smallest latency of a bucket, in nanoseconds; an index beyond the last bucket, in a damaged
    /// record, is the last.
    #[must_use]
    pub fn lower_ns(self, index: u32) -> u64 {
        if index < self.exact {
            return u64::from(index).saturating_mul(self.unit_ns);
        }
        let index = index.min(self.buckets() - 1);
        let position = index - self.exact + log_position(u64::from(self.exact));
        let (top, sub) = (position >> SUB_BITS, position & ((1 << SUB_BITS) - 1));
        let value = u64::from((1 << SUB_BITS) + sub) << (top - SUB_BITS);
        value.max(u64::from(self.exact)).saturating_mul(self.unit_ns)
    }

    /// The largest latency of a bucket, in nanoseconds; `u64::MAX` for the last.
    #[must_use]
    pub fn upper_ns(self, index: u32) -> u64 {
        let next_ns = if index < self.buckets() - 1 { self.lower_ns(index + 1) } else { u64::MAX };
        if next_ns == u64::MAX { u64::MAX } else { next_ns - 1 }
    }

    /// The one with the widest buckets: what histograms of several layouts are shown in together.
    #[must_use]
    pub fn coarsest(all: impl Iterator<Item = Layout>) -> Option<Layout> {
        all.max_by_key(|layout| (layout.unit_ns, u32::MAX - layout.exact))
    }

    /// The limit of the exact buckets, in nanoseconds: latencies from here on are overflow.
    #[must_use]
    pub const fn limit_ns(self) -> u64 {
        (self.exact as u64).saturating_mul(self.unit_ns)
    }
}

/// A non-empty bucket: `[index, count]` in the formats.
pub type Bin = (u32, u64);

/// Adds bins to others; those are ascending, and stay so. Counts that don't fit 64 bits stay at the largest number.
pub fn add_bins(sum: &mut Vec<Bin>, bins: &[Bin]) {
    for &(index, count) in bins {
        match sum.binary_search_by_key(&index, |bin| bin.0) {
            Ok(at) => sum[at].1 = sum[at].1.saturating_add(count),
            Err(at) => sum.insert(at, (index, count)),
        }
    }
}

/// Latencies that are known in number but not in magnitude: a tool that says how many lay beyond its
/// histogram, or that has no histogram at all. Our own runs never have any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    pub count: u64,
    /// Each is at least this; the maximum bounds them from above.
    pub from_ns: u64,
}

impl Unplaced {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Both together: what holds for all of them.
    #[must_use]
    pub fn and(self, other: Unplaced) -> Unplaced {
        match (self.count, other.count) {
            (_, 0) => self,
            (0, _) => other,
            _ => Unplaced {
                count: self.count.saturating_add(other.count),
                from_ns: self.from_ns.min(other.from_ns),
            },
        }
    }
}

/// Counts of latencies, with the exact minimum, maximum and sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    layout: Layout,
    counts: std::collections::BTreeMap<u32, u64>,
    unplaced: Unplaced,
    grain_ns: u64,
    count: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Histogram {
    #[must_use]
    pub fn new(layout: Layout) -> Histogram {
        Histogram {
            layout,
            counts: std::collections::BTreeMap::new(),
            unplaced: Unplaced::default(),
            grain_ns: 1,
            count: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
        }
    }

    /// The same for latencies that another tool cut to whole multiples of this: the largest may be almost so much
    /// longer than the maximum.
    #[must_use]
    pub fn cut_to(mut self, grain_ns: u64) -> Histogram {
        self.grain_ns = grain_ns.max(1);
        self
    }

    /// What no latency is above: the maximum, or almost a grain more where they were cut.
    #[must_use]
    pub fn reach_ns(&self) -> u64 {
        self.max_ns.saturating_add(self.grain_ns - 1)
    }

    pub fn record(&mut self, latency_ns: u64) {
        *self.counts.entry(self.layout.index(latency_ns)).or_default() += 1;
        self.count += 1;
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        self.sum_ns += u128::from(latency_ns);
    }

    /// Adds bins whose exact extremes and sum are known. Bins beyond the layout go to its last bucket.
    pub fn add(&mut self, bins: &[Bin], min_ns: u64, max_ns: u64, sum_ns: u128) {
        self.add_all(bins, Unplaced::default(), min_ns, max_ns, sum_ns);
    }

    /// Adds bins and latencies without one; extremes and sum are of both together. Counts of a damaged file may not fit
    /// 64 bits: they stay at the largest number.
    pub fn add_all(
        &mut self,
        bins: &[Bin],
        unplaced: Unplaced,
        min_ns: u64,
        max_ns: u64,
        sum_ns: u128,
    ) {
        let last = self.layout.buckets() - 1;
        for &(index, count) in bins.iter().filter(|bin| bin.1 > 0) {
            let sum = self.counts.entry(index.min(last)).or_default();
            *sum = sum.saturating_add(count);
            self.count = self.count.saturating_add(count);
        }
        self.count = self.count.saturating_add(unplaced.count);
        self.unplaced = self.unplaced.and(unplaced);
        if !unplaced.is_empty() || bins.iter().any(|bin| bin.1 > 0) {
            self.min_ns = self.min_ns.min(min_ns);
            self.max_ns = self.max_ns.max(max_ns);
            self.sum_ns = self.sum_ns.saturating_add(sum_ns);
        }
    }

    /// Adds another histogram of the same layout.
    ///
    /// # Panics
    ///
    /// When the layouts differ: that is a mistake of the caller, not of the input.
    pub fn merge(&mut self, other: &Histogram) {
        assert_eq!(self.layout, other.layout, "histograms of different layouts can't be added");
        self.grain_ns = self.grain_ns.max(other.grain_ns);
        self.add_all(&other.bins(), other.unplaced, other.min_ns, other.max_ns, other.sum_ns);
    }

    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many latencies are in no exact bucket: those at or beyond the limit, which are counted with
    /// their magnitude in the log-linear buckets, and those without a bucket.
    #[must_use]
    pub fn overflow(&self) -> u64 {
        let placed = self.counts.range(self.layout.exact..).map(|(_, count)| *count);
        placed.fold(self.unplaced.count, u64::saturating_add)
    }

    /// Whether minimum, maximum and sum are possible for these buckets. Always true if some latencies have no bucket.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let ends = self.counts.first_key_value().zip(self.counts.last_key_value());
        let Some(((&lowest, _), (&highest, _))) = ends.filter(|_| self.unplaced.is_empty()) else {
            return true;
        };
        let is_at =
            |index, ns| (self.layout.lower_ns(index)..=self.layout.upper_ns(index)).contains(&ns);
        // Each latency is in its bucket, and between the extremes.
        let sum_of = |bound: &dyn Fn(u32) -> u64| {
            let of_bucket =
                |(&index, &count): (&u32, &u64)| u128::from(bound(index)) * u128::from(count);
            self.counts.iter().map(of_bucket).fold(0, u128::saturating_add)
        };
        let least = sum_of(&|index| self.layout.lower_ns(index).max(self.min_ns));
        let most = sum_of(&|index| self.layout.upper_ns(index).min(self.max_ns));
        is_at(lowest, self.min_ns)
            && is_at(highest, self.max_ns)
            && (least..=most).contains(&self.sum_ns)
    }

    /// Latencies that are counted but in no bucket.
    #[must_use]
    pub fn unplaced(&self) -> Unplaced {
        self.unplaced
    }

    /// The exact minimum; none when empty.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// The exact maximum; none when empty.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    #[must_use]
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The exact mean; none when empty.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The non-empty buckets in ascending order.
    #[must_use]
    pub fn bins(&self) -> Vec<Bin> {
        self.counts.iter().map(|(&index, &count)| (index, count)).collect()
    }

    /// The value at a rank, 1 for the smallest: the upper edge of the bucket that holds it, clipped
    /// to the exact maximum, or to what no latency is above where they were cut. The last rank has that itself. None when
    /// there are fewer values, and for any other rank that a latency without a bucket may have.
    #[must_use]
    pub fn at_rank_ns(&self, rank: u64) -> Option<u64> {
        if rank == 0 || rank > self.count {
            return None;
        }
        if rank == self.count {
            return Some(self.reach_ns());
        }
        let mut seen: u64 = 0;
        for (&index, &count) in &self.counts {
            seen = count.saturating_add(seen);
            if !self.unplaced.is_empty() && self.layout.upper_ns(index) >= self.unplaced.from_ns {
                return None;
            }
            if seen >= rank {
                return Some(self.layout.upper_ns(index).min(self.reach_ns()).max(self.min_ns));
            }
        }
        None
    }

    /// How many values are at or above a limit: surely, and at most (they differ when the limit lies
    /// inside a bucket, or below the maximum of values without one).
    #[must_use]
    pub fn at_or_above(&self, limit_ns: u64) -> (u64, u64) {
        let (mut surely, mut at_most): (u64, u64) = (0, 0);
        for (&index, &count) in &self.counts {
            let lower_ns = self.layout.lower_ns(index).max(self.min_ns);
            let upper_ns = self.layout.upper_ns(index).min(self.reach_ns());
            if lower_ns >= limit_ns {
                surely = surely.saturating_add(count);
            }
            if upper_ns >= limit_ns {
                at_most = at_most.saturating_add(count);
            }
        }
        if self.unplaced.from_ns >= limit_ns {
            surely = surely.saturating_add(self.unplaced.count);
        }
        if self.reach_ns() >= limit_ns {
            at_most = at_most.saturating_add(self.unplaced.count);
        }
        // The exact maximum proves one exceedance even where the bucket doesn't.
        if self.count > 0 && self.max_ns >= limit_ns {
            surely = surely.max(1);
        }
        // A maximum above all buckets, as a damaged file may have it, is in none of them.
        (surely, at_most.max(surely))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        (prop_oneof![Just(1u64), Just(1_000)], EXACT_MIN..20_000)
            .prop_map(|(unit_ns, exact)| Layout { unit_ns, exact })
    }

    /// A damaged file may have any counts.
    #[test]
    fn counts_that_do_not_fit_stay_at_the_largest_number() {
        let mut histogram = Histogram::new(Layout::default());
        let unplaced = Unplaced { count: u64::MAX, from_ns: 1_000 };
        for _ in 0..2 {
            histogram.add(&[(1, u64::MAX), (20_000, u64::MAX)], 1_000, 1 << 40, u128::MAX);
            histogram.add_all(&[], unplaced, 1_000, 1 << 40, u128::MAX);
        }
        assert_eq!((histogram.count(), histogram.overflow()), (u64::MAX, u64::MAX));
        assert_eq!(histogram.at_or_above(1), (u64::MAX, u64::MAX));
        assert_eq!(histogram.at_rank_ns(u64::MAX), Some(1 << 40));
        assert_eq!(histogram.sum_ns(), u128::MAX);
    }

    #[test]
    fn buckets_tile_the_line() {
        for layout in
            [Layout::default(), Layout { unit_ns: 1, exact: 64 }, Layout { unit_ns: 1, exact: 100 }]
        {
            for index in 0..layout.buckets() {
                assert_eq!(layout.index(layout.lower_ns(index)), index, "{layout:?} {index}");
                assert_eq!(layout.index(layout.upper_ns(index)), index, "{layout:?} {index}");
            }
        }
    }

    #[test]
    fn a_layout_from_a_file_has_buckets_and_indices_beyond_them_are_the_last() {
        let read = serde_json::from_str::<Layout>;
        assert!(read(r#"{"unit_ns":0,"exact":100}"#).is_err());
        assert!(read(r#"{"unit_ns":1,"exact":4000000000}"#).is_err());
        let layout = read(r#"{"unit_ns":1,"exact":64}"#).expect("a layout");
        let last = layout.buckets() - 1;
        assert_eq!(layout.lower_ns(u32::MAX), layout.lower_ns(last));
        let wide = Layout { unit_ns: u64::MAX, exact: 64 };
        assert_eq!(
            (wide.lower_ns(2), wide.upper_ns(1), wide.limit_ns()),
            (u64::MAX, u64::MAX, u64::MAX)
        );
    }

    #[test]
    fn overflow_keeps_its_magnitude() {
        let mut histogram = Histogram::new(Layout { unit_ns: 1_000, exact: 100 });
        for latency_us in [5, 99, 100, 1_000, 1_000_000] {
            histogram.record(latency_us * 1_000);
        }
        assert_eq!((histogram.count(), histogram.overflow()), (5, 3));
        assert_eq!(histogram.max_ns(), Some(1_000_000_000));
        assert_eq!(histogram.at_or_above(900_000), (2, 2));
    }

    #[test]
    fn extremes_and_sum_are_held_to_the_buckets() {
        let bins = [(5, 90), (7, 10)];
        let is_consistent = |min_ns, max_ns, sum_ns| {
            let mut histogram = Histogram::new(Layout { unit_ns: 1_000, exact: 100 });
            histogram.add(&bins, min_ns, max_ns, sum_ns);
            histogram.is_consistent()
        };
        assert!(is_consistent(5_000, 7_999, 550_000) && is_consistent(5_999, 7_000, 609_910));
        assert!(!is_consistent(4_999, 7_999, 550_000) && !is_consistent(6_000, 7_999, 615_000));
        assert!(!is_consistent(5_000, 6_999, 550_000) && !is_consistent(5_000, 8_000, 550_000));
        // By hand: 90 * 5,000 + 10 * 7,000 and 90 * 5,999 + 10 * 7,999.
        assert!(!is_consistent(5_000, 7_999, 519_999) && is_consistent(5_000, 7_999, 520_000));
        assert!(!is_consistent(5_000, 7_999, 619_901) && is_consistent(5_000, 7_999, 619_900));
        assert!(Histogram::new(Layout::default()).is_consistent());
    }

    #[test]
    fn what_has_no_bucket_is_never_given_one() {
        let mut histogram = Histogram::new(Layout { unit_ns: 1_000, exact: 100 });
        let beyond = Unplaced { count: 3, from_ns: 100_000 };
        histogram.add_all(&[(5, 90), (7, 7)], beyond, 5_000, 700_000, 2_000_000);
        assert_eq!((histogram.count(), histogram.overflow()), (100, 3));
        let at = [1, 90, 91, 97, 98, 99, 100].map(|rank| histogram.at_rank_ns(rank));
        let known = [5_999, 5_999, 7_999, 7_999].map(Some);
        assert_eq!((&at[..4], &at[4..]), (&known[..], &[None, None, Some(700_000)][..]));
        let above = [7_000, 50_000, 100_000, 100_001, 700_000, 700_001];
        let above = above.map(|limit| histogram.at_or_above(limit));
        assert_eq!(above, [(10, 10), (3, 3), (3, 3), (1, 3), (1, 3), (0, 0)]);
        let mut only_extremes = Histogram::new(histogram.layout());
        let all = Unplaced { count: 50, from_ns: 3_000 };
        only_extremes.add_all(&[], all, 3_000, 90_000, 400_000);
        assert_eq!(
            (only_extremes.at_rank_ns(25), only_extremes.at_rank_ns(50)),
            (None, Some(90_000))
        );
        assert_eq!(only_extremes.at_or_above(10_000), (1, 50));
        histogram.merge(&only_extremes);
        assert_eq!((histogram.count(), histogram.at_rank_ns(1)), (150, None));
    }

    #[test]
    fn what_another_tool_cut_may_be_almost_a_unit_longer() {
        let mut histogram = Histogram::new(Layout::default()).cut_to(1_000);
        histogram.add(&[(5, 90), (9, 10)], 5_000, 9_000, 540_000);
        let above = [9_000, 9_500, 9_999, 10_000].map(|limit| histogram.at_or_above(limit));
        assert_eq!(above, [(10, 10), (0, 10), (0, 10), (0, 0)]);
        assert_eq!(histogram.max_ns(), Some(9_000));
        assert_eq!(histogram.at_rank_ns(100), Some(9_999));
    }

    #[test]
    fn a_maximum_above_all_buckets_is_an_exceedance() {
        let mut histogram = Histogram::new(Layout::default());
        histogram.add(&[(5, 90), (9, 10)], 5_000, 900_000, 600_000);
        assert_eq!(histogram.at_or_above(200_000), (1, 1));
        assert_eq!(histogram.at_or_above(900_001), (0, 0));
    }

    proptest! {
        #[test]
        fn a_bucket_is_as_narrow_as_promised(layout in layouts(), latency_ns in 0u64..1 << 41) {
            let index = layout.index(latency_ns);
            prop_assert!(index < layout.buckets());
            let (lower, upper) = (layout.lower_ns(index), layout.upper_ns(index));
            prop_assert!((lower..=upper).contains(&latency_ns));
            let width = upper - lower + 1;
            let bound = layout.unit_ns.max(latency_ns >> SUB_BITS);
            prop_assert!(width <= bound, "width {} at {}", width, latency_ns);
        }

        #[test]
        fn ranks_agree_with_sorting(layout in layouts(), mut values in proptest::collection::vec(0u64..5_000_000, 1..200)) {
            let mut histogram = Histogram::new(layout);
            values.iter().for_each(|&v| histogram.record(v));
            values.sort_unstable();
            for (i, &value) in values.iter().enumerate() {
                let found = histogram.at_rank_ns(i as u64 + 1).expect("rank exists");
                prop_assert!(found >= value, "understated");
                prop_assert_eq!(layout.index(found), layout.index(value));
            }
        }

        #[test]
        fn merging_is_recording_both(a in proptest::collection::vec(0u64..9_000_000, 0..50), b in proptest::collection::vec(0u64..9_000_000, 0..50)) {
            let of = |values: &[u64]| {
                let mut histogram = Histogram::new(Layout::default());
                values.iter().for_each(|&v| histogram.record(v));
                histogram
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged, of(&both));
        }
    }
}
