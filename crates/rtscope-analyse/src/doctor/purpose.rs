//! What a machine is for, with the deadline that is usual for it.

use super::Topic;

/// A purpose by its name on the command line.
#[derive(Debug)]
pub struct Purpose {
    pub name: &'static str,
    pub about: &'static str,
    /// Deadline in ns when the user gives none.
    pub deadline_ns: u64,
    /// Topics that it doesn't need.
    pub(crate) without: &'static [Topic],
    /// Whether its threads poll and never sleep, so that limits on their CPU time are met.
    pub(crate) polls: bool,
}

/// Every purpose; the first is taken when none is named.
pub const PURPOSES: [Purpose; 7] = [
    Purpose {
        name: "general",
        about: "a thread that wakes every few milliseconds",
        deadline_ns: 1_000_000,
        without: &[],
        polls: false,
    },
    Purpose {
        name: "audio",
        about: "sound with buffers of 128 frames at 48 kHz (2.7 ms)",
        deadline_ns: 2_600_000,
        without: &[Topic::Isolation, Topic::Network, Topic::Firmware],
        polls: false,
    },
    Purpose {
        // LinuxCNC's page on the latency test calls 15 to 20 us very nice and 30 to 50 us usable.
        name: "cnc",
        about: "step pulses made by software (LinuxCNC)",
        deadline_ns: 50_000,
        without: &[Topic::Network],
        polls: false,
    },
    Purpose {
        name: "ethercat",
        about: "a fieldbus master with a 1 ms cycle that tolerates 200 us of latency",
        deadline_ns: 200_000,
        without: &[],
        polls: false,
    },
    Purpose {
        name: "robot",
        about: "a 1 kHz control loop (ros2_control)",
        deadline_ns: 500_000,
        without: &[Topic::Network],
        polls: false,
    },
    Purpose {
        name: "5g",
        about: "a baseband unit whose threads poll on isolated CPUs",
        deadline_ns: 20_000,
        without: &[],
        polls: true,
    },
    Purpose {
        name: "course",
        about: "exercises on a board, a laptop or a guest",
        deadline_ns: 1_000_000,
        without: &[Topic::Isolation, Topic::Firmware, Topic::Network],
        polls: false,
    },
];

impl Purpose {
    /// The purpose of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Purpose> {
        PURPOSES.iter().find(|purpose| purpose.name == name)
    }
}
