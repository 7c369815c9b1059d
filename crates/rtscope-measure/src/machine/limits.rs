//! What the system allows this process: memory, locked memory, open files and threads.
//!
//! Everything is compared with what the plan needs before anything is started. A limit that is hit in the
//! middle of a run would end it, and a control group would kill the process.

use rtscope_sys::{
    process::{self, Resource},
    tree::Tree,
};

use crate::environment::text::value;

/// What a plan needs of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Sampling threads of the largest session.
    pub(crate) threads: u64,
    /// Slots, raw samples and stacks of the largest session.
    pub(crate) memory_bytes: u64,
    /// Files of all sessions: they stay open until the run ends.
    pub(crate) files: u64,
}

/// An amount that is left, and the sentence that says how to get more.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Room {
    left: u64,
    advice: String,
}

/// The limits that apply to this process; what can't be read limits nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    memory: Vec<Room>,
    locked: Option<Room>,
    threads: Vec<Room>,
}

/// Files and threads that the program needs besides the sampling threads: loads, events, settings.
const OWN: u64 = 128;

/// `CAP_IPC_LOCK`, as a bit of `CapEff`: `RLIMIT_MEMLOCK` doesn't apply.
const CAP_IPC_LOCK: u32 = 14;

/// `CAP_SYS_RESOURCE`: `RLIMIT_NPROC` doesn't apply.
const CAP_SYS_RESOURCE: u32 = 24;

impl Limits {
    /// Reads the limits of this process.
    pub(crate) fn read(tree: &Tree) -> Limits {
        let status = tree.read("proc/self/status").unwrap_or_default();
        let memlock = process::limit(Resource::LockedMemory).0;
        let processes = process::limit(Resource::Processes).0;
        Limits::parse(tree, &status, memlock, processes)
    }

    fn parse(tree: &Tree, status: &str, memlock: Option<u64>, processes: Option<u64>) -> Limits {
        let effective = value(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let has = |capability| effective.is_some_and(|bits| bits >> capability & 1 == 1);
        let size = value(status, "VmSize").and_then(kib).unwrap_or(0);
        let meminfo = tree.read("proc/meminfo").unwrap_or_default();
        let available = value(&meminfo, "MemAvailable")
            .and_then(kib)
            .map(|left| Room { left, advice: "set fewer threads or fewer buckets".to_owned() });
        let groups = || groups(tree);
        let memory = groups().filter_map(|group| group.memory(tree));
        // A limit below the size of the program fails at once and becomes a finding: nothing is locked then.
        let locked = memlock.filter(|limit| !has(CAP_IPC_LOCK) && *limit >= size);
        let locked = locked.map(|limit| Room {
            left: limit - size,
            advice:
                "raise the limit for locked memory (ulimit -l), or set fewer threads or buckets"
                    .to_owned(),
        });
        let user = processes.filter(|_| !has(CAP_SYS_RESOURCE)).map(|left| Room {
            left,
            advice: "raise the limit for processes (ulimit -u), or set fewer threads".to_owned(),
        });
        let threads = groups().filter_map(|group| group.threads(tree));
        Limits {
            memory: available.into_iter().chain(memory).collect(),
            locked,
            threads: user.into_iter().chain(system_threads(tree)).chain(threads).collect(),
        }
    }

    /// Memory in bytes that the machine and every control group of this process leave.
    pub(crate) fn memory_left(&self) -> Option<u64> {
        self.memory.iter().map(|room| room.left).min()
    }

    /// Compares what a plan needs with what there is. Raises the soft limit of open files where it is too
    /// low.
    ///
    /// # Errors
    ///
    /// The first limit that is too low: what is needed, what there is, and what to do.
    pub(crate) fn check(&self, need: &Need) -> Result<(), String> {
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        for Room { left, advice } in &self.memory {
            if need.memory_bytes > left / 2 {
                return Err(format!(
                    "the sampling threads need {} of memory, but only {} are available, of which they may use \
                        half: {advice}",
                    mib(need.memory_bytes),
                    mib(*left)
                ));
            }
        }
        if let Some(Room { left, advice }) = &self.locked
            && need.memory_bytes > *left
        {
            return Err(format!(
                "the sampling threads need {} of locked memory, but only {} may be locked: {advice}",
                mib(need.memory_bytes),
                mib(*left)
            ));
        }
        for Room { left, advice } in &self.threads {
            if need.threads + OWN > *left {
                return Err(format!(
                    "the plan needs {} threads and up to {OWN} for the program and its loads, but only \
                     {left} may be started: {advice}",
                    need.threads
                ));
            }
        }
        open_files(need.files + OWN)
    }
}

/// Raises the limit of open files to `needed` where it is lower.
fn open_files(needed: u64) -> Result<(), String> {
    let (soft, hard) = process::limit(Resource::OpenFiles);
    if soft.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let raised = (Some(needed), hard.map(|hard| hard.max(needed)));
    process::set_limit(Resource::OpenFiles, raised).map_err(|_| {
        format!(
            "the record needs {needed} open files, but only {} may be open: raise the limit (ulimit -n), \
             or set fewer threads or phases",
            hard.unwrap_or(u64::MAX)
        )
    })
}

/// Threads that the whole system may still start.
fn system_threads(tree: &Tree) -> Option<Room> {
    let number = |text: String| text.parse::<u64>().ok();
    let most = tree.read("proc/sys/kernel/threads-max").ok().and_then(number)?;
    let load = tree.read("proc/loadavg").unwrap_or_default();
    let running = load.split_whitespace().nth(3).and_then(|tasks| tasks.split_once('/'));
    let running = running.and_then(|(_, all)| all.parse::<u64>().ok()).unwrap_or(0);
    let advice = "raise kernel.threads-max (sysctl), or set fewer threads".to_owned();
    Some(Room { left: most.saturating_sub(running), advice })
}

/// A control group of this process, or one above it.
struct Group {
    folder: String,
    /// The first version of control groups, whose files have other names.
    is_first: bool,
}

/// The control groups of this process, each with those above it, that limit memory or threads.
fn groups(tree: &Tree) -> impl Iterator<Item = Group> {
    let text = tree.read("proc/self/cgroup").unwrap_or_default();
    let mut groups = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let root = match controllers {
            "" => "sys/fs/cgroup".to_owned(),
            name @ ("memory" | "pids") => format!("sys/fs/cgroup/{name}"),
            _ => continue,
        };
        let mut path = path.trim_matches('/');
        loop {
            let folder = format!("{root}/{path}");
            groups.push(Group { folder, is_first: !controllers.is_empty() });
            match path.rsplit_once('/') {
                Some((above, _)) => path = above,
                None if path.is_empty() => break,
                None => path = "",
            }
        }
    }
    groups.into_iter()
}

impl Group {
    fn number(&self, tree: &Tree, name: &str) -> Option<u64> {
        tree.read(format!("{}/{name}", self.folder)).ok()?.parse().ok()
    }

    /// Memory that the group leaves; what its members have read from files is given back when needed.
    fn memory(&self, tree: &Tree) -> Option<Room> {
        let (most, used, files) = match self.is_first {
            true => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            false => ("memory.max", "memory.current", "inactive_file"),
        };
        let limit = self.number(tree, most)?;
        let stat = tree.read(format!("{}/memory.stat", self.folder)).unwrap_or_default();
        let files = stat.lines().find_map(|line| line.strip_prefix(files)?.trim().parse().ok());
        let used = self.number(tree, used)?.saturating_sub(files.unwrap_or(0));
        let advice = format!("raise {most} of /{}, or set fewer threads or buckets", self.folder);
        Some(Room { left: limit.saturating_sub(used), advice })
    }

    fn threads(&self, tree: &Tree) -> Option<Room> {
        let (limit, used) = (self.number(tree, "pids.max")?, self.number(tree, "pids.current")?);
        let advice = format!("raise pids.max of /{}, or set fewer threads", self.folder);
        Some(Room { left: limit.saturating_sub(used), advice })
    }
}

/// `123 kB` in bytes.
fn kib(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    const MIB: u64 = 1 << 20;

    fn refusal(limits: &Limits, need: Need) -> String {
        limits.check(&need).expect_err("refused")
    }

    #[test]
    fn a_control_group_above_ours_limits_memory_and_threads() {
        let fake = FakeTree::new();
        fake.file("proc/self/cgroup", "0::/user/run\n");
        fake.file("sys/fs/cgroup/user/run/memory.max", "max\n");
        fake.file("sys/fs/cgroup/user/memory.max", "104857600\n");
        fake.file("sys/fs/cgroup/user/memory.current", "52428800\n");
        fake.file("sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 31457280\nslab 3\n");
        fake.file("sys/fs/cgroup/user/run/pids.max", "1000\n");
        fake.file("sys/fs/cgroup/user/run/pids.current", "400\n");
        let limits = Limits::parse(&fake.tree, "", None, None);
        assert_eq!(limits.memory_left(), Some(80 * MIB));
        let fits = Need { threads: 400, memory_bytes: 40 * MIB, files: 10 };
        assert_eq!(limits.check(&fits), Ok(()));
        let memory = refusal(&limits, Need { memory_bytes: 41 * MIB, ..fits });
        assert!(
            memory.contains("need 41 MiB of memory, but only 80 MiB are available"),
            "{memory}"
        );
        assert!(memory.contains("raise memory.max of /sys/fs/cgroup/user,"), "{memory}");
        let threads = refusal(&limits, Need { threads: 500, ..fits });
        assert!(threads.contains("only 600 may be started: raise pids.max"), "{threads}");
    }

    #[test]
    fn control_groups_of_the_first_version_limit_too() {
        let fake = FakeTree::new();
        fake.file("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a\n8:pids:/\n");
        fake.file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n");
        fake.file("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n");
        let limits = Limits::parse(&fake.tree, "", None, None);
        let refused = refusal(&limits, Need { memory_bytes: MIB, ..Need::default() });
        assert!(
            refused.contains("raise memory.limit_in_bytes of /sys/fs/cgroup/memory/a"),
            "{refused}"
        );
    }

    #[test]
    fn locked_memory_is_limited_unless_the_program_may_lock_any() {
        let fake = FakeTree::new();
        let status = |capabilities: &str| format!("VmSize:\t 20480 kB\nCapEff:\t{capabilities}\n");
        let check = |capabilities: &str, limit_mib: u64| {
            let limit = Some(limit_mib * MIB);
            let limits = Limits::parse(&fake.tree, &status(capabilities), limit, None);
            limits.check(&Need { memory_bytes: 50 * MIB, ..Need::default() })
        };
        let refused = check("0000000000000000", 64).expect_err("refused");
        assert!(refused.contains("only 44 MiB may be locked: raise"), "{refused}");
        assert_eq!(check("0000000000000000", 100), Ok(()));
        assert_eq!(check("0000000000004000", 64), Ok(()), "CAP_IPC_LOCK");
        assert_eq!(
            check("0000000000000000", 8),
            Ok(()),
            "nothing is locked, and a finding says so"
        );
    }

    #[test]
    fn threads_are_limited_by_the_user_and_by_the_system() {
        let fake = FakeTree::new();
        fake.file("proc/sys/kernel/threads-max", "2000\n");
        fake.file("proc/loadavg", "0.1 0.2 0.3 2/900 4711\n");
        let need = Need { threads: 1000, ..Need::default() };
        let system = refusal(&Limits::parse(&fake.tree, "", None, None), need);
        assert!(system.contains("only 1100 may be started: raise kernel.threads-max"), "{system}");
        let user = refusal(&Limits::parse(&fake.tree, "", None, Some(500)), need);
        assert!(user.contains("only 500 may be started: raise the limit for processes"), "{user}");
    }

    #[test]
    fn more_open_files_than_the_kernel_allows_are_refused() {
        let refused = refusal(&Limits::default(), Need { files: 1 << 40, ..Need::default() });
        assert!(refused.contains("ulimit -n"), "{refused}");
    }
}
