//! Block maxima: the generalised extreme value distribution of the largest latency of each block.
//!
//! The largest of many latencies follows `P(M <= x) = exp(-(1 + shape (x - location) / scale)^(-1/shape))`
//! in the limit (A. F. Jenkinson, Quarterly Journal of the Royal Meteorological Society 81, 1955),
//! also when neighbouring latencies depend on each other, as long as blocks don't. A maximum is
//! known to its bucket, and the chance of the buckets is what is maximised.

use super::{
    Interval, SHAPE_SEARCHED,
    goodness::Classes,
    optimise::{maximise, profile_interval},
    pareto::ln_less,
};

/// A fitted distribution of maxima, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extreme {
    pub(super) location: f64,
    pub(super) scale: f64,
    pub(super) shape: f64,
    pub(super) log_likelihood: f64,
}

/// Below this the shape is taken as 0, where the distribution is Gumbel's.
const FLAT: f64 = 1e-9;

/// `ln P(M <= x)`.
fn ln_below(x: f64, location: f64, scale: f64, shape: f64) -> f64 {
    if x.is_infinite() {
        return 0.0;
    }
    let z = (x - location) / scale;
    if shape.abs() < FLAT {
        return -(-z).exp();
    }
    match shape * z {
        inner if inner > -1.0 => -(-inner.ln_1p() / shape).exp(),
        _ if shape > 0.0 => f64::NEG_INFINITY,
        _ => 0.0,
    }
}

/// The logarithm of the chance of the buckets.
pub(super) fn log_likelihood(maxima: &[Interval], location: f64, scale: f64, shape: f64) -> f64 {
    if !(SHAPE_SEARCHED.0..=SHAPE_SEARCHED.1).contains(&shape) || !scale.is_finite() || scale <= 0.0
    {
        return f64::NEG_INFINITY;
    }
    let of = |bucket: &Interval| {
        let far = ln_below(bucket.high, location, scale, shape);
        let near = ln_below(bucket.low, location, scale, shape);
        if far == f64::NEG_INFINITY { far } else { bucket.count * (far + ln_less(near - far)) }
    };
    maxima.iter().map(of).sum()
}

impl Extreme {
    /// Fits maxima of blocks of equal length; none when they are all alike.
    pub(super) fn fit(maxima: &[Interval]) -> Option<Extreme> {
        let (mean, deviation) = moments(maxima)?;
        // By moments of Gumbel's distribution.
        let scale = deviation * 6f64.sqrt() / std::f64::consts::PI;
        let location = mean - 0.577_2 * scale;
        let by = |p: &[f64; 3]| {
            log_likelihood(maxima, location + p[0] * scale, scale * p[1].exp(), p[2])
        };
        let (at, log_likelihood) = maximise([0.0, 0.0, 0.05], [0.2, 0.2, 0.1], by);
        let (location, scale) = (location + at[0] * scale, scale * at[1].exp());
        let fit = Extreme { location, scale, shape: at[2], log_likelihood };
        log_likelihood.is_finite().then_some(fit)
    }

    /// The 95 % interval of the shape.
    pub(super) fn shape_interval(&self, maxima: &[Interval]) -> (Option<f64>, Option<f64>) {
        let profile = |shape: f64| {
            let by = |p: &[f64; 2]| {
                log_likelihood(
                    maxima,
                    self.location + p[0] * self.scale,
                    self.scale * p[1].exp(),
                    shape,
                )
            };
            maximise([0.0, 0.0], [0.1, 0.1], by).1
        };
        profile_interval(self.shape, self.log_likelihood, 1.0, 0.1, SHAPE_SEARCHED, profile)
    }

    /// The level above the location that is exceeded once in `m` blocks, in scales: from
    /// `-ln P = 1 / m`, the rate of exceedances for each block.
    fn reduced_level(shape: f64, m: f64) -> f64 {
        if shape.abs() < FLAT { m.ln() } else { (shape * m.ln()).exp_m1() / shape }
    }

    /// The latency that is exceeded once in `m` blocks.
    pub(super) fn level(&self, m: f64) -> f64 {
        self.location + self.scale * Extreme::reduced_level(self.shape, m)
    }

    /// The 95 % interval of that level. The logarithm of the likelihood falls `effect` times as far as for
    /// independent maxima.
    pub(super) fn level_interval(
        &self,
        maxima: &[Interval],
        m: f64,
        effect: f64,
    ) -> (Option<f64>, Option<f64>) {
        let level = self.level(m);
        let profile = |level: f64| {
            let by = |p: &[f64; 2]| {
                let scale = self.scale * p[0].exp();
                let location = level - scale * Extreme::reduced_level(p[1], m);
                log_likelihood(maxima, location, scale, p[1])
            };
            // As the level moves, the scale that keeps the location moves with it.
            let stretched =
                ((level - self.location) / (self.level(m) - self.location)).max(0.05).ln();
            let (kept, moved) = ([0.0, self.shape], [stretched, self.shape]);
            let start = if by(&kept) > by(&moved) { kept } else { moved };
            maximise(start, [0.1, 0.05], by).1
        };
        let within = (0.0, 100.0 * level);
        profile_interval(level, self.log_likelihood, effect, 0.5 * self.scale, within, profile)
    }

    /// The chance that the largest of so many maxima is this large. Where a fitted tail ends is known badly, so
    /// a tail that ends is taken as exponential.
    pub(super) fn chance_of_largest(&self, largest: f64, count: f64) -> f64 {
        -(count * ln_below(largest, self.location, self.scale, self.shape.max(0.0))).exp_m1()
    }

    /// How well the buckets agree with the fit: the chance of a worse agreement if it were true.
    pub(super) fn goodness(&self, maxima: &[Interval]) -> Option<f64> {
        let below = |x: f64| ln_below(x, self.location, self.scale, self.shape).exp();
        let quantile = |p: f64| self.level(-1.0 / p.ln());
        Classes::new(maxima, quantile, below).chance(3)
    }
}

/// Mean and standard deviation; none without spread.
fn moments(of: &[Interval]) -> Option<(f64, f64)> {
    let count: f64 = of.iter().map(|bucket| bucket.count).sum();
    let middle =
        |b: &Interval| if b.high.is_finite() { f64::midpoint(b.low, b.high) } else { b.low };
    let mean = of.iter().map(|b| middle(b) * b.count).sum::<f64>() / count;
    let square = of.iter().map(|b| (middle(b) - mean).powi(2) * b.count).sum::<f64>() / count;
    (count > 0.0 && square > 0.0).then(|| (mean, square.sqrt()))
}
