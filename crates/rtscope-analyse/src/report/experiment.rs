//! A scheduling experiment judged: what was predicted beside what was measured, as a page, a table
//! and JSON. The same record gives the same bytes.

mod judge;

use askama::Template;
use rtscope_model::{
    experiment::{Application, ExperimentRecord, JobRun, Observed, RunSource},
    time::Nanos,
};
use serde_json::{Value, json};

pub use self::judge::{Judged, judge};
use crate::{
    plot::{self, gantt},
    statistics::response::real_time_share,
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
                "deviation": judged.deviation,
                "deviates": judged.remark.is_some(),
                "remark": judged.remark,
                "preemptions": app.preemptions,
                "migrations": app.migrations(),
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
        "apps": apps,
    })
}

/// By when a job shall be done, where it is asked for.
fn deadline_ns(asked: &Application) -> Option<u64> {
    asked.deadline.or(asked.period).map(|deadline| deadline.0)
}

/// Jobs that were done after their deadline.
fn late(app: &Observed, deadline_ns: u64) -> usize {
    app.jobs.iter().filter(|job| job.response_ns() > deadline_ns).count()
}

/// The median response of its jobs.
fn median_ns(app: &Observed) -> u64 {
    let mut responses: Vec<u64> = app.jobs.iter().map(JobRun::response_ns).collect();
    responses.sort_unstable();
    responses.get(responses.len() / 2).copied().unwrap_or_default()
}

fn jobs(judged: &Judged<'_>, asked: &Application) -> Vec<Value> {
    let predicted = judged.jobs_ns.iter().map(Some).chain(std::iter::repeat(None));
    let one = |(job, predicted_ns): (&JobRun, Option<&u64>)| {
        json!({
            "release_ns": job.release_ns,
            "start_ns": job.start_ns,
            "finish_ns": job.finish_ns,
            "response_ns": job.response_ns(),
            "predicted_ns": predicted_ns,
            "in_time": deadline_ns(asked).is_none_or(|ns| job.response_ns() <= ns),
        })
    };
    judged.observed.jobs.iter().zip(predicted).map(one).collect()
}

/// The table for a terminal.
#[must_use]
pub fn table(record: &ExperimentRecord) -> String {
    let mut text = format!("{}: {}\n\n", record.experiment.name, record.experiment.title);
    let rows = rows(record);
    let widest = rows.iter().map(|row| row.policy.chars().count()).max().unwrap_or(0).max(11);
    text += &format!(
        "application          {:widest$} CPUs  response   ratio  predicted  ratio   CPU time  off  jobs\n",
        "policy"
    );
    for row in &rows {
        let line = format!(
            "{:20} {:widest$} {:5} {:>8} {:>7} {:>10} {:>6} {:>10} {:>4}  {}",
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
    for line in &record.changed {
        text += &format!("set for the experiment: {line}\n");
    }
    for line in &record.not_changed {
        text += &format!("! not set: {line}\n");
    }
    text
}

/// A row of the comparison.
#[derive(Debug)]
struct Row {
    name: String,
    policy: String,
    cpus: String,
    response: String,
    ratio: String,
    predicted: String,
    predicted_ratio: String,
    published: String,
    published_ratio: String,
    cpu_time: String,
    preemptions: u64,
    migrations: u64,
    jobs: String,
    off: String,
    remark: String,
}

/// Policy with what belongs to it.
fn policy(app: &Observed) -> String {
    let place = &app.found;
    let slice = app.slice_ns.map_or(String::new(), |ns| format!(" slice {}", Nanos(ns)));
    match (place.budget.or(app.asked.budget), place.nice) {
        (Some(budget), _) => {
            let (runtime, period) = (Nanos(budget.runtime_ns), Nanos(budget.period_ns));
            format!("deadline {runtime} / {period}")
        }
        _ if place.policy.has_priority() => format!("{} {}", place.policy, place.priority),
        (None, 0) => format!("{}{slice}", place.policy),
        (None, nice) => format!("{} nice {nice}{slice}", place.policy),
    }
}

fn rows(record: &ExperimentRecord) -> Vec<Row> {
    let judged = judge(record);
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let over =
        |value: f64, first: f64| format!("{:.2}", value / if first > 0.0 { first } else { 1.0 });
    let first = judged
        .first()
        .map_or((1, 1), |one| (one.observed.response_ns(), one.predicted_ns.unwrap_or_default()));
    let published = &record.experiment.published_s;
    judged
        .iter()
        .enumerate()
        .map(|(n, one)| {
            let app = one.observed;
            let place = &app.found;
            let theirs = published.get(n).copied();
            let asked = &record.experiment.applications[n];
            let measured = |text: String| if app.is_refused { "refused".to_owned() } else { text };
            let told = |text: &dyn Fn(u64) -> String| match one.predicted_ns {
                Some(ns) => text(ns),
                None => "refused".to_owned(),
            };
            Row {
                name: app.name.clone(),
                policy: policy(app),
                cpus: place.cpus.to_string(),
                response: measured(seconds(app.response_ns())),
                ratio: measured(over(app.response_ns() as f64, first.0 as f64)),
                predicted: told(&seconds),
                predicted_ratio: told(&|ns| over(ns as f64, first.1 as f64)),
                published: theirs.map_or(String::new(), |s| format!("{s:.2} s")),
                published_ratio: theirs.map_or(String::new(), |s| over(s, published[0])),
                cpu_time: seconds(app.cpu_ns),
                preemptions: app.preemptions,
                migrations: app.migrations(),
                jobs: match app.jobs.len() {
                    0 => String::new(),
                    count => {
                        let missed = deadline_ns(asked).map_or(0, |ns| late(app, ns));
                        format!("{count}, {missed} late, median {}", Nanos(median_ns(app)))
                    }
                },
                off: format!("{:+.0}%", one.deviation * 100.0),
                remark: one.remark.clone().unwrap_or_default(),
            }
        })
        .collect()
}

#[derive(Template)]
#[template(path = "experiment.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    record: &'a ExperimentRecord,
    headline: String,
    rows: Vec<Row>,
    has_published: bool,
    gantt: String,
    source: &'static str,
    limit: String,
    has_jobs: bool,
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
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: format!(
            "Responses stand {}; predicted {}",
            ratios(|row| &row.ratio),
            ratios(|row| &row.predicted_ratio)
        ),
        has_jobs: rows.iter().any(|row| !row.jobs.is_empty()),
        has_published: !record.experiment.published_s.is_empty(),
        gantt: gantt::draw(record, 880, false),
        source: match record.source {
            RunSource::SchedSwitch => "the kernel's sched_switch events",
            RunSource::TimeStamps => {
                "gaps in the applications' own time stamps: the kernel's events could not be had"
            }
        },
        limit: real_time_share(&record.rules).map_or_else(
            || "no limit".to_owned(),
            |ns| format!("{} in {}", Nanos(ns), Nanos(record.rules.rt_period_ns)),
        ),
        quantum: Nanos(record.rules.rr_quantum_ns).to_string(),
        // Inside a script element only "</" would end it.
        json: document(record).to_string().replace("</", "<\\/"),
        rows,
        record,
    };
    page.render().expect("a string takes every text")
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        cpu::CpuSet,
        experiment::{Experiment, FORMAT, Run, SchedulingRules},
        schedule::{Placement, Policy},
    };

    use super::*;

    const MS: u64 = 1_000_000;

    fn app(name: &str, policy: Policy, runs: &[(u64, u64)]) -> Observed {
        let cpus: CpuSet = [1].into_iter().collect();
        let priority = u8::from(policy.has_priority()) * 80;
        let asked = Placement { policy, priority, nice: 0, budget: None, cpus };
        let run =
            |(start, end): &(u64, u64)| Run { cpu: 1, start_ns: start * MS, end_ns: end * MS };
        let runs: Vec<Run> = runs.iter().map(run).collect();
        Observed {
            name: name.to_owned(),
            found: asked.clone(),
            asked,
            work_ns: 100 * MS,
            release_ns: 0,
            start_ns: runs[0].start_ns,
            finish_ns: runs[runs.len() - 1].end_ns,
            cpu_ns: 100 * MS,
            preemptions: 0,
            runs,
            jobs: Vec::new(),
            is_refused: false,
            slice_ns: None,
        }
    }

    fn record(applications: Vec<Observed>) -> ExperimentRecord {
        let head = "name = 'x<y'\ntitle = 't'\npublished_s = [2.0, 4.0]\n";
        let one = "[[application]]\nname = 'a'\npolicy = 'other'\n";
        let text = head.to_owned() + &one.repeat(applications.len());
        ExperimentRecord {
            format: FORMAT,
            version: "0".to_owned(),
            wall_clock: "2020-01-01T00:00:00Z".to_owned(),
            kernel: "6.1".to_owned(),
            experiment: Experiment::parse("x", &text).expect("sound"),
            rules: SchedulingRules {
                cpus: [0, 1].into_iter().collect(),
                one: 1,
                rr_quantum_ns: 100 * MS,
                rt_runtime_ns: None,
                rt_period_ns: 1000 * MS,
                fair_server: None,
            },
            applications,
            source: RunSource::SchedSwitch,
            lost: 0,
            changed: Vec::new(),
            not_changed: Vec::new(),
        }
    }

    #[test]
    fn what_goes_as_predicted_is_not_flagged() {
        let record = record(vec![
            app("rt", Policy::Fifo, &[(0, 100)]),
            app("fair", Policy::Other, &[(100, 200)]),
        ]);
        let document = document(&record);
        let apps = document["apps"].as_array().expect("apps");
        let figures: Vec<_> = apps
            .iter()
            .map(|app| {
                [&app["response_ns"], &app["predicted_ns"]].map(|ns| ns.as_u64().unwrap_or(0) / MS)
            })
            .collect();
        assert_eq!(figures, [[100, 100], [200, 200]]);
        assert!(apps.iter().all(|app| app["deviates"] == false));
        let page = page(&record);
        assert!(
            page.contains("1.00 : 2.00") && page.contains("x&#60;y"),
            "ratios and escaped name"
        );
        assert!(table(&record).contains("fifo 80"));
    }

    #[test]
    fn a_deviation_is_flagged_with_what_is_known_of_it() {
        // From 40 to 160 ms none of ours ran on CPU 1.
        let held = record(vec![app("rt", Policy::Fifo, &[(0, 40), (160, 220)])]);
        let judged = judge(&held);
        assert!((judged[0].deviation - 1.2).abs() < 1e-9);
        let remark = judged[0].remark.clone().expect("flagged");
        assert!(remark.contains("120 ms") && remark.contains("no application"), "{remark}");

        let mut slow = record(vec![app("rt", Policy::Fifo, &[(0, 150)])]);
        slow.applications[0].cpu_ns = 150 * MS;
        let remark = judge(&slow)[0].remark.clone().expect("flagged");
        assert!(remark.contains("scheduled as predicted") && remark.contains("150 ms"), "{remark}");
        slow.applications[0].finish_ns = 200 * MS;
        slow.applications[0].runs[0].end_ns = 200 * MS;
        let remark = judge(&slow)[0].remark.clone().expect("flagged");
        assert!(remark.contains("50 % more CPU time"), "{remark}");
    }

    #[test]
    fn jobs_have_their_own_predictions_and_deadlines() {
        let mut own = record(vec![app("loop", Policy::Fifo, &[(0, 10), (50, 70)])]);
        own.experiment.applications[0].period = Some(Nanos::from_ms(50));
        own.experiment.applications[0].deadline = Some(Nanos::from_ms(15));
        own.experiment.applications[0].jobs = 2;
        let app = &mut own.applications[0];
        app.work_ns = 10 * MS;
        let job = |release: u64, finish: u64| JobRun {
            release_ns: release * MS,
            start_ns: release * MS,
            finish_ns: finish * MS,
        };
        app.jobs = vec![job(0, 10), job(50, 70)];
        let document = document(&own);
        let shown = &document["apps"][0];
        assert_eq!(
            (shown["response_ns"].as_u64(), shown["predicted_ns"].as_u64()),
            (Some(20 * MS), Some(10 * MS))
        );
        assert_eq!(shown["deadlines_missed"], 1);
        let in_time: Vec<_> =
            shown["jobs"].as_array().expect("jobs").iter().map(|job| &job["in_time"]).collect();
        assert_eq!(in_time, [true, false]);
        assert!(table(&own).contains("2, 1 late") && page(&own).contains("2, 1 late"));
    }

    #[test]
    fn what_the_kernel_refuses_is_set_beside_what_it_should_refuse() {
        let budget = |runtime: u64| rtscope_model::schedule::Budget {
            runtime_ns: runtime * MS,
            deadline_ns: 100 * MS,
            period_ns: 100 * MS,
        };
        let mut own = record(vec![
            app("first", Policy::Deadline, &[(0, 100)]),
            app("second", Policy::Deadline, &[(0, 100)]),
        ]);
        own.rules.cpus = [0].into_iter().collect();
        own.rules.rt_runtime_ns = Some(950 * MS);
        for app in &mut own.applications {
            app.asked.budget = Some(budget(80));
        }
        own.applications[1].is_refused = true;
        let judged = judge(&own);
        assert_eq!((judged[1].predicted_ns, &judged[1].remark), (None, &None));
        assert_eq!(document(&own)["apps"][1]["response_ns"], Value::Null);
        assert!(table(&own).contains("refused"));
        own.applications[1].is_refused = false;
        assert!(judge(&own)[1].remark.as_ref().is_some_and(|text| text.contains("should not fit")));
    }
}
