//! What an installation changes, written down before it is changed; and everything it replaces, kept.
//!
//! ```text
//! ROOT/var/lib/rtscope/kernels/0001-KEY/journal.jsonl   one line for each change
//!                                       saved/0         what was replaced
//! ```
//!
//! A line is on the disk before its change begins. A last line that was cut short is a change that
//! never began.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{layout::BootLayout, marked_block::Mark, steps::Steps};
use crate::{cache::Identity, error::LabError};

/// Folder of the journals, below the root.
const FOLDER: &str = "var/lib/rtscope/kernels";

/// A line of a journal. Paths are below the root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum JournalLine {
    Begin(Heading),
    /// A folder, made.
    Folder {
        path: PathBuf,
    },
    /// A new file, link or whole folder, put in its place in one step.
    New {
        path: PathBuf,
    },
    Replaced {
        path: PathBuf,
        /// What was there, below the journal's folder.
        saved: PathBuf,
        /// SHA-256 of what was written.
        sha256: String,
        /// How our part is marked in it.
        mark: Mark,
    },
    /// All is in place.
    Done,
}

/// What an installation is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    #[serde(flatten)]
    pub kernel: Identity,
    pub layout: BootLayout,
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    file: File,
    saved: usize,
}

#[derive(Clone, Debug)]
pub struct FoundJournal {
    pub dir: PathBuf,
    pub heading: Heading,
    /// Its changes, in order.
    pub lines: Vec<JournalLine>,
    /// Whether the installation came to its end.
    pub done: bool,
}

impl Journal {
    /// Begins a journal below a root.
    pub fn begin(root: &Path, heading: &Heading, steps: &mut Steps) -> Result<Journal, LabError> {
        let folder = root.join(FOLDER);
        steps.take()?;
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        let number =
            all(root)?.iter().filter_map(|found| number_of(&found.dir)).max().unwrap_or(0) + 1;
        let dir = folder.join(format!("{number:04}-{}", heading.kernel.key));
        steps.take()?;
        let saved = dir.join("saved");
        fs::create_dir_all(&saved).map_err(LabError::file("make", &saved))?;
        let path = dir.join("journal.jsonl");
        steps.take()?;
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(LabError::file("write", &path))?;
        let mut journal = Journal { dir, file, saved: 0 };
        journal.add(&JournalLine::Begin(heading.clone()), steps)?;
        for folder in [&journal.dir, &folder] {
            sync_folder(folder).map_err(LabError::file("sync", folder))?;
        }
        Ok(journal)
    }

    /// Adds a line; it is on the disk when this returns.
    pub fn add(&mut self, line: &JournalLine, steps: &mut Steps) -> Result<(), LabError> {
        steps.take()?;
        let mut write = || {
            let text = serde_json::to_string(line)? + "\n";
            self.file.write_all(text.as_bytes())?;
            self.file.sync_all()
        };
        write().map_err(LabError::file("write a journal in", &self.dir))
    }

    /// Keeps a copy of a file and says where, below the journal's folder.
    pub fn save(&mut self, path: &Path, steps: &mut Steps) -> Result<PathBuf, LabError> {
        steps.take()?;
        let name = Path::new("saved").join(self.saved.to_string());
        let to = self.dir.join(&name);
        let copy = || {
            fs::copy(path, &to)?;
            let file = File::options().write(true).open(&to)?;
            let there = path.metadata()?;
            file.set_modified(there.modified()?)?;
            file.sync_all()?;
            sync_folder(&self.dir.join("saved"))
        };
        copy().map_err(LabError::file("save", path))?;
        self.saved += 1;
        Ok(name)
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn number_of(dir: &Path) -> Option<u32> {
    dir.file_name()?.to_str()?.split_once('-')?.0.parse().ok()
}

/// Makes names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Every journal below a root, the oldest first. A folder whose journal has no first line is of an
/// installation that never began.
pub fn all(root: &Path) -> Result<Vec<FoundJournal>, LabError> {
    let folder = root.join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(LabError::file("read", folder)(e)),
    };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.retain(|dir| number_of(dir).is_some() && dir.extension().is_none());
    dirs.sort();
    let mut found = Vec::new();
    for dir in dirs {
        let path = dir.join("journal.jsonl");
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(LabError::file("read", path)(e)),
        };
        let lines = text.lines().map_while(|line| serde_json::from_str(line).ok());
        let mut lines: Vec<JournalLine> = lines.collect();
        if !matches!(lines.first(), Some(JournalLine::Begin(_))) {
            continue;
        }
        if let JournalLine::Begin(heading) = lines.remove(0) {
            let done = lines.last() == Some(&JournalLine::Done);
            found.push(FoundJournal { dir, heading, lines, done });
        }
    }
    Ok(found)
}

/// Removes a journal whose changes are undone: out of sight in one step, then its files; and the
/// folders of ours that are empty then.
pub fn forget(dir: &Path, steps: &mut Steps) -> Result<(), LabError> {
    let undone = dir.with_extension("undone");
    steps.take()?;
    fs::rename(dir, &undone).map_err(LabError::file("rename", dir))?;
    sweep(dir.parent().unwrap_or(dir), steps)
}

/// Removes what broken attempts left among the journals.
fn sweep(folder: &Path, steps: &mut Steps) -> Result<(), LabError> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "undone") {
            steps.take()?;
            // What stays is out of sight and harmless.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    steps.take()?;
    let _ = fs::remove_dir(folder).and_then(|()| fs::remove_dir(folder.parent().unwrap_or(folder)));
    Ok(())
}
