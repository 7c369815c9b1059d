//! How fast a program can make a square wave: which frequency to try next, and what the tries say.
//!
//! Frequencies rise in steps until one is out of tolerance; then the space between the last good and the
//! first bad one is bisected. A try is good when the measured frequency is within the tolerance of the
//! wanted one; a wave that is too fast for the scope, or a program that made no edge, is not good. A try in
//! which the scope was blind says nothing of the program: it is repeated, and when that doesn't help, the
//! frequency stays undecided. What it can't show: a program that is good again above its first bad frequency.

use serde::Serialize;

use super::{Refusal, Wave};

/// Tries in which the scope was blind that are repeated at one frequency.
const BLIND_REPEATS: u32 = 4;

/// What a try says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Measured, and within the tolerance.
    Within,
    /// Measured, and out of tolerance.
    Outside,
    /// The program made no wave.
    Silent,
    /// The scope can't resolve a wave that fast.
    TooFast,
    /// The scope was blind: nothing is known of the program.
    Blind,
}

impl Outcome {
    /// Of a wave that was wanted with a frequency, within a tolerance (a share).
    #[must_use]
    pub fn of(wave: &Wave, wanted_hz: f64, tolerance: f64) -> Outcome {
        match (wave.frequency_hz, wave.refusal) {
            (Some(hz), _) if (hz / wanted_hz - 1.0).abs() <= tolerance => Outcome::Within,
            (Some(_), _) | (None, Some(Refusal::Short)) => Outcome::Outside,
            (None, Some(Refusal::Blind)) => Outcome::Blind,
            (None, Some(Refusal::TooFast)) => Outcome::TooFast,
            (None, _) => Outcome::Silent,
        }
    }

    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Outcome::Within => "within",
            Outcome::Outside => "out of tolerance",
            Outcome::Silent => "no wave",
            Outcome::TooFast => "too fast for the scope",
            Outcome::Blind => "scope was blind",
        }
    }
}

/// A sweep's frequencies and patience.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchRange {
    /// First frequency.
    pub from_hz: f64,
    /// Last.
    pub to_hz: f64,
    /// Allowed deviation, as a share.
    pub tolerance: f64,
    /// Steps in each power of ten, at equal ratios.
    pub steps: u32,
    /// Bisections between the last good and the first bad step.
    pub bisections: u32,
    /// Tries of each frequency: it is good when most of them are.
    pub tries: u32,
}

/// One try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The frequency that was asked for.
    pub wanted_hz: f64,
    /// The frequency that the scope saw; none when it refused to tell.
    pub measured_hz: Option<f64>,
    /// Uncertainty of that.
    pub uncertainty_ppm: Option<f64>,
    /// Whether it is within the tolerance.
    pub within: bool,
    /// What the try says.
    pub outcome: Outcome,
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

/// The search for the highest frequency of one subject under one load.
#[derive(Clone, Debug)]
pub struct Search {
    range: SearchRange,
    /// Steps that are still to be climbed, the lowest last.
    steps: Vec<f64>,
    /// Highest good frequency below the lowest bad one.
    good_hz: Option<f64>,
    /// Lowest bad frequency.
    bad_hz: Option<f64>,
    bisections: u32,
    /// The frequency that is being tried.
    now_hz: Option<f64>,
    goods: u32,
    bads: u32,
    blinds: u32,
    undecided_hz: Vec<f64>,
    points: Vec<Point>,
}

impl Search {
    /// Begins at the lowest frequency.
    #[must_use]
    pub fn new(range: SearchRange) -> Search {
        let count =
            ((range.to_hz / range.from_hz).log10() * f64::from(range.steps)).ceil().max(0.0);
        let ratio = (range.to_hz / range.from_hz).powf(1.0 / count.max(1.0));
        let step = |n: u32| {
            round_to_three(range.from_hz * ratio.powi(n as i32)).clamp(range.from_hz, range.to_hz)
        };
        let mut steps: Vec<f64> = (0..=count as u32).rev().map(step).collect();
        steps.dedup();
        let now_hz = steps.pop();
        let (goods, bads, blinds, bisections) = (0, 0, 0, 0);
        Search {
            range,
            steps,
            good_hz: None,
            bad_hz: None,
            bisections,
            now_hz,
            goods,
            bads,
            blinds,
            undecided_hz: Vec::new(),
            points: Vec::new(),
        }
    }

    /// The frequency to try next; none when the search is over.
    #[must_use]
    pub fn next_hz(&self) -> Option<f64> {
        self.now_hz
    }

    /// How many tries of [`Search::next_hz`] were blind: a longer look may help the next one.
    #[must_use]
    pub fn blinds(&self) -> u32 {
        self.blinds
    }

    /// Takes a try of [`Search::next_hz`] into account.
    pub fn add_try(&mut self, point: Point) {
        let Some(now_hz) = self.now_hz else { return };
        match point.outcome {
            Outcome::Within => self.goods += 1,
            Outcome::Blind => self.blinds += 1,
            _ => self.bads += 1,
        }
        self.points.push(point);
        let majority = self.range.tries / 2 + 1;
        if self.goods >= majority {
            self.good_hz = Some(now_hz);
        } else if self.bads >= majority {
            self.bad_hz = Some(now_hz);
        } else if self.blinds > BLIND_REPEATS {
            self.undecided_hz.push(now_hz);
        } else {
            return;
        }
        let is_stuck = self.blinds > BLIND_REPEATS && self.bad_hz.is_some_and(|hz| hz > now_hz);
        (self.goods, self.bads, self.blinds) = (0, 0, 0);
        self.now_hz = if is_stuck { None } else { self.advance() };
    }

    fn advance(&mut self) -> Option<f64> {
        let Some(bad_hz) = self.bad_hz else { return self.steps.pop() };
        let good_hz = self.good_hz?;
        let middle_hz = round_to_three((good_hz * bad_hz).sqrt());
        let is_between = middle_hz > good_hz && middle_hz < bad_hz;
        if self.bisections == self.range.bisections || !is_between {
            return None;
        }
        self.bisections += 1;
        Some(middle_hz)
    }

    /// What was found.
    #[must_use]
    pub fn found(self) -> Found {
        let mut points = self.points;
        points.sort_by(|a, b| a.wanted_hz.total_cmp(&b.wanted_hz));
        Found {
            max_frequency_hz: self.good_hz,
            first_bad_hz: self.bad_hz,
            undecided_hz: self.undecided_hz,
            points,
        }
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Highest good frequency; none when the lowest was bad.
    pub max_frequency_hz: Option<f64>,
    /// Lowest bad frequency; none when the highest was good. The true limit lies between the two.
    pub first_bad_hz: Option<f64>,
    /// Frequencies at which the scope was blind in every try.
    pub undecided_hz: Vec<f64>,
    /// All tries, by wanted frequency.
    pub points: Vec<Point>,
}

/// Frequencies that people can read.
fn round_to_three(hz: f64) -> f64 {
    let unit = 10_f64.powf(hz.log10().floor() - 2.0);
    (hz / unit).round() * unit
}

/// What a sweep over several programs found.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// First frequency.
    pub from_hz: f64,
    /// Last.
    pub to_hz: f64,
    /// Allowed deviation, as a share.
    pub tolerance: f64,
    /// One for each subject, policy and load.
    pub curves: Vec<Curve>,
    /// What is known of the run: name and value.
    pub facts: Vec<(String, String)>,
}

/// What one subject reached under one load.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The subject.
    pub name: String,
    /// The load, or `none`.
    pub load: String,
    /// The policy it was started with.
    pub policy: String,
    /// What was found.
    pub found: Found,
}

impl Curve {
    /// Its name in the legend.
    pub(crate) fn label(&self) -> String {
        let load = match self.load.as_str() {
            "none" => "at rest".to_owned(),
            load => format!("under {load}"),
        };
        match self.policy.as_str() {
            "other" => format!("{} {load}", self.name),
            policy => format!("{} as {policy} {load}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: SearchRange = SearchRange {
        from_hz: 50.0,
        to_hz: 1e6,
        tolerance: 0.1,
        steps: 3,
        bisections: 6,
        tries: 1,
    };

    fn point(wanted_hz: f64, measured_hz: Option<f64>, outcome: Outcome) -> Point {
        Point {
            wanted_hz,
            measured_hz,
            uncertainty_ppm: None,
            within: outcome == Outcome::Within,
            outcome,
            edges: 1,
            lost: None,
            blind_ns: 0,
            jitter_ns_rms: None,
            refused: None,
        }
    }

    /// A program that reaches its wanted frequency up to a limit, and stays at the limit above. In some
    /// tries the scope is blind.
    fn search(range: SearchRange, limit_hz: f64, is_blind: impl Fn(f64, usize) -> bool) -> Found {
        let mut search = Search::new(range);
        while let Some(wanted_hz) = search.next_hz() {
            let measured_hz = wanted_hz.min(limit_hz);
            let is_near = (measured_hz / wanted_hz - 1.0).abs() <= range.tolerance;
            let outcome = match is_near {
                _ if is_blind(wanted_hz, search.points.len()) => Outcome::Blind,
                true => Outcome::Within,
                false => Outcome::Outside,
            };
            search.add_try(point(wanted_hz, Some(measured_hz), outcome));
            assert!(search.points.len() < 200);
        }
        search.found()
    }

    #[test]
    fn the_limit_lies_between_the_last_good_and_the_first_bad_frequency() {
        for limit_hz in [60.0, 900.0, 8_000.0, 40_000.0, 777_000.0] {
            let found = search(RANGE, limit_hz, |_, _| false);
            // Within 10 % below: the highest good wanted frequency is the limit by 0.9.
            let edge_hz = limit_hz / 0.9;
            let (good, bad) =
                (found.max_frequency_hz.expect("good"), found.first_bad_hz.expect("bad"));
            assert!(good <= edge_hz && edge_hz < bad, "{good} {edge_hz} {bad}");
            assert!(bad / good < 1.02, "{good} to {bad}");
        }
    }

    #[test]
    fn a_sweep_that_is_all_good_or_all_bad_says_so() {
        let good = search(RANGE, 1e9, |_, _| false);
        assert_eq!((good.max_frequency_hz, good.first_bad_hz), (Some(1e6), None));
        assert_eq!(good.points.first().map(|point| point.wanted_hz), Some(50.0));
        let bad = search(RANGE, 5.0, |_, _| false);
        assert_eq!(
            (bad.max_frequency_hz, bad.first_bad_hz, bad.points.len()),
            (None, Some(50.0), 1)
        );
    }

    #[test]
    fn most_of_the_tries_decide() {
        let mut search = Search::new(SearchRange { tries: 3, ..RANGE });
        for outcome in [Outcome::Outside, Outcome::Within] {
            search.add_try(point(50.0, None, outcome));
            assert_eq!(search.next_hz(), Some(50.0));
        }
        search.add_try(point(50.0, None, Outcome::Within));
        assert!(search.next_hz().expect("goes on") > 50.0);
        assert_eq!(search.good_hz, Some(50.0));
    }

    #[test]
    fn a_blind_try_is_repeated_and_is_nobody_s_fault() {
        // Every other look is blind: the limit is found as if it were not.
        let seen = search(RANGE, 8_000.0, |_, _| false);
        let half_blind = search(RANGE, 8_000.0, |_, n| n % 2 == 0);
        assert_eq!(half_blind.max_frequency_hz, seen.max_frequency_hz);
        assert_eq!((half_blind.first_bad_hz, half_blind.undecided_hz), (seen.first_bad_hz, vec![]));
        // A frequency at which every look is blind is left undecided, and the sweep goes on above it.
        let dark = search(RANGE, 8_000.0, |hz, _| hz < 60.0);
        assert_eq!(dark.undecided_hz, [50.0]);
        assert_eq!(dark.max_frequency_hz, seen.max_frequency_hz);
        let all = search(RANGE, 8_000.0, |_, _| true);
        assert_eq!((all.max_frequency_hz, all.first_bad_hz), (None, None));
        assert!(all.undecided_hz.len() > 10);
    }
}
