//! The loop doesn't allocate: proven by an allocator that counts, on the real clock and rings.

use rtscope_model::{
    histogram::Layout,
    plan::{Overrun, Sleep},
};
use rtscope_sampler::{Beat, LiveFigures, Offset, Shared, SlotOwner, exchange, run};
use rtscope_sys::{
    allocation::CountingAllocator,
    clock::{Clock, SystemClock},
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The real clock, but every hundredth wake-up is ten periods late and the loop ends by itself.
struct Bounded<'a> {
    left: std::cell::Cell<u32>,
    shared: &'a Shared,
}

impl Clock for Bounded<'_> {
    fn now_ns(&self) -> u64 {
        SystemClock::MONOTONIC.now_ns()
    }

    fn sleep_until_ns(&self, instant_ns: u64) {
        let left = self.left.get() - 1;
        self.left.set(left);
        if left == 0 {
            self.shared.stop(self.now_ns());
        }
        let late_ns = if left.is_multiple_of(100) { 200_000 } else { 0 };
        SystemClock::MONOTONIC.sleep_until_ns(instant_ns + late_ns);
    }

    fn sleep_for_ns(&self, duration_ns: u64) {
        self.sleep_until_ns(self.now_ns() + duration_ns);
    }

    fn cpu(&self) -> u32 {
        0
    }
}

#[test]
fn the_loop_does_not_allocate() {
    let shared = Shared::new(1);
    shared.enter(0, None);
    let live = LiveFigures::default();
    let (mut ours, mut slots) = exchange(Layout::default(), 2_000_000);
    let (mut producer, _consumer) = rtrb::RingBuffer::new(500);
    let clock = Bounded { left: std::cell::Cell::new(2_000), shared: &shared };
    let beat = Beat {
        first_ns: clock.now_ns(),
        interval_ns: 20_000,
        offset: Offset::Spread { percent: 100, seed: 1 },
        sleep: Sleep::Absolute,
        overrun: Overrun::Skip,
        break_above_ns: u64::MAX,
        raw_from_ns: 0,
    };
    let before = CountingAllocator::calls();
    let tally = run(&clock, &beat, &shared, &live, &mut ours, Some(&mut producer));
    assert_eq!(CountingAllocator::calls() - before, 0, "the loop touched the allocator");
    // The last one counts if its instant of the grid was before the stop: its expiry is somewhere behind.
    assert!((1_999..=2_000).contains(&tally.wakeups), "{}", tally.wakeups);
    assert!(tally.raw_lost > 0, "the raw ring was too small, so samples were lost and counted");
    let mut recorded = 0;
    let sampled = SlotOwner { thread: 0, origin_ns: 0, grid_ns: Some(20_000), cells: &[0] };
    slots.drain(&sampled, |taken| recorded += taken.slice.recorded);
    assert!(recorded > 0);
}
