//! How a series of patches went.

use std::fmt::Write as _;

use serde::Serialize;

/// How a series of patches went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PatchReport {
    /// Each patch, in order.
    pub patches: Vec<PatchOutcome>,
}

/// How one patch went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PatchOutcome {
    pub name: String,
    pub applied: bool,
    /// Files it touches.
    pub files: usize,
    /// Files where it did not fit to the letter.
    pub misfits: Vec<Misfit>,
    /// What `patch` said where it could not even begin.
    pub trouble: Option<String>,
}

/// Where a patch did not fit a file to the letter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misfit {
    /// File, below the source.
    pub file: String,
    /// Hunks found elsewhere: number and lines of offset.
    pub offsets: Vec<(u32, i64)>,
    /// Hunks whose surroundings differ: number and how many lines of context were ignored.
    pub fuzz: Vec<(u32, u32)>,
    /// Hunks rejected: number and line.
    pub rejects: Vec<(u32, u64)>,
    /// Another reason: the file is missing, or has the change already.
    pub reason: Option<String>,
}

impl PatchReport {
    #[must_use]
    pub fn applied(&self) -> usize {
        self.patches.iter().filter(|patch| patch.applied).count()
    }

    /// One line: how many applied, with how much fuzz.
    #[must_use]
    pub fn summary(&self) -> String {
        let misfits = || self.patches.iter().flat_map(|patch| &patch.misfits);
        let fuzz: usize = misfits().map(|misfit| misfit.fuzz.len()).sum();
        let offsets: usize = misfits().map(|misfit| misfit.offsets.len()).sum();
        format!(
            "{} of {} patches apply; hunks with fuzz: {fuzz}, with an offset: {offsets}",
            self.applied(),
            self.patches.len()
        )
    }

    /// Every misfit of some kind, a line each.
    #[must_use]
    pub fn lines(&self, offsets_too: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for patch in &self.patches {
            if let Some(trouble) = &patch.trouble {
                lines.push(format!("{}: {trouble}", patch.name));
            }
            for misfit in &patch.misfits {
                let text = misfit.text(offsets_too);
                if !text.is_empty() {
                    lines.push(format!("{}: {}: {text}", patch.name, misfit.file));
                }
            }
        }
        lines
    }

    /// The report as text, for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.summary());
        for line in self.lines(true) {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    /// Why the series was refused.
    #[must_use]
    pub fn refusal(&self) -> String {
        let mut rejected = self.clone();
        rejected.patches.retain(|patch| !patch.applied);
        let lines = rejected.lines(false).join("\n  ");
        format!("{}; the source is unchanged. Parts that don't apply:\n  {lines}", self.summary())
    }
}

impl Misfit {
    fn text(&self, offsets_too: bool) -> String {
        let mut text = String::new();
        let mut add = |part: String| {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&part);
        };
        for (hunk, line) in &self.rejects {
            add(format!("hunk {hunk} rejected at line {line}"));
        }
        for (hunk, fuzz) in &self.fuzz {
            add(format!("hunk {hunk} with fuzz {fuzz}"));
        }
        if let (true, false) = (offsets_too, self.offsets.is_empty()) {
            let farthest = self.offsets.iter().map(|(_, lines)| lines.abs()).max().unwrap_or(0);
            let hunks = self.offsets.len();
            add(format!("{hunks} hunk(s) moved by up to {farthest} line(s)"));
        }
        if let Some(reason) = &self.reason {
            add(reason.clone());
        }
        text
    }
}
