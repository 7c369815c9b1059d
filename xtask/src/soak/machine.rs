//! What can be done to this machine, and what can't, with the reason.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    fault::Fault,
    keeper::{Keeper, Undo, set_online},
    leftovers::MARK,
    snapshot::Snapshot,
};
use crate::shell;

pub(super) const TRACEFS: &str = "/sys/kernel/tracing";

/// Set in a soak that has its own mounts.
const HAS_OWN_MOUNTS: &str = "RTSCOPE_SOAK_OWN_MOUNTS";

/// What is never used up.
const MEMORY_KEPT_MIB: u64 = 4 * 1024;

/// How long a program that mounts may take.
const LIMIT: Duration = Duration::from_secs(30);

/// What faults work with here.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) last_cpu: u32,
    /// Each fault that can't be done, and why.
    pub(super) unavailable: Vec<(Fault, String)>,
    /// What the kernel alone changes when a CPU goes offline for the first time.
    pub(super) changed_by_kernel: Vec<String>,
}

/// Starts this program again with mounts of its own, unless it has them: what is mounted and unmounted then concerns
/// nobody else, and ends with the soak. Comes back only where that isn't possible.
pub(super) fn with_own_mounts(words: &[&str]) {
    let Some(unshare) = shell::find("unshare").filter(|_| !has_own_mounts()) else { return };
    let Ok(program) = std::env::current_exe() else { return };
    let own = ["--mount", "--propagation", "private", "--"];
    let mut probe = Command::new(&unshare);
    let allowed = probe.args(own).arg("true").output().is_ok_and(|one| one.status.success());
    if allowed {
        let mut command = Command::new(unshare);
        command.args(own).arg(program).arg("soak").args(words).env(HAS_OWN_MOUNTS, "1");
        let error = command.exec();
        eprintln!("error: can't start with own mounts: {error}");
    }
}

fn has_own_mounts() -> bool {
    std::env::var_os(HAS_OWN_MOUNTS).is_some()
}

impl Machine {
    /// Looks which of these faults can be done here.
    pub(super) fn look(faults: &[Fault], keeper: &Keeper) -> Result<Machine> {
        let cpus = shell::output(Command::new("nproc").arg("--all"), LIMIT)?;
        let last_cpu = cpus.trim().parse::<u32>()?.saturating_sub(1);
        let mut machine =
            Machine { last_cpu, unavailable: Vec::new(), changed_by_kernel: Vec::new() };
        for fault in faults {
            let why = match fault {
                Fault::DiskFull if !has_own_mounts() => Some("needs the right to mount".to_owned()),
                Fault::TracefsGone => without_tracefs(),
                Fault::ClockStep if !is_root() => Some("needs root".to_owned()),
                Fault::Memory => (memory_to_use_mib() == 0)
                    .then(|| format!("needs more than {MEMORY_KEPT_MIB} MiB of free memory")),
                Fault::OutOfMemory => memory_cgroups()
                    .filter(|_| is_root())
                    .is_none()
                    .then(|| "needs root and the memory controller of cgroups".to_owned()),
                Fault::CpuOff => machine.try_cpu(keeper)?,
                _ => None,
            };
            machine.unavailable.extend(why.map(|why| (*fault, why)));
        }
        Ok(machine)
    }

    /// Takes the last CPU away twice without rtscope. What the kernel changes at the first time stays so; at the second
    /// time nothing may change, so that whatever differs after a round is not the kernel's. Why it can't be done.
    fn try_cpu(&mut self, keeper: &Keeper) -> Result<Option<String>> {
        let cpu = self.last_cpu;
        if !is_root() || cpu == 0 {
            return Ok(Some("needs root and two CPUs".to_owned()));
        }
        if let Some(why) = loses_cpu_for_good(cpu) {
            return Ok(Some(why));
        }
        let root = Path::new("/");
        let toggle = || -> Result<Option<String>> {
            let held = keeper.hold(Undo::Cpu(cpu))?;
            if let Err(error) = set_online(cpu, false) {
                return Ok(Some(format!("CPU {cpu} can't go offline: {error}")));
            }
            thread::sleep(Duration::from_millis(200));
            held.undo()?;
            // The kernel's threads settle.
            thread::sleep(Duration::from_millis(200));
            Ok(None)
        };
        let before = Snapshot::take(root);
        if let Some(why) = toggle()? {
            return Ok(Some(why));
        }
        let first = Snapshot::take(root);
        self.changed_by_kernel = before.differences(&first);
        if let Some(why) = toggle()? {
            return Ok(Some(why));
        }
        let again = first.differences(&Snapshot::take(root));
        Ok(again.first().map(|one| format!("the kernel alone changes settings each time: {one}")))
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn without_tracefs() -> Option<String> {
    if !has_own_mounts() {
        return Some("needs the right to mount".to_owned());
    }
    let has_instances = Path::new(TRACEFS).join("instances").exists();
    (!has_instances).then(|| format!("needs tracefs at {TRACEFS}"))
}

/// What would not come back when a CPU does: cpusets of version 1, interrupts and threads that have only this one.
fn loses_cpu_for_good(cpu: u32) -> Option<String> {
    let cpuset = glob::glob("/sys/fs/cgroup/cpuset/*/cpuset.cpus").into_iter().flatten().flatten();
    if let Some(path) = cpuset.into_iter().next() {
        return Some(format!("{} would lose CPU {cpu} for good", path.display()));
    }
    let alone = cpu.to_string();
    let files = glob::glob("/proc/irq/*/smp_affinity_list").into_iter().flatten().flatten();
    for path in files {
        let name = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let is_used = fs::read_dir(path.with_file_name("")).into_iter().flatten().flatten();
        // A folder below it is a driver that has asked for the interrupt.
        let is_used = is_used.into_iter().any(|entry| entry.path().is_dir());
        if is_used && fs::read_to_string(&path).is_ok_and(|cpus| cpus.trim() == alone) {
            return Some(format!("interrupt {name} would lose CPU {cpu} for good"));
        }
    }
    pinned_by_others(cpu).map(|thread| format!("{thread} would lose CPU {cpu} for good"))
}

/// A thread that may run on this CPU only, and that is neither the kernel's nor of a round.
pub(super) fn pinned_by_others(cpu: u32) -> Option<String> {
    let alone = cpu.to_string();
    let threads = glob::glob("/proc/[0-9]*/task/[0-9]*").into_iter().flatten().flatten();
    threads.into_iter().find_map(|folder| {
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let is_pinned = field("Cpus_allowed_list:")?.trim() == alone;
        // The kernel's threads have no memory of their own.
        field("VmSize:").filter(|_| is_pinned)?;
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        let of_round = String::from_utf8_lossy(&environment).contains(MARK);
        (!of_round).then(|| format!("thread{}", field("Name:").unwrap_or_default()))
    })
}

/// Where a cgroup limits memory, and the file that does.
pub(super) fn memory_cgroups() -> Option<(PathBuf, &'static str)> {
    let version_1 = Path::new("/sys/fs/cgroup/memory");
    if version_1.join("memory.limit_in_bytes").exists() {
        return Some((version_1.to_owned(), "memory.limit_in_bytes"));
    }
    let version_2 = Path::new("/sys/fs/cgroup");
    let given = fs::read_to_string(version_2.join("cgroup.subtree_control")).unwrap_or_default();
    given
        .split_whitespace()
        .any(|one| one == "memory")
        .then(|| (version_2.to_owned(), "memory.max"))
}

/// How much memory may be used up, so that enough is kept for everybody else.
pub(super) fn memory_to_use_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    (kib.unwrap_or(0) / 1024).saturating_sub(MEMORY_KEPT_MIB)
}

/// Mounts a file system that has no device.
pub(super) fn mount((kind, source): (&str, &str), at: &Path, options: &str) -> Result<()> {
    ensure!(has_own_mounts(), "nothing is mounted where others would see it");
    let mut command = Command::new("mount");
    command.args(["-t", kind, source]).arg(at);
    if !options.is_empty() {
        command.args(["-o", options]);
    }
    shell::output(&mut command, LIMIT).with_context(|| format!("can't mount {}", at.display()))?;
    Ok(())
}

/// What is mounted there last, as the kernel names it: any word, of a file system without a device.
pub(super) fn source_of(at: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let of_line = |line: &str| {
        let mut words = line.split(' ');
        let source = words.next()?;
        (words.next()? == at.to_str()?).then(|| source.to_owned())
    };
    mounts.lines().filter_map(of_line).next_back()
}

/// Unmounts it: lazily, although files in it are open.
pub(super) fn unmount(at: &Path, lazily: bool) -> Result<()> {
    ensure!(has_own_mounts(), "nothing is unmounted where others would see it");
    let mut command = Command::new("umount");
    command.args(lazily.then_some("--lazy")).arg(at);
    shell::output(&mut command, LIMIT)
        .with_context(|| format!("can't unmount {}", at.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_mounted_where_others_would_see_it() {
        assert!(!has_own_mounts());
        let folder = tempfile::tempdir().expect("a folder");
        assert!(mount(("tmpfs", "tmpfs"), folder.path(), "").is_err());
        assert!(source_of(Path::new("/proc")).is_some());
        assert_eq!(source_of(folder.path()), None);
        assert!(unmount(folder.path(), true).is_err());
    }

    #[test]
    fn memory_is_kept_for_others() {
        let text = fs::read_to_string("/proc/meminfo").expect("there");
        let total = text.lines().next().and_then(|line| line.split_whitespace().nth(1));
        let total_mib = total.and_then(|kib| kib.parse::<u64>().ok()).expect("kB") / 1024;
        assert!(memory_to_use_mib() <= total_mib.saturating_sub(MEMORY_KEPT_MIB));
    }
}
