//! A record's folder: opened, judged, and given its verdict and its page.
//!
//! What the user accepted when the record was judged is kept beside it, in `accepted.json`, so that
//! every later reader comes to the same verdict.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use rtscope_analyse::{Judgement, export, judge, report};
use rtscope_measure::recorder::{self, Source};
use rtscope_model::{
    finding::{Finding, Weight},
    plan::{self, Plan},
    printable::make_printable,
    record::Record,
    verdict::Requirement,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
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

/// `accepted.json`: what the user accepted when the record was judged.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Accepted {
    /// [`ACCEPTED_FORMAT`].
    format: u32,
    /// Codes of findings.
    accepted: Vec<String>,
}

const ACCEPTED: &str = "accepted.json";
const ACCEPTED_FORMAT: u32 = 1;
/// Many times what the codes of all findings need.
const ACCEPTED_BYTES_MAX: u64 = 64 * 1024;

/// Reads and judges a record's folder. What was accepted for it before is accepted still.
pub(crate) fn open(folder: &Path, terms: &Terms) -> anyhow::Result<Judged> {
    let (record, accepted) = read(folder)?;
    let accept = [terms.accept.as_slice(), &accepted].concat();
    Ok(judge_under(record, &Terms { accept, ..terms.clone() }))
}

/// Reads a record's folder and judges it by one requirement, in place of its plan's. What was accepted
/// for it before is accepted still.
pub(crate) fn open_for(folder: &Path, requirement: Requirement) -> anyhow::Result<Judged> {
    let (mut record, accept) = read(folder)?;
    record.plan.require.clear();
    record.plan.phases.iter_mut().for_each(|phase| phase.require.clear());
    Ok(judge_under(record, &Terms { require: vec![requirement], accept }))
}

/// Reads a record's folder, and the codes that were accepted for it before.
fn read(folder: &Path) -> anyhow::Result<(Record, Vec<String>)> {
    let source = Source::open(folder)?;
    let mut record =
        source.read().with_context(|| format!("{} is not a record", folder.display()))?;
    let accepted = stored_codes(folder).unwrap_or_else(|e| {
        record.findings.push(not_accepted(&e));
        Vec::new()
    });
    Ok((record, accepted))
}

/// The plan of a record's folder, without the time that reading all of the record takes.
pub(crate) fn read_plan(folder: &Path) -> anyhow::Result<Plan> {
    let text = recorder::read_plan(folder)?;
    let plan = plan::parse_kept("plan.toml", &text);
    plan.with_context(|| format!("{} is not a record", folder.display()))
}

/// Judges a record.
pub(crate) fn judged(source: &Source, terms: &Terms) -> anyhow::Result<Judged> {
    Ok(judge_under(source.read()?, terms))
}

fn judge_under(mut record: Record, terms: &Terms) -> Judged {
    for requirement in &terms.require {
        if !record.plan.require.contains(requirement) {
            record.plan.require.push(*requirement);
        }
    }
    let judgement = judge(&record, &terms.accept);
    Judged { record, judgement }
}

fn not_accepted(error: &anyhow::Error) -> Finding {
    let text = format!("{ACCEPTED} can't be read, so nothing in it is accepted: {error:#}");
    let advice = "accept the findings again with `rtscope report DIR --accept CODE`";
    Finding::new("accepted-unreadable", Weight::Warning, text).advise(advice)
}

/// The codes in a record's `accepted.json`; none without that file.
fn stored_codes(folder: &Path) -> anyhow::Result<Vec<String>> {
    let path = folder.join(ACCEPTED);
    match fs::symlink_metadata(&path) {
        Err(_) => return Ok(Vec::new()),
        // Reading a pipe would wait for whoever writes into it.
        Ok(found) if !found.is_file() => bail!("it is not a regular file"),
        Ok(_) => {}
    }
    let mut text = String::new();
    File::open(&path)?.take(ACCEPTED_BYTES_MAX).read_to_string(&mut text)?;
    let stored: Accepted = serde_json::from_str(&text)?;
    if stored.format != ACCEPTED_FORMAT {
        bail!("it has format {}; this version reads format {ACCEPTED_FORMAT}", stored.format);
    }
    Ok(stored.accepted)
}

impl Judged {
    /// The verdict as one JSON document, as `--json` prints it.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        let document = export::json::document(&self.judgement, &self.record);
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    /// Writes `verdict.json` and `report.html`, and keeps what was accepted; the path of the page.
    pub(crate) fn publish(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        self.keep_accepted(folder)?;
        write(&folder.join("verdict.json"), &self.json()?)?;
        self.write_page(folder)
    }

    /// Adds the codes that changed the verdict to those that are kept with the record. A code that
    /// nothing was found for is not kept.
    fn keep_accepted(&self, folder: &Path) -> anyhow::Result<()> {
        let mut codes = stored_codes(folder).unwrap_or_default();
        let new = self.judgement.accepted.iter().filter(|code| !codes.contains(code));
        let new: Vec<String> = new.cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        codes.extend(new);
        let accepted = Accepted { format: ACCEPTED_FORMAT, accepted: codes };
        write(&folder.join(ACCEPTED), &(serde_json::to_string(&accepted)? + "\n"))
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
    let text = fs::read_to_string(path).with_context(read)?;
    let mut document: Value = serde_json::from_str(&text).with_context(read)?;
    if document["format"] != format {
        let path = path.display();
        bail!("{path} has format {}; this version reads format {format}", document["format"]);
    }
    make_printable(&mut document);
    serde_json::from_str(&document.to_string()).with_context(read)
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
