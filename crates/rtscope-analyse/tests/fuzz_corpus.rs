//! Every input that the fuzz targets start from goes through every stage of the pipe, in every test run.

#![expect(clippy::disallowed_methods, reason = "the corpus is files")]

use std::{fs, path::Path};

#[path = "../../../fuzz/src/lib.rs"]
#[expect(dead_code, unreachable_pub, reason = "the fuzz targets choose the stage by the input")]
mod fuzz;

use fuzz::Stage;

/// The files of a corpus, with their names.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).expect("a corpus").flatten();
    let read =
        |path: std::path::PathBuf| (path.display().to_string(), fs::read(&path).expect("readable"));
    entries.map(|entry| read(entry.path())).collect()
}

#[test]
fn records_damaged_or_not_reach_the_end_of_the_pipe() {
    for (name, bytes) in corpus("record") {
        eprintln!("{name}");
        Stage::ALL.into_iter().for_each(|stage| fuzz::record(&bytes, stage));
    }
}

#[test]
fn imports_reach_the_end_of_the_pipe() {
    let formats =
        ["columns", "cyclictest", "cyclictest-json", "jitterdebugger", "linuxcnc", "osadl", "rtla"];
    for format in formats {
        for (name, bytes) in corpus(format) {
            eprintln!("{name}");
            Stage::ALL.into_iter().for_each(|stage| fuzz::import(format, &bytes, stage));
        }
    }
}

#[test]
fn plans_and_captures_are_read() {
    corpus("plan").iter().for_each(|(_, bytes)| fuzz::plan(bytes));
    corpus("wave").iter().for_each(|(_, bytes)| fuzz::wave(bytes));
}
