//! A changed setting is always put back.

use std::{fs, process::Stdio, time::Duration};

use crate::support::{folder, json, kill, output, root_or_skip, rtscope, text, wait_for, words};

const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";

fn throttling() -> String {
    fs::read_to_string(THROTTLING).expect("readable").trim().to_owned()
}

#[test]
fn throttling_is_lifted_and_restored() {
    if !root_or_skip("throttling_is_lifted_and_restored") {
        return;
    }
    let folder = folder();
    let before = throttling();
    let document =
        json(folder.path(), "run quick --duration 1s --set throttling=off --out run --json");
    assert_eq!(throttling(), before);
    assert_eq!(document["verdict"], "measured");
    let events = fs::read_to_string(folder.path().join("run/events.jsonl")).expect("events");
    assert!(events.contains("setting-changed") && events.contains("setting-restored"), "{events}");
}

#[test]
fn a_killed_run_is_put_right_by_restore_and_by_the_next_start() {
    if !root_or_skip("a_killed_run_is_put_right_by_restore_and_by_the_next_start") {
        return;
    }
    let folder = folder();
    let before = throttling();
    for next in ["restore", "run quick --duration 500ms --out next --quiet"] {
        let mut child = rtscope(folder.path())
            .args(words("run quick --set throttling=off --quiet"))
            .arg("--out")
            .arg(folder.path().join(next.split(' ').next().expect("a word")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        wait_for("the change", Duration::from_secs(10), || throttling() == "-1");
        kill(child.id(), "KILL");
        child.wait().expect("ends");
        assert_eq!(throttling(), "-1", "a SIGKILL can't restore");
        let output = output(folder.path(), next);
        assert_eq!(throttling(), before, "{next}");
        assert!(
            text(&output.stderr).contains("throttling"),
            "it says so: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn wrong_settings_are_named() {
    let folder = folder();
    for (arguments, said) in [
        ("run --set throtling=off", "did you mean \"throttling\""),
        ("run --set throttling=maybe", "throttling"),
        ("run --set throttling", "write it as throttling=off"),
    ] {
        let output = output(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments}");
        assert!(text(&output.stderr).contains(said), "{arguments}: {}", text(&output.stderr));
    }
}
