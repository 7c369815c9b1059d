//! Blocks of time and their largest latencies: what is left of the order of a run in its slices.

use std::collections::BTreeMap;

use rtscope_model::{histogram::Layout, slice::Slice};

use super::Interval;

/// Blocks that a long run is divided into, at least; up to twice as many.
const BLOCKS_WANTED: usize = 100;

/// The latencies of all threads of a cell, in blocks of equal length.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    /// Length of a block.
    pub(super) length_ns: u64,
    /// The largest latency of each block, in order.
    pub(super) maxima_ns: Vec<u64>,
    /// The largest latency of each slot of a slice's length, in order.
    pub(super) slots_ns: Vec<u64>,
}

impl Blocks {
    /// Divides slices of any number of threads. A slot is as long as the most slices are; what lies
    /// in the last, shorter block is left out.
    pub(super) fn new(slices: &[&Slice]) -> Blocks {
        let recorded = || slices.iter().filter(|slice| slice.recorded > 0);
        let mut lengths: Vec<u64> =
            recorded().map(|s| s.end_ns.saturating_sub(s.start_ns)).collect();
        lengths.sort_unstable();
        let slot_ns = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
        let start_ns = recorded().map(|slice| slice.start_ns).min().unwrap_or(0);
        if slot_ns == 0 {
            return Blocks { length_ns: 0, maxima_ns: Vec::new(), slots_ns: Vec::new() };
        }
        let mut slots: BTreeMap<u64, u64> = BTreeMap::new();
        for slice in recorded() {
            // By its middle: threads don't begin their slices at one instant.
            let middle_ns = f64::midpoint(slice.start_ns as f64, slice.end_ns as f64);
            let slot = ((middle_ns - start_ns as f64) / slot_ns as f64) as u64;
            let max_ns = slots.entry(slot).or_default();
            *max_ns = slice.max_ns.max(*max_ns);
        }
        let slots_ns: Vec<u64> = slots.into_values().collect();
        let group = (slots_ns.len() / BLOCKS_WANTED).max(1);
        let largest = |block: &[u64]| block.iter().copied().max().unwrap_or(0);
        let maxima_ns = slots_ns.chunks_exact(group).map(largest).collect();
        Blocks { length_ns: slot_ns * group as u64, maxima_ns, slots_ns }
    }

    /// The maxima by bucket, ascending.
    pub(super) fn intervals(&self, layout: Layout) -> Vec<Interval> {
        let mut indices: Vec<u32> = self.maxima_ns.iter().map(|&ns| layout.index(ns)).collect();
        indices.sort_unstable();
        let of = |same: &[u32]| Interval::of_bucket(layout, same[0], same.len() as u64);
        indices.chunk_by(|a, b| a == b).map(of).collect()
    }
}
