//! The histogram of the running cell, coarse enough to be drawn many times a second.

use rtscope_model::{
    histogram::{EXACT_MIN, Layout},
    slice::Slice,
};

use crate::tui::axis::LogAxis;

/// Counts in buckets of at most 1/32 of a latency, about 10 KiB, whatever the record keeps.
///
/// The record's buckets nest in these: both follow the same powers of two, these from the fewest
/// exact buckets on.
#[derive(Clone, Debug)]
pub(crate) struct Density {
    layout: Layout,
    counts: Vec<u64>,
    count: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Density {
    /// Empty, for slices of this layout.
    pub(crate) fn new(slices: Layout) -> Density {
        let layout = Layout { exact: EXACT_MIN.min(slices.exact), ..slices };
        let counts = vec![0; layout.buckets() as usize];
        Density { layout, counts, count: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.min_ns, self.max_ns) = (0, u64::MAX, 0);
    }

    /// Adds the latencies of a slice.
    pub(crate) fn add(&mut self, slice: &Slice, layout: Layout) {
        if slice.recorded == 0 {
            return;
        }
        let last = self.counts.len() - 1;
        for &(index, count) in &slice.bins {
            let coarse = self.layout.index(layout.lower_ns(index.min(layout.buckets() - 1)));
            self.counts[(coarse as usize).min(last)] += count;
            self.count += count;
        }
        self.min_ns = self.min_ns.min(slice.min_ns);
        self.max_ns = self.max_ns.max(slice.max_ns);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The axis that shows every latency; none when there is none.
    pub(crate) fn axis(&self) -> Option<LogAxis> {
        (self.count > 0).then(|| LogAxis::around(self.min_ns, self.max_ns))
    }

    /// Latencies by column: the axis is cut into as many equal parts as there are columns. A bucket
    /// wider than a column is spread over the columns that it covers, so that no column between two
    /// buckets looks empty.
    pub(crate) fn columns(&self, axis: LogAxis, columns: &mut [f64]) {
        columns.fill(0.0);
        let width = columns.len() as f64;
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        for (index, &count) in filled {
            let (lower_ns, upper_ns) = self.extent(index as u32);
            let from = axis.position(lower_ns) * width;
            let to = axis.position(upper_ns) * width;
            spread(columns, from, to, count as f64);
        }
    }

    /// A bucket's edges, inside of what was seen.
    fn extent(&self, index: u32) -> (u64, u64) {
        let lower_ns = self.layout.lower_ns(index).max(self.min_ns);
        (lower_ns, self.layout.upper_ns(index).saturating_add(1).min(self.max_ns).max(lower_ns))
    }
}

/// Spreads a count over columns from one position to another.
fn spread(columns: &mut [f64], from: f64, to: f64, count: f64) {
    let last = columns.len().saturating_sub(1);
    let (first_column, last_column) = ((from as usize).min(last), (to as usize).min(last));
    if columns.is_empty() {
        return;
    }
    if first_column == last_column {
        columns[first_column] += count;
        return;
    }
    for (i, column) in columns[first_column..=last_column].iter_mut().enumerate() {
        let left = (first_column + i) as f64;
        let covered = to.min(left + 1.0) - from.max(left);
        *column += count * covered.max(0.0) / (to - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::script::slice;

    #[test]
    fn every_latency_reaches_a_column_whatever_the_layout() {
        let latencies_ns = [0, 900, 1_500, 64_000, 70_100, 999_999, 12_345_678, 1 << 50];
        for layout in [
            Layout::default(),
            Layout { unit_ns: 1, exact: 64 },
            Layout { unit_ns: 1, exact: 1_000_000 },
        ] {
            let mut density = Density::new(layout);
            density.add(&slice(0, 0, layout, &latencies_ns), layout);
            assert_eq!(density.count(), latencies_ns.len() as u64);
            let axis = density.axis().expect("latencies");
            for width in [1, 7, 80] {
                let mut columns = vec![1.0; width];
                density.columns(axis, &mut columns);
                let sum: f64 = columns.iter().sum();
                assert!((sum - latencies_ns.len() as f64).abs() < 1e-6, "{layout:?} {sum}");
            }
        }
    }

    #[test]
    fn a_wide_bucket_leaves_no_gap_and_a_narrow_one_stays_in_its_column() {
        let layout = Layout::default();
        let mut density = Density::new(layout);
        density.add(&slice(0, 0, layout, &[1_000, 1_999, 9_000]), layout);
        let axis = LogAxis { from_ns: 1_000, to_ns: 10_000 };
        let mut columns = [0.0; 10];
        density.columns(axis, &mut columns);
        assert!(columns[..3].iter().all(|&c| c > 0.0), "{columns:?}");
        assert!(columns[4..9].iter().all(|&c| c == 0.0), "{columns:?}");
        assert!((columns[9] - 1.0).abs() < 1e-9);
        density.clear();
        density.columns(axis, &mut columns);
        assert_eq!((columns, density.axis()), ([0.0; 10], None));
    }
}
