//! Frequencies and idle states, and who sets them back.

use rtscope_model::{
    doctor::{
        ProblemKind::{Contradiction, Setting},
        Severity,
        Sureness::{Likely, Possible, Sure},
    },
    environment::Cpu,
};

use super::{
    super::{Examined, Rule, Symptom, Topic, mend},
    isolation::shares_core,
    listed,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "governor",
        topic: Topic::Power,
        kind: Setting,
        sureness: Likely,
        delay_us: 100,
        why: "a CPU that is mostly idle runs at a low frequency, so what a thread does when it wakes takes longer",
        cost: "more power and heat",
        find: governor,
    },
    Rule {
        code: "governor-set-back",
        topic: Topic::Power,
        kind: Contradiction,
        sureness: Likely,
        delay_us: 100,
        why: "a service that changes the governor, when it starts or when the load changes, undoes your setting",
        cost: "the power savings of this service",
        find: set_back,
    },
    Rule {
        code: "deep-idle",
        topic: Topic::Power,
        kind: Setting,
        sureness: Sure,
        delay_us: 10,
        why: "the exit latency of an idle state is part of each wake-up from it",
        cost: "more power and heat; on some machines also a lower turbo frequency",
        find: deep_idle,
    },
    Rule {
        code: "turbo",
        topic: Topic::Power,
        kind: Setting,
        sureness: Possible,
        delay_us: 5,
        why: "the frequency changes with temperature and with the load of other cores, so execution times vary",
        cost: "less throughput",
        find: turbo,
    },
    Rule {
        code: "smt",
        topic: Topic::Power,
        kind: Setting,
        sureness: Likely,
        delay_us: 10,
        why: "what runs on the other hardware thread of the core slows a thread down, whatever its priority",
        cost: "a quarter of the throughput, or more",
        find: smt,
    },
];

fn cpus<'a>(x: &Examined<'a>) -> impl Iterator<Item = &'a Cpu> {
    let wanted = x.cpus.clone();
    x.environment().cpus.each.iter().filter(move |cpu| wanted.contains(cpu.cpu))
}

fn governor(x: &Examined<'_>) -> Option<Symptom> {
    let slow =
        || cpus(x).filter(|cpu| cpu.governor.as_deref().is_some_and(|name| name != "performance"));
    let first = slow().next()?;
    let places = slow()
        .map(|cpu| format!("CPU {} {}", cpu.cpu, cpu.governor.as_deref().unwrap_or_default()));
    let text = format!("the frequency governor is not performance: {}", listed(places)?);
    let mend = "for f in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $f; done \
                (lasts until the next boot; cpupower.service or cpufrequtils keep it)";
    let path = format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", first.cpu);
    Some(Symptom::new(text, mend).shown_by(path, first.governor.clone().unwrap_or_default()))
}

/// Services that set the governor, with the name of their process and of their unit.
const SETTERS: [(&str, &str); 6] = [
    ("power-profiles-", "power-profiles-daemon.service"),
    ("tuned", "tuned.service"),
    ("tlp", "tlp.service"),
    ("auto-cpufreq", "auto-cpufreq.service"),
    ("ondemand", "ondemand.service"),
    ("cpufrequtils", "cpufrequtils.service"),
];

fn set_back(x: &Examined<'_>) -> Option<Symptom> {
    cpus(x).find(|cpu| cpu.governor.is_some())?;
    let keeps = |unit: &str| match unit {
        // These may hold the governor where it should be.
        "tuned.service" => x.facts.text("etc/tuned/active_profile").is_some_and(|profile| {
            [
                "realtime",
                "latency-performance",
                "cpu-partitioning",
                "throughput-performance",
                "network-latency",
            ]
            .iter()
            .any(|good| profile.starts_with(good))
        }),
        "cpufrequtils.service" => {
            let text = x.facts.text("etc/default/cpufrequtils").unwrap_or_default();
            text.lines().any(|line| line.starts_with("GOVERNOR=") && line.contains("performance"))
        }
        _ => false,
    };
    let (program, unit) = SETTERS.into_iter().find(|(program, unit)| {
        (x.facts.has_service(program) || x.facts.has_service(unit)) && !keeps(unit)
    })?;
    let text = format!("{unit} can change the frequency governor");
    let mend = match unit {
        "tuned.service" => {
            "tuned-adm profile realtime (package tuned-profiles-realtime), or latency-performance"
                .to_owned()
        }
        "cpufrequtils.service" => {
            "in /etc/default/cpufrequtils: GOVERNOR=\"performance\"".to_owned()
        }
        _ => mend::disable(unit),
    };
    let shown = if x.facts.has_service(unit) { unit } else { program };
    // What the governor is now is another finding.
    Some(Symptom::new(text, mend).at_most(Severity::Medium).shown_by("services", shown))
}

/// Exit latency in us from which an idle state is worth a finding: it is paid in the wake-up.
pub(in crate::doctor) const DEEP_US: u64 = 10;

/// The longest exit latency that the CPU's own setting allows: 0 there is no limit, `n/a` allows none.
fn resume_limit_us(x: &Examined<'_>, cpu: u32) -> u64 {
    let path = format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    match x.facts.text(&path) {
        Some("n/a") => 0,
        Some(text) => text.parse().ok().filter(|us| *us > 0).unwrap_or(u64::MAX),
        None => u64::MAX,
    }
}

fn deep_idle(x: &Examined<'_>) -> Option<Symptom> {
    let deepest = |cpu: &Cpu| {
        let limit_us = x.idle_limit_us.min(resume_limit_us(x, cpu.cpu));
        let allowed = cpu.idle_states.iter().filter(|state| state.latency_us <= limit_us);
        allowed
            .max_by_key(|state| state.latency_us)
            .filter(|state| state.latency_us >= DEEP_US)
            .cloned()
    };
    let deep = || cpus(x).filter_map(|cpu| Some((cpu.cpu, deepest(cpu)?)));
    let (first, state) =
        deep().max_by_key(|(cpu, state)| (state.latency_us, std::cmp::Reverse(*cpu)))?;
    let places =
        deep().map(|(cpu, state)| format!("CPU {cpu} {} ({} us)", state.name, state.latency_us));
    let text =
        format!("deep idle states are allowed (exit latency in parentheses): {}", listed(places)?);
    let mend = "hold /dev/cpu_dma_latency open with the value 0 while the program runs; to try it: \
                rtscope run --set dma-latency=0";
    Some(Symptom::new(text, mend).delay_us(state.latency_us).shown_by(
        format!("/sys/devices/system/cpu/cpu{first}/cpuidle/state*/latency"),
        format!("{} {} us", state.name, state.latency_us),
    ))
}

fn turbo(x: &Examined<'_>) -> Option<Symptom> {
    let intel = "sys/devices/system/cpu/intel_pstate/no_turbo";
    let boost = "sys/devices/system/cpu/cpufreq/boost";
    let (path, value, off) = match (x.facts.text(intel), x.facts.text(boost)) {
        (Some("0"), _) => (intel, "0", "1"),
        (None, Some("1")) => (boost, "1", "0"),
        _ => return None,
    };
    Some(
        Symptom::new(
            "CPUs may raise their frequency above the nominal one",
            mend::write(path, off),
        )
        .shown_by(format!("/{path}"), value),
    )
}

fn smt(x: &Examined<'_>) -> Option<Symptom> {
    // An isolated CPU beside one that isn't is the worse finding of the two.
    if shares_core(x).is_some() {
        return None;
    }
    let cpu = cpus(x).find(|cpu| !cpu.siblings.common(&x.environment().cpus.online).is_empty())?;
    let path = "sys/devices/system/cpu/smt/control";
    let text = format!("CPU {} shares its core with CPU {}", cpu.cpu, cpu.siblings);
    let mend = match x.facts.text(path) {
        Some("on") => mend::write(path, "off"),
        _ => mend::boot(x.facts, "nosmt"),
    };
    Some(Symptom::new(text, mend).shown_by(
        format!("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu.cpu),
        &cpu.siblings,
    ))
}
