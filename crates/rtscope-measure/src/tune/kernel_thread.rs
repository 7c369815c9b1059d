//! Threads of the kernel by their name, and their policy as a text: `fifo:50`, `other:0`.

use rtscope_model::{
    cpu::CpuSet,
    schedule::{Placement, Policy},
};
use rtscope_sys::{Error, sched, tree::Tree};

use crate::environment::{Stat, numbered};

/// A policy with its priority, or its nice value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    policy: Policy,
    number: i8,
}

impl Rank {
    /// Reads `fifo:50`, `rr:1`, `other`, `batch:5`, `idle`.
    pub(super) fn read(text: &str) -> Option<Rank> {
        let (policy, number) = match text.split_once(':') {
            Some((policy, number)) => (policy, Some(number.parse::<i8>().ok()?)),
            None => (text, None),
        };
        let policy: Policy = policy.parse().ok()?;
        let fits = |number: &i8| match policy {
            Policy::Fifo | Policy::Rr => (1..=99).contains(number),
            Policy::Other | Policy::Batch => (-20..=19).contains(number),
            Policy::Idle => *number == 0,
            Policy::Deadline => false,
        };
        let number = if policy.has_priority() { number? } else { number.unwrap_or(0) };
        fits(&number).then_some(Rank { policy, number })
    }

    pub(super) fn text(self) -> String {
        format!("{}:{}", self.policy, self.number)
    }
}

/// Policy and priority of a thread.
pub(super) fn policy(tid: i32) -> Result<String, Error> {
    let found = sched::placement(tid)?;
    let number = if found.policy.has_priority() { found.priority as i8 } else { found.nice };
    Ok(Rank { policy: found.policy, number }.text())
}

/// Whether a policy that was read is the one that was written. The kernel keeps the nice value of a thread that becomes
/// idle, whatever is asked.
pub(super) fn is_same(written: &str, found: &str) -> bool {
    let is_idle = |text: &str| text.split(':').next() == Some("idle");
    written == found || (is_idle(written) && is_idle(found))
}

/// Whether a policy that was read can be given back: not that of SCHED_DEADLINE, whose budget isn't in the text.
pub(super) fn is_restorable(policy: &str) -> bool {
    Rank::read(policy).is_some()
}

/// Gives a thread another policy.
pub(super) fn set_policy(tid: i32, text: &str) -> Result<(), Error> {
    let refused = || Error::Call {
        call: format!("sched_setattr {text}"),
        source: std::io::Error::from(std::io::ErrorKind::InvalidInput),
    };
    let Rank { policy, number } = Rank::read(text).ok_or_else(refused)?;
    let placement = match policy.has_priority() {
        true => Placement {
            policy,
            priority: number as u8,
            nice: 0,
            budget: None,
            cpus: CpuSet::default(),
        },
        false => {
            Placement { policy, priority: 0, nice: number, budget: None, cpus: CpuSet::default() }
        }
    };
    sched::set_policy(tid, &placement)
}

/// The shell command that sets a policy.
pub(super) fn policy_command(tid: u32, text: &str) -> String {
    match Rank::read(text) {
        Some(Rank { policy, number }) if policy.has_priority() => {
            format!("chrt --{policy} -p {number} {tid}")
        }
        Some(Rank { policy, number }) => {
            format!("chrt --{policy} -p 0 {tid} && renice -n {number} -p {tid}")
        }
        None => format!("chrt -p {tid}"),
    }
}

/// Every thread of the kernel, by number.
pub(super) fn all(tree: &Tree) -> Vec<(u32, Stat)> {
    every_process(tree).into_iter().filter(|(_, stat)| stat.is_kernel()).collect()
}

/// The first thread of every process.
pub(super) fn every_process(tree: &Tree) -> Vec<(u32, Stat)> {
    let one = |(tid, _): (u32, String)| {
        Some((tid, Stat::parse(&tree.read_bytes(format!("proc/{tid}/stat")).ok()?)?))
    };
    numbered(tree.list("proc"), "").into_iter().filter_map(one).collect()
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars_anywhere() {
        for (pattern, name) in [
            ("ksoftirqd/1", "ksoftirqd/1"),
            ("ksoftirqd/*", "ksoftirqd/12"),
            ("irq/*eth0*", "irq/24-eth0-rx"),
            ("*", ""),
            ("a*a", "aa"),
            ("*tx", "virtio3-tx"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("a*a", "a"), ("ksoftirqd", "ksoftirqd/1"), ("*rx", "rx-0"), ("", "x")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_policy_is_written_as_it_is_read() {
        for (text, same) in [
            ("fifo:50", "fifo:50"),
            ("rr:1", "rr:1"),
            ("other", "other:0"),
            ("other:-20", "other:-20"),
            ("idle", "idle:0"),
        ] {
            assert_eq!(Rank::read(text).map(Rank::text).as_deref(), Some(same));
        }
        for text in [
            "fifo",
            "fifo:0",
            "fifo:100",
            "other:20",
            "idle:1",
            "deadline",
            "deadline:1",
            "fifo:x",
            "",
        ] {
            assert_eq!(Rank::read(text), None, "{text}");
        }
    }
}
