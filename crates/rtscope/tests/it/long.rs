//! A run of hours on a simulated machine of many CPUs, from the recorder to the verdict: what is known
//! to be in it must be told, however its slices were joined.

#[path = "../../../rtscope-measure/examples/long_record/machine.rs"]
mod machine;

use rtscope_analyse::{judge, report, statistics::claim, verdict_document};
use rtscope_measure::recorder::RecordFiles;
use rtscope_model::{time::Nanos, verdict::Verdict};

use self::machine::{Machine, WAKEUPS};

const HOUR: u64 = 3_600;
const CPUS: u32 = 12;

#[test]
fn hours_of_many_cpus_are_judged_as_every_second_would_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let mut machine = Machine::new(CPUS, 3 * HOUR);
    // The worst is in the minutes. Of the others two hit two CPUs at once and are one event.
    machine.spikes = vec![
        (3, HOUR / 2, 900_000),
        (5, HOUR, 600_000),
        (7, HOUR, 610_000),
        (9, 5 * HOUR / 2, 500_000),
    ];
    let mut recorder = machine.recorder(&out);
    machine.run(&mut recorder, 3 * HOUR);
    machine.end(&mut recorder);
    assert_eq!(recorder.finish().1, None);

    let record = RecordFiles::open(&out).expect("a folder").read().expect("a record");
    assert!(record.content.joined_ns.is_some(), "it is about joined slices");
    let judgement = judge(&record, &[]);
    let document = verdict_document::document(&judgement, &record);
    let cell = &document["cells"][0];
    assert_eq!(cell["all"]["recorded"], u64::from(CPUS) * 3 * HOUR * WAKEUPS);
    assert_eq!(cell["all"]["missed"], 0);
    assert_eq!(cell["all"]["latency_ns"]["max"], 900_000);
    assert_eq!(cell["cpus"][3]["latency_ns"]["max"], 900_000);
    assert_eq!(cell["cpus"][9]["latency_ns"]["max"], 500_000);

    // One CPU's time counts, and an event on two CPUs once.
    let claim_of = |limit| {
        let cell = &judgement.cells[0];
        claim::of_cell(&record, cell, Nanos(limit), Nanos::from_secs(600)).expect("a claim")
    };
    let three = claim_of(400_000);
    assert_eq!((three.events, three.latencies, three.wall_ns), (3, 4, 3 * HOUR * 1_000_000_000));
    assert_eq!(claim_of(1_000_000).verdict, Verdict::Pass);

    let page = report::html::page(&record, &judgement);
    assert!(page.contains("900000"), "the exact maximum is among the page's raw numbers");
}
