//! What a reader makes of a file: cells with threads, each a histogram or a row of them in time.

use std::collections::BTreeMap;

use rtscope_model::{
    histogram::{Bin, EXACT_MIN, Layout, Unplaced},
    origin::Origin,
};

/// What one run of a tool measured, or one kind of latency of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedCell {
    /// What tells it from other cells of the same file; empty for the only one.
    pub name: String,
    pub layout: Layout,
    /// Threads or CPUs.
    pub threads: Vec<ImportedThread>,
    pub origin: Origin,
    /// Whether the threads started and ended together, and each counted its own cycles: then they
    /// cover the same time.
    pub is_one_run: bool,
    /// Whether no latency at all is a result: nothing disturbed the threads.
    pub is_quiet: bool,
    /// How long the tool ran by a wall clock, in whole seconds, where the file says it.
    pub ran_ns: Option<u64>,
}

/// One thread or CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedThread {
    /// Its name, as `thread 0`.
    pub label: String,
    /// Its CPU, where the file says it.
    pub cpu: Option<u32>,
    /// Its interval, where the file says it.
    pub interval_ns: Option<u64>,
    /// How long it was watched, where the file says it; else it follows from the interval.
    pub duration_ns: Option<u64>,
    /// One part without order, or several in order.
    pub parts: Vec<Part>,
    /// How long it had waited at least when the run ended, if it was waiting then.
    pub waited_ns: Option<u64>,
}

/// Latencies of a span of cycles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// First cycle.
    pub first: u64,
    /// The cycle after the last.
    pub end: u64,
    /// Latencies, early ones included.
    pub count: u64,
    /// Wake-ups before their time, counted as latency 0.
    pub early: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// The cycle of the largest.
    pub max_at: u64,
    pub sum_ns: u64,
    pub bins: Vec<Bin>,
    /// Latencies without a bucket.
    pub unplaced: Unplaced,
}

impl ImportedCell {
    #[must_use]
    pub fn count(&self) -> u64 {
        let parts = self.threads.iter().flat_map(|thread| &thread.parts);
        parts.fold(0, |sum, part| sum.saturating_add(part.count))
    }
}

impl Part {
    /// The part, if its latencies are known: of some without a row the maximum is needed.
    pub(super) fn known(self, said: &Said) -> Vec<Part> {
        let is_known = self.unplaced.is_empty() || said.max.is_some();
        if self.count > 0 && is_known { vec![self] } else { Vec::new() }
    }

    /// Counts one more latency, at least as long as all others.
    pub(super) fn add_maximum(&mut self, max_ns: u64) {
        self.unplaced = self.unplaced.and(Unplaced { count: 1, from_ns: max_ns });
        (self.max_ns, self.max_at) = (max_ns, self.end);
        self.count += 1;
        self.end += 1;
        self.sum_ns = self.sum_ns.saturating_add(max_ns);
    }

    /// Both together.
    pub(super) fn merge(&mut self, other: &Part) {
        let mut bins: BTreeMap<u32, u64> = self.bins.drain(..).collect();
        for &(index, count) in &other.bins {
            *bins.entry(index).or_default() += count;
        }
        if other.max_ns > self.max_ns {
            (self.max_ns, self.max_at) = (other.max_ns, other.max_at);
        }
        self.bins = bins.into_iter().collect();
        self.first = self.first.min(other.first);
        self.end = self.end.max(other.end);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.count = self.count.saturating_add(other.count);
        self.early += other.early;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.unplaced = self.unplaced.and(other.unplaced);
    }
}

/// The most that a histogram of a file may hold, in all its columns together.
const BINS_MAX: usize = 4_000_000;

/// The most latencies of one thread that are believed, two years at 1 ms: sums over threads must
/// not overflow, and intervals of quantiles take time with the root of the count.
pub(super) const COUNT_MAX: u64 = 1 << 36;

/// The largest latency that is believed, a day: beyond it a number is damage.
pub(super) const LATENCY_NS_MAX: u64 = 86_400_000_000_000;

/// The longest run that is believed, a year: a hostile number of cycles must not run out of the time
/// there is.
pub(super) const LONGEST_NS: u64 = u64::MAX >> 9;

/// A histogram that is read row by row: an index, and a count for each thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    exact: u64,
    columns: Vec<BTreeMap<u64, u64>>,
    totals: Vec<u64>,
    /// The greatest common divisor of all indices: the width of a bucket at most.
    pub(super) step: u64,
    /// The file says that its buckets are wider than a unit: then they are as wide as the step.
    pub(super) is_wide: bool,
    /// The largest index.
    pub(super) last: u64,
    pub(super) rows: u64,
    /// Indices that were smaller than the one before.
    pub(super) disordered: u64,
    /// Numbers that no tool writes.
    pub(super) absurd: u64,
    /// Rows with fewer columns than others.
    pub(super) short: u64,
    /// Rows of an index that the row before has.
    pub(super) repeated: u64,
}

impl Rows {
    /// Empty rows of single steps that go up to an index.
    pub(super) fn up_to(last: u64) -> Rows {
        Rows { last, ..Rows::default() }
    }

    pub(super) fn add(&mut self, index: u64, counts: &[u64]) {
        let columns = counts.len();
        if self.rows == 0 {
            self.columns.resize(columns, BTreeMap::new());
            self.totals.resize(columns, 0);
            self.exact = (BINS_MAX / columns.max(1)).clamp(10_000, 1_000_000) as u64;
        } else if columns != self.columns.len() {
            self.short += 1;
        }
        // A clock of 2^63 units and more is a negative number in an unsigned field.
        if index > LATENCY_NS_MAX {
            self.absurd += 1;
            return;
        }
        self.disordered += u64::from(self.rows > 0 && index < self.last);
        self.repeated += u64::from(self.rows > 0 && index == self.last);
        self.rows += 1;
        self.last = self.last.max(index);
        self.step = gcd(self.step, index);
        let columns = self.columns.iter_mut().zip(&mut self.totals);
        for ((column, total), &count) in columns.zip(counts) {
            let fits = index < self.exact || column.len() < self.exact as usize;
            match total.checked_add(count).filter(|sum| *sum <= COUNT_MAX && fits) {
                _ if count == 0 => {}
                Some(sum) => {
                    *total = sum;
                    *column.entry(index).or_default() += count;
                }
                None => self.absurd += 1,
            }
        }
    }

    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Whether each count of the last column is the sum of those before it.
    pub(super) fn last_is_sum(&self) -> bool {
        let Some((last, others)) = self.columns.split_last() else { return false };
        let sum = |index: &u64| -> u64 { others.iter().filter_map(|of| of.get(index)).sum() };
        !others.is_empty()
            && !last.is_empty()
            && last.iter().all(|(index, count)| sum(index) == *count)
            && others.iter().flat_map(BTreeMap::keys).all(|index| last.contains_key(index))
    }

    /// Units of a bucket. That all indices are multiples of a number may be chance: a bucket is a unit wide
    /// unless the file says otherwise.
    pub(super) fn bucket_width(&self) -> u64 {
        if self.is_wide && self.step > 1 { self.step } else { 1 }
    }

    /// The largest value of a row, as far as it is known: a single row doesn't show how wide it is.
    pub(super) fn end_of(&self, row: u64) -> Option<u64> {
        (!self.is_wide || self.step > 0).then(|| row.saturating_add(self.bucket_width() - 1))
    }

    /// The layout that keeps these rows apart; `unit_ns` is one unit of an index.
    pub(super) fn layout(&self, unit_ns: u64) -> Layout {
        let step = self.bucket_width();
        let needed = (self.last / step + 1).clamp(u64::from(EXACT_MIN), 1_000_000) as u32;
        let usual = if step == 1 { needed.max(1_000) } else { needed };
        Layout { unit_ns: unit_ns.saturating_mul(step), exact: usual }
    }

    pub(super) fn counts(&self, column: usize) -> Option<&BTreeMap<u64, u64>> {
        self.columns.get(column)
    }

    /// Latencies of a column in rows.
    pub(super) fn placed(&self, column: usize) -> u64 {
        let counts = self.counts(column).into_iter().flat_map(BTreeMap::values);
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Latencies of a column that are counted, and lie beyond the rows.
    pub(super) fn beyond(&self, column: usize, said: &Said) -> u64 {
        said.beyond(self.placed(column))
    }

    /// Whether a maximum lies above the last filled row of a column. The file contradicts itself then. A
    /// latency of that size counts, so that nothing is said to be free of it.
    fn is_stray(&self, column: usize, max: u64) -> bool {
        match self.counts(column).and_then(|counts| counts.keys().next_back()) {
            Some(last) => self.end_of(*last).is_some_and(|end| max > end),
            None => max > 0,
        }
    }

    /// One column as a part. What a tool says beside its histogram is laid over it.
    pub(super) fn part(&self, column: usize, unit_ns: u64, said: &Said) -> Part {
        let layout = self.layout(unit_ns);
        let mut bins: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut placed, mut sum_ns) = (0u64, 0u64);
        let counts = self.columns.get(column);
        let mut extremes: Option<(u64, u64)> = None;
        for (&index, &count) in counts.into_iter().flatten() {
            let latency_ns = index.saturating_mul(unit_ns);
            *bins.entry(layout.index(latency_ns)).or_default() += count;
            placed = placed.saturating_add(count);
            sum_ns = sum_ns.saturating_add(latency_ns.saturating_mul(count));
            let (first, _) = extremes.unwrap_or((latency_ns, latency_ns));
            extremes = Some((first, latency_ns));
        }
        let mut beyond = said.beyond(placed);
        let from = said.limit.unwrap_or(self.last + 1);
        let mut from_ns = from.saturating_mul(unit_ns);
        // What a file counts and neither its rows nor its maximum leave room for may have any latency.
        let missing = said.missing(placed);
        if missing > 0 || beyond > 0 && said.max.is_some_and(|max| max < from) {
            beyond = beyond.saturating_add(missing).min(COUNT_MAX);
            let least = said.min.or(counts.and_then(|rows| rows.keys().next().copied()));
            from_ns = least.unwrap_or(0).min(from).saturating_mul(unit_ns);
        }
        let stray = said.max.filter(|max| beyond == 0 && self.is_stray(column, *max));
        if let Some(max) = stray {
            (beyond, from_ns) = (1, max.saturating_mul(unit_ns));
        }
        let scaled = |value: Option<u64>| value.map(|value| value.saturating_mul(unit_ns));
        let (first_ns, last_ns) = extremes.unwrap_or((from_ns, from_ns));
        let max_ns = match (scaled(said.max), beyond) {
            (Some(max_ns), _) => max_ns.max(last_ns),
            (None, 0) => last_ns,
            (None, _) => from_ns.max(last_ns),
        };
        let count = placed.saturating_add(beyond);
        let mean_sum = said.mean.map_or(0, |mean| (mean * unit_ns as f64 * count as f64) as u64);
        let is_exact = beyond == 0 && layout.unit_ns == unit_ns;
        let beyond_ns = beyond.saturating_mul(from_ns.min(max_ns));
        Part {
            first: 0,
            end: count,
            count,
            early: said.early,
            min_ns: scaled(said.min).unwrap_or(first_ns).min(first_ns),
            max_ns,
            max_at: 0,
            // Without a mean, what lies beyond the rows is taken for as little as it can be.
            sum_ns: if is_exact { sum_ns } else { mean_sum.max(sum_ns.saturating_add(beyond_ns)) },
            bins: bins.into_iter().collect(),
            unplaced: if beyond == 0 {
                Unplaced::default()
            } else {
                Unplaced { count: beyond, from_ns: from_ns.min(max_ns) }
            },
        }
    }
}

/// What a tool says of a thread beside its histogram, in the histogram's units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) count: Option<u64>,
    /// Latencies in rows.
    pub(super) total: Option<u64>,
    /// Latencies that may have been counted after the rows were written.
    pub(super) in_flight: u64,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
    /// Mean, often cut to a whole number.
    pub(super) mean: Option<f64>,
    /// Latencies beyond the histogram.
    pub(super) overflow: Option<u64>,
    /// Where the histogram ends.
    pub(super) limit: Option<u64>,
    /// Wake-ups before their time.
    pub(super) early: u64,
}

impl Said {
    /// Latencies that are in no bucket when so many are in one.
    pub(super) fn beyond(&self, placed: u64) -> u64 {
        let missing = self.count.map(|count| count.saturating_sub(placed));
        self.overflow.or(missing).unwrap_or(0).min(COUNT_MAX)
    }

    /// Latencies that the file counts among its rows and in no row, when so many are in one.
    pub(super) fn missing(&self, placed: u64) -> u64 {
        let by_total = self.total.map_or(0, |total| total.saturating_sub(placed));
        let by_count = self
            .overflow
            .zip(self.count)
            .map_or(0, |(overflow, count)| count.saturating_sub(placed.saturating_add(overflow)));
        by_total.max(by_count).min(COUNT_MAX)
    }

    /// A part without a histogram: extremes, and how many there were.
    pub(super) fn part(&self, unit_ns: u64) -> Part {
        let count = self.count.unwrap_or(0).min(COUNT_MAX);
        let min_ns = self.min.unwrap_or(0).saturating_mul(unit_ns);
        let max_ns = self.max.unwrap_or(0).saturating_mul(unit_ns).max(min_ns);
        let mean = self.mean.or(self.min.map(|min| min as f64)).unwrap_or(0.0).clamp(0.0, 1e15);
        Part {
            first: 0,
            end: count,
            count,
            early: self.early,
            min_ns,
            max_ns,
            max_at: 0,
            sum_ns: (mean * unit_ns as f64 * count as f64) as u64,
            bins: Vec::new(),
            unplaced: Unplaced { count, from_ns: min_ns },
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
