//! Command lines of cyclictest in the forms that scripts have, run by the drop-in and by the installed
//! original: what they print is compared field by field, with only what was measured left out.

use std::{collections::BTreeSet, path::Path, process::Command};

use crate::{
    dropin::{called, form},
    support::{folder, output_of, program, root_or_skip, skip, text, words},
};

/// A line each; `! SENTENCE | LINE` for those that only rtscope measures.
const LINES: &str = include_str!("cyclictest-lines.txt");

/// The version whose form the drop-in has.
const VERSION: &str = "cyclictest V 2.40";

/// What a command line came to.
#[derive(Debug, PartialEq)]
struct Outcome {
    code: Option<i32>,
    /// Standard output without numbers. Of several lines of one form in a row the first; of a help its first line.
    form: Vec<String>,
    /// Number, priority and interval of each thread, and other figures that aren't measured.
    fields: Vec<String>,
    /// Rows of the histogram, and the columns that they have.
    histogram: (usize, BTreeSet<usize>),
}

fn outcome(code: Option<i32>, stdout: &[u8]) -> Outcome {
    let text = text(stdout);
    let is_help = text.contains("\nUsage:");
    let mut shape: Vec<String> = Vec::new();
    let mut fields = Vec::new();
    let mut histogram = (0, BTreeSet::new());
    for line in text.lines().filter(|line| !is_help || !line.starts_with('-')) {
        // The help is each program's own.
        if is_help {
            if !shape.iter().any(|line| line == "help") {
                shape.push("help".to_owned());
            }
            continue;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if line.starts_with(|c: char| c.is_ascii_digit()) {
            histogram.0 += 1;
            histogram.1.insert(words.len());
        }
        let after = |key: &str| {
            let rest = &line[line.find(key)? + key.len()..];
            rest.split_ascii_whitespace().next().map(|word| format!("{key}{word}"))
        };
        if line.starts_with("T:") && line.contains(" P:") {
            fields.extend(["T:", "P:", "I:"].iter().filter_map(|key| after(key)));
        } else if line.contains("Interval:")
            || line.contains("cpu_dma_latency")
            || line.contains("CPUs =")
        {
            fields.push(line.to_owned());
        }
        // Which cycles overflowed is measured.
        let masked = match line.starts_with("# Thread ") && !line.contains("Ids") {
            true => "# Thread".to_owned(),
            false => form(line.as_bytes()).trim().to_owned(),
        };
        if shape.last() != Some(&masked) {
            shape.push(masked);
        }
    }
    Outcome { code, form: shape, fields, histogram }
}

/// What the original says on standard error and the drop-in leaves out, without numbers.
fn left_out(ours: &[u8], theirs: &[u8]) -> Vec<String> {
    let lines = |bytes: &[u8]| -> BTreeSet<String> {
        let text = form(bytes);
        let mut lines: BTreeSet<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        // getopt begins with the path that the program was called by.
        lines.retain(|line| !line.is_empty() && !line.contains("cyclictest: "));
        lines
    };
    lines(theirs).difference(&lines(ours)).cloned().collect()
}

/// The sentence that is expected of the drop-in alone, and the words.
fn read(line: &str) -> (Option<&str>, Vec<String>) {
    match line.strip_prefix("! ").and_then(|rest| rest.split_once(" | ")) {
        Some((sentence, line)) => (Some(sentence), words(line)),
        None => (None, words(line)),
    }
}

fn lines() -> impl Iterator<Item = &'static str> {
    LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[test]
fn there_are_command_lines_of_every_kind() {
    assert!(lines().count() >= 150, "{}", lines().count());
    let distinct: BTreeSet<&str> = lines().collect();
    assert_eq!(distinct.len(), lines().count(), "a line comes twice");
}

#[test]
fn command_lines_come_to_what_they_come_to_in_the_original() {
    const TEST: &str = "command_lines_come_to_what_they_come_to_in_the_original";
    if !root_or_skip(TEST) {
        return;
    }
    let is_version = |real: &Path| {
        text(&output_of(Command::new(real).arg("--help")).stdout).starts_with(VERSION)
    };
    let Some(real) = program("cyclictest").filter(|real| is_version(real)) else {
        skip(TEST, "without cyclictest (rt-tests)");
        return;
    };
    let folder = folder();
    let mut wrong = Vec::new();
    for line in lines() {
        let (sentence, words) = read(line);
        let ours = called(folder.path(), "cyclictest", &words);
        let found = outcome(ours.status.code(), &ours.stdout);
        let said = text(&ours.stderr);
        if let Some(sentence) = sentence {
            if !said.contains(sentence) {
                wrong.push(format!("{line}: {said}"));
            }
            continue;
        }
        let theirs = output_of(Command::new(&real).args(&words).current_dir(folder.path()));
        let expected = outcome(theirs.status.code(), &theirs.stdout);
        if found != expected {
            wrong.push(format!("{line}:\n  ours   {found:?}\n  theirs {expected:?}\n  {said}"));
        }
        let left_out = left_out(&ours.stderr, &theirs.stderr);
        if !left_out.is_empty() {
            wrong.push(format!("{line}: not said: {left_out:?}\n  {said}"));
        }
    }
    assert!(wrong.is_empty(), "{} lines differ:\n{}", wrong.len(), wrong.join("\n"));
}
