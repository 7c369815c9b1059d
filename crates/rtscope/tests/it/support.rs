//! Running the program, looking at what it left, and saying honestly what was skipped.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

pub(crate) use rtscope_testing::skip::{program, root_or_skip, skip};
use serde_json::Value;

/// The program, in a folder of its own, without what the environment may add.
pub(crate) fn rtscope(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rtscope"));
    command
        .current_dir(folder)
        .env_remove("RUST_BACKTRACE")
        .env_remove("COLUMNS")
        .stdin(Stdio::null());
    command.envs([mark()]);
    command
}

/// A variable in the environment of the program that these tests start, and so of whatever the program starts.
pub(crate) fn mark() -> (&'static str, String) {
    ("RTSCOPE_STARTED_BY_TESTS", std::process::id().to_string())
}

/// Runs it with arguments separated by blanks, and waits at most three minutes.
pub(crate) fn output(folder: &Path, arguments: &str) -> Output {
    output_of(rtscope(folder).args(words(arguments)))
}

/// Starts it with arguments separated by blanks; what it prints goes nowhere.
pub(crate) fn start(folder: &Path, arguments: &str) -> Child {
    let mut command = rtscope(folder);
    command.args(words(arguments)).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("starts")
}

/// Runs it with arguments that it can't follow: it ends with this code and says all of this.
pub(crate) fn refused(folder: &Path, arguments: &str, code: i32, said: &[&str]) {
    let output = output(folder, arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {stderr}");
    for part in said {
        assert!(stderr.contains(part), "{arguments}: {part:?} is not in {stderr}");
    }
    assert!(!stderr.contains("panicked"), "{arguments}: {stderr}");
}

/// Runs a command and waits at most three minutes.
pub(crate) fn output_of(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let id = child.id();
    let (done, waited) = std::sync::mpsc::channel();
    let guard = std::thread::spawn(move || {
        if waited.recv_timeout(Duration::from_secs(180)).is_err() {
            kill(id, "KILL");
        }
    });
    let output = child.wait_with_output().expect("ends");
    let _ = done.send(());
    guard.join().expect("the guard ends");
    output
}

/// Splits at blanks, but not inside single quotes.
pub(crate) fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in arguments.split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// What a successful `--json` command printed.
pub(crate) fn json(folder: &Path, arguments: &str) -> Value {
    let output = output(folder, arguments);
    let text = text(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("{arguments}: {e}\nstdout: {text}\nstderr: {}", self::text(&output.stderr))
    })
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder that goes when the test ends.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

pub(crate) fn kill(pid: u32, signal: &str) {
    let _ = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
}

/// How many times longer something may take beside others' work than on an idle machine.
const BUSY: u32 = 4;

/// Waits until something holds.
pub(crate) fn wait_for(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let limit = BUSY * limit;
    let until = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < until, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes whose command line contains a text, but not this test.
pub(crate) fn processes_with(needle: &str) -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own)
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            text(&line).replace('\0', " ").contains(needle)
        })
        .collect()
}

/// A number of seconds for `sleep`, written in a form that only this run of the tests uses. Another run may look for
/// its own processes on this machine. No such text is a part of another.
pub(crate) fn marked_seconds(seconds: u32) -> String {
    format!("{seconds}.{:07}", std::process::id())
}

/// Instances of the kernel's trace that an rtscope has made and that no living process owns. Another clone's tests may have
/// left some before.
pub(crate) fn left_instances() -> BTreeSet<String> {
    let all = fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_left = |name: &String| {
        let owner =
            name.strip_prefix("rtscope-").map(|rest| rest.split('-').next().unwrap_or(rest));
        owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    names.filter(is_left).collect()
}

/// Processes that these tests have started by way of the program, loads included. Others may use it at the same time.
pub(crate) fn processes_of_ours() -> Vec<u32> {
    let (name, value) = mark();
    let mark = format!("{name}={value}");
    let is_ours = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    processes_with("").into_iter().filter(is_ours).collect()
}
