//! Kernel settings under `/proc/sys` that bear on latency.

use std::collections::BTreeMap;

use rtscope_model::environment::Throttling;
use rtscope_sys::tree::Tree;

/// Recorded as found. Each either stops a CPU now and then, moves work to it, or changes who runs.
const NAMES: [&str; 21] = [
    "kernel/hung_task_timeout_secs",
    "kernel/nmi_watchdog",
    "kernel/numa_balancing",
    "kernel/perf_cpu_time_max_percent",
    "kernel/printk",
    "kernel/sched_autogroup_enabled",
    "kernel/sched_deadline_period_max_us",
    "kernel/sched_rr_timeslice_ms",
    "kernel/sched_rt_period_us",
    "kernel/sched_rt_runtime_us",
    "kernel/sched_schedstats",
    "kernel/sched_util_clamp_min_rt_default",
    "kernel/soft_watchdog",
    "kernel/timer_migration",
    "kernel/watchdog",
    "kernel/watchdog_cpumask",
    "kernel/watchdog_thresh",
    "vm/compaction_proactiveness",
    "vm/dirty_writeback_centisecs",
    "vm/stat_interval",
    "vm/swappiness",
];

pub(super) fn collect(tree: &Tree) -> BTreeMap<String, String> {
    let read = |name: &str| {
        let text = tree.read(format!("proc/sys/{name}")).ok()?;
        Some((name.to_owned(), text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    NAMES.into_iter().filter_map(read).collect()
}

/// Real-time throttling. Since Linux 6.12 the limit only counts for admission of deadline threads
/// (unless `RT_GROUP_SCHED` is built in); what keeps real-time threads from starving others there is
/// the fair server.
#[must_use]
pub fn throttling(tree: &Tree) -> Throttling {
    let number = |name: &str| tree.read(format!("proc/sys/kernel/{name}")).ok()?.parse().ok();
    Throttling {
        runtime_us: number("sched_rt_runtime_us"),
        period_us: number("sched_rt_period_us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn settings_are_read_as_found() {
        let fake = FakeTree::new();
        fake.file("proc/sys/kernel/sched_rt_runtime_us", "-1\n");
        fake.file("proc/sys/kernel/sched_rt_period_us", "1000000\n");
        fake.file("proc/sys/kernel/printk", "4\t4\t1\t7\n");
        assert_eq!(
            throttling(&fake.tree),
            Throttling { runtime_us: Some(-1), period_us: Some(1_000_000) }
        );
        let found = collect(&fake.tree);
        assert_eq!(found.get("kernel/printk").map(String::as_str), Some("4 4 1 7"));
        assert_eq!(found.len(), 3);
    }
}
