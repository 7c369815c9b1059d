//! The shipped plans: listed, shown, checked, and run for a moment.

use crate::support::{folder, json, output, root_or_skip, text};

const PLANS: [&str; 15] = [
    "quick",
    "soak",
    "network",
    "fieldbus",
    "goperf",
    "godd",
    "stress",
    "lab",
    "policies",
    "vendor-net",
    "vendor-toggle",
    "vendor-shield",
    "osadl",
    "load-matrix",
    "cost",
];

/// Plans for kernels in an emulator, whose tests run them there.
const LAB_PLANS: [&str; 3] = ["lab-quick", "lab-matrix", "lab-course"];

#[test]
fn plans_are_listed_shown_and_checked() {
    let folder = folder();
    let list = json(folder.path(), "plan list --json");
    let names: Vec<&str> =
        list.as_array().expect("rows").iter().filter_map(|p| p["name"].as_str()).collect();
    let all = PLANS.into_iter().chain(LAB_PLANS);
    assert_eq!(names, all.clone().collect::<Vec<_>>());
    for name in all {
        let shown = output(folder.path(), &format!("plan show {name}"));
        std::fs::write(folder.path().join("copy.toml"), &shown.stdout).expect("a copy");
        for plan in [name, "copy.toml"] {
            let checked = output(folder.path(), &format!("plan check {plan}"));
            assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
        }
        let resolved = output(folder.path(), &format!("plan show {name} --resolved"));
        std::fs::write(folder.path().join("resolved.toml"), &resolved.stdout).expect("a copy");
        let checked = output(folder.path(), "plan check resolved.toml");
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    }
}

#[test]
fn every_shipped_plan_runs_for_a_moment() {
    if !root_or_skip("every_shipped_plan_runs_for_a_moment") {
        return;
    }
    let folder = folder();
    for name in PLANS {
        let document =
            json(folder.path(), &format!("run {name} --duration 1s --out {name} --json"));
        for cell in document["cells"].as_array().expect("cells") {
            let all = &cell["all"];
            assert!(all["recorded"].as_u64() > Some(0), "{name}: {}", cell["name"]);
            let count = |key: &str| all[key].as_u64().expect("a count");
            assert_eq!(count("planned"), count("recorded") + count("missed"), "{name}");
            for load in cell["loads"].as_array().expect("loads") {
                assert_eq!(load["ok"], true, "{name}: {load}");
            }
        }
    }
}

#[test]
fn a_record_repeats_itself() {
    let folder = folder();
    json(folder.path(), "run quick --duration 1s --interval 2ms --out first --json");
    let again = json(folder.path(), "run first/plan.toml --out second --json");
    assert_eq!(again["cells"][0]["cpus"][0]["interval_ns"], 2_000_000);
}
