//! `rtscope fleet run`: a plan at each chosen place.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::Context;
use rtscope_fleet::{
    drive::{Drive, Task},
    error::FleetError,
    hold,
    journal::{self, FleetJob, FleetJournal, FleetOrder, JobStep},
    places::FleetPlace,
    shell::Stop,
};
use rtscope_lab::program::GuestProgram;
use rtscope_measure::interrupt::Interrupt;
use rtscope_model::{plan::Plan, time::Nanos};

use super::{Chosen, page};
use crate::{
    cli::{shape, this_program},
    output::shown,
    plans, record,
};

/// Run a plan at many places, and judge the records here
///
/// rtscope copies itself and the plan to each chosen place, runs the plan there, and brings the record back. Nothing is
/// installed, and nothing is left there. The run goes on if the connection breaks: rtscope connects again, or
/// `rtscope fleet collect` brings the record later. While a place is taken, no other fleet run gets it.
///
/// The exit code is 2 if a place failed, 1 if a place brought no record, 3 if a verdict is inconclusive.
///
/// Examples:
///   rtscope fleet run --on tag=rt
///   rtscope fleet run policies --on 'tag=rt,arch=arm64' --require 'max < 200us'
///   rtscope fleet run soak --duration 8h --out night
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file; - is standard input [default: quick]
    plan: Option<String>,
    #[command(flatten)]
    chosen: Chosen,
    /// Folder for the records and the page [default: rtscope-runs/fleet-PLAN-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of places that run at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    at_once: u16,
    /// How often a place that was lost or taken is tried
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=20))]
    tries: u8,
    /// How long a place stays taken if nobody gives it back [default: as the file of places says, else twice the
    /// plan's length and 1 h]
    #[arg(long, value_name = "TIME")]
    lease: Option<Nanos>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    shape: shape::Shape,
}

/// What is the same at all places.
struct Fleet<'a> {
    args: &'a Args,
    plan: &'a Plan,
    text: String,
    journal: &'a FleetJournal,
    stop: Stop<'a>,
    user: String,
    host: String,
    number: AtomicUsize,
}

/// A place in the queue, and how often it was tried.
type Queued<'a> = (&'a FleetPlace, u8);

/// Before a place that was lost or taken is tried again.
const PAUSE: Duration = Duration::from_secs(5);

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.plan(args.plan.as_deref(), plans::DEFAULT)?;
    let places = args.chosen.read()?;
    let wall_clock = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let name = format!("fleet-{}", plan.name);
    let out = args.out.clone().unwrap_or_else(|| record::fresh_folder(&name, &wall_clock));
    let file = args.chosen.places.canonicalize().unwrap_or_else(|_| args.chosen.places.clone());
    let tags: BTreeMap<_, _> =
        places.iter().map(|place| (place.name.clone(), place.tags.clone())).collect();
    let journal = FleetJournal::create(&out, &FleetOrder::new(plan.to_toml(), file, tags))?;
    let interrupt = Interrupt::install_patient()?;
    let stop = || interrupt.is_stopped();
    let tree = rtscope_sys::tree::Tree::default();
    let fleet = Fleet {
        args,
        plan: &plan,
        text: plan.to_toml(),
        journal: &journal,
        stop: &stop,
        user: std::env::var("USER").unwrap_or_else(|_| "user".to_owned()),
        host: tree.read("/proc/sys/kernel/hostname").unwrap_or_else(|_| "host".to_owned()),
        number: AtomicUsize::new(0),
    };
    note!(
        "{} at {}, {} each; the records go to {}",
        plan.name,
        rtscope_analyse::number::counted(places.len() as u64, "place"),
        plan.expected(),
        out.display()
    );
    fleet.run(&places);
    page::publish(&out, args.json)
}

/// Where the record of a place is kept.
pub(super) fn record_folder(fleet: &Path, place: &str) -> PathBuf {
    fleet.join("places").join(place)
}

impl Fleet<'_> {
    fn run(&self, places: &[FleetPlace]) {
        let queue: Mutex<Vec<Queued<'_>>> =
            Mutex::new(places.iter().rev().map(|place| (place, 1)).collect());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let back = |one| queue.lock().unwrap_or_else(PoisonError::into_inner).insert(0, one);
        let workers = usize::from(self.args.at_once).min(places.len());
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some((place, tries)) = next().filter(|_| !(self.stop)()) {
                        if self.once(place, tries) {
                            continue;
                        }
                        back((place, tries + 1));
                        self.pause();
                    }
                });
            }
        });
    }

    fn pause(&self) {
        let mut left = PAUSE;
        while !left.is_zero() && !(self.stop)() {
            let part = left.min(Duration::from_millis(100));
            thread::sleep(part);
            left -= part;
        }
    }

    /// The run that an earlier try began at a place and couldn't bring. One that never began is removed there.
    fn left_open(&self, place: &FleetPlace) -> Option<FleetJob> {
        let jobs =
            journal::read_jobs(self.journal.folder()).unwrap_or_default().remove(&place.name)?;
        let open = jobs.into_iter().rev().find(FleetJob::is_open)?;
        if !open.has_started {
            let earlier = Drive::reach(place, &open.name, self.journal, self.stop);
            let _ = earlier.and_then(|earlier| earlier.give_back(open.base.as_deref()));
        }
        open.has_started.then_some(open)
    }

    /// One try at a place. Whether it is done with, with or without a record.
    fn once(&self, place: &FleetPlace, tries: u8) -> bool {
        let number = self.number.fetch_add(1, Relaxed);
        let job = hold::job_name(&self.user, self.host.trim(), jiff::Timestamp::now(), number);
        let planned = Duration::from_nanos(self.plan.expected().0);
        let lease = self.args.lease.or(place.lease).map(|lease| Duration::from_nanos(lease.0));
        let lease = lease.unwrap_or(planned * 2 + Duration::from_secs(3600));
        let task =
            Task { plan: &self.text, planned, lease, journal: self.journal, stop: self.stop };
        let record = record_folder(self.journal.folder(), &place.name);
        let done = match self.left_open(place) {
            Some(earlier) => {
                note!("{}: goes on with the run that it has", place.name);
                let base = earlier.base.clone().unwrap_or_default();
                Drive::reach(place, &earlier.name, self.journal, self.stop)
                    .and_then(|drive| drive.finish(&base, &record, lease))
            }
            None => {
                note!("{}: begins", place.name);
                Drive::perform(place, &job, &task, &|machine| program_for(place, machine), &record)
            }
        };
        match done {
            Ok(true) => note!("{}: its record is here", place.name),
            Ok(false) => {
                note!("{}: the run was cut short; its record is here as far as it got", place.name)
            }
            Err(why) => {
                let may_succeed = why.is_connection() || matches!(why, FleetError::Taken { .. });
                let is_final = !may_succeed || tries >= self.args.tries || (self.stop)();
                let more = if is_final { "" } else { ": it is tried again after the others" };
                note!("{}: {why}{more}", place.name);
                let failed = JobStep::Failed { why: why.to_string(), is_final };
                let _ = self.journal.step(&place.name, &job, failed);
                return is_final;
            }
        }
        true
    }
}

/// The program for a machine: the place's own, else this one if it runs there.
fn program_for(place: &FleetPlace, machine: &str) -> Result<PathBuf, FleetError> {
    let (path, is_named) = match &place.program {
        Some(path) => (path.clone(), true),
        None => (this_program(), false),
    };
    let read = || -> anyhow::Result<()> {
        let program = GuestProgram::read(&path, is_named)?;
        let called = program
            .machine()
            .with_context(|| format!("{} is for an unknown machine", shown(&path)))?;
        anyhow::ensure!(
            called == machine || (called == "armv7l" && machine == "aarch64"),
            "{} is for {called}, and the place is {machine}: name the rtscope for it with `program` in the file of places",
            if is_named { shown(&path) } else { "this rtscope".to_owned() }
        );
        Ok(())
    };
    match read() {
        Ok(()) => Ok(path),
        Err(e) => Err(FleetError::Refused(crate::failure::error_text(&e))),
    }
}
