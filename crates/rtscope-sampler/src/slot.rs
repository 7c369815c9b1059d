//! Slots: what a sampling thread fills during a slice, handed to the control thread and back.
//!
//! All slots are made and touched before the thread is released. Full ones travel to the control
//! thread through a wait-free ring, emptied ones come back through another: moving a box, never
//! copying, allocating or locking. When the control thread is held up so long that no empty slot is
//! left, the thread stays in its slot: the slice gets longer, nothing is lost.

use rtscope_model::{
    frames::{FramePart, Frames, PART_LAYOUT, PartCounts},
    histogram::{Layout, Unplaced},
    slice::{Extent, Scope, Slice, expanded},
};
use rtscope_sys::mark::mark;

use crate::{
    reign::{STOP, Shared, is_cell},
    wakeup::Beat,
};

/// Dense counters of one slice.
#[derive(Debug)]
pub(crate) struct Slot {
    layout: Layout,
    /// Whose activations these are.
    reign: u32,
    /// Activations since the slot before this one that found no slot.
    lost_before: u64,
    start_ns: u64,
    /// The programmed expiry that follows the last one.
    pub(crate) end_ns: u64,
    /// Wake-ups before their expiry.
    pub(crate) early: u64,
    /// Wake-ups on another CPU than the one before.
    pub(crate) migrations: u64,
    missed: u64,
    measured: Counts,
    omitted: Counts,
    /// The last activation that was answered after the next one was due.
    late: Option<Late>,
    max_at_ns: u64,
    max_cpu: u32,
    /// The worst latencies so far; 0 where there are fewer.
    worst_ns: [u64; WORST],
    /// The smallest of them.
    least_worst_ns: u64,
    /// What became of frames, of a network sampler.
    frames: Option<Box<FrameCounts>>,
}

/// What became of the frames of a slice.
#[derive(Debug)]
pub(crate) struct FrameCounts {
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    pub(crate) late: u64,
    pub(crate) lost: u64,
    pub(crate) out_of_order: u64,
    pub(crate) duplicates: u64,
    pub(crate) strays: u64,
    parts: [Counts; FramePart::ALL.len()],
}

impl FrameCounts {
    fn new() -> FrameCounts {
        FrameCounts {
            sent: 0,
            refused: 0,
            late: 0,
            lost: 0,
            out_of_order: 0,
            duplicates: 0,
            strays: 0,
            parts: FramePart::ALL.map(|_| Counts::new(PART_LAYOUT)),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, part: FramePart, ns: u64) {
        self.parts[part.index()].add(PART_LAYOUT.index(ns), ns);
    }

    /// The counts as a value; they are 0 afterwards.
    fn take(&mut self) -> Frames {
        let parts =
            FramePart::ALL.into_iter().zip(&mut self.parts).filter(|(_, counts)| counts.count > 0);
        let parts = parts.map(|(part, counts)| {
            let taken = PartCounts { part, extent: counts.extent(), bins: counts.take() };
            counts.reset();
            taken
        });
        let parts = parts.collect();
        let take = std::mem::take::<u64>;
        Frames {
            sent: take(&mut self.sent),
            late: take(&mut self.late),
            lost: take(&mut self.lost),
            out_of_order: take(&mut self.out_of_order),
            duplicates: take(&mut self.duplicates),
            strays: take(&mut self.strays),
            refused: take(&mut self.refused),
            parts,
        }
    }
}

/// So many of the worst latencies of each slice are marked: see [`rtscope_sys::mark`].
const WORST: usize = 8;

/// Counters of a histogram with their exact extremes and sum.
#[derive(Debug)]
struct Counts {
    counts: Box<[u32]>,
    count: u64,
    /// The smallest is `u64::MAX` before the first.
    extent: Extent,
}

/// Of nothing: whatever comes is smaller and larger.
const NOTHING: Extent = Extent { min_ns: u64::MAX, max_ns: 0, sum_ns: 0 };

impl Counts {
    fn new(layout: Layout) -> Counts {
        // Written, not merely zeroed: zeroed memory may still be one shared page of zeroes.
        let mut counts = vec![1u32; layout.buckets() as usize].into_boxed_slice();
        counts.fill(0);
        Counts { counts, count: 0, extent: NOTHING }
    }

    #[inline]
    fn add(&mut self, index: u32, latency_ns: u64) {
        if let Some(counter) = self.counts.get_mut(index as usize) {
            *counter += 1;
        }
        self.count += 1;
        // Saturates only after 584 years of latency: a clock that stepped, not a measurement.
        self.extent.sum_ns = self.extent.sum_ns.saturating_add(latency_ns);
        self.extent.max_ns = self.extent.max_ns.max(latency_ns);
        self.extent.min_ns = self.extent.min_ns.min(latency_ns);
    }

    /// The non-empty counters in ascending order; they are 0 afterwards.
    fn take(&mut self) -> Vec<(u32, u64)> {
        let mut bins = Vec::new();
        for (index, counter) in self.counts.iter_mut().enumerate().filter(|(_, c)| **c > 0) {
            bins.push((index as u32, u64::from(std::mem::take(counter))));
        }
        bins
    }

    fn extent(&self) -> Extent {
        if self.count == 0 { Extent::default() } else { self.extent }
    }

    fn reset(&mut self) {
        self.count = 0;
        self.extent = NOTHING;
    }
}

/// What a cell has recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) recorded: u64,
    pub(crate) missed: u64,
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) sum_ns: u64,
}

impl Figures {
    fn and(self, slot: &Slot) -> Figures {
        let (count, extent) = (slot.measured.count, slot.measured.extent);
        if count == 0 {
            return Figures { missed: self.missed + slot.missed, ..self };
        }
        let first = self.recorded == 0;
        Figures {
            recorded: self.recorded + count,
            missed: self.missed + slot.missed,
            min_ns: if first { extent.min_ns } else { self.min_ns.min(extent.min_ns) },
            max_ns: self.max_ns.max(extent.max_ns),
            sum_ns: self.sum_ns.saturating_add(extent.sum_ns),
        }
    }
}

impl Slot {
    /// The memory of a slot's counters.
    pub(crate) fn bytes(layout: Layout, has_frames: bool) -> u64 {
        let parts = if has_frames { FramePart::ALL.len() as u64 } else { 0 };
        let counters = u64::from(layout.buckets()) * 2 + u64::from(PART_LAYOUT.buckets()) * parts;
        counters * size_of::<u32>() as u64
    }

    fn new(layout: Layout, has_frames: bool) -> Slot {
        Slot {
            layout,
            reign: 0,
            lost_before: 0,
            start_ns: 0,
            end_ns: 0,
            early: 0,
            migrations: 0,
            missed: 0,
            measured: Counts::new(layout),
            omitted: Counts::new(layout),
            late: None,
            max_at_ns: 0,
            max_cpu: 0,
            worst_ns: [0; WORST],
            least_worst_ns: 0,
            frames: has_frames.then(|| Box::new(FrameCounts::new())),
        }
    }

    /// Whose activations these are.
    #[inline]
    pub(crate) fn reign(&self) -> u32 {
        self.reign
    }

    /// Counts what became of a frame.
    #[inline]
    pub(crate) fn count_frames(&mut self, count: impl FnOnce(&mut FrameCounts)) {
        if let Some(frames) = self.frames.as_deref_mut() {
            count(frames);
        }
    }

    /// An activation was missed; how long it waits isn't known yet.
    #[inline]
    pub(crate) fn miss(&mut self) {
        self.missed += 1;
    }

    /// How long an activation that was missed has waited, or has waited at least.
    pub(crate) fn resolve(&mut self, waited_ns: u64) {
        self.omitted.add(self.layout.index(waited_ns), waited_ns);
    }

    #[inline]
    pub(crate) fn record(&mut self, latency_ns: u64, expiry_ns: u64, cpu: u32, marks_all: bool) {
        if latency_ns > self.least_worst_ns || marks_all {
            self.note_worst(latency_ns, expiry_ns);
        }
        if latency_ns >= self.measured.extent.max_ns {
            self.max_at_ns = expiry_ns;
            self.max_cpu = cpu;
        }
        self.measured.add(self.layout.index(latency_ns), latency_ns);
    }

    /// Marks a latency, and notes it if it is among the worst so far.
    #[cold]
    #[inline(never)]
    fn note_worst(&mut self, latency_ns: u64, expiry_ns: u64) {
        if let Some(least) = self.worst_ns.iter_mut().min() {
            *least = latency_ns.max(*least);
        }
        self.least_worst_ns = self.worst_ns.iter().min().copied().unwrap_or(u64::MAX);
        mark(latency_ns, expiry_ns);
    }

    /// Adds what the swallowed activations after a late one would have seen: each would have waited from its expiry
    /// until the late one was answered. Those of an instant from `until_ns` on belong to another slot. Returns how
    /// many were not expanded.
    #[inline(never)]
    pub(crate) fn omit(&mut self, late: Late, beat: &Beat, until_ns: u64) -> u64 {
        let left_ns = until_ns.saturating_sub(late.instant_ns).saturating_sub(1);
        let missed = late.missed.min(left_ns / beat.interval_ns);
        self.end_ns = late.instant_ns + (missed + 1) * beat.interval_ns;
        self.missed += missed;
        self.late = Some(late);
        let expanded = expanded(missed);
        for nth in 1..=expanded {
            let due_ns = beat.due_ns(late.instant_ns + nth * beat.interval_ns);
            let waited_ns = late.answered_ns.saturating_sub(due_ns);
            self.omitted.add(self.layout.index(waited_ns), waited_ns);
        }
        missed - expanded
    }

    /// The slice as a value, with instants relative to the start of the run; the slot is empty
    /// afterwards. None when nothing was put in.
    fn take(&mut self, of: &SlotOwner) -> Option<Taken> {
        let recorded = self.measured.count;
        let extent = self.measured.extent();
        // A slice may hold frames that were missed, and no latency.
        let (max_at_ns, max_cpu) =
            if recorded > 0 { (self.max_at_ns, self.max_cpu) } else { (self.start_ns, 0) };
        let frames = self.frames.as_deref_mut().map(|frames| Box::new(frames.take()));
        let slice = (recorded > 0 || self.missed > 0).then(|| Slice {
            thread: of.thread,
            scope: of.scope(self.reign),
            start_ns: self.start_ns.saturating_sub(of.origin_ns),
            end_ns: self.end_ns.saturating_sub(of.origin_ns),
            planned: of.grid_ns.map_or(recorded, |grid| (self.end_ns - self.start_ns) / grid),
            recorded,
            missed: self.missed,
            early: self.early,
            migrations: self.migrations,
            min_ns: extent.min_ns,
            max_ns: extent.max_ns,
            max_at_ns: max_at_ns.saturating_sub(of.origin_ns),
            max_cpu,
            sum_ns: extent.sum_ns,
            bins: self.measured.take(),
            unplaced: Unplaced::default(),
            omitted: self.omitted.take(),
            omitted_extent: self.omitted.extent(),
            frames,
        });
        self.measured.reset();
        self.omitted.reset();
        (self.worst_ns, self.least_worst_ns) = ([0; WORST], 0);
        (self.missed, self.early, self.migrations) = (0, 0, 0);
        let late = self.late.take().map(|late| late.since(of.origin_ns));
        Some(Taken { slice: slice?, lost_before: self.lost_before, late })
    }
}

/// An activation that was answered after the next one was due, and how many it swallowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    /// Its instant of the grid.
    pub(crate) instant_ns: u64,
    pub(crate) answered_ns: u64,
    pub(crate) missed: u64,
}

impl Late {
    fn since(self, origin_ns: u64) -> Late {
        Late {
            instant_ns: self.instant_ns.saturating_sub(origin_ns),
            answered_ns: self.answered_ns.saturating_sub(origin_ns),
            ..self
        }
    }
}

/// Whose slots are made into slices, and how.
#[derive(Clone, Copy, Debug)]
pub struct SlotOwner<'a> {
    /// Index of the thread over all sessions.
    pub thread: u32,
    /// The session's clock at the start of the run.
    pub origin_ns: u64,
    /// The interval of an absolute sampler, whose planned activations are counted from the instants;
    /// none for a relative one, which plans what it records.
    pub grid_ns: Option<u64>,
    /// The cells that the session has entered, in order.
    pub cells: &'a [u32],
}

impl SlotOwner<'_> {
    /// The cell of a reign, or none.
    pub(crate) fn scope(&self, reign: u32) -> Scope {
        let cell = self.cells.get(reign as usize / 2).filter(|_| is_cell(reign));
        cell.map_or(Scope::Discarded, |&cell| Scope::Cell(cell))
    }
}

/// A slice, and what a slice doesn't say.
#[derive(Debug)]
pub struct Taken {
    pub slice: Slice,
    /// Activations since the slice before this one that were answered and found no slot.
    pub lost_before: u64,
    /// The last activation of the slice that was answered after the next one was due, which may belong to a later
    /// slice. Instants are relative to the start of the run.
    pub(crate) late: Option<Late>,
}

/// The sampling thread's end: the slot in use and the rings.
#[derive(Debug)]
pub struct Exchange {
    slot: Box<Slot>,
    in_use: bool,
    /// The reign whose activations go into the slot in use; [`NO_REIGN`] when that slot takes no more: an
    /// activation found no slot after its last one.
    takes: u32,
    /// Activations that found no slot, and how many of them were due in a cell.
    pub(crate) lost: u64,
    pub(crate) lost_in_cells: u64,
    /// `lost` when the slot in use was begun.
    lost_at_start: u64,
    empty: rtrb::Consumer<Box<Slot>>,
    full: rtrb::Producer<Box<Slot>>,
    slice_ns: u64,
    slice_end_ns: u64,
    /// Of the finished slices of the running cell.
    so_far: Figures,
    /// Of the cell before this one.
    last: Figures,
}

/// The control thread's end.
#[derive(Debug)]
pub struct Slots {
    empty: rtrb::Producer<Box<Slot>>,
    full: rtrb::Consumer<Box<Slot>>,
}

/// What no activation belongs to.
const NO_REIGN: u32 = STOP - 1;

/// Slots of a thread besides the one in use: the control thread may fall this many slices behind before they
/// get longer. All of them are locked in memory, so that many threads have fewer each. Three are the least:
/// a slice may be full when a phase ends, and the next phase starts at once.
#[must_use]
pub(crate) fn spare_slots(threads: usize) -> usize {
    match threads {
        0..=64 => 6,
        65..=256 => 4,
        _ => 3,
    }
}

/// The longest time between two looks of the control thread, in nanoseconds: half of what the spare slots hold, so that one
/// look that comes late by as long again makes no slice longer.
#[must_use]
pub fn look_span_ns(slice_ns: u64, threads: usize) -> u64 {
    slice_ns.saturating_mul(spare_slots(threads) as u64) / 2
}

/// Both ends for one of a few threads, with every slot made and touched.
#[must_use]
pub fn exchange(layout: Layout, slice_ns: u64) -> (Exchange, Slots) {
    exchange_with(spare_slots(1), layout, slice_ns, false)
}

/// Both ends with so many slots besides the one in use, every one made and touched; with counters of frames or
/// without.
#[must_use]
pub(crate) fn exchange_with(
    spare: usize,
    layout: Layout,
    slice_ns: u64,
    has_frames: bool,
) -> (Exchange, Slots) {
    let (mut give, take) = rtrb::RingBuffer::new(spare);
    let (fill, drain) = rtrb::RingBuffer::new(spare + 1);
    while give.push(Box::new(Slot::new(layout, has_frames))).is_ok() {}
    let exchange = Exchange {
        slot: Box::new(Slot::new(layout, has_frames)),
        in_use: false,
        takes: NO_REIGN,
        lost: 0,
        lost_in_cells: 0,
        lost_at_start: 0,
        empty: take,
        full: fill,
        slice_ns,
        slice_end_ns: 0,
        so_far: Figures::default(),
        last: Figures::default(),
    };
    (exchange, Slots { empty: give, full: drain })
}

impl Exchange {
    /// Makes the slot ready for an activation: the one in use, or a new one when the slice is over or the
    /// activation belongs to another reign. The reign that it belongs to; none when no slot is free, or
    /// when it is due after the end of all.
    #[inline]
    pub(crate) fn owner(&mut self, reign: u32, instant_ns: u64, shared: &Shared) -> Option<u32> {
        if reign != self.takes || instant_ns >= self.slice_end_ns {
            return self.turn_over(instant_ns, shared);
        }
        Some(reign)
    }

    #[inline]
    pub(crate) fn slot(&mut self) -> &mut Slot {
        &mut self.slot
    }

    /// Figures of the running cell; between two cells those of the one that ended.
    pub(crate) fn figures(&self) -> Figures {
        match self.in_use && is_cell(self.slot.reign) {
            true => self.so_far.and(&self.slot),
            false => self.last,
        }
    }

    /// Activations of the running cell so far.
    #[inline]
    pub(crate) fn counted(&self) -> u64 {
        self.so_far.recorded + self.slot.measured.count
    }

    #[cold]
    #[inline(never)]
    fn turn_over(&mut self, expiry_ns: u64, shared: &Shared) -> Option<u32> {
        let reign = shared.reign_at(self.slot.reign, expiry_ns)?;
        let same = self.in_use && reign == self.slot.reign;
        if same && reign == self.takes && expiry_ns < self.slice_end_ns {
            // Another reign is in force already, but this was due before it.
            return Some(reign);
        }
        if self.in_use {
            match self.empty.pop() {
                Ok(empty) => {
                    match same {
                        true => self.so_far = self.so_far.and(&self.slot),
                        false => (self.last, self.so_far) = (self.figures(), Figures::default()),
                    }
                    let full = std::mem::replace(&mut self.slot, empty);
                    // There is room for every slot, so this can't fail.
                    let _ = self.full.push(full);
                }
                // Held up: a longer slice of the same cell loses nothing, two cells in one would,
                // and so would one with a hole.
                Err(_) if reign == self.takes => {
                    self.slice_end_ns += self.slice_ns;
                    return Some(reign);
                }
                Err(_) => {
                    self.takes = NO_REIGN;
                    self.lost += 1;
                    self.lost_in_cells += u64::from(is_cell(reign));
                    return None;
                }
            }
        }
        self.slot.reign = reign;
        self.slot.start_ns = expiry_ns;
        self.slot.end_ns = expiry_ns;
        self.slot.lost_before = self.lost - self.lost_at_start;
        self.lost_at_start = self.lost;
        if self.slice_end_ns == 0 {
            self.slice_end_ns = expiry_ns;
        }
        // A new scope takes the rest of the running second: with a whole second more, a kill in the
        // first two would find nothing written.
        if let Some(behind) = expiry_ns.checked_sub(self.slice_end_ns) {
            self.slice_end_ns += (behind / self.slice_ns + 1) * self.slice_ns;
        }
        (self.in_use, self.takes) = (true, reign);
        Some(reign)
    }

    /// Hands over the slot in use: the loop has ended.
    pub(crate) fn close(&mut self) {
        if self.in_use
            && let Ok(empty) = self.empty.pop()
        {
            self.last = self.figures();
            let _ = self.full.push(std::mem::replace(&mut self.slot, empty));
            (self.in_use, self.takes) = (false, NO_REIGN);
        }
    }

    /// What is left in the slot that could not be handed over at the end.
    pub(crate) fn rest(mut self, of: &SlotOwner) -> Option<Taken> {
        if self.in_use { self.slot.take(of) } else { None }
    }
}

impl Slots {
    /// Empties the full slots and gives them back.
    pub fn drain(&mut self, of: &SlotOwner, mut sink: impl FnMut(Taken)) {
        while let Ok(mut slot) = self.full.pop() {
            if let Some(taken) = slot.take(of) {
                sink(taken);
            }
            // As many slots as the ring has room for are on the way, so this can't fail.
            let _ = self.empty.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_latencies_of_a_slice_are_noted_and_the_last_of_equal_maxima_keeps_its_instant() {
        let mut slot = Slot::new(Layout::default(), false);
        let latencies: Vec<u64> = (1..=500_u64).map(|n| n * 7_919 % 1_009 * 100 + 1_000).collect();
        for (n, latency_ns) in latencies.iter().enumerate() {
            slot.record(*latency_ns, n as u64, 0, false);
        }
        let mut sorted = latencies.clone();
        sorted.sort_unstable();
        let mut worst = slot.worst_ns;
        worst.sort_unstable();
        assert_eq!(worst, sorted[latencies.len() - WORST..]);
        let max_ns = *sorted.last().expect("some");
        assert_eq!(latencies[slot.max_at_ns as usize], max_ns);
        // An equal one, and a smaller one, which is still among the worst.
        slot.record(max_ns, 1000, 3, false);
        slot.record(max_ns - 1, 1001, 0, false);
        assert_eq!((slot.max_at_ns, slot.max_cpu), (1000, 3));
        assert_eq!(slot.worst_ns.iter().filter(|ns| **ns >= max_ns - 1).count(), 3);
    }
}
