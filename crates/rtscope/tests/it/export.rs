//! Exports, each read back by a reader that others wrote: what a CI server, a collector or a lab
//! would make of them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::support::{folder, json, output, output_of, program, refused, skip, text, words};

/// A copy of a shipped record, since a page is written beside what is judged: three cells, measured in a
/// guest of the lab.
fn record(folder: &Path) -> &'static str {
    let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compare/stock");
    let to = folder.join("run");
    fs::create_dir_all(to.join("slices")).expect("a folder");
    for part in ["", "slices"] {
        let entries = fs::read_dir(from.join(part)).expect("a folder").flatten();
        for file in entries.filter(|entry| entry.path().is_file()) {
            fs::copy(file.path(), to.join(part).join(file.file_name())).expect("copies");
        }
    }
    "run"
}

/// Two requirements, of which the last cell breaks one; `virtual-machine` is answered for.
const TERMS: &str = "--require 'max < 20us' --require 'missed = 0' --accept virtual-machine";

fn exported(folder: &Path, format: &str, run: &str) -> String {
    let output = output(folder, &format!("export {run} --format {format} {TERMS}"));
    assert_eq!(output.status.code(), Some(0), "{format}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What Debian's Python says: its modules are not those of another Python in the path.
pub(crate) fn python(
    test: &str,
    module: &str,
    package: &str,
    folder: &Path,
    script: &str,
) -> Option<Value> {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        skip(test, "without python3");
        return None;
    }
    let has = output_of(Command::new(python).args(["-c", &format!("import {module}")]));
    if !has.status.success() {
        skip(test, &format!("without {package}"));
        return None;
    }
    let output = output_of(Command::new(python).args(["-c", script]).current_dir(folder));
    let said = text(&output.stdout);
    let value = serde_json::from_str(&said);
    Some(value.unwrap_or_else(|e| panic!("{e}: {said}{}", text(&output.stderr))))
}

#[test]
fn several_formats_go_to_one_folder_and_one_to_the_screen() {
    let folder = folder();
    let run = record(folder.path());
    let line = format!("export {run} --format csv,junit,markdown --out results");
    let done = output(folder.path(), &line);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!((text(&done.stdout).as_str(), text(&done.stderr).lines().count()), ("", 3));
    let mut names: Vec<String> = fs::read_dir(folder.path().join("results"))
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["csv.csv", "junit.xml", "markdown.md"]);
    let screen = output(folder.path(), &format!("export {run} --format csv"));
    let file = fs::read(folder.path().join("results/csv.csv")).expect("a file");
    assert_eq!(screen.stdout, file, "the same bytes");
    let one = output(folder.path(), &format!("export {run} -f csv -o one.csv"));
    assert_eq!(one.status.code(), Some(0));
    assert_eq!(fs::read(folder.path().join("one.csv")).expect("a file"), file);
    for (wrong, said) in [
        (format!("export {run} --format csv,junit"), "--out"),
        (format!("export {run} --format cyclictest"), "rest, message, disk"),
        (format!("export {run}@idle --format csv"), "no cell \"idle\""),
        (format!("export {run} --format xml"), "possible values: csv"),
    ] {
        let output = output(folder.path(), &wrong);
        assert_eq!(output.status.code(), Some(64), "{wrong}");
        assert!(text(&output.stderr).contains(said), "{wrong}: {}", text(&output.stderr));
    }
    // The document is the one that `report` prints.
    let here = folder.path();
    assert_eq!(
        json(here, &format!("export {run} --format json")),
        json(here, &format!("report {run} --json"))
    );
}

/// The record is a guest's: without an acceptance it is inconclusive.
#[test]
fn what_was_accepted_stays_accepted() {
    let folder = folder();
    let (here, run) = (folder.path(), record(folder.path()));
    let verdict =
        |line: &str| json(here, &format!("{line} --require 'max < 1s'"))["verdict"].clone();
    assert_eq!(verdict("report run --json"), "inconclusive");
    assert!(!here.join("run/accepted.json").exists(), "nothing was accepted");
    let elsewhere = "report run --json --accept virtual-machine --out page.html";
    assert_eq!(verdict(elsewhere), "pass");
    assert_eq!(verdict("report run --json"), "inconclusive", "--out leaves the record as it is");
    assert_eq!(verdict("report run --json --accept virtual-machine --accept typo"), "pass");
    let kept = fs::read_to_string(here.join("run/accepted.json")).expect("a file");
    assert_eq!(kept, "{\"format\":1,\"accepted\":[\"virtual-machine\"]}\n");
    for line in ["report run --json", "export run --format json"] {
        assert_eq!(verdict(line), "pass", "{line}");
    }
    let findings = json(here, "claim run --limit 1s --once-in 1h --json")["reasons"].to_string();
    assert!(!findings.contains("virtual machine"), "a claim takes it too: {findings}");
    let page = fs::read_to_string(here.join("run/verdict.json")).expect("a file");
    assert!(page.contains("\"verdict\": \"pass\""), "{page}");
    fs::write(here.join("run/accepted.json"), "{\"format\":1,\"accep").expect("a file");
    let damaged = json(here, &format!("report {run} --json --require 'max < 1s'"));
    assert_eq!(damaged["verdict"], "inconclusive");
    let codes = damaged["findings"].as_array().expect("a list").iter().map(|one| &one["code"]);
    assert!(codes.into_iter().any(|code| code == "accepted-unreadable"), "{damaged}");
}

#[test]
fn csv_is_read_by_python() {
    let test = "csv_is_read_by_python";
    let folder = folder();
    for format in ["csv", "csv-histogram", "csv-slices"] {
        fs::write(
            folder.path().join(format),
            exported(folder.path(), format, record(folder.path())),
        )
        .expect("a file");
    }
    let script = "import csv, json\n\
        read = lambda name: list(csv.DictReader(open(name, newline=''), strict=True))\n\
        print(json.dumps({name: read(name) for name in ('csv', 'csv-histogram', 'csv-slices')}))";
    let Some(read) = python(test, "csv", "python3", folder.path(), script) else { return };
    let figures = read["csv"].as_array().expect("rows");
    assert_eq!(figures.len(), 3);
    assert_eq!((&figures[2]["cell"], &figures[2]["max_ns"]), (&"disk".into(), &"58445".into()));
    let counts = |name: &str, column: &str| -> u64 {
        let rows = read[name].as_array().expect("rows").iter();
        rows.map(|row| row[column].as_str().and_then(|n| n.parse::<u64>().ok()).expect("a count"))
            .sum()
    };
    let all = (
        counts("csv", "recorded"),
        counts("csv-histogram", "count"),
        counts("csv-slices", "recorded"),
    );
    assert_eq!(all, (6_000, 6_000, 6_000));
}

#[test]
fn junit_is_read_by_junitparser() {
    let test = "junit_is_read_by_junitparser";
    let folder = folder();
    fs::write(
        folder.path().join("run.xml"),
        exported(folder.path(), "junit", record(folder.path())),
    )
    .expect("a file");
    let script = "import json, junitparser\n\
        xml = junitparser.JUnitXml.fromfile('run.xml')\n\
        of = lambda case: [[type(result).__name__, result.type] for result in case.result]\n\
        print(json.dumps({'tests': xml.tests, 'failures': xml.failures, 'errors': xml.errors,\n\
            'suites': [[suite.name, suite.tests, [[case.name, case.classname, of(case)] for case in suite],\n\
                {p.name: p.value for p in suite.properties()}] for suite in xml]}))";
    let package = "python3-junitparser";
    let Some(read) = python(test, "junitparser", package, folder.path(), script) else { return };
    assert_eq!(
        (&read["tests"], &read["failures"], &read["errors"]),
        (&7.into(), &1.into(), &0.into())
    );
    let suites = read["suites"].as_array().expect("suites");
    let names: Vec<_> = suites.iter().filter_map(|suite| suite[0].as_str()).collect();
    assert_eq!(names, ["run", "rest", "message", "disk"]);
    let failed =
        serde_json::json!(["max < 20us", "rtscope.lab-quick.disk", [["Failure", "requirement"]]]);
    assert_eq!(suites[3][2][0], failed);
    assert_eq!(suites[3][2][1][2], serde_json::json!([]), "the other is met");
    assert_eq!(suites[3][3]["latency_ns_max"], "58445");
}

#[test]
fn openmetrics_is_read_by_the_prometheus_client() {
    let test = "openmetrics_is_read_by_the_prometheus_client";
    let folder = folder();
    fs::write(
        folder.path().join("run.prom"),
        exported(folder.path(), "openmetrics", record(folder.path())),
    )
    .expect("a file");
    // The second is the older text format, which node_exporter reads.
    let script = "import json\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as new\n\
        from prometheus_client.parser import text_string_to_metric_families as old\n\
        text = open('run.prom').read()\n\
        show = lambda read: {f.name: [f.type, [[s.name, s.labels, s.value] for s in f.samples]] for f in read(text)}\n\
        print(json.dumps([show(new), show(old)]))";
    let package = "python3-prometheus-client";
    let Some(read) =
        python(test, "prometheus_client.openmetrics.parser", package, folder.path(), script)
    else {
        return;
    };
    for families in read.as_array().expect("both") {
        let of = |family: &str, labels: &[(&str, &str)]| -> Vec<f64> {
            let samples = families[family][1].as_array().expect("a family").iter();
            let has =
                |sample: &&Value| labels.iter().all(|(name, value)| sample[1][name] == *value);
            samples.filter(has).filter_map(|sample| sample[2].as_f64()).collect()
        };
        assert_eq!(families["rtscope_wakeup_latency_seconds"][0], "histogram");
        let bound = [("cell", "disk"), ("le", "+Inf")];
        assert_eq!(of("rtscope_wakeup_latency_seconds", &bound), [2_000.0]);
        assert_eq!(of("rtscope_wakeup_latency_max_seconds", &[("cell", "disk")]), [58.445e-6]);
        let met =
            |cell| of("rtscope_requirement_met", &[("cell", cell), ("requirement", "max < 20us")]);
        assert_eq!((met("rest"), met("disk")), (vec![1.0], vec![0.0]));
        assert_eq!(of("rtscope_run_verdict", &[("verdict", "fail")]), [1.0]);
    }
}

#[test]
fn ktap_is_read_by_prove() {
    let test = "ktap_is_read_by_prove";
    if program("prove").is_none() {
        skip(test, "without perl's prove");
        return;
    }
    let folder = folder();
    let tap = exported(folder.path(), "ktap", record(folder.path()));
    fs::write(folder.path().join("run.t"), &tap).expect("a file");
    let words = words("--exec cat --comments --verbose run.t");
    let prove = output_of(Command::new("prove").args(words).current_dir(folder.path()));
    let said = text(&prove.stdout);
    assert!(
        said.contains("Failed test:  4") && said.contains("Failed 1/4 subtests"),
        "{said}{tap}"
    );
    assert!(!said.contains("Parse errors"), "{said}");
    // Two levels, each with a plan that holds: a line a test, numbered from 1.
    let plans: usize =
        tap.lines().filter_map(|line| line.trim().strip_prefix("1..")?.parse::<usize>().ok()).sum();
    let is_result =
        |line: &&str| line.trim().starts_with("ok ") || line.trim().starts_with("not ok ");
    assert_eq!((plans, tap.lines().filter(is_result).count()), (11, 11), "{tap}");
}

/// LAVA splits a signal at blanks and each word at `=`; it knows four results.
#[test]
fn lava_s_lines_have_the_form_that_it_splits() {
    let folder = folder();
    let lines = exported(folder.path(), "lava", record(folder.path()));
    let (mut set, mut cases) = (None, Vec::new());
    for line in lines.lines() {
        let signal = line.strip_prefix("<LAVA_SIGNAL_").and_then(|rest| rest.strip_suffix('>'));
        let (name, parameters) =
            signal.and_then(|signal| signal.split_once(' ')).expect("a signal");
        assert!(!parameters.contains(['<', '>']), "{line}");
        match name {
            "TESTSET" => set = parameters.strip_prefix("START ").map(str::to_owned),
            "TESTCASE" => {
                let pairs: Vec<(&str, &str)> = parameters
                    .split(' ')
                    .map(|word| word.split_once('=').expect("a pair"))
                    .collect();
                let of = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
                let result = of("RESULT").expect("a result");
                assert!(["pass", "fail", "skip", "unknown"].contains(&result), "{line}");
                assert_eq!(of("UNITS").is_some(), of("MEASUREMENT").is_some(), "{line}");
                let measured =
                    of("MEASUREMENT").map(|value| value.parse::<f64>().expect("a number"));
                let id = of("TEST_CASE_ID").expect("a name").to_owned();
                cases.push((set.clone().expect("a set"), id, result.to_owned(), measured));
            }
            other => panic!("{other}"),
        }
    }
    let of = |set: &str, id: &str| {
        let case = cases.iter().find(|case| case.0 == set && case.1 == id).expect("a case");
        (case.2.as_str(), case.3)
    };
    assert_eq!(of("disk", "max"), ("pass", Some(58.445)));
    assert_eq!(of("disk", "require-max-below-20us"), ("fail", None));
    assert_eq!(of("rest", "require-missed-at-most-0"), ("pass", None));
    assert_eq!(of("run", "valid-measurement"), ("pass", None));
}

/// What KernelCI's own package makes of files: the schema's version, and of each test of each file its path, status and value.
pub(crate) const KCIDB: &str = "\
import json, sys
import kcidb_io
schema = kcidb_io.schema.LATEST
files = {}
for name in sys.argv[1:]:
    document = json.load(open(name))
    assert schema.is_compatible_exactly(document)
    schema.validate_exactly(document)
    files[name] = [[t['path'], t['status'], t.get('number', {}).get('value')] for t in document['tests']]
broken = dict(document, tests=[dict(document['tests'][0], status='GOOD')])
try:
    schema.validate_exactly(broken)
    sys.exit('it takes everything')
except Exception as why:
    assert 'GOOD' in str(why)
print(json.dumps({'version': [schema.major, schema.minor], 'files': files}))
";

/// Runs a script with the package that `cargo xtask test` has fetched.
pub(crate) fn kernel_ci(folder: &Path, script: &str, files: &[&str]) -> Output {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/xtask/kcidb");
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", script]).args(files).env("PYTHONPATH", package).current_dir(folder);
    output_of(&mut python)
}

#[test]
fn kernel_ci_s_own_package_takes_each_document() {
    let test = "kernel_ci_s_own_package_takes_each_document";
    if !Path::new("/usr/bin/python3").exists() {
        return skip(test, "without python3");
    }
    let folder = folder();
    let here = folder.path();
    if !kernel_ci(here, "import kcidb_io", &[]).status.success() {
        return skip(test, "without KernelCI's Python package kcidb-io");
    }
    fs::write(here.join("judged"), exported(here, "kcidb", record(here))).expect("a file");
    fs::write(here.join("c.txt"), exported(here, "cyclictest", "run@rest")).expect("a file");
    cut(here);
    with_device_tree(&here.join("run"));
    let names = "--origin my_lab --build-id maestro:6870c1b2";
    for line in [
        "import c.txt --interval 500us --out in",
        &format!("export in -f kcidb -o imported {names}"),
        &format!("export run -f kcidb -o named {names}"),
        "export cut -f kcidb -o killed",
        "export run -f kcidb -o linked --base-url https://results.example/a",
    ] {
        let done = output(here, line);
        assert!(done.status.success(), "{line}: {}", text(&done.stderr));
    }
    let linked: Value =
        serde_json::from_str(&fs::read_to_string(here.join("linked")).expect("written"))
            .expect("JSON");
    let files = linked["tests"][0]["output_files"].as_array().expect("files");
    let events = files.iter().find(|file| file["name"] == "events.jsonl").expect("of the record");
    assert_eq!(events["url"], "https://results.example/a/events.jsonl");
    let files = ["judged", "imported", "named", "killed", "linked"];
    let taken = kernel_ci(here, KCIDB, &files);
    let said = text(&taken.stderr);
    let read: Value =
        serde_json::from_slice(&taken.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!(read["version"], serde_json::json!([5, 3]));
    let of = |file: &str, path: &str| {
        let tests = read["files"][file].as_array().expect("tests");
        let found = tests.iter().find(|test| test[0] == path);
        found.map(|test| (test[1].as_str().expect("a status").to_owned(), test[2].as_f64()))
    };
    let max = |file: &str, cell: &str| of(file, &format!("rtscope.lab-quick.{cell}.max"));
    assert_eq!(of("judged", "rtscope.lab-quick"), Some(("FAIL".to_owned(), None)));
    assert_eq!(max("judged", "disk"), Some(("FAIL".to_owned(), Some(58.445e-6))));
    assert_eq!(max("judged", "rest").map(|of| of.0), Some("PASS".to_owned()));
    assert_eq!(max("named", "disk"), Some(("DONE".to_owned(), Some(58.445e-6))));
    assert_eq!(of("killed", "rtscope.lab-quick"), Some(("ERROR".to_owned(), None)));
    assert_eq!(max("killed", "disk"), Some(("MISS".to_owned(), None)));
    refused(here, "export in -f kcidb", 64, &["which kernel it is of", "--build-id"]);
    refused(here, "export run -f kcidb --origin My-Lab", 64, &["lower-case letters"]);
    refused(here, "export run -f kcidb --build-id maestro", 64, &["a colon"]);
    refused(here, "export run -f junit --origin my_lab", 64, &["for the format kcidb"]);
    refused(here, "export run -f kcidb --base-url results", 64, &["not an HTTP address"]);
}

/// A copy of the record as if it had been cut before its last phase.
fn cut(folder: &Path) {
    let copied = Command::new("cp").args(["-r", "run", "cut"]).current_dir(folder).status();
    assert!(copied.expect("cp").success());
    let events = folder.join("cut/events.jsonl");
    let all = fs::read_to_string(&events).expect("events");
    let lines: Vec<&str> = all.lines().collect();
    let last = lines.iter().rposition(|line| line.contains("\"phase-started\""));
    let kept = &lines[..last.expect("a phase")];
    fs::write(events, kept.join("\n") + "\n").expect("written");
}

/// Gives the machine of a record a device tree.
fn with_device_tree(record: &Path) {
    let path = record.join("environment.before.json");
    let mut machine: Value =
        serde_json::from_slice(&fs::read(&path).expect("a machine")).expect("JSON");
    machine["compatible"] = serde_json::json!(["raspberrypi,4-model-b", "brcm,bcm2711"]);
    fs::write(path, machine.to_string()).expect("written");
}

/// Through the real program and its files: what was exported says the same when it is imported, and
/// meets the same judge.
#[test]
fn what_is_exported_is_imported_with_the_same_figures() {
    let folder = folder();
    let here = folder.path();
    let before = json(here, &format!("report {} --json", record(here)));
    let us = |value: &Value| value.as_u64().map(|ns| ns / 1_000);
    for format in ["cyclictest", "cyclictest-json", "osadl"] {
        for cell in 0..3 {
            let name = before["cells"][cell]["name"].as_str().expect("a name");
            let file = format!("{format}-{name}");
            fs::write(
                here.join(&file),
                exported(here, format, &format!("{}@{name}", record(here))),
            )
            .expect("a file");
            let line = format!("import {file} --interval 500us --out in-{file} --json");
            let after = json(here, &line);
            let (a, b) = (&before["cells"][cell]["all"], &after["cells"][0]["all"]);
            assert_eq!(a["recorded"], b["recorded"], "{file}");
            for (key, value) in a["latency_ns"].as_object().expect("figures") {
                if key != "mean" || format == "cyclictest-json" {
                    assert_eq!(us(value), us(&b["latency_ns"][key]), "{file} {key}");
                }
            }
            assert_eq!(a["exposure_ns"], b["exposure_ns"], "{file}");
        }
    }
    // An import against the run that it was made of: nothing has changed, and compare says so.
    let same = json(here, &format!("compare --json {}@disk -- in-cyclictest-disk", record(here)));
    let change = &same["changes"][0];
    for exceedance in change["exceedances"].as_array().expect("limits") {
        assert_eq!(exceedance["a"], exceedance["b"], "{exceedance}");
    }
    assert_eq!(change["a"]["recorded"], change["b"]["recorded"]);
}

/// Every wake-up is a line of its own, and they are those of the figures.
#[test]
fn every_sample_is_a_line() {
    let folder = folder();
    let at = folder.path();
    json(at, "run quick --duration 1s --policy other --interval 2ms --raw --out run --json");
    let lines = |format: &str| {
        let output = output(at, &format!("export run --format {format}"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let text = text(&output.stdout);
        let mut rows =
            text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let head = rows.next().expect("a heading");
        (head, rows.collect::<Vec<_>>())
    };
    let (head, figures) = lines("csv");
    let place = |name: &str| head.iter().position(|column| column == name).expect("a column");
    let (recorded, max) = (place("recorded"), place("max_ns"));
    let (_, samples) = lines("csv-samples");
    for row in figures.iter().filter(|row| row[1] != "all") {
        let own: Vec<u64> = samples
            .iter()
            .filter(|sample| sample[..2] == row[..2])
            .map(|sample| sample[4].parse().expect("ns"))
            .collect();
        assert_eq!(own.len().to_string(), row[recorded], "{row:?}");
        assert_eq!(own.iter().max().map(u64::to_string).as_deref(), Some(row[max].as_str()));
    }
    json(at, "run quick --duration 1s --policy other --interval 2ms --out without --json");
    refused(at, "export without --format csv-samples", 64, &["kept no samples", "--raw"]);
}
