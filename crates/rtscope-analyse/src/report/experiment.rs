//! A scheduling experiment judged: what was predicted beside what was measured, as a page, a table
//! and JSON. The same record gives the same bytes.

use askama::Template;
use rtscope_model::{
    experiment::{ExperimentRecord, Observed, RunSource},
    time::Nanos,
};
use serde_json::{Value, json};

use crate::{
    plot::{self, gantt},
    statistics::response::{Job, predict},
};

/// A response that differs from its prediction by more than this share of it is flagged.
const TOLERATED: f64 = 0.1;

/// An application with its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged<'a> {
    /// What was recorded.
    pub observed: &'a Observed,
    /// Predicted response.
    pub predicted_ns: u64,
    /// Measured over predicted response, less 1.
    pub deviation: f64,
    /// Why it deviates, where that can be told; none within the tolerated share.
    pub remark: Option<String>,
}

/// Predicts each application from what was asked and sets it beside what was measured.
#[must_use]
pub fn judge(record: &ExperimentRecord) -> Vec<Judged<'_>> {
    let jobs: Vec<Job> = record
        .applications
        .iter()
        .map(|app| Job {
            policy: app.asked.policy,
            priority: app.asked.priority,
            nice: app.asked.nice,
            cpus: app.asked.cpus.clone(),
            work_ns: app.work_ns,
            release_ns: app.release_ns,
        })
        .collect();
    let predicted = predict(&jobs, &record.rules);
    record.applications.iter().zip(predicted).map(|(app, ns)| one(record, app, ns)).collect()
}

fn one<'a>(record: &'a ExperimentRecord, app: &'a Observed, predicted_ns: u64) -> Judged<'a> {
    let deviation = app.response_ns() as f64 / predicted_ns.max(1) as f64 - 1.0;
    let flagged = deviation.abs() > TOLERATED;
    Judged { observed: app, predicted_ns, deviation, remark: flagged.then(|| remark(record, app)) }
}

/// What the record says about a deviation.
fn remark(record: &ExperimentRecord, app: &Observed) -> String {
    // Time in which none of the experiment's threads ran on any CPU that it may use.
    let idle_ns = left_by_all(record, app);
    let slower_ns = app.cpu_ns.saturating_sub(app.work_ns);
    if idle_ns > slower_ns && idle_ns as f64 > TOLERATED * app.response_ns() as f64 {
        return format!(
            "for {} no application of the experiment ran on a CPU that it may use: others of the machine did, or it was asleep",
            Nanos(idle_ns)
        );
    }
    let more = app.cpu_ns as f64 / app.work_ns.max(1) as f64 - 1.0;
    if more.abs() > TOLERATED {
        return format!(
            "its computing took {:.0} % {} CPU time than when it was calibrated: a slower or faster clock, \
             a busy sibling thread, or a hypervisor",
            more.abs() * 100.0,
            if more > 0.0 { "more" } else { "less" },
        );
    }
    "not by what the record shows: other computing shared its CPUs, or the kernel placed it elsewhere than predicted".to_owned()
}

/// How long, between release and finish of an application, some CPU that it may use was taken by
/// none of the experiment's threads while it did not run itself.
fn left_by_all(record: &ExperimentRecord, app: &Observed) -> u64 {
    let mut edges: Vec<u64> = record
        .applications
        .iter()
        .flat_map(|other| &other.runs)
        .flat_map(|run| [run.start_ns, run.end_ns])
        .chain([app.release_ns, app.finish_ns])
        .filter(|at| (app.release_ns..=app.finish_ns).contains(at))
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let runs = |other: &Observed, at: u64, cpu: Option<u32>| {
        let covers = |run: &&rtscope_model::experiment::Run| run.start_ns <= at && at < run.end_ns;
        other.runs.iter().filter(covers).any(|run| cpu.is_none_or(|cpu| cpu == run.cpu))
    };
    let is_left = |at: u64| {
        !runs(app, at, None)
            && app
                .found
                .cpus
                .iter()
                .any(|cpu| !record.applications.iter().any(|other| runs(other, at, Some(cpu))))
    };
    edges.windows(2).filter(|pair| is_left(pair[0])).map(|pair| pair[1] - pair[0]).sum()
}

/// The record and its judgement as one document.
#[must_use]
pub fn document(record: &ExperimentRecord) -> Value {
    let apps: Vec<Value> = judge(record)
        .iter()
        .map(|judged| {
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
                "response_ns": app.response_ns(),
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
        "apps": apps,
    })
}

/// The table for a terminal.
#[must_use]
pub fn table(record: &ExperimentRecord) -> String {
    let mut text = format!("{}: {}\n\n", record.experiment.name, record.experiment.title);
    text += "application          policy      CPUs  response   ratio  predicted  ratio   CPU time  off\n";
    for row in rows(record) {
        text += &format!(
            "{:20} {:11} {:5} {:>8} {:>7} {:>10} {:>6} {:>10} {:>4}\n",
            row.name,
            row.policy,
            row.cpus,
            row.response,
            row.ratio,
            row.predicted,
            row.predicted_ratio,
            row.cpu_time,
            row.off
        );
    }
    for row in rows(record).iter().filter(|row| !row.remark.is_empty()) {
        text += &format!("! {}: {}\n", row.name, row.remark);
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
    off: String,
    remark: String,
}

fn rows(record: &ExperimentRecord) -> Vec<Row> {
    let judged = judge(record);
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let over =
        |value: f64, first: f64| format!("{:.2}", value / if first > 0.0 { first } else { 1.0 });
    let first = judged.first().map_or((1, 1), |one| (one.observed.response_ns(), one.predicted_ns));
    let published = &record.experiment.published_s;
    judged
        .iter()
        .enumerate()
        .map(|(n, one)| {
            let app = one.observed;
            let place = &app.found;
            let theirs = published.get(n).copied();
            Row {
                name: app.name.clone(),
                policy: match (place.policy.has_priority(), place.nice) {
                    (true, _) => format!("{} {}", place.policy, place.priority),
                    (false, 0) => place.policy.to_string(),
                    (false, nice) => format!("{} nice {nice}", place.policy),
                },
                cpus: place.cpus.to_string(),
                response: seconds(app.response_ns()),
                ratio: over(app.response_ns() as f64, first.0 as f64),
                predicted: seconds(one.predicted_ns),
                predicted_ratio: over(one.predicted_ns as f64, first.1 as f64),
                published: theirs.map_or(String::new(), |s| format!("{s:.2} s")),
                published_ratio: theirs.map_or(String::new(), |s| over(s, published[0])),
                cpu_time: seconds(app.cpu_ns),
                preemptions: app.preemptions,
                migrations: app.migrations(),
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
        has_published: !record.experiment.published_s.is_empty(),
        gantt: gantt::draw(record, 880, false),
        source: match record.source {
            RunSource::SchedSwitch => "the kernel's sched_switch events",
            RunSource::TimeStamps => {
                "gaps in the applications' own time stamps: the kernel's events could not be had"
            }
        },
        limit: record.rules.rt_runtime_ns.map_or_else(
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
        }
    }

    fn record(applications: Vec<Observed>) -> ExperimentRecord {
        let text = "name = 'x<y'\ntitle = 't'\npublished_s = [2.0, 4.0]\n[[application]]\nname = 'a'\npolicy = 'other'\n";
        ExperimentRecord {
            format: FORMAT,
            version: "0".to_owned(),
            wall_clock: "2020-01-01T00:00:00Z".to_owned(),
            kernel: "6.1".to_owned(),
            experiment: Experiment::parse("x", text).expect("sound"),
            rules: SchedulingRules {
                cpus: [0, 1].into_iter().collect(),
                one: 1,
                rr_quantum_ns: 100 * MS,
                rt_runtime_ns: None,
                rt_period_ns: 1000 * MS,
            },
            applications,
            source: RunSource::SchedSwitch,
            lost: 0,
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
        assert!(remark.contains("50 % more CPU time"), "{remark}");
    }
}
