use rtscope_model::{
    record::{LISTED_SPANS, Record, SampleReader, Samples},
    slice::Scope,
};

use super::*;
use crate::{
    import::{self, Import, ImportOptions},
    judge,
    plot::fixture,
    test_support::Run,
};

const PLAN: &str = r#"
name = "two"
title = "Two cells"
require = ["max < 200us"]
[[phase]]
name = "rest"
duration = "2s"
[[phase]]
name = 'busy, "a|b" <c> #1'
duration = "2s"
load = ["message groups=1"]
require = ["p99 < 70us", "missed = 0"]
"#;

/// Two threads and two cells; in the second one thread is late by more than the exact buckets hold.
fn run() -> Run {
    let quiet: Vec<u64> = (0..2_000).map(|i| 4_000 + 31 * (i % 200)).collect();
    let other: Vec<u64> = (0..2_000).map(|i| 6_123 + 57 * (i % 300)).collect();
    let mut late = other.clone();
    (late[700], late[1_500]) = (12_003_004, 250_500);
    Run::new(PLAN, 2)
        .cell(0, &[&quiet, &other])
        .cell(1, &[&quiet, &late])
        .load(1, "message groups=1", &[1_000, 2_000])
        .end()
}

fn document(format: &str, record: &Record, cell: Option<&str>) -> Result<String, String> {
    let judgement = judge(record, &[]);
    let bytes = Format::named(format)?.write(&Exported::new(record, &judgement, cell)?)?;
    Ok(String::from_utf8(bytes).expect("a text"))
}

const BUSY: &str = r#"busy, "a|b" <c> #1"#;

/// Wake-ups of the first thread's first slice, as if its file had them: one after all slices is in no cell.
fn samples_of(record: &Record) -> Samples {
    let slice = record.slices.iter().find(|slice| matches!(slice.scope, Scope::Cell(_)));
    let slice = slice.expect("a slice of a cell");
    let mut reader = SampleReader::new(slice.thread, LISTED_SPANS);
    let instants = [slice.start_ns, slice.start_ns + 1_000_000, u64::MAX];
    for (at_ns, latency_ns) in instants.into_iter().zip([5_000_u64, 6_000, 7_000]) {
        reader.feed(&at_ns.to_le_bytes());
        reader.feed(&latency_ns.to_le_bytes());
    }
    reader.finish()
}

#[test]
fn every_format_looks_as_reviewed() {
    let mut record = run().record();
    record.samples = vec![samples_of(&record)];
    for format in FORMATS.iter().filter(|format| format.name != "parquet") {
        let of_one = ["cyclictest", "cyclictest-json", "osadl", "hgrm"].contains(&format.name);
        let cell = of_one.then_some(BUSY);
        let text = document(format.name, &record, cell).expect("written");
        let lines: Vec<&str> = text.lines().collect();
        // Of the long ones the beginning and the end.
        let shown = match lines.len() {
            0..=150 => text.clone(),
            n => [&lines[..40], &["..."], &lines[n - 60..]].concat().join("\n"),
        };
        assert!(text.ends_with('\n') && !text.contains("NaN") && !text.contains(" inf"));
        insta::assert_snapshot!(format.name, shown);
    }
}

/// An export as it is imported again.
pub(super) fn imported(text: &str, unit_ns: Option<u64>) -> Record {
    let options =
        ImportOptions { name: "export".to_owned(), unit_ns, interval_ns: Some(1_000_000) };
    let reading = import::read(None, options, text.as_bytes()).expect("a format");
    assert!(reading.findings.iter().all(|found| found.code != "import-contradiction"), "{text}");
    let files = import::files(&Import::default(), vec![("export".to_owned(), reading)]);
    Record::read(&files.expect("files")).expect("a record")
}

/// Count, quantiles and extremes, buckets.
type Figures = (u64, Vec<u64>, Vec<(u64, u64)>);

/// Count, minimum, maximum, quantiles and buckets of each thread, in whole units.
fn figures(record: &Record, cell: usize, unit_ns: u64) -> Vec<Figures> {
    let judgement = judge(record, &[]);
    let of = |row: &FigureRow| {
        let histogram = &row.histogram;
        let quantiles = row.quantiles.iter().map(|quantile| quantile.value_ns);
        let ends = histogram.min_ns().into_iter().chain(histogram.max_ns());
        let layout = histogram.layout();
        let bins = histogram.bins().into_iter();
        let bins = bins.filter(|(index, _)| *index < layout.exact);
        let bins = bins.map(|(index, count)| (layout.lower_ns(index) / unit_ns, count));
        (row.recorded, quantiles.chain(ends).map(|ns| ns / unit_ns).collect(), bins.collect())
    };
    judgement.cells[cell].threads.iter().map(of).collect()
}

#[test]
fn what_is_exported_and_imported_again_has_the_same_figures() {
    let record = run().record();
    for format in ["cyclictest", "cyclictest-json", "osadl"] {
        let text = document(format, &record, Some("rest")).expect("written");
        assert_eq!(
            figures(&imported(&text, None), 0, 1_000),
            figures(&record, 0, 1_000),
            "{format}"
        );
    }
    // With an overflow: counted, and without a bucket or quantile.
    for format in ["cyclictest", "cyclictest-json"] {
        let text = document(format, &record, Some(BUSY)).expect("written");
        let again = imported(&text, None);
        let (before, after) = (figures(&record, 1, 1_000), figures(&again, 0, 1_000));
        assert_eq!(before[0], after[0], "{format}");
        let of = |figures: &Figures| (figures.0, figures.1.last().copied(), figures.2.clone());
        assert_eq!(of(&before[1]), of(&after[1]), "{format}");
        let late = &judge(&again, &[]).cells[0].threads[1].histogram;
        assert_eq!((late.unplaced().count, late.at_or_above(10_000_000).0), (1, 1), "{format}");
    }
    // OSADL's columns end with the exact buckets: one latency is in a comment and not read back.
    let text = document("osadl", &record, Some(BUSY)).expect("written");
    assert!(text.ends_with("# latencies in no row: 1, the largest of 12003 us\n"), "{text}");
    assert_eq!(figures(&imported(&text, None), 0, 1_000)[1].0, 1_999);
}

#[test]
fn intervals_and_the_machine_survive_in_json() {
    let text = document("cyclictest-json", &run().record(), Some("rest")).expect("written");
    let options = ImportOptions { name: "export".to_owned(), ..ImportOptions::default() };
    let reading = import::read(None, options, text.as_bytes()).expect("a format");
    let cell = &reading.cells[0];
    assert_eq!(cell.threads[1].interval_ns, Some(1_000_000));
    assert_eq!(
        cell.threads.iter().map(|thread| thread.cpu).collect::<Vec<_>>(),
        [Some(0), Some(1)]
    );
    assert!(cell.origin.facts.contains(&("host".to_owned(), "board".to_owned())));
    assert_eq!(cell.origin.command.as_deref(), Some("rtscope run"));
}

#[test]
fn no_text_of_a_record_is_markup_in_markdown() {
    let hostile = "<img src=x> [a](https://b) | c";
    let mut record = run().record();
    for stamped in &mut record.events {
        if let Event::RunStarted { version, wall_clock, .. } = &mut stamped.event {
            (*version, *wall_clock) = (hostile.to_owned(), hostile.to_owned());
        }
    }
    record.threads[0].imported = Some(hostile.to_owned());
    let text = document("markdown", &record, None).expect("exported");
    for markup in ["<img", "[a](", "| c |"] {
        let escaped = text.matches(&format!("\\{markup}")).count();
        assert_eq!((text.matches(markup).count(), escaped > 0), (escaped, true), "{text}");
    }
}

#[test]
fn nanoseconds_stay_nanoseconds() {
    let plan = "name = \"n\"\n[sampler]\nresolution = \"1ns\"\nbuckets = 100000\n[[phase]]\nname = \"rest\"\nduration = \"2s\"";
    let latencies: Vec<u64> = (0..2_000).map(|i| 3_001 + 7 * (i % 333)).collect();
    let record = Run::new(plan, 1).cell(0, &[&latencies]).end().record();
    assert_eq!(record.layout_of(0).unit_ns, 1, "the plan is in ns");
    let json = document("cyclictest-json", &record, None).expect("written");
    assert!(json.contains("\"resolution_in_ns\": 1"));
    assert_eq!(figures(&imported(&json, None), 0, 1), figures(&record, 0, 1));
    let text = document("cyclictest", &record, None).expect("written");
    assert_eq!(figures(&imported(&text, Some(1)), 0, 1), figures(&record, 0, 1));
}

#[test]
fn an_import_without_a_histogram_is_exported_without_one() {
    let printed =
        "T: 0 (18607) P:80 I:1000 C:   3000 Min:      4 Act:   10 Avg:    9 Max:      98\n";
    let record = imported(printed, None);
    let text = document("cyclictest", &record, None).expect("written");
    assert_eq!(
        text,
        "T: 0 (    0) P: 0 I:1000 C:   3000 Min:      4 Act:    0 Avg:    9 Max:      98\n"
    );
    // How the thread was scheduled and what it missed isn't known either.
    let json = document("cyclictest-json", &record, None).expect("written");
    assert!(json.contains("\"interval_us\": 1000") && json.contains("\"cycles\": 3000"), "{json}");
    for key in ["missed", "tid", "policy", "priority"] {
        assert!(!json.contains(&format!("\"{key}\":")), "{key}: {json}");
    }
    let refused = document("hgrm", &record, None).expect_err("no percentile is known");
    assert!(refused.starts_with("3000 latencies of "), "{refused}");
    let figures = document("csv", &record, None).expect("written");
    // Planned and missed are not known, nor is any quantile but those that the maximum is.
    let line = figures.lines().nth(1).expect("a line");
    assert_eq!(
        line,
        "export,thread 0,,,3000,,3000,0,3000000000,4000,9000,,,,,,98999,98999,98999,98000,,,,,,,,"
    );
}

#[test]
fn each_line_of_figures_and_slices_has_what_became_of_frames() {
    let record = fixture::network().record();
    for format in ["csv", "csv-slices"] {
        let text = document(format, &record, None).expect("written");
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let column = |name: &str| rows[0].iter().position(|head| *head == name).expect("a column");
        let busy = rows.iter().rfind(|row| row[0] == "message").expect("a line");
        // 988 came back in time, 7 late, 3 never, and 2 were not sent; one was overtaken.
        for (name, count) in [
            ("planned", "1000"),
            ("recorded", "988"),
            ("missed", "12"),
            ("frames_sent", "998"),
            ("frames_late", "7"),
            ("frames_lost", "3"),
            ("frames_refused", "0"),
            ("frames_out_of_order", "1"),
            ("frames_duplicates", "0"),
            ("frames_strays", "0"),
        ] {
            assert_eq!(busy[column(name)], count, "{format}: {name}");
        }
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{format}");
        // A sampler without frames has none, which is not 0.
        let without = document(format, &run().record(), None).expect("written");
        let line = without.lines().nth(1).expect("a line");
        assert!(line.ends_with(",,,,,,,"), "{format}: {line}");
    }
}

#[test]
fn a_format_of_one_cell_wants_one() {
    let record = run().record();
    for format in ["cyclictest", "cyclictest-json", "osadl", "hgrm"] {
        let refused = document(format, &record, None).expect_err("two cells");
        assert!(refused.contains("several (rest, busy"), "{refused}");
    }
    let refused = document("csv", &record, Some("idle")).expect_err("no such cell");
    assert!(refused.contains("no cell \"idle\": choose one of rest, "), "{refused}");
    assert!(Format::named("xml").expect_err("no such format").contains("junit"));
    let unfinished = Run::new(PLAN, 1).cell(0, &[&[3_000]]).record();
    assert!(document("hgrm", &unfinished, Some(BUSY)).expect_err("empty").contains("no latency"));
    assert!(
        document("openmetrics", &unfinished, None).is_ok()
            && document("junit", &unfinished, None).is_ok()
    );
}

#[test]
fn what_is_met_in_a_run_that_is_not_valid_is_no_pass() {
    let plan =
        "name = \"p\"\nrequire = [\"max < 1ms\"]\n[[phase]]\nname = \"rest\"\nduration = \"2s\"";
    let latencies = [10_000u64; 2_000];
    let run = Run::new(plan, 1).cell(0, &[&latencies]).end();
    let in_a_guest = run.clone().machine(|machine| machine.virtualisation = Some("kvm".to_owned()));
    let of = |run: &Run, format: &str| document(format, &run.record(), None).expect("written");
    assert!(of(&run, "junit").contains("tests=\"2\" failures=\"0\" errors=\"0\""));
    assert!(of(&in_a_guest, "junit").contains("tests=\"2\" failures=\"0\" errors=\"2\""));
    assert!(!of(&run, "ktap").contains("not ok"));
    assert_eq!(of(&in_a_guest, "ktap").matches("not ok").count(), 4);
    assert!(of(&run, "lava").contains("require-max-below-1ms RESULT=pass>"));
    assert!(of(&in_a_guest, "lava").contains("require-max-below-1ms RESULT=unknown>"));
    let met = "rtscope_requirement_met{plan=\"p\",cell=\"rest\",requirement=\"max < 1ms\"}";
    assert!(of(&run, "openmetrics").contains(&format!("{met} 1\n")));
    assert!(!of(&in_a_guest, "openmetrics").contains(met));
}

/// The table of the library whose format it is, of the same values.
#[test]
fn percentiles_step_as_those_of_hdrhistogram() {
    let plan = "name = \"n\"\n[sampler]\nresolution = \"1ns\"\nbuckets = 100000\n[[phase]]\nname = \"rest\"\nduration = \"2s\"";
    let latencies: Vec<u64> = (0..2_000u64).map(|i| 3_000 + i * i % 1_999 + i).collect();
    let record = Run::new(plan, 1).cell(0, &[&latencies]).end().record();
    let table = document("hgrm", &record, None).expect("written");
    // Four digits keep values below 20,000 apart.
    let mut theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 100_000, 4).expect("one");
    latencies.iter().for_each(|ns| theirs.record(*ns).expect("in bounds"));
    let expected: Vec<(String, String, u64)> = theirs
        .iter_quantiles(5)
        .map(|step| {
            let value = format!("{:.3}", step.value_iterated_to() as f64 / 1_000.0);
            let count = theirs.count_between(0, step.value_iterated_to());
            (value, format!("{:.12}", step.quantile_iterated_to()), count)
        })
        .collect();
    let lines = table.lines().skip(2).filter(|line| !line.starts_with('#'));
    let ours: Vec<(String, String, u64)> = lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[0].to_owned(), words[1].to_owned(), words[2].parse().expect("a count"))
        })
        .collect();
    assert!(ours.len() > 40, "{table}");
    assert_eq!(ours, expected);
    let mean = format!("{:.3}", theirs.mean() / 1_000.0);
    let deviation = format!("{:.3}", theirs.stdev() / 1_000.0);
    let said = table.lines().find(|line| line.starts_with("#[Mean")).expect("a mean");
    assert!(said.contains(&mean) && said.contains(&deviation), "{said} {mean} {deviation}");
}
