//! A matrix in batches: by processes of this machine, and by a Slurm of this machine alone. Whatever is killed, each
//! cell comes once.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rtscope_testing::slurm::SlurmCluster;
use serde_json::Value;
use tempfile::TempDir;

use crate::{REST, any_kernel, document, ready_or_skip, rtscope, text};

/// Each cell in a batch of its own. `--fresh` keeps records of earlier tests out.
const MATRIX: &str = "lab matrix rest.toml --fresh --batch 1s -o out";

/// Waits as long as guests may take on a busy machine.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(600);
    while !holds() {
        assert!(Instant::now() < until, "waited for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The processes that work on cells, by their cells.
fn owners(out: &Path) -> BTreeMap<String, u64> {
    let claims = out.join("order/claims");
    let owner = |name: String| {
        let text = fs::read_to_string(claims.join(&name)).ok()?;
        let owner: Value = serde_json::from_str(&text).ok()?;
        Some((name, owner["pid"].as_u64()?))
    };
    names_in(&claims).into_iter().filter_map(owner).collect()
}

/// Guests at work.
fn guests(out: &Path) -> usize {
    names_in(&out.join("order/parts")).len()
}

fn kill(pid: u64) {
    // It may have ended just now.
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
}

/// How often each step of each cell was done.
fn steps(out: &Path) -> BTreeMap<(String, String), usize> {
    let folder = out.join("order/tasks");
    let mut steps = BTreeMap::new();
    for name in names_in(&folder) {
        let text = fs::read_to_string(folder.join(name)).expect("a journal");
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect("a line");
            let word = |name: &str| line[name].as_str().expect("a word").to_owned();
            *steps.entry((word("step"), word("cell"))).or_default() += 1;
        }
    }
    steps
}

/// That each of so many cells ran to its end once and is in the comparison, and that nothing else is left.
fn assert_each_came_once(out: &Path, cells: usize, output: &Output) {
    let said = text(output);
    assert!(output.status.success(), "{said}");
    let steps = steps(out);
    // A kernel that wasn't here yet is a step, too.
    let is_cell = |name: &str| !name.starts_with("kernel ");
    let ran: Vec<_> =
        steps.iter().filter(|((step, name), _)| step == "ran" && is_cell(name)).collect();
    assert!(ran.len() == cells && ran.iter().all(|(_, times)| **times == 1), "{steps:?}\n{said}");
    assert_eq!(names_in(&out.join("order/parts")), [""; 0]);
    let claims = names_in(&out.join("order/claims"));
    assert!(claims.iter().all(|name| name.ends_with(".beat")), "{claims:?}");
    let document = document(out);
    let guests = document["kernels"].as_array().expect("guests");
    assert_eq!(guests.len(), cells);
    assert!(guests.iter().all(|guest| guest["failed"].is_null()), "{document}");
}

fn room_with_plan() -> TempDir {
    let room = tempfile::tempdir().expect("a folder");
    fs::write(room.path().join("rest.toml"), REST).expect("written");
    room
}

fn matrix(room: &Path, more: &str) -> Command {
    let words = MATRIX.split(' ').chain(["-k", any_kernel()]).chain(more.split(' '));
    let words: Vec<&str> = words.collect();
    let mut command = rtscope(room, &words);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// One guest at a time, so that another one is left when the first record is there.
const LOCAL: &str = "--seeds 2 --engine local --jobs 1";

#[test]
fn batches_on_this_machine_survive_the_end_of_a_task_and_of_rtscope() {
    if !ready_or_skip("batches_on_this_machine_survive_the_end_of_a_task_and_of_rtscope") {
        return;
    }
    let room = room_with_plan();
    let out = room.path().join("out");
    let mut first = matrix(room.path(), LOCAL).spawn().expect("starts");
    wait_for("a guest", || guests(&out) > 0);
    owners(&out).into_values().take(1).for_each(kill);
    wait_for("a record", || names_in(&out).iter().any(|name| name.starts_with(any_kernel())));
    wait_for("another guest", || guests(&out) > 0);
    first.kill().expect("killed");
    first.wait().expect("gone");
    // Tasks end with the process that started them.
    let gone = |pid: u64| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    wait_for("the tasks to end", || owners(&out).into_values().all(gone));
    let output = matrix(room.path(), LOCAL).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    assert_each_came_once(&out, 2, &output.expect("ends"));
    // The same folder is for the same order only, and for batches only.
    for (more, said) in
        [("--seeds 3 --engine local", "seed3 differs"), ("--seeds 2", "add --engine")]
    {
        let words = format!("lab matrix rest.toml -k {} -o out {more}", any_kernel());
        let words: Vec<&str> = words.split(' ').collect();
        let output = rtscope(room.path(), &words).output().expect("starts");
        assert!(!output.status.success() && text(&output).contains(said), "{}", text(&output));
    }
}

#[test]
#[ignore = "boots guests for minutes: cargo xtask test --long runs it"]
fn slurm_runs_each_cell_once_although_a_task_a_node_and_rtscope_are_killed() {
    let test = "slurm_runs_each_cell_once_although_a_task_a_node_and_rtscope_are_killed";
    if !ready_or_skip(test) {
        return;
    }
    let room = room_with_plan();
    // Its arrays have three tasks at most.
    let Some(mut cluster) = SlurmCluster::start(test, room.path(), "MaxArraySize=3") else {
        return;
    };
    let out = room.path().join("out");
    let on_cluster = || {
        let mut command = matrix(room.path(), "--seeds 4 --engine slurm");
        command.env("SLURM_CONF", room.path().join("slurm.conf"));
        command
    };
    let mut first = on_cluster().spawn().expect("starts");
    wait_for("two guests", || guests(&out) == 2);
    // The daemon of a node: its tasks go on, and it finds them when it is back.
    cluster.kill_node(1);
    owners(&out).into_values().take(1).for_each(kill);
    first.kill().expect("killed");
    first.wait().expect("gone");
    cluster.start_node(1);
    let mut again = on_cluster();
    let output = again.stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("ends");
    assert_each_came_once(&out, 4, &output);
    let began =
        steps(&out).iter().filter(|((step, _), _)| step == "began").map(|(_, n)| n).sum::<usize>();
    assert_eq!(began, 5, "the killed one, and each of the four once");
    // Four tasks are more than an array may have here; the killed one came a second time.
    let arrays = names_in(&out.join("order/submissions")).len();
    assert!((3..=4).contains(&arrays), "{arrays} lists of tasks");
    assert_eq!(cluster.ask("squeue", &["--noheader"]).trim(), "", "nothing is left in the queue");
}
