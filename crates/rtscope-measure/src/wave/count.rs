//! A scope for machines with one CPU: it sleeps while the program makes its wave, and reads the line's own count of
//! changes now and then.
//!
//! It takes no time from the program but that of its few wake-ups. What it can't show: the instant of an edge, so
//! neither jitter nor a duty cycle; and a program that doesn't count its changes.

use rtscope_model::wave::CountReading;
use rtscope_sys::clock::Clock;

use super::scope::Probe;

/// Parts between readings, at most.
const PARTS: u64 = 20;

/// Edges that are wanted in a part, at least.
const EDGES_MIN: f64 = 10.0;

/// Reads the count at the ends of equal parts of a time in which a wave of a frequency is wanted. A reading that comes
/// late makes its part longer, and the next one shorter by no more than a half.
pub fn watch(
    line: &impl Probe,
    clock: &impl Clock,
    (wanted_hz, duration_ns): (f64, u64),
) -> Vec<CountReading> {
    let parts = parts(wanted_hz, duration_ns);
    let part_ns = duration_ns / parts;
    let read = || CountReading { at_ns: clock.now_ns(), changes: line.changes() };
    let first = read();
    let mut readings = vec![first];
    for part in 1..=parts {
        let last_ns = readings[readings.len() - 1].at_ns;
        let due_ns = (first.at_ns + part * part_ns).max(last_ns + part_ns / 2);
        clock.sleep_until_ns(due_ns);
        readings.push(read());
    }
    readings
}

/// In how many parts the time is read.
fn parts(wanted_hz: f64, duration_ns: u64) -> u64 {
    let edges = duration_ns as f64 / 1e9 * wanted_hz * 2.0;
    ((edges / EDGES_MIN) as u64).clamp(1, PARTS)
}

#[cfg(test)]
mod tests {
    use rtscope_testing::clock::SimulatedClock;

    use super::*;

    /// A line that changes every 100 us.
    struct Steady<'a>(&'a SimulatedClock);

    impl Probe for Steady<'_> {
        fn is_high(&self) -> bool {
            self.changes() % 2 == 1
        }
        fn changes(&self) -> u64 {
            self.0.time_ns() / 100_000
        }
    }

    #[test]
    fn a_late_reading_leaves_the_next_part_half_of_its_time() {
        // 15 ms late, right after the reading at 20 ms was due.
        let clock = SimulatedClock::at(0).with_pauses([(20_000_001, 15_000_000)]);
        let readings = watch(&Steady(&clock), &clock, (500.0, 100_000_000));
        assert_eq!(readings.len(), 11);
        let ms: Vec<u64> = readings.iter().map(|one| one.at_ns / 1_000_000).collect();
        assert!(readings.windows(2).all(|w| w[1].at_ns - w[0].at_ns >= 5_000_000), "{ms:?}");
        assert_eq!(ms[10], 100, "{ms:?}");
        let changes = readings[10].changes - readings[0].changes;
        assert!((998..=1_002).contains(&changes), "{changes}");
    }

    #[test]
    fn a_part_holds_ten_edges_or_is_a_twentieth() {
        assert_eq!(parts(50.0, 1_000_000_000), 10);
        assert_eq!(parts(10_000.0, 100_000_000), 20);
        assert_eq!(parts(10.0, 100_000_000), 1);
    }
}
