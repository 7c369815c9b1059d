//! A scheduling experiment judged: what was predicted beside what was measured, as a page, a table
//! and JSON. The same record gives the same bytes.

pub mod guests;
mod judge;
mod order;
mod rows;

use askama::Template;
use rtscope_model::{
    cpu::CpuSet,
    published::PublishedStatistic,
    sched::{Application, CpuInterval, ExperimentRecord, JobRun, ObservedApplication, RunSource},
    time::Nanos,
};
use serde_json::{Value, json};

use self::rows::{Row, rows};
pub use self::{
    judge::{JudgedExperiment, judge},
    order::{BrokenRound, JobOrder},
};
use crate::{
    plot::{self, gantt},
    report::published::{self, Ours, PublishedBesideOurs, Whose},
    statistics::sched::real_time_share,
};

/// The record and its judgement as one document.
#[must_use]
pub fn document(record: &ExperimentRecord) -> Value {
    let asked = &record.experiment.applications;
    let apps: Vec<Value> = judge(record)
        .iter()
        .zip(asked)
        .map(|(judged, asked)| {
            let app = judged.observed;
            json!({
                "name": app.name,
                "policy": app.found.policy,
                "priority": app.found.priority,
                "nice": app.found.nice,
                "cpus": app.found.cpus,
                "as_asked": app.found == app.asked,
                "work_ns": app.work_ns,
                "release_ns": app.release_ns,
                "start_ns": app.start_ns,
                "finish_ns": app.finish_ns,
                "response_ns": (!app.is_refused).then(|| app.response_ns()),
                "refused": app.is_refused,
                "budget": app.found.budget,
                "slice_ns": app.slice_ns,
                "response_ns_median": (!app.jobs.is_empty()).then(|| median_ns(app)),
                "deadlines_missed": deadline_ns(asked).map(|ns| late(app, ns)),
                "jobs": jobs(judged, asked),
                "cpu_ns": app.cpu_ns,
                "predicted_ns": judged.predicted_ns,
                "predicted_ns_range": judged.range_ns.map(|(low, high)| [low, high]),
                "deviation": judged.deviation,
                "deviates": judged.remark.is_some(),
                "remark": judged.remark,
                "preemptions": app.preemptions,
                "migrations": app.migrations(),
                "throttled_ns": app.throttled_ns(),
                "throttled": app.throttled,
                "runs": app.runs,
            })
        })
        .collect();
    json!({
        "experiment": record.experiment.name,
        "title": record.experiment.title,
        "kernel": record.kernel,
        "rules": record.rules,
        "runs_from": record.source,
        "lost": record.lost,
        "mutex": record.experiment.mutex,
        "settings_changed": record.changed,
        "settings_not_changed": record.not_changed,
        "published": published::document(&published(record)),
        "order": JobOrder::new(record),
        "apps": apps,
    })
}

/// By when a job shall be done, where it is asked for.
fn deadline_ns(asked: &Application) -> Option<u64> {
    asked.deadline.or(asked.period).map(|deadline| deadline.0)
}

/// Jobs that were done after their deadline.
fn late(app: &ObservedApplication, deadline_ns: u64) -> usize {
    app.jobs.iter().filter(|job| job.response_ns() > deadline_ns).count()
}

/// The median response of its jobs.
fn median_ns(app: &ObservedApplication) -> u64 {
    let mut responses: Vec<u64> = app.jobs.iter().map(JobRun::response_ns).collect();
    responses.sort_unstable();
    responses.get(responses.len() / 2).copied().unwrap_or_default()
}

fn cpus(runs: &[CpuInterval]) -> CpuSet {
    runs.iter().map(|run| run.cpu).collect()
}

fn jobs(judged: &JudgedExperiment<'_>, asked: &Application) -> Vec<Value> {
    let predicted = judged.jobs_ns.iter().map(Some).chain(std::iter::repeat(None));
    let one = |(job, predicted_ns): (&JobRun, Option<&u64>)| {
        json!({
            "release_ns": job.release_ns,
            "start_ns": job.start_ns,
            "finish_ns": job.finish_ns,
            "response_ns": job.response_ns(),
            "predicted_ns": predicted_ns,
            "cpu_ns": job.cpu_ns,
            "cpus": cpus(&judged.observed.runs_of(job)),
            "preemptions": job.preemptions,
            "migrations": judged.observed.migrations_of(job),
            "throttled_ns": judged.observed.throttled_ns_of(job),
            "in_time": deadline_ns(asked).is_none_or(|ns| job.response_ns() <= ns),
        })
    };
    judged.observed.jobs.iter().zip(predicted).map(one).collect()
}

#[must_use]
pub fn table(record: &ExperimentRecord) -> String {
    let mut text = format!("{}: {}\n\n", record.experiment.name, record.experiment.title);
    let rows = rows(record);
    let widest = rows.iter().map(|row| row.policy.chars().count()).max().unwrap_or(0).max(11);
    let long = rows.iter().map(|row| row.predicted.len()).max().unwrap_or(0).max(10);
    text += &format!(
        "application          {:widest$} CPUs  response   ratio {:>long$}  ratio   CPU time  off  jobs\n",
        "policy", "predicted"
    );
    for row in &rows {
        let line = format!(
            "{:20} {:widest$} {:5} {:>8} {:>7} {:>long$} {:>6} {:>10} {:>4}  {}",
            row.name,
            row.policy,
            row.cpus,
            row.response,
            row.ratio,
            row.predicted,
            row.predicted_ratio,
            row.cpu_time,
            row.off,
            row.jobs
        );
        text += line.trim_end();
        text += "\n";
    }
    for row in rows.iter().filter(|row| !row.remark.is_empty()) {
        text += &format!("! {}: {}\n", row.name, row.remark);
    }
    for row in rows.iter().filter(|row| row.is_held_up) {
        text +=
            &format!("{} was ready and held up by throttling for {}\n", row.name, row.throttled);
    }
    if let Some(order) = JobOrder::new(record) {
        text += &format!("{}\n", order.sentence());
    }
    for line in &record.changed {
        text += &format!("set for the experiment: {line}\n");
    }
    for line in &record.not_changed {
        text += &format!("! not set: {line}\n");
    }
    text + &published::text(&published(record))
}

/// The experiment's published figures beside ours.
fn published(record: &ExperimentRecord) -> Vec<PublishedBesideOurs> {
    published::beside(&record.experiment.published, &ours(record, Whose::default()))
}

/// What each application shows of the statistics that are published.
fn ours(record: &ExperimentRecord, whose: Whose<'_>) -> Vec<Ours> {
    let one = |app: &ObservedApplication| {
        let refused = || "the kernel refused it: it never ran".to_owned();
        let seen = if app.is_refused { Err(refused()) } else { Ok(app.response_ns() as f64) };
        Ours {
            policy: Some(app.found.policy),
            figures: vec![(PublishedStatistic::Response, seen)],
            ..whose.ours(&app.name)
        }
    };
    record.applications.iter().map(one).collect()
}

#[derive(Template)]
#[template(path = "sched.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    record: &'a ExperimentRecord,
    headline: String,
    rows: Vec<Row>,
    published: Vec<PublishedBesideOurs>,
    gantt: String,
    source: &'static str,
    limit: String,
    has_jobs: bool,
    order: Option<String>,
    quantum: String,
    json: String,
}

/// The page of an experiment.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(record: &ExperimentRecord) -> String {
    let rows = rows(record);
    let ratios =
        |pick: fn(&Row) -> &String| rows.iter().map(pick).cloned().collect::<Vec<_>>().join(" : ");
    let page = Page {
        style: include_str!("../template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: format!(
            "Responses are in the ratio {}; predicted {}",
            ratios(|row| &row.ratio),
            ratios(|row| &row.predicted_ratio)
        ),
        has_jobs: rows.iter().any(|row| !row.jobs.is_empty()),
        order: JobOrder::new(record).map(|order| order.sentence()),
        published: published(record),
        gantt: gantt::draw(record, plot::INLINE_WIDTH, false),
        source: match record.source {
            RunSource::SchedSwitch => "the kernel's sched_switch events",
            RunSource::TimeStamps => {
                "gaps in the applications' own time stamps: the kernel's events were not available"
            }
        },
        limit: real_time_share(&record.rules).map_or_else(
            || "all the time of a CPU".to_owned(),
            |ns| {
                let when =
                    if record.rules.fair_server.is_some() { " while others wait" } else { "" };
                format!("{} of each {} on a CPU{when}", Nanos(ns), Nanos(record.rules.rt_period_ns))
            },
        ),
        quantum: Nanos(record.rules.rr_quantum_ns).to_string(),
        json: crate::report::harmless_json(&document(record)),
        rows,
        record,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests;
