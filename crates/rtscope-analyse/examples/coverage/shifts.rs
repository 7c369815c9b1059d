//! Spells in which all wake-ups are later, and how many of them a run has to contain.

use rtscope_analyse::statistics::{quantile, random::Random};
use rtscope_model::histogram::Layout;
use statrs::distribution::{ContinuousCDF, Normal};

use super::{
    score::{Figure, Truth, print_head, print_lines},
    systems::{normal, recorded},
};

/// Wake-ups of the thread in a second.
const RATE: u64 = 1_000;

/// Part of the time that spells take.
const SHARE: f64 = 0.05;

/// Logarithm of the latency in ns, mean and standard deviation, outside of spells and inside: medians of 8.1 and 36.3 us.
const QUIET: (f64, f64) = (9.0, 0.3);
const SPELL: (f64, f64) = (10.5, 0.4);

/// In buckets of 1 us, a bucket is wider than what a few spells move the median by.
const LAYOUT: Layout = Layout { unit_ns: 1, exact: 10_000 };

/// Quantiles that are judged.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// Mean length of a spell, length of a run, both in seconds.
const RUNS: [(f64, u64); 5] = [(0.5, 60), (1.0, 120), (0.5, 120), (0.5, 300), (1.0, 600)];

/// The quantile of the system, in ns.
fn truth_ns(share: f64) -> f64 {
    let below = |(mean, deviation): (f64, f64), ns: f64| {
        Normal::new(mean, deviation).map_or(f64::NAN, |normal| normal.cdf(ns.ln()))
    };
    let (mut low, mut high) = (1.0, 1e9);
    for _ in 0..200 {
        let middle = f64::sqrt(low * high);
        let is_low = (1.0 - SHARE) * below(QUIET, middle) + SHARE * below(SPELL, middle) < share;
        (low, high) = if is_low { (middle, high) } else { (low, middle) };
    }
    low
}

/// The latencies of a run, in ns. Spells and the pauses between them have exponential lengths.
fn of_run(spell_s: f64, seconds: u64, random: &mut Random) -> Vec<f64> {
    let mut all = Vec::with_capacity((seconds * RATE) as usize);
    let mut is_spell = random.share() < SHARE;
    while all.len() < (seconds * RATE) as usize {
        let mean_s = if is_spell { spell_s } else { spell_s * (1.0 - SHARE) / SHARE };
        let (mean, deviation) = if is_spell { SPELL } else { QUIET };
        for _ in 0..(mean_s * RATE as f64 * random.exponential()).ceil() as u64 {
            all.push((mean + deviation * normal(random)).exp());
        }
        is_spell = !is_spell;
    }
    all.truncate((seconds * RATE) as usize);
    all
}

fn scores(spell_s: f64, seconds: u64, runs: u32) -> [Figure; QUANTILES.len()] {
    let mut scores = <[Figure; QUANTILES.len()]>::default();
    for seed in 0..runs {
        let all_ns = of_run(spell_s, seconds, &mut Random::new(u64::from(seed)));
        let (all, blocks) = recorded(all_ns.iter().map(|ns| *ns as u64), RATE, LAYOUT);
        for ((_, share), score) in QUANTILES.iter().zip(&mut scores) {
            let parts = (share * 1e9).round() as u32;
            let end = |ns: Option<u64>| ns.map(|ns| ns as f64);
            let independent = quantile::estimate(&all, parts).expect("latencies");
            let found = quantile::dependent(&all, parts, &blocks, false).expect("latencies");
            let ends = found.refusal().is_none().then_some((end(found.low_ns), end(found.high_ns)));
            let value = truth_ns(*share);
            let truth = Truth { of_system: value, of_run: value, has_met: true };
            let alone = (end(independent.low_ns), end(independent.high_ns));
            score.add(Some(alone), ends, truth);
        }
    }
    scores
}

/// Prints its rows of the table.
pub(crate) fn rows(runs: u32) {
    print_head();
    for (spell_s, seconds) in RUNS {
        let scores = scores(spell_s, seconds, runs);
        let spells = SHARE * seconds as f64 / spell_s;
        let system = format!("spells of {spell_s} s, {spells:.0} expected");
        for ((name, _), figure) in QUANTILES.iter().zip(&scores) {
            print_lines(name, &system, seconds, figure);
        }
    }
}
