//! Slots: what a sampling thread fills during a slice, handed to the control thread and back.
//!
//! All slots are made and touched before the thread is released. Full ones travel to the control
//! thread through a wait-free ring, emptied ones come back through another: moving a box, never
//! copying, allocating or locking. When the control thread is held up so long that no empty slot is
//! left, the thread stays in its slot: the slice gets longer, nothing is lost.

use rtscope_model::{
    histogram::{Layout, Unplaced},
    slice::{Extent, Scope, Slice},
};

use super::wakeup::{DISCARD, STOP, expanded};

/// One measured activation, for the raw file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSample {
    /// Programmed expiry, on the clock.
    pub expiry_ns: u64,
    /// Latency.
    pub latency_ns: u64,
    /// Activations of the cell that were recorded before it.
    pub cycle: u64,
}

/// Dense counters of one slice.
#[derive(Debug)]
pub struct Slot {
    layout: Layout,
    scope: u32,
    start_ns: u64,
    /// The programmed expiry that follows the last one.
    pub(super) end_ns: u64,
    /// Wake-ups before their expiry.
    pub(super) early: u64,
    /// Wake-ups on another CPU than the one before.
    pub(super) migrations: u64,
    missed: u64,
    measured: Counts,
    omitted: Counts,
    max_at_ns: u64,
    max_cpu: u32,
}

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
pub(super) struct Figures {
    pub(super) recorded: u64,
    pub(super) missed: u64,
    pub(super) min_ns: u64,
    pub(super) max_ns: u64,
    pub(super) sum_ns: u64,
}

impl Figures {
    fn and(self, slot: &Slot) -> Figures {
        let (count, extent) = (slot.measured.count, slot.measured.extent);
        if count == 0 {
            return self;
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
    pub(super) fn bytes(layout: Layout) -> u64 {
        u64::from(layout.buckets()) * 2 * size_of::<u32>() as u64
    }

    fn new(layout: Layout) -> Slot {
        Slot {
            layout,
            scope: DISCARD,
            start_ns: 0,
            end_ns: 0,
            early: 0,
            migrations: 0,
            missed: 0,
            measured: Counts::new(layout),
            omitted: Counts::new(layout),
            max_at_ns: 0,
            max_cpu: 0,
        }
    }

    /// Adds a measured latency.
    #[inline]
    pub(super) fn record(&mut self, latency_ns: u64, expiry_ns: u64, cpu: u32) {
        if latency_ns >= self.measured.extent.max_ns {
            self.max_at_ns = expiry_ns;
            self.max_cpu = cpu;
        }
        self.measured.add(self.layout.index(latency_ns), latency_ns);
    }

    /// Adds what `missed` swallowed activations would have seen: the n-th was due n intervals
    /// later, so it would have waited n intervals less. Returns how many were not expanded.
    #[inline(never)]
    pub(super) fn omit(&mut self, latency_ns: u64, missed: u64, interval_ns: u64) -> u64 {
        self.missed += missed;
        let expanded = expanded(missed);
        let mut waited_ns = latency_ns;
        for _ in 0..expanded {
            waited_ns -= interval_ns;
            self.omitted.add(self.layout.index(waited_ns), waited_ns);
        }
        missed - expanded
    }

    /// The slice as a value, with instants relative to `origin_ns`; the slot is empty afterwards.
    /// None when nothing was put in. `grid_ns` is the interval of an absolute sampler, whose planned
    /// activations are counted from the instants; a relative one plans what it records.
    fn take(&mut self, thread: u32, origin_ns: u64, grid_ns: Option<u64>) -> Option<Slice> {
        let recorded = self.measured.count;
        let extent = self.measured.extent();
        let slice = (recorded > 0).then(|| Slice {
            thread,
            scope: if self.scope == DISCARD { Scope::Discarded } else { Scope::Cell(self.scope) },
            start_ns: self.start_ns.saturating_sub(origin_ns),
            end_ns: self.end_ns.saturating_sub(origin_ns),
            planned: grid_ns.map_or(recorded, |grid| (self.end_ns - self.start_ns) / grid),
            recorded,
            missed: self.missed,
            early: self.early,
            migrations: self.migrations,
            min_ns: extent.min_ns,
            max_ns: extent.max_ns,
            max_at_ns: self.max_at_ns.saturating_sub(origin_ns),
            max_cpu: self.max_cpu,
            sum_ns: extent.sum_ns,
            bins: self.measured.take(),
            unplaced: Unplaced::default(),
            omitted: self.omitted.take(),
            omitted_extent: self.omitted.extent(),
        });
        self.measured.reset();
        self.omitted.reset();
        (self.missed, self.early, self.migrations) = (0, 0, 0);
        slice
    }
}

/// The sampling thread's end: the slot in use and the rings.
#[derive(Debug)]
pub struct Exchange {
    slot: Box<Slot>,
    in_use: bool,
    /// The scope whose activations go into the slot in use; [`STOP`], which none has, when that slot takes no
    /// more: an activation found no slot after its last one.
    takes: u32,
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

/// Both ends for one of a few threads, with every slot made and touched.
#[must_use]
pub fn exchange(layout: Layout, slice_ns: u64) -> (Exchange, Slots) {
    exchange_with(spare_slots(1), layout, slice_ns)
}

/// Both ends with so many slots besides the one in use, every one made and touched.
#[must_use]
pub(crate) fn exchange_with(spare: usize, layout: Layout, slice_ns: u64) -> (Exchange, Slots) {
    let (mut give, take) = rtrb::RingBuffer::new(spare);
    let (fill, drain) = rtrb::RingBuffer::new(spare + 1);
    while give.push(Box::new(Slot::new(layout))).is_ok() {}
    let exchange = Exchange {
        slot: Box::new(Slot::new(layout)),
        in_use: false,
        takes: STOP,
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
    /// The slot for an activation: the one in use, or a new one when the scope changes or the slice
    /// is over. None when the scope changes and no slot is free.
    #[inline]
    pub(super) fn slot(&mut self, scope: u32, expiry_ns: u64) -> Option<&mut Slot> {
        if scope != self.takes || expiry_ns >= self.slice_end_ns {
            self.turn_over(scope, expiry_ns)?;
        }
        Some(&mut self.slot)
    }

    /// Figures of the running cell; between two cells those of the one that ended.
    pub(super) fn figures(&self) -> Figures {
        match self.in_use && self.slot.scope != DISCARD {
            true => self.so_far.and(&self.slot),
            false => self.last,
        }
    }

    /// Activations of the running cell so far.
    #[inline]
    pub(super) fn counted(&self) -> u64 {
        self.so_far.recorded + self.slot.measured.count
    }

    #[inline(never)]
    fn turn_over(&mut self, scope: u32, expiry_ns: u64) -> Option<()> {
        let same_scope = self.in_use && scope == self.slot.scope;
        if self.in_use {
            match self.empty.pop() {
                Ok(empty) => {
                    match same_scope {
                        true => self.so_far = self.so_far.and(&self.slot),
                        false => (self.last, self.so_far) = (self.figures(), Figures::default()),
                    }
                    let full = std::mem::replace(&mut self.slot, empty);
                    // There is room for every slot, so this can't fail.
                    let _ = self.full.push(full);
                }
                // Held up: a longer slice of the same cell loses nothing, two cells in one would,
                // and so would one with a hole.
                Err(_) if scope == self.takes => {
                    self.slice_end_ns += self.slice_ns;
                    return Some(());
                }
                Err(_) => {
                    self.takes = STOP;
                    return None;
                }
            }
        }
        self.slot.scope = scope;
        self.slot.start_ns = expiry_ns;
        self.slot.end_ns = expiry_ns;
        if self.slice_end_ns == 0 {
            self.slice_end_ns = expiry_ns;
        }
        let behind = expiry_ns.saturating_sub(self.slice_end_ns);
        self.slice_end_ns += (behind / self.slice_ns + 1) * self.slice_ns;
        (self.in_use, self.takes) = (true, scope);
        Some(())
    }

    /// Hands over the slot in use: the loop has ended.
    pub(super) fn close(&mut self) {
        if self.in_use
            && let Ok(empty) = self.empty.pop()
        {
            self.last = self.figures();
            let _ = self.full.push(std::mem::replace(&mut self.slot, empty));
            (self.in_use, self.takes) = (false, STOP);
        }
    }

    /// What is left in the slot that could not be handed over at the end.
    pub(super) fn rest(
        mut self,
        thread: u32,
        origin_ns: u64,
        grid_ns: Option<u64>,
    ) -> Option<Slice> {
        if self.in_use { self.slot.take(thread, origin_ns, grid_ns) } else { None }
    }
}

impl Slots {
    /// Empties the full slots and gives them back.
    pub fn drain(
        &mut self,
        thread: u32,
        origin_ns: u64,
        grid_ns: Option<u64>,
        mut sink: impl FnMut(Slice),
    ) {
        while let Ok(mut slot) = self.full.pop() {
            if let Some(slice) = slot.take(thread, origin_ns, grid_ns) {
                sink(slice);
            }
            // As many slots as the ring has room for are on the way, so this can't fail.
            let _ = self.empty.push(slot);
        }
    }
}
