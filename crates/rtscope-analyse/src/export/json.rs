//! The verdict document as a file.

use super::Format;
use crate::verdict_document::document;

pub(super) const FORMAT_OF_EXPORT: Format = Format {
    name: "json",
    what: "the verdict document: figures, intervals, findings (docs/format/verdict.md)",
    ending: "json",
    write: |subject| {
        let document = document(&subject.judgement, subject.record);
        serde_json::to_string_pretty(&document)
            .map(|text| (text + "\n").into_bytes())
            .map_err(|e| e.to_string())
    },
};
