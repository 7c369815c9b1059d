//! Where figures come from that rtscope did not measure itself: another tool's file.
//!
//! An import is a record like any other, but for what its source does not hold. What is not known is
//! told here, so that no page takes it for a zero.

use serde::{Deserialize, Serialize};

/// What is known about the source of an imported cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The tool that measured, as `cyclictest`.
    pub tool: String,
    /// Its version, where the file says it.
    pub tool_version: Option<String>,
    /// Which of its outputs, as `histogram`.
    pub form: String,
    /// The files, as they were named.
    pub files: Vec<String>,
    /// The tool's command line, where the file says it.
    pub command: Option<String>,
    /// What else the file says, by name: host, kernel, start.
    pub facts: Vec<(String, String)>,
    /// Whether the file keeps the order of its latencies: without it there is one slice for a
    /// thread, and nothing can be said about time.
    pub is_in_order: bool,
    /// The tool cut its latencies to whole multiples of this: a real one is less than this longer. 0 where that
    /// isn't known.
    pub grain_ns: u64,
}

impl Origin {
    /// Tool, version and form in a few words.
    #[must_use]
    pub fn text(&self) -> String {
        let version = self.tool_version.as_ref().map(|v| format!(" {v}")).unwrap_or_default();
        let form = if self.form.is_empty() { String::new() } else { format!(", {}", self.form) };
        format!("{}{version}{form}", self.tool)
    }
}
