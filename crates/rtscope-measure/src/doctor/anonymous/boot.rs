//! Kernel command lines, and the files of boot loaders that hold them.

use super::{
    HIDDEN,
    words::{is_plain_name, is_plain_value, without_host},
};

/// Parameters whose values stay: the rules read them, or they tell how fast the machine can be. None names a person, a
/// machine, a disk or an address.
const KEPT: [&str; 73] = [
    "acpi_irq_nobalance",
    "amd_pstate",
    "apparmor",
    "audit",
    "clocksource",
    "coherent_pool",
    "console",
    "cpuidle.governor",
    "cpuidle.off",
    "cpuidle_haltpoll.force",
    "debug",
    "default_hugepagesz",
    "earlyprintk",
    "elevator",
    "highres",
    "hpet",
    "hugepages",
    "hugepagesz",
    "idle",
    "ignore_loglevel",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "irqaffinity",
    "irqpoll",
    "isolcpus",
    "kthread_cpus",
    "loglevel",
    "lpj",
    "maxcpus",
    "mce",
    "mitigations",
    "nmi_watchdog",
    "noht",
    "nohz",
    "nohz_full",
    "nokaslr",
    "nopti",
    "norandmaps",
    "nosmp",
    "nosmt",
    "nosoftlockup",
    "nowatchdog",
    "nr_cpus",
    "numa",
    "numa_balancing",
    "panic",
    "pcie_aspm",
    "preempt",
    "printk.time",
    "psi",
    "quiet",
    "rcu_nocb_poll",
    "rcu_nocbs",
    "reboot",
    "ro",
    "rootfstype",
    "rootwait",
    "rt_group_sched",
    "rw",
    "sched_verbose",
    "selinux",
    "skew_tick",
    "smt",
    "softlockup_panic",
    "splash",
    "swiotlb",
    "threadirqs",
    "transparent_hugepage",
    "tsc",
    "vga",
    "watchdog",
    "watchdog_thresh",
];

/// Beginnings of parameters whose values stay.
const KEPT_BELOW: [&str; 13] = [
    "cgroup_",
    "cpufreq.",
    "dwc_otg.",
    "idle_",
    "intel_idle.",
    "kvm.",
    "processor.",
    "rcupdate.",
    "rcutree.",
    "sched_",
    "spectre_v2",
    "systemd.unified_cgroup_hierarchy",
    "workqueue.",
];

/// Words without a value that stay besides those. The kernel gives words that it doesn't know to init, so any other may be
/// a name or a password.
const FLAGS: [&str; 20] = [
    "auto",
    "emergency",
    "fastboot",
    "noapic",
    "noexec",
    "nofb",
    "nohlt",
    "nolapic",
    "nomodeset",
    "nomodule",
    "noplymouth",
    "noresume",
    "nosplash",
    "nox2apic",
    "rescue",
    "rhgb",
    "showopts",
    "single",
    "text",
    "verbose",
];

/// Variables of boot loaders that hold a command line.
const LINES: [&str; 6] =
    ["U_BOOT_PARAMETERS", "bootargs", "cmdline", "extraargs", "kernelargs", "optargs"];

/// Variables whose own value a line of settings can add to.
const REFERRED: [&str; 3] =
    ["GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT", "U_BOOT_PARAMETERS"];

/// A command line with only the values of parameters that are listed, and without the arguments of init.
pub(super) fn command_line(line: &str, host: &str) -> String {
    let words = split(line).into_iter().take_while(|word| *word != "--");
    words.map(|word| parameter(word, host)).collect::<Vec<_>>().join(" ")
}

/// A line of `NAME=VALUE` in the settings of GRUB and U-Boot, of which those that hold a command line stay.
pub(super) fn variable(line: &str, host: &str) -> Option<String> {
    let trimmed = line.trim();
    let whole = || Some(listed_only(trimmed)).filter(|words| !words.is_empty());
    let Some((name, value)) = trimmed.split_once('=') else { return whole() };
    if !is_plain_name(name.trim_end_matches('+')) || is_kept(name) {
        return whole();
    }
    if !name.starts_with("GRUB_CMDLINE_LINUX") && !LINES.contains(&name) {
        let name = without_host(name, host);
        return Some(match listed_only(value) {
            words if words.is_empty() => format!("{name}={HIDDEN}"),
            words => format!("{name}={words}"),
        });
    }
    // What follows the closing quote is a comment.
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else { return Some(format!("{name}={}", command_line(value, host))) };
    let inner = &value[1..];
    let inner = inner.find(quote).map_or(inner, |end| &inner[..end]);
    Some(format!("{name}={quote}{}{quote}", command_line(inner, host)))
}

/// A line of `extlinux.conf`: its first word, and what follows only if it is a command line.
pub(super) fn extlinux(line: &str, host: &str) -> Option<String> {
    const WORDS: [&str; 12] = [
        "append",
        "default",
        "fdt",
        "fdtdir",
        "fdtoverlays",
        "initrd",
        "kernel",
        "label",
        "linux",
        "menu",
        "prompt",
        "timeout",
    ];
    let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let rest = match word.to_lowercase().as_str() {
        "append" => command_line(rest, host),
        known if WORDS.contains(&known) => listed_only(rest),
        _ => return Some(listed_only(line)).filter(|words| !words.is_empty()),
    };
    Some(format!("{word} {}", if rest.is_empty() { HIDDEN } else { &rest }))
}

/// The words of a text that are parameters whose values stay.
fn listed_only(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
    let is_listed = |word: &&str| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        is_kept(name) && (value.is_empty() || is_plain_value(value))
    };
    words.filter(is_listed).collect::<Vec<_>>().join(" ")
}

fn parameter(word: &str, host: &str) -> String {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    match value {
        None if is_reference(word) => word.to_owned(),
        _ if !is_plain_name(name) => HIDDEN.to_owned(),
        None if is_kept(name) || FLAGS.contains(&name) => name.to_owned(),
        None => HIDDEN.to_owned(),
        Some(value) if is_kept(name) && is_plain_value(value) => word.to_owned(),
        Some(_) if is_kept(name) => format!("{name}={HIDDEN}"),
        Some(_) => format!("{}={HIDDEN}", without_host(name, host)),
    }
}

/// `$NAME` or `${NAME}` of a variable that is known: whether a line adds to another one depends on it.
fn is_reference(word: &str) -> bool {
    let name = word.strip_prefix('$').unwrap_or_default();
    let inner = name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(name);
    REFERRED.contains(&inner)
}

/// Whether a parameter's value stays. Dash and underscore are the same in its name.
fn is_kept(name: &str) -> bool {
    let name = name.replace('-', "_");
    KEPT.contains(&name.as_str()) || KEPT_BELOW.iter().any(|start| name.starts_with(start))
}

/// The words of a line; blanks between double quotes are part of a word, as for the kernel.
fn split(line: &str) -> Vec<&str> {
    let mut quoted = false;
    let words = line.split(move |c: char| {
        quoted ^= c == '"';
        !quoted && c.is_whitespace()
    });
    words.filter(|word| !word.is_empty()).collect()
}
