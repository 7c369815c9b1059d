//! A fleet's folder as one document, read by the readers that others wrote.

use std::fs;

use serde_json::{Value, json};

use crate::{
    export::{KCIDB, kernel_ci, python},
    fleet::small_program,
    support::{folder, output, refused, skip, text},
};

const PLAN: &str =
    "name = 'short'\nrequire = ['max < 1s']\n[[phase]]\nname = 'rest'\nduration = '1s'\n";

/// Two places of this machine, of which one has no program.
#[test]
fn a_fleet_is_one_document() {
    let test = "a_fleet_is_one_document";
    let room = folder();
    let here = room.path();
    small_program(&here.join("small"));
    fs::write(here.join("plan.toml"), PLAN).expect("written");
    let mut places = String::new();
    for (place, program) in [("one", "small"), ("two", "none")] {
        let base = here.join(format!("at-{place}"));
        fs::create_dir(&base).expect("made");
        places += &format!(
            "[places.{place}]\nlocal = true\nshares-machine = true\nfolder = {base:?}\nprogram = {program:?}\n"
        );
    }
    fs::write(here.join("places.toml"), places).expect("written");
    let run = output(here, "fleet run plan.toml --out out");
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let line = "export out -f junit,ktap,openmetrics,kcidb --out files --accept virtual-machine";
    let exported = output(here, line);
    let said = text(&exported.stderr);
    assert!(exported.status.success() && said.contains("two: it returned no record"), "{said}");
    refused(here, "export out -f csv", 64, &["holds one run", "places/NAME", "openmetrics"]);
    refused(here, "export out@idle -f junit", 64, &["no cell \"idle\""]);
    let suites = "import json, junitparser\n\
        xml = junitparser.JUnitXml.fromfile('files/junit.xml')\n\
        print(json.dumps([[suite.name, suite.errors] for suite in xml]))";
    if let Some(read) = python(test, "junitparser", "python3-junitparser", here, suites) {
        let names: Vec<&Value> = read.as_array().expect("suites").iter().map(|s| &s[0]).collect();
        assert_eq!(names, ["one.run", "one.rest", "two.run"]);
        assert_eq!(read[2], json!(["two.run", 1]));
    }
    let families = "import json\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n\
        text = open('files/openmetrics.prom').read()\n\
        print(json.dumps({f.name: [[s.labels.get('place'), s.value] for s in f.samples] for f in read(text)}))";
    let package = "python3-prometheus-client";
    if let Some(read) = python(test, "prometheus_client", package, here, families) {
        assert_eq!(read["rtscope_place_has_record"], json!([["one", 1], ["two", 0]]));
        let others = read.as_object().expect("families").iter();
        let mut others = others.filter(|(name, _)| *name != "rtscope_place_has_record");
        assert!(others.all(|(_, samples)| samples[0][0] == "one"), "{read}");
    }
    if !kernel_ci(here, "import kcidb_io", &[]).status.success() {
        return skip(test, "without KernelCI's Python package kcidb-io");
    }
    let taken = kernel_ci(here, KCIDB, &["files/kcidb.json"]);
    let read: Value = serde_json::from_slice(&taken.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&taken.stderr)));
    let tests = read["files"]["files/kcidb.json"].as_array().expect("tests");
    let runs: Vec<&Value> = tests.iter().filter(|test| test[0] == "rtscope.short").collect();
    assert_eq!((runs.len(), &runs[1][1]), (2, &json!("MISS")), "{read}");
}
