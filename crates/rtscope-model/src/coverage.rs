//! Whether the slices of a record are all there: what they cover, against what the run says it measured.
//!
//! Two witnesses of the same run must agree. The events say from when to when activations belonged to a
//! cell, and how often each thread woke. The slices of a thread must join from the one instant to the
//! other, without a gap or an overlap, and hold as many wake-ups. A record that was cut, or from which lines
//! were lost, doesn't; and neither does one whose thread was not heard of for a part of its phase.
//!
//! A stream: slices of a thread come in the order of time, threads in any order; the memory needed grows
//! with threads and cells, not with slices. A slice may be of any length.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    event::{Bounds, Event, Stamped},
    finding::{Finding, Weight},
    plan::{ClockName, Plan, Sleep},
    printable::quoted,
    record::thread::ThreadRecord,
    slice::{Scope, Slice},
    time::{Nanos, Rounding},
};

/// How far an event may be from the instant that it tells of, in records that don't tell the instant.
const EVENT_TOLERANCE_NS: u64 = 1_000_000_000;

/// Places that a finding names.
const NAMED: usize = 4;

/// The check on its way.
#[derive(Clone, Debug)]
pub struct Coverage {
    expected: Arc<Expected>,
    /// The threads whose slices came.
    seen: BTreeMap<u32, Sampled>,
    gaps: Places,
    unanswered: BTreeMap<(u32, u32), Unanswered>,
}

/// What the events say that the slices must cover.
#[derive(Debug, Default)]
struct Expected {
    cells: BTreeMap<u32, CellSpan>,
    /// The threads, before any of their slices.
    sampled: BTreeMap<u32, Sampled>,
    /// The names of all phases.
    names: Vec<String>,
    /// When the run ended; no slice may lie beyond it.
    ended_ns: Option<u64>,
}

/// A cell's session, and which activations belong to it.
#[derive(Clone, Debug)]
struct CellSpan {
    name: String,
    session: u32,
    bounds: Bounds,
    tolerance_ns: u64,
}

/// A thread, and how far its slices reach.
#[derive(Clone, Debug)]
struct Sampled {
    session: u32,
    interval_ns: u64,
    /// Whether its instants bound anything: the wall clock may be set meanwhile.
    stands: bool,
    /// Whether it keeps a grid.
    is_absolute: bool,
    /// How much later than the first thread of its session it starts.
    stagger_ns: u64,
    /// Where the last slice ends.
    end_ns: Option<u64>,
    /// The largest latency so far.
    max_ns: u64,
    /// Where the last slice of each cell ends.
    reach_ns: BTreeMap<u32, u64>,
    recorded: u64,
}

/// Activations of a thread in a cell that have no latency, because nothing answered them.
#[derive(Clone, Copy, Debug, Default)]
struct Unanswered {
    /// Those after which the thread woke again in the cell.
    before: Waits,
    /// Those after which it didn't.
    open: Waits,
}

#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    count: u64,
    waited_ns: u64,
}

impl Waits {
    fn add(&mut self, more: Waits) {
        self.count += more.count;
        self.waited_ns = self.waited_ns.max(more.waited_ns);
    }
}

impl Unanswered {
    fn add(&mut self, slice: &Slice) {
        if slice.recorded > 0 {
            self.before.add(std::mem::take(&mut self.open));
        } else {
            let waited_ns = slice.omitted_extent.max_ns;
            self.open.add(Waits { count: slice.missed, waited_ns });
        }
    }
}

/// The first few of several places.
#[derive(Clone, Debug, Default)]
struct Places {
    /// A thread, where it is about one, and what is wrong.
    named: Vec<(Option<u32>, String)>,
    count: usize,
}

impl Places {
    fn add(&mut self, thread: Option<u32>, text: String) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push((thread, text));
        }
    }

    fn join(&mut self, other: Places) {
        self.count += other.count;
        let room = NAMED - self.named.len();
        self.named.extend(other.named.into_iter().take(room));
    }
}

impl Coverage {
    /// The check for a run of our own; an import has no bounds to check against.
    #[must_use]
    pub fn new(plan: &Plan, events: &[Stamped], threads: &[ThreadRecord]) -> Coverage {
        let names = plan.phases.iter().map(|phase| phase.name.clone()).collect();
        let mut expected = Expected { names, ..Expected::default() };
        let mut gaps = Places::default();
        let mut started: BTreeMap<u32, u64> = BTreeMap::new();
        for Stamped { at_ns, event } in events {
            match event {
                Event::SessionStarted { session, first_cell, first_thread, .. } => {
                    expected.session(plan, *session, *first_cell, *first_thread, threads);
                }
                Event::PhaseStarted { cell, .. } if session_of(events, *cell).is_some() => {
                    started.insert(*cell, *at_ns);
                }
                Event::PhaseEnded { cell, bounds, .. } => {
                    let began_ns = started.remove(cell);
                    expected.cell(plan, events, *cell, *bounds, began_ns, *at_ns);
                }
                Event::RunEnded { .. } => expected.ended_ns = Some(*at_ns),
                _ => {}
            }
        }
        // Of a run that was killed the last phase has no end; of one that ended, each.
        for cell in started.into_keys().filter(|_| expected.ended_ns.is_some()) {
            let name = plan.phases.get(cell as usize).map_or("", |phase| &phase.name);
            gaps.add(None, format!("the end of phase {} is missing", quoted(name)));
        }
        let (seen, unanswered) = (BTreeMap::new(), BTreeMap::new());
        Coverage { expected: Arc::new(expected), seen, gaps, unanswered }
    }

    /// A check of some of the threads beside this one, to be joined with it.
    #[must_use]
    pub fn of_some_threads(&self) -> Coverage {
        Coverage {
            expected: Arc::clone(&self.expected),
            seen: BTreeMap::new(),
            gaps: Places::default(),
            unanswered: BTreeMap::new(),
        }
    }

    /// Takes what a check of other threads found.
    pub fn join(&mut self, other: Coverage) {
        self.gaps.join(other.gaps);
        for (thread, sampled) in other.seen {
            if self.seen.insert(thread, sampled).is_some() {
                self.gaps.add(Some(thread), "its slices are in more than one file".to_owned());
            }
        }
        self.unanswered.extend(other.unanswered);
    }

    /// Adds the next slice of a thread.
    pub fn add(&mut self, slice: &Slice) {
        let Some(fresh) = self.expected.sampled.get(&slice.thread) else { return };
        if let Scope::Cell(cell) = slice.scope
            && (slice.is_silent() || slice.recorded > 0)
        {
            self.unanswered.entry((cell, slice.thread)).or_default().add(slice);
        }
        if !fresh.stands {
            return;
        }
        let sampled = self.seen.entry(slice.thread).or_insert_with(|| fresh.clone());
        let mut wrong = |text: String| self.gaps.add(Some(slice.thread), text);
        let at = |ns: u64| Nanos(ns).to_string();
        let length_ns = slice.end_ns.saturating_sub(slice.start_ns);
        let is_on_grid =
            slice.end_ns >= slice.start_ns && slice.planned == length_ns / sampled.interval_ns;
        if sampled.is_absolute && !is_on_grid {
            wrong(format!(
                "a slice from {} to {} says that {} activations were due in it, which contradicts its length and the interval",
                at(slice.start_ns),
                at(slice.end_ns),
                slice.planned
            ));
            return;
        }
        if let Some(ended_ns) = self.expected.ended_ns {
            let last_ns = ended_ns.saturating_add(2 * sampled.interval_ns + EVENT_TOLERANCE_NS);
            if slice.end_ns > last_ns {
                wrong(format!("a slice ends at {}, after the run", at(slice.end_ns)));
                return;
            }
        }
        if let Some(end_ns) = sampled.end_ns.filter(|&end_ns| slice.start_ns < end_ns) {
            wrong(format!(
                "a slice begins at {}, before the previous slice ends at {}",
                at(slice.start_ns),
                at(end_ns)
            ));
        }
        if let Scope::Cell(cell) = slice.scope {
            if let Some(span) = self.expected.cells.get(&cell) {
                let reach_ns = sampled.reach_ns.get(&cell).copied();
                let since_ns = reach_ns.unwrap_or(span.bounds.from_ns);
                let until_ns = slice.start_ns.min(span.bounds.to_ns);
                if until_ns > since_ns.saturating_add(sampled.slack_ns(span, reach_ns.is_some())) {
                    wrong(hole(span, since_ns, until_ns));
                }
            }
            sampled.reach_ns.insert(cell, slice.end_ns);
        }
        sampled.end_ns = Some(slice.end_ns);
        sampled.max_ns = sampled.max_ns.max(slice.max_ns);
        sampled.recorded += slice.recorded;
    }
}

impl Expected {
    fn session(
        &mut self,
        plan: &Plan,
        session: u32,
        first_cell: u32,
        first_thread: u32,
        threads: &[ThreadRecord],
    ) {
        let Some(phase) = plan.phases.get(first_cell as usize) else { return };
        let ours = threads.iter().filter(|t| t.session == session && t.interval_ns > 0);
        for thread in ours {
            let nth = u64::from(thread.thread.saturating_sub(first_thread));
            let sampled = Sampled {
                session,
                interval_ns: thread.interval_ns,
                stands: phase.sampler.clock == ClockName::Monotonic,
                is_absolute: phase.sampler.sleep == Sleep::Absolute,
                stagger_ns: phase.sampler.stagger.0.saturating_mul(nth),
                end_ns: None,
                max_ns: 0,
                reach_ns: BTreeMap::new(),
                recorded: 0,
            };
            self.sampled.insert(thread.thread, sampled);
        }
    }

    fn cell(
        &mut self,
        plan: &Plan,
        events: &[Stamped],
        cell: u32,
        told: Option<Bounds>,
        began_ns: Option<u64>,
        at_ns: u64,
    ) {
        let Some(phase) = plan.phases.get(cell as usize) else { return };
        let (Some(session), Some(began_ns)) = (session_of(events, cell), began_ns) else { return };
        let from_ns = began_ns.saturating_add(phase.settle.0);
        let bounds = told.unwrap_or(Bounds { from_ns, to_ns: at_ns });
        let tolerance_ns = if told.is_some() { 0 } else { EVENT_TOLERANCE_NS };
        let name = phase.name.clone();
        self.cells.insert(cell, CellSpan { name, session, bounds, tolerance_ns });
    }
}

impl Coverage {
    /// What is missing, in words; `label` is what a reader calls a thread.
    #[must_use]
    pub fn finish(
        mut self,
        threads: &[ThreadRecord],
        label: impl Fn(&ThreadRecord) -> String,
    ) -> Vec<Finding> {
        let expected = Arc::clone(&self.expected);
        for (thread, fresh) in expected.sampled.iter().filter(|(_, fresh)| fresh.stands) {
            let (thread, sampled) = (*thread, self.seen.get(thread).unwrap_or(fresh));
            let cells = expected.cells.iter().filter(|(_, span)| span.session == sampled.session);
            for (cell, span) in cells {
                let reach_ns = sampled.reach_ns.get(cell).copied();
                let since_ns = reach_ns.unwrap_or(span.bounds.from_ns);
                // The last slice ends with the expiry that follows its last; without a grid that is
                // known to an interval.
                let slack_ns = sampled.slack_ns(span, false);
                if span.bounds.to_ns > since_ns.saturating_add(slack_ns) {
                    self.gaps.add(Some(thread), hole(span, since_ns, span.bounds.to_ns));
                }
            }
            let known = threads.iter().find(|known| known.thread == thread);
            if let Some(tally) = known.and_then(|known| known.tally)
                && tally.wakeups != sampled.recorded.saturating_add(tally.without_slot)
            {
                let text = format!(
                    "it woke {} times, but its slices hold {} latencies",
                    tally.wakeups, sampled.recorded
                );
                self.gaps.add(Some(thread), text);
            }
        }
        let name = |thread: u32| {
            let known = threads.iter().find(|known| known.thread == thread);
            known.map_or_else(|| format!("thread {thread}"), &label)
        };
        [self.gaps_finding(&name), self.unanswered_finding(&name), self.late_start_finding(&name)]
            .into_iter()
            .flatten()
            .collect()
    }

    fn gaps_finding(&self, name: &impl Fn(u32) -> String) -> Option<Finding> {
        let Places { named, count } = &self.gaps;
        let place = |(thread, text): &(Option<u32>, String)| match thread {
            Some(thread) => format!("{}: {text}", name(*thread)),
            None => text.clone(),
        };
        let places = named.iter().map(place).collect::<Vec<_>>().join("; ");
        let more = match count - named.len() {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        let text = format!("the record doesn't hold all that was measured. {places}{more}");
        (*count > 0).then(|| {
            Finding::new("coverage", Weight::PreventsPass, text).advise(
                "if the record was copied, copy the whole record again; otherwise, measure again",
            )
        })
    }

    fn unanswered_finding(&self, name: &impl Fn(u32) -> String) -> Option<Finding> {
        let places = self.unanswered_places(name, |found| found.open)?;
        let text = format!(
            "activations were due in a phase but never answered in it. They count as missed, with the time \
                that they are known to have waited: {places}"
        );
        Some(Finding::new("unanswered", Weight::PreventsPass, text).advise(
            "find out what held the CPU, for example a real-time load above the sampler's priority",
        ))
    }

    fn late_start_finding(&self, name: &impl Fn(u32) -> String) -> Option<Finding> {
        let places = self.unanswered_places(name, |found| found.before)?;
        let text = format!(
            "a thread was already late when its phase began, so the first activations of the phase count as \
                missed: {places}"
        );
        Some(Finding::new("late-at-start", Weight::Warning, text))
    }

    /// Where activations had no answer. None without any.
    fn unanswered_places(
        &self,
        name: &impl Fn(u32) -> String,
        of: impl Fn(&Unanswered) -> Waits,
    ) -> Option<String> {
        let place = |(&(cell, thread), found): (&(u32, u32), &Unanswered)| {
            let phase = self.expected.names.get(cell as usize).map_or("", String::as_str);
            let Waits { count, waited_ns } = of(found);
            let waited = Nanos(waited_ns).rounded(Rounding::Down);
            format!("{} in {} ({count}, waited at least {waited})", name(thread), quoted(phase))
        };
        let found = || self.unanswered.iter().filter(|(_, found)| of(found).count > 0);
        let places: Vec<String> = found().take(NAMED).map(place).collect();
        let more = match found().count() - places.len() {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        (!places.is_empty()).then(|| places.join(", ") + &more)
    }
}

impl Sampled {
    /// How far a slice of a cell may begin after the one before it has ended; or after the cell began, or
    /// before it ended.
    fn slack_ns(&self, span: &CellSpan, follows: bool) -> u64 {
        // Without a grid an interval begins at the wake-up: as much later as that was late.
        let late_ns = if self.is_absolute { 0 } else { self.max_ns + self.interval_ns };
        if follows {
            return late_ns;
        }
        let first_ns = if self.end_ns.is_none() { self.stagger_ns } else { 0 };
        late_ns
            .saturating_add(self.interval_ns)
            .saturating_add(first_ns)
            .saturating_add(span.tolerance_ns)
    }
}

/// The session that sampled a cell; none of an import.
fn session_of(events: &[Stamped], cell: u32) -> Option<u32> {
    events.iter().find_map(|stamped| match stamped.event {
        Event::SessionStarted { session, first_cell, cells, .. }
            if (first_cell..first_cell.saturating_add(cells)).contains(&cell) =>
        {
            Some(session)
        }
        _ => None,
    })
}

fn hole(span: &CellSpan, from_ns: u64, to_ns: u64) -> String {
    let (from, to) = (Nanos(from_ns), Nanos(to_ns));
    let name = quoted(&span.name);
    format!("nothing was recorded for phase {name} from {from} to {to} after the start of the run")
}
