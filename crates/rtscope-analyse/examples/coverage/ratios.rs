//! Comparisons of a system with itself: how often the interval of the ratio of two rates holds 1, and how
//! often anything at all is called different.

use rtscope_analyse::{
    Judgement,
    compare::{self, Comparison},
    judge,
    statistics::random::Random,
};
use rtscope_model::{
    event::{EndReason, Event, FORMAT, Stamped},
    record::{Files, Record},
    schedule::{Placement, Policy},
    slice::Slice,
};

use crate::{
    score::{Score, Truth},
    systems::{self, System},
};

/// Length of a run, in seconds.
const SECONDS: u64 = 120;

/// The limit whose rates are compared.
const LIMIT_NS: u64 = 20_000;

/// Runs on each side, and by how much their rates differ from run to run (standard deviation of the
/// logarithm).
const REPEATS: [(usize, f64); 3] = [(1, 0.0), (3, 0.0), (3, 0.3)];

/// What many comparisons come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scores {
    /// The interval of the ratio.
    pub(crate) ratio: Score,
    /// Comparisons in which something was called different.
    pub(crate) different: u32,
}

/// Compares a system with itself many times.
pub(crate) fn scores(system: System, runs_a_side: usize, spread: f64, comparisons: u32) -> Scores {
    let mut scores = Scores::default();
    for seed in 0..comparisons {
        let mut random = Random::new(u64::from(seed));
        let mut side = || -> Vec<Record> {
            (0..runs_a_side).map(|_| record(system, spread, &mut random)).collect()
        };
        let found = compared(&side(), &side());
        let ratio = found.changes[0].exceedances[0].ratio;
        let one = Truth { of_system: 1.0, of_run: 1.0, has_met: true };
        scores.ratio.add(ratio.map(|ratio| (Some(ratio.low), ratio.high)), one);
        scores.different += u32::from(found.answer.starts_with("different"));
    }
    scores
}

fn compared(a: &[Record], b: &[Record]) -> Comparison {
    let judged = |side: &[Record]| -> Vec<Judgement> {
        side.iter().map(|record| judge(record, &[])).collect()
    };
    let (of_a, of_b) = (judged(a), judged(b));
    let run =
        |(record, judgement)| compare::ComparedRun { name: "run", record, judgement, cell: None };
    let a: Vec<_> = a.iter().zip(&of_a).map(run).collect();
    let b: Vec<_> = b.iter().zip(&of_b).map(run).collect();
    compare::compare(&a, &b, &[LIMIT_NS])
}

/// A run as a record. With a spread, late wake-ups are later or less late, so that the rate above the
/// limit changes by it.
fn record(system: System, spread: f64, random: &mut Random) -> Record {
    let normal =
        (-2.0 * random.share().ln()).sqrt() * (std::f64::consts::TAU * random.share()).cos();
    let stretch = 1.0 / (1.0 - spread * normal * systems::LATE_FROM_NS / LIMIT_NS as f64);
    let mut run = systems::run(system, SECONDS, random);
    for slice in &mut run.slices {
        for bin in slice.bins.iter_mut().filter(|bin| f64::from(bin.0) >= systems::LATE_FROM_NS) {
            bin.0 = (f64::from(bin.0) * stretch) as u32;
        }
        slice.max_ns = (slice.max_ns as f64 * stretch) as u64;
    }
    let mut files = Files {
        plan: format!(
            "name = \"p\"\n[sampler]\nresolution = \"1ns\"\n[[phase]]\nname = \"p\"\nduration = \"{SECONDS}s\""
        ),
        events: events(system.threads()),
        ..Files::default()
    };
    for thread in 0..system.threads() {
        let slices = run.slices.iter().filter(|slice| slice.thread == thread);
        let text: String = slices.map(|slice: &Slice| line(slice)).collect();
        files.slices.push((format!("t{thread}.jsonl"), text));
    }
    Record::read(&files).expect("a record")
}

fn events(threads: u32) -> String {
    let place = |cpu: u32| Placement {
        policy: Policy::Fifo,
        priority: 90,
        nice: 0,
        budget: None,
        cpus: std::iter::once(cpu).collect(),
    };
    let mut events = vec![
        Event::RunStarted {
            format: FORMAT,
            version: "0".to_owned(),
            command: Vec::new(),
            wall_clock: "2025-01-01T00:00:00Z".to_owned(),
            monotonic_ns: 0,
        },
        Event::SessionStarted {
            session: 0,
            first_cell: 0,
            cells: 1,
            layout: systems::LAYOUT,
            first_thread: 0,
            threads,
            locked_kib: 1,
            control: place(threads),
        },
    ];
    events.extend((0..threads).map(|thread| Event::ThreadPlaced {
        thread,
        session: 0,
        tid: thread,
        interval_ns: 1_000_000,
        asked: place(thread),
        found: place(thread),
    }));
    events.push(Event::PhaseStarted { cell: 0, name: "p".to_owned() });
    events.push(Event::PhaseEnded { cell: 0, why: EndReason::Duration, bounds: None });
    events.push(Event::run_ended(EndReason::Finished));
    events.into_iter().map(|event| line(&Stamped { at_ns: 0, event })).collect()
}

fn line<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("json") + "\n"
}

/// Prints the rows of both sides.
pub(crate) fn rows(runs: u32) {
    println!(
        "| system | runs a side | spread of runs | ratio holds 1 | refused | called different |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    for (runs_a_side, spread) in REPEATS {
        for system in System::all() {
            let scores = scores(system, runs_a_side, spread, runs);
            let held = scores.ratio.held_percent();
            println!(
                "| {} | {runs_a_side} | {:.0} % | {} | {:.0} % | {:.1} % |",
                system.name(),
                100.0 * spread,
                held.map_or_else(String::new, |held| format!("{held:.1} %")),
                scores.ratio.refused_percent(),
                100.0 * f64::from(scores.different) / f64::from(runs.max(1)),
            );
        }
    }
}
