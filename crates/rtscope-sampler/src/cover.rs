//! Activations that no thread has answered: the control thread adds them.
//!
//! A thread tells of an activation when it wakes. One that sleeps through a whole cell, or never wakes
//! again, tells of nothing, and a record without a word looks like a good one. So the control thread
//! compares where a thread's slices end with where the next begins: whatever of a cell lies in between was
//! due and not answered. It is missed, and has waited at least until the thread's next sign of life.

use rtscope_model::{
    histogram::Layout,
    slice::{Slice, expanded},
};

use crate::{
    reign::{Shared, is_cell},
    slot::{SlotOwner, Taken},
};

/// How far a thread's slices reach. Instants are relative to the start of the run.
#[derive(Debug)]
pub(crate) struct Cover {
    layout: Layout,
    /// From the common start of a session to the thread's first expiry.
    pub(crate) offset_ns: u64,
    /// The first expiry that no slice has told of.
    next_ns: u64,
    /// When the last activation was answered that was late enough to swallow others.
    late_answered_ns: u64,
    /// The largest latency of the last slice.
    latency_ns: u64,
    /// Missed activations that were not expanded into the corrected histogram.
    pub(crate) unexpanded: u64,
}

impl Cover {
    /// Of a thread that has told of nothing, nor will before it starts.
    pub(crate) fn new(layout: Layout, offset_ns: u64) -> Cover {
        let next_ns = u64::MAX;
        Cover { layout, offset_ns, next_ns, late_answered_ns: 0, latency_ns: 0, unexpanded: 0 }
    }

    /// The session starts at an instant.
    pub(crate) fn start(&mut self, start_ns: u64) {
        self.next_ns = start_ns.saturating_add(self.offset_ns);
    }

    /// Hands on a slice, and before it what of the cells lies between it and the one before.
    pub(crate) fn add(
        &mut self,
        of: &SlotOwner,
        shared: &Shared,
        taken: Taken,
        mut sink: impl FnMut(Slice),
    ) {
        let Taken { slice, lost_before, late_answered_ns } = taken;
        // What found no slot was answered, and is counted by the thread.
        if lost_before == 0
            && let Some(interval_ns) = of.grid_ns
        {
            // The thread woke in the interval before the slice, or answered too late for what it swallowed.
            let woke_ns = self.late_answered_ns.max(slice.start_ns.saturating_sub(interval_ns));
            self.missing(of, shared, slice.start_ns, woke_ns, &mut sink);
        }
        self.next_ns = slice.end_ns;
        self.late_answered_ns = late_answered_ns;
        self.latency_ns = slice.max_ns;
        sink(slice);
    }

    /// Hands on what lies between the last slice and the end of the session; `until_ns` is when the thread
    /// left its loop, or now if it didn't.
    pub(crate) fn close(
        &mut self,
        of: &SlotOwner,
        shared: &Shared,
        until_ns: u64,
        mut sink: impl FnMut(Slice),
    ) {
        if of.grid_ns.is_some() {
            self.missing(of, shared, until_ns, until_ns, &mut sink);
        } else {
            self.open_wait(of, shared, until_ns, &mut sink);
        }
    }

    /// The activations of each cell from the first that was not told of up to `end_ns`, at which time the
    /// thread answered: at `woke_ns`.
    fn missing(
        &mut self,
        of: &SlotOwner,
        shared: &Shared,
        end_ns: u64,
        woke_ns: u64,
        sink: &mut impl FnMut(Slice),
    ) {
        let Some(interval_ns) = of.grid_ns.filter(|_| end_ns > self.next_ns) else { return };
        for nth in 0..of.cells.len() as u32 {
            let cell = 2 * nth + 1;
            let (from_ns, to_ns) = shared.span_ns(cell);
            let from_ns = from_ns.saturating_sub(of.origin_ns);
            let to_ns = to_ns.saturating_sub(of.origin_ns).min(end_ns);
            // The first instant of the thread's grid in the cell.
            let before = from_ns.saturating_sub(self.next_ns).div_ceil(interval_ns);
            let start_ns = self.next_ns + before * interval_ns;
            let count = to_ns.saturating_sub(start_ns).div_ceil(interval_ns);
            if count > 0 {
                let waited_ns = woke_ns.saturating_sub(start_ns);
                let waits = (0..expanded(count)).map(|n| waited_ns.saturating_sub(n * interval_ns));
                self.unexpanded += count - expanded(count);
                let end_ns = start_ns + count * interval_ns;
                let span_ns = (start_ns, end_ns);
                let place = (of.thread, of.scope(cell));
                sink(Slice::unanswered(place, self.layout, span_ns, count, waits));
            }
        }
    }

    /// A relative sampler has one activation under way: if that was due in a cell, it still waits.
    fn open_wait(
        &self,
        of: &SlotOwner,
        shared: &Shared,
        until_ns: u64,
        sink: &mut impl FnMut(Slice),
    ) {
        // It was due an interval after the last wake-up, which was at most as late as the worst.
        let due_ns = self.next_ns.saturating_add(self.latency_ns);
        let reign = shared.reign_at(0, due_ns.saturating_add(of.origin_ns));
        if let Some(cell) = reign.filter(|&reign| is_cell(reign))
            && until_ns > due_ns
        {
            let waits = std::iter::once(until_ns - due_ns);
            let (place, span_ns) = ((of.thread, of.scope(cell)), (due_ns, until_ns));
            sink(Slice::unanswered(place, self.layout, span_ns, 1, waits));
        }
    }
}
