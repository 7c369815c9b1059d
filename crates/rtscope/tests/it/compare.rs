//! Two kernels from the lab, one without and one with PREEMPT_RT, compared by the real program; and a
//! claim held against one of them.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::support::{folder, json, output, root_or_skip, text};

/// The shipped records: plan `lab-quick` in guests with Debian's stock and real-time kernel.
fn fixture(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compare");
    root.join(name).display().to_string()
}

#[test]
fn a_real_time_kernel_is_told_from_a_stock_one() {
    let folder = folder();
    let sides = format!("--require 'max < 20us' {} -- {}", fixture("stock"), fixture("rt"));
    let found = json(folder.path(), &format!("compare --json --out page.html {sides}"));
    let names: Vec<&str> = found["changes"]
        .as_array()
        .expect("pairs")
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!(names, ["rest", "message", "disk"]);
    // Two seconds show no dependence: the first line says what it takes for granted.
    let answer = found["answer"].as_str().expect("words");
    assert!(answer.starts_with("different, if wake-ups are independent: "), "{answer}");
    assert!(answer.contains("disk in p50 (-"), "{answer}");
    let disk = &found["changes"][2];
    let first = disk["sentences"][0].as_str().expect("words");
    // Records of virtual machines: what their figures meet is no Pass.
    assert!(first.starts_with("the figures of B meet 20 us, those of A do not: "), "{first}");
    assert!(first.contains("; B is inconclusive because this is a virtual machine"), "{first}");
    assert!(first.contains(" against 0 of 2,000; at 95 % B's share is at most"), "{first}");
    let median = &disk["shifts"][0];
    assert!(median["high_ns"].as_f64().expect("an end") < 0.0, "{median}");
    // At rest both meet it, and nothing is made of that.
    let rest = found["changes"][0]["sentences"][0].as_str().expect("words");
    assert!(rest.contains("nothing to compare"), "{rest}");
    let differs = |topic: &str, name: &str| {
        let rows = found["differences"].as_array().expect("rows").iter();
        rows.filter(|row| row["topic"] == topic && row["name"] == name).count() == 1
    };
    assert!(differs("kernel", "preemption") && differs("kernel configuration", "PREEMPT_RT"));
    assert!(!differs("CPU", "model") && !differs("clock", "source"));
    let notes: Vec<&str> =
        found["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    assert!(notes[0].starts_with("the sides differ in kernel"), "{notes:?}");
    let sides = format!("compare --out page.html {sides}");
    // The same records give the same bytes, in words and as a page.
    let page = folder.path().join("page.html");
    let once = (text(&output(folder.path(), &sides).stdout), fs::read(&page).expect("a page"));
    let again = (text(&output(folder.path(), &sides).stdout), fs::read(&page).expect("a page"));
    assert!(once == again && once.0.contains("What else differs"), "{}", once.0);
    assert!(once.0.starts_with("Different, if wake-ups are independent: "), "{}", once.0);
    assert!(String::from_utf8_lossy(&once.1).matches("<svg").count() >= 3);
}

/// A lab's folder with records of two kernels: how many seeds each has.
fn a_labs_folder(lab: &std::path::Path, seeds: u32) {
    let mut guests = Vec::new();
    for (kernel, seed) in ["stock", "rt"].iter().flat_map(|k| (1..=seeds).map(move |s| (k, s))) {
        let record = format!("{kernel}-seed{seed}");
        copy(fixture(kernel).as_ref(), &lab.join(&record));
        let cells = ["rest", "message", "disk"].map(|name| serde_json::json!({ "name": name }));
        guests.push(
            serde_json::json!({"kernel": kernel, "seed": seed, "record": record, "cells": cells}),
        );
    }
    let document = serde_json::json!({ "kernels": guests }).to_string();
    fs::write(lab.join("comparison.json"), document).expect("written");
}

#[test]
fn the_seeds_of_a_labs_folder_are_runs_and_the_run_is_the_unit() {
    for (seeds, basis, note) in [
        (1, "independent", Some("with one run on a side")),
        (2, "runs", Some("with two or three runs on a side")),
        (5, "runs", None),
    ] {
        let folder = folder();
        fs::create_dir(folder.path().join("lab")).expect("a folder");
        a_labs_folder(&folder.path().join("lab"), seeds);
        let found = json(folder.path(), "compare --json lab@stock@disk -- lab@rt@disk");
        let disk = &found["changes"][0];
        let runs = (disk["a"]["runs"].as_u64(), disk["b"]["runs"].as_u64());
        assert_eq!(runs, (Some(seeds.into()), Some(seeds.into())));
        assert_eq!(disk["basis"], basis, "{seeds}");
        let notes = found["notes"].to_string();
        assert_eq!(notes.contains("on a side"), note.is_some(), "{seeds}: {notes}");
        assert!(note.is_none_or(|note| notes.contains(note)), "{seeds}: {notes}");
        // Without the kernel it is not known which of the two is meant.
        let refused = output(folder.path(), "compare lab -- lab@rt");
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains("lab@stock, lab@rt"), "{said}");
    }
}

#[test]
fn two_cells_of_one_run_can_be_compared() {
    let folder = folder();
    let rt = fixture("rt");
    let found = json(folder.path(), &format!("compare --json {rt}@rest -- {rt}@disk"));
    assert_eq!(found["changes"][0]["name"], "rest against disk");
    let wrong = output(folder.path(), &format!("compare {rt}@idle -- {}", fixture("stock")));
    assert_eq!(wrong.status.code(), Some(64));
    let late = output(folder.path(), &format!("compare {rt} -- {rt} --json"));
    assert!(text(&late.stderr).contains("--json comes after `--`"));
    assert!(text(&wrong.stderr).contains("no cell \"idle\"; its cells are rest, message, disk"));
}

#[test]
fn a_record_is_one_run_however_often_it_is_named() {
    let folder = folder();
    let (stock, rt) = (fixture("stock"), fixture("rt"));
    for sides in [
        format!("{stock} {stock} -- {rt}"),
        format!("{stock} -- {rt} {stock}"),
        format!("{stock} {stock}"),
        format!("{stock}@rest -- {stock}"),
        format!("{stock}@rest {rt} -- {stock}/../stock@rest"),
    ] {
        let refused = output(folder.path(), &format!("compare {sides}"));
        assert_eq!(refused.status.code(), Some(64), "{sides}");
        assert!(text(&refused.stderr).contains("is named twice"), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_claim_says_how_long_and_is_held_against_a_run() {
    let folder = folder();
    let plan = json(folder.path(), "claim --once-in 1d --json");
    // 3.69 days of wall time, however many threads are watched.
    let days = plan["needed"][0]["wall_ns"].as_f64().expect("a time") / 8.64e13;
    assert!((days - 3.689).abs() < 0.001, "{days}");
    let claim = |limit: &str, once: &str| {
        output(
            folder.path(),
            &format!("claim {} --limit {limit} --once-in {once}", fixture("stock")),
        )
        .status
        .code()
    };
    // A second each, without an exceedance: enough for 100 ms, if the machine were not a guest.
    assert_eq!(claim("1ms", "100ms"), Some(3));
    assert_eq!(claim("1ms", "1h"), Some(3));
}

/// Imports what cyclictest printed on one kernel, as published: a cell for each file.
fn published(folder: &std::path::Path, whose: &str, kernel: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/published");
    let mut files: Vec<PathBuf> = fs::read_dir(root.join(whose).join(kernel))
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let files: Vec<String> = files.iter().map(|file| format!("'{}'", file.display())).collect();
    let out = format!("{whose}-{kernel}");
    let done = output(folder, &format!("import {} --out {out}", files.join(" ")));
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    out
}

#[test]
fn figures_that_others_published_are_compared_as_far_as_they_go() {
    let folder = folder();
    let here = folder.path();
    for (whose, limit, first) in [
        (
            "course",
            "100us",
            "the figures of B meet 100 us, those of A do not: at least 4 of 1,199,621 against 0 of 1,199,852; ",
        ),
        (
            "vendor",
            "70us",
            "the figures of B meet 70 us, those of A do not: at least 1 of 600,000 against 0 of 600,000; ",
        ),
    ] {
        let (stock, rt) = (published(here, whose, "stock"), published(here, whose, "rt"));
        let sides = format!("--require 'max < {limit}' {stock} -- {rt}");
        let found = json(here, &format!("compare --json --out page.html {sides}"));
        let change = &found["changes"][0];
        let said = change["sentences"][0].as_str().expect("words");
        assert!(said.starts_with(first), "{said}");
        // What an import's figures meet is no Pass.
        assert_eq!(change["effects"][0]["b"], "inconclusive");
        assert!(said.contains("; B is inconclusive because "), "{said}");
        // Three figures a thread: no quantile, no distance, no ratio is made up from them.
        assert_eq!(change["shifts"].as_array().map(Vec::len), Some(0));
        assert_eq!(
            (&change["wasserstein_ns"], &change["a"]["p50_ns"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(
            (&change["exceedances"][0]["a"], &change["exceedances"][0]["b"]),
            (&Value::Null, &0.into())
        );
        assert_eq!(
            (&change["exceedances"][0]["ratio"], &change["a"]["missed"]),
            (&Value::Null, &Value::Null)
        );
        assert!(found["notes"].to_string().contains("both sides were imported"));
        let page = fs::read_to_string(here.join("page.html")).expect("a page");
        assert!(page.contains("Neither side has a histogram"), "{page}");
    }
}

/// Latencies beyond an imported histogram are counted at every limit that they surely reach.
#[test]
fn an_overflow_is_counted_in_a_comparison() {
    let folder = folder();
    let here = folder.path();
    let histogram = |name: &str, overflow: u64, max: u64| {
        let rows: String = (0..50)
            .map(|us| format!("{us:06} {:06}\n", if us == 9 { 10_000 } else { 0 }))
            .collect();
        let text = format!(
            "# Histogram\n{rows}# Min Latencies: 00009\n# Avg Latencies: 00009\n# Max Latencies: {max:05}\n\
             # Histogram Overflows: {overflow:05}\n"
        );
        fs::write(here.join(name), text).expect("a file");
        output(here, &format!("import {name} --interval 1ms --out in-{name}"));
    };
    histogram("a", 20, 900);
    histogram("b", 0, 9);
    let found =
        json(here, "compare --limit 50us --limit 200us --json --out page.html in-a -- in-b");
    let change = &found["changes"][0];
    let at = |n: usize| {
        let seen = &change["exceedances"][n];
        ["a", "a_surely", "a_of", "b"].map(|key| seen[key].as_u64())
    };
    assert_eq!(at(0), [20, 20, 10_020, 0].map(Some));
    assert_eq!(at(1), [None, Some(1), Some(10_020), Some(0)]);
    // The quantiles that have buckets are compared, those beyond are not.
    let parts: Vec<u64> = change["shifts"]
        .as_array()
        .expect("shifts")
        .iter()
        .filter_map(|s| s["parts"].as_u64())
        .collect();
    assert_eq!(parts, [500_000_000, 990_000_000]);
    let page = fs::read_to_string(here.join("page.html")).expect("a page");
    assert!(page.contains("<svg"));
}

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    if !root_or_skip("a_run_is_compared_with_an_earlier_one") {
        return;
    }
    let folder = folder();
    let here = folder.path();
    let run = |more: &str| output(here, &format!("run --duration 1s --out after {more}"));
    // Said before anything is measured.
    let refused = run("--compare-with nowhere");
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(!here.join("after").exists());
    let done = run(&format!("--compare-with {}@rest", fixture("rt")));
    let said = text(&done.stdout);
    assert!(said.contains("\nA  ") && said.contains("Comparison: after/compare.html"), "{said}");
    assert!(here.join("after/compare.html").exists() && here.join("after/report.html").exists());
}

#[test]
fn an_inconclusive_record_and_an_import_back_no_claim() {
    let folder = folder();
    let here = folder.path();
    // Far less than a second is claimed of runs of a second: only what speaks against them keeps both
    // from backing it.
    let record = here.join("cut-short");
    copy(&PathBuf::from(fixture("stock")), &record);
    let events = fs::read_to_string(record.join("events.jsonl")).expect("events");
    let cut: String = events
        .lines()
        .filter(|line| !line.contains("\"run-ended\""))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(record.join("events.jsonl"), cut).expect("written");
    let found = output(here, "claim cut-short --limit 1s --once-in 10ms");
    let said = text(&found.stdout);
    assert_eq!(found.status.code(), Some(3), "{said}");
    assert!(said.starts_with("This record backs no claim: "), "{said}");
    assert!(!said.contains("backed"), "{said}");
    let found = json(here, "claim cut-short --limit 1s --once-in 10ms --json");
    assert_eq!(found["cells"][0]["claim"]["verdict"], "inconclusive", "{found}");
    let why = found["cells"][0]["sentence"].to_string();
    assert!(
        why.contains("the figures would back the claim, but the record is inconclusive because"),
        "{why}"
    );

    fs::write(here.join("t.txt"), "T: 0 ( 1) P:80 I:1000 C: 600000 Min: 1 Act: 2 Avg: 3 Max: 9\n")
        .expect("a file");
    let imported = output(here, "import t.txt --out imported");
    assert_eq!(imported.status.code(), Some(0), "{}", text(&imported.stderr));
    let found = output(here, "claim imported --limit 1s --once-in 10ms");
    let said = text(&found.stdout);
    assert_eq!(found.status.code(), Some(3), "{said}");
    assert!(said.contains("an import does not say when each latency occurred"), "{said}");
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() { copy(&path, &target) } else { assert!(fs::copy(&path, &target).is_ok()) }
    }
}

#[test]
fn a_run_ends_as_soon_as_its_claim_is_decided() {
    if !root_or_skip("a_run_ends_as_soon_as_its_claim_is_decided") {
        return;
    }
    let folder = folder();
    let here = folder.path();
    fs::write(
        here.join("rest.toml"),
        "name = \"rest\"\n[[phase]]\nname = \"rest\"\nduration = \"1s\"",
    )
    .expect("a plan");
    let cause = |name: &str| {
        let events = fs::read_to_string(here.join(name).join("events.jsonl")).expect("events");
        let ends = events.lines().filter(|line| line.contains("\"phase-ended\""));
        let why = |line: &str| serde_json::from_str::<Value>(line).expect("json")["why"].clone();
        ends.map(why).collect::<Vec<Value>>()
    };
    // Nothing is as late as 20 s: backed after 3.7 times 500 ms, well before the minute is over.
    let done =
        output(here, "run rest.toml --out backed --until 'max<20s once in 500ms' --at-most 1min");
    let said = text(&done.stderr);
    assert!(said.contains("backed: no exceedance"), "{said}");
    assert_eq!(cause("backed"), ["decided"]);
    assert!(text(&done.stdout).contains("max < 20s once in 500ms"), "{}", text(&done.stdout));
    // The claim is in the record: a report says the same.
    let report = json(here, "report backed --json");
    let outcome = &report["requirements"][0];
    // Others may be at work on this machine, which takes a pass away from what the figures say.
    assert_eq!(
        (&outcome["requirement"], &outcome["figures_verdict"]),
        (&"max < 20s once in 500ms".into(), &"pass".into())
    );
    // Every wake-up is later than 1 ns.
    let done =
        output(here, "run rest.toml --out refuted --until 'max<1ns once in 20s' --at-most 50s");
    assert_eq!((done.status.code(), cause("refuted")), (Some(2), vec!["decided".into()]));
    let refuted = output(here, "claim refuted --limit 1ns --once-in 20s");
    assert_eq!(refuted.status.code(), Some(2), "{}", text(&refuted.stdout));
    // An hour takes longer than 2 s: still open, at its own end.
    let done = output(here, "run rest.toml --out open --until 'max<20s once in 1h' --at-most 2s");
    assert_eq!((done.status.code(), cause("open")), (Some(3), vec!["duration".into()]));
    let open = json(here, "report open --json")["requirements"][0]["sentence"].to_string();
    assert!(
        open.contains("which is too short: the claim needs 3 h 41 min 20 s, so at best 3 h "),
        "{open}"
    );
}
