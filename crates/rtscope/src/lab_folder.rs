//! A folder of the lab as a side: the records of one kernel in it, a run for each seed.

use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use rtscope_analyse::compare::is_cell;
use serde::Deserialize;

use crate::{failure::Refused, output::shown, record::text_in};

/// File of a lab's folder that lists its guests.
const DOCUMENT: &str = "comparison.json";
/// Its largest size: a guest of a large matrix takes some ten KiB.
const COMPARISON_BYTES_MAX: u64 = 64 << 20;

/// The part of the document that is needed here.
#[derive(Debug, Deserialize)]
struct Document {
    kernels: Vec<Guest>,
}

#[derive(Debug, Deserialize)]
struct Guest {
    kernel: String,
    /// Folder of its record; none when it brought no record.
    record: Option<String>,
    cells: Vec<GuestCell>,
}

#[derive(Debug, Deserialize)]
struct GuestCell {
    name: String,
}

impl Document {
    fn read(folder: &Path) -> anyhow::Result<Document> {
        let failed = || format!("can't read {}", shown(folder.join(DOCUMENT)));
        let text = text_in(folder, DOCUMENT, COMPARISON_BYTES_MAX).with_context(failed)?;
        serde_json::from_str(&text).with_context(failed)
    }
}

impl Guest {
    /// The folder of its record; none when it brought none.
    ///
    /// # Errors
    ///
    /// It isn't below the lab's folder, or is a link: whoever made that folder may have written another one's path, and
    /// what is judged is also written to.
    fn record_in(&self, folder: &Path) -> Result<Option<PathBuf>, Refused> {
        let Some(record) = &self.record else { return Ok(None) };
        let mut path = folder.to_owned();
        // Without what isn't normal about it: a link before a slash would be followed.
        for part in Path::new(record).components() {
            path.push(part);
            if !matches!(part, Component::Normal(_)) || path.is_symlink() {
                return Err(Refused(format!(
                    "{} names the record {record:?}, which is a symbolic link or outside this folder: name the record's own folder instead",
                    shown(folder.join(DOCUMENT))
                )));
            }
        }
        Ok((path != folder).then_some(path))
    }
}

/// The records that a name on the command line stands for: itself, or those of a kernel in a folder that
/// `rtscope lab run` or `lab matrix` wrote. Such a folder is named as FOLDER, FOLDER@KERNEL, FOLDER@CELL or
/// FOLDER@KERNEL@CELL; without a kernel it must hold one only.
///
/// # Errors
///
/// The folder's document can't be read, or no record or more than one kernel fits the name.
pub(crate) fn records(name: &str) -> anyhow::Result<Vec<String>> {
    let Some((folder, rest)) = lab_folder(name) else { return Ok(vec![name.to_owned()]) };
    let document = Document::read(&folder)?;
    let (kernel, cell) = kernel_and_cell(&document, &folder, rest)?;
    let has_cell = |guest: &&Guest| {
        cell.is_none_or(|cell| guest.cells.iter().any(|known| is_cell(cell, &known.name)))
    };
    let guests = document.kernels.iter().filter(|guest| guest.kernel == kernel).filter(has_cell);
    let suffix = cell.map(|cell| format!("@{cell}")).unwrap_or_default();
    let mut records = Vec::new();
    for guest in guests {
        let record = guest.record_in(&folder)?;
        records.extend(record.map(|record| format!("{}{suffix}", record.display())));
    }
    if records.is_empty() {
        let of_cell = cell.map(|cell| format!(" with a cell {cell:?}")).unwrap_or_default();
        let text = format!("{} has no record of {kernel}{of_cell}", shown(&folder));
        return Err(Refused(text).into());
    }
    Ok(records)
}

/// The records in a folder that `rtscope lab run` or `lab matrix` wrote; none where it is no such folder.
///
/// # Errors
///
/// As [`records`].
pub(crate) fn all(folder: &Path) -> anyhow::Result<Option<Vec<PathBuf>>> {
    if !folder.join(DOCUMENT).exists() {
        return Ok(None);
    }
    let document = Document::read(folder)?;
    let records = document.kernels.iter().map(|guest| guest.record_in(folder));
    let records: Result<Vec<_>, _> = records.collect();
    Ok(Some(records?.into_iter().flatten().collect()))
}

/// The lab's folder that a name begins with, and what follows after its `@`.
fn lab_folder(name: &str) -> Option<(PathBuf, Option<&str>)> {
    let ends = name.match_indices('@').map(|(at, _)| at);
    std::iter::once(name.len()).chain(ends).find_map(|end| {
        let folder = Path::new(&name[..end]);
        folder.join(DOCUMENT).is_file().then(|| (folder.to_owned(), name.get(end + 1..)))
    })
}

/// The kernel, and the cell if one is named.
fn kernel_and_cell<'a>(
    document: &'a Document,
    folder: &Path,
    rest: Option<&'a str>,
) -> Result<(&'a str, Option<&'a str>), Refused> {
    let mut kernels: Vec<&str> = Vec::new();
    for guest in &document.kernels {
        if !kernels.contains(&guest.kernel.as_str()) {
            kernels.push(&guest.kernel);
        }
    }
    for kernel in &kernels {
        match rest.and_then(|rest| rest.strip_prefix(kernel)) {
            Some("") => return Ok((kernel, None)),
            Some(more) if more.starts_with('@') => return Ok((kernel, Some(&more[1..]))),
            _ => {}
        }
    }
    match kernels.as_slice() {
        [kernel] => Ok((kernel, rest)),
        _ => {
            let folder = shown(folder);
            let choices: Vec<String> = kernels.iter().map(|k| format!("{folder}@{k}")).collect();
            Err(Refused(format!(
                "{folder} holds records of {} kernels; name one of them: {}",
                kernels.len(),
                choices.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_kernel_of_a_labs_folder_is_one_run_for_each_seed() {
        let room = tempfile::tempdir().expect("a folder");
        let write = |name: &str, kernels: &[&str]| {
            let guest = |kernel: &&str, seed: u32, load: &str| {
                serde_json::json!({"kernel": kernel, "seed": seed, "cells": [{"name": load}],
                    "record": format!("{kernel}-{load}-seed{seed}")})
            };
            let of_kernel = |kernel| [1, 2].map(|s| ["rest", "disk"].map(|l| guest(kernel, s, l)));
            let mut guests: Vec<_> = kernels.iter().flat_map(of_kernel).flatten().collect();
            guests.push(serde_json::json!({"kernel": kernels[0], "cells": [], "failed": "mute"}));
            let text = serde_json::json!({ "kernels": guests }).to_string();
            fs::create_dir(room.path().join(name)).expect("made");
            fs::write(room.path().join(name).join(DOCUMENT), text).expect("written");
        };
        write("one", &["stock"]);
        write("two", &["stock", "stock:preempt=full"]);
        let of = |name: &str| {
            let found = records(&room.path().join(name).display().to_string());
            let inside = format!("{}/", room.path().display());
            found.map(|all| all.join(" ").replace(&inside, "")).map_err(|e| e.to_string())
        };
        let all =
            "one/stock-rest-seed1 one/stock-disk-seed1 one/stock-rest-seed2 one/stock-disk-seed2";
        assert_eq!(of("one"), Ok(all.to_owned()));
        let disk = "one/stock-disk-seed1@disk one/stock-disk-seed2@disk".to_owned();
        assert_eq!((of("one@disk"), of("one@stock@disk")), (Ok(disk.clone()), Ok(disk)));
        let full = of("two@stock:preempt=full@rest").expect("named");
        assert!(full.starts_with("two/stock:preempt=full-rest-seed1@rest two/"), "{full}");
        let several = of("two").expect_err("which kernel?");
        assert!(several.contains("2 kernels") && several.contains("two@stock:preempt=full"));
        std::os::unix::fs::symlink(room.path().join("one"), room.path().join("two/stock-link"))
            .expect("made");
        for outside in ["/one/x", "../one/x", "stock-link", "stock-link/", "stock-link/."] {
            let guest = Guest {
                kernel: "stock".to_owned(),
                record: Some(outside.to_owned()),
                cells: Vec::new(),
            };
            let why = guest.record_in(&room.path().join("two")).expect_err(outside).to_string();
            assert!(why.contains("name the record's own folder"), "{why}");
        }
        assert!(of("one@fork").expect_err("no such cell").contains("with a cell \"fork\""));
        assert_eq!(of("none@disk"), Ok("none@disk".to_owned()), "a record, or nothing");
    }
}
