//! What stands below a histogram, held against its rows.

use crate::import::{cell::Rows, number::Printed};

/// The figures of each thread below the rows; of some there may be none.
pub(super) struct Summary<'a> {
    /// Latencies in the rows.
    pub(super) totals: &'a [u64],
    pub(super) maxima: &'a [Printed],
    /// Latencies beyond the rows.
    pub(super) overflows: &'a [u64],
}

impl Summary<'_> {
    /// Where the rows are not what the summary says of them, in words.
    pub(super) fn contradicts(&self, rows: &Rows) -> Option<String> {
        let mut found = Vec::new();
        for (index, counts) in rows.columns().enumerate() {
            let placed = counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
            if let Some(total) = self.totals.get(index).filter(|total| **total != placed) {
                found.push(format!(
                    "thread {index} has {placed} latencies in rows, and {total} by its total"
                ));
            }
            let largest = counts.iter().rev().find(|(_, count)| **count > 0).map(|(row, _)| *row);
            let (Some(largest), Some(Printed::Late(max))) = (largest, self.maxima.get(index))
            else {
                continue;
            };
            // Beyond the rows the maximum is larger than any of them; else it is in the last filled one.
            let (is_right, what) = match self.overflows.get(index) {
                Some(1..) => (*max > rows.last, "latencies beyond the last row"),
                _ => (*max == largest, "no latency beyond the rows"),
            };
            if !is_right {
                found.push(format!(
                    "thread {index} has {what}, {largest} in its last filled row, and a maximum of {max}"
                ));
            }
        }
        let more = match found.len() {
            0 | 1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let first = found.first()?;
        Some(format!("the histogram and its summary contradict each other: {first}{more}"))
    }
}
