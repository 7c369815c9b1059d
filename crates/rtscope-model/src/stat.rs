//! Counters of a program: what the kernel, the processor or a simulator counted while it ran.

use serde::{Deserialize, Serialize};

/// Version of the format of [`CounterRecord`].
pub const FORMAT: u32 = 1;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// CPU time of all threads, in nanoseconds.
    TaskClockNs,
    ContextSwitches,
    Migrations,
    PageFaults,
    Cycles,
    Instructions,
    Branches,
    BranchMisses,
}

impl Counted {
    /// All, in the order in which they are shown.
    pub const ALL: [Counted; 8] = [
        Counted::TaskClockNs,
        Counted::ContextSwitches,
        Counted::Migrations,
        Counted::PageFaults,
        Counted::Cycles,
        Counted::Instructions,
        Counted::Branches,
        Counted::BranchMisses,
    ];

    /// Its key in a document.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Counted::TaskClockNs => "task_clock_ns",
            Counted::ContextSwitches => "context_switches",
            Counted::Migrations => "migrations",
            Counted::PageFaults => "page_faults",
            Counted::Cycles => "cycles",
            Counted::Instructions => "instructions",
            Counted::Branches => "branches",
            Counted::BranchMisses => "branch_misses",
        }
    }
}

/// What became of one counter in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    Value {
        counted: u64,
        /// Time in which it was to count.
        enabled_ns: u64,
        /// Time in which it did: less, when the processor has fewer counters than were asked for.
        running_ns: u64,
        /// Only what the program did itself was counted, not what the kernel did for it.
        user_only: bool,
    },
    /// There is no figure, and why.
    Absent(String),
}

impl Count {
    /// The count, scaled up to the whole time when the counter ran in a part of it only. None where there
    /// is no figure.
    #[must_use]
    pub fn scaled(&self) -> Option<f64> {
        match *self {
            Count::Value { counted, enabled_ns, running_ns, .. } => match running_ns {
                // The simulator has no time; a counter of a program that never ran has counted nothing.
                0 if enabled_ns == 0 => Some(counted as f64),
                0 => None,
                _ => Some(counted as f64 * enabled_ns as f64 / running_ns as f64),
            },
            Count::Absent(_) => None,
        }
    }

    /// The share of its time in which the counter counted.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        match *self {
            Count::Value { enabled_ns, running_ns, .. } if enabled_ns > 0 => {
                Some(running_ns as f64 / enabled_ns as f64)
            }
            Count::Value { .. } => Some(1.0),
            Count::Absent(_) => None,
        }
    }
}

/// One run of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedRun {
    /// From its start to its end.
    pub elapsed_ns: u64,
    /// How it ended, if not with exit code 0.
    pub failed: Option<String>,
    /// One for each counter, always in the same order.
    pub counts: Vec<Count>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedProgram {
    /// Its name in tables.
    pub name: String,
    pub command: Vec<String>,
    /// One run after the other.
    pub runs: Vec<CountedRun>,
}

/// Who counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedBy {
    /// The kernel, and the processor where it has counters.
    Kernel,
    /// A simulated processor: the tool and its version.
    Simulator(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterRecord {
    /// [`FORMAT`].
    pub format: u32,
    pub version: String,
    /// Wall clock at its start, RFC 3339.
    pub wall_clock: String,
    /// `uname -r`.
    pub kernel: String,
    pub by: CountedBy,
    /// One program, or two that are compared.
    pub programs: Vec<CountedProgram>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_ran_half_of_the_time_is_scaled() {
        let value = |enabled_ns, running_ns| Count::Value {
            counted: 1_000,
            enabled_ns,
            running_ns,
            user_only: false,
        };
        assert_eq!((value(80, 40).scaled(), value(80, 40).share()), (Some(2_000.0), Some(0.5)));
        assert_eq!((value(80, 80).scaled(), value(80, 80).share()), (Some(1_000.0), Some(1.0)));
        assert_eq!((value(80, 0).scaled(), value(80, 0).share()), (None, Some(0.0)));
        assert_eq!(value(0, 0).scaled(), Some(1_000.0));
        assert_eq!(Count::Absent("not supported".to_owned()).scaled(), None);
    }
}
