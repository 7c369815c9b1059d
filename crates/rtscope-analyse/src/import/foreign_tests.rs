//! Files in the form of other tools, made by hand: what is read from each, and what isn't taken for a result.

use rtscope_model::{finding::Weight, record::Record, verdict::Verdict};

use super::*;
use crate::{judge, report::terminal};

fn of(text: &str) -> (ImportReading, Option<&'static str>) {
    let options = ImportOptions { name: "file".to_owned(), ..ImportOptions::default() };
    let mut stream = Stream::open(None, options).expect("no format asked");
    stream.feed(text.as_bytes());
    stream.begin();
    let format = stream.format();
    (stream.finish(), format)
}

fn told<'a>(reading: &'a ImportReading, code: &str) -> Option<&'a str> {
    let found = reading.findings.iter().find(|finding| finding.code == code);
    found.map(|finding| finding.text.as_str())
}

fn prevents_pass(reading: &ImportReading) -> Vec<&str> {
    let strong = reading.findings.iter().filter(|finding| finding.weight >= Weight::PreventsPass);
    strong.map(|finding| finding.code.as_str()).collect()
}

fn record(reading: ImportReading, require: &str) -> Record {
    let import = Import {
        version: "1".to_owned(),
        command: vec!["rtscope".to_owned(), "import".to_owned()],
        wall_clock: "2026-01-01T00:00:00Z".to_owned(),
        require: vec![require.parse().expect("a requirement")],
    };
    let files = files(&import, vec![("file".to_owned(), reading)]).expect("a result");
    let record = Record::read(&files).expect("a record");
    assert_eq!(record.findings, [], "an import is a sound record");
    record
}

/// 10,000 latencies of one thread, as rt-tests 2.4 counts them: its rows, and its summary.
const ROWS: &str = "# Histogram\n000005 001000\n000006 008000\n000007 000900\n000008 000100\n";
const SUMMARY: &str = "# Total: 000010000\n# Min Latencies: 00005\n# Avg Latencies: 00006\n# Max Latencies: 00008\n\
                       # Histogram Overflows: 00000\n";

#[test]
fn rows_that_were_taken_out_count_as_latencies_without_a_value() {
    let elided = ROWS.replace("000006 008000\n", "");
    let (reading, _) = of(&(elided.clone() + SUMMARY));
    let said = told(&reading, "import-contradiction").expect("told");
    assert!(
        said.contains("2000 latencies in its rows, but a total of 10000: 8000 count as"),
        "{said}"
    );
    let part = reading.cells[0].threads[0].parts[0].clone();
    assert_eq!((part.count, part.unplaced.count, part.unplaced.from_ns), (10_000, 8_000, 5_000));
    // Even for who accepts the contradiction, no quantile lies in what is not known.
    let record = record(reading, "p99 < 100us");
    let judgement = judge(&record, &["imported".to_owned(), "import-contradiction".to_owned()]);
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    // The whole file has none of it.
    let (whole, _) = of(&(ROWS.to_owned() + SUMMARY));
    assert_eq!((told(&whole, "import-contradiction"), whole.cells[0].count()), (None, 10_000));
    assert!(whole.cells[0].threads[0].parts[0].unplaced.is_empty());
}

#[test]
fn cycles_that_neither_rows_nor_overflow_hold_count_as_latencies_without_a_value() {
    let text = r#"{ "num_threads": 1, "resolution_in_ns": 0, "thread": { "0": {
        "histogram": { "5": 1000, "8": 1000 }, "overflow": 0,
        "cycles": 10000, "min": 5, "max": 8, "avg": 6.1 } } }"#;
    for text in [text.to_owned(), text.replace("\"overflow\": 0,", "")] {
        let (reading, _) = of(&text);
        assert_eq!(prevents_pass(&reading), ["import-contradiction"]);
        let part = &reading.cells[0].threads[0].parts[0];
        assert_eq!(
            (part.count, part.unplaced.count, part.unplaced.from_ns),
            (10_000, 8_000, 5_000)
        );
    }
}

#[test]
fn the_list_of_thread_ids_has_a_thread_for_each_column() {
    let with = |ids: &str| of(&format!("{ROWS}{SUMMARY}# Thread Ids: {ids}\n")).0;
    assert_eq!(told(&with("01234"), "import-contradiction"), None);
    assert!(told(&with("01234 01235"), "import-contradiction").is_some());
}

#[test]
fn spikes_are_lines_of_cyclictest() {
    let spikes = "\nT: 0 Spike:       8: TS:   1234567890\nspikes = 1\n\n";
    let (reading, format) = of(&format!("{spikes}{ROWS}{SUMMARY}"));
    assert_eq!((format, prevents_pass(&reading)), (Some("cyclictest"), vec![]));
    assert_eq!(told(&reading, "import-damaged"), None);
    // A damaged one is a figure that can't be read.
    let (reading, _) = of(&format!("{}{ROWS}{SUMMARY}", spikes.replace("TS:", "T:")));
    assert_eq!(prevents_pass(&reading), ["import-damaged"]);
}

#[test]
fn the_screen_of_jitterdebugger_is_not_cyclictests() {
    let lines = |count: u32, max: u32| {
        format!(
            "T: 0 ( 1234) A: 0 C:{count:10} Min:         2 Avg:    3.25 Max:{max:10} \u{1b}[K\n\
                 T: 1 ( 1235) A: 3 C:{count:10} Min:         2 Avg:    4.25 Max:        31 \u{1b}[K\n"
        )
    };
    let (reading, format) = of(&(lines(500, 40) + "\u{1b}[2A" + &lines(1_000, 41)));
    assert_eq!(format, Some("jitterdebugger-text"));
    assert_eq!(prevents_pass(&reading), ["import-no-histogram"]);
    let cell = &reading.cells[0];
    assert_eq!((cell.origin.tool.as_str(), cell.count()), ("jitterdebugger", 2_000));
    assert_eq!((cell.threads[1].cpu, cell.threads[0].parts[0].max_ns), (Some(3), 41_000));
    let (reading, _) = of(&(lines(500, 40) + &lines(1_000, 39)));
    assert!(
        told(&reading, "import-contradiction").is_some_and(|text| text.contains("gets smaller"))
    );
}

/// An RT Dataset of two cores, with classes from 0 to 7 us.
fn dataset() -> String {
    r#"{
    "format": { "name": "RT Dataset", "version": "1.0" },
    "timestamps": { "origin": "2026-01-01T12:00:00+01:00", "dataset": "2026-01-01T12:05:00+01:00" },
    "system": { "hostname": "board.example" },
    "processor": { "family": "arm64", "vendor": "ARM", "type": "Cortex-A72" },
    "kernel": { "version": "6.12.0-rt", "config": ["CONFIG_SMP=y"], "cmdline": "quiet" },
    "condition": { "load": "idle", "cyclictest": "cyclictest -l10000 -m -a2-3 -t2 -p99 -i200 -h8 -q",
                   "cycles": 10000, "interval": 200 },
    "latency": { "granularity": "microseconds",
                 "cores": [ [0, 1, 2, 3, 4, 5, 6, 7],
                            [0, 0, 9000, 990, 10, 0, 0, 0],
                            [0, 0, 8000, 1990, 0, 0, 5, 4] ],
                 "maxima": [4, 95] }
}
"#
    .to_owned()
}

#[test]
fn a_dataset_of_osadl_is_read_as_what_it_is() {
    let (reading, format) = of(&dataset());
    assert_eq!((format, prevents_pass(&reading)), (Some("rt-dataset"), vec![]));
    let cell = &reading.cells[0];
    assert_eq!((cell.origin.form.as_str(), cell.is_one_run), ("OSADL RT Dataset", true));
    let [first, second] = cell.threads.as_slice() else { panic!("{cell:?}") };
    assert_eq!((first.cpu, second.cpu, first.interval_ns), (Some(2), Some(3), Some(200_000)));
    let (first, second) = (&first.parts[0], &second.parts[0]);
    assert_eq!((first.count, first.min_ns, first.max_ns), (10_000, 2_000, 4_000));
    // One cycle is in no class, and the maximum is beyond them.
    assert_eq!((second.count, second.max_ns, second.unplaced.count), (10_000, 95_000, 1));
    assert_eq!(second.unplaced.from_ns, 8_000);
    assert!(told(&reading, "import-overflow").is_some());
    // On one line it is the same.
    let (short, format) = of(&dataset().replace('\n', " "));
    assert_eq!((format, &short.cells), (Some("rt-dataset"), &reading.cells));
}

#[test]
fn a_dataset_of_osadl_is_held_against_itself() {
    let codes = |from: &str, to: &str| {
        let text = dataset();
        assert!(text.contains(from), "{from}");
        let (reading, _) = of(&text.replace(from, to));
        prevents_pass(&reading).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(codes("\"maxima\": [4, 95]", "\"maxima\": [3, 95]"), ["import-contradiction"]);
    assert_eq!(codes("[4, 95]", "[4, 95, 7]"), ["import-contradiction"]);
    assert_eq!(codes("[4, 95]", "[4]"), ["import-no-maximum"]);
    assert_eq!(codes("[4, 95]", "[]"), ["import-overflow-unknown"]);
    assert_eq!(codes("\"microseconds\"", "\"furlongs\""), ["import-unit"]);
    assert_eq!(codes("9000, 990", "90000, 990")[0], "import-contradiction");
    assert_eq!(codes("9000, 990", "-9, 990")[0], "import-damaged");
}

const TIMERLAT: &str = "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n# Duration:   0 00:00:10\n\
    Index   IRQ-000   Thr-000\n10         9000         0\n20          900      9500\n40          100       500\n\
    over:         0         0\ncount:    10000     10000\nmin:         10        20\navg:         11        21\n\
    max:         40        40\n";

#[test]
fn empty_rows_that_rtla_leaves_out_do_not_widen_a_bucket() {
    let (reading, _) = of(TIMERLAT);
    assert_eq!(prevents_pass(&reading), Vec::<&str>::new());
    assert!(reading.cells.iter().all(|cell| cell.layout.unit_ns == 1_000));
}

#[test]
fn what_rtla_says_of_its_trace_is_no_damage() {
    let saved = format!("{TIMERLAT}  Saving trace to timerlat_trace.txt\n");
    assert_eq!(prevents_pass(&of(&saved).0), Vec::<&str>::new());
    let analysed = "rtla timerlat hit stop tracing\n## CPU 0 hit stop tracing, analyzing it ##\n\
                    \x20 IRQ handler delay:                0.00 us (0.00 %)\n";
    let (reading, _) = of(&format!("{TIMERLAT}{analysed}  Saving trace to timerlat_trace.txt\n"));
    assert_eq!(prevents_pass(&reading), ["break-hit"]);
    let (reading, _) = of(&format!("{TIMERLAT}something else\n"));
    assert_eq!(prevents_pass(&reading), ["import-damaged"]);
}

#[test]
fn a_run_of_osnoise_without_noise_is_a_result() {
    let head = "# RTLA osnoise histogram\n# Time unit is microseconds (us)\n# Duration:   0 00:00:10\n\
                Index   CPU-000   CPU-001\n";
    let none = "over:         0         0\ncount:        0         0\nmin:          -         -\n\
                avg:          -         -\nmax:          -         -\n";
    for none in [none.to_owned(), none.replace('-', "0")] {
        let (reading, _) = of(&format!("{head}{none}"));
        assert_eq!(prevents_pass(&reading), ["import-not-latency"]);
        assert!(told(&reading, "import-no-noise").is_some());
        let judgement = judge(&record(reading, "max < 100us"), &[]);
        assert_eq!(judgement.verdict, Verdict::Inconclusive);
    }
    // timerlat always has latencies.
    let timerlat = format!("{head}{none}").replace("osnoise", "timerlat").replace("CPU-", "IRQ-");
    assert!(of(&timerlat).0.cells.is_empty());
}

#[test]
fn advice_for_an_import_asks_nobody_to_measure_longer() {
    let late = |cycle: u32| if cycle.is_multiple_of(97) { 9 } else { 5 + cycle % 3 };
    let lines = (0..2_000).map(|cycle| format!("{:8}:{cycle:8}:{:8}\n", 0, late(cycle)));
    let log: String = "Thread 0 Interval: 1500\n".to_owned() + &lines.collect::<String>();
    for require in ["p99.99 < 100us", "p50 < 6us", "mean < 6us"] {
        let (reading, format) = of(&log);
        assert_eq!(format, Some("cyclictest"));
        let record = record(reading, require);
        let judgement = judge(&record, &["imported".to_owned()]);
        let style = terminal::Style { width: 1_000, colour: false };
        let text = terminal::summary(&judgement, &record, style);
        assert!(!text.contains("times as long") && !text.contains("measure longer"), "{text}");
    }
}

#[test]
fn a_table_that_nothing_explains_is_asked_about() {
    for text in [
        "time,cpu,latency_us\n0.1,0,12\n0.2,1,13\n",
        "timestamp,latency_us\n1000,12\n2000,13\n",
        "1 23 42\n2 25 44\n3 23 44\n",
        "time_us,count\n1,5\n",
        "latency_us,max_us\n1,5\n",
        "cpu,temperature\n1,5\n",
    ] {
        let (reading, format) = of(text);
        assert_eq!((format, reading.cells.len()), (None, 0), "{text}");
        let said =
            told(&reading, "import-columns").unwrap_or_else(|| panic!("{text}: {reading:?}"));
        assert!(said.contains("--format columns") && said.contains("cut -d"), "{said}");
    }
    for text in
        ["latency_us,cpu0,cpu1\n1,23,42\n2,25,44\n", "5 3\n6 4\n", "latency,count\n5,3\n", "5\n6\n"]
    {
        assert_eq!(of(text).1, Some("columns"), "{text}");
    }
    // Whoever names the format says what the columns are.
    let options = ImportOptions { name: "file".to_owned(), ..ImportOptions::default() };
    let reading = read(Some("columns"), options, b"1 23 42\n2 25 44\n").expect("a format");
    assert_eq!(reading.cells[0].count(), 23 + 42 + 25 + 44);
}
