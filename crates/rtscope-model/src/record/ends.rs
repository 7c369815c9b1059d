//! Whether the files of slices end where the run says that they do.

use std::collections::BTreeMap;

use crate::{
    chain::Chain,
    event::{Event, Stamped},
    finding::{Finding, Weight},
};

/// Compares the chains that were read with those in `run-ended`. A run that was killed has no such
/// event, and older records say nothing in it. Lines that differ before the end of a file are found by
/// their own checksums.
pub(super) fn differ(events: &[Stamped], found: &BTreeMap<String, Chain>) -> Vec<Finding> {
    let said = events.iter().rev().find_map(|stamped| match &stamped.event {
        Event::RunEnded { files, .. } => Some(files),
        _ => None,
    });
    let said = said.into_iter().flatten();
    said.filter_map(|(name, said)| {
        let found = found.get(name).copied().unwrap_or_default();
        (found.crc != said.crc).then(|| finding(name, found.lines, said.lines))
    })
    .collect()
}

fn finding(name: &str, found: u64, said: u64) -> Finding {
    let (code, text) = if found < said {
        let text = format!(
            "{name} is cut: it ends after {found} of the {said} lines with a checksum that the run wrote"
        );
        ("record-cut-short", text)
    } else {
        let text = format!("{name} does not end with the line that the run wrote last");
        ("record-changed", text)
    };
    Finding::new(code, Weight::PreventsPass, text)
        .advise("use the record as the run wrote it; it was edited or copied with errors")
}
