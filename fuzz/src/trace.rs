//! The kernel's trace as text, as `check`, `drift` and `sched` read it. Threads choose their names, so
//! that it may hold anything.

use rtscope_analyse::{
    report::{check, drift, sched},
    verdict::check::{Expectation, judge},
};
use rtscope_measure::{check::read_trace, drift as drifts, sched as scheduling};
use rtscope_model::{
    check::{Observation, ObservedThread, Sources},
    drift::DriftRecord,
    printable::guarded,
    sched::ExperimentRecord,
    schedule::{Placement, Policy},
    time::Nanos,
};

use super::{
    Stages,
    pipe::{self, Stage},
};

/// An experiment of two applications, whose runs are those of the trace.
const EXPERIMENT: &str = include_str!("../corpus/guest/experiment.txt");

/// Threads of the seeds.
const TIDS: [i32; 2] = [41, 42];

/// Reads bytes as a trace and takes it to the documents of `check`, `drift` and `sched`.
///
/// # Panics
///
/// When one of them fails.
pub fn trace(bytes: &[u8], stages: Stages) {
    let text = String::from_utf8_lossy(bytes);
    // What is read from the kernel is made printable first.
    let text = guarded(&text, false);
    watched(&text);
    let has_page = stages.has(Stage::Page, bytes);
    drifted(&text, has_page);
    scheduled(&text, has_page);
}

fn watched(text: &str) {
    let trace = read_trace(text);
    let threads = trace.threads.into_iter().map(|(tid, events)| ObservedThread {
        pid: tid,
        tid,
        name: "app".to_owned(),
        placement: Placement {
            policy: Policy::Fifo,
            priority: 80,
            nice: 0,
            budget: None,
            cpus: [0].into_iter().collect(),
        },
        faults: None,
        events,
    });
    let observation = Observation {
        program: "app".to_owned(),
        look_ns: 1_000_000_000,
        sources: Sources { switches: true, timers: true, faults: true, futexes: true },
        untraced: None,
        lost: trace.lost,
        memory: Vec::new(),
        threads: threads.collect(),
    };
    let expected = Expectation { policy: None, period_ns: Some(1_000_000) };
    let checked = judge(&observation, &expected);
    pipe::check_text(&check::table(&checked));
    drop(check::document(&checked));
}

fn drifted(text: &str, has_page: bool) {
    let Ok(periodic) = drifts::read_trace(text, &["app".to_owned()]) else { return };
    let record = DriftRecord {
        format: 1,
        version: String::new(),
        wall_clock: String::new(),
        kernel: String::new(),
        duration: Nanos::from_secs(1),
        together: false,
        threads: vec![periodic],
    };
    pipe::check_text(&drift::table(&record));
    drop(drift::document(&record));
    if has_page {
        pipe::check_page(&drift::page(&record));
    }
}

fn scheduled(text: &str, has_page: bool) {
    let traced = scheduling::read_trace(text, &TIDS);
    if traced.runs.iter().all(Vec::is_empty) {
        return;
    }
    let (_, json) = EXPERIMENT.split_once('\n').expect("a heading");
    let mut record: ExperimentRecord = serde_json::from_str(json).expect("an experiment's record");
    record.lost = traced.lost;
    for (app, n) in record.applications.iter_mut().zip(0..) {
        app.runs.clone_from(&traced.runs[n]);
        app.throttled = Some(traced.held_up[n].clone());
    }
    pipe::check_text(&sched::table(&record));
    drop(sched::document(&record));
    if has_page {
        pipe::check_page(&sched::page(&record));
    }
}
