//! The scope of several lines at once: one thread looks at all of them between two readings of the clock, so
//! that their edges have one clock and one resolution.
//!
//! What was said of [`scope`] holds for each line. A look takes longer by each line, and so does
//! the shortest pulse that can't hide. What it can't show: which of two edges within one look came first.

use rtscope_model::{
    schedule::Placement,
    time::Nanos,
    wave::{Capture, Edge, Gap},
};
use rtscope_sys::clock::Clock;

use super::{
    WaveError,
    scope::{self, CaptureLimits, Probe, Rest, add_gap, level_and_changes, touched},
};

/// The most lines: beyond, a look takes too long to be worth much.
pub const LINES_MAX: usize = 4;

/// All lines as one, to find out how long a look at all takes.
struct Together<'a, P>(&'a [P]);

impl<P: Probe> Probe for Together<'_, P> {
    fn is_high(&self) -> bool {
        self.0.iter().fold(false, |odd, line| odd ^ line.is_high())
    }

    fn changes(&self) -> u64 {
        0
    }
}

/// What is known of one line.
struct Watched {
    starts_high: bool,
    level: bool,
    /// The reading before the look that saw a change, until the reading after that look confirms it.
    pending: Option<u64>,
    edges: Vec<Edge>,
    gaps: Vec<Gap>,
    changes_before: u64,
}

impl Watched {
    fn new(line: &impl Probe, limits: CaptureLimits) -> Watched {
        let (starts_high, changes_before) = level_and_changes(line);
        Watched {
            starts_high,
            level: starts_high,
            pending: None,
            edges: touched(limits.edges_max),
            gaps: Vec::with_capacity(limits.gaps_max),
            changes_before,
        }
    }

    fn is_full(&self, limits: CaptureLimits) -> bool {
        self.edges.len() >= limits.edges_max || self.gaps.len() >= limits.gaps_max
    }

    /// The clock was read again.
    #[inline]
    fn read(&mut self, is_gap: bool, last_ns: u64, now_ns: u64) {
        let pending = self.pending.take();
        if is_gap {
            let gap = Gap { start_ns: last_ns, end_ns: now_ns, moved: pending.is_some() };
            add_gap(&mut self.gaps, gap);
        } else if let Some(at_ns) = pending {
            self.edges.push(Edge::new(at_ns, self.level));
        }
    }

    /// The line was looked at.
    #[inline]
    fn look(&mut self, high: bool, is_gap: bool, now_ns: u64) {
        if high == self.level {
            return;
        }
        self.level = high;
        match self.gaps.last_mut() {
            Some(gap) if is_gap => gap.moved = !gap.moved,
            _ => self.pending = Some(now_ns),
        }
    }
}

/// Looks at lines from a thread at a place of its own, and returns what it saw of each.
pub fn capture<P: Probe + Sync>(
    lines: &[P],
    names: &[String],
    place: &Placement,
    clock: &(impl Clock + Sync),
    limits: CaptureLimits,
) -> Result<Vec<Capture>, WaveError> {
    scope::at_place(place, Nanos(limits.duration_ns), || {
        let resolution_ns = scope::calibrate(&Together(lines), clock);
        Ok(watch(lines, names, clock, resolution_ns, limits))
    })
}

/// The scope's loop. After the first look it doesn't allocate, lock or print.
fn watch(
    lines: &[impl Probe],
    names: &[String],
    clock: &impl Clock,
    resolution_ns: u64,
    limits: CaptureLimits,
) -> Vec<Capture> {
    let mut all: Vec<Watched> = lines.iter().map(|line| Watched::new(line, limits)).collect();
    let start_ns = clock.now_ns();
    let until_ns = start_ns + limits.duration_ns;
    let mut last_ns = start_ns;
    let rest = limits.rest.unwrap_or(Rest { after_ns: u64::MAX, for_ns: 0 });
    let mut rest_at_ns = start_ns.saturating_add(rest.after_ns);
    let is_full = loop {
        let now_ns = clock.now_ns();
        let is_gap = now_ns - last_ns > resolution_ns;
        all.iter_mut().for_each(|one| one.read(is_gap, last_ns, now_ns));
        last_ns = now_ns;
        let is_full = all.iter().any(|one| one.is_full(limits));
        if now_ns >= until_ns || is_full {
            break is_full;
        }
        if now_ns >= rest_at_ns {
            clock.sleep_for_ns(rest.for_ns);
            rest_at_ns = clock.now_ns().saturating_add(rest.after_ns);
            continue;
        }
        for (one, line) in all.iter_mut().zip(lines) {
            one.look(line.is_high(), is_gap, now_ns);
        }
    };
    let captures = all.into_iter().zip(lines).zip(names).map(|((one, line), name)| {
        let Watched { starts_high, edges, gaps, changes_before, .. } = one;
        let made = level_and_changes(line).1.checked_sub(changes_before).filter(|made| *made > 0);
        Capture {
            line: name.clone(),
            start_ns,
            end_ns: last_ns,
            resolution_ns,
            starts_high: Some(starts_high),
            edges,
            gaps,
            made,
            // The count of a line is read at both ends only: a look at several has no time for more.
            made_in_gaps: None,
            is_full,
        }
    });
    captures.collect()
}

#[cfg(test)]
mod tests {
    use rtscope_testing::clock::SimulatedClock;

    use super::*;

    /// A line whose level is a function of the time.
    struct Wave<'a> {
        clock: &'a SimulatedClock,
        late_ns: u64,
    }

    impl Probe for Wave<'_> {
        fn is_high(&self) -> bool {
            self.clock.time_ns().saturating_sub(self.late_ns) / 10_000 % 2 == 1
        }
        fn changes(&self) -> u64 {
            0
        }
    }

    #[test]
    fn each_line_has_its_own_edges_on_one_clock() {
        // Each reading takes 40 ns; the scope is away for 30 us once.
        let clock = SimulatedClock::at(0).with_reading(40).with_pauses([(205_000, 30_000)]);
        let lines = [0, 3_000].map(|late_ns| Wave { clock: &clock, late_ns });
        let names = ["memory:a".to_owned(), "memory:b".to_owned()];
        let limits =
            CaptureLimits { duration_ns: 400_000, edges_max: 100, gaps_max: 10, rest: None };
        let found = watch(&lines, &names, &clock, 240, limits);
        let rises = |n: usize| -> Vec<u64> {
            let edges = found[n].edges.iter().filter(|edge| edge.rises());
            edges.map(|edge| edge.at_ns()).collect()
        };
        assert_eq!((found[0].line.as_str(), found[1].line.as_str()), ("memory:a", "memory:b"));
        assert_eq!((found[0].gaps.len(), found[0].gaps.len()), (1, found[1].gaps.len()));
        for (rise, late_ns) in [(rises(0), 0), (rises(1), 3_000)] {
            assert!(rise.len() >= 18, "{rise:?}");
            // 10 us, 30 us, 50 us ... and at most a reading before or after.
            let is_on_grid = |at: &u64| {
                let phase = (at + 20_000 - late_ns) % 20_000;
                phase.abs_diff(10_000) <= 80
            };
            assert!(rise.iter().all(is_on_grid), "{rise:?}");
        }
    }
}
