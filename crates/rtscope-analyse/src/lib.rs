//! The right half of the path: from a record to statistics, findings, a verdict, plots and pages.
//!
//! Everything here is pure: no file, no clock, no environment. The same record gives the same
//! bytes, whether it was measured here, on a board, in a guest, or imported from another tool.
//!
//! ```text
//! Record -> statistics -> verdict -> Judgement -> plot -> report, export
//! ```

#![forbid(unsafe_code)]

pub mod compare;
pub mod doctor;
pub mod export;
pub mod import;
pub mod instrument;
pub mod judgement;
mod next_step;
pub mod number;
pub mod plot;
pub mod report;
pub mod statistics;
#[cfg(test)]
mod test_support;
pub mod verdict;
pub mod verdict_document;

use rtscope_model::record::Record;

pub use judgement::Judgement;
pub use next_step::{NextStep, next_step};

/// Judges a record. `accept` holds codes of findings that the user takes responsibility for: they
/// stay in the list but no longer touch the verdict.
#[must_use]
pub fn judge(record: &Record, accept: &[String]) -> Judgement {
    let cells = statistics::summary::cells(record);
    verdict::decide(record, cells, accept)
}
