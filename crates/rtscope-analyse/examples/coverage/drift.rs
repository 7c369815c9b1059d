//! How often the interval of a drift holds the truth: loops of 10 ms with 2 ms of work whose latencies are
//! known, seen for some number of activations.

use rtscope_analyse::statistics::{drift, random::Random};
use rtscope_model::{
    drift::{LoopActivation, Periodic},
    plan::Sleep,
};

use crate::score::{Score, Truth};

const MS: u64 = 1_000_000;

/// The intervals of many recordings of one loop.
pub(crate) struct Scores {
    /// All recordings.
    pub(crate) all: Score,
    /// Those with a late activation.
    pub(crate) met: Score,
}

/// A loop's latencies: up to 100 us, and more when it is late, which it is in spells.
pub(crate) struct Latencies {
    pub(crate) name: &'static str,
    /// Mean numbers of activations in a spell and between two.
    spell: usize,
    between: usize,
    /// What a late activation adds, and its mean, in ns.
    added: fn(&mut Random) -> f64,
    added_mean: f64,
}

pub(crate) const SYSTEMS: [Latencies; 3] = [
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

    /// So many activations, and whether any of them is late.
    fn activations(
        &self,
        sleep: Sleep,
        count: u64,
        random: &mut Random,
    ) -> (Vec<LoopActivation>, bool) {
        let is_independent = self.spell == 1;
        let mut is_late = random.below(self.spell + self.between) < self.spell;
        let (mut now, mut all, mut has_met) = (0, Vec::new(), false);
        for n in 1..=count {
            let ends = random.below(if is_late { self.spell } else { self.between }) == 0;
            is_late = match is_independent {
                true => random.below(self.spell + self.between) < self.spell,
                false => is_late != ends,
            };
            has_met |= is_late;
            let added = if is_late { (self.added)(random) } else { 0.0 };
            let expiry_ns = if sleep == Sleep::Absolute { n * 10 * MS } else { now + 10 * MS };
            let woke_ns = expiry_ns.max(now) + (1e5 * random.share() + added) as u64;
            all.push(LoopActivation { armed_ns: now, expiry_ns, woke_ns });
            now = woke_ns + 2 * MS;
        }
        (all, has_met)
    }
}

/// Judges the drift of a loop many times.
pub(crate) fn scores(system: &Latencies, sleep: Sleep, count: u64, runs: u32) -> Scores {
    let longer = 2e6 + system.mean_ns();
    let truth = match sleep {
        Sleep::Relative => longer / (1e7 + longer) * 3.6e12,
        Sleep::Absolute => 0.0,
    };
    let mut scores = Scores { all: Score::default(), met: Score::default() };
    for seed in 0..runs {
        let mut random = Random::new(u64::from(seed) + 1);
        let (activations, has_met) = system.activations(sleep, count, &mut random);
        let subject = Periodic {
            name: String::new(),
            sleep: Some(sleep),
            period_ns: Some(10 * MS),
            work_ns: Some(2 * MS),
            placement: None,
            program: None,
            missed: 0,
            activations,
        };
        let interval = drift::judge(&subject)
            .and_then(|drift| drift.drift_ns_per_hour_low.zip(drift.drift_ns_per_hour_high));
        let ends = interval.map(|(low, high)| (Some(low), Some(high)));
        let truth = Truth { of_system: truth, of_run: truth, has_met };
        scores.all.add(ends, truth);
        if has_met {
            scores.met.add(ends, truth);
        }
    }
    scores
}

/// Prints a row of the table for each system, way of sleeping and number of activations, and one for the
/// recordings that met a late activation where some didn't.
pub(crate) fn rows(runs: u32) {
    println!("drift: 95 % interval, {runs} runs each");
    for system in &SYSTEMS {
        for (sleep, how) in [(Sleep::Relative, "a time"), (Sleep::Absolute, "until")] {
            for count in [200, 1_000, 5_000] {
                let scores = scores(system, sleep, count, runs);
                let print = |name: &str, score: &Score| {
                    let held = score.held_percent();
                    let held = held.map_or_else(|| "-".to_owned(), |held| format!("{held:.1} %"));
                    println!(
                        "| {name} | {how} | {count} | {:.1} % | {held} |",
                        score.refused_percent()
                    );
                };
                print(system.name, &scores.all);
                if scores.met.given < scores.all.given {
                    let met = scores.met.runs;
                    print(&format!("{met} of these with a late activation"), &scores.met);
                }
            }
        }
    }
}
