//! A record on its way: its files one behind the other, with a list that says which they are.
//!
//! The list comes first, with a SHA-256 for each file. What has arrived when a connection breaks stays, and the next try
//! goes on from there. A place may be hostile: names, numbers and sizes are checked before anything is written, and
//! what judges a record (verdicts, pages, accepted findings) is never taken from it.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use rtscope_model::record::JUDGED_HERE;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::FleetError;

/// What a record may be at most. The record of a week has some hundred megabytes.
pub const BYTES_MAX: u64 = 4 << 30;
const FILES_MAX: usize = 20_000;

/// What is hashed between two signs of life.
const PIECE: u64 = 4 << 20;
const DEPTH_MAX: usize = 4;

/// The files of a record, in the order in which they come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordManifest {
    pub files: Vec<ListedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// Below the record's folder, with `/`.
    pub path: String,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

impl RecordManifest {
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Checks what a place says before anything is taken.
    ///
    /// # Errors
    ///
    /// A name that leaves the folder or isn't plain, a name twice, too many files, too many bytes.
    pub fn check(&self) -> Result<(), FleetError> {
        let wrong = |why: String| Err(FleetError::Parcel(why));
        if self.files.len() > FILES_MAX {
            return wrong(format!(
                "it has {} files, but the maximum is {FILES_MAX}",
                self.files.len()
            ));
        }
        if self.bytes() > BYTES_MAX {
            return wrong(format!(
                "it has {} MiB, but the maximum is {}",
                self.bytes() >> 20,
                BYTES_MAX >> 20
            ));
        }
        let mut paths: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        paths.sort_unstable();
        if let Some(path) = paths.iter().find(|path| !is_plain(path)) {
            return wrong(format!("it has a file with an invalid name, {path:?}"));
        }
        let is_below = |pair: &[&str]| {
            pair[0] == pair[1]
                || pair[1].strip_prefix(pair[0]).is_some_and(|rest| rest.starts_with('/'))
        };
        match paths.windows(2).find(|pair| is_below(pair)) {
            Some(pair) => wrong(format!("it has {:?} twice", pair[0])),
            None => Ok(()),
        }
    }
}

/// Whether a path stays below its folder, whatever reads it.
fn is_plain(path: &str) -> bool {
    let is_name = |name: &str| {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.+@".contains(c);
        (1..=100).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_known)
    };
    path.split('/').count() <= DEPTH_MAX && path.split('/').all(is_name)
}

/// Whether a file is part of what was measured, rather than of what was made of it.
fn is_measured(path: &str) -> bool {
    !JUDGED_HERE.contains(&path) && !path.ends_with(".html")
}

/// SHA-256 of a file, in hexadecimal digits.
///
/// # Errors
///
/// It can't be read.
pub fn sha256_of(path: &Path) -> io::Result<String> {
    sha256_with(path, &mut || {})
}

/// As [`sha256_of`]; `at_work` is called again and again.
fn sha256_with(path: &Path, at_work: &mut dyn FnMut()) -> io::Result<String> {
    let mut hash = Hashed::new(io::sink());
    let mut file = File::open(path)?;
    while io::copy(&mut (&mut file).take(PIECE), &mut hash)? > 0 {
        at_work();
    }
    Ok(hash.digits())
}

/// Hashes what is written.
pub(crate) struct Hashed<W> {
    hash: Sha256,
    to: W,
}

impl<W> Hashed<W> {
    pub(crate) fn new(to: W) -> Hashed<W> {
        Hashed { hash: Sha256::new(), to }
    }

    /// The SHA-256 in hexadecimal digits.
    pub(crate) fn digits(self) -> String {
        self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Lists a record's files. A folder that isn't there has none. `at_work` is called again and again: hashing takes minutes
/// where a record is big and the machine is slow.
///
/// # Errors
///
/// A file can't be read.
pub fn manifest(folder: &Path, at_work: &mut dyn FnMut()) -> Result<RecordManifest, FleetError> {
    let mut files = Vec::new();
    for path in measured_files(folder)? {
        let full = folder.join(&path);
        let sha256 = sha256_with(&full, at_work).map_err(FleetError::file("read", &full))?;
        let bytes = fs::metadata(&full).map_err(FleetError::file("read", &full))?.len();
        files.push(ListedFile { path, bytes, sha256 });
    }
    Ok(RecordManifest { files })
}

/// The paths of regular files that were measured, sorted.
fn measured_files(folder: &Path) -> Result<Vec<String>, FleetError> {
    let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(below) = folders.pop() {
        let here = folder.join(&below);
        let entries = match fs::read_dir(&here) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(FleetError::file("list", &here))?,
        };
        for entry in entries {
            let entry = entry.map_err(FleetError::file("list", &here))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() && is_measured(&path) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Writes a record's files one behind the other, from an offset on.
///
/// # Errors
///
/// A file can't be read, or nobody takes them.
pub fn send(folder: &Path, offset: u64, out: &mut dyn Write) -> Result<(), FleetError> {
    let mut skip = offset;
    for path in measured_files(folder)? {
        let full = folder.join(path);
        let mut file = File::open(&full).map_err(FleetError::file("read", &full))?;
        let bytes = file.metadata().map_err(FleetError::file("read", &full))?.len();
        let from = skip.min(bytes);
        skip -= from;
        file.seek(SeekFrom::Start(from)).map_err(FleetError::file("read", &full))?;
        io::copy(&mut file, out).map_err(FleetError::file("send", &full))?;
    }
    out.flush().map_err(FleetError::file("send", folder))
}

/// What has arrived of a record, beside the folder that it will be.
#[derive(Debug)]
pub struct RecordArrival {
    folder: PathBuf,
    manifest: RecordManifest,
    bytes: File,
}

impl RecordArrival {
    /// Goes on where an earlier try stopped, if it was for the same files.
    ///
    /// # Errors
    ///
    /// The list is refused, or nothing can be written beside the folder.
    pub fn open(folder: &Path, manifest: RecordManifest) -> Result<RecordArrival, FleetError> {
        manifest.check()?;
        let (list, part) = (beside(folder, "list"), beside(folder, "part"));
        let known: Option<RecordManifest> =
            fs::read(&list).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let is_same = known.as_ref() == Some(&manifest);
        let bytes =
            File::options().create(true).read(true).write(true).truncate(!is_same).open(&part);
        let bytes = bytes.map_err(FleetError::file("write", &part))?;
        if !is_same {
            let text = serde_json::to_vec(&manifest).unwrap_or_default();
            fs::write(&list, text).map_err(FleetError::file("write", &list))?;
        }
        Ok(RecordArrival { folder: folder.to_owned(), manifest, bytes })
    }

    /// How much is there.
    ///
    /// # Errors
    ///
    /// The file can't be looked at.
    pub fn arrived(&self) -> Result<u64, FleetError> {
        let found = self.bytes.metadata();
        Ok(found.map_err(FleetError::file("read", beside(&self.folder, "part")))?.len())
    }

    /// The file for what is still missing, and how much that is.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn rest(&mut self) -> Result<(&mut File, u64), FleetError> {
        let missing = self.manifest.bytes().saturating_sub(self.arrived()?);
        self.bytes
            .seek(SeekFrom::End(0))
            .map_err(FleetError::file("read", beside(&self.folder, "part")))?;
        Ok((&mut self.bytes, missing))
    }

    /// Makes the folder of what has arrived, whole or not at all.
    ///
    /// # Errors
    ///
    /// A file is damaged: then all of it is to be sent again. Or the folder can't be written.
    pub fn unpack(mut self) -> Result<(), FleetError> {
        let new = beside(&self.folder, "new");
        let _ = fs::remove_dir_all(&new);
        // One that was killed after the next step has left all of it; what else is there is another try's.
        let _ = fs::remove_dir_all(&self.folder);
        let done = self.unpack_into(&new);
        let failed = FleetError::file("write", &self.folder);
        let done = done.and_then(|()| fs::rename(&new, &self.folder).map_err(failed));
        let _ = fs::remove_dir_all(&new);
        let is_damaged = matches!(done, Err(FleetError::Parcel(_)));
        if done.is_ok() || is_damaged {
            let _ = fs::remove_file(beside(&self.folder, "list"));
            let _ = fs::remove_file(beside(&self.folder, "part"));
        }
        done
    }

    fn unpack_into(&mut self, new: &Path) -> Result<(), FleetError> {
        self.bytes.rewind().map_err(FleetError::file("read", beside(&self.folder, "part")))?;
        fs::create_dir_all(new).map_err(FleetError::file("make", new))?;
        for file in &self.manifest.files {
            let path = new.join(&file.path);
            let failed = || FleetError::file("write", &path);
            let to: Box<dyn Write> = match is_measured(&file.path) {
                true => {
                    fs::create_dir_all(path.parent().unwrap_or(new)).map_err(failed())?;
                    Box::new(File::create_new(&path).map_err(failed())?)
                }
                false => Box::new(io::sink()),
            };
            let mut to = Hashed::new(to);
            io::copy(&mut (&mut self.bytes).take(file.bytes), &mut to).map_err(failed())?;
            if to.digits() != file.sha256 {
                return Err(FleetError::Parcel(format!("{} is damaged", file.path)));
            }
        }
        Ok(())
    }
}

/// A name beside a folder, for what is on its way into it.
fn beside(folder: &Path, what: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.{what}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn record(room: &Path, name: &str) -> PathBuf {
        let folder = room.join(name);
        fs::create_dir_all(folder.join("slices")).expect("made");
        for (path, text) in [
            ("plan.toml", "name = \"x\"\n"),
            ("slices/t0.jsonl", "one\ntwo\n"),
            ("slices/t1.jsonl", ""),
            ("verdict.json", "{}"),
            ("report.html", "<p>"),
            ("accepted.json", "{}"),
            ("comparison.json", "{}"),
        ] {
            fs::write(folder.join(path), text).expect("written");
        }
        symlink("/etc/passwd", folder.join("linked")).expect("linked");
        folder
    }

    #[test]
    fn a_record_arrives_in_pieces_and_without_what_judges_it() {
        let room = tempfile::tempdir().expect("a folder");
        let from = record(room.path(), "there");
        let listed = manifest(&from, &mut || {}).expect("listed");
        let paths: Vec<&str> = listed.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["plan.toml", "slices/t0.jsonl", "slices/t1.jsonl"]);
        let to = room.path().join("here");
        for _ in 0..40 {
            let mut arrival = RecordArrival::open(&to, listed.clone()).expect("open");
            let offset = arrival.arrived().expect("known");
            let mut piece = Vec::new();
            send(&from, offset, &mut piece).expect("sent");
            let (file, missing) = arrival.rest().expect("room");
            assert_eq!(piece.len() as u64, missing);
            if missing == 0 {
                arrival.unpack().expect("whole");
                break;
            }
            file.write_all(&piece[..piece.len().min(3)]).expect("written");
        }
        assert_eq!(fs::read_to_string(to.join("slices/t0.jsonl")).expect("there"), "one\ntwo\n");
        assert_eq!(manifest(&to, &mut || {}).expect("listed"), listed);
        let left: Vec<_> =
            fs::read_dir(room.path()).expect("listed").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn a_big_file_gives_signs_of_life_while_it_is_hashed() {
        let room = tempfile::tempdir().expect("a folder");
        let file = File::create(room.path().join("big")).expect("made");
        file.set_len(3 * PIECE + 1).expect("grown");
        let mut signs = 0;
        let listed = manifest(room.path(), &mut || signs += 1).expect("listed");
        assert_eq!((listed.bytes(), signs), (3 * PIECE + 1, 4));
        let whole = sha256_of(&room.path().join("big")).expect("hashed");
        assert_eq!(listed.files[0].sha256, whole);
    }

    #[test]
    fn a_damaged_record_makes_no_folder() {
        let room = tempfile::tempdir().expect("a folder");
        let from = record(room.path(), "there");
        let listed = manifest(&from, &mut || {}).expect("listed");
        let to = room.path().join("here");
        let mut arrival = RecordArrival::open(&to, listed.clone()).expect("open");
        let mut piece = Vec::new();
        send(&from, 0, &mut piece).expect("sent");
        piece[3] ^= 1;
        arrival.rest().expect("room").0.write_all(&piece).expect("written");
        let said = arrival.unpack().expect_err("damaged").to_string();
        assert!(said.contains("plan.toml is damaged") && !to.exists(), "{said}");
        assert_eq!(
            RecordArrival::open(&to, listed).expect("open").arrived().expect("known"),
            0,
            "from the start"
        );
    }

    #[test]
    fn a_verdict_that_a_place_sends_is_not_taken() {
        let room = tempfile::tempdir().expect("a folder");
        let text = b"{\"verdict\":\"pass\"}";
        let sha256 = {
            fs::write(room.path().join("x"), text).expect("written");
            sha256_of(&room.path().join("x")).expect("hashed")
        };
        let file = |path: &str| ListedFile {
            path: path.into(),
            bytes: text.len() as u64,
            sha256: sha256.clone(),
        };
        let listed = RecordManifest {
            files: ["accepted.json", "events.jsonl", "report.html", "verdict.json"]
                .map(file)
                .to_vec(),
        };
        let to = room.path().join("here");
        let mut arrival = RecordArrival::open(&to, listed).expect("open");
        arrival.rest().expect("room").0.write_all(&text.repeat(4)).expect("written");
        arrival.unpack().expect("unpacked");
        let names: Vec<_> =
            fs::read_dir(&to).expect("there").flatten().map(|e| e.file_name()).collect();
        assert_eq!(names, ["events.jsonl"]);
    }

    #[test]
    fn what_leaves_its_folder_or_is_too_much_is_refused() {
        let file =
            |path: &str, bytes| ListedFile { path: path.into(), bytes, sha256: String::new() };
        for (files, why) in [
            (vec![file("../x", 1)], "../x"),
            (vec![file("/etc/x", 1)], "/etc/x"),
            (vec![file("a/../../x", 1)], "a/../.."),
            (vec![file(".ssh", 1)], ".ssh"),
            (vec![file("a//b", 1)], "a//b"),
            (vec![file("\u{1b}[2J", 1)], "[2J"),
            (vec![file("a", 1), file("a", 1)], "twice"),
            (vec![file("a/b", 1), file("a", 1)], "twice"),
            (vec![file("a/b/c/d/e", 1)], "a/b/c/d/e"),
            (vec![file("a", 10 << 30)], "MiB"),
            (vec![file("a", u64::MAX), file("b", u64::MAX)], "MiB"),
            (vec![file("a", 1); FILES_MAX + 1], "files"),
        ] {
            let said = RecordManifest { files }.check().expect_err(why).to_string();
            assert!(said.contains(why) && !said.contains('\u{1b}'), "{said}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_its_folder(path in "[./a-c~\\\\\u{1b} ]{0,12}") {
            if is_plain(&path) {
                let inside = path.split('/').all(|name| !name.is_empty() && name != "." && name != "..");
                prop_assert!(inside && !path.starts_with('/'));
            }
        }
    }
}
