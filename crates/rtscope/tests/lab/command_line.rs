//! What users type at the lab: plans and their options, kernels and their names.

use std::{fs, path::Path};

use crate::{document, ready_or_skip, room, rtscope, text};

/// Runs the lab; its exit code and what it says.
fn lab(folder: &Path, line: &str, more: &[&str]) -> (Option<i32>, String) {
    let words: Vec<&str> = ["lab"].into_iter().chain(line.split(' ')).collect();
    let ran = rtscope(folder, &[&words[..], more].concat()).output().expect("starts");
    (ran.status.code(), text(&ran))
}

#[test]
fn the_default_plan_runs_in_the_guest_as_the_options_shape_it() {
    let test = "the_default_plan_runs_in_the_guest_as_the_options_shape_it";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let line =
        "run --kernel debian-rt --memory 1024 --out out --interval 700us --priority 37 --cycles 23";
    let (code, said) = lab(room.path(), line, &["--require", "missed = 0"]);
    assert!(matches!(code, Some(0 | 2 | 3)), "{said}");
    let document = document(&room.path().join("out"));
    let cells = document["kernels"][0]["cells"].as_array().expect("cells").iter();
    let seen: Vec<_> =
        cells.map(|cell| (cell["name"].as_str(), cell["all"]["recorded"].as_u64())).collect();
    let expected = ["rest", "message", "disk"].map(|name| (Some(name), Some(23)));
    assert_eq!(seen, expected, "{said}");
    let plan = room.path().join("out/debian-rt-seed1/plan.toml");
    let plan = fs::read_to_string(plan).expect("the plan of the guest");
    for line in ["interval = \"700us\"", "priority = 37", "cycles = 23"] {
        assert!(plan.contains(line), "{line}: {plan}");
    }
}

#[test]
fn what_makes_no_sense_in_a_guest_is_refused_before_one_boots() {
    let room = room();
    for (line, why) in [
        ("run --kernel x --set governor=performance", "one frequency"),
        ("matrix --kernel x --set idle-state=0", "no idle states"),
        ("sched --kernel x --interval 1ms", "an experiment has no sampler"),
        ("sched --kernel x --cycles 5", "--work sets"),
    ] {
        let (code, said) = lab(room.path(), line, &[]);
        assert_eq!(code, Some(64), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
    let bisect = "bisect --good x --bad y --at-most 1h";
    let (code, said) = lab(room.path(), bisect, &["--until", "max < 1ms once in 1h"]);
    assert!(code == Some(64) && said.contains("hours on the machine"), "{said}");
}
