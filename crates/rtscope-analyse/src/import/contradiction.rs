//! Rows, summary and totals of a file, held against each other.
//!
//! All readers of formats with figures beside a histogram ask here. Tools count latencies in whole units,
//! and take minimum, maximum and average of the same units:
//!
//! * Without latencies beyond the rows, the minimum is in the first filled row and the maximum in the last.
//!   With some, the maximum lies beyond all rows.
//! * The average of the rows and of what lies beyond them is known from one value to another, give or take a
//!   unit: tools cut it to a whole number or round it to two decimals.
//! * A file without rows still has its minimum below its average, and that below its maximum.

use std::collections::{BTreeMap, BTreeSet};

use rtscope_model::{finding::Weight, time::Nanos};

use super::{
    ImportReading,
    cell::{Rows, Said},
};

/// Averages are printed with two decimals or none, and those of rtscope are of latencies before they were cut to
/// whole units.
const ROUNDING: f64 = 1.01;

/// What contradicts itself in a file, in words.
#[derive(Debug, Default)]
pub(super) struct Contradictions {
    found: Vec<String>,
    /// Threads whose maximum is not known.
    without_maximum: Vec<String>,
}

impl Contradictions {
    pub(super) fn add(&mut self, text: impl Into<String>) {
        self.found.push(text.into());
    }

    /// Holds the units, in ns, that a file and its importer name against each other.
    pub(super) fn units(&mut self, units: impl Iterator<Item = u64>) {
        let units: BTreeSet<u64> = units.collect();
        if units.len() > 1 {
            let names: Vec<String> = units.iter().map(|&ns| Nanos(ns).exact()).collect();
            self.add(format!(
                "it and --unit together name several units for its latencies: {}",
                names.join(" and ")
            ));
        }
    }

    /// Holds one column of rows against what the file says of it.
    pub(super) fn of_rows(&mut self, label: &str, rows: &Rows, column: usize, said: &Said) {
        let nothing = BTreeMap::new();
        let counts = rows.counts(column).unwrap_or(&nothing);
        let placed = rows.placed(column);
        if let Some(total) = said.total.filter(|total| *total != placed) {
            let missing = match total.saturating_sub(placed) {
                0 => String::new(),
                missing => format!(": {missing} count as latencies without a known value"),
            };
            self.add(format!(
                "{label} has {placed} latencies in its rows, but a total of {total}{missing}"
            ));
        }
        let beyond = said.beyond(placed);
        let known = placed.saturating_add(said.overflow.unwrap_or(0));
        let is_counted = |count: u64| match said.overflow {
            Some(_) => count == known,
            None => count >= known,
        };
        if let Some(count) = said.count.filter(|count| !is_counted(*count)) {
            self.add(format!(
                "{label} counts {count} latencies, and {known} are in its rows and beyond them"
            ));
        }
        // What a tool counted while it wrote the file may be smaller or larger than what it wrote before.
        let is_racing = said.overflow.is_none() && beyond > 0 && beyond <= said.in_flight;
        let count = placed.saturating_add(beyond);
        self.needs_maximum(label, said, count);
        // The rows are known not to be whole: nothing follows from them.
        if said.missing(placed) > 0
            || said.early > 0
            || is_racing
            || count == 0 && said.max.is_none()
        {
            return;
        }
        let from = said.limit.unwrap_or(rows.last + 1);
        let (first, last) = (counts.keys().next().copied(), counts.keys().next_back().copied());
        self.extremes(label, rows, said, (first, last), (beyond, from));
        self.average(label, rows, said, counts, (beyond, from));
    }

    fn extremes(
        &mut self,
        label: &str,
        rows: &Rows,
        said: &Said,
        (first, last): (Option<u64>, Option<u64>),
        (beyond, from): (u64, u64),
    ) {
        let is_in =
            |value: u64, row: u64| value >= row && rows.end_of(row).is_none_or(|end| value <= end);
        match (said.max, last) {
            (Some(max), _) if beyond > 0 && max < from => self.add(format!(
                "{label} has latencies beyond the last row, {} in its last filled row, and a maximum of {max}",
                last.map_or("none".to_owned(), |last| last.to_string())
            )),
            (Some(max), Some(last)) if beyond == 0 && !is_in(max, last) => self.add(format!(
                "{label} has no latency beyond the rows, {last} in its last filled row, and a maximum of {max}{}",
                if max > last { ", which counts as one more latency" } else { "" }
            )),
            (Some(max), None) if beyond == 0 && max > 0 => self.add(format!(
                "{label} has no latency, and a maximum of {max}, which counts as one"
            )),
            _ => {}
        }
        match (said.min, first) {
            (Some(min), Some(first)) if !is_in(min, first) => self.add(format!(
                "{label} has {first} in its first filled row, and a minimum of {min}"
            )),
            (Some(min), None) if beyond > 0 && min < from => self.add(format!(
                "{label} has latencies beyond the last row only, and a minimum of {min}"
            )),
            _ => {}
        }
    }

    fn average(
        &mut self,
        label: &str,
        rows: &Rows,
        said: &Said,
        counts: &BTreeMap<u64, u64>,
        (beyond, from): (u64, u64),
    ) {
        let (Some(mean), Some(max)) = (said.mean, said.max) else { return };
        let (mut count, mut low, mut high) = (beyond as f64, 0.0, 0.0);
        low += beyond as f64 * from as f64;
        high += beyond as f64 * max as f64;
        for (&row, &placed) in counts {
            let placed = placed as f64;
            count += placed;
            low += placed * row as f64;
            high += placed * rows.end_of(row).unwrap_or(max) as f64;
        }
        let (low, high) = (low / count, high / count);
        // Long sums of floats are not exact.
        let tolerance = ROUNDING + 1e-6 * high;
        if count > 0.0 && (mean + ROUNDING <= low || mean > high + tolerance) {
            self.add(format!(
                "{label} has an average of {low:.2} to {high:.2} by its rows and its maximum, and of {mean} by \
                 its summary"
            ));
        }
    }

    /// Holds figures without rows against each other.
    pub(super) fn of_figures(&mut self, label: &str, said: &Said) {
        let count = said.count.unwrap_or(1);
        self.needs_maximum(label, said, count);
        let (Some(min), Some(max)) = (said.min, said.max) else { return };
        if count == 0 || said.early > 0 {
            return;
        }
        if min > max {
            self.add(format!("{label} has a minimum of {min}, and a maximum of {max}"));
        }
        let Some(mean) = said.mean else { return };
        // A screen that is drawn while the thread adds a latency has it in the sum and not in the count.
        let most = max as f64 * (1.0 + 1.0 / count as f64);
        if mean + ROUNDING <= min as f64 || mean > most + ROUNDING {
            self.add(format!(
                "{label} has an average of {mean}, a minimum of {min} and a maximum of {max}"
            ));
        }
    }

    fn needs_maximum(&mut self, label: &str, said: &Said, count: u64) {
        if count > 0 && said.max.is_none() {
            self.without_maximum.push(label.to_owned());
        }
    }

    /// Tells of what was found.
    pub(super) fn add_findings(self, reading: &mut ImportReading) {
        if let Some(first) = self.found.first() {
            let text = format!("the file contradicts itself: {first}{}", more(&self.found));
            reading.note("import-contradiction", Weight::PreventsPass, text).advice =
                "import the file as its tool wrote it".to_owned();
        }
        if let Some(first) = self.without_maximum.first() {
            let text = format!(
                "the largest latency of {first}{} is not known: the file has no maximum, it can't be read, or it \
                 belongs to a wake-up before its expiry. A thread with latencies that are in no row is left out",
                more(&self.without_maximum)
            );
            reading.note("import-no-maximum", Weight::PreventsPass, text).advice =
                "measure again, or import the file as its tool wrote it".to_owned();
        }
    }
}

/// How many more there are than the first.
fn more(all: &[String]) -> String {
    match all.len() {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    }
}
