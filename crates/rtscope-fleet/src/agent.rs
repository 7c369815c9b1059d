//! What this program does at a place: it keeps a job, and answers about it.
//!
//! The keeper runs the plan, and then waits until the job is given back or the lease ends. It holds a lock on the
//! file `keeper` as long as it lives, so that nobody mistakes another process for it.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rtscope_sys::{fork::signal, process, whole::write_anew};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{
    error::FleetError,
    hold::Hold,
    parcel::{self, RecordManifest},
};

/// Files of a job's folder.
pub const PROGRAM: &str = "rtscope";
pub const PLAN: &str = "plan.toml";
const KEEPER: &str = "keeper";
const RECORD: &str = "record";
const LOG: &str = "log";
const ENDED: &str = "ended.json";
const GIVEN_BACK: &str = "given-back";
/// Where Slurm hands the place out: it is there if the script of the allocation starts the keeper, when the second is
/// there.
const HELD: &str = "held";
const BEGIN: &str = "begin";

/// How often the keeper looks: it must not be what disturbs the measurement.
const LOOK: Duration = Duration::from_secs(1);

/// How long a run may take to end in order, and to restore what it changed.
const END_LIMIT: Duration = Duration::from_secs(20);

/// How long the keeper may take to begin, and to give back.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How long a keeper tries to get its lock.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(50);

/// Between two signs of life while files are hashed.
const ALIVE: Duration = Duration::from_secs(5);

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum JobState {
    /// The keeper hasn't begun.
    Copied,
    Running,
    /// The program isn't the one that was sent.
    Damaged,
    Ended(RunEnd),
    /// The keeper has gone and the run with it: it was killed, or the machine was rebooted.
    Cut,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// None when a signal ended it.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub seconds: u64,
    /// The last that it said.
    pub said: String,
}

/// Starts the keeper, which goes on when this process ends. The job is still only copied when the keeper didn't begin within
/// half a minute.
///
/// # Errors
///
/// The program can't be read or run, or its keeper ended at once.
pub fn begin(hold: &Hold, sha256: &str) -> Result<JobState, FleetError> {
    begin_within(ANSWER_LIMIT, hold, sha256)
}

fn begin_within(limit: Duration, hold: &Hold, sha256: &str) -> Result<JobState, FleetError> {
    let program = hold.path(PROGRAM);
    let found = parcel::sha256_of(&program).map_err(FleetError::file("read", &program))?;
    if found != sha256 {
        return Ok(JobState::Damaged);
    }
    match state(hold) {
        JobState::Copied => {}
        state => return Ok(state),
    }
    let mut keeper = match is_there(&hold.path(HELD)) {
        true => {
            let path = hold.path(BEGIN);
            File::create(&path).map_err(FleetError::file("write", path))?;
            None
        }
        false => Some(start_keeper(hold)?),
    };
    let since = Instant::now();
    while since.elapsed() < limit {
        match state(hold) {
            JobState::Copied => thread::sleep(POLL),
            state => return Ok(state),
        }
        let ended = keeper.as_mut().and_then(|keeper| keeper.try_wait().ok().flatten());
        if let Some(status) = ended {
            let said = fs::read_to_string(hold.path(LOG)).unwrap_or_default();
            return Err(FleetError::Place(format!("the keeper ended at once ({status}): {said}")));
        }
    }
    Ok(JobState::Copied)
}

fn start_keeper(hold: &Hold) -> Result<Child, FleetError> {
    let program = hold.path(PROGRAM);
    let keeper = Command::new(&program)
        .args(["fleet-agent", "keep", "--base"])
        .arg(hold.base())
        .args(["--job", hold.job()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    keeper.map_err(FleetError::file("run", program))
}

/// Keeps the job to its end: runs the plan, waits until the job is given back or its lease ends, and removes all.
///
/// # Errors
///
/// Another keeper has the job, the lease is somebody else's, or the run can't be started.
pub fn keep(hold: &Hold, stop: &dyn Fn() -> bool) -> Result<(), FleetError> {
    // Away from the connection that started it.
    let _ = rustix::process::setsid();
    let Some(lock) = lock_soon(hold)? else {
        return Err(FleetError::Refused("another keeper has this job".to_owned()));
    };
    if hold.left().is_none() {
        hold.remove()?;
        return Err(FleetError::Refused("this job doesn't have the lease".to_owned()));
    }
    let ends = || {
        stop() || hold.path(GIVEN_BACK).exists() || hold.left().is_none_or(|left| left.is_zero())
    };
    // It came so late that the job was given back meanwhile.
    if ends() {
        return hold.remove();
    }
    let attended = attend(hold, &ends);
    if attended.is_err() {
        // Whoever asks learns that the run was cut; without a log, that it never began.
        let has_begun = hold.path(LOG).exists();
        if !has_begun {
            hold.remove()?;
            return attended;
        }
        drop(lock);
    }
    while !ends() {
        thread::sleep(LOOK);
    }
    hold.remove()?;
    attended
}

/// Runs the plan and writes how it ended.
fn attend(hold: &Hold, ends: &dyn Fn() -> bool) -> Result<(), FleetError> {
    let began = Instant::now();
    let mut run = start_run(hold)?;
    let status = loop {
        match run.try_wait().map_err(FleetError::file("wait for", hold.path(PROGRAM)))? {
            Some(status) => break status,
            None if ends() => break end_run(&mut run),
            None => thread::sleep(LOOK),
        }
    };
    if status.code().is_none() {
        // It was killed, and may have left settings changed.
        let _ = Command::new(hold.path(PROGRAM)).arg("restore").stdin(Stdio::null()).status();
    }
    let end = run_end(hold, status, began.elapsed());
    let text = serde_json::to_vec(&end).unwrap_or_default();
    write_anew(&hold.path(ENDED), &text).map_err(FleetError::file("write", hold.path(ENDED)))
}

/// Whether a process is there; nothing is asked of none.
#[must_use]
pub fn is_alive(pid: Option<u32>) -> bool {
    pid.is_none_or(|pid| is_there(&Path::new("/proc").join(pid.to_string())))
}

/// The keeper's lock; none when another one keeps it. Who asks how far the job is ([`state`]) has it for a moment.
fn lock_soon(hold: &Hold) -> Result<Option<File>, FleetError> {
    let since = Instant::now();
    loop {
        match lock(hold)? {
            None if since.elapsed() < LOCK_LIMIT => thread::sleep(POLL),
            found => return Ok(found),
        }
    }
}

/// The keeper's lock; none when another one has it.
fn lock(hold: &Hold) -> Result<Option<File>, FleetError> {
    let path = hold.path(KEEPER);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(FleetError::file("open", path))?;
    Ok(flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file))
}

fn start_run(hold: &Hold) -> Result<Child, FleetError> {
    let log = File::create(hold.path(LOG)).map_err(FleetError::file("write", hold.path(LOG)))?;
    let errors = log.try_clone().map_err(FleetError::file("write", hold.path(LOG)))?;
    let mut run = Command::new(hold.path(PROGRAM));
    run.arg("run").arg(hold.path(PLAN)).arg("--out").arg(hold.path(RECORD)).arg("--quiet");
    run.current_dir("/").stdin(Stdio::null()).stdout(log).stderr(errors);
    process::bind_to_us(&mut run, true);
    run.spawn().map_err(FleetError::file("run", hold.path(PROGRAM)))
}

/// Ends a run in order, and if it doesn't obey, at once.
fn end_run(run: &mut Child) -> ExitStatus {
    let _ = process::signal(run.id(), signal::INTERRUPT);
    let since = Instant::now();
    loop {
        match run.try_wait() {
            Ok(Some(status)) => return status,
            Ok(None) if since.elapsed() < END_LIMIT => thread::sleep(POLL),
            _ => {
                let _ = process::signal_group(run.id(), signal::KILL);
                return run.wait().unwrap_or_default();
            }
        }
    }
}

fn run_end(hold: &Hold, status: ExitStatus, took: Duration) -> RunEnd {
    use std::os::unix::process::ExitStatusExt;
    let said = fs::read(hold.path(LOG)).unwrap_or_default();
    let said = String::from_utf8_lossy(&said[said.len().saturating_sub(2000)..]).trim().to_owned();
    RunEnd { exit_code: status.code(), signal: status.signal(), seconds: took.as_secs(), said }
}

/// What to say of a run that left no record.
pub(crate) fn why_no_record(end: Option<&RunEnd>) -> String {
    match end {
        Some(RunEnd { said, .. }) if !said.is_empty() => format!("the run made no record: {said}"),
        Some(RunEnd { exit_code: Some(code), .. }) => {
            format!("the run made no record (exit code {code})")
        }
        _ => "the run was cut and left no record".to_owned(),
    }
}

/// How far the job is.
#[must_use]
pub fn state(hold: &Hold) -> JobState {
    let ended = fs::read(hold.path(ENDED)).ok();
    if let Some(end) = ended.and_then(|text| serde_json::from_slice(&text).ok()) {
        return JobState::Ended(end);
    }
    let Ok(keeper) = File::open(hold.path(KEEPER)) else { return JobState::Copied };
    match flock(&keeper, FlockOperation::NonBlockingLockShared) {
        Err(_) => JobState::Running,
        // Between its first look and its lock, the keeper has no log yet.
        Ok(()) if hold.path(LOG).exists() => JobState::Cut,
        Ok(()) => JobState::Copied,
    }
}

/// The files of the record, as far as there are any. While it hashes, it writes line ends to `alive`, so that the other side
/// doesn't take the place for dead.
///
/// # Errors
///
/// They can't be read.
pub fn list(hold: &Hold, alive: &mut dyn Write) -> Result<RecordManifest, FleetError> {
    restore_if_cut(hold);
    let mut last = Instant::now();
    parcel::manifest(&hold.path(RECORD), &mut || {
        if last.elapsed() >= ALIVE {
            last = Instant::now();
            // Nobody may listen any more: the answer shows that.
            let _ = alive.write_all(b"\n").and_then(|()| alive.flush());
        }
    })
}

/// A run that was killed with its keeper may have left settings changed.
fn restore_if_cut(hold: &Hold) {
    if state(hold) == JobState::Cut {
        let _ = Command::new(hold.path(PROGRAM))
            .arg("restore")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
    }
}

/// Writes the files one behind the other, from an offset on.
///
/// # Errors
///
/// They can't be read, or nobody takes them.
pub fn send(hold: &Hold, offset: u64, out: &mut dyn Write) -> Result<(), FleetError> {
    parcel::send(&hold.path(RECORD), offset, out)
}

/// Gives the place back: the keeper ends the run and removes all; without a keeper, this does it. Whether it happened in time;
/// if not, the keeper does it later.
///
/// # Errors
///
/// The files can't be written or removed.
pub fn release(hold: &Hold) -> Result<bool, FleetError> {
    restore_if_cut(hold);
    let told = File::create(hold.path(GIVEN_BACK));
    match told {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        told => drop(told.map_err(FleetError::file("write", hold.path(GIVEN_BACK)))?),
    }
    let since = Instant::now();
    while is_there(&hold.folder()) {
        match lock(hold) {
            Err(_) if !is_there(&hold.folder()) => break,
            Ok(None) if since.elapsed() < ANSWER_LIMIT => thread::sleep(POLL),
            Ok(None) => return Ok(false),
            Ok(Some(_)) | Err(_) => return hold.remove().map(|()| true),
        }
    }
    Ok(true)
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node of Slurm whose batch job is gone: nobody looks for the file that asks it to begin.
    #[test]
    fn a_run_that_nobody_begins_may_begin_in_another_try() {
        let base = tempfile::tempdir().expect("a folder");
        let hold = Hold::new(base.path(), "ann-desk-1").expect("a job");
        fs::create_dir(hold.folder()).expect("a folder");
        fs::write(hold.path(PROGRAM), "a program").expect("written");
        fs::write(hold.path(HELD), "").expect("written");
        let sha256 = parcel::sha256_of(&hold.path(PROGRAM)).expect("read");
        let state = begin_within(POLL, &hold, &sha256).expect("no failure");
        assert_eq!(state, JobState::Copied);
        assert!(hold.path(BEGIN).exists(), "it was asked to");
        assert!(FleetError::NotBegun.may_pass());
    }

    /// Whoever asks how far the job is holds its lock for a moment: a keeper that comes just then waits.
    #[test]
    fn a_keeper_that_is_looked_at_gets_its_lock() {
        let base = tempfile::tempdir().expect("a folder");
        let hold = Hold::new(base.path(), "ann-desk-1").expect("a job");
        fs::create_dir(hold.folder()).expect("a folder");
        let look = lock(&hold).expect("a file");
        assert!(look.is_some() && lock(&hold).expect("a file").is_none(), "it is held");
        thread::scope(|scope| {
            let keeper = scope.spawn(|| lock_soon(&hold).expect("a file"));
            thread::sleep(2 * POLL);
            drop(look);
            assert!(keeper.join().expect("it ends").is_some());
        });
    }
}
