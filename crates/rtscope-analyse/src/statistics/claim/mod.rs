//! Whether an observation backs the claim that a limit is reached at most once in a time.
//!
//! **Events.** A stall makes many wake-ups late, often on several threads. Such exceedances are one
//! event. Time is cut into windows of 10 s, or a 200th of the claimed time if that is longer, but at most
//! a twentieth. A window with an exceedance on any thread opens an event, to which the next window belongs
//! as well. What is later is another one.
//!
//! **Time.** It is wall time, in which all threads are watched side by side. Adding up the threads'
//! times would take their exceedances as independent, and the few events that a claim allows can't
//! show that they are. The windows of an event are left out of the time that backs a claim.
//!
//! **Bound.** The user may look at any time and stop when the answer is there. So the rate has a
//! confidence sequence, which holds for all times at once: with `k` events in the time `T`, every rate
//! `l` stays in it while
//!
//! ```text
//! b^a G(a + k) / (G(a) (b + T)^(a + k)) * e^(l T) l^(-k) < 1 / 0.05
//! ```
//!
//! The left side is the likelihood of the data under rates that are spread like a gamma distribution
//! of shape `a` and rate `b`, divided by that under `l` (H. Robbins, Annals of Mathematical Statistics
//! 41, 1970). If `l` is the true rate, it reaches 20 at any time in at most 5 % of runs (J. Ville,
//! 1939).
//!
//! What it can't show: that the conditions of the run are those of the years to come.

use std::collections::{BTreeMap, BTreeSet};

use rtscope_model::{
    histogram::{Histogram, Layout},
    record::Record,
    slice::Slice,
    time::{Nanos, Rounding},
    verdict::Verdict,
};
use serde::Serialize;
use statrs::function::gamma::ln_gamma;

use super::exceedance;
use crate::{judgement::CellSummary, number::counted};

/// Chance that a claim is decided wrongly, however often it is looked at.
const WRONG: f64 = 0.05;

/// The confidence with which a claim is backed or refuted.
pub const CONFIDENCE: f64 = 1.0 - WRONG;

/// Shape `a` of the mixture: that of Jeffreys' prior for a rate, which favours no order of magnitude.
const SHAPE: f64 = 0.5;

/// Rate `b` of the mixture, as a multiple of the claimed time. It must not depend on the data. Without an event, a claim
/// is backed after 3.69 times the claimed time; this is a third of that. A larger one shortens that time and lengthens
/// the time after many events.
const PRIOR_TIMES: f64 = 1.23;

/// Length of a window in which exceedances are one event: longer than most stalls and spells of load, and so
/// short that a limit that is always exceeded is refuted soon.
#[must_use]
pub fn window(once_in: Nanos) -> u64 {
    Nanos::from_secs(10).0.max(once_in.0 / 200).min(once_in.0 / 20).max(1)
}

/// A claim and what an observation says about it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Claim {
    pub limit_ns: u64,
    /// It is reached at most once in this time, on any of the threads.
    pub once_in_ns: u64,
    /// Wall time under observation, in which all threads were watched.
    pub wall_ns: u64,
    /// The largest possible number of latencies at or above the limit.
    pub latencies: u64,
    /// The largest possible number of events that they form.
    pub events: u64,
    /// The number of events that certainly occurred.
    pub events_surely: u64,
    /// Exceedances that are less than this apart are one event.
    pub window_ns: u64,
    /// Wall time that backs the claim if no more events come.
    pub needed_ns: u64,
    /// With 95 % confidence, events occur at least this often.
    pub per_second_low: f64,
    /// With 95 % confidence, events occur at most this often; none when nothing was observed.
    pub per_second_high: Option<f64>,
    /// Pass: backed. Fail: refuted. Inconclusive: still open.
    pub verdict: Verdict,
    /// An activation was never answered, so how long it would have waited isn't known.
    #[serde(skip)]
    pub is_unanswered: bool,
}

/// Wall time that backs "at most once in `interval`" with so many events.
#[must_use]
pub fn time_for(interval: Nanos, events: u64) -> Nanos {
    let is_backed = |times: f64| is_excluded(events, times, 1.0, PRIOR_TIMES);
    interval.scaled(first_true_above(events as f64, 1.0, is_backed))
}

/// The rates that are not excluded after `events` in `time`: both ends, in events a unit of time.
fn rates(events: u64, time: f64, prior: f64) -> (f64, f64) {
    let seen = events as f64 / time;
    let is_excluded = |rate: f64| is_excluded(events, time, rate, prior);
    let high = first_true_above(seen, 1.0 / time, is_excluded);
    let low = match events {
        0 => 0.0,
        _ => seen - first_true(0.0, seen, |less| is_excluded(seen - less)),
    };
    (low, high)
}

/// Whether a rate has left the confidence sequence. Times are in any unit, `rate` is in events a unit.
fn is_excluded(events: u64, time: f64, rate: f64, prior: f64) -> bool {
    let (k, a) = (events as f64, SHAPE);
    let log = a * prior.ln() + ln_gamma(a + k) - ln_gamma(a) - (a + k) * (prior + time).ln();
    // A rate of 0 is excluded by any event.
    let of_rate = if events == 0 { 0.0 } else { k * rate.ln() };
    log + rate * time - of_rate >= -WRONG.ln()
}

/// The first value above `low` for which a condition holds from there on. `step` is its order of magnitude.
fn first_true_above(low: f64, mut step: f64, holds: impl Fn(f64) -> bool) -> f64 {
    while !holds(low + step) {
        step *= 2.0;
    }
    first_true(low, low + step, holds)
}

/// The first value for which a condition holds that doesn't at `low` and does at `high`.
fn first_true(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

/// Windows of one slice that are looked at one by one, at most: an hour in windows of the shortest claim.
const WINDOWS_MAX: usize = 100_000;

/// A claim that is held against slices as they come: in order for each thread, threads in any order.
#[derive(Clone, Debug)]
pub struct ClaimWatch {
    limit: Nanos,
    once_in: Nanos,
    window_ns: u64,
    layout: Layout,
    /// Time under observation of each thread.
    threads: BTreeMap<u32, u64>,
    /// Windows with an exceedance.
    windows: BTreeSet<u64>,
    longest_slice_ns: u64,
    latencies: u64,
    /// Latencies of slices longer than a window, each of which may be an event of its own.
    apart: u64,
    /// Activations without a latency that are due before may belong to an event that is counted.
    unmeasured_until_ns: u64,
}

impl ClaimWatch {
    /// Before the first slice. `threads` are all that are watched.
    #[must_use]
    pub fn new(
        limit: Nanos,
        once_in: Nanos,
        layout: Layout,
        threads: impl IntoIterator<Item = u32>,
    ) -> ClaimWatch {
        ClaimWatch {
            limit,
            once_in,
            window_ns: window(once_in),
            layout,
            threads: threads.into_iter().map(|thread| (thread, 0)).collect(),
            windows: BTreeSet::new(),
            longest_slice_ns: 0,
            latencies: 0,
            apart: 0,
            unmeasured_until_ns: 0,
        }
    }

    pub fn add(&mut self, slice: &Slice) {
        let length_ns = slice.end_ns.saturating_sub(slice.start_ns);
        *self.threads.entry(slice.thread).or_default() += length_ns;
        self.longest_slice_ns = self.longest_slice_ns.max(length_ns);
        let is_late = slice.recorded > 0 && slice.max_ns >= self.limit.0;
        if !is_late || slice.frames.is_some() {
            self.add_unmeasured(slice, length_ns);
        }
        if !is_late {
            return;
        }
        let mut histogram = Histogram::new(self.layout);
        let sum_ns = u128::from(slice.sum_ns);
        histogram.add_all(&slice.bins, slice.unplaced, slice.min_ns, slice.max_ns, sum_ns);
        let (_, at_most) = histogram.at_or_above(self.limit.0);
        self.latencies += at_most;
        let touched = length_ns / self.window_ns + 2;
        let mut known = 1;
        self.windows.insert(slice.max_at_ns / self.window_ns);
        if slice.min_ns >= self.limit.0 && slice.recorded >= length_ns / self.window_ns {
            // Every wake-up was an exceedance, and there are at least as many wake-ups as windows: each
            // window of the slice contains an exceedance.
            let whole = slice.start_ns / self.window_ns..slice.end_ns / self.window_ns;
            let before = self.windows.len();
            self.windows.extend(whole.take(WINDOWS_MAX));
            known += (self.windows.len() - before) as u64;
        }
        if length_ns > self.window_ns {
            // At most one event in each window, however many latencies.
            self.apart += at_most.min(touched).saturating_sub(known);
        }
    }

    /// Activations that no measured latency speaks for: frames that were lost, late or not sent, and what was never
    /// answered. (What a late wake-up swallowed belongs to its own latency, which is longer.) When in the slice they were
    /// due isn't known.
    fn add_unmeasured(&mut self, slice: &Slice, length_ns: u64) {
        let reaches = |bin: &&(u32, u64)| self.layout.upper_ns(bin.0) >= self.limit.0;
        if slice.omitted_extent.max_ns < self.limit.0 {
            return;
        }
        let at_most: u64 = slice.omitted.iter().filter(reaches).map(|bin| bin.1).sum();
        self.latencies += at_most;
        // Two of neighbouring slices may be one event: of short ones, their windows say so.
        let is_short = length_ns <= self.window_ns;
        let is_another = slice.start_ns >= self.unmeasured_until_ns;
        if is_short || is_another {
            self.windows.insert(slice.start_ns / self.window_ns);
        }
        if is_short {
            return;
        }
        if is_another {
            self.unmeasured_until_ns = slice.end_ns.saturating_add(self.window_ns);
        }
        let touched = length_ns / self.window_ns + 2;
        self.apart += at_most.min(touched).saturating_sub(u64::from(is_another));
    }

    /// Whether the claim is decided, and stays so when the run ends now: the slices that are still open
    /// add time, and maybe no event.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let verdict = self.claim().verdict;
        let ends_ns = self.longest_slice_ns.saturating_mul(2);
        verdict != Verdict::Inconclusive && self.claim_after(ends_ns).verdict == verdict
    }

    /// What the slices so far say.
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.claim_after(0)
    }

    /// What they would say after more time without an event.
    fn claim_after(&self, more_ns: u64) -> Claim {
        // What backs a claim is the time in which all threads were watched; what refutes it, the time in
        // which any was.
        let times_ns = || self.threads.values().map(|ns| ns.saturating_add(more_ns));
        let (wall_ns, longest_ns) = (times_ns().min().unwrap_or(0), times_ns().max().unwrap_or(0));
        let events_surely = self.events();
        let events = events_surely + self.apart;
        let inside_ns = events_surely.saturating_mul(2 * self.window_ns);
        let times = |ns: u64| ns as f64 / self.once_in.0 as f64;
        let (all, outside) = (times(longest_ns), times(wall_ns.saturating_sub(inside_ns)));
        let is_decided = |events, time| is_excluded(events, time, 1.0, PRIOR_TIMES);
        let verdict = if outside > events as f64 && is_decided(events, outside) {
            Verdict::Pass
        } else if all < events_surely as f64 && is_decided(events_surely, all) {
            Verdict::Fail
        } else {
            Verdict::Inconclusive
        };
        let a_second = |rate: f64| rate / self.once_in.as_secs_f64();
        let end = |events, time| (time > 0.0).then(|| rates(events, time, PRIOR_TIMES));
        Claim {
            limit_ns: self.limit.0,
            once_in_ns: self.once_in.0,
            wall_ns,
            latencies: self.latencies,
            events,
            events_surely,
            window_ns: self.window_ns,
            needed_ns: time_for(self.once_in, events).0.saturating_add(inside_ns),
            per_second_low: end(events_surely, all).map_or(0.0, |ends| a_second(ends.0)),
            per_second_high: end(events, outside).map(|ends| a_second(ends.1)),
            verdict,
            is_unanswered: false,
        }
    }

    /// Windows that open an event: each takes the next one in.
    fn events(&self) -> u64 {
        let mut events = 0;
        let mut taken = None;
        for &window in &self.windows {
            if taken != Some(window) {
                events += 1;
                taken = Some(window + 1);
            }
        }
        events
    }
}

/// What a record says about a claim in one cell. Where the record is an import, its slices hold no
/// times, and nothing can be said.
#[must_use]
pub fn of_cell(record: &Record, cell: &CellSummary, limit: Nanos, once_in: Nanos) -> Option<Claim> {
    if record.origin_of(cell.cell).is_some() {
        return None;
    }
    let threads = cell.threads.iter().filter_map(|row| row.thread);
    let mut watch = ClaimWatch::new(limit, once_in, record.layout_of(cell.cell), threads);
    let mut last: BTreeMap<u32, &Slice> = BTreeMap::new();
    for slice in record.slices_of(cell.cell) {
        watch.add(slice);
        let last = last.entry(slice.thread).or_insert(slice);
        *last = if slice.end_ns > last.end_ns { slice } else { *last };
    }
    // A thread that answers later hands over a slice of that.
    let is_unanswered = last.values().any(|slice| slice.is_silent() && slice.missed > 0);
    let claim = Claim { is_unanswered, ..watch.claim() };
    let is_open = is_unanswered && claim.verdict == Verdict::Pass;
    Some(Claim { verdict: if is_open { Verdict::Inconclusive } else { claim.verdict }, ..claim })
}

impl Claim {
    /// What the observation says about the claim, and what it takes if it is still open.
    #[must_use]
    pub fn sentence(&self) -> String {
        let seen = || format!("{} in {} of wall time", self.seen(), Nanos(self.wall_ns));
        match self.verdict {
            Verdict::Pass => {
                let needed = Nanos(self.needed_ns).rounded(Rounding::Up);
                format!("backed at 95 %: {}; {needed} are enough", seen())
            }
            Verdict::Fail => {
                let rate = exceedance::rate(self.per_second_low, Rounding::Down);
                format!("refuted at 95 %: {}, so events come at least {rate}", seen())
            }
            _ => format!("still open: {}", self.missing()),
        }
    }

    /// Why a claim is neither backed nor refuted, and how much longer that would take at best.
    fn missing(&self) -> String {
        if self.wall_ns == 0 {
            return "a thread has no wake-ups, so there is no time in which all threads were watched"
                .to_owned();
        }
        let seen = format!("{} in {} of wall time", self.seen(), Nanos(self.wall_ns));
        if self.is_unanswered && self.left_ns() == 0 {
            return format!(
                "{seen}, but an activation was never answered, and it isn't known how long it would have waited"
            );
        }
        let needed = Nanos(self.needed_ns).rounded(Rounding::Up);
        let window = Nanos(self.window_ns);
        let another = if self.events == 0 { "an event" } else { "another event" };
        let left = Nanos(self.left_ns()).rounded(Rounding::Up);
        let left = format!("at best {left} more without {another}");
        // How many events there were is not known: the slices are longer than the windows.
        let unclear = match self.events - self.events_surely {
            0 => String::new(),
            _ => format!(
                ". How many of them come together is not known, because a slice is longer than {window} (see \
                 --slice): there were {} to {} events",
                self.events_surely, self.events
            ),
        };
        let allowed = self.wall_ns as f64 / self.once_in_ns as f64;
        if self.events_surely as f64 > allowed {
            return format!(
                "{seen}, more often than claimed, but too few to refute the claim: backing it takes {left}{unclear}"
            );
        }
        format!("{seen}, which is too short: the claim needs {needed}, so {left}{unclear}")
    }

    /// How far an observation that goes on is: for a screen.
    #[must_use]
    pub fn progress(&self) -> String {
        let seen = self.seen();
        match self.verdict {
            Verdict::Pass => format!("backed: {seen}"),
            Verdict::Fail => format!("refuted: {seen}"),
            _ => {
                let share = 100.0 * self.wall_ns as f64 / self.needed_ns.max(1) as f64;
                let left = Nanos(self.left_ns());
                format!("{share:.0} % of the time needed, {seen}; about {left} more without one")
            }
        }
    }

    /// Wall time that is missing if no more events come.
    fn left_ns(&self) -> u64 {
        self.needed_ns.saturating_sub(self.wall_ns)
    }

    /// `no exceedance`, `1 exceedance`, `2 events (60 exceedances)`.
    fn seen(&self) -> String {
        // What refutes a claim is what there was for certain.
        let refuted = self.verdict == Verdict::Fail;
        match (if refuted { self.events_surely } else { self.events }, self.latencies) {
            (_, 0) => "no exceedance".to_owned(),
            (events, n) if events == n => counted(n, "exceedance"),
            (events, n) => format!("{} ({})", counted(events, "event"), counted(n, "exceedance")),
        }
    }
}

#[cfg(test)]
mod tests;
