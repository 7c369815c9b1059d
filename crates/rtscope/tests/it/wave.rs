//! Square waves on this machine: what the scope and the generator count agrees, whatever the machine does
//! to either of them.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rtscope_testing::{executable, skip::skip};
use serde_json::Value;

use crate::support::{folder, json, kill, output, refused, rtscope, text, wait_for, words};

/// A line that no other test has; its file goes with it.
struct Line(String);

impl Line {
    fn new(name: &str) -> Line {
        Line(format!("memory:{name}-{}", std::process::id()))
    }

    fn file(&self) -> String {
        format!("/dev/shm/rtscope-line-{}", self.0.trim_start_matches("memory:"))
    }

    /// How many edges its owner has counted so far, in the second word of the file.
    fn edges(&self) -> u64 {
        let bytes = fs::read(self.file()).unwrap_or_default();
        let second = bytes.get(8..16).and_then(|word| word.try_into().ok());
        second.map_or(0, u64::from_ne_bytes)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.file());
    }
}

fn u64_of(document: &Value, field: &str) -> u64 {
    document[field].as_u64().unwrap_or_else(|| panic!("{field} of {document}"))
}

#[test]
fn what_the_scope_saw_and_lost_is_what_the_generator_made() {
    counts_agree("count");
}

#[test]
fn under_load_the_counts_still_agree() {
    let folder = folder();
    // Threads that never sleep, on all CPUs.
    let mut load = rtscope(folder.path());
    load.args(words("load cpu --duration 20s")).stdout(Stdio::null());
    let mut load = load.spawn().expect("starts");
    counts_agree("loaded");
    kill(load.id(), "TERM");
    load.wait().expect("ended");
}

/// The scope beside a generator: whatever either misses, no edge is invented and none vanishes.
fn counts_agree(name: &str) {
    let (folder, line) = (folder(), Line::new(name));
    // The scope looks before the first edge and after the last.
    let mut scope = rtscope(folder.path());
    scope.args(words(&format!("wave capture {} --duration 3s --json", line.0)));
    let scope = scope.stdout(Stdio::piped()).spawn().expect("starts");
    wait_for("the line", Duration::from_secs(5), || Path::new(&line.file()).exists());
    std::thread::sleep(Duration::from_millis(300));
    let made =
        json(folder.path(), &format!("wave generate {} --freq 500Hz --duration 1s --json", line.0));
    let output = scope.wait_with_output().expect("ends");
    let seen: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let edges = u64_of(&made, "edges");
    assert!(edges > 0 && edges.is_multiple_of(2), "{made}");
    // Nothing is invented, and what was not seen is counted.
    assert_eq!(u64_of(&seen, "edges") + u64_of(&seen, "lost"), edges, "{seen}");
    // A second of planned edges, made or left out.
    assert_eq!(edges + u64_of(&made, "missed_edges"), 1_000, "{made}");
    assert!(u64_of(&seen, "blind_ns") <= u64_of(&seen, "span_ns"));
    assert_eq!(seen["frequency_hz"].is_null(), seen["refused"].is_string(), "{seen}");
    assert_eq!(output.status.code(), Some(if seen["refused"].is_null() { 0 } else { 3 }));
    assert!(!Path::new(&line.file()).exists(), "the last one takes the line along");
}

#[test]
fn several_lines_are_captured_at_once() {
    let (folder, line, alarm) = (folder(), Line::new("first"), Line::new("second"));
    let mut scope = rtscope(folder.path());
    let words_of = format!("wave capture {} {} --duration 4s --out both --json", line.0, alarm.0);
    scope.args(words(&words_of));
    let scope = scope.stdout(Stdio::piped()).spawn().expect("starts");
    wait_for("the lines", Duration::from_secs(5), || Path::new(&alarm.file()).exists());
    std::thread::sleep(Duration::from_millis(300));
    let made = format!(
        "wave generate {} --freq 100Hz --duration 1500ms --limit 10ms --alarm {}",
        line.0, alarm.0
    );
    let mut generator = rtscope(folder.path());
    let mut generator = generator.args(words(&made)).spawn().expect("starts");
    wait_for("the first edges", Duration::from_secs(5), || line.edges() > 0);
    // An edge is late each time, and the next one is not.
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(50));
        kill(generator.id(), "STOP");
        std::thread::sleep(Duration::from_millis(40));
        kill(generator.id(), "CONT");
    }
    generator.wait().expect("ends");
    let output = scope.wait_with_output().expect("ends");
    let seen: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(seen["lines"].as_array().map(Vec::len), Some(2), "{seen}");
    for (i, seen) in seen["lines"].as_array().expect("lines").iter().enumerate() {
        let (made, edges) = (u64_of(seen, "made"), u64_of(seen, "edges"));
        assert!(made > 0, "{seen}");
        assert_eq!(edges + u64_of(seen, "lost"), made, "{seen}");
        // Each look at an edge may take longer than a look at an idle line, and yet the edge is seen. All of the few
        // edges of the alarm may lie in gaps.
        let is_blind = u64_of(seen, "blind_ns") * 10 > u64_of(seen, "span_ns") * 3;
        assert!(i == 1 || is_blind || edges * 2 > made, "{seen}");
    }
    let between = &seen["between"][0];
    assert_eq!(between["lines"], serde_json::json!([line.0, alarm.0]), "{between}");
    if u64_of(between, "edges") > 0 {
        assert!(u64_of(between, "delay_ns_min") <= u64_of(between, "delay_ns_max"), "{between}");
    }
    for file in ["1/capture.vcd", "2/report.html", "lines.json"] {
        assert!(folder.path().join("both").join(file).exists(), "{file}");
    }
    for (words, part) in [
        (format!("wave capture {} {}", line.0, line.0), "named twice"),
        (format!("wave capture {} gpio:gpiochip0/1", line.0), "all memory: or all gpio:"),
    ] {
        let refused = crate::support::output(folder.path(), &words);
        assert_eq!(refused.status.code(), Some(64), "{words}");
        assert!(text(&refused.stderr).contains(part), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_line_without_a_wave_has_no_frequency() {
    let (folder, line) = (folder(), Line::new("silent"));
    let output = output(folder.path(), &format!("wave capture {} --duration 50ms --json", line.0));
    assert_eq!(output.status.code(), Some(3));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert!(seen["frequency_hz"].is_null() && seen["lost"].is_null());
    assert!(seen["refused"].as_str().expect("a reason").contains("no edge"), "{seen}");
    assert!(!Path::new(&line.file()).exists(), "nothing stays in shared memory");
}

#[test]
fn a_late_edge_is_listed_and_raises_the_alarm() {
    let (folder, line, alarm) = (folder(), Line::new("wave"), Line::new("alarm"));
    let made = format!("wave generate {} --freq 100Hz --duration 200ms", line.0);
    // No thread wakes within a nanosecond.
    // A line that somebody looks at stays when its wave ends.
    fs::write(alarm.file(), [0; 64]).expect("the alarm's line");
    let looking = fs::File::open(alarm.file()).expect("the alarm's line");
    let late = output(folder.path(), &format!("{made} --limit 1ns --alarm {} --json", alarm.0));
    assert_eq!(late.status.code(), Some(2), "{}", text(&late.stderr));
    let late: Value = serde_json::from_slice(&late.stdout).expect("a document");
    let violations = u64_of(&late, "violations");
    assert_eq!(
        (violations, late["late"].as_array().expect("a list").len() as u64),
        (u64_of(&late, "edges"), violations)
    );
    let changes = fs::read(alarm.file()).expect("the alarm's line");
    drop(looking);
    assert!(!Path::new(&line.file()).exists(), "what nobody looks at goes");
    let changes = u64::from_ne_bytes(changes[8..16].try_into().expect("8 bytes"));
    // It stays high while every edge is late.
    assert_eq!(changes, 2);
    let calm = output(folder.path(), &format!("{made} --limit 1h"));
    assert_eq!(calm.status.code(), Some(0), "{}", text(&calm.stderr));
}

#[test]
fn a_sweep_ends_its_subjects_and_leaves_a_page() {
    let folder = folder();
    // A subject by the contract alone, in a language that comes with every system.
    let program = folder.path().join("mine.sh");
    let script = "#!/bin/sh\nf=/dev/shm/rtscope-line-${1#memory:}\nwhile :; do\n\
                  printf '\\001' | dd of=$f bs=1 conv=notrunc 2>/dev/null; sleep 0.01\n\
                  printf '\\000' | dd of=$f bs=1 conv=notrunc 2>/dev/null; sleep 0.01\ndone\n";
    executable::write(&program, script);
    let arguments = "wave sweep --subject ./mine.sh --from 10Hz --to 20Hz --tolerance 99% --quick --json --out sweep.html";
    let sweep = json(folder.path(), arguments);
    let subjects = sweep["subjects"].as_array().expect("subjects");
    assert_eq!((subjects.len(), &subjects[0]["load"]), (1, &Value::from("none")));
    assert!(!subjects[0]["points"].as_array().expect("points").is_empty());
    assert!(subjects[0]["points"][0]["lost"].is_null(), "a shell doesn't count");
    assert!(
        fs::read_to_string(folder.path().join("sweep.html")).expect("a page").contains("mine.sh")
    );
    let left = crate::support::processes_with("mine.sh");
    left.iter().for_each(|pid| kill(*pid, "KILL"));
    assert_eq!(left, [0_u32; 0]);
}

#[test]
fn with_one_cpu_a_sweep_counts_the_edges_that_the_subject_keeps() {
    let test = "with_one_cpu_a_sweep_counts_the_edges_that_the_subject_keeps";
    let folder = folder();
    let arguments = "wave sweep --subject rust --from 20Hz --to 40Hz --tolerance 90% --quick --json --out sweep.html";
    let mut command = Command::new("taskset");
    command.args(["-c", "0", env!("CARGO_BIN_EXE_rtscope")]).args(arguments.split(' '));
    let output = command.current_dir(folder.path()).output().expect("taskset starts");
    if text(&output.stderr).contains("must be a real-time thread") {
        return skip(test, "needs real-time permission");
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let sweep: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(sweep["facts"][0][1].as_str().is_some_and(|fact| fact.contains("reads the count")));
    let points = sweep["subjects"][0]["points"].as_array().expect("points");
    // 50 periods of a try are 100 edges; half of them are within this tolerance.
    assert!(points.iter().all(|point| u64_of(point, "edges") > 10), "{points:?}");
}

#[test]
fn an_instrument_s_capture_meets_the_same_judge_and_a_capture_is_kept() {
    let (folder, line) = (folder(), Line::new("kept"));
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wave");
    let piscope = corpus.join("piscope.vcd");
    let arguments = format!("import {} --freq 500Hz --out p --json", piscope.display());
    let seen = json(folder.path(), &arguments);
    assert_eq!((u64_of(&seen, "edges"), &seen["frequency_hz"]), (402, &Value::from(500.0)));
    let page = fs::read_to_string(folder.path().join("p/report.html")).expect("a page");
    assert_eq!(page.matches("<svg").count(), 4);
    let two = corpus.join("two.vcd");
    let several = output(folder.path(), &format!("import {}", two.display()));
    assert_eq!(several.status.code(), Some(64));
    assert!(text(&several.stderr).contains("--channel"), "{}", text(&several.stderr));
    // What our own scope saw is the same when it is read back.
    let made = format!("wave generate {} --freq 200Hz --duration 20s --quiet", line.0);
    let mut generator = rtscope(folder.path()).args(words(&made)).spawn().expect("starts");
    wait_for("the line", Duration::from_secs(5), || Path::new(&line.file()).exists());
    let capture = format!("wave capture {} --duration 300ms --save own.vcd --json", line.0);
    let own = output(folder.path(), &capture);
    generator.kill().and_then(|()| generator.wait()).expect("ended");
    let own: Value = serde_json::from_slice(&own.stdout).expect("a document");
    let again = output(folder.path(), "import own.vcd --json");
    let again: Value = serde_json::from_slice(&again.stdout).expect("a document");
    for field in ["edges", "lost", "gaps", "blind_ns", "resolution_ns", "frequency_hz", "period"] {
        assert_eq!(own[field], again[field], "{field}");
    }
}

#[test]
fn two_captures_of_a_wave_are_compared_edge_by_edge() {
    let folder = folder();
    // 1 kHz with edges late by a pattern; the second file's clock is 100 ppm fast, and it lacks three.
    let vcd = |fast: f64, lacks: &[u64]| {
        let mut text =
            "$timescale 1 ns $end\n$var wire 1 ! w $end\n$enddefinitions $end\n".to_owned();
        for n in (1..=500_u64).filter(|n| !lacks.contains(n)) {
            let at = (n * 1_000_000 + n * n * 7 % 1_009 * 10) as f64 * fast;
            text += &format!("#{at:.0} 1!\n#{:.0} 0!\n", at + 400_000.0);
        }
        text
    };
    fs::write(folder.path().join("a.vcd"), vcd(1.0, &[])).expect("written");
    fs::write(folder.path().join("b.vcd"), vcd(1.000_1, &[100, 200, 300])).expect("written");
    let both = json(folder.path(), "compare a.vcd b.vcd --out both.html --json");
    let aligned = &both["alignment"];
    // The first change of a file only tells the level.
    assert_eq!((u64_of(aligned, "pairs"), u64_of(aligned, "missing_in_second")), (496, 3));
    assert_eq!(
        (u64_of(aligned, "missing_in_first"), &aligned["is_certain"]),
        (0, &Value::from(true))
    );
    let drift = aligned["drift_ppm"].as_f64().expect("a drift");
    assert!((drift - 100.0).abs() < 0.01, "{drift}");
    let page = fs::read_to_string(folder.path().join("both.html")).expect("a page");
    assert_eq!(page.matches("<svg").count(), 2);
    let said = output(folder.path(), "compare a.vcd b.vcd");
    assert!(text(&said.stdout).contains("+100.0"), "{}", text(&said.stdout));
}

#[test]
fn the_live_scope_needs_a_terminal_and_says_what_does_not() {
    let (folder, line) = (folder(), Line::new("live"));
    let output = output(folder.path(), &format!("wave live {}", line.0));
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("wave capture"), "{}", text(&output.stderr));
}

#[test]
fn mistakes_are_usage_errors_and_say_what_to_write() {
    let folder = folder();
    for (arguments, says) in [
        ("wave capture pin7", "memory:NAME"),
        ("wave capture led:usr0", "can't be captured"),
        ("wave generate memory:a --freq fast", "2.5kHz"),
        ("wave generate memory:a --freq 1kHz --limit 1ms --alarm memory:a", "name another"),
        ("wave sweep --subject c --from 1kHz --to 50Hz", "below --to"),
    ] {
        refused(folder.path(), arguments, 64, &[says]);
    }
    let unknown = output(folder.path(), "wave sweep --subject pascal");
    assert!(text(&unknown.stderr).contains("c, c-rt, cpp"), "{}", text(&unknown.stderr));
}
