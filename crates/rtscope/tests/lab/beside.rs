//! What a guest does beside its plan, in kernels that are there already: cyclictest, tracers, a simulated
//! GPIO chip.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{OWN, any_kernel, document, own_or_skip, ready_or_skip, room, rtscope, text};

/// A plan of one cell at rest.
const REST: &str = "
name = 'rest'
title = 'rest'
[sampler]
policy = 'fifo'
priority = 90
interval = '500us'
warmup = '20ms'
[[phase]]
name = 'rest'
cycles = 1000
";

fn run(folder: &Path, plan: &str, words: &[&str]) -> (Value, String) {
    fs::write(folder.join("plan.toml"), plan).expect("written");
    let first = ["lab", "run", "plan.toml", "--fresh", "--memory", "1024", "--out", "out"];
    let ran = rtscope(folder, &[&first[..], words].concat()).output().expect("starts");
    assert!(ran.status.success(), "{}", text(&ran));
    (document(&folder.join("out")), text(&ran))
}

#[test]
fn our_sampler_is_within_one_bucket_of_cyclictest_in_the_same_guest() {
    let test = "our_sampler_is_within_one_bucket_of_cyclictest_in_the_same_guest";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let words = ["--kernel", any_kernel(), "--with-cyclictest", "--tracer", "timerlat"];
    let (document, said) = run(room.path(), REST, &[&words[..], &["--seeds", "3"]].concat());
    let seeds = document["kernels"].as_array().expect("one of each seed");
    let pairs: Vec<&Value> = seeds.iter().map(|seed| &seed["cyclictest"][0]).collect();
    for pair in &pairs {
        for side in ["ours", "cyclictest"] {
            assert_eq!(pair[side]["count"], 1_000, "{side}: {pair}");
        }
        // In virtual time a count of instructions. This program is built with its checks, which cost some.
        let cost = |side: &str| pair["cpu_ns_per_wakeup"][side].as_f64().expect("looked at twice");
        assert!((1_000.0..100_000.0).contains(&cost("cyclictest")), "{pair}");
        assert!(cost("ours") < 1.05 * cost("cyclictest"), "{pair}");
    }
    // Each seed has its place within the kernel's tick. At a few places one instruction more decides which of two
    // timers goes first, and every eighth wake-up is later in one of the programs: two such seeds are no chance.
    let meet = pairs.iter().filter(|pair| pair["meets"] == true).count();
    assert!(pairs.len() == 3 && meet >= 2, "{pairs:?}");
    let page = fs::read_to_string(room.path().join("out/index.html")).expect("a page");
    assert!(page.contains("Our sampler and cyclictest") && said.contains("within one bucket"));
    // The kernel's own tracer saw the same order of latencies, and its file came with the record.
    let trace = &seeds[0]["traces"][0];
    let worst = trace["worst_ns"]["thread"].as_u64().expect("a latency");
    assert!((1_000..100_000).contains(&worst), "{trace}");
    let file = room
        .path()
        .join(format!("out/{}-seed1", any_kernel()))
        .join(trace["file"].as_str().expect("file"));
    assert!(fs::read_to_string(file).expect("a trace").contains("timer_latency"));
}

#[test]
fn a_gpio_chip_is_made_and_each_line_is_read_back() {
    let test = "a_gpio_chip_is_made_and_each_line_is_read_back";
    if !own_or_skip(test) {
        return;
    }
    let room = room();
    run(room.path(), REST, &["--kernel", OWN, "--gpio-sim", "8"]);
    let said = fs::read_to_string(room.path().join(format!("out/{OWN}-seed1/gpio.txt")));
    let said = said.expect("what the chip showed");
    for line in 0..8 {
        for read in ["pull-up: 1", "pull-down: 0"] {
            assert!(said.contains(&format!("line {line} {read}")), "{said}");
        }
    }
    // The wave's own code on the chip: counts, not times.
    for part in [
        "missed, 0 refused",
        "in use by \"rtscope\"",
        "edges: 200 made, 200 seen, 0 lost, 0 merged",
        // The kernel keeps 1,024 for a line.
        "overflow: 3000 made, 1024 seen, 1976 lost, 0 merged",
        "removed: ",
    ] {
        assert!(said.contains(part), "{part} of {said}");
    }
}

const SEARCH: [&str; 13] = [
    "lab",
    "bisect",
    "small.toml",
    "--good",
    "debian-stock:preempt=full",
    "--bad",
    "debian-stock:preempt=none:nohz=off:nosoftlockup",
    "--require",
    // Far from both: by hand 101 us with preemption, 746 without.
    "max < 200us",
    "--seeds",
    "4",
    "--memory",
    "1024",
];

/// Searches, and checks what is found: the answers in their order.
fn answers_of_search(room: &Path, more: &[&str]) -> Vec<String> {
    let words = [&SEARCH[..], &["--json"], more].concat();
    let ran = rtscope(room, &words).output().expect("starts");
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    let found: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(found["found"], serde_json::json!(["preempt=full becomes preempt=none"]), "{found}");
    let steps = found["steps"].as_array().expect("steps");
    for record in steps.iter().flat_map(|step| step["records"].as_array().expect("records")) {
        let record = room.join(more[1]).join(record.as_str().expect("a name"));
        assert!(record.join("verdict.json").exists(), "{}", record.display());
    }
    steps.iter().map(|step| step["answer"].as_str().expect("a word").to_owned()).collect()
}

#[test]
#[ignore = "boots guests for minutes: cargo xtask test --long runs it"]
fn the_word_that_broke_a_latency_is_found() {
    let test = "the_word_that_broke_a_latency_is_found";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let answers = answers_of_search(room.path(), &["--out", "out"]);
    assert!(answers.starts_with(&["good".to_owned(), "bad".to_owned()]), "{answers:?}");
    assert!(answers.len() <= 5, "{answers:?}");
    // Both kernels between the ends in one go, and the same again from what is there.
    let batches = ["--out", "batches", "--engine", "local", "--ways", "2"];
    let answers = answers_of_search(room.path(), &batches);
    assert_eq!(answers, ["good", "bad", "bad", "bad"]);
    assert_eq!(answers_of_search(room.path(), &batches), answers);
    let rounds = |name: &str| room.path().join("batches").join(name).exists();
    assert!(rounds("round-02") && !rounds("round-03"));
}
