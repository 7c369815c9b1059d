//! Many threads, and too many: what a machine doesn't allow is refused before anything starts.

use std::{
    fs,
    process::{Command, Output},
    time::Duration,
};

use crate::support::{folder, kill, output_of, root_or_skip, start, text, wait_for};

/// Ordinary threads that wake rarely: as many as a small machine can carry.
const PLAN: &str = "name = \"many\"\n[sampler]\npolicy = \"other\"\ninterval = \"100ms\"\nwarmup = \"100ms\"\n\
                    [[phase]]\nname = \"rest\"\nduration = \"500ms\"\n";

/// Runs the plan in a shell, after the commands in `before`.
fn run(folder: &std::path::Path, before: &str, arguments: &str) -> Output {
    fs::write(folder.join("many.toml"), PLAN).expect("a plan");
    let program = env!("CARGO_BIN_EXE_rtscope");
    let script = format!("{before}; exec {program} run many.toml --out run {arguments}");
    output_of(Command::new("sh").args(["-c", &script]).current_dir(folder))
}

/// The threads of a run that recorded anything.
fn measured(output: &Output) -> usize {
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    let threads = document["cells"][0]["cpus"].as_array().expect("threads");
    threads.iter().filter(|row| row["recorded"].as_u64() > Some(0)).count()
}

#[test]
fn sixty_four_threads_are_measured() {
    let folder = folder();
    // On a busy machine, half a second is too short, as below.
    assert_eq!(measured(&run(folder.path(), "true", "--threads 64 --duration 3s --json")), 64);
}

#[test]
fn a_thousand_threads_are_measured_and_the_limit_of_open_files_is_raised() {
    let folder = folder();
    // On a busy machine, half a second is too short: all threads of a CPU may miss it.
    let output = run(folder.path(), "ulimit -Sn 256", "--threads 1000 --duration 3s --json");
    let findings = text(&output.stdout);
    assert_eq!(measured(&output), 1000);
    assert!(!findings.contains("record-not-written"), "every slice is in its file");
}

#[test]
fn more_open_files_than_are_allowed_are_refused_before_the_start() {
    if !root_or_skip("more_open_files_than_are_allowed_are_refused_before_the_start") {
        return;
    }
    let folder = folder();
    // Without the capability that raises any limit.
    fs::write(folder.path().join("many.toml"), PLAN).expect("a plan");
    let script = format!(
        "ulimit -n 300; exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource \
         {} run many.toml --out run --threads 300",
        env!("CARGO_BIN_EXE_rtscope")
    );
    let output = output_of(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("but only 300 may be open: raise the limit (ulimit -n)"), "{said}");
    assert!(!folder.path().join("run").exists(), "nothing is left of a refused run");
}

#[test]
fn absurd_numbers_of_threads_are_refused() {
    let folder = folder();
    let output = run(folder.path(), "true", "--threads 1000000000");
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("threads is out of range: 1 to 10000"));
}

/// A container without `/sys`: the number of CPUs was taken for 0, so that two threads ended in a remainder by
/// zero, and no thread at all was "measured" with exit code 0.
#[test]
fn without_sys_the_cpus_are_found_and_without_any_the_run_is_refused() {
    if !root_or_skip("without_sys_the_cpus_are_found_and_without_any_the_run_is_refused") {
        return;
    }
    let folder = folder();
    fs::write(folder.path().join("many.toml"), PLAN).expect("a plan");
    let without = |trees: &str, arguments: &str| {
        let program = env!("CARGO_BIN_EXE_rtscope");
        let script = format!(
            "for tree in {trees}; do mount -t tmpfs none $tree || exit 99; done; \
             exec {program} run many.toml {arguments}"
        );
        let mut command = Command::new("unshare");
        output_of(command.args(["-m", "sh", "-c", &script]).current_dir(folder.path()))
    };
    assert_eq!(measured(&without("/sys", "--threads 2 --json --out two")), 2);
    let refused = without("/sys /proc", "--out none");
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("no CPU was found"), "{said}");
}

/// Every verb with a real-time thread of ours that sleeps again and again tells the kernel so: what doesn't sleep
/// for a second is told to end.
#[test]
fn every_thread_that_should_sleep_has_a_limit() {
    let folder = folder();
    for arguments in [
        "run --duration 20s --policy other",
        "drift --duration 20s --policy other",
        "throughput --duration 20s --policy other",
        "cyclictest -D 20 --policy other -q",
    ] {
        let mut child = start(folder.path(), arguments);
        wait_for(&format!("the limit of {arguments}"), Duration::from_secs(15), || {
            let limits = fs::read_to_string(format!("/proc/{}/limits", child.id()));
            let limits = limits.expect("it runs for 20 s");
            let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"));
            // In microseconds: getrlimit(2).
            line.expect("a kernel with this limit").split_whitespace().next() == Some("1000000")
        });
        kill(child.id(), "INT");
        child.wait().expect("ends");
    }
}
