//! A round: a command is started, a fault comes, and everything is checked.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::{
    draw::{Drawn, Restorer},
    fault::{Fault, MemoryLimit, SmallDisk, Struck, Target, send, strike},
    keeper::{Keeper, Undo},
    leftovers::{self, MARK, MOUNT, ProgramFile},
    machine::Machine,
    snapshot::Snapshot,
    subject::{Places, Subject, plan},
    sums,
};
use crate::shell;

/// A command that takes longer hangs: each lasts some seconds, and none of the faults more.
const HANGS: Duration = Duration::from_secs(60);

/// Loads of a killed run die at once; on a busy machine the kernel takes a while to end them.
const DIES_IN: Duration = Duration::from_secs(5);

/// Another rtscope may have changed settings: how long is waited for its end.
const OTHERS_END_IN: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 10 });

/// The kernel takes a moment to move threads back, and to remove a cgroup.
const SETTLES_IN: Duration = Duration::from_secs(3);

/// Of a shield that stays, each thread differs: so many are told.
const TOLD_MAX: usize = 8;

/// How often something is looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// Exit codes of a panic and of an abort.
const CRASHED: [i32; 2] = [101, 134];

/// That of a command line that makes no sense here. No round has one, except for a shield of a CPU that is away.
const REFUSED: i32 = 64;

/// What rounds share.
pub(super) struct Stage<'a> {
    /// A copy of rtscope that only this soak starts.
    pub(super) program: PathBuf,
    pub(super) file: ProgramFile,
    /// The files of all copies, that of the witness too.
    pub(super) ours: Vec<ProgramFile>,
    pub(super) folder: PathBuf,
    pub(super) keeper: &'a Keeper,
    pub(super) machine: &'a Machine,
    /// Ends every mark, so that two soaks don't meet.
    pub(super) mark: String,
}

/// What came of a round.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) struck: Struck,
    /// The command line, for people.
    pub(super) line: String,
    pub(super) problems: Vec<String>,
    /// Others changed something at the same time, so that these differences prove nothing.
    pub(super) doubtful: Vec<String>,
}

impl Stage<'_> {
    /// A command of rtscope in the round's folder; what it prints goes to files there.
    fn command(&self, words: &[String], name: &str) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.folder).env(MARK, &self.mark).process_group(0);
        let file = |end: &str| File::create(self.folder.join(format!("{name}.{end}")));
        command.stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?);
        Ok(command)
    }

    /// Runs a command of rtscope to its end.
    pub(super) fn run(&self, line: &str, name: &str) -> Result<Finished> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        self.run_words(&words, name)
    }

    fn run_words(&self, words: &[String], name: &str) -> Result<Finished> {
        let began = Instant::now();
        let mut child = shell::start(&mut self.command(words, name)?)?;
        let held = self.keeper.hold(Undo::Process(child.id()))?;
        let status = shell::wait(&mut child, HANGS)?;
        held.forget()?;
        self.finished(name, status, began.elapsed())
    }

    fn finished(
        &self,
        name: &str,
        status: Option<ExitStatus>,
        lived: Duration,
    ) -> Result<Finished> {
        let read = |end: &str| -> Result<String> {
            let bytes = fs::read(self.folder.join(format!("{name}.{end}")))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Finished { status, lived, out: read("out")?, err: read("err")? })
    }

    /// Runs a command without a fault: for how long, or why it doesn't run here. Fails if it ends as no command may.
    pub(super) fn trial(&self, subject: &Subject) -> Result<Result<Duration, String>> {
        let file = self.folder.join("plan.toml");
        fs::write(&file, plan("message groups=1"))?;
        let out = self.folder.join("out");
        let places = Places {
            program: &self.program,
            plan: &file,
            out: &out,
            load: "message groups=1",
            settings: &["swappiness=11"],
        };
        let ran = self.run_words(&subject.words(&places), "trial")?;
        if subject.keeps {
            self.run("tune restore", "restore")?;
        }
        let problems = ran.problems(Fault::Kill, &Struck::TooLate);
        ensure!(
            problems.is_empty(),
            "`{}`, without a fault: {}",
            subject.name,
            problems.join("; ")
        );
        fs::remove_dir_all(&self.folder)?;
        fs::create_dir_all(&self.folder)?;
        Ok(if ran.code() == Some(1) { Err(ran.first_complaint()) } else { Ok(ran.lived) })
    }

    /// A whole round. Its folder is kept for whoever looks at a failure.
    pub(super) fn round(&self, drawn: &Drawn) -> Result<Outcome> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir_all(&self.folder)?,
        }
        let mut disturbed = self.wait_for_others();
        let root = Path::new("/");
        let (before, named) = (Snapshot::take(root), leftovers::artefacts(root));
        disturbed |= !leftovers::others(&self.ours).is_empty();
        let disk = match drawn.fault {
            Fault::DiskFull => Some(SmallDisk::mount(self.folder.join("disk"))?),
            _ => None,
        };
        let out = disk.as_ref().map_or(&self.folder, |disk| &disk.0).join("out");
        let limit = match drawn.fault {
            Fault::OutOfMemory => Some(MemoryLimit::make(self.keeper)?),
            _ => None,
        };
        let (struck, words, finished) = self.strike(drawn, &out, limit.as_ref())?;
        let line = words.join(" ");
        let mut problems = finished.problems(drawn.fault, &struck);
        problems.extend(self.left_processes(drawn, &struck));
        if finished.is_killed() || drawn.ready.subject.keeps || drawn.fault == Fault::TracefsGone {
            problems.extend(self.restore(drawn)?);
        }
        if drawn.ready.subject.records {
            problems.extend(self.check_record(&out, &finished)?);
        }
        drop((disk, limit));
        let changed = within(SETTLES_IN, || {
            disturbed |= !leftovers::others(&self.ours).is_empty();
            let mut changed = differences(&named, &leftovers::artefacts(root));
            changed.extend(before.differences(&Snapshot::take(root)));
            if !changed.is_empty() {
                disturbed |= !leftovers::others(&self.ours).is_empty();
            }
            changed
        });
        let mut outcome = Outcome { struck, line, problems, doubtful: Vec::new() };
        // What another program changes meanwhile is not ours; what stays changed without one is.
        match disturbed {
            true => outcome.doubtful = changed,
            false => outcome.problems.extend(first_ones(changed)),
        }
        Ok(outcome)
    }

    /// Waits until nobody else changes settings; whether somebody still does.
    fn wait_for_others(&self) -> bool {
        !within(OTHERS_END_IN, || leftovers::others(&self.ours)).is_empty()
    }

    /// Starts the command, waits for the moment, strikes, and waits for the end.
    fn strike(
        &self,
        drawn: &Drawn,
        out: &Path,
        limit: Option<&MemoryLimit>,
    ) -> Result<(Struck, Vec<String>, Finished)> {
        let file = self.folder.join("plan.toml");
        fs::write(&file, plan(drawn.load))?;
        let places = Places {
            program: &self.program,
            plan: &file,
            out,
            load: drawn.load,
            settings: &drawn.settings,
        };
        let words = drawn.ready.subject.words(&places);
        let mut command = self.command(&words, "subject")?;
        let began = Instant::now();
        let mut child = shell::start(&mut command)?;
        let held = self.keeper.hold(Undo::Process(child.id()))?;
        thread::sleep(drawn.moment);
        let struck = self.strike_child(drawn, &mut child, limit);
        let status = shell::wait(&mut child, HANGS)?;
        let lived = began.elapsed();
        held.forget()?;
        Ok((struck?, words, self.finished("subject", status, lived)?))
    }

    fn strike_child(
        &self,
        drawn: &Drawn,
        child: &mut Child,
        limit: Option<&MemoryLimit>,
    ) -> Result<Struck> {
        let (keeper, machine, disk) = (self.keeper, self.machine, self.folder.join("disk"));
        let target = Target { child, keeper, machine, disk: &disk, limit };
        strike(drawn.fault, drawn.strength, target)
            .with_context(|| format!("fault {}", drawn.fault.name()))
    }

    /// Processes that outlive the command; all of them are ended.
    fn left_processes(&self, drawn: &Drawn, struck: &Struck) -> Vec<String> {
        let is_killed = drawn.fault.ending_signal() == Some(Signal::KILL) && *struck == Struck::Hit;
        let may_stay =
            |is_program: bool| is_killed && drawn.ready.subject.command_survives && !is_program;
        let look = || {
            let found = leftovers::processes(self.file, &self.mark);
            found.into_iter().filter(|one| !may_stay(one.is_program)).collect()
        };
        let left = within(DIES_IN, look);
        for one in leftovers::processes(self.file, &self.mark) {
            send(one.pid, Signal::KILL);
        }
        left.iter().map(|one| format!("still running: {} {}", one.pid, one.line)).collect()
    }

    /// Restores what was left; the first attempt may be killed too.
    fn restore(&self, drawn: &Drawn) -> Result<Vec<String>> {
        let line = match drawn.restorer {
            Restorer::TuneRestore => "tune restore",
            Restorer::Restore => "restore",
            Restorer::Measures => "load cpu --duration 100ms",
        };
        if let Some(after) = drawn.second_kill {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let mut child = shell::start(&mut self.command(&words, "killed-restore")?)?;
            let held = self.keeper.hold(Undo::Process(child.id()))?;
            thread::sleep(after);
            send(child.id(), Signal::KILL);
            child.wait()?;
            held.forget()?;
        }
        let restored = self.run(line, "restore")?;
        let mut problems = restored.problems(Fault::Stop, &Struck::Hit);
        if restored.code() != Some(0) {
            problems.push(format!("`rtscope {line}` said: {}", restored.err.trim()));
        }
        Ok(problems)
    }

    /// Whether the record can be read, and its sums are right.
    fn check_record(&self, out: &Path, finished: &Finished) -> Result<Vec<String>> {
        let is_ended = sums::is_ended(out);
        if finished.code() == Some(0) && !is_ended {
            return Ok(vec!["it ended with 0, and the record isn't complete".to_owned()]);
        }
        if !sums::is_begun(out) {
            return Ok(Vec::new());
        }
        self.judge(out, finished.lived)
    }

    /// Lets rtscope judge a record, and checks the document.
    pub(super) fn judge(&self, out: &Path, lived: Duration) -> Result<Vec<String>> {
        let report = self.run(&format!("report {} --json", out.display()), "report")?;
        let mut problems = report.problems(Fault::Stop, &Struck::Hit);
        match serde_json::from_str(&report.out) {
            Ok(document) => problems.extend(sums::check(out, &document, lived)),
            Err(error) => problems.push(format!(
                "the record can't be read: {error}; code {:?}; {}",
                report.code(),
                report.err.trim()
            )),
        }
        Ok(problems)
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    /// None when it hung, and was killed.
    status: Option<ExitStatus>,
    pub(super) lived: Duration,
    pub(super) out: String,
    pub(super) err: String,
}

impl Finished {
    pub(super) fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Why it did not do what was asked.
    pub(super) fn first_complaint(&self) -> String {
        let line = self.err.lines().next().unwrap_or("it said nothing");
        let how = self.status.map_or("it hung".to_owned(), |status| status.to_string());
        format!("{} ({how})", line.trim_start_matches("rtscope: "))
    }

    fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }

    /// Whether a signal ended it, so that it could restore nothing.
    fn is_killed(&self) -> bool {
        self.code().is_none()
    }

    /// Whether it ended as a program may to which this has happened.
    pub(super) fn problems(&self, fault: Fault, struck: &Struck) -> Vec<String> {
        let mut problems = Vec::new();
        let ending = fault.ending_signal().filter(|_| *struck == Struck::Hit);
        let ending = ending.map(|signal| signal.as_raw());
        match (self.status, self.signal()) {
            (None, _) => problems.push(format!("it hung for {} s", HANGS.as_secs())),
            (_, Some(signal)) if Some(signal) != ending => {
                problems.push(format!("signal {signal} ended it"));
            }
            _ => {}
        }
        let is_wrong = |code: &i32| match *code {
            REFUSED => fault != Fault::CpuOff || !self.err.contains("shield: "),
            code => CRASHED.contains(&code),
        };
        if let Some(code) = self.code().filter(is_wrong) {
            problems.push(format!("its exit code was {code}: {}", shell::last_lines(&self.err, 5)));
        }
        if self.err.contains("panicked") {
            problems.push(format!("it panicked: {}", shell::last_lines(&self.err, 5)));
        }
        problems
    }
}

/// What a round left behind, and which mounts it took away: other programs remove files of theirs meanwhile, but nobody else
/// sees these mounts.
fn differences(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    let left = after.difference(before).map(|name| format!("left behind: {name}"));
    let gone = before.difference(after).filter(|name| name.starts_with(MOUNT));
    left.chain(gone.map(|name| format!("taken away: {name}"))).collect()
}

/// The first of many, and how many more there are.
fn first_ones(mut all: Vec<String>) -> Vec<String> {
    let more = all.len().saturating_sub(TOLD_MAX);
    all.truncate(TOLD_MAX);
    all.extend((more > 0).then(|| format!("and {more} more differences")));
    all
}

/// Looks again until there is nothing, or the time is over. What is there then.
fn within<T>(limit: Duration, mut look: impl FnMut() -> Vec<T>) -> Vec<T> {
    let until = Instant::now() + limit;
    loop {
        let found = look();
        if found.is_empty() || Instant::now() >= until {
            return found;
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests;
