//! From the records of many guests to one page, one document, one table.

use std::{collections::BTreeMap, fs, path::Path, process::ExitCode};

use rtscope_analyse::report::lab::{
    self as report,
    collect::{Collected, ComparedGuest, GuestRecord},
};
use rtscope_lab::{
    brought::{self, Brought},
    guest_run::GuestOutcome,
    lab::Outcomes,
    queue::QueuedRun,
    verify::Verification,
};
use rtscope_measure::guest_init::SHOWN;
use rtscope_model::{
    guest::{self, Timing, Tracer},
    plan::Plan,
};

use super::output;
use crate::{
    exit,
    record::{self, Additions},
};

/// Judges every record, and writes its own page.
pub(super) fn records(
    plan: &Plan,
    timing: Timing,
    runs: &[QueuedRun],
    outcomes: Outcomes,
) -> anyhow::Result<Collected> {
    let guests: Vec<ComparedGuest<'_>> = runs.iter().map(guest).collect();
    let mut all = Collected::new(plan, timing, &guests, brought::facts(runs));
    for ((queued, guest), outcome) in runs.iter().zip(&guests).zip(outcomes) {
        match queued.brought(outcome, SHOWN) {
            Brought::Record(record) => {
                let (outcome, verified) = *record;
                take(&mut all, plan, guest, &outcome, verified.as_ref())?;
            }
            Brought::NotReached(why) => all.add_not_begun(guest, &why),
            Brought::Nothing { why, interrupted } => {
                if interrupted {
                    all.add_unreached(guest);
                }
                all.add_failure(guest, &why);
            }
        }
    }
    Ok(all.finish())
}

fn guest(queued: &QueuedRun) -> ComparedGuest<'_> {
    let run = &queued.run;
    ComparedGuest {
        kernel: &run.kernel.label,
        seed: run.spec.seed,
        plan: &run.plan,
        words: &run.kernel.append,
    }
}

/// Judges a record, and takes in what it and the files beside it say.
fn take(
    all: &mut Collected,
    plan: &Plan,
    guest: &ComparedGuest<'_>,
    outcome: &GuestOutcome,
    verified: Option<&Verification>,
) -> anyhow::Result<()> {
    let folder = &outcome.folder;
    record::keep_required(folder, plan)?;
    let judged = record::open(folder, &Additions::default())?;
    judged.publish(folder)?;
    let verification =
        verified.map(|verified| Ok((serde_json::to_value(verified)?, verified.to_string())));
    let from = GuestRecord {
        record: &judged.record,
        judgement: &judged.judgement,
        folder: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        start: brought::start(folder),
        failures: brought::failures(folder),
        phase_files: phase_files(folder, judged.judgement.cells.len()),
        inputs: serde_json::to_value(&outcome.inputs)?,
        verification: verification.transpose().map_err(|e: serde_json::Error| e)?,
    };
    all.add(guest, &from);
    Ok(())
}

/// What cyclictest and the tracers wrote of each phase.
fn phase_files(folder: &Path, cells: usize) -> BTreeMap<String, String> {
    let kinds = [guest::THEIRS, Tracer::Osnoise.name(), Tracer::Timerlat.name()];
    let names = (0..cells).flat_map(|cell| kinds.map(|kind| guest::phase_file(kind, cell)));
    let read = |name: String| fs::read_to_string(folder.join(&name)).ok().map(|text| (name, text));
    names.filter_map(read).collect()
}

/// Writes the page and the document, tells the figures, and says where the page is.
pub(super) fn publish(all: &Collected, out: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let (page, table) = (report::page(&all.page), all.table());
    output::publish(out, "comparison.json", &page, &all.document(), (&table, as_json))?;
    Ok(if all.failed() { ExitCode::from(exit::ERROR) } else { exit::of_verdict(all.verdict()) })
}
