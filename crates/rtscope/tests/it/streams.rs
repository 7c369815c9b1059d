//! What comes in and what goes out: one import and one compare for all formats, where files are written when nobody
//! says it, `-`, colours, and the exit code of a file that isn't there.

use std::{fs, path::Path, process::Stdio};

use crate::support::{
    folder, json, output, output_of, program, refused, rtscope, skip, text, words,
};

/// A file of the corpus that the fuzzing of imports begins with.
fn corpus(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    root.join(name).display().to_string()
}

/// The shipped record of a guest.
fn record(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compare");
    root.join(name).display().to_string()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).map(Iterator::flatten);
    let mut names: Vec<String> = entries
        .map(|all| all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    names.sort();
    names
}

/// A folder as `rtscope lab run` leaves it, with the two shipped records.
fn lab_folder(at: &Path) {
    for name in ["stock", "rt"] {
        let to = at.join("lab").join(name);
        fs::create_dir_all(to.join("slices")).expect("a folder");
        for file in names(Path::new(&record(name))) {
            let from = Path::new(&record(name)).join(&file);
            if from.is_file() {
                fs::copy(from, to.join(file)).expect("copied");
            }
        }
        for slice in names(&Path::new(&record(name)).join("slices")) {
            let from = Path::new(&record(name)).join("slices").join(&slice);
            fs::copy(from, to.join("slices").join(slice)).expect("copied");
        }
    }
    let guest = |name: &str| format!(r#"{{"kernel": "{name}", "record": "{name}", "cells": []}}"#);
    let document = format!(r#"{{"kernels": [{}, {}]}}"#, guest("stock"), guest("rt"));
    fs::write(at.join("lab/comparison.json"), document).expect("written");
    fs::write(at.join("lab/index.html"), "").expect("written");
}

#[test]
fn a_folder_of_the_lab_stands_for_its_records_or_names_them() {
    let folder = folder();
    let here = folder.path();
    lab_folder(here);
    let of_each = output(here, "report lab --require 'max < 1ns'");
    let told = text(&of_each.stdout);
    assert_eq!(of_each.status.code(), Some(2), "{told}{}", text(&of_each.stderr));
    assert_eq!(told.matches(": Fail: ").count(), 2, "{told}");
    assert!(told.contains("lab/stock: ") && told.contains("lab/index.html"), "{told}");
    assert!(told.contains("The comparison keeps the verdict of its run."), "{told}");
    let as_it_was = text(&output(here, "report lab").stdout);
    assert!(!as_it_was.contains("keeps the verdict"), "{as_it_was}");
    assert!(
        here.join("lab/rt/report.html").is_file() && here.join("lab/stock/verdict.json").is_file()
    );
    let named = ["lab holds the records of 2 guests", "lab/stock, lab/rt"];
    for refused_one in ["plot lab --kind histogram", "export lab --format csv", "report lab --json"]
    {
        refused(here, refused_one, 64, &named);
    }
    assert_eq!(output(here, "plot lab/rt --kind histogram").status.code(), Some(0));
}

/// What a command prints on a terminal of so many columns, without colours.
fn on_a_terminal(script: &Path, folder: &Path, columns: u16, arguments: &str) -> String {
    let command = format!("stty cols {columns}; {} {arguments}", env!("CARGO_BIN_EXE_rtscope"));
    let mut terminal = std::process::Command::new(script);
    terminal.args(["-qec", &command, "/dev/null"]).stdin(Stdio::null());
    let printed = output_of(terminal.env("TERM", "xterm").env("NO_COLOR", "1").current_dir(folder));
    let mut plain = String::new();
    for (n, part) in text(&printed.stdout).replace('\r', "").split("\x1b[").enumerate() {
        let shown = if n == 0 { part } else { part.split_once('m').map_or("", |(_, shown)| shown) };
        plain += shown;
    }
    plain
}

#[test]
fn a_terminal_of_80_columns_or_without_a_size_shows_no_line_that_it_would_wrap() {
    let Some(script) = program("script") else {
        let name = "a_terminal_of_80_columns_or_without_a_size_shows_no_line_that_it_would_wrap";
        return skip(name, "no script command");
    };
    let folder = folder();
    let stock = record("stock");
    for arguments in [
        "load list".to_owned(),
        "ps --look 5ms".to_owned(),
        "plan list".to_owned(),
        format!("claim {stock} --limit 1us --once-in 1h"),
        format!("report {stock} --out page.html"),
        "stat -- false".to_owned(),
        "run qiuck".to_owned(),
        "export x".to_owned(),
        "drift --duration 100ms --out drift".to_owned(),
    ] {
        for columns in [80, 0] {
            let _ = fs::remove_dir_all(folder.path().join("drift"));
            let shown = on_a_terminal(&script, folder.path(), columns, &arguments);
            let too_wide: Vec<&str> =
                shown.lines().filter(|line| line.chars().count() > 80).collect();
            assert_eq!(too_wide, [""; 0], "{arguments} at {columns}: {shown}");
            let widest = shown.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(widest > 40, "{arguments} at {columns} columns: {shown}");
        }
    }
}

#[test]
fn every_error_begins_with_the_name_of_the_program() {
    let folder = folder();
    for arguments in ["run --prio 80", "plot x", "report nowhere", "rnu", "stat --compare -- x"] {
        let told = text(&output(folder.path(), arguments).stderr);
        assert!(told.starts_with("rtscope: ") && !told.contains("error:"), "{arguments}: {told}");
    }
}

#[test]
fn a_quiet_run_prints_its_verdict_with_the_reason_in_one_line() {
    let folder = folder();
    let said = output(
        folder.path(),
        "run soak --duration 100ms -q --out r --require 'max < 1ns' --threads 1",
    );
    let told = text(&said.stdout);
    let line = told.lines().next().unwrap_or_default();
    let (verdict, why) = line.split_once(": ").unwrap_or_default();
    assert!(
        ["Fail", "Inconclusive"].contains(&verdict) && why.len() > 10,
        "{told}{}",
        text(&said.stderr)
    );
}

#[test]
fn a_quiet_run_without_a_requirement_tells_what_would_prevent_a_pass() {
    let folder = folder();
    // The load fails at once.
    let plan = "name = 'x'\n[[phase]]\nname = 'a'\nduration = '300ms'\n\
                load = [\"external restart=false -- sh -c 'exit 4'\"]\n";
    fs::write(folder.path().join("x.toml"), plan).expect("a plan");
    let said = output(folder.path(), "run x.toml -q --out r --threads 1");
    assert!(text(&said.stdout).starts_with("Measured: "), "{}", text(&said.stdout));
    assert!(text(&said.stderr).contains("the run failed in: a"), "{}", text(&said.stderr));
}

#[test]
fn the_user_chooses_the_width_of_what_goes_to_a_pipe() {
    let folder = folder();
    let longest = |columns: &str| {
        let mut report = rtscope(folder.path());
        report.args(["report", &record("stock"), "--out", "page.html"]).env("COLUMNS", columns);
        let told = text(&report.output().expect("runs").stdout);
        told.lines().map(|line| line.chars().count()).max().unwrap_or_default()
    };
    let [narrow, wide, usual] = ["70", "200", "wide"].map(longest);
    assert!(narrow < usual && usual < wide && usual <= 100, "{narrow}, {usual}, {wide}");
}

#[test]
fn what_nobody_gave_a_place_goes_below_rtscope_runs_and_is_named() {
    let folder = folder();
    let here = folder.path();
    let (quiet, piscope, stock) =
        (corpus("cyclictest/histogram.txt"), corpus("wave/piscope.vcd"), record("stock"));
    let mut before = Vec::new();
    for (arguments, ending) in [
        (format!("import {quiet}"), "report.html"),
        (format!("import {piscope}"), "report.html"),
        (format!("compare {quiet} {}", corpus("cyclictest/histogram-2.7.txt")), ".html"),
        (format!("compare {piscope} {piscope}"), ".html"),
        (format!("plot {stock} --kind histogram"), ".svg"),
        (format!("plot {stock} --kind histogram"), ".svg"),
    ] {
        let out = output(here, &arguments);
        let told = text(&out.stdout);
        assert!(
            out.status.code().is_some_and(|code| code == 0 || code == 3),
            "{}",
            text(&out.stderr)
        );
        let named =
            told.lines().last().unwrap_or_default().trim_start_matches("Report: ").to_owned();
        assert!(
            named.starts_with("rtscope-runs/") && named.ends_with(ending),
            "{arguments}: {told}"
        );
        assert!(here.join(&named).is_file(), "{arguments}: {named}");
        let now = names(&here.join("rtscope-runs"));
        assert_eq!(now.len(), before.len() + 1, "{arguments}: nothing is written over: {now:?}");
        before = now;
    }
    assert_eq!(names(here), ["rtscope-runs"]);
}

#[test]
fn everything_below_rtscope_runs_can_be_given_to_the_history() {
    let folder = folder();
    let (here, stock) = (folder.path(), record("stock"));
    fs::write(here.join("page.html"), "<!DOCTYPE html>").expect("written");
    fs::create_dir(here.join("other")).expect("made");
    let out = output(here, &format!("history import --store h.sqlite page.html {stock} other"));
    let told = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(
        told.contains("page.html is not a record: skipped") && told.contains("stock is run 1"),
        "{told}"
    );
    assert!(told.contains("other is not a record: skipped"), "{told}");
    let none = output(here, "history import --store h.sqlite page.html other");
    assert_eq!(none.status.code(), Some(64), "none of them is one");
}

#[test]
fn compare_knows_what_it_was_given() {
    let folder = folder();
    let here = folder.path();
    let (file, piscope, stock) =
        (corpus("cyclictest/histogram.txt"), corpus("wave/piscope.vcd"), record("stock"));
    // A file of another tool is the same as its import.
    output(here, &format!("import {file} --out imported"));
    let found = json(here, &format!("compare --json {file} imported"));
    let answer = found["answer"].as_str().expect("an answer");
    assert!(!answer.starts_with("different"), "{answer}");
    // A capture's file is the same as the folder of its import.
    output(here, &format!("import {piscope} --out capture"));
    let both = json(here, &format!("compare --json capture {piscope}"));
    assert_eq!(both["alignment"]["missing_in_first"], 0, "{both}");
    for (arguments, why) in [
        (format!("compare {piscope} {stock}"), "compare a capture with a capture"),
        (format!("compare {piscope} {piscope} -- {piscope}"), "two at a time"),
        (format!("compare --freq 1kHz {stock} {stock}"), "are for captures"),
        (
            format!("compare --json --out - {stock}@rest {stock}@disk"),
            "both write to standard output",
        ),
    ] {
        refused(here, &arguments, 64, &[why]);
    }
}

#[test]
fn import_takes_what_fits_the_format_and_says_what_does_not() {
    let folder = folder();
    let here = folder.path();
    let (file, piscope) = (corpus("cyclictest/histogram.txt"), corpus("wave/piscope.vcd"));
    for (arguments, why) in [
        (format!("import {piscope} --require 'max < 9us'"), "a capture has edges"),
        (format!("import {piscope} {piscope}"), "name one file"),
        (format!("import {file} --format vdc"), "sigrok-csv"),
        (format!("import {file} --unit ms"), "write us or ns"),
        (format!("import {file} --format cyclictest --channel D0"), "are for captures"),
    ] {
        refused(here, &arguments, 64, &[why]);
    }
    assert_eq!(names(here), [""; 0], "what is refused leaves nothing");
    // A capture comes on standard input too.
    let mut command = rtscope(here);
    command.args(words("import - --json")).stdin(fs::File::open(&piscope).expect("a file"));
    let seen: serde_json::Value =
        serde_json::from_slice(&output_of(&mut command).stdout).expect("a document");
    assert_eq!(seen["edges"], 402);
}

#[test]
fn a_dash_is_standard_input_or_standard_output() {
    let folder = folder();
    let here = folder.path();
    let stock = record("stock");
    for (arguments, begins) in [
        (format!("plot {stock} --kind histogram --out -"), "<svg"),
        (format!("report {stock} --out -"), "<!"),
        (format!("compare --out - {stock}@rest {stock}@disk"), "<!"),
        (format!("export {stock} --format csv --out -"), "cell"),
    ] {
        let out = output(here, &arguments);
        let told = text(&out.stdout) + &text(&out.stderr);
        let is_so = told.to_lowercase().starts_with(begins) || told.contains(begins);
        assert!(is_so, "{arguments}: {}", told.chars().take(300).collect::<String>());
    }
    assert_eq!(names(here), [""; 0], "nothing is written to a file");
    let shown = output(here, "plan show quick").stdout;
    fs::write(here.join("plan.toml"), &shown).expect("written");
    let mut check = rtscope(here);
    check
        .args(["plan", "check", "-"])
        .stdin(fs::File::open(here.join("plan.toml")).expect("a file"));
    let told = text(&output_of(&mut check).stdout);
    assert!(told.starts_with("quick: sound"), "{told}");
    let mut wrong = rtscope(here);
    wrong.args(["plan", "check", "-"]).stdin(Stdio::null());
    let out = output_of(&mut wrong);
    assert!(text(&out.stderr).contains("standard input"), "{}", text(&out.stderr));
}

#[test]
fn colours_are_written_as_the_user_says() {
    let folder = folder();
    let stock = record("stock");
    let coloured = |arguments: &str, no_color: Option<&str>| {
        let mut command = rtscope(folder.path());
        command.args(words(arguments)).env_remove("NO_COLOR").env("TERM", "xterm");
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        let out = output_of(&mut command);
        text(&out.stdout).contains("\x1b[") || text(&out.stderr).contains("\x1b[")
    };
    let report = format!("report {stock} --out page.html");
    // Standard output is no terminal here.
    assert!(!coloured(&report, None));
    assert!(coloured(&format!("{report} --color always"), None));
    assert!(coloured(&format!("--color always {report}"), Some("1")), "the option says more");
    assert!(!coloured(&format!("{report} --color never"), None));
    for (arguments, wanted) in [
        ("--color always --help", true),
        ("--color never --help", false),
        ("run --help", false),
        ("--color=always rnu", true),
        ("rnu", false),
    ] {
        assert_eq!(coloured(arguments, None), wanted, "{arguments}");
    }
}

#[test]
fn a_file_that_is_not_there_is_an_error_and_no_usage_error() {
    let folder = folder();
    for arguments in [
        "run ./none.toml",
        "run none.toml",
        "plan check none.toml",
        "plan show ./none",
        "sched run none.toml",
        "report none",
        "claim none --limit 1ms --once-in 1h",
        "plot none --kind load",
        "export none --format csv",
        "import none",
        "import none.vcd",
        "compare none none",
        "history import none --store h.sqlite",
        "drift --from none",
        "throughput --from none",
        "lab replay none",
        "kernel build none.toml",
    ] {
        refused(folder.path(), arguments, 1, &["none"]);
    }
    // A word that names nothing is a mistake on the command line.
    for arguments in ["run nonesuch", "sched run nonesuch", "kernel build nonesuch"] {
        refused(folder.path(), arguments, 64, &[]);
    }
}

#[test]
fn a_mistyped_kernel_gets_a_suggestion_and_an_impossible_guest_a_reason() {
    let folder = folder();
    for (arguments, said) in [
        ("lab run --kernel debian-sotck", "did you mean \"debian-stock\"?"),
        ("kernel show debian-sotck", "did you mean \"debian-stock\"?"),
        ("kernel build tiny-6.12-tr", "did you mean \"tiny-6.12-rt\"?"),
        ("lab run --kernel debian-rt --silence 0", "every guest is silent while it boots"),
        ("lab run --kernel debian-rt --memory 2T", "write for example 512M or 2G"),
        ("lab run debian-rt", "rtscope lab run --kernel debian-rt"),
        ("run --clock fast", "unknown value `fast`: write `monotonic` or `realtime`"),
    ] {
        refused(folder.path(), arguments, 64, &[said]);
    }
    assert_eq!(names(folder.path()), [""; 0], "what is refused leaves nothing");
}
