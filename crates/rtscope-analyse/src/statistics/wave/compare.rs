//! Two captures of the same wave by different eyes, edge by edge: a software scope beside an instrument.
//!
//! Their clocks have different zeros and run at slightly different rates, and either may have missed edges.
//! First the shift is found at which most of the first rising edges meet (and, of several, the one at which
//! they meet best); then both are walked side by side with a clock that follows the edges that met. An edge
//! that has no partner within a quarter of a period is missing in the other capture. A line of least squares
//! through the pairs is the offset and the drift; what is left of each pair is jitter of one or the other.
//!
//! What it can't show: a shift by whole periods of a wave that is so even that no shift is better than the
//! next. It is marked as not certain then.

use rtscope_model::wave::Capture;
use serde::Serialize;

use super::{Wave, admitted, judge};

/// Edges that the shift is looked for with.
const HEAD: usize = 400;

/// Shifts that are tried to either side, in edges.
const SHIFTS: usize = 200;

/// How far apart two edges of a pair may be, in periods.
const APART: f64 = 0.25;

/// How much of the difference of clocks is taken over from each pair.
const FOLLOW: f64 = 0.1;

/// The best shift is certain when the next one is worse by this factor (of its squared differences).
const CERTAIN: f64 = 1.5;

/// Squared differences below this (in ns^2) are none.
const NOTHING: f64 = 1.0;

/// Two captures side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alignment {
    /// Rising edges in both.
    pub pairs: u64,
    /// The second's time minus the first's at the first pair.
    pub offset_ns: f64,
    /// How much faster the second's clock counts.
    pub drift_ppm: f64,
    /// Whether no other shift by whole periods fits as well.
    pub is_certain: bool,
    /// Rising edges of the second that the first lacks, within the time that both looked.
    pub missing_in_first: u64,
    /// Of those, the ones in gaps of the first.
    pub missing_in_gaps_of_first: u64,
    /// Rising edges of the first that the second lacks.
    pub missing_in_second: u64,
    /// Of those, the ones in gaps of the second.
    pub missing_in_gaps_of_second: u64,
    /// What is left of the differences when offset and drift are taken away: root mean square.
    pub residual_ns_rms: f64,
    /// Largest of them.
    pub residual_ns_max: f64,
    /// The differences: seconds in the first capture, and what is left in nanoseconds.
    #[serde(skip)]
    pub residuals: Vec<(f64, f64)>,
}

/// Why two captures can't be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Apart {
    #[error("the {which} capture has {edges} rising edges: at least 3 are needed")]
    TooFew {
        /// `first` or `second`.
        which: &'static str,
        edges: usize,
    },
    #[error("no shift aligns their edges: are they captures of the same wave?")]
    NoShift,
}

/// Both captures, judged and side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The first by itself.
    pub first: Wave,
    /// The second by itself.
    pub second: Wave,
    /// The two together.
    pub alignment: Alignment,
}

/// Compares two captures.
///
/// # Errors
///
/// When one has no wave, or their edges don't meet.
pub fn compare(
    first: &Capture,
    second: &Capture,
    wanted_hz: Option<f64>,
) -> Result<Compared, Apart> {
    let alignment = align(first, second)?;
    let (first, second) = (judge(first, wanted_hz), judge(second, wanted_hz));
    Ok(Compared { first, second, alignment })
}

/// Rising edges from the start of the capture.
fn rises(capture: &Capture) -> Vec<f64> {
    let rising = admitted(capture).edges.into_iter().filter(|edge| edge.rises());
    rising.map(|edge| edge.at_ns() as f64 - capture.start_ns as f64).collect()
}

fn align(first: &Capture, second: &Capture) -> Result<Alignment, Apart> {
    let (a, b) = (rises(first), rises(second));
    for (which, edges) in [("first", a.len()), ("second", b.len())] {
        if edges < 3 {
            return Err(Apart::TooFew { which, edges });
        }
    }
    let period = median_step(&a).max(1.0);
    let (shift, is_certain) = shift(&a, &b, period).ok_or(Apart::NoShift)?;
    let walked = walk(&a, &b, shift, period);
    if walked.pairs.len() < 3 {
        return Err(Apart::NoShift);
    }
    let (at_0, slope) = line(&walked.pairs);
    let left = |&(at, difference): &(f64, f64)| (at / 1e9, difference - at_0 - slope * at);
    let residuals: Vec<(f64, f64)> = walked.pairs.iter().map(left).collect();
    let squares: f64 = residuals.iter().map(|(_, ns)| ns * ns).sum();
    let base = second.start_ns as f64 - first.start_ns as f64;
    let blind = |capture: &Capture, times: &[f64]| {
        let is_blind = |at: f64| {
            let at = at + capture.start_ns as f64;
            capture.gaps.iter().any(|gap| {
                gap.start_ns as f64 - period / 4.0 <= at && at <= gap.end_ns as f64 + period / 4.0
            })
        };
        times.iter().filter(|at| is_blind(**at)).count() as u64
    };
    Ok(Alignment {
        pairs: walked.pairs.len() as u64,
        offset_ns: base + at_0 + slope * walked.pairs[0].0,
        drift_ppm: slope * 1e6,
        is_certain,
        missing_in_first: walked.only_b.len() as u64,
        missing_in_gaps_of_first: blind(first, &walked.only_b),
        missing_in_second: walked.only_a.len() as u64,
        missing_in_gaps_of_second: blind(second, &walked.only_a),
        residual_ns_rms: (squares / residuals.len() as f64).sqrt(),
        residual_ns_max: residuals.iter().map(|(_, ns)| ns.abs()).fold(0.0, f64::max),
        residuals,
    })
}

fn median_step(at: &[f64]) -> f64 {
    let mut steps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable_by(f64::total_cmp);
    steps[(steps.len() - 1) / 2]
}

/// The shift from the first to the second at which their heads meet best, and whether the next best is
/// clearly worse.
fn shift(a: &[f64], b: &[f64], period: f64) -> Option<(f64, bool)> {
    let forward = (0..b.len().min(SHIFTS)).map(|n| b[n] - a[0]);
    let backward = (1..a.len().min(SHIFTS)).map(|n| b[0] - a[n]);
    let mut tried: Vec<(usize, f64, f64)> = forward
        .chain(backward)
        .map(|shift| {
            let walked =
                walk(&a[..a.len().min(HEAD)], &b[..b.len().min(HEAD + SHIFTS)], shift, period);
            let pairs = walked.pairs.len();
            (pairs, spread(&walked.pairs), shift)
        })
        .filter(|(pairs, ..)| *pairs >= 3)
        .collect();
    let most = tried.iter().map(|one| one.0).max()?;
    // A shift by some periods loses some pairs at the ends: that alone makes none worse.
    tried.retain(|(pairs, ..)| *pairs * 2 > most);
    tried.sort_unstable_by(|x, y| x.1.total_cmp(&y.1).then(x.2.abs().total_cmp(&y.2.abs())));
    let best = tried[0];
    let next = tried.iter().find(|one| (one.2 - best.2).abs() > period / 2.0);
    let is_certain = next.is_none_or(|next| next.1 > best.1 * CERTAIN + NOTHING);
    if !is_certain {
        // Of shifts that are as good as each other the one with most pairs, then the smallest.
        let limit = best.1 * CERTAIN + NOTHING;
        let equal = tried.iter().filter(|one| one.1 <= limit);
        let by = |x: &&(usize, f64, f64), y: &&(usize, f64, f64)| {
            x.0.cmp(&y.0).then(y.2.abs().total_cmp(&x.2.abs()))
        };
        return equal.max_by(by).map(|one| (one.2, false));
    }
    Some((best.2, true))
}

/// Mean squared distance from the line through some pairs.
fn spread(pairs: &[(f64, f64)]) -> f64 {
    if pairs.len() < 3 {
        return f64::INFINITY;
    }
    let (at_0, slope) = line(pairs);
    let squares: f64 = pairs.iter().map(|(at, y)| (y - at_0 - slope * at).powi(2)).sum();
    squares / pairs.len() as f64
}

/// Value at 0 and slope of the least-squares line, in centred sums.
fn line(pairs: &[(f64, f64)]) -> (f64, f64) {
    let n = pairs.len() as f64;
    let at_mean = pairs.iter().map(|pair| pair.0).sum::<f64>() / n;
    let mean = pairs.iter().map(|pair| pair.1).sum::<f64>() / n;
    let with: f64 = pairs.iter().map(|(at, y)| (at - at_mean) * (y - mean)).sum();
    let own: f64 = pairs.iter().map(|(at, _)| (at - at_mean).powi(2)).sum();
    let slope = if own > 0.0 { with / own } else { 0.0 };
    (mean - slope * at_mean, slope)
}

/// Both captures side by side.
#[derive(Default)]
struct Walked {
    /// Instant in the first, and how much later the second's clock said it.
    pairs: Vec<(f64, f64)>,
    only_a: Vec<f64>,
    only_b: Vec<f64>,
}

fn walk(a: &[f64], b: &[f64], mut shift: f64, period: f64) -> Walked {
    let mut walked = Walked::default();
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let difference = b[j] - a[i];
        let apart = difference - shift;
        if apart.abs() <= period * APART {
            walked.pairs.push((a[i], difference));
            shift += FOLLOW * apart;
            i += 1;
            j += 1;
        } else if apart > 0.0 {
            // Before the second began to look nothing is missing in it.
            if j > 0 {
                walked.only_a.push(a[i]);
            }
            i += 1;
        } else {
            if i > 0 {
                walked.only_b.push(b[j]);
            }
            j += 1;
        }
    }
    walked
}

#[cfg(test)]
mod tests {
    use rtscope_model::wave::{Edge, Gap};

    use super::*;

    fn capture(rises_ns: impl IntoIterator<Item = u64>) -> Capture {
        let pulse = |at: u64| [Edge::new(at, true), Edge::new(at + 40_000, false)];
        let edges: Vec<Edge> = rises_ns.into_iter().flat_map(pulse).collect();
        let end_ns = edges.last().map_or(0, |edge| edge.at_ns());
        Capture {
            line: "memory:x".to_owned(),
            start_ns: 0,
            end_ns,
            resolution_ns: 10,
            starts_high: None,
            edges,
            gaps: Vec::new(),
            made: None,
            made_in_gaps: None,
            is_full: false,
        }
    }

    /// A wave of 10 kHz whose edges are late by a pattern that never comes back.
    fn rise(n: u64) -> u64 {
        n * 100_000 + n * n * 7 % 1_009
    }

    #[test]
    fn offset_and_drift_come_out_exactly() {
        // The second began 10 edges later, its clock is 5,000,000 ns ahead and 50 ppm fast.
        let theirs = |n: u64| 5_000_000 + rise(n) + rise(n) / 20_000;
        let first = capture((1..=2_000).map(rise));
        let second = capture((11..=2_010).map(theirs));
        let aligned = align(&first, &second).expect("the same wave");
        assert!(aligned.is_certain);
        assert_eq!(
            (aligned.pairs, aligned.missing_in_first, aligned.missing_in_second),
            (1_990, 0, 0)
        );
        assert!((aligned.drift_ppm - 50.0).abs() < 0.01, "{aligned:?}");
        let at_first_pair = 5_000_000.0 + rise(11) as f64 / 20_000.0;
        assert!((aligned.offset_ns - at_first_pair).abs() < 2.0, "{}", aligned.offset_ns);
        assert!(aligned.residual_ns_max <= 1.0, "{}", aligned.residual_ns_max);
    }

    #[test]
    fn edges_that_one_lacks_are_told_with_its_gaps() {
        let mut first = capture((1..=1_000).filter(|n| !(400..420).contains(n)).map(rise));
        first.gaps =
            vec![Gap { start_ns: rise(399) + 50_000, end_ns: rise(420) - 1, moved: false }];
        let second = capture((1..=1_000).filter(|n| n % 100 != 50).map(rise));
        let aligned = align(&first, &second).expect("the same wave");
        assert_eq!((aligned.missing_in_first, aligned.missing_in_gaps_of_first), (20, 20));
        assert_eq!((aligned.missing_in_second, aligned.missing_in_gaps_of_second), (10, 0));
        assert_eq!((aligned.pairs, aligned.is_certain), (970, true));
    }

    #[test]
    fn three_pairs_are_the_fewest_that_have_a_spread() {
        let pairs = [(0.0, 1.0), (1.0, 3.0), (2.0, 2.0)];
        assert_eq!(spread(&pairs[..2]), f64::INFINITY);
        // The line is 1.5 + 0.5 at: the distances are -0.5, 1 and -0.5.
        assert!((spread(&pairs) - 0.5).abs() < 1e-12, "{}", spread(&pairs));
    }

    #[test]
    fn jitter_of_one_is_what_is_left() {
        // The second reads every other edge 60 ns late: +-30 ns around the line.
        let first = capture((1..=1_000).map(rise));
        let second = capture((1..=1_000).map(|n| rise(n) + n % 2 * 60));
        let aligned = align(&first, &second).expect("the same wave");
        assert!((aligned.residual_ns_rms - 30.0).abs() < 0.1, "{}", aligned.residual_ns_rms);
    }

    #[test]
    fn an_even_wave_has_no_certain_shift_and_another_wave_none() {
        let even = |from: u64| capture((from..from + 500).map(|n| n * 100_000));
        let aligned = align(&even(1), &even(4)).expect("the same wave");
        assert!(!aligned.is_certain);
        assert!(aligned.residual_ns_max < 1e-3);
        let few = align(&capture([5]), &even(1));
        assert_eq!(few, Err(Apart::TooFew { which: "first", edges: 1 }));
        let slow = capture((1..10).map(|n| n * 3_333_333));
        let fast = capture((1..300).map(rise));
        let compared = compare(&slow, &fast, None);
        assert!(compared.is_err() || compared.expect("few").alignment.missing_in_first > 100);
    }

    #[test]
    fn a_median_step_is_one_of_the_steps() {
        assert_eq!(median_step(&[100.0, 110.0, 125.0, 126.0]), 10.0);
    }
}
