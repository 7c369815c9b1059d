//! Whose an activation is: the cells of a session, one after the other, and the time between them.
//!
//! A *reign* is a stretch of time in which activations belong to one cell or to none. They alternate:
//! reign 0 is before the first cell, 1 the first cell, 2 what follows it, 3 the second cell. An
//! activation belongs to the reign of its instant of the grid, however much later it is answered: a stall
//! that is open when its cell ends is a latency of that cell.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use rtscope_sys::tracefs::Marker;

/// The reign after all others: it ends the loop.
pub(crate) const STOP: u32 = u32::MAX;

/// What the control thread and the sampling threads of a session tell each other.
#[derive(Debug)]
pub struct Shared {
    /// The reign in force, or [`STOP`].
    reign: AtomicU32,
    /// The instant on the session's clock at which each reign began, and at which the last one ended;
    /// `u64::MAX` while that lies ahead. Set before `reign`.
    since_ns: Box<[AtomicU64]>,
    /// Activations after which the running cell is full; `u64::MAX` is never. Set before `reign`.
    limit: AtomicU64,
    /// A latency was above the break threshold.
    broken: AtomicBool,
    /// Where the kernel's trace is marked and stopped by the very thread that was too late; none
    /// when nobody asked for that.
    marker: Option<Marker>,
    /// There is one cell: when it is full or broken the loop ends, and the live figures stay as they
    /// were at its end.
    one_cell: bool,
}

/// Whether activations of a reign belong to a cell.
#[must_use]
pub(crate) const fn is_cell(reign: u32) -> bool {
    reign % 2 == 1
}

impl Shared {
    /// Before the first of so many cells.
    #[must_use]
    pub fn new(cells: u32) -> Shared {
        Shared::with_cells(cells, false, None)
    }

    /// As [`Shared::new`]. With `one_cell` the loop ends with its cell; `marker` is where the kernel's trace
    /// is marked and stopped at a break.
    #[must_use]
    pub(crate) fn with_cells(cells: u32, one_cell: bool, marker: Option<Marker>) -> Shared {
        let since_ns = |i| AtomicU64::new(if i == 0 { 0 } else { u64::MAX });
        Shared {
            reign: AtomicU32::new(0),
            since_ns: (0..2 * u64::from(cells) + 2).map(since_ns).collect(),
            limit: AtomicU64::new(u64::MAX),
            broken: AtomicBool::new(false),
            marker,
            one_cell,
        }
    }

    /// Activations that are due from an instant on belong to the next cell, until a thread has recorded
    /// `limit` of them. For the control thread alone, between two cells.
    pub fn enter(&self, at_ns: u64, limit: Option<u64>) {
        let next = self.reign.load(Relaxed).saturating_add(1);
        if let Some(since_ns) = self.since_ns.get(next as usize) {
            self.limit.store(limit.unwrap_or(u64::MAX), Relaxed);
            since_ns.store(at_ns, Relaxed);
            self.reign.store(next, Release);
        }
    }

    /// Activations that are due from an instant on belong to the running cell no longer. Of several
    /// threads that say so the first is right; when another reign is in force, nothing happens.
    #[cold]
    #[inline(never)]
    pub fn end_cell(&self, cell: u32, at_ns: u64) {
        let running = self.reign.load(Acquire) == cell && is_cell(cell);
        let end_ns = self.since_ns.get(cell as usize + 1).filter(|_| running);
        // A cell that ends at once may not have begun yet.
        let at_ns = at_ns.max(self.span_ns(cell).0);
        if end_ns.is_some_and(|end| end.compare_exchange(u64::MAX, at_ns, Relaxed, Relaxed).is_ok())
        {
            if self.one_cell {
                self.stop(at_ns);
            } else {
                let _ = self.reign.compare_exchange(cell, cell + 1, Release, Relaxed);
            }
        }
    }

    /// Ends the running cell, if there is one, and the loop of every thread.
    pub fn stop(&self, at_ns: u64) {
        let mut at_ns = at_ns;
        for since_ns in &self.since_ns {
            if let Err(begun_ns) = since_ns.compare_exchange(u64::MAX, at_ns, Relaxed, Relaxed) {
                at_ns = at_ns.max(begun_ns);
            }
        }
        self.reign.store(STOP, Release);
    }

    #[inline]
    pub fn reign(&self) -> u32 {
        self.reign.load(Acquire)
    }

    /// Whether a latency was above the break threshold.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Acquire)
    }

    /// Activations that fill the running cell.
    #[inline]
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// When a reign began and ended, on the session's clock; an end that lies ahead is `u64::MAX`.
    pub(crate) fn span_ns(&self, reign: u32) -> (u64, u64) {
        let at = |i: usize| self.since_ns.get(i).map_or(u64::MAX, |at| at.load(Relaxed));
        (at(reign as usize), at(reign as usize + 1))
    }

    /// The reign, no earlier than `from`, that an expiry lies in; none when the loop had ended by then.
    pub(crate) fn reign_at(&self, from: u32, expiry_ns: u64) -> Option<u32> {
        let ends = self.since_ns.iter().skip(from as usize + 1);
        let past = ends.take_while(|end_ns| end_ns.load(Relaxed) <= expiry_ns).count();
        let reign = from + past as u32;
        (reign as usize + 1 < self.since_ns.len()).then_some(reign)
    }

    /// Ends the cell, if there is one, at an instant: a latency was above the threshold. Marks and stops
    /// the kernel's trace first, if that was asked, before anything else goes into it. Answers whether
    /// there was a cell.
    #[cold]
    #[inline(never)]
    pub(crate) fn break_off(&self, cell: u32, at_ns: u64, latency_ns: u64, limit_ns: u64) -> bool {
        if !is_cell(cell) {
            return false;
        }
        if let Some(marker) = self.marker.as_ref().filter(|_| !self.broken.load(Relaxed)) {
            marker.hit(latency_ns, limit_ns);
        }
        self.end_cell(cell, at_ns);
        self.broken.store(true, Release);
        true
    }
}
