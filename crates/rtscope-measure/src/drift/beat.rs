//! The loop of a periodic thread that notes each activation: `delay`, and `delay until`.
//!
//! An activation is the first reading of the clock after a sleep. The loop is generic over the clock, so
//! that the tests drive this very function and know the drift exactly.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rtscope_model::{drift::LoopActivation, plan::Sleep};
use rtscope_sys::clock::Clock;

/// When the loop wakes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    /// Begin of the recording, on the clock. The first expiry is a period later.
    pub(crate) start_ns: u64,
    /// Above 0.
    pub(crate) period_ns: u64,
    pub(crate) sleep: Sleep,
    /// It ends with the first activation at or after this instant of the recording.
    pub(crate) duration_ns: u64,
}

/// Sleeps, notes, works, until the time is over, `stop` is set, or `noted` has no room left: it never
/// grows. Gives the activations of the grid that were swallowed by late ones and left out.
pub(crate) fn run(
    clock: &impl Clock,
    beat: &Beat,
    stop: &AtomicBool,
    noted: &mut Vec<LoopActivation>,
    mut work: impl FnMut(),
) -> u64 {
    let mut missed = 0;
    let mut expiry_ns = beat.start_ns + beat.period_ns;
    clock.sleep_until_ns(beat.start_ns);
    while noted.len() < noted.capacity() && !stop.load(Relaxed) {
        let armed_ns = clock.now_ns();
        match beat.sleep {
            Sleep::Relative => {
                expiry_ns = armed_ns + beat.period_ns;
                clock.sleep_for_ns(beat.period_ns);
            }
            Sleep::Absolute => {
                // Expiries that have passed are no activations any more.
                let passed = armed_ns.saturating_sub(expiry_ns) / beat.period_ns;
                missed += passed;
                expiry_ns += passed * beat.period_ns;
                clock.sleep_until_ns(expiry_ns);
            }
        }
        let woke_ns = clock.now_ns();
        let since = |ns: u64| ns.saturating_sub(beat.start_ns);
        noted.push(LoopActivation {
            armed_ns: since(armed_ns),
            expiry_ns: since(expiry_ns),
            woke_ns: since(woke_ns),
        });
        if since(woke_ns) >= beat.duration_ns {
            break;
        }
        work();
        if beat.sleep == Sleep::Absolute {
            expiry_ns += beat.period_ns;
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use rtscope_testing::clock::SimulatedClock;

    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    /// Period 10 ms, wake-ups 50 us late, 2 ms of work, one of 25 ms at the fourth activation.
    fn play(sleep: Sleep, long: bool) -> (Vec<u64>, u64) {
        let clock = SimulatedClock::at(0).with_lateness(50 * US);
        let beat = Beat { start_ns: 7 * MS, period_ns: 10 * MS, sleep, duration_ns: 1000 * MS };
        let mut noted = Vec::with_capacity(6);
        let mut number = 0;
        let missed = run(&clock, &beat, &AtomicBool::new(false), &mut noted, || {
            number += 1;
            let ms = if long && number == 4 { 25 } else { 2 };
            clock.advance(ms * MS);
        });
        (noted.iter().map(|one| one.woke_ns / US).collect(), missed)
    }

    #[test]
    fn a_relative_sleep_adds_work_and_latency_to_each_period() {
        // The recording's own begin is 50 us late, then 10 ms + 50 us + 2 ms each.
        let expected: Vec<u64> = (0..6).map(|n| 10_100 + n * 12_050).collect();
        assert_eq!(play(Sleep::Relative, false), (expected, 0));
    }

    #[test]
    fn an_absolute_sleep_keeps_the_grid() {
        let expected: Vec<u64> = (1..=6).map(|n| n * 10_000 + 50).collect();
        assert_eq!(play(Sleep::Absolute, false), (expected, 0));
        // Work from 40.05 to 65.05 ms: 50 ms is past, 60 ms is late, 70 ms is in time.
        let (woke, missed) = play(Sleep::Absolute, true);
        assert_eq!(woke, [10_050, 20_050, 30_050, 40_050, 65_050, 70_050]);
        assert_eq!(missed, 1);
    }

    #[test]
    fn the_loop_ends_at_its_time() {
        let clock = SimulatedClock::at(0);
        let beat =
            Beat { start_ns: 0, period_ns: 10 * MS, sleep: Sleep::Absolute, duration_ns: 45 * MS };
        let mut noted = Vec::with_capacity(100);
        run(&clock, &beat, &AtomicBool::new(false), &mut noted, || {});
        assert_eq!(noted.last().map(|one| one.woke_ns), Some(50 * MS));
        noted.clear();
        run(&clock, &beat, &AtomicBool::new(true), &mut noted, || {});
        assert!(noted.is_empty());
    }
}
