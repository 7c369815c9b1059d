//! Everything that rtscope may change in the kernel, read before and after: byte for byte.
//!
//! The list is made from the kernel's documentation and not from rtscope's table of settings: a setting that rtscope
//! changes by mistake is also found. Two values change by themselves and are left out: the CPUs of threads that nobody
//! may move (`PF_NO_SETAFFINITY`), because a thread of an interrupt follows the CPU that serves the interrupt, and how
//! much of a swap area is used.

use std::{collections::BTreeMap, fs, path::Path};

use crate::shell;

/// Files by pattern, below the root.
const FILES: &[&str] = &[
    "dev/cpu_dma_latency",
    "proc/irq/*/smp_affinity",
    "proc/irq/default_smp_affinity",
    "proc/sys/kernel/nmi_watchdog",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/perf_event_paranoid",
    "proc/sys/kernel/sched_*",
    "proc/sys/kernel/timer_migration",
    "proc/sys/kernel/watchdog*",
    "proc/sys/vm/overcommit_memory",
    "proc/sys/vm/stat_interval",
    "proc/sys/vm/swappiness",
    "sys/devices/system/clocksource/*/current_clocksource",
    "sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
    "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "sys/devices/system/cpu/cpu*/cpufreq/scaling_m*_freq",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "sys/devices/system/cpu/cpu*/online",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/virtual/workqueue/*/cpumask",
    "sys/devices/virtual/workqueue/*/nice",
    "sys/devices/virtual/workqueue/cpumask",
    "sys/fs/cgroup/cgroup.subtree_control",
    "sys/fs/cgroup/cpuset/cpuset.*",
    "sys/fs/cgroup/unified/cgroup.subtree_control",
    "sys/kernel/debug/sched/fair_server/cpu*/*",
    "sys/kernel/debug/sched/features",
    "sys/kernel/mm/ksm/run",
    "sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/tracing/buffer_size_kb",
    "sys/kernel/tracing/current_tracer",
    "sys/kernel/tracing/events/enable",
    "sys/kernel/tracing/set_event",
    "sys/kernel/tracing/trace_clock",
    "sys/kernel/tracing/tracing_on",
];

/// Files that only the kernel writes, though a pattern of [`FILES`] fits them.
const OF_KERNEL: &[&str] =
    &["cpuset.memory_pressure", "cpuset.effective_cpus", "cpuset.effective_mems"];

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot(BTreeMap<String, Vec<u8>>);

/// How the name of a thread's state begins: threads come and go, files don't.
const THREAD: &str = "thread ";

impl Snapshot {
    /// Reads everything below a root: that of the machine, or of a test.
    pub(super) fn take(root: &Path) -> Snapshot {
        let mut found = BTreeMap::new();
        for pattern in FILES {
            let whole = root.join(pattern);
            let paths = glob::glob(&whole.to_string_lossy()).into_iter().flatten().flatten();
            for path in paths.filter(|path| !OF_KERNEL.iter().any(|name| path.ends_with(name))) {
                // What can't be read here can't be set either: of the kernel's files some are only written.
                if let Some(bytes) = read(&path) {
                    found.insert(path.display().to_string(), bytes);
                }
            }
        }
        let swaps = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
        found.insert("swap areas".to_owned(), swap_areas(&swaps).into_bytes());
        threads(root, &mut found);
        Snapshot(found)
    }

    /// What is not as it was. A thread that is there only once is none; a file that is gone, or new, is one.
    pub(super) fn differences(&self, later: &Snapshot) -> Vec<String> {
        let shown = |bytes: &[u8]| format!("{:?}", String::from_utf8_lossy(bytes).trim_end());
        let mut all = Vec::new();
        for (name, old) in &self.0 {
            match later.0.get(name) {
                Some(new) if new != old => {
                    all.push(format!("{name}: {} -> {}", shown(old), shown(new)));
                }
                None if !name.starts_with(THREAD) => all.push(format!("{name} is gone")),
                _ => {}
            }
        }
        let is_new = |name: &&String| !name.starts_with(THREAD) && !self.0.contains_key(*name);
        all.extend(later.0.keys().filter(is_new).map(|name| format!("{name} is new")));
        all
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// A file's bytes. A device gives what it has at once, without an end.
fn read(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut bytes = vec![0; 64 * 1024];
    let mut file = fs::File::open(path).ok()?;
    let count = file.read(&mut bytes).ok()?;
    bytes.truncate(count);
    Some(bytes)
}

/// Of each swap area its name, type, size and priority: how much of it is used is not a setting.
fn swap_areas(text: &str) -> String {
    let lines = text.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let field = |i: usize| fields.get(i).copied().unwrap_or_default();
        format!("{} {} {} {}\n", field(0), field(1), field(2), field(4))
    });
    lines.collect()
}

/// The flag of a thread that nobody may move.
const NO_SETAFFINITY: u64 = 0x0400_0000;

/// The flag of a thread of the kernel.
const OF_KERNEL_ITSELF: u64 = 0x0020_0000;

/// Of every thread its cpuset and, if it may be moved, its CPUs: a shield moves all of them. Of the kernel's threads also
/// policy and priorities: those of a program are its owner's, who may renice it at any time.
fn threads(root: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    let pattern = root.join("proc/[0-9]*/task/[0-9]*");
    for folder in glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten() {
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let (stat, status) = (text("stat"), text("status"));
        // A thread that ends while it is read has a part of it.
        if let Some((name, state)) = thread(&stat, &status, text("cpuset").trim()) {
            found.insert(name, state.into_bytes());
        }
    }
}

/// A thread's name and state.
fn thread(stat: &str, status: &str, cpuset: &str) -> Option<(String, String)> {
    let fields = shell::stat_fields(stat)?;
    // Numbered from 3 in proc(5): flags 9, nice 19, start 22, priority 40, policy 41. Of a dead one nothing counts.
    let field = |number: usize| fields.get(number - 3).copied();
    if ["Z", "X"].contains(&field(3)?) || cpuset.is_empty() {
        return None;
    }
    let (name, id) = (stat.split_once('(')?.1.rsplit_once(')')?.0, stat.split_once(' ')?.0);
    let flags: u64 = field(9)?.parse().ok()?;
    let is_bound = flags & NO_SETAFFINITY != 0;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let cpus = if is_bound { "bound" } else { cpus.trim() };
    let mut state = format!("cpuset {cpuset}, CPUs {cpus}");
    if flags & OF_KERNEL_ITSELF != 0 {
        let (nice, priority, policy) = (field(19)?, field(40)?, field(41)?);
        state += &format!(", nice {nice}, priority {priority}, policy {policy}");
    }
    // A worker of the kernel changes its name with its work.
    let name = if name.starts_with("kworker/") { "kworker" } else { name };
    Some((format!("{THREAD}{id} {name} of {}", field(22)?), state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            ("proc/irq/24/smp_affinity", "3\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1000 5 -2\n"),
            ("proc/7/task/7/cpuset", "/\n"),
            ("proc/7/task/7/status", "Cpus_allowed:\t3\nCpus_allowed_list:\t0-1\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        fs::write(folder.path().join("proc/7/task/7/stat"), stat(KERNEL, "0")).expect("written");
        folder
    }

    /// The flags of a thread of the kernel: 0x00200000.
    const KERNEL: &str = "2097152";

    /// A thread with these flags and this priority.
    fn stat(flags: &str, priority: &str) -> String {
        let mut fields: Vec<String> = (3..=52).map(|_| "0".to_owned()).collect();
        for (number, text) in [(3, "S"), (9, flags), (22, "500"), (40, priority)] {
            fields[number - 3] = text.to_owned();
        }
        format!("7 (a b) {}\n", fields.join(" "))
    }

    #[test]
    fn nothing_changed_is_no_difference() {
        let machine = machine();
        let before = Snapshot::take(machine.path());
        assert_eq!(before.count(), 4);
        fs::write(
            machine.path().join("proc/swaps"),
            "Filename Type Size Used Priority\n/dev/sda2 partition 1000 700 -2\n",
        )
        .expect("written");
        assert_eq!(before.differences(&Snapshot::take(machine.path())), [""; 0]);
    }

    #[test]
    fn a_byte_a_thread_and_a_missing_file_are_found() {
        let machine = machine();
        let before = Snapshot::take(machine.path());
        let path = |name: &str| machine.path().join(name);
        fs::write(path("proc/sys/vm/swappiness"), "61\n").expect("written");
        fs::write(path("proc/7/task/7/stat"), stat(KERNEL, "50")).expect("written");
        fs::remove_file(path("proc/irq/24/smp_affinity")).expect("removed");
        fs::write(path("proc/sys/vm/stat_interval"), "1\n").expect("written");
        let found = before.differences(&Snapshot::take(machine.path())).join("\n");
        for part in ["\"60\" -> \"61\"", "smp_affinity is gone", "priority 50", "interval is new"] {
            assert!(found.contains(part), "{part}: {found}");
        }
        assert_eq!(found.lines().count(), 4, "{found}");
    }

    #[test]
    fn the_priority_of_a_program_is_its_owner_s() {
        let state =
            |flags: &str, priority| thread(&stat(flags, priority), "Cpus_allowed_list:\t0\n", "/");
        assert_eq!(state("0", "0"), state("0", "50"));
        assert_ne!(state(KERNEL, "0"), state(KERNEL, "50"));
    }

    #[test]
    fn threads_that_nobody_may_move_follow_the_kernel() {
        let status = |cpus: &str| format!("Cpus_allowed_list:\t{cpus}\n");
        let state = |flags: &str, cpus: &str| thread(&stat(flags, "0"), &status(cpus), "/");
        let bound = NO_SETAFFINITY.to_string();
        assert_eq!(state(&bound, "0"), state(&bound, "1"));
        assert_ne!(state("0", "0"), state("0", "1"));
        assert!(thread("", "", "/").is_none());
    }

    #[test]
    fn this_machine_has_something_to_look_at() {
        let snapshot = Snapshot::take(Path::new("/"));
        let name = format!("{THREAD}{} ", std::process::id());
        assert!(snapshot.0.keys().any(|key| key.starts_with(&name)));
    }
}
