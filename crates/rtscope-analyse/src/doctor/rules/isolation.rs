//! CPUs that are kept free for real-time threads, and what still reaches them.

use rtscope_model::{
    cpu::CpuSet,
    doctor::{
        ProblemKind::{Contradiction, Setting},
        Severity,
        Sureness::{Likely, Sure},
    },
};

use super::{
    super::{Examined, Rule, Symptom, Topic, mend},
    listed,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "nothing-isolated",
        topic: Topic::Isolation,
        kind: Setting,
        sureness: Likely,
        delay_us: 20,
        why: "other programs and their interrupts run on the CPU of a real-time thread and evict its data from the caches",
        cost: "all other programs share the CPUs that are left",
        find: nothing_isolated,
    },
    Rule {
        code: "all-cpus-isolated",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 500,
        why: "interrupts and the kernel's own work need a CPU that isn't isolated",
        cost: "one CPU",
        find: all_isolated,
    },
    Rule {
        code: "irqaffinity-over-isolated",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 50,
        why: "irqaffinity sends interrupts to the very CPUs that isolcpus keeps free",
        cost: "nothing",
        find: irqaffinity,
    },
    Rule {
        code: "default-affinity-over-isolated",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 50,
        why: "each new interrupt may go to the CPUs of the default mask",
        cost: "nothing",
        find: default_affinity,
    },
    Rule {
        code: "irqs-on-isolated",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 50,
        why: "an interrupt runs before every thread of its CPU",
        cost: "the other CPUs serve more interrupts",
        find: irqs,
    },
    Rule {
        code: "irqbalance-undoes",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Likely,
        delay_us: 50,
        why: "irqbalance keeps interrupts off isolated CPUs by itself, but doesn't know irqaffinity=",
        cost: "interrupts are balanced less evenly",
        find: irqbalance,
    },
    Rule {
        code: "nohz-full-without-rcu-nocbs",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 20,
        why: "RCU callbacks keep the tick of a CPU on; before Linux 4.14, the kernel offloads them only from the CPUs of rcu_nocbs=",
        cost: "the rcuo threads run on the other CPUs",
        find: without_nocbs,
    },
    Rule {
        code: "nohz-full-not-isolated",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 50,
        why: "the tick comes back whenever the scheduler puts a second program on the CPU",
        cost: "all other programs share the CPUs that are left",
        find: nohz_not_isolated,
    },
    Rule {
        code: "rcu-callbacks-on-isolated",
        topic: Topic::Isolation,
        kind: Setting,
        sureness: Likely,
        delay_us: 50,
        why: "RCU callbacks run in a softirq of the CPU that queued them",
        cost: "the rcuo threads run on the other CPUs",
        find: rcu_callbacks,
    },
    Rule {
        code: "isolated-shares-core",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 20,
        why: "two hardware threads share the units and the caches of their core",
        cost: "one hardware thread stays unused",
        find: shares_core,
    },
    Rule {
        code: "workqueues-on-isolated",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 50,
        why: "work that isn't bound to a CPU may run on the isolated ones",
        cost: "nothing",
        find: workqueues,
    },
    Rule {
        code: "watchdog-on-isolated",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 10,
        why: "the watchdog wakes a thread of the highest priority on each CPU of its mask",
        cost: "a lockup of these CPUs isn't reported",
        find: watchdog,
    },
    Rule {
        code: "vm-statistics-on-isolated",
        topic: Topic::Isolation,
        kind: Setting,
        sureness: Likely,
        delay_us: 5,
        why: "each CPU sums up its memory statistics at this interval, in a kernel thread",
        cost: "memory statistics are older",
        find: vm_statistics,
    },
];

/// CPUs to isolate on a machine that isolates none: the last core.
pub(in crate::doctor) fn proposed(x: &Examined<'_>) -> Option<CpuSet> {
    let cpus = &x.environment().cpus;
    let last = cpus.online.last()?;
    let siblings = cpus.each.iter().find(|cpu| cpu.cpu == last).map(|cpu| cpu.siblings.clone());
    let core: CpuSet = siblings.unwrap_or_default().iter().chain([last]).collect();
    (!cpus.online.without(&core).is_empty()).then_some(core)
}

/// Words that isolate CPUs from the start. The kernel ignores what it isn't built with.
pub(in crate::doctor) fn isolating(x: &Examined<'_>, cpus: &CpuSet) -> String {
    let rest = x.environment().cpus.online.without(cpus);
    let options = [
        ("CPU_ISOLATION", format!("isolcpus=managed_irq,domain,{cpus}")),
        ("NO_HZ_FULL", format!("nohz_full={cpus}")),
        ("RCU_NOCB_CPU", format!("rcu_nocbs={cpus}")),
    ];
    let built =
        options.into_iter().filter(|(option, _)| !x.not_built(option)).map(|(_, word)| word);
    built.chain([format!("irqaffinity={rest}")]).collect::<Vec<_>>().join(" ")
}

fn nothing_isolated(x: &Examined<'_>) -> Option<Symptom> {
    let cpus = &x.environment().cpus;
    let core = proposed(x)?;
    // What waits for the next boot is another finding.
    let comes = mend::is_pending(x.facts, "isolcpus");
    (cpus.isolated.is_empty() && cpus.online.len() > 1 && !comes).then(|| {
        let boot = mend::boot(x.facts, &isolating(x, &core));
        let mend = match x.not_built("CPU_ISOLATION") {
            true => format!("use a kernel built with CONFIG_CPU_ISOLATION=y; on this one, {boot}"),
            false => boot,
        };
        Symptom::new(format!("none of the CPUs {} is isolated", cpus.online), mend)
            .shown_by("/sys/devices/system/cpu/isolated", "empty")
    })
}

fn all_isolated(x: &Examined<'_>) -> Option<Symptom> {
    let isolated = x.isolated();
    (!isolated.is_empty() && x.housekeeping().is_empty()).then(|| {
        let mend = mend::boot_edit(x.facts, "remove CPU 0 from isolcpus=", "");
        Symptom::new(format!("all CPUs are isolated: {isolated}"), mend)
            .shown_by("/sys/devices/system/cpu/isolated", &isolated)
    })
}

fn irqaffinity(x: &Examined<'_>) -> Option<Symptom> {
    let asked = x.parameter_cpus("irqaffinity")?;
    let both = asked.common(&x.environment().cpus.isolated);
    (!both.is_empty()).then(|| {
        let rest = x.housekeeping();
        let mend = mend::boot(x.facts, &format!("irqaffinity={rest}"));
        Symptom::new(
            format!("irqaffinity={asked} names {}, which isolcpus isolates", both.named()),
            mend,
        )
        .shown_by("/proc/cmdline", format!("irqaffinity={asked}"))
        .shown_by("/sys/devices/system/cpu/isolated", &x.environment().cpus.isolated)
    })
}

fn default_affinity(x: &Examined<'_>) -> Option<Symptom> {
    let path = "proc/irq/default_smp_affinity";
    let both = x.facts.mask(path)?.common(&x.isolated());
    // What irqaffinity asks for is another finding.
    let is_asked =
        x.parameter_cpus("irqaffinity").is_some_and(|asked| !asked.common(&both).is_empty());
    (!both.is_empty() && !is_asked && !x.housekeeping().is_empty()).then(|| {
        let mend = mend::boot(x.facts, &format!("irqaffinity={}", x.housekeeping()));
        Symptom::new(format!("new interrupts may go to isolated {}", both.named()), mend)
            .shown_by(format!("/{path}"), x.facts.text(path).unwrap_or_default())
    })
}

fn irqs(x: &Examined<'_>) -> Option<Symptom> {
    let isolated = x.isolated();
    let mut reaching: Vec<_> = x
        .environment()
        .irqs
        .iter()
        .filter(|irq| irq.count > 0 && !irq.cpus.common(&isolated).is_empty())
        .collect();
    reaching.sort_by_key(|irq| std::cmp::Reverse(irq.count));
    let first = reaching.first()?;
    let name = |irq: &&rtscope_model::environment::Irq| {
        format!("{} {} (CPUs {})", irq.irq, irq.name, irq.cpus)
    };
    let places = listed(reaching.iter().map(name))?;
    let rest = x.housekeeping();
    let numbers: Vec<String> = reaching.iter().take(8).map(|irq| irq.irq.to_string()).collect();
    let away = format!(
        "for n in {}; do echo {rest} > /proc/irq/$n/smp_affinity_list; done",
        numbers.join(" ")
    );
    let is_managed = x.parameter("isolcpus").is_some_and(|value| value.contains("managed_irq"));
    let refused = match is_managed {
        true => "where a driver refuses, its interrupt comes only when programs of that CPU use the device".to_owned(),
        false => {
            let words = format!("isolcpus=managed_irq,domain,{isolated}");
            format!("for drivers that refuse: {}", mend::boot(x.facts, &words))
        }
    };
    // Somebody, or its driver, put an interrupt there that may go nowhere else.
    let is_meant = reaching.iter().all(|irq| irq.cpus.without(&isolated).is_empty());
    let (severity, mend) = match is_meant {
        true => {
            (Severity::Low, format!("if no thread of these CPUs waits for it: {away}; {refused}"))
        }
        false => (Severity::High, format!("{away}; {refused}")),
    };
    Some(
        Symptom::new(format!("interrupts may go to isolated {}: {places}", isolated.named()), mend)
            .at_most(severity)
            .shown_by(format!("/proc/irq/{}/smp_affinity_list", first.irq), &first.cpus),
    )
}

fn irqbalance(x: &Examined<'_>) -> Option<Symptom> {
    let runs = x.facts.has_service("irqbalance") || x.facts.has_service("irqbalance.service");
    let bans = x.facts.text("etc/default/irqbalance").is_some_and(|text| text.contains("BANNED"));
    let cpus = &x.environment().cpus;
    let asked = x.parameter_cpus("irqaffinity")?;
    // It keeps off the others by itself (setup_banned_cpus in irqbalance's cputree.c), unless a list is given.
    let balanced = cpus.online.without(&cpus.isolated).without(&cpus.nohz_full);
    (runs && !bans && !balanced.without(&asked).is_empty()).then(|| {
        let mend = format!(
            "{}, or in /etc/default/irqbalance: IRQBALANCE_BANNED_CPULIST={}",
            mend::disable("irqbalance"),
            cpus.online.without(&balanced.common(&asked))
        );
        let text = "irqbalance runs although irqaffinity= restricts interrupts";
        let asked = x.parameter("irqaffinity").unwrap_or_default();
        Symptom::new(text, mend)
            .shown_by("running programs", "irqbalance")
            .shown_by("/proc/cmdline", format!("irqaffinity={asked}"))
    })
}

fn without_nocbs(x: &Examined<'_>) -> Option<Symptom> {
    let full = &x.environment().cpus.nohz_full;
    if x.not_built("NO_HZ_FULL") {
        return None;
    }
    let asked = x.parameter_cpus("rcu_nocbs").unwrap_or_default();
    let missing = full.without(&asked);
    // Since then, the kernel offloads the callbacks of every CPU of nohz_full.
    let is_old = x.version().is_some_and(|version| version < (4, 14));
    (is_old && !missing.is_empty()).then(|| {
        let mend = mend::boot(x.facts, &format!("rcu_nocbs={full}"));
        Symptom::new(format!("{} in nohz_full= but not in rcu_nocbs=", are(&missing)), mend)
            .at_most(Severity::Medium)
            .shown_by("/sys/devices/system/cpu/nohz_full", full)
            .shown_by(
                "/proc/cmdline",
                x.parameter("rcu_nocbs")
                    .map_or("no rcu_nocbs".to_owned(), |v| format!("rcu_nocbs={v}")),
            )
    })
}

/// "CPU 3 is" or "CPUs 2-3 are".
fn are(cpus: &CpuSet) -> String {
    format!("{} {}", cpus.named(), if cpus.len() == 1 { "is" } else { "are" })
}

fn nohz_not_isolated(x: &Examined<'_>) -> Option<Symptom> {
    let cpus = &x.environment().cpus;
    let open = cpus.nohz_full.without(&cpus.isolated);
    // Without it, the parameter does nothing, which is another finding.
    (!open.is_empty() && !x.not_built("NO_HZ_FULL")).then(|| {
        let mend = mend::boot(x.facts, &format!("isolcpus=managed_irq,domain,{}", cpus.nohz_full));
        Symptom::new(format!("nohz_full names {}, which isn't isolated", open.named()), mend)
            .shown_by("/sys/devices/system/cpu/nohz_full", &cpus.nohz_full)
            .shown_by(
                "/sys/devices/system/cpu/isolated",
                if cpus.isolated.is_empty() {
                    "empty".to_owned()
                } else {
                    cpus.isolated.to_string()
                },
            )
    })
}

fn rcu_callbacks(x: &Examined<'_>) -> Option<Symptom> {
    let isolated = x.isolated();
    let free: CpuSet = x.parameter_cpus("rcu_nocbs").unwrap_or_default();
    let open = isolated.without(&free).without(&x.environment().cpus.nohz_full);
    (!open.is_empty()).then(|| {
        let mend = mend::boot(x.facts, &format!("rcu_nocbs={isolated}"));
        Symptom::new(format!("RCU callbacks run on isolated {}", open.named()), mend).shown_by(
            "/proc/cmdline",
            x.parameter("rcu_nocbs")
                .map_or("no rcu_nocbs".to_owned(), |v| format!("rcu_nocbs={v}")),
        )
    })
}

pub(super) fn shares_core(x: &Examined<'_>) -> Option<Symptom> {
    let cpus = &x.environment().cpus;
    let shared = cpus.each.iter().filter(|cpu| cpus.isolated.contains(cpu.cpu)).find_map(|cpu| {
        let beside = cpu.siblings.common(&cpus.online).without(&cpus.isolated);
        (!beside.is_empty()).then_some((cpu.cpu, beside))
    });
    let (cpu, beside) = shared?;
    let list: Vec<String> = beside.iter().map(|cpu| cpu.to_string()).collect();
    let mend = format!(
        "isolate it too, or take it offline: for n in {}; do echo 0 > /sys/devices/system/cpu/cpu$n/online; done",
        list.join(" ")
    );
    Some(
        Symptom::new(
            format!(
                "isolated CPU {cpu} shares its core with {}, which isn't isolated",
                beside.named()
            ),
            mend,
        )
        .shown_by(
            format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
            beside,
        ),
    )
}

fn workqueues(x: &Examined<'_>) -> Option<Symptom> {
    let path = "sys/devices/virtual/workqueue/cpumask";
    let both = x.facts.mask(path)?.common(&x.isolated());
    (!both.is_empty() && !x.housekeeping().is_empty()).then(|| {
        Symptom::new(
            format!("unbound kernel work may run on isolated {}", both.named()),
            mend::write(path, &mask_text(&x.housekeeping())),
        )
        .shown_by(format!("/{path}"), x.facts.text(path).unwrap_or_default())
    })
}

/// CPUs as the kernel reads a mask: hexadecimal, at most 32 bits between two commas (`bitmap_parse`).
fn mask_text(cpus: &CpuSet) -> String {
    let word = |n: u32| {
        let of_word = cpus.iter().filter(|cpu| cpu / 32 == n);
        of_word.fold(0_u32, |mask, cpu| mask | 1 << (cpu % 32))
    };
    let highest = cpus.last().unwrap_or(0) / 32;
    let rest = (0..highest).rev().map(|n| format!(",{:08x}", word(n)));
    format!("{:x}", word(highest)) + &rest.collect::<String>()
}

fn watchdog(x: &Examined<'_>) -> Option<Symptom> {
    if x.sysctl("kernel/watchdog")? == "0" {
        return None;
    }
    let mask: CpuSet = x.sysctl("kernel/watchdog_cpumask")?.parse().ok()?;
    let both = mask.common(&x.isolated());
    (!both.is_empty()).then(|| {
        let mend = mend::sysctl("kernel/watchdog_cpumask", &x.housekeeping().to_string());
        Symptom::new(format!("the watchdog runs on isolated {}", both.named()), mend)
            .shown_by("/proc/sys/kernel/watchdog_cpumask", mask)
    })
}

fn vm_statistics(x: &Examined<'_>) -> Option<Symptom> {
    let seconds: u32 = x.sysctl("vm/stat_interval")?.parse().ok()?;
    (seconds < 10 && !x.isolated().is_empty()).then(|| {
        let text =
            format!("memory statistics are summed up every {seconds} s, on isolated CPUs too");
        Symptom::new(text, mend::sysctl("vm/stat_interval", "120"))
            .shown_by("/proc/sys/vm/stat_interval", seconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_at_most_32_bits_between_commas() {
        for (cpus, mask) in
            [("0-1", "3"), ("0,32", "1,00000001"), ("64,95", "80000001,00000000,00000000")]
        {
            assert_eq!(mask_text(&cpus.parse().expect("CPUs")), mask);
        }
    }
}
