//! A square wave as a scope saw it: edges with their instants, and the times in which the scope saw
//! nothing.

use serde::{Deserialize, Serialize};

/// A change of a line's level: an instant, and whether the line rose. Packed, so that a scope can keep
/// millions without touching new memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Edge(u64);

impl Edge {
    /// An edge; instants up to 2^63 ns.
    #[must_use]
    pub const fn new(at_ns: u64, rises: bool) -> Edge {
        Edge(at_ns << 1 | rises as u64)
    }

    /// When, in nanoseconds of the scope's clock.
    #[must_use]
    pub const fn at_ns(self) -> u64 {
        self.0 >> 1
    }

    /// Whether the line is high from here on.
    #[must_use]
    pub const fn rises(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A time in which a scope saw nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last look before it.
    pub start_ns: u64,
    /// The first look after it.
    pub end_ns: u64,
    /// Whether the line had another level after it than before: an odd number of edges was missed.
    pub moved: bool,
}

/// What a scope saw of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The line's address, as `memory:NAME`.
    pub line: String,
    /// First look.
    pub start_ns: u64,
    /// Last look.
    pub end_ns: u64,
    /// An edge lies at most so far from its instant; a shorter pulse may go unseen.
    pub resolution_ns: u64,
    /// The level at the first look. None where only edges say it, as of a GPIO line.
    #[serde(default)]
    pub starts_high: Option<bool>,
    pub edges: Vec<Edge>,
    /// The gaps, in order. No edge lies in one.
    pub gaps: Vec<Gap>,
    /// How many edges were made meanwhile, by the line's own count, where it has one.
    pub made: Option<u64>,
    /// How many of those were made between the last look before a gap and the first one after it.
    pub made_in_gaps: Option<u64>,
    /// Whether it ended early because the room for edges or gaps was full.
    pub is_full: bool,
}

impl Capture {
    /// The level at the start. Where no look saw it, the first edge and the changes in the gaps before it tell;
    /// without an edge the line is taken as low.
    #[must_use]
    pub fn level_at_start(&self) -> bool {
        let derived = || {
            let Some(first) = self.edges.first() else { return false };
            let before = self.gaps.iter().take_while(|gap| gap.end_ns <= first.at_ns());
            !first.rises() ^ (before.filter(|gap| gap.moved).count() % 2 == 1)
        };
        self.starts_high.unwrap_or_else(derived)
    }
}

/// What a line's own count of its changes said at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountReading {
    pub at_ns: u64,
    /// Changes that its program had counted.
    pub changes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_keeps_instant_and_direction() {
        for at_ns in [0, 1, 12_345_678_901, (1 << 63) - 1] {
            for rises in [false, true] {
                let edge = Edge::new(at_ns, rises);
                assert_eq!((edge.at_ns(), edge.rises()), (at_ns, rises));
            }
        }
    }
}
