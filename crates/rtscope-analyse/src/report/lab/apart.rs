//! Which kernels a load tells apart.
//!
//! What one build of a kernel shows in one run depends on how its work, the loads' and the sampler's fall
//! together: a word on the kernel command line that changes nothing else moves a 99.9th percentile by half
//! of itself. The seeds of a run move it as such a word does. So a difference between two kernels counts only
//! against the spread over seeds: at least [`SEEDS`] of each, the logarithms of their 99.9th percentiles
//! compared by Welch's t, adjusted by Holm for all pairs and loads, and no seed of the better kernel as late as
//! one of the worse. Differences below [`RATIO`] are left to other builds to confirm. A 99.9th percentile of fewer
//! wake-ups than bound it is one of the largest of a few, and says nothing of the rest.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    LabComparison, Spread, entries_of, kernels, loads, spread, unbounded, wake_ups_needed,
};
use crate::{
    compare::{Chance, Values, adjust, difference},
    number::us,
};

/// Fewest seeds of each kernel with which kernels are told apart.
pub const SEEDS: usize = 5;

/// Least ratio of the medians: another build of the same kernel moves figures by less.
pub(super) const RATIO: f64 = 1.5;

/// Variance of the logarithm of a single figure, at least: in virtual time the figures of all seeds may be
/// equal, and a bucket of the histogram is up to 3 % wide.
const VARIANCE_MIN: f64 = 1e-4;

/// Two kernels under a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelPair {
    pub load: String,
    /// The kernel with the smaller median over the seeds.
    pub better: String,
    pub worse: String,
    /// Medians over the seeds of the 99.9th percentile.
    pub better_ns: u64,
    pub worse_ns: u64,
    /// The worse median divided by the better one.
    pub ratio: f64,
    /// Chance of such a difference between equal kernels, alone and adjusted for all that was looked at; none
    /// with fewer than two seeds.
    #[serde(flatten)]
    pub chance: Option<Chance>,
    /// Whether the load tells the two apart.
    pub apart: bool,
}

struct Side<'a> {
    kernel: &'a str,
    spread: Spread,
    logs: Vec<f64>,
    /// Wake-ups of all seeds.
    recorded: u64,
}

/// All pairs of kernels under all loads, the largest ratio first.
#[must_use]
pub fn pairs(all: &LabComparison) -> Vec<KernelPair> {
    let mut found: Vec<(KernelPair, bool)> = Vec::new();
    for load in loads(all) {
        let mut sides: Vec<Side<'_>> = kernels(all).filter_map(|k| side(all, k, load)).collect();
        sides.sort_by_key(|side| side.spread.median_ns);
        for (at, better) in sides.iter().enumerate() {
            found.extend(sides[at + 1..].iter().map(|worse| pair(load, better, worse)));
        }
    }
    adjust(found.iter_mut().filter_map(|(pair, _)| pair.chance.as_mut()).collect());
    let judged = found.into_iter().map(|(pair, is_clear)| KernelPair {
        apart: is_clear && pair.chance.is_some_and(Chance::is_different),
        ..pair
    });
    let mut pairs: Vec<KernelPair> = judged.collect();
    pairs.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    pairs
}

fn side<'a>(all: &'a LabComparison, kernel: usize, load: &str) -> Option<Side<'a>> {
    let entries = entries_of(all, kernel, Some(load));
    let spread = spread(&entries, |entry| entry.p99_9_ns)?;
    let logs = entries.iter().map(|entry| (entry.p99_9_ns.max(1) as f64).ln()).collect();
    let recorded = entries.iter().map(|entry| entry.recorded).sum();
    Some(Side { kernel: &all.kernels[kernel], spread, logs, recorded })
}

/// A pair, and whether it is clear enough to be told apart if chance allows.
fn pair(load: &str, better: &Side<'_>, worse: &Side<'_>) -> (KernelPair, bool) {
    let fewest = better.logs.len().min(worse.logs.len());
    let ratio = worse.spread.median_ns as f64 / better.spread.median_ns.max(1) as f64;
    let values = |side: &Side<'_>| Values::new(&side.logs, VARIANCE_MIN);
    let chance = (fewest > 1).then(|| difference(values(better), values(worse)).chance);
    let is_bounded = better.recorded.min(worse.recorded) >= wake_ups_needed();
    let is_clear = fewest >= SEEDS
        && is_bounded
        && ratio >= RATIO
        && worse.spread.low_ns > better.spread.high_ns;
    let pair = KernelPair {
        load: load.to_owned(),
        better: better.kernel.to_owned(),
        worse: worse.kernel.to_owned(),
        better_ns: better.spread.median_ns,
        worse_ns: worse.spread.median_ns,
        ratio,
        chance,
        apart: false,
    };
    (pair, is_clear)
}

impl KernelPair {
    /// The ratio as it is shown everywhere.
    #[must_use]
    pub fn times(&self) -> String {
        match self.ratio {
            ratio if ratio < 10.0 => format!("{ratio:.1}"),
            ratio => format!("{ratio:.0}"),
        }
    }

    pub(super) fn better_us(&self) -> String {
        us(self.better_ns)
    }

    pub(super) fn worse_us(&self) -> String {
        us(self.worse_ns)
    }

    /// The adjusted chance in words; a dash where one run has no spread.
    #[must_use]
    pub fn chance_text(&self) -> String {
        match self.chance.map(|chance| chance.p_adjusted) {
            None => "-".to_owned(),
            Some(p) if p < 0.001 => "below 0.1 %".to_owned(),
            Some(p) => format!("{:.1} %", 100.0 * p),
        }
    }

    /// What a headline says of it.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!(
            "under {}, 99.9 % of wake-ups within {} us in {} and within {} us in {}: {} times",
            self.load,
            us(self.better_ns),
            self.better,
            us(self.worse_ns),
            self.worse,
            self.times()
        )
    }
}

/// The pairs that are told apart, for a terminal: a line each. Nothing with too few seeds, of which the
/// headline speaks.
#[must_use]
pub fn text(all: &LabComparison) -> String {
    let (apart, others): (Vec<KernelPair>, Vec<KernelPair>) =
        pairs(all).into_iter().partition(|one| one.apart);
    if all.seeds < SEEDS || apart.len() + others.len() == 0 {
        return String::new();
    }
    let mut text =
        "\nDifferent kernels, by the median of the 99.9th percentiles of all seeds in us\n"
            .to_owned();
    for one in &apart {
        let (better, worse) = (one.better_us(), one.worse_us());
        let _ = writeln!(
            text,
            "  {}: {} {better}, {} {worse}: {} times, chance {}",
            one.load,
            one.better,
            one.worse,
            one.times(),
            one.chance_text()
        );
    }
    let are = if others.len() == 1 { "pair is" } else { "pairs are" };
    let more = if apart.is_empty() { "" } else { "other " };
    let _ = writeln!(text, "  {} {more}{are} not separated", others.len());
    text
}

/// Why a comparison separates no kernels, in words.
#[must_use]
pub fn why_none(all: &LabComparison) -> String {
    match all.seeds {
        1 => format!("one seed can't separate kernels: try --seeds {SEEDS}"),
        seeds if seeds < SEEDS => {
            format!("{seeds} seeds can't separate kernels: try --seeds {SEEDS}")
        }
        _ if unbounded(all).is_some() => {
            "so few wake-ups can't separate kernels: make the phases longer".to_owned()
        }
        _ => "no load separates the kernels".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::comparison_of, *};

    /// Two kernels under one load, with the 99.9th percentiles of their seeds in us.
    fn one(better: &[u64], worse: &[u64]) -> KernelPair {
        let all = comparison_of(&[("disk", &[better, worse])]);
        pairs(&all).remove(0)
    }

    #[test]
    fn five_seeds_that_agree_tell_two_kernels_apart() {
        let pair = one(&[22, 21, 22, 24, 22], &[461, 480, 450, 470, 455]);
        assert!(pair.apart, "{pair:?}");
        assert_eq!(
            (pair.better_ns, pair.worse_ns, pair.times()),
            (22_000, 461_000, "21".to_owned())
        );
        assert!(!one(&[22, 21, 22, 24], &[461, 480, 450, 470]).apart, "four are too few");
        assert!(!one(&[22], &[461]).apart, "one has no spread");
    }

    #[test]
    fn the_terminal_names_each_pair_that_is_told_apart_and_counts_the_others() {
        let (low, high): (&[u64], &[u64]) = (&[20, 21, 20, 22, 20], &[460, 470, 450, 455, 465]);
        let all = comparison_of(&[("rest", &[low, low]), ("disk", &[low, high])]);
        let said = text(&all);
        assert!(
            said.contains("\n  disk: a 20.0, b 460.0: 23 times, chance below 0.1 %\n"),
            "{said}"
        );
        assert!(said.ends_with("  1 other pair is not separated\n"), "{said}");
        assert_eq!(text(&comparison_of(&[("disk", &[&[20], &[460]])])), "", "one seed");
    }

    #[test]
    fn a_percentile_of_a_few_wake_ups_tells_no_kernels_apart() {
        let (low, high): (&[u64], &[u64]) = (&[20, 21, 20, 22, 20], &[67, 70, 68, 69, 66]);
        let mut all = comparison_of(&[("disk", &[low, high])]);
        assert!(pairs(&all)[0].apart);
        // 5 seeds of 30 wake-ups: of so few the 99.9th percentile is the largest.
        all.entries.iter_mut().for_each(|entry| entry.recorded = 30);
        assert!(!pairs(&all)[0].apart);
        let said = super::super::headline(&all);
        assert!(
            said.ends_with("times; so few wake-ups can't separate kernels: make the phases longer"),
            "{said}"
        );
        // 3,688 are needed over all seeds, as for an interval of one run.
        for (recorded, apart) in [(737, false), (738, true)] {
            all.entries.iter_mut().for_each(|entry| entry.recorded = recorded);
            assert_eq!(pairs(&all)[0].apart, apart, "{recorded}");
        }
    }

    #[test]
    fn what_an_inert_word_can_do_is_no_difference() {
        // 99.9th percentiles of one kernel under disk with words that it ignores: 336 to 570 us.
        assert!(!one(&[359, 344, 336, 420, 547], &[547, 570, 401, 359, 388]).apart);
        // Higher throughout, and less than another build may do.
        assert!(!one(&[300, 301, 302, 300, 301], &[400, 401, 402, 400, 401]).apart);
    }

    #[test]
    fn kernels_that_are_equal_are_called_different_in_few_of_many_comparisons() {
        // 8 loads and 4 kernels that differ by chance alone, by up to 1.8 times.
        let mut random = crate::statistics::random::Random::new(1);
        let mut different = 0;
        for _ in 0..100 {
            let mut seeds = || -> Vec<u64> {
                (0..5).map(|_| (300.0 * (0.6 * random.share()).exp()) as u64).collect()
            };
            let loads: Vec<Vec<Vec<u64>>> =
                (0..8).map(|_| (0..4).map(|_| seeds()).collect()).collect();
            let names: Vec<String> = (0..8).map(|n| n.to_string()).collect();
            let sides: Vec<Vec<&[u64]>> =
                loads.iter().map(|load| load.iter().map(Vec::as_slice).collect()).collect();
            let rows: Vec<(&str, &[&[u64]])> =
                names.iter().map(String::as_str).zip(sides.iter().map(Vec::as_slice)).collect();
            different += usize::from(pairs(&comparison_of(&rows)).iter().any(|pair| pair.apart));
        }
        assert!(different <= 5, "{different} of 100");
    }
}
