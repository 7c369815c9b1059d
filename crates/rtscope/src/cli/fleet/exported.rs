//! The records of a fleet's run for `rtscope export`.

use std::path::{Path, PathBuf};

use rtscope_analyse::{
    export::{Exported, FleetExported, Format, PlaceExported, PlaceWithout, Submission},
    verdict::additions::Additions,
};
use rtscope_fleet::journal;

use super::judged::{self, Held};
use crate::{
    cli::export::with_files,
    failure::{Refused, error_text},
    record::JudgedRecord,
};

/// What a place brought: its record, or why there is none.
type Brought = (String, Result<(JudgedRecord, PathBuf), PlaceWithout>);

/// Each format's document of all places, or of one cell at all places.
pub(in crate::cli) fn documents(
    (folder, cell): (&Path, Option<&str>),
    additions: &Additions,
    submission: &Submission,
    formats: &[&'static Format],
) -> anyhow::Result<Vec<Vec<u8>>> {
    let order = journal::read_order(folder)?;
    let plan = judged::plan_of(&order)?;
    let jobs = journal::read_jobs(folder)?;
    let brought = order.places.keys().map(|name| -> Brought {
        let all = jobs.get(name).map(Vec::as_slice).unwrap_or_default();
        let without = |why: String, is_open: bool| {
            let known = all.iter().rev().find(|job| !job.machine.is_empty());
            PlaceWithout {
                place: name.clone(),
                why,
                is_open,
                job: all.last().map(|job| job.name.clone()).unwrap_or_default(),
                machine: known.map(|job| job.machine.clone()).unwrap_or_default(),
                kernel: known.map(|job| job.kernel.clone()).unwrap_or_default(),
            }
        };
        let run = match judged::held(all) {
            Held::Record(record, _) => judged::open(&folder.join(record), &plan, additions)
                .map(|judged| (judged, record.to_owned()))
                .map_err(|e| {
                    without(format!("its record can't be read: {}", error_text(&e)), false)
                }),
            Held::Nothing(why) => Err(without(format!("it returned no record: {why}"), false)),
            Held::Open(step) => {
                let failed = all.last().and_then(|job| job.failed.as_ref());
                let failed = failed.map_or(String::new(), |why| format!("; {why}"));
                Err(without(format!("its record is not here yet: {step}{failed}"), true))
            }
        };
        (name.clone(), run)
    });
    let brought: Vec<Brought> = brought.collect();
    for without in brought.iter().filter_map(|(_, run)| run.as_ref().err()) {
        note!("{}: {}", without.place, without.why);
    }
    let places = brought.iter().map(|(name, run)| match run {
        Err(without) => Ok(PlaceExported::Without(without.clone())),
        Ok((judged, record)) => {
            let mut subject = Exported::new(&judged.record, &judged.judgement, cell)?;
            let below = record.to_string_lossy();
            subject.submission = with_files(submission, &below, &folder.join(record));
            subject.place = Some(name.clone());
            Ok(PlaceExported::Run(Box::new(subject)))
        }
    });
    let places = places.collect::<Result<Vec<_>, String>>().map_err(Refused)?;
    let fleet = FleetExported { plan: &plan.name, places, submission: submission.clone() };
    let write = |format: &&'static Format| {
        let document = format.write_fleet(&fleet);
        Ok(document.map_err(|why| Refused(format!("{}: {why}", format.name)))?)
    };
    formats.iter().map(write).collect()
}
