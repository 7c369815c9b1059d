//! Every format against files as their tools wrote them (names of hosts and kernels replaced), with
//! figures counted from the same files in another way.

use rtscope_model::{finding::Weight, record::Record, verdict::Verdict};

use super::*;
use crate::{judge, report, report::terminal::Style, statistics::summary};

macro_rules! corpus {
    ($path:literal) => {
        include_bytes!(concat!("../../../../fuzz/corpus/", $path)).as_slice()
    };
}

fn options() -> ImportOptions {
    ImportOptions { name: "file".to_owned(), ..ImportOptions::default() }
}

/// What a file holds, its format detected; and the format.
fn of(bytes: &[u8]) -> (ImportReading, Option<&'static str>) {
    let mut stream = Stream::open(None, options()).expect("no format asked");
    stream.feed(bytes);
    stream.begin();
    let format = stream.format();
    (stream.finish(), format)
}

fn codes(reading: &ImportReading) -> Vec<&str> {
    reading.findings.iter().map(|finding| finding.code.as_str()).collect()
}

fn record(readings: Vec<ImportReading>, require: &[&str]) -> Record {
    let import = Import {
        version: "1".to_owned(),
        command: vec!["rtscope".to_owned(), "import".to_owned()],
        wall_clock: "2026-01-01T00:00:00Z".to_owned(),
        require: require.iter().map(|text| text.parse().expect("a requirement")).collect(),
    };
    let readings = readings.into_iter().map(|reading| ("file".to_owned(), reading));
    let files = files(&import, readings.collect()).expect("latencies");
    let record = Record::read(&files).expect("a record");
    assert_eq!(record.findings, [], "an import is a sound record");
    record
}

/// Count, minimum, maximum, sum in us of each thread, from a part's own fields.
fn figures(cell: &ImportedCell) -> Vec<(u64, u64, u64)> {
    let thread = |thread: &cell::ImportedThread| {
        let parts = || thread.parts.iter();
        let placed: u64 = parts().flat_map(|part| &part.bins).map(|bin| bin.1).sum();
        let unplaced: u64 = parts().map(|part| part.unplaced.count).sum();
        let count: u64 = parts().map(|part| part.count).sum();
        assert_eq!(placed + unplaced, count, "{}", thread.label);
        let min_ns = parts().map(|part| part.min_ns).min().unwrap_or(0);
        let max_ns = parts().map(|part| part.max_ns).max().unwrap_or(0);
        (count, min_ns / 1_000, max_ns / 1_000)
    };
    cell.threads.iter().map(thread).collect()
}

/// The numbers after a comment of cyclictest's summary.
fn comment(text: &str, key: &str) -> Vec<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect(key);
    line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// Sum of each column of the rows that begin with a digit.
fn totals(text: &str) -> Vec<u64> {
    let rows = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    rows.fold(Vec::new(), |mut sums, row| {
        let counts = row.split_whitespace().skip(1).map(|word| word.parse::<u64>().expect("count"));
        for (i, count) in counts.enumerate() {
            if sums.len() <= i {
                sums.push(0);
            }
            sums[i] += count;
        }
        sums
    })
}

#[test]
fn a_histogram_of_cyclictest_is_read_with_its_overflow() {
    let bytes = corpus!("cyclictest/histogram.txt");
    let text = std::str::from_utf8(bytes).expect("text");
    let (reading, format) = of(bytes);
    assert_eq!(format, Some("cyclictest"));
    let (inside, beyond) = (totals(text), comment(text, "# Histogram Overflows:"));
    let (min, max) = (comment(text, "# Min Latencies:"), comment(text, "# Max Latencies:"));
    let expected: Vec<(u64, u64, u64)> =
        (0..2).map(|i| (inside[i] + beyond[i], min[i], max[i])).collect();
    assert_eq!(figures(&reading.cells[0]), expected);
    assert_eq!(codes(&reading), ["import-overflow"]);
    let record = record(vec![reading], &["max < 1s", "p50 < 1ms", "p99.99 < 1s"]);
    let all = &summary::cells(&record)[0].all;
    assert_eq!(all.histogram.overflow(), beyond.iter().sum::<u64>());
    assert_eq!(all.histogram.max_ns(), max.iter().max().map(|us| us * 1_000));
    let judgement = judge(&record, &[]);
    assert_eq!(judgement.verdict, Verdict::Inconclusive, "an import alone never passes");
    let verdicts: Vec<Verdict> = judgement.outcomes.iter().map(|o| o.figures_verdict).collect();
    // A histogram doesn't show whether late wake-ups came together.
    assert_eq!(verdicts, [Verdict::Pass, Verdict::Inconclusive, Verdict::Inconclusive]);
    assert!(judgement.outcomes[1].sentence.contains("does not say when each latency occurred"));
}

#[test]
fn later_generations_and_other_line_ends_give_the_same_figures() {
    let (old, _) = of(corpus!("cyclictest/histogram.txt"));
    for bytes in [corpus!("cyclictest/histogram-2.7.txt"), corpus!("cyclictest/histogram-crlf.txt")]
    {
        let (new, _) = of(bytes);
        assert_eq!(figures(&new.cells[0]), figures(&old.cells[0]));
        let bins = |reading: &ImportReading| reading.cells[0].threads[1].parts[0].bins.clone();
        assert_eq!(bins(&new), bins(&old));
    }
}

#[test]
fn the_sum_of_histofall_is_no_thread() {
    let bytes = corpus!("cyclictest/histofall.txt");
    let text = std::str::from_utf8(bytes).expect("text");
    let (reading, _) = of(bytes);
    let (inside, beyond) = (totals(text), comment(text, "# Histogram Overflows:"));
    assert_eq!((inside.len(), inside[2]), (3, inside[0] + inside[1]));
    let counts: Vec<u64> = figures(&reading.cells[0]).iter().map(|of| of.0).collect();
    assert_eq!(counts, [inside[0] + beyond[0], inside[1] + beyond[1]]);
}

#[test]
fn quiet_runs_and_screens_have_extremes_only() {
    let (reading, _) = of(corpus!("cyclictest/quiet.txt"));
    let text = std::str::from_utf8(corpus!("cyclictest/quiet.txt")).expect("text");
    let last = |line: &str| -> u64 {
        line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a number")
    };
    let maxima: Vec<u64> = text.lines().filter(|line| line.starts_with("T:")).map(last).collect();
    let found: Vec<u64> = figures(&reading.cells[0]).iter().map(|of| of.2).collect();
    assert_eq!(found, maxima);
    assert_eq!(codes(&reading), ["import-no-histogram"]);
    assert_eq!(reading.cells[0].threads[0].interval_ns, Some(1_000_000));
    let (screen, format) = of(corpus!("cyclictest/live-end.txt"));
    assert_eq!((format, screen.cells.len()), (Some("cyclictest"), 1));
    assert_eq!(screen.cells[0].origin.facts[0].0, "policy");
    let record = record(vec![reading], &["max < 1s", "p99 < 1s", "missed = 0"]);
    let judgement = judge(&record, &[]);
    let verdicts: Vec<Verdict> = judgement.outcomes.iter().map(|o| o.figures_verdict).collect();
    assert_eq!(verdicts, [Verdict::Pass, Verdict::Inconclusive, Verdict::Inconclusive]);
    let all = &judgement.cells[0].all;
    // The file has whole units: the largest latency ends before the next one.
    let max_ns = all.histogram.max_ns().expect("a maximum") + 999;
    let made_up = all.quantiles.iter().find(|quantile| quantile.value_ns != max_ns);
    assert_eq!(made_up, None, "only a quantile of the last rank is known, and is the maximum");
    assert_eq!(all.histogram.at_rank_ns(1), None);
}

#[test]
fn a_log_keeps_its_order() {
    let bytes = corpus!("cyclictest/verbose.txt");
    let text = std::str::from_utf8(bytes).expect("text");
    let samples = |thread: &str| -> Vec<u64> {
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split(':').map(str::trim);
            let of = words.next()? == thread && !line.starts_with('T');
            let value = words.nth(1)?.parse().ok()?;
            of.then_some(value)
        });
        lines.collect()
    };
    let (reading, format) = of(bytes);
    assert_eq!(format, Some("cyclictest"));
    let cell = &reading.cells[0];
    assert!(cell.origin.is_in_order);
    for (i, name) in ["0", "1"].iter().enumerate() {
        let samples = samples(name);
        let (min, max) = (samples.iter().min(), samples.iter().max());
        let expected = (samples.len() as u64, *min.expect("any"), *max.expect("any"));
        assert_eq!(figures(cell)[i], expected);
        let sum_ns: u64 = cell.threads[i].parts.iter().map(|part| part.sum_ns).sum();
        assert_eq!(sum_ns, samples.iter().sum::<u64>() * 1_000);
    }
    let intervals: Vec<Option<u64>> = cell.threads.iter().map(|t| t.interval_ns).collect();
    assert_eq!(intervals, [Some(1_000_000), Some(1_500_000)]);
    let record = record(vec![reading], &[]);
    let all = &summary::cells(&record)[0];
    let each = cell_exposures(&record);
    assert_eq!(all.all.exposure_ns, each.iter().sum::<u64>());
    assert_eq!(each[0], samples("0").len() as u64 * 1_000_000);
}

fn cell_exposures(record: &Record) -> Vec<u64> {
    let of = |thread: u32| {
        let slices = record.slices.iter().filter(move |slice| slice.thread == thread);
        slices.map(|slice| slice.end_ns - slice.start_ns).sum()
    };
    record.threads.iter().map(|thread| of(thread.thread)).collect()
}

#[test]
fn several_runs_are_several_cells() {
    let (reading, _) = of(corpus!("cyclictest/three-runs.txt"));
    let names: Vec<&str> = reading.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["run 1", "run 2", "run 3"]);
    assert_eq!(figures(&reading.cells[1]), figures(&reading.cells[2]));
    assert!(codes(&reading).contains(&"import-several-runs"));
}

#[test]
fn what_is_cut_off_is_told() {
    for bytes in [
        corpus!("cyclictest/histogram-cut.txt"),
        corpus!("cyclictest-json/cut.json"),
        corpus!("rtla/cut.txt"),
    ] {
        let (reading, _) = of(bytes);
        let finding = reading.findings.iter().find(|f| f.code == "import-truncated");
        assert_eq!(finding.map(|f| f.weight), Some(Weight::PreventsPass), "{:?}", reading.findings);
    }
    let whole = corpus!("cyclictest/verbose.txt");
    let at = whole.iter().position(|&byte| byte == b'\n').expect("lines") + 400;
    let (reading, _) = of(&whole[..at]);
    assert!(!reading.cells.is_empty());
}

#[test]
fn a_run_that_broke_says_where() {
    let (reading, _) = of(corpus!("cyclictest/break.txt"));
    let finding = reading.findings.iter().find(|f| f.code == "break-hit").expect("told");
    assert!(finding.text.contains("stopped at a latency of 25 us"), "{}", finding.text);
}

#[test]
fn json_of_cyclictest_counts_what_it_leaves_out() {
    let bytes = corpus!("cyclictest-json/histogram.json");
    let value: serde_json::Value = serde_json::from_slice(bytes).expect("json");
    let (reading, format) = of(bytes);
    assert_eq!(format, Some("cyclictest-json"));
    let cell = &reading.cells[0];
    let mut beyond = 0;
    for (thread, found) in ["0", "1"].iter().zip(figures(cell)) {
        let thread = &value["thread"][thread];
        let field = |key: &str| thread[key].as_u64().expect(key);
        assert_eq!(found, (field("cycles"), field("min"), field("max")));
        let inside = thread["histogram"].as_object().expect("rows").values();
        beyond += field("cycles") - inside.filter_map(serde_json::Value::as_u64).sum::<u64>();
    }
    let unplaced = cell.threads.iter().flat_map(|t| &t.parts).map(|part| part.unplaced);
    assert_eq!(unplaced.clone().map(|of| of.count).sum::<u64>(), beyond);
    assert!(unplaced.filter(|of| of.count > 0).all(|of| of.from_ns == 60_000), "-h 60");
    assert_eq!(cell.threads[1].interval_ns, Some(1_000_000));
    assert!(cell.origin.facts.contains(&("host".to_owned(), "board".to_owned())));
    let (ns, _) = of(corpus!("cyclictest-json/nanoseconds.json"));
    assert_eq!(ns.cells[0].layout.unit_ns, 1);
    let (none, _) = of(corpus!("cyclictest-json/no-histogram.json"));
    assert_eq!(codes(&none), ["import-no-histogram"]);
    let (mended, _) = of(corpus!("cyclictest-json/nan.json"));
    assert_eq!(figures(&mended.cells[0]), figures(cell));
    assert!(codes(&mended).contains(&"import-mended"));
    assert!(mended.cells[0].origin.command.as_ref().is_some_and(|c| c.contains("\"x y\"")));
}

#[test]
fn jitterdebugger_is_read_in_its_versions() {
    let value: serde_json::Value =
        serde_json::from_slice(corpus!("jitterdebugger/results.json")).expect("json");
    let (reading, format) = of(corpus!("jitterdebugger/results.json"));
    assert_eq!(format, Some("jitterdebugger"));
    let field = |cpu: &str, key: &str| value["cpu"][cpu][key].as_u64().expect("a number");
    let expected: Vec<(u64, u64, u64)> =
        ["0", "1"].map(|cpu| (field(cpu, "count"), field(cpu, "min"), field(cpu, "max"))).into();
    assert_eq!(figures(&reading.cells[0]), expected);
    let (first, format) = of(corpus!("jitterdebugger/version-1.json"));
    assert_eq!((format, figures(&first.cells[0])), (Some("jitterdebugger"), expected));
    let (ns, _) = of(corpus!("jitterdebugger/nanoseconds.json"));
    assert_eq!(ns.cells[0].layout.unit_ns, 1);
}

#[test]
fn each_latency_of_timerlat_is_a_cell() {
    let (reading, format) = of(corpus!("rtla/timerlat.txt"));
    assert_eq!(format, Some("rtla"));
    let names: Vec<&str> = reading.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["IRQ", "thread"]);
    assert_eq!(figures(&reading.cells[0]), [(100_000, 0, 2), (100_000, 0, 3)]);
    assert_eq!(figures(&reading.cells[1]), [(100_000, 1, 7), (100_000, 2, 310)]);
    assert_eq!(codes(&reading), ["import-overflow"]);
    let record = record(vec![reading], &[]);
    let cells = summary::cells(&record);
    assert_eq!(cells[1].all.exposure_ns, 200_000_000_000, "two CPUs for 100 s");
    assert_eq!(cells[1].threads[1].histogram.at_or_above(8_000), (2, 2));
    assert_eq!(cells[1].threads[1].label, "CPU 1");
    let (ns, _) = of(corpus!("rtla/timerlat-user-ns.txt"));
    assert_eq!((ns.cells.len(), ns.cells[2].name.as_str()), (3, "return to user space"));
    assert_eq!(ns.cells[0].layout.unit_ns, 500, "as wide as the rows are apart");
    let day_and_more = (26 * 3_600 + 3 * 60 + 4) * 1_000_000_000;
    assert_eq!(ns.cells[0].threads[0].duration_ns, Some(day_and_more));
}

#[test]
fn osnoise_is_told_to_be_no_latency() {
    let (reading, _) = of(corpus!("rtla/osnoise.txt"));
    assert_eq!(codes(&reading), ["import-not-latency", "import-buckets"]);
    assert_eq!(figures(&reading.cells[0]), [(543, 0, 35), (529, 0, 28)]);
    let sum_ns = reading.cells[0].threads[0].parts[0].sum_ns;
    assert_eq!(sum_ns, (88 * 10 + 19 * 20 + 6 * 30) * 1_000, "its mean is not believed");
}

#[test]
fn columns_are_cores_counts_or_latencies() {
    let (cores, format) = of(corpus!("osadl/cores.txt"));
    assert_eq!(format, Some("osadl"));
    let text = std::str::from_utf8(corpus!("osadl/cores.txt")).expect("text");
    let counts: Vec<u64> = figures(&cores.cells[0]).iter().map(|of| of.0).collect();
    assert_eq!(counts, totals(text));
    assert!(codes(&cores).contains(&"import-overflow-unknown"));
    let (single, format) = of(corpus!("columns/one-a-line.txt"));
    assert_eq!(format, Some("columns"));
    assert_eq!(figures(&single.cells[0]), [(6, 0, 19)]);
    assert_eq!(single.cells[0].threads[0].parts[0].early, 1);
    assert!(codes(&single).contains(&"import-fractions"));
    let (counted, _) = of(corpus!("columns/uniq-c.txt"));
    assert_eq!(figures(&counted.cells[0]), [(38, 12, 90)]);
    let (headed, _) = of(corpus!("columns/heading.csv"));
    let labels: Vec<&str> = headed.cells[0].threads.iter().map(|t| t.label.as_str()).collect();
    assert_eq!(
        (labels, figures(&headed.cells[0])),
        (vec!["cpu0", "cpu3"], vec![(30, 1, 2), (6, 2, 40)])
    );
}

#[test]
fn linuxcnc_gives_the_larger_deviation() {
    let (reading, format) = of(corpus!("linuxcnc/servo.txt"));
    assert_eq!(format, Some("linuxcnc"));
    assert_eq!(figures(&reading.cells[0]), [(2, 7, 8), (2, 10, 14)]);
    assert!(codes(&reading).starts_with(&["import-not-latency", "import-no-histogram"]));
}

#[test]
fn what_no_tool_wrote_is_no_result() {
    for bytes in
        [corpus!("cyclictest/binary.bin"), corpus!("columns/empty.txt"), b"a letter\nto you"]
    {
        let (reading, _) = of(bytes);
        assert_eq!(reading.cells, [], "{:?}", reading.findings);
        assert!(codes(&reading).contains(&"import-empty"));
    }
    let known = Stream::open(Some("cyclitest"), options()).expect_err("misspelt");
    assert!(known.contains("cyclictest-json"), "{known}");
}

#[test]
fn page_and_terminal_say_what_an_import_lacks() {
    let (reading, _) = of(corpus!("cyclictest/histogram.txt"));
    let record = record(vec![reading], &[]);
    let judgement = judge(&record, &[]);
    let text = report::terminal::summary(&judgement, &record, Style { width: 100, colour: false });
    assert!(text.contains("imported from file: cyclictest, histogram"), "{text}");
    assert!(text.contains("rtscope did not measure this"), "{text}");
    assert!(!text.contains("fifo"), "no policy is made up: {text}");
    let page = report::html::page(&record, &judgement);
    for said in [
        "The imported file does not say when its latencies occurred",
        "An import holds no proof of load",
        "An import does not say how the machine was set up",
        "what was missed is not known",
        "Imported by",
        "load not known",
    ] {
        assert!(page.contains(said), "{said}");
    }
    assert!(!page.contains("no load,"), "that nothing loaded is not known");
    let document = crate::verdict_document::document(&judgement, &record);
    let cpu = &document["cells"][0]["cpus"][0];
    for key in ["planned", "missed", "policy", "priority", "interval_ns"] {
        assert_eq!(cpu[key], serde_json::Value::Null, "{key}");
    }
    assert_eq!(document["cells"][0]["origin"]["tool"], "cyclictest");
}

#[test]
fn a_bucket_is_a_unit_wide_unless_the_file_says_otherwise() {
    // All indices are multiples of 8 by chance.
    let (reading, _) = of(b"8 99990\n16 10\n");
    assert_eq!(reading.cells[0].layout.unit_ns, 1_000);
    let record = record(vec![reading], &[]);
    let all = &summary::cells(&record)[0].all;
    assert_eq!(all.histogram.at_rank_ns(50_000), Some(8_999), "the end of its bucket");
    // 2 of 3 maxima lie behind their last rows: buckets of 10 us.
    let (osnoise, _) = of(corpus!("rtla/osnoise.txt"));
    assert_eq!(osnoise.cells[0].layout.unit_ns, 10_000);
    assert_eq!(osnoise.cells[0].origin.grain_ns, 1_000, "its maximum is in whole us");
}

#[test]
fn what_a_tool_cut_is_told_from_to_and_judged_by_its_upper_end() {
    let outcomes = |require: &[&str]| {
        let (reading, _) = of(b"8 99990\n16 10\n");
        let record = record(vec![reading], require);
        judge(&record, &[]).outcomes
    };
    // 16 us may be 16.99 us. A histogram has no order in time: nothing says how far its mean may be
    // from that of the system.
    let verdicts: Vec<Verdict> =
        outcomes(&["max < 16us", "max < 16500ns", "max < 17us", "mean < 10us"])
            .iter()
            .map(|outcome| outcome.figures_verdict)
            .collect();
    use Verdict::{Fail, Inconclusive, Pass};
    assert_eq!(verdicts, [Fail, Inconclusive, Pass, Inconclusive]);
    let said = &outcomes(&["max < 17us"])[0].sentence;
    assert!(said.contains("the maximum is 16.000 us to 17.000 us"), "{said}");
    let said = &outcomes(&["mean < 10us"])[0].sentence;
    assert!(said.contains("is 8 us to 9 us (the file has whole units)"), "{said}");
    let (reading, _) = of(b"8 99990\n16 10\n");
    let record = record(vec![reading], &[]);
    let judgement = judge(&record, &[]);
    let text = report::terminal::summary(&judgement, &record, Style { width: 120, colour: false });
    assert!(text.contains("16.0 to 17.0"), "{text}");
    assert!(
        !text.contains("nothing was measured") && text.contains("duration not known"),
        "{text}"
    );
    assert!(report::html::page(&record, &judgement).contains("below 17.0"));
}

#[test]
fn a_second_run_in_a_file_is_not_dropped() {
    let one = corpus!("cyclictest-json/histogram.json");
    let text = std::str::from_utf8(one).expect("text");
    let worst = format!("{text}\n{}", text.replace("\"max\": ", "\"max\": 9"));
    let (reading, _) = of(worst.as_bytes());
    let names: Vec<&str> = reading.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["run 1", "run 2"]);
    assert!(codes(&reading).contains(&"import-several-runs"), "{:?}", reading.findings);
    let max_us = |cell: usize| figures(&reading.cells[cell]).iter().map(|of| of.2).max();
    assert!(max_us(1) > max_us(0), "{:?} {:?}", max_us(0), max_us(1));
    // Two quiet runs of as many cycles: the threads have other numbers.
    let quiet = |tid: u32, max: u32| {
        format!(
            "T: 0 ({tid}) P:80 I:1000 C:   3000 Min:      4 Act:   10 Avg:    9 Max: {max:>7}\n"
        )
    };
    let (reading, _) = of((quiet(700, 900) + &quiet(800, 30)).as_bytes());
    let maxima: Vec<u64> = reading.cells.iter().map(|cell| figures(cell)[0].2).collect();
    assert_eq!(maxima, [900, 30]);
    // Two histograms without their comments.
    let (reading, _) = of(b"# Histogram\n000000 10\n000001 5\n000000 10\n000900 1\n");
    assert_eq!(reading.cells.len(), 2);
    // Columns: which rows are of which run isn't known.
    let (reading, _) = of(b"1 10\n2 5\n1 10\n9 1\n");
    let finding = reading.findings.iter().find(|f| f.code == "import-several-runs").expect("told");
    assert_eq!(finding.weight, Weight::PreventsPass);
}

#[test]
fn junk_is_told_to_be_no_measurement_without_a_guess_at_its_unit() {
    let elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0\n7\n\xff\xfe";
    let prose = b"Dear reader,\nthis was measured on a board in the year\n2024\nand it was fast.\n";
    for bytes in [elf.as_slice(), prose.as_slice()] {
        let (reading, format) = of(bytes);
        assert_eq!((format, reading.cells.len()), (None, 0));
        assert_eq!(codes(&reading), ["import-empty"]);
        let finding = &reading.findings[0];
        assert!(finding.text.contains("isn't a measurement"), "{}", finding.text);
        assert!(finding.advice.contains("--format"), "{}", finding.advice);
    }
}

/// A quiet run of two threads, of which the second counted so many cycles.
fn quiet(cycles: u64, max_us: u64) -> ImportReading {
    let line = |thread: u32, cycles: u64, max_us: u64| {
        format!(
            "T: {thread} ({}) P:80 I:1000 C:{cycles:7} Min:      4 Act:    9 Avg:    9 Max:{max_us:8}\n",
            100 + thread
        )
    };
    of((line(0, 60_000, 40) + &line(1, cycles, max_us)).as_bytes()).0
}

/// What is cut from each latency of both threads explains nothing of what one of them lacks: 86 s of a day, here.
#[test]
fn the_unit_of_latencies_hides_no_silence() {
    let line = |thread: u32, cycles: u64| {
        format!("T: {thread} (10{thread}) P:80 I:1000 C:{cycles} Min: 1 Act: 5 Avg: 5 Max: 40\n")
    };
    let told = of((line(0, 86_400_000) + &line(1, 84_200_000)).as_bytes()).0;
    assert!(told.findings.iter().any(|one| one.text.contains("thread 1 (waited at least 49 s)")));
}

#[test]
fn a_thread_that_was_waiting_when_its_run_ended_is_told_from_the_others() {
    let told = quiet(20_000, 90);
    let finding = told.findings.iter().find(|finding| finding.code == "unanswered").expect("told");
    assert_eq!(finding.weight, Weight::PreventsPass);
    // 60 s, less 20 s that it counted, less 20,000 latencies of 9 us, which explain 0.18 s, less 2 s and 2 % of 60 s that
    // threads may differ by.
    assert!(finding.text.contains("thread 1 (waited at least 36.6 s)"), "{}", finding.text);
    let record = record(vec![told], &["max < 1s", "missed = 0"]);
    let judgement = judge(&record, &["imported".to_owned()]);
    let verdicts: Vec<Verdict> = judgement.outcomes.iter().map(|o| o.verdict).collect();
    assert_eq!(verdicts, [Verdict::Fail, Verdict::Fail]);
    let row = &judgement.cells[0].threads[1];
    assert_eq!((row.missed, row.max_ns()), (36_620, Some(36_620_000_000)));
    assert!(row.max_is_at_least());
    assert_eq!(row.histogram.max_ns(), Some(90_000));
    assert_eq!(row.corrected.count(), 20_000 + 36_620);
    let sentence = &judgement.outcomes[1].sentence;
    assert_eq!(sentence, "at least 36,620 activations were missed");
}

#[test]
fn a_thread_without_any_latency_does_not_vanish() {
    let told = quiet(0, 0);
    let record = record(vec![told], &[]);
    assert_eq!(record.threads.len(), 2);
    let cell = &summary::cells(&record)[0];
    assert_eq!((cell.threads[1].recorded, cell.threads[1].max_ns()), (0, Some(56_800_000_000)));
}

#[test]
fn threads_that_differ_by_what_their_latencies_explain_are_whole() {
    assert!(!codes(&quiet(57_500, 90)).contains(&"unanswered"));
    // A latency of 30 s is in the file: no cycle was counted meanwhile.
    let mut slow = quiet(30_000, 30_000_000);
    assert!(codes(&slow).contains(&"unanswered"), "an average of 9 us doesn't explain 30 s");
    slow = of(b"T: 0 (1) P:80 I:1000 C:  60000 Min:  4 Act:  9 Avg:    9 Max:      40\n\
        T: 1 (2) P:80 I:1000 C:  30000 Min:  4 Act:  9 Avg: 1009 Max:30000000\n")
    .0;
    assert!(!codes(&slow).contains(&"unanswered"), "{:?}", slow.findings);
    // A run that ends with the first thread that has done its loops.
    let loops = of(b"T: 0 (1) P:80 I:1000 C:  60000 Min:  4 Act:  9 Avg:    9 Max:      40\n\
        T: 1 (2) P:80 I:1500 C:  60000 Min:  4 Act:  9 Avg:    9 Max:      40\n")
    .0;
    assert!(!codes(&loops).contains(&"unanswered"));
    // The thread with the shorter interval starved after 70 of 100 s, and has more cycles all the same.
    let starved = of(b"T: 0 (1) P:80 I:1000 C:  70000 Min:  4 Act:  9 Avg:    9 Max:      40\n\
        T: 1 (2) P:80 I:1500 C:  66667 Min:  4 Act:  9 Avg:    9 Max:      40\n")
    .0;
    assert!(codes(&starved).contains(&"unanswered"), "{:?}", starved.findings);
}

#[test]
fn a_tool_that_ran_longer_than_its_cycles_cover_is_told() {
    let json = |ended: &str| {
        let text = format!(
            r#"{{"cmdline:": "cyclictest -q -t1 -p80 --json=x", "rt_test_version:": "2.40", "return_code": 0,
            "start_time": "Sun, 22 Nov 2026 00:24:10 +0000", "end_time": "Sun, 22 Nov 2026 {ended} +0000",
            "num_threads": 1, "resolution_in_ns": 0, "thread": {{"0": {{"histogram": {{"5": 60000}},
            "cycles": 60000, "min": 5, "max": 5, "avg": 5.0, "cpu": 0, "node": 0}}}}}}"#
        );
        of(text.as_bytes()).0
    };
    assert!(!codes(&json("00:25:12")).contains(&"import-shortfall"));
    let short = json("00:26:10");
    let finding =
        short.findings.iter().find(|finding| finding.code == "import-shortfall").expect("told");
    assert_eq!(finding.weight, Weight::PreventsPass);
    let expected =
        "the tool ran for 2 min, and the cycles of these threads cover less: thread 0: 1 min.";
    assert!(finding.text.contains(expected), "{}", finding.text);
}

/// A histogram whose summary says something else lost latencies, or somebody changed it: accepting that it
/// was imported must not let it pass.
#[test]
fn a_histogram_that_its_summary_contradicts_prevents_a_pass() {
    let file = |total: u64, max: &str, overflow: u64, row: &str| {
        format!(
            "# Histogram\n000005 000010\n000006 000080\n000009 000010\n{row}\n# Total: {total:09}\n\
             # Min Latencies: 00005\n# Avg Latencies: 00006\n# Max Latencies: {max}\n\
             # Histogram Overflows: {overflow:05}\n"
        )
    };
    let sound = of(file(100, "00009", 0, "000010 000000").as_bytes()).0;
    assert_eq!(codes(&sound), [""; 0]);
    let beyond = of(file(100, "00900", 3, "000010 000000").as_bytes()).0;
    assert_eq!(codes(&beyond), ["import-overflow"]);
    for (total, max, overflow, row, code) in [
        (99, "00009", 0, "000010 000000", "import-contradiction"),
        (100, "00900", 0, "000010 000000", "import-contradiction"),
        (100, "00008", 0, "000010 000000", "import-contradiction"),
        (100, "00009", 3, "000300 000000", "import-contradiction"),
        (100, "00009", 0, "999999999999999 000001", "import-damaged"),
    ] {
        let reading = of(file(total, max, overflow, row).as_bytes()).0;
        let found = reading.findings.iter().find(|finding| finding.code == code);
        let weight = found.map(|finding| finding.weight);
        assert_eq!(weight, Some(Weight::PreventsPass), "{total} {max} {overflow} {row}");
    }
}

/// A program's file, read as what it isn't.
#[test]
fn of_a_file_without_a_latency_nothing_else_is_said() {
    let options = || ImportOptions { name: "elf.bin".to_owned(), ..ImportOptions::default() };
    let reading = read(Some("columns"), options(), b"\x7fELF\x02\x01\x01\0\0\n\xff\xfe junk\n")
        .expect("a format");
    let texts: Vec<&str> = reading.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(texts, ["elf.bin holds no latency"]);
}
