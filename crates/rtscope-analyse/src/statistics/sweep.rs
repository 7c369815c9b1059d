//! How fast a program can make a square wave: which frequency to try next, and what the tries say.
//!
//! Frequencies rise in steps until one is out of tolerance; then the space between the last good and the
//! first bad one is bisected. A try is good when the measured frequency is within the tolerance of the
//! wanted one; a wave that the scope refused, or a program that made no edge, is not good. What it can't
//! show: a program that is good again above its first bad frequency.

use serde::Serialize;

/// A sweep's frequencies and patience.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
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
    terms: Terms,
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
    points: Vec<Point>,
}

impl Search {
    /// Begins at the lowest frequency.
    #[must_use]
    pub fn new(terms: Terms) -> Search {
        let count =
            ((terms.to_hz / terms.from_hz).log10() * f64::from(terms.steps)).ceil().max(0.0);
        let ratio = (terms.to_hz / terms.from_hz).powf(1.0 / count.max(1.0));
        let step = |n: u32| {
            round_to_three(terms.from_hz * ratio.powi(n as i32)).clamp(terms.from_hz, terms.to_hz)
        };
        let mut steps: Vec<f64> = (0..=count as u32).rev().map(step).collect();
        steps.dedup();
        let now_hz = steps.pop();
        let (goods, bads, bisections) = (0, 0, 0);
        Search {
            terms,
            steps,
            good_hz: None,
            bad_hz: None,
            bisections,
            now_hz,
            goods,
            bads,
            points: Vec::new(),
        }
    }

    /// The frequency to try next; none when the search is over.
    #[must_use]
    pub fn next_hz(&self) -> Option<f64> {
        self.now_hz
    }

    /// Whether a measured frequency is within the tolerance of the one that is being tried.
    #[must_use]
    pub fn is_within(&self, measured_hz: Option<f64>) -> bool {
        self.now_hz.zip(measured_hz).is_some_and(|(wanted_hz, measured_hz)| {
            (measured_hz / wanted_hz - 1.0).abs() <= self.terms.tolerance
        })
    }

    /// Takes a try of [`Search::next_hz`] into account.
    pub fn tell(&mut self, point: Point) {
        let Some(now_hz) = self.now_hz else { return };
        if point.within {
            self.goods += 1;
        } else {
            self.bads += 1;
        }
        self.points.push(point);
        let majority = self.terms.tries / 2 + 1;
        if self.goods >= majority {
            self.good_hz = Some(now_hz);
        } else if self.bads >= majority {
            self.bad_hz = Some(now_hz);
        } else {
            return;
        }
        (self.goods, self.bads) = (0, 0);
        self.now_hz = self.advance();
    }

    fn advance(&mut self) -> Option<f64> {
        let Some(bad_hz) = self.bad_hz else { return self.steps.pop() };
        let good_hz = self.good_hz?;
        let middle_hz = round_to_three((good_hz * bad_hz).sqrt());
        let is_between = middle_hz > good_hz && middle_hz < bad_hz;
        if self.bisections == self.terms.bisections || !is_between {
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
        Found { max_frequency_hz: self.good_hz, first_bad_hz: self.bad_hz, points }
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Highest good frequency; none when the lowest was bad.
    pub max_frequency_hz: Option<f64>,
    /// Lowest bad frequency; none when the highest was good. The true limit lies between the two.
    pub first_bad_hz: Option<f64>,
    /// All tries, by wanted frequency.
    pub points: Vec<Point>,
}

/// Frequencies that people can read.
fn round_to_three(hz: f64) -> f64 {
    let unit = 10_f64.powf(hz.log10().floor() - 2.0);
    (hz / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { from_hz: 50.0, to_hz: 1e6, tolerance: 0.1, steps: 3, bisections: 6, tries: 1 };

    /// A program that reaches its wanted frequency up to a limit, and stays at the limit above.
    fn search(terms: Terms, limit_hz: f64) -> Found {
        let mut search = Search::new(terms);
        while let Some(wanted_hz) = search.next_hz() {
            let measured_hz = Some(wanted_hz.min(limit_hz));
            let within = search.is_within(measured_hz);
            search.tell(Point {
                wanted_hz,
                measured_hz,
                uncertainty_ppm: None,
                within,
                edges: 1,
                lost: None,
                blind_ns: 0,
                jitter_ns_rms: None,
                refused: None,
            });
            assert!(search.points.len() < 100);
        }
        search.found()
    }

    #[test]
    fn the_limit_lies_between_the_last_good_and_the_first_bad_frequency() {
        for limit_hz in [60.0, 900.0, 8_000.0, 40_000.0, 777_000.0] {
            let found = search(TERMS, limit_hz);
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
        let good = search(TERMS, 1e9);
        assert_eq!((good.max_frequency_hz, good.first_bad_hz), (Some(1e6), None));
        assert_eq!(good.points.first().map(|point| point.wanted_hz), Some(50.0));
        let bad = search(TERMS, 5.0);
        assert_eq!(
            (bad.max_frequency_hz, bad.first_bad_hz, bad.points.len()),
            (None, Some(50.0), 1)
        );
    }

    #[test]
    fn most_of_the_tries_decide() {
        let mut search = Search::new(Terms { tries: 3, ..TERMS });
        let point = |within| Point {
            wanted_hz: 50.0,
            measured_hz: None,
            uncertainty_ppm: None,
            within,
            edges: 0,
            lost: None,
            blind_ns: 0,
            jitter_ns_rms: None,
            refused: None,
        };
        for within in [false, true] {
            search.tell(point(within));
            assert_eq!(search.next_hz(), Some(50.0));
        }
        search.tell(point(true));
        assert!(search.next_hz().expect("goes on") > 50.0);
        assert_eq!(search.good_hz, Some(50.0));
        assert!(!search.is_within(None));
    }
}
