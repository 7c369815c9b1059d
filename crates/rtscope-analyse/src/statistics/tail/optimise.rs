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

/// Share of the bracket on the longer side that a step takes where no parabola shows the way.
const GOLDEN: f64 = 0.381_966;

/// A bracket is narrow enough, in units of the parameter; the value is then far nearer.
const NARROW_BRACKET: f64 = 1e-5;

/// The largest value of a function of one parameter near a start: vertices of parabolas through the three best
/// points, and golden sections where they say nothing (R. P. Brent, Algorithms for Minimization without
/// Derivatives, 1973, chapter 5). Where the function is not defined it must be minus infinity.
pub(super) fn largest(start: f64, step: f64, function: impl Fn(f64) -> f64) -> f64 {
    let at = |x: f64| (x, function(x));
    let (mut low, mut top, mut high) = (at(start - step), at(start), at(start + step));
    // Downhill from here a larger value may follow: the bracket moves until its middle is the largest.
    for _ in 0..STEPS_MAX {
        let reach = 2.0 * (high.0 - low.0);
        if low.1 > top.1 && low.1 >= high.1 {
            (low, top, high) = (at(low.0 - reach), low, top);
        } else if high.1 > top.1 {
            (low, top, high) = (top, high, at(high.0 + reach));
        } else {
            break;
        }
    }
    for _ in 0..STEPS_MAX {
        if high.0 - low.0 <= NARROW_BRACKET {
            break;
        }
        let (left, right) = (top.0 - low.0, top.0 - high.0);
        let (rise_left, rise_right) = (left * (top.1 - high.1), right * (top.1 - low.1));
        let vertex =
            top.0 - 0.5 * (left * rise_left - right * rise_right) / (rise_left - rise_right);
        let golden = match high.0 - top.0 > top.0 - low.0 {
            true => top.0 + GOLDEN * (high.0 - top.0),
            false => top.0 - GOLDEN * (top.0 - low.0),
        };
        let inside = vertex > low.0 && vertex < high.0;
        let moves = (vertex - top.0).abs() > 0.1 * NARROW_BRACKET;
        if inside && !moves {
            break;
        }
        let next = at(if inside { vertex } else { golden });
        let gained = (next.1 - top.1).abs() <= CLOSE * (1.0 + top.1.abs());
        (low, top, high) = match (next.1 > top.1, next.0 > top.0) {
            (true, true) => (top, next, high),
            (true, false) => (low, next, top),
            (false, true) => (low, top, next),
            (false, false) => (next, top, high),
        };
        if inside && gained {
            break;
        }
    }
    top.1
}

fn is_small<const N: usize>(corners: &[(f64, [f64; N])]) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    corners[1..].iter().all(|c| (0..N).all(|axis| near(corners[0].1[axis], c.1[axis])))
}

/// How far the logarithm of the likelihood falls to the ends of a 95 % interval: half of the 95 %
/// quantile of chi-squared with one degree of freedom, 1.92.
fn drop_at_95() -> f64 {
    ChiSquared::new(1.0).expect("one degree").inverse_cdf(0.95) / 2.0
}

/// Steps after which the search of an end stops wherever it is: bisection alone would need 24.
const ROOT_STEPS_MAX: usize = 48;

/// Doublings of the step in search of an end.
const DOUBLINGS: usize = 14;

/// The 95 % interval of a parameter by its profile likelihood: `profile` is the largest likelihood
/// that is left when the parameter is held. Where values depend on each other the likelihood is that of too
/// many: `effect` is how many are worth one, and its logarithm must fall so many times further (M. Ribatet,
/// D. Cooley and A. C. Davison, Statistica Sinica 22, 2012). Around `best`, where the likelihood is `most`, first in
/// steps of `step`. An end is none when the likelihood doesn't fall far enough before `within`.
pub(super) fn profile_interval(
    best: f64,
    most: f64,
    effect: f64,
    step: f64,
    within: (f64, f64),
    profile: impl Fn(f64) -> f64,
) -> (Option<f64>, Option<f64>) {
    let floor = most - effect * drop_at_95();
    let end = |direction: f64| {
        let above = |x: f64| (x, profile(x) - floor);
        let (mut inside, mut step) = ((best, most - floor), step);
        for _ in 0..DOUBLINGS {
            let outside = above((inside.0 + direction * step).clamp(within.0, within.1));
            if outside.1 < 0.0 {
                return Some(root(inside, outside, above));
            }
            if outside.0 <= within.0 || outside.0 >= within.1 {
                return None;
            }
            (inside, step) = (outside, step * 2.0);
        }
        None
    };
    (end(-1.0), end(1.0))
}

/// The likelihood's logarithm is this near to its value at the end: the end is then off by some millionths of its
/// distance.
const AT_END: f64 = 1e-6;

/// Share of the first bracket that is left when an end is found.
const NARROW: f64 = 1e-7;

/// Where a function falls through 0, between a point above and one below it: the chord's zero, with the value
/// of an end that stays halved (the Illinois method: M. Dowell and P. Jarratt, BIT 11, 1971). Where the chord
/// says nothing, for one end is minus infinity, the middle.
fn root(mut above: (f64, f64), mut below: (f64, f64), of: impl Fn(f64) -> (f64, f64)) -> f64 {
    let narrow = (above.0 - below.0).abs() * NARROW;
    let mut stayed = 0;
    for _ in 0..ROOT_STEPS_MAX {
        if (above.0 - below.0).abs() <= narrow {
            break;
        }
        let chord = (below.0 * above.1 - above.0 * below.1) / (above.1 - below.1);
        let middle = f64::midpoint(above.0, below.0);
        let next = of(if chord.is_finite() { chord } else { middle });
        if next.1.abs() <= AT_END {
            return next.0;
        }
        let is_above = next.1 > 0.0;
        let same_side = if is_above { 1 } else { -1 };
        // The other end stays where it is: for the second time in a row its value counts half.
        let halves = stayed == same_side;
        stayed = same_side;
        if is_above {
            above = next;
            below.1 *= if halves { 0.5 } else { 1.0 };
        } else {
            below = next;
            above.1 *= if halves { 0.5 } else { 1.0 };
        }
    }
    f64::midpoint(above.0, below.0)
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
    fn the_largest_value_of_one_parameter_is_found_from_either_side_and_beside_a_border() {
        let functions: [(&dyn Fn(f64) -> f64, f64); 3] = [
            (&|x| 2.0 - (x - 0.3).powi(2) - (x - 0.3).powi(4), 2.0),
            (&|x| 1.0 - (x - 1.0).abs().powf(1.5), 1.0),
            (&|x| if x > 0.5 { 3.0 - (x - 0.6).powi(2) } else { f64::NEG_INFINITY }, 3.0),
        ];
        for (n, (function, most)) in functions.into_iter().enumerate() {
            for start in [0.55, 2.0, 9.0] {
                let found = largest(start, 0.1, function);
                assert!((found - most).abs() < 1e-6, "{n} from {start}: {found} is not {most}");
            }
        }
    }

    #[test]
    fn an_end_is_found_where_the_likelihood_is_bent_or_breaks_off() {
        for (function, at) in [
            (&(|x: f64| 1.0 - x.powi(5)) as &dyn Fn(f64) -> f64, 1.0),
            (&|x| if x < 0.7 { 2.0 - x } else { f64::NEG_INFINITY }, 0.7),
            (&|x| (2.0 - x).tanh(), 2.0),
        ] {
            let found = root((0.0, function(0.0)), (3.0, function(3.0)), |x| (x, function(x)));
            assert!((found - at).abs() < 3e-6, "{found} is not {at}");
        }
    }

    #[test]
    fn of_a_normal_mean_the_interval_is_1_96_standard_errors() {
        let (low, high) =
            profile_interval(5.0, 0.0, 1.0, 0.3, (-100.0, 100.0), |x| -(x - 5.0f64).powi(2) / 2.0);
        assert!((low.expect("low") - 5.0 + 1.959_964).abs() < 1e-5);
        assert!((high.expect("high") - 5.0 - 1.959_964).abs() < 1e-5);
        let open =
            profile_interval(5.0, 0.0, 1.0, 0.3, (0.0, 6.0), |x| -(x - 5.0f64).powi(2) / 2.0);
        assert!(open.0.is_some() && open.1.is_none());
        // Four values that are worth one: twice as wide.
        let dependent =
            profile_interval(5.0, 0.0, 4.0, 0.3, (0.0, 20.0), |x| -(x - 5.0f64).powi(2) / 2.0);
        assert!((dependent.1.expect("high") - 5.0 - 3.919_928).abs() < 1e-5);
    }
}
