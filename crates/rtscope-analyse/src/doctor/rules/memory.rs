//! What the kernel does with memory while a thread runs.

use rtscope_model::doctor::{
    ProblemKind::Setting,
    Severity,
    Sureness::{Likely, Possible},
};

use super::super::{Examined, Rule, Symptom, Topic, mend};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "swap",
        topic: Topic::Memory,
        kind: Setting,
        sureness: Possible,
        delay_us: 10_000,
        why: "a thread whose memory isn't locked waits for the disk when a page was swapped out",
        cost: "programs are killed when memory runs out",
        find: swap,
    },
    Rule {
        code: "thp-always",
        topic: Topic::Memory,
        kind: Setting,
        sureness: Likely,
        delay_us: 100,
        why: "the kernel clears 2 MiB at a page fault, and collapses pages into huge pages while programs run",
        cost: "programs with much memory get slower",
        find: thp,
    },
    Rule {
        code: "numa-balancing",
        topic: Topic::Memory,
        kind: Setting,
        sureness: Likely,
        delay_us: 100,
        why: "the kernel takes pages away from a program for a moment to see who uses them, which causes page faults",
        cost: "programs may stay far from their memory",
        find: numa,
    },
    Rule {
        code: "ksm",
        topic: Topic::Memory,
        kind: Setting,
        sureness: Likely,
        delay_us: 50,
        why: "writing to a merged page causes a page fault, even in locked memory",
        cost: "guests with identical pages use more memory",
        find: ksm,
    },
    Rule {
        code: "compaction",
        topic: Topic::Memory,
        kind: Setting,
        sureness: Possible,
        delay_us: 10,
        why: "the kernel moves pages in the background, and a thread that touches one then waits",
        cost: "huge pages are found less often",
        find: compaction,
    },
];

fn swap(x: &Examined<'_>) -> Option<Symptom> {
    let path = "proc/swaps";
    let areas = x.facts.text(path)?.lines().skip(1).filter(|line| !line.trim().is_empty());
    let first = areas.map(|line| line.split_whitespace().next().unwrap_or_default()).next()?;
    let text = format!("memory may be swapped out to {first}");
    let mend = "lock the memory of the program (mlockall), or switch swap off: swapoff -a, and its line in /etc/fstab";
    Some(Symptom::new(text, mend).at_most(Severity::Medium).shown_by(format!("/{path}"), first))
}

fn thp(x: &Examined<'_>) -> Option<Symptom> {
    let mode = x.environment().memory.transparent_hugepage.as_deref()?;
    (mode == "always").then(|| {
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        Symptom::new("transparent huge pages are used everywhere", mend::write(path, "madvise"))
            .shown_by(format!("/{path}"), mode)
    })
}

fn numa(x: &Examined<'_>) -> Option<Symptom> {
    let value = x.sysctl("kernel/numa_balancing").filter(|value| *value != "0")?;
    let nodes = x.facts.cpus("sys/devices/system/node/online")?;
    (nodes.len() > 1).then(|| {
        let text = format!("the kernel balances memory among {} nodes", nodes.len());
        Symptom::new(text, mend::sysctl("kernel/numa_balancing", "0"))
            .shown_by("/proc/sys/kernel/numa_balancing", value)
    })
}

fn ksm(x: &Examined<'_>) -> Option<Symptom> {
    let path = "sys/kernel/mm/ksm/run";
    (x.facts.number(path)? == 1).then(|| {
        Symptom::new(
            "KSM is on: the kernel merges identical pages of programs that asked for it",
            mend::write(path, "2"),
        )
        .shown_by(format!("/{path}"), 1)
    })
}

fn compaction(x: &Examined<'_>) -> Option<Symptom> {
    let value = x.sysctl("vm/compaction_proactiveness").filter(|value| *value != "0")?;
    Some(
        Symptom::new(
            "the kernel compacts memory in the background",
            mend::sysctl("vm/compaction_proactiveness", "0"),
        )
        .shown_by("/proc/sys/vm/compaction_proactiveness", value),
    )
}
