//! The second half of the data's path: from a record to statistics, findings, a verdict, plots and pages.
//!
//! Everything here is pure: no file, no clock, no environment. The same record gives the same
//! bytes, whether it was measured here, on a board, in a guest, or imported from another tool.
//!
//! ```text
//! Record -> statistics -> verdict -> Judgement -> plot -> report, export
//! ```
//!
//! How many wake-ups it takes to say anything of the 99.9th percentile, and what 10,000 of them cover:
//!
//! ```
//! use rtscope_analyse::statistics::quantile::{coverage_sentence, samples_for_interval};
//!
//! assert_eq!(samples_for_interval(999_000_000), 3688);
//! assert_eq!(
//!     coverage_sentence(10_000),
//!     "with 95 % confidence, at most 1 wake-up in 3,338 exceeds the observed maximum (p99.97)"
//! );
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
