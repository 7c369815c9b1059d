//! SIGINT ends a run with a report; SIGKILL loses at most the slice in progress and leaves nothing
//! running.

use std::{fs, process::Stdio, time::Duration};

use crate::support::{
    folder, json, kill, marked_seconds, output, processes_of_ours, processes_with, rtscope, start,
    text, wait_for, words,
};

/// A name that only this test's processes carry.
fn plan(marker: &str) -> String {
    format!(
        "name = 'killed'\n[[phase]]\nname = 'load'\nduration = '50s'\n\
         load = ['message groups=1', 'external -- sleep {marker}']\n"
    )
}

fn lines(path: &std::path::Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn a_killed_run_is_judged_up_to_its_last_slice_and_leaves_no_load() {
    let folder = folder();
    let marker = &marked_seconds(630);
    fs::write(folder.path().join("p.toml"), plan(marker)).expect("a plan");
    let mut child = start(folder.path(), "run p.toml --out run --slice 200ms --quiet");
    let slices = folder.path().join("run/slices/t0.jsonl");
    wait_for("some slices", Duration::from_secs(20), || lines(&slices) >= 6);
    assert!(!processes_with(marker).is_empty(), "the load runs");
    assert!(processes_of_ours().len() > 2, "the run, and workers of its load");
    kill(child.id(), "KILL");
    child.wait().expect("ends");
    let kept = lines(&slices);
    wait_for("the loads to die", Duration::from_secs(5), || processes_with(marker).is_empty());
    wait_for("the workers to die", Duration::from_secs(5), || processes_of_ours().is_empty());

    let document = json(folder.path(), "report run --json");
    let recorded = document["cells"][0]["cpus"][0]["recorded"].as_u64().expect("a count");
    // 200 activations a slice; the first slices are the warm-up.
    assert!(recorded >= (kept as u64 - 3) * 200, "{recorded} of {kept} slices");
    let findings = document["findings"].to_string();
    assert!(findings.contains("record-cut-short"), "{findings}");
    assert!(folder.path().join("run/report.html").exists());
}

#[test]
fn an_interrupt_ends_cleanly_with_a_report() {
    let folder = folder();
    let marker = &marked_seconds(631);
    fs::write(folder.path().join("p.toml"), plan(marker)).expect("a plan");
    let child = rtscope(folder.path())
        .args(words("run p.toml --out run --json --require 'max < 1h'"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let events = folder.path().join("run/events.jsonl");
    wait_for("the load", Duration::from_secs(20), || {
        fs::read_to_string(&events).is_ok_and(|text| text.contains("load-rate"))
    });
    kill(child.id(), "INT");
    let output = child.wait_with_output().expect("ends");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["cells"][0]["ended"], "interrupted");
    assert_eq!(document["verdict"], "inconclusive", "an interrupted run can't pass");
    assert_eq!(output.status.code(), Some(3));
    assert!(processes_with(marker).is_empty(), "no load is left");
    assert!(folder.path().join("run/report.html").exists());
}

#[test]
fn a_record_with_a_torn_last_line_is_read() {
    let folder = folder();
    json(folder.path(), "run quick --duration 1s --out run --json");
    let path = folder.path().join("run/slices/t0.jsonl");
    let whole = fs::read_to_string(&path).expect("slices");
    fs::write(&path, &whole[..whole.len() - 40]).expect("torn");
    let document = json(folder.path(), "report run --json");
    assert!(document["findings"].to_string().contains("record-damaged"));
    // Not a record at all.
    fs::create_dir(folder.path().join("empty")).expect("a folder");
    let output = output(folder.path(), "report empty");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not a record"), "{}", text(&output.stderr));
}

/// A run that was stopped was told as one whose control thread was held up by others, on a busy machine.
#[test]
fn a_run_that_was_stopped_says_so() {
    let folder = folder();
    let text_of = "name = 'stopped'\n[[phase]]\nname = 'rest'\nduration = '6s'\n";
    fs::write(folder.path().join("p.toml"), text_of).expect("a plan");
    let mut child = start(folder.path(), "run p.toml --out run --quiet");
    let events = folder.path().join("run/events.jsonl");
    wait_for("the phase", Duration::from_secs(20), || {
        fs::read_to_string(&events).is_ok_and(|text| text.contains("phase-started"))
    });
    kill(child.id(), "STOP");
    std::thread::sleep(Duration::from_secs(2));
    kill(child.id(), "CONT");
    child.wait().expect("ends");
    let findings = json(folder.path(), "report run --json")["findings"].to_string();
    assert!(findings.contains("rtscope was stopped by a signal and continued"), "{findings}");
}
