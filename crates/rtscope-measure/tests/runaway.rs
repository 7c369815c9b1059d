//! A sampling thread that no longer sleeps can't lock a machine up, and none goes on unattended.

use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rtscope_measure::{RunOptions, signals::Interrupt, watchdog::UNATTENDED};
use rtscope_model::{
    cpu::CpuSet,
    event::Event,
    histogram::Layout,
    plan::{self, Overrun, Sleep},
    schedule::{Placement, Policy},
};
use rtscope_sampler::{Beat, GuestExpiries, LiveFigures, Offset, Shared, exchange, run};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    fork::signal,
    process::{self, Resource},
    sched,
    tree::Tree,
};

/// Set in the child, which runs away.
const CHILD: &str = "RTSCOPE_TEST_RUNAWAY";

/// This test's program again, in the role of the child.
fn child(test: &str) -> ExitStatus {
    let mut child = Command::new("/proc/self/exe")
        .args(["--exact", test])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    child.wait().expect("ends")
}

/// A clock that never puts its caller to sleep.
struct Sleepless;

impl Clock for Sleepless {
    fn now_ns(&self) -> u64 {
        SystemClock::MONOTONIC.now_ns()
    }
    fn sleep_until_ns(&self, _: u64) {}
    fn sleep_for_ns(&self, _: u64) {}
    fn cpu(&self) -> u32 {
        0
    }
}

/// Becomes FIFO on one CPU.
fn become_real_time() {
    // Should the kernel fail us, this ends the test all the same.
    process::end_after(Duration::from_secs(20));
    let allowed = sched::affinity(sched::SELF).expect("own CPUs");
    let last: CpuSet = allowed.last().into_iter().collect();
    let fifo = Placement { policy: Policy::Fifo, priority: 5, nice: 0, budget: None, cpus: last };
    sched::set_affinity(sched::SELF, &fifo.cpus).expect("a CPU of ours");
    sched::set_policy(sched::SELF, &fifo).expect("permission was checked");
}

/// Becomes FIFO on one CPU, under the limit of a run, and never sleeps again.
fn run_away() -> ! {
    let (_, hard) = process::limit(Resource::RtTime);
    process::set_limit(Resource::RtTime, (Some(200_000), hard)).expect("a lower limit");
    let interrupt = Interrupt::install().expect("handlers");
    become_real_time();
    let (mut ours, _slots) = exchange(Layout::default(), 1_000_000_000);
    let beat = Beat {
        first_ns: 0,
        interval_ns: 1_000_000,
        offset: Offset::None,
        sleep: Sleep::Absolute,
        overrun: Overrun::Skip,
        break_above_ns: u64::MAX,
        raw_from_ns: 0,
    };
    run(&Sleepless, &beat, &Shared::new(1), &LiveFigures::default(), &mut ours, None);
    unreachable!("nobody stops the loop: {interrupt:?}");
}

#[test]
fn a_thread_that_never_sleeps_is_ended() {
    if std::env::var_os(CHILD).is_some() {
        run_away();
    }
    if !sched::may_be_real_time() {
        return rtscope_testing::skip::skip_this("needs real-time permission");
    }
    let began = Instant::now();
    let status = child("a_thread_that_never_sleeps_is_ended");
    // By the handler of the second SIGXCPU, not by our own timer, which is a signal's death.
    assert_eq!(status.code(), Some(1), "{status}");
    assert!(began.elapsed() < Duration::from_secs(15));
}

/// As on PREEMPT_RT, where a thread of the kernel handles the timer, and comes to nothing beside this one.
#[test]
fn a_thread_that_never_sleeps_is_ended_where_no_timer_is_handled() {
    if std::env::var_os(CHILD).is_some() {
        process::limit_real_time(Duration::from_millis(200));
        become_real_time();
        loop {
            std::hint::spin_loop();
        }
    }
    if !sched::may_be_real_time() {
        return rtscope_testing::skip::skip_this("needs real-time permission");
    }
    let status = child("a_thread_that_never_sleeps_is_ended_where_no_timer_is_handled");
    // The soft limit and the hard one are the same.
    assert_eq!(status.signal(), Some(signal::KILL), "{status}");
}

#[test]
fn the_first_process_of_a_container_is_ended_too() {
    let test = "the_first_process_of_a_container_is_ended_too";
    if std::env::var_os(CHILD).is_some() {
        process::end_after(Duration::from_millis(300));
        std::thread::sleep(Duration::from_secs(30));
        unreachable!("process {} was to be ended", std::process::id());
    }
    let began = Instant::now();
    // The test's own process starts threads, so that `unshare` must make the first one.
    let status = Command::new("unshare")
        .args(["--pid", "--fork"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", test])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        // `unshare` ends as its child did: 128 and the number of SIGALRM.
        Ok(status) if status.code() != Some(1) => assert_eq!(status.code(), Some(142)),
        _ => return rtscope_testing::skip::skip_this("needs root"),
    }
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// A run of a plan with one phase of an hour; `more` is said of the phase.
fn hour(folder: &Path, more: &str) -> RunOptions {
    let text = format!(
        "name = 'x'\n[sampler]\npolicy = 'other'\n[[phase]]\nname = 'p'\nduration = '1h'\n{more}"
    );
    RunOptions {
        plan: plan::parse("x", &text).expect("a plan"),
        findings: Vec::new(),
        folder: folder.join("run"),
        tree: Tree::default(),
        journal: folder.join("journal"),
        program: "/proc/self/exe".into(),
        command: Vec::new(),
        version: String::new(),
        wall_clock: String::new(),
        interrupt: Interrupt::default(),
        unattended: UNATTENDED,
        expiries: GuestExpiries::default(),
    }
}

/// Measures with a listener that hangs for ever once the threads run.
fn run_unattended() -> ! {
    let folder = tempfile::tempdir().expect("a folder");
    let unattended = Duration::from_millis(500);
    let options = RunOptions { unattended, ..hour(folder.path(), "") };
    let outcome = rtscope_measure::run(&options, &mut |stamped| {
        if let Event::Progress(progress) = &stamped.event
            && progress.cell.is_some()
        {
            std::thread::sleep(Duration::from_secs(30));
        }
    });
    unreachable!("it was ended: {outcome:?}");
}

#[test]
fn threads_do_not_go_on_when_nobody_looks_after_them() {
    if std::env::var_os(CHILD).is_some() {
        run_unattended();
    }
    let began = Instant::now();
    // SIGALRM: the kernel's timer that the control thread winds up again and again.
    assert_eq!(child("threads_do_not_go_on_when_nobody_looks_after_them").signal(), Some(14));
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// Whether a thread of this process blocks SIGXCPU, by its name.
fn blocks_cpu_limit() -> Vec<(String, bool)> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc").flatten();
    let blocks = tasks.filter_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = |key| status.lines().find_map(|line: &str| line.strip_prefix(key));
        let mask = u64::from_str_radix(line("SigBlk:")?.trim(), 16).ok()?;
        // Bit n - 1 stands for signal n: proc_pid_status(5).
        Some((
            line("Name:")?.trim().to_owned(),
            mask >> (signal_hook::consts::SIGXCPU - 1) & 1 == 1,
        ))
    });
    blocks.collect()
}

#[test]
fn only_the_threads_that_run_hear_that_they_ran_too_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = hour(folder.path(), "");
    let mut seen = Vec::new();
    let outcome = rtscope_measure::run(&options, &mut |stamped| {
        if let Event::Progress(progress) = &stamped.event
            && progress.cell.is_some()
        {
            seen = blocks_cpu_limit();
            options.interrupt.stop();
        }
    });
    outcome.expect("it ran");
    let is_sampling = |name: &str| name.starts_with("sample-");
    assert!(seen.iter().any(|(name, _)| is_sampling(name)), "{seen:?}");
    for (name, blocks) in seen.iter().filter(|(name, _)| is_sampling(name)) {
        assert!(!blocks, "{name} never hears that it runs away");
    }
}

#[test]
fn a_run_that_fails_puts_back_its_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = process::limit(Resource::RtTime);
    // Settings of a phase change when the limit is already set.
    let options = hour(folder.path(), "settings = { nonsense = '1' }\n");
    let failed = rtscope_measure::run(&options, &mut |_| {});
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(process::limit(Resource::RtTime), before);
}
