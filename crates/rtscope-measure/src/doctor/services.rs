//! Programs and units of systemd that are known to change settings that matter for latency, or to disturb. Others
//! aren't looked at: what a user runs is nobody's business.

use std::collections::BTreeSet;

use rtscope_sys::tree::Tree;

use crate::environment::numbered;

/// Names of running programs as `/proc/PID/comm` shows them, which is 15 characters at most.
const PROGRAMS: [&str; 18] = [
    "auto-cpufreq",
    "cloud-hyperviso",
    "firecracker",
    "irqbalance",
    "ksmtuned",
    "mcelog",
    "multipathd",
    "numad",
    "power-profiles-",
    "qemu-system-aar",
    "qemu-system-arm",
    "qemu-system-x86",
    "rasdaemon",
    "rngd",
    "thermald",
    "tlp",
    "tuned",
    "vmtoolsd",
];

/// Units, enabled by a link in a folder `NAME.wants`.
const UNITS: [&str; 15] = [
    "auto-cpufreq.service",
    "cpufrequtils.service",
    "cpupower.service",
    "fwupd-refresh.timer",
    "irqbalance.service",
    "ksmtuned.service",
    "man-db.timer",
    "mcelog.service",
    "multipathd.service",
    "ondemand.service",
    "power-profiles-daemon.service",
    "smartd.service",
    "thermald.service",
    "tlp.service",
    "tuned.service",
];

/// Running programs by their name, enabled units by theirs with its ending.
pub(super) fn collect(tree: &Tree) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (pid, _) in numbered(tree.list("proc"), "") {
        let name = tree.read(format!("proc/{pid}/comm")).unwrap_or_default();
        found.extend(PROGRAMS.contains(&name.as_str()).then_some(name));
    }
    let folder = "etc/systemd/system";
    for wants in tree.list(folder).into_iter().filter(|name| name.ends_with(".wants")) {
        let units = tree.list(format!("{folder}/{wants}"));
        found.extend(units.into_iter().filter(|name| UNITS.contains(&name.as_str())));
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn known_programs_and_enabled_units_are_found_and_no_others() {
        let fake = FakeTree::new();
        fake.file("proc/7/comm", "irqbalance\n");
        fake.file("proc/8/comm", "secret-project\n");
        let wants = "etc/systemd/system/timers.target.wants";
        fake.link(
            &format!("{wants}/fwupd-refresh.timer"),
            "/lib/systemd/system/fwupd-refresh.timer",
        );
        fake.file(&format!("{wants}/my.timer"), "");
        assert_eq!(collect(&fake.tree), ["fwupd-refresh.timer", "irqbalance"]);
    }
}
