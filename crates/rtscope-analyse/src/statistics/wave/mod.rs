//! Edges of a square wave: frequency, duty cycle, jitter, and what is wrong with the wave.
//!
//! A period lasts from one rising edge to the next; a pulse from one edge to the next. Only periods that
//! lie wholly between two gaps of the scope count: nothing is inferred about what a gap hid. A
//! *stretch* is a part of the capture without a gap in it.
//!
//! What it can't show: pulses shorter than the scope's resolution, which may go unseen. A wave whose
//! pulses are that short is refused instead of being given a wrong frequency.

pub mod between;
pub mod compare;
pub mod counted;
pub mod kept;
mod phase;
mod point;
mod slow;
pub mod spectrum;
pub mod sweep;

use std::ops::Range;

use rtscope_model::{
    histogram::{EXACT_MIN, Histogram, Layout},
    time::Nanos,
    wave::{Capture, Edge},
};
use serde::Serialize;

pub use self::phase::{Allan, ClockFit};
use crate::number::{counted, grouped};

/// A pulse shorter than this share of the median pulse of its level is a glitch.
const GLITCH: f64 = 0.25;

/// Pulses must be at least so many resolutions long: two looks are at most so far apart, so that one of
/// them falls into each pulse.
const PULSES: f64 = 2.0;

/// Share of edges by which the line's own count may exceed what the blind time explains.
const UNEXPLAINED: f64 = 0.01;

/// A square wave in figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wave {
    /// Whole periods seen, by the time they took; none when it can't be told, see `refused`.
    pub frequency_hz: Option<f64>,
    /// Expanded uncertainty of the frequency (k = 2) from the resolution alone.
    pub uncertainty_ppm: Option<f64>,
    /// The frequency of the same time by the line's own count: what `frequency_hz` would be, had the scope
    /// seen as many edges outside its gaps as the line's program says it made there. None when the line
    /// doesn't count, or the scope can't tell what was counted in its gaps.
    pub counted_hz: Option<f64>,
    /// Deviation of the frequency from the wanted one.
    pub error_ppm: Option<f64>,
    /// Why there is no frequency.
    pub refused: Option<String>,
    /// The kind of that reason.
    pub refusal: Option<FrequencyRefusal>,
    /// Edges seen.
    pub edges: u64,
    /// Edges made meanwhile by the line's own count; none when the line doesn't count.
    pub made: Option<u64>,
    /// Of those, the ones that were not seen.
    pub lost: Option<u64>,
    /// Edges that were made while the scope was blind. The other lost ones were in pulses too short for it.
    pub made_in_gaps: Option<u64>,
    /// Time in gaps.
    pub blind_ns: u64,
    /// Share of the capture that lies in gaps.
    pub blind_share: f64,
    /// Gaps of the scope.
    pub gaps: u64,
    /// From the first look to the last.
    pub span_ns: u64,
    /// An edge lies at most so far from its instant.
    pub resolution_ns: u64,
    /// Whole periods seen.
    pub periods: u64,
    /// Their distribution; none when there is no whole period.
    pub period: Option<Period>,
    /// Share of the whole periods that the line was high.
    pub duty: Option<f64>,
    /// Edges that are missing, compared with a wave of the wanted (else the median) period.
    pub missing_edges: u64,
    /// Edges too many: two for each glitch, and for each period of less than half the length.
    pub extra_edges: u64,
    /// Pulses shorter than a quarter of the median pulse of their level. They are left out of the periods.
    pub glitches: u64,
    /// The time-interval error of the longest run of edges that can be numbered.
    pub phase: Option<ClockFit>,
}

/// Why a capture gives no frequency: the wave's fault, or the scope's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrequencyRefusal {
    /// There was no edge.
    Silent,
    /// The capture was too short for a whole period.
    Short,
    /// The scope was blind too often: it says nothing of the wave. Looking again may help.
    Blind,
    /// The wave's pulses are too short for the scope.
    TooFast,
}

/// Distribution of the periods of a wave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Period {
    pub ns_min: u64,
    /// Median, of the sorted periods the one of rank ceil(n / 2).
    pub ns_median: u64,
    pub ns_mean: f64,
    pub ns_max: u64,
    /// Period jitter: standard deviation of the periods, from their mean.
    pub jitter_ns_rms: f64,
    /// Cycle-to-cycle jitter: root of the mean squared difference of two periods in a row.
    pub cycle_to_cycle_ns_rms: Option<f64>,
    /// Largest difference of two periods in a row.
    pub cycle_to_cycle_ns_max: Option<u64>,
    /// How many periods are how long: the shortest of each bucket and a count.
    pub histogram: Vec<(u64, u64)>,
}

/// Judges what a scope saw. With a wanted frequency, missing and extra edges and the error are told
/// against it.
#[must_use]
pub fn judge(capture: &Capture, wanted_hz: Option<f64>) -> Wave {
    // Counted before slow looks are taken as looks: their edges were counted as the gaps'.
    let seen_outside = capture.edges.len() as u64;
    let made_outside =
        capture.made.zip(capture.made_in_gaps).map(|(made, hidden)| made.saturating_sub(hidden));
    let unseen_outside = made_outside.map(|made| made.saturating_sub(seen_outside));
    let capture = &slow::admit(capture);
    let span_ns = capture.end_ns.saturating_sub(capture.start_ns);
    let blind_ns: u64 = capture.gaps.iter().map(|gap| gap.end_ns - gap.start_ns).sum();
    let stretches = stretches(capture);
    let pulses = Pulses::new(&capture.edges, &stretches);
    let (clean, glitches) = without_glitches(&capture.edges, &stretches, &pulses);
    let cycles: Vec<Vec<u64>> = clean.iter().map(|edges| rising(edges)).collect();
    let mut periods: Vec<u64> =
        cycles.iter().flat_map(|at| at.windows(2).map(|pair| pair[1] - pair[0])).collect();
    let total_ns: u64 = periods.iter().sum();
    let count = periods.len() as u64;
    let period = distribution(&cycles, &mut periods);
    let expected_ns = wanted_hz.map_or_else(
        || period.as_ref().map_or(0.0, |period| period.ns_median as f64),
        |wanted_hz| 1e9 / wanted_hz,
    );
    let (missing, short) = misfits(&periods, expected_ns);
    let refused = refusal(capture, &pulses, count, blind_ns, unseen_outside);
    let (refusal, refused) = refused.unzip();
    let trusted = refused.is_none() && total_ns > 0;
    let frequency_hz = trusted.then(|| count as f64 * 1e9 / total_ns as f64);
    Wave {
        frequency_hz,
        uncertainty_ppm: trusted.then(|| uncertainty_ppm(capture, &cycles, total_ns)),
        counted_hz: frequency_hz
            .zip(made_outside)
            .filter(|_| seen_outside > 0)
            .map(|(hz, made)| hz * made as f64 / seen_outside as f64),
        error_ppm: frequency_hz.zip(wanted_hz).map(|(is, wanted)| (is / wanted - 1.0) * 1e6),
        refused,
        refusal,
        edges: capture.edges.len() as u64,
        made: capture.made,
        lost: capture.made.map(|made| made.saturating_sub(capture.edges.len() as u64)),
        made_in_gaps: capture.made_in_gaps,
        blind_ns,
        blind_share: blind_ns as f64 / span_ns.max(1) as f64,
        gaps: capture.gaps.len() as u64,
        span_ns,
        resolution_ns: capture.resolution_ns,
        periods: count,
        duty: duty(&clean),
        missing_edges: 2 * missing,
        extra_edges: 2 * (glitches + short),
        glitches,
        phase: if trusted { phase::judge(&cycles) } else { None },
        period,
    }
}

/// The capture with its slow looks taken as looks, as it is judged.
#[must_use]
pub fn admitted(capture: &Capture) -> Capture {
    slow::admit(capture)
}

/// The edges between gaps. Two edges in the same direction have lost one between them: they are cut
/// apart too.
fn stretches(capture: &Capture) -> Vec<Range<usize>> {
    let edges = &capture.edges;
    let mut gaps = capture.gaps.iter().peekable();
    let mut stretches = Vec::new();
    let mut start = 0;
    for (i, edge) in edges.iter().enumerate() {
        let mut cut = i > 0 && edges[i - 1].rises() == edge.rises();
        while gaps.next_if(|gap| gap.start_ns < edge.at_ns()).is_some() {
            cut = true;
        }
        if cut && i > start {
            stretches.push(start..i);
            start = i;
        }
    }
    stretches.push(start..edges.len());
    stretches
}

/// Median lengths of the pulses.
struct Pulses {
    high_ns: u64,
    low_ns: u64,
}

impl Pulses {
    fn new(edges: &[Edge], stretches: &[Range<usize>]) -> Pulses {
        let of = |high: bool| {
            let pairs = stretches.iter().flat_map(|range| edges[range.clone()].windows(2));
            let lengths = pairs
                .filter(|pair| pair[0].rises() == high)
                .map(|pair| pair[1].at_ns() - pair[0].at_ns());
            median(&mut lengths.collect::<Vec<_>>())
        };
        Pulses { high_ns: of(true), low_ns: of(false) }
    }

    fn of_level(&self, high: bool) -> u64 {
        if high { self.high_ns } else { self.low_ns }
    }
}

/// The value of rank ceil(n / 2); 0 of none.
fn median(values: &mut [u64]) -> u64 {
    match values.len() {
        0 => 0,
        n => *values.select_nth_unstable((n - 1) / 2).1,
    }
}

/// The edges of each stretch without those of glitches, and how many glitches there were.
fn without_glitches(
    edges: &[Edge],
    stretches: &[Range<usize>],
    pulses: &Pulses,
) -> (Vec<Vec<Edge>>, u64) {
    let mut glitches = 0;
    let is_glitch = |first: Edge, second: Edge| {
        let length_ns = second.at_ns() - first.at_ns();
        (length_ns as f64) < pulses.of_level(first.rises()) as f64 * GLITCH
    };
    let clean = |range: &Range<usize>| {
        let mut kept: Vec<Edge> = Vec::with_capacity(range.len());
        let mut rest = edges[range.clone()].iter().copied().peekable();
        while let Some(edge) = rest.next() {
            if rest.peek().is_some_and(|next| is_glitch(edge, *next)) {
                rest.next();
                glitches += 1;
            } else {
                kept.push(edge);
            }
        }
        kept
    };
    (stretches.iter().map(clean).collect(), glitches)
}

fn rising(edges: &[Edge]) -> Vec<u64> {
    edges.iter().filter(|edge| edge.rises()).map(|edge| edge.at_ns()).collect()
}

/// Sorts the periods and describes them.
fn distribution(cycles: &[Vec<u64>], periods: &mut [u64]) -> Option<Period> {
    periods.sort_unstable();
    let (ns_min, ns_max) = (*periods.first()?, *periods.last()?);
    let n = periods.len() as f64;
    let ns_mean = periods.iter().sum::<u64>() as f64 / n;
    let squares: f64 = periods.iter().map(|&ns| (ns as f64 - ns_mean).powi(2)).sum();
    let triples = cycles.iter().flat_map(|at| at.windows(3));
    let steps: Vec<u64> = triples.map(|at| (at[2] - at[1]).abs_diff(at[1] - at[0])).collect();
    let step_squares: f64 = steps.iter().map(|&ns| (ns as f64).powi(2)).sum();
    // Exact to the nanosecond for short spreads, log-linear above the shortest for long ones.
    let layout = Layout { unit_ns: 1, exact: EXACT_MIN };
    let mut histogram = Histogram::new(layout);
    periods.iter().for_each(|ns| histogram.record(ns - ns_min));
    let bin = |(index, count): (u32, u64)| (ns_min + layout.lower_ns(index), count);
    Some(Period {
        ns_min,
        ns_median: periods[(periods.len() - 1) / 2],
        ns_mean,
        ns_max,
        jitter_ns_rms: (squares / n).sqrt(),
        cycle_to_cycle_ns_rms: (!steps.is_empty())
            .then(|| (step_squares / steps.len() as f64).sqrt()),
        cycle_to_cycle_ns_max: steps.iter().max().copied(),
        histogram: histogram.bins().into_iter().map(|b| bin((b.0, b.1))).collect(),
    })
}

/// How many expected periods are missing in those that are too long, and how many are less than half
/// as long as they should be.
fn misfits(periods: &[u64], expected_ns: f64) -> (u64, u64) {
    if expected_ns <= 0.0 {
        return (0, 0);
    }
    periods.iter().fold((0, 0), |(missing, short), &ns| {
        match (ns as f64 / expected_ns).round() as u64 {
            0 => (missing, short + 1),
            n => (missing + n - 1, short),
        }
    })
}

/// Each stretch is timed by two edges, each off by up to the resolution: taken as uniform and
/// independent (JCGM 100, 4.3.7), expanded by k = 2.
fn uncertainty_ppm(capture: &Capture, cycles: &[Vec<u64>], total_ns: u64) -> f64 {
    let stretches = cycles.iter().filter(|at| at.len() > 1).count();
    let standard_ns = capture.resolution_ns as f64 * (2.0 * stretches as f64 / 3.0).sqrt();
    2.0 * standard_ns / total_ns as f64 * 1e6
}

/// Why the capture gives no frequency.
fn refusal(
    capture: &Capture,
    pulses: &Pulses,
    periods: u64,
    blind_ns: u64,
    unseen_outside: Option<u64>,
) -> Option<(FrequencyRefusal, String)> {
    let seen = capture.edges.len() as u64;
    let made = capture.made.unwrap_or(0);
    let span_ns = capture.end_ns.saturating_sub(capture.start_ns).max(1);
    let blind_share = blind_ns as f64 / span_ns as f64;
    let gaps = format!("the scope was blind for {:.1} % of the time", blind_share * 100.0);
    if periods == 0 {
        let hidden = made > seen + 2 || capture.gaps.iter().any(|gap| gap.moved);
        return Some(if hidden {
            let why = format!("{gaps} and saw no whole period of the wave: give it a quieter CPU");
            (FrequencyRefusal::Blind, why)
        } else if seen == 0 {
            (
                FrequencyRefusal::Silent,
                "no edge was seen: is the line's program running?".to_owned(),
            )
        } else {
            let edges = counted(seen, "edge");
            (
                FrequencyRefusal::Short,
                format!("no whole period was seen in {edges}: capture longer"),
            )
        });
    }
    let too_fast = |pulse_ns: u64| (pulse_ns as f64) < PULSES * capture.resolution_ns as f64;
    let pulse_ns = pulses.high_ns.min(pulses.low_ns);
    if too_fast(pulse_ns) {
        let why = format!(
            "it can't be resolved: pulses of {} are too short for a scope with a resolution of {}",
            Nanos(pulse_ns),
            Nanos(capture.resolution_ns)
        );
        return Some((FrequencyRefusal::TooFast, why));
    }
    let counts = format!("{} of {} edges were seen", grouped(seen), grouped(made));
    let allowed = (UNEXPLAINED * made as f64).max(2.0);
    let lost = made.saturating_sub(seen);
    if unseen_outside.unwrap_or(0) as f64 > allowed || (lost > 2 && too_fast(span_ns / made)) {
        let why = format!("{counts}: some of its pulses are too short for this scope");
        return Some((FrequencyRefusal::TooFast, why));
    }
    // The wave and the gaps need not be independent: twice the share of blind time is allowed.
    let is_explained = lost as f64 <= 2.0 * blind_share * made as f64 + allowed;
    (!is_explained).then(|| {
        (FrequencyRefusal::Blind, format!("{counts}: {gaps}, mostly while edges were made"))
    })
}

/// High time by whole time of the periods.
fn duty(stretches: &[Vec<Edge>]) -> Option<f64> {
    let (mut high_ns, mut all_ns) = (0, 0);
    for edges in stretches {
        let first = edges.iter().position(|edge| edge.rises()).unwrap_or(edges.len());
        for cycle in edges[first..].windows(3).step_by(2) {
            high_ns += cycle[1].at_ns() - cycle[0].at_ns();
            all_ns += cycle[2].at_ns() - cycle[0].at_ns();
        }
    }
    (all_ns > 0).then(|| high_ns as f64 / all_ns as f64)
}

#[cfg(test)]
mod tests;
