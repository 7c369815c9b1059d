use std::{collections::BTreeMap, path::PathBuf, process::Command};

use super::*;
use crate::qemu::GuestSpec;

const HISTOGRAMS: &str = "histograms.json";
const SLICES: &str = "slices/t0.jsonl";

/// A folder with these files, and what its `lab.json` says of it.
fn record(files: &[(&str, &str)]) -> (tempfile::TempDir, Inputs) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut hashes = BTreeMap::new();
    for (name, text) in files {
        put(folder.path(), name, text);
        hashes.insert((*name).to_owned(), sha256(text.as_bytes()));
    }
    let inputs = Inputs {
        format: 1,
        key: "k".to_owned(),
        kernel: String::new(),
        kernel_file: PathBuf::new(),
        kernel_sha256: String::new(),
        image_sha256: String::new(),
        machine: String::new(),
        spec: GuestSpec::default(),
        emulator: String::new(),
        arguments: Vec::new(),
        whole: true,
        log_sha256: None,
        files: hashes,
    };
    (folder, inputs)
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("below")).expect("made");
    fs::write(path, text).expect("written");
}

const BROUGHT: [(&str, &str); 3] = [
    ("plan.toml", "p"),
    (HISTOGRAMS, "{\"max\": 12104}"),
    (SLICES, "{\"a\":1}\n{\"sum_ns\":300}\n"),
];

fn blames(found: &[Disagreement]) -> Vec<(&str, Blame)> {
    found.iter().map(|one| (one.name.as_str(), one.blame)).collect()
}

#[test]
fn every_file_that_was_altered_deleted_or_added_is_named() {
    let (folder, mut inputs) = record(&BROUGHT);
    put(folder.path(), LOG, "log");
    inputs.log_sha256 = Some(sha256(b"log"));
    put(folder.path(), "report.html", "derived: nobody's evidence");
    assert_eq!(touched(folder.path(), &inputs).expect("read"), []);
    put(folder.path(), HISTOGRAMS, "{\"max\": 12004}");
    put(folder.path(), LOG, "another");
    put(folder.path(), "slices/t1.jsonl", "{}\n");
    fs::remove_file(folder.path().join("plan.toml")).expect("removed");
    let named: Vec<String> =
        touched(folder.path(), &inputs).expect("read").iter().map(Touched::to_string).collect();
    assert_eq!(
        named,
        [
            "histograms.json (altered)",
            "plan.toml (deleted)",
            "replay.log.gz (altered)",
            "slices/t1.jsonl (added)"
        ]
    );
}

#[test]
fn a_record_altered_on_disk_is_told_from_a_run_that_differs() {
    let (folder, noted) = record(&BROUGHT);
    let (again, brought) = record(&BROUGHT);
    let compared = || compare(folder.path(), &noted, again.path(), &brought).expect("read");
    assert_eq!(compared(), []);
    put(folder.path(), HISTOGRAMS, "{\"max\": 12004}");
    fs::remove_file(folder.path().join("plan.toml")).expect("removed");
    put(again.path(), SLICES, "{\"a\":1}\n{\"sum_ns\":302}\n");
    put(folder.path(), "slices/t1.jsonl", "{}\n");
    let found = compared();
    assert_eq!(
        blames(&found),
        [
            (HISTOGRAMS, Blame::Disk(FileChange::Altered)),
            ("plan.toml", Blame::Disk(FileChange::Deleted)),
            (SLICES, Blame::Run),
            ("slices/t1.jsonl", Blame::Disk(FileChange::Added)),
        ]
    );
    let first = found[2].first.clone().expect("both are there");
    assert_eq!((first.line, first.byte), (2, 13));
    assert_eq!(
        (first.before.as_str(), first.after.as_str()),
        ("{\"sum_ns\":300}", "{\"sum_ns\":302}")
    );
    put(folder.path(), SLICES, "{\"a\":1}\n{\"sum_ns\":299}\n");
    assert_eq!(compared()[2].blame, Blame::Both(FileChange::Altered));
}

#[test]
fn an_altered_hash_is_told_from_an_altered_file() {
    let (folder, mut noted) = record(&BROUGHT);
    let (again, brought) = record(&BROUGHT);
    noted.files.insert(HISTOGRAMS.to_owned(), sha256(b"another"));
    let found = compare(folder.path(), &noted, again.path(), &brought).expect("read");
    assert_eq!(blames(&found), [(HISTOGRAMS, Blame::Hash)]);
}

#[test]
fn a_file_that_only_one_run_brought_differs_and_a_console_that_was_never_noted_does_not() {
    let (folder, noted) = record(&BROUGHT);
    let (again, mut brought) = record(&BROUGHT);
    for name in ["beside.txt", crate::boot::CONSOLE] {
        put(again.path(), name, "x");
        brought.files.insert(name.to_owned(), sha256(b"x"));
    }
    let found = compare(folder.path(), &noted, again.path(), &brought).expect("read");
    assert_eq!(blames(&found), [("beside.txt", Blame::Run)]);
    assert_eq!(found[0].first, None);
}

#[test]
fn the_first_difference_is_found_where_one_file_ends() {
    let first = difference(b"one\ntwo\n", b"one\ntwo\nthree\n").expect("different");
    assert_eq!((first.line, first.byte), (3, 1));
    assert_eq!((first.before.as_str(), first.after.as_str()), ("", "three"));
    assert_eq!(difference(b"one", b"one"), None);
}

#[test]
fn every_file_that_the_guest_did_not_send_is_known_or_foreign() {
    let (folder, inputs) = record(&BROUGHT);
    for name in ["lab.json", "verdict.json", "drift/report.html", "report.html.part"] {
        put(folder.path(), name, "x");
    }
    for name in ["extra.txt", "guest/x/y", "guest/verdict.json", "slices/t1.jsonl"] {
        put(folder.path(), name, "x");
    }
    let beside = FilesNotSent::of(folder.path(), &inputs).expect("listed");
    assert_eq!(beside.added, ["slices/t1.jsonl"]);
    assert_eq!(
        beside.made_here,
        ["drift/report.html", "lab.json", "report.html.part", "verdict.json"]
    );
    assert_eq!(beside.foreign, ["extra.txt", "guest/verdict.json", "guest/x/y"]);
}

#[test]
fn a_pipe_in_a_record_is_named_and_nobody_waits_for_it() {
    let (folder, inputs) = record(&BROUGHT);
    let (again, brought) = record(&BROUGHT);
    for name in ["plan.toml", SLICES, LOG, INPUTS] {
        let path = folder.path().join(name);
        let _ = fs::remove_file(&path);
        let made = Command::new("mkfifo").arg(&path).status().expect("coreutils");
        assert!(made.success());
        let inputs = Inputs { log_sha256: Some(String::new()), ..inputs.clone() };
        let refused = |said: LabError| {
            let said = said.to_string();
            assert!(said.contains(&format!("{name} is not a regular file")), "{said}");
        };
        match name {
            INPUTS => refused(crate::inputs::read_inputs(folder.path()).expect_err("a pipe")),
            _ => refused(touched(folder.path(), &inputs).expect_err("a pipe")),
        }
        if inputs.files.contains_key(name) {
            let compared = compare(folder.path(), &inputs, again.path(), &brought);
            refused(compared.expect_err("a pipe"));
        }
        fs::remove_file(&path).expect("removed");
        put(
            folder.path(),
            name,
            BROUGHT.iter().find(|file| file.0 == name).map_or("", |file| file.1),
        );
    }
}
