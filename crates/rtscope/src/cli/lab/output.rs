//! The folder of the records of guests, and what is written into it.

use std::path::{Path, PathBuf};

use rtscope_lab::{
    brought::{self, Brought},
    error::LabError,
    guest_run::GuestOutcome,
    queue::QueuedRun,
    record_folders,
};
use rtscope_measure::guest_init::SHOWN;
use serde_json::{Value, json};

use crate::{
    cli::{print, wall_clock},
    output::shown,
    record,
    record::fresh_folder,
};

/// Where the records go: into the folder that was named, or into a fresh one.
///
/// # Errors
///
/// The folder holds what is not the lab's.
pub(super) fn place(asked: Option<&PathBuf>, plan: &str) -> Result<PathBuf, LabError> {
    let out = named_or_fresh(asked, plan);
    record_folders::check(&out).map(|()| out)
}

/// As [`place`], for what can't be gone on with.
///
/// # Errors
///
/// The folder holds anything.
pub(super) fn empty(asked: Option<&PathBuf>, plan: &str) -> Result<PathBuf, LabError> {
    let out = named_or_fresh(asked, plan);
    record_folders::check_empty(&out).map(|()| out)
}

fn named_or_fresh(asked: Option<&PathBuf>, plan: &str) -> PathBuf {
    asked.cloned().unwrap_or_else(|| fresh_folder(&format!("lab-{plan}"), &wall_clock()))
}

/// Writes the page and the document of a comparison, prints the document or the table, and says where the page is.
pub(super) fn publish(
    out: &Path,
    name: &str,
    page: &str,
    document: &Value,
    (table, as_json): (&str, bool),
) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(document)? + "\n";
    let path = out.join("index.html");
    for (path, text) in [("index.html", page), (name, &text)] {
        // What the guests have shown, or why they have not, is not lost with the page.
        record::write_in(out, path, text).inspect_err(|_| {
            let _ = print(table);
        })?;
    }
    if as_json {
        print(&text)?;
        note!("Report: {}", path.display());
        return Ok(());
    }
    print(&format!("{table}Report: {}\n", shown(&path)))
}

/// What came of a guest that ran verbs.
pub(super) struct FromGuest {
    /// Its part of the document.
    pub(super) document: Value,
    /// Whether it brought a record.
    pub(super) has_record: bool,
    /// What failed in it, or why it brought nothing: a line each.
    pub(super) failures: Vec<String>,
}

/// Looks at what a guest brought.
pub(super) fn look_at(queued: &QueuedRun, outcome: Result<GuestOutcome, LabError>) -> FromGuest {
    let mut document = json!({
        "kernel": queued.run.kernel.label, "seed": queued.run.spec.seed,
        "record": queued.folder_name(),
    });
    match queued.brought(outcome, SHOWN) {
        Brought::Record(record) => {
            let (outcome, verified) = *record;
            document["verification"] = json!(verified);
            document["inputs"] = json!(outcome.inputs);
            let failures = brought::failures(&queued.folder).unwrap_or_default();
            FromGuest { document, has_record: true, failures }
        }
        Brought::NotReached(why) | Brought::Nothing { why, .. } => {
            document["failed"] = why.clone().into();
            FromGuest { document, has_record: false, failures: vec![why] }
        }
    }
}
