//! A try of a sweep: what the scope saw of a program that was to make a wave of one frequency.

use rtscope_model::wave::{Capture, CountReading};
use serde::{Deserialize, Serialize};

use super::{
    FrequencyRefusal, Wave,
    counted::{self, CountedWave},
    judge, kept,
};

/// Share of a look in which the wave must keep its frequency: what stops the machine for a moment spoils a
/// part of it, what the program can't do spoils all.
const KEPT: f64 = 0.8;

/// What a try says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TryOutcome {
    /// Measured, and within the tolerance.
    Within,
    /// Measured, and out of tolerance.
    Outside,
    /// The mean is within the tolerance, and the wave isn't most of the time.
    Unsteady,
    /// The program made no wave.
    Silent,
    /// The scope can't resolve a wave that fast.
    TooFast,
    /// The scope was blind: nothing is known of the program.
    Blind,
}

impl TryOutcome {
    /// Of a wave that was wanted with a frequency, within a tolerance (a share).
    fn judge(capture: &Capture, wave: &Wave, wanted_hz: f64, tolerance: f64) -> TryOutcome {
        match (wave.frequency_hz, wave.refusal) {
            (Some(hz), _) => match kept::share(capture, wanted_hz, tolerance) {
                Some(share) if share >= KEPT => TryOutcome::Within,
                _ if is_near(hz, wanted_hz, tolerance) => TryOutcome::Unsteady,
                _ => TryOutcome::Outside,
            },
            (None, Some(FrequencyRefusal::Short)) => TryOutcome::Outside,
            (None, Some(FrequencyRefusal::Blind)) => TryOutcome::Blind,
            (None, Some(FrequencyRefusal::TooFast)) => TryOutcome::TooFast,
            (None, _) => TryOutcome::Silent,
        }
    }

    /// As [`TryOutcome::judge`], by the line's own count.
    fn judge_count(wave: &CountedWave, wanted_hz: f64, tolerance: f64) -> TryOutcome {
        match wave.frequency_hz {
            None => TryOutcome::Silent,
            Some(_) if wave.share >= KEPT && wave.is_within => TryOutcome::Within,
            Some(hz) if is_near(hz, wanted_hz, tolerance) => TryOutcome::Unsteady,
            Some(_) => TryOutcome::Outside,
        }
    }

    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            TryOutcome::Within => "within",
            TryOutcome::Outside => "out of tolerance",
            TryOutcome::Unsteady => "within on average only",
            TryOutcome::Silent => "no wave",
            TryOutcome::TooFast => "too fast for the scope",
            TryOutcome::Blind => "scope was blind",
        }
    }
}

/// Whether a frequency is within the tolerance of the wanted one.
fn is_near(hz: f64, wanted_hz: f64, tolerance: f64) -> bool {
    (hz / wanted_hz - 1.0).abs() <= tolerance
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Try {
    /// The frequency that was asked for.
    pub wanted_hz: f64,
    /// The frequency that the scope saw; none when it refused to tell.
    pub measured_hz: Option<f64>,
    pub uncertainty_ppm: Option<f64>,
    /// Whether it is within the tolerance.
    pub within: bool,
    pub outcome: TryOutcome,
    /// Edges seen.
    pub edges: u64,
    /// Edges made by the program's own count and not seen.
    pub lost: Option<u64>,
    /// Time that the scope was blind.
    pub blind_ns: u64,
    /// Standard deviation of the periods.
    pub jitter_ns_rms: Option<f64>,
    /// Why there is no frequency.
    pub refused: Option<String>,
}

impl Try {
    /// Judges what the scope saw of a wave that was wanted with a frequency, within a tolerance (a share).
    #[must_use]
    pub fn judge(capture: &Capture, wanted_hz: f64, tolerance: f64) -> Try {
        let wave = judge(capture, Some(wanted_hz));
        let outcome = TryOutcome::judge(capture, &wave, wanted_hz, tolerance);
        Try {
            wanted_hz,
            measured_hz: wave.frequency_hz,
            uncertainty_ppm: wave.uncertainty_ppm,
            within: outcome == TryOutcome::Within,
            outcome,
            edges: wave.edges,
            lost: wave.lost,
            blind_ns: wave.blind_ns,
            jitter_ns_rms: wave.period.map(|period| period.jitter_ns_rms),
            refused: wave.refused,
        }
    }

    /// As [`Try::judge`], of the line's own count of edges.
    #[must_use]
    pub fn judge_count(readings: &[CountReading], wanted_hz: f64, tolerance: f64) -> Try {
        let wave = counted::judge(readings, wanted_hz, tolerance);
        let is_counted = readings.last().is_some_and(|last| last.changes > 0);
        let outcome = match is_counted {
            true => TryOutcome::judge_count(&wave, wanted_hz, tolerance),
            false => TryOutcome::Blind,
        };
        let why = "it doesn't count its edges, and with one CPU the scope can't see them otherwise";
        Try {
            wanted_hz,
            measured_hz: wave.frequency_hz,
            uncertainty_ppm: (wave.edges > 0).then(|| 1e6 / wave.edges as f64),
            within: outcome == TryOutcome::Within,
            outcome,
            edges: wave.edges,
            lost: None,
            blind_ns: 0,
            jitter_ns_rms: None,
            refused: (!is_counted).then(|| why.to_owned()),
        }
    }

    /// A try of a program that made no edge.
    #[must_use]
    pub fn silent(wanted_hz: f64, why: String) -> Try {
        Try {
            wanted_hz,
            measured_hz: None,
            uncertainty_ppm: None,
            within: false,
            outcome: TryOutcome::Silent,
            edges: 0,
            lost: None,
            blind_ns: 0,
            jitter_ns_rms: None,
            refused: Some(why),
        }
    }
}
