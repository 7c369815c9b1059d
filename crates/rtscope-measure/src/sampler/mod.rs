//! The sampler: threads that sleep until a programmed instant and note how late they woke.
//!
//! What is measured: from the programmed expiry of an absolute `clock_nanosleep` to the first
//! instant at which the woken thread can read the clock. It can't show why a wake-up was late, nor
//! what an application does after it has woken.
//!
//! ```text
//! session   places threads, verifies them while parked, releases them
//! wakeup    the loop of one thread: the heart, free of allocation, locks and results
//! slot      the buffers that a thread fills and the control thread empties
//! ```

mod session;
mod slot;
#[cfg(test)]
mod tests;
mod wakeup;

pub(crate) use self::session::memory_of_thread;
pub use self::{
    session::{Ended, SampleError, Session, SessionSpec, ThreadPlan, Wake},
    slot::{Exchange, RawSample, Slot, Slots, exchange},
    wakeup::{Beat, DISCARD, LiveFigures, LoopTally, STOP, Shared, run},
};
