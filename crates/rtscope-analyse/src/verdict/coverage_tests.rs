//! Records of which a part is missing, and of which a thread was not heard of: none of them passes.

use rtscope_model::{
    environment::RealTimeThread,
    event::{Bounds, Event},
    finding::Weight,
    histogram::{Histogram, Layout},
    record::{Files, Record},
    schedule::Policy,
    slice::{Extent, Scope, Slice},
    verdict::Verdict,
};

use crate::{
    judge,
    judgement::Judgement,
    test_support::{INTERVAL_NS, Run, SECOND_NS},
};

const PLAN: &str =
    "name = 'p'\nrequire = ['max < 5ms']\n[[phase]]\nname = 'rest'\nduration = '10s'";

/// Ten seconds of one thread, in which everything that is due from the first to the last instant counts.
fn run(latencies_ns: &[u64]) -> Run {
    let run = Run::new(PLAN, 1).cell(0, &[latencies_ns]).end();
    bounded(run, 10 * SECOND_NS)
}

fn bounded(run: Run, to_ns: u64) -> Run {
    run.edit(|event| {
        if let Event::PhaseEnded { bounds, .. } = event {
            *bounds = Some(Bounds { from_ns: 0, to_ns });
        }
    })
}

fn good() -> Run {
    run(&[10_000; 10_000])
}

fn judged(files: &Files) -> Judgement {
    judge(&Record::read(files).expect("a record"), &[])
}

/// The verdict on a record whose lines of slices were changed, and what `coverage` found.
fn changed(run: &Run, change: impl FnOnce(&mut Vec<String>)) -> (Verdict, String) {
    let mut files = run.files();
    let mut lines: Vec<String> = files.slices[0].1.lines().map(str::to_owned).collect();
    change(&mut lines);
    files.slices[0].1 = lines.join("\n");
    let judgement = judged(&files);
    let found = judgement.findings.into_iter().find(|finding| finding.code == "coverage");
    (judgement.verdict, found.map(|finding| finding.text).unwrap_or_default())
}

#[test]
fn a_whole_record_is_judged_by_its_figures() {
    assert_eq!(changed(&good(), |_| ()), (Verdict::Pass, String::new()));
    let mut latencies = vec![10_000; 9_992];
    latencies[7_000] = 8_500_000;
    assert_eq!(changed(&run(&latencies), |_| ()), (Verdict::Fail, String::new()));
}

#[test]
fn a_failing_record_that_was_cut_before_its_stall_does_not_pass() {
    let mut latencies = vec![10_000; 9_992];
    latencies[7_000] = 8_500_000;
    let (verdict, found) = changed(&run(&latencies), |lines| lines.truncate(3));
    assert_eq!(verdict, Verdict::Inconclusive);
    let expected = "CPU 0: nothing was recorded for phase \"rest\" from 3 s to 10 s after the start of the run";
    assert!(found.contains(expected), "{found}");
    assert!(found.contains("it woke 9992 times, but its slices hold 3000 latencies"), "{found}");
}

/// A name is shown as it is on every other line, not once more escaped.
#[test]
fn a_name_that_a_terminal_would_obey_is_escaped_once() {
    let mut files = good().files();
    files.plan = files.plan.replace("'rest'", r#""x\u001by""#);
    assert!(files.plan.contains(r"x\u001by"), "{}", files.plan);
    let mut lines: Vec<String> = files.slices[0].1.lines().map(str::to_owned).collect();
    lines.truncate(3);
    files.slices[0].1 = lines.join("\n");
    let findings = judged(&files).findings;
    let found = findings.iter().find(|finding| finding.code == "coverage").expect("told");
    assert!(found.text.contains(r#"for phase "x\u001by" from"#), "{}", found.text);
}

#[test]
fn lost_blanked_doubled_and_stretched_lines_do_not_pass() {
    let check = |what: &str, change: &dyn Fn(&mut Vec<String>), expected: &str| {
        let (verdict, found) = changed(&good(), change);
        assert_eq!(verdict, Verdict::Inconclusive, "{what}");
        assert!(found.contains(expected), "{what}: {found}");
    };
    check("lost", &|lines| drop(lines.remove(4)), "from 4 s to 5 s after");
    check("blanked", &|lines| lines[4] = " ".repeat(90), "from 4 s to 5 s after");
    check("first", &|lines| drop(lines.remove(0)), "from 0 ns to 1 s after");
    check("doubled", &|lines| lines.insert(4, lines[4].clone()), "a slice begins at 4 s, before");
    let stretched = |end: &str, planned: &str| {
        let (end, planned) = (end.to_owned(), planned.to_owned());
        move |lines: &mut Vec<String>| {
            lines[9] = lines[9]
                .replace("\"end_ns\":10000000000", &format!("\"end_ns\":{end}"))
                .replace("\"planned\":1000", &format!("\"planned\":{planned}"));
        }
    };
    let far = "1000000000000000000";
    check("stretched", &stretched(far, "1000"), "says that 1000 activations were due in it");
    check("stretched with its count", &stretched(far, "999999991000"), "after the run");
}

#[test]
fn a_phase_without_an_end_in_a_run_that_ended_does_not_pass() {
    let mut run = good();
    run.events.retain(|stamped| !matches!(stamped.event, Event::PhaseEnded { .. }));
    let (verdict, found) = changed(&run, |_| ());
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(found.contains("the end of phase \"rest\" is missing"), "{found}");
}

#[test]
fn sums_that_are_not_those_of_the_slices_do_not_pass() {
    let mut files = good().files();
    files.histograms = r#"{"format":1,"histograms":[{"cell":0,"thread":0,"layout":{"unit_ns":1000,
        "exact":1000},"planned":9000,"recorded":9000,"missed":0,"min_ns":10000,"max_ns":10000,
        "sum_ns":90000000,"bins":[[10,9000]],"omitted":[]}]}"#
        .to_owned();
    assert_eq!(judged(&files).verdict, Verdict::Inconclusive);
}

/// A thread that answered three times and never again.
fn starved(plan: &str) -> Run {
    let mut run = Run::new(plan, 1).cell(0, &[&[10_000; 3]]).end();
    let ends = run.events.iter_mut().rev().take(3);
    ends.for_each(|stamped| stamped.at_ns = 10 * SECOND_NS);
    run
}

/// The same with what was never answered, and how long it waited.
fn unanswered(plan: &str) -> (Run, u64) {
    let mut run = bounded(starved(plan), 10 * SECOND_NS);
    let missed = 9_997;
    let longest_ns = missed * INTERVAL_NS;
    let first = run.slices[0].clone();
    let mut waits = Histogram::new(Layout::default());
    (1..=missed).for_each(|n| waits.record(n * INTERVAL_NS));
    run.slices.push(Slice {
        scope: Scope::Cell(0),
        start_ns: first.end_ns,
        end_ns: 10 * SECOND_NS,
        planned: missed,
        recorded: 0,
        missed,
        min_ns: 0,
        max_ns: 0,
        sum_ns: 0,
        bins: Vec::new(),
        omitted: waits.bins(),
        omitted_extent: Extent {
            min_ns: INTERVAL_NS,
            max_ns: longest_ns,
            sum_ns: missed * (missed + 1) / 2 * INTERVAL_NS,
        },
        ..first
    });
    (run, longest_ns)
}

#[test]
fn what_was_never_answered_is_told_by_the_wall_clock_too() {
    let plan = format!("{PLAN}\n[sampler]\nclock = 'realtime'\n");
    let judgement = judged(&unanswered(&plan).0.files());
    assert!(judgement.findings.iter().any(|finding| finding.code == "unanswered"));
}

#[test]
fn a_starved_phase_fails_with_the_stall_as_its_maximum() {
    let (run, longest_ns) = unanswered(PLAN);
    let judgement = judged(&run.files());
    assert_eq!(judgement.verdict, Verdict::Fail);
    assert_eq!(
        judgement.reasons,
        [
            "rest, max < 5ms: the maximum is at least 9,997,000.000 us, the time that a missed activation \
          had waited"
        ]
    );
    let codes: Vec<&str> = judgement.findings.iter().map(|f| f.code.as_str()).collect();
    assert_eq!(codes, ["unanswered"]);
    // Who may have held the CPU is named where the record knows.
    let holder = RealTimeThread {
        tid: 8,
        pid: 7,
        name: "spinner".to_owned(),
        process: None,
        policy: Policy::Fifo,
        priority: 99,
        cpus: std::iter::once(0).collect(),
        kernel: false,
    };
    let run = run.machine(|machine| machine.real_time_threads = vec![holder.clone()]);
    let findings = judged(&run.files()).findings;
    let told = findings.iter().find(|finding| finding.code == "unanswered").expect("told");
    assert!(told.advice.contains("held the CPU: spinner (8, fifo 99)"), "{}", told.advice);
    assert_eq!(judgement.cells[0].all.max_ns(), Some(longest_ns));
}

/// A stall that began before the phase took the first 20 ms of it.
fn late_at_start(plan: &str) -> Run {
    let mut run = bounded(Run::new(plan, 1).cell(0, &[&[10_000; 9_980]]).end(), 10 * SECOND_NS);
    let from_ns = 20 * INTERVAL_NS;
    for slice in &mut run.slices {
        (slice.start_ns, slice.end_ns) = (slice.start_ns + from_ns, slice.end_ns + from_ns);
        slice.max_at_ns += from_ns;
    }
    let place = (run.slices[0].thread, run.slices[0].scope);
    let waits = (0..20).map(|n| from_ns - n * INTERVAL_NS);
    run.slices.insert(0, Slice::unanswered(place, Layout::default(), (0, from_ns), 20, waits));
    run
}

#[test]
fn a_thread_that_was_late_when_its_phase_began_and_came_back_is_no_silent_one() {
    let plan = PLAN.replace("5ms", "25ms");
    let findings = judged(&late_at_start(&plan).files()).findings;
    let [told] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((&*told.code, told.weight), ("late-at-start", Weight::Warning));
    assert!(
        told.text.ends_with("missed: CPU 0 in \"rest\" (20, waited at least 20 ms)"),
        "{}",
        told.text
    );
    // What waited longer than the limit refutes it.
    let judgement = judged(&late_at_start(PLAN).files());
    assert_eq!(judgement.verdict, Verdict::Fail);
    assert!(judgement.reasons[0].contains("at least 20,000.000 us"), "{:?}", judgement.reasons);
}

#[test]
fn a_thread_that_fell_silent_again_is_a_silent_one() {
    let mut run = late_at_start(PLAN);
    let last = run.slices.pop().expect("a slice");
    let span_ns = (last.start_ns, last.end_ns);
    let waits = (0..last.planned).map(|n| (last.planned - n) * INTERVAL_NS);
    let place = (last.thread, last.scope);
    run.slices.push(Slice::unanswered(place, Layout::default(), span_ns, last.planned, waits));
    let codes: Vec<String> = judged(&run.files()).findings.into_iter().map(|f| f.code).collect();
    // Each counts what is its own.
    assert!(codes.contains(&"unanswered".to_owned()), "{codes:?}");
    assert!(codes.contains(&"late-at-start".to_owned()), "{codes:?}");
}

#[test]
fn a_starved_phase_of_an_older_record_does_not_pass() {
    let judgement = judged(&starved(PLAN).files());
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.reasons[0].contains("from 3 ms to 10 s after"), "{:?}", judgement.reasons);
}
