//! Files that contradict themselves. `tests/imports.rs` looks at real ones, which don't.

use rtscope_model::finding::Weight;

use super::{ImportOptions, ImportReading};

fn of(text: &str) -> ImportReading {
    let options = ImportOptions { name: "file".to_owned(), ..ImportOptions::default() };
    let mut stream = super::Stream::open(None, options).expect("no format asked");
    stream.feed(text.as_bytes());
    stream.finish()
}

/// The finding of this code, if it prevents a Pass.
fn told(reading: &ImportReading, code: &str) -> Option<String> {
    let is_so = |of: &&rtscope_model::finding::Finding| {
        of.code == code && of.weight >= Weight::PreventsPass
    };
    reading.findings.iter().find(is_so).map(|finding| finding.text.clone())
}

/// Each of `changes` (what is replaced, by what, the finding) made to a file without contradictions.
fn each_is_told(sound: &str, changes: &[(&str, &str, &str)]) {
    let reading = of(sound);
    for code in ["import-contradiction", "import-damaged", "import-no-maximum"] {
        assert_eq!(told(&reading, code), None, "{sound}");
    }
    for (from, to, code) in changes {
        assert_eq!(sound.matches(from).count(), 1, "{from}");
        let reading = of(&sound.replace(from, to));
        assert!(told(&reading, code).is_some(), "{from} -> {to}: {:?}", reading.findings);
    }
}

/// The largest latency of all cells.
fn max_us(reading: &ImportReading) -> Option<u64> {
    let threads = reading.cells.iter().flat_map(|cell| &cell.threads);
    threads.flat_map(|thread| &thread.parts).map(|part| part.max_ns / 1_000).max()
}

const JSON: &str = r#"{"rt_test_version:": "2.40", "cmdline:": "cyclictest -q -h 60 -i 1000",
"return_code": 0, "num_threads": 1, "resolution_in_ns": 0, "thread": {"0": {"histogram": {
"5": 10, "6": 80, "9": 10}, "cycles": 100, "min": 5, "max": 9, "avg": 6.20, "cpu": 0, "node": -1}}}"#;

#[test]
fn json_of_cyclictest_is_held_against_itself() {
    let contradiction = "import-contradiction";
    each_is_told(
        JSON,
        &[
            (r#""max": 9"#, r#""max": 900"#, contradiction),
            (r#""max": 9"#, r#""max": 8"#, contradiction),
            (r#""min": 5"#, r#""min": 6"#, contradiction),
            (r#""min": 5"#, r#""min": 4"#, contradiction),
            (r#""avg": 6.20"#, r#""avg": 60.20"#, contradiction),
            (r#""avg": 6.20"#, r#""avg": 1.20"#, contradiction),
            (r#""cycles": 100"#, r#""cycles": 99"#, contradiction),
            // Latencies beyond the rows are at least 60.
            (r#""cycles": 100"#, r#""cycles": 102"#, contradiction),
            (r#""cycles": 100"#, r#""cycles": 103, "overflow": 2"#, contradiction),
            (r#""6": 80"#, r#""6": 80, "6": 80"#, "import-damaged"),
            (r#""6": 80"#, r#""6": 80, "06": 80"#, "import-damaged"),
            (r#""6": 80"#, r#""6": -80"#, "import-damaged"),
            (r#""6": 80"#, r#""six": 80"#, "import-damaged"),
            (r#""max": 9"#, r#""max": 9, "max": 9"#, "import-damaged"),
            (r#""max": 9"#, r#""max": "9""#, "import-damaged"),
            (r#""max": 9"#, r#""max": "nine""#, "import-no-maximum"),
            (r#""max": 9"#, r#""max": -9"#, "import-no-maximum"),
            (r#""max": 9"#, r#""max": null"#, "import-no-maximum"),
            (r#""cycles": 100"#, r#""cycles": -100"#, "import-damaged"),
            (r#", "node": -1}"#, r#", "node": -1}, "00": {}"#, "import-damaged"),
        ],
    );
    // It is written while the threads end: one more cycle may be counted than the rows hold.
    let last = JSON.replace(r#""cycles": 100"#, r#""cycles": 101"#);
    assert_eq!(told(&of(&last), "import-contradiction"), None);
}

#[test]
fn json_without_rows_is_held_against_itself() {
    let bare = JSON.replace(r#""5": 10, "6": 80, "9": 10"#, "");
    each_is_told(
        &bare,
        &[
            (r#""min": 5"#, r#""min": 10"#, "import-contradiction"),
            (r#""avg": 6.20"#, r#""avg": 10.20"#, "import-contradiction"),
            (r#""avg": 6.20"#, r#""avg": 3.90"#, "import-contradiction"),
            (r#""max": 9"#, r#""max": -9"#, "import-no-maximum"),
        ],
    );
    // A maximum of which nothing is known isn't 0: the thread is left out.
    let early = of(&bare.replace(r#""max": 9"#, r#""max": -9"#));
    assert_eq!(max_us(&early), None, "{:?}", early.cells);
}

#[test]
fn jitterdebugger_is_held_against_itself() {
    let sound = r#"{"version": 3, "sysinfo": {"resolution_in_ns": 1000}, "cpu": {"0": {
        "histogram": {"5": 10, "6": 80, "9": 8}, "count": 100, "min": 5, "max": 1500, "avg": 34.01}}}"#;
    let contradiction = "import-contradiction";
    each_is_told(
        sound,
        &[
            // It has no row from 1 ms on.
            (r#""max": 1500"#, r#""max": 999"#, contradiction),
            (r#""count": 100"#, r#""count": 98"#, contradiction),
            (r#""count": 100"#, r#""count": 97"#, contradiction),
            (r#""min": 5"#, r#""min": 1"#, contradiction),
            (r#""avg": 34.01"#, r#""avg": 20.01"#, contradiction),
            (r#""avg": 34.01"#, r#""avg": 40.01"#, contradiction),
            (r#""9": 8"#, r#""9": "8""#, "import-damaged"),
            (r#""max": 1500"#, r#""max": 18446744073709551613"#, "import-no-maximum"),
        ],
    );
}

const TIMERLAT: &str = "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n\
    # Duration:   0 00:00:10\nIndex   IRQ-000   Thr-000\n0          6000         0\n\
    1          3990      1000\n2            10      8990\n7             0         8\n\
    over:         0         2\ncount:    10000     10000\nmin:          0         1\n\
    avg:          0         1\nmax:          2       310\nALL:        IRQ       Thr\n\
    count:   10000     10000\nmin:          0         1\navg:          0         1\n\
    max:          2       310\n";

#[test]
fn timerlat_is_held_against_itself() {
    let contradiction = "import-contradiction";
    each_is_told(
        TIMERLAT,
        &[
            ("over:         0         2", "over:         0         3", contradiction),
            ("over:         0         2", "over:         0         0", contradiction),
            ("1          3990      1000", "1          3990      1001", contradiction),
            ("count:    10000     10000", "count:    10000     10001", contradiction),
            ("max:          2       310\nALL", "max:          2         7\nALL", contradiction),
            ("max:          2       310\nALL", "max:          1       310\nALL", contradiction),
            (
                "min:          0         1\navg:          0         1\nmax:          2       310\nALL",
                "min:          0         2\navg:          0         1\nmax:          2       310\nALL",
                contradiction,
            ),
            (
                "avg:          0         1\nmax:          2       310\nALL",
                "avg:          0         9\nmax:          2       310\nALL",
                contradiction,
            ),
            ("count:   10000     10000", "count:   10000     20000", contradiction),
            (
                "min:          0         1\navg:          0         1\nmax:          2       310\n\
              ALL:        IRQ       Thr",
                "max:          2       310\nmax:          2         7\n\
              ALL:        IRQ       Thr",
                contradiction,
            ),
            ("2            10      8990", "2            10      8990\n2 10 8990", "import-damaged"),
            ("2            10      8990", "2            10     -8990", "import-damaged"),
            ("max:          2       310\nALL", "max:          2      three\nALL", "import-damaged"),
            (
                "max:          2       310\nALL",
                "max:          2      -310\nALL",
                "import-no-maximum",
            ),
        ],
    );
    // Buckets of 10 us: the minimum, the maximum and the average lie inside of them.
    let wide = "# RTLA timerlat histogram\n# Time unit is microseconds (us)\nIndex   Thr-000\n\
        0     100\n10     10\nover:  0\ncount: 110\nmin:   3\navg:   4\nmax:  10\n";
    each_is_told(
        wide,
        &[("avg:   4", "avg:  30", contradiction), ("min:   3", "min:  11", contradiction)],
    );
}

const HISTOFALL: &str = "# Histogram\n000005 000010\t000010\t000020\n000009 000001\t000002\t000003\n\
    # Total: 000000011 000000012 000000023\n# Min Latencies: 00005 00005\n\
    # Avg Latencies: 00005 00005\n# Max Latencies: 00009 00009 00009\n\
    # Histogram Overflows: 00000 00000 00000\n";

#[test]
fn text_of_cyclictest_is_held_against_itself() {
    let contradiction = "import-contradiction";
    each_is_told(
        HISTOFALL,
        &[
            ("000002\t000003", "000002\t000004", contradiction),
            ("# Min Latencies: 00005 00005", "# Min Latencies: 00006 00005", contradiction),
            ("# Avg Latencies: 00005 00005", "# Avg Latencies: 00007 00005", contradiction),
            (
                "# Max Latencies: 00009 00009 00009",
                "# Max Latencies: 00009 00900 00900",
                contradiction,
            ),
            ("# Max Latencies: 00009 00009 00009", "# Max Latencies: 00009", contradiction),
            (
                "# Max Latencies: 00009 00009 00009",
                "# Max Latencies: 00009 00009 00009\n# Max Latencies: 00009 00009 00009",
                contradiction,
            ),
            (
                "# Max Latencies: 00009 00009 00009",
                "# Max Latencies: 00009 nine 00009",
                "import-damaged",
            ),
            (
                "# Max Latencies: 00009 00009 00009",
                "# Max Latencies: 00009 nine 00009",
                "import-no-maximum",
            ),
            (
                "# Max Latencies: 00009 00009 00009",
                "# Max Latencies: 00009 18446744073709551613 00009",
                "import-no-maximum",
            ),
            ("000009 000001\t000002\t000003", "000009 -00001\t000002\t000003", "import-damaged"),
            (
                "000009 000001\t000002\t000003",
                "000009 000001\t000002\t000003\n000009 000001\t000002\t000003",
                "import-damaged",
            ),
        ],
    );
    // -H of one thread has a column of sums, too, and it is no thread.
    let one = "# Histogram\n000005 000010\t000010\n# Min Latencies: 00005\n# Avg Latencies: 00005\n\
        # Max Latencies: 00005\n# Histogram Overflows: 00000\n";
    let reading = of(one);
    assert_eq!((reading.cells[0].threads.len(), told(&reading, contradiction)), (1, None));
}

#[test]
fn lines_of_threads_are_held_against_themselves() {
    let line = "T: 0 ( 700) P:80 I:1000 C:   3000 Min:      4 Act:   10 Avg:    9 Max:      30\n";
    each_is_told(
        line,
        &[
            ("Min:      4", "Min:     31", "import-contradiction"),
            ("Avg:    9", "Avg:   32", "import-contradiction"),
            ("Avg:    9", "Avg:    2", "import-contradiction"),
            ("Max:      30", "Max:      -3", "import-no-maximum"),
            ("Max:      30", "Max:   three", "import-damaged"),
            (
                "Max:      30\n",
                "Max:     900\nT: 0 ( 700) P:80 I:1000 C:   3001 Min:      4 \
              Act:   10 Avg:    9 Max:      30\n",
                "import-contradiction",
            ),
        ],
    );
    assert_eq!(max_us(&of(&line.replace("Max:      30", "Max:      -3"))), None);
    // A log beside such a line: its maximum isn't lost.
    let log = "       0:       0:       5\n       0:       1:       7\n";
    let status = |cycles: u32, max: u32| {
        of(&format!("{log}T: 0 ( 700) P:80 I:1000 C:{cycles:7} Min: 5 Act: 7 Avg: 6 Max:{max:8}\n"))
    };
    assert_eq!(told(&status(2, 7), "import-contradiction"), None);
    assert!(told(&status(2, 900), "import-contradiction").is_some());
    assert!(told(&status(2, 6), "import-contradiction").is_some());
    assert!(told(&status(3, 900), "import-samples-missing").is_some());
    assert_eq!(told(&status(3, 900), "import-contradiction"), None);
    assert_eq!((max_us(&status(2, 900)), max_us(&status(3, 900))), (Some(900), Some(900)));
}

#[test]
fn columns_and_extremes_are_held_against_themselves() {
    each_is_told(
        "8 99990\n16 10\n",
        &[("16 10", "8 10", "import-damaged"), ("16 10", "16 -10", "import-damaged")],
    );
    // Decimals are cut: two rows may become one.
    assert_eq!(told(&of("8.1 99990\n8.7 10\n"), "import-damaged"), None);
    each_is_told(
        "    2 s  servo min: -10.400 us max:  14.300 us sdev:   1.000 us\n",
        &[("min: -10.400 us", "min:  15.400 us", "import-contradiction")],
    );
}

/// A maximum above the rows is one more latency in every figure, not a maximum of nothing.
#[test]
fn a_maximum_above_the_rows_counts() {
    let reading = of(&JSON.replace(r#""max": 9"#, r#""max": 900"#));
    let part = &reading.cells[0].threads[0].parts[0];
    assert_eq!((part.count, part.unplaced.count, part.unplaced.from_ns), (101, 1, 900_000));
    assert_eq!((part.max_ns, part.sum_ns), (900_000, 620_000 + 900_000));
}

const THREADS: &str = "# Histogram\n000045 005000\t006000\n000078 005000\t004000\n\
    # Total: 000010000 000010000\n# Min Latencies: 00045 00045\n# Avg Latencies: 00061 00058\n\
    # Max Latencies: 00078 00078\n# Histogram Overflows: 00000 00000\n";

fn status(thread: u32, cycles: u32, act: u32, max: u32) -> String {
    format!(
        "T: {thread} ( 700) P:80 I:1000 C:{cycles:7} Min:  45 Act:{act:5} Avg: 60 Max:{max:8}\n"
    )
}

#[test]
fn a_screen_is_held_against_its_histogram() {
    let contradiction = "import-contradiction";
    let on = |lines: String| told(&of(&format!("{lines}{THREADS}")), contradiction);
    assert_eq!(on(status(0, 10_000, 50, 78) + &status(1, 9_000, 78, 78)), None);
    // What is drawn while a thread wakes is mended by the next lines.
    assert_eq!(on(status(0, 9_000, 78, 50) + &status(0, 10_000, 50, 78)), None);
    assert!(on(status(2, 1_236, 50, 78)).is_some_and(|text| text.contains("thread 2")));
    assert!(on(status(0, 20_000, 50, 78)).is_some());
    assert!(on(status(0, 10_000, 950, 78)).is_some());
    // Between the rows and the summary it is no other run's.
    let within = THREADS.replace("# Total", &format!("{}# Total", status(2, 1_236, 50, 978)));
    assert!(told(&of(&within), contradiction).is_some());
    // Below the summary it is: no maximum is lost.
    let below = of(&format!("{THREADS}{}", status(2, 1_236, 50, 978)));
    assert_eq!((below.cells.len(), max_us(&below)), (2, Some(978)));
    assert!(told(&below, "import-no-histogram").is_some());
    // Nor may a log lack a thread that has cycles.
    let log = "       0:       0:       5\n       0:       1:       7\n";
    let silent = of(&format!("{log}{}", status(1, 1_236, 50, 978)));
    assert!(told(&silent, "import-samples-missing").is_some());
}

#[test]
fn a_unit_is_named_once() {
    let rtla = |from: &str, to: &str| of(&TIMERLAT.replace(from, to));
    let twice = rtla("ALL:        IRQ", "# Time unit is nanoseconds (ns)\nALL:        IRQ");
    assert!(told(&twice, "import-contradiction").is_some_and(|text| text.contains("unit")));
    assert_eq!(max_us(&twice), Some(310));
    assert_eq!(max_us(&rtla("microseconds (us)", "milliseconds (ms)")), Some(310_000));
    for unknown in ["fortnights (ft)", "microseconds (ns)", "seconds (s)"] {
        assert!(told(&rtla("microseconds (us)", unknown), "import-unit").is_some(), "{unknown}");
    }
}

#[test]
fn a_heading_of_columns_names_the_unit() {
    let read = |text: &str, unit_ns: Option<u64>| {
        let options =
            ImportOptions { name: "file".to_owned(), unit_ns, ..ImportOptions::default() };
        super::read(Some("columns"), options, text.as_bytes()).expect("a format")
    };
    let asks = |reading: &ImportReading| reading.findings.iter().any(|f| f.code == "import-unit");
    for (heading, max) in [("latency_ms", 9_000), ("latency_us", 9), ("latency (ns)", 0)] {
        let histogram = read(&format!("{heading},count\n5,99\n9,1\n"), None);
        let latencies = read(&format!("{heading}\n5\n9\n"), None);
        for reading in [&histogram, &latencies] {
            assert_eq!((max_us(reading), asks(reading)), (Some(max), false), "{heading}");
        }
    }
    assert!(asks(&read("latency,count\n5,99\n9,1\n", None)));
    let named = "latency_ns,count\n5,99\n9,1\n";
    assert_eq!(told(&read(named, Some(1)), "import-contradiction"), None);
    assert!(told(&read(named, Some(1_000)), "import-contradiction").is_some());
}

#[test]
fn a_nul_is_damage() {
    let columns = |text: &str| {
        let options = ImportOptions { name: "file".to_owned(), ..ImportOptions::default() };
        super::read(Some("columns"), options, text.as_bytes()).expect("a format")
    };
    let sound = "5 10\n01150 1\n";
    assert_eq!(told(&columns(sound), "import-damaged"), None);
    for damaged in [sound.replace("01150", "0\u{0}150"), format!("{sound}\u{0}\u{0}\n")] {
        assert!(told(&columns(&damaged), "import-damaged").is_some(), "{damaged:?}");
    }
    let histogram = HISTOFALL.replace("00009 00009 00009", "00\u{0}09 00009 00009");
    assert!(told(&of(&histogram), "import-damaged").is_some());
}

#[test]
fn a_thread_that_recorded_little_is_told() {
    let run = |counts: [u32; 2]| {
        of(&format!(
            "# Histogram\n000005 {:06}\t{:06}\n# Total: {:09} {:09}\n# Min Latencies: 00005 00005\n\
             # Avg Latencies: 00005 00005\n# Max Latencies: 00005 00005\n# Histogram Overflows: 00000 00000\n",
            counts[0], counts[1], counts[0], counts[1]
        ))
    };
    assert_eq!(told(&run([10_000, 9_100]), "import-shortfall"), None);
    assert!(told(&run([50_100, 110]), "import-shortfall").is_some());
    let dead = "# Histogram\n000005 010000\t000000\n# Total: 000010000 000000000\n\
        # Min Latencies: 00005 1000000\n# Avg Latencies: 00005 00000\n# Max Latencies: 00005 00000\n\
        # Histogram Overflows: 00000 00000\n";
    let silent = told(&of(dead), "import-thread-silent");
    assert!(silent.is_some_and(|text| text.contains("thread 1")));
}

#[test]
fn figures_of_all_threads_and_lists_of_cycles_are_held_against_each_thread() {
    let contradiction = "import-contradiction";
    let listed =
        "# Histogram Overflow at cycle number:\n# Thread 0:\n# Thread 1: 00007 # 00002 others\n";
    let sound = "# Histogram\n000045 005000\t006000\t011000\n# Total: 000005000 000006000 000011000\n\
        # Min Latencies: 00045 00045\n# Avg Latencies: 00045 00045\n# Max Latencies: 00045 00078 00078\n\
        # Histogram Overflows: 00000 00003 00003\n";
    each_is_told(
        &format!("{sound}{listed}"),
        &[
            ("00045 00078 00078", "00045 00078 00900", contradiction),
            ("00000 00003 00003", "00000 00003 00008", contradiction),
            ("000006000 000011000", "000006000 000011001", contradiction),
            ("# Thread 0:", "# Thread 0: 00005", contradiction),
            ("00002 others", "00003 others", contradiction),
            ("00002 others", "00002 others\n# Thread 2:", contradiction),
            ("00000 00003 00003", "-0003 00003 00003", "import-damaged"),
            ("# Total: 000005000", "# Total: -00005000", "import-damaged"),
            ("# Avg Latencies: 00045", "# Avg Latencies: -0045", "import-damaged"),
            (
                "# Histogram\n000045",
                "# Max Latencies: 00045 00978 00978\n# Histogram\n000045",
                "import-damaged",
            ),
        ],
    );
    // A list is whole when it has as many cycles as there are, with a last line break or without.
    let whole = format!("{sound}{listed}");
    assert_eq!(told(&of(whole.trim_end()), "import-truncated"), None);
    let cut = &whole[..whole.len() - " others\n".len() - 1];
    assert!(told(&of(cut), "import-truncated").is_some());
    assert_eq!(told(&of(cut), contradiction), None);
    let no_overflow =
        sound.replace("00000 00003 00003", "00000 00000 00000").replace("00078", "00045");
    let empty =
        format!("{no_overflow}# Histogram Overflow at cycle number:\n# Thread 0:\n# Thread 1:");
    assert_eq!(told(&of(&empty), "import-truncated"), None);
}

#[test]
fn a_damaged_latency_of_a_log_prevents_a_pass() {
    let log = "       0:       0:       5\n       0:       1:       7\n";
    assert_eq!(told(&of(log), "import-damaged"), None);
    for line in ["0: -1: 900", "-1: 1000: 900", "0: 1000: 9o0", "0: 2:"] {
        let damaged = format!("{log}{line}\n       0:       2:       7\n");
        assert!(told(&of(&damaged), "import-damaged").is_some(), "{line}");
    }
    // What a terminal showed between the lines isn't a latency.
    assert_eq!(told(&of(&format!("{log}Mon 12:30:00 CET\n")), "import-damaged"), None);
}

#[test]
fn figures_of_json_that_cannot_be_are_damage() {
    each_is_told(
        JSON,
        &[
            (r#""avg": 6.20"#, r#""avg": -3.2"#, "import-damaged"),
            (r#""avg": 6.20"#, r#""avg": -nan"#, "import-damaged"),
            (r#""cycles": 100"#, r#""cycles": 100, "overflow": -3"#, "import-damaged"),
            (r#""resolution_in_ns": 0"#, r#""resolution_in_ns": -1"#, "import-damaged"),
            (r#""return_code": 0"#, r#""return_code": -1"#, "import-tool-failed"),
            (r#""return_code": 0"#, r#""return_code": "1""#, "import-tool-failed"),
        ],
    );
}

#[test]
fn older_lines_of_linuxcnc_are_read() {
    let old = "    2 secs  servo min: -10.400 uS max:  14.300 uS sdev:   1.000 uS\n";
    assert_eq!(max_us(&of(old)), Some(14));
}
