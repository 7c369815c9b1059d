//! The loads as processes: each starts, works, ends, and leaves nothing behind.
//!
//! This program is its own worker: started with the word `load-worker`, as rtscope starts itself,
//! it becomes a load. Started with `hold`, it stands between a test and a load, to be killed. The
//! tests run one after the other: loads would disturb each other's tests.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use rtscope_measure::load::{EndedLoad, LOADS, Launcher, RunningLoad, run_alone, worker_main};
use rtscope_model::{cpu::CpuSet, load::LoadLine, schedule::Policy, time::Nanos};
use rtscope_sys::{fork::signal, process, sched};
use rtscope_testing::{devices, skip::skip};

/// Lines that must work: every load at least once, and every way to do its work.
const LINES: &[&str] = &[
    "cpu",
    "cpu kind=spin workers=1 percent=30",
    "cpu sorted=true nice=10",
    "message groups=2 fds=3",
    "message groups=2 fds=3 mode=thread via=pipe",
    "message groups=2 fds=3 policy=fifo priority=49 cpus=measured",
    "memory workers=1 size=8MiB",
    "io",
    "disk size=64KiB block=16KiB",
    "disk size=64KiB fsync=true workers=2",
    "network workers=2",
    "network kind=tcp size=16KiB",
    "network kind=icmp workers=2",
    "network over=veth",
    "network kind=icmp over=veth",
    "network kind=tcp over=veth",
    "timer timers=50 hz=100",
    "fork workers=1",
    "serial",
    "external -- sleep 600",
];

/// No load of a test lives longer than this, whatever goes wrong.
const LIMIT: Nanos = Nanos::from_secs(60);

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.split_first() {
        Some((first, line)) if first == "load-worker" => return worker_main(line),
        Some((first, line)) if first == "hold" => hold(&line.join(" ")),
        _ => {}
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let mut trials: Vec<Trial> = Vec::new();
    for line in LINES {
        let needs = if is_privileged(line) { Needs::Root } else { Needs::Nothing };
        let mut add = |name: &str, test: fn(&str)| {
            trials.push(trial(format!("{name}: {line}"), needs, move || test(line)));
        };
        add("works_and_ends", works_and_ends);
        add("dies_with_its_parent", dies_with_its_parent);
        add("workers_die_with_it", workers_die_with_it);
    }
    let others =
        [(Needs::Nothing, TESTS), (Needs::RealTime, REAL_TIME_TESTS), (Needs::Root, ROOT_TESTS)];
    for (needs, tests) in others {
        trials.extend(tests.iter().map(|(name, test)| trial((*name).to_owned(), needs, *test)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What a trial can't do without.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    RealTime,
    Root,
}

fn trial(name: String, needs: Needs, test: impl FnOnce() + Send + 'static) -> Trial {
    // Which load it is doesn't matter for why it is skipped.
    let short = name.split(':').next().unwrap_or_default().to_owned();
    Trial::test(name, move || -> Result<(), Failed> {
        match needs {
            Needs::Root if !process::is_root() => skip(&short, "needs root"),
            Needs::RealTime if !sched::may_be_real_time() => {
                skip(&short, "needs real-time permission");
            }
            _ => test(),
        }
        Ok(())
    })
}

const TESTS: &[(&str, fn())] = &[
    ("every_load_is_tested", every_load_is_tested),
    ("workers_are_placed_as_asked", workers_are_placed_as_asked),
    ("a_cpu_that_does_not_exist_is_an_error", a_cpu_that_does_not_exist_is_an_error),
    ("others_are_the_cpus_that_are_not_measured", others_are_the_cpus_that_are_not_measured),
    ("messages_are_counted_exactly", messages_are_counted_exactly),
    ("too_much_memory_is_refused", too_much_memory_is_refused),
    ("files_of_dead_loads_are_removed", files_of_dead_loads_are_removed),
    ("a_directory_that_is_missing_is_an_error", a_directory_that_is_missing_is_an_error),
    ("a_whole_tree_is_ended", a_whole_tree_is_ended),
    ("a_whole_tree_dies_with_rtscope", a_whole_tree_dies_with_rtscope),
    ("a_whole_tree_is_ended_without_its_supervisor", a_whole_tree_is_ended_without_its_supervisor),
    ("a_command_is_started_again", a_command_is_started_again),
    ("a_command_may_run_once", a_command_may_run_once),
    ("a_command_that_fails_is_an_error", a_command_that_fails_is_an_error),
    ("a_command_that_is_missing_is_an_error", a_command_that_is_missing_is_an_error),
    ("a_program_that_is_no_worker_is_an_error", a_program_that_is_no_worker_is_an_error),
    ("a_load_ends_without_waiting_for_it", a_load_ends_without_waiting_for_it),
    ("a_dropped_load_is_stopped", a_dropped_load_is_stopped),
    ("a_load_runs_alone", a_load_runs_alone),
];

const REAL_TIME_TESTS: &[(&str, fn())] = &[
    ("real_time_workers_are_placed_as_asked", real_time_workers_are_placed_as_asked),
    ("a_real_time_load_ends_at_its_limit", a_real_time_load_ends_at_its_limit),
    ("percent_is_of_a_cpu", percent_is_of_a_cpu),
];

const ROOT_TESTS: &[(&str, fn())] =
    &[("the_host_keeps_its_network_devices", the_host_keeps_its_network_devices)];

// What the tests are made of.

fn allowed() -> CpuSet {
    sched::affinity(sched::SELF).expect("own CPUs")
}

fn first_cpu() -> CpuSet {
    allowed().iter().take(1).collect()
}

fn launcher() -> Launcher {
    Launcher::new(first_cpu(), allowed())
}

fn line(text: &str) -> LoadLine {
    text.parse().expect("a line")
}

fn start(text: &str) -> RunningLoad {
    launcher().start(&line(text), LIMIT).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn refused(text: &str) -> String {
    launcher().start(&line(text), LIMIT).map(drop).expect_err("refused").to_string()
}

/// Waits until something holds. Generous: the machine may be busy, and a load makes it so.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < until, "not within 120 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn end_of(running: &mut RunningLoad) -> EndedLoad {
    let mut end = None;
    eventually("the load ends", || {
        end = running.poll();
        end.is_some()
    });
    end.expect("it has ended")
}

/// What a process's `stat` file says.
struct Process {
    pid: u32,
    group: u32,
    state: char,
    cpu_ticks: u64,
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Process {
            pid,
            group: fields[2].parse().ok()?,
            state: fields[0].chars().next()?,
            cpu_ticks: fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?,
        })
    })
    .collect()
}

/// The processes of a group, dead ones that nobody took note of included.
fn members(group: u32) -> Vec<Process> {
    processes().into_iter().filter(|process| process.group == group).collect()
}

fn is_alive(process: &Process) -> bool {
    !matches!(process.state, 'Z' | 'X')
}

/// Living processes with this word in their command line.
fn with_word(word: &str) -> usize {
    let has_word = |process: &Process| {
        let words = fs::read_to_string(format!("/proc/{}/cmdline", process.pid));
        words.unwrap_or_default().split('\0').any(|w| w == word)
    };
    processes().iter().filter(|process| is_alive(process) && has_word(process)).count()
}

/// Starts a load and waits to be killed.
fn hold(text: &str) -> ! {
    let running = start(text);
    println!("{}", running.pid());
    std::io::stdout().flush().expect("standard output");
    loop {
        thread::park();
    }
}

/// Starts this program as a holder of a load; the holder is killed, and the load's group returned.
fn killed_holder(text: &str, before: impl FnOnce()) -> u32 {
    let mut holder = Command::new(env::current_exe().expect("this program"))
        .args(["hold", text])
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program");
    let mut group = String::new();
    let stdout = holder.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut group).expect("a line");
    before();
    holder.kill().expect("alive");
    holder.wait().expect("a child");
    group.trim().parse().expect("a process number")
}

fn is_privileged(text: &str) -> bool {
    ["icmp", "veth", "fifo"].iter().any(|word| text.contains(word))
}

// The tests.

fn every_load_is_tested() {
    // A camera is no part of every machine: `load/video.rs` tests what can be tested without one.
    for load in LOADS.iter().filter(|load| load.name != "video") {
        assert!(LINES.iter().any(|text| line(text).name == load.name), "{}", load.name);
    }
}

fn works_and_ends(text: &str) {
    let running = start(text);
    eventually("work is done", || running.work() > 0);
    let pid = running.pid();
    let alive: Vec<Process> = members(pid).into_iter().filter(is_alive).collect();
    assert!(alive.len() > 1 || text.contains("thread"));
    // What ends a real-time worker on PREEMPT_RT, where its timer may not be handled. A process may have ended since.
    for limits in
        alive.iter().filter_map(|p| fs::read_to_string(format!("/proc/{}/limits", p.pid)).ok())
    {
        let line = limits.lines().find(|line| line.starts_with("Max realtime timeout"));
        assert!(line.is_some_and(|line| !line.contains("unlimited")), "{text}: {limits}");
    }
    assert_eq!(running.stop(), EndedLoad { ok: true, how: "stopped".to_owned() });
    assert_eq!(members(pid).len(), 0, "something is left");
}

fn dies_with_its_parent(text: &str) {
    let group = killed_holder(text, || {});
    eventually("the group is gone", || !members(group).iter().any(is_alive));
}

fn workers_die_with_it(text: &str) {
    let mut running = start(text);
    assert!(process::signal(running.pid(), signal::KILL));
    let ended = end_of(&mut running);
    assert_eq!((ended.ok, ended.how.as_str()), (false, "it was killed by signal 9"));
    assert_eq!(members(running.pid()).len(), 0, "something is left");
}

/// Checks policy, priority, nice value and CPUs of a load's workers, as the kernel has them.
fn check_placement(text: &str, policy: Policy, priority: u8, nice: i8) {
    let running = start(text);
    let workers: Vec<u32> =
        members(running.pid()).iter().map(|p| p.pid).filter(|pid| *pid != running.pid()).collect();
    let mut checked = 0;
    for pid in workers {
        // A child of the load `fork` may have ended since.
        let Ok(found) = sched::placement(pid as i32) else {
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{text}: {pid} is there");
            continue;
        };
        assert_eq!((found.policy, found.priority, found.nice), (policy, priority, nice));
        assert_eq!(found.cpus, first_cpu());
        checked += 1;
    }
    assert!(checked > 0, "{text}: no worker");
    assert!(running.stop().ok);
}

fn workers_are_placed_as_asked() {
    let cpus = first_cpu();
    check_placement(&format!("cpu workers=2 policy=batch nice=5 cpus={cpus}"), Policy::Batch, 0, 5);
    // Where nothing is asked, a worker has what its parent has.
    let own_nice = sched::placement(sched::SELF).expect("alive").nice;
    check_placement("fork workers=1 cpus=measured", Policy::Other, 0, own_nice);
    let line = format!("external cpus={cpus} policy=idle -- sleep 600");
    check_placement(&line, Policy::Idle, 0, own_nice);
}

fn real_time_workers_are_placed_as_asked() {
    let line = |name: &str| format!("{name} policy=rr priority=7 cpus=measured");
    check_placement(&line("cpu percent=10"), Policy::Rr, 7, 0);
    check_placement(&format!("{} -- sleep 600", line("external")), Policy::Rr, 7, 0);
}

fn a_cpu_that_does_not_exist_is_an_error() {
    let text = refused("cpu cpus=16000");
    assert!(text.contains("CPU 16000 is not online: this machine has CPUs"), "{text}");
    let cpus = format!("{},16000", first_cpu());
    let text = refused(&format!("fork cpus={cpus}"));
    assert!(text.contains("CPU 16000 is not online"), "{text}");
}

fn others_are_the_cpus_that_are_not_measured() {
    let all = Launcher::new(allowed(), allowed());
    let text = all.start(&line("cpu cpus=others"), LIMIT).map(drop).expect_err("none").to_string();
    assert!(text.contains("cpus=others, but every CPU is measured"), "{text}");
    if allowed().len() > 1 {
        let running = start("fork workers=1 cpus=others");
        let found = sched::placement(running.pid() as i32).expect("alive");
        assert_eq!(found.cpus, allowed().without(&first_cpu()));
    }
}

fn a_real_time_load_ends_at_its_limit() {
    let limit = Nanos::from_secs(1);
    for text in [
        "message groups=2 policy=fifo priority=49 cpus=measured",
        "message groups=2 mode=thread policy=fifo priority=49 cpus=measured",
        "external policy=fifo priority=49 cpus=measured -- 'while :; do :; done'",
    ] {
        let text = text.replace('\'', "");
        let mut running = launcher().start(&line(&text), limit).expect("it works");
        let ended = end_of(&mut running);
        assert!(!ended.ok && ended.how.contains("time limit"), "{text}: {}", ended.how);
        assert_eq!(members(running.pid()).len(), 0, "something is left");
    }
}

/// The part of a CPU that a load's processes use in about a second.
fn cpu_share(text: &str) -> f64 {
    let running = start(text);
    eventually("it works", || running.work() > 0);
    let ticks = || members(running.pid()).iter().map(|p| p.cpu_ticks).sum::<u64>();
    let (before, began) = (ticks(), Instant::now());
    thread::sleep(Duration::from_millis(1_500));
    let (used, wall) = (ticks() - before, began.elapsed());
    running.stop();
    used as f64 / rtscope_sys::system::ticks_per_second() as f64 / wall.as_secs_f64()
}

fn percent_is_of_a_cpu() {
    // What else runs on this machine doesn't keep a real-time load from its CPU.
    let share = |percent: u32| {
        cpu_share(&format!("cpu workers=1 percent={percent} policy=fifo priority=10"))
    };
    // A host may keep a virtual machine from it: one of three looks is enough.
    for (percent, expected) in [(20, 0.15..0.25), (50, 0.42..0.58)] {
        let mut seen = Vec::new();
        while !seen.iter().any(|found| expected.contains(found)) {
            assert!(seen.len() < 3, "{percent} %: {seen:?}");
            seen.push(share(percent));
        }
    }
}

fn messages_are_counted_exactly() {
    for options in ["", "mode=thread", "via=pipe", "mode=thread via=pipe size=9000B"] {
        let mut running = start(&format!("message groups=2 fds=3 loops=50 {options}"));
        let ended = end_of(&mut running);
        assert_eq!(ended, EndedLoad { ok: true, how: "its work was done".to_owned() });
        assert_eq!(running.work(), 2 * 3 * 3 * 50, "{options}");
        assert_eq!(running.unit(), "messages");
    }
}

fn too_much_memory_is_refused() {
    let text = refused("memory workers=1 size=1024GiB");
    assert!(text.contains("three quarters") && text.contains("smaller size"), "{text}");
}

fn files_of_dead_loads_are_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let count = || fs::read_dir(dir.path()).expect("a directory").count();
    // A process that has ended and was waited for.
    let mut dead = Command::new("true").spawn().expect("true");
    dead.wait().expect("a child");
    fs::write(dir.path().join(format!("rtscope-load-{}-0", dead.id())), "").expect("written");
    let text = format!("disk size=64MiB workers=2 dir={}", dir.path().display());
    let mut running = start(&text);
    eventually("only the living have files", || count() == 2);
    assert!(process::signal(running.pid(), signal::KILL));
    assert!(!end_of(&mut running).ok);
    assert_eq!(count(), 0, "files are left");
}

fn a_directory_that_is_missing_is_an_error() {
    let text = refused("disk dir=/nowhere/at/all");
    assert!(text.contains("create /nowhere/at/all/"), "{text}");
}

fn the_host_keeps_its_network_devices() {
    let before = devices::lasting();
    let running = start("network over=veth");
    assert_eq!(devices::lasting(), before, "a device of the load's is in the host's namespace");
    drop(running);
    assert_eq!(devices::lasting(), before);
}

/// A command whose processes leave its group, its session, and its process tree; and the word by
/// which all of them are found.
fn tree(seed: &str) -> (String, String) {
    let word = format!("6{seed}{}", std::process::id());
    let sleep = format!("sleep {word}");
    let gone = format!("setsid sh -c \"{sleep} & setsid {sleep} & exit\"");
    (format!("external -- {sleep} & {gone} & {sleep}"), word)
}

const TREE: usize = 4;

fn a_whole_tree_is_ended() {
    let (text, word) = tree("1");
    let running = start(&text);
    eventually("the tree has grown", || with_word(&word) == TREE);
    assert!(running.stop().ok);
    assert_eq!(with_word(&word), 0);
}

fn a_whole_tree_dies_with_rtscope() {
    let (text, word) = tree("2");
    killed_holder(&text, || eventually("the tree has grown", || with_word(&word) == TREE));
    eventually("the tree is gone", || with_word(&word) == 0);
}

fn a_whole_tree_is_ended_without_its_supervisor() {
    let (text, word) = tree("3");
    let mut running = start(&text);
    eventually("the tree has grown", || with_word(&word) == TREE);
    assert!(process::signal(running.pid(), signal::KILL));
    assert!(!end_of(&mut running).ok);
    assert_eq!(with_word(&word), 0);
}

fn a_command_is_started_again() {
    let word = format!("64{}", std::process::id());
    // Each run leaves a process behind, which must be gone before the next run.
    let running = start(&format!("external -- sleep {word} & true"));
    eventually("it has run often", || running.work() > 5);
    assert!(with_word(&word) <= 1);
    assert!(running.stop().ok);
    assert_eq!(with_word(&word), 0);
}

fn a_command_may_run_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let mut running =
        start(&format!("external restart=false log={} -- echo a; echo b >&2", log.display()));
    assert_eq!(end_of(&mut running), EndedLoad { ok: true, how: "its work was done".to_owned() });
    assert_eq!(running.work(), 1);
    assert_eq!(fs::read_to_string(log).expect("a log"), "a\nb\n");
}

fn a_command_that_fails_is_an_error() {
    let mut running = start("external -- sleep 0.2; exit 3");
    let ended = end_of(&mut running);
    assert!(!ended.ok && ended.how.contains("exit code 3 in run 1"), "{}", ended.how);
    let text = refused("external log=/nowhere/at/all -- true");
    assert!(text.contains("open /nowhere/at/all"), "{text}");
}

fn a_command_that_is_missing_is_an_error() {
    let text = refused("external -- no-such-program --fast");
    assert!(text.contains("\"no-such-program\" was not found: install it"), "{text}");
}

fn a_program_that_is_no_worker_is_an_error() {
    let start = |program: &str| {
        let launcher = Launcher { program: program.into(), ..launcher() };
        launcher.start(&line("cpu"), LIMIT).map(drop).expect_err("refused").to_string()
    };
    assert!(start("/bin/true").contains("exit code 0"));
    assert!(start("/no/such/program").contains("start /no/such/program"));
    assert!(!Path::new("/no/such/program").exists());
}

fn a_load_ends_without_waiting_for_it() {
    let mut running = start("message groups=1 fds=2");
    assert_eq!(running.poll(), None);
    running.ask_to_end();
    assert_eq!(end_of(&mut running), EndedLoad { ok: true, how: "stopped".to_owned() });
    assert_eq!(members(running.pid()).len(), 0, "something is left");
    let (work, pid) = (running.work(), running.pid());
    running.ask_to_end();
    assert_eq!((running.work(), running.pid()), (work, pid));
}

fn a_dropped_load_is_stopped() {
    let running = start("message groups=1 fds=2");
    let pid = running.pid();
    drop(running);
    assert_eq!(members(pid).len(), 0, "something is left");
}

fn a_load_runs_alone() {
    let mut rates = Vec::new();
    let (ended, all) =
        run_alone(&launcher(), &line("fork workers=1"), Nanos::from_ms(1_500), &mut |rate| {
            rates.push(rate);
        })
        .expect("it works");
    assert!(ended.ok && all.unit == "forks");
    assert_eq!(rates.len(), 2);
    assert_eq!(rates.iter().map(|rate| rate.work).sum::<u64>(), all.work);
    assert!(all.span_ns >= 1_500_000_000 && all.per_second() > 0.0);
}
