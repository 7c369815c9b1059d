//! Clocks and timers.

use rtscope_model::doctor::{
    ProblemKind::{Contradiction, Setting},
    Sureness::{Likely, Possible, Sure},
};

use super::super::{Examined, Rule, Symptom, Topic, mend};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "clock-source-slow",
        topic: Topic::Time,
        kind: Setting,
        sureness: Sure,
        delay_us: 5,
        why: "reading this clock accesses a device and takes 1 us or more",
        cost: "nothing, where the CPU's counter is sound",
        find: slow_source,
    },
    Rule {
        code: "tsc-not-used",
        topic: Topic::Time,
        kind: Setting,
        sureness: Likely,
        delay_us: 5,
        why: "the kernel found that the time stamp counters of the CPUs differ or stop, often by a fault of the firmware",
        cost: "nothing",
        find: no_tsc,
    },
    Rule {
        code: "clock-source-not-applied",
        topic: Topic::Time,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 5,
        why: "the kernel rejected the clock that the command line selects, or vouches for with tsc=reliable",
        cost: "nothing",
        find: not_applied,
    },
    Rule {
        code: "timer-migration",
        topic: Topic::Time,
        kind: Setting,
        sureness: Possible,
        delay_us: 20,
        why: "timers of other programs may move to a busy CPU, and waking a thread from another CPU needs an \
              inter-processor interrupt",
        cost: "idle CPUs wake more often",
        find: migration,
    },
];

const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";

fn slow_source(x: &Examined<'_>) -> Option<Symptom> {
    let clock = &x.environment().clock;
    let current = clock.current.as_deref()?;
    let slow = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"];
    let better = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"]
        .into_iter()
        .find(|name| clock.available.iter().any(|one| one == name));
    slow.contains(&current).then(|| {
        let mend = match better {
            Some(better) => mend::boot(x.facts, &format!("clocksource={better}")),
            None => "update the firmware; the kernel's log says why it gave the faster clock up: dmesg | grep -i clocksource".to_owned(),
        };
        let symptom = Symptom::new(format!("the clock source is {current}"), mend);
        let symptom = match current.ends_with("jiffies") {
            true => symptom.because("this clock advances only at ticks"),
            false => symptom,
        };
        symptom
            .shown_by(format!("{FOLDER}/current_clocksource"), current)
    })
}

fn no_tsc(x: &Examined<'_>) -> Option<Symptom> {
    let clock = &x.environment().clock;
    let current = clock.current.as_deref()?;
    let has_it = clock.available.iter().any(|name| name == "tsc");
    (x.is_x86() && x.around(false).is_none() && !has_it && !clock.available.is_empty()).then(|| {
        let mend = "update the firmware, and look at dmesg | grep -i tsc; use tsc=reliable only if you know that the counter is reliable";
        Symptom::new(format!("the time stamp counter isn't among the clocks; the source is {current}"), mend)
            .shown_by(format!("{FOLDER}/available_clocksource"), clock.available.join(" "))
    })
}

fn not_applied(x: &Examined<'_>) -> Option<Symptom> {
    // tsc=reliable selects nothing: it only counts where no other clock is asked for.
    let (asked, word) = match x.parameter("clocksource") {
        Some(asked) => (asked, format!("clocksource={asked}")),
        None => {
            x.parameter("tsc").filter(|value| *value == "reliable")?;
            ("tsc", "tsc=reliable".to_owned())
        }
    };
    let current = x.environment().clock.current.as_deref()?;
    (asked != current && x.around(false).is_none_or(|_| asked != "tsc")).then(|| {
        let mend = format!(
            "find out why the kernel rejected the clock (dmesg | grep -i clocksource), or {}",
            mend::boot_without(x.facts, &word)
        );
        Symptom::new(
            format!("the command line has {word}, and the kernel uses the clock {current}"),
            mend,
        )
        .shown_by("/proc/cmdline", word)
        .shown_by(format!("{FOLDER}/current_clocksource"), current)
    })
}

fn migration(x: &Examined<'_>) -> Option<Symptom> {
    (x.sysctl("kernel/timer_migration")? == "1" && x.environment().cpus.online.len() > 1).then(
        || {
            Symptom::new(
                "timers of idle CPUs move to busy ones",
                mend::sysctl("kernel/timer_migration", "0"),
            )
            .shown_by("/proc/sys/kernel/timer_migration", 1)
        },
    )
}
