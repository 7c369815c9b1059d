//! Scheduling experiments in virtual time: nothing but the guest's kernel decides who runs when, so ratios
//! are asserted that a busy machine would spoil.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{OWN, any_kernel, own_or_skip, ready_or_skip, room, rtscope, text};

/// Boots each kernel once and runs the experiments: 150 ms of work each, an instruction takes 8 ns.
fn run(folder: &Path, experiments: &[&str], words: &[&str]) -> Value {
    run_with("--work 150ms", folder, experiments, words)
}

fn run_with(work: &str, folder: &Path, experiments: &[&str], words: &[&str]) -> Value {
    let common = format!("lab sched {work} --shift 3 --fresh --memory 1024 --out out --json");
    let common: Vec<&str> = common.split(' ').collect();
    let ran = rtscope(folder, &[&common[..], words, experiments].concat());
    let ran = { ran }.output().expect("starts");
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

fn find<'a>(guest: &'a Value, name: &str) -> &'a Value {
    let all = guest["experiments"].as_array().expect("experiments");
    let found = all.iter().find(|one| one["experiment"] == name);
    let found = found.unwrap_or_else(|| panic!("{name} is missing: {all:?}"));
    for app in found["apps"].as_array().expect("apps") {
        assert_eq!(app["as_asked"], true, "{name}: {app}");
    }
    found
}

/// Milliseconds of each application.
fn ms(experiment: &Value, key: &str) -> Vec<f64> {
    let apps = experiment["apps"].as_array().expect("apps").iter();
    apps.map(|app| app[key].as_f64().unwrap_or_else(|| panic!("{key} of {app}")) / 1e6).collect()
}

/// Responses are as by hand, in ms, within a twentieth.
fn assert_responses(guest: &Value, name: &str, by_hand: &[f64]) {
    let experiment = find(guest, name);
    let found = ms(experiment, "response_ns");
    let near = |(found, by_hand): (&f64, &f64)| (found / by_hand - 1.0).abs() < 0.05;
    assert_eq!(found.len(), by_hand.len());
    assert!(
        found.iter().zip(by_hand).all(near),
        "{name} in {}: {found:?} ms, by hand {by_hand:?}",
        guest["kernel"]
    );
    for app in experiment["apps"].as_array().expect("apps") {
        assert_eq!(app["deviates"], false, "{name} in {}: {app}", guest["kernel"]);
    }
}

/// On one CPU, free to move or not: by hand, for 150 ms each and turns of 100 ms.
const BY_HAND: [(&str, &[f64]); 9] = [
    // 1 : 3 : 3.
    ("one-fifo-pinned", &[150.0, 450.0, 450.0]),
    ("one-fifo-free", &[150.0, 450.0, 450.0]),
    // 1 : 2 : 3.
    ("two-fifo-pinned", &[150.0, 300.0, 450.0]),
    ("two-fifo-free", &[150.0, 300.0, 450.0]),
    // Turns: 100, 100, 50, 50.
    ("two-rr-pinned", &[250.0, 300.0, 450.0]),
    // Works of 80, 150 and 350: turns 80, 100, 100, 50, 250.
    ("rr-quantum", &[80.0, 330.0, 580.0]),
    // Low, high, middle: low 0-20, middle 20-220, low 220-260, high 260-280, low 280-320.
    ("inversion-plain", &[320.0, 270.0, 200.0]),
    // Low 0-60, high 60-80, middle 80-280, low 280-320.
    ("inversion-inherit", &[320.0, 70.0, 260.0]),
    // Response-time analysis: 6, 6 + 6, 10 + 3 * 6 + 2 * 6.
    ("periodic-jobs", &[6.0, 12.0, 40.0]),
];

/// Its tasks are released 10 ms apart and compute for 1 ms.
#[test]
fn ordinary_tasks_keep_their_order_in_every_round_in_a_guest() {
    if !ready_or_skip("ordinary_tasks_keep_their_order_in_every_round_in_a_guest") {
        return;
    }
    let room = room();
    let document = run_with("--work 1ms", room.path(), &["ada-order"], &["--kernel", any_kernel()]);
    let order = &find(&document["guests"][0], "ada-order")["order"];
    assert_eq!((&order["rounds"], &order["kept"]), (&5.into(), &5.into()), "{order:#}");
}

#[test]
fn order_and_ratios_are_those_of_the_rules_in_a_guest_with_one_cpu() {
    let test = "order_and_ratios_are_those_of_the_rules_in_a_guest_with_one_cpu";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let mut names: Vec<&str> = BY_HAND.iter().map(|(name, _)| *name).collect();
    names.extend(["fifo-starvation", "fifo-starvation-unguarded"]);
    // The second kernel has no tracefs.
    let blind = "debian-stock:initcall_blacklist=tracefs_init";
    let document = run(room.path(), &names, &["--kernel", "debian-rt", "--kernel", blind]);
    let guests = document["guests"].as_array().expect("guests");
    assert_eq!(guests.len(), 2);
    for guest in guests {
        for (name, by_hand) in BY_HAND {
            assert_responses(guest, name, by_hand);
        }
        starvation(guest);
        let has_events = guest["kernel"] != blind;
        let source = if has_events { "sched-switch" } else { "time-stamps" };
        let pinned = find(guest, "one-fifo-pinned");
        assert_eq!((&pinned["runs_from"], &pinned["lost"]), (&source.into(), &0.into()));
        // One run, however it was seen; every four seconds the kernel's watchdog stops the CPU for a moment.
        let runs = pinned["apps"][0]["runs"].as_array().expect("runs");
        assert!((1..=2).contains(&runs.len()), "{runs:?}");
    }
    jobs(&guests[0]);
    let page = fs::read_to_string(room.path().join("out/index.html")).expect("a page");
    let own = "debian-rt/inversion-plain/report.html";
    assert!(page.contains(own) && room.path().join("out").join(own).exists());
}

/// With throttling the ordinary one goes on in the first pause of the FIFO one, which is 950 ms of a second
/// that began nobody knows when; without, it waits for all.
fn starvation(guest: &Value) {
    let guarded = find(guest, "fifo-starvation");
    let [fifo, ordinary] = [&guarded["apps"][0], &guarded["apps"][1]];
    let finish = |app: &Value| app["finish_ns"].as_f64().expect("a time") / 1e6;
    // By hand: from 980 to 1930.
    assert!((930.0..2_000.0).contains(&finish(ordinary)), "{guarded:#}");
    assert!(finish(ordinary) < finish(fifo), "{guarded:#}");
    assert_eq!(ordinary["deviates"], false, "{ordinary}");
    assert!(ordinary["throttled_ns"].is_null(), "an ordinary one is never throttled");
    let unguarded = find(guest, "fifo-starvation-unguarded");
    assert!(
        finish(&unguarded["apps"][0]) < finish(&unguarded["apps"][1]),
        "FIFO ends first: {unguarded:#}"
    );
    let held_up = |of: &Value| of["apps"][0]["throttled_ns"].as_f64().map(|ns| ns / 1e6);
    if guarded["runs_from"] == "sched-switch" {
        // 50 ms of each second, twice or three times; a tick is 4 ms.
        let pause = held_up(guarded).expect("events show it");
        assert!((40.0..160.0).contains(&pause), "{pause} ms: {guarded:#}");
        assert!(held_up(unguarded).expect("events show it") < 1.0, "{unguarded:#}");
    } else {
        assert_eq!(held_up(guarded), None, "stamps of one's own don't tell why one waited");
    }
}

/// Each job has its CPU time, and was preempted as often as others came.
fn jobs(guest: &Value) {
    let periodic = find(guest, "periodic-jobs");
    let of = |app: usize| periodic["apps"][app]["jobs"].as_array().expect("jobs").clone();
    for (app, work_ms) in [(0, 6.0), (1, 6.0), (2, 10.0)] {
        for job in of(app) {
            let cpu_ms = job["cpu_ns"].as_f64().expect("a time") / 1e6;
            assert!((cpu_ms / work_ms - 1.0_f64).abs() < 0.1, "{job}");
            assert_eq!((&job["cpus"], &job["migrations"]), (&"0".into(), &0.into()), "{job}");
            assert_eq!(job["throttled_ns"], 0, "{job}");
            // The lowest one is done when its period is over, by hand: it may be late.
            assert!(app == 2 || job["in_time"] == true, "{job}");
        }
    }
    let preemptions = |job: &Value| job["preemptions"].as_u64().expect("a count");
    // The kernel's watchdog alone runs before the highest.
    assert!(of(0).iter().map(preemptions).sum::<u64>() <= 2, "the highest: {periodic:#}");
    // By hand: 12-14 and 18-24, 30-32: released at 14 and 28 the first takes the CPU from it, at 24 the second.
    assert!(preemptions(&of(2)[0]) >= 2, "the lowest: {periodic:#}");
}

#[test]
fn free_applications_run_at_once_in_a_guest_with_two_cpus() {
    let test = "free_applications_run_at_once_in_a_guest_with_two_cpus";
    if !own_or_skip(test) {
        return;
    }
    let room = room();
    let names = ["one-fifo-pinned", "two-fifo-free", "one-fifo-free"];
    let document = run(room.path(), &names, &["--kernel", OWN, "--smp", "2"]);
    let guest = &document["guests"][0];
    assert_responses(guest, "one-fifo-pinned", BY_HAND[0].1);
    // The emulator lets the CPUs take turns: two that compute at once take as long as one after the other, and on a busy
    // machine one of them may take much longer. So order and overlap are shown, and no times.
    let both = find(guest, "two-fifo-free");
    let (starts, ends) = (ms(both, "start_ns"), ms(both, "finish_ns"));
    assert!(starts[1] < ends[0] && starts[0] < ends[1], "both FIFO ones at once: {both:#}");
    assert!(ends[0].min(ends[1]) < ends[2], "the ordinary one waits for a CPU: {both:#}");
    // An ordinary one beside FIFO, or both ordinary ones after it: an RT kernel ends an ordinary thread's sleep in a
    // thread of its own, which waits with the rest if the sleep began on the CPU where FIFO computes.
    let one = find(guest, "one-fifo-free");
    assert!(compute_at_once(one), "two applications on two CPUs at the same time: {one:#}");
}

/// Whether two applications ran on different CPUs at the same time.
fn compute_at_once(experiment: &Value) -> bool {
    let runs = |app: &Value| app["runs"].as_array().expect("runs").clone();
    let apps = experiment["apps"].as_array().expect("applications");
    let at = |run: &Value, key: &str| run[key].as_u64().expect("a number");
    let overlap = |a: &Value, b: &Value| {
        at(a, "cpu") != at(b, "cpu")
            && at(a, "start_ns") < at(b, "end_ns")
            && at(b, "start_ns") < at(a, "end_ns")
    };
    apps.iter().enumerate().any(|(index, app)| {
        apps[index + 1..].iter().any(|other| {
            runs(app).iter().any(|run| runs(other).iter().any(|of_other| overlap(run, of_other)))
        })
    })
}

#[test]
fn an_experiment_that_can_t_be_run_in_a_guest_is_said() {
    let room = room();
    let said = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let ran = rtscope(room.path(), &words).output().expect("starts");
        (ran.status.code(), text(&ran))
    };
    let (code, text) = said("lab sched one-fifo-pined --kernel debian-rt");
    assert!(code == Some(64) && text.contains("one-fifo-pinned"), "{text}");
    let (code, text) = said("lab sched rr-quantum rr-quantum --kernel debian-rt");
    assert!(code == Some(64) && text.contains("named twice"), "{text}");
}
