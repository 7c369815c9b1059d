//! A maximum that is in no row, of an import that fails by it: no output says that nothing reached the limit.

use rtscope_model::{
    record::Record,
    verdict::{Statistic, Verdict},
};

use super::{Exported, FORMATS};
use crate::{
    Judgement, compare,
    import::{self, Import, ImportOptions},
    judge, plot,
    report::{self, html, terminal},
};

const LIMIT_NS: u64 = 200_000;

fn imported(text: &str) -> Record {
    let options = ImportOptions {
        name: "file".to_owned(),
        interval_ns: Some(1_000_000),
        ..ImportOptions::default()
    };
    let reading = import::read(None, options, text.as_bytes()).expect("a format");
    let require = vec!["max < 200us".parse().expect("a requirement")];
    let import = Import { require, ..Import::default() };
    let files = import::files(&import, vec![("file".to_owned(), reading)]);
    Record::read(&files.expect("files")).expect("a record")
}

fn cyclictest(max: u64, overflow: u64) -> String {
    format!(
        "# Histogram\n000005 000010\n000006 000080\n000009 000010\n# Min Latencies: 00005\n\
         # Avg Latencies: 00006\n# Max Latencies: {max:05}\n# Histogram Overflows: {overflow:05}\n"
    )
}

/// Imports whose maximum is above the limit, and in no row.
fn failing() -> Vec<(&'static str, String)> {
    let json = r#"{"rt_test_version:": "2.40", "num_threads": 1, "thread": {"0": {"histogram":
        {"5": 10, "6": 80, "9": 10}, "cycles": 100, "min": 5, "max": 900, "avg": 6.20}}}"#;
    let timerlat = "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n\
        # Duration:   0 00:00:10\nIndex   Thr-000\n5  10\n6  80\n9  10\nover: 0\ncount: 100\n\
        min: 5\navg: 6\nmax: 900\n";
    let line = |thread: u32, cycles: u64, max: u64| {
        format!(
            "T: {thread} (70{thread}) P:80 I:1000 C:{cycles:7} Min: 4 Act: 9 Avg: 9 Max: {max}\n"
        )
    };
    let log = "       0:       0:       5\n       0:       1:       7\n";
    vec![
        ("a maximum above the rows", cyclictest(900, 0)),
        ("an overflow", cyclictest(900, 2)),
        ("a maximum above the rows, JSON", json.to_owned()),
        ("a maximum above the rows, rtla", timerlat.to_owned()),
        ("no rows", line(0, 3_000, 900)),
        ("a log that lost its worst cycle", format!("{log}{}", line(0, 3, 900))),
        ("a thread that waited", line(0, 60_000, 40) + &line(1, 20_000, 90)),
    ]
}

/// All texts that a user may read of a record, and of it beside a good one.
fn texts(record: &Record, judgement: &Judgement) -> Vec<(String, String)> {
    let style = terminal::Style { width: 100_000, colour: false };
    let mut texts = vec![
        ("the page".to_owned(), html::page(record, judgement)),
        ("the terminal".to_owned(), terminal::summary(judgement, record, style)),
    ];
    let subject = Exported::new(record, judgement, None).expect("all cells");
    for format in FORMATS {
        // One that holds no file without a histogram says so.
        let Ok(bytes) = format.write(&subject) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            texts.push((format.name.to_owned(), text));
        }
    }
    for kind in plot::PlotKind::ALL {
        let drawn = plot::draw(kind, record, judgement, &plot::PlotOptions::default());
        texts.push((format!("plot {kind}"), drawn));
    }
    let good = imported(&cyclictest(9, 0));
    let of_good = judge(&good, &[]);
    let run =
        |name, record, judgement| compare::ComparedRun { name, record, judgement, cell: None };
    let of = |a, b| compare::compare(&[a], &[b], &[LIMIT_NS]);
    let bad = || run("bad", record, judgement);
    for (name, found) in [
        ("bad against good", of(bad(), run("good", &good, &of_good))),
        ("bad against bad", of(bad(), bad())),
    ] {
        let json = serde_json::to_string(&found).expect("plain values");
        let page = report::compare::page(&found);
        let text = report::compare::text(&found, style);
        let who = if name.ends_with("good") {
            "figures of B meet 200 us, those of A do not"
        } else {
            "either side meets 200 us"
        };
        for (output, text) in [("text", text), ("page", page), ("json", json)] {
            assert!(text.contains(who), "{name}, {output}: {text}");
            texts.push((format!("{name}, {output}"), text));
        }
    }
    texts
}

/// What would say that nothing reached the limit.
const WRONG: [&str; 7] = [
    "no latency of 200",
    "No wake-up took 200",
    "A meets 200",
    "figures of A meet",
    "both sides meet",
    "more on either side",
    "on which CPU",
];

#[test]
fn no_output_denies_a_maximum_that_is_in_no_row() {
    for (name, text) in failing() {
        let record = imported(&text);
        let judgement = judge(&record, &[]);
        assert_eq!(judgement.outcomes[0].verdict, Verdict::Fail, "{name}");
        let texts = texts(&record, &judgement);
        for (output, text) in &texts {
            let text = text.replace("\u{a0}", " ").replace("&#160;", " ");
            for wrong in WRONG {
                assert!(!text.contains(wrong), "{name}: {output} says {wrong:?}: {text}");
            }
        }
        assert!(texts.len() >= 20, "{}", texts.len());
    }
}

#[test]
fn a_wait_that_nobody_answered_is_marked_as_a_lower_bound() {
    let rows = |count: u32| format!("{count:06}\t{:06}", count / 3);
    let text = format!(
        "# Histogram\n000005 {}\n000009 {}\n# Min Latencies: 00005 00005\n# Avg Latencies: 00006 00006\n\
         # Max Latencies: 00009 00009\n# Histogram Overflows: 00000 00000\n",
        rows(57_000),
        rows(3_000)
    );
    let text_of = |text: &str, format: &str| {
        let record = imported(text);
        let judgement = judge(&record, &[]);
        let mut subject = Exported::new(&record, &judgement, None).expect("all cells");
        subject.submission.build = Some("origin:build".parse().expect("a build"));
        let format = super::Format::named(format).expect("a format");
        String::from_utf8(format.write(&subject).expect("written")).expect("a text")
    };
    // Thread 1 counted 20,000 cycles of 1 ms where thread 0 had 60,000.
    for (format, marks) in [
        ("csv", &[",waited_at_least_ns,frames_sent,", ",9000,36"][..]),
        ("hgrm", &["#[Waited  = at least 36", "#[Max     =        9.000"]),
        ("osadl", &["# Waited: thread 1 at least 36"]),
        ("cyclictest", &["# Waited: thread 1 at least 36", "# Max Latencies: 00009 00009"]),
        ("cyclictest-json", &["\"waited_at_least\": { \"thread 1\": 36"]),
        ("junit", &["name=\"latency_ns_max_at_least\"", "name=\"missed_at_least\""]),
        ("kcidb", &["\"is_at_least\": true", ".missed\""]),
        ("lava", &["TEST_CASE_ID=max-at-least", "TEST_CASE_ID=missed-at-least"]),
        (
            "openmetrics",
            &["rtscope_wakeup_latency_max_is_at_least{", "rtscope_missed_activations_at_least{"],
        ),
    ] {
        let written = text_of(&text, format);
        marks
            .iter()
            .for_each(|mark| assert!(written.contains(mark), "{format}: {mark}: {written}"));
        // Without a wait nothing of it is there.
        let even = text_of(&text.replace("019000", "057000").replace("001000", "003000"), format);
        let marks = marks.iter().filter(|mark| mark.contains("east") && !mark.starts_with(','));
        marks.for_each(|mark| assert!(!even.contains(mark), "{format}: {mark}: {even}"));
    }
}

/// The value at the end of the first line with these labels.
fn sample(text: &str, begins: &str, has: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(begins) && line.contains(has))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn every_figure_knows_of_a_maximum_that_is_in_no_row() {
    for (name, text) in failing() {
        let record = imported(&text);
        let judgement = judge(&record, &[]);
        let cell = &judgement.cells[0];
        let max_ns = cell.all.max_ns().expect("a maximum");
        let text = |format: &str| {
            let format = super::Format::named(format).expect("a format");
            let subject = Exported::new(&record, &judgement, None).expect("all cells");
            format.write(&subject).map(|bytes| String::from_utf8(bytes).expect("a text"))
        };
        let metrics = text("openmetrics").expect("metrics");
        let max_s = metrics.lines().filter(|line| line.starts_with("rtscope_wakeup_latency_max"));
        let max_s = max_s.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        let max_s = max_s.fold(0.0, f64::max);
        assert!((max_s - max_ns as f64 / 1e9).abs() < 1e-12, "{name}: {max_s}");
        let met = sample(&metrics, "rtscope_requirement_met", "max < 200us");
        assert_eq!(met, Some(0.0), "{name}");
        let markdown = text("markdown").expect("markdown");
        assert!(markdown.contains("| Fail |"), "{name}: {markdown}");
        // What was never answered is not a measured latency: the figures below are of those.
        if cell.all.max_is_at_least() {
            assert!(markdown.contains(">=36,620,000"), "{name}: {markdown}");
            continue;
        }
        let json: serde_json::Value =
            serde_json::from_str(&text("json").expect("json")).expect("json");
        let all = &json["cells"][0]["all"];
        assert_eq!(all["latency_ns"]["max"], max_ns, "{name}");
        for seen in all["exceedances"].as_array().expect("limits") {
            let limit_ns = seen["limit_ns"].as_u64().expect("a limit");
            let (surely, at_most) = (seen["surely"].as_u64(), seen["at_most"].as_u64());
            assert_eq!(limit_ns <= max_ns, surely >= Some(1), "{name}: {seen}");
            assert!(at_most >= surely, "{name}: {seen}");
        }
        let count = sample(&metrics, "rtscope_wakeup_latency_seconds_count", "").expect("a count");
        let below = sample(&metrics, "rtscope_wakeup_latency_seconds_bucket", "le=\"0.0002\"");
        assert!(below.expect("a bucket") < count, "{name}: {metrics}");
        let buckets = text("csv-histogram").expect("buckets");
        let last = buckets.lines().last().expect("a line");
        let to_ns = last.split(',').nth(4).and_then(|field| field.parse::<u64>().ok());
        assert!(to_ns.is_none_or(|to_ns| to_ns >= max_ns), "{name}: {buckets}");
        // An export doesn't contradict itself, and holds the same maximum.
        for format in ["cyclictest", "cyclictest-json"] {
            let written = text(format).expect("written");
            let again = imported(&written);
            let contradiction = again
                .findings
                .iter()
                .chain(&judge(&again, &[]).findings)
                .find(|finding| finding.code == "import-contradiction")
                .cloned();
            assert_eq!(contradiction, None, "{name}, {format}: {written}");
            let again = judge(&again, &[]);
            assert_eq!(again.cells[0].all.max_ns(), Some(max_ns), "{name}, {format}: {written}");
            let outcome = &again.outcomes[0];
            assert_eq!(outcome.requirement.statistic, Statistic::Max);
            assert_eq!(outcome.verdict, Verdict::Fail, "{name}, {format}");
        }
        if let Ok(osadl) = text("osadl") {
            assert!(osadl.contains("the largest of 900 us"), "{name}: {osadl}");
        }
        if let Ok(hgrm) = text("hgrm") {
            assert!(hgrm.contains("#[Max     =      900"), "{name}: {hgrm}");
        }
    }
}
