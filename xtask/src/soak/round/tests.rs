//! Every check of a round fails where it should: against ends of programs, and against an rtscope that does everything
//! wrong.

use rtscope_testing::executable;

use super::{
    super::{
        draw::Ready,
        fault::Strength,
        subject::{RUN, Subject},
    },
    *,
};

fn finished(status: Option<i32>, err: &str) -> Finished {
    let status = status.map(ExitStatus::from_raw);
    Finished { status, lived: Duration::ZERO, out: String::new(), err: err.to_owned() }
}

/// As wait(2) has it: a code is in the second byte, a signal in the first.
#[test]
fn an_end_that_no_fault_explains_is_a_problem() {
    let found = |one: &Finished, fault, struck: &Struck| one.problems(fault, struck).join("\n");
    let killed = finished(Some(9), "");
    assert_eq!(found(&killed, Fault::Kill, &Struck::Hit), "");
    assert_eq!(found(&killed, Fault::Kill, &Struck::TooLate), "signal 9 ended it");
    assert_eq!(found(&killed, Fault::Memory, &Struck::Hit), "signal 9 ended it");
    for code in 0..4 {
        assert_eq!(found(&finished(Some(code << 8), ""), Fault::Stop, &Struck::Hit), "");
    }
    let panicked = finished(Some(101 << 8), "thread 'main' panicked at x\n");
    let text = found(&panicked, Fault::Stop, &Struck::Hit);
    assert!(text.contains("code was 101") && text.contains("it panicked"), "{text}");
    assert_eq!(found(&finished(None, ""), Fault::Stop, &Struck::Hit), "it hung for 60 s");
    let refused = finished(Some(64 << 8), "rtscope: shield: CPU 0 are all that this machine has");
    assert_eq!(found(&refused, Fault::CpuOff, &Struck::Hit), "");
    assert!(found(&refused, Fault::Stop, &Struck::Hit).contains("code was 64"));
    let refused = finished(Some(64 << 8), "rtscope: no such plan");
    assert!(found(&refused, Fault::CpuOff, &Struck::Hit).contains("code was 64"));
    assert!(killed.is_killed() && !panicked.is_killed());
}

#[test]
fn of_many_differences_the_first_are_told() {
    let all = |count: usize| vec!["x".to_owned(); count];
    assert_eq!(first_ones(all(TOLD_MAX)).len(), TOLD_MAX);
    let some = first_ones(all(TOLD_MAX + 70));
    assert_eq!(some.last().expect("one"), "and 70 more differences");
}

#[test]
fn what_is_left_and_mounts_that_are_gone_are_differences() {
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
    let before = names(&["mount tracefs /sys/kernel/tracing", "/run/rtscope/of-another"]);
    let after = names(&["/dev/shm/rtscope-1"]);
    let told = ["left behind: /dev/shm/rtscope-1", "taken away: mount tracefs /sys/kernel/tracing"];
    assert_eq!(differences(&before, &after), told);
    assert_eq!(differences(&before, &before), [""; 0]);
}

#[test]
fn what_goes_away_in_time_is_nothing() {
    let mut left = 3;
    let found = within(Duration::from_secs(60), || {
        left -= 1;
        vec![(); left]
    });
    assert!(found.is_empty());
    assert_eq!(within(Duration::ZERO, || vec![1]), [1]);
}

/// A record with one slice, in the folder that `$4` names.
const RECORDS: &str = r#"mkdir -p $4/slices
echo '{"event":"run-started"}' > $4/events.jsonl
echo '{"thread":0,"scope":{"cell":0},"planned":5,"recorded":5,"bins":[[1,5]]}' > $4/slices/t0.jsonl"#;

/// What `report` prints of that record, with this count.
fn reports(recorded: u32) -> String {
    format!(
        r#"echo '{{"findings":[],"cells":[{{"cell":0,"cpus":[{{"thread":0,"planned":5,"recorded":{recorded},"missed":0}}]}}]}}'"#
    )
}

/// Acts on a stage whose program is this script.
fn on_stage<T>(script: &str, act: impl FnOnce(&Stage<'_>) -> T) -> T {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("rtscope");
    executable::write(&program, &format!("#!/bin/sh\n{script}\n"));
    let keeper = Keeper::of_tests();
    let machine = Machine { last_cpu: 0, unavailable: Vec::new(), changed_by_kernel: Vec::new() };
    act(&Stage {
        file: ProgramFile::of(&program).expect("there"),
        ours: Vec::new(),
        program,
        folder: folder.path().join("round"),
        keeper: &keeper,
        machine: &machine,
        mark: folder.path().display().to_string(),
    })
}

/// A round with a program that does this when it runs, reports and restores.
fn round(run: &str, report: &str, restore: &str, fault: Fault) -> Vec<String> {
    static SUBJECT: Subject = RUN;
    let ready = Ready { subject: &SUBJECT, span: Duration::from_secs(1) };
    // What is killed has done its work by then, on a busy machine too.
    let moment = Duration::from_millis(if matches!(fault, Fault::Kill) { 2_000 } else { 300 });
    let drawn = Drawn {
        fault,
        ready: &ready,
        settings: Vec::new(),
        load: "cpu",
        moment,
        strength: Strength { lasts: Duration::ZERO, step_ns: 0, memory_mib: 0 },
        restorer: Restorer::TuneRestore,
        second_kill: None,
    };
    let script = format!("case $1 in\nrun) {run};;\nreport) {report};;\n*) {restore};;\nesac");
    let outcome = on_stage(&script, |stage| stage.round(&drawn));
    let Outcome { mut problems, doubtful, .. } = outcome.expect("a round");
    problems.extend(doubtful);
    problems
}

fn assert_found(problems: &[String], part: &str) {
    assert!(problems.iter().any(|one| one.contains(part)), "{part}: {problems:#?}");
}

/// What a round finds apart from settings and leftovers, which others may change beside this test.
fn apart_from_settings(problems: Vec<String>) -> Vec<String> {
    let of_others = [" -> ", "left behind: ", " is new", " is gone", " more differences"];
    let is_own = |one: &String| !of_others.iter().any(|part| one.contains(part));
    problems.into_iter().filter(is_own).collect()
}

#[test]
fn an_rtscope_that_does_all_right_passes() {
    let run = format!("{RECORDS}; echo '{{\"event\":\"run-ended\"}}' >> $4/events.jsonl");
    for (run, fault) in [(run.clone(), Fault::Stop), (format!("{run}; exec sleep 60"), Fault::Kill)]
    {
        let problems = round(&run, &reports(5), "true", fault);
        assert_eq!(apart_from_settings(problems), [""; 0]);
    }
}

#[test]
fn an_rtscope_that_does_it_wrong_is_found_out() {
    let stays = "sleep 1000 & sleep 60";
    assert_found(&round(stays, "true", "true", Fault::Kill), "still running: ");
    assert_found(&round("exit 101", "true", "true", Fault::Stop), "exit code was 101");
    assert_found(&round("true", "true", "true", Fault::Stop), "the record isn't complete");
    let records = format!("{RECORDS}; exit 3");
    assert_found(&round(&records, "exit 1", "true", Fault::Stop), "the record can't be read");
    assert_found(&round(&records, &reports(4), "true", Fault::Stop), "the sum is wrong");
    let fails = "echo not every setting >&2; exit 1";
    assert_found(&round("exec sleep 60", "true", fails, Fault::Kill), "said: not every setting");
    // No number, which would be that of a living process.
    let name = format!("/dev/shm/rtscope-of-a-test-x{}", fastrand::u64(..));
    let leaves = format!("touch {name}; exit 3");
    let problems = round(&leaves, "true", "true", Fault::Stop);
    fs::remove_file(&name).expect("it is there");
    assert_found(&problems, "left behind: /dev/shm/rtscope-of-a-test");
}

#[test]
fn a_command_that_crashes_without_a_fault_is_an_error_and_one_that_refuses_is_skipped() {
    let tried = |script: &str| {
        on_stage(script, |stage| {
            fs::create_dir_all(&stage.folder).expect("made");
            stage.trial(&RUN)
        })
    };
    for code in [0, 2, 3] {
        assert!(tried(&format!("exit {code}")).expect("no crash").is_ok(), "{code}");
    }
    let refused = tried("echo it needs root >&2; exit 1").expect("no crash");
    assert!(refused.expect_err("refused").contains("it needs root"));
    for crash in ["exit 64", "exit 101", "kill -ABRT $$", "echo panicked >&2"] {
        assert!(tried(crash).is_err(), "{crash}");
    }
}
