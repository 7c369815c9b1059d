//! Brings the expiries of timers to the clock of a trace's events.
//!
//! A trace that others recorded often has the CPUs' own clock, while a timer expires on `CLOCK_MONOTONIC`. Each expiry's
//! event has both: its time stamp, and what the timer's clock said when its interrupt began. The fastest one in some
//! seconds shows the difference best, so a latency is too short by what that one took.

use std::collections::BTreeMap;

use rtscope_model::trace::{Event, What};

use crate::trace::OTHER_CLOCK_NS;

/// The clocks drift apart, so that each stretch of time has a difference of its own.
const STRETCH_NS: u64 = 1_000_000_000;

/// Up to here the clocks are the same: an expiry's event comes a moment after its interrupt began, and time stamps of
/// text are cut to microseconds.
const SAME_NS: i64 = 20_000;

/// The difference between the events' clock and the timers'.
#[derive(Debug, Default)]
pub(super) struct ClockFit {
    /// By stretch, what the events' clock is ahead of `CLOCK_MONOTONIC`.
    ahead_ns: BTreeMap<u64, i64>,
    /// What `CLOCK_REALTIME` is ahead of the events' clock.
    realtime_ns: u64,
}

impl ClockFit {
    /// From expiries: time stamp, and what the timer's clock said.
    pub(super) fn new(expiries: &[(u64, u64)]) -> ClockFit {
        let mut fit = ClockFit::default();
        for (at_ns, now_ns) in expiries {
            if now_ns.saturating_sub(*at_ns) >= OTHER_CLOCK_NS {
                fit.realtime_ns = fit.realtime_ns.max(now_ns - at_ns);
                continue;
            }
            let ahead_ns = at_ns.cast_signed().saturating_sub(now_ns.cast_signed());
            let least = fit.ahead_ns.entry(at_ns / STRETCH_NS).or_insert(ahead_ns);
            *least = ahead_ns.min(*least);
        }
        fit
    }

    pub(super) fn realtime_ns(&self) -> u64 {
        self.realtime_ns
    }

    /// The difference at a time: the least one of its stretch and its neighbours.
    fn ahead_ns(&self, at_ns: u64) -> i64 {
        let stretch = at_ns / STRETCH_NS;
        let near = stretch.saturating_sub(1)..=stretch + 1;
        let least = self.ahead_ns.range(near).map(|(_, ns)| *ns).min();
        let last = || self.ahead_ns.range(..stretch).next_back().map(|(_, ns)| *ns);
        let ahead_ns = least.or_else(last).unwrap_or(0);
        if (0..SAME_NS).contains(&ahead_ns) { 0 } else { ahead_ns }
    }

    /// Moves the expiries that timers of `CLOCK_MONOTONIC` were set to.
    pub(super) fn apply(&self, events: &mut [Event]) {
        for event in events {
            let ahead_ns = self.ahead_ns(event.at_ns);
            if let What::TimerStart { expires_ns, .. } = &mut event.what
                && expires_ns.saturating_sub(event.at_ns) < OTHER_CLOCK_NS
            {
                *expires_ns = expires_ns.saturating_add_signed(ahead_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::trace::TimerFunction;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn moved(fit: &ClockFit, at_ns: u64, expires_ns: u64) -> u64 {
        let function = TimerFunction::Sleep;
        let what = What::TimerStart { function, expires_ns, slack_ns: 0, is_relative: false };
        let event = Event { at_ns, cpu: 0, tid: 7, in_interrupt: false, preempt_depth: 0, what };
        let mut events = [event];
        fit.apply(&mut events);
        match events[0].what {
            What::TimerStart { expires_ns, .. } => expires_ns,
            _ => 0,
        }
    }

    #[test]
    fn the_fastest_expiry_near_by_shows_the_difference() {
        // The events' clock is 2 s ahead, and 1 us more after 10 s.
        let fit = ClockFit::new(&[
            (5 * S, 3 * S - 900),
            (5 * S + 10, 3 * S - 90),
            (15 * S + 1_100, 13 * S),
        ]);
        assert_eq!(moved(&fit, 5 * S, 4 * S), 6 * S + 100);
        assert_eq!(moved(&fit, 15 * S, 14 * S), 16 * S + 1_100);
        assert_eq!(moved(&fit, 19 * S, 14 * S), 16 * S + 1_100, "the last one that is known");
    }

    #[test]
    fn timers_of_the_same_clock_and_of_the_wall_clock_stay_as_they_are() {
        let wall = 50 * 365 * 86_400 * S;
        let fit = ClockFit::new(&[(5 * S + 700, 5 * S), (6 * S, wall + 6 * S - 400)]);
        assert_eq!(moved(&fit, 5 * S, 7 * S), 7 * S);
        assert_eq!(moved(&fit, 5 * S, wall), wall);
        assert_eq!(fit.realtime_ns(), wall - 400);
    }
}
