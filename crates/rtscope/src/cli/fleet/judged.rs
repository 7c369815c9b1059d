//! A fleet's records, judged here by the plan that was sent.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, bail};
use rtscope_analyse::{
    report::fleet::{FleetReport, PlaceOutcome, PlaceReport},
    verdict::additions::Additions,
};
use rtscope_fleet::journal::{self, FleetJob, FleetOrder};
use rtscope_model::plan::{self, Plan};

use crate::{failure::error_text, record};

/// Judges what a place has sent by the plan that it got, and writes its page.
pub(super) fn judge(folder: &Path, plan: &Plan) -> anyhow::Result<record::JudgedRecord> {
    let judged = open(folder, plan, &Additions::default())?;
    judged.publish(folder)?;
    Ok(judged)
}

/// Judges what a place has sent by the plan that it got. What the place says of the plan only counts where it says the
/// same.
pub(super) fn open(
    folder: &Path,
    plan: &Plan,
    additions: &Additions,
) -> anyhow::Result<record::JudgedRecord> {
    let theirs = record::read_plan(folder)?;
    let phases =
        |plan: &Plan| plan.phases.iter().map(|phase| phase.name.clone()).collect::<Vec<_>>();
    if phases(&theirs) != phases(plan) {
        bail!("the record is from a different plan than the one that rtscope sent");
    }
    record::keep_required(folder, plan)?;
    record::open(folder, additions)
}

/// What a fleet's folder says, as far as it is.
pub(super) fn report(folder: &Path) -> anyhow::Result<FleetReport> {
    let order = journal::read_order(folder)?;
    let plan = plan_of(&order)?;
    let jobs = journal::read_jobs(folder)?;
    let places = order.places.iter().map(|(name, tags)| {
        let all = jobs.get(name).map(Vec::as_slice).unwrap_or_default();
        place_report(folder, &plan, name, tags, all)
    });
    Ok(FleetReport::new(&plan, env!("CARGO_PKG_VERSION"), places.collect()))
}

pub(super) fn plan_of(order: &FleetOrder) -> anyhow::Result<Plan> {
    plan::parse_kept("fleet.json", &order.plan).context("the plan in fleet.json can't be read")
}

fn place_report(
    folder: &Path,
    plan: &Plan,
    name: &str,
    tags: &[String],
    jobs: &[FleetJob],
) -> PlaceReport {
    let known = jobs.iter().rev().find(|job| !job.machine.is_empty());
    let outcome = match held(jobs) {
        Held::Record(record, is_whole) => match judge(&folder.join(record), plan) {
            Ok(judged) => {
                PlaceOutcome::judged(&judged.judgement, record.display().to_string(), is_whole)
            }
            Err(e) => PlaceOutcome::NoRecord { why: error_text(&e) },
        },
        Held::Open(step) => PlaceOutcome::Open { step: step.to_owned() },
        Held::Nothing(why) => PlaceOutcome::NoRecord { why },
    };
    let text =
        |pick: fn(&FleetJob) -> &String| known.map(|job| pick(job).clone()).unwrap_or_default();
    PlaceReport {
        place: name.to_owned(),
        tags: tags.to_vec(),
        machine: text(|job| &job.machine),
        kernel: text(|job| &job.kernel),
        model: known.and_then(|job| job.model.clone()),
        outcome,
        outlier: Vec::new(),
    }
}

/// What there is of a place.
pub(super) enum Held<'a> {
    /// Its record's folder, below that of the fleet, and whether the run came to its end.
    Record(&'a Path, bool),
    /// How far it is.
    Open(&'static str),
    /// Why there will be no record.
    Nothing(String),
}

/// What the jobs of a place brought.
pub(super) fn held(jobs: &[FleetJob]) -> Held<'_> {
    if let Some((record, is_whole)) = jobs.iter().rev().find_map(|job| job.record.as_ref()) {
        return Held::Record(record, *is_whole);
    }
    let Some(job) = jobs.last() else { return Held::Open("not begun") };
    match (&job.failed, job.is_open()) {
        (None, true) => Held::Open(step(job)),
        (None, false) => Held::Nothing("the place was released".to_owned()),
        (Some(why), false) => Held::Nothing(why.clone()),
        (Some(why), true) => {
            let more = "something of the job may remain at the place: run `rtscope fleet collect` to try again";
            Held::Nothing(format!("{why}; {more}"))
        }
    }
}

/// Where a job is that goes on.
pub(super) fn step(job: &FleetJob) -> &'static str {
    match (&job.end, job.has_started, &job.record) {
        (_, _, Some(_)) => "collected, not released",
        (Some(_), ..) => "ended, not collected",
        (None, true, None) => "running",
        (None, false, None) if job.base.is_none() => "being asked",
        (None, false, None) => "being copied",
    }
}

/// The jobs of which something may still be at their places.
pub(super) fn open_jobs(
    jobs: &BTreeMap<String, Vec<FleetJob>>,
) -> impl Iterator<Item = (&String, &FleetJob)> {
    jobs.iter()
        .flat_map(|(place, jobs)| jobs.iter().map(move |job| (place, job)))
        .filter(|(_, job)| job.is_open())
}
