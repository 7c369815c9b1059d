//! The lab, end to end: Debian's kernels and our own booted in virtual time with this very program inside.
//!
//! Figures may be asserted here: in virtual time they come from the inputs, not from this machine.

mod batches;
mod beside;
#[path = "../it/book/blocks.rs"]
mod blocks;
mod ci;
mod command_line;
mod experiments;
mod explain;
mod failures;
mod preemption;
mod pull_lab;
mod reboot;
mod tutorial;
mod verbs;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use rtscope_lab::cache::Cache;
use rtscope_testing::skip::{program, skip};
use serde_json::Value;

/// A plan of two cells that takes a second of virtual time.
const PLAN: &str = "
name = 'small'
title = 'rest and disk'
[sampler]
policy = 'fifo'
priority = 90
interval = '500us'
warmup = '20ms'
[[phase]]
name = 'rest'
cycles = 400
[[phase]]
name = 'disk'
cycles = 1000
settle = '10ms'
load = ['disk']
[[published]]
phase = 'disk'
kernel = 'real-time'
figures = { max = '55us', missed = 0 }
source = 'somebody with a board'
";

/// Debian's real-time kernel meets this under `PLAN`. Its stock kernel without preemption doesn't.
const REQUIREMENT: &str = "max < 100us";

/// A plan of one phase of 0.2 s of virtual time.
const REST: &str =
    "name = 'rest'\n[sampler]\ninterval = '500us'\n[[phase]]\nname = 'rest'\ncycles = 400\n";

fn rtscope(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rtscope"));
    command.current_dir(folder).args(words).stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Whether the emulator and Debian's archive are there.
fn ready_or_skip(test: &str) -> bool {
    for (needed, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("apt-get", "apt")] {
        if program(needed).is_none() {
            skip(test, &format!("needs {package}"));
            return false;
        }
    }
    if !cfg!(target_arch = "x86_64") {
        skip(test, "boots kernels for x86-64");
        return false;
    }
    true
}

/// Whether a kernel is kept on this machine.
fn is_kept(kernel: &str) -> bool {
    let listed = rtscope(Path::new("."), &["lab", "cache", "list"]).output().expect("starts");
    text(&listed).contains(kernel)
}

/// The small real-time kernel of our own. To build it takes longer than all tests of the lab, so they boot it only where it
/// is kept.
const OWN: &str = "tiny-6.12-rt";

/// Whether our own kernel can boot here, for what Debian's can't do: it has simulated GPIO lines, and boots with two CPUs in
/// virtual time.
fn own_or_skip(test: &str) -> bool {
    let ready = ready_or_skip(test);
    if ready && !is_kept(OWN) {
        skip(test, "needs the small real-time kernel (rtscope kernel build tiny-6.12-rt)");
        return false;
    }
    ready
}

/// A real-time kernel for tests that work with any: our own if it is kept, since it takes a tenth less time.
fn any_kernel() -> &'static str {
    static KERNEL: OnceLock<&str> = OnceLock::new();
    KERNEL.get_or_init(|| if is_kept(OWN) { OWN } else { "debian-rt" })
}

/// A folder with the plan.
fn room() -> tempfile::TempDir {
    let room = tempfile::tempdir().expect("a folder");
    fs::write(room.path().join("small.toml"), PLAN).expect("written");
    room
}

fn document(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("comparison.json")).expect("a document");
    serde_json::from_str(&text).expect("JSON")
}

/// Worst latency by kernel and cell.
fn worst_ns(document: &Value) -> BTreeMap<(String, String), u64> {
    let kernels = document["kernels"].as_array().expect("kernels");
    let cells = kernels.iter().flat_map(|kernel| {
        let cells = kernel["cells"].as_array().expect("cells").iter();
        cells.map(move |cell| {
            let name = |value: &Value| value.as_str().expect("a name").to_owned();
            let max = cell["all"]["latency_ns"]["max"].as_u64().expect("a latency");
            ((name(&kernel["kernel"]), name(&cell["name"])), max)
        })
    });
    cells.collect()
}

/// Pins a program and its children to one CPU.
const ON_ONE_CPU: [&str; 3] = ["taskset", "-c", "0"];

/// Keeps that CPU busy until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        // Bound, should the test be killed.
        let words = ["timeout", "900", "sh", "-c", "while :; do :; done"];
        let words = [&ON_ONE_CPU[..], &words].concat();
        Busy(Command::new(words[0]).args(&words[1..]).spawn().expect("taskset"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // `timeout` hands a SIGTERM on; a SIGKILL would leave the loop behind it running.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_time_kernel_is_told_from_a_stock_one_and_a_record_is_replayed_on_a_busy_host() {
    let test =
        "a_real_time_kernel_is_told_from_a_stock_one_and_a_record_is_replayed_on_a_busy_host";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let words = [
        "lab",
        "run",
        "small.toml",
        "--kernel",
        "debian-stock:preempt=none",
        "--kernel",
        "debian-rt",
        "--fresh",
        // A build for tests is ten times the size of the one that ships.
        "--memory",
        "1024",
        "--out",
        "out",
        "--require",
        REQUIREMENT,
    ];
    let ran = rtscope(room.path(), &words).output().expect("starts");
    let out = room.path().join("out");
    let document = document(&out);
    assert_eq!(document["kernels"].as_array().map(Vec::len), Some(2), "{}", text(&ran));
    let worst = worst_ns(&document);
    let of = |kernel: &str, cell: &str| worst[&(kernel.to_owned(), cell.to_owned())];
    let (stock, real_time) = (of("debian-stock:preempt=none", "disk"), of("debian-rt", "disk"));
    assert!(real_time < 100_000, "the real-time kernel: {real_time} ns");
    assert!(stock > 2 * real_time, "stock {stock} ns, real-time {real_time} ns");
    // The stock kernel fails the requirement, and so the comparison does.
    assert_eq!(
        (ran.status.code(), &document["verdict"]),
        (Some(2), &Value::from("fail")),
        "{}",
        text(&ran)
    );
    assert_eq!(document["kernels"][1]["verdict"], Value::from("pass"), "{}", text(&ran));
    // Each guest's kernel says which preemption model it runs as.
    let models = [0, 1].map(|kernel| document["kernels"][kernel]["preemption"].as_str());
    assert_eq!(models, [Some("none"), Some("real-time")]);
    // Each guest's kernel shows itself as the one that was asked for.
    for kernel in document["kernels"].as_array().expect("kernels") {
        let checks = kernel["verification"]["checks"].as_array().expect("checks");
        for name in ["release", "real-time"] {
            let passed = |check: &Value| check["name"] == name && check["passed"] == true;
            assert!(checks.iter().any(passed), "{name}: {kernel:#}");
        }
        // The cache keeps the log of each run packed, and not a second time as the emulator wrote it.
        let key = kernel["inputs"]["key"].as_str().expect("a key");
        let kept = Cache::default().root().join("records").join(key);
        let is_there = |name: &str| kept.join(name).exists();
        assert!(is_there("replay.log.gz") && !is_there("replay.log.part"), "{}", kept.display());
    }
    let page = fs::read_to_string(out.join("index.html")).expect("a page");
    // Beside the published maximum, in its unit.
    let ours = format!("{:.2}", real_time as f64 / 1e3);
    let beside = format!("{}us in debian-rt", ours.trim_end_matches('0').trim_end_matches('.'));
    assert!(page.contains("somebody with a board") && page.contains(&beside), "{beside}");
    assert!(
        page.contains("debian-rt-seed1/report.html")
            && out.join("debian-rt-seed1/report.html").exists()
    );

    a_record_that_was_altered_is_told_from_its_replay(room.path());
}

/// Alters a record in a folder of two, after both were made; then what its guest brought comes out of the log
/// again, to the bit and on a busy host, and every altered file is named.
fn a_record_that_was_altered_is_told_from_its_replay(room: &Path) {
    const ALTERED: [&str; 3] = ["histograms.json", "plan.toml", "slices/t0.jsonl"];
    let record = room.join("out/debian-rt-seed1");
    let brought = ALTERED.map(|name| fs::read(record.join(name)).expect("brought"));
    let more = [brought[2].as_slice(), b"{}\n"].concat();
    fs::write(record.join("slices/t0.jsonl"), more).expect("written");
    fs::write(record.join("histograms.json"), "{}").expect("written");
    fs::remove_file(record.join("plan.toml")).expect("removed");
    // It is not taken for the known record, and nothing is overwritten.
    let mut words = vec!["lab", "run", "small.toml", "--memory", "1024", "--out", "out"];
    words.extend(["--require", REQUIREMENT]);
    words.extend(["--kernel", "debian-stock:preempt=none", "--kernel", "debian-rt"]);
    let refused = rtscope(room, &words).output().expect("starts");
    assert_eq!(refused.status.code(), Some(64), "{}", text(&refused));
    for said in ["histograms.json (altered)", "plan.toml (deleted)", "slices/t0.jsonl (altered)"] {
        assert!(text(&refused).contains(said), "{said}: {}", text(&refused));
    }
    assert!(!record.join("plan.toml").exists(), "the altered record is still there");

    let busy = Busy::start();
    let replay = [env!("CARGO_BIN_EXE_rtscope"), "lab", "replay", "out/debian-rt-seed1"];
    let mut pinned = Command::new(ON_ONE_CPU[0]);
    pinned.args(&ON_ONE_CPU[1..]).args(replay).current_dir(room).stdin(Stdio::null());
    let again = pinned.output().expect("starts");
    drop(busy);
    // All others are equal, and what the replay gave for these is what the guest had brought.
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));
    assert!(text(&again).contains("different: 3 of the files"), "{}", text(&again));
    assert!(!text(&again).contains("the replay differs"), "{}", text(&again));
    let kept = room.join("out/debian-rt-seed1.replayed");
    for (name, bytes) in ALTERED.iter().zip(&brought) {
        assert!(fs::read(kept.join(name)).is_ok_and(|again| again == *bytes), "{name}");
    }
}

#[test]
fn no_emulator_outlives_a_killed_rtscope() {
    let test = "no_emulator_outlives_a_killed_rtscope";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    fs::write(room.path().join("rest.toml"), REST).expect("written");
    let mark = room.path().join("killed").display().to_string();
    let words = [
        "lab",
        "run",
        "rest.toml",
        "--kernel",
        any_kernel(),
        "--fresh",
        "--memory",
        "1024",
        "--out",
        &mark,
    ];
    let mut child = rtscope(room.path(), &words).stderr(Stdio::null()).spawn().expect("starts");
    let emulator = |wanted: bool, limit: u64| {
        let until = Instant::now() + Duration::from_secs(limit);
        while emulators(&mark).is_empty() == wanted && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        emulators(&mark)
    };
    // The kernel may have to be fetched first.
    assert_eq!(emulator(true, 300).len(), 1, "the emulator runs");
    // Meanwhile nobody else writes there.
    let second = rtscope(room.path(), &words).output().expect("starts");
    let holder = format!("another rtscope (process {}) is writing into", child.id());
    assert_eq!(second.status.code(), Some(64), "{}", text(&second));
    assert!(text(&second).contains(&holder), "{}", text(&second));
    assert_eq!(emulators(&mark).len(), 1, "the first goes on");
    child.kill().expect("killed");
    child.wait().expect("gone");
    assert_eq!(emulator(false, 20), Vec::<PathBuf>::new(), "no emulator is left");
    goes_on_and_keeps_what_is_the_user_s(room.path(), &words);
}

/// Runs a command again after it was killed, and again over the record that it then made, beside which a user put a
/// letter.
fn goes_on_and_keeps_what_is_the_user_s(room: &Path, words: &[&str]) {
    let again = rtscope(room, words).output().expect("starts");
    assert_eq!(again.status.code(), Some(0), "{}", text(&again));
    let name = format!("killed/{}-seed1", any_kernel());
    let record = room.join(&name);
    fs::write(record.join("notes.txt"), "a letter").expect("written");
    let refused = rtscope(room, words).output().expect("starts");
    assert_eq!(refused.status.code(), Some(64), "{}", text(&refused));
    assert!(text(&refused).contains("did not write notes.txt"), "{}", text(&refused));
    let replayed = rtscope(room, &["lab", "replay", &name]).output();
    let replayed = replayed.expect("starts");
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed));
    for said in ["not compared: report.html, verdict.json, which", "not compared: notes.txt, which"]
    {
        assert!(text(&replayed).contains(said), "{}", text(&replayed));
    }
    // A replay ends at once, and leaves no emulator.
    let mut replay = rtscope(room, &["lab", "replay", &name]);
    let mut replay = replay.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let mark = format!("/replay-{}/", replay.id());
    let until = Instant::now() + Duration::from_secs(60);
    while emulators(&mark).is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(50));
    }
    Command::new("kill").arg(replay.id().to_string()).status().expect("sent");
    assert_eq!(replay.wait().expect("gone").code(), Some(130));
    assert_eq!(emulators(&mark), Vec::<PathBuf>::new());
    fs::remove_file(record.join("lab.json")).expect("removed");
    let refused = rtscope(room, words).output().expect("starts");
    assert!(text(&refused).contains("no readable lab.json"), "{}", text(&refused));
    assert!(record.join("plan.toml").exists() && record.join("notes.txt").exists());
}

/// Processes of the emulator whose command line names a folder.
fn emulators(mark: &str) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.starts_with("qemu-system") && line.contains(mark)
    };
    processes.filter(is_ours).collect()
}

#[test]
fn what_cannot_boot_is_refused_before_it_does() {
    let room = room();
    let mut image = vec![0; 0x300];
    image[0x38..0x3c].copy_from_slice(b"ARM\x64");
    fs::write(room.path().join("Image"), &image).expect("written");
    fs::write(room.path().join("text"), "no kernel").expect("written");
    for (kernel, said) in [
        ("debain-rt", "did you mean \"debian-rt\"?"),
        ("path=text", "is not a kernel image"),
        ("path=none", "none"),
    ] {
        let words = ["lab", "run", "small.toml", "--kernel", kernel, "--cache", "cache"];
        let ran = rtscope(room.path(), &words).output().expect("starts");
        assert!(matches!(ran.status.code(), Some(1 | 64)), "{kernel}: {}", text(&ran));
        assert!(text(&ran).contains(said), "{kernel}: {}", text(&ran));
    }
}
