//! Lines of settings in `/etc` and of the firmware of a Raspberry Pi: only what the rules read.

use super::{HIDDEN, words::is_plain_value};

/// A swap file's path may name its user, and a volume's name the machine.
pub(super) fn swap(line: &str) -> String {
    match line.split_once(char::is_whitespace) {
        Some((path, rest)) if path.starts_with('/') && !path.starts_with("/dev/zram") => {
            format!("{HIDDEN} {}", rest.trim_start())
        }
        _ => line.to_owned(),
    }
}

/// A line of limits without the user or the group that it names. Groups of sound and real time stay.
pub(super) fn limit(line: &str) -> Option<String> {
    const DOMAINS: [&str; 6] = ["*", "root", "@audio", "@jackuser", "@pipewire", "@realtime"];
    const ITEMS: [&str; 19] = [
        "as",
        "chroot",
        "core",
        "cpu",
        "data",
        "fsize",
        "locks",
        "maxlogins",
        "maxsyslogins",
        "memlock",
        "msgqueue",
        "nice",
        "nofile",
        "nonewprivs",
        "nproc",
        "priority",
        "rss",
        "rtprio",
        "sigpending",
    ];
    let line = line.split('#').next().unwrap_or_default();
    let [domain, kind, item, value] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return (!line.trim().is_empty()).then(|| HIDDEN.to_owned());
    };
    let kept = |word: &str, is_known: bool| (if is_known { word } else { HIDDEN }).to_owned();
    let domain = match domain.starts_with('@') && !DOMAINS.contains(&domain) {
        true => format!("@{HIDDEN}"),
        false => kept(domain, DOMAINS.contains(&domain)),
    };
    let is_number = value.trim_start_matches('-').chars().all(|c| c.is_ascii_digit());
    let words = [
        domain,
        kept(kind, ["-", "hard", "soft"].contains(&kind)),
        kept(item, ITEMS.contains(&item)),
        kept(value, is_number || ["infinity", "unlimited"].contains(&value)),
    ];
    Some(words.join(" "))
}

/// A line of systemd's settings: limits and CPUs of all services. Others can hold secrets.
pub(super) fn systemd(line: &str) -> Option<String> {
    let line = line.trim();
    if line == "[Manager]" {
        return Some(line.to_owned());
    }
    let (name, value) = line.split_once('=')?;
    let is_kept = name == "CPUAffinity"
        || name
            .strip_prefix("DefaultLimit")
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_uppercase()));
    let words = ["", "infinity"];
    let is_value = |part: &str| {
        let digits = part.trim_end_matches(['K', 'M', 'G', 'T']);
        words.contains(&part) || digits.chars().all(|c| c.is_ascii_digit())
    };
    // A soft and a hard limit; more parts with colons are an address.
    let is_plain = value.split([' ', ',', '-', ':']).all(is_value) && value.split(':').count() <= 2;
    is_kept.then(|| format!("{name}={}", if is_plain { value } else { HIDDEN }))
}

/// Lines `NAME=VALUE` of settings for the shell.
pub(super) fn assignment(line: &str) -> Option<String> {
    const KEPT: [&str; 7] = [
        "ENABLE",
        "GOVERNOR",
        "IRQBALANCE_BANNED_CPULIST",
        "IRQBALANCE_BANNED_CPUS",
        "IRQBALANCE_ONESHOT",
        "MAX_SPEED",
        "MIN_SPEED",
    ];
    let (name, value) = line.split_once('=')?;
    let known = ["IRQBALANCE_ARGS"].into_iter().chain(KEPT);
    let (start, known) =
        known.into_iter().find_map(|known| Some((name.strip_suffix(known)?, known)))?;
    let value = value.split('#').next().unwrap_or_default().trim();
    let inner = value.trim_matches(['"', '\'']);
    let is_kept = KEPT.contains(&known) && (inner.is_empty() || is_short_word(inner));
    let is_start = ["", "export"].contains(&start.trim());
    is_start.then(|| format!("{start}{known}={}", if is_kept { value } else { HIDDEN }))
}

/// A governor, a number or a list of CPUs.
fn is_short_word(value: &str) -> bool {
    const WORDS: [&str; 9] = [
        "conservative",
        "false",
        "no",
        "ondemand",
        "performance",
        "powersave",
        "schedutil",
        "true",
        "yes",
    ];
    WORDS.contains(&value)
        || value.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ',' | '-' | 'x'))
            && value.chars().any(|c| c.is_ascii_digit())
            && is_plain_value(value)
}

/// The profile of tuned: the name of one that everybody has, and that another one begins with it.
pub(super) fn tuned(text: &str) -> String {
    const PROFILES: [&str; 20] = [
        "accelerator-performance",
        "atomic-guest",
        "atomic-host",
        "aws",
        "balanced",
        "cpu-partitioning",
        "desktop",
        "hpc-compute",
        "intel-sst",
        "latency-performance",
        "network-latency",
        "network-throughput",
        "oracle",
        "powersave",
        "realtime",
        "realtime-virtual-guest",
        "realtime-virtual-host",
        "throughput-performance",
        "virtual-guest",
        "virtual-host",
    ];
    let profile = |word: &str| {
        let fits = PROFILES.into_iter().filter(|known| word.starts_with(known));
        match fits.max_by_key(|known| known.len()) {
            Some(known) if known == word => known.to_owned(),
            Some(known) => format!("{known}{HIDDEN}"),
            None => HIDDEN.to_owned(),
        }
    };
    text.split_whitespace().map(profile).collect::<Vec<_>>().join(" ")
}

/// A line of `config.txt`, the settings of the firmware of a Raspberry Pi.
pub(super) fn firmware(line: &str) -> Option<String> {
    const KEPT: [&str; 22] = [
        "arm_64bit",
        "arm_boost",
        "arm_freq",
        "arm_freq_min",
        "auto_initramfs",
        "camera_auto_detect",
        "core_freq",
        "core_freq_min",
        "disable_fw_kms_setup",
        "disable_overscan",
        "display_auto_detect",
        "dtoverlay",
        "dtparam",
        "enable_uart",
        "force_turbo",
        "gpu_freq",
        "gpu_mem",
        "initial_turbo",
        "max_framebuffers",
        "otg_mode",
        "over_voltage",
        "temp_limit",
    ];
    let line = line.split('#').next().unwrap_or_default().trim();
    if let Some(section) = line.strip_prefix('[') {
        // A section can be for one board, by its serial number.
        let section = section.trim_end_matches(']');
        let is_model = |rest: &str| {
            rest.len() <= 8 && rest.chars().all(|c| c.is_ascii_digit() || "+lswx=".contains(c))
        };
        let is_kind = ["all", "none", "tryboot"].contains(&section)
            || ["board-type=", "pi", "cm", "gpio"]
                .iter()
                .any(|kind| section.strip_prefix(kind).is_some_and(is_model));
        return Some(format!("[{}]", if is_kind { section } else { HIDDEN }));
    }
    let (name, value) = line.split_once('=')?;
    Some(match name {
        "kernel" => format!("kernel={}", kernel_image(value)),
        _ if KEPT.contains(&name) && is_plain_value(value) => line.to_owned(),
        _ if super::words::is_plain_name(name) => format!("{name}={HIDDEN}"),
        _ => HIDDEN.to_owned(),
    })
}

/// Whether `rt` is a word of a name.
fn names_rt(value: &str) -> bool {
    value.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == "rt")
}

/// The name of a kernel's file. A rule asks whether `rt` is in it.
fn kernel_image(value: &str) -> String {
    let known = ["kernel", "kernel7", "kernel7l", "kernel8", "kernel_2712"];
    let stem = value.strip_suffix(".img").unwrap_or(value);
    let plain = stem.trim_end_matches("_rt").trim_end_matches("-rt");
    match known.contains(&plain) {
        true => value.to_owned(),
        false if names_rt(value) => format!("{HIDDEN}-rt"),
        false => HIDDEN.to_owned(),
    }
}
