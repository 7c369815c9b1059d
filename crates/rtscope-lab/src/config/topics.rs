//! Options that matter for latency, and why.

/// A group of options that matter for latency.
#[derive(Debug)]
pub(super) struct Topic {
    /// What a vendor's table calls it.
    pub(super) name: &'static str,
    /// Options; one that ends in `*` stands for all that start so. The first topic that has an option
    /// takes it.
    pub(super) options: &'static [&'static str],
    /// What it does to latency.
    pub(super) why: &'static str,
}

/// What matters, in the words and the order of a vendor's table where that has it.
pub(super) const TOPICS: &[Topic] = &[
    Topic {
        name: "Real-time preemption",
        options: &["PREEMPT_RT", "PREEMPT_RT_FULL"],
        why: "Nearly all of the kernel can be preempted and interrupts are threads: the worst case is no \
              longer the longest path in the kernel.",
    },
    Topic {
        name: "Preemption model",
        options: &[
            "PREEMPT",
            "PREEMPT_NONE",
            "PREEMPT_VOLUNTARY",
            "PREEMPT_LAZY",
            "PREEMPT_DYNAMIC",
            "PREEMPTION",
            "PREEMPT_COUNT",
            "PREEMPT_BUILD",
            "PREEMPT_NONE_BUILD",
            "PREEMPT_VOLUNTARY_BUILD",
        ],
        why: "Where a thread can preempt the kernel: nowhere, at chosen points, or \
              wherever no lock is held. PREEMPT_DYNAMIC leaves the choice to the boot parameter preempt=.",
    },
    Topic {
        name: "High-resolution timers",
        options: &["HIGH_RES_TIMERS"],
        why: "Without them a thread wakes at the next tick, up to milliseconds late.",
    },
    Topic {
        name: "Timer tick frequency",
        options: &["HZ", "HZ_*"],
        why: "The tick interrupts every busy CPU this often: a higher frequency schedules other threads \
              sooner and disturbs more often.",
    },
    Topic {
        name: "Tickless operation",
        options: &["NO_HZ*"],
        why: "NO_HZ_FULL keeps the tick off CPUs that run one thread (with the boot parameter nohz_full=); \
              NO_HZ_IDLE stops it on idle CPUs, and leaving idle then costs more.",
    },
    Topic {
        name: "CPU isolation and callbacks off the CPU",
        options: &["CPU_ISOLATION", "RCU_NOCB*", "RCU_EXPERT"],
        why: "Keeps housekeeping of the kernel (isolcpus=, rcu_nocbs=) away from CPUs that must answer in \
              time.",
    },
    Topic {
        name: "RCU priority boosting",
        options: &["RCU_BOOST*"],
        why: "A preempted reader that delays callbacks gets a higher priority until it has finished. So memory \
              is freed even while real-time threads keep the CPU busy.",
    },
    Topic {
        name: "CPU frequency and performance governors",
        options: &["CPU_FREQ*", "CPUFREQ*", "*_CPUFREQ", "X86_INTEL_PSTATE", "X86_AMD_PSTATE*"],
        why: "A CPU that was slowed down to save power needs time to get fast again, and its work takes \
              longer until then: leave it out, or hold the performance governor.",
    },
    Topic {
        name: "CPU idle, power management, suspend and sleep",
        options: &[
            "CPU_IDLE*",
            "CPUIDLE*",
            "INTEL_IDLE",
            "SUSPEND*",
            "HIBERNAT*",
            "PM",
            "PM_*",
            "HALTPOLL_*",
            "ARM_PSCI_CPUIDLE*",
            "ACPI_PROCESSOR_IDLE",
        ],
        why: "Waking a CPU from a deep idle state takes tens to hundreds of microseconds, and this time is \
              part of every wake-up that finds the CPU idle.",
    },
    Topic {
        name: "Thermal control",
        options: &["THERMAL*", "CPU_THERMAL", "DEVFREQ_THERMAL", "*_THERMAL"],
        why: "Thermal throttling may slow the CPU down at a bad moment. Without it, make sure \
              that the cooling is sufficient: then only the chip's own shutdown protects it.",
    },
    Topic {
        name: "Bluetooth",
        options: &["BT", "BT_*"],
        why: "Without it, there is one driver stack less whose interrupts and threads may run at any time.",
    },
    Topic {
        name: "Profiling (OProfile)",
        options: &["OPROFILE*", "PROFILING"],
        why: "Sampling interrupts take time while a profile runs; without one they cost nothing.",
    },
    Topic {
        name: "KEXEC",
        options: &["KEXEC*", "CRASH_DUMP", "CRASH_*", "PROC_VMCORE"],
        why: "Boots a second kernel from the first. It is of no use to a real-time thread, and memory is \
              reserved for it.",
    },
    Topic {
        name: "Hotplug",
        options: &[
            "HOTPLUG_CPU",
            "MEMORY_HOTPLUG*",
            "MEMORY_HOTREMOVE",
            "ACPI_HOTPLUG_*",
            "HOTPLUG_CORE*",
        ],
        why: "Removing a CPU or memory stops all CPUs for a while. Without this option, nobody can do it \
              while a real-time thread runs.",
    },
    Topic {
        name: "Transparent huge pages",
        options: &["TRANSPARENT_HUGEPAGE*", "KHUGEPAGED*", "READ_ONLY_THP_FOR_FS"],
        why: "The kernel joins and splits pages behind a program's back; a thread that touches them waits.",
    },
    Topic {
        name: "Compaction and page migration",
        options: &["COMPACTION", "MIGRATION", "KSM", "NUMA_BALANCING*", "LRU_GEN*"],
        why: "Pages are moved while threads use them; a thread that touches one waits until it is moved. \
              Locked memory is moved too, unless vm.compact_unevictable_allowed is 0.",
    },
    Topic {
        name: "Swap",
        options: &["SWAP", "ZSWAP*", "ZRAM*"],
        why: "Memory that isn't locked may be written out; the thread then waits for the disk.",
    },
    Topic {
        name: "Real-time group scheduling",
        options: &["RT_GROUP_SCHED"],
        why: "Real-time threads in a group without a share of run time are refused, or throttled.",
    },
    Topic {
        name: "Automatic groups",
        options: &["SCHED_AUTOGROUP"],
        why: "Shares CPU time between sessions: it changes how much fair threads get, not real-time ones.",
    },
    Topic {
        name: "Lock and preemption checks",
        options: &[
            "PROVE_*",
            "LOCKDEP*",
            "DEBUG_LOCK*",
            "DEBUG_SPINLOCK",
            "DEBUG_MUTEXES",
            "DEBUG_RT_MUTEXES",
            "DEBUG_PREEMPT",
            "DEBUG_ATOMIC_SLEEP",
            "DEBUG_RWSEMS",
            "LOCK_STAT",
            "DEBUG_WW_MUTEX_SLOWPATH",
            "DEBUG_IRQFLAGS",
            "TRACE_IRQFLAGS*",
            "WW_MUTEX_SELFTEST",
        ],
        why: "Every lock is checked as it is taken: latencies grow several times. Good for finding \
              errors, useless for measuring.",
    },
    Topic {
        name: "Memory checks",
        options: &[
            "KASAN*",
            "KCSAN*",
            "KMSAN*",
            "KFENCE*",
            "UBSAN*",
            "SLUB_DEBUG_ON",
            "DEBUG_PAGEALLOC*",
            "DEBUG_KMEMLEAK*",
            "PAGE_POISONING*",
            "DEBUG_VM*",
            "DEBUG_OBJECTS*",
            "DEBUG_SLAB",
        ],
        why: "Memory accesses or allocations are checked: everything in the kernel takes longer.",
    },
    Topic {
        name: "Watchdogs and stall detectors",
        options: &[
            "SOFTLOCKUP*",
            "HARDLOCKUP*",
            "LOCKUP_DETECTOR",
            "DETECT_HUNG_TASK*",
            "WQ_WATCHDOG*",
        ],
        why: "A timer on each CPU checks whether the CPU still runs: a small, regular disturbance.",
    },
    Topic {
        name: "Latency tracers that are switched on when needed",
        options: &[
            "FTRACE*",
            "FUNCTION_TRACER",
            "FUNCTION_GRAPH*",
            "DYNAMIC_FTRACE*",
            "SCHED_TRACER",
            "OSNOISE_TRACER",
            "TIMERLAT_TRACER",
            "HWLAT_TRACER",
            "HIST_TRIGGERS",
            "TRACER_*",
            "TRACING*",
            "GENERIC_TRACER",
        ],
        why: "They say where a latency comes from. Switched off, the function tracer costs nearly nothing.",
    },
    Topic {
        name: "Latency tracers that always cost time",
        options: &[
            "IRQSOFF_TRACER",
            "PREEMPT_TRACER",
            "TRACE_PREEMPT_TOGGLE",
            "STACK_TRACER",
            "LATENCYTOP",
        ],
        why: "They add code to every interrupt and every lock. Use them to explain a latency, and leave them \
              out to judge one.",
    },
    Topic {
        name: "Mitigations for CPU vulnerabilities",
        options: &[
            "CPU_MITIGATIONS",
            "MITIGATION_*",
            "RETPOLINE",
            "PAGE_TABLE_ISOLATION",
            "SPECULATION_*",
        ],
        why: "They make each entry into the kernel and each exit longer, by up to some microseconds.",
    },
    Topic {
        name: "Multiprocessing",
        options: &["SMP", "SCHED_SMT", "SCHED_MC*", "SCHED_CLUSTER"],
        why: "How threads are spread over CPUs, cores and their siblings: siblings share a core's speed.",
    },
    Topic {
        name: "Configuration in the kernel",
        options: &["IKCONFIG*"],
        why: "/proc/config.gz: with it a record says what the kernel was built with.",
    },
];
