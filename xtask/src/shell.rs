//! Other programs: found, run within a time limit, their output kept.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Artifact, Message, camino::Utf8PathBuf};

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long a build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// What became of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    /// None when it ran into its time limit and was killed.
    pub(crate) status: Option<ExitStatus>,
    /// Its standard output and error, in the order they were written.
    pub(crate) log: String,
}

impl Finished {
    /// Whether it ended by itself and well.
    pub(crate) fn is_ok(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Where a program is, when it is on the path or in one of the folders for administrators.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| {
        fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    })
}

/// `pip install` of Debian's Python, which also runs what it installs. None without that Python.
pub(crate) fn pip_install() -> Option<Command> {
    let mut pip = Command::new(find("/usr/bin/python3")?);
    pip.args(["-m", "pip", "install", "--quiet"]);
    Some(pip)
}

/// The cargo that runs this chore, called in the root of the checkout.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::root());
    command
}

/// Builds one program of ours and answers where it is.
pub(crate) fn built(words: &[&str]) -> Result<PathBuf> {
    executable(&messages(&[&["build"], words].concat())?)
}

/// What each step of the tests builds, and with what. Another selection of packages has other features, and another compiler
/// other results: cargo would build the program and all that it needs once more, which takes minutes.
///
/// Clippy's driver is the compiler with more lints, and its warnings are in cargo's output of a build. `cargo clippy` would
/// compile the workspace and all that it needs a second time. The driver skips
/// rustc's own (MIR) optimizations and its checks for null and misaligned pointers: the nightly workflow tests the crates
/// with unsafe code as rustc builds them.
pub(crate) const WORKSPACE: [&str; 3] = [
    "--workspace",
    "--features=rtscope/parquet",
    "--config=build.rustc-workspace-wrapper='clippy-driver'",
];

/// A program or an example as the tests' build makes it: rtscope as they start it.
pub(crate) fn tested(name: &str) -> Result<PathBuf> {
    let all = executables(&messages_of_tests()?);
    let found = all.into_iter().find(|path| path.file_name().is_some_and(|it| it == name));
    found.with_context(|| format!("cargo built no {name} for the tests"))
}

/// What cargo tells programs of the tests' build.
pub(crate) fn messages_of_tests() -> Result<String> {
    messages(&[&["test", "--no-run"], &WORKSPACE[..]].concat())
}

/// What cargo tells programs of a build.
fn messages(words: &[&str]) -> Result<String> {
    let mut cargo = cargo();
    cargo.args(words).args(["--quiet", "--message-format", "json-render-diagnostics"]);
    output(&mut cargo, BUILD_LIMIT)
}

/// The executable that cargo's messages name last.
pub(crate) fn executable(messages: &str) -> Result<PathBuf> {
    executables(messages).pop().context("cargo named no executable")
}

/// All executables that cargo's messages name.
pub(crate) fn executables(messages: &str) -> Vec<PathBuf> {
    let executables = artifacts(messages).filter_map(|artifact| artifact.executable);
    executables.map(Utf8PathBuf::into_std_path_buf).collect()
}

/// What cargo says it has made.
pub(crate) fn artifacts(messages: &str) -> impl Iterator<Item = Artifact> {
    Message::parse_stream(messages.as_bytes()).filter_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) => Some(artifact),
        _ => None,
    })
}

/// Runs a program with all of its output in a file. A file, not a pipe: a process that the program
/// leaves behind can't hold us up.
pub(crate) fn logged(command: &mut Command, log: &Path, limit: Duration) -> Result<Finished> {
    create(log)?;
    let status = appended(command, log, limit)?;
    Ok(Finished { status, log: read(log)? })
}

/// The same program with the same arguments, variables and folder. The kernel kills it when the thread that starts it
/// ends, so a killed chore leaves no tests running. The command stays as it is if setpriv or the program isn't found.
pub(crate) fn bound(command: &Command) -> Command {
    let program = command.get_program();
    let is_found = program.to_str().is_some_and(|name| find(name).is_some());
    let mut bound = match find("setpriv").filter(|_| is_found) {
        Some(setpriv) => {
            let mut bound = Command::new(setpriv);
            bound.args(["--pdeathsig", "KILL", "--"]).arg(program);
            bound
        }
        None => Command::new(program),
    };
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

/// Runs a program, and appends its output to a file that is there. The status as in [`Finished`].
pub(crate) fn appended(
    command: &mut Command,
    log: &Path,
    limit: Duration,
) -> Result<Option<ExitStatus>> {
    let file = File::options().append(true).open(log)?;
    let mut command = bound(command);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    wait(&mut start(&mut command)?, limit)
}

/// As [`logged`], for a program that may take as long as it likes while it writes: it is killed when it has
/// written nothing for some time.
pub(crate) fn logged_while_it_writes(
    command: &mut Command,
    log: &Path,
    silence: Duration,
) -> Result<Finished> {
    let file = create(log)?;
    let mut command = bound(command);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let mut child = start(&mut command)?;
    let mut written = 0;
    let status = loop {
        let status = wait_for(&mut child, silence)?;
        let now = file.metadata()?.len();
        if status.is_some() || now == written {
            break status;
        }
        written = now;
    };
    if status.is_none() {
        kill_tree(&mut child);
    }
    Ok(Finished { status, log: read(log)? })
}

/// Runs a program for what it writes to standard output.
///
/// Fails when the program does, with the last of what it wrote to standard error.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    // Two threads may call at once.
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}-{}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
    let scratch = crate::scratch()?;
    let [out, err] = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
    command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
    let status = wait(&mut start(command)?, limit)?;
    let (said, complained) = (read(&out)?, read(&err)?);
    let _ = (fs::remove_file(out), fs::remove_file(err));
    let how = match status {
        Some(status) if status.success() => return Ok(said),
        Some(status) => format!("failed ({status})"),
        None => format!("was still running after {} s", limit.as_secs()),
    };
    bail!("{} {how}: {}", shown(command), last_lines(&complained, 20));
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("can't write {}", path.display()))
}

pub(crate) fn read(path: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

pub(crate) fn start(command: &mut Command) -> Result<Child> {
    command.spawn().with_context(|| format!("can't start {}", shown(command)))
}

/// Waits for a program; at the limit it is killed with everything that it started.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let status = wait_for(child, limit)?;
    if status.is_none() {
        kill_tree(child);
    }
    Ok(status)
}

/// Waits for a program, for some time at most.
fn wait_for(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        thread::sleep(LOOK);
    }
}

/// Kills a program and everything that it started.
pub(crate) fn kill_tree(child: &mut Child) {
    let below: Vec<String> = processes_below(child.id()).iter().map(u32::to_string).collect();
    let _ = child.kill();
    let _ = Command::new("kill").arg("-KILL").args(below).stderr(Stdio::null()).status();
    let _ = child.wait();
}

pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn shown(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// What a process has started, and what that has started.
pub(crate) fn processes_below(pid: u32) -> Vec<u32> {
    descendants(pid, &parents())
}

/// Each running process with its parent.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, stat_fields(&stat)?.get(1)?.parse().ok()?))
    })
    .collect()
}

/// The fields of a line of `/proc/PID/stat` from the third on: the state is number 0. The second,
/// the name, may hold anything, so what follows its last parenthesis is read.
pub(crate) fn stat_fields(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace().collect())
}

fn descendants(of: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, p)| **p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn descendants_are_children_and_theirs() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 3), (5, 1), (6, 9)]);
        assert_eq!(descendants(2, &parents), [3, 4]);
        assert_eq!(descendants(6, &parents), [0; 0]);
    }

    #[test]
    fn a_name_with_a_parenthesis_does_not_shift_the_fields() {
        let fields = stat_fields("7 (a) b) S 1 7 7 0").expect("fields");
        assert_eq!(fields[..2], ["S", "1"]);
        assert!(stat_fields("").is_none());
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 1000 & wait"]);
        let finished = logged(&mut command, &folder.path().join("log"), Duration::from_secs(3))
            .expect("it ran");
        assert!(finished.status.is_none() && !finished.is_ok());
        assert_eq!(finished.log, "begun\n");
    }

    #[test]
    fn a_program_is_killed_when_its_starter_ends() {
        let starter = thread::spawn(|| {
            let mut sleep = Command::new("sleep");
            let child = start(&mut bound(sleep.arg("1000"))).expect("starts");
            let comm = format!("/proc/{}/comm", child.id());
            while fs::read_to_string(&comm).expect("alive") != "sleep\n" {
                thread::sleep(LOOK);
            }
            child
        });
        let mut child = starter.join().expect("no panic");
        let status = wait(&mut child, Duration::from_secs(60)).expect("waited for");
        assert_eq!(status.and_then(|status| status.signal()), Some(9));
    }

    #[test]
    fn a_program_has_the_same_words_variables_and_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo \"$1|$A|$HOME\"; pwd", "sh", "a b"]).current_dir(&folder);
        command.env("A", "c d").env_remove("HOME");
        let finished = logged(&mut command, &log, Duration::from_secs(60)).expect("it ran");
        assert_eq!(finished.log, format!("a b|c d|\n{}\n", folder.path().display()));
    }

    #[test]
    fn a_program_may_take_long_while_it_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let log = folder.path().join("log");
            logged_while_it_writes(&mut command, &log, Duration::from_secs(2)).expect("it ran")
        };
        let busy = run("for n in 1 2 3 4 5 6; do echo $n; sleep 0.5; done");
        assert!(busy.is_ok(), "it took longer than it may be silent: {busy:?}");
        let silent = run("echo begun; sleep 1000 & wait");
        assert!(silent.status.is_none() && silent.log == "begun\n", "{silent:?}");
    }

    #[test]
    fn cargo_names_the_executable() {
        let none = r#"{"reason":"build-finished","success":true}"#;
        assert!(executable(none).is_err());
    }

    #[test]
    fn the_end_of_a_text() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
    }
}
