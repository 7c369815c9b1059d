//! The time-interval error of a wave, and its Allan deviation.
//!
//! Rising edges are numbered as an ideal clock would: across a gap or a missing edge the number goes on
//! by as many periods as fit, as long as that is beyond doubt (within a quarter of a period). An edge that is
//! in doubt is left out; when too many in a row are, a new run of numbers begins. No edge is invented by that:
//! the numbers in between stay empty.
//! The time-interval error is the distance of each edge from the least-squares line through all of the
//! longest run.

use serde::Serialize;

/// How far from a whole number of periods an edge after a hole may lie, in periods.
const DOUBT: f64 = 0.25;

/// So many edges in doubt in a row end a run.
const DOUBTFUL: usize = 16;

/// From so many periods on, a run's own mean period is better than the middle of all.
const SETTLED: u64 = 256;

/// The fewest terms that an Allan deviation is made of.
const TERMS_MIN: u64 = 3;

/// A wave against the ideal clock that fits it best.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockFit {
    pub period_ns: f64,
    /// Edges compared.
    pub edges: u64,
    /// Root of the mean squared time-interval error.
    pub tie_ns_rms: f64,
    /// Largest minus smallest time-interval error.
    pub tie_ns_peak_to_peak: f64,
    /// Allan deviation for 1, 2, 4... periods.
    pub allan: Vec<Allan>,
}

/// An overlapping Allan deviation (IEEE Std 1139; NIST SP 1065, equation 10).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Allan {
    /// Averaging time.
    pub tau_s: f64,
    /// Relative frequency deviation.
    pub deviation: f64,
    /// Terms it is made of. Those that touch an empty number are left out.
    pub terms: u64,
}

/// A numbered edge: its number, and its instant from the first of the run.
type Numbered = (u64, f64);

/// First instant, numbered edges and time-interval errors of the longest run, and the ideal clock's period.
type Errors = (u64, Vec<Numbered>, Vec<f64>, f64);

/// The time-interval error of each edge of the longest run. None with fewer than three edges.
pub(super) fn errors(cycles: &[Vec<u64>]) -> Option<Errors> {
    let (first_ns, run) = longest_run(cycles)?;
    let (at_0, period_ns) = line_through(&run)?;
    let error = |&(number, at): &Numbered| at - at_0 - period_ns * number as f64;
    let errors = run.iter().map(error).collect();
    Some((first_ns, run, errors, period_ns))
}

/// Compares the rising edges of all stretches with an ideal clock. None with fewer than three edges.
pub(super) fn judge(cycles: &[Vec<u64>]) -> Option<ClockFit> {
    let (_, run, errors, period_ns) = errors(cycles)?;
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    let max = errors.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let min = errors.iter().copied().fold(f64::INFINITY, f64::min);
    Some(ClockFit {
        period_ns,
        edges: run.len() as u64,
        tie_ns_rms: (squares / run.len() as f64).sqrt(),
        tie_ns_peak_to_peak: max - min,
        allan: allan(&run, &errors, period_ns),
    })
}

/// Mean of the periods that are nearest to the median, half of all: what the first edges of a run are numbered by.
fn base_ns(cycles: &[Vec<u64>]) -> Option<f64> {
    let mut periods: Vec<u64> =
        cycles.iter().flat_map(|at| at.windows(2).map(|pair| pair[1] - pair[0])).collect();
    periods.sort_unstable();
    let quarter = periods.len() / 4;
    let middle = &periods[quarter..periods.len() - quarter];
    let sum: u64 = middle.iter().sum();
    (!middle.is_empty()).then(|| sum as f64 / middle.len() as f64)
}

fn longest_run(cycles: &[Vec<u64>]) -> Option<(u64, Vec<Numbered>)> {
    let base_ns = base_ns(cycles)?;
    let mut longest = (0, Vec::new());
    let mut run: Vec<Numbered> = Vec::new();
    let (mut first_ns, mut last_ns, mut doubtful) = (0, 0, 0);
    for stretch in cycles {
        for (i, &at_ns) in stretch.iter().enumerate() {
            // The longer the run, the better it knows its own period, and the longer a hole may be.
            let period_ns = match run.last() {
                Some(&(number, at)) if number >= SETTLED => at / number as f64,
                _ => base_ns,
            };
            let steps = (at_ns - last_ns) as f64 / period_ns;
            // No period at all: the edge before or this one is not where it should be.
            let beyond_doubt = steps.round() >= 1.0 && (steps - steps.round()).abs() < DOUBT;
            // Within a stretch every edge was seen: an early or late one is still the next.
            let is_next = i > 0 && doubtful == 0 && steps.round() <= 1.0;
            match run.last() {
                Some(&(number, _)) if is_next || beyond_doubt => {
                    let next = number + steps.round().max(1.0) as u64;
                    run.push((next, (at_ns - first_ns) as f64));
                }
                Some(_) if doubtful < DOUBTFUL => {
                    doubtful += 1;
                    continue;
                }
                _ => {
                    keep_longest(&mut longest, first_ns, &mut run);
                    first_ns = at_ns;
                    run.push((0, 0.0));
                }
            }
            (last_ns, doubtful) = (at_ns, 0);
        }
    }
    keep_longest(&mut longest, first_ns, &mut run);
    (longest.1.len() >= 3).then_some(longest)
}

/// Takes the run over when it is longer, and empties it.
fn keep_longest(longest: &mut (u64, Vec<Numbered>), first_ns: u64, run: &mut Vec<Numbered>) {
    let run = std::mem::take(run);
    if run.len() > longest.1.len() {
        *longest = (first_ns, run);
    }
}

/// Instant of number 0 and period of the least-squares line, in centred sums.
fn line_through(run: &[Numbered]) -> Option<(f64, f64)> {
    let n = run.len() as f64;
    let number_mean = run.iter().map(|one| one.0 as f64).sum::<f64>() / n;
    let at_mean = run.iter().map(|one| one.1).sum::<f64>() / n;
    let (mut with, mut own) = (0.0, 0.0);
    for &(number, at) in run {
        let distance = number as f64 - number_mean;
        with += distance * (at - at_mean);
        own += distance * distance;
    }
    let slope = with / own;
    (own > 0.0).then_some((at_mean - slope * number_mean, slope))
}

/// The overlapping Allan deviation over octaves. A line that was taken away doesn't change it.
fn allan(run: &[Numbered], errors: &[f64], period_ns: f64) -> Vec<Allan> {
    let last = run.last().map_or(0, |one| one.0);
    // Numbers that are mostly empty would only cost memory.
    if last > 16 * run.len() as u64 {
        return Vec::new();
    }
    let mut phase = vec![f64::NAN; last as usize + 1];
    for (&(number, _), &error) in run.iter().zip(errors) {
        phase[number as usize] = error;
    }
    let octaves = (0..32).map(|octave| 1_usize << octave);
    let deviation = |m: usize| {
        let (mut sum, mut terms) = (0.0, 0);
        for start in 0..phase.len().saturating_sub(2 * m) {
            let term = phase[start + 2 * m] - 2.0 * phase[start + m] + phase[start];
            if !term.is_nan() {
                sum += term * term;
                terms += 1;
            }
        }
        let tau_ns = m as f64 * period_ns;
        let variance = sum / (2.0 * tau_ns * tau_ns * terms as f64);
        (terms >= TERMS_MIN).then(|| Allan {
            tau_s: tau_ns / 1e9,
            deviation: variance.sqrt(),
            terms,
        })
    };
    octaves.take_while(|m| 2 * m < phase.len()).filter_map(deviation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_edges_that_lie_on_one() {
        let (at_0, period_ns) = line_through(&[(1, 15.0), (2, 25.0), (4, 45.0)]).expect("a line");
        assert!((at_0 - 5.0).abs() < 1e-9 && (period_ns - 10.0).abs() < 1e-9);
        assert_eq!(line_through(&[(1, 15.0)]), None);
    }

    /// A wave that jumps by half a period goes on with new numbers, behind a few edges in doubt.
    #[test]
    fn a_jump_begins_a_new_run_of_numbers() {
        let edges = (1..=60).map(|n| 1_000 * n + if n > 20 { 500 } else { 0 }).collect();
        let (first_ns, run, errors, _) = errors(&[edges]).expect("a run");
        assert_eq!(first_ns, 21_500 + 1_000 * DOUBTFUL as u64);
        assert_eq!(run.len(), 40 - DOUBTFUL);
        assert!(errors.iter().all(|error| error.abs() < 1e-6), "{errors:?}");
    }

    /// By hand: the middle edge of three is 30 ns late, so the errors from the line are -10, 20 and -10 ns.
    #[test]
    fn jitter_is_the_error_from_the_line() {
        let fit = judge(&[vec![1_000, 2_030, 3_000]]).expect("three edges");
        assert!((fit.tie_ns_rms - 200f64.sqrt()).abs() < 1e-9, "{fit:?}");
    }
}
