//! Whether the files of slices end where the run says that they do, and whether the other files are those
//! that the run wrote.

use std::collections::BTreeMap;

use super::Files;
use crate::{
    chain::{Chain, checksum},
    event::{Event, Stamped},
    finding::{Finding, Weight},
};

/// Code of the finding that `plan.toml` is not the plan that was run.
pub const PLAN_CHANGED: &str = "plan-changed";

/// What to do with files that differ.
pub(super) const ADVICE: &str =
    "use the record as the run wrote it; it was edited or copied with errors";

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

/// Compares the files that are written as a whole with their checksums in `run-ended`, as far as it has
/// any. Without the plan as it was run, nobody knows what was required.
pub(super) fn altered(events: &[Stamped], files: &Files) -> Vec<Finding> {
    let said = events.iter().rev().find_map(|stamped| match &stamped.event {
        Event::RunEnded { whole, .. } => Some(whole),
        _ => None,
    });
    let said = said.into_iter().flatten();
    said.filter_map(|(name, &crc)| {
        let text = files.whole().into_iter().find(|(known, _)| known == name)?.1;
        let how = match text {
            "" => "is missing or empty",
            text if checksum(text.as_bytes()) != crc => "is not as the run wrote it",
            _ => return None,
        };
        let (code, weight, then) = match name.as_str() {
            "plan.toml" => {
                (PLAN_CHANGED, Weight::Invalidates, ": what the run required is not known")
            }
            _ => ("record-changed", Weight::PreventsPass, ""),
        };
        Some(Finding::new(code, weight, format!("{name} {how}{then}")).advise(ADVICE))
    })
    .collect()
}

/// The events of a run whose end has checksums have them too: who takes them out of `events.jsonl` leaves
/// no older record.
pub(super) fn unsealed(events: &[Stamped], chain: &Chain) -> Option<Finding> {
    let has_checksums = events.iter().any(|stamped| match &stamped.event {
        Event::RunEnded { files, whole, .. } => !files.is_empty() || !whole.is_empty(),
        _ => false,
    });
    (has_checksums && chain.lines == 0).then(|| {
        let text = "events.jsonl: no line has a checksum, although the run-ended event has checksums of other files";
        Finding::new("record-changed", Weight::PreventsPass, text).advise(ADVICE)
    })
}

fn finding(name: &str, found: u64, said: u64) -> Finding {
    let (code, text) = if found < said {
        let text = format!(
            "{name} was cut short: it ends after {found} of the {said} lines with checksums that the run wrote"
        );
        ("record-cut-short", text)
    } else {
        let text = format!("{name} does not end with the line that the run wrote last");
        ("record-changed", text)
    };
    Finding::new(code, Weight::PreventsPass, text).advise(ADVICE)
}
