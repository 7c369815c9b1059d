//! How the latency goes on beyond what was seen: indicative, and refused when the run doesn't back it.
//!
//! Two classical models are fitted to the latencies of all threads of a cell: the largest of each
//! block of time ([`extreme`]), and what exceeds a high threshold ([`pareto`]). Both stand on
//! assumptions that a run can break: that it was steady, that blocks (or late wake-ups) don't hang
//! together, that one law rules the tail. Each assumption is checked; a model whose check fails gives
//! no figure but the reason.
//!
//! What it can't show, whatever the checks say: what the run did not meet. A disturbance that never
//! came in the run is not in its tail.

mod blocks;
mod checks;
mod extreme;
mod goodness;
mod optimise;
mod pareto;

use rtscope_model::{
    histogram::{Histogram, Layout},
    slice::Slice,
    time::{Nanos, Rounding},
};
use serde::Serialize;

pub use self::checks::FitCheck;
use self::{blocks::Blocks, checks::DOUBT, extreme::Extreme, pareto::Pareto};
use super::{dependence, modes::Mode};

/// Shapes that are looked at: beyond them a distribution has no use here.
const SHAPE_SEARCHED: (f64, f64) = (-0.95, 1.5);

/// A tail whose shape may be above this is too heavy to be continued: its levels have no useful bound.
const SHAPE_TOO_HEAVY: f64 = 0.3;

/// Fewer blocks say nothing of order and nothing of a shape.
const BLOCKS_MIN: usize = 40;

/// As long as so many slices of a second are, some of which are cut a little shorter. In less time, more and
/// shorter slices don't show that a run was steady.
const SHORTEST_NS: u64 = BLOCKS_MIN as u64 * 900_000_000;

/// Fewer exceedances of a threshold have a shape anywhere between light and heavy.
const PEAKS_MIN: u64 = 50;

/// The most exceedances of a threshold, and their largest share of all latencies: lower thresholds
/// reach into the body of the distribution, whose shape is another. Intervals from 4,000 exceedances held
/// 78 to 92 %, from 400 they hold 95 % (`docs/method/tail.md`).
const PEAKS_MAX: (u64, f64) = (400, 0.01);

/// A tail that ends more abruptly than this has no likelihood that intervals can be taken from (R. L. Smith,
/// Biometrika 72, 1985).
const SHAPE_TOO_SHORT: f64 = -0.5;

/// Each threshold is exceeded by this share of what exceeds the one before.
const THRESHOLD_STEP: f64 = 0.6;

/// Standard errors between the shapes at two thresholds that show that the lower is too low.
const SHAPES_APART: f64 = 3.0;

/// The same maxima pass the checks and give the interval, which no likelihood allows for: from the
/// likelihood alone, intervals of 95 % held 86 to 96 %. Its logarithm must fall so many times further
/// (`docs/method/tail.md`). For peaks, the inflation of their dependence is enough.
const ALLOWANCE: f64 = 1.6;

/// A return level is given up to so many times the observed time.
const REACH: f64 = 100.0;

/// Times that return levels are given for.
const PERIODS_NS: [u64; 7] = [
    60_000_000_000,
    600_000_000_000,
    3_600_000_000_000,
    86_400_000_000_000,
    604_800_000_000_000,
    2_592_000_000_000_000,
    31_536_000_000_000_000,
];

/// Latencies of one bucket, relative to some origin: `low <= latency < high`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Interval {
    low: f64,
    high: f64,
    count: f64,
}

impl Interval {
    fn of_bucket(layout: Layout, index: u32, count: u64) -> Interval {
        let high = match layout.upper_ns(index) {
            u64::MAX => f64::INFINITY,
            upper_ns => upper_ns as f64 + 1.0,
        };
        Interval { low: layout.lower_ns(index) as f64, high, count: count as f64 }
    }
}

/// What can be said of the tail of a cell, all its threads together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tail {
    /// Blocks of time that the cell was divided into.
    pub blocks: usize,
    pub block_ns: u64,
    /// What was checked of the order; empty when there are too few blocks.
    pub checks: Vec<FitCheck>,
    pub maxima: TailEstimate,
    /// Peaks over a threshold.
    pub peaks: TailEstimate,
}

/// What a model gives: figures, or the reasons why it gives none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TailEstimate {
    /// The fit; none when it was refused.
    pub fit: Option<Fit>,
    /// Why there is no fit, a sentence each.
    pub refused: Vec<String>,
}

/// A fitted tail. Indicative.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Block maxima or peaks that it was fitted to.
    pub fitted_to: u64,
    /// Location of the maxima, or the threshold.
    pub location_ns: f64,
    pub scale_ns: f64,
    /// Shape: 0 falls off exponentially, below 0 ends, above 0 is heavy.
    pub shape: f64,
    /// Ends of its 95 % interval; none where it is not bounded.
    pub shape_low: Option<f64>,
    pub shape_high: Option<f64>,
    /// The chance of a worse agreement with the buckets if the fit were true; none when the buckets
    /// are too coarse to tell.
    pub goodness: Option<f64>,
    /// Latencies that are reached once in a time.
    pub levels: Vec<ReturnLevel>,
}

/// The latency that is reached once in a time, on any thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReturnLevel {
    /// The time, on the wall.
    pub period_ns: u64,
    pub level_ns: u64,
    /// Lower end of its 95 % interval; none where it is not bounded.
    pub low_ns: Option<u64>,
    pub high_ns: Option<u64>,
}

/// Looks at the tail of a cell: the slices of all its threads, the sum of their histograms, how they depend
/// on each other, its time on the wall, and the humps of the histogram. An imported cell may be one histogram
/// alone.
#[must_use]
pub fn estimate(
    slices: &[&Slice],
    histogram: &Histogram,
    wakeups: &dependence::Blocks,
    duration_ns: u64,
    modes: &[Mode],
    imported: bool,
) -> Tail {
    let blocks = Blocks::new(slices);
    let mut tail = Tail {
        blocks: blocks.maxima_ns.len(),
        block_ns: blocks.length_ns,
        checks: Vec::new(),
        maxima: TailEstimate::default(),
        peaks: TailEstimate::default(),
    };
    if let Some(why) = too_little(&blocks, histogram, imported) {
        tail.maxima.refused.push(why.clone());
        tail.peaks.refused.push(why);
        return tail;
    }
    tail.checks = checks::of_order(&blocks);
    let order: Vec<String> = failed(&tail.checks);
    let bursts = checks::bursts(&blocks, histogram);
    let mut single = order.clone();
    single.extend(failed(std::slice::from_ref(&bursts)));
    tail.checks.push(bursts);
    single.extend(lonely_hump(modes));
    tail.maxima = refuse_or(order, || maxima(&blocks, histogram.layout(), duration_ns));
    tail.peaks = refuse_or(single, || peaks(histogram, duration_ns, wakeups));
    tail
}

/// Why nothing of the order can be checked.
fn too_little(blocks: &Blocks, histogram: &Histogram, imported: bool) -> Option<String> {
    match blocks.slots_ns.len() {
        _ if histogram.count() == 0 => Some("no latency was recorded".to_owned()),
        1 if imported => Some(
            "a histogram doesn't keep the order of the latencies, so it can't show whether the run was \
             steady and whether late wake-ups came one by one"
                .to_owned(),
        ),
        n if n < BLOCKS_MIN => Some(format!(
            "the phase has {n} slice{plural}: a tail needs {BLOCKS_MIN} to check that the run was \
             steady",
            plural = if n == 1 { "" } else { "s" }
        )),
        n if blocks.slot_ns.saturating_mul(n as u64) < SHORTEST_NS => Some(format!(
            "the phase lasts {}: a tail needs {BLOCKS_MIN} s, with shorter slices too, to check that the run was \
             steady",
            Nanos(blocks.slot_ns.saturating_mul(n as u64))
        )),
        _ => None,
    }
}

fn failed(checks: &[FitCheck]) -> Vec<String> {
    checks.iter().filter(|check| !check.passed).map(|check| check.text.clone()).collect()
}

fn lonely_hump(modes: &[Mode]) -> Option<String> {
    let last = modes.last().filter(|mode| mode.rare && mode.count < PEAKS_MIN)?;
    Some(format!(
        "{} latencies form a separate mode near {}: they are too few to extrapolate, and the other \
         latencies say nothing about them",
        last.count,
        Nanos(last.peak_ns)
    ))
}

fn refuse_or(refused: Vec<String>, fit: impl FnOnce() -> Result<Fit, String>) -> TailEstimate {
    if !refused.is_empty() {
        return TailEstimate { fit: None, refused };
    }
    match fit() {
        Ok(fit) => TailEstimate { fit: Some(fit), refused },
        Err(why) => TailEstimate { fit: None, refused: vec![why] },
    }
}

/// Times from the observed one on, up to [`REACH`] times it: at most three.
fn periods(duration_ns: u64) -> impl Iterator<Item = u64> {
    let most_ns = duration_ns as f64 * REACH;
    PERIODS_NS
        .into_iter()
        .filter(move |&period_ns| period_ns >= duration_ns && period_ns as f64 <= most_ns)
        .take(3)
}

fn maxima(blocks: &Blocks, layout: Layout, duration_ns: u64) -> Result<Fit, String> {
    let maxima = blocks.intervals(layout);
    let coarse = "the maxima of the blocks lie in too few buckets to fit a shape";
    let fit = Extreme::fit(&maxima).filter(|_| maxima.len() > 4).ok_or(coarse)?;
    let goodness = fit.goodness(&maxima);
    agrees(goodness, "the maxima of the blocks")?;
    has_one_cause(&maxima, "the maxima of the blocks", |others, largest, count| {
        Some(Extreme::fit(others)?.chance_of_largest(largest, count))
    })?;
    let (shape_low, shape_high) = fit.shape_interval(&maxima);
    can_be_continued(fit.shape, shape_high, "the maxima of the blocks")?;
    let level = |period_ns: u64| {
        let m = period_ns as f64 / blocks.length_ns as f64;
        return_level(period_ns, fit.level(m), fit.level_interval(&maxima, m, ALLOWANCE))
    };
    Ok(Fit {
        fitted_to: blocks.maxima_ns.len() as u64,
        location_ns: fit.location,
        scale_ns: fit.scale,
        shape: fit.shape,
        shape_low,
        shape_high,
        goodness,
        levels: periods(duration_ns).map(level).collect(),
    })
}

/// A threshold and what exceeds it.
struct Threshold {
    threshold_ns: f64,
    peaks: u64,
    excess: Vec<Interval>,
    fit: Pareto,
}

impl Threshold {
    /// Standard error of the shape (R. L. Smith, Biometrika 72, 1985).
    fn variance(&self) -> f64 {
        (1.0 + self.fit.shape).powi(2) / self.peaks as f64
    }

    /// Whether the shape moves away at higher thresholds. Of nested samples the variance of the
    /// difference is the difference of the variances.
    fn is_stable(&self, higher: &[Threshold]) -> bool {
        higher.iter().all(|other| {
            let apart = (other.fit.shape - self.fit.shape).abs();
            apart <= SHAPES_APART * (other.variance() - self.variance()).max(1e-6).sqrt()
        })
    }
}

/// Thresholds at edges of buckets, from the lowest.
fn thresholds(histogram: &Histogram) -> Vec<Threshold> {
    let layout = histogram.layout();
    let bins = histogram.bins();
    let buckets: Vec<Interval> =
        bins.iter().map(|&(index, count)| Interval::of_bucket(layout, index, count)).collect();
    let most = ((histogram.count() as f64 * PEAKS_MAX.1) as u64).min(PEAKS_MAX.0);
    let mut wanted = most;
    let mut peaks: u64 = 0;
    let mut starts: Vec<(usize, u64)> = Vec::new();
    for (at, bin) in bins.iter().enumerate().rev() {
        peaks += bin.1;
        starts.push((at, peaks));
    }
    let mut found: Vec<Threshold> = Vec::new();
    for (at, peaks) in starts.into_iter().rev() {
        if peaks > wanted || peaks < PEAKS_MIN {
            continue;
        }
        wanted = (peaks as f64 * THRESHOLD_STEP) as u64;
        let threshold_ns = buckets[at].low;
        let moved = |b: &Interval| Interval {
            low: b.low - threshold_ns,
            high: b.high - threshold_ns,
            ..*b
        };
        let excess: Vec<Interval> = buckets[at..].iter().map(moved).collect();
        if let Some(fit) = Pareto::fit(&excess) {
            found.push(Threshold { threshold_ns, peaks, excess, fit });
        }
    }
    found
}

/// `wakeups` says how much the exceedances depend on each other: so many times less do they say.
fn peaks(
    histogram: &Histogram,
    duration_ns: u64,
    wakeups: &dependence::Blocks,
) -> Result<Fit, String> {
    let candidates = thresholds(histogram);
    if candidates.is_empty() {
        return Err(format!("no threshold is exceeded by {PEAKS_MIN} latencies or more"));
    }
    let good = |at: usize| {
        let goodness = candidates[at].fit.goodness(&candidates[at].excess);
        let fits = goodness.is_some_and(|chance| chance >= 0.05);
        fits && candidates[at].is_stable(&candidates[at + 1..])
    };
    let chosen = (0..candidates.len()).find(|&at| good(at)).ok_or_else(|| {
        format!(
            "no threshold gives a tail that agrees with the buckets and has the same shape at higher \
             thresholds ({} were tried)",
            candidates.len()
        )
    })?;
    let Threshold { threshold_ns, peaks, excess, fit } = &candidates[chosen];
    let dependence = wakeups.measured(*threshold_ns as u64).map_err(|why| why.to_string())?;
    let effect = dependence.inflation();
    has_one_cause(excess, "the peaks over the threshold", |others, largest, count| {
        Some(Pareto::fit(others)?.chance_of_largest(largest, count))
    })?;
    let (shape_low, shape_high) = fit.shape_interval(excess, effect);
    can_be_continued(fit.shape, shape_high, "the peaks over the threshold")?;
    let level = |period_ns: u64| {
        let m = *peaks as f64 * period_ns as f64 / duration_ns as f64;
        let (low, high) = fit.level_interval(excess, m, effect);
        let above = |x: f64| x + threshold_ns;
        return_level(period_ns, above(fit.level(m)), (low.map(above), high.map(above)))
    };
    Ok(Fit {
        fitted_to: *peaks,
        location_ns: *threshold_ns,
        scale_ns: fit.scale,
        shape: fit.shape,
        shape_low,
        shape_high,
        goodness: fit.goodness(excess),
        levels: periods(duration_ns).map(level).collect(),
    })
}

fn agrees(goodness: Option<f64>, what: &str) -> Result<(), String> {
    match goodness {
        Some(chance) if chance < DOUBT => Err(format!(
            "{what} do not follow the fitted distribution (chi-squared, p = {chance:.4})"
        )),
        Some(_) => Ok(()),
        None => Err(format!("{what} lie in too few buckets to check the fit")),
    }
}

/// Refuses when the largest value is far beyond what a fit to all others expects: it has another cause, of
/// which one value says too little. `chance` fits the others and gives the chance that the largest of all is
/// that large.
fn has_one_cause(
    values: &[Interval],
    what: &str,
    chance: impl Fn(&[Interval], f64, f64) -> Option<f64>,
) -> Result<(), String> {
    let Some((largest, below)) = values.split_last() else { return Ok(()) };
    let mut others = below.to_vec();
    if largest.count > 1.0 {
        others.push(Interval { count: largest.count - 1.0, ..*largest });
    }
    let count = values.iter().map(|bucket| bucket.count).sum();
    match chance(&others, largest.low, count) {
        Some(chance) if chance < DOUBT => Err(format!(
            "the largest of {what} is far beyond the others (p = {chance:.1e}): it has another cause, and one \
             latency says too little about it"
        )),
        _ => Ok(()),
    }
}

fn can_be_continued(shape: f64, shape_high: Option<f64>, what: &str) -> Result<(), String> {
    if shape < SHAPE_TOO_SHORT {
        return Err(format!(
            "{what} have a tail that ends too abruptly to continue: its shape is {shape:.2} (less \
             than {SHAPE_TOO_SHORT})"
        ));
    }
    match shape_high {
        Some(high) if high <= SHAPE_TOO_HEAVY => Ok(()),
        high => Err(format!(
            "{what} may have a tail too heavy to continue: its shape is {shape:.2}, at 95 % {} (more \
             than {SHAPE_TOO_HEAVY})",
            match high {
                Some(high) => format!("up to {:.2}", Rounding::Up.decimals(high, 2)),
                None => "without a bound".to_owned(),
            }
        )),
    }
}

fn return_level(period_ns: u64, level: f64, ends: (Option<f64>, Option<f64>)) -> ReturnLevel {
    let whole = |ns: f64, rounding: Rounding| rounding.whole(ns.max(0.0)) as u64;
    ReturnLevel {
        period_ns,
        level_ns: whole(level, Rounding::Nearest),
        low_ns: ends.0.map(|ns| whole(ns, Rounding::Down)),
        high_ns: ends.1.map(|ns| whole(ns, Rounding::Up)),
    }
}

/// What holds of every level that is given.
pub const INDICATIVE: &str = "Figures beyond the largest latency are indicative. They hold if the run was \
    steady and no other cause appears. No model covers what did not happen during the run.";

/// What a cell lacks that [`Tail::is_too_short`].
#[must_use]
pub fn takes_longer() -> String {
    format!(
        "Tail extrapolation needs at least {BLOCKS_MIN} slices per phase (a slice is 1 s by default)."
    )
}

impl Tail {
    /// Whether the order could not be looked at: too few slices, though more than one.
    #[must_use]
    pub fn is_too_short(&self) -> bool {
        self.checks.is_empty() && self.blocks > 1
    }

    /// Whether a level beyond the largest latency is given.
    #[must_use]
    pub fn has_levels(&self) -> bool {
        self.maxima.fit.is_some() || self.peaks.fit.is_some()
    }

    /// What the tail says in one or two sentences: the levels, or why there are none.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        if self.maxima.refused == self.peaks.refused && !self.maxima.refused.is_empty() {
            return vec![format!("no tail: {}", self.maxima.refused.join("; "))];
        }
        let of = |name: &str, estimate: &TailEstimate| match &estimate.fit {
            Some(fit) => fit.sentence(name),
            None => format!("{name}: refused, {}", estimate.refused.join("; ")),
        };
        vec![of("block maxima", &self.maxima), of("peaks over threshold", &self.peaks)]
    }
}

impl Fit {
    fn sentence(&self, name: &str) -> String {
        let end = |end: Option<u64>, rounding| {
            end.map_or_else(|| "no bound".to_owned(), |ns| Nanos(ns).rounded(rounding))
        };
        let level = |level: &ReturnLevel| {
            format!(
                "{} once in {} (95 %: {} to {})",
                Nanos(level.level_ns),
                Nanos(level.period_ns),
                end(level.low_ns, Rounding::Down),
                end(level.high_ns, Rounding::Up)
            )
        };
        let levels: Vec<String> = self.levels.iter().map(level).collect();
        format!("{name}, indicative: {}", levels.join(", "))
    }
}

#[cfg(test)]
mod tests;
