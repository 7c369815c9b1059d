//! A folder of the lab as a side: the records of one kernel in it, a run for each seed.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::Context;
use rtscope_analyse::compare::is_cell;
use serde::Deserialize;

use crate::{failure::Refused, output::shown, record::text_in};

/// File of a lab's folder that lists its guests.
const DOCUMENT: &str = "comparison.json";
/// Its largest size: a guest of a large matrix takes some ten KiB.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

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
        Ok(serde_json::from_str(&text_in(folder, DOCUMENT, DOCUMENT_BYTES_MAX)?)?)
    }
}

impl Guest {
    /// The folder of its record. Whoever made the lab's folder may have written another one's path, or a link: what is
    /// judged is also written to.
    fn record_in(&self, folder: &Path) -> Option<PathBuf> {
        let record = Path::new(self.record.as_ref()?);
        let is_below = record.components().all(|part| matches!(part, Component::Normal(_)));
        let path = folder.join(record);
        let is_link =
            |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        (is_below && !path.ancestors().take(record.components().count()).any(is_link))
            .then_some(path)
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
    let document = Document::read(&folder)
        .with_context(|| format!("can't read {}", shown(folder.join(DOCUMENT))))?;
    let (kernel, cell) = kernel_and_cell(&document, &folder, rest)?;
    let has_cell = |guest: &&Guest| {
        cell.is_none_or(|cell| guest.cells.iter().any(|known| is_cell(cell, &known.name)))
    };
    let guests = document.kernels.iter().filter(|guest| guest.kernel == kernel).filter(has_cell);
    let suffix = cell.map(|cell| format!("@{cell}")).unwrap_or_default();
    let record = |record: PathBuf| format!("{}{suffix}", record.display());
    let records: Vec<String> =
        guests.filter_map(|guest| guest.record_in(&folder)).map(record).collect();
    if records.is_empty() {
        let of_cell = cell.map(|cell| format!(" with a cell {cell:?}")).unwrap_or_default();
        let text = format!("{} has no record of {kernel}{of_cell}", shown(&folder));
        return Err(Refused(text).into());
    }
    Ok(records)
}

/// The records in a folder that `rtscope lab run` or `lab matrix` wrote; none where it is no such folder.
pub(crate) fn all(folder: &Path) -> Option<Vec<PathBuf>> {
    let document = Document::read(folder).ok()?;
    Some(document.kernels.iter().filter_map(|guest| guest.record_in(folder)).collect())
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
        for outside in ["/one/stock-rest-seed1", "../one/stock-rest-seed1", "stock-link"] {
            let guest = Guest {
                kernel: "stock".to_owned(),
                record: Some(outside.to_owned()),
                cells: Vec::new(),
            };
            assert_eq!(guest.record_in(&room.path().join("two")), None, "{outside}");
        }
        assert!(of("one@fork").expect_err("no such cell").contains("with a cell \"fork\""));
        assert_eq!(of("none@disk"), Ok("none@disk".to_owned()), "a record, or nothing");
    }
}
