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
fn a_setting_changes_in_turn_and_its_repeats_are_compared() {
    if !root_or_skip("a_setting_changes_in_turn_and_its_repeats_are_compared") {
        return;
    }
    let (folder, before) = (folder(), throttling());
    let plan = "name = 'turns'\n[matrix]\nduration = '100ms'\nrepeat = 2\n\
                setting = ['throttling=on', 'throttling=off']\n";
    fs::write(folder.path().join("turns.toml"), plan).expect("written");
    let document = json(folder.path(), "run turns.toml --out run --json");
    assert_eq!(throttling(), before);
    let cells = document["cells"].as_array().expect("cells");
    let names: Vec<&str> = cells.iter().filter_map(|cell| cell["name"].as_str()).collect();
    let [a, b] = ["throttling=on / rest", "throttling=off / rest"];
    assert_eq!(names, [a, b, &format!("{a} #2"), &format!("{b} #2")]);
    // What the kernel had while each session ran, from the record.
    let events = fs::read_to_string(folder.path().join("run/events.jsonl")).expect("events");
    let kinds = ["setting-changed", "setting-restored", "session-started"];
    let order: Vec<&str> = events
        .lines()
        .filter_map(|line| kinds.into_iter().find(|kind| line.contains(&format!("\"{kind}\""))))
        .collect();
    // `on` is what most machines have: nothing is changed for it there.
    let off = ["setting-changed", "session-started", "setting-restored"];
    assert!(order.windows(3).filter(|three| *three == off).count() >= 2, "{order:?}");
    let compared = rtscope(folder.path())
        .args(["compare", "--json", &format!("run@{a}"), "--", &format!("run@{b}")])
        .output()
        .expect("starts");
    assert!(compared.status.success(), "{}", text(&compared.stderr));
    let compared: serde_json::Value = serde_json::from_slice(&compared.stdout).expect("JSON");
    for side in ["a", "b"] {
        assert_eq!(compared["changes"][0][side]["runs"], 2, "{compared}");
    }
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
