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
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use rtscope_sys::whole::create_anew;
use rustix::{fs::FallocateFlags, io::Errno};
use serde::{Deserialize, Serialize};

use super::{below, layout::BootLayout, marked_block::Mark, steps::Steps};
use crate::{cache::Identity, disk::Demand, error::LabError};

/// Folder of the journals, below the root.
const FOLDER: &str = "var/lib/rtscope/kernels";

/// Space that is taken for a journal when it begins: with its disk full it could still be ended.
const RESERVED_BYTES: u64 = 64 * 1024;

/// The folder of the journals of a system.
pub(super) fn folder(root: &Path) -> Result<PathBuf, LabError> {
    below::place(root, &root.join(FOLDER))
}

/// Adds what a journal takes, without what it keeps.
pub(super) fn demand(sum: &mut Demand, block: u64) {
    // Its folder, that of kept files, and the folders above.
    for _ in 0..2 + Path::new(FOLDER).components().count() {
        sum.add_folder(block);
    }
    sum.add_file(RESERVED_BYTES, block);
}

/// A line of a journal. Paths are below the root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum JournalLine {
    Begin(Heading),
    /// A folder above the journals, made for them. The lowest comes first.
    Above {
        path: PathBuf,
    },
    /// A folder, made.
    Folder {
        path: PathBuf,
    },
    /// A new file, link or whole folder, put in its place in one step.
    New {
        path: PathBuf,
        /// Of a text with a block of ours, the SHA-256 without the block: the boot loader also reads what others add to
        /// it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marked: Option<String>,
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
    /// Words on the command line, where it is no kernel but only these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
}

impl Heading {
    /// How the blocks of this installation are titled.
    pub(super) fn title(&self) -> String {
        match &self.parameters {
            Some(_) => self.kernel.name.clone(),
            None => self.kernel.title(),
        }
    }
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
        let folder = folder(root)?;
        let above = folder.ancestors().skip(1).take_while(|path| *path != root);
        let mut made: Vec<PathBuf> =
            above.filter(|path| !path.exists()).map(Path::to_owned).collect();
        let number =
            all(root)?.iter().filter_map(|found| number_of(&found.dir)).max().unwrap_or(0) + 1;
        let dir = folder.join(format!("{number:04}-{}", heading.kernel.key));
        let begun = Journal::write_first(&dir, root, heading, &made, steps);
        if matches!(begun, Err(LabError::File { .. })) {
            // Nothing refers to a journal without a first line: it goes, with the folders made for it.
            let _ = fs::remove_dir_all(&dir);
            made.insert(0, folder);
            for path in &made {
                let _ = fs::remove_dir(path);
            }
        }
        begun
    }

    fn write_first(
        dir: &Path,
        root: &Path,
        heading: &Heading,
        made: &[PathBuf],
        steps: &mut Steps,
    ) -> Result<Journal, LabError> {
        let folder = folder(root)?;
        steps.take()?;
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        steps.take()?;
        // What is there has this number and no whole first line: nothing may go after it, and no link in it be followed.
        clear(dir).map_err(LabError::file("remove", dir))?;
        fs::create_dir(dir).map_err(LabError::file("make", dir))?;
        let saved = dir.join("saved");
        fs::create_dir(&saved).map_err(LabError::file("make", &saved))?;
        let path = dir.join("journal.jsonl");
        steps.take()?;
        let file = create_anew(&path).map_err(LabError::file("write", &path))?;
        reserve(&file).map_err(LabError::file("reserve space for", &path))?;
        let mut journal = Journal { dir: dir.to_owned(), file, saved: 0 };
        journal.add(&JournalLine::Begin(heading.clone()), steps)?;
        for path in made {
            let path = path.strip_prefix(root).unwrap_or(path).to_owned();
            journal.add(&JournalLine::Above { path }, steps)?;
        }
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
    let folder = folder(root)?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(LabError::file("read", folder)(e)),
    };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.retain(|dir| number_of(dir).is_some() && dir.extension().is_none());
    dirs.retain(|dir| dir.symlink_metadata().is_ok_and(|there| there.is_dir()));
    dirs.sort();
    let mut found = Vec::new();
    for dir in dirs {
        let path = dir.join("journal.jsonl");
        let text = match below::read(root, &path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(LabError::File { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                String::new()
            }
            Err(error) => return Err(error),
        };
        let lines = text.lines().map_while(|line| serde_json::from_str(line).ok());
        let mut lines: Vec<JournalLine> = lines.collect();
        if !matches!(lines.first(), Some(JournalLine::Begin(_))) {
            continue;
        }
        refuse_outside(&path, &lines)?;
        if let JournalLine::Begin(heading) = lines.remove(0) {
            let done = lines.last() == Some(&JournalLine::Done);
            found.push(FoundJournal { dir, heading, lines, done });
        }
    }
    Ok(found)
}

/// Refuses a journal that names something outside of its root, or of its own folder: somebody else wrote it.
fn refuse_outside(journal: &Path, lines: &[JournalLine]) -> Result<(), LabError> {
    let is_below = |path: &Path| {
        let mut parts = path.components().peekable();
        parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
    };
    let paths = lines.iter().flat_map(|line| match line {
        JournalLine::Above { path }
        | JournalLine::Folder { path }
        | JournalLine::New { path, .. } => vec![path],
        JournalLine::Replaced { path, saved, .. } => vec![path, saved],
        JournalLine::Begin(_) | JournalLine::Done => Vec::new(),
    });
    match paths.into_iter().find(|path| !is_below(path)) {
        None => Ok(()),
        Some(path) => Err(LabError::Refused(format!(
            "{} names {path:?}, which is outside of that system, so rtscope didn't write it: look at it, and remove its \
             folder by hand",
            journal.display()
        ))),
    }
}

impl FoundJournal {
    /// Refuses a journal of this machine that users other than root can change: undoing it writes files as root. On a card,
    /// whoever writes the card decides who owns what.
    pub(super) fn check_owners(&self, root: &Path) -> Result<(), LabError> {
        let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
        if identity(root) != identity(Path::new("/")) {
            return Ok(());
        }
        match open_part(&self.dir).map_err(LabError::file("look at", &self.dir))? {
            None => Ok(()),
            Some(open) => Err(LabError::Refused(format!(
                "users other than root can change {}, so it may not be what rtscope saved: look at all of \
                 /var/lib/rtscope, then call `chown -R root:root /var/lib/rtscope` and `chmod -R go-w /var/lib/rtscope`",
                open.display()
            ))),
        }
    }
}

/// What of a journal users other than root can change: one of its files, its folder, or the two above, which are ours too.
pub(super) fn open_part(dir: &Path) -> io::Result<Option<PathBuf>> {
    let is_open = |found: &fs::Metadata| {
        let writers = if found.gid() == 0 { 0o002 } else { 0o022 };
        found.uid() != 0 || (!found.is_symlink() && found.mode() & writers != 0)
    };
    for above in dir.ancestors().skip(1).take(2) {
        if is_open(&above.symlink_metadata()?) {
            return Ok(Some(above.to_owned()));
        }
    }
    let mut inside = vec![dir.to_owned()];
    while let Some(path) = inside.pop() {
        let found = path.symlink_metadata()?;
        if is_open(&found) {
            return Ok(Some(path));
        }
        if found.is_dir() {
            for entry in fs::read_dir(&path)? {
                inside.push(entry?.path());
            }
        }
    }
    Ok(None)
}

/// Removes what has a name, without following links.
fn clear(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// Removes a journal whose changes are undone: out of sight in one step, then its files; and the
/// folders of ours that are empty then.
pub fn forget(root: &Path, found: &FoundJournal, steps: &mut Steps) -> Result<(), LabError> {
    let undone = found.dir.with_extension("undone");
    steps.take()?;
    fs::rename(&found.dir, &undone).map_err(LabError::file("rename", &found.dir))?;
    sweep(found.dir.parent().unwrap_or(&found.dir), steps)?;
    for line in &found.lines {
        if let JournalLine::Above { path } = line {
            steps.take()?;
            let _ = fs::remove_dir(below::place_of_name(root, path)?);
        }
    }
    Ok(())
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

/// Takes space for a journal's lines. File systems that can't are asked for it with each line.
fn reserve(file: &File) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, RESERVED_BYTES) {
        Err(Errno::NOSPC | Errno::DQUOT) => Err(Errno::NOSPC.into()),
        _ => Ok(()),
    }
}
