//! Activations that no thread has answered: the control thread adds them.
//!
//! A thread tells of an activation when it wakes. One that sleeps through a whole cell, or never wakes
//! again, tells of nothing, and a record without a word looks like a good one. So the control thread
//! compares where a thread's slices end with where the next begins: whatever of a cell lies in between was
//! due and not answered. It is missed, and has waited at least until the thread's next sign of life.
//!
//! A relative sampler has no grid: nothing is due while it sleeps. If it sleeps from one cell into another, or through
//! one, a single activation is missed there, which has waited since that cell began.

use rtscope_model::{
    histogram::Layout,
    slice::{Scope, Slice, expanded},
};

use crate::{
    reign::Shared,
    slot::{Late, SlotOwner, Taken},
};

/// How far a thread's slices reach. Instants are relative to the start of the run.
#[derive(Debug)]
pub(crate) struct Cover {
    layout: Layout,
    /// From the common start of a session to the thread's first expiry.
    pub(crate) offset_ns: u64,
    /// The first expiry that no slice has told of.
    next_ns: u64,
    /// The last activation of the last slice that was answered after the next one was due.
    late: Option<Late>,
    /// The largest latency of the last slice.
    latency_ns: u64,
    /// Missed activations that were not expanded into the corrected histogram.
    pub(crate) unexpanded: u64,
}

impl Cover {
    /// Of a thread that has told of nothing, nor will before it starts.
    pub(crate) fn new(layout: Layout, offset_ns: u64) -> Cover {
        let next_ns = u64::MAX;
        Cover { layout, offset_ns, next_ns, late: None, latency_ns: 0, unexpanded: 0 }
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
        let Taken { slice, lost_before, late } = taken;
        // What found no slot was answered, and is counted by the thread.
        if lost_before == 0
            && let Some(interval_ns) = of.grid_ns
        {
            // The thread woke in the interval before the slice, or answered too late for what it swallowed.
            let answered_ns = self.late.map_or(0, |late| late.answered_ns);
            let woke_ns = answered_ns.max(slice.start_ns.saturating_sub(interval_ns));
            self.missing(of, shared, slice.start_ns, woke_ns, &mut sink);
        }
        self.slept_past(of, shared, &mut sink);
        self.next_ns = slice.end_ns;
        self.late = late;
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
            self.slept_past(of, shared, &mut sink);
            // The next one was due an interval after the last wake-up, which was at most as late as the worst.
            let due_ns = self.next_ns.saturating_add(self.latency_ns);
            self.asleep(of, shared, (due_ns, until_ns), None, &mut sink);
        }
    }

    /// Of a thread that won't be heard of again: up to an instant it may have answered, and what it counted then is
    /// lost with it.
    pub(crate) fn unknown_until(&mut self, of: &SlotOwner, at_ns: u64, interval_ns: u64) {
        let behind_ns = at_ns.saturating_sub(self.next_ns);
        if behind_ns > 0 {
            // A relative sampler may have gone to sleep just before.
            let skipped_ns = match of.grid_ns {
                Some(grid) => behind_ns.div_ceil(grid) * grid,
                None => behind_ns + interval_ns,
            };
            self.next_ns = self.next_ns.saturating_add(skipped_ns);
            (self.late, self.latency_ns) = (None, 0);
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
        for (scope, (from_ns, to_ns)) in spans(of, shared) {
            // The first instant of the thread's grid in the cell.
            let before = from_ns.saturating_sub(self.next_ns).div_ceil(interval_ns);
            let start_ns = self.next_ns + before * interval_ns;
            let count = to_ns.min(end_ns).saturating_sub(start_ns).div_ceil(interval_ns);
            if count > 0 {
                let waited_ns = woke_ns.saturating_sub(start_ns);
                let waits = (0..expanded(count)).map(|n| waited_ns.saturating_sub(n * interval_ns));
                self.unexpanded += count - expanded(count);
                let end_ns = start_ns + count * interval_ns;
                let (place, span_ns) = ((of.thread, scope), (start_ns, end_ns));
                sink(Slice::unanswered(place, self.layout, span_ns, count, waits));
            }
        }
    }

    /// What a relative sampler slept past when it was late: the cells that began meanwhile.
    fn slept_past(&self, of: &SlotOwner, shared: &Shared, sink: &mut impl FnMut(Slice)) {
        if let Some(late) = self.late.filter(|_| of.grid_ns.is_none()) {
            let asleep = (self.next_ns, late.answered_ns);
            self.asleep(of, shared, asleep, Some(late.instant_ns), sink);
        }
    }

    /// One missed activation for each cell in which a relative sampler slept; or only for those that began after an
    /// instant.
    fn asleep(
        &self,
        of: &SlotOwner,
        shared: &Shared,
        (since_ns, until_ns): (u64, u64),
        after_ns: Option<u64>,
        sink: &mut impl FnMut(Slice),
    ) {
        for (scope, (from_ns, to_ns)) in spans(of, shared) {
            let (start_ns, end_ns) = (from_ns.max(since_ns), to_ns.min(until_ns));
            if start_ns < end_ns && after_ns.is_none_or(|after_ns| from_ns > after_ns) {
                let waits = std::iter::once(until_ns - start_ns);
                let (place, span_ns) = ((of.thread, scope), (start_ns, end_ns));
                sink(Slice::unanswered(place, self.layout, span_ns, 1, waits));
            }
        }
    }
}

/// The cells that were entered, each with its start and its end.
fn spans(of: &SlotOwner, shared: &Shared) -> impl Iterator<Item = (Scope, (u64, u64))> {
    (0..of.cells.len() as u32).map(move |nth| {
        let cell = 2 * nth + 1;
        let (from_ns, to_ns) = shared.span_ns(cell);
        let since_start = |at_ns: u64| at_ns.saturating_sub(of.origin_ns);
        (of.scope(cell), (since_start(from_ns), since_start(to_ns)))
    })
}
