//! Results of other tools: imported from files and from a pipe, shown, judged again and drawn.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use crate::support::{folder, json, output, program, root_or_skip, rtscope, skip, text};

fn corpus(name: &str) -> String {
    format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn an_import_is_a_record_like_any_other() {
    let folder = folder();
    let (one, two) = (corpus("cyclictest/histogram.txt"), corpus("rtla/timerlat.txt"));
    let document = json(folder.path(), &format!("import {one} {two} --out in --json"));
    let names: Vec<&str> = document["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .filter_map(|cell| cell["name"].as_str())
        .collect();
    assert_eq!(names, ["histogram", "timerlat, IRQ", "timerlat, thread"]);
    assert_eq!(document["verdict"], "measured");
    let again = json(folder.path(), "report in --json");
    assert_eq!(again, document, "the record alone says the same");
    for kind in ["histogram", "exceedance", "timeline", "load"] {
        let drawn = output(folder.path(), &format!("plot in --kind {kind} --out {kind}.svg"));
        assert_eq!(drawn.status.code(), Some(0), "{}", text(&drawn.stderr));
    }
    let timeline = std::fs::read_to_string(folder.path().join("timeline.svg")).expect("drawn");
    assert!(timeline.contains("says nothing about when its latencies came"));
    let refused = output(folder.path(), &format!("import {one} --out in"));
    assert_eq!(refused.status.code(), Some(1), "no record is written over");
}

#[test]
fn an_import_passes_only_when_someone_answers_for_it() {
    let folder = folder();
    let file = corpus("rtla/timerlat.txt");
    let import = |out: &str, more: &str| {
        output(folder.path(), &format!("import {file} --out {out} --require max<1ms {more}"))
    };
    assert_eq!(import("a", "").status.code(), Some(3));
    assert_eq!(import("b", "--accept imported").status.code(), Some(0));
    let failed = output(folder.path(), &format!("import {file} --out c --require max<100us"));
    assert_eq!(failed.status.code(), Some(2), "{}", text(&failed.stdout));
}

#[test]
fn what_is_no_result_is_said_with_what_would_be() {
    let folder = folder();
    let file = corpus("cyclictest/binary.bin");
    let refused = output(folder.path(), &format!("import {file} --out none"));
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("holds no latency") && said.contains("jitterdebugger"), "{said}");
    assert!(!folder.path().join("none").exists(), "nothing is written");
    let misspelt = output(folder.path(), &format!("import {file} --format cyclictst"));
    assert_eq!(misspelt.status.code(), Some(64));
}

#[test]
fn what_cyclictest_prints_now_is_read_from_a_pipe() {
    let name = "what_cyclictest_prints_now_is_read_from_a_pipe";
    if !root_or_skip(name) {
        return;
    }
    let Some(cyclictest) = program("cyclictest") else { return skip(name, "needs cyclictest") };
    let folder = folder();
    let printed = Command::new(cyclictest)
        .args(["-q", "-l200", "-i1000", "-d0", "-t1", "-p80", "-h100000"])
        .output()
        .expect("cyclictest runs");
    let words = ["import", "-", "--interval", "1ms", "--out", "in", "--json"];
    let mut import = rtscope(folder.path())
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rtscope starts");
    import.stdin.take().expect("a pipe").write_all(&printed.stdout).expect("it reads");
    let output = import.wait_with_output().expect("it ends");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    let all = &document["cells"][0]["all"];
    assert_eq!(all["recorded"], 200);
    assert_eq!(all["exposure_ns"], 200_000_000);
    let printed = text(&printed.stdout);
    let max = printed.lines().find_map(|line| line.strip_prefix("# Max Latencies:"));
    let max_us: u64 = max.and_then(|max| max.trim().parse().ok()).expect("a maximum");
    assert_eq!(all["latency_ns"]["max"], max_us * 1_000);
}
