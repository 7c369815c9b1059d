//! Peaks over a threshold: the generalised Pareto distribution of what exceeds it.
//!
//! Beyond a high threshold `u`, the excess `x` of nearly every distribution follows
//! `P(X > x) = (1 + shape x / scale)^(-1/shape)` (J. Pickands, Annals of Statistics 3, 1975). The
//! latencies are known to their bucket only, so what is maximised is the chance of the buckets:
//! each adds `count * ln(P(X > low) - P(X > high))`. Taking a bucket's edge for the latency itself
//! makes heavy tails out of light ones (`docs/method/tail.md` has figures).

use super::{
    Interval, SHAPE_SEARCHED,
    goodness::Classes,
    optimise::{largest, maximise, profile_interval},
};

/// A fitted tail. Lengths are in nanoseconds above the threshold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pareto {
    pub(super) scale: f64,
    pub(super) shape: f64,
    pub(super) log_likelihood: f64,
}

/// Below this the shape is taken as 0, where the distribution is exponential.
const FLAT: f64 = 1e-9;

/// `ln P(X > x)`.
fn ln_beyond(x: f64, scale: f64, shape: f64) -> f64 {
    if x.is_infinite() {
        return f64::NEG_INFINITY;
    }
    if shape.abs() < FLAT {
        return -x / scale;
    }
    let inner = shape * x / scale;
    if inner <= -1.0 { f64::NEG_INFINITY } else { -inner.ln_1p() / shape }
}

/// The logarithm of the chance of the buckets.
pub(super) fn log_likelihood(excess: &[Interval], scale: f64, shape: f64) -> f64 {
    if !(SHAPE_SEARCHED.0..=SHAPE_SEARCHED.1).contains(&shape) {
        return f64::NEG_INFINITY;
    }
    let of = |bucket: &Interval| {
        let (near, far) =
            (ln_beyond(bucket.low, scale, shape), ln_beyond(bucket.high, scale, shape));
        if near == f64::NEG_INFINITY { near } else { bucket.count * (near + ln_less(far - near)) }
    };
    excess.iter().map(of).sum()
}

/// `ln(1 - e^x)` of a negative number.
pub(super) fn ln_less(x: f64) -> f64 {
    (-x.exp_m1()).ln()
}

impl Pareto {
    /// Fits what exceeds a threshold; none when there is nothing to fit.
    pub(super) fn fit(excess: &[Interval]) -> Option<Pareto> {
        let count: f64 = excess.iter().map(|bucket| bucket.count).sum();
        let middle =
            |b: &Interval| if b.high.is_finite() { f64::midpoint(b.low, b.high) } else { b.low };
        let mean = excess.iter().map(|b| middle(b) * b.count).sum::<f64>() / count;
        if !(count > 0.0 && mean > 0.0) {
            return None;
        }
        let by = |p: &[f64; 2]| log_likelihood(excess, p[0].exp(), p[1]);
        let (at, log_likelihood) = maximise([mean.ln(), 0.05], [0.2, 0.1], by);
        let fit = Pareto { scale: at[0].exp(), shape: at[1], log_likelihood };
        log_likelihood.is_finite().then_some(fit)
    }

    /// The 95 % interval of the shape. `effect` is the design effect of the exceedances, 1 when they are
    /// independent.
    pub(super) fn shape_interval(
        &self,
        excess: &[Interval],
        effect: f64,
    ) -> (Option<f64>, Option<f64>) {
        let profile = |shape: f64| {
            // A negative shape ends the support at scale / -shape: the largest bucket must be in it.
            let reach = excess.last().map_or(0.0, |bucket| bucket.low);
            let scale = self.scale.max(-shape * reach * 1.001);
            largest(scale.ln(), 0.1, |ln_scale| log_likelihood(excess, ln_scale.exp(), shape))
        };
        profile_interval(self.shape, self.log_likelihood, effect, 0.1, SHAPE_SEARCHED, profile)
    }

    /// The excess that is exceeded once in `m` exceedances of the threshold.
    pub(super) fn level(&self, m: f64) -> f64 {
        if self.shape.abs() < FLAT {
            self.scale * m.ln()
        } else {
            self.scale * (self.shape * m.ln()).exp_m1() / self.shape
        }
    }

    /// The 95 % interval of that level, with the design effect of the exceedances.
    pub(super) fn level_interval(
        &self,
        excess: &[Interval],
        m: f64,
        effect: f64,
    ) -> (Option<f64>, Option<f64>) {
        let level = self.level(m);
        let scale = |level: f64, shape: f64| match shape.abs() < FLAT {
            true => level / m.ln(),
            false => level * shape / (shape * m.ln()).exp_m1(),
        };
        let profile = |level: f64| {
            let by = |shape: f64| log_likelihood(excess, scale(level, shape), shape);
            let from = |shape: f64| largest(shape, 0.05, by);
            // A short tail ends somewhere, and one start may lie beyond that.
            let other = if self.shape < 0.0 { from(0.1) } else { f64::NEG_INFINITY };
            from(self.shape).max(other)
        };
        let within = (0.01 * level, 100.0 * level);
        profile_interval(level, self.log_likelihood, effect, 0.1 * level, within, profile)
    }

    /// The chance that the largest of so many excesses is this large. Where a fitted tail ends is known badly,
    /// so a tail that ends is taken as exponential.
    pub(super) fn chance_of_largest(&self, largest: f64, count: f64) -> f64 {
        let beyond = ln_beyond(largest, self.scale, self.shape.max(0.0)).exp();
        -(count * (-beyond).ln_1p()).exp_m1()
    }

    /// How well the buckets agree with the fit: the chance of a worse agreement if it were true.
    pub(super) fn goodness(&self, excess: &[Interval]) -> Option<f64> {
        let below = |x: f64| -ln_beyond(x, self.scale, self.shape).exp_m1();
        let quantile = |p: f64| self.level(1.0 / (1.0 - p));
        Classes::new(excess, quantile, below).chance(2)
    }
}
