//! What is found on the machine, before and after a run: read from `/proc` and `/sys` under a root
//! that tests can put elsewhere. One file a topic.
//!
//! It is a picture of some milliseconds, not of the run: a thread or a setting that comes and goes
//! between two pictures is not seen. Nothing that is missing fails the whole; its field stays empty.

mod config;
pub mod counters;
mod cpu;
pub mod energy;
#[cfg(test)]
pub(crate) mod fake;
mod irq;
mod kernel;
pub mod kernel_log;
mod machine;
mod network;
pub mod permission;
mod power;
mod run_times;
pub mod smi;
mod sysctl;
pub(crate) mod text;
mod thread;
mod virtualisation;

use std::path::Path;

use procfs_core::{FromRead, LoadAverage};
use rtscope_model::{
    cpu::CpuSet,
    environment::{ClockSource, Environment, Kernel},
    printable::with_printable_texts,
};
use rtscope_sys::{clock::SystemClock, tree::Tree};

pub use self::{
    counters::SystemCounters,
    cpu::{memory_node, online},
    permission::{do_one_of, permission_advice, placement_advice},
    sysctl::throttling,
};
pub(crate) use self::{
    cpu::usable,
    irq::{InterruptCounters, collect as irqs},
    run_times::RunTimes,
    text::{bracketed, numbered, value},
    thread::{Stat, real_time},
};

/// The kernel of a tree that shows no more than its kernel, such as what a guest brought of its own.
#[must_use]
pub fn kernel(tree: &Tree) -> Kernel {
    with_printable_texts(kernel::collect(tree, false))
}

/// Everything about the machine that may bear on latency. Takes some milliseconds.
///
/// What only a system call tells (permission, clock resolution, machine word of an old kernel) stays
/// empty when the tree is not this machine's own.
#[must_use]
pub fn collect(tree: &Tree) -> Environment {
    with_kernel(tree, kernel::collect(tree, is_live(tree)))
}

/// The same once more, after a run.
pub(crate) fn collect_again(tree: &Tree, before: &Environment) -> Environment {
    with_kernel(tree, kernel::collect_again(tree, is_live(tree), &before.kernel))
}

/// Whether this is the machine's own tree.
fn is_live(tree: &Tree) -> bool {
    tree.path("") == Path::new("/")
}

fn with_kernel(tree: &Tree, kernel: Kernel) -> Environment {
    let live = is_live(tree);
    let cpuinfo = tree.read("proc/cpuinfo").unwrap_or_default();
    let clock = clock(tree, live);
    with_printable_texts(Environment {
        host: tree.read("proc/sys/kernel/hostname").unwrap_or_default(),
        machine_model: machine::model(tree),
        compatible: machine::compatible(tree),
        cpus: cpu::collect(tree, &cpuinfo, &kernel.cmdline),
        irqs: irq::collect(tree),
        network: network::collect(tree, live),
        throttling: sysctl::throttling(tree),
        memory: machine::memory(tree),
        virtualisation: virtualisation::recognise(tree, &cpuinfo, &clock.available),
        real_time_threads: real_time(tree, std::process::id()),
        permission: if live { permission::collect() } else { Default::default() },
        load_average_percent: load_average(tree),
        sysctl: sysctl::collect(tree),
        kernel,
        clock,
    })
}

fn clock(tree: &Tree, live: bool) -> ClockSource {
    let folder = "sys/devices/system/clocksource/clocksource0";
    let available = tree.read(format!("{folder}/available_clocksource")).unwrap_or_default();
    ClockSource {
        current: tree.read(format!("{folder}/current_clocksource")).ok(),
        available: available.split_whitespace().map(str::to_owned).collect(),
        resolution_ns: live.then(|| SystemClock::MONOTONIC.resolution_ns()),
    }
}

fn load_average(tree: &Tree) -> Option<[u64; 3]> {
    let load = LoadAverage::from_read(tree.read("proc/loadavg").ok()?.as_bytes()).ok()?;
    Some([load.one, load.five, load.fifteen].map(|load| (load * 100.0).round() as u64))
}

/// Says of CPUs that they are absent.
pub(crate) fn not_online(absent: &CpuSet, online: &CpuSet) -> String {
    let be = if absent.len() == 1 { "is" } else { "are" };
    format!("{} {be} not online: this machine has {}", absent.named(), online.named())
}

#[cfg(test)]
mod tests {
    use super::{fake::FakeTree, *};

    #[test]
    fn this_machine_is_recognised() {
        let found = collect(&Tree::default());
        assert!(!found.kernel.release.is_empty());
        assert!(!found.kernel.version.is_empty());
        assert!(!found.kernel.machine.is_empty());
        assert!(!found.cpus.online.is_empty());
        assert_eq!(found.cpus.each.len(), found.cpus.online.len());
        assert!(found.cpus.allowed.iter().all(|cpu| found.cpus.online.contains(cpu)));
        assert!(found.clock.resolution_ns.is_some_and(|ns| ns > 0));
        assert!(found.memory.total_kib.is_some_and(|kib| kib > 1024));
        let own = std::process::id();
        assert!(found.real_time_threads.iter().all(|thread| thread.pid != own));
    }

    #[test]
    fn after_a_run_everything_is_read_again_but_what_the_kernel_was_built_with() {
        let fake = FakeTree::new();
        fake.file("proc/sys/kernel/osrelease", "6.1.0");
        fake.file("boot/config-6.1.0", "CONFIG_HZ=250\nCONFIG_PREEMPT_DYNAMIC=y\n");
        fake.file("sys/kernel/debug/sched/preempt", "none voluntary (full)");
        let before = collect(&fake.tree);
        assert_eq!(collect_again(&fake.tree, &before), before);
        fake.file("sys/kernel/debug/sched/preempt", "(none) voluntary full");
        fake.file("proc/loadavg", "2.63 1.00 0.04 3/428 2496\n");
        let after = collect_again(&fake.tree, &before);
        assert_ne!(after.kernel.preemption, before.kernel.preemption);
        assert_eq!(after.kernel.config, before.kernel.config);
        assert_eq!(after, collect(&fake.tree));
    }

    #[test]
    fn an_empty_tree_is_an_empty_environment() {
        let fake = FakeTree::new();
        assert_eq!(collect(&fake.tree), Environment::default());
    }

    #[test]
    fn clocks_and_load_are_read() {
        let fake = FakeTree::new();
        let folder = "sys/devices/system/clocksource/clocksource0";
        fake.file(&format!("{folder}/current_clocksource"), "tsc\n");
        fake.file(&format!("{folder}/available_clocksource"), "tsc hpet acpi_pm \n");
        fake.file("proc/loadavg", "2.63 1.00 0.04 3/428 2496\n");
        let found = collect(&fake.tree);
        assert_eq!(found.clock.current.as_deref(), Some("tsc"));
        assert_eq!(found.clock.available, ["tsc", "hpet", "acpi_pm"]);
        assert_eq!(found.clock.resolution_ns, None);
        assert_eq!(found.load_average_percent, Some([263, 100, 4]));
    }

    #[test]
    fn a_damaged_tree_fails_nothing() {
        let fake = FakeTree::new();
        for path in [
            "proc/loadavg",
            "proc/cpuinfo",
            "proc/meminfo",
            "proc/interrupts",
            "proc/stat",
            "proc/self/status",
            "proc/1/task/1/stat",
            "sys/devices/system/cpu/online",
            "sys/devices/system/cpu/isolated",
        ] {
            fake.file(path, ") : ( \u{fffd} 99999999999999999999999 :");
        }
        fake.bytes("proc/config.gz", &[0x1f, 0x8b, 8, 0, 1, 2, 3]);
        let found = collect(&fake.tree);
        assert_eq!(found.load_average_percent, None);
        assert!(found.cpus.online.is_empty() && found.kernel.config.is_empty());
    }
}
