//! `rtscope drift`: that relative sleeps drift by at least their work and absolute ones keep to their
//! grid, in loops of ours and as seen from outside. Nothing here depends on how late the machine wakes:
//! lateness only adds to a relative drift.

use std::path::Path;

use serde_json::Value;

use crate::support::{
    folder, json, left_instances, output, processes_of_ours, refused, root_or_skip, skip, text,
    wait_for,
};

const HOUR_NS: f64 = 3.6e12;

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// 2 ms and 500 us of work: a relative loop has at best a period of 2.5 ms.
const LOOP: &str = "--period 2ms --work 500us --policy other --duration 1500ms";
const LEAST: f64 = 0.5 / 2.5 * HOUR_NS;

#[test]
fn a_delay_drifts_by_its_work_and_a_delay_until_does_not() {
    let folder = folder();
    let document = json(folder.path(), &format!("drift {LOOP} --out run --json"));
    let [delay, until] = [&document["subjects"][0], &document["subjects"][1]];
    assert_eq!([&delay["sleep"], &until["sleep"]], ["relative", "absolute"]);
    let drift = number(delay, "drift_ns_per_hour");
    // A CPU's time and the clock may differ in speed by the 500 ppm that time is steered by.
    assert!(drift > LEAST * 0.999, "at least the work: {delay}");
    assert!(number(delay, "period_ns_mean") > 2.499e6, "{delay}");
    // Its instants are on the grid, however late the machine wakes it.
    let record = std::fs::read_to_string(folder.path().join("run/drift.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let all = record["subjects"][1]["activations"].as_array().expect("activations");
    let expiry = |one: &Value| one[1].as_u64().expect("an instant");
    assert!(all.len() >= 3 && all.iter().all(|one| expiry(one) % 2_000_000 == 0), "{all:?}");
    assert_eq!(until["behaviour"], "absolute");
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("delay until"));
    assert_eq!(json(folder.path(), "drift --from run --json"), document, "judged again");
    let again = output(folder.path(), &format!("drift {LOOP} --out run"));
    assert_eq!(again.status.code(), Some(64), "a record is not overwritten");
}

#[test]
fn two_loops_at_once_fall_out_of_step() {
    let folder = folder();
    let line = "drift --together --period 2ms --work 500us --policy other --duration 1500ms";
    let document = json(folder.path(), &format!("{line} --out run --json"));
    let step = &document["step"];
    assert_eq!(step["threads"], serde_json::json!(["delay", "delay until"]));
    // 500 us of work a period: a whole period is lost after at most 4 of them, and the start.
    let whole = &step["out_of_step"][2];
    assert_eq!(number(whole, "share"), 1.0, "{step}");
    let apart = number(step, "gap_ns_last") - number(step, "gap_ns_first");
    assert!(apart > 0.25 * number(step, "activations") * 0.999 * 2e6 - 4e6, "{step}");
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    assert!(page.contains("They fall out of step by"), "{page}");
    let again = json(folder.path(), "drift --from run --json");
    assert_eq!(again, document, "judged again");
    let alone = json(
        folder.path(),
        &format!("drift {LOOP} --duration 200ms --out other --json")
            .replace("--duration 1500ms ", ""),
    );
    assert!(alone["step"].is_null(), "one after the other: {alone}");
}

#[test]
fn a_duration_that_a_recording_does_not_hold_is_refused_before_the_start() {
    let folder = folder();
    for subject in ["--policy other", "-- sleep 1"] {
        let line = format!("drift --period 50us --duration 1h --out run {subject}");
        refused(folder.path(), &line, 64, &["use --duration 3 min 20 s or less"]);
    }
    assert!(!folder.path().join("run").exists());
}

/// What is seen from outside of a loop in another process; none where the kernel can't be traced.
fn watched(folder: &Path, test: &str, sleep: &str) -> Option<Value> {
    let program = env!("CARGO_BIN_EXE_rtscope");
    let command = format!("drift {LOOP} --sleep {sleep} --out inner-{sleep}");
    let arguments =
        format!("drift --duration 10s --out outer-{sleep} --json -- {program} {command}");
    let output = output(folder, &arguments);
    let said = text(&output.stderr);
    if said.contains("this kernel has no tracefs") {
        skip(test, "needs a kernel with tracefs");
        return None;
    }
    let document: Value = serde_json::from_slice(&output.stdout).expect(&said);
    let subject = document["subjects"][0].clone();
    assert!(number(&subject, "activations") >= 32.0, "{subject}");
    assert_eq!(subject["program"]["ended"], "exit code 0", "{subject}");
    Some(subject)
}

#[test]
fn a_relative_sleep_is_told_from_an_absolute_one_from_outside() {
    let test = "a_relative_sleep_is_told_from_an_absolute_one_from_outside";
    if !root_or_skip(test) {
        return;
    }
    let folder = folder();
    let Some(relative) = watched(folder.path(), test, "relative") else { return };
    assert_eq!(relative["behaviour"], "relative", "{relative}");
    assert_eq!((relative["meant"].as_str(), number(&relative, "period_ns")), (Some("slept"), 2e6));
    assert!(number(&relative, "drift_ns_per_hour") > LEAST * 0.999, "{relative}");
    let program = &relative["program"];
    assert!(number(program, "relative_sleeps") > number(program, "absolute_sleeps"), "{program}");
    let Some(absolute) = watched(folder.path(), test, "absolute") else { return };
    assert_eq!(absolute["behaviour"], "absolute", "{absolute}");
    assert_eq!((absolute["meant"].as_str(), number(&absolute, "period_ns")), (Some("grid"), 2e6));
    assert_eq!(number(&absolute["program"], "lost"), 0.0, "{absolute}");
}

#[test]
fn a_program_that_is_watched_is_ended_with_what_it_started() {
    let test = "a_program_that_is_watched_is_ended_with_what_it_started";
    if !root_or_skip(test) {
        return;
    }
    let folder = folder();
    let before = left_instances();
    let program = env!("CARGO_BIN_EXE_rtscope");
    let endless = format!("{program} drift --policy other --duration 1h --out endless & wait");
    let output =
        output(folder.path(), &format!("drift --duration 1s --out outer -- sh -c '{endless}'"));
    if text(&output.stderr).contains("this kernel has no tracefs") {
        skip(test, "needs a kernel with tracefs");
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    wait_for("its end", std::time::Duration::from_secs(20), || processes_of_ours().is_empty());
    let after = left_instances();
    assert!(after.is_subset(&before), "left behind: {:?}", after.difference(&before));
}

#[test]
fn what_can_not_be_measured_is_said() {
    let folder = folder();
    for (arguments, code, part) in [
        ("drift --period 1ms --work 900us", 64, "80 %"),
        (
            "drift --together --period 1ms --work 500us",
            64,
            "40 % of the period for each of two loops",
        ),
        ("drift --thread a --thread b --thread c -- sleep 1", 64, "at most twice"),
        ("drift --period 1s --duration 2s", 64, "three periods"),
        ("drift --from nowhere", 1, "nowhere/drift.json"),
        ("drift --cpu 9999", 64, "9999"),
        ("drift --work 1ms -- sleep 1", 64, "--work"),
    ] {
        refused(folder.path(), arguments, code, &[part]);
    }
    if root_or_skip("what_can_not_be_measured_is_said") {
        let said = text(&output(folder.path(), "drift --duration 1s -- true").stderr);
        assert!(said.contains("three periods") || said.contains("tracefs"), "{said}");
        let said = text(&output(folder.path(), "drift -- ./no-such-program").stderr);
        assert!(said.contains("no-such-program") || said.contains("tracefs"), "{said}");
    }
}
