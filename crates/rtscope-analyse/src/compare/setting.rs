//! Everything in which two sides differ besides their latencies: what a difference may come from.

use std::collections::{BTreeMap, BTreeSet};

use rtscope_model::{environment::Environment, event::Event, record::Record, time::Nanos};
use serde::Serialize;

use super::{
    ComparedRun,
    pairing::{Member, Pair},
};
use crate::number::{counted, per_second};

/// Rates of a load that are further apart count as different work.
const RATE_APART: f64 = 1.1;

/// Topics whose differences decide whether a comparison is fair, in the order of the table.
const WEIGHTY: [&str; 9] =
    ["machine", "kernel", "CPU", "clock", "run setting", "sampler", "load", LOAD_RATE, "run"];

/// The topic of a load that has the same line on both sides, and did different work.
const LOAD_RATE: &str = "load rate";

/// One thing in which the sides differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingDifference {
    /// `machine`, `kernel`, `kernel configuration`, `command line`, `CPU`, `clock`, `IRQ`, `setting`, `run setting` (one
    /// that the plan changes), `sampler`, `load`, `load rate` (the same load did more work on one side), `run`.
    pub topic: String,
    pub name: String,
    /// On A; several values are joined by a stroke.
    pub a: String,
    pub b: String,
}

type Facts = BTreeMap<(String, String), BTreeSet<String>>;

/// The differences, the weighty topics first.
pub(super) fn differences(
    a: &[ComparedRun<'_>],
    b: &[ComparedRun<'_>],
    pairs: &[Pair<'_>],
) -> Vec<SettingDifference> {
    let (facts_a, facts_b) = (facts(a), facts(b));
    let keys: BTreeSet<&(String, String)> = facts_a.keys().chain(facts_b.keys()).collect();
    let known =
        |runs: &[ComparedRun<'_>], topic: &str| runs.iter().all(|run| is_known(run.record, topic));
    let shown =
        |values: Option<&BTreeSet<String>>, runs: &[ComparedRun<'_>], topic: &str| match values {
            Some(values) => joined(values),
            None if known(runs, topic) => "not set".to_owned(),
            None => "not known".to_owned(),
        };
    let mut found: Vec<SettingDifference> = keys
        .into_iter()
        .filter(|key| facts_a.get(*key) != facts_b.get(*key))
        .map(|key| SettingDifference {
            topic: key.0.clone(),
            name: key.1.clone(),
            a: shown(facts_a.get(key), a, &key.0),
            b: shown(facts_b.get(key), b, &key.0),
        })
        // A whole configuration that one side could not read is no list of differences.
        .filter(|d| d.a != "not known" && d.b != "not known" || WEIGHTY.contains(&d.topic.as_str()))
        .collect();
    found.extend(run_settings(pairs));
    found.extend(pairs.iter().flat_map(loads));
    let place =
        |topic: &str| WEIGHTY.iter().position(|weighty| *weighty == topic).unwrap_or(WEIGHTY.len());
    found.sort_by_key(|difference| place(&difference.topic));
    found
}

/// Which weighty topics differ, as a sentence.
pub(super) fn warning(differences: &[SettingDifference]) -> Option<String> {
    let mut topics: Vec<&str> = Vec::new();
    for difference in differences {
        let topic = difference.topic.as_str();
        if WEIGHTY.contains(&topic) && !topics.contains(&topic) {
            topics.push(topic);
        }
    }
    let others = differences.iter().filter(|d| !WEIGHTY.contains(&d.topic.as_str())).count();
    if !topics.is_empty() {
        let more = match others {
            0 => String::new(),
            others => format!(", and in {}", counted(others as u64, "more setting")),
        };
        let from = if differences.len() == 1 { "that" } else { "any of them" };
        return Some(format!(
            "the sides differ in {}{more}: a difference in latencies may come from {from}",
            topics.join(", ")
        ));
    }
    (others > 0).then(|| format!("the sides differ in {}", counted(others as u64, "setting")))
}

/// Which sides were imported, as a sentence: what else differs is then known in part at best.
pub(super) fn imports(imported: [bool; 2]) -> Option<String> {
    let who = match imported {
        [false, false] => return None,
        [true, true] => "both sides were",
        [true, false] => "A was",
        [false, true] => "B was",
    };
    Some(format!(
        "{who} imported from another tool: the files do not say how the machine was set up and what load \
         ran, so the list of other differences may be incomplete"
    ))
}

/// Whether a record could know anything of a topic.
fn is_known(record: &Record, topic: &str) -> bool {
    let Some(machine) = &record.before else {
        return topic == "run" || topic == "sampler" && !record.is_imported();
    };
    match topic {
        "kernel configuration" => !machine.kernel.config.is_empty(),
        "command line" => !machine.kernel.cmdline.is_empty(),
        "IRQ" => !machine.irqs.is_empty(),
        _ => true,
    }
}

fn facts(runs: &[ComparedRun<'_>]) -> Facts {
    let mut facts = Facts::new();
    for run in runs {
        let mut add = |topic: &str, name: &str, value: String| {
            let key = (topic.to_owned(), name.to_owned());
            if !value.is_empty() {
                facts.entry(key).or_default().insert(value);
            }
        };
        of_run(run.record, &mut add);
        if let Some(machine) = &run.record.before {
            of_machine(machine, &mut add);
            of_kernel(machine, &mut add);
        }
    }
    facts
}

fn of_run(record: &Record, add: &mut impl FnMut(&str, &str, String)) {
    let version = record.events.iter().find_map(|stamped| match &stamped.event {
        Event::RunStarted { version, .. } => Some(version.clone()),
        _ => None,
    });
    add("run", "plan", record.plan.name.clone());
    add("run", "rtscope", version.unwrap_or_default());
    for (_, origin) in record.origins() {
        for (name, value) in &origin.facts {
            let (topic, name) = match name.as_str() {
                "host" => ("machine", "host"),
                "kernel" => ("kernel", "release"),
                "kernel version" => ("kernel", "version"),
                "machine" => ("kernel", "architecture"),
                _ => continue,
            };
            add(topic, name, value.clone());
        }
    }
    for phase in &record.plan.phases {
        let unit_ns = phase.sampler.layout().unit_ns;
        add("sampler", "resolution", Nanos(unit_ns).to_string());
        if !record.is_imported() {
            let has_frames = phase.sampler.network.path().is_some();
            let measured = if has_frames { "round trips of frames" } else { "wake-ups" };
            add("sampler", "latencies", measured.to_owned());
        }
    }
    for thread in &record.threads {
        let interval = Some(Nanos(thread.interval_ns)).filter(|interval| *interval > Nanos::ZERO);
        add("sampler", "interval", interval.map(|it| it.to_string()).unwrap_or_default());
        // Nobody read back how an imported thread ran.
        if thread.imported.is_none() {
            add("sampler", "policy", format!("{} {}", thread.found.policy, thread.found.priority));
        }
        if thread.found.cpus.len() == 1 {
            add("sampler", "CPUs", thread.found.cpus.to_string());
        }
    }
}

fn of_machine(machine: &Environment, add: &mut impl FnMut(&str, &str, String)) {
    let cpus = &machine.cpus;
    add("machine", "host", machine.host.clone());
    add("machine", "model", machine.machine_model.clone().unwrap_or_default());
    let bare = "none".to_owned();
    add("machine", "virtualisation", machine.virtualisation.clone().unwrap_or(bare));
    add("CPU", "model", cpus.model.clone());
    add("CPU", "online", cpus.online.to_string());
    add("CPU", "isolated", cpus.isolated.to_string());
    add("CPU", "nohz_full", cpus.nohz_full.to_string());
    for cpu in &cpus.each {
        add("CPU", "governor", cpu.governor.clone().unwrap_or_default());
        let range = |(low, high)| format!("{} to {} MHz", low / 1_000, high / 1_000);
        add("CPU", "frequency", cpu.frequency_khz.map(range).unwrap_or_default());
        let states: Vec<&str> = cpu.idle_states.iter().map(|state| state.name.as_str()).collect();
        add("CPU", "idle states", states.join(" "));
    }
    add("clock", "source", machine.clock.current.clone().unwrap_or_default());
    let resolution = machine.clock.resolution_ns.map(|ns| Nanos(ns).to_string());
    add("clock", "resolution", resolution.unwrap_or_default());
    let limit = |us: Option<i64>| us.map(|us| us.to_string()).unwrap_or_default();
    add("setting", "kernel/sched_rt_runtime_us", limit(machine.throttling.runtime_us));
    add("setting", "kernel/sched_rt_period_us", limit(machine.throttling.period_us));
    add(
        "setting",
        "transparent huge pages",
        machine.memory.transparent_hugepage.clone().unwrap_or_default(),
    );
    for (name, value) in &machine.sysctl {
        add("setting", name, value.clone());
    }
    for irq in machine.irqs.iter().filter(|irq| !irq.name.is_empty()) {
        add("IRQ", &irq.name, format!("CPUs {}", irq.cpus));
    }
}

fn of_kernel(machine: &Environment, add: &mut impl FnMut(&str, &str, String)) {
    let kernel = &machine.kernel;
    add("kernel", "release", kernel.release.clone());
    add("kernel", "version", kernel.version.clone());
    add("kernel", "preemption", kernel.preemption.word().to_owned());
    add("kernel", "architecture", kernel.machine.clone());
    for word in kernel.cmdline.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, "given"));
        add("command line", name, value.to_owned());
    }
    for (option, value) in &kernel.config {
        add("kernel configuration", option, value.clone());
    }
}

/// Settings that the plans change, each once if it differs in all pairs alike. The environments were noted before.
fn run_settings(pairs: &[Pair<'_>]) -> Vec<SettingDifference> {
    let each: Vec<Vec<SettingDifference>> = pairs.iter().map(run_settings_of).collect();
    let mut found = Vec::new();
    for (pair, differences) in pairs.iter().zip(&each) {
        for one in differences {
            let mut one = one.clone();
            if !each.iter().all(|others| others.contains(&one)) {
                one.name = format!("{}: {}", pair.name, one.name);
            }
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    found
}

fn run_settings_of(pair: &Pair<'_>) -> Vec<SettingDifference> {
    let of = |member: &Member<'_>| -> BTreeMap<String, String> {
        let plan = &member.run.record.plan;
        let phase = plan.phases.get(member.cell.cell as usize);
        phase.map(|phase| plan.settings_of(phase)).unwrap_or_default()
    };
    let side = |members: &[Member<'_>], name: &str| {
        let value = |member: &Member<'_>| match of(member).remove(name) {
            Some(value) => value,
            None if member.run.record.is_imported() => "not known".to_owned(),
            None => "not set".to_owned(),
        };
        joined(&members.iter().map(value).collect())
    };
    let names: BTreeSet<String> =
        pair.a.iter().chain(&pair.b).flat_map(of).map(|set| set.0).collect();
    let differences = names.into_iter().map(|name| SettingDifference {
        topic: "run setting".to_owned(),
        a: side(&pair.a, &name),
        b: side(&pair.b, &name),
        name,
    });
    differences.filter(|one| one.a != one.b).collect()
}

/// Loads of a pair that differ in their line, or did different work.
fn loads(pair: &Pair<'_>) -> Vec<SettingDifference> {
    let difference = |topic: &str, name: String, a: String, b: String| SettingDifference {
        topic: topic.to_owned(),
        name,
        a,
        b,
    };
    let (lines_a, lines_b) = (lines(&pair.a), lines(&pair.b));
    if lines_a != lines_b {
        return vec![difference("load", pair.name.clone(), lines_a, lines_b)];
    }
    let mut found = Vec::new();
    let first = pair.a.first().map_or(0, |member| member.cell.loads.len());
    for load in 0..first {
        let (Some(a), Some(b)) = (rate(&pair.a, load), rate(&pair.b, load)) else { continue };
        if a.0.max(b.0) > RATE_APART * a.0.min(b.0) {
            let told = |(rate, unit): (f64, &str)| format!("{} {unit} a second", per_second(rate));
            let line = &pair.a[0].cell.loads[load].line;
            let name = format!("{}: {line}", pair.name);
            found.push(difference(LOAD_RATE, name, told(a), told(b)));
        }
    }
    found
}

fn lines(members: &[Member<'_>]) -> String {
    let line = |member: &Member<'_>| -> String {
        let lines: Vec<&str> = member.cell.loads.iter().map(|load| load.line.as_str()).collect();
        if lines.is_empty() { "none".to_owned() } else { lines.join(" + ") }
    };
    joined(&members.iter().map(line).collect())
}

/// Several values of a side, joined by a stroke.
fn joined(values: &BTreeSet<String>) -> String {
    values.iter().map(String::as_str).collect::<Vec<_>>().join(" / ")
}

/// The mean rate of a load over a side's runs; none where it is not known.
fn rate<'a>(members: &[Member<'a>], load: usize) -> Option<(f64, &'a str)> {
    let of: Vec<_> = members.iter().filter_map(|member| member.cell.loads.get(load)).collect();
    let known: Vec<f64> =
        of.iter().filter(|load| load.spans > 0).map(|load| load.per_second).collect();
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    (!known.is_empty()).then(|| (mean, of[0].unit.as_str()))
}
