//! A record's files against the hashes that were noted when its guest brought them, and against the
//! files of another run of the same inputs.

use std::{collections::BTreeSet, fmt, fs, path::Path};

use rtscope_model::guest::{self, Tracer};

use crate::{
    boot::{self, CONSOLE},
    digest::sha256,
    error::LabError,
    guest_run::CONFIG,
    inputs::{INPUTS, Inputs, read_file},
    replay_log::LOG,
};

/// Folders of a record in which every file counts: a reader takes what lies there.
const READ_WHOLE: [&str; 7] = [
    "slices",
    "raw",
    guest::SHOWN,
    guest::OURS,
    guest::THEIRS,
    Tracer::Osnoise.name(),
    Tracer::Timerlat.name(),
];

/// Files that a reader takes if they are there: what a guest says of itself.
const READ: [&str; 4] = [guest::FAILURES, guest::GPIO, guest::START, CONFIG];

/// Files that rtscope writes into a record's folder beside what the guest sent.
const MADE_HERE: [&str; 13] = [
    INPUTS,
    LOG,
    CONSOLE,
    boot::ERRORS,
    "replay.log",
    "channel",
    "verdict.json",
    guest::PAGE,
    "required.json",
    "accepted.json",
    "explain.json",
    "explain.html",
    "explain-compare.html",
];

/// So much of a text is shown where two files differ.
const SHOWN_BYTES: usize = 40;

/// How a file of a record is no longer as its guest brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// It has other bytes.
    Altered,
    /// It is gone.
    Deleted,
    /// The guest brought no such file.
    Added,
}

/// A file that is no longer as its guest brought it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Path in the record.
    pub name: String,
    /// What happened to it.
    pub change: FileChange,
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.change {
            FileChange::Altered => "altered",
            FileChange::Deleted => "deleted",
            FileChange::Added => "added",
        };
        write!(f, "{} ({change})", self.name)
    }
}

/// The files of a record that are no longer as its guest brought them, the run's log among them.
///
/// # Errors
///
/// A file is there and can't be read.
pub fn touched(folder: &Path, inputs: &Inputs) -> Result<Vec<Touched>, LabError> {
    let log = inputs.log_sha256.as_ref().map(|hash| (LOG, hash));
    let named = inputs.files.iter().map(|(name, hash)| (name.as_str(), hash)).chain(log);
    let mut touched = Vec::new();
    for (name, hash) in named {
        let change = match read_file(&folder.join(name))? {
            None => FileChange::Deleted,
            Some(bytes) if sha256(&bytes) != *hash => FileChange::Altered,
            Some(_) => continue,
        };
        touched.push(Touched { name: name.to_owned(), change });
    }
    let added = FilesNotSent::of(folder, inputs)?.added;
    touched.extend(added.into_iter().map(|name| Touched { name, change: FileChange::Added }));
    Ok(touched)
}

/// Refuses a record that is no longer the one that its guest brought.
///
/// # Errors
///
/// Each file that was altered, deleted or added, and what to do.
pub fn check(folder: &Path, inputs: &Inputs) -> Result<(), LabError> {
    let touched = touched(folder, inputs)?;
    if touched.is_empty() {
        return Ok(());
    }
    let is_added = |one: &Touched| one.change == FileChange::Added;
    let first = if touched.iter().any(is_added) { "move the added files away, then " } else { "" };
    let (folder, list) = (folder.display(), list(&touched));
    Err(LabError::Refused(format!(
        "{folder} is no longer the record that its guest sent: {list}. `rtscope lab replay {folder}` shows \
         what differs; {first}--fresh measures it again, and --out names another folder"
    )))
}

pub(crate) fn list(touched: &[Touched]) -> String {
    touched.iter().map(Touched::to_string).collect::<Vec<_>>().join(", ")
}

/// Files in a record's folder that its guest didn't send, each list sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FilesNotSent {
    /// Files that a reader of the record would take for a part of it.
    pub added: Vec<String>,
    /// Files that rtscope makes from the record, or keeps with it.
    pub made_here: Vec<String>,
    /// Files that rtscope doesn't know.
    pub foreign: Vec<String>,
}

impl FilesNotSent {
    /// Looks through a record's folder and all folders in it.
    ///
    /// # Errors
    ///
    /// A folder can't be listed.
    pub fn of(folder: &Path, inputs: &Inputs) -> Result<FilesNotSent, LabError> {
        let mut names = Vec::new();
        list_files(folder, "", &mut names)?;
        names.sort();
        let mut beside = FilesNotSent::default();
        for name in names {
            let room = name.split_once('/').map(|(room, _)| room);
            if inputs.files.contains_key(&name) {
            } else if room.map_or(READ.contains(&name.as_str()), |room| READ_WHOLE.contains(&room))
            {
                beside.added.push(name);
            } else if is_made_here(&name) {
                beside.made_here.push(name);
            } else {
                beside.foreign.push(name);
            }
        }
        Ok(beside)
    }
}

/// The names of all files below a folder, with the folders that they are in.
fn list_files(folder: &Path, prefix: &str, names: &mut Vec<String>) -> Result<(), LabError> {
    for entry in fs::read_dir(folder).map_err(LabError::file("list", folder))? {
        let entry = entry.map_err(LabError::file("list", folder))?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list_files(&entry.path(), &format!("{name}/"), names)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
}

/// Whether rtscope writes a file of this name beside what a guest sent. It may be half-written.
fn is_made_here(name: &str) -> bool {
    let whole = name.strip_suffix(".part").unwrap_or(name);
    // Verbs have a page of their own, in their folder.
    MADE_HERE.contains(&whole) || whole.rsplit('/').next() == Some(guest::PAGE)
}

/// What is wrong with a file of a record, when the same inputs have run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The file on disk is no longer the one that the guest brought; the other run gives the latter.
    Disk(FileChange),
    /// The file is the one that the guest brought; the other run gives another one.
    Run,
    /// The file is no longer the one that the guest brought, and the other run gives a third one.
    Both(FileChange),
    /// The other run gives the file on disk; the hash of it was changed.
    Hash,
}

/// A file in which a record, its hashes and another run don't agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Path in the record.
    pub name: String,
    /// Which of the three is the odd one.
    pub blame: Blame,
    /// The first difference between the record on disk and the other run; none where one of them has no
    /// such file.
    pub first: Option<FirstDifference>,
}

/// The first difference between two files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstDifference {
    /// Line, from 1.
    pub line: usize,
    /// Byte of the line, from 1.
    pub byte: usize,
    /// What the first file has there; nothing at its end.
    pub before: String,
    /// What the second file has there.
    pub after: String,
}

/// Compares the files of a record on disk with those of another run, byte by byte.
///
/// # Errors
///
/// A file can't be read.
pub fn compare(
    record: &Path,
    noted: &Inputs,
    again: &Path,
    brought: &Inputs,
) -> Result<Vec<Disagreement>, LabError> {
    let mut names: BTreeSet<String> = noted.files.keys().cloned().collect();
    // An older record doesn't name its console.
    let is_named = |name: &&String| *name != CONSOLE;
    names.extend(brought.files.keys().filter(is_named).cloned());
    names.extend(FilesNotSent::of(record, noted)?.added);
    let mut found = Vec::new();
    for name in names {
        let (disk, other) = (read_file(&record.join(&name))?, read_file(&again.join(&name))?);
        let hash = noted.files.get(&name).map(String::as_str);
        if let Some(blame) = blame(hash, disk.as_deref(), other.as_deref()) {
            let both = disk.as_ref().zip(other.as_ref());
            let first = both.and_then(|(disk, other)| difference(disk, other));
            found.push(Disagreement { name, blame, first });
        }
    }
    Ok(found)
}

fn blame(hash: Option<&str>, disk: Option<&[u8]>, other: Option<&[u8]>) -> Option<Blame> {
    let (on_disk, made) = (disk.map(sha256), other.map(sha256));
    let change = match (hash, &on_disk) {
        (None, _) => FileChange::Added,
        (_, None) => FileChange::Deleted,
        _ => FileChange::Altered,
    };
    match (on_disk.as_deref() == hash, made.as_deref() == hash, on_disk == made) {
        (true, true, _) => None,
        (true, false, _) => Some(Blame::Run),
        (false, true, _) => Some(Blame::Disk(change)),
        (false, false, true) => Some(Blame::Hash),
        (false, false, false) => Some(Blame::Both(change)),
    }
}

/// Where two files differ first; none when they are equal.
fn difference(before: &[u8], after: &[u8]) -> Option<FirstDifference> {
    let common = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    if common == before.len() && common == after.len() {
        return None;
    }
    let line_starts = before[..common].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    // A few bytes before the difference say what it is about.
    let from = common.saturating_sub(SHOWN_BYTES / 2).max(line_starts);
    let shown = |bytes: &[u8]| {
        let piece = &bytes[from..bytes.len().min(from + SHOWN_BYTES)];
        let line = piece.split(|b| *b == b'\n').next().unwrap_or_default();
        String::from_utf8_lossy(line).into_owned()
    };
    Some(FirstDifference {
        line: before[..common].iter().filter(|b| **b == b'\n').count() + 1,
        byte: common - line_starts + 1,
        before: shown(before),
        after: shown(after),
    })
}

#[cfg(test)]
mod tests;
