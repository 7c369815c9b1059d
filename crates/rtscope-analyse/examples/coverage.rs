//! How often the intervals of `docs/method/coverage.md` and `tail.md` enclose the truth: simulated systems
//! whose truth is known, each measured many times.
//!
//! ```sh
//! cargo run --release -p rtscope-analyse --example coverage -- 400
//! cargo run --release -p rtscope-analyse --example coverage -- 400 quantiles
//! ```
//!
//! Each subject is a module of its own, with a function that prints its rows.

#![expect(clippy::disallowed_methods, reason = "a program of its own: it reads its command line")]

#[path = "coverage/quantiles.rs"]
mod quantiles;
#[path = "coverage/rates.rs"]
mod rates;
#[path = "coverage/score.rs"]
mod score;
#[path = "coverage/systems.rs"]
mod systems;

use std::env::args;

use rtscope_analyse::statistics::{
    modes, quantile,
    random::Random,
    tail::{self, Estimate},
};
use rtscope_model::{
    histogram::{Histogram, Layout},
    slice::{Extent, Scope, Slice},
};

/// A simulated system: a latency, and the latency that one in `1 / p` reaches.
struct System {
    name: &'static str,
    latency_ns: fn(&mut Random) -> f64,
    reached_by: fn(f64) -> f64,
}

/// Wake-ups a second.
const RATE: u64 = 1_000;

/// Seconds of a run.
const SECONDS: u64 = 200;

/// Later than nearly all, the tails below are exact.
fn body(random: &mut Random) -> f64 {
    4e3 + 2e3 * random.share()
}

fn delayed(random: &mut Random, delay_ns: impl Fn(&mut Random) -> f64) -> f64 {
    if random.share() < 0.02 { 6e3 + delay_ns(random) } else { body(random) }
}

const SYSTEMS: [System; 4] = [
    System {
        name: "light: 2 % delayed by 6 us, exponential",
        latency_ns: |random| delayed(random, |random| 6e3 * random.exponential()),
        reached_by: |p| 6e3 + 6e3 * (0.02 / p).ln(),
    },
    System {
        name: "bounded: 2 % delayed up to 60 us, shape -0.2",
        latency_ns: |random| delayed(random, |random| 60e3 * (1.0 - random.share().powf(0.2))),
        reached_by: |p| 6e3 + 60e3 * (1.0 - (p / 0.02).powf(0.2)),
    },
    System {
        name: "heavy: 2 % delayed, shape 0.15",
        latency_ns: |random| delayed(random, |random| 40e3 * (random.share().powf(-0.15) - 1.0)),
        reached_by: |p| 6e3 + 40e3 * ((0.02 / p).powf(0.15) - 1.0),
    },
    System {
        name: "rare second cause: light, and 1 in 1,000,000 another 200 us",
        latency_ns: |random| {
            let rare = if random.share() < 1e-6 { 200e3 } else { 0.0 };
            rare + delayed(random, |random| 6e3 * random.exponential())
        },
        // One in 3,600,000 lies among those of the second cause, of which 98 % have a short body.
        reached_by: |p| match p < 1e-6 {
            true => 204e3 + 2e3 * (1.0 - (p / 1e-6 - 0.02) / 0.98),
            false => 6e3 + 6e3 * (0.02 / (p - 1e-6)).ln(),
        },
    },
];

fn slice_of(second: u64, one: &Histogram) -> Slice {
    Slice {
        thread: 0,
        scope: Scope::Cell(0),
        start_ns: second * 1_000_000_000,
        end_ns: (second + 1) * 1_000_000_000,
        planned: one.count(),
        recorded: one.count(),
        missed: 0,
        early: 0,
        migrations: 0,
        min_ns: one.min_ns().unwrap_or(0),
        max_ns: one.max_ns().unwrap_or(0),
        max_at_ns: 0,
        max_cpu: 0,
        sum_ns: u64::try_from(one.sum_ns()).unwrap_or(u64::MAX),
        bins: one.bins(),
        unplaced: rtscope_model::histogram::Unplaced::default(),
        omitted: Vec::new(),
        omitted_extent: Extent::default(),
    }
}

fn run(system: &System, random: &mut Random) -> (Vec<Slice>, Histogram) {
    let mut all = Histogram::new(Layout::default());
    let mut second_of = |second: u64| {
        let mut one = Histogram::new(Layout::default());
        (0..RATE).for_each(|_| one.record((system.latency_ns)(random) as u64));
        all.merge(&one);
        slice_of(second, &one)
    };
    let slices = (0..SECONDS).map(&mut second_of).collect();
    (slices, all)
}

/// How often a model gave an interval, and how often that held the truth.
#[derive(Default)]
struct Score {
    given: u32,
    below: u32,
    above: u32,
    width_us: f64,
}

impl Score {
    fn add(&mut self, estimate: &Estimate, period_ns: u64, truth_ns: f64) {
        let level = estimate
            .fit
            .as_ref()
            .and_then(|fit| fit.levels.iter().find(|level| level.period_ns == period_ns));
        let Some((low, high)) = level.and_then(|level| level.low_ns.zip(level.high_ns)) else {
            return;
        };
        self.given += 1;
        self.below += u32::from(truth_ns > high as f64);
        self.above += u32::from(truth_ns < low as f64);
        self.width_us += (high - low) as f64 / 1e3;
    }

    fn line(&self, runs: u32) -> String {
        let given = f64::from(self.given.max(1));
        let share = |n: u32| 100.0 * f64::from(n) / given;
        format!(
            "refused {:.1} % | held {:.1} % | truth above {:.1} % | truth below {:.1} % | width {:.1} us",
            100.0 * f64::from(runs - self.given) / f64::from(runs),
            100.0 - share(self.below + self.above),
            share(self.below),
            share(self.above),
            self.width_us / given
        )
    }
}

fn main() {
    let runs: u32 = args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let only = args().nth(2);
    let wants = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wants("quantiles") {
        quantiles::rows(runs);
    }
    if wants("rates") {
        rates::rows(runs);
    }
    if wants("tail") {
        tails(runs);
    }
}

/// Prints how often the return levels of each system hold the truth.
fn tails(runs: u32) {
    println!("{runs} runs of {SECONDS} s at {RATE} wake-ups a second");
    for system in &SYSTEMS {
        let hour_ns = 3_600_000_000_000;
        let truth_ns = (system.reached_by)(1.0 / (RATE * 3_600) as f64);
        let (mut maxima, mut peaks, mut p99) = (Score::default(), Score::default(), 0);
        for seed in 0..runs {
            let mut random = Random::new(1_000 + u64::from(seed));
            let (slices, all) = run(system, &mut random);
            let slices: Vec<&Slice> = slices.iter().collect();
            let tail = tail::of(&slices, &all, SECONDS * 1_000_000_000, &modes::of(&all), false);
            maxima.add(&tail.maxima, hour_ns, truth_ns);
            peaks.add(&tail.peaks, hour_ns, truth_ns);
            let quantile = quantile::of(&all, 999_900_000).expect("latencies");
            let exact_ns = (system.reached_by)(1e-4) as u64;
            let ends = quantile.low_ns.zip(quantile.high_ns);
            p99 += u32::from(ends.is_some_and(|(low, high)| (low..=high).contains(&exact_ns)));
        }
        println!("{}; once in 1 h: {:.1} us", system.name, truth_ns / 1e3);
        println!("  block maxima         {}", maxima.line(runs));
        println!("  peaks over threshold {}", peaks.line(runs));
        println!(
            "  p99.99, order statistics: held {:.1} %",
            100.0 * f64::from(p99) / f64::from(runs)
        );
    }
}
