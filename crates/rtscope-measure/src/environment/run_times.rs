//! How long each CPU ran threads, measured at each switch instead of sampled at each tick.
//!
//! A CPU that wakes for interrupts only is not idle meanwhile, and the ticks of a load whose timers expire in
//! step with them are all counted as the load's. On a kernel with `CONFIG_SCHEDSTATS`, `/proc/schedstat` has the
//! exact time.

use std::collections::BTreeMap;

use rtscope_sys::tree::Tree;

/// A CPU without at least one switch in this time on average may have run one thread all along. That
/// thread's time is added only when it leaves the CPU, so the sum would hide it.
const SWITCH_EVERY_NS: u64 = 10_000_000;

/// A reading of all CPUs; empty where the kernel doesn't show it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTimes(BTreeMap<u32, RunTime>);

/// What a CPU did since boot.
#[derive(Clone, Copy, Debug)]
struct RunTime {
    /// The time of all threads that have left the CPU again.
    ns: u64,
    /// How often a thread was put on the CPU.
    stints: u64,
}

impl RunTimes {
    pub(crate) fn read(tree: &Tree) -> RunTimes {
        let text = tree.read("proc/schedstat").unwrap_or_default();
        RunTimes(text.lines().filter_map(cpu).collect())
    }

    /// How long a CPU ran threads since an earlier reading that was `span_ns` ago; none where the kernel
    /// doesn't show it, or where it switched too rarely for an exact sum.
    pub(crate) fn since(&self, earlier: &RunTimes, cpu: u32, span_ns: u64) -> Option<u64> {
        let (now, then) = (self.0.get(&cpu)?, earlier.0.get(&cpu)?);
        let stints = now.stints.checked_sub(then.stints)?;
        (stints >= span_ns / SWITCH_EVERY_NS).then_some(now.ns.checked_sub(then.ns)?)
    }
}

/// `cpu0 yields 0 schedules idle wake-ups local run wait stints`: the kernel's documentation
/// `scheduler/sched-stats.rst`, versions 15 to 17. Times are in ns.
fn cpu(line: &str) -> Option<(u32, RunTime)> {
    let (name, rest) = line.split_once(' ')?;
    let cpu = name.strip_prefix("cpu")?.parse().ok()?;
    let fields: Vec<u64> = rest.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let &[_, _, _, _, _, _, ns, _, stints] = fields.as_slice() else { return None };
    Some((cpu, RunTime { ns, stints }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn times_between_two_readings_are_exact() {
        let fake = FakeTree::new();
        fake.file(
            "proc/schedstat",
            "version 15\ntimestamp 4294893\ncpu0 0 0 9 3 9 9 1000 70 500\n\
             domain0 00000003 1 2 3\ncpu1 0 0 9 3 9 9 2000 70 700\n",
        );
        let before = RunTimes::read(&fake.tree);
        fake.file(
            "proc/schedstat",
            "version 17\ncpu0 0 0 9 3 9 9 490001000 70 700\ncpu1 0 0 9 3 9 9 3000 70 720\n",
        );
        let after = RunTimes::read(&fake.tree);
        assert_eq!(after.since(&before, 0, SECOND_NS), Some(490_000_000));
        // 20 switches in a second: a thread may run on, and is not in the sum.
        assert_eq!(after.since(&before, 1, SECOND_NS), None);
        assert_eq!(after.since(&before, 2, SECOND_NS), None);
        assert_eq!(before.since(&after, 0, SECOND_NS), None, "counters that go back");
    }

    #[test]
    fn nothing_is_known_without_the_file_or_of_other_fields() {
        let fake = FakeTree::new();
        assert!(RunTimes::read(&fake.tree).0.is_empty());
        fake.file("proc/schedstat", "version 1\ncpu0 1 2 3\ncpu 1 2 3 4 5 6 7 8 9\n");
        assert!(RunTimes::read(&fake.tree).0.is_empty());
    }
}
