//! The slope of a phase against time, with an interval that allows for errors that depend on each other.
//!
//! Late activations come in spells. The variance of a mean, or of a slope, is then that of the slow part of
//! the errors: their long-run variance. It is the mean square of the errors' first [`WAVES`] cosines
//! ([`cosines`]), which have from one half to four waves in the whole look. Errors may depend on each other
//! over up to about a twentieth of the look.
//!
//! Where errors hang together for longer, or a few long delays make most of the variance, no interval
//! is honest: then there is none, and the reason is given.

use serde::Serialize;

use super::cosines;

/// Cosines that the long-run variance is taken from, and the degrees of freedom of the interval.
const WAVES: u32 = 8;

/// With fewer activations a delay that one in a hundred has may not have come at all.
const ACTIVATIONS_MIN: usize = 500;

/// Fewer independent activations, after the dependence is allowed for, have no known variance.
const INDEPENDENT_MIN: f64 = 12.0;

/// Parts of the look whose means are compared.
const PARTS: usize = 64;

/// Where fewer parts of the look make the variance, a few long delays decide.
const DECIDING_PARTS_MIN: f64 = 4.0;

/// Why there is no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoInterval {
    /// Too few activations.
    Few,
    /// It isn't known whether errors are carried on.
    Unknown,
    /// Late activations come in spells that are long for this look.
    Spells,
    /// A few long delays make most of the variance.
    RareDelays,
}

impl NoInterval {
    /// The reason, as the end of a sentence.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            NoInterval::Few => "fewer than 500 activations were seen",
            NoInterval::Unknown => "it isn't known whether errors stay",
            NoInterval::Spells => {
                "late activations come in spells that are too long for the time watched"
            }
            NoInterval::RareDelays => "a few long delays decide the result",
        }
    }
}

/// A slope: phase gained for each unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    pub value: f64,
    /// Half of its 95 % interval.
    pub half: Result<f64, NoInterval>,
}

/// The slope of a random walk: the sum of its steps against the time that they took. Each step has the time
/// that it took and the phase that it added; there must be one.
#[must_use]
pub fn of_steps(steps: &[(f64, f64)]) -> Slope {
    let (elapsed, gained) =
        steps.iter().fold((0.0, 0.0), |sum, step| (sum.0 + step.0, sum.1 + step.1));
    let value = gained / elapsed;
    let errors: Vec<f64> = steps.iter().map(|(took, added)| added - value * took).collect();
    let half = long_run(&errors, 1, steps.len() + 1)
        .and_then(|variance| match deciding_parts(&errors) < DECIDING_PARTS_MIN {
            true => Err(NoInterval::RareDelays),
            false => Ok(variance),
        })
        .map(|variance| {
            cosines::student(WAVES) * (variance * errors.len() as f64).sqrt() / elapsed
        });
    Slope { value, half }
}

/// The slope of the line of least squares through points of time and phase, of which there must be three. The
/// phase must come back to the line.
#[must_use]
pub fn of_points(points: &[(f64, f64)]) -> Slope {
    let n = points.len() as f64;
    let at = points.iter().map(|p| p.0).sum::<f64>() / n;
    let height = points.iter().map(|p| p.1).sum::<f64>() / n;
    let own: f64 = points.iter().map(|p| (p.0 - at).powi(2)).sum();
    let with: f64 = points.iter().map(|p| (p.0 - at) * (p.1 - height)).sum();
    let value = with / own;
    let errors: Vec<f64> = points.iter().map(|p| p.1 - height - value * (p.0 - at)).collect();
    // The first cosine is nearly a line, and the line was taken away.
    let half = long_run(&errors, 2, points.len())
        .map(|variance| cosines::student(WAVES) * (variance / own).sqrt());
    Slope { value, half }
}

/// The long-run variance of errors whose mean is 0, from the cosines that begin with `first`. They come from so many
/// activations.
fn long_run(errors: &[f64], first: u32, activations: usize) -> Result<f64, NoInterval> {
    if activations < ACTIVATIONS_MIN {
        return Err(NoInterval::Few);
    }
    let n = errors.len() as f64;
    let slow = cosines::energy(errors, first..first + WAVES) / f64::from(WAVES);
    let all = errors.iter().map(|error| error * error).sum::<f64>() / n;
    match n * all < INDEPENDENT_MIN * slow {
        true => Err(NoInterval::Spells),
        false => Ok(slow),
    }
}

/// How many parts of the look make the variance of their means: the square of the sum of squares over the
/// sum of fourth powers. Even parts give a third of their number, one long delay gives 1.
fn deciding_parts(errors: &[f64]) -> f64 {
    let mut means: Vec<f64> = errors
        .chunks(errors.len().div_ceil(PARTS))
        .map(|part| part.iter().sum::<f64>() / part.len() as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    let middle = means[means.len() / 2];
    let sum = |power: i32| means.iter().map(|mean| (mean - middle).powi(power)).sum::<f64>();
    match sum(4) > 0.0 {
        true => sum(2).powi(2) / sum(4),
        false => PARTS as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random::Random;

    /// Latencies in us up to 100, and in spells of about `up` of `up + gap` activations up to 1.5 ms more.
    fn spells(random: &mut Random, n: usize, up: usize, gap: usize) -> Vec<f64> {
        let mut late = random.below(up + gap) < up;
        let mut latency = || {
            late = if random.below(if late { up } else { gap }) == 0 { !late } else { late };
            100.0 * random.share() + if late { 500.0 + 1_000.0 * random.share() } else { 0.0 }
        };
        (0..n).map(|_| latency()).collect()
    }

    /// Given intervals and those of them that hold the truth, of a walk and of a grid.
    fn held(n: usize, up: usize, gap: usize, runs: u64) -> [(u32, u32); 2] {
        let mut scores = [(0, 0); 2];
        let truth = 50.0 + 1_000.0 * up as f64 / (up + gap) as f64;
        for seed in 0..runs {
            let all = spells(&mut Random::new(seed), n, up, gap);
            let steps: Vec<(f64, f64)> = all.iter().map(|late| (1e4 + late, *late)).collect();
            let points: Vec<(f64, f64)> =
                all.iter().enumerate().map(|(i, late)| (i as f64, *late)).collect();
            let of = [(of_steps(&steps), truth / (1e4 + truth)), (of_points(&points), 0.0)];
            for (score, (slope, truth)) in scores.iter_mut().zip(of) {
                let Ok(half) = slope.half else { continue };
                score.0 += 1;
                score.1 += u32::from((slope.value - truth).abs() <= half);
            }
        }
        scores
    }

    #[test]
    fn the_interval_holds_the_truth_under_spells_or_is_refused() {
        for (n, up, gap) in [(500, 1, 4), (1_000, 50, 200), (5_000, 50, 200), (5_000, 5, 45)] {
            for (given, held) in held(n, up, gap, 300) {
                let share = f64::from(held) / f64::from(given);
                assert!(given > 150, "{n} {up}: {given} of 300 given");
                // Of 95 % in 300 runs two in a thousand would be below 91 %.
                assert!(share > 0.9, "{n} {up}: {held} of {given}");
            }
        }
    }

    /// Neither the height of the points nor the steepness of the line says how far the points are from it.
    #[test]
    fn a_line_that_is_added_to_the_points_adds_to_the_slope_only() {
        let all = spells(&mut Random::new(4), 2_000, 5, 45);
        let of = |height: f64, steepness: f64| {
            let point = |(i, late): (usize, &f64)| (i as f64, late + height + steepness * i as f64);
            of_points(&all.iter().enumerate().map(point).collect::<Vec<_>>())
        };
        let (plain, moved) = (of(0.0, 0.0), of(1e4, 5.0));
        let half = |slope: &Slope| *slope.half.as_ref().expect("an interval");
        assert!((moved.value - plain.value - 5.0).abs() < 1e-6, "{moved:?} {plain:?}");
        assert!((half(&moved) / half(&plain) - 1.0).abs() < 1e-6, "{moved:?} {plain:?}");
    }

    #[test]
    fn what_is_too_little_is_refused_with_the_reason() {
        let mut random = Random::new(1);
        let reason = |latencies: Vec<f64>| {
            let steps: Vec<(f64, f64)> = latencies.iter().map(|late| (1e4 + late, *late)).collect();
            of_steps(&steps).half.expect_err("no interval")
        };
        assert_eq!(reason(vec![5.0; 200]), NoInterval::Few);
        let few = |n: usize| {
            let points: Vec<(f64, f64)> = (0..n).map(|i| (i as f64, (i % 7) as f64)).collect();
            of_points(&points).half == Err(NoInterval::Few)
        };
        assert_eq!([few(ACTIVATIONS_MIN - 1), few(ACTIVATIONS_MIN)], [true, false]);
        let one_spell =
            (0..800).map(|i| 10.0 * random.share() + f64::from(u8::from(i > 400)) * 500.0);
        let one_spell: Vec<f64> = one_spell.collect();
        let points: Vec<(f64, f64)> = (0..).map(f64::from).zip(one_spell.clone()).collect();
        assert_eq!(of_points(&points).half.expect_err("no interval"), NoInterval::Spells);
        assert_eq!(reason(one_spell), NoInterval::Spells);
        let one_delay =
            (0..800).map(|i| 10.0 * random.share() + f64::from(u8::from(i == 60)) * 9e4);
        assert_eq!(reason(one_delay.collect()), NoInterval::RareDelays);
    }

    #[test]
    fn the_interval_of_a_line_is_that_of_its_errors() {
        let mut random = Random::new(7);
        let n = 3_000_u32;
        let points: Vec<(f64, f64)> =
            (0..n).map(f64::from).map(|x| (x, 0.5 * x + 100.0 * random.share())).collect();
        let found = of_points(&points);
        let half = found.half.expect("an interval");
        // The standard deviation of a uniform number is its width by sqrt(12); the sum of squares of x is n^3 / 12.
        let own = f64::from(n).powi(3) / 12.0;
        let deviation = 100.0 / 12f64.sqrt() / own.sqrt();
        assert!((1.0..5.0).contains(&(half / deviation)), "{half} {deviation}");
        assert!((found.value - 0.5).abs() < 5.0 * deviation, "{}", found.value);
    }
}
