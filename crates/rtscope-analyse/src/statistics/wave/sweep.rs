//! How fast a program can make a square wave: which frequency to try next, and what the tries say.
//!
//! Frequencies rise in steps until one is bad; then the space between the last good and the first bad one is
//! bisected. At the end both are tried again: a machine that stands still for a moment can spoil a try, and luck can
//! save one. A limit is given only where the tries agree.
//!
//! A try is good when the wave keeps its frequency ([`super::kept`]); a wave that is too fast for the scope, or a
//! program that made no edge, is not good. A try in which the scope was blind says nothing of the program: it is
//! repeated, and when that doesn't help, the frequency stays undecided. What it can't show: a program that is good
//! again above its first bad frequency.

use serde::{Deserialize, Serialize};

pub use super::point::{Try, TryOutcome};
use crate::number::hertz;

/// Tries in which the scope was blind that are repeated at one frequency.
const BLIND_REPEATS: u32 = 4;

/// How often a result that doesn't repeat is taken back before the search gives up.
const REVISIONS_MAX: u32 = 4;

/// The distance, as a ratio, over which tries may disagree around a limit.
const NEAR: f64 = 1.5;

/// A sweep's frequencies and patience.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchRange {
    pub from_hz: f64,
    pub to_hz: f64,
    /// Allowed deviation, as a share.
    pub tolerance: f64,
    /// Steps in each power of ten, at equal ratios.
    pub steps: u32,
    /// Bisections between the last good and the first bad step.
    pub bisections: u32,
    /// Tries of each frequency: it is good when most of them are. The two at the limit are tried as often again.
    pub tries: u32,
    /// The shortest and the longest look at a wave, in seconds.
    pub looks_s: (f64, f64),
}

/// Tries of one frequency that said something of it.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    goods: u32,
    bads: u32,
}

impl Tally {
    fn add(&mut self, outcome: TryOutcome) {
        match outcome {
            TryOutcome::Within => self.goods += 1,
            TryOutcome::Blind => {}
            _ => self.bads += 1,
        }
    }

    fn count(self) -> u32 {
        self.goods + self.bads
    }

    /// Whether they agree that the frequency is good, or that it is bad: two to one at least.
    fn agrees(self, is_good: bool) -> bool {
        let (with, against) =
            if is_good { (self.goods, self.bads) } else { (self.bads, self.goods) };
        with >= 2 * against
    }
}

/// What the search is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Climbing, then halving the distance.
    Look,
    /// Trying the lowest bad frequency again.
    ConfirmBad,
    /// Trying the highest good frequency again.
    ConfirmGood,
    /// Both were found again as they were.
    Done,
}

/// The search for the highest frequency of one subject under one load.
#[derive(Clone, Debug)]
pub struct SweepSearch {
    range: SearchRange,
    /// Steps that are still to be climbed, the lowest last.
    steps: Vec<f64>,
    stage: Stage,
    /// Frequencies that are taken for good, the highest last.
    goods_hz: Vec<f64>,
    /// Frequencies that aren't, the lowest last.
    bads_hz: Vec<f64>,
    bisections: u32,
    revisions: u32,
    /// The frequency that is being tried.
    now_hz: Option<f64>,
    /// Its tries since it was taken up: a result is not confirmed by the tries that it comes from.
    fresh: Tally,
    /// Those in which the scope was blind.
    blinds: u32,
    /// All tries of each frequency.
    tallies: Vec<(f64, Tally)>,
    undecided_hz: Vec<f64>,
    points: Vec<Try>,
}

impl SearchRange {
    /// A search that is thorough, or quick.
    #[must_use]
    pub fn new(from_hz: f64, to_hz: f64, tolerance: f64, is_quick: bool) -> SearchRange {
        let (steps, bisections) = if is_quick { (2, 3) } else { (4, 5) };
        let looks_s = if is_quick { (0.1, 1.0) } else { (0.5, 2.0) };
        SearchRange { from_hz, to_hz, tolerance, steps, bisections, tries: 5, looks_s }
    }
}

impl SweepSearch {
    /// Begins at the lowest frequency.
    #[must_use]
    pub fn new(range: SearchRange) -> SweepSearch {
        let count =
            ((range.to_hz / range.from_hz).log10() * f64::from(range.steps)).ceil().max(0.0);
        let ratio = (range.to_hz / range.from_hz).powf(1.0 / count.max(1.0));
        let step = |n: u32| {
            round_to_three(range.from_hz * ratio.powi(n as i32)).clamp(range.from_hz, range.to_hz)
        };
        let mut steps: Vec<f64> = (0..=count as u32).rev().map(step).collect();
        steps.dedup();
        let now_hz = steps.pop();
        SweepSearch {
            range,
            steps,
            stage: Stage::Look,
            goods_hz: Vec::new(),
            bads_hz: Vec::new(),
            bisections: 0,
            revisions: 0,
            now_hz,
            fresh: Tally::default(),
            blinds: 0,
            tallies: Vec::new(),
            undecided_hz: Vec::new(),
            points: Vec::new(),
        }
    }

    /// The frequency to try next; none when the search is over.
    #[must_use]
    pub fn next_hz(&self) -> Option<f64> {
        self.now_hz
    }

    /// How long to look at a wave of [`SweepSearch::next_hz`]: fifty periods, so that one that is spoilt doesn't decide,
    /// but within bounds: of a fast wave a tenth of a second or more, so that ticks and other threads are in it.
    /// After a blind try, longer.
    #[must_use]
    pub fn look_ns(&self) -> u64 {
        let (least_s, most_s) = self.range.looks_s;
        let periods_s = 50.0 / self.now_hz.unwrap_or(self.range.to_hz);
        let look_ns = (periods_s.clamp(least_s, most_s) * 1e9) as u64;
        look_ns * u64::from(1 + self.blinds)
    }

    /// Takes a try of [`SweepSearch::next_hz`] into account.
    pub fn add_try(&mut self, point: Try) {
        let Some(now_hz) = self.now_hz else { return };
        let outcome = point.outcome;
        self.points.push(point);
        match self.tallies.iter_mut().find(|(hz, _)| *hz == now_hz) {
            Some((_, tally)) => tally.add(outcome),
            None => {
                let mut tally = Tally::default();
                tally.add(outcome);
                self.tallies.push((now_hz, tally));
            }
        }
        self.fresh.add(outcome);
        self.blinds += u32::from(outcome == TryOutcome::Blind);
        let majority = self.range.tries / 2 + 1;
        if self.fresh.goods.max(self.fresh.bads) >= majority {
            let is_good = self.fresh.goods >= majority;
            self.decide(now_hz, is_good);
            let next_hz = if self.revisions > REVISIONS_MAX { None } else { self.next() };
            self.take_up(next_hz);
        } else if self.blinds > BLIND_REPEATS {
            self.undecided_hz.push(now_hz);
            // Above the last good step the climb goes on; elsewhere nothing is left to be found.
            let is_climbing = self.stage == Stage::Look && self.bads_hz.is_empty();
            let next_hz = if is_climbing { self.steps.pop() } else { None };
            self.take_up(next_hz);
        }
    }

    /// Takes a frequency for good or bad. A result that did not repeat is taken back, and the search goes on from
    /// what is left.
    fn decide(&mut self, now_hz: f64, is_good: bool) {
        let (next, is_revised) = match (self.stage, is_good) {
            (Stage::Look, _) => (Stage::Look, false),
            (Stage::ConfirmBad, false) => (Stage::ConfirmGood, false),
            (Stage::ConfirmGood, true) => (Stage::Done, false),
            (Stage::ConfirmBad, true) => (Stage::Look, self.bads_hz.pop().is_some()),
            (Stage::ConfirmGood, false) => (Stage::Look, self.goods_hz.pop().is_some()),
            (Stage::Done, _) => (Stage::Done, false),
        };
        if self.stage == Stage::Look || is_revised {
            let list = if is_good { &mut self.goods_hz } else { &mut self.bads_hz };
            list.push(now_hz);
        }
        if is_revised {
            // What was halved is another distance now.
            self.bisections = 0;
            self.revisions += 1;
        }
        self.stage = next;
    }

    fn take_up(&mut self, hz: Option<f64>) {
        (self.fresh, self.blinds) = (Tally::default(), 0);
        self.now_hz = hz;
    }

    fn next(&mut self) -> Option<f64> {
        let Some(&bad_hz) = self.bads_hz.last() else { return self.steps.pop() };
        let good_hz = *self.goods_hz.last()?;
        match self.stage {
            Stage::ConfirmGood => return Some(good_hz),
            Stage::Done => return None,
            Stage::Look | Stage::ConfirmBad => {}
        }
        let middle_hz = round_to_three((good_hz * bad_hz).sqrt());
        let is_between = middle_hz > good_hz && middle_hz < bad_hz;
        if self.bisections < self.range.bisections && is_between {
            self.bisections += 1;
            return Some(middle_hz);
        }
        self.stage = Stage::ConfirmBad;
        Some(bad_hz)
    }

    /// What was found.
    #[must_use]
    pub fn found(self) -> FrequencyLimit {
        let agreed_bad_hz = self.agreed(false).reduce(f64::min);
        let is_below = |hz: &f64| agreed_bad_hz.is_none_or(|bad_hz| *hz < bad_hz);
        let good_hz = self.agreed(true).filter(is_below).reduce(f64::max);
        let is_above = |hz: &f64| good_hz.is_none_or(|good_hz| *hz > good_hz);
        let tried = self.tallies.iter().filter(|(_, tally)| tally.count() > 0).map(|(hz, _)| *hz);
        let bad_hz = tried.filter(is_above).reduce(f64::min);
        let no_limit = self.no_limit(good_hz, agreed_bad_hz);
        let mut points = self.points;
        points.sort_by(|a, b| a.wanted_hz.total_cmp(&b.wanted_hz));
        FrequencyLimit {
            max_frequency_hz: good_hz.filter(|_| no_limit.is_none()),
            first_bad_hz: bad_hz,
            no_limit,
            undecided_hz: self.undecided_hz,
            points,
        }
    }

    /// Frequencies that were tried to an end and of which the tries agree that they are good, or bad.
    fn agreed(&self, is_good: bool) -> impl Iterator<Item = f64> {
        let majority = self.range.tries / 2 + 1;
        let agree = move |tally: &Tally| tally.count() >= majority && tally.agrees(is_good);
        self.tallies.iter().filter(move |(_, tally)| agree(tally)).map(|(hz, _)| *hz)
    }

    /// Why the tries give no limit.
    fn no_limit(&self, good_hz: Option<f64>, agreed_bad_hz: Option<f64>) -> Option<String> {
        let is_open = |hz: f64| {
            good_hz.is_none_or(|good| hz >= good) && agreed_bad_hz.is_none_or(|bad| hz <= bad)
        };
        if let Some(hz) = self.undecided_hz.iter().find(|hz| is_open(**hz)) {
            return Some(format!("the scope was blind in every try at {}", hertz(*hz)));
        }
        let told = |(hz, tally): &(f64, Tally)| {
            format!("{} of {} at {}", tally.goods, tally.count(), hertz(*hz))
        };
        let mut tallies = self.tallies.clone();
        tallies.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(good_hz) = good_hz else {
            return Some(match tallies.iter().find(|(_, tally)| tally.count() > 0) {
                Some(lowest) => format!("only {}, the lowest frequency, were good", told(lowest)),
                None => "no try had a result".to_owned(),
            });
        };
        // Near the limit tries disagree; far from it they do not.
        let far_hz = good_hz * NEAR;
        let is_mixed = |(hz, tally): &&(f64, Tally)| {
            *hz > good_hz && is_open(*hz) && !tally.agrees(true) && !tally.agrees(false)
        };
        let mixed: Vec<String> = tallies.iter().filter(is_mixed).map(told).collect();
        let is_wide = agreed_bad_hz.is_none_or(|bad_hz| bad_hz > far_hz);
        (is_wide && !mixed.is_empty())
            .then(|| format!("the tries disagree: {} were good", mixed.join(", ")))
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrequencyLimit {
    /// Highest frequency that the tries agree is good; none when there is no limit.
    pub max_frequency_hz: Option<f64>,
    /// Lowest frequency that isn't; none when the highest was good. The true limit lies between the two.
    pub first_bad_hz: Option<f64>,
    /// Why there is no limit; none when there is one.
    pub no_limit: Option<String>,
    /// Frequencies at which the scope was blind in every try.
    pub undecided_hz: Vec<f64>,
    /// All tries, by wanted frequency.
    pub points: Vec<Try>,
}

/// Frequencies that people can read.
fn round_to_three(hz: f64) -> f64 {
    let unit = 10_f64.powf(hz.log10().floor() - 2.0);
    (hz / unit).round() * unit
}

/// What a sweep over several programs found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    pub from_hz: f64,
    pub to_hz: f64,
    /// Allowed deviation, as a share.
    pub tolerance: f64,
    /// One for each subject, policy and load.
    #[serde(rename = "subjects")]
    pub curves: Vec<Curve>,
    /// What is known of the run: name and value.
    pub facts: Vec<(String, String)>,
}

/// What one subject reached under one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// The subject.
    pub name: String,
    /// The load, or `none`.
    pub load: String,
    /// The policy it was started with.
    pub policy: String,
    #[serde(flatten)]
    pub found: FrequencyLimit,
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
    use crate::statistics::random::Random;

    const RANGE: SearchRange = SearchRange {
        from_hz: 50.0,
        to_hz: 1e6,
        tolerance: 0.1,
        steps: 3,
        bisections: 6,
        tries: 1,
        looks_s: (0.5, 2.0),
    };

    fn point(wanted_hz: f64, measured_hz: Option<f64>, outcome: TryOutcome) -> Try {
        Try {
            wanted_hz,
            measured_hz,
            uncertainty_ppm: None,
            within: outcome == TryOutcome::Within,
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
    fn search(
        range: SearchRange,
        limit_hz: f64,
        is_blind: impl Fn(f64, usize) -> bool,
    ) -> FrequencyLimit {
        let mut search = SweepSearch::new(range);
        while let Some(wanted_hz) = search.next_hz() {
            let measured_hz = wanted_hz.min(limit_hz);
            let is_near = (measured_hz / wanted_hz - 1.0).abs() <= range.tolerance;
            let outcome = match is_near {
                _ if is_blind(wanted_hz, search.points.len()) => TryOutcome::Blind,
                true => TryOutcome::Within,
                false => TryOutcome::Outside,
            };
            search.add_try(point(wanted_hz, Some(measured_hz), outcome));
            assert!(search.points.len() < 200);
        }
        search.found()
    }

    #[test]
    fn a_look_is_long_enough_for_fifty_periods_and_longer_after_a_blind_one() {
        let at = |from_hz| SweepSearch::new(SearchRange { from_hz, ..RANGE });
        let looks_ns = [10.0, 50.0, 1e4].map(|hz| at(hz).look_ns());
        assert_eq!(looks_ns, [2_000_000_000, 1_000_000_000, 500_000_000]);
        let mut search = at(50.0);
        let blind = Try { outcome: TryOutcome::Blind, ..Try::silent(50.0, String::new()) };
        search.add_try(blind);
        assert_eq!(search.look_ns(), 2_000_000_000);
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
    fn two_bisections_leave_a_quarter_of_a_step() {
        let found = search(SearchRange { bisections: 2, ..RANGE }, 8_000.0, |_, _| false);
        let (good, bad) = found.max_frequency_hz.zip(found.first_bad_hz).expect("a limit");
        // Three steps are a decade, so one is 2.15 times, and a quarter of it 1.21 times.
        assert!((1.15..1.28).contains(&(bad / good)), "{good} to {bad}");
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
        assert_eq!(
            bad.no_limit.as_deref(),
            Some("only 0 of 1 at 50.0 Hz, the lowest frequency, were good")
        );
    }

    #[test]
    fn most_of_the_tries_decide() {
        let mut search = SweepSearch::new(SearchRange { tries: 3, ..RANGE });
        for outcome in [TryOutcome::Outside, TryOutcome::Within] {
            search.add_try(point(50.0, None, outcome));
            assert_eq!(search.next_hz(), Some(50.0));
        }
        search.add_try(point(50.0, None, TryOutcome::Within));
        assert!(search.next_hz().expect("goes on") > 50.0);
        assert_eq!(search.goods_hz, [50.0]);
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
        assert_eq!(all.no_limit.as_deref(), Some("the scope was blind in every try at 50.0 Hz"));
        // Blind between the last good and the first bad one: that may be the limit.
        let gap = search(RANGE, 8_000.0, |hz, _| (5_000.0..20_000.0).contains(&hz));
        assert_eq!(gap.max_frequency_hz, None);
        let why = gap.no_limit.expect("no limit");
        assert!(why.starts_with("the scope was blind in every try at "), "{why}");
    }

    /// A program with a limit on a machine that spoils some tries and lets some others pass.
    fn noisy(seed: u64, spoilt: f64, lucky: f64) -> FrequencyLimit {
        let mut random = Random::new(seed);
        let mut search =
            SweepSearch::new(SearchRange { tries: 5, steps: 2, bisections: 3, ..RANGE });
        while let Some(wanted_hz) = search.next_hz() {
            let is_good = wanted_hz <= 30_000.0;
            let is_flipped = random.share() < if is_good { spoilt } else { lucky };
            let outcome =
                if is_good == is_flipped { TryOutcome::Outside } else { TryOutcome::Within };
            search.add_try(point(wanted_hz, None, outcome));
            assert!(search.points.len() < 200);
        }
        search.found()
    }

    #[test]
    fn spoilt_tries_do_not_move_the_limit() {
        let true_hz = noisy(0, 0.0, 0.0).max_frequency_hz.expect("without noise there is one");
        let (mut near, mut wrong) = (0, 0);
        for seed in 0..500 {
            match noisy(seed, 0.1, 0.03).max_frequency_hz {
                Some(hz) if (hz / true_hz - 1.0).abs() <= 0.2 => near += 1,
                Some(_) => wrong += 1,
                None => {}
            }
        }
        // With one try of each frequency, more than half of these sweeps are wrong.
        assert!(near >= 450 && wrong <= 25, "{near} near, {wrong} wrong");
    }

    #[test]
    fn tries_that_disagree_give_no_limit() {
        let found: Vec<FrequencyLimit> = (0..100).map(|seed| noisy(seed, 0.5, 0.5)).collect();
        let without = found.iter().filter(|one| one.max_frequency_hz.is_none()).count();
        let said = found.iter().filter_map(|one| one.no_limit.as_deref());
        assert!(said.clone().any(|why| why.starts_with("the tries disagree: ")));
        assert!(without > 30, "{without}");
    }
}
