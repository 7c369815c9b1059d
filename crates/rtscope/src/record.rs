//! A record's folder: opened, judged, and given its verdict and its page.
//!
//! What the user accepted when the record was judged is kept beside it, in `accepted.json`, so that
//! every later reader comes to the same verdict. So is what is required of a guest, in `required.json`:
//! the guest's own plan doesn't have it, because a word more in the guest is another measurement.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
pub(crate) use rtscope_analyse::verdict::additions::Additions;
use rtscope_analyse::{
    Judgement,
    number::counted,
    report,
    verdict::additions::{
        AddedRequirements, KEPT_FORMAT, accepted_unreadable, require_only, required_unreadable,
    },
    verdict_document,
};
use rtscope_measure::recorder::{self, RecordFiles};
use rtscope_model::{
    plan::{self, Plan},
    printable::make_printable,
    record::Record,
    verdict::Requirement,
};
use rtscope_sys::whole::{write_anew, write_whole};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    failure::Refused,
    lab_folder,
    output::{print, print_bytes, shown, style},
};

/// A record and what it says.
#[derive(Debug)]
pub(crate) struct JudgedRecord {
    pub(crate) record: Record,
    pub(crate) judgement: Judgement,
}

/// `accepted.json`: what the user accepted when the record was judged.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Accepted {
    /// [`KEPT_FORMAT`].
    format: u32,
    /// Codes of findings.
    accepted: Vec<String>,
}

const ACCEPTED: &str = "accepted.json";
const REQUIRED: &str = "required.json";
/// Where everything goes that nobody gave a place.
const RUNS: &str = "rtscope-runs";
/// Many times what the codes of all findings need, or the requirements of the longest plan.
const KEPT_BYTES_MAX: u64 = 1024 * 1024;

/// Reads and judges a record's folder. What was accepted for it before is accepted still.
pub(crate) fn open(folder: &Path, additions: &Additions) -> anyhow::Result<JudgedRecord> {
    judge_read(read(folder, false)?, additions)
}

/// As [`open`], with every wake-up of a run that kept them.
pub(crate) fn open_with_samples(
    folder: &Path,
    additions: &Additions,
) -> anyhow::Result<JudgedRecord> {
    judge_read(read(folder, true)?, additions)
}

fn judge_read(
    (record, accepted): (Record, Vec<String>),
    additions: &Additions,
) -> anyhow::Result<JudgedRecord> {
    let accept = [additions.accept.as_slice(), &accepted].concat();
    Ok(JudgedRecord::new(record, &Additions { accept, ..additions.clone() }))
}

/// Reads a record's folder and judges it by one requirement, in place of its plan's. What was accepted
/// for it before is accepted still.
pub(crate) fn open_for(folder: &Path, requirement: Requirement) -> anyhow::Result<JudgedRecord> {
    let (mut record, accept) = read(folder, false)?;
    require_only(&mut record.plan, requirement);
    Ok(JudgedRecord::new(record, &Additions { require: Vec::new(), accept }))
}

/// Reads a record's folder, and the codes that were accepted for it before.
fn read(folder: &Path, every_sample: bool) -> anyhow::Result<(Record, Vec<String>)> {
    refuse_lab_folder(folder)?;
    let mut source = RecordFiles::open(folder)?;
    source.lists_samples = every_sample;
    let mut record =
        source.read().with_context(|| format!("{} is not a record", folder.display()))?;
    let accepted = stored_codes(folder).unwrap_or_else(|e| {
        record.findings.push(accepted_unreadable(ACCEPTED, &format!("{e:#}")));
        Vec::new()
    });
    match kept::<AddedRequirements>(folder, REQUIRED) {
        Ok(required) => required.iter().for_each(|required| required.add_to(&mut record.plan)),
        Err(e) => record.findings.push(required_unreadable(REQUIRED, &format!("{e:#}"))),
    }
    Ok((record, accepted))
}

/// Names the records in a folder of the lab, which is none itself.
fn refuse_lab_folder(folder: &Path) -> Result<(), Refused> {
    if is_one(folder) {
        return Ok(());
    }
    let records = lab_folder::all(folder).map_err(|e| Refused(format!("{e:#}")))?;
    let records = records.unwrap_or_default();
    if records.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = records.iter().take(RECORDS_NAMED).map(shown).collect();
    let more = match records.len().saturating_sub(RECORDS_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(Refused(format!(
        "{} holds the records of {}; name one of these: {}{more}",
        self::shown(folder),
        counted(records.len() as u64, "guest"),
        shown.join(", ")
    )))
}

/// Records of a lab's folder that a message names.
const RECORDS_NAMED: usize = 6;

/// Whether a path is a folder with a record, as far as its names say.
pub(crate) fn is_one(path: &Path) -> bool {
    ["plan.toml", "events.jsonl"].iter().any(|name| path.join(name).exists())
}

/// Keeps what a plan requires with a record whose own plan doesn't say it.
pub(crate) fn keep_required(folder: &Path, plan: &Plan) -> anyhow::Result<()> {
    let Some(required) = AddedRequirements::from_plan(plan) else {
        let _ = fs::remove_file(folder.join(REQUIRED));
        return Ok(());
    };
    write_in(folder, REQUIRED, serde_json::to_string(&required)? + "\n").map(drop)
}

/// The plan of a record's folder, without the time that reading all of the record takes.
pub(crate) fn read_plan(folder: &Path) -> anyhow::Result<Plan> {
    let text = recorder::read_plan(folder)?;
    match plan::parse_kept("plan.toml", &text) {
        Ok(plan) => Ok(plan),
        // Reading all of it says what is wrong with it, and makes the best of a plan that is damaged.
        Err(_) => Ok(read(folder, false)?.0.plan),
    }
}

pub(crate) fn judged(source: &RecordFiles, additions: &Additions) -> anyhow::Result<JudgedRecord> {
    Ok(JudgedRecord::new(source.read()?, additions))
}

/// The codes in a record's `accepted.json`; none without that file.
fn stored_codes(folder: &Path) -> anyhow::Result<Vec<String>> {
    let kept = kept::<Accepted>(folder, ACCEPTED)?;
    Ok(kept.map(|kept| kept.accepted).unwrap_or_default())
}

/// What a small file that is kept beside a record holds; none without that file.
fn kept<T: DeserializeOwned>(folder: &Path, name: &str) -> anyhow::Result<Option<T>> {
    // What changes a verdict is in the record itself.
    if folder.join(name).is_symlink() {
        bail!("it is a symbolic link: remove it, or replace it with the record's own file");
    }
    let text = match text_in(folder, name, KEPT_BYTES_MAX) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let document: Value = serde_json::from_str(&text)?;
    if document["format"] != KEPT_FORMAT {
        bail!("it has format {}; this version reads format {KEPT_FORMAT}", document["format"]);
    }
    Ok(Some(serde_json::from_value(document)?))
}

impl JudgedRecord {
    fn new(mut record: Record, additions: &Additions) -> JudgedRecord {
        let judgement = additions.judge(&mut record);
        JudgedRecord { record, judgement }
    }

    /// The verdict as one JSON document, as `--json` prints it.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        let document = verdict_document::document(&self.judgement, &self.record);
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    /// The verdict for a terminal.
    pub(crate) fn summary(&self) -> String {
        report::terminal::summary(&self.judgement, &self.record, style())
    }

    /// Writes `verdict.json` and `report.html`, and keeps what was accepted; the path of the page.
    pub(crate) fn publish(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        self.keep_accepted(folder)?;
        write_in(folder, "verdict.json", self.json()?)?;
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
        let accepted = Accepted { format: KEPT_FORMAT, accepted: codes };
        write_in(folder, ACCEPTED, serde_json::to_string(&accepted)? + "\n").map(drop)
    }

    /// Writes the page to a file, or as `report.html` into a folder; its path.
    pub(crate) fn write_page(&self, out: &Path) -> anyhow::Result<PathBuf> {
        if out.is_dir() {
            return write_in(out, "report.html", self.page());
        }
        write(out, self.page())?;
        Ok(out.to_owned())
    }

    pub(crate) fn page(&self) -> String {
        report::html::page(&self.record, &self.judgement)
    }
}

/// Writes a whole file into a folder, and makes that where it is missing. Somebody else may have made it: no link in it is
/// followed.
pub(crate) fn write_in(
    folder: &Path,
    name: &str,
    document: impl AsRef<[u8]>,
) -> anyhow::Result<PathBuf> {
    make_folder(folder)?;
    let path = folder.join(name);
    write_anew(&path, document.as_ref())
        .with_context(|| format!("can't write {}", path.display()))?;
    Ok(path)
}

pub(crate) fn write(path: &Path, document: impl AsRef<[u8]>) -> anyhow::Result<()> {
    write_whole(path, document.as_ref()).with_context(|| format!("can't write {}", path.display()))
}

pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))
}

/// The largest document: those of rtscope's own have some MiB.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

/// The text of a file in a folder that somebody else may have made, if it is a regular one: reading a pipe would wait for
/// whoever writes into it.
pub(crate) fn text_in(folder: &Path, name: &str, bytes_max: u64) -> io::Result<String> {
    let path = folder.join(name);
    if !fs::metadata(&path)?.is_file() {
        return Err(io::Error::other(
            "it isn't a regular file: remove it, or replace it with the record's own file",
        ));
    }
    bounded_text(&path, bytes_max)
}

/// The text of a file, unless it is larger than it should be: a device may never end.
pub(crate) fn bounded_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    bounded(File::open(path)?, bytes_max)
}

/// The text of a source, unless it is larger than it should be.
pub(crate) fn bounded(source: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    source.take(bytes_max + 1).read_to_string(&mut text)?;
    match text.len() as u64 <= bytes_max {
        true => Ok(text),
        false => {
            let why = format!("it is larger than {} MiB", bytes_max >> 20);
            Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
        }
    }
}

/// Reads a record that is one JSON document in a folder, as those of experiments that aren't runs of a plan.
pub(crate) fn read_document_in<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
    format: u32,
) -> anyhow::Result<T> {
    let path = folder.join(name);
    let text = text_in(folder, name, DOCUMENT_BYTES_MAX);
    document_of(&path, &text.with_context(|| format!("can't read {}", path.display()))?, format)
}

/// As [`read_document_in`], for a file that somebody named.
pub(crate) fn read_document<T: DeserializeOwned>(path: &Path, format: u32) -> anyhow::Result<T> {
    let text = bounded_text(path, DOCUMENT_BYTES_MAX);
    document_of(path, &text.with_context(|| format!("can't read {}", path.display()))?, format)
}

fn document_of<T: DeserializeOwned>(path: &Path, text: &str, format: u32) -> anyhow::Result<T> {
    let read = || format!("can't read {}", path.display());
    let mut document: Value = serde_json::from_str(text).with_context(read)?;
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
        let text = format!(
            "{} already holds a record: choose another folder with --out",
            folder.display()
        );
        return Err(Refused(text).into());
    }
    Ok(folder)
}

/// The wall clock, RFC 3339.
pub(crate) fn wall_clock() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A new folder's name for a run: the plan and the wall clock, under `rtscope-runs`.
pub(crate) fn fresh_folder(plan: &str, wall_clock: &str) -> PathBuf {
    fresh(plan, wall_clock, "")
}

/// A name under `rtscope-runs` that nothing has yet.
fn fresh(name: &str, wall_clock: &str, ending: &str) -> PathBuf {
    let stamp: String = wall_clock.chars().filter(|c| c.is_ascii_alphanumeric()).take(15).collect();
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = name.chars().map(safe).collect();
    let base = Path::new(RUNS);
    let numbered = (2..).map(|n| base.join(format!("{name}-{stamp}-{n}{ending}")));
    let mut candidates =
        std::iter::once(base.join(format!("{name}-{stamp}{ending}"))).chain(numbered);
    candidates.find(|path| !path.exists()).expect("there is always a next number")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// `--out -`.
    Stdout,
    /// The file that was named, or a fresh one under `rtscope-runs`.
    File(PathBuf),
}

impl Destination {
    /// A file, or with `-` standard output.
    pub(crate) fn named(out: &Path) -> Destination {
        match out.as_os_str() == "-" {
            true => Destination::Stdout,
            false => Destination::File(out.to_owned()),
        }
    }

    /// What `--out` says; without it a fresh file of this name and ending.
    pub(crate) fn new(out: Option<&Path>, name: &str, ending: &str) -> Destination {
        match out {
            Some(out) => Destination::named(out),
            None => Destination::File(fresh(name, &wall_clock(), &format!(".{ending}"))),
        }
    }

    /// Refuses `--json` beside a document that goes to standard output.
    pub(crate) fn refuse_two(&self, json: bool) -> Result<(), Refused> {
        if json && *self == Destination::Stdout {
            let text = "--json and --out - both write to standard output: leave one out";
            return Err(Refused(text.to_owned()));
        }
        Ok(())
    }

    /// Writes the document. True when it went to a file, whose name is for the user to know.
    pub(crate) fn write(&self, document: &[u8]) -> anyhow::Result<bool> {
        let Destination::File(file) = self else { return print_bytes(document).map(|()| false) };
        if let Some(folder) = file.parent().filter(|folder| *folder == Path::new(RUNS)) {
            make_folder(folder)?;
        }
        write(file, document)?;
        Ok(true)
    }
}

impl Destination {
    /// Writes a page, and prints what it says: as JSON, as text, or not at all where standard output has the page.
    /// Then where the page is.
    pub(crate) fn publish(
        &self,
        page: &str,
        json: Option<String>,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let is_file = self.write(page.as_bytes())?;
        if let Some(document) = json {
            print(&(document + "\n"))?;
            note!("Report: {self}");
        } else if is_file {
            print(&format!("{}Report: {self}\n", text()))?;
        }
        Ok(())
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Stdout => f.write_str("standard output"),
            Destination::File(file) => f.write_str(&shown(file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_of_a_guest_is_kept_beside_its_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "name = 'x'\nrequire = ['max < 50us']\n[[phase]]\nname = 'a'\nduration = '1s'\n\
                    [[phase]]\nname = 'b'\nduration = '1s'\nrequire = ['p99 < 9us']";
        let plan = plan::parse("x", text).expect("a plan");
        keep_required(folder.path(), &plan).expect("written");
        let required: AddedRequirements =
            kept(folder.path(), REQUIRED).expect("readable").expect("there");
        assert_eq!(Some(required), AddedRequirements::from_plan(&plan));
        let mut bare = plan;
        // What isn't required any more is not kept.
        bare.require.clear();
        bare.phases.iter_mut().for_each(|phase| phase.require.clear());
        keep_required(folder.path(), &bare).expect("written");
        assert_eq!(
            kept::<AddedRequirements>(folder.path(), REQUIRED).expect("no file is fine"),
            None
        );
        fs::write(folder.path().join(REQUIRED), "{\"format\": 9}").expect("written");
        assert!(kept::<AddedRequirements>(folder.path(), REQUIRED).is_err());
    }
}
