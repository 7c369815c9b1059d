//! What a sampling thread does before it parks: it takes its place, and reads it back.

use rtscope_model::schedule::Placement;
use rtscope_sys::{
    clock::{SystemClock, TimerClock},
    memory, sched, thread,
};

use crate::session::Wake;

/// The calling thread and the place that it read back, or the one that was asked and why it has another.
pub(crate) type Placed = Result<(i32, Placement), (Placement, rtscope_sys::Error)>;

/// Prepares the calling thread: its place, and its timer where it wakes by one.
pub(crate) fn enter(
    asked: Placement,
    slack_ns: Option<u64>,
    (wake, clock): (Wake, SystemClock),
) -> (Placed, Option<TimerClock>) {
    thread::block_signals();
    if let Some(slack_ns) = slack_ns {
        thread::set_timer_slack_ns(slack_ns);
    }
    let entered = match timer_for(wake, clock) {
        Ok(timer) => {
            let placed = sched::place(&asked).map(|found| (thread::id(), found));
            (placed.map_err(|e| (asked, e)), timer)
        }
        Err(e) => (Err((asked, e)), None),
    };
    memory::prefault_stack();
    entered
}

fn timer_for(wake: Wake, clock: SystemClock) -> Result<Option<TimerClock>, rtscope_sys::Error> {
    if wake == Wake::Timer { TimerClock::new(clock).map(Some) } else { Ok(None) }
}
