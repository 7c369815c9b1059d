//! Goodness of fit on buckets: Pearson's chi-squared over classes of about equal chance.
//!
//! Tests made for continuous values (Kolmogorov-Smirnov, Anderson-Darling) find every bucket's edge
//! a misfit. Classes whose borders are edges of buckets don't.

use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::Interval;

/// Values expected in each class.
const EXPECTED: f64 = 10.0;

/// The most classes.
const CLASSES_MAX: f64 = 25.0;

/// Observed and expected counts by class.
pub(super) struct Classes {
    observed: Vec<f64>,
    expected: Vec<f64>,
}

impl Classes {
    /// Divides ascending buckets at the fit's quantiles, each moved to the next edge of a bucket
    /// that holds something.
    pub(super) fn new(
        buckets: &[Interval],
        quantile: impl Fn(f64) -> f64,
        below: impl Fn(f64) -> f64,
    ) -> Classes {
        let count: f64 = buckets.iter().map(|bucket| bucket.count).sum();
        let wanted = (count / EXPECTED).min(CLASSES_MAX).floor().max(1.0);
        let mut borders: Vec<f64> = Vec::new();
        for class in 1..wanted as usize {
            let near = quantile(class as f64 / wanted);
            let edge = buckets.iter().map(|bucket| bucket.low).find(|&low| low >= near);
            borders.extend(edge.filter(|edge| borders.last().is_none_or(|last| edge > last)));
        }
        let ends = || borders.iter().copied().chain([f64::INFINITY]);
        let starts = || [f64::NEG_INFINITY].into_iter().chain(borders.iter().copied());
        let counted = |(from, to): (f64, f64)| {
            let inside = buckets.iter().filter(|b| b.low >= from && b.low < to);
            inside.map(|b| b.count).sum()
        };
        let chance = |(from, to): (f64, f64)| {
            let low = if from.is_finite() { below(from) } else { 0.0 };
            let high = if to.is_finite() { below(to) } else { 1.0 };
            (high - low) * count
        };
        Classes {
            observed: starts().zip(ends()).map(counted).collect(),
            expected: starts().zip(ends()).map(chance).collect(),
        }
    }

    /// The chance of a larger sum of squares if the fit were true, with so many fitted parameters.
    /// None when the buckets leave too few classes to tell.
    pub(super) fn chance(&self, parameters: usize) -> Option<f64> {
        let freedom = self.observed.len().checked_sub(parameters + 1).filter(|&free| free > 0)?;
        let pairs = self.observed.iter().zip(&self.expected);
        let square = |(seen, due): (&f64, &f64)| (seen - due).powi(2) / due.max(1e-9);
        let sum: f64 = pairs.map(square).sum();
        Some(ChiSquared::new(freedom as f64).ok()?.sf(sum))
    }
}
