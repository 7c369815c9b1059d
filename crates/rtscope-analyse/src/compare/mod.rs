//! Two sides: is the difference real, how large is it, and in what else do the runs differ?
//!
//! ```text
//! runs of A, runs of B -> pairing: which cells belong together
//!                      -> sample:  each side's latencies in blocks of time
//!                      -> limit:   how often a limit is reached, who meets it
//!                      -> change:  quantile shifts, distance, requirements
//!                      -> setting: everything else that differs
//! ```
//!
//! Two maxima are never compared: the maximum of a run is one latency, and of twenty equal runs of one
//! system the largest was three times the smallest. They are shown, each with its own side.

mod bootstrap;
mod change;
mod limit;
mod pairing;
mod ratio;
mod sample;
mod setting;

use rtscope_model::record::Record;
use serde::Serialize;

pub(crate) use self::{change::signed_us, limit::counted};
pub use self::{
    change::{Change, Distance, Effect, Figures, Shift},
    limit::Exceedances,
    pairing::is_cell,
    ratio::Ratio,
    setting::Difference,
};
use crate::judgement::Judgement;

/// Version of the document that `rtscope compare --json` prints.
pub const FORMAT: u32 = 1;

/// A run on one side.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What the user calls it: its folder.
    pub name: &'a str,
    /// Its record.
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
    /// Each pair of cells.
    pub changes: Vec<Change>,
    /// Everything else that differs between the sides.
    pub differences: Vec<Difference>,
    /// What its reader must know: what differs besides, what can't be said.
    pub notes: Vec<String>,
}

/// Compares two sides at their requirements' limits and those of `limits_ns`.
#[must_use]
pub fn compare(a: &[Run<'_>], b: &[Run<'_>], limits_ns: &[u64]) -> Comparison {
    let (pairs, mut notes) = pairing::pairs(a, b);
    let changes: Vec<Change> = pairs.iter().map(|pair| change::of(pair, limits_ns)).collect();
    let imported = [a, b].map(|runs| runs.iter().any(|run| run.record.is_imported()));
    let differences = setting::differences(a, b, &pairs);
    notes
        .splice(0..0, setting::warning(&differences).into_iter().chain(setting::imports(imported)));
    if changes.iter().any(|change| change.runs_resampled) {
        // The intervals hold the differences from run to run.
    } else {
        notes.push(
            "one or two runs on a side: how much two runs of one system differ is not in the \
             intervals (three or more on each side, taken in turn, put it in)"
                .to_owned(),
        );
    }
    let names = |runs: &[Run<'_>]| {
        let name = |run: &Run<'_>| match run.cell {
            Some(cell) => format!("{}@{cell}", run.name),
            None => run.name.to_owned(),
        };
        runs.iter().map(name).collect()
    };
    Comparison { format: FORMAT, a: names(a), b: names(b), imported, changes, differences, notes }
}

#[cfg(test)]
mod tests;
