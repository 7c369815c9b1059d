//! One sampling thread as the screens show it, and the trail of its worst latencies.

use rtscope_model::{
    cpu::CpuSet,
    event::{Bounds, Live},
    schedule::Placement,
    slice::Slice,
    time::Nanos,
};

use super::Density;

/// One sampling thread of the running session.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// `CPU 3`, or `thread 3` when it may run on several.
    pub(crate) label: String,
    /// Policy and priority as read back: `fifo 90`.
    pub(crate) place: String,
    /// Time between two activations.
    pub(crate) interval_ns: u64,
    /// Figures of the running cell.
    pub(crate) live: Live,
    /// Latencies of the running cell, slice by slice.
    pub(crate) density: Density,
    /// Its place in the list of trails: trails outlive a session.
    pub(crate) trail: usize,
}

/// Policy and priority, without the CPUs.
pub(super) fn place_of(placement: &Placement) -> String {
    let policy = placement.policy;
    match placement.budget {
        Some(budget) => format!("{policy} {}", Nanos(budget.runtime_ns)),
        None if policy.has_priority() => format!("{policy} {}", placement.priority),
        None if placement.nice != 0 => format!("{policy} nice {}", placement.nice),
        None => policy.to_string(),
    }
}

/// A name for a thread that no lane has yet.
pub(super) fn label_of(cpus: &CpuSet, nth: usize, lanes: &[Lane]) -> String {
    let Some(cpu) = cpus.iter().next().filter(|_| cpus.len() == 1) else {
        return format!("thread {nth}");
    };
    let label = format!("CPU {cpu}");
    if lanes.iter().any(|lane| lane.label == label) { format!("{label} t{nth}") } else { label }
}

/// What the slices of one cell add up to, for one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Measured activations.
    pub(crate) recorded: u64,
    /// Swallowed activations.
    pub(crate) missed: u64,
    pub(crate) max_ns: u64,
    /// How long an activation had waited at least that nothing has answered.
    pub(crate) open_ns: u64,
    /// The last of these still waits: its thread hasn't woken since in the phase.
    pub(crate) awaits: bool,
    /// Nothing of the thread was heard in the phase.
    pub(crate) is_unheard: bool,
    /// The first expiry that no slice has told of; 0 without a slice.
    end_ns: u64,
    /// When it was last seen that the thread had answered; 0 before.
    answered_ns: u64,
}

impl Sum {
    /// The largest latency, or the time that an unanswered activation had waited.
    pub(crate) fn worst_ns(&self) -> u64 {
        self.max_ns.max(self.open_ns)
    }

    /// Whether the largest latency is only known to be that or more.
    pub(crate) fn is_at_least(&self) -> bool {
        self.open_ns > self.max_ns
    }

    /// Takes note of a wake-up that is still awaited now, of a thread of which nothing was heard up to the
    /// end of its phase.
    pub(super) fn look(&mut self, bounds: Bounds, interval_ns: u64, now_ns: u64) {
        let heard_ns = self.end_ns.max(self.answered_ns);
        // Its first expiry may be yet to come.
        self.is_unheard = heard_ns == 0;
        let due_ns = heard_ns.saturating_add(2 * interval_ns);
        if self.is_unheard || due_ns >= bounds.to_ns {
            return;
        }
        self.awaits = true;
        // Since the last slice, the thread may have answered unseen.
        if self.answered_ns > 0 {
            self.open_ns = self.open_ns.max(now_ns.saturating_sub(due_ns));
        }
    }

    /// Takes note that the thread has answered since the last look.
    pub(super) fn answer(&mut self, now_ns: u64) {
        self.answered_ns = now_ns;
    }

    pub(super) fn add(&mut self, slice: &Slice) {
        self.end_ns = self.end_ns.max(slice.end_ns);
        self.awaits = slice.is_silent();
        if slice.recorded == 0 {
            self.open_ns = self.open_ns.max(slice.omitted_extent.max_ns);
        }
        self.recorded += slice.recorded;
        self.missed += slice.missed;
        self.max_ns = self.max_ns.max(slice.max_ns);
    }
}

/// The most points of a trail.
const POINTS: usize = 1024;

/// The largest latency of each slice over the whole run, for all threads with one label. When it is
/// full, two points become one, the larger: a peak is never lost.
#[derive(Clone, Debug)]
pub(crate) struct Trail {
    pub(crate) label: String,
    /// Instant since the start of the run, latency; both in nanoseconds, in order of time.
    pub(crate) points: Vec<(u64, u64)>,
    /// How many slices make a point, and how many the last one holds.
    slices_each: u32,
    slices_last: u32,
}

impl Trail {
    pub(super) fn new(label: &str) -> Trail {
        let points = Vec::with_capacity(POINTS);
        Trail { label: label.to_owned(), points, slices_each: 1, slices_last: 0 }
    }

    /// Adds the largest latency of the next slice, and when it was.
    pub(super) fn push(&mut self, at_ns: u64, max_ns: u64) {
        match self.points.last_mut() {
            Some(last) if self.slices_last < self.slices_each => {
                *last = larger(*last, (at_ns, max_ns));
                self.slices_last += 1;
            }
            _ => {
                if self.points.len() == POINTS {
                    self.halve();
                }
                self.points.push((at_ns, max_ns));
                self.slices_last = 1;
            }
        }
    }

    fn halve(&mut self) {
        for i in 0..POINTS / 2 {
            self.points[i] = larger(self.points[2 * i], self.points[2 * i + 1]);
        }
        self.points.truncate(POINTS / 2);
        self.slices_each *= 2;
    }
}

fn larger(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    if b.1 > a.1 { b } else { a }
}

#[cfg(test)]
mod tests {
    use rtscope_model::schedule::{Budget, Policy};

    use super::*;

    #[test]
    fn a_trail_stays_small_and_keeps_its_peaks() {
        let mut trail = Trail::new("CPU 0");
        let slices = 10 * POINTS as u64 + 7;
        for n in 0..slices {
            trail.push(n, if n % 1_000 == 77 { 1_000 + n } else { 1 });
        }
        assert!(trail.points.len() <= POINTS && trail.points.len() > POINTS / 2);
        assert!(trail.points.is_sorted_by_key(|point| point.0));
        let peaks: Vec<_> = trail.points.iter().filter(|point| point.1 > 1).copied().collect();
        let expected: Vec<_> =
            (0..slices).filter(|n| n % 1_000 == 77).map(|n| (n, 1_000 + n)).collect();
        assert_eq!(peaks, expected);
    }

    #[test]
    fn threads_are_named_by_their_cpu() {
        let lane = |label: &str| Lane {
            label: label.to_owned(),
            place: String::new(),
            interval_ns: 1,
            live: Live::default(),
            density: Density::new(rtscope_model::histogram::Layout::default()),
            trail: 0,
        };
        let cpus = |text: &str| text.parse::<CpuSet>().expect("a set");
        assert_eq!(label_of(&cpus("3"), 0, &[]), "CPU 3");
        assert_eq!(label_of(&cpus("3"), 1, &[lane("CPU 3")]), "CPU 3 t1");
        assert_eq!(label_of(&cpus("0-3"), 1, &[]), "thread 1");
        let budget = Budget { runtime_ns: 100_000, deadline_ns: 1_000_000, period_ns: 1_000_000 };
        let mut placement = Placement {
            policy: Policy::Fifo,
            priority: 90,
            nice: 0,
            budget: None,
            cpus: cpus("3"),
        };
        assert_eq!(place_of(&placement), "fifo 90");
        placement = Placement { policy: Policy::Other, priority: 0, nice: 5, ..placement };
        assert_eq!(place_of(&placement), "other nice 5");
        placement = Placement { policy: Policy::Deadline, budget: Some(budget), ..placement };
        assert_eq!(place_of(&placement), "deadline 100 us");
    }
}
