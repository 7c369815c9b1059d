//! The sampler: threads that sleep until a programmed instant and note how late they woke, or how long a frame took.
//!
//! What is measured: from the programmed expiry of an absolute `clock_nanosleep` to the first
//! instant at which the woken thread can read the clock. It can't show why a wake-up was late, nor
//! what an application does after it has woken. With frames: from the programmed instant of a cycle to the
//! first clock reading after the answer was read.
//!
//! ```text
//! session   places threads, verifies them while parked, releases them
//! enter     what a thread does before it parks
//! cover     what the control thread adds for activations that no thread has answered
//! reign     which cell an activation belongs to
//! frames    the loop of a thread that sends a frame at each activation and waits for it
//! ledger    what became of each frame
//! gate      what parked threads wait at
//! offset    how much later than its instant of the grid an activation is due
//! wakeup    the loop of one thread: the heart, free of allocation, locks and results
//! slot      the buffers that a thread fills and the control thread empties
//! network   how frames go out and come back
//! ```
//!
//! The loop on a simulated clock that wakes its sleeper 7 us late, three times:
//!
//! ```
//! use std::cell::Cell;
//!
//! use rtscope_model::{histogram::Layout, plan::{Overrun, Sleep}};
//! use rtscope_sampler::{Beat, LiveFigures, Offset, Shared, SlotOwner, exchange, run};
//! use rtscope_sys::clock::Clock;
//!
//! struct Late<'a>(Cell<u64>, &'a Shared);
//!
//! impl Clock for Late<'_> {
//!     fn now_ns(&self) -> u64 {
//!         self.0.get()
//!     }
//!     fn sleep_until_ns(&self, instant_ns: u64) {
//!         if instant_ns > 3_000_000 {
//!             self.1.stop(self.now_ns());
//!         }
//!         self.0.set(instant_ns + 7_000);
//!     }
//!     fn sleep_for_ns(&self, duration_ns: u64) {
//!         self.sleep_until_ns(self.now_ns() + duration_ns);
//!     }
//!     fn cpu(&self) -> u32 {
//!         0
//!     }
//! }
//!
//! let beat = Beat {
//!     first_ns: 1_000_000,
//!     interval_ns: 1_000_000,
//!     offset: Offset::None,
//!     sleep: Sleep::Absolute,
//!     overrun: Overrun::Skip,
//!     break_above_ns: u64::MAX,
//!     raw_from_ns: 0,
//! };
//! let shared = Shared::new(1);
//! shared.enter(0, None);
//! let clock = Late(Cell::new(0), &shared);
//! let (mut filled, mut slots) = exchange(Layout::default(), 1_000_000_000);
//! run(&clock, &beat, &shared, &LiveFigures::default(), &mut filled, None);
//!
//! let mut slices = Vec::new();
//! let of = SlotOwner { thread: 0, origin_ns: 0, grid_ns: Some(1_000_000), cells: &[0] };
//! slots.drain(&of, |taken| slices.push(taken.slice));
//! assert_eq!((slices[0].recorded, slices[0].max_ns), (3, 7_000));
//! ```

#![forbid(unsafe_code)]

mod cover;
mod enter;
mod frames;
mod gate;
mod ledger;
pub mod network;
mod offset;
mod reign;
mod running;
mod session;
mod slot;
#[cfg(test)]
mod tests;
mod wakeup;

pub use self::{
    offset::{GuestExpiries, Offset},
    reign::Shared,
    session::{
        ENTER_AHEAD_NS, EndedThread, Remainder, SampleError, Session, SessionSpec, Starved,
        ThreadPlan, Wake, memory_of_thread,
    },
    slot::{Exchange, SlotOwner, Slots, Taken, exchange, look_span_ns},
    wakeup::{Beat, LiveFigures, LoopTally, run},
};

/// How the names of sampling threads begin; a number follows.
pub const THREAD_NAME: &str = "sample-";
