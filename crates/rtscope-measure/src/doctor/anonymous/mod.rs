//! Facts without what identifies a machine or a person: host name, user names, addresses, serial numbers.
//!
//! What people write into settings is kept only where it is on a list of what the rules read: nobody can list all
//! that must be hidden. Names of programs and threads stay, since they are what a report is about.

mod boot;
mod settings;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use rtscope_model::{
    doctor::{FileReading, MachineFacts},
    environment::Environment,
};

use self::words::{is_usual_card, without_addresses, without_card, without_host};

/// What stands in place of something that was left out.
const HIDDEN: &str = "(hidden)";

/// Files that no rule reads, or that the environment tells already, and that name users or disks.
const LEFT_OUT: [&str; 3] = ["etc/default/tlp", "proc/1/cgroup", "proc/self/cgroup"];

/// Folders whose files have names that an administrator chose.
const DROP_INS: [&str; 5] = [
    "etc/default/grub.d/",
    "etc/security/limits.d/",
    "etc/systemd/system.conf.d/",
    "etc/u-boot-menu/conf.d/",
    "usr/share/u-boot-menu/conf.d/",
];

/// Files below these are settings of people. All others are the kernel's own: values from a fixed set and numbers.
const SETTINGS: [&str; 3] = ["boot/", "etc/", "usr/"];

/// The same facts, fit for a public bug report.
#[must_use]
pub fn anonymous(facts: &MachineFacts) -> MachineFacts {
    let mut facts = facts.clone();
    let host = std::mem::take(&mut facts.environment.host);
    hide_in_environment(&mut facts.environment, &host);
    let files = std::mem::take(&mut facts.files);
    let names = drop_in_names(&files);
    let files = files.into_iter().filter(|(path, _)| !LEFT_OUT.contains(&path.as_str()));
    facts.files = files
        .map(|(path, reading)| {
            let reading = anonymous_file(&path, reading, &host);
            (names.get(&path).cloned().unwrap_or_else(|| group_path(&path)), reading)
        })
        .collect();
    facts
}

fn hide_in_environment(environment: &mut Environment, host: &str) {
    let named = environment.network.iter().map(|card| card.name.clone());
    let chosen: Vec<String> = named.filter(|name| name.len() > 1 && !is_usual_card(name)).collect();
    let without_cards =
        |text: String| chosen.iter().fold(text, |text, card| without_card(&text, card));
    let hide = |text: &str| without_cards(without_host(&without_addresses(text), host));
    environment.machine_model = environment.machine_model.take().map(|model| hide(&model));
    environment.compatible.iter_mut().for_each(|name| *name = hide(name));
    let kernel = &mut environment.kernel;
    kernel.cmdline = boot::command_line(&kernel.cmdline, host);
    let version = kernel.version.split(' ');
    // Who built it, and where: user@host.
    let version = version.map(|word| if word.contains('@') { HIDDEN } else { word });
    kernel.version = hide(&version.collect::<Vec<_>>().join(" "));
    kernel.release = hide(&kernel.release);
    let release = kernel.release.clone();
    kernel.config_source = kernel.config_source.take().map(|path| match path.as_str() {
        // The release is in these paths.
        _ if path.starts_with("/boot/") => format!("/boot/config-{release}"),
        _ if path.starts_with("/lib/") => format!("/lib/modules/{release}/config"),
        _ => path,
    });
    for (name, value) in &mut kernel.config {
        if !is_plain_option(name, value) {
            HIDDEN.clone_into(value);
        }
    }
    environment.irqs.iter_mut().for_each(|irq| irq.name = hide(&irq.name));
    for thread in &mut environment.real_time_threads {
        // The kernel names its own threads: after devices and addresses, but never after the host itself.
        thread.name = match thread.kernel && !thread.name.starts_with("irq/") {
            true => without_cards(without_addresses(&thread.name)),
            false => hide(&thread.name),
        };
        thread.process = thread.process.as_deref().map(hide);
    }
    for card in &mut environment.network {
        card.name = match is_usual_card(&card.name) {
            true => hide(&card.name),
            false => HIDDEN.to_owned(),
        };
    }
}

/// Whether an option of the kernel is on, off, a module or a number, not a text that somebody wrote.
fn is_plain_option(name: &str, value: &str) -> bool {
    // Texts that can be a number too.
    let texts = ["BUILD_SALT", "CMDLINE", "DEFAULT_HOSTNAME", "LOCALVERSION"];
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let is_hex = value
        .strip_prefix("0x")
        .is_some_and(|digits| digits.len() <= 16 && digits.chars().all(|c| c.is_ascii_hexdigit()));
    let is_small = is_number(value.strip_prefix('-').unwrap_or(value)) && value.len() < 12;
    !texts.contains(&name) && (["y", "m", "n"].contains(&value) || is_small || is_hex)
}

/// New names of files whose names somebody chose: their place in the folder, so that their order stays.
fn drop_in_names(files: &BTreeMap<String, FileReading>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for folder in DROP_INS {
        let paths: Vec<&String> = files.keys().filter(|path| path.starts_with(folder)).collect();
        let width = paths.len().to_string().len();
        for (place, path) in (1..).zip(paths) {
            let ending = path.rsplit_once('.').map_or("conf", |(_, ending)| ending);
            names.insert(path.clone(), format!("{folder}{place:0width$}.{ending}"));
        }
    }
    names
}

fn anonymous_file(path: &str, reading: FileReading, host: &str) -> FileReading {
    let FileReading::Text(text) = reading else { return reading };
    let hidden = match path {
        "proc/swaps" => each_line(&text, |line| Some(settings::swap(line))),
        // The rest of a line is addresses of memory.
        "proc/modules" => {
            each_line(&text, |line| line.split_whitespace().next().map(str::to_owned))
        }
        _ if path.starts_with("proc/device-tree/") => without_host(&without_addresses(&text), host),
        _ if !SETTINGS.iter().any(|start| path.starts_with(start)) => text,
        _ if path.starts_with("etc/security/limits") => each_line(&text, settings::limit),
        _ if path.starts_with("etc/systemd/") => each_line(&text, settings::systemd),
        "etc/tuned/active_profile" => settings::tuned(&text),
        "etc/default/cpufrequtils" | "etc/default/irqbalance" => {
            each_line(&text, settings::assignment)
        }
        "boot/config.txt" | "boot/firmware/config.txt" => each_line(&text, settings::firmware),
        "boot/cmdline.txt" | "boot/firmware/cmdline.txt" | "etc/kernel/cmdline" => {
            each_line(&text, |line| Some(boot::command_line(line, host)))
        }
        "boot/extlinux/extlinux.conf" => each_line(&text, |line| boot::extlinux(line, host)),
        "boot/armbianEnv.txt" | "boot/uEnv.txt" | "etc/default/u-boot" => {
            each_line(&text, |line| boot::variable(line, host))
        }
        _ if path.starts_with("etc/default/grub") || path.contains("/u-boot-menu/conf.d/") => {
            each_line(&text, |line| boot::variable(line, host))
        }
        // That the file is there is all that a rule asks for: this one has only values of the boot loader.
        _ => String::new(),
    };
    FileReading::Text(hidden)
}

/// A text with other lines, or without them.
fn each_line(text: &str, line: impl Fn(&str) -> Option<String>) -> String {
    text.lines().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// The control groups of a session have names of users, machines and programs. Their depth stays.
fn group_path(path: &str) -> String {
    const CONTROLLERS: [&str; 4] = ["cpu", "cpu,cpuacct", "cpuacct,cpu", "cpuset"];
    let Some(below) = path.strip_prefix("sys/fs/cgroup/") else { return path.to_owned() };
    let parts: Vec<&str> = below.split('/').collect();
    let last = parts.len() - 1;
    let part = |(place, part): (usize, &&str)| {
        let is_kept = place == last || (place == 0 && CONTROLLERS.contains(part));
        if is_kept { (*part).to_owned() } else { HIDDEN.to_owned() }
    };
    let parts: Vec<String> = parts.iter().enumerate().map(part).collect();
    format!("sys/fs/cgroup/{}", parts.join("/"))
}
