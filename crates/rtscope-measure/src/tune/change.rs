//! One change of the system: what was, what is asked, and how each is written and read back.
//!
//! Most changes are files that hold a value. The others (a folder of cgroups, a thread's place, a service) are read
//! and written as texts too, so that journal, read back and restore are the same for all of them.

use std::{
    io::{Error as IoError, ErrorKind},
    path::PathBuf,
};

use rtscope_model::{cpu::CpuSet, text::shell_word};
use rtscope_sys::{Error, sched, swap, tree::Tree};
use serde::{Deserialize, Serialize};

use super::{
    cgroup, kernel_thread,
    restore::RestoreOutcome,
    service,
    setting::{self, present},
};
use crate::environment::{Stat, online};

/// What a change is made to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChangeKind {
    /// A file that holds a value.
    #[default]
    File,
    /// A folder of cgroups: `absent` or `made`.
    Folder,
    /// A file in such a folder. It goes when the folder does.
    FileOfFolder,
    /// The cpuset controller for the children of a cgroup: `off` or `on`.
    Controller,
    /// Policy and priority of a thread, for example `fifo:50`.
    Policy,
    /// CPUs of a thread.
    Affinity,
    /// CPUs of a thread that the kernel moves by itself. Written only to restore them.
    Remembered,
    /// The cpuset of cgroup v1 that a thread is in.
    Cpuset,
    /// A unit of systemd: `active` or `inactive`.
    Service,
    /// A swap device: `off`, or its priority.
    Swap,
}

impl ChangeKind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_file(&self) -> bool {
        *self == ChangeKind::File
    }

    /// Whether there are hundreds of them, so that they are counted instead of listed.
    pub(super) fn is_bulk(self) -> bool {
        matches!(self, ChangeKind::Remembered | ChangeKind::Cpuset)
    }
}

/// A thread, named so that no later one can have the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ThreadName {
    pub(super) tid: u32,
    pub(super) started_ticks: u64,
    pub(super) name: String,
}

impl ThreadName {
    pub(super) fn of(tid: u32, stat: &Stat) -> ThreadName {
        ThreadName { tid, started_ticks: stat.started_ticks, name: stat.name.clone() }
    }

    /// Its number, as long as it is the same thread. One that is about to end is gone: no cgroup takes it any more.
    fn number(&self, tree: &Tree) -> Result<i32, Error> {
        self.stat(tree).map(|_| self.tid as i32)
    }

    /// What the kernel says of it, as long as it is the same thread.
    fn stat(&self, tree: &Tree) -> Result<Stat, Error> {
        let path = format!("proc/{}/stat", self.tid);
        let stat = Stat::parse(&tree.read_bytes(&path)?);
        let same = stat.filter(|stat| stat.lives_since(self.started_ticks));
        same.ok_or_else(|| gone(tree, &path))
    }
}

fn offline(cpus: &CpuSet) -> Error {
    let source = IoError::other("offline: bring one of them online, and run `rtscope restore`");
    Error::Call { call: format!("CPUs {cpus}"), source }
}

fn gone(tree: &Tree, path: &str) -> Error {
    let source = IoError::from(ErrorKind::NotFound);
    Error::File { operation: "find", path: tree.path(path), source }
}

/// One change: what a file (or folder, thread, service) held, and what it was made to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) setting: String,
    /// Below the root, without a leading slash; a unit's name for a service.
    pub(super) path: String,
    pub(super) old: String,
    pub(super) new: String,
    #[serde(default, skip_serializing_if = "ChangeKind::is_file")]
    pub(super) kind: ChangeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thread: Option<ThreadName>,
    /// CPUs of a thread before its cpuset was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpus: Option<CpuSet>,
}

impl Change {
    pub(super) fn file(setting: &str, path: &str, old: &str, new: &str) -> Change {
        let text = str::to_owned;
        Change {
            setting: text(setting),
            path: text(path),
            old: text(old),
            new: text(new),
            ..Change::default()
        }
    }

    /// What no two changes may have in common: each would restore what the other has changed.
    pub(super) fn key(&self) -> String {
        match (self.kind, &self.thread) {
            (ChangeKind::Policy, Some(thread)) => format!("the policy of thread {}", thread.tid),
            (_, Some(thread)) => format!("the CPUs of thread {}", thread.tid),
            _ => self.path.clone(),
        }
    }

    /// Where it is, for people.
    pub(super) fn place(&self, tree: &Tree) -> String {
        match (self.kind, &self.thread) {
            (ChangeKind::Service | ChangeKind::Swap, _) => self.path.clone(),
            (ChangeKind::Cpuset, Some(thread)) => {
                format!("cpuset of thread {} ({})", thread.tid, thread.name)
            }
            (ChangeKind::Policy, Some(thread)) => {
                format!("policy of thread {} ({})", thread.tid, thread.name)
            }
            (_, Some(thread)) => format!("CPUs of thread {} ({})", thread.tid, thread.name),
            _ => self.full_path(tree).display().to_string(),
        }
    }

    pub(super) fn full_path(&self, tree: &Tree) -> PathBuf {
        tree.path(&self.path)
    }

    fn thread(&self, tree: &Tree) -> Result<i32, Error> {
        self.thread.as_ref().ok_or_else(|| gone(tree, &self.path))?.number(tree)
    }

    /// What it holds now. An error of kind "not found" where the file or thread is no more.
    pub(super) fn present(&self, tree: &Tree) -> Result<String, Error> {
        match self.kind {
            ChangeKind::File | ChangeKind::FileOfFolder => present(tree, &self.path),
            ChangeKind::Folder => Ok(cgroup::state(tree, &self.path).to_owned()),
            ChangeKind::Controller => cgroup::controller(tree, &self.path),
            ChangeKind::Policy => kernel_thread::policy(self.thread(tree)?),
            ChangeKind::Affinity | ChangeKind::Remembered => {
                Ok(sched::affinity(self.thread(tree)?)?.to_string())
            }
            ChangeKind::Cpuset => tree.read(format!("proc/{}/cpuset", self.thread(tree)?)),
            ChangeKind::Service => service::state(tree, &self.path),
            ChangeKind::Swap => Ok(swap_state(tree, &self.path)),
        }
    }

    /// Whether what it holds is what was asked. The kernel may add a remark to the state of a partition.
    pub(super) fn is_as_asked(&self, found: &str) -> bool {
        match (self.kind, self.new.parse::<CpuSet>(), found.parse::<CpuSet>()) {
            (ChangeKind::Policy, ..) => kernel_thread::is_same(&self.new, found),
            (ChangeKind::FileOfFolder, Ok(asked), Ok(found)) => asked == found,
            _ => found == self.new,
        }
    }

    /// Whether what it holds after the old value was written is the old value. A thread shows only those of its CPUs that
    /// are online; it gets the others when they come back.
    pub(super) fn is_restored(&self, tree: &Tree, found: &str) -> bool {
        let shown = || cpus(&self.old).common(&online(tree)).to_string();
        found == self.old || (self.kind == ChangeKind::Affinity && found == shown())
    }

    /// Whether nobody needs to hear what became of it: it is one of hundreds, or goes with its folder.
    pub(super) fn is_quiet(&self, outcome: &RestoreOutcome) -> bool {
        let is_counted = self.kind.is_bulk() || self.kind == ChangeKind::FileOfFolder;
        is_counted && !matches!(outcome, RestoreOutcome::Failed(_))
    }

    /// Makes it hold a value.
    pub(super) fn write(&self, tree: &Tree, value: &str) -> Result<(), Error> {
        match self.kind {
            ChangeKind::File | ChangeKind::FileOfFolder => tree.write(&self.path, value),
            ChangeKind::Folder => cgroup::make_or_remove(tree, &self.path, value),
            ChangeKind::Controller => cgroup::switch_controller(tree, &self.path, value),
            ChangeKind::Policy => kernel_thread::set_policy(self.thread(tree)?, value),
            ChangeKind::Affinity => sched::set_affinity(self.thread(tree)?, &cpus(value)),
            // One whose CPUs stay as they are has nothing but these to go back to.
            ChangeKind::Remembered if value == self.new && value != self.old => Ok(()),
            ChangeKind::Remembered => self.restore_cpus(tree, &cpus(value)),
            ChangeKind::Cpuset => {
                let tid = self.thread(tree)?;
                let tasks = format!("{}{}/tasks", self.path, value.trim_end_matches('/'));
                tree.write(tasks, &tid.to_string())?;
                let before = self.cpus.as_ref().filter(|_| value == self.old);
                before.map_or(Ok(()), |before| self.restore_cpus(tree, before))
            }
            ChangeKind::Service => service::make(tree, &self.path, value),
            ChangeKind::Swap => swap_to(&self.path, value),
        }
    }

    /// Gives a thread the CPUs that it had before it was moved. Newer kernels remember them; older ones gave it all.
    fn restore_cpus(&self, tree: &Tree, before: &CpuSet) -> Result<(), Error> {
        let tid = self.thread(tree)?;
        let found = sched::affinity(tid)?;
        // Fewer CPUs than before: somebody has placed it since, or it was left where it was moved to.
        if found == *before || (!before.without(&found).is_empty() && found.to_string() != self.new)
        {
            return Ok(());
        }
        match sched::set_affinity(tid, before) {
            Err(error) if error.errno() == Some(INVALID) => {
                let is_offline = before.common(&online(tree)).is_empty();
                // The kernel moves its own bound threads back, and lets nobody else do it. Somebody may have put another
                // into a cpuset without these CPUs.
                if !is_offline || self.is_bound(tree) { Ok(()) } else { Err(offline(before)) }
            }
            other => other,
        }
    }

    fn is_bound(&self, tree: &Tree) -> bool {
        let stat = self.thread.as_ref().and_then(|thread| thread.stat(tree).ok());
        stat.is_some_and(|stat| stat.is_bound())
    }

    /// Whether a thread that is in its old cpuset again still has other CPUs than before beside its own: they were offline
    /// when it was put back.
    pub(super) fn has_more_cpus(&self, tree: &Tree) -> bool {
        let Some(before) = &self.cpus else { return false };
        let found = self.thread(tree).and_then(sched::affinity);
        found.is_ok_and(|found| found != *before && before.without(&found).is_empty())
    }

    /// Gives a thread its new CPUs where it has these and others.
    pub(super) fn narrow(&self, tree: &Tree) -> Result<(), Error> {
        let (tid, asked) = (self.thread(tree)?, cpus(&self.new));
        let found = sched::affinity(tid)?;
        if found == asked || !asked.without(&found).is_empty() {
            return Ok(());
        }
        sched::set_affinity(tid, &asked)
    }

    /// Whether it is a change that its setting makes on some machine. A journal is not trusted to name others.
    pub(super) fn is_owned(&self) -> bool {
        setting::find(&self.setting).is_ok_and(|setting| setting.owns(self))
    }

    /// The shell command that does what a failed restore did not.
    pub(super) fn repair_command(&self, tree: &Tree) -> String {
        let tid = self.thread.as_ref().map_or(0, |thread| thread.tid);
        let path = shell_word(&self.full_path(tree).display().to_string());
        match self.kind {
            ChangeKind::File | ChangeKind::FileOfFolder => {
                format!("echo {} > {path}", shell_word(&self.old))
            }
            ChangeKind::Folder => format!("rmdir {path}"),
            ChangeKind::Controller => format!("echo -cpuset > {path}"),
            ChangeKind::Policy => kernel_thread::policy_command(tid, &self.old),
            ChangeKind::Affinity | ChangeKind::Remembered => {
                format!("taskset -pc {} {tid}", shell_word(&self.old))
            }
            ChangeKind::Cpuset => {
                let old = self.old.trim_end_matches('/');
                format!("echo {tid} > {}", shell_word(&format!("/{}{old}/tasks", self.path)))
            }
            ChangeKind::Service => format!("systemctl start {}", shell_word(&self.path)),
            ChangeKind::Swap if self.old == AUTOMATIC => {
                format!("swapon {}", shell_word(&self.path))
            }
            ChangeKind::Swap => {
                format!("swapon -p {} {}", shell_word(&self.old), shell_word(&self.path))
            }
        }
    }
}

/// `EINVAL` on every architecture of Linux.
pub(super) const INVALID: i32 = 22;

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap_or_default()
}

/// Priority of a swap area that the kernel chose: below 0, and another one whenever an area comes or goes.
const AUTOMATIC: &str = "auto";

/// The priority of a swap area as it can be given back.
pub(super) fn priority_text(priority: i32) -> String {
    if priority < 0 { AUTOMATIC.to_owned() } else { priority.to_string() }
}

/// Devices and files that are swapped to, with their priority.
pub(super) fn swaps(tree: &Tree) -> Vec<(String, i32)> {
    let text = tree.read("proc/swaps").unwrap_or_default();
    let device = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The kernel writes blanks in names as octal numbers.
        let path = words.first()?.replace("\\040", " ");
        path.starts_with('/').then(|| Some((path, words.last()?.parse().ok()?)))?
    };
    text.lines().skip(1).filter_map(device).collect()
}

fn swap_state(tree: &Tree, device: &str) -> String {
    let found = swaps(tree).into_iter().find(|(path, _)| path == device);
    found.map_or_else(|| "off".to_owned(), |(_, priority)| priority_text(priority))
}

fn swap_to(device: &str, value: &str) -> Result<(), Error> {
    match value.parse::<i32>() {
        Ok(priority) => swap::on(device, priority),
        // A negative one is the kernel's to choose.
        Err(_) if value == AUTOMATIC => swap::on(device, -1),
        Err(_) => swap::off(device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn a_thread_that_ends_is_gone() {
        let fake = FakeTree::new();
        let thread = ThreadName { tid: 7, started_ticks: 42, name: "bash".to_owned() };
        // PF_EXITING, of include/linux/sched.h, and none.
        for (flags, is_there) in [(0, true), (4, false)] {
            let zeros = "0 ".repeat(20);
            let stat = format!("7 (bash) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 42 {zeros}");
            fake.file("proc/7/stat", &stat);
            assert_eq!(thread.number(&fake.tree).is_ok(), is_there);
        }
    }

    /// The kernel refuses CPUs of which none is online, and so do CPUs that a machine doesn't have.
    #[test]
    fn a_thread_whose_cpus_are_offline_is_not_called_restored() {
        let fake = FakeTree::new();
        let tid = rtscope_sys::thread::id() as u32;
        let before = sched::affinity(sched::SELF).expect("affinity").to_string();
        let stat = |flags: u32| {
            let zeros = "0 ".repeat(20);
            format!("{tid} (own) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 42 {zeros}")
        };
        let change = Change {
            kind: ChangeKind::Remembered,
            thread: Some(ThreadName { tid, started_ticks: 42, name: "own".to_owned() }),
            ..Change::file("shield", "", "1023", &before)
        };
        fake.file("sys/devices/system/cpu/online", "0\n");
        fake.file(&format!("proc/{tid}/stat"), &stat(0));
        let error = change.write(&fake.tree, &change.old).expect_err("offline").to_string();
        assert!(error.contains("1023") && error.contains("offline"), "{error}");
        // PF_NO_SETAFFINITY: the kernel's own.
        fake.file(&format!("proc/{tid}/stat"), &stat(0x0400_0000));
        change.write(&fake.tree, &change.old).expect("left to the kernel");
        // One of them is online, so a cpuset excludes them.
        fake.file("sys/devices/system/cpu/online", "0-1023\n");
        fake.file(&format!("proc/{tid}/stat"), &stat(0));
        change.write(&fake.tree, &change.old).expect("left alone");
        assert_eq!(sched::affinity(sched::SELF).expect("affinity").to_string(), before);
    }

    #[test]
    fn a_thread_is_restored_when_it_has_those_of_its_cpus_that_are_online() {
        let fake = FakeTree::new();
        fake.file("sys/devices/system/cpu/online", "0-1,3\n");
        let affinity = Change {
            kind: ChangeKind::Affinity,
            ..Change::file("thread-affinity", "", "0-2", "0")
        };
        assert!(affinity.is_restored(&fake.tree, "0-2"));
        assert!(affinity.is_restored(&fake.tree, "0-1"));
        assert!(!affinity.is_restored(&fake.tree, "0"), "CPU 1 is online");
        let file = Change::file("irq-affinity", "proc/irq/1/smp_affinity_list", "0-2", "0");
        assert!(!file.is_restored(&fake.tree, "0-1"));
    }
}
