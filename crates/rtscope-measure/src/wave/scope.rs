//! The scope: a thread that looks at a line as often as it can, and knows when it did not look.
//!
//! Each look reads the line between two readings of the clock: `t0 look t1 look t2 ...`. A level that
//! changed between two looks has changed between the readings around them; its edge is given the reading
//! that lies between the two looks, so that it is off by less than the distance of two readings. When a
//! distance is longer than the resolution, the scope was not there (preempted, interrupted, or its whole
//! machine was): that time is a gap, and a change seen at either end of it is counted as the gap's and
//! never as an edge.
//!
//! What it can't show: two changes between two looks, which leave the level as it was. Pulses longer
//! than the resolution can't hide so.

use rtscope_model::{
    schedule::Placement,
    time::Nanos,
    wave::{Capture, Edge, Gap},
};
use rtscope_sys::{clock::Clock, line::MemoryLine, sched, thread};

use super::WaveError;
use crate::watchdog::Watchdog;

/// Looks of one turn of the self-calibration.
const CALIBRATION_LOOKS: usize = 4_000;

/// Its turns: the best counts, so that a machine that was busy for a while doesn't make a bad scope.
const CALIBRATION_TURNS: usize = 5;

/// A look that takes so many times the median is no longer a look.
const SLOW_LOOK: u64 = 4;

/// The best resolution that is claimed: reading a word that another CPU has just written takes a good
/// part of it.
const RESOLUTION_MIN_NS: u64 = 240;

/// Looks at a line at least this often can be trusted to catch a change and count of its program that
/// belong together.
const PAIR_ATTEMPTS: u32 = 1_000;

/// Room for gaps of a capture.
pub const GAPS_MAX: usize = 500_000;

/// What can be looked at.
pub trait Probe {
    fn is_high(&self) -> bool;
    /// How many changes its program has counted; 0 when it doesn't count.
    fn changes(&self) -> u64;
}

impl Probe for MemoryLine {
    #[inline]
    fn is_high(&self) -> bool {
        MemoryLine::is_high(self)
    }

    #[inline]
    fn changes(&self) -> u64 {
        MemoryLine::changes(self)
    }
}

/// How to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    pub duration_ns: u64,
    /// Room for edges: the capture ends when it is full.
    pub edges_max: usize,
    /// Room for gaps, likewise.
    pub gaps_max: usize,
    /// When to rest, if ever.
    pub rest: Option<Rest>,
}

/// Sleeps of a scope, which leave its CPU to others. Each is a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// After so long a time of looking.
    pub after_ns: u64,
    pub for_ns: u64,
}

/// Looks at a line from a thread at a place of its own, and returns what it saw.
pub fn capture<P: Probe + Sync>(
    line: &P,
    name: &str,
    place: &Placement,
    clock: &(impl Clock + Sync),
    limits: CaptureLimits,
) -> Result<Capture, WaveError> {
    at_place(place, Nanos(limits.duration_ns), || {
        let resolution_ns = calibrate(line, clock);
        Ok(watch(line, name, clock, resolution_ns, limits))
    })
}

/// Does something that takes so long on a thread at the place of a scope.
///
/// # Errors
///
/// The thread can't be placed, or what is done fails.
pub fn at_place<T: Send>(
    place: &Placement,
    duration: Nanos,
    work: impl FnOnce() -> Result<T, WaveError> + Send,
) -> Result<T, WaveError> {
    let placed = || {
        thread::block_signals();
        sched::place_exactly(place)?;
        work()
    };
    let _watchdog = Watchdog::over_spinners(duration);
    std::thread::scope(|scope| scope.spawn(placed).join().expect("the scope does not panic"))
}

/// The resolution: how far apart two readings of the clock around a look may lie before the look is
/// called a gap. From the median of real looks at the line, so that the machine's clock and memory are in it.
pub fn calibrate(line: &impl Probe, clock: &impl Clock) -> u64 {
    let mut distances = Vec::with_capacity(CALIBRATION_LOOKS);
    let mut median = || {
        distances.clear();
        let mut last_ns = clock.now_ns();
        for _ in 0..CALIBRATION_LOOKS {
            std::hint::black_box(line.is_high());
            let now_ns = clock.now_ns();
            distances.push(now_ns - last_ns);
            last_ns = now_ns;
        }
        *distances.select_nth_unstable(CALIBRATION_LOOKS / 2).1
    };
    let best = (0..CALIBRATION_TURNS).map(|_| median()).min().unwrap_or(0);
    (best * SLOW_LOOK).max(RESOLUTION_MIN_NS)
}

/// A level and a count that belong together: a program that counts keeps the count odd while the line is
/// high. One that doesn't count has none.
pub(super) fn level_and_changes(line: &impl Probe) -> (bool, u64) {
    for _ in 0..PAIR_ATTEMPTS {
        let changes = line.changes();
        let high = line.is_high();
        if line.changes() == changes && (changes % 2 == 1) == high {
            return (high, changes);
        }
    }
    (line.is_high(), line.changes())
}

/// A level and the count that belongs to it. The count follows the level: one that doesn't fit is one behind.
#[inline]
fn look(line: &impl Probe) -> (bool, u64) {
    let counted = line.changes();
    let high = line.is_high();
    (high, counted + u64::from((counted % 2 == 1) != high))
}

/// What the line's program has counted, and how much of it while the scope was blind. A look lies between two
/// distances of readings: what was counted since the look before belongs to a gap when either is one.
struct Tally {
    changes: u64,
    since_last_look: u64,
    was_gap: bool,
    in_gaps: u64,
}

impl Tally {
    #[inline]
    fn read(&mut self, is_gap: bool) {
        if is_gap || self.was_gap {
            self.in_gaps = self.in_gaps.wrapping_add(self.since_last_look);
        }
        self.was_gap = is_gap;
        self.since_last_look = 0;
    }

    #[inline]
    fn look(&mut self, changes: u64) {
        self.since_last_look = changes.wrapping_sub(self.changes);
        self.changes = changes;
    }
}

/// The scope's loop. After the first look it doesn't allocate, lock or print.
pub fn watch(
    line: &impl Probe,
    name: &str,
    clock: &impl Clock,
    resolution_ns: u64,
    limits: CaptureLimits,
) -> Capture {
    let (mut edges, mut gaps) = (touched(limits.edges_max), Vec::with_capacity(limits.gaps_max));
    let (starts_high, changes_before) = level_and_changes(line);
    let mut level = starts_high;
    let mut tally =
        Tally { changes: changes_before, since_last_look: 0, was_gap: false, in_gaps: 0 };
    let start_ns = clock.now_ns();
    let until_ns = start_ns + limits.duration_ns;
    let mut last_ns = start_ns;
    let rest = limits.rest.unwrap_or(Rest { after_ns: u64::MAX, for_ns: 0 });
    let mut rest_at_ns = start_ns.saturating_add(rest.after_ns);
    // The reading before the look that saw a change, until the reading after that look confirms it.
    let mut pending: Option<u64> = None;
    let is_full = loop {
        let now_ns = clock.now_ns();
        let is_gap = now_ns - last_ns > resolution_ns;
        tally.read(is_gap);
        if is_gap {
            let gap = Gap { start_ns: last_ns, end_ns: now_ns, moved: pending.is_some() };
            add_gap(&mut gaps, gap);
        } else if let Some(at_ns) = pending {
            edges.push(Edge::new(at_ns, level));
        }
        pending = None;
        last_ns = now_ns;
        let is_full = edges.len() == limits.edges_max || gaps.len() == limits.gaps_max;
        if now_ns >= until_ns || is_full {
            break is_full;
        }
        if now_ns >= rest_at_ns {
            clock.sleep_for_ns(rest.for_ns);
            rest_at_ns = clock.now_ns().saturating_add(rest.after_ns);
            continue;
        }
        let (high, now_changes) = look(line);
        tally.look(now_changes);
        if high != level {
            level = high;
            match gaps.last_mut() {
                Some(gap) if is_gap => gap.moved = !gap.moved,
                _ => pending = Some(now_ns),
            }
        }
    };
    let (_, changes_after) = level_and_changes(line);
    tally.look(changes_after);
    tally.read(false);
    // A program that doesn't count leaves the count as it is; one that began anew made it smaller.
    let made = changes_after.checked_sub(changes_before).filter(|made| *made > 0);
    Capture {
        line: name.to_owned(),
        start_ns,
        end_ns: last_ns,
        resolution_ns,
        starts_high: Some(starts_high),
        edges,
        gaps,
        made,
        made_in_gaps: made.map(|made| tally.in_gaps.min(made)),
        is_full,
    }
}

/// Adds a gap, or extends the last one if they touch. So a period of slow looks needs only one entry.
#[inline]
pub(super) fn add_gap(gaps: &mut Vec<Gap>, gap: Gap) {
    match gaps.last_mut() {
        Some(last) if last.end_ns == gap.start_ns => {
            last.end_ns = gap.end_ns;
            last.moved ^= gap.moved;
        }
        _ => gaps.push(gap),
    }
}

/// Room for edges whose memory is there already: the first touch of a page would be a gap.
pub(super) fn touched(room: usize) -> Vec<Edge> {
    let mut edges = vec![Edge::new(0, true); room];
    edges.clear();
    edges
}

#[cfg(test)]
mod tests {
    use rtscope_testing::clock::SimulatedClock;

    use super::*;

    /// A line whose level is a function of the time.
    struct Wave<'a> {
        clock: &'a SimulatedClock,
        half_ns: u64,
    }

    impl Probe for Wave<'_> {
        fn is_high(&self) -> bool {
            self.clock.time_ns() / self.half_ns % 2 == 1
        }
        fn changes(&self) -> u64 {
            self.clock.pause_by_hand();
            self.clock.time_ns() / self.half_ns
        }
    }

    /// Watches a wave of 500 kHz.
    fn watched(clock: &SimulatedClock, limits: CaptureLimits) -> Capture {
        watch(&Wave { clock, half_ns: 1_000 }, "memory:x", clock, 240, limits)
    }

    fn clock(pauses: impl IntoIterator<Item = (u64, u64)>) -> SimulatedClock {
        SimulatedClock::at(0).with_reading(40).with_pauses(pauses)
    }

    /// Pauses of many lengths: an even and an odd number of edges fall into them.
    fn pauses() -> impl Iterator<Item = (u64, u64)> {
        (1..40).map(|n| (n * 20_000 + n * 37, 300 + n * 173))
    }

    const LIMITS: CaptureLimits =
        CaptureLimits { duration_ns: 1_000_000, edges_max: 10_000, gaps_max: 1_000, rest: None };

    #[test]
    fn every_edge_is_seen_within_the_resolution() {
        let capture = watched(&clock([]), LIMITS);
        assert_eq!((capture.made, capture.edges.len()), (Some(1_000), 1_000));
        assert!(capture.gaps.is_empty() && !capture.is_full);
        for (n, edge) in capture.edges.iter().enumerate() {
            let true_ns = (n as u64 + 1) * 1_000;
            assert!(edge.at_ns().abs_diff(true_ns) <= 40, "{edge:?}");
            assert_eq!(edge.rises(), n % 2 == 0);
        }
    }

    #[test]
    fn no_edge_is_invented_in_a_gap() {
        let capture = watched(&clock(pauses()), LIMITS);
        assert_eq!(capture.gaps.len(), 39);
        for edge in &capture.edges {
            let nearest = (edge.at_ns() + 500) / 1_000 * 1_000;
            assert!(edge.at_ns().abs_diff(nearest) <= 40, "{edge:?} is no edge of the wave");
            assert_eq!(edge.rises(), nearest / 1_000 % 2 == 1);
        }
        let hidden = |gap: &Gap| gap.end_ns / 1_000 - gap.start_ns / 1_000;
        for gap in &capture.gaps {
            assert!(
                capture.edges.iter().all(|e| !(gap.start_ns + 1..gap.end_ns).contains(&e.at_ns()))
            );
        }
        let hidden: u64 = capture.gaps.iter().map(hidden).sum();
        let lost = capture.made.expect("counted") - capture.edges.len() as u64;
        // A change between the gap's last look and its first reading belongs to the gap too.
        assert!((hidden..=hidden + 2 * 39).contains(&lost), "{lost} of {hidden}");
        assert_eq!(capture.made_in_gaps, Some(lost));
    }

    #[test]
    fn what_was_made_in_a_gap_is_the_gap_s_wherever_in_a_look_it_begins() {
        let capture = watched(&clock(pauses()).pausing_by_hand(), LIMITS);
        assert_eq!(capture.gaps.len(), 39);
        let lost = capture.made.expect("counted") - capture.edges.len() as u64;
        assert!(lost > 100, "{lost}");
        assert_eq!(capture.made_in_gaps, Some(lost));
    }

    #[test]
    fn a_rest_is_a_gap_and_invents_nothing() {
        let rest = Some(Rest { after_ns: 90_000, for_ns: 7_000 });
        let capture = watched(&clock([]), CaptureLimits { rest, ..LIMITS });
        assert_eq!(capture.gaps.len(), 10);
        for gap in &capture.gaps {
            assert!((7_000..=7_240).contains(&(gap.end_ns - gap.start_ns)), "{gap:?}");
        }
        for edge in &capture.edges {
            let nearest = (edge.at_ns() + 500) / 1_000 * 1_000;
            assert!(edge.at_ns().abs_diff(nearest) <= 40, "{edge:?} is no edge of the wave");
            assert_eq!(edge.rises(), nearest / 1_000 % 2 == 1);
        }
        let lost = capture.made.expect("counted") - capture.edges.len() as u64;
        assert!((70..=80).contains(&lost), "{lost}");
        assert_eq!(capture.made_in_gaps, Some(lost));
    }

    #[test]
    fn a_full_room_ends_the_capture_and_says_so() {
        let capture = watched(&clock([]), CaptureLimits { edges_max: 10, ..LIMITS });
        assert!(capture.is_full && capture.edges.len() == 10);
        assert!(capture.end_ns < 12_000);
    }

    #[test]
    fn a_time_of_slow_looks_is_one_gap_and_does_not_fill_the_room() {
        let slow = SimulatedClock::at(0).with_reading(300);
        let capture = watched(&slow, CaptureLimits { gaps_max: 2, ..LIMITS });
        assert!(!capture.is_full && capture.edges.is_empty());
        assert_eq!(capture.gaps.len(), 1);
        assert_eq!(capture.gaps[0].start_ns, capture.start_ns);
        assert_eq!(capture.gaps[0].end_ns, capture.end_ns);
        assert_eq!(capture.made_in_gaps, capture.made);
    }

    #[test]
    fn the_resolution_follows_the_clock_and_the_line() {
        let resolution_ns = |reading_ns| {
            let clock = clock([(10_000, 4_000_000)]).with_reading(reading_ns);
            calibrate(&Wave { clock: &clock, half_ns: 1_000 }, &clock)
        };
        assert_eq!(resolution_ns(100), 400);
        assert_eq!(resolution_ns(1), RESOLUTION_MIN_NS);
    }
}
