//! What was found on the machine, before and after the run. Nothing here is what was asked.
//!
//! A field is `None`, or empty, when the kernel didn't show it: never a made-up value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{cpu::CpuSet, schedule::Policy};

/// The machine as found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    pub host: String,
    /// Machine model, from the device tree or DMI.
    pub machine_model: Option<String>,
    /// What a board is compatible with, the most exact first, from the device tree; none in older records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compatible: Vec<String>,
    pub kernel: Kernel,
    pub cpus: Cpus,
    /// Interrupts that may be steered, with the CPUs they may go to.
    pub irqs: Vec<Irq>,
    /// Network cards; none in older records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<NetworkCard>,
    pub throttling: Throttling,
    pub clock: ClockSource,
    /// Memory in KiB.
    pub memory: Memory,
    /// The hypervisor or container that was recognised, as `kvm`; none on bare metal.
    pub virtualisation: Option<String>,
    /// Threads of real-time policies that are not ours.
    pub real_time_threads: Vec<RealTimeThread>,
    /// What this process may do.
    pub permission: Permission,
    /// Load averages of 1, 5 and 15 minutes, in hundredths.
    pub load_average_percent: Option<[u64; 3]>,
    /// Other kernel settings by their path under `/proc/sys`, as `kernel/timer_migration`.
    pub sysctl: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkCard {
    /// The kernel's name of it, as `eth0`.
    pub name: String,
    pub driver: Option<String>,
    /// How it paces its interrupts, where its driver shows that.
    pub pacing: Option<InterruptPacing>,
}

/// How long a network card may gather packets before it interrupts, as `ethtool -c` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterruptPacing {
    /// Received packets: microseconds after the first one.
    pub receive_us: u32,
    /// Received packets: so many of them.
    pub receive_frames: u32,
    /// Sent packets: microseconds after the first one.
    pub send_us: u32,
    /// Sent packets: so many of them.
    pub send_frames: u32,
    /// Whether the driver changes the limits of receiving by itself.
    pub adaptive_receive: bool,
    /// Whether it changes those of sending.
    pub adaptive_send: bool,
}

/// The running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// `uname -m`.
    pub machine: String,
    /// How far the kernel lets itself be preempted.
    pub preemption: Preemption,
    /// `/proc/cmdline`.
    pub cmdline: String,
    /// Options of the kernel's configuration without `CONFIG_`, where it is readable.
    pub config: BTreeMap<String, String>,
    /// Where the configuration was read.
    pub config_source: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preemption {
    /// Could not be told.
    #[default]
    Unknown,
    /// `PREEMPT_NONE`.
    None,
    /// `PREEMPT_VOLUNTARY`.
    Voluntary,
    /// `PREEMPT`.
    Full,
    /// `PREEMPT_LAZY`.
    Lazy,
    /// `PREEMPT_DYNAMIC`, mode not readable.
    Dynamic,
    /// `PREEMPT_RT`.
    RealTime,
}

impl Preemption {
    /// The kernel's own name for the model.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Preemption::Unknown => "unknown",
            Preemption::None => "PREEMPT_NONE",
            Preemption::Voluntary => "PREEMPT_VOLUNTARY",
            Preemption::Full => "PREEMPT",
            Preemption::Lazy => "PREEMPT_LAZY",
            Preemption::Dynamic => "PREEMPT_DYNAMIC",
            Preemption::RealTime => "PREEMPT_RT",
        }
    }
}

/// The CPUs and how they are set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpus {
    pub model: String,
    pub online: CpuSet,
    /// CPUs that this process was allowed to use.
    pub allowed: CpuSet,
    /// CPUs kept out of load balancing (`isolcpus`).
    pub isolated: CpuSet,
    /// CPUs without a tick (`nohz_full`).
    pub nohz_full: CpuSet,
    pub each: Vec<Cpu>,
}

impl Cpus {
    /// The CPUs that run and that this process was allowed to use.
    #[must_use]
    pub fn usable(&self) -> CpuSet {
        self.allowed.common(&self.online)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    pub cpu: u32,
    /// Other hardware threads of its core.
    pub siblings: CpuSet,
    pub governor: Option<String>,
    /// Lowest and highest frequency in kHz.
    pub frequency_khz: Option<(u64, u64)>,
    /// Idle states that are not disabled, shallowest first.
    pub idle_states: Vec<IdleState>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleState {
    pub name: String,
    /// Exit latency that the driver declares.
    pub latency_us: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Irq {
    pub irq: u32,
    pub name: String,
    /// CPUs it may go to.
    pub cpus: CpuSet,
    /// Times it came, on all CPUs, since boot.
    pub count: u64,
}

/// Real-time throttling: at most `runtime_us` in each `period_us` for FIFO and RR threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throttling {
    /// `kernel.sched_rt_runtime_us`; -1 is no limit.
    pub runtime_us: Option<i64>,
    /// `kernel.sched_rt_period_us`.
    pub period_us: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockSource {
    /// The one in use.
    pub current: Option<String>,
    /// All that could be used.
    pub available: Vec<String>,
    /// Resolution of `CLOCK_MONOTONIC`: 1 ns with high-resolution timers, a tick without.
    pub resolution_ns: Option<u64>,
}

/// Memory in KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    pub total_kib: Option<u64>,
    /// Available without swapping.
    pub available_kib: Option<u64>,
    pub swap_kib: Option<u64>,
    /// Transparent huge pages: the mode in use.
    pub transparent_hugepage: Option<String>,
}

/// A thread of a real-time policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealTimeThread {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Name of its process, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    pub policy: Policy,
    /// Priority; 0 for deadline, which runs before all of them.
    pub priority: u8,
    /// CPUs it may use.
    pub cpus: CpuSet,
    /// Whether it is the kernel's own.
    pub kernel: bool,
}

/// What the process may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Permission {
    /// Effective user is root.
    pub root: bool,
    /// A thread of it was allowed to become FIFO 1.
    pub real_time: bool,
    /// `RLIMIT_RTPRIO`; none is unlimited.
    pub rtprio_limit: Option<u64>,
    /// `RLIMIT_MEMLOCK` in bytes; none is unlimited.
    pub memlock_limit_bytes: Option<u64>,
}
