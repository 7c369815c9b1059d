//! Square waves, counters, drift and throughput in guests, in virtual time: figures come from the inputs alone.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::Value;

use crate::{any_kernel, own_or_skip, ready_or_skip, room, rtscope, text};

/// Runs a verb of the lab in a real-time kernel, and returns its document.
fn lab(folder: &Path, line: &str) -> Value {
    let common = ["--kernel", any_kernel(), "--memory", "1024", "--json"];
    let (options, command) = line.split_once(" -- ").map_or((line, None), |(o, c)| (o, Some(c)));
    let mut words: Vec<&str> = ["lab"].into_iter().chain(options.split(' ')).collect();
    words.extend(common);
    if let Some(command) = command {
        words.push("--");
        words.extend(command.split(' '));
    }
    let ran = rtscope(folder, &words).output().expect("starts");
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

/// A figure of the only kernel; the reason where there is none.
fn figure(document: &Value, of: &str, name: &str) -> Result<f64, String> {
    let all = document["figures"].as_array().expect("figures");
    let found = all.iter().find(|one| one["of"] == of && one["name"] == name);
    let kernel = &found.unwrap_or_else(|| panic!("{of}, {name}: {document:#}"))["kernels"][0];
    let reason = || kernel["reasons"][0].as_str().expect("a reason").to_owned();
    kernel["median"].as_f64().ok_or_else(reason)
}

#[test]
#[ignore = "boots guests for minutes: cargo xtask test --long runs it"]
fn a_sweep_finds_the_same_limit_in_two_fresh_guests() {
    let test = "a_sweep_finds_the_same_limit_in_two_fresh_guests";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let sweep = |out: &str| {
        let line = "wave sweep --subject rust --quick --from 1kHz --to 16kHz --fresh --out";
        lab(room.path(), &format!("{line} {out}"))
    };
    let (first, second) = (sweep("first"), sweep("second"));
    let name = "highest good frequency";
    let limit = figure(&first, "rust at rest", name).expect("a limit");
    let bad = figure(&first, "rust at rest", "first bad frequency").expect("it has a limit");
    assert!((1e3..bad).contains(&limit), "{limit} Hz, {bad} Hz");
    // Every try saw the same edges, not the limit alone.
    let points = |document: &Value| document["guests"][0]["measured"]["subjects"].clone();
    assert!(points(&first)[0]["points"].as_array().is_some_and(|all| all.len() > 5));
    assert_eq!(points(&first), points(&second));
    let page = fs::read_to_string(room.path().join("first/index.html")).expect("a page");
    let linked = format!("{}-seed1/wave-sweep/report.html", any_kernel());
    assert!(page.contains(&linked) && room.path().join("first").join(linked).exists());
    assert!(page.contains("no bus and no GPIO controller"), "what virtual time can't say");
}

#[test]
fn a_wave_on_a_simulated_line_has_all_its_edges() {
    let test = "a_wave_on_a_simulated_line_has_all_its_edges";
    if !own_or_skip(test) {
        return;
    }
    let room = room();
    let line = "wave generate gpio:sim/0 --freq 500Hz --duration 200ms --out out";
    let document = lab(room.path(), line);
    let of = |name: &str| figure(&document, "gpio:sim/0, absolute", name).expect("a figure");
    assert_eq!((of("edges"), of("missed edges")), (200.0, 0.0));
    assert!(of("mean edge error") > 0.0 && of("mean edge error") <= of("largest edge error"));
    assert!(of("frequency error").abs() < 0.001, "{document:#}");
}

#[test]
fn a_relative_sleep_drifts_in_a_guest_and_its_record_is_known() {
    let test = "a_relative_sleep_drifts_in_a_guest_and_its_record_is_known";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let line = "drift --period 10ms --work 1ms --duration 500ms --out";
    let document = lab(room.path(), &format!("{line} out"));
    // By hand: 1 ms of work in each 11 ms is 327 s an hour, and each late wake-up adds to it.
    let drift = figure(&document, "delay", "drift").expect("a drift");
    assert!((327e9..345e9).contains(&drift), "{drift}");
    let drift = figure(&document, "delay until", "drift").expect("a drift");
    assert!(drift.abs() < 50e6, "{drift}");
    // The plain verb reads what the guest brought.
    let record = format!("out/{}-seed1/drift", any_kernel());
    let again = rtscope(room.path(), &["drift", "--from", &record]).output().expect("starts");
    assert!(again.status.success() && text(&again).contains("delay until"), "{}", text(&again));
    // The same inputs are known, whatever the folder is.
    let known = lab(room.path(), &format!("{line} again"));
    let key = |document: &Value| document["guests"][0]["inputs"]["key"].clone();
    assert_eq!(key(&known), key(&document));
    assert_eq!(known["figures"], document["figures"]);
}

#[test]
fn programs_are_counted_in_a_guest() {
    let test = "programs_are_counted_in_a_guest";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    // The one static program that is surely there.
    symlink(env!("CARGO_BIN_EXE_rtscope"), room.path().join("mine")).expect("a link");
    let document = lab(room.path(), "stat --repeat 2 --out out -- ./mine --version");
    let program = "/programs/0/mine --version";
    let of = |name: &str| figure(&document, program, name);
    assert!(of("page faults").is_ok_and(|count| count > 10.0), "{document:#}");
    assert!(of("task clock").is_ok_and(|ns| ns > 0.0), "{document:#}");
    assert!(of("instructions").expect_err("no counter").starts_with("not supported"));
}

#[test]
fn bytes_go_as_fast_as_a_guests_kernel_lets_them() {
    let test = "bytes_go_as_fast_as_a_guests_kernel_lets_them";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let document = lab(room.path(), "throughput --windows 64 --duration 50ms --out out");
    for of in ["TCP 64 KiB", "TCP 64 KiB beside the sampler"] {
        let rate = figure(&document, of, "bandwidth").expect("a rate");
        assert!(rate > 1e6, "{of}: {rate}");
    }
    let busy = figure(&document, "TCP 64 KiB beside the sampler", "largest latency");
    let rest = figure(&document, "rest", "largest latency").expect("a latency");
    assert!(rest > 0.0 && busy.is_ok_and(|busy| busy > 0.0), "{document:#}");
    // The vendor's figures stand beside those of the guest's kind of kernel, by what its kernel shows.
    let published = document["published"].as_array().expect("published figures");
    let of = |kernel: &str| {
        let is_it = |one: &&Value| {
            one["subject"] == "TCP 64 KiB"
                && one["kernel"] == kernel
                && one["statistic"] == "bandwidth"
                && one["condition"].is_null()
        };
        published.iter().find(is_it).expect("the vendor's figure")
    };
    let alone = figure(&document, "TCP 64 KiB", "bandwidth").expect("a rate");
    assert_eq!(of("real-time")["ours"][0]["low"], alone);
    assert_eq!(of("real-time")["ours"][0]["label"], any_kernel());
    assert_eq!(of("stock")["ours_text"], "none: no stock kernel ran");
    let page = fs::read_to_string(room.path().join("out/index.html")).expect("a page");
    assert!(page.contains("id=\"published\""));
}

#[test]
fn a_verb_that_fails_in_its_guest_says_why() {
    let test = "a_verb_that_fails_in_its_guest_says_why";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    // The guest has one CPU: that shows in the guest.
    let line = ["lab", "drift", "--cpus", "7", "--memory", "1024", "--out", "out", "--kernel"];
    let ran = rtscope(room.path(), &line).arg(any_kernel()).output().expect("starts");
    assert_eq!(ran.status.code(), Some(1), "{}", text(&ran));
    assert!(
        text(&ran).contains("CPU 7 can't be used: this process may use CPU 0"),
        "{}",
        text(&ran)
    );
}
