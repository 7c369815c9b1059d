//! Rules about the loads: whether what was measured under load was under load.

use rtscope_model::{
    finding::{Finding, Weight},
    printable::quoted,
    time::Nanos,
};

use super::{Scene, listed};
use crate::judgement::{CellSummary, LoadSummary};

/// The loads of cells that measured anything.
fn loads<'a>(scene: &'a Scene) -> impl Iterator<Item = (&'a CellSummary, &'a LoadSummary)> {
    let measured = scene.cells.iter().filter(|cell| cell.all.recorded > 0);
    measured.flat_map(|cell| cell.loads.iter().map(move |load| (cell, load)))
}

/// A load never ran, did nothing, or ended badly.
pub(super) fn did_not_run(scene: &Scene) -> Option<Finding> {
    let complete = scene.record.is_complete();
    let wrong = |load: &LoadSummary| match &load.ended {
        Some(how) if !load.ok => Some(how.clone()),
        // What it did instead, where that was seen, follows the word.
        Some(how) if load.work == 0 => {
            Some(format!("it did no work{}", how.strip_prefix("stopped").unwrap_or("")))
        }
        Some(_) => None,
        None if complete => Some("it never ran to its end".to_owned()),
        None if load.work == 0 => Some("it did no work".to_owned()),
        None => None,
    };
    let places = listed(loads(scene).filter_map(|(cell, load)| {
        Some(format!("{} in {} ({})", quoted(&load.line), cell.name, wrong(load)?))
    }))?;
    let text = format!("loads did not run as they should: {places}");
    let advice = "try the load alone with 'rtscope load'";
    Some(Finding::new("load-did-not-run", Weight::PreventsPass, text).advise(advice))
}

/// A load that ran had spans in which it did nothing.
pub(super) fn idle(scene: &Scene) -> Option<Finding> {
    let holes = loads(scene).filter(|(_, load)| load.idle_spans > 0);
    let places = listed(holes.map(|(cell, load)| {
        let line = quoted(&load.line);
        format!("{line} in {} ({} of {} spans)", cell.name, load.idle_spans, load.spans)
    }))?;
    let text = format!("loads did no work for a time: {places}");
    let advice =
        "a load that waits puts no load on the machine: see its rate over time in the report";
    Some(Finding::new("load-idle", Weight::PreventsPass, text).advise(advice))
}

/// Share of a phase that may be without its load: stopping takes a moment too.
const UNLOADED_SHARE: f64 = 0.1;

/// A load was done long before its phase was over.
pub(super) fn ended_early(scene: &Scene) -> Option<Finding> {
    let early = loads(scene).filter(|(cell, load)| {
        load.ok && load.unloaded_ns as f64 > UNLOADED_SHARE * cell.duration_ns as f64
    });
    let places = listed(early.map(|(cell, load)| {
        let (without, phase) = (Nanos(load.unloaded_ns), Nanos(cell.duration_ns));
        format!("{} in {} ({without} of {phase} without it)", quoted(&load.line), cell.name)
    }))?;
    let text = format!("loads ended by themselves before the end of their phase: {places}");
    let advice = "give the load more to do, or end the phase with it (load_ends = true)";
    Some(Finding::new("load-ended-early", Weight::PreventsPass, text).advise(advice))
}

#[cfg(test)]
mod tests {
    use rtscope_model::event::Event;

    use super::{
        super::tests::{PLAN, all, good, only},
        *,
    };
    use crate::test_support::Run;

    const LINE: &str = "message groups=1";

    fn with_work(work: &[u64]) -> Run {
        Run::new(PLAN, 1).cell(0, &[&[1_000]]).cell(1, &[&[1_000]]).load(1, LINE, work).end()
    }

    #[test]
    fn a_load_that_failed_is_named_with_its_end() {
        let failed = good().edit(|event| {
            if let Event::LoadEnded { ok, how, .. } = event {
                *ok = false;
                "killed by signal 9".clone_into(how);
            }
        });
        assert_eq!(
            only(&failed, "load-did-not-run", Weight::PreventsPass),
            "loads did not run as they should: \"message groups=1\" in busy (killed by signal 9)"
        );
    }

    #[test]
    fn a_load_that_never_ran_is_found() {
        let mut run = Run::new(PLAN, 1).cell(0, &[&[1_000]]).cell(1, &[&[1_000]]).end();
        let text = only(&run, "load-did-not-run", Weight::PreventsPass);
        assert!(text.ends_with("(it never ran to its end)"), "{text}");
        run.events.pop();
        let text = only(&run, "load-did-not-run", Weight::PreventsPass);
        assert!(text.ends_with("(it did no work)"), "{text}");
        let text = only(&with_work(&[0, 0]), "load-did-not-run", Weight::PreventsPass);
        assert!(text.ends_with("(it did no work)"), "{text}");
        let stuck = with_work(&[0, 0]).edit(|event| {
            if let Event::LoadEnded { how, .. } = event {
                how.push_str(", while 20 of its processes waited in the kernel");
            }
        });
        let text = only(&stuck, "load-did-not-run", Weight::PreventsPass);
        let expected = "(it did no work, while 20 of its processes waited in the kernel)";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_load_that_was_running_when_the_record_was_cut_is_fine() {
        let mut run = with_work(&[5, 5]);
        run.events.retain(|e| !matches!(e.event, Event::LoadEnded { .. } | Event::RunEnded { .. }));
        assert_eq!(all(&run), []);
    }

    #[test]
    fn a_hole_in_the_load_is_counted() {
        let text = only(&with_work(&[50, 0, 50]), "load-idle", Weight::PreventsPass);
        assert!(text.ends_with("in busy (1 of 3 spans)"), "{text}");
    }

    #[test]
    fn a_load_that_was_done_too_soon_is_found() {
        // The cell of two seconds ends at 2 s.
        let done_at = |at_ns: u64| {
            let mut run = Run::new(PLAN, 1).cell(1, &[&[1_000; 2_000]]).load(1, LINE, &[5]);
            run.events.last_mut().expect("the load's end").at_ns = at_ns;
            run.cell(0, &[&[1_000]]).end()
        };
        assert_eq!(
            only(&done_at(500_000_000), "load-ended-early", Weight::PreventsPass),
            "loads ended by themselves before the end of their phase: \"message groups=1\" in busy (1.5 s of \
             2 s without it)"
        );
        assert_eq!(all(&done_at(1_900_000_000)), []);
        // A tenth of the phase, and a little more.
        assert_eq!(all(&done_at(1_800_000_000)), []);
        only(&done_at(1_799_999_999), "load-ended-early", Weight::PreventsPass);
    }

    #[test]
    fn the_load_of_a_cell_that_never_started_is_not_asked_for() {
        let run = Run::new(PLAN, 1).cell(0, &[&[1_000]]).end();
        only(&run, "phases-not-run", Weight::PreventsPass);
    }
}
