//! The sampler's loop on a simulated clock, for `cargo xtask icount`: `tick TICKS`.
//!
//! Latencies repeat a short list that never misses a period, so that each run takes the same way
//! through the loop. One slice holds the whole run: handing over slices is not counted.

use std::{cell::Cell, hint::black_box};

use rtscope_model::{
    histogram::Layout,
    plan::{Overrun, Sleep},
};
use rtscope_sampler::{Beat, LiveFigures, Offset, Shared, SlotOwner, exchange, run};
use rtscope_sys::clock::Clock;

/// How late the simulated thread wakes, in turn.
const LATENCIES_NS: [u64; 8] = [2_310, 2_150, 9_800, 2_420, 31_000, 2_280, 4_700, 2_060];

const INTERVAL_NS: u64 = 200_000;

/// A clock on which each sleep ends late by the next of the latencies, until there are enough.
struct Simulated<'a> {
    now_ns: Cell<u64>,
    ticks: Cell<u64>,
    last: u64,
    shared: &'a Shared,
}

impl Clock for Simulated<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn sleep_until_ns(&self, instant_ns: u64) {
        let tick = self.ticks.get();
        if tick == self.last {
            self.shared.stop(self.now_ns.get());
        }
        self.ticks.set(tick + 1);
        self.now_ns.set(instant_ns + LATENCIES_NS[tick as usize % LATENCIES_NS.len()]);
    }

    fn sleep_for_ns(&self, duration_ns: u64) {
        self.sleep_until_ns(self.now_ns() + duration_ns);
    }

    fn cpu(&self) -> u32 {
        0
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let Some(ticks) = words.get(1).and_then(|word| word.parse().ok()) else {
        eprintln!("usage: tick TICKS");
        return;
    };
    let beat = Beat {
        first_ns: INTERVAL_NS,
        interval_ns: black_box(INTERVAL_NS),
        offset: Offset::None,
        sleep: black_box(Sleep::Absolute),
        overrun: black_box(Overrun::Skip),
        break_above_ns: black_box(u64::MAX),
        raw_from_ns: 0,
    };
    let shared = Shared::new(1);
    shared.enter(0, None);
    let clock =
        Simulated { now_ns: Cell::new(0), ticks: Cell::new(0), last: ticks, shared: &shared };
    let (mut exchange, mut slots) = exchange(Layout::default(), INTERVAL_NS * (ticks + 1));
    let live = LiveFigures::default();
    let tally = run(&clock, &beat, &shared, &live, &mut exchange, None);
    let mut recorded = 0;
    let sampled = SlotOwner { thread: 0, origin_ns: 0, grid_ns: Some(INTERVAL_NS), cells: &[0] };
    slots.drain(&sampled, |taken| recorded += taken.slice.recorded);
    println!("{} wake-ups, {recorded} recorded", tally.wakeups);
    assert_eq!((tally.wakeups, recorded), (ticks, ticks));
}
