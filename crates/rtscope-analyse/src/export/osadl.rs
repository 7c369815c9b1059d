//! OSADL's histogram file: a latency in us, and for each thread how often it had that one.
//!
//! ```text
//! 000004 000120<TAB>000093
//! ```
//!
//! The rows go from 0 to the largest latency that has a bucket of its own. What lies beyond is in no
//! row: a comment below says how many. Another names each thread that waited longer than its largest latency.

use super::{
    Format,
    cyclictest::{CyclictestUnit, table_row, wait_comments, waits},
};
use crate::judgement::CellSummary;

pub(super) const FORMAT: Format = Format {
    name: "osadl",
    what: "OSADL's histogram columns, a latency in us and a count for each thread; of one cell",
    ending: "txt",
    write: |subject| Ok(columns(subject.only()?).into_bytes()),
};

/// The most rows.
const ROWS_MAX: u64 = 1_000_000;

/// The most counts in all rows together.
const COUNTS_MAX: u64 = 16_000_000;

fn columns(cell: &CellSummary) -> String {
    let threads: Vec<_> = cell.threads.iter().filter(|row| row.recorded > 0).collect();
    let layout = cell.all.histogram.layout();
    let limit_us = CyclictestUnit::Us.whole(layout.limit_ns()).min(ROWS_MAX);
    let limit_us = limit_us.min(COUNTS_MAX / threads.len().max(1) as u64);
    let last_of = |index: u32| CyclictestUnit::Us.whole(layout.lower_ns(index));
    let exact = cell.all.histogram.bins().into_iter().map(|bin| last_of(bin.0));
    let rows = exact.filter(|us| *us < limit_us).max().map_or(0, |last| last + 1) as usize;
    let mut table = vec![vec![0u64; threads.len()]; rows];
    let mut beyond = 0;
    for (column, row) in threads.iter().enumerate() {
        for (index, count) in row.histogram.bins() {
            match table.get_mut(last_of(index) as usize) {
                Some(counts) => counts[column] += count,
                None => beyond += count,
            }
        }
        beyond += row.histogram.unplaced().count;
    }
    let mut text = String::new();
    for (us, counts) in table.iter().enumerate() {
        table_row(&mut text, us, counts.iter().copied());
    }
    if beyond > 0 {
        let max_ns = cell.all.histogram.max_ns().unwrap_or(0);
        let max_us = CyclictestUnit::Us.whole(max_ns);
        text += &format!("# latencies in no row: {beyond}, the largest of {max_us} us\n");
    }
    text += &wait_comments(&waits(cell), CyclictestUnit::Us);
    text
}
