//! The recipes for CI servers, as a user copies them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{ready_or_skip, room, skip, text};

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/ci")
}

/// Runs a line of a recipe in a folder as a user has it; its exit code and what it says.
fn recipe(folder: &Path, line: &str) -> (Option<i32>, String) {
    fs::create_dir_all(folder.join("ci")).expect("made");
    fs::copy(recipes().join("rtscope-ci.sh"), folder.join("ci/rtscope-ci.sh")).expect("copied");
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).env_remove("RTSCOPE_OUT");
    let ran = shell.env("RTSCOPE", env!("CARGO_BIN_EXE_rtscope")).output().expect("a shell");
    (ran.status.code(), text(&ran))
}

/// What a recipe in YAML says; none without Python's YAML.
fn parsed(test: &str, name: &str) -> Option<Value> {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let mut python = Command::new("/usr/bin/python3");
    let has = python.args(["-c", "import yaml"]).output();
    if !has.is_ok_and(|has| has.status.success()) {
        skip(test, "without python3-yaml");
        return None;
    }
    let mut python = Command::new("/usr/bin/python3");
    let read = python.args(["-c", script]).arg(recipes().join(name)).output().expect("python3");
    Some(
        serde_json::from_slice(&read.stdout)
            .unwrap_or_else(|e| panic!("{name}: {e}: {}", text(&read))),
    )
}

/// The one command of a recipe that calls the script.
fn command(steps: &[&Value]) -> String {
    let lines: Vec<&str> = steps.iter().filter_map(|step| step.as_str()).collect();
    assert!(lines.iter().all(|line| !line.contains("lab run")), "it repeats the script: {lines:?}");
    let mut calls = lines.iter().filter(|line| line.contains("ci/rtscope-ci.sh"));
    let call = calls.next().expect("it calls the script");
    assert_eq!(calls.next(), None);
    (*call).to_owned()
}

#[test]
fn recipes_in_yaml_call_the_script_and_keep_the_page() {
    let test = "recipes_in_yaml_call_the_script_and_keep_the_page";
    let Some(github) = parsed(test, "github.yml") else { return };
    let Some(gitlab) = parsed(test, "gitlab.yml") else { return };
    let steps = github["jobs"]["rtscope"]["steps"].as_array().expect("steps");
    let kept = steps.iter().filter(|step| step["with"]["path"] == "rtscope-results");
    assert_eq!(kept.map(|step| step["if"].as_str()).collect::<Vec<_>>(), [Some("always()")]);
    let github = command(&steps.iter().map(|step| &step["run"]).collect::<Vec<_>>());
    let job = &gitlab["rtscope"];
    let gitlab = command(&job["script"].as_array().expect("a script").iter().collect::<Vec<_>>());
    assert_eq!(job["artifacts"]["paths"][0], "rtscope-results");
    assert_eq!(job["artifacts"]["when"], "always");
    if !ready_or_skip(test) {
        return;
    }
    // Debian's stock kernel is late by more than they allow.
    for (line, kernel) in [(github, "path=arch/x86/boot/bzImage"), (gitlab, "path=\"$KERNEL\"")] {
        assert!(line.contains(kernel), "{line}");
        let room = room();
        let (code, said) = recipe(room.path(), &line.replace(kernel, "debian-stock"));
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains("rtscope: a requirement is not met"), "{said}");
        assert!(room.path().join("rtscope-results/index.html").is_file());
    }
}

#[test]
fn the_script_has_rtscope_s_exit_code_and_leaves_what_servers_show() {
    let test = "the_script_has_rtscope_s_exit_code_and_leaves_what_servers_show";
    let room = room();
    let at = room.path();
    let (code, said) = recipe(at, "sh ci/rtscope-ci.sh --kernel path=none --require 'max < 1s'");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("could not be made"), "{said}");
    let (code, said) = recipe(at, "sh ci/rtscope-ci.sh --kernel debian-stock --require 'max'");
    assert_eq!(code, Some(64), "{said}");
    if !ready_or_skip(test) {
        return;
    }
    let line = "sh ci/rtscope-ci.sh small.toml --kernel debian-stock --require";
    let (code, said) = recipe(at, &format!("{line} 'max < 1s'"));
    assert_eq!(code, Some(0), "{said}");
    let exports = at.join("rtscope-results/exports/debian-stock-seed1");
    let junit = fs::read_to_string(exports.join("junit.xml")).expect("for the server");
    assert!(junit.contains("failures=\"0\" errors=\"0\""), "{junit}");
    let summary = fs::read_to_string(exports.join("markdown.md")).expect("for a summary");
    assert!(summary.lines().next().is_some_and(|title| title.ends_with(": Pass")), "{summary}");
    assert!(at.join("rtscope-results/index.html").is_file());
    // Too few wake-ups for that.
    let (code, said) = recipe(at, &format!("RTSCOPE_OUT=open {line} 'p99.999 < 1s'"));
    assert_eq!(code, Some(3), "{said}");
    assert!(at.join("open/exports/debian-stock-seed1/junit.xml").is_file(), "{said}");
}
