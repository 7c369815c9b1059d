//! Whether a record can be read, and whether its sums are right: added up here, from the lines of its files.
//!
//! The oracle shares nothing with rtscope: it reads the lines of slices as JSON, and compares what they add up to with
//! the document that `rtscope report --json` prints.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use serde_json::Value;

/// Activations of one thread in one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    planned: u64,
    recorded: u64,
    missed: u64,
}

/// Counts by cell and thread.
type Sums = BTreeMap<(u64, u64), Counts>;

/// What the files of a record say.
#[derive(Debug, Default)]
struct Files {
    sums: Sums,
    /// Time on the grid of each cell's threads: the longest.
    span_ns: BTreeMap<u64, u64>,
    /// Lines that are no JSON, such as the last one of a killed run.
    torn: usize,
    problems: Vec<String>,
}

/// Whether a record was begun: its first event is complete.
pub(super) fn is_begun(folder: &Path) -> bool {
    let events = fs::read(folder.join("events.jsonl")).unwrap_or_default();
    events
        .split_inclusive(|byte| *byte == b'\n')
        .next()
        .is_some_and(|line| line.ends_with(b"\n") && serde_json::from_slice::<Value>(line).is_ok())
}

/// Whether a record says that it is complete.
pub(super) fn is_ended(folder: &Path) -> bool {
    let events = fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    let last = events.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    events.ends_with('\n') && last.is_some_and(|last| last["event"] == "run-ended")
}

/// Checks a record against its document. `lived` is how long the run took by the soak's clock, which no step of the wall
/// clock changes: none of its cells can be longer.
pub(super) fn check(folder: &Path, document: &Value, lived: Duration) -> Vec<String> {
    let files = read(folder);
    let mut problems = files.problems.clone();
    let (shown, durations) = match counts_of(document) {
        Ok(found) => found,
        Err(error) => return vec![error],
    };
    for ((cell, thread), counts) in &shown {
        if counts.planned != counts.recorded + counts.missed {
            problems.push(format!("cell {cell}, thread {thread}: the sum is wrong: {counts:?}"));
        }
    }
    let says_damaged = document["findings"].to_string().contains("record-damaged");
    if files.torn > 0 && !says_damaged && !is_cut_short(document) {
        problems.push(format!("{} torn lines, and no finding says so", files.torn));
    }
    // A reader may refuse a line after a torn one, and then says so: the document has no more than the files.
    let is_less_fine = files.torn > 0 || says_damaged;
    for (key, own) in &files.sums {
        let other = shown.get(key).copied().unwrap_or_default();
        let is_right = if is_less_fine { other.recorded <= own.recorded } else { other == *own };
        if !is_right {
            let (cell, thread) = key;
            problems.push(format!(
                "cell {cell}, thread {thread}: the slices add up to {own:?}, the report says {other:?}"
            ));
        }
    }
    for (key, other) in &shown {
        if !files.sums.contains_key(key) && *other != Counts::default() {
            problems
                .push(format!("cell and thread {key:?}: the report has {other:?}, no slice has"));
        }
    }
    let lived_ns = u64::try_from(lived.as_nanos()).unwrap_or(u64::MAX);
    for (cell, ns) in files.span_ns.iter().chain(&durations) {
        if *ns > lived_ns {
            problems.push(format!("cell {cell} took {ns} ns of a run of {lived_ns} ns"));
        }
    }
    problems
}

fn is_cut_short(document: &Value) -> bool {
    document["findings"].to_string().contains("record-cut-short")
}

/// Counts by cell and thread, and the durations of cells, as a document has them.
fn counts_of(document: &Value) -> Result<(Sums, BTreeMap<u64, u64>), String> {
    let (mut sums, mut durations) = (Sums::new(), BTreeMap::new());
    let cells = document["cells"].as_array().ok_or("the document has no cells")?;
    for cell in cells {
        let number = |of: &Value, name: &str| {
            of[name].as_u64().ok_or_else(|| format!("{name} of a cell is no number: {of}"))
        };
        let index = number(cell, "cell")?;
        durations.insert(index, cell["duration_ns"].as_u64().unwrap_or(0));
        for thread in cell["cpus"].as_array().ok_or("a cell without threads")? {
            let counts = Counts {
                planned: number(thread, "planned")?,
                recorded: number(thread, "recorded")?,
                missed: number(thread, "missed")?,
            };
            sums.insert((index, number(thread, "thread")?), counts);
        }
    }
    Ok((sums, durations))
}

/// Reads the files of slices.
fn read(folder: &Path) -> Files {
    let mut files = Files::default();
    let events = fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    let intervals = intervals(&events);
    let pattern = folder.join("slices/t*.jsonl");
    for path in glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten() {
        let bytes = fs::read(&path).unwrap_or_default();
        let mut last_end: Option<u64> = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match serde_json::from_slice::<Value>(line) {
                Ok(slice) => files.add(&slice, &intervals, &mut last_end),
                Err(_) => {
                    files.torn += 1;
                    last_end = None;
                }
            }
        }
    }
    files
}

/// The interval of each thread that was placed.
fn intervals(events: &str) -> BTreeMap<u64, u64> {
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let placed = events.filter(|event| event["event"] == "thread-placed");
    placed.filter_map(|one| Some((one["thread"].as_u64()?, one["interval_ns"].as_u64()?))).collect()
}

impl Files {
    fn add(&mut self, slice: &Value, intervals: &BTreeMap<u64, u64>, last_end: &mut Option<u64>) {
        let number = |name: &str| slice[name].as_u64().unwrap_or(0);
        let (thread, start, end) = (number("thread"), number("start_ns"), number("end_ns"));
        let [planned, recorded, missed] = ["planned", "recorded", "missed"].map(number);
        let mut wrong = |what: &str| self.problems.push(format!("{what}: {slice}"));
        if planned != recorded + missed {
            wrong("a slice's sum is wrong");
        }
        let bins: u64 = slice["bins"]
            .as_array()
            .map_or(0, |bins| bins.iter().map(|bin| bin[1].as_u64().unwrap_or(0)).sum());
        if bins + slice["unplaced"]["count"].as_u64().unwrap_or(0) != recorded {
            wrong("the histogram of a slice isn't what it recorded");
        }
        if let Some(interval) = intervals.get(&thread)
            && end.saturating_sub(start) != planned * interval
        {
            wrong("a slice's plan isn't the time on its grid");
        }
        if last_end.is_some_and(|last| last > start) {
            wrong("a slice begins before the last one of its thread ends");
        }
        *last_end = Some(end);
        let Some(cell) = slice["scope"]["cell"].as_u64() else { return };
        let sum = self.sums.entry((cell, thread)).or_default();
        sum.planned += planned;
        sum.recorded += recorded;
        sum.missed += missed;
        if let Some(interval) = intervals.get(&thread) {
            let span = self.span_ns.entry(cell).or_default();
            *span = (*span).max(sum.planned * interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    fn slice(start: u64, planned: u64, recorded: u64, missed: u64) -> String {
        let slice = json!({
            "thread": 0, "scope": {"cell": 0}, "start_ns": start, "end_ns": start + planned * 1000,
            "planned": planned, "recorded": recorded, "missed": missed, "bins": [[7, recorded]],
        });
        format!("{slice}\n")
    }

    fn record(slices: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("slices")).expect("made");
        let placed = json!({"event": "thread-placed", "thread": 0, "interval_ns": 1000});
        fs::write(folder.path().join("events.jsonl"), format!("{placed}\n")).expect("written");
        fs::write(folder.path().join("slices/t0.jsonl"), slices).expect("written");
        folder
    }

    fn document(planned: u64, recorded: u64, missed: u64, finding: &str) -> Value {
        let thread =
            json!({"thread": 0, "planned": planned, "recorded": recorded, "missed": missed});
        json!({"cells": [{"cell": 0, "duration_ns": 3000, "cpus": [thread]}], "findings": [finding]})
    }

    #[test]
    fn sums_that_are_right_are_no_problem() {
        let folder = record(&(slice(0, 100, 99, 1) + &slice(100_000, 10, 10, 0)));
        assert_eq!(check(folder.path(), &document(110, 109, 1, ""), LONG), [""; 0]);
        // A killed run has a torn last line, and one that was killed before its first slice has none.
        let torn = slice(0, 100, 99, 1) + "{\"thread\":0,";
        let folder = record(&torn);
        let cut = "record-cut-short";
        assert_eq!(check(folder.path(), &document(100, 99, 1, cut), LONG), [""; 0]);
        let folder = record("");
        assert_eq!(check(folder.path(), &document(0, 0, 0, cut), LONG), [""; 0]);
    }

    /// What is wrong with a record of these slices and this document.
    fn found(slices: &str, document: &Value, lived: Duration) -> String {
        check(record(slices).path(), document, lived).join("\n")
    }

    #[test]
    fn each_wrong_sum_is_found() {
        let whole = slice(0, 100, 99, 1);
        let right = document(100, 99, 1, "");
        for (slices, document, part) in [
            (whole.clone(), document(100, 99, 0, ""), "the sum is wrong"),
            (whole.clone(), document(100, 100, 0, ""), "the slices add up to"),
            (String::new(), right.clone(), "no slice has"),
            (slice(0, 100, 98, 1), right.clone(), "a slice's sum is wrong"),
            (whole.replace("[7,99]", "[7,98]"), right.clone(), "the histogram of a slice"),
            (whole.replace("100000", "100001"), right.clone(), "the time on its grid"),
            (whole.repeat(2), document(200, 198, 2, ""), "begins before the last one"),
            (whole.clone() + "{", right.clone(), "torn lines, and no finding"),
            (whole.clone(), json!({}), "no cells"),
        ] {
            let found = found(&slices, &document, LONG);
            assert!(found.contains(part), "{part}: {found}");
        }
        // 100 us on the grid, in a run of 99 us.
        let lived = Duration::from_micros(99);
        assert!(found(&whole, &right, lived).contains("cell 0 took 100000 ns"));
        assert_eq!(found(&whole, &right, Duration::from_micros(100)), "");
    }

    #[test]
    fn a_record_is_begun_by_its_first_complete_line() {
        let folder = record("");
        let events = folder.path().join("events.jsonl");
        assert!(is_begun(folder.path()) && !is_ended(folder.path()));
        fs::write(&events, "{\"event\":\"run-started\"").expect("written");
        assert!(!is_begun(folder.path()), "the line is torn");
        fs::write(&events, "{\"event\":\"run-started\"}\n{\"event\":\"run-ended\"}\n")
            .expect("written");
        assert!(is_begun(folder.path()) && is_ended(folder.path()));
        assert!(!is_begun(Path::new("/no/record")));
    }
}
