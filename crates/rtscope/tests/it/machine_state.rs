//! What settings change on this machine, looked at before and after.

use std::{
    collections::BTreeMap,
    fs,
    sync::Once,
    time::{Duration, Instant},
};

use crate::support::{folder, output};

/// How a test changes a setting that outlives it.
pub(crate) const KEEP: &str = "tune apply --keep stat-interval=93";

/// Undoes all kept settings if [`KEEP`] of a killed test is among them.
pub(crate) fn forget_a_killed_test() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let mut kept = fs::read_dir("/run/rtscope").into_iter().flatten().flatten();
        if kept.any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text.contains(KEEP)))
        {
            output(folder().path(), "tune restore");
        }
    });
}

/// Everything that settings may change, by a name: files, the cpusets, and threads of the kernel, of the first process
/// and of this one. Others come and go, and may be changed by whoever started them.
pub(crate) fn state() -> BTreeMap<String, String> {
    forget_a_killed_test();
    let mut found = BTreeMap::new();
    let mut note = |path: &str| {
        if let Ok(text) = fs::read_to_string(path) {
            found.insert(path.to_owned(), text);
        }
    };
    for path in [
        "/proc/irq/default_smp_affinity",
        "/proc/sys/kernel/numa_balancing",
        "/proc/sys/kernel/timer_migration",
        "/proc/sys/vm/stat_interval",
        "/proc/sys/vm/swappiness",
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/devices/virtual/workqueue/writeback/cpumask",
        "/sys/fs/cgroup/cgroup.subtree_control",
        "/sys/fs/cgroup/cpuset/cpuset.sched_load_balance",
        "/sys/kernel/mm/ksm/run",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        note(path);
    }
    for entry in fs::read_dir("/proc/irq").into_iter().flatten().flatten() {
        note(&format!("{}/smp_affinity_list", entry.path().display()));
    }
    for hierarchy in ["/sys/fs/cgroup", "/sys/fs/cgroup/cpuset"] {
        let names = fs::read_dir(hierarchy).into_iter().flatten().flatten();
        let mut names: Vec<String> = names
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        found.insert(hierarchy.to_owned(), names.join(" "));
    }
    found.insert("swap areas".to_owned(), swap_areas());
    found.extend(threads());
    found
}

/// Of each swap area its name, type, size and priority: how much of it is used is not a setting.
pub(crate) fn swap_areas() -> String {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let lines = text.lines().skip(1).map(|line| {
        let mut fields: Vec<&str> = line.split_whitespace().collect();
        fields.remove(3);
        fields.join(" ") + "\n"
    });
    lines.collect()
}

fn threads() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = rest.split(' ').collect();
        // Numbered from 3: parent 4, flags 9, start 22, priority 40, policy 41.
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
        // Of bound threads, older kernels change the CPUs by themselves with a partition, and nobody may set them.
        let is_bound = field(9).parse::<u32>().unwrap_or(0) & 0x0400_0000 != 0;
        let of_kernel = (pid == 2 || field(4) == "2") && !is_bound;
        if !of_kernel && pid != 1 && pid != std::process::id() {
            continue;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let cpus = status.lines().find(|line| line.starts_with("Cpus_allowed_list"));
        let cpuset = fs::read_to_string(format!("/proc/{pid}/cpuset")).unwrap_or_default();
        let state = format!(
            "{} {cpuset} {} {} {}",
            cpus.unwrap_or_default(),
            field(19),
            field(40),
            field(41)
        );
        found.insert(format!("thread {pid} started {}", field(22)), state);
    }
    found
}

/// What differs between two looks; threads that are there only once don't count.
pub(crate) fn differences(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<String> {
    let same = |(name, old): (&String, &String)| match after.get(name) {
        Some(new) if new != old => Some(format!("{name}: {old:?} -> {new:?}")),
        None if !name.starts_with("thread") => Some(format!("{name} is gone")),
        _ => None,
    };
    before.iter().filter_map(same).collect()
}

/// What differs from an earlier look and stays so for seconds: version 2 of control groups ends a partition in the
/// background.
pub(crate) fn lasting_differences(before: &BTreeMap<String, String>) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(3);
    loop {
        let found = differences(before, &state());
        if found.is_empty() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
