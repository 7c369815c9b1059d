//! The files that the rules of `rtscope doctor` look at.

use std::{collections::BTreeMap, io::Read};

use rtscope_model::{doctor::FileReading, environment::Environment, printable::printable_lines};
use rtscope_sys::tree::Tree;

use super::reading;

/// More than any of these files holds, so that a file that is something else can't fill the memory.
pub(super) const BYTES_MAX: usize = 32 * 1024;

/// Files with a value or a few lines, whose text is kept as it is.
const VALUES: [&str; 43] = [
    "proc/1/cgroup",
    "proc/irq/default_smp_affinity",
    "proc/modules",
    "proc/self/cgroup",
    "proc/self/limits",
    "proc/swaps",
    "proc/sys/kernel/ftrace_enabled",
    "proc/sys/kernel/panic_on_rcu_stall",
    "proc/sys/vm/zone_reclaim_mode",
    "proc/uptime",
    "sys/bus/workqueue/devices/writeback/cpumask",
    "sys/class/misc/hw_random/rng_current",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/cpuidle/current_driver",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/intel_pstate/status",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/smt/control",
    "sys/devices/system/edac/mc/mc0/mc_name",
    "sys/devices/system/machinecheck/machinecheck0/check_interval",
    "sys/devices/system/machinecheck/machinecheck0/ignore_ce",
    "sys/devices/system/node/online",
    "sys/devices/virtual/workqueue/cpumask",
    "sys/fs/cgroup/cgroup.controllers",
    "sys/fs/cgroup/cpu/cpu.rt_runtime_us",
    "sys/fs/cgroup/cpu,cpuacct/cpu.rt_runtime_us",
    "sys/fs/cgroup/cpu.max",
    "sys/kernel/debug/sched/preempt",
    "sys/kernel/debug/tracing/current_tracer",
    "sys/kernel/mm/ksm/run",
    "sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/realtime",
    "sys/kernel/tracing/current_tracer",
    "sys/module/edac_core/parameters/edac_mc_poll_msec",
    "sys/module/kvm/parameters/halt_poll_ns",
    "sys/module/haltpoll/parameters/guest_halt_poll_ns",
    "sys/module/printk/parameters/time",
    "sys/module/rcutree/parameters/kthread_prio",
    "sys/module/workqueue/parameters/power_efficient",
    "proc/device-tree/compatible",
    "proc/device-tree/model",
    "etc/tuned/active_profile",
];

/// Files of settings, of which comments and blank lines are left out.
const SETTINGS: [&str; 17] = [
    "boot/armbianEnv.txt",
    "boot/cmdline.txt",
    "boot/config.txt",
    "boot/extlinux/extlinux.conf",
    "boot/firmware/cmdline.txt",
    "boot/firmware/config.txt",
    "boot/grub2/grubenv",
    "boot/uEnv.txt",
    "etc/default/cpufrequtils",
    "etc/default/grub",
    "etc/default/irqbalance",
    "etc/default/tlp",
    "etc/default/u-boot",
    "etc/kernel/cmdline",
    "etc/security/limits.conf",
    "etc/systemd/system.conf",
    "etc/systemd/user.conf",
];

/// Folders whose files hold settings.
const SETTING_FOLDERS: [(&str, &str); 5] = [
    ("etc/security/limits.d", ".conf"),
    ("etc/systemd/system.conf.d", ".conf"),
    ("etc/default/grub.d", ".cfg"),
    ("etc/u-boot-menu/conf.d", ".conf"),
    ("usr/share/u-boot-menu/conf.d", ".conf"),
];

/// Reads them all.
pub(super) fn collect(tree: &Tree, found: &Environment) -> BTreeMap<String, FileReading> {
    let mut files = BTreeMap::new();
    let mut keep = |path: String, is_setting: bool| {
        if let Some(reading) = reading(tree, &path) {
            files.insert(path, trimmed(reading, is_setting));
        }
    };
    VALUES.iter().for_each(|path| keep((*path).to_owned(), false));
    SETTINGS.iter().for_each(|path| keep((*path).to_owned(), true));
    for (folder, end) in SETTING_FOLDERS {
        let names = tree.list(folder).into_iter().filter(|name| name.ends_with(end));
        names.for_each(|name| keep(format!("{folder}/{name}"), true));
    }
    let weaknesses = "sys/devices/system/cpu/vulnerabilities";
    tree.list(weaknesses).into_iter().for_each(|name| keep(format!("{weaknesses}/{name}"), false));
    for cpu in found.cpus.online.iter() {
        keep(format!("sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"), false);
        keep(format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"), false);
    }
    for path in own_group(tree) {
        keep(path, false);
    }
    files.extend(first_lines(tree));
    files.extend(idle_limit(tree));
    if tree.list("sys/kernel/debug").is_empty() && tree.is_folder("sys/kernel/debug") {
        // Nothing below it can be read: not mounted, or not for this user.
        files.insert("sys/kernel/debug".to_owned(), FileReading::Refused);
    }
    files
}

/// The lines of a text with its settings only, and no character that a terminal would obey.
fn trimmed(reading: FileReading, is_setting: bool) -> FileReading {
    let FileReading::Text(text) = reading else { return FileReading::Refused };
    // A document shows a tab as two characters, and no rule should have to know.
    let text = text.trim_end_matches('\0').replace('\0', ",").replace('\t', " ");
    let is_kept = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let text = match is_setting {
        true => text.lines().filter(is_kept).collect::<Vec<_>>().join("\n"),
        false => text,
    };
    FileReading::Text(printable_lines(&text).into_owned())
}

/// The limits of the control groups that this process is in, from its own up to the root.
fn own_group(tree: &Tree) -> Vec<String> {
    let groups = tree.read("proc/self/cgroup").unwrap_or_default();
    let mut paths = Vec::new();
    for line in groups.lines() {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { continue };
        let is_cpu = controllers.split(',').any(|name| name == "cpu");
        let (start, names): (String, &[&str]) = match controllers {
            "" => ("sys/fs/cgroup".to_owned(), &["cpu.max", "cpuset.cpus.effective"]),
            _ if is_cpu => {
                let names = &["cpu.rt_runtime_us", "cpu.cfs_quota_us", "cpu.cfs_period_us"];
                (format!("sys/fs/cgroup/{controllers}"), names)
            }
            _ => continue,
        };
        let mut folder = path.trim_matches('/');
        loop {
            let below = if folder.is_empty() { String::new() } else { format!("/{folder}") };
            paths.extend(names.iter().map(|name| format!("{start}{below}/{name}")));
            if folder.is_empty() {
                break;
            }
            folder = folder.rsplit_once('/').map_or("", |(up, _)| up);
        }
    }
    paths
}

/// The line of all CPUs in `/proc/stat`, which has the stolen time of a guest, and that of this process' capabilities.
fn first_lines(tree: &Tree) -> Vec<(String, FileReading)> {
    let lines = [("proc/stat", "cpu "), ("proc/self/status", "CapEff:")];
    let line = |(path, start): (&str, &str)| {
        let text = tree.read(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(start))?;
        Some((path.to_owned(), trimmed(FileReading::Text(line.to_owned()), false)))
    };
    lines.into_iter().filter_map(line).collect()
}

/// The longest exit latency in us that programs allow idle states at this moment. Opening the device adds no request of
/// its own; only root may.
fn idle_limit(tree: &Tree) -> Option<(String, FileReading)> {
    const DEVICE: &str = "dev/cpu_dma_latency";
    let mut bytes = [0; 4];
    tree.open(DEVICE).ok()?.read_exact(&mut bytes).ok()?;
    let us = i32::from_ne_bytes(bytes);
    Some((DEVICE.to_owned(), FileReading::Text(us.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    fn text(fake: &FakeTree, path: &str) -> Option<String> {
        match collect(&fake.tree, &Environment::default()).remove(path)? {
            FileReading::Text(text) => Some(text),
            FileReading::Refused => None,
        }
    }

    #[test]
    fn comments_of_settings_are_left_out() {
        let fake = FakeTree::new();
        fake.file(
            "etc/security/limits.d/audio.conf",
            "# of the sound group\n\n@audio - rtprio 95\n",
        );
        fake.file("etc/security/limits.d/audio.conf~", "@audio - rtprio 1\n");
        let path = "etc/security/limits.d/audio.conf";
        assert_eq!(text(&fake, path).as_deref(), Some("@audio - rtprio 95"));
        assert_eq!(text(&fake, "etc/security/limits.d/audio.conf~"), None);
    }

    #[test]
    fn tabs_are_blanks() {
        let fake = FakeTree::new();
        fake.file("etc/security/limits.conf", "@audio\t-\trtprio\t95\n");
        let facts = super::super::collect(&fake.tree);
        assert_eq!(facts.text("etc/security/limits.conf"), Some("@audio - rtprio 95"));
    }

    #[test]
    fn the_groups_above_count_too() {
        let fake = FakeTree::new();
        fake.file("proc/self/cgroup", "0::/user.slice/user-1000.slice\n");
        fake.file("sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n");
        let path = "sys/fs/cgroup/user.slice/cpu.max";
        assert_eq!(text(&fake, path).as_deref(), Some("50000 100000"));
        fake.file("proc/self/cgroup", "4:cpu,cpuacct:/job\n2:memory:/x\n");
        fake.file("sys/fs/cgroup/cpu,cpuacct/job/cpu.rt_runtime_us", "0\n");
        let path = "sys/fs/cgroup/cpu,cpuacct/job/cpu.rt_runtime_us";
        assert_eq!(text(&fake, path).as_deref(), Some("0"));
    }

    #[test]
    fn what_the_process_may_do_and_how_deep_cpus_may_sleep_are_kept() {
        let fake = FakeTree::new();
        fake.file("proc/self/status", "Name:\tx\nUid:\t1000\nCapEff:\t0000000000800000\n");
        fake.bytes("dev/cpu_dma_latency", &20_i32.to_ne_bytes());
        assert_eq!(text(&fake, "proc/self/status").as_deref(), Some("CapEff: 0000000000800000"));
        assert_eq!(text(&fake, "dev/cpu_dma_latency").as_deref(), Some("20"));
        fake.bytes("dev/cpu_dma_latency", b"1");
        assert_eq!(text(&fake, "dev/cpu_dma_latency"), None);
    }

    #[test]
    fn what_a_device_tree_separates_by_zeros_stays_readable() {
        let fake = FakeTree::new();
        fake.file("proc/device-tree/compatible", "ti,am654-evm\0ti,am654\0");
        assert_eq!(
            text(&fake, "proc/device-tree/compatible").as_deref(),
            Some("ti,am654-evm,ti,am654")
        );
    }
}
