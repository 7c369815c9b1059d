//! The sums of a record's slices, for readers that want no more.

use serde::{Deserialize, Serialize};

use crate::{
    histogram::{Bin, Histogram, Layout, Unplaced},
    slice::Slice,
};

/// `histograms.json`: the sums of the slices, for readers that want no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histograms {
    /// [`crate::event::FORMAT`].
    pub format: u32,
    /// One entry for each cell and thread that recorded anything.
    pub histograms: Vec<CellHistogram>,
}

/// The histogram of one thread in one cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellHistogram {
    pub cell: u32,
    /// Index of the thread over all sessions.
    pub thread: u32,
    pub layout: Layout,
    /// Activations planned, recorded, missed.
    pub planned: u64,
    /// Measured activations.
    pub recorded: u64,
    /// Swallowed activations.
    pub missed: u64,
    /// Exact smallest latency.
    pub min_ns: u64,
    /// Exact largest latency.
    pub max_ns: u64,
    /// Exact sum of latencies.
    pub sum_ns: u64,
    pub bins: Vec<Bin>,
    /// Latencies without a bucket: in imports only.
    #[serde(default, skip_serializing_if = "Unplaced::is_empty")]
    pub unplaced: Unplaced,
    /// What the missed activations would have seen.
    pub omitted: Vec<Bin>,
}

/// A sum of slices in the making: constant memory however long the run.
#[derive(Clone, Debug)]
pub struct CellSum {
    measured: Histogram,
    omitted: Histogram,
    planned: u64,
    missed: u64,
}

impl CellSum {
    /// Nothing yet.
    #[must_use]
    pub fn new(layout: Layout) -> CellSum {
        let (measured, omitted) = (Histogram::new(layout), Histogram::new(layout));
        CellSum { measured, omitted, planned: 0, missed: 0 }
    }

    pub fn add(&mut self, slice: &Slice) {
        self.planned += slice.planned;
        self.missed += slice.missed;
        let sum_ns = u128::from(slice.sum_ns);
        self.measured.add_all(&slice.bins, slice.unplaced, slice.min_ns, slice.max_ns, sum_ns);
        let extent = slice.omitted_extent;
        self.omitted.add(&slice.omitted, extent.min_ns, extent.max_ns, u128::from(extent.sum_ns));
    }

    /// The sum as `histograms.json` holds it.
    #[must_use]
    pub fn histogram(&self, cell: u32, thread: u32) -> CellHistogram {
        CellHistogram {
            cell,
            thread,
            layout: self.measured.layout(),
            planned: self.planned,
            recorded: self.measured.count(),
            missed: self.missed,
            min_ns: self.measured.min_ns().unwrap_or(0),
            max_ns: self.measured.max_ns().unwrap_or(0),
            sum_ns: u64::try_from(self.measured.sum_ns()).unwrap_or(u64::MAX),
            bins: self.measured.bins(),
            unplaced: self.measured.unplaced(),
            omitted: self.omitted.bins(),
        }
    }
}
