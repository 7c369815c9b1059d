//! The sampler: threads that sleep until a programmed instant and note how late they woke.
//!
//! What is measured: from the programmed expiry of an absolute `clock_nanosleep` to the first
//! instant at which the woken thread can read the clock. It can't show why a wake-up was late, nor
//! what an application does after it has woken.
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
//! ```

mod cover;
mod enter;
mod frames;
mod gate;
mod ledger;
mod offset;
mod reign;
mod session;
mod slot;
#[cfg(test)]
mod tests;
mod wakeup;

pub use self::{
    frames::{Came, FrameLoop, Wire},
    ledger::Ledger,
    offset::{GuestExpiries, Offset},
    reign::{STOP, Shared},
    session::{
        EndedThread, Remainder, SampleError, Session, SessionSpec, Starved, ThreadPlan, Wake,
    },
    slot::{Exchange, Slot, SlotOwner, Slots, Taken, exchange},
    wakeup::{Beat, LiveFigures, LoopTally, run},
};
pub(crate) use self::{session::memory_of_thread, slot::look_span_ns};

/// How the names of sampling threads begin; a number follows.
pub(crate) const THREAD_NAME: &str = "sample-";
