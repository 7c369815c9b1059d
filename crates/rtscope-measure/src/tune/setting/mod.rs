//! The settings that rtscope can change: one line in a table each. Most are files that hold a value.

mod table;
pub(super) mod value;

use rtscope_model::{cpu::CpuSet, text::Problem};
use rtscope_sys::{Error, tree::Tree};
use serde::Serialize;

pub use self::table::SETTINGS;
use self::value::{ForCpus, mask_like};
use super::{
    cgroup,
    change::{Change, ChangeKind},
    service,
};
use crate::environment::{bracketed, numbered};

/// A setting that can be changed for a run.
#[derive(Debug, Serialize)]
pub struct SettingDescriptor {
    /// Name in plans and on the command line, as `throttling`.
    pub name: &'static str,
    /// One line: what it does.
    pub about: &'static str,
    /// The values it takes, in words.
    pub values: &'static str,
    /// Values that are words, to suggest one for a mistyped word.
    #[serde(skip)]
    words: &'static [&'static str],
    /// The text that is written for a value; none when it is not a value.
    #[serde(skip)]
    text: fn(&str) -> Option<String>,
    /// Where it is written.
    #[serde(skip)]
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
    /// The same for those that take longer than a latency to leave.
    IdleLatency,
    /// The CPUs of interrupts, by number, name or device.
    Interrupts,
    /// The masks of unbound workqueues.
    Workqueues,
    /// Kernel threads by a pattern of their names.
    Threads(ThreadAspect),
    /// Units of systemd.
    Services,
    /// Every swap device.
    Swap,
    /// Cgroups, threads, interrupts and workqueues.
    Shield,
    /// A device that keeps a value while it is held open.
    Held(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadAspect {
    Policy,
    Cpus,
}

/// Folder of the CPUs, each with a folder of its idle states.
const CPUS: &str = "sys/devices/system/cpu";

/// Folder of the unbound workqueues, with the mask of all of them.
pub(super) const WORKQUEUES: &str = "sys/devices/virtual/workqueue";

/// CPUs that an interrupt goes to when its driver doesn't say, as a mask.
pub(super) const DEFAULT_IRQ_MASK: &str = "proc/irq/default_smp_affinity";

/// The file of the CPUs of an interrupt.
pub(super) fn irq_file(irq: &str) -> String {
    format!("proc/irq/{irq}/smp_affinity_list")
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

/// The masks of unbound workqueues: that of all, and those of single ones.
pub(super) fn workqueue_masks(tree: &Tree) -> Vec<String> {
    let own = tree.list(WORKQUEUES).into_iter().map(|name| format!("{WORKQUEUES}/{name}/cpumask"));
    std::iter::once(format!("{WORKQUEUES}/cpumask")).chain(own).collect()
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
        let message = format!("{name:?} is not a setting: use one of {}", names.join(", "));
        Problem::new(message).suggest(name, names)
    })
}

impl SettingDescriptor {
    /// The text that is written for a value.
    pub(super) fn text(&self, value: &str) -> Result<String, Problem> {
        (self.text)(value).ok_or_else(|| {
            Problem::new(format!(
                "{value:?} is not a valid value for {}: use {}",
                self.name, self.values
            ))
            .suggest(value, self.words.to_vec())
        })
    }

    /// Whether it lasts only while the process that changed it lives.
    #[must_use]
    pub fn needs_its_process(&self) -> bool {
        matches!(self.target, Target::Held(_))
    }

    /// What is to stand in one of its files for a text; none for a file that stays as it is.
    pub(super) fn wanted(&self, tree: &Tree, path: &str, text: &str, old: &str) -> Option<String> {
        let disabled = "1".to_owned();
        match self.target {
            Target::IdleStates => {
                let (cpu, state) = idle_state(path)?;
                let deepest = ForCpus::read(text, -1, 99)?;
                (deepest.is_for(cpu) && i64::from(state) > deepest.number).then_some(disabled)
            }
            Target::IdleLatency => {
                let (cpu, _) = idle_state(path)?;
                let limit = ForCpus::read(text, 0, i64::MAX)?;
                let latency = tree.read(path.replace("/disable", "/latency")).ok()?;
                let latency_us: i64 = latency.parse().ok()?;
                (limit.is_for(cpu) && latency_us > limit.number).then_some(disabled)
            }
            Target::Workqueues => Some(mask_like(old, &text.parse::<CpuSet>().ok()?)),
            _ => Some(text.to_owned()),
        }
    }

    /// Its files on this machine, in order; none when this kernel has no such setting. What isn't a file of one
    /// value has none.
    pub(super) fn files(&self, tree: &Tree) -> Vec<String> {
        let files: Vec<String> = match self.target {
            Target::File(path) | Target::Held(path) => vec![path.to_owned()],
            Target::Each { folder, prefix, file, .. } => numbered(tree.list(folder), prefix)
                .into_iter()
                .map(|(_, name)| format!("{folder}/{name}/{file}"))
                .collect(),
            Target::IdleStates | Target::IdleLatency => idle_states(tree),
            Target::Interrupts => numbered(tree.list("proc/irq"), "")
                .into_iter()
                .map(|(_, name)| irq_file(&name))
                .collect(),
            Target::Workqueues => workqueue_masks(tree),
            Target::Threads(_) | Target::Services | Target::Swap | Target::Shield => Vec::new(),
        };
        files.into_iter().filter(|path| tree.path(path).exists()).collect()
    }

    /// Where its files are looked for.
    pub(super) fn place(&self) -> String {
        match self.target {
            Target::File(path) | Target::Held(path) => path.to_owned(),
            Target::Each { folder, prefix, file, .. } => format!("{folder}/{prefix}*/{file}"),
            Target::IdleStates | Target::IdleLatency => {
                format!("{CPUS}/cpu*/cpuidle/state*/disable")
            }
            Target::Interrupts => irq_file("*"),
            Target::Workqueues => format!("{WORKQUEUES}/cpumask"),
            Target::Threads(_) => "proc".to_owned(),
            Target::Services => "run/systemd/system".to_owned(),
            Target::Swap => "proc/swaps".to_owned(),
            Target::Shield => "sys/fs/cgroup".to_owned(),
        }
    }

    /// Whether a change is one that it makes on some machine. A journal is not trusted to name others.
    pub(super) fn owns(&self, change: &Change) -> bool {
        let path = change.path.as_str();
        match (change.kind, self.target) {
            (ChangeKind::File, Target::Shield) => {
                is_irq_file(path)
                    || path == DEFAULT_IRQ_MASK
                    || is_workqueue_mask(path)
                    || cgroup::is_ours(path)
            }
            (ChangeKind::File, _) => self.owns_file(path),
            (ChangeKind::Folder | ChangeKind::FileOfFolder | ChangeKind::Controller, target) => {
                matches!(target, Target::Shield) && cgroup::is_ours(path)
            }
            (ChangeKind::Cpuset, target) => {
                let folder = |text: &str| text.starts_with('/') && !text.contains("..");
                matches!(target, Target::Shield)
                    && cgroup::is_version_1(path)
                    && folder(&change.old)
                    && folder(&change.new)
            }
            (ChangeKind::Remembered, target) => matches!(target, Target::Shield),
            (ChangeKind::Affinity, target) => {
                matches!(target, Target::Shield | Target::Threads(ThreadAspect::Cpus))
            }
            (ChangeKind::Policy, target) => matches!(target, Target::Threads(ThreadAspect::Policy)),
            (ChangeKind::Service, target) => {
                matches!(target, Target::Services) && service::UNITS.contains(&path)
            }
            (ChangeKind::Swap, target) => {
                matches!(target, Target::Swap) && path.starts_with('/') && !path.contains("..")
            }
        }
    }

    fn owns_file(&self, path: &str) -> bool {
        match self.target {
            Target::File(own) => path == own,
            Target::Each { folder, prefix, file, .. } => is_numbered(path, folder, prefix, file),
            Target::IdleStates | Target::IdleLatency => idle_state(path).is_some(),
            Target::Interrupts => is_irq_file(path),
            Target::Workqueues => is_workqueue_mask(path),
            _ => false,
        }
    }
}

fn is_numbered(path: &str, folder: &str, prefix: &str, file: &str) -> bool {
    let rest = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    let name = rest.and_then(|rest| rest.strip_suffix(file)?.strip_suffix('/'));
    let number = name.and_then(|name| name.strip_prefix(prefix));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_irq_file(path: &str) -> bool {
    is_numbered(path, "proc/irq", "", "smp_affinity_list")
}

fn is_workqueue_mask(path: &str) -> bool {
    let below = path.strip_prefix(WORKQUEUES).and_then(|rest| rest.strip_prefix('/'));
    let name = below.and_then(|below| below.strip_suffix("cpumask"));
    name.is_some_and(|name| {
        let bare = name.strip_suffix('/').unwrap_or(name);
        !bare.contains('/') && bare != ".." && (name.is_empty() || name.ends_with('/'))
    })
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
        let owns = |name: &str, path: &str| {
            find(name).expect("a setting").owns(&Change::file(name, path, "0", "1"))
        };
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
