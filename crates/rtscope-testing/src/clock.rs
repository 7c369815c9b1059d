//! A clock whose time passes only where the test says so.

use std::cell::{Cell, RefCell};

use rtscope_sys::clock::Clock;

/// Time stands still but for what is set here and for sleeps, which end at once and on time.
#[derive(Debug, Default)]
pub struct SimulatedClock {
    now_ns: Cell<u64>,
    reading_ns: u64,
    late_ns: u64,
    pauses: RefCell<Vec<(u64, u64)>>,
    pauses_by_hand: bool,
    moves_at_ns: Option<u64>,
}

impl SimulatedClock {
    /// A clock that shows an instant.
    #[must_use]
    pub fn at(now_ns: u64) -> SimulatedClock {
        SimulatedClock { now_ns: Cell::new(now_ns), ..SimulatedClock::default() }
    }

    /// Each reading takes so long; it shows the time at its end.
    #[must_use]
    pub fn with_reading(self, ns: u64) -> SimulatedClock {
        SimulatedClock { reading_ns: ns, ..self }
    }

    /// Each sleeper wakes so much late.
    #[must_use]
    pub fn with_lateness(self, ns: u64) -> SimulatedClock {
        SimulatedClock { late_ns: ns, ..self }
    }

    /// The thread is held up once at the first reading, or the first end of a sleep, at or after each of these
    /// instants, for the time beside it. Instants rise.
    #[must_use]
    pub fn with_pauses(self, pauses: impl IntoIterator<Item = (u64, u64)>) -> SimulatedClock {
        let mut pauses: Vec<_> = pauses.into_iter().collect();
        pauses.reverse();
        SimulatedClock { pauses: RefCell::new(pauses), ..self }
    }

    /// Pauses are taken in [`SimulatedClock::pause_by_hand`] alone.
    #[must_use]
    pub fn pausing_by_hand(self) -> SimulatedClock {
        SimulatedClock { pauses_by_hand: true, ..self }
    }

    /// The thread is on CPU 0 up to this instant and on CPU 1 after it.
    #[must_use]
    pub fn with_move(self, at_ns: u64) -> SimulatedClock {
        SimulatedClock { moves_at_ns: Some(at_ns), ..self }
    }

    /// The time, without the time of a reading.
    pub fn time_ns(&self) -> u64 {
        self.now_ns.get()
    }

    pub fn advance(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
    }

    /// Holds the thread up if a pause is due and pauses are taken by hand.
    pub fn pause_by_hand(&self) {
        self.pause_if_due(true);
    }

    fn pause_if_due(&self, by_hand: bool) {
        if by_hand != self.pauses_by_hand {
            return;
        }
        let mut pauses = self.pauses.borrow_mut();
        if let Some((at_ns, length_ns)) = pauses.last().copied()
            && self.now_ns.get() >= at_ns
        {
            pauses.pop();
            self.advance(length_ns);
        }
    }
}

impl Clock for SimulatedClock {
    fn now_ns(&self) -> u64 {
        self.pause_if_due(false);
        self.advance(self.reading_ns);
        self.now_ns.get()
    }

    fn sleep_until_ns(&self, instant_ns: u64) {
        self.now_ns.set(self.now_ns.get().max(instant_ns + self.late_ns));
        self.pause_if_due(false);
    }

    fn sleep_for_ns(&self, duration_ns: u64) {
        self.sleep_until_ns(self.now_ns.get() + duration_ns);
    }

    fn cpu(&self) -> u32 {
        u32::from(self.moves_at_ns.is_some_and(|at_ns| self.now_ns.get() > at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_in_readings_sleeps_and_pauses_only() {
        let clock = SimulatedClock::at(100).with_reading(10).with_pauses([(110, 1_000), (120, 5)]);
        let readings: Vec<u64> = (0..4).map(|_| clock.now_ns()).collect();
        assert_eq!(readings, [110, 1_120, 1_135, 1_145]);
        clock.sleep_until_ns(2_000);
        clock.sleep_until_ns(1_500);
        assert_eq!(clock.time_ns(), 2_000, "an instant that has passed is not waited for");
        let late = SimulatedClock::at(0).with_lateness(7).with_move(500);
        late.sleep_for_ns(500);
        assert_eq!((late.time_ns(), late.cpu()), (507, 1));
    }
}
