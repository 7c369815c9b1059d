//! Systems whose wake-ups are all late by what changes slowly or comes in bursts of one delay, in buckets of 1 us.

use rtscope_analyse::statistics::{exceedance, quantile, random::Random};
use rtscope_model::histogram::Layout;

use super::{
    score::{Figure, Truth, print_head, print_lines},
    systems::{SECOND_NS, normal, recorded},
};

/// Wake-ups of the thread in a second.
const RATE: u64 = 100;

/// The quantile that is judged, in parts of a billion: p99.9.
const PARTS: u32 = 999_000_000;

/// How latencies come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Latencies {
    /// Their logarithm is a first-order autoregressive process around 10 us with a standard deviation of 0.6, which forgets
    /// in so many seconds.
    Wandering(f64),
    /// Twenty in a row with one latency, from 100 us on and exponential with a mean of 50 us more, once in 20 s. The others
    /// have 6 us.
    Bursts,
}

impl Latencies {
    pub(crate) fn name(self) -> String {
        match self {
            Latencies::Wandering(forgets_s) => format!("wandering latency, {forgets_s} s"),
            Latencies::Bursts => "bursts of 20 with one latency".to_owned(),
        }
    }

    /// The limit whose rate is judged, how often a second it is reached, and the quantile [`PARTS`], in us.
    fn truth(self) -> (f64, f64, f64) {
        match self {
            // The normal distribution beyond 2.5 (SciPy), and its 99.9 % quantile.
            Latencies::Wandering(_) => (
                10.0 * f64::exp(1.5),
                0.006_209_665 * RATE as f64,
                10.0 * f64::exp(0.6 * 3.090_232_306),
            ),
            // A share of 1 % is late.
            Latencies::Bursts => (150.0, f64::exp(-1.0), 100.0 + 50.0 * f64::ln(10.0)),
        }
    }

    /// The latencies of a run, in us.
    fn of_run(self, wakeups: u64, random: &mut Random) -> Vec<f64> {
        match self {
            Latencies::Wandering(forgets_s) => {
                let kept = (-1.0 / (forgets_s * RATE as f64)).exp();
                let mut log = normal(random);
                let mut next = || {
                    log = kept * log + (1.0 - kept * kept).sqrt() * normal(random);
                    10.0 * (0.6 * log).exp()
                };
                (0..wakeups).map(|_| next()).collect()
            }
            Latencies::Bursts => {
                let mut all = vec![6.0; wakeups as usize];
                let mean_gap = (20 * RATE) as f64;
                // Long before the run, so that it starts anywhere.
                let mut at = -10.0 * mean_gap;
                while at < wakeups as f64 {
                    at += mean_gap * random.exponential();
                    let late_us = 100.0 + 50.0 * random.exponential();
                    let number = |at: f64| (at.max(0.0) as usize).min(all.len());
                    let burst = number(at)..number(at + 20.0);
                    all[burst].fill(late_us);
                }
                all
            }
        }
    }
}

/// What many runs come to: the rate, and the quantile.
pub(crate) fn scores(latencies: Latencies, seconds: u64, runs: u32) -> [Figure; 2] {
    let mut scores = <[Figure; 2]>::default();
    let (limit_us, per_second, quantile_us) = latencies.truth();
    let truth = |value| Truth { of_system: value, of_run: value, has_met: true };
    for seed in 0..runs {
        let all_us = latencies.of_run(seconds * RATE, &mut Random::new(u64::from(seed)));
        let all_ns = all_us.iter().map(|us| (us * 1e3) as u64);
        let (all, blocks) = recorded(all_ns, RATE, Layout::default());
        let wall_ns = seconds * SECOND_NS;
        let watch = exceedance::WatchedTime::of_one(wall_ns);
        let limit_ns = (limit_us * 1e3) as u64;
        let seen = exceedance::estimate(&all, limit_ns, watch, &blocks).expect("latencies");
        // An upper bound is one of events, each of which makes any number of wake-ups late.
        let is_of_wakeups = seen.kind == exceedance::IntervalKind::Dependent;
        let ends = seen
            .interval
            .filter(|_| is_of_wakeups)
            .map(|ends| (Some(ends.per_second_low), Some(ends.per_second_high)));
        scores[0].add(None, ends, truth(per_second));
        let found = quantile::dependent(&all, PARTS, &blocks, false).expect("latencies");
        let end = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
        let ends = found.refusal().is_none().then_some((end(found.low_ns), end(found.high_ns)));
        scores[1].add(None, ends, truth(quantile_us));
    }
    scores
}

/// Prints its rows of the table.
pub(crate) fn rows(runs: u32) {
    print_head();
    for seconds in [120, 600] {
        for latencies in [Latencies::Wandering(2.0), Latencies::Wandering(4.8), Latencies::Bursts] {
            let scores = scores(latencies, seconds, runs);
            for (name, figure) in ["rate", "p99.9"].into_iter().zip(&scores) {
                print_lines(name, &latencies.name(), seconds, figure);
            }
        }
    }
}
