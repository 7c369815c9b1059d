//! Files that contradict themselves. `tests/imports.rs` looks at real ones, which don't.

use rtscope_model::finding::Weight;

use super::{Options, Reading};

fn of(text: &str) -> Reading {
    let options = Options { name: "file".to_owned(), ..Options::default() };
    let mut stream = super::Stream::open(None, options).expect("no format asked");
    stream.feed(text.as_bytes());
    stream.finish()
}

/// The finding of this code, if it prevents a Pass.
fn told(reading: &Reading, code: &str) -> Option<String> {
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
fn max_us(reading: &Reading) -> Option<u64> {
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
