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
use rtscope_model::{plan::Plan, time::Nanos};

use super::{Chosen, page};
use crate::{
    cli::{shape, this_program},
    failure::Refused,
    output::shown,
    plans, record,
};

/// Run a plan at many places, and judge the records here
///
/// rtscope copies itself and the plan to each chosen place, runs the plan there, and brings the record back. Nothing is
/// installed, and nothing is left there. The run continues if the connection breaks or rtscope is killed here: rtscope
/// connects again, or `rtscope fleet collect` brings the record later. Ctrl-C ends the runs. While a place is taken, no other
/// fleet run gets it.
///
/// The exit code is, in this order: 2 if a place failed, 1 if a place has no complete record, 3 if a verdict is
/// inconclusive, else 0.
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
    /// Number of tries at a place that is unreachable or taken
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=20))]
    tries: u8,
    /// Time for which a place stays reserved if nobody releases it [default: as the file of places says, else twice the
    /// plan's length plus 1 h]
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

/// How long a place that had a run is waited for in one try.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.plan(args.plan.as_deref(), plans::DEFAULT)?;
    let places = args.chosen.read()?;
    let wall_clock = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let name = format!("fleet-{}", plan.name);
    let out = args.out.clone().unwrap_or_else(|| record::fresh_folder(&name, &wall_clock));
    let file = args.chosen.places.canonicalize().unwrap_or_else(|_| args.chosen.places.clone());
    let tags: BTreeMap<_, _> =
        places.iter().map(|place| (place.name.clone(), place.tags.clone())).collect();
    for place in &places {
        let lease = args.lease.or(place.lease);
        if let Some(lease) = lease.filter(|lease| *lease < plan.expected()) {
            let text = format!(
                "{}: the lease ({lease}) is shorter than the plan ({})",
                place.name,
                plan.expected()
            );
            return Err(Refused(text).into());
        }
    }
    let journal = FleetJournal::create(&out, &FleetOrder::new(plan.to_toml(), file, tags))?;
    let stopped = super::listen()?;
    let stop = || stopped.load(Relaxed);
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
        "plan {} on {}, {} each; the records go to {}",
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
        let at_work = AtomicUsize::new(workers);
        thread::scope(|scope| {
            scope.spawn(|| self.say_when_stopped(&at_work));
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some((place, tries)) = next().filter(|_| !(self.stop)()) {
                        if self.once(place, tries) {
                            continue;
                        }
                        back((place, tries + 1));
                        self.pause();
                    }
                    at_work.fetch_sub(1, Relaxed);
                });
            }
        });
    }

    fn say_when_stopped(&self, at_work: &AtomicUsize) {
        while at_work.load(Relaxed) > 0 {
            if (self.stop)() {
                note!(
                    "ending the runs and releasing the places, without their records; Ctrl-C again leaves the runs: \
                     `rtscope fleet collect {}` collects them later",
                    self.journal.folder().display()
                );
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn pause(&self) {
        let mut left = PAUSE;
        while !left.is_zero() && !(self.stop)() {
            let part = left.min(Duration::from_millis(100));
            thread::sleep(part);
            left -= part;
        }
    }

    /// The job that an earlier try left at a place.
    fn left_open(&self, place: &FleetPlace) -> Option<FleetJob> {
        let jobs =
            journal::read_jobs(self.journal.folder()).unwrap_or_default().remove(&place.name)?;
        jobs.into_iter().rev().find(FleetJob::is_open)
    }

    /// Goes on with what an earlier try left. None: nothing of it is left, and another run may begin.
    fn resumed(&self, place: &FleetPlace, job: &FleetJob) -> Result<Option<bool>, FleetError> {
        let record = record_folder(self.journal.folder(), &place.name);
        let drive = Drive::reach(place, &job.name, self.journal, self.stop)?;
        if let Some((_, is_whole)) = job.record {
            return drive.give_back(job.base.as_deref()).map(|()| Some(is_whole));
        }
        drive.resume(job.base.as_deref(), &record, PATIENCE)
    }

    fn begun(&self, place: &FleetPlace, job: &str) -> Result<bool, FleetError> {
        note!("{}: started", place.name);
        let planned = self.planned();
        let lease = self.lease(place);
        let task = Task {
            plan: &self.text,
            planned,
            lease,
            patience: PATIENCE,
            journal: self.journal,
            stop: self.stop,
        };
        let record = record_folder(self.journal.folder(), &place.name);
        Drive::perform(place, job, &task, &|machine| program_for(place, machine), &record)
    }

    fn planned(&self) -> Duration {
        Duration::from_nanos(self.plan.expected().0)
    }

    fn lease(&self, place: &FleetPlace) -> Duration {
        let asked = self.args.lease.or(place.lease).map(|lease| Duration::from_nanos(lease.0));
        asked.unwrap_or(self.planned() * 2 + Duration::from_secs(3600))
    }

    /// One try at a place. Whether it is done with, with or without a record.
    fn once(&self, place: &FleetPlace, tries: u8) -> bool {
        let number = self.number.fetch_add(1, Relaxed);
        let mut job = hold::job_name(&self.user, self.host.trim(), jiff::Timestamp::now(), number);
        let earlier = self.left_open(place).map(|earlier| (self.resumed(place, &earlier), earlier));
        let done = match earlier {
            Some((Err(why), earlier)) => {
                job = earlier.name;
                Err(why)
            }
            Some((Ok(Some(is_whole)), _)) => Ok(is_whole),
            Some((Ok(None), _)) | None => self.begun(place, &job),
        };
        match done {
            Ok(true) => note!("{}: record collected", place.name),
            Ok(false) => {
                note!("{}: the run was cut short; what it recorded is collected", place.name)
            }
            Err(why) => {
                let is_final = !why.may_pass() || tries >= self.args.tries || (self.stop)();
                let more = if is_final { "" } else { "; will be tried again" };
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
