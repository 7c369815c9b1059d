//! The kernel's command line: what it asks for that can't be, and what is asked twice.

use rtscope_model::{
    cpu::CpuSet,
    doctor::{
        ProblemKind::{Contradiction, Setting},
        Severity,
        Sureness::{Likely, Sure},
    },
    environment::Preemption,
};

use super::{
    super::{Examined, Rule, Symptom, Topic, mend},
    listed,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "nohz-full-not-built",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 10,
        why: "the kernel ignores the parameter, so the tick stays on these CPUs",
        cost: "nothing",
        find: nohz_full_not_built,
    },
    Rule {
        code: "rcu-nocbs-not-built",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 50,
        why: "the kernel ignores the parameter, so RCU callbacks run on these CPUs in a softirq",
        cost: "nothing",
        find: rcu_nocbs_not_built,
    },
    Rule {
        code: "isolcpus-not-built",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 100,
        why: "the kernel ignores the parameter, so every program may run on these CPUs",
        cost: "nothing",
        find: isolcpus_not_built,
    },
    Rule {
        code: "cmdline-repeated",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 50,
        why: "which of the values takes effect depends on the parameter",
        cost: "nothing",
        find: repeated,
    },
    Rule {
        code: "cmdline-absent-cpus",
        topic: Topic::Isolation,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 50,
        why: "the command line was made for a machine with more CPUs, or some were taken offline",
        cost: "nothing",
        find: absent_cpus,
    },
    Rule {
        code: "boot-config-not-in-force",
        topic: Topic::Kernel,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 100,
        why: "a parameter in the boot loader's settings has no effect until the kernel is started with it",
        cost: "a reboot",
        find: not_in_force,
    },
    Rule {
        code: "preempt-not-applied",
        topic: Topic::Kernel,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 500,
        why: "a kernel that isn't built with PREEMPT_DYNAMIC ignores the parameter preempt=",
        cost: "nothing",
        find: preempt_not_applied,
    },
    Rule {
        code: "idle-poll-with-smt",
        topic: Topic::Power,
        kind: Contradiction,
        sureness: Likely,
        delay_us: 20,
        why: "an idle CPU that polls takes execution units from the hardware thread beside it",
        cost: "half of the CPUs without SMT, or slower wake-ups without idle=poll",
        find: poll_with_smt,
    },
    Rule {
        code: "mitigations",
        topic: Topic::Kernel,
        kind: Setting,
        sureness: Likely,
        delay_us: 3,
        why: "mitigations for CPU vulnerabilities make each entry into the kernel longer",
        cost: "programs can read each other's memory: only for a machine that runs nothing but trusted programs",
        find: mitigations,
    },
];

fn unbuilt(x: &Examined<'_>, parameter: &str, options: &[&str]) -> Option<Symptom> {
    let value = x.parameter(parameter)?;
    if !options.iter().all(|option| x.not_built(option)) {
        return None;
    }
    let option = options[0];
    let text = format!(
        "the command line has {parameter}={value}, but the kernel is built without CONFIG_{option}"
    );
    let mend = format!(
        "run a kernel with CONFIG_{option}=y, or {}",
        mend::boot_without(x.facts, parameter)
    );
    let source = x.environment().kernel.config_source.as_deref().unwrap_or("configuration");
    Some(
        Symptom::new(text, mend)
            .shown_by("/proc/cmdline", format!("{parameter}={value}"))
            .shown_by(source, format!("CONFIG_{option} is not set")),
    )
}

fn nohz_full_not_built(x: &Examined<'_>) -> Option<Symptom> {
    unbuilt(x, "nohz_full", &["NO_HZ_FULL"])
}

fn rcu_nocbs_not_built(x: &Examined<'_>) -> Option<Symptom> {
    unbuilt(x, "rcu_nocbs", &["RCU_NOCB_CPU"])
}

fn isolcpus_not_built(x: &Examined<'_>) -> Option<Symptom> {
    unbuilt(x, "isolcpus", &["CPU_ISOLATION"])
}

/// Parameters that are compared.
const PARAMETERS: [&str; 6] =
    ["irqaffinity", "isolcpus", "nohz_full", "preempt", "rcu_nocbs", "clocksource"];

fn repeated(x: &Examined<'_>) -> Option<Symptom> {
    let words = || x.line().split_whitespace().take_while(|word| *word != "--");
    let (name, values) = PARAMETERS.iter().find_map(|name| {
        let values = words().filter_map(|word| word.split_once('=').filter(|(key, _)| key == name));
        let values: Vec<&str> = values.map(|(_, value)| value).collect();
        (values.len() > 1 && values.iter().any(|value| *value != values[0]))
            .then_some((*name, values))
    })?;
    let text = format!(
        "the command line has {name} more than once, with different values: {}",
        values.join(" and ")
    );
    let mend = mend::boot_without(x.facts, &format!("all but one {name}="));
    Some(
        Symptom::new(text, mend)
            .shown_by("/proc/cmdline", format!("{name}={}", values.join(&format!(" {name}=")))),
    )
}

fn absent_cpus(x: &Examined<'_>) -> Option<Symptom> {
    let online = &x.environment().cpus.online;
    if online.is_empty() {
        return None;
    }
    let absent = |name: &'static str| {
        let asked = x.parameter_cpus(name)?;
        let absent: CpuSet = asked.without(online);
        (!absent.is_empty()).then_some((name, absent))
    };
    let (name, absent) =
        ["isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity"].into_iter().find_map(absent)?;
    let text = format!("{name} names {}, but the CPUs online are {online}", absent.named());
    let value = x.parameter(name).unwrap_or_default();
    let mend = mend::boot_edit(
        x.facts,
        &format!("change {name}={value}"),
        &format!(" so that it names only {}", online.named()),
    );
    // The kernel leaves out CPUs that it hasn't.
    Some(
        Symptom::new(text, mend)
            .at_most(Severity::Low)
            .shown_by("/proc/cmdline", format!("{name}={value}"))
            .shown_by("/sys/devices/system/cpu/online", online),
    )
}

fn not_in_force(x: &Examined<'_>) -> Option<Symptom> {
    if x.line().is_empty() {
        return None;
    }
    let running: Vec<String> = x.line().split_whitespace().map(mend::canonical).collect();
    let matters = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| PARAMETERS.contains(&name))
            || *word == "threadirqs"
    };
    let (path, missing) = mend::boot_words(x.facts).into_iter().find_map(|(path, words)| {
        let missing = words.iter().filter(matters).filter(|word| !running.contains(word));
        Some((path, listed(missing.cloned())?))
    })?;
    let text = format!("/{path} has {missing}, but the running kernel was started without");
    Some(
        Symptom::new(text, mend::boot_again(x.facts))
            .shown_by(format!("/{path}"), missing)
            .shown_by("/proc/cmdline", x.line()),
    )
}

fn preempt_not_applied(x: &Examined<'_>) -> Option<Symptom> {
    let value = x.parameter("preempt")?;
    let kernel = &x.environment().kernel;
    if x.preemption() == Preemption::RealTime {
        return None;
    }
    let is_dynamic = kernel.version.contains("PREEMPT_DYNAMIC") || x.built("PREEMPT_DYNAMIC");
    (!is_dynamic && !kernel.version.is_empty()).then(|| {
        let text = format!("the command line has preempt={value}, but the kernel can't change its preemption mode");
        let mend = "use a kernel built with CONFIG_PREEMPT_DYNAMIC=y, or a PREEMPT_RT kernel, which doesn't need preempt=";
        Symptom::new(text, mend)
            .shown_by("/proc/cmdline", format!("preempt={value}"))
            .shown_by("uname -v", &kernel.version)
    })
}

fn poll_with_smt(x: &Examined<'_>) -> Option<Symptom> {
    let siblings = x.environment().cpus.each.iter().any(|cpu| !cpu.siblings.is_empty());
    (x.parameter("idle") == Some("poll") && siblings).then(|| {
        let mend = format!("{}; {}", mend::boot(x.facts, "nosmt"), "or remove idle=poll");
        Symptom::new("idle CPUs poll, and two hardware threads share a core", mend)
            .shown_by("/proc/cmdline", "idle=poll")
    })
}

fn mitigations(x: &Examined<'_>) -> Option<Symptom> {
    let folder = "sys/devices/system/cpu/vulnerabilities/";
    let active = x.facts.texts_below(folder).filter(|(_, text)| text.starts_with("Mitigation"));
    let names: Vec<String> =
        active.map(|(path, _)| path.trim_start_matches(folder).to_owned()).collect();
    if x.parameter("mitigations") == Some("off") {
        return None;
    }
    let names = listed(names)?;
    let text = format!("mitigations for CPU vulnerabilities are on: {names}");
    Some(
        Symptom::new(text, mend::boot(x.facts, "mitigations=off"))
            .shown_by(format!("/{folder}*"), names),
    )
}
