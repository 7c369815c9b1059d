//! A cell of a record as a run of cyclictest.
//!
//! What a record doesn't hold stays at what cyclictest shows before it knows better: the last latency
//! of a thread is 0, which cycles overflowed is left out, and so are system management interrupts, which
//! are counted over all cells. The histogram is as wide as the largest
//! latency needs, and no wider than what the record keeps apart.

use rtscope_model::{
    event::{EndReason, Event},
    histogram::Histogram,
    record::{Record, ThreadRecord},
};

use super::{Break, CyclictestOrigin, CyclictestRun, CyclictestThread, CyclictestUnit};
use crate::{
    export::{Exported, Format},
    judgement::{CellSummary, FigureRow},
};

pub(in crate::export) const TEXT: Format = Format {
    name: "cyclictest",
    what: "the histogram and summary that cyclictest -q -h prints; of one cell",
    ending: "txt",
    write: |subject| subject.only().map(|cell| text(&run(subject.record, cell)).into_bytes()),
};

pub(in crate::export) const JSON: Format = Format {
    name: "cyclictest-json",
    what: "cyclictest's JSON and more keys; of one cell",
    ending: "json",
    write: |subject| {
        let cell = subject.only()?;
        let run = run(subject.record, cell);
        Ok(super::json(&run, &origin(subject, cell)).into_bytes())
    },
};

/// The fewest buckets of a histogram, and the most that cyclictest has.
const BUCKETS: std::ops::RangeInclusive<u64> = 100..=1_000_000;

/// The most buckets of all threads together.
const COUNTS_MAX: u64 = 16_000_000;

/// What `-q` prints: the histogram, or the threads' lines where there is none.
fn text(run: &CyclictestRun) -> String {
    let figures = if run.buckets == 0 { run.lines() } else { run.histogram() };
    figures + &run.threshold() + &wait_comments(&run.waits, run.unit)
}

/// A comment for each thread that had waited longer than its maximum.
pub(in crate::export) fn wait_comments(waits: &[(String, u64)], unit: CyclictestUnit) -> String {
    let wait = |(label, waited_ns): &(String, u64)| {
        let (waited, unit) = (unit.whole(*waited_ns), unit.name());
        format!("# Waited: {label} at least {waited} {unit}, longer than its maximum\n")
    };
    waits.iter().map(wait).collect()
}

fn run(record: &Record, cell: &CellSummary) -> CyclictestRun {
    let layout = record.layout_of(cell.cell);
    let unit = if layout.unit_ns < CyclictestUnit::Us.ns() {
        CyclictestUnit::Ns
    } else {
        CyclictestUnit::Us
    };
    let threads: Vec<CyclictestThread> = record
        .threads
        .iter()
        .filter_map(|thread| {
            let row = cell.threads.iter().find(|row| row.thread == Some(thread.thread))?;
            let missed = if row.missed_is_known { row.missed } else { 0 };
            (row.recorded > 0).then(|| CyclictestThread {
                missed,
                ..placed(record, thread, row.histogram.clone())
            })
        })
        .collect();
    let of_all = &cell.all.histogram;
    let unplaced = of_all.unplaced();
    let from_ns = if unplaced.is_empty() { u64::MAX } else { unplaced.from_ns };
    let known = unit.whole(layout.limit_ns().min(from_ns));
    let needed = unit.whole(of_all.max_ns().unwrap_or(0)) + 1;
    let buckets = needed.clamp(*BUCKETS.start(), *BUCKETS.end()).min(known);
    let buckets = buckets.min(COUNTS_MAX / threads.len().max(1) as u64);
    // Rows of one unit can't hold wider buckets, as some imports have: then there are only figures.
    let has_histogram = of_all.count() > unplaced.count && layout.unit_ns == unit.ns();
    let broke = broke(record, cell);
    CyclictestRun {
        unit,
        buckets: if has_histogram { u32::try_from(buckets).unwrap_or(u32::MAX) } else { 0 },
        sums: false,
        armed: broke.is_some(),
        broke,
        threads,
        waits: waits(cell),
    }
}

/// Threads that waited longer than their maximum when the cell ended.
pub(in crate::export) fn waits(cell: &CellSummary) -> Vec<(String, u64)> {
    let wait = |row: &FigureRow| Some((row.label.clone(), row.waited_ns()?));
    cell.threads.iter().filter_map(wait).collect()
}

fn placed(record: &Record, thread: &ThreadRecord, histogram: Histogram) -> CyclictestThread {
    let mut run =
        CyclictestThread::placed(tid(record, thread), thread.interval_ns, &thread.found, histogram);
    run.node = -1;
    run
}

/// The kernel's number of a thread; 0 of one that was imported.
fn tid(record: &Record, wanted: &ThreadRecord) -> u32 {
    let placed = record.events.iter().find_map(|stamped| match &stamped.event {
        Event::ThreadPlaced { thread, tid, .. } if *thread == wanted.thread => Some(*tid),
        _ => None,
    });
    placed.unwrap_or(0)
}

/// The latency that ended a cell.
fn broke(record: &Record, cell: &CellSummary) -> Option<Break> {
    if cell.ended != Some(EndReason::Break) {
        return None;
    }
    let of_cell = |wanted: u32| cell.threads.iter().any(|row| row.thread == Some(wanted));
    record.events.iter().rev().find_map(|stamped| match &stamped.event {
        Event::BreakHit { thread, latency_ns, .. } if of_cell(*thread) => {
            let thread = record.threads.iter().find(|known| known.thread == *thread)?;
            Some(Break { tid: tid(record, thread), latency_ns: *latency_ns })
        }
        _ => None,
    })
}

fn origin(subject: &Exported<'_>, cell: &CellSummary) -> CyclictestOrigin {
    let record = subject.record;
    let source = record.origin_of(cell.cell);
    let mut origin = CyclictestOrigin { rt_tests_version: "2.40", ..CyclictestOrigin::default() };
    let first = record.events.first().map(|first| &first.event);
    if let Some(Event::RunStarted { version, command, wall_clock, .. }) = first {
        origin.version.clone_from(version);
        origin.command = command.join(" ");
        let last_ns = record.events.last().map_or(0, |last| last.at_ns);
        if let Ok(start) = wall_clock.parse::<jiff::Timestamp>() {
            let lasted = jiff::SignedDuration::from_nanos(i64::try_from(last_ns).unwrap_or(0));
            let end = start.checked_add(lasted).unwrap_or(start);
            [origin.start_time, origin.end_time] =
                [start, end].map(|time| time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string());
        }
    }
    let fact = |name: &str| {
        let facts = source.iter().flat_map(|source| &source.facts);
        facts.into_iter().find(|fact| fact.0 == name).map(|fact| fact.1.clone()).unwrap_or_default()
    };
    // What was imported ran on another machine, when it said.
    let (host, release, version, machine) = match (&record.before, source) {
        (Some(found), None) => {
            let kernel = found.kernel.clone();
            (found.host.clone(), kernel.release, kernel.version, kernel.machine)
        }
        _ => (fact("host"), fact("kernel"), fact("kernel version"), fact("machine")),
    };
    if let Some(source) = source {
        origin.start_time = fact("started");
        origin.end_time = fact("ended");
        origin.command = source.command.clone().unwrap_or_default();
    }
    origin.uname = vec![
        ("sysname", "Linux".to_owned()),
        ("nodename", host),
        ("release", release),
        ("version", version.clone()),
        ("machine", machine),
    ];
    origin.realtime = version.contains("PREEMPT_RT") || version.contains("PREEMPT RT");
    origin
}
