//! A record's folder: opened, judged, and given its verdict and its page.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rtscope_analyse::{Judgement, export, judge, report};
use rtscope_measure::recorder::{self, Source};
use rtscope_model::{
    plan::{self, Plan},
    record::Record,
    verdict::Requirement,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::Refused;

/// What the user adds to a record when it is judged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// Requirements besides the plan's.
    pub(crate) require: Vec<Requirement>,
    /// Codes of findings that the user takes responsibility for.
    pub(crate) accept: Vec<String>,
}

/// A record and what it says.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) record: Record,
    pub(crate) judgement: Judgement,
}

/// Reads and judges a record's folder.
pub(crate) fn open(folder: &Path, terms: &Terms) -> anyhow::Result<Judged> {
    let source = Source::open(folder)?;
    judged(&source, terms).with_context(|| format!("{} is not a record", folder.display()))
}

/// The plan of a record's folder, without the time that reading all of the record takes.
pub(crate) fn read_plan(folder: &Path) -> anyhow::Result<Plan> {
    let text = recorder::read_plan(folder)?;
    let plan = plan::parse_kept("plan.toml", &text);
    plan.with_context(|| format!("{} is not a record", folder.display()))
}

/// Judges a record.
pub(crate) fn judged(source: &Source, terms: &Terms) -> anyhow::Result<Judged> {
    let mut record = source.read()?;
    for requirement in &terms.require {
        if !record.plan.require.contains(requirement) {
            record.plan.require.push(*requirement);
        }
    }
    let judgement = judge(&record, &terms.accept);
    Ok(Judged { record, judgement })
}

impl Judged {
    /// The verdict as one JSON document, as `--json` prints it.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        let document = export::json::document(&self.judgement, &self.record);
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    /// Writes `verdict.json` and `report.html`; the path of the page.
    pub(crate) fn publish(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        write(&folder.join("verdict.json"), &self.json()?)?;
        self.write_page(folder)
    }

    /// Writes the page to a file, or as `report.html` into a folder; its path.
    pub(crate) fn write_page(&self, out: &Path) -> anyhow::Result<PathBuf> {
        let page = if out.is_dir() { out.join("report.html") } else { out.to_owned() };
        write(&page, &report::html::page(&self.record, &self.judgement))?;
        Ok(page)
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    recorder::write_whole(path, text.as_bytes())
        .with_context(|| format!("can't write {}", path.display()))
}

/// Reads a record that is one JSON document, as those of experiments that aren't runs of a plan.
pub(crate) fn read_document<T: DeserializeOwned>(path: &Path, format: u32) -> anyhow::Result<T> {
    let read = || format!("can't read {}", path.display());
    let text = std::fs::read_to_string(path).with_context(read)?;
    let document: Value = serde_json::from_str(&text).with_context(read)?;
    if document["format"] != format {
        let path = path.display();
        bail!("{path} has format {}; this version reads format {format}", document["format"]);
    }
    serde_json::from_value(document).with_context(read)
}

/// The folder of a new record, which must not be in it yet: the one that was asked for, or a fresh one.
pub(crate) fn new_folder(
    asked: Option<&Path>,
    name: &str,
    wall_clock: &str,
    record: &str,
) -> anyhow::Result<PathBuf> {
    let folder = asked.map_or_else(|| fresh_folder(name, wall_clock), Path::to_owned);
    if folder.join(record).exists() {
        let text = format!("{} holds a record already: name another --out", folder.display());
        return Err(Refused(text).into());
    }
    Ok(folder)
}

/// A new folder's name for a run: the plan and the wall clock, under `rtscope-runs`.
pub(crate) fn fresh_folder(plan: &str, wall_clock: &str) -> PathBuf {
    let stamp: String = wall_clock.chars().filter(|c| c.is_ascii_alphanumeric()).take(15).collect();
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = plan.chars().map(safe).collect();
    let base = Path::new("rtscope-runs");
    let numbered = (2..).map(|n| base.join(format!("{name}-{stamp}-{n}")));
    let mut candidates = std::iter::once(base.join(format!("{name}-{stamp}"))).chain(numbered);
    candidates.find(|folder| !folder.exists()).expect("there is always a next number")
}
