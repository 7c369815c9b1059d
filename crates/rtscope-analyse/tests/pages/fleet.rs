//! The pages of a fleet: its places side by side, and before and after a change.

use rtscope_analyse::{
    compare::{ComparedRun, compare_each},
    report::{
        fleet::{self, FleetReport, PlaceOutcome, PlaceReport},
        fleet_compare::{self, FleetComparison},
    },
};

use crate::{fixture, judge};

/// Places that were judged, one of them cut short, one that brought nothing and one that is at work.
pub(crate) fn places() -> String {
    let record = fixture::typical();
    let judgement = judge(&record, &[]);
    let judged = |place: &str, is_whole| {
        PlaceOutcome::judged(&judgement, format!("places/{place}"), is_whole)
    };
    let place = |name: &str, outcome: PlaceOutcome, outlier: &[&str]| PlaceReport {
        place: name.to_owned(),
        tags: vec!["rt".to_owned(), "hall=3".to_owned()],
        machine: "aarch64".to_owned(),
        kernel: "6.12.9-rt7 <b>&amp;".to_owned(),
        model: Some("Raspberry Pi 4 Model B Rev 1.4".to_owned()),
        outcome,
        outlier: outlier.iter().map(|&line| line.to_owned()).collect(),
    };
    let why = "no connection: ssh: connect to host drill-3 port 22: Connection refused".to_owned();
    let places = vec![
        place("drill-1", judged("drill-1", true), &[]),
        place(
            "drill-2",
            judged("drill-2", false),
            &["rest: its p99.9 is at least 3.1 times the fleet's median of 12.0 us"],
        ),
        place("drill-3", PlaceOutcome::NoRecord { why }, &[]),
        place("drill-4", PlaceOutcome::Open { step: "running".to_owned() }, &[]),
    ];
    fleet::page(&FleetReport::new(&record.plan, "0.1.0", places))
}

/// Two places that both sides have, and one that only one has.
pub(crate) fn compared() -> String {
    let records = [fixture::typical(), fixture::wide(2, 2)];
    let judgements = records.each_ref().map(|record| judge(record, &[]));
    let run = |n: usize, name| ComparedRun {
        name,
        record: &records[n],
        judgement: &judgements[n],
        cell: None,
    };
    let (a, b) = ([run(0, "before/places/x")], [run(1, "after/places/x")]);
    let comparisons = compare_each(&[(&a, &b), (&a, &a)], &[50_000]);
    let names = ["drill-1", "drill-2"].map(str::to_owned);
    let compared = names.into_iter().zip(comparisons).collect();
    let folders = [vec!["before".to_owned()], vec!["after".to_owned()]];
    fleet_compare::page(&FleetComparison::new(
        folders,
        "0.1.0",
        compared,
        vec!["drill-3".to_owned()],
    ))
}
