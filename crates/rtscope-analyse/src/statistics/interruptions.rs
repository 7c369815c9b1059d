//! What helps against what interrupts a CPU, by kind and name.

use rtscope_model::interruptions::{Interruption, InterruptionKind};

/// What helps against an interruption of a CPU. `{cpu}` in the text is the CPU's number.
#[must_use]
pub fn remedy(row: &Interruption, cpu: u32) -> String {
    let sender = row.senders.first().map_or("", |sender| sender.function.as_str());
    let is_meant = |(kind, start, _): &&(InterruptionKind, &str, &str)| {
        *kind == row.kind && (row.name.starts_with(start) || sender.starts_with(start))
    };
    let found = REMEDIES.iter().find(is_meant).map_or("", |(.., text)| text);
    found.replace("{cpu}", &cpu.to_string())
}

/// By kind and by how the name, or that of the function that sent it, begins. The first that fits counts.
///
/// Sources: Documentation/admin-guide/kernel-per-CPU-kthreads.rst, Documentation/timers/no_hz.rst,
/// Documentation/core-api/workqueue.rst.
const REMEDIES: &[(InterruptionKind, &str, &str)] = &[
    (
        InterruptionKind::Thread,
        "migration/",
        "avoid stopping all CPUs (loading modules, tracing, CPU hotplug) and moving running threads",
    ),
    (
        InterruptionKind::Thread,
        "ksoftirqd/",
        "move the interrupts that raise softirqs here: see the rows `softirq`",
    ),
    (InterruptionKind::Thread, "ktimers/", "move the threads that set timers here to other CPUs"),
    (
        InterruptionKind::Thread,
        "rcu",
        "boot with rcu_nocbs={cpu}, and keep RCU's threads on other CPUs",
    ),
    (
        InterruptionKind::Thread,
        "kworker",
        "set /sys/devices/virtual/workqueue/cpumask without CPU {cpu}",
    ),
    (
        InterruptionKind::Thread,
        "irq/",
        "move the interrupt: /proc/irq/NUMBER/smp_affinity_list without CPU {cpu}",
    ),
    (
        InterruptionKind::Thread,
        "watchdog/",
        "boot with nowatchdog, or keep the watchdog off CPU {cpu}: kernel.watchdog_cpumask",
    ),
    (
        InterruptionKind::Thread,
        "",
        "move it to other CPUs: a cpuset, taskset, or isolcpus={cpu} on the kernel's command line",
    ),
    (
        InterruptionKind::Work,
        "vmstat_",
        "update memory statistics less often: vm.stat_interval = 3600",
    ),
    (
        InterruptionKind::Work,
        "",
        "set /sys/devices/virtual/workqueue/cpumask without CPU {cpu}; per-CPU work can't be moved",
    ),
    (
        InterruptionKind::Irq,
        "",
        "move it: /proc/irq/NUMBER/smp_affinity_list without CPU {cpu}, or boot with irqaffinity=",
    ),
    (
        InterruptionKind::LocalTimer,
        "",
        "the kernel's tick: boot with nohz_full={cpu}, and let only one thread run on this CPU",
    ),
    (
        InterruptionKind::Timer,
        "tick_",
        "the kernel's tick: boot with nohz_full={cpu}, and let only one thread run on this CPU",
    ),
    (
        InterruptionKind::Timer,
        "hrtimer_wakeup",
        "a thread sleeps here: if it isn't yours, move it to other CPUs",
    ),
    (InterruptionKind::Timer, "watchdog_timer_fn", "switch the watchdog off: kernel.watchdog = 0"),
    (InterruptionKind::Timer, "", "move the threads that set timers here to other CPUs"),
    (InterruptionKind::Softirq, "RCU", "boot with rcu_nocbs={cpu}"),
    (
        InterruptionKind::Softirq,
        "SCHED",
        "keep the load balancer away: isolcpus=domain,{cpu}, or a cpuset partition",
    ),
    (
        InterruptionKind::Softirq,
        "TIMER",
        "move the threads that set timers here to other CPUs; nohz_full={cpu}",
    ),
    (
        InterruptionKind::Softirq,
        "NET",
        "move the network card's interrupts; remove CPU {cpu} from /sys/class/net/*/queues/rx-*/rps_cpus",
    ),
    (InterruptionKind::Softirq, "", "move the interrupts that raise it to other CPUs"),
    (
        InterruptionKind::Reschedule,
        "",
        "threads on other CPUs wake threads here: keep those that wake each other in one cpuset",
    ),
    (
        InterruptionKind::FunctionCall,
        "flush_tlb",
        "threads that share memory with one here change its mappings: avoid munmap and mprotect",
    ),
    (
        InterruptionKind::FunctionCall,
        "native_flush_tlb",
        "threads that share memory with one here change its mappings: avoid munmap and mprotect",
    ),
    (
        InterruptionKind::FunctionCall,
        "on_each_cpu",
        "avoid work that calls a function on all CPUs: loading modules, tracing, changing settings",
    ),
    (
        InterruptionKind::FunctionCall,
        "membarrier",
        "a program calls membarrier(): give the thread that runs here its own process",
    ),
    (
        InterruptionKind::FunctionCall,
        "",
        "see who sent it; a CPU with one thread and no shared memory gets few",
    ),
    (InterruptionKind::IrqWork, "", "the kernel's deferred work: avoid tracing, perf and printk"),
    (
        InterruptionKind::Nmi,
        "perf",
        "switch the watchdog and profilers off: kernel.nmi_watchdog = 0",
    ),
    (InterruptionKind::Nmi, "", "firmware or hardware: look at the kernel's log"),
];

#[cfg(test)]
mod tests {
    use rtscope_model::{interruptions::Sender, time::Nanos};

    use super::*;

    fn row(kind: InterruptionKind, name: &str, sender: &str) -> Interruption {
        let sender = Sender { thread: "other".to_owned(), function: sender.to_owned(), count: 1 };
        Interruption {
            kind,
            name: name.to_owned(),
            count: 1,
            sum: Nanos(1),
            worst: Nanos(1),
            by_hour: vec![1],
            senders: vec![sender],
        }
    }

    #[test]
    fn the_first_remedy_that_fits_name_or_sender_is_given_for_this_cpu() {
        let of = |kind, name, sender| remedy(&row(kind, name, sender), 3);
        assert!(of(InterruptionKind::Softirq, "RCU", "").contains("rcu_nocbs=3"));
        assert!(of(InterruptionKind::Work, "vmstat_update", "").contains("vm.stat_interval"));
        assert!(of(InterruptionKind::Work, "wb_workfn", "").contains("cpumask without CPU 3"));
        assert!(of(InterruptionKind::FunctionCall, "", "flush_tlb_mm_range").contains("munmap"));
        assert_eq!(of(InterruptionKind::Thread, "migration/3", ""), REMEDIES[0].2);
    }

    /// A kind without a last resort would have no remedy for a name that nobody knew.
    #[test]
    fn every_kind_ends_with_what_helps_against_any_name() {
        for kind in REMEDIES.iter().map(|(kind, ..)| *kind) {
            let last = REMEDIES.iter().rfind(|(one, ..)| *one == kind).expect("this one");
            assert_eq!(last.1, "", "{kind:?}");
        }
    }
}
