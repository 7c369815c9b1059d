//! From a record to the figures of each cell: its threads, all of them together, and its loads.

use std::collections::BTreeMap;

use rtscope_model::{
    event::{EndReason, Event, IdleSpans},
    frames::Frames,
    histogram::{Histogram, Layout},
    plan::Phase,
    printable::printable,
    record::{Record, ThreadRecord},
    slice::{Scope, Slice},
    time::Nanos,
    verdict::Requirement,
};

use super::{
    dependence::{BLOCKS_MAX, Blocks},
    exceedance::{self, WatchedTime},
    modes, quantile, tail,
};
use crate::judgement::{CellSummary, FigureRow, LoadSummary};

/// The figures of each cell of the plan, in its order. A cell that never started has empty rows.
#[must_use]
pub fn cells(record: &Record) -> Vec<CellSummary> {
    let mut slices: BTreeMap<u32, Vec<&Slice>> = BTreeMap::new();
    for slice in &record.slices {
        if let Scope::Cell(cell) = slice.scope {
            slices.entry(cell).or_default().push(slice);
        }
    }
    (0u32..)
        .zip(&record.plan.phases)
        .map(|(cell, _)| summary_of(record, cell, slices.get(&cell).map_or(&[], Vec::as_slice)))
        .collect()
}

fn summary_of(record: &Record, cell: u32, slices: &[&Slice]) -> CellSummary {
    let phase = &record.plan.phases[cell as usize];
    let layout = record.layout_of(cell);
    let missed_is_known = record.origin_of(cell).is_none();
    let grain_ns = record.origin_of(cell).map_or(0, |origin| origin.grain_ns);
    let threads: Vec<&ThreadRecord> = threads_of(record, cell, slices).collect();
    let is_ordered = record.origin_of(cell).is_none_or(|origin| origin.is_in_order);
    let blocks_of = |most| {
        let blocks = Blocks::bounded(layout, most);
        if is_ordered { blocks } else { blocks.without_order() }
    };
    // All threads together need no more memory for their blocks than the cell.
    let most = (BLOCKS_MAX / threads.len().max(1)).max(THREAD_BLOCKS_MIN);
    let sum_of = |thread: &&ThreadRecord| Sum::of_thread(record, thread, layout, blocks_of(most));
    let mut sums: Vec<Sum> = threads.iter().map(sum_of).collect();
    for sum in &mut sums {
        (sum.missed_is_known, sum.grain_ns) = (missed_is_known, grain_ns);
        sum.measured = Histogram::new(layout).cut_to(grain_ns);
    }
    let mut all = Sum::new("all".to_owned(), layout, blocks_of(BLOCKS_MAX));
    for slice in slices {
        if let Some(sum) = sums.iter_mut().find(|sum| sum.thread == Some(slice.thread)) {
            sum.add(slice);
            all.blocks.add(slice);
        }
    }
    all.missed_is_known = missed_is_known;
    all.grain_ns = grain_ns;
    sums.iter().for_each(|sum| all.merge(sum));
    let limits_ns = limits_ns(record, phase, &all.measured);
    let duration_ns = duration_ns(record, cell, slices);
    let modes = modes::find(&all.measured);
    let tail =
        tail::estimate(slices, &all.measured, &all.blocks, duration_ns, &modes, !missed_is_known);
    let watched = WatchedTime::of_threads(sums.iter().map(|sum| sum.exposure_ns), duration_ns);
    let row_of = |sum: Sum| {
        let alone = WatchedTime::of_one(sum.exposure_ns);
        sum.into_row(&limits_ns, alone)
    };
    CellSummary {
        cell,
        name: phase.name.clone(),
        loads: loads_of(record, cell),
        duration_ns,
        ended: end_of(record, cell).map(|(_, why)| why),
        blocks: all.blocks.clone(),
        all: all.into_row(&limits_ns, watched),
        threads: sums.into_iter().map(row_of).collect(),
        modes,
        tail,
    }
}

/// How long a cell lasted: between its bounds, as far as the record has them. The activations at its ends may lie far apart
/// or be missing.
fn duration_ns(record: &Record, cell: u32, slices: &[&Slice]) -> u64 {
    let bounds = record.events.iter().rev().find_map(|stamped| match &stamped.event {
        Event::PhaseEnded { cell: ended, bounds, .. } if *ended == cell => *bounds,
        _ => None,
    });
    let (from_ns, to_ns) = match bounds {
        Some(bounds) => (bounds.from_ns, bounds.to_ns),
        None => (
            slices.iter().map(|slice| slice.start_ns).min().unwrap_or(0),
            slices.iter().map(|slice| slice.end_ns).max().unwrap_or(0),
        ),
    };
    to_ns.saturating_sub(from_ns)
}

/// The threads of the session that ran a cell, and any other that left slices there.
fn threads_of<'a>(
    record: &'a Record,
    cell: u32,
    slices: &'a [&Slice],
) -> impl Iterator<Item = &'a ThreadRecord> {
    let session = record.events.iter().find_map(|stamped| match &stamped.event {
        Event::SessionStarted { session, first_cell, cells, .. }
            if (*first_cell..first_cell + cells).contains(&cell) =>
        {
            Some(*session)
        }
        Event::CellImported { cell: imported, session, .. } if *imported == cell => Some(*session),
        _ => None,
    });
    record.threads.iter().filter(move |thread| {
        Some(thread.session) == session || slices.iter().any(|s| s.thread == thread.thread)
    })
}

/// The required limits and a ladder of round ones that spans the latencies, ascending.
fn limits_ns(record: &Record, phase: &Phase, latencies: &Histogram) -> Vec<u64> {
    let required = record.plan.require.iter().chain(&phase.require);
    let mut limits_ns: Vec<u64> = required.filter_map(Requirement::limit_ns).collect();
    if let (Some(min_ns), Some(max_ns)) = (latencies.min_ns(), latencies.max_ns()) {
        limits_ns.extend(exceedance::round_limits_ns(min_ns, max_ns));
    }
    limits_ns.sort_unstable();
    limits_ns.dedup();
    limits_ns
}

/// When and why a phase ended.
fn end_of(record: &Record, cell: u32) -> Option<(u64, EndReason)> {
    record.events.iter().rev().find_map(|stamped| match &stamped.event {
        Event::PhaseEnded { cell: ended, why, .. } if *ended == cell => Some((stamped.at_ns, *why)),
        _ => None,
    })
}

/// Blocks that each of many threads keeps.
const THREAD_BLOCKS_MIN: usize = 64;

/// A row on its way: sums of slices.
struct Sum {
    thread: Option<u32>,
    label: String,
    cpu: Option<u32>,
    planned: u64,
    recorded: u64,
    missed: u64,
    missed_is_known: bool,
    grain_ns: u64,
    early: u64,
    exposure_ns: u64,
    measured: Histogram,
    omitted: Histogram,
    blocks: Blocks,
    frames: Option<Frames>,
}

impl Sum {
    fn of_thread(record: &Record, thread: &ThreadRecord, layout: Layout, blocks: Blocks) -> Sum {
        let cpus = &thread.found.cpus;
        Sum {
            thread: Some(thread.thread),
            cpu: cpus.last().filter(|_| cpus.len() == 1),
            ..Sum::new(record.label(thread), layout, blocks)
        }
    }

    fn new(label: String, layout: Layout, blocks: Blocks) -> Sum {
        Sum {
            thread: None,
            label,
            cpu: None,
            planned: 0,
            recorded: 0,
            missed: 0,
            missed_is_known: true,
            grain_ns: 0,
            early: 0,
            exposure_ns: 0,
            measured: Histogram::new(layout),
            omitted: Histogram::new(layout),
            blocks,
            frames: None,
        }
    }

    fn add(&mut self, slice: &Slice) {
        self.planned += slice.planned;
        self.recorded += slice.recorded;
        self.missed += slice.missed;
        self.early += slice.early;
        let span_ns = slice.end_ns.saturating_sub(slice.start_ns);
        self.exposure_ns = self.exposure_ns.saturating_add(span_ns);
        let sum_ns = u128::from(slice.sum_ns);
        self.measured.add_all(&slice.bins, slice.unplaced, slice.min_ns, slice.max_ns, sum_ns);
        let extent = slice.omitted_extent;
        let omitted_sum_ns = u128::from(extent.sum_ns);
        self.omitted.add(&slice.omitted, extent.min_ns, extent.max_ns, omitted_sum_ns);
        self.blocks.add(slice);
        self.add_frames(slice.frames.as_deref());
    }

    fn add_frames(&mut self, more: Option<&Frames>) {
        if let Some(more) = more {
            self.frames.get_or_insert_default().absorb(more);
        }
    }

    fn merge(&mut self, other: &Sum) {
        self.planned += other.planned;
        self.recorded += other.recorded;
        self.missed += other.missed;
        self.early += other.early;
        self.exposure_ns = self.exposure_ns.saturating_add(other.exposure_ns);
        self.measured.merge(&other.measured);
        self.omitted.merge(&other.omitted);
        self.add_frames(other.frames.as_ref());
    }

    fn into_row(self, limits_ns: &[u64], watch: WatchedTime) -> FigureRow {
        let exceed =
            |&limit_ns: &u64| exceedance::estimate(&self.measured, limit_ns, watch, &self.blocks);
        let mut corrected = self.measured.clone();
        corrected.merge(&self.omitted);
        FigureRow {
            label: self.label,
            thread: self.thread,
            cpu: self.cpu,
            planned: self.planned,
            recorded: self.recorded,
            missed: self.missed,
            missed_is_known: self.missed_is_known,
            grain_ns: self.grain_ns,
            early: self.early,
            exposure_ns: self.exposure_ns,
            quantiles: quantile::ladder(&self.measured, &self.blocks),
            exceedances: limits_ns.iter().filter_map(exceed).collect(),
            mean_margins_ns: self.blocks.mean_margins_ns(),
            frames: self.frames,
            histogram: self.measured,
            corrected,
        }
    }
}

/// Units of work that must have been due in a span without any before the span counts as idle: of
/// work that comes at random, fewer than one span in 20,000 has none of ten.
const DUE_WHEN_IDLE: f64 = 10.0;

/// What each load of a cell achieved, in the order of the plan.
fn loads_of(record: &Record, cell: u32) -> Vec<LoadSummary> {
    let lines = (0u32..).zip(&record.plan.phases[cell as usize].loads);
    lines
        .map(|(load, line)| load_of(record, cell, load, printable(&line.to_string()).into_owned()))
        .collect()
}

fn load_of(record: &Record, in_cell: u32, wanted: u32, line: String) -> LoadSummary {
    let (mut unit, mut ending) = ("", None);
    let (mut spans, mut span_ns_sum, mut work_done) = (0u64, 0u64, 0u64);
    let mut idle: Vec<IdleSpans> = Vec::new();
    let mut unloaded_ns = 0;
    for stamped in &record.events {
        match &stamped.event {
            Event::LoadRate { cell, load, span_ns, work, unit: of, spans: joined, .. }
                if (*cell, *load) == (in_cell, wanted) =>
            {
                unit = of;
                spans = spans.saturating_add(*joined);
                span_ns_sum = span_ns_sum.saturating_add(*span_ns);
                work_done = work_done.saturating_add(*work);
                idle.push(stamped.event.idle_spans());
            }
            Event::LoadEnded { cell, load, work, ok, how }
                if (*cell, *load) == (in_cell, wanted) =>
            {
                ending = Some((*work, *ok, how.clone()));
                let ended_ns = end_of(record, in_cell).map_or(0, |(at_ns, _)| at_ns);
                unloaded_ns = ended_ns.saturating_sub(stamped.at_ns);
            }
            _ => {}
        }
    }
    let time = Nanos(span_ns_sum);
    let per_second = if time == Nanos::ZERO { 0.0 } else { work_done as f64 / time.as_secs_f64() };
    // Of joined spans the mean length is known.
    let due = |idle: &IdleSpans| {
        per_second * Nanos(idle.span_ns / idle.spans.max(1)).as_secs_f64() >= DUE_WHEN_IDLE
    };
    LoadSummary {
        line,
        // A record that was cut short has no last word on the work: what was reported counts.
        work: ending.as_ref().map_or(work_done, |ending| ending.0.max(work_done)),
        unit: unit.to_owned(),
        per_second,
        spans,
        idle_spans: idle.iter().filter(|idle| due(idle)).map(|idle| idle.spans).sum(),
        unloaded_ns,
        ok: ending.as_ref().is_some_and(|ending| ending.1),
        ended: ending.map(|ending| ending.2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{Run, SECOND_NS};

    const PLAN: &str = r#"
name = "two"
require = ["max < 200us"]
[[phase]]
name = "rest"
duration = "2s"
[[phase]]
name = "busy"
duration = "2s"
load = ["message groups=1"]
require = ["p99 < 70us", "missed = 0"]
[[phase]]
name = "never"
duration = "1s"
"#;

    #[test]
    fn a_known_distribution_comes_out_unchanged() {
        let quiet: Vec<u64> = (0..2_000).map(|i| 2_000 + i).collect();
        let spiky: Vec<u64> =
            (0..2_000).map(|i| if i == 1_234 { 312_345 } else { 9_000 }).collect();
        let record = Run::new(PLAN, 2).cell(0, &[&quiet, &spiky]).end().record();
        let cell = &cells(&record)[0];
        let rows = [&cell.threads[0], &cell.threads[1], &cell.all];
        let counts = rows.map(|r| (r.label.as_str(), r.cpu, r.planned, r.recorded, r.missed));
        assert_eq!(
            counts,
            [
                ("CPU 0", Some(0), 2_000, 2_000, 0),
                ("CPU 1", Some(1), 2_000, 2_000, 0),
                ("all", None, 4_000, 4_000, 0)
            ]
        );
        assert_eq!((cell.duration_ns, cell.all.exposure_ns), (2 * SECOND_NS, 4 * SECOND_NS));
        assert_eq!(cell.ended, Some(EndReason::Duration));
        let all = &cell.all.histogram;
        assert_eq!((all.min_ns(), all.max_ns()), (Some(2_000), Some(312_345)));
        let sum_ns = quiet.iter().chain(&spiky).sum::<u64>();
        assert_eq!(all.sum_ns(), u128::from(sum_ns));
        // Half of all are below 4 us, the rest but one in the bucket of 9 us.
        let values: Vec<u64> = cell.all.quantiles.iter().map(|q| q.value_ns).collect();
        assert_eq!(values, [3_999, 9_999, 9_999, 9_999, 9_999, 312_345, 312_345, 312_345]);
        let over: Vec<(u64, u64)> =
            cell.all.exceedances.iter().map(|e| (e.limit_ns / 1_000, e.surely)).collect();
        let expected =
            [(2, 4_000), (5, 2_000), (10, 1), (20, 1), (50, 1), (100, 1), (200, 1), (500, 0)];
        assert_eq!(over, expected);
        assert_eq!(cell.all.corrected, cell.all.histogram);
    }

    #[test]
    fn a_stall_of_five_periods_is_in_the_corrected_latencies() {
        let mut latencies = vec![10_000u64; 995];
        latencies[500] = 5_010_000;
        let record = Run::new(PLAN, 1).cell(0, &[&latencies]).end().record();
        let all = &cells(&record)[0].all;
        assert_eq!((all.planned, all.recorded, all.missed), (1_000, 995, 5));
        assert_eq!((all.histogram.count(), all.corrected.count()), (995, 1_000));
        assert_eq!(all.histogram.at_or_above(1_000_000), (1, 1));
        assert_eq!(all.corrected.at_or_above(1_000_000), (5, 5));
        let stall_ns: u128 = (0..=5).map(|i| i * 1_000_000 + 10_000).sum();
        assert_eq!(all.corrected.sum_ns(), 994 * 10_000 + stall_ns);
    }

    #[test]
    fn a_load_is_summed_over_its_reports() {
        let record = Run::new(PLAN, 1)
            .cell(1, &[&[5_000; 1_000]])
            .load(1, "message groups=1", &[0, 300, 500])
            .end()
            .record();
        let load = &cells(&record)[1].loads[0];
        assert_eq!((load.work, load.spans, load.idle_spans, load.ok), (800, 3, 1, true));
        assert_eq!(load.unloaded_ns, 0);
        assert!((load.per_second - 800.0 / 3.0).abs() < 1e-9);
        assert_eq!((load.unit.as_str(), load.ended.as_deref()), ("messages", Some("stopped")));
    }

    #[test]
    fn the_end_of_another_phase_s_load_is_none_of_this_one() {
        let record = Run::new(PLAN, 1)
            .cell(1, &[&[5_000; 1_000]])
            .load(1, "message groups=1", &[300])
            .load(2, "message groups=1", &[7_000])
            .end()
            .record();
        assert_eq!(cells(&record)[1].loads[0].work, 300);
    }

    #[test]
    fn threads_that_share_a_cpu_are_told_apart() {
        let labels = |cpus: &str| {
            let run = Run::new(PLAN, 2).cell(0, &[&[1_000], &[1_000]]).end().edit(|event| {
                if let Event::ThreadPlaced { found, .. } = event {
                    found.cpus = cpus.parse().expect("a set");
                }
            });
            cells(&run.record())[0].threads.iter().map(|row| row.label.clone()).collect::<Vec<_>>()
        };
        assert_eq!(labels("3"), ["CPU 3 thread 0", "CPU 3 thread 1"]);
        assert_eq!(labels("0-1"), ["thread 0", "thread 1"]);
    }

    #[test]
    fn a_slow_load_is_not_idle_between_two_units() {
        let idle = |work: &[u64]| {
            let run = Run::new(PLAN, 1).cell(1, &[&[5_000]]).load(1, "message groups=1", work);
            cells(&run.end().record())[1].loads[0].idle_spans
        };
        // A command that was started once and runs on; a load of two units a second.
        assert_eq!(idle(&[1, 0, 0, 0]), 0);
        assert_eq!(idle(&[4, 0, 3, 0]), 0);
        assert_eq!(idle(&[20, 20, 0, 0]), 2);
        // Two units a second are enough in a span of eight seconds.
        let mut record =
            Run::new(PLAN, 1).cell(1, &[&[5_000]]).load(1, "message", &[16, 16, 0]).end().record();
        for stamped in &mut record.events {
            if let Event::LoadRate { span_ns, .. } = &mut stamped.event {
                *span_ns = 8 * SECOND_NS;
            }
        }
        assert_eq!(cells(&record)[1].loads[0].idle_spans, 1);
    }

    #[test]
    fn the_last_moment_of_a_phase_may_be_without_work() {
        let last_span = |last_ns: u64| {
            let run = Run::new(PLAN, 1).cell(1, &[&[5_000]]).load(1, "message", &[90_000, 0]);
            let mut record = run.end().record();
            let rates = record.events.iter_mut().filter_map(|stamped| match &mut stamped.event {
                Event::LoadRate { span_ns, .. } => Some(span_ns),
                _ => None,
            });
            *rates.last().expect("two spans") = last_ns;
            cells(&record)[1].loads[0].idle_spans
        };
        assert_eq!((last_span(99_999_999), last_span(100_000_000)), (0, 1));
    }

    #[test]
    fn a_cell_that_never_started_is_there() {
        let record = Run::new(PLAN, 2).cell(0, &[&[1_000], &[1_000]]).end().record();
        let cells = cells(&record);
        assert_eq!(cells.len(), 3);
        let never = &cells[2];
        assert_eq!((never.name.as_str(), never.all.recorded, never.ended), ("never", 0, None));
        assert_eq!((never.threads.len(), never.all.quantiles.len()), (2, 0));
        assert!(never.all.exceedances.is_empty() && never.duration_ns == 0);
    }

    #[test]
    fn each_cell_has_its_own_limits() {
        let run = Run::new(PLAN, 1).cell(0, &[&[3_000]]).cell(1, &[&[3_000]]).end();
        let cells = cells(&run.record());
        let limits = |cell: usize| {
            let limits = cells[cell].all.exceedances.iter().map(|e| e.limit_ns / 1_000);
            limits.collect::<Vec<_>>()
        };
        assert_eq!(limits(0), [2, 5, 200]);
        assert_eq!(limits(1), [2, 5, 70, 200]);
    }
}
