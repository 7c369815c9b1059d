//! Patches: rehearsed on copies of the files they touch, reported by file, and only then applied.
//!
//! A series is rehearsed as a whole, since a patch may need those before it. A rejected one is taken
//! back in the rehearsal and the rest goes on, so that one report names everything that doesn't fit;
//! the source itself stays as it was. GNU patch does the work of applying.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::{Component, Path, PathBuf},
    process::Command,
};

use flate2::read::MultiGzDecoder;
use serde::Serialize;

use crate::{
    error::LabError,
    patch_report::{Misfit, PatchOutcome, PatchReport},
    progress::{Report, StepProgress},
    source::version::Version,
    tool::{self, Need},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatchFile {
    /// Its name, as in the series.
    pub name: String,
    pub path: PathBuf,
    /// SHA-256 of the file.
    pub sha256: String,
    /// The version it was made for.
    pub made_for: Option<Version>,
}

/// Applies patches to a tree, all or none. `scratch` is a folder for the rehearsal, emptied before and
/// after.
///
/// # Errors
///
/// A patch doesn't apply: [`LabError::Patch`] with all that doesn't fit, and the tree as it was. Or a
/// file can't be read or written.
pub fn apply(
    tree: &Path,
    patches: &[PatchFile],
    scratch: &Path,
    report: &mut Report<'_>,
) -> Result<PatchReport, LabError> {
    tool::require(&[Need::of("patch", "patch")])?;
    empty(scratch)?;
    let mut touched = BTreeSet::new();
    let mut outcomes = Vec::new();
    for (i, patch) in patches.iter().enumerate() {
        report(StepProgress::Amount {
            unit: "patches",
            done: i as u64,
            total: Some(patches.len() as u64),
            seconds_left: None,
            at: patch.name.clone(),
        });
        let text = text_of(&patch.path)?;
        let files = touches(&text);
        for file in &files {
            if touched.insert(file.clone()) {
                copy(&tree.join(file), &scratch.join(file))?;
            }
        }
        outcomes.push(rehearse(&patch.name, &text, &files, scratch)?);
    }
    let result = PatchReport { patches: outcomes };
    if result.applied() < result.patches.len() {
        empty(scratch)?;
        let _ = fs::remove_dir(scratch);
        return Err(LabError::Patch(Box::new(result)));
    }
    for file in &touched {
        take_over(&scratch.join(file), &tree.join(file))?;
    }
    empty(scratch)?;
    let _ = fs::remove_dir(scratch);
    Ok(result)
}

fn empty(folder: &Path) -> Result<(), LabError> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(LabError::file("empty", folder))?;
    }
    fs::create_dir_all(folder).map_err(LabError::file("make", folder))
}

fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
    }
    if from.is_file() {
        fs::copy(from, to).map_err(LabError::file("copy", from))?;
    }
    Ok(())
}

/// A file of the rehearsal takes its place in the tree; one that is gone there goes here too.
fn take_over(rehearsed: &Path, place: &Path) -> Result<(), LabError> {
    if !rehearsed.exists() {
        return match fs::remove_file(place) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(LabError::file("remove", place)(e))
            }
            _ => Ok(()),
        };
    }
    if fs::read(rehearsed).ok() == fs::read(place).ok() {
        return Ok(());
    }
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(".rtscope-new");
    let new = place.with_file_name(name);
    copy(rehearsed, &new)?;
    fs::rename(&new, place).map_err(LabError::file("rename", &new))
}

/// A patch's text: as it is, or unpacked.
fn text_of(path: &Path) -> Result<Vec<u8>, LabError> {
    let name = path.to_string_lossy();
    let bytes = fs::read(path).map_err(LabError::file("read", path))?;
    if name.ends_with(".gz") {
        let mut text = Vec::new();
        let read = MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut text);
        read.map_err(LabError::file("unpack", path))?;
        return Ok(text);
    }
    let packer = match () {
        () if name.ends_with(".xz") => ("xz", "xz-utils"),
        () if name.ends_with(".bz2") => ("bzip2", "bzip2"),
        () => return Ok(bytes),
    };
    tool::require(&[Need::of(packer.0, packer.1)])?;
    tool::bytes_of(Command::new(packer.0).arg("-dc").arg(path))
}

/// The files a patch names, without their first folder. Names that lead out of the tree are no names.
fn touches(patch: &[u8]) -> BTreeSet<PathBuf> {
    let text = String::from_utf8_lossy(patch);
    let mut files = BTreeSet::new();
    let mut add = |name: &str, strip: bool| {
        let name = name.split('\t').next().unwrap_or(name).trim();
        let name = if strip { name.split_once('/').map_or("", |(_, rest)| rest) } else { name };
        let path = PathBuf::from(name);
        let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !name.is_empty() && inside {
            files.insert(path);
        }
    };
    for line in text.lines() {
        for start in ["--- ", "+++ "] {
            if let Some(name) =
                line.strip_prefix(start).filter(|name| !name.starts_with("/dev/null"))
            {
                add(name, true);
            }
        }
        for start in ["rename from ", "rename to ", "copy from ", "copy to "] {
            if let Some(name) = line.strip_prefix(start) {
                add(name, false);
            }
        }
        if let Some(names) = line.strip_prefix("diff --git ") {
            names.split(' ').for_each(|name| add(name, true));
        }
    }
    files
}

/// Applies one patch in the rehearsal; a rejected one is taken back there.
fn rehearse(
    name: &str,
    text: &[u8],
    files: &BTreeSet<PathBuf>,
    scratch: &Path,
) -> Result<PatchOutcome, LabError> {
    let before: Vec<(PathBuf, Option<Vec<u8>>)> = files
        .iter()
        .map(|file| scratch.join(file))
        .map(|path| (path.clone(), fs::read(path).ok()))
        .collect();
    // --batch asks nothing; --forward leaves alone what is applied already.
    let input = scratch.join(".rtscope-patch");
    fs::write(&input, text).map_err(LabError::file("write", &input))?;
    let mut said = String::new();
    let mut patch = Command::new("patch");
    patch.args(["-p1", "--batch", "--forward", "--no-backup-if-mismatch", "--reject-file=-"]);
    patch.arg("-i").arg(&input).current_dir(scratch);
    let status = tool::each_line(&mut patch, |line| {
        said += line;
        said.push('\n');
    });
    let _ = fs::remove_file(&input);
    let status = status?;
    let mut outcome = read_output(&said);
    outcome.name = name.to_owned();
    outcome.files = files.len();
    outcome.applied = status.success();
    if !outcome.applied {
        let spoken = outcome.misfits.iter().any(|m| !m.rejects.is_empty() || m.reason.is_some());
        if !spoken && outcome.trouble.is_none() {
            outcome.trouble = Some(said.lines().last().unwrap_or("patch failed").to_owned());
        }
        for (path, bytes) in before {
            let restored = match bytes {
                Some(bytes) => fs::write(&path, bytes),
                None => fs::remove_file(&path).or(Ok(())),
            };
            restored.map_err(LabError::file("restore", &path))?;
        }
    }
    Ok(outcome)
}

/// Reads what GNU patch says.
fn read_output(said: &str) -> PatchOutcome {
    let mut outcome = PatchOutcome::default();
    let mut current = Misfit::default();
    let mut close = |current: &mut Misfit, next: String| {
        let done = std::mem::replace(current, Misfit { file: next, ..Misfit::default() });
        let plain = Misfit { file: done.file.clone(), ..Misfit::default() };
        if done != plain {
            outcome.misfits.push(done);
        }
    };
    let mut missing_after = None;
    let mut trouble = None;
    for line in said.lines() {
        if let Some(name) =
            line.strip_prefix("patching file ").or(line.strip_prefix("checking file "))
        {
            let name = name.split(" (").next().unwrap_or(name).trim_matches('\'');
            close(&mut current, name.to_owned());
        } else if line.starts_with("can't find file to patch") {
            missing_after = Some(());
        } else if let (Some(()), Some(name)) = (missing_after, line.strip_prefix("|+++ ")) {
            let name = name.split('\t').next().unwrap_or(name);
            let name = name.split_once('/').map_or(name, |(_, rest)| rest);
            close(&mut current, name.to_owned());
            current.reason = Some("the source has no such file".to_owned());
            missing_after = None;
        } else if line.contains("previously applied") {
            current.reason = Some("the source seems to have this change already".to_owned());
        } else if let Some(hunk) = line.strip_prefix("Hunk #") {
            read_hunk(hunk, &mut current);
        } else if let Some(reason) = line.strip_prefix("patch: **** ") {
            trouble = Some(reason.to_owned());
        }
    }
    close(&mut current, String::new());
    outcome.trouble = trouble;
    outcome
}

/// `2 succeeded at 45 with fuzz 1 (offset -3 lines).` or `2 FAILED at 10.`
fn read_hunk(text: &str, misfit: &mut Misfit) {
    let number_after = |key: &str| -> Option<i64> {
        let rest = &text[text.find(key)? + key.len()..];
        let end = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    let Some(hunk) = text.split(' ').next().and_then(|number| number.parse().ok()) else { return };
    if text.contains(" FAILED at ") {
        let line = number_after(" FAILED at ").and_then(|line| u64::try_from(line).ok());
        misfit.rejects.push((hunk, line.unwrap_or(0)));
        return;
    }
    if let Some(fuzz) = number_after("with fuzz ").and_then(|fuzz| u32::try_from(fuzz).ok()) {
        misfit.fuzz.push((hunk, fuzz));
    }
    if let Some(lines) = number_after("(offset ") {
        misfit.offsets.push((hunk, lines));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// Forty numbered lines.
    fn lines(changed: &[(usize, &str)], from: usize) -> String {
        let line = |i: usize| {
            let text = changed.iter().find(|(line, _)| *line == i).map(|(_, text)| *text);
            text.map_or(format!("line {i}\n"), |text| format!("{text}\n"))
        };
        (from..41).map(line).collect()
    }

    struct Case {
        folder: tempfile::TempDir,
        patches: Vec<PatchFile>,
    }

    impl Case {
        fn new() -> Case {
            let case = Case { folder: tempfile::tempdir().expect("a folder"), patches: Vec::new() };
            fs::create_dir_all(case.tree().join("kernel")).expect("made");
            fs::write(case.tree().join("kernel/a.c"), lines(&[], 1)).expect("written");
            fs::write(case.tree().join("kernel/b.c"), lines(&[], 1)).expect("written");
            case
        }

        fn tree(&self) -> PathBuf {
            self.folder.path().join("tree")
        }

        fn add(&mut self, name: &str, bytes: &[u8]) {
            let path = self.folder.path().join(name);
            fs::write(&path, bytes).expect("written");
            let sha256 = String::new();
            self.patches.push(PatchFile { name: name.to_owned(), path, sha256, made_for: None });
        }

        fn apply(&self) -> Result<PatchReport, LabError> {
            apply(&self.tree(), &self.patches, &self.folder.path().join("scratch"), &mut |_| {})
        }

        fn all(&self) -> Vec<(String, Vec<u8>)> {
            let folder = self.tree().join("kernel");
            let mut files: Vec<_> = fs::read_dir(folder)
                .expect("read")
                .map(|entry| entry.expect("an entry").path())
                .map(|path| (path.display().to_string(), fs::read(&path).expect("a file")))
                .collect();
            files.sort();
            files
        }
    }

    /// A hunk that changes line 20 of a file.
    fn change(file: &str, at: usize, before: &str, after: &str) -> String {
        format!(
            "--- a/{file}\n+++ b/{file}\n@@ -{},7 +{},7 @@\n line {}\n line {}\n line {}\n-{before}\n+{after}\n \
             line {}\n line {}\n line {}\n",
            at - 3,
            at - 3,
            at - 3,
            at - 2,
            at - 1,
            at + 1,
            at + 2,
            at + 3
        )
    }

    const NEW_FILE: &str = "--- /dev/null\n+++ b/kernel/new.c\n@@ -0,0 +1,1 @@\n+new\n";

    #[test]
    fn a_series_applies_where_each_needs_the_one_before() {
        let mut case = Case::new();
        case.add("1.patch", (change("kernel/a.c", 20, "line 20", "first") + NEW_FILE).as_bytes());
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(change("kernel/a.c", 20, "first", "second").as_bytes()).expect("memory");
        case.add("2.patch.gz", &packed.finish().expect("memory"));
        let report = case.apply().expect("applies");
        assert_eq!(report.applied(), 2);
        assert_eq!(report.lines(true), Vec::<String>::new());
        let text = fs::read_to_string(case.tree().join("kernel/a.c")).expect("a file");
        assert_eq!(text, lines(&[(20, "second")], 1));
        assert!(case.tree().join("kernel/new.c").is_file());
        assert!(!case.folder.path().join("scratch").exists());
    }

    #[test]
    fn fuzz_and_offsets_are_said_by_file() {
        let mut case = Case::new();
        fs::write(case.tree().join("kernel/a.c"), lines(&[], 4)).expect("written");
        fs::write(case.tree().join("kernel/b.c"), lines(&[(17, "other")], 1)).expect("written");
        let both =
            change("kernel/a.c", 20, "line 20", "x") + &change("kernel/b.c", 20, "line 20", "y");
        case.add("rt.patch", both.as_bytes());
        let report = case.apply().expect("applies");
        assert_eq!(report.summary(), "1 of 1 patches apply; hunks with fuzz: 1, with an offset: 1");
        let said = report.lines(true);
        assert_eq!(said[0], "rt.patch: kernel/a.c: 1 hunk(s) moved by up to 3 line(s)");
        assert!(said[1].starts_with("rt.patch: kernel/b.c: hunk 1 with fuzz "), "{said:?}");
    }

    #[test]
    fn one_reject_leaves_the_whole_tree_as_it_was() {
        let mut case = Case::new();
        case.add("1.patch", change("kernel/a.c", 20, "line 20", "first").as_bytes());
        let wrong = change("kernel/b.c", 20, "not there", "x") + NEW_FILE;
        case.add("2.patch", wrong.as_bytes());
        case.add("3.patch", change("kernel/missing.c", 20, "line 20", "x").as_bytes());
        case.add("4.patch", change("kernel/a.c", 20, "first", "fourth").as_bytes());
        case.add("5.patch", change("kernel/a.c", 20, "first", "fourth").as_bytes());
        let before = case.all();
        let error = case.apply().expect_err("refused");
        assert_eq!(case.all(), before);
        let LabError::Patch(report) = &error else { panic!("{error}") };
        let applied: Vec<bool> = report.patches.iter().map(|patch| patch.applied).collect();
        assert_eq!(applied, [true, false, false, true, false], "{report:#?}");
        let said = error.to_string();
        assert!(said.contains("2 of 5 patches apply"), "{said}");
        assert!(said.contains("2.patch: kernel/b.c: hunk 1 rejected at line 17"), "{said}");
        assert!(said.contains("3.patch: kernel/missing.c: the source has no such file"), "{said}");
        assert!(said.contains("5.patch: kernel/a.c: the source seems to have"), "{said}");
    }

    #[test]
    fn damaged_patches_and_names_that_lead_outside_are_refused() {
        let mut case = Case::new();
        case.add("empty.patch", b"nothing here\n");
        let damaged = change("kernel/a.c", 20, "line 20", "x").replace(" line 21", "?line 21");
        case.add("damaged.patch", damaged.as_bytes());
        let error = case.apply().expect_err("refused").to_string();
        assert!(
            error.contains("empty.patch: ") && error.contains("damaged.patch: malformed"),
            "{error}"
        );
        let outside = "--- a/../../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n";
        assert!(touches(outside.as_bytes()).is_empty());
    }
}
