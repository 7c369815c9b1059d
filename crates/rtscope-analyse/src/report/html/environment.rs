//! The machine as found, and what was different after the run.

use std::collections::BTreeMap;

use rtscope_model::{
    cpu::CpuSet,
    environment::{Cpu, Environment, Permission},
    record::Record,
    time::Nanos,
};
use serde_json::Value;

use super::Fact;
use crate::{
    number::{counted, grouped},
    plot::{table::Table, words::time},
};

/// The section of the machine.
#[derive(Debug)]
pub(super) struct EnvironmentView {
    pub(super) headline: String,
    pub(super) groups: Vec<Group>,
    pub(super) tables: Vec<(String, Table)>,
    pub(super) differences: Table,
}

/// Facts that belong together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) facts: Vec<Fact>,
}

impl EnvironmentView {
    pub(super) fn new(record: &Record) -> EnvironmentView {
        let mut view = EnvironmentView {
            headline: "The record does not say on which machine it was measured".to_owned(),
            groups: Vec::new(),
            tables: Vec::new(),
            differences: differences(record.before.as_ref(), record.after.as_ref()),
        };
        if record.is_imported() {
            view.headline = "An import does not say how the machine was set up".to_owned();
        }
        let Some(found) = record.before.as_ref().or(record.after.as_ref()) else { return view };
        view.headline = headline(found);
        view.groups = [kernel(found), cpus(found), timing(found), machine(found)].map(told).into();
        view.tables = vec![
            (
                counted(found.real_time_threads.len() as u64, "other real-time thread"),
                threads(found),
            ),
            (counted(found.irqs.len() as u64, "interrupt"), irqs(found)),
            (counted(found.sysctl.len() as u64, "kernel setting"), pairs("setting", &found.sysctl)),
            configuration(
                &found.kernel.config,
                if record.before.is_some() {
                    "environment.before.json"
                } else {
                    "environment.after.json"
                },
            ),
        ];
        if !found.network.is_empty() {
            let cards = counted(found.network.len() as u64, "network card");
            view.tables.insert(2, (cards, network(found)));
        }
        view
    }
}

fn headline(found: &Environment) -> String {
    let place = match &found.virtualisation {
        Some(kind) => format!(" inside {kind}"),
        None => String::new(),
    };
    format!(
        "Linux {} ({}) on {}{place}",
        found.kernel.release,
        found.kernel.preemption.word(),
        counted(found.cpus.online.len() as u64, "CPU")
    )
}

/// The value of what the kernel did not show.
const NOT_SHOWN: &str = "not shown";

/// The text, or that the kernel did not show it.
fn or_unknown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| NOT_SHOWN.to_owned(), |value| value.to_string())
}

fn set_or_none(set: &CpuSet) -> String {
    if set.is_empty() { "none".to_owned() } else { set.to_string() }
}

/// What the kernel did not show in one row, not in a row for each.
fn told(mut group: Group) -> Group {
    let is_shown = |fact: &Fact| !fact.value.is_empty() && fact.value != NOT_SHOWN;
    let (shown, hidden): (Vec<Fact>, Vec<Fact>) = group.facts.into_iter().partition(is_shown);
    group.facts = shown;
    if !hidden.is_empty() {
        let names: Vec<String> = hidden.into_iter().map(|fact| fact.name.to_lowercase()).collect();
        group.facts.push(Fact::new("Not shown", names.join(", ")));
    }
    group
}

fn kernel(found: &Environment) -> Group {
    let kernel = &found.kernel;
    Group {
        title: "Kernel",
        facts: vec![
            Fact::code("Release", kernel.release.clone()),
            Fact::new("Preemption", kernel.preemption.word()),
            Fact::code("Version", kernel.version.clone()),
            Fact::new("Architecture", kernel.machine.clone()),
            Fact::code("Command line", kernel.cmdline.clone()),
            Fact::new("Configuration", or_unknown(kernel.config_source.as_ref())),
        ],
    }
}

fn cpus(found: &Environment) -> Group {
    let cpus = &found.cpus;
    let frequency = |cpu: &Cpu| {
        let mhz = |khz: u64| khz / 1_000;
        cpu.frequency_khz.map(|(low, high)| format!("{} to {} MHz", mhz(low), mhz(high)))
    };
    let idle = |cpu: &Cpu| {
        let states = cpu.idle_states.iter();
        let states: Vec<String> =
            states.map(|state| format!("{} ({} us)", state.name, state.latency_us)).collect();
        (!states.is_empty()).then(|| states.join(", "))
    };
    Group {
        title: "CPUs",
        facts: vec![
            Fact::new("Model", cpus.model.clone()),
            Fact::new("Online", set_or_none(&cpus.online)),
            Fact::new("Allowed", set_or_none(&cpus.allowed)),
            Fact::new("Isolated", set_or_none(&cpus.isolated)),
            Fact::new("Without a tick", set_or_none(&cpus.nohz_full)),
            Fact::new("Governor", by_cpu(&cpus.each, |cpu| cpu.governor.clone())),
            Fact::new("Frequency", by_cpu(&cpus.each, frequency)),
            Fact::new("Idle states", by_cpu(&cpus.each, idle)),
        ],
    }
}

/// A value of each CPU, where CPUs with the same one are named together.
fn by_cpu(each: &[Cpu], value: impl Fn(&Cpu) -> Option<String>) -> String {
    let mut sets: BTreeMap<String, CpuSet> = BTreeMap::new();
    for cpu in each {
        if let Some(value) = value(cpu) {
            sets.entry(value).or_default().insert(cpu.cpu);
        }
    }
    match sets.len() {
        0 => NOT_SHOWN.to_owned(),
        1 if sets.values().all(|set| set.len() == each.len()) => {
            sets.into_keys().collect::<Vec<_>>().join("")
        }
        _ => {
            let words: Vec<String> =
                sets.iter().map(|(value, set)| format!("{value} on {set}")).collect();
            words.join("; ")
        }
    }
}

fn timing(found: &Environment) -> Group {
    let us = |us: i64| time(us.unsigned_abs().saturating_mul(1_000));
    let throttling = match (found.throttling.runtime_us, found.throttling.period_us) {
        (Some(-1), _) => "off".to_owned(),
        (Some(runtime), Some(period)) => {
            format!("{} in each {}", us(runtime), us(period))
        }
        _ => NOT_SHOWN.to_owned(),
    };
    let load = found
        .load_average_percent
        .map(|all| all.map(|percent| format!("{}.{:02}", percent / 100, percent % 100)).join(", "));
    Group {
        title: "Time and scheduling",
        facts: vec![
            Fact::new("Clock source", or_unknown(found.clock.current.as_ref())),
            Fact::new("Others available", found.clock.available.join(", ")),
            Fact::new("Timer resolution", or_unknown(found.clock.resolution_ns.map(Nanos))),
            Fact::new("Real-time throttling", throttling),
            Fact::new("Load average", or_unknown(load)),
        ],
    }
}

fn machine(found: &Environment) -> Group {
    let mib = |kib: Option<u64>| or_unknown(kib.map(|kib| format!("{} MiB", grouped(kib / 1024))));
    Group {
        title: "Machine and permissions",
        facts: vec![
            Fact::new("Host", found.host.clone()),
            Fact::new("Model", or_unknown(found.machine_model.as_ref())),
            Fact::new(
                "Virtualisation",
                found.virtualisation.clone().unwrap_or_else(|| "none recognised".to_owned()),
            ),
            Fact::new("Memory", mib(found.memory.total_kib)),
            Fact::new("Available", mib(found.memory.available_kib)),
            Fact::new("Swap", mib(found.memory.swap_kib)),
            Fact::new("Huge pages", or_unknown(found.memory.transparent_hugepage.as_ref())),
            Fact::new("Permissions", permissions(found.permission)),
        ],
    }
}

fn permissions(permission: Permission) -> String {
    let limit = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), grouped);
    format!(
        "{}, {}; RTPRIO limit {}, MEMLOCK limit {}",
        if permission.root { "root" } else { "not root" },
        if permission.real_time { "may use real-time policies" } else { "no real-time policies" },
        limit(permission.rtprio_limit),
        permission.memlock_limit_bytes.map_or_else(
            || "unlimited".to_owned(),
            |bytes| format!("{} KiB", grouped(bytes / 1024))
        )
    )
}

fn threads(found: &Environment) -> Table {
    let mut table = Table::new(["thread", "name", "policy", "priority", "CPUs", "whose"]);
    for thread in &found.real_time_threads {
        table.row([
            thread.tid.to_string(),
            thread.name.clone(),
            thread.policy.to_string(),
            thread.priority.to_string(),
            thread.cpus.to_string(),
            if thread.kernel { "kernel".to_owned() } else { format!("process {}", thread.pid) },
        ]);
    }
    table
}

fn irqs(found: &Environment) -> Table {
    let mut table = Table::new(["interrupt", "devices", "may go to CPUs", "since boot"]);
    for irq in &found.irqs {
        let number = irq.irq.to_string();
        table.row([number, irq.name.clone(), irq.cpus.to_string(), grouped(irq.count)]);
    }
    table
}

/// Network cards, and after what they interrupt.
fn network(found: &Environment) -> Table {
    let mut table =
        Table::new(["network card", "driver", "interrupts after received", "after sent"]);
    let limit = |us: u32, frames: u32, is_adaptive: bool| {
        let adaptive = if is_adaptive { ", adaptive" } else { "" };
        format!("{us} us or {}{adaptive}", counted(frames.into(), "packet"))
    };
    for card in &found.network {
        let [receive, send] = match &card.pacing {
            Some(p) => [
                limit(p.receive_us, p.receive_frames, p.adaptive_receive),
                limit(p.send_us, p.send_frames, p.adaptive_send),
            ],
            None => [NOT_SHOWN, NOT_SHOWN].map(str::to_owned),
        };
        let driver = card.driver.clone().unwrap_or_else(|| NOT_SHOWN.to_owned());
        table.row([card.name.clone(), driver, receive, send]);
    }
    table
}

fn pairs(name: &str, pairs: &BTreeMap<String, String>) -> Table {
    let mut table = Table::new([name, "value"]);
    for (key, value) in pairs {
        table.row([key.clone(), value.clone()]);
    }
    table
}

/// Options of a kernel that touch how late it wakes a thread begin with one of these.
const OF_LATENCY: [&str; 26] = [
    "CPU_FREQ_DEFAULT",
    "CPU_IDLE",
    "CPU_ISOLATION",
    "DEBUG_ATOMIC_SLEEP",
    "DEBUG_LOCK",
    "DEBUG_PREEMPT",
    "HIGH_RES_TIMERS",
    "HYPERVISOR_GUEST",
    "HZ",
    "IRQ_FORCED_THREADING",
    "IRQ_TIME_ACCOUNTING",
    "KASAN",
    "KCSAN",
    "KVM_GUEST",
    "LATENCYTOP",
    "LOCKDEP",
    "LOCKUP_DETECTOR",
    "NO_HZ",
    "NR_CPUS",
    "NUMA_BALANCING",
    "PREEMPT",
    "PROVE_LOCKING",
    "RCU_",
    "RT_GROUP_SCHED",
    "SMP",
    "TRANSPARENT_HUGEPAGE",
];

/// The options of the kernel's configuration that matter here: all of them would be a third of the page. The
/// others are in a file of the record.
fn configuration(config: &BTreeMap<String, String>, file: &str) -> (String, Table) {
    let matters = |option: &&String| OF_LATENCY.iter().any(|start| option.starts_with(start));
    let mut table = Table::new(["option", "value"]);
    for option in config.keys().filter(matters) {
        table.row([option.clone(), config[option].clone()]);
    }
    let others = config.len() - table.rows.len();
    if others > 0 {
        let others = grouped(others as u64);
        table.note = format!("{others} others are not shown: see {file} in the record's folder.");
    }
    let name = format!(
        "{} of the kernel's configuration that touch latency",
        counted(table.rows.len() as u64, "option")
    );
    (name, table)
}

/// Counters that differ in any run and say nothing about it.
const ALWAYS_DIFFERENT: [&str; 3] = ["irqs", "load_average_percent", "memory.available_kib"];

/// What was found before and after, where it is not the same.
fn differences(before: Option<&Environment>, after: Option<&Environment>) -> Table {
    let mut table = Table::new(["what", "before", "after"]);
    let (Some(before), Some(after)) = (before, after) else {
        if before.is_some() {
            table.note = "What was found after the run is not in the record.".to_owned();
        }
        return table;
    };
    let value = |environment: &Environment| serde_json::to_value(environment).unwrap_or_default();
    let (mut before, mut after) = (value(before), value(after));
    drop_equal(&mut before, &mut after);
    let flat = |value: &Value| {
        let mut flat = BTreeMap::new();
        flatten("", value, &mut flat);
        flat
    };
    let (before, after) = (flat(&before), flat(&after));
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let ignored = ALWAYS_DIFFERENT.iter().any(|prefix| key.starts_with(prefix));
        if !ignored && before.get(key) != after.get(key) {
            let text = |flat: &BTreeMap<String, String>| {
                flat.get(key).cloned().unwrap_or_else(|| "absent".to_owned())
            };
            table.row([key.clone(), text(&before), text(&after)]);
        }
    }
    table
}

/// Drops what both objects have in common, which is nearly all of it, so that little is left to compare.
fn drop_equal(before: &mut Value, after: &mut Value) {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return };
    before.retain(|key, value| match after.get_mut(key) {
        Some(other) if value == other => {
            after.remove(key);
            false
        }
        Some(other) => {
            drop_equal(value, other);
            true
        }
        None => true,
    });
}

/// A JSON value as paths and texts.
fn flatten(path: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| flatten(&below(key), value, flat));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (n, item) in items.iter().enumerate() {
                flatten(&below(&n.to_string()), item, flat);
            }
        }
        Value::String(text) => {
            flat.insert(path.to_owned(), text.clone());
        }
        Value::Null => {}
        other => {
            flat.insert(path.to_owned(), other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::environment::{Cpus, Kernel};

    use super::*;

    #[test]
    fn only_what_is_not_the_same_before_and_after_is_a_difference() {
        let one = |release: &str, option: &str, governor: Option<&str>| Environment {
            kernel: Kernel {
                release: release.to_owned(),
                config: BTreeMap::from([
                    ("HZ".to_owned(), "250".to_owned()),
                    (option.to_owned(), "y".to_owned()),
                ]),
                ..Kernel::default()
            },
            cpus: Cpus {
                each: vec![
                    Cpu::default(),
                    Cpu { cpu: 1, governor: governor.map(str::to_owned), ..Cpu::default() },
                ],
                ..Default::default()
            },
            load_average_percent: Some([release.len() as u64, 0, 0]),
            ..Environment::default()
        };
        let before = one("6.1", "SMP", Some("powersave"));
        let after = one("6.12", "SMT", None);
        let expected = [
            ["cpus.each.1.governor", "powersave", "absent"],
            ["kernel.config.SMP", "y", "absent"],
            ["kernel.config.SMT", "absent", "y"],
            ["kernel.release", "6.1", "6.12"],
        ];
        let rows = differences(Some(&before), Some(&after)).rows;
        assert_eq!(rows, expected.map(|row| row.map(str::to_owned).to_vec()));
        assert!(differences(Some(&before), Some(&before)).rows.is_empty());
    }
}
