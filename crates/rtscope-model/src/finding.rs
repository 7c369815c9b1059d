//! A finding: something about a run that its reader must know, in words.

use serde::{Deserialize, Serialize};

/// What a finding does to the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Worth knowing.
    Note,
    /// Likely to have changed the figures.
    Warning,
    /// A run with this finding can't Pass; a Fail stays a Fail.
    PreventsPass,
    /// The figures don't answer the question that was asked: Inconclusive either way.
    Invalidates,
}

/// Codes of damage: a part of what was measured is missing, or is not what the run wrote. Nobody can answer
/// for figures that are not there, so these can't be accepted.
pub const DAMAGE: [&str; 7] = [
    "record-cut-short",
    "record-changed",
    "record-damaged",
    "plan-changed",
    "histograms-differ",
    "accounting",
    "slices-unknown",
];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable kebab-case name: what `--accept` takes and what programs compare.
    pub code: String,
    /// What it does to the verdict.
    pub weight: Weight,
    /// A sentence: what was found.
    pub text: String,
    /// A sentence: what to do about it; empty when nothing can be done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

impl Finding {
    /// A finding without advice.
    #[must_use]
    pub fn new(code: &str, weight: Weight, text: impl Into<String>) -> Finding {
        Finding { code: code.to_owned(), weight, text: text.into(), advice: String::new() }
    }

    /// The same with advice.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = advice.into();
        self
    }

    /// The text, and the advice behind a semicolon.
    #[must_use]
    pub fn line(&self) -> String {
        let join = if self.advice.is_empty() { "" } else { "; " };
        format!("{}{join}{}", self.text, self.advice)
    }
}
