//! Records that were cut or edited after they were written, and such that were not.

use std::{fs, path::Path};

use rtscope_measure::recorder::{RecordFiles, Recorder};
use rtscope_model::{
    environment::Environment,
    event::{EndReason, Event, FORMAT, Stamped},
    histogram::Unplaced,
    plan,
    slice::{Extent, Scope, Slice},
};
use tempfile::TempDir;

const SECOND_NS: u64 = 1_000_000_000;
const SLICES: u64 = 6;

fn slice(n: u64) -> Event {
    Event::Slice(Slice {
        thread: 0,
        scope: Scope::Discarded,
        start_ns: n * SECOND_NS,
        end_ns: (n + 1) * SECOND_NS,
        planned: 1,
        recorded: 1,
        missed: 0,
        early: 0,
        migrations: 0,
        min_ns: 4_000,
        max_ns: 4_000,
        max_at_ns: n * SECOND_NS,
        max_cpu: 0,
        sum_ns: 4_000,
        bins: vec![(4, 1)],
        unplaced: Unplaced::default(),
        omitted: Vec::new(),
        omitted_extent: Extent::default(),
        frames: None,
    })
}

fn started() -> Event {
    Event::RunStarted {
        format: FORMAT,
        version: "0".to_owned(),
        command: Vec::new(),
        wall_clock: "2026-01-01T00:00:00Z".to_owned(),
        monotonic_ns: 0,
    }
}

fn recorder(folder: &Path) -> Recorder {
    let plan = plan::parse(
        "x",
        "name = 'x'\nrequire = ['max < 1ms']\n[[phase]]\nname = 'x'\nduration = '6s'",
    );
    Recorder::create(&folder.join("run"), &plan.expect("a plan").to_toml()).expect("a record")
}

fn write(recorder: &mut Recorder, events: impl IntoIterator<Item = Event>) {
    events.into_iter().for_each(|event| recorder.event(&Stamped { at_ns: 0, event }));
}

/// A record on disk; `middle` is called between its slices, and again before its end.
fn record(is_ended: bool, mut middle: impl FnMut(&Path)) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorder = recorder(folder.path());
    write(&mut recorder, [started()]);
    write(&mut recorder, (0..SLICES / 2).map(slice));
    middle(folder.path());
    write(&mut recorder, (SLICES / 2..SLICES).map(slice));
    middle(folder.path());
    for name in ["environment.before.json", "environment.after.json"] {
        recorder.environment(name, &Environment::default());
    }
    write(&mut recorder, is_ended.then(|| Event::run_ended(EndReason::Finished)));
    recorder.finish();
    folder
}

fn found(folder: &TempDir) -> Vec<(String, String)> {
    let source = RecordFiles::open(&folder.path().join("run")).expect("a folder");
    let findings = source.read().expect("a record").findings;
    findings.into_iter().map(|finding| (finding.code, finding.text)).collect()
}

/// What is found when a file has other lines.
fn edited(name: &str, edit: impl FnOnce(&mut Vec<String>)) -> Vec<(String, String)> {
    let folder = record(true, |_| {});
    let path = folder.path().join("run").join(name);
    let text = fs::read_to_string(&path).expect("a file");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    edit(&mut lines);
    fs::write(&path, lines.join("\n") + "\n").expect("written");
    found(&folder)
}

fn one(code: &str, text: &str) -> Vec<(String, String)> {
    vec![(code.to_owned(), text.to_owned())]
}

#[test]
fn nothing_is_wrong_with_a_record_as_it_was_written() {
    assert_eq!(found(&record(true, |_| {})), []);
}

#[test]
fn a_run_that_was_killed_was_cut_short_and_no_more() {
    let text = "the run did not reach its end: the record holds what was written until then";
    assert_eq!(found(&record(false, |_| {})), one("record-cut-short", text));
}

#[test]
fn a_file_without_its_last_lines_is_cut() {
    let cut = |left| {
        format!(
            "slices/t0.jsonl was cut short: it ends after {left} of the 6 lines with checksums that the run wrote"
        )
    };
    let found = edited("slices/t0.jsonl", |lines| lines.truncate(4));
    assert_eq!(found, one("record-cut-short", &cut(4)));
    let folder = record(true, |_| {});
    fs::remove_file(folder.path().join("run/slices/t0.jsonl")).expect("removed");
    assert_eq!(self::found(&folder), one("record-cut-short", &cut(0)));
}

#[test]
fn a_line_that_is_edited_removed_or_doubled_is_found() {
    let changed = |line: u32| {
        let text =
            "slices/t0.jsonl: line {} or the line before it was changed, removed or duplicated";
        one("record-changed", &text.replace("{}", &line.to_string()))
    };
    let edit =
        |lines: &mut Vec<String>| lines[2] = lines[2].replace("\"max_ns\":4000", "\"max_ns\":3000");
    assert_eq!(edited("slices/t0.jsonl", edit), changed(3));
    assert_eq!(edited("slices/t0.jsonl", |lines| drop(lines.remove(2))), changed(3));
    assert_eq!(edited("slices/t0.jsonl", |lines| lines.insert(2, lines[1].clone())), changed(3));
    let added = edited("slices/t0.jsonl", |lines| lines.push(lines[0].clone()));
    let end = "slices/t0.jsonl does not end with the line that the run wrote last";
    assert_eq!(added, [changed(7), one("record-changed", end)].concat());
    let events =
        edited("events.jsonl", |lines| lines[1] = lines[1].replace("finished", "interrupted"));
    assert_eq!(events[0].0, "record-changed", "{events:?}");
}

/// Without a single checksum the events would be those of an older version, which had none.
#[test]
fn events_without_their_checksums_are_found() {
    let strip = |lines: &mut Vec<String>| {
        for line in lines {
            let end = line.rfind(",\"crc\":").expect("a checksum");
            line.replace_range(end.., "}");
        }
    };
    let text = "events.jsonl: no line has a checksum, although the run-ended event has checksums of other files";
    assert_eq!(edited("events.jsonl", strip), one("record-changed", text));
}

/// What is found when a file that is written as a whole has another text, or is gone.
fn rewritten(name: &str, text: Option<fn(String) -> String>) -> Vec<(String, String)> {
    let folder = record(true, |_| {});
    let path = folder.path().join("run").join(name);
    let old = fs::read_to_string(&path).expect("a file");
    match text {
        Some(edit) => fs::write(&path, edit(old)).expect("written"),
        None => fs::remove_file(&path).expect("removed"),
    }
    found(&folder)
}

#[test]
fn a_whole_file_that_is_edited_or_removed_is_named() {
    let plan = "plan.toml is not as the run wrote it: what the run required is not known";
    let without = |text: String| text.replace("require = [\"max < 1ms\"]\n", "");
    assert_eq!(rewritten("plan.toml", Some(without)), one("plan-changed", plan));
    for name in ["environment.before.json", "environment.after.json"] {
        let changed = one("record-changed", &format!("{name} is not as the run wrote it"));
        assert_eq!(rewritten(name, Some(|text| text + " ")), changed);
        let missing = one("record-changed", &format!("{name} is missing or empty"));
        assert_eq!(rewritten(name, None), missing);
    }
    let changed = one("record-changed", "histograms.json is not as the run wrote it");
    assert_eq!(rewritten("histograms.json", Some(|text| text + " ")), changed);
}

#[test]
fn a_record_without_checksums_reads_as_before() {
    let folder = record(true, |_| {});
    for name in ["events.jsonl", "slices/t0.jsonl"] {
        let path = folder.path().join("run").join(name);
        let text = fs::read_to_string(&path).expect("a file");
        let bare = text.lines().map(|line| {
            let end =
                line.find(",\"files\"").or_else(|| line.rfind(",\"crc\"")).expect("a checksum");
            format!("{}}}\n", &line[..end])
        });
        fs::write(&path, bare.collect::<String>()).expect("written");
    }
    assert_eq!(found(&folder), []);
}

#[test]
fn files_that_are_removed_while_it_runs_are_whole_in_the_end() {
    let folder = record(true, |folder| {
        let _ = fs::remove_file(folder.join("run/slices/t0.jsonl"));
        let _ = fs::remove_file(folder.join("run/events.jsonl"));
    });
    assert_eq!(found(&folder), []);
}
