//! The time-interval error edge by edge, and its spectrum: which rhythm an edge's lateness has.
//!
//! The spectrum is that of the edges that were seen, by their numbers (a Schuster periodogram with a Hann
//! window): where an edge is missing, nothing is put in its place. A line in it is a disturbance with that
//! frequency, its height the amplitude in nanoseconds.

use std::f64::consts::TAU;

use rtscope_model::wave::Capture;
use serde::Serialize;

use super::{phase, rising, slow, stretches, without_glitches};

/// Edges that the spectrum is made of, at most.
const EDGES_MAX: u64 = 2_048;

/// Fewer edges have no spectrum.
const EDGES_MIN: usize = 16;

/// How far an edge is from the ideal clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// Its number on that clock.
    pub number: u64,
    /// When, in nanoseconds from the start of the capture.
    pub at_ns: f64,
    /// How much later than on that clock.
    pub tie_ns: f64,
}

/// A rhythm of the time-interval error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpectralLine {
    pub hz: f64,
    pub amplitude_ns: f64,
}

/// The time-interval error of each rising edge of the longest run, and the period of the ideal clock.
#[must_use]
pub fn deviations(capture: &Capture) -> Option<(Vec<Deviation>, f64)> {
    let capture = &slow::admit(capture);
    let stretches = stretches(capture);
    let pulses = super::Pulses::new(&capture.edges, &stretches);
    let (clean, _) = without_glitches(&capture.edges, &stretches, &pulses);
    let cycles: Vec<Vec<u64>> = clean.iter().map(|edges| rising(edges)).collect();
    let (first_ns, run, errors, period_ns) = phase::errors(&cycles)?;
    let from_ns = first_ns as f64 - capture.start_ns as f64;
    let one = |(&(number, at_ns), &tie_ns): (&(u64, f64), &f64)| Deviation {
        number,
        at_ns: from_ns + at_ns,
        tie_ns,
    };
    Some((run.iter().zip(&errors).map(one).collect(), period_ns))
}

/// The spectrum of the first 2,048 edges, below half of the wave's frequency.
#[must_use]
pub fn spectrum(deviations: &[Deviation], period_ns: f64) -> Vec<SpectralLine> {
    let part: Vec<&Deviation> =
        deviations.iter().take_while(|deviation| deviation.number < EDGES_MAX).collect();
    if part.len() < EDGES_MIN || period_ns <= 0.0 {
        return Vec::new();
    }
    let span = part[part.len() - 1].number as f64 + 1.0;
    let mean = part.iter().map(|deviation| deviation.tie_ns).sum::<f64>() / part.len() as f64;
    let window = |number: u64| 0.5 - 0.5 * (TAU * (number as f64 + 0.5) / span).cos();
    let weight: f64 = part.iter().map(|deviation| window(deviation.number)).sum();
    let line = |bin: u64| {
        let turn = TAU * bin as f64 / span;
        let (mut real, mut imaginary) = (0.0, 0.0);
        for deviation in &part {
            let (sin, cos) = (turn * deviation.number as f64).sin_cos();
            let value = window(deviation.number) * (deviation.tie_ns - mean);
            real += value * cos;
            imaginary += value * sin;
        }
        SpectralLine {
            hz: bin as f64 / span * 1e9 / period_ns,
            amplitude_ns: 2.0 * real.hypot(imaginary) / weight,
        }
    };
    (1..(span / 2.0).ceil() as u64).map(line).collect()
}
