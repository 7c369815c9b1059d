//! The observer is outside: the control thread wakes seldom and keeps off the measured CPUs.

use std::{fs, time::Duration};

use crate::support::{folder, json, kill, skip, start, wait_for};

fn cpus_online() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Times that a process's first thread went to sleep.
fn sleeps(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("the kernel counts").trim().parse().expect("a number")
}

#[test]
fn the_control_thread_wakes_at_most_ten_times_a_second() {
    let folder = folder();
    fs::write(
        folder.path().join("p.toml"),
        "name = 'p'\n[[phase]]\nname = 'rest'\nduration = '30s'\n",
    )
    .expect("a plan");
    let mut child = start(folder.path(), "run p.toml --out run --quiet");
    let slices = folder.path().join("run/slices/t0.jsonl");
    wait_for("samples", Duration::from_secs(20), || {
        fs::read_to_string(&slices).is_ok_and(|t| t.contains("cell"))
    });
    // It also sleeps when it has to wait for others' locks and disks: one of three looks without that is enough.
    let mut rates = Vec::new();
    while rates.len() < 3 && !rates.iter().any(|rate| *rate <= 10.0) {
        let (before, began) = (sleeps(child.id()), std::time::Instant::now());
        std::thread::sleep(Duration::from_secs(4));
        let slept = sleeps(child.id()) - before;
        assert!(slept > 0, "it does wake");
        rates.push(slept as f64 / began.elapsed().as_secs_f64());
    }
    kill(child.id(), "INT");
    child.wait().expect("ends");
    assert!(rates.iter().any(|rate| *rate <= 10.0), "times a second: {rates:?}");
}

#[test]
fn the_control_thread_keeps_off_the_measured_cpus() {
    if cpus_online() < 2 {
        return skip("the_control_thread_keeps_off_the_measured_cpus", "needs two CPUs");
    }
    let folder = folder();
    json(folder.path(), "run quick --duration 500ms --cpus last --out run --json");
    let events = fs::read_to_string(folder.path().join("run/events.jsonl")).expect("events");
    let started = events.lines().find(|line| line.contains("session-started")).expect("a session");
    let started: serde_json::Value = serde_json::from_str(started).expect("JSON");
    let placed = events.lines().find(|line| line.contains("thread-placed")).expect("a thread");
    let placed: serde_json::Value = serde_json::from_str(placed).expect("JSON");
    let measured = placed["found"]["cpus"].as_str().expect("CPUs");
    let control = started["control"]["cpus"].as_str().expect("CPUs");
    let control: rtscope_model::cpu::CpuSet = control.parse().expect("CPUs");
    assert!(!control.contains(measured.parse().expect("one CPU")), "{control} and {measured}");
}
