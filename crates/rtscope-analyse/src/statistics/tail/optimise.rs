//! The largest value of a likelihood, and how far a parameter may move before it is 95 % unlikely.
//!
//! A likelihood of two or three parameters is cheap, smooth and has no derivative at the border of
//! its support: the simplex method asks for none (J. A. Nelder and R. Mead, Computer Journal 7, 1965).

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Steps after which a search ends wherever it is.
const STEPS_MAX: usize = 600;

/// A search ends when the values at the corners differ by less.
const CLOSE: f64 = 1e-10;

/// Where a function is largest, near a start, and its value there. `step` is the size of the first
/// simplex in each direction. Where the function is not defined it must be minus infinity.
pub(super) fn maximise<const N: usize>(
    start: [f64; N],
    step: [f64; N],
    function: impl Fn(&[f64; N]) -> f64,
) -> ([f64; N], f64) {
    let value = |point: [f64; N]| (function(&point), point);
    let mut corners = vec![value(start)];
    for axis in 0..N {
        let mut point = start;
        point[axis] += step[axis];
        corners.push(value(point));
    }
    for _ in 0..STEPS_MAX {
        corners.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (best, worst) = (corners[0].0, corners[N].0);
        if (best - worst).abs() <= CLOSE * (1.0 + best.abs()) && is_small(&corners) {
            break;
        }
        let mut middle = [0.0; N];
        for corner in &corners[..N] {
            (0..N).for_each(|axis| middle[axis] += corner.1[axis] / N as f64);
        }
        let along = |factor: f64| {
            let mut point = middle;
            (0..N).for_each(|axis| point[axis] += factor * (middle[axis] - corners[N].1[axis]));
            value(point)
        };
        let reflected = along(1.0);
        let next = if reflected.0 > best {
            let expanded = along(2.0);
            if expanded.0 > reflected.0 { expanded } else { reflected }
        } else if reflected.0 > corners[N - 1].0 {
            reflected
        } else {
            along(if reflected.0 > worst { 0.5 } else { -0.5 })
        };
        if next.0 > worst {
            corners[N] = next;
        } else {
            let to = corners[0].1;
            for corner in &mut corners[1..] {
                let mut point = corner.1;
                (0..N).for_each(|axis| point[axis] = f64::midpoint(point[axis], to[axis]));
                *corner = value(point);
            }
        }
    }
    corners.sort_by(|a, b| b.0.total_cmp(&a.0));
    (corners[0].1, corners[0].0)
}

fn is_small<const N: usize>(corners: &[(f64, [f64; N])]) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-7 * (1.0 + a.abs());
    corners[1..].iter().all(|c| (0..N).all(|axis| near(corners[0].1[axis], c.1[axis])))
}

/// How far the logarithm of the likelihood falls to the ends of a 95 % interval: half of the 95 %
/// quantile of chi-squared with one degree of freedom, 1.92.
fn drop_at_95() -> f64 {
    ChiSquared::new(1.0).expect("one degree").inverse_cdf(0.95) / 2.0
}

/// Doublings of the step in search of an end.
const DOUBLINGS: usize = 14;

/// The 95 % interval of a parameter by its profile likelihood: `profile` is the largest likelihood
/// that is left when the parameter is held. Around `best`, where the likelihood is `most`, first in
/// steps of `step`. An end is none when the likelihood doesn't fall far enough before `within`.
pub(super) fn profile_interval(
    best: f64,
    most: f64,
    step: f64,
    within: (f64, f64),
    profile: impl Fn(f64) -> f64,
) -> (Option<f64>, Option<f64>) {
    let floor = most - drop_at_95();
    let end = |direction: f64| {
        let (mut inside, mut step) = (best, step);
        for _ in 0..DOUBLINGS {
            let outside = (inside + direction * step).clamp(within.0, within.1);
            if profile(outside) < floor {
                return Some(bisect(inside, outside, |x| profile(x) >= floor));
            }
            if outside <= within.0 || outside >= within.1 {
                return None;
            }
            (inside, step) = (outside, step * 2.0);
        }
        None
    };
    (end(-1.0), end(1.0))
}

fn bisect(mut inside: f64, mut outside: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..24 {
        let middle = f64::midpoint(inside, outside);
        if holds(middle) { inside = middle } else { outside = middle }
    }
    f64::midpoint(inside, outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_of_a_curved_ridge_is_found() {
        // Rosenbrock's function, upside down: 0 at (1, 1).
        let ridge = |p: &[f64; 2]| -(1.0 - p[0]).powi(2) - 100.0 * (p[1] - p[0] * p[0]).powi(2);
        let (at, value) = maximise([-1.2, 1.0], [0.5, 0.5], ridge);
        assert!(
            (at[0] - 1.0).abs() < 1e-4 && (at[1] - 1.0).abs() < 1e-4 && value > -1e-8,
            "{at:?}"
        );
    }

    #[test]
    fn of_a_normal_mean_the_interval_is_1_96_standard_errors() {
        let (low, high) =
            profile_interval(5.0, 0.0, 0.3, (-100.0, 100.0), |x| -(x - 5.0f64).powi(2) / 2.0);
        assert!((low.expect("low") - 5.0 + 1.959_964).abs() < 1e-5);
        assert!((high.expect("high") - 5.0 - 1.959_964).abs() < 1e-5);
        let open = profile_interval(5.0, 0.0, 0.3, (0.0, 6.0), |x| -(x - 5.0f64).powi(2) / 2.0);
        assert!(open.0.is_some() && open.1.is_none());
    }
}
