//! The settings rtscope can change: one line in a table each. All but one are files that hold a value.

use rtscope_model::{
    cpu::CpuSet,
    text::{Problem, suggest},
};
use rtscope_sys::{Error, tree::Tree};

use crate::environment::{bracketed, numbered};

/// A setting that can be changed for a run.
#[derive(Debug)]
pub struct SettingDescriptor {
    /// Name in plans and on the command line, as `throttling`.
    pub name: &'static str,
    /// One line: what it does.
    pub about: &'static str,
    /// The values it takes, in words.
    pub values: &'static str,
    /// Values that are words, to suggest one for a mistyped word.
    words: &'static [&'static str],
    /// The text that is written for a value; none when it is not a value.
    text: fn(&str) -> Option<String>,
    /// Where it is written.
    pub(super) target: Target,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// One file.
    File(&'static str),
    /// A file in each of the numbered folders `PREFIXn` of a folder.
    Each {
        folder: &'static str,
        prefix: &'static str,
        file: &'static str,
        /// The kernel refuses some of them by nature: those are left, and noted.
        some_refuse: bool,
    },
    /// The switches of the idle states of every CPU that are deeper than one.
    IdleStates,
    /// A device that keeps a value while it is held open.
    Held(&'static str),
}

/// Folder of the CPUs, each with a folder of its idle states.
const CPUS: &str = "sys/devices/system/cpu";

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
        values: "a governor's name, as performance, powersave, schedutil, ondemand",
        words: GOVERNORS,
        text: |value| {
            let mistyped =
                !GOVERNORS.contains(&value) && suggest(value, GOVERNORS.to_vec()).is_some();
            let word =
                !value.is_empty() && value.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            (word && !mistyped).then(|| value.to_owned())
        },
        target: Target::Each {
            folder: "sys/devices/system/cpu",
            prefix: "cpu",
            file: "cpufreq/scaling_governor",
            some_refuse: false,
        },
    },
    SettingDescriptor {
        name: "idle-state",
        about: "deepest idle state that CPUs may enter, by number (cpuidle/stateN/disable)",
        values: "a number from 0, or -1 for none at all; for some CPUs only as 0@2-3",
        words: &[],
        text: |value| Depth::read(value).map(|_| value.to_owned()),
        target: Target::IdleStates,
    },
    SettingDescriptor {
        name: "irq-affinity",
        about: "CPUs that interrupts may go to, for every interrupt that can be steered",
        values: "a set of CPUs, as 0-1",
        words: &[],
        text: |value| {
            let cpus: CpuSet = value.parse().ok()?;
            (!cpus.is_empty()).then(|| cpus.to_string())
        },
        target: Target::Each {
            folder: "proc/irq",
            prefix: "",
            file: "smp_affinity_list",
            some_refuse: true,
        },
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
        name: "thp",
        about: "transparent huge pages",
        values: "always, madvise or never",
        words: &["always", "madvise", "never"],
        text: |value| ["always", "madvise", "never"].contains(&value).then(|| value.to_owned()),
        target: Target::File("sys/kernel/mm/transparent_hugepage/enabled"),
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
];

/// Governors of the mainline kernel. Other kernels bring more, so that any word is taken unless it
/// looks like one of these mistyped.
const GOVERNORS: &[&str] =
    &["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"];

fn on_off(value: &str) -> Option<String> {
    match value {
        "on" => Some("1".to_owned()),
        "off" => Some("0".to_owned()),
        _ => None,
    }
}

fn number(value: &str, least: u32, most: u32) -> Option<String> {
    let number: u32 = value.parse().ok()?;
    (least..=most).contains(&number).then(|| number.to_string())
}

/// The deepest idle state that is left, and on which CPUs; on all when none are named.
struct Depth {
    deepest: i32,
    cpus: Option<CpuSet>,
}

impl Depth {
    fn read(value: &str) -> Option<Depth> {
        let (deepest, cpus) = match value.split_once('@') {
            None => (value, None),
            Some((deepest, cpus)) => (deepest, Some(cpus.parse::<CpuSet>().ok()?)),
        };
        let deepest = deepest.parse().ok().filter(|number| (-1..100).contains(number))?;
        (!cpus.as_ref().is_some_and(CpuSet::is_empty)).then_some(Depth { deepest, cpus })
    }

    fn forbids(&self, cpu: u32, state: u32) -> bool {
        i64::from(state) > i64::from(self.deepest)
            && self.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }
}

/// The CPU and the state of the file that switches an idle state off.
fn idle_state(path: &str) -> Option<(u32, u32)> {
    let rest = path.strip_prefix(CPUS)?.strip_prefix("/cpu")?.strip_suffix("/disable")?;
    let (cpu, state) = rest.split_once("/cpuidle/state")?;
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    Some((number(cpu)?, number(state)?))
}

/// The switches of all idle states of all CPUs.
fn idle_states(tree: &Tree) -> Vec<String> {
    let cpus = numbered(tree.list(CPUS), "cpu").into_iter();
    let of_cpu = |(_, cpu): (u32, String)| {
        let folder = format!("{CPUS}/{cpu}/cpuidle");
        let states = numbered(tree.list(&folder), "state").into_iter();
        states.map(move |(_, state)| format!("{folder}/{state}/disable"))
    };
    cpus.flat_map(of_cpu).collect()
}

/// Checks a setting's name and value. Touches nothing, so that it says nothing about this machine.
///
/// # Errors
///
/// What is wrong, and the word that was perhaps meant.
pub fn check(name: &str, value: &str) -> Result<(), Problem> {
    let descriptor = find(name)?;
    descriptor.text(value).map(drop)
}

pub(super) fn find(name: &str) -> Result<&'static SettingDescriptor, Problem> {
    SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
        let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        let message = format!("{name:?} is not a setting: one of {}", names.join(", "));
        Problem::new(message).suggest(name, names)
    })
}

impl SettingDescriptor {
    /// The text that is written for a value.
    pub(super) fn text(&self, value: &str) -> Result<String, Problem> {
        (self.text)(value).ok_or_else(|| {
            Problem::new(format!("{value:?} is not a value of {}: {}", self.name, self.values))
                .suggest(value, self.words.to_vec())
        })
    }

    /// What is to stand in one of its files for a text; none for a file that stays as it is.
    pub(super) fn wanted(&self, path: &str, text: &str) -> Option<String> {
        match self.target {
            Target::IdleStates => {
                let (cpu, state) = idle_state(path)?;
                Depth::read(text)?.forbids(cpu, state).then(|| "1".to_owned())
            }
            _ => Some(text.to_owned()),
        }
    }

    /// Its files on this machine, in order; none when this kernel has no such setting.
    pub(super) fn files(&self, tree: &Tree) -> Vec<String> {
        let files: Vec<String> = match self.target {
            Target::File(path) | Target::Held(path) => vec![path.to_owned()],
            Target::Each { folder, prefix, file, .. } => numbered(tree.list(folder), prefix)
                .into_iter()
                .map(|(_, name)| format!("{folder}/{name}/{file}"))
                .collect(),
            Target::IdleStates => idle_states(tree),
        };
        files.into_iter().filter(|path| tree.path(path).exists()).collect()
    }

    /// Where its files are looked for.
    pub(super) fn place(&self) -> String {
        match self.target {
            Target::File(path) | Target::Held(path) => path.to_owned(),
            Target::Each { folder, prefix, file, .. } => format!("{folder}/{prefix}*/{file}"),
            Target::IdleStates => format!("{CPUS}/cpu*/cpuidle/state*/disable"),
        }
    }

    /// Whether a path is one of its files on any machine. A journal is not trusted to name others.
    pub(super) fn owns(&self, path: &str) -> bool {
        match self.target {
            Target::File(own) => path == own,
            Target::Each { folder, prefix, file, .. } => {
                let rest = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
                let name = rest.and_then(|rest| rest.strip_suffix(file)?.strip_suffix('/'));
                let number = name.and_then(|name| name.strip_prefix(prefix));
                number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
            }
            Target::IdleStates => idle_state(path).is_some(),
            Target::Held(_) => false,
        }
    }
}

/// The present value of a setting's file: the word in brackets where the file lists all.
pub(super) fn present(tree: &Tree, path: &str) -> Result<String, Error> {
    let text = tree.read(path)?;
    Ok(match bracketed(&text) {
        Some(word) => word.to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_what_the_kernel_takes() {
        for (name, value, text) in [
            ("throttling", "off", "-1"),
            ("throttling", "on", "950000"),
            ("throttling", "900000", "900000"),
            ("fair-server", "off", "0"),
            ("fair-server", "on", "50000000"),
            ("fair-server", "20000", "20000000"),
            ("governor", "performance", "performance"),
            ("governor", "interactive", "interactive"),
            ("dma-latency", "0", "0"),
            ("timer-migration", "off", "0"),
            ("nmi-watchdog", "on", "1"),
            ("idle-state", "-1", "-1"),
            ("idle-state", "0@2-3", "0@2-3"),
            ("irq-affinity", "3,0-1", "0-1,3"),
            ("thp", "never", "never"),
        ] {
            let setting = find(name).expect("a setting");
            assert_eq!(setting.text(value).expect("a value"), text, "{name} = {value}");
        }
    }

    #[test]
    fn what_is_not_a_value_is_refused_with_what_was_meant() {
        for (name, value, meant) in [
            ("throtling", "off", Some("throttling")),
            ("colour", "red", None),
            ("throttling", "of", Some("off")),
            ("throttling", "0", None),
            ("throttling", "-1", None),
            ("governor", "perfomance", Some("performance")),
            ("governor", "a/b", None),
            ("governor", "", None),
            ("thp", "nevr", Some("never")),
            ("irq-affinity", "", None),
            ("irq-affinity", "a", None),
            ("dma-latency", "3000000000", None),
            ("timer-migration", "1", None),
            ("idle-state", "-2", None),
            ("idle-state", "0@", None),
            ("idle-state", "0@x", None),
        ] {
            let problem = check(name, value).expect_err("refused");
            assert_eq!(
                problem.suggestion.as_deref(),
                meant,
                "{name} = {value}: {}",
                problem.message
            );
        }
    }

    #[test]
    fn a_setting_owns_its_files_only() {
        let owns = |name: &str, path: &str| find(name).expect("a setting").owns(path);
        assert!(owns("throttling", "proc/sys/kernel/sched_rt_runtime_us"));
        assert!(owns("governor", "sys/devices/system/cpu/cpu12/cpufreq/scaling_governor"));
        assert!(owns("irq-affinity", "proc/irq/26/smp_affinity_list"));
        assert!(owns("idle-state", "sys/devices/system/cpu/cpu3/cpuidle/state1/disable"));
        for path in ["cpu3/cpuidle/state1/latency", "cpu3/../cpuidle/state1/disable", "cpu/disable"]
        {
            assert!(!owns("idle-state", &format!("{CPUS}/{path}")), "{path}");
        }
        for path in [
            "etc/passwd",
            "proc/irq/../irq/26/smp_affinity_list",
            "proc/irq//smp_affinity_list",
            "proc/irq/26/../../smp_affinity_list",
            "/proc/irq/26/smp_affinity_list",
        ] {
            assert!(!owns("irq-affinity", path), "{path}");
        }
        assert!(!owns("dma-latency", "dev/cpu_dma_latency"));
    }

    #[test]
    fn the_table_is_sorted_and_explains_itself() {
        assert!(SETTINGS.is_sorted_by_key(|setting| setting.name));
        assert!(
            SETTINGS.iter().all(|setting| !setting.about.is_empty() && !setting.values.is_empty())
        );
    }
}
