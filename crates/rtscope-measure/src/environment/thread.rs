//! Threads of real-time policies that are not ours: what may run before the measured threads.
//!
//! Sleeping ones are listed too. A thread that starts after the scan is not seen.

use rtscope_model::{environment::RealTimeThread, printable::printable};
use rtscope_sys::{sched::policy_of, tree::Tree};

use super::text::{numbered, value};

/// `PF_KTHREAD` in the kernel's `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// `PF_NO_SETAFFINITY` of the kernel.
const NO_SET_AFFINITY: u32 = 0x0400_0000;

/// `PF_EXITING` and `PF_SIGNALED` of the kernel.
const EXITING: u32 = 0x4;
const SIGNALED: u32 = 0x400;

/// Every thread of a real-time policy but those of one process.
pub(crate) fn real_time(tree: &Tree, own_pid: u32) -> Vec<RealTimeThread> {
    let mut found = Vec::new();
    for (pid, _) in numbered(tree.list("proc"), "").into_iter().filter(|(pid, _)| *pid != own_pid) {
        for (tid, _) in numbered(tree.list(format!("proc/{pid}/task")), "") {
            found.extend(one(tree, pid, tid));
        }
    }
    found
}

fn one(tree: &Tree, pid: u32, tid: u32) -> Option<RealTimeThread> {
    let folder = format!("proc/{pid}/task/{tid}");
    let stat = Stat::parse(&tree.read_bytes(format!("{folder}/stat")).ok()?)?;
    let policy = policy_of(stat.policy);
    if !policy.is_real_time() {
        return None;
    }
    let status = tree.read(format!("{folder}/status")).unwrap_or_default();
    let cpus = value(&status, "Cpus_allowed_list").and_then(|list| list.parse().ok());
    let process = tree.read(format!("proc/{pid}/comm")).ok().filter(|name| *name != stat.name);
    Some(RealTimeThread {
        pid,
        tid,
        process,
        policy,
        priority: stat.priority,
        cpus: cpus.unwrap_or_default(),
        kernel: stat.is_kernel(),
        name: stat.name,
    })
}

/// What is needed of the `stat` line of a process or thread (`proc_pid_stat(5)`). The parser of
/// procfs-core is not used: it panics on a line that is cut short.
pub(crate) struct Stat {
    pub(crate) name: String,
    /// `R` running, `S` sleeping, `Z` dead but not yet collected...
    pub(crate) state: String,
    /// Process that started its process; 0 for none.
    pub(crate) parent: u32,
    flags: u32,
    /// Page faults, with and without I/O.
    pub(crate) faults: u64,
    /// User and system time in clock ticks.
    pub(crate) cpu_ticks: u64,
    /// The same of its children that have ended and were waited for, and of theirs.
    pub(crate) children_ticks: u64,
    pub(crate) nice: i8,
    /// When it started, in clock ticks since boot: with the number, the name of a process that no
    /// later one can have.
    pub(crate) started_ticks: u64,
    /// The CPU that it ran on last.
    pub(crate) cpu: u32,
    pub(crate) priority: u8,
    pub(crate) policy: u32,
}

impl Stat {
    /// Whether it is the kernel's own.
    pub(crate) fn is_kernel(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether it belongs to its CPUs, so that nobody may move it.
    pub(crate) fn is_bound(&self) -> bool {
        self.flags & NO_SET_AFFINITY != 0
    }

    /// Whether it is the thread that starts those of the kernel. No cgroup takes it.
    pub(crate) fn is_kernel_parent(&self) -> bool {
        self.is_kernel() && self.parent == 0
    }

    /// Whether it is the thread that started then, and is neither dead nor on its way out: a fatal signal was taken, or the
    /// kernel already clears up after it.
    pub(crate) fn lives_since(&self, started_ticks: u64) -> bool {
        let is_dead = ["Z", "X"].contains(&self.state.as_str());
        let is_ending = self.flags & (EXITING | SIGNALED) != 0;
        self.started_ticks == started_ticks && !is_dead && !is_ending
    }

    pub(crate) fn parse(line: &[u8]) -> Option<Stat> {
        let line = String::from_utf8_lossy(line);
        // A name may hold brackets and blanks itself.
        let (head, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Fields are numbered from 1; the third is the first after the name.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Stat {
            name: printable(head.split_once('(')?.1).into_owned(),
            state: field(3)?.to_owned(),
            parent: field(4)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            faults: field(10)?.parse::<u64>().ok()?.saturating_add(field(12)?.parse().ok()?),
            cpu_ticks: field(14)?.parse::<u64>().ok()?.saturating_add(field(15)?.parse().ok()?),
            children_ticks: field(16)?
                .parse::<u64>()
                .ok()?
                .saturating_add(field(17)?.parse().ok()?),
            nice: field(19)?.parse().ok()?,
            started_ticks: field(22)?.parse().ok()?,
            cpu: field(39)?.parse().ok()?,
            priority: field(40)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtscope_model::schedule::Policy;

    use super::*;
    use crate::environment::fake::FakeTree;

    /// A stat line: fields 40 and 41 are priority and policy, 9 the flags.
    fn stat(tid: u32, name: &str, flags: u32, priority: u32, policy: u32) -> String {
        format!(
            "{tid} ({name}) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 -100 0 1 0 42 0 0 \
             18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1 {priority} {policy} 0 0 0 0 0 0 0 0 0 0 0\n"
        )
    }

    #[test]
    fn real_time_threads_of_others_are_found() {
        let fake = FakeTree::new();
        let threads = [
            (1, 1, "init", 0, 0, 0),
            (17, 17, "migration/0", KERNEL_THREAD, 99, 1),
            (200, 200, "pipewire", 0, 0, 0),
            (200, 203, "data) loop", 0, 88, 2),
            (300, 300, "sugov:0", KERNEL_THREAD, 0, 6),
            (555, 555, "rtscope", 0, 90, 1),
        ];
        for (pid, tid, name, flags, priority, policy) in threads {
            let folder = format!("proc/{pid}/task/{tid}");
            fake.file(&format!("{folder}/stat"), &stat(tid, name, flags, priority, policy));
            fake.file(&format!("{folder}/status"), "Name:\tx\nCpus_allowed_list:\t0-1\n");
        }
        let found = real_time(&fake.tree, 555);
        let found: Vec<_> = found
            .iter()
            .map(|t| (t.pid, t.tid, t.name.as_str(), t.policy, t.priority, t.kernel, t.cpus.len()))
            .collect();
        assert_eq!(
            found,
            [
                (17, 17, "migration/0", Policy::Fifo, 99, true, 2),
                (200, 203, "data) loop", Policy::Rr, 88, false, 2),
                (300, 300, "sugov:0", Policy::Deadline, 0, true, 2),
            ]
        );
    }

    proptest! {
        #[test]
        fn a_line_that_is_cut_short_is_refused(keep in 0.0..1.0f64, name in "[a-z() ]{1,15}") {
            let whole = stat(7, &name, 0, 42, 1);
            let read = Stat::parse(whole.as_bytes()).expect("a whole line");
            prop_assert_eq!((read.name, read.priority), (name, 42));
            let policy = whole.find(" 42 1 ").expect("fields 40 and 41") + 3;
            let short = &whole.as_bytes()[..(policy as f64 * keep) as usize];
            prop_assert!(Stat::parse(short).is_none());
        }
    }
}
