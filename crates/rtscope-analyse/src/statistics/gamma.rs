//! Quantiles of the gamma distribution: what intervals of counts are made of.

use statrs::distribution::{ContinuousCDF, Gamma, Normal};

/// From this shape on the approximation of Wilson and Hilferty (1931) is off by less than one part in 10^8, and
/// the exact quantile takes a time that grows with the root of the shape.
const APPROXIMATED_FROM: f64 = 1e6;

/// A quantile of the gamma distribution of scale 1.
pub(super) fn gamma_quantile(shape: f64, p: f64) -> f64 {
    if shape >= APPROXIMATED_FROM {
        return wilson_hilferty(shape, p);
    }
    Gamma::new(shape, 1.0).expect("a positive shape").inverse_cdf(p)
}

/// A quantile of the gamma distribution of scale 1: the cube root of its values is nearly normal.
fn wilson_hilferty(shape: f64, p: f64) -> f64 {
    let ninth = 1.0 / (9.0 * shape);
    shape * (1.0 - ninth + Normal::standard().inverse_cdf(p) * ninth.sqrt()).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_approximation_meets_the_exact_quantile() {
        for p in [0.025, 0.975] {
            let exact = Gamma::new(1e6, 1.0).expect("a shape").inverse_cdf(p);
            let near = wilson_hilferty(1e6, p);
            assert!((near / exact - 1.0).abs() < 1e-8, "{p}: {near} for {exact}");
        }
    }
}
