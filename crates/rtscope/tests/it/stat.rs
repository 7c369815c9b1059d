//! `rtscope stat`: that counts are there or said to be lacking, and that the lesson of the branches is
//! right where a simulated processor counts them.

use serde_json::Value;

use crate::support::{folder, json, output, program, refused, skip, text};

fn mean<'a>(document: &'a Value, program: usize, figure: &str) -> &'a Value {
    &document["programs"][program]["figures"][figure]["mean"]
}

#[test]
fn a_program_that_fails_makes_the_counts_inconclusive_and_the_reason_is_said() {
    let folder = folder();
    let said = output(folder.path(), "stat -- false");
    assert_eq!(said.status.code(), Some(3));
    assert!(
        text(&said.stderr).contains("exit code 3: a run of the program failed"),
        "{}",
        text(&said.stderr)
    );
    assert!(text(&said.stdout).contains("false: 1 of 1 run failed (exit code 1)."));
}

#[test]
fn a_quarter_of_the_branches_is_mispredicted_unless_the_integers_are_sorted() {
    if program("valgrind").is_none() {
        skip(
            "a_quarter_of_the_branches_is_mispredicted_unless_the_integers_are_sorted",
            "without valgrind",
        );
        return;
    }
    let folder = folder();
    let document = json(folder.path(), "stat --compare --simulate --passes 100 --json --out run");
    assert_eq!(document["simulated"], true);
    let rate = |n: usize| mean(&document, n, "branch_miss_rate").as_f64().expect("a rate");
    // One of two branches a number is a toss of a coin: 25 %, less what starting the program needs and
    // what a build without optimisation adds.
    assert!((0.15..0.30).contains(&rate(0)), "unsorted: {}", rate(0));
    assert!(rate(1) < 0.02, "sorted: {}", rate(1));
    assert!(document["ratios"]["branch_misses"]["ratio"].as_f64().expect("a ratio") < 0.1);
    for lacking in ["elapsed_ns", "task_clock_ns", "cycles", "instructions_per_cycle"] {
        assert!(mean(&document, 0, lacking).is_null(), "{lacking}: {document}");
        let reason = &document["programs"][0]["figures"][lacking]["reason"];
        assert!(reason.as_str().is_some_and(|why| why.contains("not simulated")), "{reason}");
    }
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    assert!(page.contains("Simulated by valgrind") && page.contains("branch misses"));
    // Nothing of the simulator stays behind, and a simulation is the same each time.
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let short = "stat --simulate --json --passes 1";
    let misses =
        || mean(&json(folder.path(), short), 0, "branch_misses").as_f64().expect("a count");
    let (first, second) = (misses(), misses());
    assert!((first / second - 1.0).abs() < 0.02, "{first} {second}");
}

#[test]
fn a_counter_that_the_machine_lacks_is_null_with_a_reason() {
    let folder = folder();
    let document = json(folder.path(), "stat --repeat 3 --passes 50 --json");
    let figures = document["programs"][0]["figures"].as_object().expect("figures");
    assert_eq!(document["programs"][0]["runs"], 3);
    for (name, figure) in figures {
        match figure["mean"].as_f64() {
            None => assert!(figure["reason"].as_str().is_some_and(|why| !why.is_empty()), "{name}"),
            Some(value) => {
                let may_be_0 = ["context_switches", "migrations"].contains(&name.as_str());
                assert!(value > 0.0 || may_be_0, "{name}: {figure}");
                assert!(figure["low"].as_f64() <= Some(value), "{name}: {figure}");
            }
        }
    }
    assert!(figures["elapsed_ns"]["mean"].as_f64() > Some(0.0));
    // The one follows from the others, wherever they are.
    if let [Some(cpus), Some(clock), Some(elapsed)] =
        ["cpus_used", "task_clock_ns", "elapsed_ns"].map(|key| figures[key]["mean"].as_f64())
    {
        assert!(cpus > 0.0 && clock < elapsed * 1.5, "one thread on one CPU: {document}");
    }
}

#[test]
fn two_commands_are_compared_and_a_failing_one_is_said() {
    let folder = folder();
    let both = output(
        folder.path(),
        "stat --compare --repeat 2 --json -- sh -c 'echo out' -- sh -c 'sleep 0.3; exit 3'",
    );
    assert_eq!(both.status.code(), Some(3), "{}", text(&both.stderr));
    let document: Value = serde_json::from_slice(&both.stdout).expect("only JSON");
    assert!(text(&both.stderr).contains("out"), "the program's output");
    assert_eq!(document["programs"][0]["failed"], serde_json::json!([]));
    assert_eq!(document["programs"][1]["failed"][0], "exit code 3");
    let elapsed = mean(&document, 1, "elapsed_ns").as_f64();
    assert!(elapsed >= Some(3e8), "at least its sleep: {document}");
    assert!(document["ratios"]["elapsed_ns"]["ratio"].as_f64() > Some(0.0));
    for (arguments, code, part) in [
        ("stat --compare -- true", 64, "two commands"),
        ("stat -- ./no-such-program", 1, "./no-such-program"),
        ("stat --repeat 0", 64, "repeat"),
    ] {
        refused(folder.path(), arguments, code, &[part]);
    }
}
