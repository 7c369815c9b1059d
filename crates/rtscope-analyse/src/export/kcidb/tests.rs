use rtscope_model::{
    event::{EndReason, Event},
    record::Record,
};

use super::*;
use crate::{judge, test_support::Run};

const PLAN: &str = r#"
name = "two phases.v1"
title = "Two"
require = ["max < 200us", "missed = 0"]
[[phase]]
name = "rest"
duration = "2s"
[[phase]]
name = "busy / disk"
duration = "2s"
require = ["max < 50us", "p99.99 < 1ms"]
"#;

fn run(busy_ns: u64) -> Run {
    let mut busy = [10_000_u64; 2_000];
    busy[700] = busy_ns;
    Run::new(PLAN, 1).cell(0, &[&[10_000; 2_000]]).cell(1, &[&busy]).end()
}

fn exported(record: &Record, accept: &[String], submission: Submission) -> Value {
    let judgement = judge(record, accept);
    let mut subject = Exported::new(record, &judgement, None).expect("all cells");
    subject.submission = submission;
    let bytes = (FORMAT.write)(&subject).expect("written");
    serde_json::from_slice(&bytes).expect("JSON")
}

fn of(record: &Record) -> Value {
    exported(record, &[], Submission::default())
}

/// Status and whether there is a number, of a path below the run's.
fn status(document: &Value, path: &str) -> (String, bool) {
    let path = format!("rtscope.two-phases_v1{path}");
    let tests = document["tests"].as_array().expect("tests");
    let found: Vec<&Value> = tests.iter().filter(|test| test["path"] == path.as_str()).collect();
    let [test] = found[..] else { panic!("{path}: {document:#}") };
    (test["status"].as_str().expect("a status").to_owned(), test["number"].is_object())
}

#[test]
fn each_figure_says_what_its_requirements_say() {
    let document = of(&run(90_000).record());
    let of = |path: &str| status(&document, path);
    assert_eq!(of(""), ("FAIL".to_owned(), false));
    assert_eq!(of(".rest.max"), ("PASS".to_owned(), true));
    assert_eq!(of(".rest.missed"), ("PASS".to_owned(), true));
    assert_eq!(of(".rest.mean"), ("DONE".to_owned(), true));
    // One of two requirements on the maximum is broken.
    assert_eq!(of(".busy-disk.max"), ("FAIL".to_owned(), true));
    // Too few wake-ups for that quantile.
    assert_eq!(of(".busy-disk.p99_99"), ("DONE".to_owned(), true));
    let tests = document["tests"].as_array().expect("tests");
    let open =
        tests.iter().find(|test| test["misc"]["requirements"][0]["verdict"] == "inconclusive");
    let why = &open.expect("an open question")["misc"]["inconclusive"];
    assert!(why[0].as_str().is_some_and(|why| why.contains("2,000")), "{why}");
    let max = tests.iter().find(|test| test["path"] == "rtscope.two-phases_v1.busy-disk.max");
    let max = max.expect("a test");
    assert_eq!(max["number"], json!({ "value": 9e-5, "unit": "s", "prefix": "metric" }));
    assert_eq!(max["start_time"], "2025-01-02T03:04:07Z");
    assert_eq!(max["duration"], 2.0);
    let ids: std::collections::BTreeSet<&str> =
        tests.iter().filter_map(|test| test["id"].as_str()).collect();
    assert_eq!(ids.len(), tests.len(), "{ids:?}");
}

#[test]
fn what_was_cut_is_an_error_and_what_never_began_a_miss() {
    let mut cut = Run::new(PLAN, 1).cell(0, &[&[10_000; 2_000]]).end();
    cut.events.pop();
    let document = of(&cut.record());
    assert_eq!(status(&document, ""), ("ERROR".to_owned(), false));
    // It came to its end, but nobody may trust a run that was cut.
    assert_eq!(status(&document, ".rest.max"), ("DONE".to_owned(), true));
    assert_eq!(status(&document, ".busy-disk.max"), ("MISS".to_owned(), false));
    let mut within = run(10_000);
    let last = within.events.iter().rposition(|one| matches!(one.event, Event::PhaseEnded { .. }));
    within.events.truncate(last.expect("an end of a phase"));
    let document = of(&within.record());
    assert_eq!(status(&document, ".busy-disk.max"), ("ERROR".to_owned(), true));
    // A latency that was seen was seen.
    let mut late = run(90_000);
    late.events.truncate(last.expect("an end of a phase"));
    assert_eq!(status(&of(&late.record()), ".busy-disk.max").0, "FAIL");
    for why in [EndReason::Interrupted, EndReason::Failed] {
        let mut ended = run(10_000);
        ended.events.last_mut().expect("an end").event = Event::run_ended(why);
        assert_eq!(status(&of(&ended.record()), "").0, "ERROR", "{why:?}");
    }
}

/// A stall swallows activations, and a requirement counts the time that they waited.
#[test]
fn a_number_is_the_one_that_was_judged() {
    let mut stall = [10_000_u64; 2_000];
    stall[700] = 90_500_000;
    let plan =
        "name = \"p\"\nrequire = [\"p99 < 1ms\"]\n[[phase]]\nname = \"a\"\nduration = \"2s\"";
    let document = of(&Run::new(plan, 1).cell(0, &[&stall]).end().record());
    let tests = document["tests"].as_array().expect("tests");
    let p99 = tests.iter().find(|test| test["path"] == "rtscope.p.a.p99").expect("a test");
    let ms = p99["number"]["value"].as_f64().expect("a number") * 1e3;
    let said = p99["comment"].as_str().expect("a sentence");
    assert!(ms > 1.0 && said.contains(&format!("is {ms:.1} ms")), "{ms}: {said}");
}

#[test]
fn a_year_that_no_date_can_have_is_left_out() {
    let mut record = run(10_000).record();
    assert!(of(&record)["tests"][0]["start_time"].is_string());
    for stamped in &mut record.events {
        if let Event::RunStarted { wall_clock, .. } = &mut stamped.event {
            *wall_clock = "-009998-01-01T00:00:00Z".to_owned();
        }
    }
    assert!(of(&record)["tests"][0].get("start_time").is_none());
}

#[test]
fn an_open_question_is_no_error() {
    let in_a_guest = run(10_000).machine(|machine| machine.virtualisation = Some("kvm".to_owned()));
    let document = of(&in_a_guest.record());
    assert_eq!(status(&document, "").0, "DONE");
    assert_eq!(status(&document, ".rest.max").0, "DONE");
    let why = document["tests"][0]["misc"]["inconclusive"][0].as_str().expect("a reason");
    assert!(why.contains("virtual machine"), "{why}");
}

#[test]
fn the_build_is_the_one_that_was_named_or_comes_along() {
    let record = run(10_000).record();
    let document = of(&record);
    assert_eq!(document["builds"][0]["id"], document["tests"][0]["build_id"]);
    assert_eq!(document["builds"][0]["checkout_id"], document["checkouts"][0]["id"]);
    assert_eq!(document["builds"][0]["id"], "rtscope:6.12.0-rt");
    let origin = "my_lab".parse().expect("an origin");
    let build = Some("maestro:68 c1".parse().expect("a build"));
    let named = exported(&record, &[], Submission { origin, build, ..Submission::default() });
    assert!(named.get("builds").is_none() && named.get("checkouts").is_none(), "{named:#}");
    let first = &named["tests"][0];
    assert_eq!((&first["origin"], &first["build_id"]), (&json!("my_lab"), &json!("maestro:68 c1")));
    assert!(first["id"].as_str().is_some_and(|id| id.starts_with("my_lab:two-phases.v1-2025-")));
    // The same record has the same names, however it is judged; another one has others.
    let ids = |document: &Value| document["tests"][0]["id"].clone();
    let accept = vec!["virtual-machine".to_owned()];
    assert_eq!(ids(&document), ids(&exported(&record, &accept, Submission::default())));
    assert_ne!(ids(&document), ids(&of(&run(10_001).record())));
}

#[test]
fn names_are_those_of_the_schema_and_of_the_kernel() {
    for (machine, called) in [
        ("x86_64", "x86_64"),
        ("aarch64", "arm64"),
        ("armv7l", "arm"),
        ("riscv64", "riscv"),
        ("A-b", "b"),
    ] {
        assert_eq!(architecture(machine), called);
    }
    assert_eq!(path("p99.9", &["a b", "\u{e4}", "c_d-e"]), "rtscope.p99_9.a-b.-.c_d-e");
}

#[test]
fn a_board_is_compatible_with_what_its_device_tree_says() {
    let board = run(10_000).machine(|machine| {
        machine.machine_model = Some("A board".to_owned());
        // The schema takes neither blanks nor empty parts.
        machine.compatible =
            ["me,board-1", "me,soc", "bad one", "bad,"].map(str::to_owned).to_vec();
    });
    let environment = &of(&board.record())["tests"][0]["environment"];
    assert_eq!(environment["compatible"], json!(["me,board-1", "me,soc"]));
    assert_eq!(environment["comment"], "A board");
    assert_eq!(environment["misc"]["kernel_release"], "6.12.0-rt");
    assert!(environment["misc"].get("kernel_command_line").is_none(), "it isn't known");
}

#[test]
fn an_import_needs_the_name_of_its_build() {
    let printed =
        "T: 0 (18607) P:80 I:1000 C:   3000 Min:      4 Act:   10 Avg:    9 Max:      98\n";
    let import = crate::export::tests::imported(printed, None);
    let judgement = judge(&import, &[]);
    let mut subject = Exported::new(&import, &judgement, None).expect("all cells");
    let refused = (FORMAT.write)(&subject).expect_err("no kernel is known");
    assert!(refused.contains("--build-id"), "{refused}");
    subject.submission.build = Some("maestro:1".parse().expect("a build"));
    let document: Value =
        serde_json::from_slice(&(FORMAT.write)(&subject).expect("written")).expect("JSON");
    let test = &document["tests"][0];
    assert_eq!(test["status"], "DONE");
    assert!(test.get("start_time").is_none(), "{test:#}");
}
