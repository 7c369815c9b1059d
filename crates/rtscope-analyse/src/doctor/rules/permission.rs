//! Whether a user's program may have real-time threads and locked memory.

use rtscope_model::doctor::{
    FileValue,
    ProblemKind::{Contradiction, Setting},
    Severity,
    Sureness::{Likely, Sure},
};

use super::super::{Examined, Rule, Symptom, Topic};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "no-rt-permission",
        topic: Topic::Permission,
        kind: Setting,
        sureness: Sure,
        delay_us: 0,
        why: "without a real-time policy, a thread shares its CPU with all other programs",
        cost: "a program with a real-time thread can stop a CPU for all others",
        find: no_permission,
    },
    Rule {
        code: "memlock-limit",
        topic: Topic::Permission,
        kind: Setting,
        sureness: Sure,
        delay_us: 500,
        why: "a program that can't lock its memory waits for page faults",
        cost: "a program can keep memory from all others",
        find: memlock,
    },
    Rule {
        code: "limits-not-in-force",
        topic: Topic::Permission,
        kind: Contradiction,
        sureness: Likely,
        delay_us: 0,
        why: "PAM applies these limits at login, and only to the users and groups that they name",
        cost: "nothing",
        find: not_in_force,
    },
    Rule {
        code: "limits-not-for-services",
        topic: Topic::Permission,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 0,
        why: "systemd doesn't read the limits of PAM when it starts a service",
        cost: "nothing",
        find: not_for_services,
    },
];

/// A row of `/proc/PID/limits`: its soft limit.
fn limit<'a>(x: &Examined<'a>, name: &str) -> Option<&'a str> {
    let row = x.facts.text("proc/self/limits")?.lines().find(|line| line.starts_with(name))?;
    row[name.len()..].split_whitespace().next()
}

/// Whether a real-time policy is allowed: tried on the running machine, else read from the limits.
fn may_be_real_time(x: &Examined<'_>) -> Option<bool> {
    if x.facts.live {
        return Some(x.environment().permission.real_time);
    }
    if has_capability(x, CAP_SYS_NICE) {
        return Some(true);
    }
    Some(limit(x, "Max realtime priority")? != "0")
}

/// Numbers of capabilities(7) in the kernel's `include/uapi/linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;

/// Whether the process that the files are of has a capability.
fn has_capability(x: &Examined<'_>, number: u32) -> bool {
    let mask = x.facts.text("proc/self/status").and_then(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> number & 1 == 1)
}

fn rtprio_shown(x: &Examined<'_>, symptom: Symptom) -> Symptom {
    symptom.shown_by(
        "/proc/self/limits",
        format!(
            "Max realtime priority {}",
            limit(x, "Max realtime priority").unwrap_or("not shown")
        ),
    )
}

fn no_permission(x: &Examined<'_>) -> Option<Symptom> {
    // A limit that isn't in effect is another finding.
    if may_be_real_time(x)? || not_in_force(x).is_some() {
        return None;
    }
    let mend = match x.around(true) {
        Some("docker" | "podman") => {
            "start the container with --cap-add=sys_nice --ulimit rtprio=99 --ulimit memlock=-1"
        }
        Some(_) => "let the container's manager grant CAP_SYS_NICE, or rtprio and memlock limits",
        None => {
            "groupadd -r realtime; usermod -aG realtime USER; put the lines \"@realtime - rtprio 99\" and \
             \"@realtime - memlock unlimited\" into /etc/security/limits.d/realtime.conf; log out and log in again"
        }
    };
    Some(rtprio_shown(x, Symptom::new("this user isn't allowed to start real-time threads", mend)))
}

fn memlock(x: &Examined<'_>) -> Option<Symptom> {
    let bytes = match x.facts.live {
        true if x.environment().permission.root => None,
        true => x.environment().permission.memlock_limit_bytes,
        false if has_capability(x, CAP_IPC_LOCK) => None,
        false => limit(x, "Max locked memory")?.parse().ok(),
    }?;
    // Stacks, code and libraries of a small program.
    const ENOUGH: u64 = 256 * 1024 * 1024;
    (bytes < ENOUGH).then(|| {
        let text = format!("this user may lock only {} KiB of memory", bytes / 1024);
        let mend = match x.around(true) {
            Some("docker" | "podman") => "start the container with --ulimit memlock=-1",
            Some(_) => "let the container's manager raise the limit of locked memory",
            None => "put \"@realtime - memlock unlimited\" into /etc/security/limits.d/realtime.conf, and log in again",
        };
        Symptom::new(text, mend)
            .at_most(Severity::Medium)
            .shown_by("/proc/self/limits", format!("Max locked memory {bytes}"))
    })
}

/// The lines of PAM's limits that allow real-time priorities.
fn granted(x: &Examined<'_>) -> Vec<FileValue> {
    let lines = x
        .facts
        .texts_below("etc/security/limits")
        .flat_map(|(path, text)| text.lines().map(move |line| (path, line)));
    let grants = |line: &str| {
        // What follows a # is a comment (limits.conf(5)).
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() == 4 && words[2] == "rtprio" && words[3] != "0"
    };
    lines
        .filter(|(_, line)| grants(line))
        .map(|(path, line)| FileValue { file: format!("/{path}"), value: line.to_owned() })
        .collect()
}

fn not_in_force(x: &Examined<'_>) -> Option<Symptom> {
    let granted = granted(x).into_iter().next()?;
    if may_be_real_time(x)? || x.around(true).is_some() {
        return None;
    }
    let domain = granted.value.split_whitespace().next().unwrap_or_default();
    let again = "log out and log in again; check that PAM loads pam_limits";
    let (whom, mend) = match domain.strip_prefix('@') {
        Some(group) => {
            (format!("the group {group}"), format!("usermod -aG {group} USER; then {again}"))
        }
        None if domain == "*" => ("everyone".to_owned(), again.to_owned()),
        None => (domain.to_owned(), again.to_owned()),
    };
    let text = format!(
        "{} allows real-time threads to {whom}, but the limit isn't in effect in this login",
        granted.file
    );
    Some(rtprio_shown(x, Symptom::new(text, mend)).shown_by(granted.file, granted.value))
}

fn not_for_services(x: &Examined<'_>) -> Option<Symptom> {
    let granted = granted(x).into_iter().next()?;
    let system = x.facts.texts_below("etc/systemd/system.conf");
    let sets = system
        .flat_map(|(_, text)| text.lines())
        .any(|line| line.trim().starts_with("DefaultLimitRTPRIO="));
    (!sets).then(|| {
        let text = format!("{} doesn't apply to systemd services", granted.file);
        let mend = "put LimitRTPRIO=99 and LimitMEMLOCK=infinity into the section [Service] of the service's unit";
        Symptom::new(text, mend).at_most(Severity::Low).shown_by(granted.file, granted.value)
    })
}
