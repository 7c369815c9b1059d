//! Intervals of the rate at which a limit is reached.

use rtscope_analyse::statistics::{exceedance, random::Random};

use super::{
    quantiles::truth,
    score::{Figure, print_head, print_lines},
    systems::{self, RATE, System},
};

/// Lengths of a run, in seconds.
const SECONDS: [u64; 3] = [10, 120, 600];

/// Limits, and what a table calls the rate at which they are reached: 1.9 and 0.01 a second.
pub(crate) const LIMITS: [(u64, &str); 2] =
    [(20_000, "rate above 20 us"), (51_000, "rate above 51 us")];

/// What many runs of a system come to, for each limit.
pub(crate) fn scores(system: System, seconds: u64, runs: u32) -> [Figure; LIMITS.len()] {
    let mut scores = <[Figure; LIMITS.len()]>::default();
    for seed in 0..runs {
        let run = systems::run(system, seconds, &mut Random::new(u64::from(seed)));
        for ((limit_ns, _), figure) in LIMITS.iter().zip(&mut scores) {
            let rate = |late| RATE as f64 * systems::share_above(*limit_ns as f64, late);
            let seen = exceedance::estimate(&run.histogram, *limit_ns, run.watch, &run.blocks)
                .expect("latencies");
            let ends = |ends: exceedance::Interval| {
                (Some(ends.per_second_low), Some(ends.per_second_high))
            };
            let independent = Some(ends(seen.if_independent));
            figure.add(independent, seen.interval.map(ends), truth(system, &run, rate));
        }
    }
    scores
}

/// Prints its rows of the table.
pub(crate) fn rows(runs: u32) {
    print_head();
    for seconds in SECONDS {
        for system in System::all() {
            for ((_, name), figure) in LIMITS.iter().zip(&scores(system, seconds, runs)) {
                print_lines(name, system.name(), seconds, figure);
            }
        }
    }
}
