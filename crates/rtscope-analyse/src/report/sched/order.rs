//! The order of the jobs of an experiment that expects one.

use rtscope_model::sched::ExperimentRecord;
use serde::Serialize;

/// In how many rounds the jobs came in the expected order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobOrder {
    /// Applications in the expected order.
    pub expected: Vec<String>,
    /// Rounds: the first job of each application, the second of each, and so on.
    pub rounds: usize,
    /// Rounds in the expected order, each job done before the next began.
    pub kept: usize,
    /// The others.
    pub broken: Vec<BrokenRound>,
}

/// A round in another order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokenRound {
    /// From 1.
    pub round: usize,
    /// Applications in the order in which their jobs began.
    pub began: Vec<String>,
    /// Whether a job began before the one before it was done.
    pub overlaps: bool,
}

impl JobOrder {
    /// None where the experiment expects no order.
    pub(super) fn new(record: &ExperimentRecord) -> Option<JobOrder> {
        let expected = record.experiment.order.clone();
        if expected.is_empty() {
            return None;
        }
        let ran = || record.applications.iter().filter(|app| !app.is_refused);
        let rounds = ran().map(|app| app.jobs.len().max(1)).max().unwrap_or(0);
        let broken: Vec<BrokenRound> = (0..rounds)
            .filter_map(|n| {
                // An application without a period has one job, which is itself.
                let mut jobs: Vec<(u64, u64, &str)> = ran()
                    .filter_map(|app| match app.jobs.get(n) {
                        Some(job) => Some((job.start_ns, job.finish_ns, app.name.as_str())),
                        None if app.jobs.is_empty() && n == 0 => {
                            Some((app.start_ns, app.finish_ns, app.name.as_str()))
                        }
                        None => None,
                    })
                    .collect();
                jobs.sort_unstable();
                let overlaps = jobs.windows(2).any(|pair| pair[1].0 < pair[0].1);
                let began: Vec<String> = jobs.iter().map(|job| job.2.to_owned()).collect();
                (overlaps || began != expected).then_some(BrokenRound {
                    round: n + 1,
                    began,
                    overlaps,
                })
            })
            .collect();
        Some(JobOrder { expected, rounds, kept: rounds - broken.len(), broken })
    }

    pub(super) fn sentence(&self) -> String {
        let mut text = format!(
            "The jobs came in the expected order ({}) in {} of {} rounds",
            self.expected.join("; "),
            self.kept,
            self.rounds
        );
        if let Some(first) = self.broken.first() {
            let overlaps = if first.overlaps { ", one before the other was done" } else { "" };
            text += &format!(
                ". The first round with another order is number {}: {}{overlaps}",
                first.round,
                first.began.join("; ")
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::{sched::JobRun, schedule::Policy};

    use super::super::{
        document, page, table,
        tests::{app, record},
    };

    const MS: u64 = 1_000_000;

    #[test]
    fn each_round_is_compared_with_the_expected_order() {
        let job = |start: u64, finish: u64| JobRun {
            release_ns: start * MS,
            start_ns: start * MS,
            finish_ns: finish * MS,
            cpu_ns: None,
            preemptions: None,
        };
        let (mut a, mut b) =
            (app("a", Policy::Other, &[(0, 1)]), app("b", Policy::Other, &[(2, 3)]));
        // In order; b before a; a begins first, b before a is done.
        a.jobs = vec![job(0, 1), job(12, 13), job(20, 24)];
        b.jobs = vec![job(2, 3), job(10, 11), job(22, 23)];
        let mut record = record(vec![a, b]);
        assert!(document(&record)["order"].is_null(), "none is expected");
        record.experiment.order = vec!["a".to_owned(), "b".to_owned()];
        let found = &document(&record)["order"];
        assert_eq!((&found["rounds"], &found["kept"]), (&3.into(), &1.into()), "{found}");
        assert_eq!(found["broken"][0]["began"], serde_json::json!(["b", "a"]));
        assert_eq!(found["broken"][1]["overlaps"], true);
        let said = "The jobs came in the expected order (a; b) in 1 of 3 rounds. The first round \
                    with another order is number 2: b; a";
        assert!(table(&record).contains(said), "{}", table(&record));
        assert!(page(&record).contains(said));
    }
}
