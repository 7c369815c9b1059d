//! The search for the worst wake-up of a guest: which instants to aim an expiry at, and which of them next.
//!
//! A run shows the stretches in which a wake-up would have had to wait. The same run with an expiry in such a stretch is
//! the same up to that instant, so the stretch is there again, and the wake-up waits. What is found is always a measured
//! wake-up; the length of a stretch only says where to look.

use std::collections::{BTreeMap, BTreeSet};

use rtscope_model::{
    record::Record,
    slice::Scope,
    stretches::{ClockMark, Stretch, Stretches},
};

use super::explain::instructions::origin_ns;

/// An expiry is aimed this much behind the beginning of a stretch: a little earlier, and the kernel could still switch.
const LEAD_NS: u64 = 2_000;

/// A stretch must promise this much more than the worst wake-up so far.
const GAIN_NS: u64 = 1_000;

/// A kind of stretch that broke its promise so often isn't tried again.
const BROKEN_PROMISES: u32 = 2;

/// The expiry of the worst wake-up is moved to an earlier instant by these steps, as long as the kernel doesn't switch.
const STEPS_NS: [u64; 2] = [1_000, 500];

/// A stretch to aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Seed of the run that has it.
    pub seed: u64,
    /// The instant to aim at, on the guest's `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// How long a wake-up would wait.
    pub promised_ns: u64,
    /// Addresses of the stretch's first and last code.
    pub kind: (u64, u64),
}

/// What the run of a seed shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scouted {
    /// Where to aim.
    pub candidates: Vec<Candidate>,
    /// The start of the run on the guest's clock, by cell.
    pub origins_ns: BTreeMap<u32, u64>,
}

/// Where a run of a seed could be aimed at: its stretches within cells. An instruction takes `2^shift` ns.
#[must_use]
pub fn scouted(record: &Record, found: &Stretches, shift: u8, seed: u64) -> Scouted {
    let mut all = Scouted::default();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for slice in &record.slices {
        let Scope::Cell(cell) = slice.scope else { continue };
        let marks = found.marks.iter().map(|mark| (mark.latency_ns, mark.expiry_ns));
        let Some(origin) = origin_ns(record, slice, marks) else { continue };
        all.origins_ns.entry(cell).or_insert(origin);
        spans.push((origin + slice.start_ns, origin + slice.end_ns));
    }
    let clock = GuestClock::new(&found.marks, shift);
    for stretch in &found.all {
        let Some(start_ns) = clock.at_ns(stretch) else { continue };
        let length_ns = stretch.length << shift;
        let at_ns = start_ns + LEAD_NS;
        if length_ns > LEAD_NS && spans.iter().any(|(from, to)| (*from..*to).contains(&at_ns)) {
            let kind = (stretch.first, stretch.last);
            all.candidates.push(Candidate { seed, at_ns, promised_ns: length_ns - LEAD_NS, kind });
        }
    }
    all
}

/// The guest's clock by its instructions: between two wake-ups it advances evenly with virtual time.
struct GuestClock {
    /// Virtual time and the clock at each wake-up, in order.
    known: Vec<(u64, u64)>,
    shift: u8,
}

impl GuestClock {
    fn new(marks: &[ClockMark], shift: u8) -> GuestClock {
        let one = |mark: &ClockMark| {
            let virtual_ns = mark.idle_ns.wrapping_add(mark.read << shift);
            (virtual_ns, mark.expiry_ns + mark.latency_ns)
        };
        let mut known: Vec<(u64, u64)> = marks.iter().map(one).collect();
        known.sort_unstable();
        known.dedup_by_key(|(virtual_ns, _)| *virtual_ns);
        GuestClock { known, shift }
    }

    /// The clock at a stretch's beginning; none where it doesn't lie between two wake-ups.
    fn at_ns(&self, stretch: &Stretch) -> Option<u64> {
        let virtual_ns = stretch.idle_ns.wrapping_add(stretch.from << self.shift);
        let next = self.known.partition_point(|(known, _)| *known <= virtual_ns);
        let (before, after) = (self.known.get(next.checked_sub(1)?)?, self.known.get(next)?);
        let part = (virtual_ns - before.0) as f64 / (after.0 - before.0) as f64;
        let span_ns = after.1.checked_sub(before.1)?;
        Some(before.1 + (part * span_ns as f64).round() as u64)
    }
}

/// The worst wake-up of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorstWakeup {
    /// The cell.
    pub cell: u32,
    /// Its latency.
    pub latency_ns: u64,
    /// Its expiry since the start of the run.
    pub at_ns: u64,
}

/// The worst wake-up of a record's cells.
#[must_use]
pub fn worst_of(record: &Record) -> Option<WorstWakeup> {
    let of_cells = record.slices.iter().filter_map(|slice| match slice.scope {
        Scope::Cell(cell) if slice.recorded > 0 => {
            Some(WorstWakeup { cell, latency_ns: slice.max_ns, at_ns: slice.max_at_ns })
        }
        _ => None,
    });
    of_cells.max_by_key(|one| (one.latency_ns, u64::MAX - one.at_ns))
}

/// The latency of the expiry that was aimed at an instant, where it is the worst of its slice.
#[must_use]
pub fn aimed_latency_ns(
    record: &Record,
    origins_ns: &BTreeMap<u32, u64>,
    at_ns: u64,
) -> Option<u64> {
    let mut slices = record.slices.iter().filter(|slice| match slice.scope {
        Scope::Cell(cell) => {
            origins_ns.get(&cell).is_some_and(|origin| origin + slice.max_at_ns == at_ns)
        }
        Scope::Discarded => false,
    });
    slices.next().map(|slice| slice.max_ns)
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look for stretches in the run of a seed.
    Scout {
        /// The seed.
        seed: u64,
    },
    /// Run a seed with an expiry at an instant.
    Aim {
        /// The seed.
        seed: u64,
        /// The instant, on the guest's `CLOCK_MONOTONIC`.
        at_ns: u64,
        /// What the stretch promises; none where an expiry is moved to an earlier instant.
        promised_ns: Option<u64>,
    },
}

/// A search on its way.
#[derive(Clone, Debug, Default)]
pub struct Search {
    candidates: Vec<Candidate>,
    /// Seeds that were handed out to be scouted.
    seeds: u64,
    /// Latency of the worst wake-up so far, whatever found it.
    worst_ns: u64,
    /// The smallest latency: the way to the thread, which follows a stretch.
    way_ns: Option<u64>,
    /// The worst aimed wake-up.
    best: Option<Best>,
    /// Instants that were handed out.
    tried: BTreeSet<(u64, u64)>,
    broken: BTreeMap<(u64, u64), u32>,
}

#[derive(Clone, Copy, Debug)]
struct Best {
    seed: u64,
    at_ns: u64,
    latency_ns: u64,
    /// Steps by which its expiry was moved, of [`STEPS_NS`].
    steps: usize,
}

impl Search {
    /// Takes what a run of a seed showed.
    pub fn add_scouted(&mut self, candidates: &[Candidate]) {
        self.candidates.extend(candidates);
        self.candidates.sort_by_key(|one| (u64::MAX - one.promised_ns, one.seed, one.at_ns));
    }

    /// Takes the smallest latency of a run.
    pub fn add_least(&mut self, latency_ns: u64) {
        self.way_ns = Some(self.way_ns.map_or(latency_ns, |way_ns| way_ns.min(latency_ns)));
    }

    /// Takes the worst wake-up of a run.
    pub fn add_worst(&mut self, latency_ns: u64) {
        self.worst_ns = self.worst_ns.max(latency_ns);
    }

    /// Takes what an aim measured: the latency of its expiry, where that is known.
    pub fn add_aimed(&mut self, seed: u64, at_ns: u64, latency_ns: Option<u64>) {
        let candidate = self.candidates.iter().find(|one| (one.seed, one.at_ns) == (seed, at_ns));
        let found_ns = latency_ns.unwrap_or(0);
        if let Some(Candidate { promised_ns, kind, .. }) = candidate
            && found_ns < promised_ns / 2
        {
            *self.broken.entry(*kind).or_default() += 1;
        }
        let known = self.best.map_or(0, |best| best.latency_ns);
        if found_ns > known {
            // One that was moved goes on with the steps that are left.
            let steps = self.best.filter(|_| candidate.is_none()).map_or(0, |best| best.steps);
            self.best = Some(Best { seed, at_ns, latency_ns: found_ns, steps });
        }
        self.add_worst(found_ns);
    }

    /// What to do next; what was handed out isn't handed out again.
    pub fn next_step(&mut self) -> Step {
        let (broken, worst_ns) = (&self.broken, self.worst_ns + GAIN_NS);
        let least_ns = worst_ns.saturating_sub(self.way_ns.unwrap_or(0));
        let promises = |one: &&Candidate| {
            one.promised_ns >= least_ns
                && broken.get(&one.kind).is_none_or(|times| *times < BROKEN_PROMISES)
        };
        let tried = &mut self.tried;
        let found =
            self.candidates.iter().filter(promises).find(|one| tried.insert((one.seed, one.at_ns)));
        if let Some(Candidate { seed, at_ns, promised_ns, .. }) = found.copied() {
            return Step::Aim { seed, at_ns, promised_ns: Some(promised_ns) };
        }
        if let Some(best) = &mut self.best {
            while let Some(step_ns) = STEPS_NS.get(best.steps) {
                best.steps += 1;
                let at_ns = best.at_ns.saturating_sub(*step_ns);
                if self.tried.insert((best.seed, at_ns)) {
                    return Step::Aim { seed: best.seed, at_ns, promised_ns: None };
                }
            }
        }
        self.seeds += 1;
        Step::Scout { seed: self.seeds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Run;

    /// A guest whose wake-ups wait until the end of the stretch that they fall into: seed, beginning, end.
    const STRETCHES: [(u64, u64, u64); 4] =
        [(1, 10_000, 40_000), (1, 90_000, 390_000), (2, 5_000, 705_000), (2, 900_000, 910_000)];

    fn measured(seed: u64, at_ns: u64) -> u64 {
        let hit =
            STRETCHES.iter().find(|(of, from, to)| *of == seed && (*from..*to).contains(&at_ns));
        hit.map_or(3_000, |(_, _, to)| to - at_ns)
    }

    fn candidates(seed: u64) -> Vec<Candidate> {
        let of_seed = STRETCHES.iter().filter(|one| one.0 == seed);
        let one = |(_, from, to): &(u64, u64, u64)| Candidate {
            seed,
            at_ns: from + LEAD_NS,
            promised_ns: to - from - LEAD_NS,
            kind: (*from, *to),
        };
        of_seed.map(one).collect()
    }

    fn search(steps: usize) -> (Search, Vec<Step>) {
        let (mut search, mut taken) = (Search::default(), Vec::new());
        for _ in 0..steps {
            let step = search.next_step();
            taken.push(step);
            match step {
                Step::Scout { seed } => {
                    search.add_worst(3_000);
                    search.add_scouted(&candidates(seed));
                }
                Step::Aim { seed, at_ns, .. } => {
                    search.add_aimed(seed, at_ns, Some(measured(seed, at_ns)));
                }
            }
        }
        (search, taken)
    }

    #[test]
    fn the_aimed_expiry_is_known_where_it_is_the_worst_of_its_slice() {
        let plan = "name = 'p'\n[[phase]]\nname = 'rest'\nduration = '1s'";
        let mut record = Run::new(plan, 1).cell(0, &[&[5_000; 1_000]]).end().record();
        record.slices[0].max_at_ns = 123_000;
        let origin_ns = 7_000_000_000;
        let aimed =
            |cell, at_ns| aimed_latency_ns(&record, &BTreeMap::from([(cell, origin_ns)]), at_ns);
        let at_ns = 7_000_123_000;
        assert_eq!(aimed(0, at_ns), Some(5_000));
        assert_eq!((aimed(0, at_ns + 1), aimed(1, at_ns)), (None, None));
    }

    #[test]
    fn the_longest_stretches_come_first_and_shorter_ones_than_the_worst_wake_up_never() {
        let (search, taken) = search(16);
        assert_eq!(taken[0], Step::Scout { seed: 1 });
        let first = Step::Aim { seed: 1, at_ns: 92_000, promised_ns: Some(298_000) };
        assert_eq!(taken[1], first);
        // The stretch of 30 us can't beat 298 us.
        assert!(!taken.iter().any(|step| matches!(step, Step::Aim { at_ns: 12_000, .. })));
        assert!(search.worst_ns >= 698_000, "the longest of the second seed: {}", search.worst_ns);
    }

    #[test]
    fn the_expiry_of_the_worst_is_moved_to_earlier_instants() {
        let (search, taken) = search(16);
        let moved: Vec<u64> = taken
            .iter()
            .filter_map(|step| match step {
                Step::Aim { at_ns, promised_ns: None, seed: 1 } => Some(92_000 - at_ns),
                _ => None,
            })
            .collect();
        // Both steps were still in the stretch.
        assert_eq!(moved, [1_000, 1_500]);
        assert_eq!(search.worst_ns, 699_500, "the second seed's, moved as well");
    }

    #[test]
    fn the_way_to_the_thread_adds_to_what_a_stretch_promises() {
        let mut search = Search::default();
        let one = Candidate { seed: 1, at_ns: 5, promised_ns: 20_000, kind: (7, 8) };
        search.add_scouted(&[one]);
        search.add_worst(30_000);
        assert_eq!(search.clone().next_step(), Step::Scout { seed: 1 });
        search.add_least(14_000);
        let promised_ns = Some(20_000);
        assert_eq!(search.next_step(), Step::Aim { seed: 1, at_ns: 5, promised_ns });
    }

    #[test]
    fn a_kind_of_stretch_that_breaks_its_promise_is_given_up() {
        let mut search = Search::default();
        let one = |at_ns| Candidate { seed: 1, at_ns, promised_ns: 500_000 - at_ns, kind: (7, 8) };
        search.add_scouted(&[one(1), one(2), one(3), one(4)]);
        for at_ns in [1, 2] {
            let promised_ns = Some(500_000 - at_ns);
            assert_eq!(search.next_step(), Step::Aim { seed: 1, at_ns, promised_ns });
            search.add_aimed(1, at_ns, None);
        }
        assert_eq!(search.next_step(), Step::Scout { seed: 1 });
    }

    #[test]
    fn a_stretch_is_placed_on_the_clock_between_two_wake_ups() {
        let mark = |read, idle_ns, clock_ns: u64| ClockMark {
            latency_ns: 500,
            expiry_ns: clock_ns - 500,
            read,
            idle_ns,
        };
        // 1,000 instructions of 4 ns and 6,000 ns of idle time: 10,000 ns, of which the clock shows 10,010.
        let marks = [mark(100, 0, 1_000_000), mark(1_100, 6_000, 1_010_010)];
        let clock = GuestClock::new(&marks, 2);
        let stretch = |from, idle_ns| Stretch { from, length: 1, idle_ns, first: 0, last: 0 };
        assert_eq!(clock.at_ns(&stretch(100, 0)), Some(1_000_000));
        assert_eq!(clock.at_ns(&stretch(600, 3_000)), Some(1_005_005));
        assert_eq!(clock.at_ns(&stretch(99, 0)), None);
        assert_eq!(clock.at_ns(&stretch(1_100, 6_001)), None);
    }

    #[test]
    fn the_worst_of_a_record_is_its_latest_wake_up_and_the_first_of_equal_ones() {
        let plan = "name = 'p'\n[[phase]]\nname = 'a'\nduration = '2s'";
        let mut latencies = vec![5_000u64; 2_000];
        (latencies[700], latencies[1_500]) = (90_000, 90_000);
        let record = Run::new(plan, 1).cell(0, &[&latencies]).end().record();
        let worst = worst_of(&record).expect("a wake-up");
        assert_eq!((worst.cell, worst.latency_ns), (0, 90_000));
        let first = record.slices.iter().map(|slice| slice.max_at_ns).min();
        assert_eq!(Some(worst.at_ns), first);
    }
}
