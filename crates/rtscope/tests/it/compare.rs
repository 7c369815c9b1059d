//! Two kernels from the lab, one without and one with PREEMPT_RT, compared by the real program; and a
//! claim held against one of them.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::support::{folder, json, output, text};

/// The shipped records: plan `lab-quick` in guests with Debian's stock and real-time kernel.
fn fixture(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compare");
    root.join(name).display().to_string()
}

#[test]
fn a_real_time_kernel_is_told_from_a_stock_one() {
    let folder = folder();
    let sides = format!("--require 'max < 20us' {} -- {}", fixture("stock"), fixture("rt"));
    let found = json(folder.path(), &format!("compare --json {sides}"));
    let names: Vec<&str> = found["changes"]
        .as_array()
        .expect("pairs")
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!(names, ["rest", "message", "disk"]);
    let disk = &found["changes"][2];
    let first = disk["sentences"][0].as_str().expect("words");
    assert!(first.starts_with("B meets 20 us, A does not: "), "{first}");
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
    let sides = format!("compare {sides}");
    // The same records give the same bytes, in words and as a page.
    let page = folder.path().join("rtscope-compare.html");
    let once = (text(&output(folder.path(), &sides).stdout), fs::read(&page).expect("a page"));
    let again = (text(&output(folder.path(), &sides).stdout), fs::read(&page).expect("a page"));
    assert!(once == again && once.0.contains("What else differs"), "{}", once.0);
    assert!(String::from_utf8_lossy(&once.1).matches("<svg").count() >= 3);
}

#[test]
fn two_cells_of_one_run_can_be_compared() {
    let folder = folder();
    let rt = fixture("rt");
    let found = json(folder.path(), &format!("compare --json {rt}@rest -- {rt}@disk"));
    assert_eq!(found["changes"][0]["name"], "rest against disk");
    let wrong = output(folder.path(), &format!("compare {rt}@idle -- {rt}"));
    assert_eq!(wrong.status.code(), Some(64));
    let late = output(folder.path(), &format!("compare {rt} -- {rt} --json"));
    assert!(text(&late.stderr).contains("--json comes after `--`"));
    assert!(text(&wrong.stderr).contains("no cell \"idle\": rest, message, disk"));
}

#[test]
fn a_claim_says_how_long_and_is_held_against_a_run() {
    let folder = folder();
    let plan = json(folder.path(), "claim --once-in 1d --threads 4 --json");
    // Three days of a thread's time, on four threads side by side.
    let hours = plan["needed"][0]["wall_ns"].as_f64().expect("a time") / 3.6e12;
    assert!((hours - 17.974).abs() < 0.001, "{hours}");
    let claim = |limit: &str, once: &str| {
        output(
            folder.path(),
            &format!("claim {} --limit {limit} --once-in {once}", fixture("stock")),
        )
        .status
        .code()
    };
    // A second each: 100 ms is backed, an hour is open, and 20 us come far more often than that.
    assert_eq!(claim("1ms", "100ms"), Some(0));
    assert_eq!(claim("1ms", "1h"), Some(3));
    assert_eq!(claim("20us", "1h"), Some(2));
}
