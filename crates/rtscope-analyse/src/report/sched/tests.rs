use rtscope_model::{
    sched::{Experiment, FORMAT, FairServer, SchedulingRules},
    schedule::{Placement, Policy},
};

use super::*;

const MS: u64 = 1_000_000;

pub(super) fn app(name: &str, policy: Policy, runs: &[(u64, u64)]) -> ObservedApplication {
    let cpus: CpuSet = [1].into_iter().collect();
    let priority = u8::from(policy.has_priority()) * 80;
    let asked = Placement { policy, priority, nice: 0, budget: None, cpus };
    let run =
        |(start, end): &(u64, u64)| CpuInterval { cpu: 1, start_ns: start * MS, end_ns: end * MS };
    let runs: Vec<CpuInterval> = runs.iter().map(run).collect();
    ObservedApplication {
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
        throttled: None,
        jobs: Vec::new(),
        is_refused: false,
        slice_ns: None,
    }
}

pub(super) fn record(applications: Vec<ObservedApplication>) -> ExperimentRecord {
    let head = "name = 'x<y'\ntitle = 't'\n";
    let one = |name: &str, n: usize| {
        format!(
            "[[application]]\nname = '{name}'\npolicy = 'other'\n[[published]]\nsubject = '{name}'\n\
             figures = {{ response = '{}s' }}\nsource = 'a report, <page> 7'\n",
            2 * (n + 1)
        )
    };
    let all = applications.iter().enumerate().map(|(n, app)| one(&app.name, n));
    let text = head.to_owned() + &all.collect::<String>();
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
    assert!(page.contains("1.00 : 2.00") && page.contains("x&#60;y"), "ratios and escaped name");
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
        cpu_ns: Some(10 * MS),
        preemptions: Some(0),
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
    assert!(shown["throttled_ns"].is_null() && shown["jobs"][0]["throttled_ns"].is_null());
    // Held up for 4 ms in the second job.
    own.applications[0].throttled =
        Some(vec![CpuInterval { cpu: 1, start_ns: 66 * MS, end_ns: 75 * MS }]);
    let job = &super::document(&own)["apps"][0]["jobs"][1];
    assert_eq!((&job["throttled_ns"], &job["cpu_ns"]), (&(4 * MS).into(), &(10 * MS).into()));
    assert_eq!((&job["cpus"], &job["migrations"]), (&"1".into(), &0.into()));
    assert!(table(&own).contains("loop was ready and held up by throttling for 9.000 ms"));
    assert!(page(&own).contains("4.000 ms") && page(&own).contains("missed"));
}

#[test]
fn a_response_may_lie_where_the_rules_leave_it() {
    let mut own = record(vec![
        app("rt", Policy::Fifo, &[(0, 1900)]),
        app("x", Policy::Other, &[(1500, 1530)]),
    ]);
    own.rules.rt_runtime_ns = Some(950 * MS);
    (own.applications[0].work_ns, own.applications[1].work_ns) = (1900 * MS, 30 * MS);
    own.applications[1].release_ns = 0;
    let shown = &document(&own)["apps"][1];
    assert_eq!(shown["predicted_ns_range"], json!([980 * MS, 1930 * MS]));
    assert_eq!((&shown["deviates"], &shown["deviation"]), (&false.into(), &0.0.into()));
    assert!(page(&own).contains("0.980 to 1.930 s"));
    // A fair server acts for who waits, from then on.
    own.rules.fair_server = Some(FairServer { runtime_ns: 50 * MS, period_ns: 1000 * MS });
    let shown = &document(&own)["apps"][1];
    assert_eq!((&shown["predicted_ns_range"], &shown["deviates"]), (&Value::Null, &true.into()));
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
