//! `rtscope sched`: order and ratios, never a time. The machine may be busy: a thread of the fair
//! class may take any longer than predicted, but never less than what it has to wait for.

use serde_json::Value;

use crate::support::{folder, json, output, root_or_skip, text};

const FIVE: [&str; 5] =
    ["one-fifo-pinned", "one-fifo-free", "two-fifo-pinned", "two-rr-pinned", "two-fifo-free"];

/// How often an experiment is repeated that a busy machine can spoil.
const TRIES: usize = 5;

fn run(name: &str) -> Option<Vec<Value>> {
    if !root_or_skip(name) {
        return None;
    }
    let folder = folder();
    let document = json(folder.path(), &format!("sched run {name} --work 250ms --out run --json"));
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("CPU 0") | page.contains("CPU 1"));
    let again = json(folder.path(), "sched report run --json");
    assert_eq!(again, document, "the same record gives the same document");
    let apps = document["apps"].as_array().expect("apps").clone();
    for app in &apps {
        assert_eq!(app["as_asked"], true, "{app}");
        let [response, cpu] =
            ["response_ns", "cpu_ns"].map(|key| app[key].as_u64().expect("a time"));
        // The two clocks may differ in speed by the 500 ppm that time synchronisation steers by.
        assert!(response + response / 1_000 >= cpu, "no thread uses more than its time: {app}");
        assert!(app["predicted_ns"].as_u64() >= app["work_ns"].as_u64());
        assert!(app["runs"].as_array().is_some_and(|runs| !runs.is_empty()), "{document}");
    }
    Some(apps)
}

fn ns(app: &Value, key: &str) -> f64 {
    app[key].as_f64().expect("a number")
}

/// The finish of each, in units of the CPU time of the first.
fn finishes(apps: &[Value]) -> Vec<f64> {
    apps.iter().map(|app| ns(app, "finish_ns") / ns(&apps[0], "cpu_ns")).collect()
}

#[test]
fn the_five_experiments_are_shipped_and_shown() {
    let folder = folder();
    let list = text(&output(folder.path(), "sched list").stdout);
    for name in FIVE {
        assert!(list.contains(name), "{list}");
        let shown = output(folder.path(), &format!("sched show {name}"));
        assert!(text(&shown.stdout).contains("[[application]]"));
    }
    let wrong = output(folder.path(), "sched run one-fifo-pined");
    assert_eq!(wrong.status.code(), Some(64));
    assert!(text(&wrong.stderr).contains("one-fifo-pinned"), "{}", text(&wrong.stderr));
}

#[test]
fn ordinary_applications_end_after_a_fifo_one_on_their_cpu() {
    let Some(apps) = run("one-fifo-pinned") else { return };
    let ends = finishes(&apps);
    // One after the other on one CPU: 1 : 3 : 3, and longer where the machine is busy.
    assert!(ends[0] < ends[1] && ends[0] < ends[2], "{ends:?}");
    assert!(ends[1].max(ends[2]) > 2.2, "the CPU does all three works: {ends:?}");
}

#[test]
fn fifo_of_one_priority_is_first_come_first_served() {
    let Some(apps) = run("two-fifo-pinned") else { return };
    let ends = finishes(&apps);
    assert!(ends[0] < ends[1] && ends[1] < ends[2], "{ends:?}");
    assert!(ns(&apps[1], "start_ns") >= ns(&apps[0], "finish_ns"), "the second waits: {apps:?}");
}

#[test]
fn rr_of_one_priority_takes_turns() {
    let Some(apps) = run("two-rr-pinned") else { return };
    // 250 ms are two turns of 100 ms and a half: the second starts before the first has ended.
    assert!(ns(&apps[1], "start_ns") < ns(&apps[0], "finish_ns"), "{apps:?}");
    // Which of the two ends first is up to how fast its turns were.
    let ends = finishes(&apps);
    assert!(ends[0].max(ends[1]) < ends[2], "the ordinary one is last: {ends:?}");
}

#[test]
fn free_applications_use_the_other_cpus() {
    let Some(apps) = run("one-fifo-free") else { return };
    let predicted: Vec<f64> = apps.iter().map(|app| ns(app, "predicted_ns")).collect();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let ratio = predicted[1] / predicted[0];
    let expected = match cpus {
        1 => 3.0,
        2 => 1.5,
        _ => 1.0,
    };
    assert!((ratio - expected).abs() < 0.05, "{predicted:?}");
    if cpus == 1 {
        return;
    }
    // Another real-time thread of the machine may hold a CPU for a while: one quiet run is enough.
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let Some(apps) = run("two-fifo-free") else { return };
        if ns(&apps[1], "start_ns") < ns(&apps[0], "finish_ns") {
            return;
        }
        seen.push(apps);
    }
    panic!("both FIFO applications run at once: {seen:?}");
}
