//! Two sides: is the difference real, how large is it, and in what else do the runs differ?
//!
//! ```text
//! runs of A, runs of B -> pairing: which cells belong together
//!                      -> sample:  each side's latencies, run by run
//!                      -> limit:   how often a limit is reached, who meets it, what was missed
//!                      -> shift:   how far quantiles moved
//!                      -> ratio:   intervals, and how likely chance is, adjusted for all figures
//!                      -> change:  what it means for a requirement, in words
//!                      -> setting: everything else that differs
//! ```
//!
//! Two maxima are never compared: the maximum of a run is one latency, and of twenty equal runs of one
//! system the largest was three times the smallest. They are shown, each with its own side.

mod beta;
mod change;
mod limit;
mod pairing;
mod ratio;
mod sample;
mod setting;
mod shift;
pub mod trial;

use rtscope_model::record::Record;
use serde::Serialize;

pub use self::{
    change::{CellComparison, Effect, SideFigures, SideFrames},
    limit::{Exceedances, Missed},
    pairing::is_cell,
    ratio::{Chance, ShareRatio},
    sample::Basis,
    setting::SettingDifference,
    shift::Shift,
};
pub(crate) use self::{
    limit::{counted, times},
    ratio::{Values, adjust, difference},
    shift::signed_us,
};
use crate::{judgement::Judgement, number::counted as number_of};

/// Version of the document that `rtscope compare --json` prints.
pub const FORMAT: u32 = 2;

/// A run on one side.
#[derive(Clone, Copy, Debug)]
pub struct ComparedRun<'a> {
    /// What the user calls it: its folder.
    pub name: &'a str,
    pub record: &'a Record,
    /// What it says.
    pub judgement: &'a Judgement,
    /// The only cell that is looked at; none is all.
    pub cell: Option<&'a str>,
}

/// What two sides show.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// [`FORMAT`].
    pub format: u32,
    /// The runs of A.
    pub a: Vec<String>,
    /// The runs of B.
    pub b: Vec<String>,
    /// Whether runs of A, of B were imported: what else differs is then known in part at best.
    pub imported: [bool; 2],
    /// Different or not, and in what.
    pub answer: String,
    /// Figures that were judged: limits, quantiles and missed activations of all pairs.
    pub figures: usize,
    /// Figures that could not be judged.
    pub refused: usize,
    pub changes: Vec<CellComparison>,
    /// Everything else that differs between the sides.
    pub differences: Vec<SettingDifference>,
    /// What its reader must know: what differs besides, what can't be said.
    pub notes: Vec<String>,
}

/// The runs of A and those of B.
pub type Sides<'a> = (&'a [ComparedRun<'a>], &'a [ComparedRun<'a>]);

/// Compares two sides at their requirements' limits and those of `limits_ns`.
///
/// # Panics
///
/// Never: there is one comparison for two sides.
#[must_use]
pub fn compare(a: &[ComparedRun<'_>], b: &[ComparedRun<'_>], limits_ns: &[u64]) -> Comparison {
    compare_each(&[(a, b)], limits_ns).pop().expect("one comparison")
}

/// Compares several pairs of sides, such as the machines of a fleet before and after a change. Chances are adjusted for all
/// figures of all pairs, so that somewhere among equal systems a difference is found in at most 5 % of cases.
#[must_use]
pub fn compare_each(all: &[Sides<'_>], limits_ns: &[u64]) -> Vec<Comparison> {
    let paired: Vec<_> = all.iter().map(|(a, b)| pairing::pairs(a, b)).collect();
    let between = |(pairs, _): &(Vec<_>, _)| -> Vec<CellComparison> {
        pairs.iter().map(|pair| change::between(pair, limits_ns)).collect()
    };
    let mut changes: Vec<Vec<CellComparison>> = paired.iter().map(between).collect();
    let chances: Vec<&mut Chance> =
        changes.iter_mut().flatten().flat_map(CellComparison::chances).collect();
    let figures = chances.len();
    ratio::adjust(chances);
    changes.iter_mut().flatten().for_each(CellComparison::conclude);
    let each = all.iter().zip(paired).zip(changes);
    each.map(|(((a, b), (pairs, mut notes)), changes)| {
        let refused = changes.iter().map(CellComparison::refused).sum();
        let imported = [a, b].map(|runs| runs.iter().any(|run| run.record.is_imported()));
        let differences = setting::differences(a, b, &pairs);
        let more = setting::warning(&differences).into_iter().chain(setting::imports(imported));
        notes.splice(0..0, more);
        notes.extend(basis_note(&changes, imported.contains(&true)));
        if pairs.is_empty() {
            notes.splice(0..0, pairing::advice(a, b));
        }
        let answer = answer(&changes, figures, refused);
        let (format, a, b) = (FORMAT, names(a), names(b));
        Comparison { format, a, b, imported, answer, figures, refused, changes, differences, notes }
    })
    .collect()
}

fn names(runs: &[ComparedRun<'_>]) -> Vec<String> {
    let name = |run: &ComparedRun<'_>| match run.cell {
        Some(cell) => format!("{}@{cell}", run.name),
        None => run.name.to_owned(),
    };
    runs.iter().map(name).collect()
}

/// Different or not, and in what.
fn answer(changes: &[CellComparison], figures: usize, refused: usize) -> String {
    if changes.is_empty() {
        return "the sides share no phase that recorded anything".to_owned();
    }
    let open = match refused {
        0 => String::new(),
        n => format!("; {} could not be judged", number_of(n as u64, "figure")),
    };
    if figures == 0 {
        return format!("cannot say whether the sides differ: no figure could be judged{open}");
    }
    let looked = number_of(figures as u64, "figure");
    let differing = |change: &CellComparison| {
        let figures = change.differing();
        (!figures.is_empty()).then(|| format!("{} in {}", change.name, figures.join(", ")))
    };
    let different: Vec<String> = changes.iter().filter_map(differing).collect();
    if different.is_empty() {
        return format!(
            "no difference found: none of {looked} differs by more than chance explains{open}"
        );
    }
    let independent = changes.iter().any(|change| change.basis == Basis::Independent);
    let caveat = if independent { ", if wake-ups are independent" } else { "" };
    let is_by_runs = changes.iter().all(|change| change.basis == Basis::Runs);
    let alike = match (independent, is_by_runs) {
        (true, _) => "with independent wake-ups and no differences from run to run, ",
        (false, false) => "without differences from run to run, ",
        // Student's t is exact for a normal distribution only.
        (false, true) => "if runs vary normally, ",
    };
    format!(
        "different{caveat}: {}. Compared: {looked}; {alike}equal systems are called different in at most 5 % of \
         comparisons{open}",
        different.join("; ")
    )
}

/// Whether a side has so few runs that a few outliers on one side, by chance, look like a difference.
fn has_few_runs(change: &CellComparison) -> bool {
    (ratio::RUNS_MIN..RUNS_ENOUGH).contains(&change.a.runs.min(change.b.runs))
}

/// From so many runs on each side on, simulations of runs in one of two states call equal systems different in at most
/// 5 % of comparisons.
const RUNS_ENOUGH: usize = 4;

/// What the intervals leave out.
fn basis_note(changes: &[CellComparison], has_imports: bool) -> Option<String> {
    let any = |basis| changes.iter().any(|change| change.basis == basis);
    if any(Basis::Independent) {
        let why = match has_imports {
            true => {
                "a phase is shorter than about 5 s, or a file doesn't say when its latencies occurred (give import the \
                 interval with --interval)"
            }
            false => "a phase is shorter than about 5 s",
        };
        return Some(format!(
            "the intervals assume independent wake-ups, because {why}. The true intervals are wider, and with one run \
             on a side they don't include the difference between runs of one system. Measure for longer, and take four \
             or more runs on each side, alternating between the sides"
        ));
    }
    let note = if any(Basis::Slices) {
        "with one run on a side, the intervals don't include the difference between runs of one system. Take \
            four or more runs on each side, alternating between the sides"
    } else if changes.iter().any(has_few_runs) {
        "with two or three runs on a side, the intervals are wide, because so few runs hardly show how much runs of \
            one system differ. Take four or more runs on each side, alternating between the sides"
    } else {
        return None;
    };
    Some(note.to_owned())
}

#[cfg(test)]
mod tests;
