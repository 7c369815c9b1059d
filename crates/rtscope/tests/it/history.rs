//! The history: records in, lists and plots out.

use std::{fs, path::Path};

use crate::support::{folder, json, output, text};

/// A copy of a shipped record as if it had been run on another day, with later wake-ups from a day on.
fn record_of(folder: &Path, day: u32, slow: bool) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compare").join(if slow {
        "stock"
    } else {
        "rt"
    });
    let to = folder.join(format!("run{day}"));
    fs::create_dir_all(to.join("slices")).expect("a folder");
    for name in ["plan.toml", "environment.before.json", "histograms.json"] {
        fs::copy(from.join(name), to.join(name)).expect("copies");
    }
    for slice in fs::read_dir(from.join("slices")).expect("slices").flatten() {
        fs::copy(slice.path(), to.join("slices").join(slice.file_name())).expect("copies");
    }
    let events = fs::read_to_string(from.join("events.jsonl")).expect("events");
    let began = events.find("2020-").expect("an instant");
    let events = format!("{}2025-01-{day:02}{}", &events[..began], &events[began + 10..]);
    fs::write(to.join("events.jsonl"), events).expect("writes");
    to.display().to_string()
}

#[test]
fn a_change_of_kernel_shows_as_a_change_of_level() {
    let folder = folder();
    let at = folder.path();
    let runs: Vec<String> = (1..=20).map(|day| record_of(at, day, day > 9)).collect();
    let import = format!("history import {} --label 'rack 3' --store h.sqlite", runs.join(" "));
    assert_eq!(text(&output(at, &import).stdout).matches(" is run ").count(), 20);
    assert_eq!(text(&output(at, &import).stdout).matches("is already in the history").count(), 20);
    let list = |more: &str| json(at, &format!("history list --store h.sqlite --json {more}"));
    assert_eq!(list("").as_array().map(Vec::len), Some(20));
    assert_eq!(list("--kernel 6.1.0-56-rt --label 'rack 3'").as_array().map(Vec::len), Some(9));
    assert_eq!(list("--plan quick").as_array().map(Vec::len), Some(0));
    let trend = "history trend disk --statistic p99 --store h.sqlite";
    let found = json(at, &format!("{trend} --json"));
    assert_eq!(found["changes"][0]["at"], 9, "{}", found["changes"]);
    assert_eq!(found["points"][9]["day"], "2025-01-10");
    let drawn = output(at, &format!("{trend} --out trend.svg --surface surface.png"));
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    let svg = fs::read_to_string(at.join("trend.svg")).expect("a plot");
    assert!(svg.contains("2025-01-10 now (none), 6.1.0-56-amd64"), "the change is named");
    assert!(fs::read(at.join("surface.png")).expect("a plot").starts_with(b"\x89PNG"));
    let shown = text(&output(at, "history show 1 --store h.sqlite").stdout);
    assert!(
        shown.contains(
            "disk: 2,000 recorded, 0 missed; 1 s of observation, summed over all threads"
        ),
        "{shown}"
    );
}

#[test]
fn what_is_no_history_is_said() {
    let folder = folder();
    let at = folder.path();
    fs::write(at.join("text"), "not a database, but long enough to be taken for one\n".repeat(40))
        .expect("writes");
    let refused = output(at, "history list --store text");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("can't open the history text"),
        "{}",
        text(&refused.stderr)
    );
    let refused = output(at, "history show 7 --store h.sqlite");
    assert_eq!(refused.status.code(), Some(64));
    let refused = output(at, "history trend rest --store h.sqlite");
    assert_eq!(refused.status.code(), Some(64));
}

#[test]
fn a_known_run_gets_a_new_label_and_a_run_can_be_removed() {
    let folder = folder();
    let at = folder.path();
    let runs = [record_of(at, 1, false), record_of(at, 2, false)].join(" ");
    let of = |line: &str| {
        let output = output(at, &format!("history {line} --store h.sqlite"));
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    assert_eq!(of(&format!("import {runs} --label a")).0, Some(0));
    let told = of(&format!("import {runs} --label b")).1;
    assert!(
        told.contains("is already in the history, as run 2, which has this label now"),
        "{told}"
    );
    // Without a label, nothing changes.
    assert_eq!(of(&format!("import {runs}")).1.matches("is already in the history").count(), 2);
    let labels = json(at, "history list --store h.sqlite --json");
    assert_eq!((&labels[0]["label"], labels.as_array().map(Vec::len)), (&"b".into(), Some(2)));
    let (code, told) = of("list --plan quik");
    assert!(
        code == Some(0) && told.contains("No run matches") && told.contains("2 runs"),
        "{told}"
    );
    let (code, told) = of("trend disc");
    assert!(code == Some(64) && told.contains("did you mean \"disk\"?"), "{told}");
    // As an older version left it: the same run under two labels.
    let twice = "INSERT INTO run SELECT 99, started, host, kernel, plan, 'c', verdict, folder, place, tags, model \
                 FROM run WHERE id = 2";
    let store = rusqlite::Connection::open(at.join("h.sqlite")).expect("opens");
    store.execute(twice, []).expect("a row");
    drop(store);
    let again = of(&format!("import {} --label c", record_of(at, 2, false)));
    assert!(again.0 == Some(0) && again.1.contains("is already in the history"), "{}", again.1);
    assert_eq!(of("remove 99").0, Some(0));
    // A wrong number removes nothing.
    assert_eq!(of("remove 1 9").0, Some(64));
    assert_eq!(of("remove 1").1, "run 1 is removed\n");
    assert_eq!(of("list").1.lines().count(), 1, "{:?}", of("list"));
    assert_eq!(of("trend disk").1.lines().filter(|line| line.contains("2025-01-02 ")).count(), 1);
}

#[test]
fn who_only_reads_makes_no_history() {
    let folder = folder();
    let at = folder.path();
    for line in ["list", "show 1", "trend rest", "remove 1"] {
        let refused = output(at, &format!("history {line} --store a/missing.sqlite"));
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(64), "{line}: {told}");
        assert!(told.contains("there is no history a/missing.sqlite"), "{line}: {told}");
        assert!(!at.join("a").exists(), "{line} made a folder");
    }
    fs::write(at.join("page.html"), "").expect("a file");
    let refused = output(at, "history import page.html --store h.sqlite");
    let told = text(&refused.stderr);
    assert!(told.contains("page.html is a file: name the folder of a record"), "{told}");
}

/// Results of other tools over years: dated by their files or by hand, with what they don't know.
#[test]
fn imports_belong_to_the_history_with_their_day() {
    let folder = folder();
    let at = folder.path();
    let corpus = format!("{}/../../fuzz/corpus", env!("CARGO_MANIFEST_DIR"));
    fs::write(at.join("old.json"), JSON).expect("a file");
    for (file, out) in [("old.json".to_owned(), "a"), (format!("{corpus}/rtla/timerlat.txt"), "b")]
    {
        let done = output(at, &format!("import {file} --out {out}"));
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    }
    let add = |line: &str| output(at, &format!("history import --store h.sqlite {line}"));
    assert_eq!(add("a").status.code(), Some(0));
    assert_eq!(add("b --at 2024-05-31").status.code(), Some(0));
    let runs = json(at, "history list --store h.sqlite --json");
    let of = |n: usize, key: &str| runs[n][key].as_str().expect("a word").to_owned();
    assert_eq!(
        (of(0, "started"), of(0, "host")),
        ("2019-04-05T06:07:08Z".to_owned(), "rack3".to_owned())
    );
    assert_eq!(
        (of(1, "started"), of(1, "host")),
        ("2024-05-31T00:00:00Z".to_owned(), String::new())
    );
    let shown = text(&output(at, "history show 1 --store h.sqlite").stdout);
    // Three of 103 lie beyond the histogram: counted, and in no quantile.
    assert!(shown.contains("old: 103 recorded, missed unknown; "), "{shown}");
    assert!(shown.contains("p50 5.0, p99.9 70.0, max 70.0"), "{shown}");
    assert!(
        text(&output(at, "history show 2 --store h.sqlite").stdout).contains("unknown machine")
    );
    let ours = add(&format!("{} --at 2024-05-31", record_of(at, 3, false)));
    assert!(text(&ours.stderr).contains("use --at only for imports"), "{}", text(&ours.stderr));
}

const JSON: &str = r#"{ "file_version": 1, "cmdline:": "cyclictest -q -h 50 --json=x", "rt_test_version:": "2.40",
  "start_time": "Fri, 05 Apr 2019 08:07:08 +0200", "end_time": "Fri, 05 Apr 2019 08:07:09 +0200", "return_code": 0,
  "sysinfo": { "sysname": "Linux", "nodename": "rack3", "release": "4.19.31-rt18", "realtime": 1 },
  "num_threads": 1, "resolution_in_ns": 0,
  "thread": { "0": { "histogram": { "4": 60, "5": 40 }, "cycles": 103, "min": 4, "max": 70, "avg": 5.1, "cpu": 0, "node": 0 } } }
"#;
