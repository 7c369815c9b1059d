//! Which of the wake-ups that a guest marked are the worst of its phases.

use rtscope_model::{
    event::Event,
    instructions::Window,
    record::Record,
    slice::{Scope, Slice},
};

/// A marked wake-up and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenWakeup<'a> {
    /// Its phase.
    pub phase: String,
    /// Its thread.
    pub thread: String,
    /// The wake-up.
    pub window: &'a Window,
}

/// The marks of a run and its record may be apart by so much: each session reads the clock once more.
const APART_NS: u64 = 50_000_000;

/// A latency that so many of the worst wake-ups of each of these cells have at least.
#[must_use]
pub fn above_ns(record: &Record, cells: &[u32], worst: usize) -> u64 {
    let of_cell = |cell: &u32| {
        let mut bins: Vec<(u32, u64)> =
            record.slices_of(*cell).flat_map(|slice| slice.bins.iter().copied()).collect();
        bins.sort_unstable();
        let mut left = worst as u64;
        let found = bins.iter().rev().find(|(_, count)| {
            left = left.saturating_sub(*count);
            left == 0
        });
        found.map_or(0, |(bucket, _)| record.layout_of(*cell).lower_ns(*bucket))
    };
    cells.iter().map(of_cell).min().unwrap_or(0)
}

/// The worst marked wake-ups of these cells, each cell's worst first. Empty where no mark fits the record.
#[must_use]
pub fn choose<'a>(
    record: &Record,
    windows: &'a [Window],
    cells: &[u32],
    worst: usize,
) -> Vec<ChosenWakeup<'a>> {
    let mut all = Vec::new();
    for cell in cells {
        let name = record.plan.phases.get(*cell as usize).map_or("", |phase| &phase.name);
        let mut of_cell: Vec<ChosenWakeup<'a>> = Vec::new();
        for slice in record.slices.iter().filter(|slice| slice.scope == Scope::Cell(*cell)) {
            let thread = record.threads.iter().find(|thread| thread.thread == slice.thread);
            let label = thread.map_or_else(String::new, |thread| record.label(thread));
            let marks = windows.iter().map(|window| (window.latency_ns, window.expiry_ns));
            let Some(origin_ns) = origin_ns(record, slice, marks) else { continue };
            let is_in = |window: &&Window| {
                let at_ns = window.expiry_ns.wrapping_sub(origin_ns);
                (slice.start_ns..slice.end_ns).contains(&at_ns) && window.latency_ns <= slice.max_ns
            };
            of_cell.extend(windows.iter().filter(is_in).map(|window| ChosenWakeup {
                phase: name.to_owned(),
                thread: label.clone(),
                window,
            }));
        }
        of_cell.sort_by_key(|one| (u64::MAX - one.window.latency_ns, one.window.expiry_ns));
        of_cell.dedup_by_key(|one| (one.window.expiry_ns, one.window.mark));
        all.extend(of_cell.into_iter().take(worst));
    }
    all
}

/// The start of the run on the guest's clock: the largest latency of a slice is among its marks, each with its latency
/// and its expiry.
pub(in crate::statistics) fn origin_ns(
    record: &Record,
    slice: &Slice,
    marks: impl Iterator<Item = (u64, u64)>,
) -> Option<u64> {
    let started = record.events.iter().find_map(|stamped| match &stamped.event {
        Event::RunStarted { monotonic_ns, .. } => Some(*monotonic_ns),
        _ => None,
    })?;
    let origins = marks.filter_map(|(latency_ns, expiry_ns)| {
        let same = latency_ns == slice.max_ns;
        same.then(|| expiry_ns.checked_sub(slice.max_at_ns)).flatten()
    });
    origins
        .filter(|origin| origin.abs_diff(started) < APART_NS)
        .min_by_key(|origin| origin.abs_diff(started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::fixture;

    fn started_ns(record: &Record) -> u64 {
        let started = record.events.iter().find_map(|stamped| match &stamped.event {
            Event::RunStarted { monotonic_ns, .. } => Some(*monotonic_ns),
            _ => None,
        });
        started.expect("a start")
    }

    #[test]
    fn marks_are_matched_with_the_maxima_of_their_slices() {
        let record = fixture::small();
        // A session's clock may be a little apart.
        let origin_ns = started_ns(&record) + 123;
        let mark = |latency_ns, at_ns| Window {
            latency_ns,
            expiry_ns: origin_ns + at_ns,
            ..Window::default()
        };
        let mut windows = Vec::new();
        for slice in &record.slices {
            windows.push(mark(slice.max_ns - 1, slice.start_ns));
            windows.push(mark(slice.max_ns, slice.max_at_ns));
        }
        // One of another run, and one between the phases.
        windows.push(Window { latency_ns: 77, expiry_ns: 5, ..Window::default() });
        let chosen = choose(&record, &windows, &[1], 1);
        let max_ns = record.slices_of(1).map(|slice| slice.max_ns).max().expect("slices");
        assert_eq!(chosen.len(), 1);
        assert_eq!(chosen[0].window.latency_ns, max_ns);
        assert_eq!(chosen[0].phase, record.plan.phases[1].name);
        let all = choose(&record, &windows, &[0, 1, 2], 3);
        assert_eq!(all.len(), 9);
        let is_sorted = |part: &[ChosenWakeup<'_>]| {
            part.windows(2).all(|two| two[0].window.latency_ns >= two[1].window.latency_ns)
        };
        assert!(all.chunks(3).all(is_sorted));
        let none = [Window { latency_ns: 1, expiry_ns: 5, ..Window::default() }];
        assert_eq!(choose(&record, &none, &[0, 1, 2], 3), []);
    }

    #[test]
    fn the_threshold_leaves_the_worst_of_each_cell() {
        let record = fixture::small();
        for worst in [1, 3, 8] {
            let above_ns = above_ns(&record, &[0, 1, 2], worst);
            for cell in 0..3 {
                let layout = record.layout_of(cell);
                let bins = record.slices_of(cell).flat_map(|slice| &slice.bins);
                let kept = bins.filter(|bin| layout.upper_ns(bin.0) >= above_ns);
                assert!(kept.map(|bin| bin.1).sum::<u64>() >= worst as u64, "{cell} {worst}");
            }
        }
        let one = above_ns(&record, &[1], 1);
        let max_ns = record.slices_of(1).map(|slice| slice.max_ns).max().expect("slices");
        assert!(one <= max_ns && one * 2 > max_ns, "{one} of {max_ns}");
    }
}
