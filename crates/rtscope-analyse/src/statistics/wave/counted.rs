//! Whether a wave keeps its frequency, by readings of its own count of changes: for machines with one CPU, where no
//! scope can look at the line while the program makes the wave.
//!
//! Between two readings the count is off by one edge at most. So a part of the time between readings may be off by
//! one edge more than the tolerance allows; all such parts together must be within it.

use rtscope_model::wave::CountReading;

/// What the readings say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountedWave {
    pub edges: u64,
    /// The mean frequency; none without an edge.
    pub frequency_hz: Option<f64>,
    /// The share of parts that keep the frequency.
    pub share: f64,
    /// Whether these parts together are within the tolerance.
    pub is_within: bool,
}

/// Judges the readings of a wave that was wanted with a frequency, within a tolerance (a share).
#[must_use]
pub fn judge(readings: &[CountReading], wanted_hz: f64, tolerance: f64) -> CountedWave {
    let all: Vec<(f64, f64)> = readings.windows(2).map(|pair| of_pair(pair, wanted_hz)).collect();
    let keeps = |(made, wanted): &&(f64, f64)| (made - wanted).abs() <= tolerance * wanted + 1.0;
    let kept: Vec<&(f64, f64)> = all.iter().filter(keeps).collect();
    let made: f64 = kept.iter().map(|(made, _)| made).sum();
    let wanted: f64 = kept.iter().map(|(_, wanted)| wanted).sum();
    let (edges, span_ns) = match (readings.first(), readings.last()) {
        (Some(first), Some(last)) => {
            (last.changes.saturating_sub(first.changes), last.at_ns.saturating_sub(first.at_ns))
        }
        _ => (0, 0),
    };
    CountedWave {
        edges,
        frequency_hz: (edges > 0 && span_ns > 0).then(|| edges as f64 * 5e8 / span_ns as f64),
        share: kept.len() as f64 / all.len().max(1) as f64,
        is_within: made > 0.0 && (made / wanted - 1.0).abs() <= tolerance,
    }
}

/// Edges that were made between two readings, and those that were wanted.
fn of_pair(pair: &[CountReading], wanted_hz: f64) -> (f64, f64) {
    let span_ns = pair[1].at_ns.saturating_sub(pair[0].at_ns) as f64;
    let made = pair[1].changes.saturating_sub(pair[0].changes) as f64;
    (made, span_ns / 1e9 * wanted_hz * 2.0)
}

#[cfg(test)]
mod tests {
    use super::{super::point::Try, *};

    const MS: u64 = 1_000_000;

    /// Readings every 10 ms of a count that is a function of the time in ms.
    fn readings(changes: impl Fn(u64) -> u64) -> Vec<CountReading> {
        (0..=20).map(|n| CountReading { at_ns: n * 10 * MS, changes: changes(n * 10) }).collect()
    }

    #[test]
    fn a_wave_is_judged_by_the_edges_between_readings() {
        // 1 kHz: two edges a millisecond.
        let steady = readings(|ms| 2 * ms);
        let judged = judge(&steady, 1_000.0, 0.01);
        assert_eq!((judged.edges, judged.frequency_hz), (400, Some(1_000.0)));
        assert!(judged.is_within && judged.share == 1.0);
        // 9 % too slow: within 10 %, and not within 5 %, though one edge of 20 is 5 %.
        let slow = readings(|ms| ms * 182 / 100);
        assert!(judge(&slow, 1_000.0, 0.1).is_within);
        let judged = judge(&slow, 1_000.0, 0.05);
        assert!(judged.share == 1.0 && !judged.is_within, "{judged:?}");
        assert!(judge(&slow, 1_000.0, 0.01).share < 0.5, "18 or 19 edges of 20");
    }

    #[test]
    fn a_stall_spoils_its_own_part_and_bursts_spoil_all() {
        // 10 ms without an edge.
        let stalled = readings(|ms| 2 * ms - 20 * u64::from(ms >= 60));
        let judged = judge(&stalled, 1_000.0, 0.01);
        assert!(judged.is_within && judged.share == 0.95, "{judged:?}");
        // All edges of 20 ms in one of two parts: the mean is right.
        let judged = judge(&readings(|ms| ms / 20 * 40), 1_000.0, 0.1);
        assert_eq!((judged.frequency_hz, judged.share), (Some(1_000.0), 0.0));
        let none = judge(&readings(|_| 7), 1_000.0, 0.1);
        assert_eq!((none.edges, none.frequency_hz, none.is_within), (0, None, false));
        assert_eq!(judge(&[], 1_000.0, 0.1).edges, 0);
    }

    #[test]
    fn a_try_is_judged_by_its_count_and_refused_without_one() {
        let of = |changes: &dyn Fn(u64) -> u64| Try::judge_count(&readings(changes), 500.0, 0.01);
        let counted = of(&|ms| ms);
        assert!(counted.within && counted.refused.is_none(), "{counted:?}");
        let silent = of(&|_| 0);
        assert!(!silent.within && silent.refused.is_some(), "{silent:?}");
    }
}
