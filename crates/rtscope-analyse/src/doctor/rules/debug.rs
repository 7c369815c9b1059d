//! What watches the kernel while it runs.

use rtscope_model::{
    cpu::CpuSet,
    doctor::{
        ProblemKind::Setting,
        Severity,
        Sureness::{Likely, Possible, Sure},
    },
};

use super::super::{Examined, Rule, Symptom, Topic, mend};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "nmi-watchdog",
        topic: Topic::Debug,
        kind: Setting,
        sureness: Sure,
        delay_us: 5,
        why: "it interrupts each CPU with an NMI about every 10 s, and takes a performance counter",
        cost: "a CPU that hangs with interrupts off isn't reported",
        find: nmi,
    },
    Rule {
        code: "soft-watchdog",
        topic: Topic::Debug,
        kind: Setting,
        sureness: Sure,
        delay_us: 5,
        why: "it runs a thread of the highest priority on each CPU every 4 s",
        cost: "a CPU that hangs isn't reported",
        find: soft,
    },
    Rule {
        code: "tracer-on",
        topic: Topic::Debug,
        kind: Setting,
        sureness: Sure,
        delay_us: 50,
        why: "the tracer writes to memory at each function or event",
        cost: "nothing",
        find: tracer,
    },
    Rule {
        code: "serial-console-verbose",
        topic: Topic::Debug,
        kind: Setting,
        sureness: Sure,
        delay_us: 5_000,
        why: "a kernel message goes out over the serial line, 87 us for each character at 115200 baud, \
              in older kernels with interrupts off",
        cost: "the messages are only in dmesg",
        find: console,
    },
    Rule {
        code: "machine-check-poll",
        topic: Topic::Debug,
        kind: Setting,
        sureness: Likely,
        delay_us: 10,
        why: "a timer looks for corrected hardware errors on each CPU",
        cost: "corrected errors are seen later, or not at all",
        find: machine_check,
    },
    Rule {
        code: "edac-poll",
        topic: Topic::Debug,
        kind: Setting,
        sureness: Possible,
        delay_us: 20,
        why: "a driver reads registers of the memory controller at this interval",
        cost: "memory errors are seen later",
        find: edac,
    },
];

/// Whether the watchdogs' mask, where it is shown, has a CPU of real-time threads.
fn watches(x: &Examined<'_>) -> bool {
    let mask = x.sysctl("kernel/watchdog_cpumask").and_then(|text| text.parse::<CpuSet>().ok());
    mask.is_none_or(|mask| !mask.common(&x.cpus).is_empty())
}

fn nmi(x: &Examined<'_>) -> Option<Symptom> {
    (x.sysctl("kernel/nmi_watchdog")? == "1" && watches(x)).then(|| {
        Symptom::new("the hard-lockup detector is on", mend::sysctl("kernel/nmi_watchdog", "0"))
            .shown_by("/proc/sys/kernel/nmi_watchdog", 1)
    })
}

fn soft(x: &Examined<'_>) -> Option<Symptom> {
    let is_on =
        x.sysctl("kernel/watchdog")? == "1" && x.sysctl("kernel/soft_watchdog") != Some("0");
    (is_on && watches(x)).then(|| {
        Symptom::new("the soft-lockup detector is on", mend::sysctl("kernel/soft_watchdog", "0"))
            .shown_by("/proc/sys/kernel/watchdog", 1)
    })
}

fn tracer(x: &Examined<'_>) -> Option<Symptom> {
    let paths = ["sys/kernel/tracing/current_tracer", "sys/kernel/debug/tracing/current_tracer"];
    let (path, name) = paths.into_iter().find_map(|path| Some((path, x.facts.text(path)?)))?;
    (name != "nop").then(|| {
        Symptom::new(format!("the tracer {name} is on"), mend::write(path, "nop"))
            .shown_by(format!("/{path}"), name)
    })
}

fn console(x: &Examined<'_>) -> Option<Symptom> {
    let words = x.line().split_whitespace();
    let serial = words.filter_map(|word| word.strip_prefix("console=")).find(|name| {
        ["ttyS", "ttyAMA", "ttyO", "ttymxc", "serial"].iter().any(|start| name.starts_with(start))
    })?;
    let level: u32 = x.sysctl("kernel/printk")?.split_whitespace().next()?.parse().ok()?;
    (level >= 7).then(|| {
        // A message is shown if its level is below the console's: info is 6, debug is 7.
        let last = if level > 7 { "debug" } else { "info" };
        let text = format!("kernel messages up to {last} go to the serial console {serial}");
        Symptom::new(text, mend::sysctl("kernel/printk", "3"))
            .at_most(Severity::Medium)
            .shown_by("/proc/cmdline", format!("console={serial}"))
            .shown_by("/proc/sys/kernel/printk", level)
    })
}

fn machine_check(x: &Examined<'_>) -> Option<Symptom> {
    let path = "sys/devices/system/machinecheck/machinecheck0/check_interval";
    let seconds = x.facts.number(path).filter(|seconds| *seconds > 0)?;
    let ignores =
        x.facts.text("sys/devices/system/machinecheck/machinecheck0/ignore_ce") == Some("1");
    (!ignores && x.around(false).is_none()).then(|| {
        let text = format!("each CPU polls for corrected hardware errors every {seconds} s");
        Symptom::new(text, mend::boot(x.facts, "mce=ignore_ce"))
            .shown_by(format!("/{path}"), seconds)
    })
}

fn edac(x: &Examined<'_>) -> Option<Symptom> {
    let path = "sys/module/edac_core/parameters/edac_mc_poll_msec";
    let ms = x.facts.number(path).filter(|ms| *ms > 0 && *ms < 10_000)?;
    // The interval is there without a driver that uses it.
    x.facts.text("sys/devices/system/edac/mc/mc0/mc_name")?;
    let text = format!("the driver of the memory controller looks for errors every {ms} ms");
    Some(Symptom::new(text, mend::write(path, "60000")).shown_by(format!("/{path}"), ms))
}
