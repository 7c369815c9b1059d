//! What is done to a running program: each fault begins at a moment, lasts for a while, and ends.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    keeper::{Held, Keeper, Undo, clock_ahead_ns, set_clock, set_online},
    machine::{self, Machine},
};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    Kill,
    Terminate,
    Interrupt,
    Stop,
    DiskFull,
    ClockStep,
    CpuOff,
    Memory,
    OutOfMemory,
    TracefsGone,
}

/// A fault's name on the command line and in the table, how often it is drawn, and what it is.
struct FaultRow {
    fault: Fault,
    name: &'static str,
    weight: u32,
    about: &'static str,
}

/// Half of all rounds kill: a kill may come at any instruction, and costs the least time.
const ROWS: &[FaultRow] = &[
    FaultRow { fault: Fault::Kill, name: "kill", weight: 60, about: "SIGKILL" },
    FaultRow { fault: Fault::Terminate, name: "term", weight: 6, about: "SIGTERM" },
    FaultRow { fault: Fault::Interrupt, name: "int", weight: 6, about: "SIGINT" },
    FaultRow { fault: Fault::Stop, name: "stop", weight: 6, about: "SIGSTOP, later SIGCONT" },
    FaultRow {
        fault: Fault::DiskFull,
        name: "disk",
        weight: 8,
        about: "the disk of the record is full",
    },
    FaultRow {
        fault: Fault::ClockStep,
        name: "clock",
        weight: 6,
        about: "the wall clock steps, and steps back",
    },
    FaultRow {
        fault: Fault::CpuOff,
        name: "cpu",
        weight: 5,
        about: "the last CPU goes offline, and comes back",
    },
    FaultRow {
        fault: Fault::Memory,
        name: "memory",
        weight: 5,
        about: "another process uses up memory",
    },
    FaultRow {
        fault: Fault::OutOfMemory,
        name: "oom",
        weight: 5,
        about: "a cgroup allows the program 256 KiB more memory",
    },
    FaultRow {
        fault: Fault::TracefsGone,
        name: "tracefs",
        weight: 6,
        about: "tracefs is unmounted, and mounted again",
    },
];

impl Fault {
    pub(super) fn all() -> impl Iterator<Item = Fault> {
        ROWS.iter().map(|row| row.fault)
    }

    fn row(self) -> &'static FaultRow {
        ROWS.iter().find(|row| row.fault == self).expect("every fault has a row")
    }

    pub(super) fn name(self) -> &'static str {
        self.row().name
    }

    pub(super) fn about(self) -> &'static str {
        self.row().about
    }

    pub(super) fn weight(self) -> u32 {
        self.row().weight
    }

    /// The fault that is called so.
    pub(super) fn parse(name: &str) -> Result<Fault> {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        let row = ROWS.iter().find(|row| row.name == name);
        Ok(row.with_context(|| format!("{name:?} is no fault: use {}", names.join(", ")))?.fault)
    }

    /// The signal by which the program may end.
    pub(super) fn ending_signal(self) -> Option<Signal> {
        match self {
            // The kernel kills what has no memory.
            Fault::Kill | Fault::OutOfMemory => Some(Signal::KILL),
            Fault::Terminate => Some(Signal::TERM),
            Fault::Interrupt => Some(Signal::INT),
            _ => None,
        }
    }
}

/// How strong a fault is, drawn before the round: times and amounts that the fault uses or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strength {
    /// How long the fault lasts, unless the program ends before.
    pub(super) lasts: Duration,
    /// By how much the wall clock steps.
    pub(super) step_ns: i64,
    /// The most memory that is used up.
    pub(super) memory_mib: u64,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Struck {
    Hit,
    /// The program had ended before.
    TooLate,
    /// It could not be done at this moment, and why.
    NotDone(String),
}

/// What a fault works on.
pub(super) struct Target<'a> {
    pub(super) child: &'a mut Child,
    pub(super) keeper: &'a Keeper,
    pub(super) machine: &'a Machine,
    /// The small disk on which the record is, in a round that fills it.
    pub(super) disk: &'a Path,
    /// The cgroup into which the program goes, in a round that limits its memory.
    pub(super) limit: Option<&'a MemoryLimit<'a>>,
}

/// Does it, waits, and ends it. The program may have ended meanwhile, or go on.
pub(super) fn strike(fault: Fault, strength: Strength, mut on: Target) -> Result<Struck> {
    if on.child.try_wait()?.is_some() {
        return Ok(Struck::TooLate);
    }
    match fault {
        Fault::Kill | Fault::Terminate | Fault::Interrupt => {
            send(on.child.id(), fault.ending_signal().context("a fault without a signal")?);
        }
        Fault::Stop => {
            send(on.child.id(), Signal::STOP);
            thread::sleep(strength.lasts);
            send(on.child.id(), Signal::CONT);
        }
        Fault::DiskFull => {
            let filler = on.disk.join("filler");
            fill(&filler)?;
            on.wait(strength.lasts)?;
            fs::remove_file(filler)?;
        }
        Fault::ClockStep => {
            let ahead_ns = clock_ahead_ns();
            let held = on.keeper.hold(Undo::Clock { ahead_ns })?;
            set_clock(ahead_ns + strength.step_ns)?;
            on.wait(strength.lasts)?;
            held.undo()?;
        }
        Fault::CpuOff => return on.without_cpu(strength.lasts),
        Fault::Memory => {
            let mib = machine::memory_to_use_mib().min(strength.memory_mib);
            let mut eater = eater(mib)?;
            on.wait(strength.lasts)?;
            // At the end of its standard input it ends.
            drop(eater.stdin.take());
            eater.wait()?;
        }
        Fault::OutOfMemory => {
            let limit = on.limit.context("a round without a cgroup")?;
            limit.enter(on.child.id())?;
            on.wait(strength.lasts)?;
            limit.lift()?;
        }
        Fault::TracefsGone => {
            let mount = Path::new(machine::TRACEFS);
            let source = machine::source_of(mount).context("tracefs is not mounted")?;
            machine::unmount(mount, true)?;
            let waited = on.wait(strength.lasts);
            machine::mount(("tracefs", &source), mount, "")?;
            waited?;
        }
    }
    Ok(Struck::Hit)
}

impl Target<'_> {
    /// Waits for a while, or until the program has ended.
    fn wait(&mut self, lasts: Duration) -> Result<()> {
        let until = Instant::now() + lasts;
        while Instant::now() < until && self.child.try_wait()?.is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn without_cpu(&mut self, lasts: Duration) -> Result<Struck> {
        let cpu = self.machine.last_cpu;
        // Such a thread would lose its CPU for good.
        if let Some(thread) = machine::pinned_by_others(cpu) {
            return Ok(Struck::NotDone(format!("{thread} is pinned to CPU {cpu}")));
        }
        let held = self.keeper.hold(Undo::Cpu(cpu))?;
        if let Err(error) = set_online(cpu, false) {
            return Ok(Struck::NotDone(format!("CPU {cpu} can't go offline: {error}")));
        }
        self.wait(lasts)?;
        held.undo()?;
        Ok(Struck::Hit)
    }
}

/// Sends a signal; to a process that has ended, it does nothing.
pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

/// Writes a file until the disk is full.
fn fill(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    let block = [0; 4096];
    loop {
        match file.write_all(&block) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            Err(error) => bail!("can't fill {}: {error}", path.display()),
        }
    }
}

/// Starts a process that uses up so much memory, until its standard input ends.
fn eater(mib: u64) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["soak", "--eat", &mib.to_string()]).stdin(Stdio::piped());
    command.spawn().context("can't start what uses up memory")
}

/// What that process does: it writes to each page again and again, so that the kernel finds no page to give to others.
pub(super) fn eat(mib: u64) -> Result<bool> {
    const PAGE: usize = 4096;
    // If there is too little memory after all, the kernel ends this process first.
    fs::write("/proc/self/oom_score_adj", "1000")?;
    let ended = thread::spawn(|| io::stdin().read(&mut [0]));
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    while !ended.is_finished() {
        if (blocks.len() as u64) < mib {
            blocks.push(vec![1; 1 << 20]);
            continue;
        }
        for block in &mut blocks {
            block.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
        }
        ensure!(!blocks.is_empty(), "there is no memory to use up");
    }
    Ok(true)
}

/// A small disk that a file fills: it is unmounted when the value is dropped.
pub(super) struct SmallDisk(pub(super) PathBuf);

impl SmallDisk {
    /// Large enough for a record of some seconds, and soon full.
    const SIZE: &str = "size=4m";

    pub(super) fn mount(folder: PathBuf) -> Result<SmallDisk> {
        fs::create_dir_all(&folder)?;
        machine::mount(("tmpfs", "tmpfs"), &folder, Self::SIZE)?;
        Ok(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = machine::unmount(&self.0, true) {
            eprintln!("error: {error:#}");
        }
    }
}

/// A cgroup that allows little memory. It is removed when the value is dropped.
pub(super) struct MemoryLimit<'a> {
    folder: PathBuf,
    file: &'static str,
    #[expect(dead_code, reason = "dropping it removes the cgroup")]
    held: Held<'a>,
}

impl<'a> MemoryLimit<'a> {
    /// So little that the next pages are too many.
    const BYTES: &'static str = "262144";

    pub(super) fn make(keeper: &'a Keeper) -> Result<MemoryLimit<'a>> {
        let (hierarchy, file) = machine::memory_cgroups().context("no cgroup limits memory")?;
        let folder = hierarchy.join(format!("soak-{}", std::process::id()));
        let held = keeper.hold(Undo::Folder(folder.clone()))?;
        fs::create_dir(&folder).with_context(|| format!("can't make {}", folder.display()))?;
        let limit = MemoryLimit { folder, file, held };
        limit.write(file, Self::BYTES)?;
        Ok(limit)
    }

    /// Moves a process into it. One that has ended meanwhile needs no limit.
    fn enter(&self, pid: u32) -> Result<()> {
        match fs::write(self.folder.join("cgroup.procs"), pid.to_string()) {
            Err(error) if error.raw_os_error() != Some(NO_PROCESS) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn lift(&self) -> Result<()> {
        self.write(self.file, if self.file == "memory.max" { "max" } else { "-1" })
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))
    }
}

/// ESRCH: there is no such process.
const NO_PROCESS: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_called_by_their_names() {
        for fault in Fault::all() {
            assert_eq!(Fault::parse(fault.name()).expect("its name"), fault);
            assert!(fault.weight() > 0 && !fault.about().is_empty());
        }
        assert!(Fault::parse("flood").expect_err("unknown").to_string().contains("kill, term"));
    }

    #[test]
    fn half_of_all_rounds_kill() {
        let all: u32 = Fault::all().map(Fault::weight).sum();
        assert!(Fault::Kill.weight() * 2 >= all, "{all}");
        let kills = |fault: &Fault| fault.ending_signal() == Some(Signal::KILL);
        assert_eq!(Fault::all().filter(kills).count(), 2);
    }
}
