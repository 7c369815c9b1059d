//! Scheduling policies and the place of a thread: what was asked and what was found.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{cpu::CpuSet, time::Nanos};

/// A Linux scheduling policy (`sched(7)`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// `SCHED_OTHER`, the fair class.
    Other,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO`.
    #[default]
    Fifo,
    /// `SCHED_RR`.
    Rr,
    /// `SCHED_DEADLINE`.
    Deadline,
}

impl Policy {
    /// All policies, in the order of the documentation.
    pub const ALL: [Policy; 6] =
        [Policy::Other, Policy::Batch, Policy::Idle, Policy::Fifo, Policy::Rr, Policy::Deadline];

    /// The word used in plans and on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Policy::Other => "other",
            Policy::Batch => "batch",
            Policy::Idle => "idle",
            Policy::Fifo => "fifo",
            Policy::Rr => "rr",
            Policy::Deadline => "deadline",
        }
    }

    /// Whether the policy takes a priority from 1 to 99.
    #[must_use]
    pub const fn has_priority(self) -> bool {
        matches!(self, Policy::Fifo | Policy::Rr)
    }

    /// Whether threads of the policy run before every thread of the fair class.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        matches!(self, Policy::Fifo | Policy::Rr | Policy::Deadline)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let words = Policy::ALL.map(Policy::word);
        Policy::ALL
            .into_iter()
            .find(|policy| policy.word() == text)
            .ok_or_else(|| format!("{text:?} is not a policy: one of {}", words.join(", ")))
    }
}

/// The budget of a `SCHED_DEADLINE` thread, in nanoseconds: runtime <= deadline <= period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// CPU time granted in each period.
    pub runtime_ns: u64,
    /// By when it is granted, from the start of the period.
    pub deadline_ns: u64,
    pub period_ns: u64,
}

/// Where and how a thread runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub policy: Policy,
    /// Real-time priority 1 to 99; 0 for policies without one.
    pub priority: u8,
    /// Nice value -20 to 19; 0 for policies without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nice: i8,
    /// Budget of a `SCHED_DEADLINE` thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The CPUs the thread may run on.
    pub cpus: CpuSet,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(nice: &i8) -> bool {
    *nice == 0
}

impl fmt::Display for Placement {
    /// `fifo 90 on CPU 1`, `other nice 5 on CPUs 0-3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        if self.policy.has_priority() {
            write!(f, " {}", self.priority)?;
        }
        if self.nice != 0 {
            write!(f, " nice {}", self.nice)?;
        }
        if let Some(budget) = self.budget {
            write!(f, " {} in {}", Nanos(budget.runtime_ns), Nanos(budget.period_ns))?;
        }
        write!(f, " on {}", self.cpus.named())
    }
}
