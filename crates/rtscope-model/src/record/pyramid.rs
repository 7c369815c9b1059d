//! Keeps what grows with the length of a run small: the farther back, the longer the slices, except
//! where something happened. `docs/format/record.md` describes it.
//!
//! Counts, sums, bins and extremes stay exact, whatever is joined. A file may be joined again and again as
//! the run goes on.

use std::{collections::BTreeMap, sync::Arc};

use super::Condenser;
use crate::{
    plan::Plan,
    slice::{Scope, Slice},
    verdict::Statistic,
};

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;
const HOUR_NS: u64 = 60 * MINUTE_NS;
const DAY_NS: u64 = 24 * HOUR_NS;

/// Slices stay as they were measured for so long.
pub const FINE_NS: u64 = HOUR_NS;

/// The shortest length that slices are joined to.
pub(super) const JOINED_MIN_NS: u64 = MINUTE_NS;

/// Most slices of a thread in a cell that stay because of a new maximum, and as many because they reach
/// a required limit.
const KEPT_MAX: u32 = 100;

/// Length that slices are joined to which lie so far back; 0 leaves them as they were measured.
fn length_ns(age_ns: u64) -> u64 {
    match age_ns {
        0..=FINE_NS => 0,
        age_ns if age_ns <= DAY_NS => MINUTE_NS,
        _ => 10 * MINUTE_NS,
    }
}

/// Length that spans of counters are joined to which end at this age of the run; 0 leaves them as they
/// were read.
#[must_use]
pub fn span_length_ns(at_ns: u64) -> u64 {
    if at_ns <= FINE_NS { 0 } else { MINUTE_NS }
}

/// For each cell of a plan the smallest limit of its maximum: what reaches it is kept in detail.
#[must_use]
pub fn limits_ns(plan: &Plan) -> Arc<[Option<u64>]> {
    let limits = plan.phases.iter().map(|phase| {
        let all = plan.require.iter().chain(&phase.require);
        let of_max = all.filter(|requirement| requirement.statistic == Statistic::Max);
        of_max.map(|requirement| requirement.limit).min()
    });
    limits.collect()
}

/// Joins the slices of one thread, which come in order, by their age.
///
/// A slice with a new maximum of its cell stays as it is, and so does one that reaches a required limit;
/// the slices before and after it stay with it.
#[derive(Debug)]
pub struct Pyramid {
    now_ns: u64,
    limits_ns: Arc<[Option<u64>]>,
    cells: BTreeMap<u32, Seen>,
    condenser: Condenser,
    before: Option<Before>,
}

/// What was seen of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    max_ns: u64,
    maxima: u32,
    exceedances: u32,
}

/// The slice before: whether it stays is known when the next one is.
#[derive(Debug)]
struct Before {
    slice: Slice,
    is_notable: bool,
    follows_notable: bool,
}

impl Pyramid {
    /// Of a thread whose newest slice ends at this instant.
    #[must_use]
    pub fn new(now_ns: u64, limits_ns: Arc<[Option<u64>]>) -> Pyramid {
        Pyramid {
            now_ns,
            limits_ns,
            cells: BTreeMap::new(),
            condenser: Condenser::default(),
            before: None,
        }
    }

    /// Takes the next slice. Returns one that is complete, if any is.
    pub fn add(&mut self, slice: Slice) -> Option<Slice> {
        let is_notable = self.is_notable(&slice);
        let follows_notable = self.before.as_ref().is_some_and(|before| before.is_notable);
        let before = self.before.replace(Before { slice, is_notable, follows_notable })?;
        self.join(before, is_notable)
    }

    /// The slices that are left, in order.
    pub fn finish(mut self) -> impl Iterator<Item = Slice> {
        let last = self.before.take().and_then(|before| self.join(before, false));
        last.into_iter().chain(self.condenser.finish())
    }

    fn join(&mut self, slice: Before, precedes_notable: bool) -> Option<Slice> {
        let stays = slice.is_notable || slice.follows_notable || precedes_notable;
        let age_ns = self.now_ns.saturating_sub(slice.slice.end_ns);
        self.condenser.add(slice.slice, if stays { 0 } else { length_ns(age_ns) })
    }

    fn is_notable(&mut self, slice: &Slice) -> bool {
        let Scope::Cell(cell) = slice.scope else { return false };
        let limit_ns = self.limits_ns.get(cell as usize).copied().flatten();
        let seen = self.cells.entry(cell).or_default();
        // What was never answered took at least as long as the extent says.
        let worst_ns = slice.max_ns.max(slice.omitted_extent.max_ns);
        let is_maximum = worst_ns > seen.max_ns && seen.maxima < KEPT_MAX;
        let is_exceedance =
            limit_ns.is_some_and(|limit_ns| worst_ns >= limit_ns) && seen.exceedances < KEPT_MAX;
        seen.max_ns = seen.max_ns.max(worst_ns);
        seen.maxima += u32::from(is_maximum);
        seen.exceedances += u32::from(is_exceedance);
        is_maximum || is_exceedance
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::condense::tests::{seconds as ordinary, sum},
        *,
    };
    use crate::histogram::Layout;

    /// Seconds of a thread. Latencies stay below 100 us, except at the given seconds.
    fn seconds(count: u64, spikes: &[(usize, u64)]) -> Vec<Slice> {
        let mut seconds = ordinary(count);
        for &(at, latency_ns) in spikes {
            let slice = &mut seconds[at];
            slice.sum_ns += latency_ns - slice.max_ns;
            slice.max_ns = latency_ns;
            slice.bins[1].0 = Layout::default().index(latency_ns);
        }
        seconds
    }

    fn joined(slices: &[Slice], limit_ns: Option<u64>) -> Vec<Slice> {
        let now_ns = slices.last().map_or(0, |slice| slice.end_ns);
        let mut pyramid = Pyramid::new(now_ns, [limit_ns].into());
        let mut all: Vec<Slice> = slices.iter().filter_map(|s| pyramid.add(s.clone())).collect();
        all.extend(pyramid.finish());
        all
    }

    fn lengths(slices: &[Slice]) -> Vec<u64> {
        slices.iter().map(|slice| (slice.end_ns - slice.start_ns) / SECOND_NS).collect()
    }

    #[test]
    fn a_day_and_more_take_few_slices_with_every_sum_and_the_last_hour_in_seconds() {
        let seconds = seconds(26 * 3600, &[(40_000, 900_000)]);
        let slices = joined(&seconds, None);
        assert_eq!(sum(&slices), sum(&seconds));
        assert!(slices.windows(2).all(|pair| pair[0].is_followed_by(&pair[1])));
        assert!(slices.len() < 5_200, "{}", slices.len());
        let newest = &lengths(&slices)[slices.len() - 3_600..];
        assert!(newest.iter().all(|&length| length == 1), "the last hour is as it was measured");
        assert!(lengths(&slices).contains(&600) && lengths(&slices).contains(&60));
        // The spike keeps its second, the one before and the one after.
        let at = slices.iter().position(|slice| slice.max_ns == 900_000).expect("the spike");
        assert_eq!(lengths(&slices[at - 1..=at + 1]), [1, 1, 1]);
        assert_eq!(slices[at], seconds[40_000]);
    }

    #[test]
    fn what_reaches_the_required_limit_stays_up_to_a_bound() {
        let spikes: Vec<(usize, u64)> = (1..=150).map(|n| (n * 10, 300_000)).collect();
        let seconds = seconds(3 * 3600, &spikes);
        let kept = |limit_ns| {
            let slices = joined(&seconds, limit_ns);
            let is_kept = |slice: &&Slice| slice.max_ns == 300_000 && slice.recorded == 10;
            slices.iter().filter(is_kept).count()
        };
        // The first one is a new maximum.
        assert_eq!(kept(None), 1);
        assert_eq!(kept(Some(300_000)), KEPT_MAX as usize);
    }

    #[test]
    fn joining_as_the_run_goes_keeps_what_joining_at_its_end_keeps() {
        let seconds =
            seconds(30 * 3600, &[(9_000, 400_000), (20_000, 500_000), (100_000, 600_000)]);
        let at_once = joined(&seconds, Some(450_000));
        let mut file: Vec<Slice> = Vec::new();
        for quarter in seconds.chunks(900) {
            file.extend_from_slice(quarter);
            file = joined(&file, Some(450_000));
        }
        assert!(sum(&file) == sum(&seconds));
        assert!(file.windows(2).all(|pair| pair[0].is_followed_by(&pair[1])));
        // Where the lengths change, one piece may be cut otherwise.
        assert!(file.len().abs_diff(at_once.len()) <= 2, "{} {}", file.len(), at_once.len());
        for spike in [9_000, 20_000, 100_000] {
            for kept in &seconds[spike - 1..=spike + 1] {
                assert!(file.contains(kept), "the second at {}", kept.start_ns);
            }
        }
    }
}
