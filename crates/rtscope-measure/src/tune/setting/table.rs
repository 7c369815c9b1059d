//! Every setting, by name.

use rtscope_model::text::suggest;

use super::{
    CPUS, SettingDescriptor, Target, ThreadAspect,
    value::{self, ForCpus, ShieldValue, number, on_off},
};

/// Every setting, by name.
pub const SETTINGS: &[SettingDescriptor] = &[
    SettingDescriptor {
        name: "dma-latency",
        about: "highest exit latency of the idle states that CPUs may enter (/dev/cpu_dma_latency)",
        values: "a latency in us, 0 to 2000000000; 0 keeps CPUs awake",
        words: &[],
        text: |value| number(value, 0, 2_000_000_000),
        target: Target::Held("dev/cpu_dma_latency"),
    },
    SettingDescriptor {
        name: "energy-preference",
        about: "energy or performance, for CPUs that choose their frequency themselves",
        values: "performance, balance_performance, balance_power, power, or 0 to 255",
        words: PREFERENCES,
        text: |value| {
            let word = PREFERENCES.contains(&value).then(|| value.to_owned());
            word.or_else(|| number(value, 0, 255))
        },
        target: Target::Each {
            folder: CPUS,
            prefix: "cpu",
            file: "cpufreq/energy_performance_preference",
            some_refuse: false,
        },
    },
    SettingDescriptor {
        name: "fair-server",
        about: "CPU time that real-time threads leave to others in each second, since Linux 6.12",
        values: "off, on (50000 us) or a time in us, 1 to 1000000",
        words: &["off", "on"],
        // The file counts in ns.
        text: |value| match value {
            "off" => Some("0".to_owned()),
            "on" => Some("50000000".to_owned()),
            _ => number(value, 1, 1_000_000).map(|us| format!("{us}000")),
        },
        target: Target::Each {
            folder: "sys/kernel/debug/sched/fair_server",
            prefix: "cpu",
            file: "runtime",
            some_refuse: false,
        },
    },
    SettingDescriptor {
        name: "governor",
        about: "frequency governor of every CPU",
        values: "a governor's name, such as performance, powersave, schedutil or ondemand",
        words: GOVERNORS,
        text: |value| {
            let mistyped =
                !GOVERNORS.contains(&value) && suggest(value, GOVERNORS.to_vec()).is_some();
            let word =
                !value.is_empty() && value.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            (word && !mistyped).then(|| value.to_owned())
        },
        target: Target::Each {
            folder: CPUS,
            prefix: "cpu",
            file: "cpufreq/scaling_governor",
            some_refuse: false,
        },
    },
    SettingDescriptor {
        name: "idle-latency",
        about: "longest exit latency of the idle states that CPUs may enter (cpuidle/stateN/disable)",
        values: "a latency in us, 0 to 1000000; for some CPUs only as 10@2-3",
        words: &[],
        text: |value| ForCpus::read(value, 0, 1_000_000).map(|_| value.to_owned()),
        target: Target::IdleLatency,
    },
    SettingDescriptor {
        name: "idle-state",
        about: "deepest idle state that CPUs may enter, by number (cpuidle/stateN/disable)",
        values: "a number from 0, or -1 for none at all; for some CPUs only as 0@2-3",
        words: &[],
        text: |value| ForCpus::read(value, -1, 99).map(|_| value.to_owned()),
        target: Target::IdleStates,
    },
    SettingDescriptor {
        name: "irq-affinity",
        about: "CPUs that interrupts may go to: every interrupt that can be steered, or some by number, name or device",
        values: "a set of CPUs, for example 0-1; for some interrupts only, for example 0@24, 0@eth0 or 0@nvme*; write several with ; between them",
        words: &[],
        text: value::interrupts,
        target: Target::Interrupts,
    },
    SettingDescriptor {
        name: "ksm",
        about: "thread that looks for equal pages of memory and merges them",
        values: "on, off, or unmerge (off, and separate the merged pages)",
        words: &["off", "on", "unmerge"],
        text: |value| match value {
            "unmerge" => Some("2".to_owned()),
            _ => on_off(value),
        },
        target: Target::File("sys/kernel/mm/ksm/run"),
    },
    SettingDescriptor {
        name: "nmi-watchdog",
        about: "hard-lockup detector, which takes a performance counter and an NMI now and then",
        values: "on or off",
        words: &["off", "on"],
        text: on_off,
        target: Target::File("proc/sys/kernel/nmi_watchdog"),
    },
    SettingDescriptor {
        name: "numa-balancing",
        about: "moving of memory to the node of the thread that uses it, which causes page faults",
        values: "on or off",
        words: &["off", "on"],
        text: on_off,
        target: Target::File("proc/sys/kernel/numa_balancing"),
    },
    SettingDescriptor {
        name: "services",
        about: "services and timers that are known to disturb, stopped by systemd",
        values: "names such as irqbalance,fwupd-refresh.timer, or known for all that run; only those that rtscope knows",
        words: &[value::KNOWN],
        text: value::units,
        target: Target::Services,
    },
    SettingDescriptor {
        name: "shield",
        about: "CPUs that are kept for threads that enter the shield: all other threads, interrupts and work move away",
        values: "a set of CPUs, for example 2-3, or last; isolated@2-3 also keeps the kernel from spreading threads over them",
        words: &[value::LAST],
        text: |value| ShieldValue::read(value).map(|_| value.to_owned()),
        target: Target::Shield,
    },
    SettingDescriptor {
        name: "stat-interval",
        about: "seconds between two updates of the memory statistics of a CPU (vm.stat_interval)",
        values: "a time in s, 1 to 86400",
        words: &[],
        text: |value| number(value, 1, 86_400),
        target: Target::File("proc/sys/vm/stat_interval"),
    },
    SettingDescriptor {
        name: "swap",
        about: "swapping, to every device and file that is in use",
        values: "off",
        words: &["off"],
        text: |value| (value == "off").then(|| value.to_owned()),
        target: Target::Swap,
    },
    SettingDescriptor {
        name: "swappiness",
        about: "how readily the kernel swaps instead of dropping cached files",
        values: "a number, 0 to 200",
        words: &[],
        text: |value| number(value, 0, 200),
        target: Target::File("proc/sys/vm/swappiness"),
    },
    SettingDescriptor {
        name: "thp",
        about: "transparent huge pages",
        values: "always, madvise or never",
        words: &["always", "madvise", "never"],
        text: |value| ["always", "madvise", "never"].contains(&value).then(|| value.to_owned()),
        target: Target::File("sys/kernel/mm/transparent_hugepage/enabled"),
    },
    SettingDescriptor {
        name: "thread-affinity",
        about: "CPUs of kernel threads, by the pattern of their names",
        values: "a set of CPUs and a pattern, for example 0@rcu_preempt or 0-1@irq/*eth0*; write several with ; between them",
        words: &[],
        text: value::thread_cpus,
        target: Target::Threads(ThreadAspect::Cpus),
    },
    SettingDescriptor {
        name: "thread-priority",
        about: "policy and priority of kernel threads, by the pattern of their names",
        values: "a policy and a pattern, for example fifo:50@irq/*eth0* or other:0@ksoftirqd/*; write several with ; between them",
        words: &[],
        text: value::thread_ranks,
        target: Target::Threads(ThreadAspect::Policy),
    },
    SettingDescriptor {
        name: "throttling",
        about: "limit on the CPU time of FIFO and RR threads (sched_rt_runtime_us)",
        values: "off, on (950000 us) or a time in us, at most the period (1000000 by default)",
        words: &["off", "on"],
        text: |value| match value {
            "off" => Some("-1".to_owned()),
            "on" => Some("950000".to_owned()),
            _ => number(value, 1, i32::MAX as u32),
        },
        target: Target::File("proc/sys/kernel/sched_rt_runtime_us"),
    },
    SettingDescriptor {
        name: "timer-migration",
        about: "timers of idle CPUs move to busy ones",
        values: "on or off",
        words: &["off", "on"],
        text: on_off,
        target: Target::File("proc/sys/kernel/timer_migration"),
    },
    SettingDescriptor {
        name: "workqueue-cpus",
        about: "CPUs of kernel work that isn't bound to one",
        values: "a set of CPUs, for example 0-1",
        words: &[],
        text: |value| value::cpus(value).map(|cpus| cpus.to_string()),
        target: Target::Workqueues,
    },
];

/// Governors of the mainline kernel. Other kernels bring more, so that any word is taken unless it
/// looks like one of these mistyped.
const GOVERNORS: &[&str] =
    &["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"];

/// Preferences as intel_pstate and amd_pstate name them.
/// Without `default`: the kernel takes it, but reads back the word for the value that it stands for.
const PREFERENCES: &[&str] = &["balance_performance", "balance_power", "performance", "power"];
