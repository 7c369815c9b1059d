//! What a round may leave behind: processes, and whatever else of rtscope has a name in the system.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::Result;

/// The environment variable by which each process of a round is known, whatever program it runs.
pub(super) const MARK: &str = "RTSCOPE_SOAK_ROUND";

/// A program's file: its device and inode. A copy of rtscope that only the soak starts has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgramFile(u64, u64);

impl ProgramFile {
    pub(super) fn of(path: &Path) -> Result<ProgramFile> {
        let found = fs::metadata(path)?;
        Ok(ProgramFile(found.dev(), found.ino()))
    }
}

/// A process that should not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftProcess {
    pub(super) pid: u32,
    /// It runs the program under test, and not a command that the program started.
    pub(super) is_program: bool,
    pub(super) line: String,
}

/// Living processes that run a program's file, or that have a mark in their environment.
pub(super) fn processes(program: ProgramFile, mark: &str) -> Vec<LeftProcess> {
    let entry = format!("{MARK}={mark}");
    let left = |pid: u32| {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let is_program = ProgramFile::of(&folder.join("exe")).is_ok_and(|file| file == program);
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        let is_marked = environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes());
        // A dead process that nobody has waited for yet runs no more.
        let is_alive = || {
            let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
            let fields = crate::shell::stat_fields(&stat).unwrap_or_default();
            fields.first().is_some_and(|state| !["Z", "X"].contains(state))
        };
        ((is_program || is_marked) && is_alive()).then(|| {
            let line = fs::read(folder.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned();
            LeftProcess { pid, is_program, line }
        })
    };
    pids().into_iter().filter_map(left).collect()
}

/// Who else changes settings at this moment: another rtscope with a journal, or a program that holds CPUs awake.
pub(super) fn others(ours: &[ProgramFile]) -> Vec<String> {
    let is_foreign = |pid: u32| {
        ProgramFile::of(Path::new(&format!("/proc/{pid}/exe")))
            .is_ok_and(|exe| !ours.contains(&exe))
    };
    let journals = glob::glob("/run/rtscope/*-*.jsonl").into_iter().flatten().flatten();
    let journals = journals.filter(|path| owner(path).is_some_and(is_foreign));
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|path| path == Path::new(AWAKE))
    };
    let holders = pids().into_iter().filter(|pid| is_foreign(*pid)).filter(holds);
    let holders = holders.map(|pid| format!("process {pid} holds {AWAKE}"));
    journals.map(|path| path.display().to_string()).chain(holders).collect()
}

/// While a program has this file open, its value counts.
const AWAKE: &str = "/dev/cpu_dma_latency";

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = std::process::id();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != own).collect()
}

/// How the name of a mount begins.
pub(super) const MOUNT: &str = "mount ";

/// Where names of rtscope's may be, besides its mounts.
const PLACES: &[&str] = &[
    "dev/shm/rtscope*",
    "run/netns/rtscope*",
    "run/rtscope/*.jsonl*",
    "run/rtscope/*.damaged",
    "sys/class/net/rtscope*",
    "sys/fs/cgroup/*/rtscope*",
    "sys/fs/cgroup/rtscope*",
    "sys/kernel/tracing/instances/rtscope*",
];

/// What has a name: the soak's own mounts, and files and folders in [`PLACES`], below a root. What belongs to a living
/// process is no leftover.
pub(super) fn artefacts(root: &Path) -> BTreeSet<String> {
    let mounts = fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default();
    let mut found: BTreeSet<String> = mounts.lines().map(|line| format!("{MOUNT}{line}")).collect();
    for place in PLACES {
        let whole = root.join(place);
        let paths = glob::glob(&whole.to_string_lossy()).into_iter().flatten().flatten();
        let is_left = |path: &PathBuf| {
            owner(path).is_none_or(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        };
        let paths = paths.filter(is_left);
        found.extend(paths.map(|path| path.display().to_string()));
    }
    found
}

/// The process whose number is in a name: a journal's is `PID-STARTTIME.jsonl`, an instance's `rtscope-PID-N`.
fn owner(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.split('-').find_map(|part| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rtscope_testing::executable;

    use super::*;

    #[test]
    fn a_process_is_known_by_its_program_and_by_its_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join("copy");
        executable::copy(Path::new("/bin/sleep"), &copy);
        let file = ProgramFile::of(&copy).expect("there");
        let mark = format!("test-{}", std::process::id());
        let start = |program: &Path, mark: &str| {
            let mut command = Command::new(program);
            command.arg("1000").env(MARK, mark).stdin(Stdio::null());
            command.spawn().expect("starts")
        };
        assert_eq!(processes(file, &mark), []);
        let mut all = [start(&copy, "another"), start(Path::new("/bin/sleep"), &mark)];
        // A process that has been forked runs its program a moment later.
        let mut found = Vec::new();
        for _ in 0..250 {
            found = processes(file, &mark);
            if found.len() == 2 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for child in &mut all {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
        let kind = |pid: u32| found.iter().find(|one| one.pid == pid).map(|one| one.is_program);
        assert_eq!((kind(all[0].id()), kind(all[1].id())), (Some(true), Some(false)), "{found:?}");
        assert_eq!(processes(file, &mark), []);
    }

    #[test]
    fn a_mount_a_file_and_an_instance_are_found() {
        let root = tempfile::tempdir().expect("a folder");
        let make = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "tmpfs /a tmpfs rw 0 0\n").expect("written");
        };
        let before = artefacts(root.path());
        for path in [
            "proc/self/mounts",
            "dev/shm/rtscope-line-x",
            "run/rtscope/4000000-34.jsonl",
            "sys/kernel/tracing/instances/rtscope-4000001-0",
            "sys/fs/cgroup/cpuset/rtscope-shield",
        ] {
            make(path);
        }
        make("run/rtscope/lock");
        make(&format!(
            "sys/kernel/tracing/instances/rtscope-{}-0",
            std::os::unix::process::parent_id()
        ));
        assert_eq!(before.len(), 0);
        assert_eq!(artefacts(root.path()).len(), 5);
    }
}
