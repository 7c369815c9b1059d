//! What was predicted for each application, and what the record says about a deviation.

use rtscope_model::{
    sched::{ExperimentRecord, ObservedApplication},
    time::Nanos,
};

use crate::statistics::sched::{Job, admitted, predict, predict_range};

/// A response that differs from its prediction by more than this share of it is flagged.
const TOLERATED: f64 = 0.1;

/// An application with its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedExperiment<'a> {
    /// What was recorded.
    pub observed: &'a ObservedApplication,
    /// Predicted response, of several jobs the longest; none when it is predicted to be refused.
    pub predicted_ns: Option<u64>,
    /// Predicted response of each job.
    pub jobs_ns: Vec<u64>,
    /// The shortest and the longest that the rules allow, where they don't say when a period of throttling
    /// begins.
    pub range_ns: Option<(u64, u64)>,
    /// Measured over predicted response, less 1; 0 where there is nothing to compare, or within the range.
    pub deviation: f64,
    /// Why it deviates, where that can be told; none within the tolerated share.
    pub remark: Option<String>,
}

/// Predicts each application from what was asked and sets it beside what was measured.
#[must_use]
pub fn judge(record: &ExperimentRecord) -> Vec<JudgedExperiment<'_>> {
    let apps = &record.applications;
    let budgets: Vec<_> = apps.iter().map(|app| app.asked.budget).collect();
    let admitted = admitted(&budgets, &record.rules);
    let asked = responses(record, &admitted, |_| 1.0);
    // The same with the CPU time that the work took here: what is left then is scheduling.
    let found = responses(record, &admitted, |app| {
        let work_ns = app.work_ns * app.jobs.len().max(1) as u64;
        app.cpu_ns as f64 / work_ns.max(1) as f64
    });
    let all = apps.iter().zip(asked).zip(found);
    all.map(|((app, asked), found)| one(record, app, asked, &found)).collect()
}

/// Predicted responses of an application's jobs.
#[derive(Clone, Debug, Default)]
struct Predicted {
    jobs_ns: Vec<u64>,
    range_ns: Option<(u64, u64)>,
}

impl Predicted {
    fn longest_ns(&self) -> Option<u64> {
        self.jobs_ns.iter().copied().max()
    }

    /// How far a response is off, as a share of the nearest that is predicted.
    fn deviation(&self, response_ns: u64) -> f64 {
        let longest = self.longest_ns().unwrap_or_default();
        let (low, high) = self.range_ns.unwrap_or((longest, longest));
        let nearest = response_ns.clamp(low.min(high), high);
        response_ns as f64 / nearest.max(1) as f64 - 1.0
    }
}

/// Predicted responses of the jobs of each application, its work times a factor; none for one that
/// is not admitted.
fn responses(
    record: &ExperimentRecord,
    admitted: &[bool],
    factor: impl Fn(&ObservedApplication) -> f64,
) -> Vec<Predicted> {
    let mut jobs = Vec::new();
    // Those of each application, by their place in the list.
    let mut places: Vec<std::ops::Range<usize>> = Vec::new();
    let all = record.applications.iter().zip(&record.experiment.applications);
    for ((app, asked), is_admitted) in all.zip(admitted) {
        let from = jobs.len();
        let scaled = |ns: u64| Nanos(ns).scaled(factor(app)).0;
        let count = if *is_admitted { asked.jobs.max(1) } else { 0 };
        let period_ns = asked.period.map_or(0, |period| period.0);
        let place = &app.asked;
        jobs.extend((0..count).map(|n| Job {
            nice: place.nice,
            release_ns: app.release_ns + u64::from(n) * period_ns,
            holds_ns: asked.holds.map_or(0, |holds| scaled(holds.0)),
            budget: place.budget,
            after: (n > 0).then(|| from + n as usize - 1),
            ..Job::new(place.policy, place.priority, place.cpus.clone(), scaled(app.work_ns))
        }));
        places.push(from..jobs.len());
    }
    let predicted = predict(&jobs, &record.rules, record.experiment.mutex);
    let ranges = predict_range(&jobs, &record.rules, record.experiment.mutex);
    let range = |place: &std::ops::Range<usize>| {
        let of_jobs = ranges.as_ref()?.get(place.clone())?;
        let low = of_jobs.iter().map(|(low, _)| *low).max()?;
        let high = of_jobs.iter().map(|(_, high)| *high).max()?;
        (low < high).then_some((low, high))
    };
    let of_app = |place: std::ops::Range<usize>| {
        let range_ns = range(&place);
        Predicted { jobs_ns: predicted[place].to_vec(), range_ns }
    };
    places.into_iter().map(of_app).collect()
}

fn one<'a>(
    record: &'a ExperimentRecord,
    app: &'a ObservedApplication,
    asked: Predicted,
    found: &Predicted,
) -> JudgedExperiment<'a> {
    let predicted_ns = asked.longest_ns();
    let (deviation, remark) = match (predicted_ns, app.is_refused) {
        (Some(_), false) => {
            let deviation = asked.deviation(app.response_ns());
            (deviation, (deviation.abs() > TOLERATED).then(|| remark(record, app, found)))
        }
        (None, true) => (0.0, None),
        (Some(_), true) => {
            (0.0, Some("the kernel refused it, though its bandwidth should fit: other deadline threads or another limit take it".to_owned()))
        }
        (None, false) => (0.0, Some("the kernel admitted it, though its bandwidth should not fit".to_owned())),
    };
    let Predicted { jobs_ns, range_ns } = asked;
    JudgedExperiment { observed: app, predicted_ns, range_ns, jobs_ns, deviation, remark }
}

/// What the record says about a deviation.
fn remark(record: &ExperimentRecord, app: &ObservedApplication, found: &Predicted) -> String {
    if found.deviation(app.response_ns()).abs() <= TOLERATED {
        let found = found.longest_ns().unwrap_or_default();
        return format!(
            "it was scheduled as predicted, but its computation took a different time than during calibration: with that time, the predicted response is {}",
            Nanos(found)
        );
    }
    // Time in which none of the experiment's threads ran on any CPU that it may use.
    // A deadline application is held up by its own budget too.
    let idle_ns = if app.asked.budget.is_none() { left_by_all(record, app) } else { 0 };
    let work_ns = app.work_ns * app.jobs.len().max(1) as u64;
    let slower_ns = app.cpu_ns.saturating_sub(work_ns);
    if idle_ns > slower_ns && idle_ns as f64 > TOLERATED * app.response_ns() as f64 {
        return format!(
            "for {} no application of the experiment ran on a CPU that it may use: other programs did, or the application was asleep",
            Nanos(idle_ns)
        );
    }
    let more = app.cpu_ns as f64 / work_ns.max(1) as f64 - 1.0;
    if more.abs() > TOLERATED {
        return format!(
            "its computation took {:.0} % {} CPU time than during calibration: a slower or faster clock, \
             a busy sibling thread, or a hypervisor",
            more.abs() * 100.0,
            if more > 0.0 { "more" } else { "less" },
        );
    }
    "the record shows no cause: other work shared its CPUs, or the kernel placed it elsewhere than predicted".to_owned()
}

/// How long, between release and finish of an application, some CPU that it may use was taken by
/// none of the experiment's threads while it did not run itself.
fn left_by_all(record: &ExperimentRecord, app: &ObservedApplication) -> u64 {
    let mut edges: Vec<u64> = record
        .applications
        .iter()
        .flat_map(|other| &other.runs)
        .flat_map(|run| [run.start_ns, run.end_ns])
        .chain(app.jobs.iter().flat_map(|job| [job.release_ns, job.finish_ns]))
        .chain([app.release_ns, app.finish_ns])
        .filter(|at| (app.release_ns..=app.finish_ns).contains(at))
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let runs = |other: &ObservedApplication, at: u64, cpu: Option<u32>| {
        let covers =
            |run: &&rtscope_model::sched::CpuInterval| run.start_ns <= at && at < run.end_ns;
        other.runs.iter().filter(covers).any(|run| cpu.is_none_or(|cpu| cpu == run.cpu))
    };
    // Between its jobs it has nothing to do.
    let is_due = |at: u64| {
        let mut jobs = app.jobs.iter();
        app.jobs.is_empty() || jobs.any(|job| (job.release_ns..job.finish_ns).contains(&at))
    };
    let is_left = |at: u64| {
        is_due(at)
            && !runs(app, at, None)
            && app
                .found
                .cpus
                .iter()
                .any(|cpu| !record.applications.iter().any(|other| runs(other, at, Some(cpu))))
    };
    edges.windows(2).filter(|pair| is_left(pair[0])).map(|pair| pair[1] - pair[0]).sum()
}
