//! `rtscope check`: programs with one mistake each, which must be named, and programs that do it right. The
//! machine may wake any of them late: periods that it made them miss are no mistake of theirs.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    folder, json, kill, marked_seconds, output, output_of, processes_with, refused, root_or_skip,
    skip, start, text, wait_for,
};

/// How often a program is looked at until its mistake has been seen.
const LOOKS: usize = 8;

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Compiles the program with a mistake.
fn program(folder: &Path, mistakes: &str) -> PathBuf {
    let program = folder.join("periodic");
    let mut command = Command::new("cc");
    command.args(["-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    command.args(mistakes.split_whitespace().map(|mistake| format!("-D{mistake}")));
    command.arg("-o").arg(&program);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/periodic.c"));
    let made = output_of(&mut command);
    assert!(made.status.success(), "{}", text(&made.stderr));
    program
}

fn check(folder: &Path, options: &str) -> Value {
    json(folder, &format!("check --json --settle 300ms --duration 1500ms {options}"))
}

fn codes(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().expect("findings");
    findings.iter().filter_map(|finding| finding["code"].as_str()).collect()
}

/// Whether there are events to see; says that the test is skipped when not.
fn can_see_or_skip(test: &str, document: &Value) -> bool {
    let sees = ["switches", "timers", "faults", "futexes"]
        .iter()
        .all(|source| document["sources"][source] == true);
    if !sees {
        skip(test, "needs the kernel's events (tracefs)");
    }
    sees
}

/// Runs the program with a mistake, and asserts that this is named and nothing else that is its doing.
fn is_named(test: &str, mistake: &str, code: &str) -> Option<Value> {
    if !root_or_skip(test) {
        return None;
    }
    let folder = folder();
    let program = program(folder.path(), mistake);
    // A machine that takes the CPU away makes work look long and wake-ups late, and some kernels of
    // virtual machines show no `sched_switch` of one CPU for a while: the looks go from CPU to CPU.
    let by_machine = ["missed-periods", "overrun"];
    let mut last = None;
    for look in 0..LOOKS {
        let pinned = match look {
            0 => String::new(),
            look => format!("taskset -c {} ", look % 2 * (cpus() - 1)),
        };
        let command = format!("--expect fifo:70 -- {pinned}{}", program.display());
        let document = check(folder.path(), &command);
        if !can_see_or_skip(test, &document) {
            return None;
        }
        let found = codes(&document);
        let others = found.iter().filter(|found| **found != code && !by_machine.contains(found));
        assert_eq!(others.count(), 0, "{document:#}");
        let is_named = found.contains(&code);
        last = Some(document);
        if is_named {
            break;
        }
    }
    let document = last?;
    assert!(codes(&document).contains(&code), "{document:#}");
    let advice = document["findings"].as_array().expect("findings");
    assert!(advice.iter().all(|finding| finding["advice"].as_str().is_some_and(|a| a.len() > 20)));
    Some(document)
}

#[test]
fn sleeping_for_a_time_is_named_with_its_drift() {
    let test = "sleeping_for_a_time_is_named_with_its_drift";
    let Some(document) = is_named(test, "RELATIVE_SLEEP", "relative-sleep") else { return };
    let rhythm = &document["threads"][0]["rhythm"];
    assert_eq!(rhythm["sleep"], "for");
    // By construction: 300 us of work in the mean, and each latency.
    assert!(rhythm["drift_ns_per_period"].as_f64().is_some_and(|ns| ns > 250_000.0), "{rhythm}");
}

#[test]
fn memory_that_is_not_locked_is_named() {
    is_named("memory_that_is_not_locked_is_named", "UNLOCKED", "memory-not-locked");
}

#[test]
fn page_faults_in_the_loop_are_named() {
    is_named("page_faults_in_the_loop_are_named", "PAGE_FAULTS", "page-faults");
}

#[test]
fn another_policy_than_expected_is_named() {
    is_named("another_policy_than_expected_is_named", "ORDINARY", "policy-not-as-expected");
}

#[test]
fn work_that_is_longer_than_the_period_is_named() {
    is_named("work_that_is_longer_than_the_period_is_named", "OVERRUN", "overrun");
}

#[test]
fn sleeping_by_the_wall_clock_is_named() {
    is_named("sleeping_by_the_wall_clock_is_named", "WALL_CLOCK", "wall-clock-sleep");
}

#[test]
fn a_mutex_without_inheritance_is_named_and_one_with_it_is_not() {
    let test = "a_mutex_without_inheritance_is_named_and_one_with_it_is_not";
    let Some(document) = is_named(test, "LOCK", "lock-without-inheritance") else { return };
    let text = document["findings"].to_string();
    assert!(text.contains("(periodic), other"), "the holder is named: {text}");
    let folder = folder();
    let program = program(folder.path(), "LOCK INHERIT");
    let document = check(folder.path(), &format!("-- {}", program.display()));
    assert!(!codes(&document).contains(&"lock-without-inheritance"), "{document:#}");
}

/// Looks at a program that does it right until the machine has left it alone for a whole look.
fn nothing_is_found(test: &str, folder: &Path, command: &str, expect: &str) {
    for _ in 0..12 {
        let document = check(folder, &format!("--expect {expect} --period 20ms -- {command}"));
        if !can_see_or_skip(test, &document) {
            return;
        }
        let found = codes(&document);
        if found.is_empty() {
            let judged = document["threads"].as_array().expect("threads").iter();
            let judged: Vec<&Value> = judged.filter(|thread| thread["judged"] == true).collect();
            assert_eq!(judged.len(), 1, "{document:#}");
            assert_eq!(judged[0]["rhythm"]["period_ns"], 20_000_000, "{document:#}");
            // Some virtual machines hide the switches of a CPU for a whole look.
            let untold = document["not_told"].as_array().expect("a list").iter();
            let untold = untold.filter(|text| !text.to_string().contains("had no sched_switch"));
            assert_eq!(untold.count(), 0, "{document:#}");
            return;
        }
        let by_machine = |code: &&str| ["missed-periods", "overrun"].contains(code);
        assert!(found.iter().all(by_machine), "{document:#}");
    }
    panic!("the machine made {command} miss periods in twelve looks");
}

#[test]
fn a_program_that_does_it_right_has_no_findings() {
    let test = "a_program_that_does_it_right_has_no_findings";
    if !root_or_skip(test) {
        return;
    }
    let folder = folder();
    let program = program(folder.path(), "");
    nothing_is_found(test, folder.path(), &program.display().to_string(), "fifo:70");
}

/// The same for a skeleton that has been built.
pub(crate) fn a_skeleton_has_no_findings(test: &str, folder: &Path, command: &str) {
    nothing_is_found(test, folder, &format!("{command} --period-us 20000"), "fifo:80");
}

#[test]
fn a_program_that_runs_already_is_looked_at_and_left_running() {
    let test = "a_program_that_runs_already_is_looked_at_and_left_running";
    if !root_or_skip(test) {
        return;
    }
    let folder = folder();
    let mut child = Command::new(program(folder.path(), "UNLOCKED")).spawn().expect("starts");
    // It must have reached its loop, which the look then sees from its start.
    std::thread::sleep(Duration::from_millis(300));
    let document = check(folder.path(), &format!("--pid {}", child.id()));
    let still_runs = child.try_wait().expect("waited").is_none();
    let _ = child.kill();
    let _ = child.wait();
    assert!(still_runs);
    assert!(codes(&document).contains(&"memory-not-locked"), "{document:#}");
}

#[test]
fn what_can_not_be_watched_is_said() {
    let folder = folder();
    let refused = |options: &str, code: i32, word: &str| {
        refused(folder.path(), &format!("check {options}"), code, &[word]);
    };
    refused("--settle 100ms -- true", 1, "ended");
    refused(
        "--settle 100ms -- ./no-such-program",
        1,
        "no-such-program could not be run: check its name",
    );
    let said = text(&output(folder.path(), "check --settle 100ms -- ./no-such-program").stderr);
    assert!(!said.contains("run longer"), "nothing ran: {said}");
    refused("--expect fast -- true", 64, "fifo");
    refused("--expect fifo:100 -- true", 64, "1 to 99");
    refused("--expect other:3 -- true", 64, "only fifo and rr have one");
    refused("--duration 1ms -- true", 64, "200ms");
    refused("--pid 4194304", 1, "no process");
    refused("", 64, "COMMAND");
}

#[test]
fn no_program_outlives_a_killed_rtscope() {
    let folder = folder();
    let sleep = format!("sleep {}", marked_seconds(620));
    let mut own = start(folder.path(), &format!("check --settle 1min -- {sleep}"));
    let sleeps = || {
        let mine = processes_with(&sleep).into_iter().filter(|pid| *pid != own.id());
        mine.count() > 0
    };
    wait_for("the program", Duration::from_secs(20), sleeps);
    kill(own.id(), "KILL");
    let _ = own.wait();
    wait_for("its end", Duration::from_secs(20), || processes_with(&sleep).is_empty());
}
