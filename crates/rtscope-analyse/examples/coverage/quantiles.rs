//! Intervals of quantiles and of the mean.

use rtscope_analyse::statistics::{
    quantile::{self, Quantile},
    random::Random,
};

use super::{
    score::{Score, print_head, print_line},
    systems::{self, System},
};

/// Lengths of a run, in seconds.
const SECONDS: [u64; 3] = [10, 120, 600];

/// Quantiles, in parts of a billion, and what a table calls them.
pub(crate) const QUANTILES: [(u32, &str); 3] =
    [(990_000_000, "p99"), (999_000_000, "p99.9"), (999_900_000, "p99.99")];

/// What many runs of a system come to.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    /// Of each quantile: if wake-ups were independent, and as they are.
    pub(crate) quantiles: [(Score, Score); QUANTILES.len()],
    /// Of the mean.
    pub(crate) mean: Score,
}

/// Measures a system many times.
pub(crate) fn scores(system: System, seconds: u64, runs: u32) -> Scores {
    let mut scores = Scores::default();
    let mean_ns = systems::mean_ns();
    for seed in 0..runs {
        let run = systems::run(system, seconds, &mut Random::new(u64::from(seed)));
        for ((parts, _), (independent, honest)) in QUANTILES.iter().zip(&mut scores.quantiles) {
            let truth_ns = systems::exceeded_by_ns(f64::from(quantile::WHOLE - parts) / 1e9);
            independent.add(ends(quantile::of(&run.histogram, *parts)), truth_ns);
            let found = quantile::dependent(&run.histogram, *parts, &run.blocks, false);
            honest.add(ends(found), truth_ns);
        }
        let found_ns = run.histogram.mean_ns().expect("latencies");
        let half = run.blocks.mean_half_width_ns().ok();
        scores.mean.add(half.map(|half| (Some(found_ns - half), Some(found_ns + half))), mean_ns);
    }
    scores
}

/// The ends of an interval; none when it was refused.
fn ends(found: Option<Quantile>) -> Option<(Option<f64>, Option<f64>)> {
    let found = found.filter(|found| found.refusal().is_none())?;
    let end = |ns: Option<u64>| ns.map(|ns| ns as f64);
    // A latency is cut to whole nanoseconds.
    Some((end(found.low_ns), end(found.high_ns).map(|ns| ns + 1.0)))
}

/// Prints its rows of the table.
pub(crate) fn rows(runs: u32) {
    print_head();
    for seconds in SECONDS {
        for system in System::ALL {
            let scores = scores(system, seconds, runs);
            for ((_, name), (independent, honest)) in QUANTILES.iter().zip(&scores.quantiles) {
                print_line(name, system.name(), seconds, independent, honest);
            }
            print_line("mean", system.name(), seconds, &Score::default(), &scores.mean);
        }
    }
}
