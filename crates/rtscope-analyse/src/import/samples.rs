//! Latencies one by one, in the order of their cycles: a histogram for each span of cycles.
//!
//! Spans begin short and double whenever there are too many, so memory doesn't grow with the file.

use rtscope_model::histogram::{Layout, Unplaced};

use super::{
    cell::{LATENCY_NS_MAX, Part},
    number::Printed,
};

/// Cycles of the first spans.
const SPAN: u64 = 64;

/// Most spans of a thread.
const PARTS_MAX: usize = 1_024;

/// Most bins of all spans, shared by the threads. Of latencies in ns, nearly each has a bucket of its own, so that longer
/// spans save little: with fewer bins than this, all of a thread would end up in one span.
const BINS_MAX: usize = 1_000_000;

/// Each thread has room for so many bins, however many threads there are.
const THREAD_BINS_MIN: usize = 60_000;

/// The latencies of one thread.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    layout: Layout,
    exact: u64,
    /// Counts of the open span by bucket, as far as any was needed.
    counts: Vec<u64>,
    /// Buckets of the open span that are not empty.
    touched: Vec<u32>,
    open: Part,
    sum: u64,
    max: u64,
    min: u64,
    /// The cycle that ends the open span.
    until: u64,
    span: u64,
    parts: Vec<Part>,
    bins: usize,
    bins_max: usize,
    /// The cycle that should come next.
    next: u64,
    /// Cycles that the file leaves out.
    pub(super) lost: u64,
    /// Times that a cycle came again, or an earlier one.
    pub(super) repeated: u64,
    /// Latencies that no tool writes.
    pub(super) absurd: u64,
}

impl Samples {
    /// No latency yet; `first` is the first cycle.
    pub(super) fn new(layout: Layout, first: u64) -> Samples {
        let first = first.min(u64::MAX / 2);
        Samples {
            layout,
            exact: u64::from(layout.exact),
            counts: vec![0; 256],
            touched: Vec::new(),
            open: Part { first, end: first, ..Part::default() },
            sum: 0,
            max: 0,
            min: u64::MAX,
            until: first.saturating_add(SPAN),
            span: SPAN,
            parts: Vec::new(),
            bins: 0,
            bins_max: BINS_MAX,
            next: first,
            lost: first,
            repeated: 0,
            absurd: 0,
        }
    }

    /// So many threads share the memory.
    pub(super) fn share(&mut self, threads: usize) {
        self.bins_max = (BINS_MAX / threads.max(1)).max(THREAD_BINS_MIN);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.open.count == 0
    }

    /// The cycle that should come next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    pub(super) fn add(&mut self, cycle: u64, value: u64) {
        if cycle != self.next {
            self.jump(cycle);
        }
        if self.next >= self.until {
            self.close();
        }
        let index = if value < self.exact { value as usize } else { self.far(value) };
        if index >= self.counts.len() {
            self.counts.resize((index + 1).next_power_of_two(), 0);
        }
        let count = &mut self.counts[index];
        if *count == 0 {
            self.touched.push(index as u32);
        }
        *count += 1;
        self.open.count += 1;
        self.sum = self.sum.saturating_add(value);
        if value > self.max {
            (self.max, self.open.max_at) = (value, self.next);
        }
        self.min = self.min.min(value);
        self.next += 1;
    }

    /// Adds a latency as it was printed.
    pub(super) fn add_printed(&mut self, cycle: u64, value: Printed) {
        match value {
            Printed::Late(value) if value <= LATENCY_NS_MAX / self.layout.unit_ns => {
                self.add(cycle, value);
            }
            Printed::Late(_) => self.absurd += 1,
            Printed::Early => {
                self.add(cycle, 0);
                self.open.early += 1;
            }
        }
    }

    /// A cycle that is not the next.
    #[cold]
    fn jump(&mut self, cycle: u64) {
        match cycle.checked_sub(self.next) {
            Some(gap) => {
                self.lost = self.lost.saturating_add(gap);
                self.next = cycle.min(u64::MAX / 2);
            }
            // Time goes on: the cycle is taken for the next.
            None => self.repeated += 1,
        }
    }

    #[cold]
    fn far(&mut self, value: u64) -> usize {
        self.layout.index(value.saturating_mul(self.layout.unit_ns)) as usize
    }

    /// Ends the open span and begins the next.
    fn close(&mut self) {
        if self.open.count > 0 {
            self.touched.sort_unstable();
            let unit_ns = self.layout.unit_ns;
            let counts = &mut self.counts;
            let take = |&index: &u32| (index, std::mem::take(&mut counts[index as usize]));
            let bins: Vec<(u32, u64)> = self.touched.iter().map(take).collect();
            self.touched.clear();
            self.bins += bins.len();
            self.parts.push(Part {
                end: self.next.min(self.until),
                min_ns: self.min.saturating_mul(unit_ns),
                max_ns: self.max.saturating_mul(unit_ns),
                sum_ns: self.sum.saturating_mul(unit_ns),
                bins,
                unplaced: Unplaced::default(),
                ..std::mem::take(&mut self.open)
            });
        }
        (self.sum, self.max, self.min) = (0, 0, u64::MAX);
        while self.parts.len() > 1 && (self.parts.len() > PARTS_MAX || self.bins > self.bins_max) {
            self.coarsen();
        }
        self.open = Part { first: self.next, max_at: self.next, ..Part::default() };
        self.until = (self.next / self.span + 1).saturating_mul(self.span);
    }

    /// Spans of twice the length.
    fn coarsen(&mut self) {
        self.span = self.span.saturating_mul(2);
        let span = self.span;
        let mut merged: Vec<Part> = Vec::with_capacity(self.parts.len() / 2 + 1);
        for part in self.parts.drain(..) {
            match merged.last_mut() {
                Some(last) if last.first / span == part.first / span => last.merge(&part),
                _ => merged.push(part),
            }
        }
        self.bins = merged.iter().map(|part| part.bins.len()).sum();
        self.parts = merged;
    }

    /// The spans, in order.
    pub(super) fn finish(mut self) -> Vec<Part> {
        self.close();
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtscope_model::histogram::Histogram;

    use super::*;

    fn layout() -> Layout {
        Layout { unit_ns: 1_000, exact: 10_000 }
    }

    #[test]
    fn a_long_row_of_latencies_takes_a_bounded_number_of_spans() {
        let mut samples = Samples::new(layout(), 0);
        let value = |cycle: u64| if cycle == 777_777 { 5_000_000 } else { cycle % 40 };
        (0..1_000_000).for_each(|cycle| samples.add(cycle, value(cycle)));
        let parts = samples.finish();
        assert!(parts.len() <= PARTS_MAX && parts.len() > PARTS_MAX / 4, "{}", parts.len());
        assert_eq!(parts.iter().map(|part| part.count).sum::<u64>(), 1_000_000);
        let worst = parts.iter().max_by_key(|part| part.max_ns).expect("parts");
        assert_eq!((worst.max_ns, worst.max_at), (5_000_000_000, 777_777));
        assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].first));
        assert!(parts.iter().all(|part| part.end - part.first == part.count));
    }

    /// The longer the file, the more must be known of how its latencies depend on each other, not less.
    #[test]
    fn latencies_with_a_bucket_each_keep_their_resolution_in_time() {
        let parts_of = |cycles: u64, threads: usize| {
            let mut samples = Samples::new(Layout { unit_ns: 1, exact: 10_000 }, 0);
            samples.share(threads);
            (0..cycles).for_each(|cycle| samples.add(cycle, 2_000 + cycle * 7_919 % 7_993));
            samples.finish().len()
        };
        assert!(parts_of(600_000, 1) > PARTS_MAX / 2);
        assert!(parts_of(4_000_000, 1) > 100);
        let few = parts_of(600_000, 512);
        assert!((1..100).contains(&few), "512 threads have no room for that: {few}");
    }

    #[test]
    fn gaps_and_repetitions_are_counted() {
        let mut samples = Samples::new(layout(), 5);
        for (cycle, value) in [(5, 3), (6, 4), (100, 5), (100, 6), (2, 7)] {
            samples.add(cycle, value);
        }
        samples.add_printed(103, Printed::Early);
        assert_eq!((samples.lost, samples.repeated), (5 + 93, 2));
        let parts = samples.finish();
        assert_eq!(
            parts.iter().map(|part| (part.count, part.early)).collect::<Vec<_>>(),
            [(2, 0), (4, 1)]
        );
    }

    #[test]
    fn a_hostile_cycle_does_not_end_in_a_panic() {
        let mut samples = Samples::new(layout(), 0);
        for cycle in [u64::MAX, 3, u64::MAX - 1, 0] {
            samples.add(cycle, 1);
        }
        samples.add_printed(1, Printed::Late(u64::MAX / 2));
        assert_eq!(samples.absurd, 1);
        assert_eq!(samples.finish().iter().map(|part| part.count).sum::<u64>(), 4);
    }

    proptest! {
        #[test]
        fn spans_together_are_the_histogram(values in prop::collection::vec(0u64..20_000_000, 1..900)) {
            let mut samples = Samples::new(layout(), 0);
            let (mut all, mut sum) = (Histogram::new(layout()), Histogram::new(layout()));
            for (cycle, &value) in values.iter().enumerate() {
                samples.add(cycle as u64, value);
                all.record(value * 1_000);
            }
            for part in samples.finish() {
                sum.add(&part.bins, part.min_ns, part.max_ns, u128::from(part.sum_ns));
            }
            prop_assert_eq!(sum, all);
        }
    }
}
