//! The kernel's events around the worst wake-ups of each phase, where the lab asks for them.

use rtscope_model::{event::Stamped, guest, plan::Plan};
use rtscope_sys::tree::Tree;

use super::{beside, say};
use crate::explain::{Keep, OwnThreads, Pauses};

/// Late wake-ups that each phase keeps: as many as the sampler marks for the lab's other way of explaining them.
const OF_PHASE: u32 = 8;

/// The sampling threads, watched; or why they aren't.
pub(super) struct WatchedKernel(Result<OwnThreads, String>);

impl WatchedKernel {
    pub(super) fn start(version: &str, wall_clock: &str) -> WatchedKernel {
        let (version, wall_clock) = (version.to_owned(), wall_clock.to_owned());
        let keep = Keep { above: None, kept_max: OF_PHASE, version, wall_clock };
        // In virtual time a run without the events shows what they cost.
        let watched = OwnThreads::watch(&Tree::default(), keep, Pauses::None);
        WatchedKernel(watched.map_err(|e| e.to_string()))
    }

    /// Each phase keeps its own worst.
    pub(super) fn see(&self, plan: &Plan, stamped: &Stamped) {
        if let Ok(threads) = &self.0 {
            threads.see(plan, stamped);
        }
    }

    /// Puts what was seen into the record; a line of `failures` says why that could not be done.
    pub(super) fn finish(self, failures: &mut String) {
        let seen = self.0.and_then(|threads| threads.finish().map_err(|e| e.to_string()));
        let text =
            seen.and_then(|look| serde_json::to_string(&look.record).map_err(|e| e.to_string()));
        match text {
            Ok(text) => beside::write(guest::EVENTS, &text, failures),
            Err(why) => {
                say(&format!("kernel events: {why}"));
                failures.push_str(&format!("kernel events: {why}\n"));
            }
        }
    }
}
