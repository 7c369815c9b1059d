//! Blocks of time and their largest latencies: what is left of the order of a run in its slices.

use std::collections::BTreeMap;

use rtscope_model::{histogram::Layout, slice::Slice};

use super::Interval;

/// Blocks that a long run is divided into, at least; up to twice as many.
const BLOCKS_WANTED: usize = 100;

/// The latencies of all threads of a cell, in blocks of equal length.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    pub(super) length_ns: u64,
    /// The largest latency of each block, in order.
    pub(super) maxima_ns: Vec<u64>,
    /// The largest latency of each slot of a slice's length, in order.
    pub(super) slots_ns: Vec<u64>,
    /// Where the first slot begins, and how long one is.
    pub(super) slots_from_ns: u64,
    pub(super) slot_ns: u64,
}

/// So much of the time is in slices that are no longer than a slot.
const TIME_IN_SLOTS: f64 = 0.95;

/// The length of a slot. The slices of a long record are not of one length: a slot takes the longest, but not
/// the few that grew because nobody came to end them.
fn slot(slices: &[&Slice]) -> u64 {
    let mut lengths: Vec<u64> =
        slices.iter().map(|s| s.end_ns.saturating_sub(s.start_ns)).collect();
    lengths.sort_unstable();
    let all = lengths.iter().map(|&ns| ns as f64).sum::<f64>();
    let mut passed = 0.0;
    let reaches = |&ns: &u64| {
        passed += ns as f64;
        passed >= TIME_IN_SLOTS * all
    };
    lengths.into_iter().find(reaches).unwrap_or(0)
}

impl Blocks {
    /// Divides slices of any number of threads. What lies in the last, shorter block is left out.
    pub(super) fn new(slices: &[&Slice]) -> Blocks {
        let recorded: Vec<&Slice> =
            slices.iter().copied().filter(|slice| slice.recorded > 0).collect();
        let slot_ns = slot(&recorded);
        let slots_from_ns = recorded.iter().map(|slice| slice.start_ns).min().unwrap_or(0);
        let mut blocks = Blocks { slots_from_ns, slot_ns, ..Blocks::default() };
        if slot_ns == 0 {
            return blocks;
        }
        let mut slots: BTreeMap<u64, u64> = BTreeMap::new();
        for slice in &recorded {
            let max_ns = slots.entry(blocks.slot_of(slice)).or_default();
            *max_ns = slice.max_ns.max(*max_ns);
        }
        blocks.slots_ns = slots.into_values().collect();
        let group = (blocks.slots_ns.len() / BLOCKS_WANTED).max(1);
        let largest = |block: &[u64]| block.iter().copied().max().unwrap_or(0);
        blocks.maxima_ns = blocks.slots_ns.chunks_exact(group).map(largest).collect();
        blocks.length_ns = slot_ns * group as u64;
        blocks
    }

    /// The slot of a slice, by its middle: threads don't begin their slices at one instant.
    fn slot_of(&self, slice: &Slice) -> u64 {
        let middle_ns = f64::midpoint(slice.start_ns as f64, slice.end_ns as f64);
        ((middle_ns - self.slots_from_ns as f64) / self.slot_ns as f64) as u64
    }

    /// The maxima by bucket, ascending.
    pub(super) fn intervals(&self, layout: Layout) -> Vec<Interval> {
        let mut indices: Vec<u32> = self.maxima_ns.iter().map(|&ns| layout.index(ns)).collect();
        indices.sort_unstable();
        let of = |same: &[u32]| Interval::of_bucket(layout, same[0], same.len() as u64);
        indices.chunk_by(|a, b| a == b).map(of).collect()
    }
}
