//! The fleet's page and what is printed of it.

use std::{path::Path, process::ExitCode};

use rtscope_analyse::report::fleet::{self, FleetReport};
use rtscope_model::verdict::Verdict;

use super::judged;
use crate::{
    exit,
    output::{print, print_folded, shown},
    record,
};

/// Judges what is there, writes the page, and prints the places.
pub(super) fn publish(folder: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let report = judged::report(folder)?;
    let page = record::write_in(folder, "index.html", fleet::page(&report))?;
    if json {
        print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
        note!("Report: {}", page.display());
    } else {
        print_folded(&format!("{}\nReport: {}\n", fleet::text(&report), shown(&page)))?;
    }
    Ok(code(&report))
}

/// A place that failed outweighs one without a record, that an open question, and that a pass.
fn code(report: &FleetReport) -> ExitCode {
    match report.verdict {
        Some(Verdict::Fail) => exit::of_verdict(Verdict::Fail),
        Some(verdict) if report.is_complete() => exit::of_verdict(verdict),
        _ => ExitCode::from(exit::ERROR),
    }
}
