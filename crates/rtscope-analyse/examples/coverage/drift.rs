//! How often the interval of a drift holds the truth: loops of 10 ms with 2 ms of work whose latencies are
//! known, seen for some number of activations.

use rtscope_analyse::statistics::{drift, random::Random};
use rtscope_model::{
    drift::{Activation, Periodic},
    plan::Sleep,
};

const MS: u64 = 1_000_000;

/// A loop's latencies: up to 100 us, and more when it is late, which it is in spells.
struct Latencies {
    name: &'static str,
    /// Mean numbers of activations in a spell and between two.
    spell: usize,
    between: usize,
    /// What a late activation adds, and its mean, in ns.
    added: fn(&mut Random) -> f64,
    added_mean: f64,
}

const SYSTEMS: [Latencies; 3] = [
    Latencies {
        name: "independent: 1 % late by 3 ms",
        spell: 1,
        between: 99,
        added: |_| 3e6,
        added_mean: 3e6,
    },
    Latencies {
        name: "bursts of 5: 2 % late by 1 ms, exponential",
        spell: 5,
        between: 245,
        added: |random| 1e6 * random.exponential(),
        added_mean: 1e6,
    },
    Latencies {
        name: "spells of 50: 20 % late by 0.5 to 1.5 ms",
        spell: 50,
        between: 200,
        added: |random| 5e5 + 1e6 * random.share(),
        added_mean: 1e6,
    },
];

impl Latencies {
    fn mean_ns(&self) -> f64 {
        5e4 + self.added_mean * self.spell as f64 / (self.spell + self.between) as f64
    }

    fn activations(&self, sleep: Sleep, count: u64, random: &mut Random) -> Vec<Activation> {
        let is_independent = self.spell == 1;
        let mut is_late = random.below(self.spell + self.between) < self.spell;
        let (mut now, mut all) = (0, Vec::new());
        for n in 1..=count {
            let ends = random.below(if is_late { self.spell } else { self.between }) == 0;
            is_late = match is_independent {
                true => random.below(self.spell + self.between) < self.spell,
                false => is_late != ends,
            };
            let added = if is_late { (self.added)(random) } else { 0.0 };
            let expiry_ns = if sleep == Sleep::Absolute { n * 10 * MS } else { now + 10 * MS };
            let woke_ns = expiry_ns.max(now) + (1e5 * random.share() + added) as u64;
            all.push(Activation { armed_ns: now, expiry_ns, woke_ns });
            now = woke_ns + 2 * MS;
        }
        all
    }
}

/// Prints a row of the table for each system, way of sleeping and number of activations.
pub(crate) fn rows(runs: u32) {
    println!("drift: 95 % interval, {runs} runs each");
    for system in &SYSTEMS {
        for sleep in [Sleep::Relative, Sleep::Absolute] {
            for count in [200, 1_000, 5_000] {
                println!("{}", row(system, sleep, count, runs));
            }
        }
    }
}

fn row(system: &Latencies, sleep: Sleep, count: u64, runs: u32) -> String {
    let longer = 2e6 + system.mean_ns();
    let (how, truth) = match sleep {
        Sleep::Relative => ("a time", longer / (1e7 + longer) * 3.6e12),
        Sleep::Absolute => ("until", 0.0),
    };
    let interval = |seed: u32| {
        let mut random = Random::new(u64::from(seed) + 1);
        let subject = Periodic {
            name: String::new(),
            sleep: Some(sleep),
            period_ns: Some(10 * MS),
            work_ns: Some(2 * MS),
            placement: None,
            program: None,
            missed: 0,
            activations: system.activations(sleep, count, &mut random),
        };
        let drift = drift::judge(&subject)?;
        drift.drift_ns_per_hour_low.zip(drift.drift_ns_per_hour_high)
    };
    let given: Vec<(f64, f64)> = (0..runs).filter_map(interval).collect();
    let held = given.iter().filter(|(low, high)| *low <= truth && truth <= *high).count();
    let held = match given.len() {
        0 => "-".to_owned(),
        n => format!("{:.1} %", 100.0 * held as f64 / n as f64),
    };
    let refused = 100.0 * (1.0 - given.len() as f64 / f64::from(runs));
    format!("| {} | {how} | {count} | {refused:.1} % | {held} |", system.name)
}
