//! The figures of each application and of each of its jobs, as the table and the page show them.

use rtscope_model::{
    sched::{Application, ExperimentRecord, JobRun, ObservedApplication},
    time::Nanos,
};

use super::{JudgedExperiment, cpus, deadline_ns, judge, late, median_ns};

/// A row of the comparison.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) cpus: String,
    pub(super) response: String,
    pub(super) ratio: String,
    pub(super) predicted: String,
    pub(super) predicted_ratio: String,
    pub(super) cpu_time: String,
    pub(super) preemptions: u64,
    pub(super) migrations: u64,
    pub(super) release: String,
    pub(super) start: String,
    pub(super) finish: String,
    pub(super) throttled: String,
    pub(super) is_held_up: bool,
    pub(super) jobs: String,
    pub(super) late: String,
    /// A line for each job.
    pub(super) job_rows: Vec<JobRow>,
    pub(super) off: String,
    pub(super) remark: String,
}

/// A job in the table of jobs.
#[derive(Debug)]
pub(super) struct JobRow {
    pub(super) n: usize,
    pub(super) release: String,
    pub(super) response: String,
    pub(super) predicted: String,
    pub(super) cpu_time: String,
    pub(super) cpus: String,
    pub(super) preemptions: String,
    pub(super) migrations: u64,
    pub(super) throttled: String,
    pub(super) is_late: bool,
}

/// A time that may not be known.
fn known(ns: Option<u64>) -> String {
    ns.map_or("-".to_owned(), ms)
}

/// Milliseconds, to the microsecond.
fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

fn job_rows(judged: &JudgedExperiment<'_>, asked: &Application) -> Vec<JobRow> {
    let app = judged.observed;
    let predicted = judged.jobs_ns.iter().map(Some).chain(std::iter::repeat(None));
    let one = |(n, (job, predicted_ns)): (usize, (&JobRun, Option<&u64>))| JobRow {
        n: n + 1,
        release: ms(job.release_ns),
        response: ms(job.response_ns()),
        predicted: known(predicted_ns.copied()),
        cpu_time: known(job.cpu_ns),
        cpus: cpus(&app.runs_of(job)).to_string(),
        preemptions: job.preemptions.map_or("-".to_owned(), |count| count.to_string()),
        migrations: app.migrations_of(job),
        throttled: known(app.throttled_ns_of(job)),
        is_late: deadline_ns(asked).is_some_and(|ns| job.response_ns() > ns),
    };
    app.jobs.iter().zip(predicted).enumerate().map(one).collect()
}

/// Policy with what belongs to it.
fn policy(app: &ObservedApplication) -> String {
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

/// A row for each application.
pub(super) fn rows(record: &ExperimentRecord) -> Vec<Row> {
    let judged = judge(record);
    let longest =
        judged.iter().flat_map(|one| [Some(one.observed.response_ns()), one.predicted_ns]);
    let is_short = longest.flatten().max().unwrap_or_default() < 1_000_000_000;
    let (unit, unit_ns) = if is_short { ("ms", 1e6) } else { ("s", 1e9) };
    let digits = if is_short { 1 } else { 3 };
    let number = |ns: u64| format!("{:.digits$}", ns as f64 / unit_ns);
    let time = |ns: u64| format!("{} {unit}", number(ns));
    let over =
        |value: f64, first: f64| format!("{:.2}", value / if first > 0.0 { first } else { 1.0 });
    let first = judged
        .first()
        .map_or((1, 1), |one| (one.observed.response_ns(), one.predicted_ns.unwrap_or_default()));
    judged
        .iter()
        .enumerate()
        .map(|(n, one)| {
            let app = one.observed;
            let place = &app.found;
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
                response: measured(time(app.response_ns())),
                ratio: measured(over(app.response_ns() as f64, first.0 as f64)),
                predicted: match one.range_ns {
                    Some((low, high)) => format!("{} to {}", number(low), time(high)),
                    None => told(&time),
                },
                predicted_ratio: told(&|ns| over(ns as f64, first.1 as f64)),
                cpu_time: time(app.cpu_ns),
                preemptions: app.preemptions,
                migrations: app.migrations(),
                release: ms(app.release_ns),
                start: measured(ms(app.start_ns)),
                finish: measured(ms(app.finish_ns)),
                throttled: known(app.throttled_ns()),
                is_held_up: app.throttled_ns().is_some_and(|ns| ns > 0),
                job_rows: job_rows(one, asked),
                late: match (app.jobs.len(), deadline_ns(asked)) {
                    (0, _) => String::new(),
                    (count, Some(ns)) => format!("{count}, {} late", late(app, ns)),
                    (count, None) => count.to_string(),
                },
                jobs: match app.jobs.len() {
                    0 => String::new(),
                    count => {
                        let missed = deadline_ns(asked).map_or(0, |ns| late(app, ns));
                        format!("{count}, {missed} late, median {}", Nanos(median_ns(app)))
                    }
                },
                // Without the sign of a zero.
                off: format!("{:+.0}%", (one.deviation * 100.0).round() + 0.0),
                remark: one.remark.clone().unwrap_or_default(),
            }
        })
        .collect()
}
