//! Humps of a histogram: where latencies gather, and how many do.
//!
//! A wake-up takes one of several ways through the kernel, and each way leaves a hump: an idle CPU
//! wakes differently from a busy one, a device's interrupt comes in between, once in a while a
//! management interrupt. A second hump means a second cause.
//!
//! The buckets are gathered into classes at most [`CLASS_SHARE`] of their latency wide, or of one bucket. A hump counts
//! when what lies between it and a larger neighbour is too thin to be chance: of the latencies in the hump's densest class
//! and in the valley, so many in the class would come about with a chance of less than
//! [`CHANCE`] (a binomial test), and the valley is at most [`DEPTH`] as dense as the top.
//!
//! What it can't show: humps closer to each other than a class or two, and humps that lie on the
//! slope of a larger one without a valley between.

use rtscope_model::{
    histogram::{Histogram, Layout},
    time::Nanos,
};
use serde::Serialize;
use statrs::distribution::{Beta, ContinuousCDF};

use crate::number::grouped;

/// Largest width of a class of several buckets, as a share of its latency.
const CLASS_SHARE: f64 = 0.08;

/// A hump that is this likely to be chance is none.
const CHANCE: f64 = 1e-5;

/// A valley is at most so dense in relation to the lower of the humps beside it.
const DEPTH: f64 = 0.7;

/// A hump that holds less than this share of all latencies is rare.
const RARE: f64 = 1e-3;

/// A hump of a histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mode {
    /// Middle of its densest class.
    pub peak_ns: u64,
    /// Where it begins: the valley before it, or the smallest latency.
    pub from_ns: u64,
    /// Where it ends.
    pub to_ns: u64,
    /// Latencies from its beginning to its end.
    pub count: u64,
    pub share: f64,
    /// Whether it holds less than one in a thousand: a rare cause of its own, often of the largest
    /// latencies.
    pub rare: bool,
}

/// Buckets that are looked at together.
#[derive(Clone, Copy, Debug)]
struct Class {
    low_ns: f64,
    high_ns: f64,
    count: f64,
}

impl Class {
    fn width(&self) -> f64 {
        self.high_ns - self.low_ns
    }

    fn density(&self) -> f64 {
        self.count / self.width()
    }
}

/// The humps of a histogram in ascending order; empty when it is.
#[must_use]
pub fn find(histogram: &Histogram) -> Vec<Mode> {
    let classes = classes(histogram);
    let mut tops: Vec<usize> = local_maxima(&classes);
    while let Some(least) = least_significant(&classes, &tops) {
        tops.remove(least);
    }
    let total = histogram.count() as f64;
    let borders: Vec<usize> = tops.windows(2).map(|two| valley(&classes, two[0], two[1])).collect();
    let starts = [0].into_iter().chain(borders.iter().copied());
    let ends = borders.iter().copied().chain([classes.len()]);
    tops.iter()
        .zip(starts.zip(ends))
        .map(|(&top, (start, end))| {
            let members: Vec<&Class> =
                classes[start..end].iter().filter(|c| c.count > 0.0).collect();
            let count: f64 = members.iter().map(|class| class.count).sum();
            let middle = f64::midpoint(classes[top].low_ns, classes[top].high_ns);
            let within = |ns: f64| {
                (ns as u64).clamp(histogram.min_ns().unwrap_or(0), histogram.max_ns().unwrap_or(0))
            };
            Mode {
                peak_ns: within(middle),
                from_ns: within(members.first().map_or(0.0, |class| class.low_ns)),
                to_ns: within(members.last().map_or(0.0, |class| class.high_ns - 1.0)),
                count: count as u64,
                share: count / total,
                rare: count / total < RARE,
            }
        })
        .collect()
}

/// The classes from the smallest to the largest latency, empty ones included.
fn classes(histogram: &Histogram) -> Vec<Class> {
    let layout = histogram.layout();
    let bins = histogram.bins();
    let (Some(first), Some(last)) = (bins.first(), bins.last()) else { return Vec::new() };
    let mut classes: Vec<Class> = Vec::new();
    let mut at = 0;
    let mut index = first.0;
    while index <= last.0 {
        let low_ns = layout.lower_ns(index) as f64;
        let end = end_of_class(layout, index, low_ns);
        let held = bins[at..].iter().take_while(|bin| bin.0 < end);
        let (bins_held, count) = held.fold((0, 0), |sum, bin| (sum.0 + 1, sum.1 + bin.1));
        at += bins_held;
        classes.push(Class { low_ns, high_ns: upper_edge(layout, end - 1), count: count as f64 });
        index = end;
    }
    classes
}

/// The first bucket after a class that begins at a bucket.
fn end_of_class(layout: Layout, index: u32, low_ns: f64) -> u32 {
    let reach_ns = (low_ns * (1.0 + CLASS_SHARE)) as u64;
    // The bucket that holds the end belongs to the class only as a whole.
    layout.index(reach_ns).max(index + 1).min(layout.buckets())
}

fn upper_edge(layout: Layout, index: u32) -> f64 {
    match layout.upper_ns(index) {
        u64::MAX => layout.lower_ns(index) as f64 * 2.0,
        upper_ns => upper_ns as f64 + 1.0,
    }
}

/// Classes denser than those beside them; of a plateau the first.
fn local_maxima(classes: &[Class]) -> Vec<usize> {
    let density = |at: usize| classes[at].density();
    let rises = |at: usize| at == 0 || density(at) > density(at - 1);
    let falls = |at: usize| {
        let next = (at + 1..classes.len()).find(|&next| density(next) != density(at));
        next.is_none_or(|next| density(next) < density(at))
    };
    (0..classes.len()).filter(|&at| classes[at].count > 0.0 && rises(at) && falls(at)).collect()
}

/// The least dense class between two, the middle of a plateau.
fn valley(classes: &[Class], from: usize, to: usize) -> usize {
    let between = from + 1..to;
    let least = between.clone().map(|at| classes[at].density()).fold(f64::INFINITY, f64::min);
    let lowest: Vec<usize> = between.filter(|&at| classes[at].density() <= least).collect();
    lowest.get(lowest.len() / 2).copied().unwrap_or(to)
}

/// The top that is most likely chance beside its larger neighbour; none when every one is significant.
fn least_significant(classes: &[Class], tops: &[usize]) -> Option<usize> {
    let chances = tops.windows(2).enumerate().map(|(pair, two)| {
        let lower = usize::from(classes[two[1]].density() < classes[two[0]].density());
        (chance(classes, two[lower], two[1 - lower]), pair + lower)
    });
    chances.filter(|found| found.0 > CHANCE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|found| found.1)
}

/// The chance that a top and what lies towards a larger neighbour are of one density.
fn chance(classes: &[Class], top: usize, neighbour: usize) -> f64 {
    let (from, to) = (top.min(neighbour), top.max(neighbour));
    let density = classes[top].density();
    let dips = |class: &&Class| class.density() < density * DEPTH;
    let thin: Vec<&Class> = classes[from + 1..to].iter().filter(dips).collect();
    let width: f64 = thin.iter().map(|class| class.width()).sum();
    if width == 0.0 {
        return 1.0;
    }
    let seen: f64 = thin.iter().map(|class| class.count).sum();
    // Of all in the top and the valley, so many in the top or more: a binomial tail, which is a beta
    // distribution's.
    let share = classes[top].width() / (classes[top].width() + width);
    match Beta::new(classes[top].count, seen + 1.0) {
        Ok(beta) => beta.cdf(share),
        Err(_) => 1.0,
    }
}

/// The humps in words: `2 modes: 6 us (99.8 %) and 38 us (0.2 %)`.
#[must_use]
pub fn sentence(modes: &[Mode]) -> String {
    let place = |mode: &Mode| {
        let at = Nanos(mode.peak_ns);
        match mode.rare {
            true => format!("{at} (rare, {} of them)", grouped(mode.count)),
            false if modes.len() == 1 => at.to_string(),
            false => format!("{at} ({:.2} %)", mode.share * 100.0),
        }
    };
    let places: Vec<String> = modes.iter().map(place).collect();
    match places.as_slice() {
        [] => "no mode: no latency is in a bucket".to_owned(),
        [one] => format!("one mode: {one}"),
        [first @ .., last] => format!("{} modes: {} and {last}", places.len(), first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random::Random;

    fn histogram(values_ns: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new(Layout::default());
        values_ns.into_iter().for_each(|ns| histogram.record(ns));
        histogram
    }

    /// About normal: the sum of twelve uniform numbers.
    fn bell(random: &mut Random, at_ns: f64, width_ns: f64) -> u64 {
        let sum: f64 = (0..12).map(|_| random.share()).sum::<f64>() - 6.0;
        (at_ns + width_ns * sum).max(0.0) as u64
    }

    #[test]
    fn classes_follow_each_other_and_hold_all() {
        let values = (0..4_000).map(|n| 1_000 + n * n % 700_000);
        let histogram = histogram(values);
        let classes = classes(&histogram);
        assert!(classes.windows(2).all(|pair| pair[0].high_ns == pair[1].low_ns), "{classes:?}");
        assert_eq!(classes.iter().map(|class| class.count).sum::<f64>(), 4_000.0);
    }

    #[test]
    fn two_humps_are_found_where_they_are() {
        let mut random = Random::new(5);
        let values: Vec<u64> = (0..100_000)
            .map(|i| {
                if i % 50 == 0 { bell(&mut random, 38e3, 3e3) } else { bell(&mut random, 6e3, 1e3) }
            })
            .collect();
        let modes = find(&histogram(values));
        let found: Vec<u64> = modes.iter().map(|mode| mode.peak_ns / 1_000).collect();
        assert_eq!(modes.len(), 2, "{modes:?}");
        assert!((5..=7).contains(&found[0]) && (36..=40).contains(&found[1]), "{found:?}");
        assert!((modes[1].share - 0.02).abs() < 0.001 && !modes[1].rare, "{modes:?}");
        assert_eq!(modes.iter().map(|mode| mode.count).sum::<u64>(), 100_000);
        assert!(sentence(&modes).starts_with("2 modes: "), "{}", sentence(&modes));
    }

    #[test]
    fn one_hump_with_a_long_tail_stays_one() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let heavy = |random: &mut Random| 4e3 + 3e3 * (random.share().powf(-0.3) - 1.0);
            let light = |random: &mut Random| 4e3 + 5e3 * random.exponential();
            for tail in [heavy as fn(&mut Random) -> f64, light] {
                let modes = find(&histogram((0..20_000).map(|_| tail(&mut random) as u64)));
                assert_eq!(modes.len(), 1, "seed {seed}: {modes:?}");
            }
        }
    }

    #[test]
    fn a_few_late_ones_together_are_a_rare_hump() {
        let mut random = Random::new(8);
        let body = (0..200_000).map(|_| bell(&mut random, 8e3, 1.5e3)).collect::<Vec<_>>();
        let modes =
            find(&histogram(body.iter().copied().chain((0..8).map(|i| 300_000 + i * 1_000))));
        assert_eq!(modes.len(), 2, "{modes:?}");
        assert!(modes[1].rare && modes[1].count == 8, "{modes:?}");
        // A single one is not a hump.
        assert_eq!(find(&histogram(body.into_iter().chain([300_000]))).len(), 1);
    }

    #[test]
    fn nothing_and_one_value() {
        assert!(find(&histogram([])).is_empty());
        let one = find(&histogram([5_500]));
        assert_eq!((one.len(), one[0].peak_ns, one[0].count), (1, 5_500, 1));
    }

    #[test]
    fn classes_are_the_buckets_where_these_are_wide_and_the_last_has_no_end() {
        let counts: Vec<f64> =
            classes(&histogram([5_000, 6_000, 6_000])).iter().map(|class| class.count).collect();
        assert_eq!(counts, [1.0, 2.0]);
        let layout = Layout::default();
        let last = layout.buckets() - 1;
        assert_eq!(upper_edge(layout, last), layout.lower_ns(last) as f64 * 2.0);
    }

    #[test]
    fn tops_and_valleys_are_where_the_density_says() {
        let of = |counts: &[f64]| -> Vec<Class> {
            let class = |(low, &count): (u32, &f64)| Class {
                low_ns: f64::from(low),
                high_ns: f64::from(low + 1),
                count,
            };
            (0..).zip(counts).map(class).collect()
        };
        assert_eq!(local_maxima(&of(&[1.0, 3.0, 2.0, 1.0, 4.0])), [1, 4]);
        assert_eq!(valley(&of(&[5.0, 1.0, 1.0, 1.0, 1.0, 5.0]), 0, 5), 3);
    }
}
