//! A plan that tries settings: rounds, each of which measures the system as found and every setting under every load.
//!
//! A machine changes while it is measured. So settings take turns within each round, and rounds come in pairs: the
//! second round of a pair has the order of the first one backwards, so a steady drift cancels in each pair. Each pair
//! begins one setting later than the pair before it.

use std::collections::BTreeMap;

use super::{Phase, PhaseEnd, Plan};
use crate::time::Nanos;

/// What cells of the system as found are called.
pub const AS_FOUND: &str = "as found";

/// Numbers of rounds that a trial may have, all of them even: a drift cancels only in pairs of rounds.
const ROUNDS: [u64; 4] = [10, 8, 6, 4];
const ROUNDS_LEAST: u64 = ROUNDS[ROUNDS.len() - 1];

/// Rounds are made fewer before cells get shorter than this.
const LONG: Nanos = Nanos::from_secs(5);

/// The same for six rounds or fewer.
const SHORT: Nanos = Nanos::from_secs(2);
const SHORT_ROUNDS: u64 = 6;

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
    /// The shortest budget that so many settings need.
    #[must_use]
    pub fn shortest(base: &Plan, tried: usize) -> Nanos {
        RoundLength::new(&loads(base), turns(tried).len() as u64).shortest()
    }

    /// Lays out rounds that fit into a budget. The phases of a plan that have the same loads and the same sampler count
    /// once.
    ///
    /// # Errors
    ///
    /// The budget is too short: the shortest one.
    pub fn new(base: &Plan, tried: &[TriedSettings], budget: Nanos) -> Result<TrialPlan, Nanos> {
        let loads = loads(base);
        let turns = turns(tried.len());
        let length = RoundLength::new(&loads, turns.len() as u64);
        let (rounds, cell) = length.fit(budget).ok_or_else(|| length.shortest())?;
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
    let first = usize::try_from(round / 2).unwrap_or(0) % turns.len();
    turns.rotate_left(first);
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

/// How long a round takes.
#[derive(Clone, Copy, Debug)]
struct RoundLength {
    /// Time in which nothing counts.
    fixed_ns: u64,
    cells: u64,
}

impl RoundLength {
    fn new(loads: &[Phase], turns: u64) -> RoundLength {
        let settle_ns: u64 = loads.iter().map(|load| load.settle.0).sum();
        let warmup_ns = loads.first().map_or(0, |load| load.sampler.warmup.0);
        RoundLength {
            fixed_ns: turns * (settle_ns + warmup_ns + CHANGE.0),
            cells: turns * loads.len() as u64,
        }
    }

    /// The shortest trial.
    fn shortest(self) -> Nanos {
        Nanos(ROUNDS_LEAST * (self.fixed_ns + self.cells * SHORTEST.0))
    }

    /// Rounds, and how long each cell counts; none where the budget is too short.
    fn fit(self, budget: Nanos) -> Option<(u64, Nanos)> {
        let cell = |rounds: u64| {
            Nanos((budget.0 / rounds).saturating_sub(self.fixed_ns) / self.cells.max(1))
        };
        let most = |rounds: u64, least: Nanos| {
            let mut fewer = ROUNDS.into_iter().filter(|one| *one <= rounds);
            fewer.find(|one| cell(*one) >= least)
        };
        let rounds = most(ROUNDS[0], LONG)
            .or_else(|| most(SHORT_ROUNDS, SHORT))
            .or_else(|| most(ROUNDS_LEAST, SHORTEST))?;
        Some((rounds, cell(rounds)))
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

    /// With one setting every round had the system as found first, so a drift was taken for an effect of the setting.
    #[test]
    fn a_linear_drift_cancels_in_the_differences_of_all_rounds() {
        for count in [1, 2, 3, 4, 7] {
            let trial =
                TrialPlan::new(&base(), &tried(count), Nanos::from_secs(2_000)).expect("fits");
            // The drift at a cell is its number, which sums up without rounding.
            let mean = |round: u64, load: &str, of: Option<usize>| {
                let own = (0i64..).zip(&trial.cells).filter(|(_, cell)| {
                    cell.round == round && cell.load == load && cell.tried == of
                });
                let at: Vec<i64> = own.map(|(nth, _)| nth).collect();
                // Doubled: the system as found may be there twice.
                2 * at.iter().sum::<i64>() / at.len() as i64
            };
            for load in ["rest", "busy"] {
                for nth in 0..count {
                    let change = |round| mean(round, load, Some(nth)) - mean(round, load, None);
                    let changes: Vec<i64> = (0..trial.rounds).map(change).collect();
                    assert_eq!(changes.iter().sum::<i64>(), 0, "{count} {nth} {load}: {changes:?}");
                }
            }
        }
    }

    #[test]
    fn pairs_of_rounds_begin_with_different_settings() {
        let first = |count: usize| -> Vec<Option<usize>> {
            let trial =
                TrialPlan::new(&base(), &tried(count), Nanos::from_secs(1_200)).expect("fits");
            let cells = trial.cells.len() / usize::try_from(trial.rounds).expect("few");
            trial.cells.chunks(cells).take(4).map(|round| round[0].tried).collect()
        };
        // As found, 0, 1, 2: rounds 1 and 3 are the rounds before them backwards.
        assert_eq!(first(3), [None, Some(2), Some(0), None]);
        assert_eq!(first(1), [None, Some(0), Some(0), None]);
    }

    #[test]
    fn a_budget_decides_rounds_and_lengths_or_is_refused() {
        let lay = |secs: u64| TrialPlan::new(&base(), &tried(1), Nanos::from_secs(secs));
        // Two turns under two loads: 4 cells. In each round 1 s for changes, 1 s for settling, 0.4 s of warm-up.
        let shape = |secs: u64| lay(secs).map(|trial| (trial.rounds, trial.cell));
        assert_eq!(shape(224), Ok((10, Nanos::from_secs(5))));
        assert_eq!(shape(223).map(|it| it.0), Ok(8));
        assert_eq!(shape(63).map(|it| it.0), Ok(6));
        assert_eq!(shape(62).map(|it| it.0), Ok(4));
        assert_eq!(shape(25), Err(Nanos::from_ms(25_600)));
        assert_eq!(TrialPlan::shortest(&base(), 1), Nanos::from_ms(25_600));
        let shortest = TrialPlan::new(&base(), &tried(1), Nanos::from_ms(25_600)).expect("fits");
        assert_eq!((shortest.rounds, shortest.cell), (4, Nanos::from_secs(1)));
        assert!(lay(440).expect("fits").cell > LONG);
    }
}
