//! Records that the cache keeps, by the hash of their inputs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cache::{Cache, publish},
    error::LabError,
    inputs::{INPUTS, Inputs, read_file, read_inputs},
};

/// Where the cache keeps the record of inputs.
pub(crate) fn at(cache: &Cache, key: &str) -> PathBuf {
    cache.root().join("records").join(key)
}

/// Puts a record into the cache in one step. One of the same inputs that is there stays, and it is said when
/// it differs.
pub(crate) fn keep(folder: &Path, known: &Path, say: &dyn Fn(&str)) -> Result<(), LabError> {
    if known.exists() {
        if let (Ok(new), Ok(old)) = (read_inputs(folder), read_inputs(known))
            && new.files != old.files
        {
            say(&differ(folder, &new, known, &old));
        }
        return Ok(());
    }
    publish(known, |part| copy(folder, part))
}

/// What is said of two runs of the same inputs that differ.
fn differ(new: &Path, of_new: &Inputs, old: &Path, of_old: &Inputs) -> String {
    let names: BTreeSet<&String> = of_new.files.keys().chain(of_old.files.keys()).collect();
    let other = |name: &&&String| of_new.files.get(**name) != of_old.files.get(**name);
    let names: Vec<&str> = names.iter().filter(other).map(|name| name.as_str()).collect();
    format!(
        "{} differs from an earlier run of the same inputs, {}, in {}: both are valid runs, and \
         `lab replay` reproduces each bit for bit from its own log",
        new.display(),
        old.display(),
        names.join(", ")
    )
}

/// Copies a folder and what is in it.
///
/// # Errors
///
/// A file can't be read or written, or isn't a regular one: reading a pipe would wait for whoever writes into it.
pub fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    fs::create_dir_all(to).map_err(LabError::file("make", to))?;
    let entries = fs::read_dir(from).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut names: Vec<_> = entries
        .map_err(LabError::file("list", from))?
        .into_iter()
        .map(|entry| entry.file_name())
        .collect();
    // What says that the record is whole comes last.
    names.sort_by_key(|name| name == INPUTS);
    for name in names {
        let (path, copied) = (from.join(&name), to.join(&name));
        if path.is_dir() {
            copy(&path, &copied)?;
        } else {
            // One that vanished meanwhile would be missing in a record that is called whole.
            let vanished = || LabError::file("read", &path)(std::io::ErrorKind::NotFound.into());
            let bytes = read_file(&path)?.ok_or_else(vanished)?;
            fs::write(&copied, bytes).map_err(LabError::file("write", &copied))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::inputs::write;

    #[test]
    fn a_kept_record_is_an_equal_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (record, known) = (folder.path().join("record"), folder.path().join("records/key"));
        write(&record, "slices/t0.jsonl", b"x").expect("written");
        write(&record, "events.jsonl", b"y").expect("written");
        let said = Mutex::new(Vec::new());
        let say = |text: &str| said.lock().expect("unpoisoned").push(text.to_owned());
        keep(&record, &known, &say).expect("kept");
        keep(&record, &known, &say).expect("kept already");
        // Two runs of the same inputs that differ are both true, and the user hears of it.
        let inputs = |hash: &str| {
            format!(
                r#"{{"format":1,"key":"","kernel":"","kernel_file":"","kernel_sha256":"","image_sha256":"",
                "machine":"","time":"virtual","shift":1,"seed":1,"cpus":1,"memory_mib":null,"emulator":"",
                "arguments":[],"files":{{"events.jsonl":"{hash}","plan.toml":"p"}},"whole":true}}"#
            )
        };
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        for (run, hash) in [(&first, "a"), (&second, "b")] {
            write(run, INPUTS, inputs(hash).as_bytes()).expect("written");
            keep(run, &folder.path().join("records/other"), &say).expect("kept");
        }
        let said = said.lock().expect("unpoisoned").join("\n");
        assert!(said.contains("in events.jsonl: both are valid runs"), "{said}");
        fs::remove_dir_all(folder.path().join("records/other")).expect("removed");
        let again = folder.path().join("again");
        copy(&known, &again).expect("copied");
        assert_eq!(fs::read(again.join("slices/t0.jsonl")).expect("there"), b"x");
        assert_eq!(fs::read_dir(folder.path().join("records")).expect("there").count(), 1);
    }
}
