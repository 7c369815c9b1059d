//! How often the return levels of a tail hold the truth: systems whose tail is known, each measured many times.

use rtscope_analyse::statistics::{
    dependence::Blocks,
    modes,
    random::Random,
    tail::{self, Tail, TailEstimate},
};
use rtscope_model::{
    histogram::{Histogram, Layout},
    slice::Slice,
};
use statrs::distribution::{ContinuousCDF, Normal};

use super::systems::slice_of;

/// A simulated system: its latencies, and the one that is reached once in `1 / p` wake-ups.
struct System {
    name: &'static str,
    latency_ns: fn(&mut Random, &mut Burst) -> f64,
    reached_by: fn(f64) -> f64,
    rare: Option<RareCause>,
}

/// A cause that most runs don't meet.
struct RareCause {
    /// Only this cause makes wake-ups so late.
    from_ns: u64,
    /// The latency that is reached once in `1 / p` wake-ups without it.
    reached_without: fn(f64) -> f64,
}

/// Late wake-ups that come one after the other.
#[derive(Default)]
struct Burst {
    is_on: bool,
    delay_ns: f64,
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

/// 2 % late in bursts of 5 in the mean; each late wake-up has a delay of its own, or all those of a burst
/// have the same.
fn in_bursts(random: &mut Random, burst: &mut Burst, is_same: bool) -> f64 {
    let was_on = burst.is_on;
    burst.is_on = match was_on {
        true => random.below(5) != 0,
        false => random.below(245) == 0,
    };
    if !burst.is_on {
        return body(random);
    }
    if !(was_on && is_same) {
        burst.delay_ns = 6e3 * random.exponential();
    }
    6e3 + burst.delay_ns
}

fn light(p: f64) -> f64 {
    6e3 + 6e3 * (0.02 / p).ln()
}

/// Up to 60 us, of this shape, which is below 0.
fn bounded(random: &mut Random, shape: f64) -> f64 {
    delayed(random, |random| 60e3 * (1.0 - random.share().powf(-shape)))
}

fn bounded_reached(p: f64, shape: f64) -> f64 {
    6e3 + 60e3 * (1.0 - (p / 0.02).powf(-shape))
}

fn lognormal(random: &mut Random, sigma: f64) -> f64 {
    let turn = std::f64::consts::TAU * random.share();
    8e3 * (sigma * (2.0 * random.exponential()).sqrt() * turn.cos()).exp()
}

fn lognormal_reached(p: f64, sigma: f64) -> f64 {
    8e3 * (sigma * -Normal::standard().inverse_cdf(p)).exp()
}

const SYSTEMS: [System; 10] = [
    System {
        name: "light: 2 % delayed by 6 us, exponential",
        latency_ns: |random, _| delayed(random, |random| 6e3 * random.exponential()),
        reached_by: light,
        rare: None,
    },
    System {
        name: "bounded: 2 % delayed up to 60 us, shape -0.2",
        latency_ns: |random, _| bounded(random, -0.2),
        reached_by: |p| bounded_reached(p, -0.2),
        rare: None,
    },
    System {
        name: "bounded: 2 % delayed up to 60 us, shape -0.5",
        latency_ns: |random, _| bounded(random, -0.5),
        reached_by: |p| bounded_reached(p, -0.5),
        rare: None,
    },
    System {
        name: "bounded: 2 % delayed up to 60 us, evenly",
        latency_ns: |random, _| bounded(random, -1.0),
        reached_by: |p| bounded_reached(p, -1.0),
        rare: None,
    },
    System {
        name: "heavy: 2 % delayed, shape 0.15",
        latency_ns: |random, _| delayed(random, |random| 40e3 * (random.share().powf(-0.15) - 1.0)),
        reached_by: |p| 6e3 + 40e3 * ((0.02 / p).powf(0.15) - 1.0),
        rare: None,
    },
    System {
        name: "lognormal body, sigma 0.35",
        latency_ns: |random, _| lognormal(random, 0.35),
        reached_by: |p| lognormal_reached(p, 0.35),
        rare: None,
    },
    System {
        name: "lognormal body, sigma 0.7",
        latency_ns: |random, _| lognormal(random, 0.7),
        reached_by: |p| lognormal_reached(p, 0.7),
        rare: None,
    },
    System {
        name: "light in bursts of 5, delays of their own",
        latency_ns: |random, burst| in_bursts(random, burst, false),
        reached_by: light,
        rare: None,
    },
    System {
        name: "light in bursts of 5, one delay in each",
        latency_ns: |random, burst| in_bursts(random, burst, true),
        // What is reached once in an hour is a burst, a fifth of the late wake-ups.
        reached_by: |p| light(5.0 * p),
        rare: None,
    },
    System {
        name: "rare second cause: light, and 1 in 1,000,000 another 200 us",
        latency_ns: |random, _| {
            let rare = if random.share() < 1e-6 { 200e3 } else { 0.0 };
            rare + delayed(random, |random| 6e3 * random.exponential())
        },
        // One in 3,600,000 lies among those of the second cause, of which 98 % have a short body.
        reached_by: |p| match p < 1e-6 {
            true => 204e3 + 2e3 * (1.0 - (p / 1e-6 - 0.02) / 0.98),
            false => 6e3 + 6e3 * (0.02 / (p - 1e-6)).ln(),
        },
        rare: Some(RareCause { from_ns: 200_000, reached_without: light }),
    },
];

fn run(system: &System, random: &mut Random) -> (Vec<Slice>, Histogram) {
    let mut all = Histogram::new(Layout::default());
    let mut burst = Burst::default();
    let mut second_of = |second: u64| {
        let mut one = Histogram::new(Layout::default());
        (0..RATE).for_each(|_| one.record((system.latency_ns)(random, &mut burst) as u64));
        all.merge(&one);
        slice_of(0, second, &one)
    };
    let slices = (0..SECONDS).map(&mut second_of).collect();
    (slices, all)
}

/// How often a model gave an interval, and how often that held the truth.
#[derive(Default)]
struct Score {
    runs: u32,
    given: u32,
    below: u32,
    above: u32,
    width_us: f64,
}

impl Score {
    fn add(&mut self, estimate: &TailEstimate, period_ns: u64, truth_ns: f64) {
        self.runs += 1;
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

    fn line(&self) -> String {
        let given = f64::from(self.given.max(1));
        let share = |n: u32| 100.0 * f64::from(n) / given;
        let refused = 100.0 * f64::from(self.runs - self.given) / f64::from(self.runs.max(1));
        if self.given == 0 {
            return format!("{refused:.1} % | - | - | - |");
        }
        format!(
            "{refused:.1} % | {:.1} % | {:.1} % | {:.1} us |",
            100.0 - share(self.below + self.above),
            share(self.below),
            self.width_us / given
        )
    }
}

/// The scores of both models in some of the runs of a system.
#[derive(Default)]
struct Scores {
    maxima: Score,
    peaks: Score,
}

impl Scores {
    fn add(&mut self, tail: &Tail, truth_ns: f64) {
        let hour_ns = 3_600_000_000_000;
        self.maxima.add(&tail.maxima, hour_ns, truth_ns);
        self.peaks.add(&tail.peaks, hour_ns, truth_ns);
    }

    fn print(&self, name: &str, truth_ns: f64) {
        if self.maxima.runs > 0 {
            let name = format!("| {name} | {:.1} us", truth_ns / 1e3);
            println!("{name} | block maxima | {}", self.maxima.line());
            println!("{name} | peaks over threshold | {}", self.peaks.line());
        }
    }
}

fn tail_of(system: &System, random: &mut Random) -> (Tail, Histogram) {
    let (slices, all) = run(system, random);
    let slices: Vec<&Slice> = slices.iter().collect();
    let mut blocks = Blocks::new(Layout::default());
    slices.iter().for_each(|slice| blocks.add(slice));
    let modes = modes::find(&all);
    let tail = tail::estimate(&slices, &all, &blocks, SECONDS * 1_000_000_000, &modes, false);
    (tail, all)
}

/// Prints how often the return levels of each system hold the truth.
pub(crate) fn rows(runs: u32) {
    println!("{runs} runs of {SECONDS} s at {RATE} wake-ups a second");
    println!("| system | truth | by | refused | held | truth above | mean width |");
    println!("|---|---:|---|---:|---:|---:|---:|");
    let once_in_an_hour = 1.0 / (RATE * 3_600) as f64;
    for system in &SYSTEMS {
        let truth_ns = (system.reached_by)(once_in_an_hour);
        let without_ns =
            system.rare.as_ref().map_or(truth_ns, |rare| (rare.reached_without)(once_in_an_hour));
        let (mut met, mut unmet) = (Scores::default(), Scores::default());
        for seed in 0..runs {
            let (tail, all) = tail_of(system, &mut Random::new(1_000 + u64::from(seed)));
            let from_ns = system.rare.as_ref().map_or(0, |rare| rare.from_ns);
            if all.max_ns().is_some_and(|max_ns| max_ns >= from_ns) {
                met.add(&tail, truth_ns);
            } else {
                unmet.add(&tail, without_ns);
            }
        }
        met.print(system.name, truth_ns);
        let name = format!("{}: the {} runs that didn't meet it", system.name, unmet.maxima.runs);
        unmet.print(&name, without_ns);
    }
}
