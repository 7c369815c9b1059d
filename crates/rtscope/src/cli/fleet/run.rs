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
    time::{Duration, Instant},
};

use anyhow::Context;
use rtscope_fleet::{
    drive::{Drive, Task},
    error::FleetError,
    facts, hold,
    journal::{self, FleetJob, FleetJournal, FleetOrder, JobStep},
    machines::Machines,
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

/// Run a plan at many places, and judge the records on this machine
///
/// rtscope copies itself and the plan to each chosen place, runs the plan there, and fetches the record. It installs
/// nothing, and leaves nothing behind. The run continues if the connection breaks or rtscope is killed on this
/// machine: rtscope connects again, or `rtscope fleet collect` fetches the record later. Ctrl-C ends the runs. While
/// a place is taken, no other fleet run gets it.
///
/// The exit code is 2 if a place failed, else 1 if a place has no complete record, else 3 if a verdict is
/// inconclusive, else 0.
///
/// Examples:
///   rtscope fleet run --on tag=rt
///   rtscope fleet run policies --on 'tag=rt,arch=arm64' --require 'max < 200us'
///   rtscope fleet run soak --duration 8h --out night
///   rtscope fleet run --wait 2h
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
    /// Number of attempts to use a place that is unreachable, taken, or doesn't start the run
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=20))]
    tries: u8,
    /// Time to wait for places that somebody else has. --tries counts only the attempts after it [default: none]
    #[arg(long, value_name = "TIME")]
    wait: Option<Nanos>,
    /// Time for which a place stays reserved if nobody releases it [default: the lease in the file of places, else
    /// twice the plan's length plus 1 h]
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
    began: Instant,
    machines: Machines,
}

/// A place in the queue.
#[derive(Clone, Copy)]
struct Queued<'a> {
    place: &'a FleetPlace,
    /// The number of the next try.
    tries: u8,
    /// Somebody else had it, and it is waited for.
    waits: bool,
}

/// Before a place that was lost or taken is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// At most between two looks at a place that is waited for: a look must not disturb whoever has it.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long a place that had a run is waited for in one try.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.plan(args.plan.as_deref(), plans::DEFAULT)?;
    let places = args.chosen.read()?;
    let wall_clock = record::wall_clock();
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
        began: Instant::now(),
        machines: Machines::default(),
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
        let first = |place| Queued { place, tries: 1, waits: false };
        let queue: Mutex<Vec<Queued<'_>>> = Mutex::new(places.iter().rev().map(first).collect());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let back = |one| queue.lock().unwrap_or_else(PoisonError::into_inner).insert(0, one);
        let workers = usize::from(self.args.at_once).min(places.len());
        let at_work = AtomicUsize::new(workers);
        thread::scope(|scope| {
            scope.spawn(|| self.say_when_stopped(&at_work));
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(one) = next().filter(|_| !(self.stop)()) {
                        if let Some(again) = self.once(one) {
                            back(again);
                            self.pause(again.waits);
                        }
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
                    "ending the runs and releasing the places without collecting records; press Ctrl-C again to leave the \
                     runs going: `rtscope fleet collect {}` collects their records later",
                    self.journal.folder().display()
                );
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn pause(&self, waits: bool) {
        let longer = if waits { self.began.elapsed() / 10 } else { PAUSE };
        let mut left = longer.clamp(PAUSE, PAUSE_MAX);
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
        let say = |what: &str| note!("{}: {what}", place.name);
        let drive = Drive::reach(place, &job.name, self.journal, (self.stop, &say))?;
        if let Some((_, is_whole)) = job.record {
            return drive.give_back(job.base.as_deref()).map(|()| Some(is_whole));
        }
        drive.resume(job.base.as_deref(), &record, PATIENCE)
    }

    fn begun(&self, place: &FleetPlace, job: &str) -> Result<bool, FleetError> {
        note!("{}: connecting", place.name);
        let planned = self.planned();
        let lease = self.lease(place);
        let say = |what: &str| note!("{}: {what}", place.name);
        let task = Task {
            plan: &self.text,
            planned,
            lease,
            patience: PATIENCE,
            journal: self.journal,
            stop: self.stop,
            say: &say,
            machines: &self.machines,
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

    /// Whether places that somebody else has are still waited for.
    fn may_wait(&self) -> bool {
        let wait = self.args.wait.map_or(Duration::ZERO, |wait| Duration::from_nanos(wait.0));
        self.began.elapsed() < wait && !(self.stop)()
    }

    /// One try at a place. What to try later; none when it is done with, with or without a record.
    fn once<'a>(&self, one: Queued<'a>) -> Option<Queued<'a>> {
        let Queued { place, waits, .. } = one;
        // A look takes nothing, and leaves no line in the journal.
        if waits
            && self.may_wait()
            && facts::look(place, self.stop).is_ok_and(|facts| facts.held.is_some())
        {
            return Some(one);
        }
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
                note!("{}: the run was cut short; its partial record was collected", place.name)
            }
            Err(why) => return self.failed(one, &job, &why),
        }
        None
    }

    /// Says why a try failed, and whether there is another one.
    fn failed<'a>(&self, one: Queued<'a>, job: &str, why: &FleetError) -> Option<Queued<'a>> {
        let Queued { place, tries, .. } = one;
        let waits = matches!(why, FleetError::Taken { .. }) && self.may_wait();
        let is_final = !waits && (!why.may_pass() || tries >= self.args.tries || (self.stop)());
        let more = match (is_final, waits) {
            (true, _) => "",
            (false, true) => "; waiting for it",
            (false, false) => "; will be tried again",
        };
        note!("{}: {why}{more}", place.name);
        let failed = JobStep::Failed { why: why.to_string(), is_final };
        let _ = self.journal.step(&place.name, job, failed);
        let tries = if waits { tries } else { tries + 1 };
        (!is_final).then_some(Queued { tries, waits, ..one })
    }
}

/// The program for a machine: the place's own, else this one if it runs there.
pub(super) fn program_for(place: &FleetPlace, machine: &str) -> Result<PathBuf, FleetError> {
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
            "{} is built for {called}, but the place is {machine}: name an rtscope for that machine with `program` in the file of places",
            if is_named { shown(&path) } else { "this rtscope".to_owned() }
        );
        Ok(())
    };
    match read() {
        Ok(()) => Ok(path),
        Err(e) => Err(FleetError::Refused(crate::failure::error_text(&e))),
    }
}
