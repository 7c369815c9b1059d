//! What puts the machine back: what a fault did is undone when the fault ends, or by a process of its own if the soak dies.
//!
//! The keeper is this program once more. It reads on a pipe what there is to undo, and what is undone. At the end of the
//! pipe it undoes the rest: a soak that is killed at any instant, SIGKILL included, leaves the machine as it was.

use std::{
    collections::BTreeSet,
    fmt,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    str::FromStr,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, Timespec, clock_gettime, clock_settime},
};

/// Something that a soak does to the machine for a while.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Undo {
    /// A CPU is offline.
    Cpu(u32),
    /// The wall clock was stepped: by how much it is ahead of `CLOCK_MONOTONIC` when it is right.
    Clock { ahead_ns: i64 },
    /// A process runs, or is stopped.
    Process(u32),
    /// Settings may be changed by the program under test.
    Settings,
    /// A folder of the kernel's, such as a cgroup, was made.
    Folder(PathBuf),
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undo::Cpu(cpu) => write!(f, "cpu {cpu}"),
            Undo::Clock { ahead_ns } => write!(f, "clock {ahead_ns}"),
            Undo::Process(pid) => write!(f, "process {pid}"),
            Undo::Settings => f.write_str("settings 0"),
            Undo::Folder(path) => write!(f, "folder {}", path.display()),
        }
    }
}

impl FromStr for Undo {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Undo> {
        let (what, of) = text.split_once(' ').context("a line without a blank")?;
        Ok(match what {
            "cpu" => Undo::Cpu(of.parse()?),
            "clock" => Undo::Clock { ahead_ns: of.parse()? },
            "process" => Undo::Process(of.parse()?),
            "settings" => Undo::Settings,
            "folder" => Undo::Folder(of.into()),
            _ => anyhow::bail!("{what:?} can't be undone"),
        })
    }
}

impl Undo {
    /// Undoes it; nothing changes when it is undone already.
    fn undo(&self, program: &Path) -> Result<()> {
        match self {
            Undo::Cpu(cpu) => set_online(*cpu, true)?,
            Undo::Clock { ahead_ns } => set_clock(*ahead_ns)?,
            Undo::Process(pid) => {
                if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                    // It may be gone: that is what is asked for.
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            Undo::Settings => {
                let mut restore = Command::new(program);
                restore.args(["tune", "restore"]).stdin(Stdio::null());
                restore.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            }
            Undo::Folder(path) => remove_folder(path)?,
        }
        Ok(())
    }
}

/// Removes a cgroup when its last process has ended, which takes the kernel a moment.
fn remove_folder(path: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match std::fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if tries < 100 => thread::sleep(Duration::from_millis(20)),
            removed => return removed,
        }
        tries += 1;
    }
}

/// Takes a CPU away, or brings it back.
pub(super) fn set_online(cpu: u32, online: bool) -> io::Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    std::fs::write(path, if online { "1" } else { "0" })
}

/// By how much the wall clock is ahead of `CLOCK_MONOTONIC`.
pub(super) fn clock_ahead_ns() -> i64 {
    let ns = |time: Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
    ns(clock_gettime(ClockId::Realtime)) - ns(clock_gettime(ClockId::Monotonic))
}

/// Sets the wall clock so that it is so much ahead of `CLOCK_MONOTONIC`.
pub(super) fn set_clock(ahead_ns: i64) -> io::Result<()> {
    let now = clock_gettime(ClockId::Monotonic);
    let ns = now.tv_sec * 1_000_000_000 + now.tv_nsec + ahead_ns;
    let time =
        Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) };
    Ok(clock_settime(ClockId::Realtime, time)?)
}

/// The process that undoes, and the pipe to it.
pub(super) struct Keeper {
    child: Child,
    pipe: Mutex<Option<ChildStdin>>,
    program: PathBuf,
}

impl Keeper {
    /// Starts it. Ctrl-C doesn't reach it, because it has a process group of its own.
    pub(super) fn start(program: &Path) -> Result<Keeper> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["soak", "--keeper"]).arg(program).process_group(0).stdin(Stdio::piped());
        let mut child = command.spawn().context("can't start the keeper")?;
        let pipe = Mutex::new(child.stdin.take());
        Ok(Keeper { child, pipe, program: program.to_owned() })
    }

    /// One that undoes nothing: a test has no program of its own to be the keeper.
    #[cfg(test)]
    pub(super) fn of_tests() -> Keeper {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let pipe = Mutex::new(child.stdin.take());
        Keeper { child, pipe, program: "true".into() }
    }

    /// To be called before something is done to the machine.
    pub(super) fn hold(&self, undo: Undo) -> Result<Held<'_>> {
        self.tell('+', &undo)?;
        Ok(Held { keeper: self, undo: Some(undo) })
    }

    fn tell(&self, sign: char, undo: &Undo) -> Result<()> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = pipe.as_mut().context("the keeper has been ended")?;
        writeln!(pipe, "{sign}{undo}").context("the keeper is gone")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.child.wait();
    }
}

/// Something to undo. Dropping it undoes it.
pub(super) struct Held<'a> {
    keeper: &'a Keeper,
    undo: Option<Undo>,
}

impl Held<'_> {
    /// Undoes it, and says what went wrong.
    pub(super) fn undo(mut self) -> Result<()> {
        self.take()
    }

    /// There is nothing to undo any more: the process has ended.
    pub(super) fn forget(mut self) -> Result<()> {
        self.undo.take().map_or(Ok(()), |undo| self.keeper.tell('-', &undo))
    }

    fn take(&mut self) -> Result<()> {
        let Some(undo) = self.undo.take() else { return Ok(()) };
        undo.undo(&self.keeper.program).with_context(|| format!("can't undo {undo}"))?;
        self.keeper.tell('-', &undo)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.take() {
            eprintln!("error: {error:#}");
        }
    }
}

/// What the keeper does: it waits for the end of its standard input, and undoes what is left.
pub(super) fn keep(program: &Path) -> bool {
    let mut is_ok = true;
    for undo in left(BufReader::new(io::stdin())) {
        if let Err(error) = undo.undo(program) {
            eprintln!("error: can't undo {undo}: {error:#}");
            is_ok = false;
        }
    }
    is_ok
}

/// What is left to undo when the lines end: processes first, so that nothing changes a setting after it was restored.
fn left(lines: impl BufRead) -> Vec<Undo> {
    let mut left = BTreeSet::new();
    for line in lines.lines().map_while(Result::ok) {
        let Some((sign, text)) = line.split_at_checked(1) else { continue };
        match (sign, text.parse()) {
            ("+", Ok(undo)) => drop(left.insert(undo)),
            ("-", Ok(undo)) => drop(left.remove(&undo)),
            _ => eprintln!("error: not understood: {line}"),
        }
    }
    let (mut first, last): (Vec<Undo>, Vec<Undo>) =
        left.into_iter().partition(|undo| matches!(undo, Undo::Process(_)));
    first.extend(last);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_undone_is_left_and_processes_end_first() {
        let text = "+settings 0\n+cpu 1\n+clock -5\n-cpu 1\n+process 7\nnonsense\n+process";
        let expected = [Undo::Process(7), Undo::Clock { ahead_ns: -5 }, Undo::Settings];
        assert_eq!(left(text.as_bytes()), expected);
        assert_eq!(left("+cpu 3\n+clock 9\n-clock 9\n-cpu 3\n".as_bytes()), []);
    }

    #[test]
    fn what_is_told_is_what_is_read() {
        let all = [
            Undo::Cpu(3),
            Undo::Clock { ahead_ns: i64::MIN },
            Undo::Process(12),
            Undo::Settings,
            Undo::Folder("/sys/fs/cgroup/a b".into()),
        ];
        for undo in all {
            assert_eq!(undo.to_string().parse::<Undo>().expect("read"), undo);
        }
        assert!("card 3".parse::<Undo>().is_err() && "cpu".parse::<Undo>().is_err());
    }
}
