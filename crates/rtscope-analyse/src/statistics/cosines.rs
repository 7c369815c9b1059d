//! The slow part of a series: its first cosines, of half a wave, one wave, one and a half...
//!
//! Values that hang together over a while vary slowly, and so their sum varies more than that of independent
//! values. The mean square of the first cosine coefficients measures this long-run variance without a model
//! of the dependence. `n` coefficients are about independent and normal, so an interval uses Student's t
//! with `n` degrees of freedom (E. Lazarus, D. J. Lewis, J. H. Stock and M. W. Watson, Journal of Business &
//! Economic Statistics 36, 2018). It holds where values hang together over much less than the whole series.

use std::{f64::consts::PI, ops::Range};

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The sum of squares of some cosine coefficients, numbered from 1. The coefficients of all numbers below the
/// number of values have the same sum of squares as the values, whose mean must be 0.
#[must_use]
pub(super) fn energy(values: &[f64], numbers: Range<u32>) -> f64 {
    let n = values.len() as f64;
    let square = |number: u32| {
        let turn = PI * f64::from(number) / n;
        let part = |(i, value): (usize, &f64)| value * (turn * (i as f64 + 0.5)).cos();
        values.iter().enumerate().map(part).sum::<f64>().powi(2) * 2.0 / n
    };
    numbers.map(square).sum()
}

/// The 97.5 % quantile of Student's t.
#[must_use]
pub(super) fn student(freedom: u32) -> f64 {
    let freedom = f64::from(freedom.max(1));
    StudentsT::new(0.0, 1.0, freedom).expect("a positive freedom").inverse_cdf(0.975)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cosines_together_have_the_energy_of_the_values() {
        let values = [3.0, -1.0, 0.5, -4.0, 2.5, -1.0];
        let squares: f64 = values.iter().map(|value| value * value).sum();
        assert!((energy(&values, 1..6) - squares).abs() < 1e-9);
        // The first cosine of two halves is large, that of alternating values is small.
        assert!(energy(&[1.0, 1.0, 1.0, -1.0, -1.0, -1.0], 1..2) > 4.0);
        assert!(energy(&[1.0, -1.0, 1.0, -1.0, 1.0, -1.0], 1..2) < 0.5);
    }

    #[test]
    fn students_quantile_is_that_of_the_tables() {
        for (freedom, t) in [(1, 12.706), (6, 2.447), (8, 2.306)] {
            assert!((student(freedom) - t).abs() < 5e-4, "{freedom}");
        }
    }
}
