//! Rules about the run as a whole: whether it measured, adds up and came to its end.

use rtscope_model::{
    event::{EndReason, Event},
    finding::{Finding, Weight},
    slice::Scope,
    time::Nanos,
};

use super::{Scene, listed};
use crate::judgement::{CellSummary, FigureRow};

/// A cell, or a thread in a cell that others measured, without a sample.
pub(super) fn no_samples(scene: &Scene) -> Option<Finding> {
    let silent = |cell: &CellSummary| -> Vec<String> {
        // Activations that were missed are figures too: a thread that never ran was as late as they are.
        let is_silent = |row: &&FigureRow| row.recorded == 0 && row.missed == 0;
        if is_silent(&&cell.all) {
            return vec![cell.name.clone()];
        }
        let threads = cell.threads.iter().filter(is_silent);
        threads.map(|row| format!("{} on {}", cell.name, row.label)).collect()
    };
    // An importer has said which threads of another tool recorded nothing, and whether that is a result.
    let is_ours = |cell: &&CellSummary| scene.record.origin_of(cell.cell).is_none();
    let reached = scene.cells.iter().filter(|cell| is_reached(scene, cell)).filter(is_ours);
    let places = listed(reached.flat_map(silent))?;
    let text = format!("no latency was measured in: {places}");
    let advice = "let the phase last several intervals of the sampler, and let the run end";
    // The figures of other phases and threads stand: one that fails still fails.
    Some(Finding::new("no-samples", Weight::PreventsPass, text).advise(advice))
}

/// A cell that the run did not reach: what was measured before it still stands.
pub(super) fn not_reached(scene: &Scene) -> Option<Finding> {
    let ahead = scene.cells.iter().filter(|cell| !is_reached(scene, cell));
    let places = listed(ahead.map(|cell| cell.name.clone()))?;
    let text = match scene.record.is_complete() {
        true => format!("the run did not reach: {places}"),
        false => format!("the record ends before: {places}"),
    };
    Some(Finding::new("phases-not-run", Weight::PreventsPass, text).advise("let the run end"))
}

fn is_reached(scene: &Scene, of: &CellSummary) -> bool {
    scene.record.events.iter().any(|stamped| match stamped.event {
        Event::PhaseStarted { cell, .. } | Event::LoadStarted { cell, .. } => cell == of.cell,
        _ => false,
    })
}

/// Checks, for each thread and cell: planned = recorded + missed, recorded = the histogram's count, and minimum, maximum
/// and sum agree with the buckets. The last check skips imports, which keep the figures of their file.
pub(super) fn accounting(scene: &Scene) -> Option<Finding> {
    let wrong = |row: &&FigureRow| {
        row.planned != row.recorded + row.missed || row.recorded != row.histogram.count()
    };
    let sums = listed(scene.cells.iter().flat_map(|cell| {
        cell.threads.iter().filter(wrong).map(|row| {
            format!(
                "{} on {} ({} planned, {} recorded, {} missed, {} in the histogram)",
                cell.name,
                row.label,
                row.planned,
                row.recorded,
                row.missed,
                row.histogram.count()
            )
        })
    }));
    let measured = scene.cells.iter().filter(|cell| scene.record.origin_of(cell.cell).is_none());
    let contradictions = listed(measured.flat_map(|cell| {
        let is_wrong =
            |row: &&FigureRow| !(row.histogram.is_consistent() && row.corrected.is_consistent());
        cell.threads.iter().filter(is_wrong).map(|row| format!("{} on {}", cell.name, row.label))
    }));
    let sums = sums.map(|places| format!("planned = recorded + missed does not hold in: {places}"));
    let contradictions = contradictions
        .map(|places| format!("the minimum, maximum or mean contradicts the histogram: {places}"));
    let text: Vec<String> = [sums, contradictions].into_iter().flatten().collect();
    let is_found = !text.is_empty();
    is_found.then(|| Finding::new("accounting", Weight::Invalidates, text.join(", and ")))
}

/// Slices of a thread or a cell that the record doesn't describe: they are in no figure.
pub(super) fn unknown_slices(scene: &Scene) -> Option<Finding> {
    let record = scene.record;
    let stray = record.content.slices.iter().filter(|((thread, scope), _)| match scope {
        Scope::Discarded => false,
        Scope::Cell(cell) => {
            *cell as usize >= scene.cells.len()
                || record.threads.iter().all(|known| known.thread != *thread)
        }
    });
    let count = Some(stray.map(|(_, count)| count).sum::<u64>()).filter(|&count| count > 0)?;
    let text = format!("{count} slices belong to no known thread or cell: they are in no figure");
    Some(Finding::new("slices-unknown", Weight::Invalidates, text))
}

pub(super) fn interrupted(scene: &Scene) -> Option<Finding> {
    let text = "the run was interrupted before its plan was done";
    ended(scene, EndReason::Interrupted)
        .then(|| Finding::new("run-interrupted", Weight::PreventsPass, text))
}

/// The run, or a phase of it, failed. The phases after a failed one are measured all the same.
pub(super) fn failed(scene: &Scene) -> Option<Finding> {
    let events = scene.record.events.iter();
    let all =
        events.clone().any(|e| matches!(e.event, Event::RunEnded { why: EndReason::Failed, .. }));
    let cells = events.filter_map(|stamped| match stamped.event {
        Event::PhaseEnded { cell, why: EndReason::Failed, .. } => {
            Some(scene.cells.get(cell as usize)?.name.clone())
        }
        _ => None,
    });
    let text = match listed(cells) {
        _ if all => "the run failed before its plan was done".to_owned(),
        Some(places) => format!("the run failed in: {places}"),
        None => return None,
    };
    Some(Finding::new("run-failed", Weight::PreventsPass, text))
}

/// Whether the run or a phase of it ended so.
fn ended(scene: &Scene, wanted: EndReason) -> bool {
    scene.record.events.iter().any(|stamped| match stamped.event {
        Event::RunEnded { why, .. } | Event::PhaseEnded { why, .. } => why == wanted,
        _ => false,
    })
}

/// The run stopped at a latency above the break threshold.
pub(super) fn break_hit(scene: &Scene) -> Option<Finding> {
    let hit = scene.record.events.iter().find_map(|stamped| match stamped.event {
        Event::BreakHit { thread, latency_ns, expiry_ns } => Some((thread, latency_ns, expiry_ns)),
        _ => None,
    });
    let text = match hit {
        Some((thread, latency_ns, expiry_ns)) => format!(
            "the run stopped at a latency of {} on {}, {} after its start",
            Nanos(latency_ns),
            scene.label(thread),
            Nanos(expiry_ns)
        ),
        None => "the run stopped at a latency above its break threshold".to_owned(),
    };
    let broke = hit.is_some() || ended(scene, EndReason::Break);
    broke.then(|| Finding::new("break-hit", Weight::PreventsPass, text))
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{PLAN, all, good, only},
        *,
    };
    use crate::test_support::Run;

    fn ended_by(why: EndReason) -> Run {
        good().edit(|event| {
            if let Event::RunEnded { why: ended, .. } = event {
                *ended = why;
            }
        })
    }

    #[test]
    fn silence_is_found_by_cell_and_by_thread() {
        let silent =
            Run::new(PLAN, 2).cell(0, &[&[1_000], &[]]).load(1, "message groups=1", &[1]).end();
        assert_eq!(
            only(&silent, "no-samples", Weight::PreventsPass),
            "no latency was measured in: rest on CPU 1, busy"
        );
    }

    #[test]
    fn a_cell_ahead_of_an_interrupt_does_not_spoil_the_others() {
        let early = Run::new(PLAN, 1).cell(0, &[&[1_000]]).end();
        assert_eq!(
            only(&early, "phases-not-run", Weight::PreventsPass),
            "the run did not reach: busy"
        );
    }

    #[test]
    fn a_sum_that_is_not_one_is_found() {
        let mut run = good();
        run.slices[1].planned += 1;
        assert_eq!(
            only(&run, "accounting", Weight::Invalidates),
            "planned = recorded + missed does not hold in: rest on CPU 0 (2001 planned, 2000 \
             recorded, 0 missed, 2000 in the histogram)"
        );
        let mut run = good();
        run.slices[1].bins[0].1 -= 1;
        only(&run, "accounting", Weight::Invalidates);
        // No latency is in the bucket of such a maximum.
        let mut run = good();
        run.slices[1].max_ns += 500_000;
        assert_eq!(
            only(&run, "accounting", Weight::Invalidates),
            "the minimum, maximum or mean contradicts the histogram: rest on CPU 0"
        );
    }

    #[test]
    fn stray_slices_are_counted() {
        let mut run = good();
        run.slices.push(rtscope_model::slice::Slice { thread: 9, ..run.slices[0].clone() });
        run.slices
            .push(rtscope_model::slice::Slice { scope: Scope::Cell(2), ..run.slices[0].clone() });
        run.slices.push(rtscope_model::slice::Slice {
            thread: 9,
            scope: Scope::Discarded,
            ..run.slices[0].clone()
        });
        assert!(only(&run, "slices-unknown", Weight::Invalidates).starts_with("2 slices"));
    }

    #[test]
    fn an_early_end_is_told() {
        only(&ended_by(EndReason::Interrupted), "run-interrupted", Weight::PreventsPass);
        only(&ended_by(EndReason::Failed), "run-failed", Weight::PreventsPass);
        only(&ended_by(EndReason::Break), "break-hit", Weight::PreventsPass);
        assert_eq!(all(&ended_by(EndReason::Finished)), []);
        let phase = good().edit(|event| {
            if let Event::PhaseEnded { cell: 1, why, .. } = event {
                *why = EndReason::Failed;
            }
        });
        let text = only(&phase, "run-failed", Weight::PreventsPass);
        assert_eq!(text, "the run failed in: busy", "its other phases are measured");
    }

    #[test]
    fn the_latency_that_broke_the_run_is_named() {
        let mut run = ended_by(EndReason::Break);
        let hit = Event::BreakHit { thread: 1, latency_ns: 512_300, expiry_ns: 1_500_000_000 };
        let last = run.events.len() - 1;
        run.events.insert(last, rtscope_model::event::Stamped { at_ns: 1, event: hit });
        assert_eq!(
            only(&run, "break-hit", Weight::PreventsPass),
            "the run stopped at a latency of 512.3 us on CPU 1, 1.5 s after its start"
        );
    }
}
