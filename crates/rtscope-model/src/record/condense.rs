//! Joins slices that follow each other to longer ones: less to keep, and every sum as before.

use std::collections::BTreeMap;

use super::pyramid::JOINED_MIN_NS;
use crate::slice::{Scope, Slice};

/// Joins slices of one file as they come, by a grid that begins with each scope.
///
/// Two slices are joined when one follows the other without a gap, both are to have the same length,
/// and their middles lie in one step of the grid of that length. So the slices of all threads are
/// joined alike, and joining to twice the length afterwards gives what joining to it at once gives.
#[derive(Clone, Debug, Default)]
pub struct Condenser {
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    slice: Slice,
    /// Where the grid begins.
    origin_ns: u64,
    length_ns: u64,
}

impl Open {
    /// Whether a slice that is to have a length belongs to this one.
    fn takes(&self, next: &Slice, length_ns: u64) -> bool {
        let step = |slice: &Slice| (slice.middle_ns() - self.origin_ns) / length_ns.max(1);
        self.length_ns == length_ns
            && length_ns > 0
            && self.slice.is_followed_by(next)
            && step(&self.slice) == step(next)
    }
}

impl Condenser {
    /// Takes the next slice, which is to be part of one of `length_ns`, or with 0 to stay as it is.
    /// Returns the slice before it when nothing can join that one any more.
    pub fn add(&mut self, next: Slice, length_ns: u64) -> Option<Slice> {
        match &mut self.open {
            Some(open) if open.takes(&next, length_ns) => {
                open.slice.absorb(&next);
                None
            }
            before => {
                let origin_ns = match before {
                    Some(open) if open.slice.is_followed_by(&next) => open.origin_ns,
                    _ => next.start_ns,
                };
                let open = Open { slice: next, origin_ns, length_ns };
                before.replace(open).map(|before| before.slice)
            }
        }
    }

    /// The last slice.
    pub fn finish(self) -> Option<Slice> {
        self.open.map(|open| open.slice)
    }
}

/// Memory that all slices of a record may take, shared out evenly to its files.
const RECORD_BYTES: usize = 20 << 20;

/// Memory that the slices of one file may take, however many files there are.
const FILE_BYTES_MIN: usize = 768 << 10;

/// So many slices of one file are kept whatever they take: what is drawn over time needs some.
const FILE_SLICES_MIN: usize = 512;

/// The longest a joined slice gets: beyond it nothing is left to gain.
const LENGTH_NS_MAX: u64 = 1 << 56;

/// Slices of one file in bounded memory: when they take more, all are joined to twice the length.
#[derive(Debug)]
pub(super) struct Condensed {
    slices: Vec<Slice>,
    condenser: Condenser,
    /// Length that slices are joined to; 0 while they are as they were read.
    pub(super) length_ns: u64,
    /// Length of a slice as the sampler makes it.
    slice_ns: u64,
    /// Of the longest slice as it was read.
    longest_ns: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Condensed {
    /// None yet, of a file of a record with so many files.
    pub(super) fn new(slice_ns: u64, files: usize) -> Condensed {
        Condensed {
            slices: Vec::new(),
            condenser: Condenser::default(),
            length_ns: 0,
            slice_ns: slice_ns.max(1),
            longest_ns: 0,
            bytes: 0,
            bytes_max: (RECORD_BYTES / files.max(1)).max(FILE_BYTES_MIN),
        }
    }

    pub(super) fn add(&mut self, slice: Slice) {
        self.longest_ns = self.longest_ns.max(slice.end_ns.saturating_sub(slice.start_ns));
        if let Some(done) = self.condenser.add(slice, self.length_ns) {
            self.keep(done);
        }
    }

    fn keep(&mut self, mut slice: Slice) {
        slice.bins.shrink_to_fit();
        slice.omitted.shrink_to_fit();
        self.bytes += bytes_of(&slice);
        self.slices.push(slice);
        while self.bytes > self.bytes_max
            && self.slices.len() > FILE_SLICES_MIN
            && self.length_ns < LENGTH_NS_MAX
        {
            let length_ns = (self.length_ns * 2).max(self.slice_ns * 2);
            self.join(length_ns);
        }
        if self.length_ns >= LENGTH_NS_MAX {
            // Slices that nothing can join, as those of many short phases: they are what there is.
            self.bytes_max = usize::MAX;
        }
    }

    /// Joins what was kept so far to slices of a length.
    fn join(&mut self, length_ns: u64) {
        self.length_ns = length_ns;
        let open = std::mem::take(&mut self.condenser).finish();
        let mut slices = Vec::new();
        for slice in std::mem::take(&mut self.slices).into_iter().chain(open) {
            slices.extend(self.condenser.add(slice, length_ns));
        }
        self.bytes = slices.iter().map(bytes_of).sum();
        self.slices = slices;
    }

    /// Length that slices were joined to, on reading or as the run went; 0 when they were not. A thread
    /// of ours that was held up makes a longer slice too, but not one of a minute.
    pub(super) fn joined_ns(&self) -> u64 {
        let was_joined = self.longest_ns >= JOINED_MIN_NS && self.longest_ns > 2 * self.slice_ns;
        self.length_ns.max(if was_joined { self.longest_ns } else { 0 })
    }

    /// The slices, joined to a length that is at least the own one.
    pub(super) fn finish(mut self, length_ns: u64) -> Vec<Slice> {
        if length_ns > self.length_ns {
            self.join(length_ns);
        }
        let mut slices = self.slices;
        slices.extend(self.condenser.finish());
        slices.shrink_to_fit();
        slices
    }
}

fn bytes_of(slice: &Slice) -> usize {
    let frames = slice.frames.as_ref();
    let bins = slice.bins.len() + slice.omitted.len() + frames.map_or(0, |frames| frames.bins());
    size_of::<Slice>()
        + frames.map_or(0, |frames| size_of_val(&**frames))
        + bins * size_of::<crate::histogram::Bin>()
}

/// Slices by thread and scope: what was read, whatever was joined since.
pub type Counts = BTreeMap<(u32, Scope), u64>;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        histogram::{Layout, Unplaced},
        record::CellSum,
        slice::Extent,
    };

    const SECOND_NS: u64 = 1_000_000_000;

    /// Seconds of a thread, with latencies that differ from second to second.
    pub(in crate::record) fn seconds(count: u64) -> Vec<Slice> {
        let slice = |n: u64| {
            let max_ns = 10_000 + n * 7_919 % 90_000;
            Slice {
                thread: 3,
                scope: Scope::Cell(0),
                start_ns: SECOND_NS / 3 + n * SECOND_NS,
                end_ns: SECOND_NS / 3 + (n + 1) * SECOND_NS,
                planned: 11,
                recorded: 10,
                missed: 1,
                early: n % 2,
                migrations: 0,
                min_ns: 4_000 + n % 7,
                max_ns,
                max_at_ns: n * SECOND_NS + 5,
                max_cpu: n as u32 % 2,
                sum_ns: 9 * 4_500 + max_ns,
                bins: vec![(4, 9), (Layout::default().index(max_ns), 1)],
                unplaced: Unplaced::default(),
                omitted: if n.is_multiple_of(3) { vec![(n as u32 % 5, 1)] } else { Vec::new() },
                omitted_extent: match n % 3 {
                    0 => Extent { min_ns: n % 5 * 1_000, max_ns: n % 5 * 1_000, sum_ns: 1_000 },
                    _ => Extent::default(),
                },
                frames: None,
            }
        };
        (0..count).map(slice).collect()
    }

    fn joined(slices: &[Slice], length_ns: u64) -> Vec<Slice> {
        let mut condenser = Condenser::default();
        let mut all: Vec<Slice> =
            slices.iter().filter_map(|s| condenser.add(s.clone(), length_ns)).collect();
        all.extend(condenser.finish());
        all
    }

    pub(in crate::record) fn sum(slices: &[Slice]) -> crate::record::CellHistogram {
        let mut sum = CellSum::new(Layout::default());
        slices.iter().for_each(|slice| sum.add(slice));
        sum.histogram(0, 3)
    }

    #[test]
    fn joined_slices_have_the_same_sums_and_the_instant_of_the_maximum() {
        let seconds = seconds(1_000);
        let minutes = joined(&seconds, 60 * SECOND_NS);
        assert_eq!(minutes.len(), 17);
        assert_eq!(sum(&minutes), sum(&seconds));
        assert!(minutes.iter().all(Slice::adds_up));
        assert!(minutes.windows(2).all(|pair| pair[0].is_followed_by(&pair[1])));
        for (minute, seconds) in minutes.iter().zip(seconds.chunks(60)) {
            let worst = seconds.iter().max_by_key(|slice| slice.max_ns).expect("seconds");
            let seen = (minute.max_ns, minute.max_at_ns, minute.max_cpu);
            assert_eq!(seen, (worst.max_ns, worst.max_at_ns, worst.max_cpu));
            assert_eq!(minute.early, seconds.iter().map(|slice| slice.early).sum::<u64>());
        }
    }

    #[test]
    fn joining_twice_is_joining_at_once() {
        let seconds = seconds(500);
        let once = joined(&seconds, 16 * SECOND_NS);
        assert_eq!(joined(&joined(&seconds, 4 * SECOND_NS), 16 * SECOND_NS), once);
        assert_eq!(joined(&seconds, 0), seconds);
    }

    #[test]
    fn nothing_is_joined_over_a_gap_or_into_another_phase() {
        let mut slices = seconds(12);
        slices.remove(5);
        slices[8].scope = Scope::Discarded;
        let lengths: Vec<u64> = joined(&slices, 60 * SECOND_NS)
            .iter()
            .map(|slice| (slice.end_ns - slice.start_ns) / SECOND_NS)
            .collect();
        assert_eq!(lengths, [5, 3, 1, 2]);
    }

    #[test]
    fn a_file_of_any_length_takes_bounded_memory() {
        let mut few = Condensed::new(SECOND_NS, 1);
        seconds(5_000).into_iter().for_each(|slice| few.add(slice));
        assert_eq!(few.finish(0), seconds(5_000), "a short record is left as it is");
        let mut many = Condensed::new(SECOND_NS, 64);
        let mut most = 0;
        for slice in seconds(86_400) {
            many.add(slice);
            most = most.max(many.bytes);
        }
        assert!(most <= 2 * FILE_BYTES_MIN, "{most}");
        assert!(many.length_ns > SECOND_NS);
        let slices = many.finish(0);
        assert!((FILE_SLICES_MIN / 2..10_000).contains(&slices.len()), "{}", slices.len());
        assert_eq!(sum(&slices), sum(&seconds(86_400)));
    }
}
