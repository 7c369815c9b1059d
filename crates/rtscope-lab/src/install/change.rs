//! Changes to a root folder: each written into the journal, done in one step, and undone.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::read::GzDecoder;
use rtscope_sys::whole::create_anew;

use super::{
    below,
    journal::{FoundJournal, Journal, JournalLine, sync_folder},
    marked_block::{Mark, is_marked, without_block},
    steps::Steps,
};
use crate::{digest, disk::Demand, error::LabError, tool};

/// Ending of what is being written and isn't in its place yet.
const PART: &str = ".rtscope-part";

/// One change. Paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// A new folder with all that is in another.
    Tree {
        /// What to copy.
        from: PathBuf,
        /// Where to; not there yet.
        to: PathBuf,
    },
    /// A new folder with the named files.
    Files {
        /// Files with their path below the folder.
        from: Vec<(Content, PathBuf)>,
        /// Where to; not there yet.
        to: PathBuf,
    },
    /// A new file.
    File {
        from: Content,
        /// Where to; not there yet.
        to: PathBuf,
    },
    /// Another text in the place of a file, marked.
    Replace {
        path: PathBuf,
        text: String,
        /// How our part is marked in it.
        mark: Mark,
    },
}

/// What a new file is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Copy(PathBuf),
    /// A file that gzip packed, unpacked.
    Unpacked(PathBuf),
    Text(String),
    /// What a program writes into the file that is its last argument but `then` ones.
    Made {
        /// Program and arguments before the file's name.
        words: Vec<String>,
        /// Arguments after it.
        then: Vec<String>,
    },
}

impl Change {
    pub(super) fn place(&self) -> &Path {
        match self {
            Change::Tree { to, .. } | Change::Files { to, .. } | Change::File { to, .. } => to,
            Change::Replace { path, .. } => path,
        }
    }

    /// Whether something has the place of a new file already.
    pub(super) fn is_taken(&self) -> bool {
        !matches!(self, Change::Replace { .. }) && self.place().symlink_metadata().is_ok()
    }

    /// The same change where the system below the root has its place.
    fn settle(self, root: &Path) -> Result<Change, LabError> {
        let name = |to: PathBuf| below::place_of_name(root, &to);
        Ok(match self {
            Change::Tree { from, to } => Change::Tree { from, to: name(to)? },
            Change::Files { from, to } => Change::Files { from, to: name(to)? },
            Change::File { from, to } => Change::File { from, to: name(to)? },
            Change::Replace { path, text, mark } => {
                Change::Replace { path: below::place(root, &path)?, text, mark }
            }
        })
    }

    /// Adds what it takes on its file system, while it is being made.
    pub(super) fn demand(&self, sum: &mut Demand, block: u64) {
        // The folders above it, at most.
        for _ in 0..4 {
            sum.add_folder(block);
        }
        match self {
            Change::Tree { from, .. } => sum.add_tree(from, block),
            Change::Files { from, .. } => {
                sum.add_folder(block);
                for (content, _) in from {
                    sum.add_file(content.bytes(), block);
                }
                let folders: BTreeSet<&Path> =
                    from.iter().filter_map(|(_, name)| name.parent()).collect();
                for _ in folders {
                    sum.add_folder(block);
                }
            }
            Change::File { from, .. } => sum.add_file(from.bytes(), block),
            Change::Replace { text, .. } => sum.add_file(text.len() as u64, block),
        }
    }

    /// Does the change: journal first.
    pub(super) fn apply(
        &self,
        root: &Path,
        journal: &mut Journal,
        steps: &mut Steps,
    ) -> Result<(), LabError> {
        let place = self.place();
        self.folders(root, journal, steps)?;
        let path = place.strip_prefix(root).unwrap_or(place).to_owned();
        if let Change::Replace { path: place, text, mark } = self {
            let saved = journal.save(place, steps)?;
            let sha256 = digest::sha256(text.as_bytes());
            journal.add(&JournalLine::Replaced { path, saved, sha256, mark: *mark }, steps)?;
            return put(place, text.as_bytes(), None, steps);
        }
        if self.is_taken() {
            return Err(LabError::Refused(format!("{} is there already", place.display())));
        }
        let marked = match self {
            Change::File { from: Content::Text(text), .. } if is_marked(text) => {
                Some(digest::sha256(without_block(text).as_bytes()))
            }
            _ => None,
        };
        journal.add(&JournalLine::New { path, marked }, steps)?;
        let part = part_of(place);
        remove(&part, steps)?;
        match self {
            Change::Tree { from, .. } => copy_tree(from, &part, steps)?,
            Change::Files { from, .. } => {
                steps.take()?;
                fs::create_dir(&part).map_err(LabError::file("make", &part))?;
                for (content, name) in from {
                    let to = part.join(name);
                    if let Some(folder) = to.parent() {
                        steps.take()?;
                        fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
                    }
                    content.write(&to, steps)?;
                }
            }
            Change::File { from, .. } => from.write(&part, steps)?,
            Change::Replace { .. } => {}
        }
        into_place(&part, place, steps)
    }

    /// Makes the folders above the place, each in the journal.
    fn folders(
        &self,
        root: &Path,
        journal: &mut Journal,
        steps: &mut Steps,
    ) -> Result<(), LabError> {
        let above: Vec<&Path> =
            self.place().ancestors().skip(1).take_while(|p| *p != root).collect();
        for folder in above.into_iter().rev().filter(|folder| !folder.exists()) {
            let path = folder.strip_prefix(root).unwrap_or(folder).to_owned();
            journal.add(&JournalLine::Folder { path }, steps)?;
            steps.take()?;
            fs::create_dir(folder).map_err(LabError::file("make", folder))?;
        }
        Ok(())
    }
}

/// Changes where the system below the root has their places.
pub(super) fn settled(root: &Path, changes: Vec<Change>) -> Result<Vec<Change>, LabError> {
    changes.into_iter().map(|change| change.settle(root)).collect()
}

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            Content::Copy(from) => from.metadata().map_or(0, |there| there.len()),
            Content::Unpacked(from) => unpacked_bytes(from).unwrap_or(0),
            Content::Text(text) => text.len() as u64,
            // An initial RAM disk with many modules.
            Content::Made { .. } => 100 << 20,
        }
    }

    fn write(&self, to: &Path, steps: &mut Steps) -> Result<(), LabError> {
        match self {
            Content::Copy(from) => copy_file(from, to, steps),
            Content::Unpacked(from) => copy_through(from, to, GzDecoder::new, steps),
            Content::Text(text) => write_file(to, text.as_bytes(), steps),
            Content::Made { words, then } => {
                steps.take()?;
                let Some((program, rest)) = words.split_first() else { return Ok(()) };
                tool::output(Command::new(program).args(rest).arg(to).args(then))?;
                File::open(to).and_then(|made| made.sync_all()).map_err(LabError::file("sync", to))
            }
        }
    }
}

/// What gzip says of a file in its last four bytes (RFC 1952, ISIZE).
fn unpacked_bytes(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut size = [0; 4];
    file.seek(SeekFrom::End(-4))?;
    file.read_exact(&mut size)?;
    Ok(u32::from_le_bytes(size).into())
}

fn part_of(place: &Path) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(PART);
    place.with_file_name(name)
}

fn into_place(part: &Path, place: &Path, steps: &mut Steps) -> Result<(), LabError> {
    let folder = place.parent().unwrap_or(place);
    steps.take()?;
    fs::rename(part, place).map_err(LabError::file("rename", part))?;
    steps.take()?;
    sync_folder(folder).map_err(LabError::file("sync", folder))
}

/// Writes a file whole or not at all. `like` gives mode and time.
fn put(place: &Path, bytes: &[u8], like: Option<&Path>, steps: &mut Steps) -> Result<(), LabError> {
    let part = part_of(place);
    write_file(&part, bytes, steps)?;
    let of = like.unwrap_or(place);
    if let Ok(there) = of.metadata() {
        // A file system without permissions refuses them, and needs none.
        let _ = fs::set_permissions(&part, there.permissions());
        if let (Some(_), Ok(time), Ok(file)) =
            (like, there.modified(), File::options().write(true).open(&part))
        {
            let _ = file.set_modified(time);
        }
    }
    into_place(&part, place, steps)
}

fn write_file(to: &Path, bytes: &[u8], steps: &mut Steps) -> Result<(), LabError> {
    steps.take()?;
    let mut file = create_anew(to).map_err(LabError::file("write", to))?;
    steps.take()?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(LabError::file("write", to))
}

fn copy_file(from: &Path, to: &Path, steps: &mut Steps) -> Result<(), LabError> {
    copy_through(from, to, |file| file, steps)
}

/// Copies what a reader makes of a file.
fn copy_through<R: Read>(
    from: &Path,
    to: &Path,
    read: impl FnOnce(File) -> R,
    steps: &mut Steps,
) -> Result<(), LabError> {
    steps.take()?;
    let copy = || {
        let source = File::open(from)?;
        let permissions = source.metadata()?.permissions();
        let mut file = create_anew(to)?;
        io::copy(&mut read(source), &mut file)?;
        let _ = file.set_permissions(permissions);
        file.sync_all()
    };
    copy().map_err(LabError::file("copy to", to))
}

/// Copies a folder with its files and links. Where a file system has no links, a link's target is
/// copied.
fn copy_tree(from: &Path, to: &Path, steps: &mut Steps) -> Result<(), LabError> {
    steps.take()?;
    fs::create_dir(to).map_err(LabError::file("make", to))?;
    for entry in fs::read_dir(from).map_err(LabError::file("read", from))? {
        let entry = entry.map_err(LabError::file("read", from))?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(LabError::file("read", &path))?;
        if kind.is_dir() {
            copy_tree(&path, &to, steps)?;
        } else if kind.is_symlink() {
            steps.take()?;
            let target = fs::read_link(&path).map_err(LabError::file("read", &path))?;
            match symlink(&target, &to) {
                Ok(()) => {}
                Err(e) if !has_no_links(&e) => return Err(LabError::file("make a link", &to)(e)),
                Err(_) if path.is_file() => copy_file(&path, &to, steps)?,
                // Of a folder or of nothing: no file of it is lost.
                Err(_) => {}
            }
        } else {
            copy_file(&path, &to, steps)?;
        }
    }
    sync_folder(to).map_err(LabError::file("sync", to))
}

/// Whether a link failed because the file system has none, as FAT.
fn has_no_links(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

/// Undoes every change of a journal, the last first. Can be broken off and done again.
pub(super) fn undo(
    root: &Path,
    found: &FoundJournal,
    steps: &mut Steps,
) -> Result<Vec<String>, LabError> {
    found.check_owners(root)?;
    let mut notes = Vec::new();
    let title = found.heading.title();
    for line in found.lines.iter().rev() {
        match line {
            JournalLine::Replaced { path, saved, sha256, mark } => {
                let place = below::place(root, path)?;
                let saved = below::place(root, &found.dir.join(saved))?;
                notes.extend(restore(root, &place, &saved, (sha256, *mark, &title), steps)?);
            }
            JournalLine::New { path, marked } => {
                let path = below::place_of_name(root, path)?;
                remove(&part_of(&path), steps)?;
                let others = marked.as_ref().map(|sha256| others_part(&path, sha256, &title));
                match others.transpose()?.flatten() {
                    Some(bytes) => {
                        put(&path, &bytes, None, steps)?;
                        notes.push(edited(&path));
                    }
                    None => remove(&path, steps)?,
                }
            }
            JournalLine::Folder { path } => {
                let path = below::place_of_name(root, path)?;
                steps.take()?;
                // Somebody may have put something there since.
                if fs::remove_dir(&path).is_err() && path.exists() {
                    notes.push(format!(
                        "{} is not empty, so rtscope did not remove it",
                        path.display()
                    ));
                }
            }
            JournalLine::Begin(_) | JournalLine::Above { .. } | JournalLine::Done => {}
        }
    }
    Ok(notes)
}

/// What is in a file that we made, if others have added to it. `sha256` is of what was in it beside our block.
fn others_part(path: &Path, sha256: &str, title: &str) -> Result<Option<Vec<u8>>, LabError> {
    if !path.symlink_metadata().is_ok_and(|there| there.is_file()) {
        return Ok(None);
    }
    let now = fs::read(path).map_err(LabError::file("read", path))?;
    let rest = without_ours(&now, Mark::Block, title);
    let is_theirs = digest::sha256(&rest) != sha256 && !rest.trim_ascii().is_empty();
    Ok(is_theirs.then_some(rest))
}

/// A file's bytes without what is ours. What others wrote may be in any encoding; ours is ASCII.
fn without_ours(bytes: &[u8], mark: Mark, title: &str) -> Vec<u8> {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    mark.taken_out(&text, title).chars().map(|c| c as u8).collect()
}

fn edited(place: &Path) -> String {
    format!("{} was edited since: rtscope removes only its own part", place.display())
}

/// Puts a replaced file back. One that was edited since keeps the edits and loses our part only.
fn restore(
    root: &Path,
    place: &Path,
    saved: &Path,
    (sha256, mark, title): (&str, Mark, &str),
    steps: &mut Steps,
) -> Result<Option<String>, LabError> {
    if !place.exists() {
        return Err(LabError::Refused(format!(
            "{} is gone: is its file system mounted? Its old content is in {}",
            place.display(),
            saved.display()
        )));
    }
    remove(&part_of(place), steps)?;
    let old = below::read(root, saved)?;
    let now = below::read(root, place).ok();
    let ours = now.as_ref().is_some_and(|now| digest::sha256(now) == sha256);
    match now {
        Some(now) if now == old => Ok(None),
        Some(now) if !ours => {
            put(place, &without_ours(&now, mark, title), None, steps)?;
            Ok(Some(edited(place)))
        }
        _ => put(place, &old, Some(saved), steps).map(|()| None),
    }
}

/// Removes a file or a folder. A folder goes out of its place in one step first.
fn remove(path: &Path, steps: &mut Steps) -> Result<(), LabError> {
    let Ok(there) = path.symlink_metadata() else { return Ok(()) };
    let failed = LabError::file("remove", path);
    steps.take()?;
    if !there.is_dir() {
        return fs::remove_file(path).map_err(failed);
    }
    let part = if path.to_string_lossy().ends_with(PART) { path.to_owned() } else { part_of(path) };
    if part != *path {
        fs::rename(path, &part).map_err(LabError::file("rename", path))?;
        steps.take()?;
    }
    fs::remove_dir_all(&part).map_err(failed)
}
