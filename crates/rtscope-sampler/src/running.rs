//! A sampling thread, as the control thread knows it.

use std::{
    sync::{Arc, atomic::Ordering::*},
    thread::JoinHandle,
};

use rtscope_model::{
    cpu::CpuSet,
    event::Tally,
    schedule::Placement,
    slice::{RawSample, Slice},
};
use rtscope_sys::clock::{Clock, SystemClock};

use crate::{
    cover::Cover,
    reign::Shared,
    session::{Starved, ThreadPlan},
    slot::{Exchange, SlotOwner, Slots},
    wakeup::{LiveFigures, LoopTally},
};

/// What a thread leaves behind.
pub(crate) type Left = (Tally, Option<Placement>, LoopTally, Exchange);

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) plan: ThreadPlan,
    pub(crate) grid_ns: Option<u64>,
    pub(crate) live: Arc<LiveFigures>,
    pub(crate) slots: Slots,
    pub(crate) cover: Cover,
    /// Looks in a row that it left unanswered.
    pub(crate) unanswered: u64,
    /// When it was asked for what it shows and hasn't answered since: it didn't wake after that.
    pub(crate) asked_ns: u64,
    pub(crate) raw: Option<rtrb::Consumer<RawSample>>,
    pub(crate) handle: Option<JoinHandle<Option<Left>>>,
}

impl Running {
    pub(crate) fn sampled<'a>(&self, origin_ns: u64, cells: &'a [u32]) -> SlotOwner<'a> {
        SlotOwner { thread: self.plan.thread, origin_ns, grid_ns: self.grid_ns, cells }
    }

    /// Hands over the finished slices, and what of the cells lies between them.
    pub(crate) fn drain(
        &mut self,
        origin_ns: u64,
        cells: &[u32],
        shared: &Shared,
        sink: &mut impl FnMut(Slice),
    ) {
        let sampled = self.sampled(origin_ns, cells);
        let Running { slots, cover, .. } = self;
        slots.drain(&sampled, |taken| cover.add(&sampled, shared, taken, &mut *sink));
    }

    /// Asks the thread for what it shows, which it answers when it wakes. Whether it has answered since it was asked last.
    pub(crate) fn ask(&mut self, clock: &SystemClock) -> bool {
        let is_answered = !self.live.asked.swap(true, Relaxed);
        if is_answered {
            self.asked_ns = clock.now_ns();
        }
        is_answered
    }

    pub(crate) fn starved(&self, name_holder: fn(&CpuSet) -> String) -> Starved {
        let cpus = self.plan.asked.cpus.clone();
        Starved { thread: self.plan.thread, holder: name_holder(&cpus), cpus }
    }
}
