//! Intervals of quantiles and of the mean.

use rtscope_analyse::statistics::{
    quantile::{self, Quantile},
    random::Random,
};

use super::{
    score::{Ends, Figure, Truth, print_head, print_lines},
    systems::{self, Run, System},
};

/// Lengths of a run, in seconds.
const SECONDS: [u64; 3] = [10, 120, 600];

/// Quantiles, in parts of a billion, and what a table calls them.
pub(crate) const QUANTILES: [(u32, &str); 3] =
    [(990_000_000, "p99"), (999_000_000, "p99.9"), (999_900_000, "p99.99")];

/// What many runs of a system come to.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    pub(crate) quantiles: [Figure; QUANTILES.len()],
    pub(crate) mean: Figure,
}

/// What the intervals of a run ought to enclose, by a value that depends on the share of late wake-ups.
pub(crate) fn truth(system: System, run: &Run, value: impl Fn(f64) -> f64) -> Truth {
    Truth {
        of_system: value(system.late_share()),
        of_run: value(run.late),
        has_met: run.late > 0.0,
    }
}

/// Measures a system many times, in slices of a second.
pub(crate) fn scores(system: System, seconds: u64, runs: u32) -> Scores {
    scores_in_slices(system, seconds, 1, runs)
}

/// Measures a system many times.
pub(crate) fn scores_in_slices(
    system: System,
    seconds: u64,
    slices_a_second: u64,
    runs: u32,
) -> Scores {
    let mut scores = Scores::default();
    for seed in 0..runs {
        let mut random = Random::new(u64::from(seed));
        let run = systems::run_in_slices(system, seconds, slices_a_second, &mut random);
        for ((parts, _), figure) in QUANTILES.iter().zip(&mut scores.quantiles) {
            let beyond = f64::from(quantile::WHOLE - parts) / 1e9;
            let truth = truth(system, &run, |late| systems::exceeded_by_ns(beyond, late));
            let found = quantile::dependent(&run.histogram, *parts, &run.blocks, false);
            figure.add(ends(quantile::estimate(&run.histogram, *parts)), ends(found), truth);
        }
        let found_ns = run.histogram.mean_ns().expect("latencies");
        let margins = run.blocks.mean_margins_ns().ok();
        let ends = margins.map(|ns| (Some(found_ns - ns.below), Some(found_ns + ns.above)));
        scores.mean.add(None, ends, truth(system, &run, systems::mean_ns));
    }
    scores
}

/// The ends of an interval; none when it was refused.
fn ends(found: Option<Quantile>) -> Option<Ends> {
    let found = found.filter(|found| found.refusal().is_none())?;
    let end = |ns: Option<u64>| ns.map(|ns| ns as f64);
    // A latency is cut to whole nanoseconds.
    Some((end(found.low_ns), end(found.high_ns).map(|ns| ns + 1.0)))
}

/// Prints its rows of the table.
pub(crate) fn rows(runs: u32) {
    print_head();
    for seconds in SECONDS {
        for system in System::all() {
            let scores = scores(system, seconds, runs);
            for ((_, name), figure) in QUANTILES.iter().zip(&scores.quantiles) {
                print_lines(name, system.name(), seconds, figure);
            }
            print_lines("mean", system.name(), seconds, &scores.mean);
        }
    }
}

/// Lengths of a short phase, in seconds.
const SHORT_SECONDS: [u64; 4] = [3, 5, 10, 30];

/// Slices a second that short phases are compared in.
const SLICES_A_SECOND: [u64; 2] = [1, 10];

/// Prints the rows of short phases, in slices of several lengths.
pub(crate) fn short_rows(runs: u32) {
    print_head();
    for seconds in SHORT_SECONDS {
        for slices_a_second in SLICES_A_SECOND {
            for system in System::all() {
                let scores = scores_in_slices(system, seconds, slices_a_second, runs);
                let name = format!("{}, {} ms", system.name(), 1_000 / slices_a_second);
                for ((_, quantile), figure) in QUANTILES.iter().zip(&scores.quantiles) {
                    print_lines(quantile, &name, seconds, figure);
                }
                print_lines("mean", &name, seconds, &scores.mean);
            }
        }
    }
}
