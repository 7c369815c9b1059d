//! A changed setting is always put back.

use std::{fs, process::Stdio, time::Duration};

use crate::support::{
    folder, json, kill, output, refused, root_or_skip, rtscope, start, text, wait_for, words,
};

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
    for next in [
        "restore",
        "run quick --duration 500ms --out next --quiet",
        "sched run one-fifo-pinned --work 10ms --out sched",
        "load cpu --duration 100ms",
        "throughput --duration 50ms --windows 64 --no-sampler --protocol tcp --out throughput",
        "wave generate memory:leftover --freq 1kHz --duration 50ms",
        "check --settle 10ms --duration 200ms -- sleep 2",
        "drift --period 1ms --duration 50ms --out drift",
        "stat --out stat -- true",
        "cyclictest -q -l5 -p80",
        "hackbench -g 1 -l 1",
    ] {
        let out = next.split(' ').next().expect("a word");
        let line = format!("run quick --set throttling=off --quiet --out {out}");
        let mut child = start(folder.path(), &line);
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

/// `timeout -s INT` sends two signals, and a user may press Ctrl-C more often than that. The second one
/// ended the process: the setting stayed changed, and there was no verdict.
#[test]
fn many_interrupts_leave_no_setting_changed() {
    if !root_or_skip("many_interrupts_leave_no_setting_changed") {
        return;
    }
    let (folder, before) = (folder(), throttling());
    let child = rtscope(folder.path())
        .args(words("run quick --set throttling=off --out run --require 'max < 10s'"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let events = folder.path().join("run/events.jsonl");
    wait_for("the first phase", Duration::from_secs(20), || {
        fs::read_to_string(&events).is_ok_and(|text| text.contains("phase-started"))
    });
    assert_eq!(throttling(), "-1");
    // While one of them lives, `restore` names it.
    let restore = output(folder.path(), "restore");
    let said = text(&restore.stdout);
    assert_eq!(restore.status.code(), Some(0), "{said}");
    assert!(
        said.contains(&format!("rtscope process {} still holds throttling", child.id())),
        "{said}"
    );
    assert!(!said.contains("every setting is"), "{said}");
    assert!(!said.contains("every other setting is"), "nothing was restored: {said}");
    for _ in 0..5 {
        kill(child.id(), "INT");
    }
    let output = child.wait_with_output().expect("ends");
    assert_eq!(throttling(), before);
    assert_eq!(output.status.code(), Some(3), "an interrupted run is inconclusive");
    assert!(text(&output.stdout).contains("Verdict: INCONCLUSIVE"), "{}", text(&output.stdout));
    assert!(folder.path().join("run/verdict.json").exists());
}

/// The process of a run that was killed a moment ago is still there, and was taken for one that holds its
/// setting and restores it at its end.
#[test]
fn a_run_that_is_being_killed_holds_nothing() {
    if !root_or_skip("a_run_that_is_being_killed_holds_nothing") {
        return;
    }
    let (folder, before) = (folder(), throttling());
    for n in 0..3 {
        let mut child =
            start(folder.path(), &format!("run quick --set throttling=off --out run{n} --quiet"));
        wait_for("the change", Duration::from_secs(20), || throttling() == "-1");
        kill(child.id(), "KILL");
        let restore = output(folder.path(), "restore");
        let said = text(&restore.stdout);
        assert_eq!(throttling(), before, "{said}");
        assert_eq!(said, "every setting is as it was\n");
        assert!(text(&restore.stderr).contains("throttling is restored"));
        child.wait().expect("ends");
    }
    let again = output(folder.path(), "restore");
    assert_eq!(text(&again.stdout), "no killed run has left a setting to restore\n");
}

#[test]
fn a_refused_setting_leaves_no_folder() {
    if !root_or_skip("a_refused_setting_leaves_no_folder") {
        return;
    }
    let folder = folder();
    let mut holder = start(folder.path(), "run quick --set throttling=off --out holder --quiet");
    wait_for("the change", Duration::from_secs(10), || throttling() == "-1");
    fs::create_dir(folder.path().join("mine")).expect("a folder");
    // Settings of single phases change one session after the other.
    let phases = "name = 'x'\n[[phase]]\nname = 'a'\nduration = '1s'\nsettings.throttling = 'off'\n\
                  [[phase]]\nname = 'b'\nduration = '1s'\n";
    fs::write(folder.path().join("phases.toml"), phases).expect("a plan");
    let whole = "run --set throttling=off --out";
    for (command, out) in
        [(whole, "refused"), (whole, "mine"), ("run phases.toml --out", "refused")]
    {
        let refused = output(folder.path(), &format!("{command} {out}"));
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("is held by"), "{}", text(&refused.stderr));
    }
    kill(holder.id(), "INT");
    holder.wait().expect("ends");
    assert!(!folder.path().join("refused").exists());
    let left = fs::read_dir(folder.path().join("mine")).expect("it was there before").count();
    assert_eq!(left, 0);
}

#[test]
fn wrong_settings_are_named() {
    let folder = folder();
    for (arguments, said) in [
        ("run --set throtling=off", "did you mean \"throttling\""),
        ("run --set throttling=maybe", "throttling"),
        ("run --set throttling", "write it as throttling=off"),
    ] {
        refused(folder.path(), arguments, 64, &[said]);
    }
}
