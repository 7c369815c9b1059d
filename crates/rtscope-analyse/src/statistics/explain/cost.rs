//! What watching a run costs: its mean latency while the kernel's events were recorded, less that of the times between
//! in which they were not.
//!
//! From when to when: a slice counts if all of its time was recorded, or none of it. Each pause is compared with the
//! slices of the same threads and cells before and after it, as long before as after and up to the middle between two
//! pauses, so that what changes slowly cancels out. The interval is Student's of these differences. Pauses are some
//! seconds apart, so that a short disturbance is in one difference only.

use std::collections::BTreeMap;

use rtscope_model::{
    event::Event,
    explain::Pause,
    record::Record,
    slice::{Scope, Slice},
};
use serde::Serialize;

use crate::statistics::cosines::student;

/// Differences that are needed for an interval.
const NEEDED: usize = 3;

/// What watching adds to the mean latency of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WatchCost {
    /// The mean of the differences; negative where it was later without.
    pub mean_ns: f64,
    /// Its interval of 95 %.
    pub low_ns: f64,
    pub high_ns: f64,
    /// Pauses that were compared.
    pub pauses: usize,
}

/// The cost of watching this run with pauses at instants of the monotonic clock; none where it had too few.
#[must_use]
pub fn cost(record: &Record, pauses: &[Pause]) -> Option<WatchCost> {
    let began_ns = record.events.iter().find_map(|stamped| match stamped.event {
        Event::RunStarted { monotonic_ns, .. } => Some(monotonic_ns),
        _ => None,
    })?;
    let pauses: Vec<Pause> = pauses
        .iter()
        .map(|pause| Pause {
            from_ns: pause.from_ns.saturating_sub(began_ns),
            to_ns: pause.to_ns.saturating_sub(began_ns),
        })
        .collect();
    of_differences(&differences(&record.slices, &pauses))
}

/// Student's interval of the mean.
fn of_differences(all: &[f64]) -> Option<WatchCost> {
    if all.len() < NEEDED {
        return None;
    }
    let n = all.len() as f64;
    let mean_ns = all.iter().sum::<f64>() / n;
    let squares: f64 = all.iter().map(|one| (one - mean_ns).powi(2)).sum();
    let half_ns = student(all.len() as u32 - 1) * (squares / (n - 1.0) / n).sqrt();
    let (low_ns, high_ns) = (mean_ns - half_ns, mean_ns + half_ns);
    Some(WatchCost { mean_ns, low_ns, high_ns, pauses: all.len() })
}

/// Sum and count of latencies.
type Mean = (u64, u64);

/// Of each pause what the mean latency around it has more than that in it.
fn differences(slices: &[Slice], pauses: &[Pause]) -> Vec<f64> {
    let end_ns = slices.iter().map(|slice| slice.end_ns).max().unwrap_or(0);
    let mut all = Vec::new();
    for (n, pause) in pauses.iter().enumerate() {
        let middle = |a: &Pause, b: &Pause| a.to_ns.midpoint(b.from_ns);
        let before_ns = n.checked_sub(1).map_or(0, |n| middle(&pauses[n], pause));
        let after_ns = pauses.get(n + 1).map_or(end_ns, |next| middle(pause, next));
        // As long before as after: then what drifts cancels out.
        let reach_ns =
            pause.from_ns.saturating_sub(before_ns).min(after_ns.saturating_sub(pause.to_ns));
        let (before_ns, after_ns) = (pause.from_ns - reach_ns, pause.to_ns + reach_ns);
        let mut without: BTreeMap<(u32, u32), Mean> = BTreeMap::new();
        let mut with = without.clone();
        for slice in slices {
            let Scope::Cell(cell) = slice.scope else { continue };
            let is_within =
                |from_ns: u64, to_ns: u64| slice.start_ns >= from_ns && slice.end_ns <= to_ns;
            let of = match (slice.start_ns, slice.end_ns) {
                _ if is_within(pause.from_ns, pause.to_ns) => &mut without,
                _ if is_within(before_ns, pause.from_ns) || is_within(pause.to_ns, after_ns) => {
                    &mut with
                }
                _ => continue,
            };
            let mean = of.entry((slice.thread, cell)).or_default();
            mean.0 += slice.sum_ns;
            mean.1 += slice.recorded;
        }
        let mean = |(sum_ns, count): Mean| sum_ns as f64 / count as f64;
        let pairs: Vec<(f64, f64)> = without
            .iter()
            .filter_map(|(key, off)| {
                let on = with.get(key).filter(|on| on.1 > 0 && off.1 > 0)?;
                Some((mean(*on) - mean(*off), off.1 as f64))
            })
            .collect();
        let weight: f64 = pairs.iter().map(|pair| pair.1).sum();
        if weight > 0.0 {
            all.push(pairs.iter().map(|pair| pair.0 * pair.1).sum::<f64>() / weight);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{Run, slice_of_histogram};
    use rtscope_model::histogram::{Histogram, Layout};

    const S: u64 = 1_000_000_000;

    /// Ten wake-ups in a second, each so late.
    fn second(thread: u32, at_s: u64, latency_ns: u64) -> Slice {
        Slice {
            thread,
            scope: Scope::Cell(0),
            start_ns: at_s * S,
            end_ns: (at_s + 1) * S,
            planned: 10,
            recorded: 10,
            sum_ns: 10 * latency_ns,
            ..slice_of_histogram(0, 0, &Histogram::new(Layout::default()))
        }
    }

    #[test]
    fn what_drifts_slowly_is_no_cost_and_what_watching_adds_is() {
        let pauses: Vec<Pause> =
            [5, 15, 25].map(|s| Pause { from_ns: s * S - S / 2, to_ns: s * S + S + S / 2 }).into();
        let is_paused = |s: u64| s % 10 == 5;
        // Each second is 100 ns later than the one before, and watching adds 2,000 ns.
        let latency_ns = |s: u64| 10_000 + 100 * s + if is_paused(s) { 0 } else { 2_000 };
        let slices: Vec<Slice> = (0..31).map(|s| second(0, s, latency_ns(s))).collect();
        let found = differences(&slices, &pauses);
        assert_eq!(found, [2_000.0; 3]);
        let cost = of_differences(&found).expect("three pauses");
        assert_eq!((cost.mean_ns, cost.low_ns, cost.high_ns), (2_000.0, 2_000.0, 2_000.0));
        // Another thread that only ran while nothing was paused says nothing.
        let more: Vec<Slice> = slices.iter().cloned().chain([second(1, 8, 9_000_000)]).collect();
        assert_eq!(differences(&more, &pauses), found);
        // Nor does one that had no wake-up in a pause, or none beside it.
        for (idle, busy) in [(15, 13), (13, 15)] {
            let none = Slice { recorded: 0, sum_ns: 0, ..second(1, idle, 0) };
            let more = [none, second(1, busy, 9_000_000)];
            let more: Vec<Slice> = slices.iter().cloned().chain(more).collect();
            assert_eq!(differences(&more, &pauses), found);
        }
        assert_eq!(of_differences(&found[..2]), None);
        // A disturbance between two pauses belongs to the nearer one.
        for (at_s, n) in [(8, 0), (12, 1)] {
            let more =
                slices.iter().cloned().chain([second(0, at_s, 9_000_000)]).collect::<Vec<_>>();
            let other = differences(&more, &pauses);
            let differ: Vec<usize> = (0..3).filter(|one| other[*one] != found[*one]).collect();
            assert_eq!(differ, [n]);
        }
    }

    #[test]
    fn pauses_are_counted_from_the_start_of_the_run() {
        let plan = "name = \"x\"\n[[phase]]\nname = \"a\"\nduration = \"31s\"\n";
        let mut record = Run::new(plan, 1).end().record();
        let latency_ns = |s: u64| 10_000 + if s % 10 == 5 { 0 } else { 2_000 };
        record.slices = (0..31).map(|s| second(0, s, latency_ns(s))).collect();
        let began_ns = 1_000 * S;
        for stamped in &mut record.events {
            if let Event::RunStarted { monotonic_ns, .. } = &mut stamped.event {
                *monotonic_ns = began_ns;
            }
        }
        let pause = |s: u64| began_ns + s * S;
        let pauses = [5, 15, 25].map(|s| Pause { from_ns: pause(s), to_ns: pause(s + 1) });
        let cost = cost(&record, &pauses).expect("three pauses");
        assert_eq!((cost.mean_ns, cost.pauses), (2_000.0, 3));
    }

    /// By hand: the mean of 1, 2 and 3 is 2, its standard error 1 / sqrt(3), and t is 4.3027.
    #[test]
    fn the_interval_is_students() {
        let cost = of_differences(&[1.0, 2.0, 3.0]).expect("three");
        assert!((cost.high_ns - cost.mean_ns - 2.484_1).abs() < 1e-3, "{cost:?}");
    }
}
