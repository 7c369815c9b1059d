//! Every output says the same: the verdict of the run and of each requirement, read back from each
//! export, the page and the terminal's text.

use std::collections::BTreeMap;

use rtscope_model::{record::Record, verdict::Verdict};
use serde_json::Value;

use super::{Exported, FORMATS};
use crate::{
    Judgement, judge,
    report::{html, terminal},
    test_support::Run,
};

const PLAN: &str = r#"
name = "p"
require = ["max < 200us", "missed = 0"]
[[phase]]
name = "rest"
duration = "2s"
[[phase]]
name = "busy"
duration = "2s"
require = ["p99.99 < 1ms"]
"#;

/// Verdicts by cell and requirement.
type Answers = BTreeMap<(String, String), Verdict>;

/// What an output says; none of what it doesn't hold.
struct Told {
    run: Option<Verdict>,
    requirements: Answers,
}

fn good() -> Run {
    let latencies = [10_000u64; 2_000];
    Run::new(PLAN, 1).cell(0, &[&latencies]).cell(1, &[&latencies]).end()
}

/// One latency above the limit, in the second cell.
fn late() -> Run {
    let mut late = [10_000u64; 2_000];
    late[1_234] = 300_000;
    Run::new(PLAN, 1).cell(0, &[&[10_000; 2_000]]).cell(1, &[&late]).end()
}

fn in_a_guest(run: Run) -> Run {
    run.machine(|machine| machine.virtualisation = Some("kvm".to_owned()))
}

/// Each kind of run, and the codes that its user accepts.
fn runs() -> Vec<(&'static str, Run, Vec<String>)> {
    let accepted = vec!["virtual-machine".to_owned()];
    let starved = Run::new(PLAN, 1).cell(0, &[&[10_000; 2_000]]).cell(1, &[&[]]).end();
    let mut cut = good();
    cut.events.pop();
    vec![
        ("good", good(), vec![]),
        ("late", late(), vec![]),
        ("guest", in_a_guest(good()), vec![]),
        ("guest, late", in_a_guest(late()), vec![]),
        ("guest, accepted", in_a_guest(good()), accepted.clone()),
        ("guest, late, accepted", in_a_guest(late()), accepted),
        ("page faults, late", late().tally(|tally| tally.major_faults = 1), vec![]),
        ("starved", starved, vec![]),
        ("cut short", cut, vec![]),
    ]
}

#[test]
fn every_output_has_the_same_verdicts() {
    for (name, run, accept) in runs() {
        let record = run.record();
        let judgement = judge(&record, &accept);
        let expected: Answers = judgement
            .outcomes
            .iter()
            .map(|o| ((o.name.clone(), o.requirement.to_string()), o.verdict))
            .collect();
        assert_eq!(expected.len(), 5, "{name}");
        for (output, told) in outputs(&record, &judgement) {
            assert!(told.run.is_none_or(|run| run == judgement.verdict), "{name}: {output}");
            assert_eq!(told.requirements, expected, "{name}: {output}");
        }
    }
}

#[test]
fn the_verdicts_are_those_of_the_rules() {
    let verdicts: Vec<(&str, Verdict)> = runs()
        .into_iter()
        .map(|(name, run, accept)| (name, judge(&run.record(), &accept).verdict))
        .collect();
    // 2,000 latencies are too few for p99.99: no run here passes as a whole.
    assert_eq!(
        verdicts,
        [
            ("good", Verdict::Inconclusive),
            ("late", Verdict::Fail),
            ("guest", Verdict::Inconclusive),
            ("guest, late", Verdict::Fail),
            ("guest, accepted", Verdict::Inconclusive),
            ("guest, late, accepted", Verdict::Fail),
            ("page faults, late", Verdict::Inconclusive),
            ("starved", Verdict::Inconclusive),
            ("cut short", Verdict::Inconclusive),
        ]
    );
    let rest = |run: Run, accept: &[String]| {
        let outcomes = judge(&run.record(), accept).outcomes;
        outcomes.into_iter().find(|o| o.name == "rest").expect("an outcome").verdict
    };
    assert_eq!(rest(good(), &[]), Verdict::Pass);
    assert_eq!(rest(in_a_guest(late()), &[]), Verdict::Inconclusive);
    assert_eq!(rest(in_a_guest(good()), &["virtual-machine".to_owned()]), Verdict::Pass);
}

#[test]
fn an_accepted_finding_is_named_where_the_run_is_tested() {
    let record = in_a_guest(good()).record();
    let judgement = judge(&record, &["virtual-machine".to_owned()]);
    for (output, text) in texts(&record, &judgement) {
        if ["junit", "ktap"].contains(&output) {
            assert!(!text.contains("nothing was found that questions"), "{text}");
            assert!(
                text.contains("nothing else questions the figures: this is a virtual"),
                "{text}"
            );
        }
    }
}

/// A reader of KTAP gives diagnostic lines to the result that follows them.
#[test]
fn a_reason_comes_before_its_result() {
    let record = in_a_guest(late()).record();
    let texts = texts(&record, &judge(&record, &[]));
    let lines: Vec<&str> = texts["ktap"].lines().collect();
    let reasons = lines.iter().enumerate().filter_map(|(at, line)| {
        let (name, _) = line.strip_prefix("  # ")?.split_once(": ")?;
        (name != "Subtest").then_some((at, name))
    });
    let reasons: Vec<(usize, &str)> = reasons.collect();
    assert_eq!(reasons.len(), 6);
    for (at, name) in reasons {
        let result = lines[at + 1].trim_start_matches("  not").trim_start();
        let (_, named) = result.strip_prefix("ok ").and_then(|r| r.split_once(' ')).expect("one");
        assert_eq!(named.trim_end_matches(" # ERROR inconclusive"), name);
    }
}

#[test]
fn a_case_takes_no_time_of_its_own() {
    let record = good().record();
    let texts = texts(&record, &judge(&record, &[]));
    let times = |tag: &str| -> f64 {
        let begin = format!("<{tag} ");
        let of = texts["junit"].split(&begin).skip(1);
        of.map(|part| between(part, " time=\"", "\"").parse::<f64>().expect("seconds")).sum()
    };
    assert_eq!((times("testsuites"), times("testsuite"), times("testcase")), (4.0, 4.0, 0.0));
}

/// The text of each output that is one.
fn texts(record: &Record, judgement: &Judgement) -> BTreeMap<&'static str, String> {
    let subject = Exported::new(record, judgement, None).expect("all cells");
    let of_all = FORMATS.iter().filter_map(|format| {
        let text = String::from_utf8(format.write(&subject).ok()?).ok()?;
        Some((format.name, text))
    });
    let style = terminal::Style { width: 200, colour: false };
    let ours = [
        ("the page", html::page(record, judgement)),
        ("the terminal", terminal::summary(judgement, record, style)),
    ];
    of_all.chain(ours).collect()
}

/// What each output that holds a verdict says.
fn outputs(record: &Record, judgement: &Judgement) -> Vec<(&'static str, Told)> {
    let read = |(output, text): (&'static str, String)| {
        let told = match output {
            "json" => json(&text),
            "junit" => junit(&text),
            "kcidb" => kcidb(&text),
            "ktap" => ktap(&text),
            "lava" => lava(&text),
            "openmetrics" => openmetrics(&text, judgement),
            "markdown" => markdown(&text),
            "the page" => page(&text),
            "the terminal" => on_the_terminal(&text, judgement),
            // Figures without a verdict.
            "csv" | "csv-histogram" | "csv-slices" | "csv-samples" => return None,
            other => panic!("what does {other} say of the verdict?"),
        };
        Some((output, told))
    };
    let told: Vec<_> = texts(record, judgement).into_iter().filter_map(read).collect();
    assert_eq!(told.len(), 9);
    told
}

fn verdict(word: &str) -> Verdict {
    match word.to_lowercase().as_str() {
        "measured" => Verdict::Measured,
        "pass" => Verdict::Pass,
        "fail" => Verdict::Fail,
        "inconclusive" | "unknown" => Verdict::Inconclusive,
        other => panic!("{other:?} is no verdict"),
    }
}

/// What stands between the first `from` and the `to` that follows.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{from:?} in {text}"));
    rest.split_once(to).unwrap_or_else(|| panic!("{to:?} in {rest}")).0
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&#60;", "<").replace("\\<", "<")
}

fn json(text: &str) -> Told {
    let document: Value = serde_json::from_str(text).expect("json");
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let requirements = document["requirements"].as_array().expect("a list").iter();
    Told {
        run: Some(verdict(&word(&document["verdict"]))),
        requirements: requirements
            .map(|r| ((word(&r["name"]), word(&r["requirement"])), verdict(&word(&r["verdict"]))))
            .collect(),
    }
}

fn junit(text: &str) -> Told {
    let case = |part: &str| {
        let class = between(part, "classname=\"rtscope.p.", "\"").to_owned();
        let name = unescaped(between(part, "name=\"", "\""));
        let inside = part.split_once("</testcase>").expect("an end").0;
        let verdict = match (inside.contains("<failure "), inside.contains("<error ")) {
            (true, false) => Verdict::Fail,
            (false, true) => Verdict::Inconclusive,
            _ => Verdict::Pass,
        };
        ((class, name), verdict)
    };
    let mut requirements: Answers = text.split("<testcase ").skip(1).map(case).collect();
    requirements.remove(&("run".to_owned(), "valid measurement".to_owned())).expect("the run");
    let run = between(text, "<property name=\"verdict\" value=\"", "\"");
    Told { run: Some(verdict(run)), requirements }
}

/// What a requirement says is in the test of its figure, whose status must fit.
fn kcidb(text: &str) -> Told {
    let document: Value = serde_json::from_str(text).expect("json");
    let tests = document["tests"].as_array().expect("tests");
    let mut requirements = Answers::new();
    for test in tests {
        let path = test["path"].as_str().expect("a path").trim_start_matches("rtscope.p");
        let Some(asked) = test["misc"]["requirements"].as_array() else { continue };
        for one in asked {
            let word = |key: &str| one[key].as_str().expect("a text");
            let cell = path.trim_start_matches('.').split('.').next().expect("a cell");
            let verdict = verdict(word("verdict"));
            let status = test["status"].as_str().expect("a status");
            assert!(fits(verdict, status), "{test:#}");
            requirements.insert((cell.to_owned(), word("requirement").to_owned()), verdict);
        }
    }
    let run = verdict(tests[0]["misc"]["verdict"].as_str().expect("a verdict"));
    assert!(fits(run, tests[0]["status"].as_str().expect("a status")), "{:#}", tests[0]);
    Told { run: Some(run), requirements }
}

/// Whether a status of KCIDB says no more than a verdict.
fn fits(verdict: Verdict, status: &str) -> bool {
    match verdict {
        Verdict::Pass => status == "PASS",
        Verdict::Fail => status == "FAIL",
        Verdict::Measured => status == "DONE",
        Verdict::Inconclusive => ["DONE", "ERROR", "MISS"].contains(&status),
    }
}

fn ktap(text: &str) -> Told {
    let mut requirements = Answers::new();
    let mut suite = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("  # Subtest: ") {
            suite = name.to_owned();
        }
        let inner =
            line.strip_prefix("  ").filter(|line| line.contains("ok ") && !line.contains(": "));
        let Some((word, rest)) = inner.and_then(|line| line.split_once("ok ")) else { continue };
        let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
        let verdict = match (word, directive) {
            ("", "") => Verdict::Pass,
            ("not ", "") => Verdict::Fail,
            ("not ", "ERROR inconclusive") => Verdict::Inconclusive,
            other => panic!("{other:?}"),
        };
        let (_, name) = name.split_once(' ').expect("a number");
        if name != "valid measurement" {
            requirements.insert((suite.clone(), name.to_owned()), verdict);
        }
    }
    Told { run: None, requirements }
}

fn lava(text: &str) -> Told {
    let mut requirements = Answers::new();
    for set in text.split("<LAVA_SIGNAL_TESTSET START ").skip(1) {
        let suite = set.split_once('>').expect("a name").0;
        for case in set.split("TEST_CASE_ID=require-").skip(1) {
            let id = case.split_once(' ').expect("a name").0;
            let name = match id {
                "missed-at-most-0" => "missed = 0".to_owned(),
                id => id.replace("-below-", " < "),
            };
            let result = case.split_once("RESULT=").expect("a result").1;
            let word = result.split_once('>').expect("an end").0;
            requirements.insert((suite.to_owned(), name), verdict(word));
        }
    }
    Told { run: None, requirements }
}

/// A requirement that is met or not has a sample, an inconclusive one has none.
fn openmetrics(text: &str, judgement: &Judgement) -> Told {
    let sample = |cell: &str, requirement: &str| {
        let labels = format!("cell=\"{cell}\",requirement=\"{requirement}\"}} ");
        let line =
            text.lines().find(|l| l.starts_with("rtscope_requirement_met{") && l.contains(&labels));
        match line.map(|line| line.rsplit(' ').next().expect("a value")) {
            Some("1") => Verdict::Pass,
            Some("0") => Verdict::Fail,
            None => Verdict::Inconclusive,
            Some(other) => panic!("{other}"),
        }
    };
    let asked = judgement.outcomes.iter().map(|o| (o.name.clone(), o.requirement.to_string()));
    let run = text.lines().find(|l| l.starts_with("rtscope_run_verdict{") && l.ends_with(" 1"));
    Told {
        run: run.map(|line| verdict(between(line, "verdict=\"", "\""))),
        requirements: asked.map(|of| (of.clone(), sample(&of.0, &of.1))).collect(),
    }
}

fn markdown(text: &str) -> Told {
    let table = text.split_once("| cell | requirement |").expect("a table").1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let parts: Vec<&str> = line.split(" | ").collect();
        let cell = parts[0].trim_start_matches("| ").to_owned();
        ((cell, unescaped(parts[1])), verdict(parts[2]))
    };
    let title = text.lines().next().expect("a title");
    Told { run: title.rsplit(": ").next().map(verdict), requirements: rows.map(row).collect() }
}

fn page(text: &str) -> Told {
    let table = between(text, "<table class=\"outcomes\">", "</table>");
    let row = |part: &str| {
        let class = part.split_once('"').expect("a class").0;
        let word = between(part, "<span class=\"chip\">", "</span>");
        assert_eq!(verdict(class), verdict(word));
        let requirement = unescaped(between(part, "<code>", "</code>"));
        let cell = between(part, "<td>", "</td>").to_owned();
        ((cell, requirement), verdict(word))
    };
    Told { run: None, requirements: table.split("<tr class=\"").skip(1).map(row).collect() }
}

fn on_the_terminal(text: &str, judgement: &Judgement) -> Told {
    let section = text.split_once("Requirements\n").expect("a section").1;
    let mut requirements = Answers::new();
    let mut asked = String::new();
    for line in section.lines().take_while(|line| line.starts_with("  ")) {
        let columns: Vec<&str> =
            line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let [.., word, places] = columns[..] else { panic!("{line}") };
        if columns.len() == 3 {
            asked = columns[0].to_owned();
        }
        let places = places.split_once(" (").map_or(places, |(places, _)| places);
        let of = judgement.outcomes.iter().filter(|o| o.requirement.to_string() == asked);
        for outcome in of {
            let named = places == "in every cell"
                || places.trim_start_matches("in ").split(", ").any(|name| name == outcome.name);
            if named {
                let key = (outcome.name.clone(), asked.clone());
                assert_eq!(requirements.insert(key, verdict(word)), None, "told once");
            }
        }
    }
    let word = between(text, "Verdict: ", "\n").split(' ').next().expect("a word").to_owned();
    Told { run: Some(verdict(&word)), requirements }
}
