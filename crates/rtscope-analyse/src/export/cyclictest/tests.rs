use rtscope_model::histogram::Layout;

use super::*;

/// A thread that has measured these latencies, in ns.
fn thread(tid: u32, latencies_ns: &[u64], buckets: u64) -> CyclictestThread {
    let mut histogram = Histogram::new(Layout { unit_ns: 1_000, exact: 64 });
    latencies_ns.iter().for_each(|ns| histogram.record(*ns));
    let found = Placement {
        policy: Policy::Fifo,
        priority: 80,
        nice: 0,
        budget: None,
        cpus: [1].into_iter().collect(),
    };
    let mut thread = CyclictestThread::placed(tid, 1_000_000, &found, histogram);
    let beyond = latencies_ns.iter().enumerate().filter(|(_, ns)| **ns >= buckets * 1_000);
    thread.overflow_cycles = beyond.map(|(cycle, _)| cycle as u64).collect();
    if let (Some(figures), Some(last)) = (&mut thread.figures, latencies_ns.last()) {
        figures.last_ns = *last;
    }
    thread
}

fn run() -> CyclictestRun {
    let threads = vec![
        thread(1234, &[2_900, 1_000, 1_999, 70_000, 3_000], 3),
        thread(98765, &[2_000, 5_000, 6_000, 7_000, 8_000, 9_000], 3),
    ];
    CyclictestRun { buckets: 3, threads, ..CyclictestRun::default() }
}

#[test]
fn a_thread_line_is_the_known_one() {
    // The form is that of a line that rt-tests 2.4 printed.
    let known = "T: 0 (18607) P:80 I:1000 C:      5 Min:      1 Act:    3 Avg:   15 Max:      70\n";
    let mut run = run();
    run.threads[0].tid = 18607;
    assert_eq!(run.threads[0].line(0, CyclictestUnit::Us), known);
    let in_ns =
        "T: 0 (18607) P:80 I:1000 C:      5 Min:   1000 Act:    3000 Avg:   15779 Max:   70000\n";
    assert_eq!(run.threads[0].line(0, CyclictestUnit::Ns), in_ns);
    run.threads[0].figures = None;
    let at_first =
        "T: 0 (18607) P:80 I:1000 C:      0 Min:1000000 Act:    0 Avg:    0 Max:       0\n";
    assert_eq!(run.threads[0].line(0, CyclictestUnit::Us), at_first);
}

/// At a resolution of 1 ns, buckets from 131 to 262 us are 4,096 ns wide.
#[test]
fn a_bucket_wider_than_a_unit_counts_where_it_ends() {
    let mut thread = thread(1, &[], 200);
    thread.histogram = Histogram::new(Layout { unit_ns: 1, exact: 64 });
    [140_000, 142_900, 150_100].iter().for_each(|ns| thread.histogram.record(*ns));
    let (counts, overflow) = thread.counts(CyclictestUnit::Us, 200);
    let rows: Vec<usize> = (0..200).filter(|us| counts[*us] > 0).collect();
    assert_eq!((rows, counts[143], overflow), (vec![143, 150], 2, 0));
}

#[test]
fn a_histogram_has_a_column_for_each_thread() {
    let expected = "# Histogram
000000 000000\t000000
000001 000002\t000000
000002 000001\t000001
# Total: 000000003 000000001
# Min Latencies: 00001 00002
# Avg Latencies: 00015 00006
# Max Latencies: 00070 00009
# Histogram Overflows: 00002 00005
# Histogram Overflow at cycle number:
# Thread 0: 00003 00004
# Thread 1: 00001 00002 00003 # 00002 others

";
    assert_eq!(run().histogram(), expected);
}

#[test]
fn sums_stand_behind_the_threads() {
    let text = CyclictestRun { sums: true, ..run() }.histogram();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[2], "000001 000002\t000000\t000002");
    assert_eq!(lines[4], "# Total: 000000003 000000001 000000004");
    assert_eq!(lines[7], "# Max Latencies: 00070 00009 00070");
    assert_eq!(lines[8], "# Histogram Overflows: 00002 00005 00007");
}

#[test]
fn a_threshold_names_who_broke_it() {
    let mut run = CyclictestRun { armed: true, ..run() };
    assert_eq!(run.threshold(), "# Thread Ids: 01234 98765\n");
    run.broke = Some(Break { tid: 98765, latency_ns: 9_999 });
    let expected = "# Thread Ids: 01234 98765\n# Break thread: 98765\n# Break value: 9\n";
    assert_eq!(run.threshold(), expected);
}

#[test]
fn samples_and_spikes_have_their_columns() {
    assert_eq!(sample_line(1, 14, 23_948, CyclictestUnit::Us), "       1:      14:      23\n");
    let expected = "\nT: 0 Spike:      75: TS:  13558711021\nspikes = 1\n\n";
    assert_eq!(spike_lines(&[(0, 75_100, 13_558_711_021_999)], CyclictestUnit::Us), expected);
    assert_eq!(spike_lines(&[], CyclictestUnit::Us), "");
}

#[test]
fn json_is_valid_whatever_the_command_line_and_however_little_was_measured() {
    let mut run = run();
    run.threads[1] = thread(7, &[], 3);
    let origin = CyclictestOrigin {
        command: "cyclictest --json \"a\\b\n.json".to_owned(),
        rt_tests_version: "2.40",
        uname: vec![("sysname", "Linux".to_owned()), ("nodename", "a\"b".to_owned())],
        ..CyclictestOrigin::default()
    };
    let text = json(&run, &origin);
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["cmdline:"], origin.command.as_str());
    assert_eq!(document["rt_test_version:"], "2.40");
    assert_eq!(document["num_threads"], 2);
    let first = &document["thread"]["0"];
    assert_eq!(first["histogram"], serde_json::json!({ "1": 2, "2": 1 }));
    assert_eq!((&first["cycles"], &first["overflow"]), (&5.into(), &2.into()));
    assert_eq!(first["percentiles"]["50"], 2);
    assert!(text.contains("\"avg\": 15.78,"), "two decimals");
    let empty = &document["thread"]["1"];
    assert_eq!((&empty["cycles"], &empty["avg"]), (&0.into(), &0.0.into()));
}
