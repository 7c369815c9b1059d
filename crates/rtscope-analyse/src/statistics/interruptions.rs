//! What helps against what interrupts a CPU, by kind and name.

use rtscope_model::interruptions::{Interruption, Kind};

/// What helps against an interruption of a CPU. `{cpu}` in the text is the CPU's number.
#[must_use]
pub fn remedy(row: &Interruption, cpu: u32) -> String {
    let sender = row.senders.first().map_or("", |sender| sender.function.as_str());
    let is_meant = |(kind, start, _): &&(Kind, &str, &str)| {
        *kind == row.kind && (row.name.starts_with(start) || sender.starts_with(start))
    };
    let found = REMEDIES.iter().find(is_meant).map_or("", |(.., text)| text);
    found.replace("{cpu}", &cpu.to_string())
}

/// By kind and by how the name, or that of the function that sent it, begins. The first that fits counts.
///
/// Sources: Documentation/admin-guide/kernel-per-CPU-kthreads.rst, Documentation/timers/no_hz.rst,
/// Documentation/core-api/workqueue.rst.
const REMEDIES: &[(Kind, &str, &str)] = &[
    (
        Kind::Thread,
        "migration/",
        "something stops all CPUs: loading modules, tracing, CPUs that come and go",
    ),
    (
        Kind::Thread,
        "ksoftirqd/",
        "move the interrupts that raise softirqs here: see the rows `softirq`",
    ),
    (Kind::Thread, "ktimers/", "move the threads that set timers here to other CPUs"),
    (Kind::Thread, "rcu", "boot with rcu_nocbs={cpu}, and keep RCU's threads on other CPUs"),
    (Kind::Thread, "kworker", "set /sys/devices/virtual/workqueue/cpumask without CPU {cpu}"),
    (
        Kind::Thread,
        "irq/",
        "move the interrupt: /proc/irq/NUMBER/smp_affinity_list without CPU {cpu}",
    ),
    (
        Kind::Thread,
        "watchdog",
        "boot with nowatchdog, or keep the watchdog off CPU {cpu}: kernel.watchdog_cpumask",
    ),
    (
        Kind::Thread,
        "",
        "move it to other CPUs: a cpuset, taskset, or isolcpus={cpu} on the kernel's command line",
    ),
    (Kind::Work, "vmstat_", "count memory less often: vm.stat_interval = 3600"),
    (
        Kind::Work,
        "",
        "set /sys/devices/virtual/workqueue/cpumask without CPU {cpu}; work of this CPU alone stays",
    ),
    (
        Kind::Irq,
        "",
        "move it: /proc/irq/NUMBER/smp_affinity_list without CPU {cpu}, or boot with irqaffinity=",
    ),
    (
        Kind::LocalTimer,
        "",
        "the kernel's tick: boot with nohz_full={cpu}, and run one thread on it",
    ),
    (
        Kind::Timer,
        "tick_",
        "the kernel's tick: boot with nohz_full={cpu}, and run one thread on it",
    ),
    (
        Kind::Timer,
        "hrtimer_wakeup",
        "a thread sleeps here: if it isn't yours, move it to other CPUs",
    ),
    (Kind::Timer, "watchdog_timer_fn", "switch the watchdog off: kernel.watchdog = 0"),
    (Kind::Timer, "", "move the threads that set timers here to other CPUs"),
    (Kind::Softirq, "RCU", "boot with rcu_nocbs={cpu}"),
    (
        Kind::Softirq,
        "SCHED",
        "keep the load balancer away: isolcpus=domain,{cpu}, or a cpuset partition",
    ),
    (
        Kind::Softirq,
        "TIMER",
        "move the threads that set timers here to other CPUs; nohz_full={cpu}",
    ),
    (
        Kind::Softirq,
        "NET",
        "move the network card's interrupts, and /sys/class/net/*/queues/rx-*/rps_cpus",
    ),
    (Kind::Softirq, "", "move the interrupts that raise it to other CPUs"),
    (
        Kind::Reschedule,
        "",
        "threads on other CPUs wake threads here: keep these together in a cpuset",
    ),
    (
        Kind::FunctionCall,
        "flush_tlb",
        "threads that share memory with this one give it back: avoid munmap and mprotect",
    ),
    (
        Kind::FunctionCall,
        "native_flush_tlb",
        "threads that share memory with this one give it back: avoid munmap and mprotect",
    ),
    (
        Kind::FunctionCall,
        "on_each_cpu",
        "a function for all CPUs: loading modules, tracing, or a change of settings",
    ),
    (
        Kind::FunctionCall,
        "membarrier",
        "a program asks all CPUs for a barrier: keep it away, or give it its own process",
    ),
    (
        Kind::FunctionCall,
        "",
        "see who sent it; a CPU with one thread and no shared memory gets few",
    ),
    (
        Kind::IrqWork,
        "",
        "work of the kernel that waits for an interrupt: tracing and printk make it",
    ),
    (Kind::Nmi, "perf", "switch the watchdog and profilers off: kernel.nmi_watchdog = 0"),
    (Kind::Nmi, "", "firmware or hardware: look at the kernel's log"),
];

#[cfg(test)]
mod tests {
    use rtscope_model::{interruptions::Sender, time::Nanos};

    use super::*;

    fn row(kind: Kind, name: &str, sender: &str) -> Interruption {
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
        assert!(of(Kind::Softirq, "RCU", "").contains("rcu_nocbs=3"));
        assert!(of(Kind::Work, "vmstat_update", "").contains("vm.stat_interval"));
        assert!(of(Kind::Work, "wb_workfn", "").contains("cpumask without CPU 3"));
        assert!(of(Kind::FunctionCall, "", "flush_tlb_mm_range").contains("munmap"));
        assert_eq!(of(Kind::Thread, "migration/3", ""), REMEDIES[0].2);
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
