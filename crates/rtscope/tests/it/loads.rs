//! Loads by themselves and in plans: their work is proven.

use serde_json::Value;

use crate::support::{folder, json, output, processes_of_ours, root_or_skip, text};

#[test]
fn each_load_does_work_and_leaves_nothing() {
    if !root_or_skip("each_load_does_work_and_leaves_nothing") {
        return;
    }
    let folder = folder();
    let loads = [
        "cpu workers=1",
        "cpu workers=1 percent=30 kind=spin",
        "message groups=1 fds=4",
        "message groups=1 fds=4 mode=thread via=pipe",
        "memory workers=1 size=8MiB",
        "io workers=1",
        "disk workers=1",
        "network kind=udp",
        "network kind=icmp",
        "network kind=tcp",
        "network kind=udp over=veth",
        "timer",
        "serial",
        "fork workers=1",
    ];
    for load in loads {
        // Two ends that first have to find each other need a moment on a busy machine.
        let duration = if load.starts_with("network") { "3s" } else { "500ms" };
        let document = json(folder.path(), &format!("load {load} --duration {duration} --json"));
        assert!(document["work"].as_u64() > Some(0), "{load}: {document}");
        assert_eq!(document["ok"], true, "{load}: {document}");
        assert!(processes_of_ours().is_empty(), "{load}");
    }
}

#[test]
fn finite_work_is_done_exactly() {
    let folder = folder();
    let document =
        json(folder.path(), "load message groups=2 fds=3 loops=50 --duration 30s --json");
    // groups x senders x receivers x loops
    assert_eq!(document["work"], 2 * 3 * 3 * 50);
}

#[test]
fn a_phase_ends_with_its_load() {
    let folder = folder();
    let plan = "name = 'g'\n[[phase]]\nname = 'g'\nduration = '40s'\nload_ends = true\n\
                load = ['message groups=1 fds=4 loops=200']\n";
    std::fs::write(folder.path().join("g.toml"), plan).expect("a plan");
    let document = json(folder.path(), "run g.toml --out run --json");
    assert_eq!(document["cells"][0]["ended"], "load-ended");
    assert_eq!(document["cells"][0]["loads"][0]["work"], 4 * 4 * 200);
}

#[test]
fn a_load_that_can_not_run_is_said_and_the_run_goes_on() {
    let folder = folder();
    // More memory than any machine has: known only when the load has looked.
    let plan = "name = 'x'\n[[phase]]\nname = 'big'\nduration = '500ms'\n\
                load = ['memory workers=10000 size=1000GiB']\n\
                [[phase]]\nname = 'rest'\nduration = '500ms'\n";
    std::fs::write(folder.path().join("x.toml"), plan).expect("a plan");
    let measured = output(folder.path(), "run x.toml --out run --json");
    assert_eq!(measured.status.code(), Some(1), "{}", text(&measured.stderr));
    let document: serde_json::Value = serde_json::from_slice(&measured.stdout).expect("figures");
    assert_eq!(document["verdict"], "measured");
    let findings = document["findings"].to_string();
    assert!(findings.contains("load-did-not-start"), "{findings}");
    assert!(findings.contains("the run failed in: big\""), "{findings}");
    assert!(document["cells"][1]["all"]["recorded"].as_u64() > Some(0), "the rest is measured");
    // With a requirement there is no answer.
    let required = output(folder.path(), "report run --require 'max < 1h'");
    assert_eq!(required.status.code(), Some(3));
    let accepted = output(folder.path(), "report run --accept run-failed");
    assert_eq!(accepted.status.code(), Some(0), "the user answers for it");
}

/// The load of the first phase fails at once. That of the second can't be asked to end: it is killed
/// half a second later, which is no time of the phase.
#[test]
fn a_phase_ends_with_its_failed_load_and_before_its_loads_are_ended() {
    let folder = folder();
    let plan = "name = 'ends'\n[[phase]]\nname = 'fails'\nduration = '40s'\nload_ends = true\n\
                load = [\"external restart=false -- sh -c 'exit 4'\"]\n\
                [[phase]]\nname = 'stuck'\nduration = '500ms'\n\
                load = [\"external -- trap '' TERM; sleep 60\"]\n";
    std::fs::write(folder.path().join("ends.toml"), plan).expect("a plan");
    let document = json(folder.path(), "run ends.toml --out run --json");
    assert_eq!(document["cells"][0]["ended"], "failed");
    assert!(document["findings"].to_string().contains("exit code 4"), "{}", document["findings"]);
    assert_eq!(document["cells"][1]["ended"], "duration");
    assert_eq!(document["cells"][1]["loads"][0]["unloaded_ns"], 0);
    let run = folder.path().join("run");
    let events = std::fs::read_to_string(run.join("events.jsonl")).expect("events");
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let at_ns = |name: &str| {
        let found = events.iter().find(|event| event["event"] == name && event["cell"] == 1);
        found.and_then(|event| event["at_ns"].as_u64()).expect(name)
    };
    assert!(at_ns("load-ended") > at_ns("phase-ended"));
    let slices = std::fs::read_to_string(run.join("slices/t0.jsonl")).expect("slices");
    let slices = slices.lines().map(|line| serde_json::from_str::<Value>(line).expect("a slice"));
    let of_phase = slices.filter(|slice| slice["scope"]["cell"] == 1);
    let end_ns = of_phase.filter_map(|slice| slice["end_ns"].as_u64()).max().expect("a slice");
    let interval_ns = 1_000_000;
    assert!(end_ns <= at_ns("phase-ended") + interval_ns, "{end_ns}: {}", at_ns("phase-ended"));
    assert!(processes_of_ours().is_empty());
}

#[test]
fn a_load_that_dies_ends_its_phase_and_the_next_one_is_measured() {
    let folder = folder();
    let plan = "name = 'dies'\n[[phase]]\nname = 'd'\nduration = '40s'\n\
                load = [\"external restart=false -- sh -c 'sleep 0.5; exit 4'\"]\n\
                [[phase]]\nname = 'rest'\nduration = '500ms'\n";
    std::fs::write(folder.path().join("dies.toml"), plan).expect("a plan");
    let measured = output(folder.path(), "run dies.toml --out run --json");
    assert_eq!(measured.status.code(), Some(1), "{}", text(&measured.stderr));
    let document: Value = serde_json::from_slice(&measured.stdout).expect("figures");
    assert_eq!(document["cells"][0]["ended"], "failed");
    let findings = document["findings"].to_string();
    assert!(findings.contains("load-died") && findings.contains("exit code 4"), "{findings}");
    assert!(document["cells"][1]["all"]["recorded"].as_u64() > Some(0), "the rest is measured");
}

#[test]
fn a_real_time_load_is_bounded_and_the_run_comes_to_its_end() {
    if !root_or_skip("a_real_time_load_is_bounded_and_the_run_comes_to_its_end") {
        return;
    }
    let folder = folder();
    let plan = "name = 'rt'\n[sampler]\npriority = 80\n[[phase]]\nname = 'm'\nduration = '2s'\n\
                load = ['message groups=1 fds=10 policy=fifo priority=49']\n";
    std::fs::write(folder.path().join("rt.toml"), plan).expect("a plan");
    let document = json(folder.path(), "run rt.toml --out run --json");
    assert_eq!(document["cells"][0]["ended"], "duration");
    assert!(processes_of_ours().is_empty());
}

/// The run's own limit on threads that never sleep was inherited by loads, and would have ended this
/// one after 3 s.
#[test]
fn a_computing_real_time_load_is_no_runaway() {
    if !root_or_skip("a_computing_real_time_load_is_no_runaway") {
        return;
    }
    let folder = folder();
    let plan = "name = 'rt'\n[sampler]\npriority = 80\ncpus = 'last'\n[[phase]]\nname = 'c'\n\
                duration = '4500ms'\nload = ['cpu workers=1 cpus=measured policy=fifo priority=10']\n";
    std::fs::write(folder.path().join("rt.toml"), plan).expect("a plan");
    let document = json(folder.path(), "run rt.toml --out run --json");
    let load = &document["cells"][0]["loads"][0];
    assert_eq!(load["ok"], true, "{load}");
    assert_eq!(document["cells"][0]["ended"], "duration");
}

#[test]
fn loads_are_listed_and_mistakes_are_named() {
    let folder = folder();
    let list = text(&output(folder.path(), "load list").stdout);
    for load in [
        "cpu", "message", "memory", "io", "disk", "network", "timer", "serial", "video", "fork",
        "external",
    ] {
        assert!(list.contains(load), "{load}");
    }
    let wrong = output(folder.path(), "load mesage");
    assert_eq!(wrong.status.code(), Some(64));
    assert!(text(&wrong.stderr).contains("did you mean \"message\""), "{}", text(&wrong.stderr));
}
