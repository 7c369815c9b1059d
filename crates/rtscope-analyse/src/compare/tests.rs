//! Two sides whose difference is known.

use rtscope_model::environment::Preemption;

use super::*;
use crate::{judge, statistics::random::Random, test_support};

const PLAN: &str = r#"
name = "two"
require = ["max < 70us"]
[[phase]]
name = "rest"
duration = "20s"
[[phase]]
name = "busy"
duration = "20s"
load = ["message groups=1"]
"#;

fn latencies(seed: u64, n: usize, base_ns: f64, late: usize) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut all: Vec<u64> =
        (0..n).map(|_| (base_ns + 2e3 * random.exponential()).min(60e3) as u64).collect();
    (0..late).for_each(|i| all[(i * 997 + 13) % n] = 80_000 + i as u64 * 1_000);
    all
}

fn record(seed: u64, base_ns: f64, late: usize) -> Record {
    let (rest, busy) =
        (latencies(seed, 20_000, 3e3, 0), latencies(seed + 1, 20_000, base_ns, late));
    let rates = vec![1_000; 20];
    let run = test_support::Run::new(PLAN, 1).cell(0, &[&rest]).cell(1, &[&busy]);
    run.load(1, "message groups=1", &rates).end().record()
}

fn compared(a: &[Record], b: &[Record], cell: Option<&str>) -> Comparison {
    let judged =
        |records: &[Record]| -> Vec<Judgement> { records.iter().map(|r| judge(r, &[])).collect() };
    let (of_a, of_b) = (judged(a), judged(b));
    let run = |(record, judgement)| Run { name: "run", record, judgement, cell };
    let side_a: Vec<Run<'_>> = a.iter().zip(&of_a).map(run).collect();
    let side_b: Vec<Run<'_>> = b.iter().zip(&of_b).map(run).collect();
    compare(&side_a, &side_b, &[])
}

#[test]
fn a_real_difference_is_found_with_its_size() {
    let found = compared(&[record(1, 8e3, 13)], &[record(5, 5e3, 0)], None);
    assert_eq!(found.changes.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["rest", "busy"]);
    let busy = &found.changes[1];
    let words = "B meets 70 us, A does not: 13 of 20,000 against 0 of 20,000; at 95 % B's share is at most 0.33 times A's";
    assert_eq!(busy.sentences[0], words);
    for shift in &busy.shifts[..2] {
        let (low, high) = (shift.low_ns.expect("low"), shift.high_ns.expect("high"));
        // The late ones move A's p99 by a little.
        assert!(low < -2.8e3 && -3.2e3 < high && high - low < 2_500.0, "{shift:?}");
    }
    let apart_ns = busy.distance.wasserstein_ns.expect("whole histograms");
    assert!((apart_ns - 3e3).abs() < 100.0, "{:?}", busy.distance);
    assert!(busy.distance.by_chance_ns.is_some_and(|chance| chance < 200.0), "{:?}", busy.distance);
    assert!(busy.blocks_resampled && !busy.runs_resampled);
    assert!(found.notes.iter().any(|note| note.contains("one or two runs on a side")));
}

#[test]
fn equal_systems_are_rarely_called_different() {
    let mut wrong = 0;
    for seed in 0..40 {
        let found =
            compared(&[record(seed * 10, 6e3, 0)], &[record(seed * 10 + 5, 6e3, 0)], Some("busy"));
        let change = &found.changes[0];
        let median = change.shifts[0];
        let moved = median.low_ns.is_some_and(|low| low > 0.0)
            || median.high_ns.is_some_and(|high| high < 0.0);
        wrong += usize::from(moved);
        assert!(change.sentences[0].contains("nothing to compare"), "{:?}", change.sentences);
    }
    // At 95 % two of forty; with 20 blocks a few more.
    assert!(wrong <= 7, "{wrong} of 40");
}

#[test]
fn the_same_sides_give_the_same_document() {
    let (a, b) = ([record(1, 8e3, 2)], [record(5, 5e3, 0)]);
    let text = || serde_json::to_string(&compared(&a, &b, None)).expect("json");
    assert_eq!(text(), text());
    assert!(!text().contains("NaN"));
}

#[test]
fn repeats_put_the_spread_of_runs_into_the_intervals() {
    let side = |base: f64, seed: u64| -> Vec<Record> {
        (0..4).map(|i| record(seed + i * 7, base + 600.0 * i as f64, 0)).collect()
    };
    let repeated = compared(&side(5e3, 1), &side(5.2e3, 100), Some("busy"));
    let change = &repeated.changes[0];
    assert!(change.runs_resampled && change.a.runs == 4);
    let single = compared(&side(5e3, 1)[..1], &side(5.2e3, 100)[..1], Some("busy"));
    let width = |c: &Comparison| {
        let shift = c.changes[0].shifts[0];
        shift.high_ns.expect("high") - shift.low_ns.expect("low")
    };
    assert!(width(&repeated) > 3.0 * width(&single), "{} {}", width(&repeated), width(&single));
}

#[test]
fn what_else_differs_is_listed() {
    let a = record(1, 5e3, 0);
    let mut b = record(2, 5e3, 0);
    let machine = b.before.as_mut().expect("a machine");
    machine.kernel.release = "6.12.0".to_owned();
    machine.kernel.preemption = Preemption::Voluntary;
    machine.kernel.cmdline = "quiet isolcpus=1".to_owned();
    machine.clock.current = Some("hpet".to_owned());
    let mut a = a;
    a.before.as_mut().expect("a machine").kernel.cmdline = "quiet".to_owned();
    for thread in &mut b.threads {
        thread.interval_ns = 200_000;
    }
    let found = compared(&[a], &[b], None);
    let row = |topic: &str, name: &str| {
        let row = found.differences.iter().find(|d| d.topic == topic && d.name == name);
        row.map(|row| (row.a.as_str(), row.b.as_str()))
    };
    assert_eq!(row("kernel", "preemption"), Some(("PREEMPT_RT", "PREEMPT_VOLUNTARY")));
    assert_eq!(row("command line", "isolcpus"), Some(("not set", "1")));
    assert_eq!(row("clock", "source"), Some(("tsc", "hpet")));
    assert_eq!(row("sampler", "interval"), Some(("1 ms", "200 us")));
    assert_eq!((row("command line", "quiet"), row("CPU", "online")), (None, None));
    let words = "the sides differ in kernel, clock, sampler, and in 1 more settings";
    assert!(found.notes[0].starts_with(words), "{:?}", found.notes);
}

#[test]
fn no_sentence_ranks_two_maxima() {
    let found = compared(&[record(1, 8e3, 1)], &[record(5, 5e3, 0)], None);
    let text = found.changes.iter().flat_map(|c| &c.sentences).chain(&found.notes);
    let text: String = text.map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(!text.contains("max"), "{text}");
    assert!(text.contains("that may be chance"), "{text}");
}

#[test]
fn cells_of_other_names_are_compared_when_chosen() {
    let a = record(1, 8e3, 3);
    let judgement = judge(&a, &[]);
    let run = |cell| Run { name: "run", record: &a, judgement: &judgement, cell: Some(cell) };
    let found = compare(&[run("busy")], &[run("rest")], &[50_000]);
    assert_eq!(found.changes[0].name, "busy against rest");
    let limits: Vec<u64> = found.changes[0].exceedances.iter().map(|e| e.limit_ns).collect();
    assert_eq!(limits, [50_000, 70_000]);
    assert!(found.differences.iter().any(|d| d.topic == "load" && d.b == "none"));
}
