//! Delay and phase between two lines that were captured at once.
//!
//! The delay of a rising edge of the second line is the time since the last rising edge of the first. An edge
//! with a gap of either line in between has none. Where both have the same period, the phase is the circular
//! mean of the delays in periods of the first line: edges that come now just before and now just after those of
//! the first line have a phase near 0 and not one of half a period.

use rtscope_model::wave::{Capture, Edge, Gap};
use serde::Serialize;

use super::median;

/// Periods that differ by more than this share have no common phase.
const SAME_PERIOD: f64 = 0.01;

/// Phases that are spread so evenly (length of their mean vector) say nothing.
const SPREAD: f64 = 0.5;

/// Two lines against each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Between {
    /// Addresses of the lines: delays are those of the second.
    pub lines: [String; 2],
    /// Rising edges of the second line that have a delay.
    pub edges: u64,
    /// The shortest; none without an edge, as the others.
    pub delay_ns_min: Option<u64>,
    pub delay_ns_mean: Option<f64>,
    pub delay_ns_max: Option<u64>,
    /// How far the second line is behind the first, -180 to 180 degrees; none where there is no fixed phase.
    pub phase_degrees: Option<f64>,
}

/// Sets the second line against the first.
#[must_use]
pub fn between(first: &Capture, second: &Capture) -> Between {
    let (a, b) = (rises(first), rises(second));
    let mut delays = Vec::with_capacity(b.len());
    for &at_ns in &b {
        let before = a.partition_point(|edge| *edge <= at_ns);
        let Some(&from_ns) = before.checked_sub(1).and_then(|n| a.get(n)) else { continue };
        if !has_gap(&first.gaps, from_ns, at_ns) && !has_gap(&second.gaps, from_ns, at_ns) {
            delays.push(at_ns - from_ns);
        }
    }
    let sum: f64 = delays.iter().map(|ns| *ns as f64).sum();
    Between {
        lines: [first.line.clone(), second.line.clone()],
        edges: delays.len() as u64,
        delay_ns_min: delays.iter().copied().min(),
        delay_ns_mean: (!delays.is_empty()).then(|| sum / delays.len() as f64),
        delay_ns_max: delays.iter().copied().max(),
        phase_degrees: phase(&delays, &a, &b),
    }
}

fn rises(capture: &Capture) -> Vec<u64> {
    capture.edges.iter().filter(|edge| edge.rises()).map(|edge: &Edge| edge.at_ns()).collect()
}

fn has_gap(gaps: &[Gap], from_ns: u64, to_ns: u64) -> bool {
    let next = gaps.partition_point(|gap| gap.end_ns <= from_ns);
    gaps.get(next).is_some_and(|gap| gap.start_ns < to_ns)
}

/// The median distance of rising edges: gaps and missing edges don't move it.
fn period_ns(rises: &[u64]) -> Option<f64> {
    let mut all: Vec<u64> = rises.windows(2).map(|pair| pair[1] - pair[0]).collect();
    (!all.is_empty()).then(|| median(&mut all) as f64)
}

fn phase(delays: &[u64], a: &[u64], b: &[u64]) -> Option<f64> {
    let (period, other) = (period_ns(a)?, period_ns(b)?);
    if (period - other).abs() > SAME_PERIOD * period || delays.is_empty() {
        return None;
    }
    let angles = delays.iter().map(|ns| *ns as f64 / period * std::f64::consts::TAU);
    let (sin, cos) =
        angles.fold((0.0, 0.0), |(sin, cos), angle| (sin + angle.sin(), cos + angle.cos()));
    let length = sin.hypot(cos) / delays.len() as f64;
    (length >= SPREAD).then(|| sin.atan2(cos).to_degrees())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wave of 50 kHz whose rising edges are later than the grid.
    fn wave(name: &str, late_ns: impl Fn(u64) -> i64, gaps: &[(u64, u64)]) -> Capture {
        let edges = (1..=100u64).flat_map(|n| {
            let at_ns = (n * 20_000).saturating_add_signed(late_ns(n));
            [Edge::new(at_ns, true), Edge::new(at_ns + 9_000, false)]
        });
        let gap = |(start_ns, end_ns): &(u64, u64)| Gap {
            start_ns: *start_ns,
            end_ns: *end_ns,
            moved: false,
        };
        Capture {
            line: name.to_owned(),
            start_ns: 0,
            end_ns: 3_000_000,
            resolution_ns: 100,
            starts_high: None,
            edges: edges.collect(),
            gaps: gaps.iter().map(gap).collect(),
            made: None,
            made_in_gaps: None,
            is_full: false,
        }
    }

    #[test]
    fn a_quarter_of_a_period_is_90_degrees() {
        let first = wave("a", |_| 0, &[]);
        let found = between(&first, &wave("b", |n| 5_000 + (n % 2) as i64 * 200, &[]));
        assert_eq!(
            (found.edges, found.delay_ns_min, found.delay_ns_max),
            (100, Some(5_000), Some(5_200))
        );
        assert_eq!(found.delay_ns_mean, Some(5_100.0));
        let degrees = found.phase_degrees.expect("a phase");
        assert!((degrees - 5_100.0 / 20_000.0 * 360.0).abs() < 0.01, "{degrees}");
    }

    #[test]
    fn edges_around_those_of_the_first_line_have_a_phase_near_0() {
        let first = wave("a", |_| 0, &[]);
        let around = between(&first, &wave("b", |n| if n % 2 == 0 { 100 } else { -100 }, &[]));
        assert!(around.phase_degrees.is_some_and(|degrees| degrees.abs() < 1.0), "{around:?}");
        // Everywhere in a period: no phase.
        let spread = between(&first, &wave("b", |n| (n * 7_919 % 20_000) as i64, &[]));
        assert_eq!(spread.phase_degrees, None, "{spread:?}");
    }

    #[test]
    fn waves_of_different_periods_have_no_phase() {
        let first = wave("a", |_| 0, &[]);
        let second = wave("b", |_| 5_000, &[]);
        let phase = between(&first, &second).phase_degrees;
        assert!(phase.is_some_and(|degrees| (degrees - 90.0).abs() < 0.01), "{phase:?}");
        // Every second period only: each of its edges is still 5 us after one of the first line.
        let edges = second.edges.chunks(4).flat_map(|pulses| pulses[..2].to_vec()).collect();
        assert_eq!(between(&first, &Capture { edges, ..second }).phase_degrees, None);
    }

    #[test]
    fn a_gap_in_between_leaves_an_edge_out() {
        let first = wave("a", |_| 0, &[(201_000, 203_000)]);
        let found = between(&first, &wave("b", |_| 5_000, &[(401_000, 402_000)]));
        assert_eq!(found.edges, 98);
        let silent = Capture { edges: Vec::new(), ..wave("b", |_| 0, &[]) };
        assert_eq!(between(&first, &silent).delay_ns_mean, None);
    }
}
