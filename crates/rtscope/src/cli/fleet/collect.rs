//! `rtscope fleet collect`: brings what is at the places, after the connection or rtscope itself was lost.

use std::{path::PathBuf, process::ExitCode, thread, time::Duration};

use rtscope_fleet::{
    agent::JobState,
    drive::Drive,
    journal::{self, FleetJournal, JobStep},
    places::FleetPlace,
};
use rtscope_measure::interrupt::Interrupt;
use rtscope_model::time::Nanos;

use super::{judged, page, read_places, run};

/// Collect what a fleet's run left at the places, and give the places back
///
/// It is for a run that was interrupted or killed, or that lost a place. A run that goes on is waited for.
///
/// Examples:
///   rtscope fleet collect rtscope-runs/fleet-quick-20260101T000000
///   rtscope fleet collect before --give-up
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Folder of the fleet's run
    folder: PathBuf,
    /// File of places [default: the one of the run]
    #[arg(long, value_name = "FILE")]
    places: Option<PathBuf>,
    /// End runs that go on, and give all places back without their records
    #[arg(long)]
    give_up: bool,
    /// How long a place that doesn't answer is waited for
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
    let interrupt = Interrupt::install()?;
    let stop = || interrupt.is_stopped();
    thread::scope(|scope| {
        for (name, job) in judged::open_jobs(&jobs) {
            let Some(place) = places.iter().find(|place| place.name == *name) else {
                note!("{name}: the file of places has no such place any more, so it isn't asked");
                continue;
            };
            let journal = &journal;
            let stop = &stop;
            scope.spawn(move || bring(args, place, job, journal, stop));
        }
    });
    page::publish(&args.folder, args.json)
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
    let done = Drive::reach(place, &job.name, journal, stop).and_then(|drive| {
        // What a killed rtscope began last may not stand in its journal.
        let has_run = |base: &PathBuf| {
            job.has_started || drive.state(base).is_ok_and(|state| state != JobState::Copied)
        };
        let wants_record = !args.give_up && job.record.is_none();
        match job.base.as_ref().filter(|base| wants_record && has_run(base)) {
            Some(base) => drive.finish(base, &record, patience).map(|_| "collected"),
            None => drive.give_back(job.base.as_deref()).map(|()| "given back"),
        }
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
