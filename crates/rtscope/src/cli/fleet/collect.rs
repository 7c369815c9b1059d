//! `rtscope fleet collect`: brings what is at the places, after the connection or rtscope itself was lost.

use std::{
    path::PathBuf, process::ExitCode, sync::atomic::Ordering::Relaxed, thread, time::Duration,
};

use rtscope_fleet::{
    drive::Drive,
    journal::{self, FleetJournal, JobStep},
    places::FleetPlace,
};
use rtscope_model::time::Nanos;

use super::{judged, page, read_places, run};
use crate::exit;

/// Fetch the remaining records of a fleet run, and release its places
///
/// Use this command if `rtscope fleet run` was killed, or lost contact with a place. If the plan is still running at
/// a place, rtscope waits for it.
///
/// Examples:
///   rtscope fleet collect rtscope-runs/fleet-quick-20260101T000000
///   rtscope fleet collect before --give-up
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Folder of the fleet run
    folder: PathBuf,
    /// File that lists the places [default: the file of the run]
    #[arg(long, value_name = "FILE")]
    places: Option<PathBuf>,
    /// Remove running jobs and release all places. The records of these jobs are lost
    #[arg(long)]
    give_up: bool,
    /// Time to wait for a place that doesn't answer
    #[arg(long, value_name = "TIME", default_value = "1min")]
    patience: Nanos,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let order = journal::read_order(&args.folder)?;
    let journal = FleetJournal::open(&args.folder)?;
    let places = read_places(args.places.as_ref().unwrap_or(&order.places_file))?;
    let jobs = journal::read_jobs(&args.folder)?;
    let stopped = super::listen()?;
    let stop = || stopped.load(Relaxed);
    thread::scope(|scope| {
        for (name, job) in judged::open_jobs(&jobs) {
            let Some(place) = places.iter().find(|place| place.name == *name) else {
                note!(
                    "{name}: the file of places no longer lists this place, so rtscope doesn't contact it"
                );
                continue;
            };
            let journal = &journal;
            let stop = &stop;
            scope.spawn(move || bring(args, place, job, journal, stop));
        }
    });
    let code = page::publish(&args.folder, args.json)?;
    Ok(if args.give_up { ExitCode::from(exit::PASS) } else { code })
}

fn bring(
    args: &Args,
    place: &FleetPlace,
    job: &journal::FleetJob,
    journal: &FleetJournal,
    stop: &(dyn Fn() -> bool + Sync),
) {
    let record = run::record_folder(journal.folder(), &place.name);
    let patience = Duration::from_nanos(args.patience.0);
    let say = |what: &str| note!("{}: {what}", place.name);
    let done = Drive::reach(place, &job.name, journal, (stop, &say)).and_then(|drive| {
        if args.give_up || job.record.is_some() {
            return drive.give_back(job.base.as_deref()).map(|()| "released");
        }
        let brought = drive.resume(job.base.as_deref(), &record, patience)?;
        Ok(if brought.is_some() {
            "record collected"
        } else {
            "released, because the run had not begun"
        })
    });
    match done {
        Ok(what) => note!("{}: {what}", place.name),
        Err(why) => {
            note!("{}: {why}", place.name);
            let failed = JobStep::Failed { why: why.to_string(), is_final: false };
            let _ = journal.step(&place.name, &job.name, failed);
        }
    }
}
