//! A slice: what one thread saw in one second (or up to the end of a phase). In long runs, seconds
//! that lie far back are joined to longer slices: see [`crate::record::Condenser`].
//!
//! The slice is the unit of everything: the histogram of a cell is the sum of its slices, the plot
//! over time is their maxima, and a record cut short by SIGKILL loses at most the slice in progress.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    frames::Frames,
    histogram::{Layout, Unplaced, add_bins},
};

/// Which activations a slice holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Activations of the cell with this index in the plan.
    Cell(u32),
    /// Warm-up, or between two phases: counted, not judged.
    Discarded,
}

/// Activations of one thread. All instants are in nanoseconds since the start of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Index of the sampling thread over all sessions of the run.
    pub thread: u32,
    /// The cell, or that the activations are discarded.
    pub scope: Scope,
    /// First programmed expiry.
    pub start_ns: u64,
    /// The programmed expiry that follows the last one: where the next slice starts.
    pub end_ns: u64,
    /// Activations on the grid from `start_ns` to `end_ns`, counted from the instants.
    #[serde(deserialize_with = "count")]
    pub planned: u64,
    /// Activations whose latency was measured.
    #[serde(deserialize_with = "count")]
    pub recorded: u64,
    /// Activations that a late wake-up swallowed.
    #[serde(deserialize_with = "count")]
    pub missed: u64,
    /// Wake-ups before their programmed expiry (a clock step): recorded as latency 0.
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "count")]
    pub early: u64,
    /// Wake-ups on another CPU than the one before.
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "count")]
    pub migrations: u64,
    /// Smallest latency; 0 when nothing was recorded.
    pub min_ns: u64,
    pub max_ns: u64,
    /// The programmed expiry of the largest latency.
    pub max_at_ns: u64,
    /// The CPU that the largest latency was seen on.
    pub max_cpu: u32,
    pub sum_ns: u64,
    /// Measured latencies: `[bucket, count]`, ascending.
    #[serde(deserialize_with = "bins")]
    pub bins: Vec<(u32, u64)>,
    /// Recorded latencies without a bucket: in slices of imports only.
    #[serde(default, skip_serializing_if = "Unplaced::is_empty", deserialize_with = "unplaced")]
    pub unplaced: Unplaced,
    /// Latencies that the missed activations would have seen (coordinated omission).
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "bins")]
    pub omitted: Vec<(u32, u64)>,
    /// Largest and summed latency of `omitted`, exact.
    #[serde(default, skip_serializing_if = "is_default")]
    pub omitted_extent: Extent,
    /// Of a network sampler: what became of the frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<Box<Frames>>,
}

/// One measured activation, for the raw file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSample {
    /// Programmed expiry, on the clock.
    pub expiry_ns: u64,
    pub latency_ns: u64,
    /// Activations of the cell that were recorded before it.
    pub cycle: u64,
}

/// Exact extremes and sum of a set of latencies whose bins are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u64,
}

/// The most activations that a slice may count: more than a machine could ever make. The sum of 65,535 such slices
/// still fits 64 bits.
const COUNT_MAX: u64 = 1 << 48;

fn bounded<T, E: serde::de::Error>(counted: T, count: u64) -> Result<T, E> {
    match count {
        ..=COUNT_MAX => Ok(counted),
        _ => Err(E::custom("more activations than a slice can hold")),
    }
}

fn count<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    let count = u64::deserialize(d)?;
    bounded(count, count)
}

fn bins<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<(u32, u64)>, D::Error> {
    let bins: Vec<(u32, u64)> = Vec::deserialize(d)?;
    let sum = bins.iter().map(|bin| bin.1).fold(0, u64::saturating_add);
    bounded(bins, sum)
}

fn unplaced<'de, D: Deserializer<'de>>(d: D) -> Result<Unplaced, D::Error> {
    let unplaced = Unplaced::deserialize(d)?;
    bounded(unplaced, unplaced.count)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_default(extent: &Extent) -> bool {
    *extent == Extent::default()
}

/// The most omitted activations that one stall is expanded into; a clock step of years would
/// otherwise keep a real-time thread busy for minutes. The rest is counted.
const EXPANDED_MAX: u64 = 1 << 20;

/// How many missed activations of one stall are expanded into omitted latencies.
#[must_use]
#[inline]
pub const fn expanded(missed: u64) -> u64 {
    if missed < EXPANDED_MAX { missed } else { EXPANDED_MAX }
}

impl Slice {
    /// Whether nothing shows that the thread woke. A slice of frames may have no latency although it did: no frame came
    /// back.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.recorded == 0 && self.frames.is_none()
    }

    /// Activations that were due and never answered, and how long those of them that are expanded waited
    /// at least.
    #[must_use]
    pub fn unanswered(
        (thread, scope): (u32, Scope),
        layout: Layout,
        (start_ns, end_ns): (u64, u64),
        count: u64,
        waits_ns: impl Iterator<Item = u64>,
    ) -> Slice {
        let mut omitted: BTreeMap<u32, u64> = BTreeMap::new();
        let mut extent = Extent { min_ns: u64::MAX, ..Extent::default() };
        for waited_ns in waits_ns {
            *omitted.entry(layout.index(waited_ns)).or_default() += 1;
            extent.min_ns = extent.min_ns.min(waited_ns);
            extent.max_ns = extent.max_ns.max(waited_ns);
            extent.sum_ns = extent.sum_ns.saturating_add(waited_ns);
        }
        Slice {
            thread,
            scope,
            start_ns,
            end_ns,
            planned: count,
            recorded: 0,
            missed: count,
            early: 0,
            migrations: 0,
            min_ns: 0,
            max_ns: 0,
            max_at_ns: start_ns,
            max_cpu: 0,
            sum_ns: 0,
            bins: Vec::new(),
            unplaced: Unplaced::default(),
            omitted: omitted.into_iter().collect(),
            omitted_extent: extent,
            frames: None,
        }
    }

    /// Whether another slice goes on where this one ends: of the same thread and scope, without a gap.
    #[must_use]
    pub fn is_followed_by(&self, next: &Slice) -> bool {
        (self.thread, self.scope, self.end_ns) == (next.thread, next.scope, next.start_ns)
    }

    /// The instant in its middle.
    #[must_use]
    pub fn middle_ns(&self) -> u64 {
        self.start_ns + self.end_ns.saturating_sub(self.start_ns) / 2
    }

    /// Joins the slice that follows to this one. Counts, sums, bins and extremes stay exact; of two
    /// equal maxima the later one keeps its instant, as in the sampler.
    pub fn absorb(&mut self, next: &Slice) {
        self.end_ns = next.end_ns;
        if next.recorded > 0 {
            self.min_ns =
                if self.recorded > 0 { self.min_ns.min(next.min_ns) } else { next.min_ns };
            if self.recorded == 0 || next.max_ns >= self.max_ns {
                (self.max_ns, self.max_at_ns) = (next.max_ns, next.max_at_ns);
                self.max_cpu = next.max_cpu;
            }
        }
        self.planned = self.planned.saturating_add(next.planned);
        self.recorded = self.recorded.saturating_add(next.recorded);
        self.missed = self.missed.saturating_add(next.missed);
        self.early = self.early.saturating_add(next.early);
        self.migrations = self.migrations.saturating_add(next.migrations);
        self.sum_ns = self.sum_ns.saturating_add(next.sum_ns);
        add_bins(&mut self.bins, &next.bins);
        self.unplaced = self.unplaced.and(next.unplaced);
        if !next.omitted.is_empty() {
            let (own, new) = (self.omitted_extent, next.omitted_extent);
            let first = self.omitted.is_empty();
            self.omitted_extent = Extent {
                min_ns: if first { new.min_ns } else { own.min_ns.min(new.min_ns) },
                max_ns: own.max_ns.max(new.max_ns),
                sum_ns: own.sum_ns.saturating_add(new.sum_ns),
            };
            add_bins(&mut self.omitted, &next.omitted);
        }
        if let Some(next) = &next.frames {
            self.frames.get_or_insert_default().absorb(next);
        }
    }

    /// Whether the accounting holds: `planned = recorded + missed`, and every recorded activation is
    /// in a bin or known to have none.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let counts = self.bins.iter().map(|bin| bin.1).chain([self.unplaced.count]);
        let counted = counts.fold(0, u64::saturating_add);
        self.planned == self.recorded.saturating_add(self.missed) && counted == self.recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_of_impossible_counts_is_damage() {
        let slice = |recorded: &str, bin: &str, unplaced: &str| {
            let text = format!(
                r#"{{"thread":0,"scope":"discarded","start_ns":0,"end_ns":9,"planned":1,"recorded":{recorded},
                "missed":0,"min_ns":1,"max_ns":1,"max_at_ns":0,"max_cpu":0,"sum_ns":1,"bins":[[1,{bin}]],
                "unplaced":{{"count":{unplaced},"from_ns":0}}}}"#
            );
            serde_json::from_str::<Slice>(&text)
        };
        assert!(slice("1", "1", "1").is_ok());
        assert!(slice("18446744073709551615", "1", "0").is_err());
        assert!(slice("1", "9007199254740993", "0").is_err());
        // Neither of the two is too much.
        assert!(slice("1", "200000000000000],[2,1", "0").is_ok());
        assert!(slice("1", "200000000000000],[2,200000000000000", "0").is_err());
        assert!(slice("1", "1", "18446744073709551615").is_err());
    }
}
