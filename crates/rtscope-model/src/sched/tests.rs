use super::*;

const TEXT: &str = "name = 'x'\ntitle = 't'\nwork = '20ms'\n[[application]]\nname = 'a'\n\
                    policy = 'fifo'\npriority = 5\ncpus = 'one'\n[[application]]\nname = 'b'\n\
                    policy = 'other'\nnice = 5\nwork = '5ms'\n";

#[test]
fn an_experiment_is_read() {
    let read = Experiment::parse("x", TEXT).expect("sound");
    assert_eq!(read.applications[0].cpus, Where::One);
    assert_eq!(read.applications[1].cpus, Where::Free);
    assert_eq!(read.applications[1].work, Some(Nanos::from_ms(5)));
    assert_eq!(read.work, Nanos::from_ms(20));
}

#[test]
fn the_order_of_jobs_names_each_application_of_the_same_number_of_jobs() {
    let text =
        |order: &str| TEXT.replace("work = '20ms'", &format!("work = '20ms'\norder = {order}"));
    let read = Experiment::parse("x", &text("['b', 'a']")).expect("sound");
    assert_eq!(read.order, ["b", "a"]);
    assert_eq!(Experiment::parse("x", &read.to_toml()), Ok(read));
    for order in ["['a', 'c']", "['a', 'a']"] {
        let error = Experiment::parse("x", &text(order)).expect_err(order).to_string();
        assert!(error.contains("order must name each application exactly once"), "{error}");
    }
    let uneven = text("['a', 'b']") + "jobs = 2\nperiod = '1s'\n";
    let error = Experiment::parse("x", &uneven).expect_err("uneven").to_string();
    assert!(error.contains("the same number of jobs"), "{error}");
}

#[test]
fn a_deadline_application_has_a_budget() {
    let text = TEXT.replace(
        "policy = 'other'\nnice = 5",
        "policy = 'deadline'\nruntime = '6ms'\nperiod = '20ms'\njobs = 4",
    );
    let read = Experiment::parse("x", &text).expect("sound");
    let budget = read.applications[1].budget().expect("a budget");
    assert_eq!((budget.runtime_ns, budget.deadline_ns), (6_000_000, 20_000_000));
    assert_eq!(read.applications[0].budget(), None);
    assert_eq!((read.applications[0].jobs, read.mutex), (1, MutexProtocol::Plain));
}

#[test]
fn what_is_written_is_read_back() {
    let read = Experiment::parse("x", TEXT).expect("sound");
    assert_eq!(Experiment::parse("x", &read.to_toml()), Ok(read));
}

#[test]
fn a_job_has_its_part_of_the_runs_and_of_what_held_it_up() {
    let run = |cpu, start_ns, end_ns| CpuInterval { cpu, start_ns, end_ns };
    let place: Placement = serde_json::from_str(PLACE).expect("a placement");
    let app = ObservedApplication {
        name: "a".to_owned(),
        asked: place.clone(),
        found: place,
        work_ns: 30,
        release_ns: 0,
        start_ns: 0,
        finish_ns: 190,
        cpu_ns: 60,
        preemptions: 2,
        runs: vec![run(0, 0, 10), run(1, 20, 40), run(1, 100, 120), run(0, 150, 160)],
        throttled: Some(vec![run(0, 10, 20), run(1, 120, 150)]),
        jobs: Vec::new(),
        is_refused: false,
        slice_ns: None,
    };
    let job = |release_ns, finish_ns| JobRun {
        release_ns,
        start_ns: release_ns,
        finish_ns,
        cpu_ns: None,
        preemptions: None,
    };
    // From 0 to 1 in the first job, from 1 to 0 in the second, none between the two.
    let (first, second) = (job(0, 35), job(100, 155));
    assert_eq!((app.migrations_of(&first), app.migrations_of(&second)), (1, 1));
    assert_eq!(app.migrations(), 2);
    assert_eq!(app.runs_of(&first), [run(0, 0, 10), run(1, 20, 35)]);
    assert_eq!(app.runs_of(&second), [run(1, 100, 120), run(0, 150, 155)]);
    assert_eq!(app.throttled_ns_of(&first), Some(10));
    assert_eq!((app.throttled_ns_of(&second), app.throttled_ns()), (Some(30), Some(40)));
    let unknown = ObservedApplication { throttled: None, ..app };
    assert_eq!(unknown.throttled_ns_of(&first), None);
}

const PLACE: &str = r#"{"policy":"fifo","priority":5,"nice":0,"cpus":"0-1"}"#;

#[test]
fn without_throttling_real_time_work_is_short_and_on_one_cpu() {
    let unguarded =
        TEXT.replace("work = '20ms'", "work = '20ms'\nsettings = { throttling = 'off' }");
    assert!(Experiment::parse("x", &unguarded).is_ok());
    let free = unguarded.replace("cpus = 'one'", "cpus = 'free'");
    assert!(Experiment::parse("x", &free).expect_err("refused").to_string().contains("one CPU"));
    let long = unguarded.replace("'20ms'", "'4s'");
    assert!(Experiment::parse("x", &long).expect_err("refused").to_string().contains("3s"));
}

#[test]
fn nonsense_is_refused_by_name() {
    for (from, to, word) in [
        ("priority = 5", "priority = 0", "priority"),
        ("nice = 5", "nice = 25", "nice"),
        ("'fifo'", "'deadline'", "priority"),
        ("policy = 'other'", "policy = 'deadline'", "runtime and a period"),
        ("nice = 5", "jobs = 3", "period"),
        ("nice = 5", "holds = '6ms'", "holds"),
        ("nice = 5", "period = '10ms'\ndeadline = '11ms'", "deadline"),
        ("nice = 5", "slice = '1us'", "slice"),
        ("nice = 5", "runtime = '1ms'", "runtime"),
        ("nice = 5", "period = '2s'\njobs = 101", "jobs"),
        ("'20ms'", "'20min'", "work"),
        ("title", "titel", "title"),
    ] {
        let error = Experiment::parse("x", &TEXT.replace(from, to)).expect_err("refused");
        assert!(error.to_string().contains(word), "{error}");
    }
}
