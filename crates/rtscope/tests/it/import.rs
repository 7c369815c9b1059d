//! Results of other tools: imported from files and from a pipe, shown, judged again and drawn.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use crate::support::{folder, json, output, output_of, program, root_or_skip, rtscope, skip, text};

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
        let said = text(&drawn.stderr);
        // A table of buckets doesn't say when a latency came, or what load ran.
        let is_empty = matches!(kind, "timeline" | "load");
        assert_eq!(drawn.status.code(), Some(if is_empty { 3 } else { 0 }), "{said}");
        assert_eq!(said.contains("the plot is empty"), is_empty, "{said}");
    }
    let timeline = std::fs::read_to_string(folder.path().join("timeline.svg")).expect("drawn");
    assert!(timeline.contains("does not say when its latencies occurred"));
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
    assert!(said.contains("isn't a measurement") && said.contains("jitterdebugger"), "{said}");
    assert!(!folder.path().join("none").exists(), "nothing is written");
    let misspelt = output(folder.path(), &format!("import {file} --format cyclictst"));
    assert_eq!(misspelt.status.code(), Some(64));
}

#[test]
fn what_never_ends_is_refused_or_left() {
    let folder = folder();
    let device = output(folder.path(), "import /dev/zero --out none");
    assert_eq!(device.status.code(), Some(1));
    let said = text(&device.stderr);
    assert!(said.contains("/dev/zero") && said.contains("it is a device"), "{said}");
    // A line that never ends, by way of standard input. It was waited for without end.
    let zeros = std::fs::File::open("/dev/zero").expect("a device");
    let endless =
        output_of(rtscope(folder.path()).args(["import", "-", "--out", "none"]).stdin(zeros));
    assert_eq!(endless.status.code(), Some(1), "{}", text(&endless.stderr));
    let format = ["import", "-", "--out", "none", "--format", "cyclictest"];
    let zeros = std::fs::File::open("/dev/zero").expect("a device");
    let endless = output_of(rtscope(folder.path()).args(format).stdin(zeros));
    let said = text(&endless.stderr);
    assert!(said.contains("reading ended at a line of more than 64 MiB"), "{said}");
    assert!(!folder.path().join("none").exists());
}

#[test]
fn a_long_file_is_read_in_bounded_memory() {
    const LINES: u64 = 6_000_000;
    let folder = folder();
    let words =
        ["import", "-", "--format", "columns", "--unit", "us", "--interval", "1ms", "--out", "in"];
    let mut import = rtscope(folder.path())
        .args(words)
        .arg("--json")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rtscope starts");
    let mut input = import.stdin.take().expect("a pipe");
    let block: String = (0..100_000).map(|n| format!("{}\n", 10 + n % 90)).collect();
    for _ in 0..LINES / 100_000 {
        input.write_all(block.as_bytes()).expect("it reads");
    }
    // While it waits for more, all of its memory is there: the largest of all is what it ever had.
    let peak_kib = || -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", import.id())).expect("alive");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim_end_matches("kB").trim().parse().expect("a number")
    };
    let peak_kib = peak_kib();
    drop(input);
    let output = import.wait_with_output().expect("it ends");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(document["cells"][0]["all"]["recorded"], LINES);
    // With the program itself: neither the text, three bytes a line, nor a number for each line has room there.
    let most_kib = LINES * 5 / 1_024;
    assert!(peak_kib < most_kib, "{peak_kib} KiB, at most {most_kib}");
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

/// A log of cyclictest whose latencies are 5 us and an exponential excess, in whole us, cut off; and the
/// same latencies as a histogram. Of the excess `scale_us`, the p quantile is `-scale ln(1 - p)`.
fn log_and_histogram(folder: &std::path::Path, name: &str, seed: u64, scale_us: f64) {
    let (mut log, mut counts) = (String::new(), vec![0u64; 400]);
    let mut state = seed;
    for cycle in 0..60_000 {
        // A linear congruence of 64 bits, of which the upper ones are good.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let latency_us = (5.0 - scale_us * share.ln()) as usize;
        counts[latency_us] += 1;
        log += &format!("{:8}:{cycle:8}:{latency_us:8}\n", 0);
    }
    std::fs::write(folder.join(format!("{name}.log")), log).expect("a log");
    let mut text = "# Histogram\n".to_owned();
    for (us, count) in counts.iter().enumerate() {
        text += &format!("{us:06} {count:06}\n");
    }
    let max = counts.iter().rposition(|count| *count > 0).expect("a latency");
    text += &format!("# Min Latencies: 00005\n# Avg Latencies: 00007\n# Max Latencies: {max:05}\n");
    text += "# Histogram Overflows: 00000\n";
    std::fs::write(folder.join(format!("{name}.txt")), text).expect("a histogram");
}

#[test]
fn imports_meet_the_same_judge() {
    let folder = folder();
    let here = folder.path();
    log_and_histogram(here, "quick", 7, 3.0);
    log_and_histogram(here, "slow", 8, 6.0);
    let import = |file: &str| {
        let words =
            format!("import {file} --interval 1ms --out in-{file} --require 'max < 1ms' --json");
        json(here, &words)["cells"][0].clone()
    };
    let (log, histogram) = (import("quick.log"), import("quick.txt"));
    import("slow.log");
    import("slow.txt");
    // The same figures from both, and humps; but of one histogram no tail, with the reason.
    assert_eq!(log["all"]["latency_ns"]["p99_9"], histogram["all"]["latency_ns"]["p99_9"]);
    assert_eq!(log["all"]["exposure_ns"], 60_000_000_000u64);
    assert_eq!(log["modes"].as_array().map(Vec::len), Some(1), "{}", log["modes"]);
    let refused = histogram["tail"].to_string();
    assert!(refused.contains("a histogram doesn't keep the order of the latencies"), "{refused}");
    // Of 60,000 such latencies one is expected at 5 us + 3 us times ln 60,000 or more.
    let level = &log["tail"]["peaks"]["fit"]["levels"][0];
    let end = |key: &str| level[key].as_f64().expect("an end");
    assert_eq!(level["period_ns"], 60_000_000_000u64);
    assert!(end("low_ns") < 38_006.0 && 38_006.0 < end("high_ns"), "{}", log["tail"]);
    // Two imports are compared: shifts of the size that was put in, and what can't be told is said.
    for (a, b, basis) in
        [("quick.log", "slow.log", "slices"), ("quick.txt", "slow.txt", "independent")]
    {
        let found = json(here, &format!("compare --limit 30us --json in-{a} -- in-{b}"));
        let change = &found["changes"][0];
        let shift = |parts: u64| {
            let shifts = change["shifts"].as_array().expect("shifts").iter();
            let mut at = shifts.filter(|shift| shift["parts"] == parts);
            at.next().and_then(|shift| shift["shift_ns"].as_f64()).expect("a shift")
        };
        // 3 us times ln 100.
        assert!((shift(990_000_000) - 13_815.0).abs() < 1_500.0, "{change}");
        assert_eq!(change["basis"], basis, "{a}");
        let ratio = &change["exceedances"]
            .as_array()
            .expect("limits")
            .iter()
            .find(|e| e["limit_ns"] == 30_000);
        let ratio = ratio.expect("the limit that was asked")["ratio"].clone();
        assert!(ratio["low"].as_f64().is_some_and(|low| low > 10.0), "{ratio}");
        let notes = found["notes"].to_string();
        assert!(notes.contains("both sides were imported"), "{notes}");
        assert!(!found["differences"].to_string().contains("policy"), "{}", found["differences"]);
    }
    // Against a run of ours: what the import can't know is not taken for a difference of policy.
    let fixture = format!("{}/../../fixtures/compare/stock", env!("CARGO_MANIFEST_DIR"));
    let found = json(here, &format!("compare --json {fixture}@disk -- in-slow.log"));
    let policy =
        found["differences"].as_array().expect("rows").iter().find(|row| row["name"] == "policy");
    assert_eq!(policy.map(|row| row["b"].clone()), Some("not known".into()));
    assert!(found["notes"].to_string().contains("B was imported"), "{}", found["notes"]);
}
