//! Threads of the machine as they are found: what each may do before others, and what it did.

use serde::{Deserialize, Serialize};

use crate::schedule::{Placement, Policy};

/// A thread, looked at twice. Counts "in the look" are those between the two instants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    /// Process that started its process; 0 for none.
    pub parent: u32,
    /// Name, at most 15 bytes.
    pub name: String,
    /// `R` running or ready, `S` sleeping, `D` waiting for a device, `I` an idle kernel thread...
    pub state: String,
    /// Policy, priority, nice value, budget and CPUs.
    #[serde(flatten)]
    pub placement: Placement,
    /// CPU that it ran on last.
    pub cpu: u32,
    /// Whether it is the kernel's own.
    pub kernel: bool,
    /// What a kernel thread is for, where its name says so.
    pub role: Option<String>,
    /// CPU time since its start.
    pub cpu_ns: Option<u64>,
    /// Time that it was ready and waited for a CPU, since its start; none without `SCHED_INFO`.
    pub waited_ns: Option<u64>,
    /// Times it went to sleep by itself, since its start.
    pub voluntary_switches: Option<u64>,
    /// Times it was preempted, since its start.
    pub involuntary_switches: Option<u64>,
    /// Times it moved to another CPU, since its start; none where the kernel keeps it to itself.
    pub migrations: Option<u64>,
    /// What it did in the look; none when it started in between.
    pub look: Option<Look>,
}

/// What a thread did between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub span_ns: u64,
    pub cpu_ns: u64,
    /// Time that it was ready and waited for a CPU.
    pub waited_ns: u64,
    /// Times it went to sleep by itself: as many wake-ups, but for one at the ends of the look.
    pub wakeups: u64,
    /// Times it was preempted.
    pub preemptions: u64,
}

impl Look {
    /// CPU time in hundredths of one CPU.
    #[must_use]
    pub fn cpu_percent(&self) -> f64 {
        if self.span_ns == 0 { 0.0 } else { self.cpu_ns as f64 * 100.0 / self.span_ns as f64 }
    }
}

impl Thread {
    /// Whether it runs before a FIFO thread of a priority, on a CPU that both may use. The kernel's
    /// `migration` threads do although their number is 99 too: they are of the stop class.
    #[must_use]
    pub fn runs_before(&self, priority: u8) -> bool {
        let stops = self.kernel && self.name.starts_with("migration/");
        let placement = &self.placement;
        stops
            || placement.policy == Policy::Deadline
            || placement.policy.has_priority() && placement.priority > priority
    }

    /// Order of who runs first: the stop class, deadline, priority, the fair class by nice value.
    #[must_use]
    pub fn rank(&self) -> (u8, i16) {
        let placement = &self.placement;
        match placement.policy {
            _ if self.kernel && self.name.starts_with("migration/") => (0, 0),
            Policy::Deadline => (1, 0),
            Policy::Fifo | Policy::Rr => (2, -i16::from(placement.priority)),
            Policy::Other | Policy::Batch => (3, i16::from(placement.nice)),
            Policy::Idle => (4, 0),
        }
    }
}

/// What a kernel thread is for, by its name. `device` names the device of an interrupt's number.
#[must_use]
pub fn role(name: &str, device: impl Fn(u32) -> Option<String>) -> Option<String> {
    if let Some(rest) = name.strip_prefix("irq/") {
        let number = rest.split('-').next().unwrap_or_default();
        let device = number.parse().ok().and_then(device);
        let whose = device.map(|device| format!(" of {device}")).unwrap_or_default();
        return Some(format!("interrupt {number}{whose}"));
    }
    let known = ROLES.iter().find(|(prefix, _)| name.starts_with(prefix));
    known.map(|(_, role)| (*role).to_owned())
}

/// Names of kernel threads and what they are for.
const ROLES: [(&str, &str); 20] = [
    ("migration/", "moves threads between CPUs; stop class, runs before everything"),
    ("ksoftirqd/", "softirqs left over from interrupts"),
    ("ktimers/", "timers of PREEMPT_RT"),
    ("rcuc/", "RCU callbacks of a CPU"),
    ("rcub/", "RCU priority boosting"),
    ("rcuop/", "RCU callbacks offloaded from a CPU"),
    ("rcu", "read-copy-update: grace periods and callbacks"),
    ("watchdog", "lockup detector or hardware watchdog"),
    ("cpuhp/", "takes a CPU up and down"),
    ("idle_inject/", "forces a CPU idle to cool it"),
    ("kworker/", "deferred work of the kernel"),
    ("kswapd", "frees memory"),
    ("kcompactd", "compacts memory"),
    ("khugepaged", "makes huge pages"),
    ("oom_reaper", "frees memory of killed processes"),
    ("kthreadd", "starts kernel threads"),
    ("sugov:", "sets CPU frequencies"),
    ("irq_work/", "work from interrupts on PREEMPT_RT"),
    ("jbd2/", "journal of a file system"),
    ("kauditd", "audit messages"),
];

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn thread(name: &str, policy: Policy, priority: u8, kernel: bool) -> Thread {
        Thread {
            pid: 7,
            tid: 7,
            parent: 1,
            name: name.to_owned(),
            state: "S".to_owned(),
            placement: Placement {
                policy,
                priority,
                nice: 0,
                budget: None,
                cpus: [0, 1].into_iter().collect(),
            },
            cpu: 0,
            kernel,
            role: None,
            cpu_ns: None,
            waited_ns: None,
            voluntary_switches: None,
            involuntary_switches: None,
            migrations: None,
            look: None,
        }
    }

    #[test]
    fn what_runs_before_a_priority_is_the_kernels_order() {
        let stop = thread("migration/0", Policy::Fifo, 99, true);
        let deadline = thread("sugov:0", Policy::Deadline, 0, true);
        let high = thread("irq/24-eth0", Policy::Fifo, 81, true);
        let same = thread("control", Policy::Rr, 80, false);
        let fair = thread("migration/9", Policy::Other, 0, false);
        let before: Vec<bool> =
            [&stop, &deadline, &high, &same, &fair].map(|one| one.runs_before(80)).into();
        assert_eq!(before, [true, true, true, false, false]);
        assert!(stop.runs_before(99) && !high.runs_before(99));
        let mut order = [&fair, &same, &high, &deadline, &stop];
        order.sort_by_key(|one| one.rank());
        assert_eq!(order, [&stop, &deadline, &high, &same, &fair]);
    }

    #[test]
    fn kernel_threads_are_named() {
        let device = |irq| (irq == 24).then(|| "eth0-rx".to_owned());
        assert_eq!(role("irq/24-eth0", device).as_deref(), Some("interrupt 24 of eth0-rx"));
        assert_eq!(role("irq/9-acpi", device).as_deref(), Some("interrupt 9"));
        assert!(role("ksoftirqd/1", device).is_some_and(|role| role.contains("softirq")));
        assert_eq!(role("mythread", device), None);
    }
}
