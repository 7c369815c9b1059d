//! A plan that tries settings: rounds, each of which measures the system as found and every setting under every load.
//!
//! A machine changes while it is measured. So settings take turns within each round, and the rounds differ in their
//! order: each begins one setting later than the one before, and every second one goes backwards.

use std::collections::BTreeMap;

use super::{Phase, PhaseEnd, Plan};
use crate::time::Nanos;

/// What cells of the system as found are called.
pub const AS_FOUND: &str = "as found";

/// Rounds of a trial.
const ROUNDS: std::ops::RangeInclusive<u64> = 3..=10;

/// Rounds are made fewer before cells get shorter than this.
const LONG: Nanos = Nanos::from_secs(5);

/// The same for five rounds or fewer.
const SHORT: Nanos = Nanos::from_secs(2);
const SHORT_ROUNDS: u64 = 5;

/// The shortest cell: a second is a slice.
const SHORTEST: Nanos = Nanos::from_secs(1);

/// How long a load runs before a cell counts, where its plan doesn't say.
const SETTLE: Nanos = Nanos::from_ms(500);

/// Time that changing settings and placing threads takes between two sessions, at most.
const CHANGE: Nanos = Nanos::from_ms(500);

/// From this number of settings on the system as found is measured twice in each round: all are compared with it.
const FOUND_TWICE_FROM: usize = 4;

/// Settings that are tried together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedSettings {
    /// What they are called.
    pub name: String,
    /// Values by name.
    pub settings: BTreeMap<String, String>,
}

impl TriedSettings {
    /// Settings by their names and values.
    #[must_use]
    pub fn new(settings: BTreeMap<String, String>) -> TriedSettings {
        let texts: Vec<String> =
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        TriedSettings { name: texts.join(" "), settings }
    }
}

/// What a cell of the plan measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedCell {
    /// Its round.
    pub round: u64,
    /// Which of the settings; none for the system as found.
    pub tried: Option<usize>,
    /// The load: the name of the phase that it is a repeat of.
    pub load: String,
}

/// A plan that tries settings, and what each of its cells measures.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialPlan {
    pub plan: Plan,
    pub cells: Vec<TriedCell>,
    /// Number of rounds.
    pub rounds: u64,
    /// How long each cell counts.
    pub cell: Nanos,
}

impl TrialPlan {
    /// Lays out rounds that fit into a budget. The phases of a plan that have the same loads and the same sampler count
    /// once.
    ///
    /// # Errors
    ///
    /// The budget is too short: the shortest one.
    pub fn new(base: &Plan, tried: &[TriedSettings], budget: Nanos) -> Result<TrialPlan, Nanos> {
        let loads = loads(base);
        let turns = turns(tried.len());
        let (rounds, cell) = fit(&loads, turns.len() as u64, budget)?;
        let mut trial = TrialPlan {
            plan: Plan { phases: Vec::new(), require: base.require.clone(), ..base.clone() },
            cells: Vec::new(),
            rounds,
            cell,
        };
        for round in 0..rounds {
            for turn in in_order(&turns, round) {
                for load in &loads {
                    let number = trial.cells.len() + 1;
                    trial.plan.phases.push(phase(load, turn.map(|nth| &tried[nth]), number, cell));
                    trial.cells.push(TriedCell { round, tried: turn, load: load.name.clone() });
                }
            }
        }
        Ok(trial)
    }
}

/// The phases that differ.
fn loads(base: &Plan) -> Vec<Phase> {
    let mut loads: Vec<Phase> = Vec::new();
    for phase in &base.phases {
        let is_known = |known: &Phase| {
            known.loads == phase.loads && known.sampler.in_effect() == phase.sampler.in_effect()
        };
        if loads.iter().any(is_known) {
            continue;
        }
        let has_settled = phase.loads.is_empty() || phase.settle > Nanos::ZERO;
        let settle = if has_settled { phase.settle } else { SETTLE };
        loads.push(Phase { settle, ..phase.clone() });
    }
    loads
}

/// What each round measures, in the order of the first one.
fn turns(tried: usize) -> Vec<Option<usize>> {
    let mut turns: Vec<Option<usize>> = std::iter::once(None).chain((0..tried).map(Some)).collect();
    if tried >= FOUND_TWICE_FROM {
        turns.insert(turns.len().div_ceil(2), None);
    }
    turns
}

/// The turns of a round.
fn in_order(turns: &[Option<usize>], round: u64) -> Vec<Option<usize>> {
    let mut turns = turns.to_vec();
    let first = usize::try_from(round).unwrap_or(0) % turns.len();
    turns.rotate_left(first);
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

/// Rounds, and how long each cell counts.
fn fit(loads: &[Phase], turns: u64, budget: Nanos) -> Result<(u64, Nanos), Nanos> {
    let cells = turns * loads.len() as u64;
    let settle_ns: u64 = loads.iter().map(|load| load.settle.0).sum();
    let warmup_ns = loads.first().map_or(0, |load| load.sampler.warmup.0);
    let fixed_ns = turns * (settle_ns + warmup_ns + CHANGE.0);
    let cell = |rounds: u64| Nanos((budget.0 / rounds).saturating_sub(fixed_ns) / cells.max(1));
    let fits = |least: Nanos| move |rounds: &u64| cell(*rounds) >= least;
    let rounds = ROUNDS.rev().find(fits(LONG));
    let rounds = rounds.or_else(|| (*ROUNDS.start()..=SHORT_ROUNDS).rev().find(fits(SHORT)));
    let rounds = rounds.or_else(|| Some(*ROUNDS.start()).filter(fits(SHORTEST)));
    match rounds {
        Some(rounds) => Ok((rounds, cell(rounds))),
        None => Err(Nanos(ROUNDS.start() * (fixed_ns + cells * SHORTEST.0))),
    }
}

fn phase(load: &Phase, tried: Option<&TriedSettings>, number: usize, cell: Nanos) -> Phase {
    let (name, settings) = match tried {
        None => (AS_FOUND, BTreeMap::new()),
        Some(tried) => (tried.name.as_str(), tried.settings.clone()),
    };
    let mut all = load.settings.clone();
    all.extend(settings);
    Phase {
        // A number keeps the names apart.
        name: format!("{number}: {name}, {}", load.name),
        end: PhaseEnd { duration: Some(cell), ..PhaseEnd::default() },
        settings: all,
        ..load.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::parse;

    fn base() -> Plan {
        let text = r#"
name = "base"
require = ["max < 1ms"]
[[phase]]
name = "rest"
duration = "5s"
[[phase]]
name = "busy"
duration = "10s"
load = ["message groups=1"]
[[phase]]
name = "rest again"
duration = "5s"
"#;
        parse("base", text).expect("a plan")
    }

    fn tried(count: usize) -> Vec<TriedSettings> {
        let one = |nth: usize| {
            TriedSettings::new(BTreeMap::from([("throttling".to_owned(), (nth + 1).to_string())]))
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn each_round_has_each_setting_under_each_load_once() {
        for count in [1, 3, 4, 7] {
            let trial =
                TrialPlan::new(&base(), &tried(count), Nanos::from_secs(1_200)).expect("fits");
            let found = if count >= FOUND_TWICE_FROM { 2 } else { 1 };
            assert_eq!(trial.cells.len() as u64, trial.rounds * 2 * (count as u64 + found));
            for round in 0..trial.rounds {
                for load in ["rest", "busy"] {
                    let of = |tried: Option<usize>| {
                        let cells = trial.cells.iter();
                        let same = |cell: &&TriedCell| {
                            cell.round == round && cell.load == load && cell.tried == tried
                        };
                        cells.filter(same).count() as u64
                    };
                    assert_eq!(of(None), found);
                    assert!((0..count).all(|nth| of(Some(nth)) == 1), "{count} {round} {load}");
                }
            }
            assert!(trial.plan.expected() <= Nanos::from_secs(1_200));
            assert_eq!(trial.plan.require, base().require);
            let read = parse("trial", &trial.plan.to_toml()).expect("its own text");
            assert_eq!(read.phases, trial.plan.phases);
        }
    }

    #[test]
    fn rounds_begin_with_different_settings() {
        let trial = TrialPlan::new(&base(), &tried(3), Nanos::from_secs(1_200)).expect("fits");
        let cells = trial.cells.len() / usize::try_from(trial.rounds).expect("few");
        let first: Vec<Option<usize>> =
            trial.cells.chunks(cells).take(4).map(|round| round[0].tried).collect();
        // As found, 0, 1, 2 rotated by the round, and backwards in rounds 1 and 3.
        assert_eq!(first, [None, None, Some(1), Some(1)]);
    }

    #[test]
    fn a_budget_decides_rounds_and_lengths_or_is_refused() {
        let lay = |secs: u64| TrialPlan::new(&base(), &tried(1), Nanos::from_secs(secs));
        // Two turns under two loads: 4 cells. In each round 1 s for changes, 1 s for settling, 0.4 s of warm-up.
        let shape = |secs: u64| lay(secs).map(|trial| (trial.rounds, trial.cell));
        assert_eq!(shape(224), Ok((10, Nanos::from_secs(5))));
        assert_eq!(shape(223).map(|it| it.0), Ok(9));
        assert_eq!(shape(52), Ok((5, Nanos::from_secs(2))));
        assert_eq!(shape(51).map(|it| it.0), Ok(4));
        assert_eq!(shape(19), Err(Nanos::from_ms(19_200)));
        assert_eq!(shape(20).map(|it| it.0), Ok(3));
        assert!(lay(440).expect("fits").cell > LONG);
    }
}
