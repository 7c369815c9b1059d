//! The loop of one sampling thread.
//!
//! From when to when: a latency starts at the programmed expiry and ends at the first clock reading
//! after the wake-up. With [`Sleep::Relative`] the expiry is the clock reading before the sleep plus
//! the interval.
//!
//! After its start the loop doesn't allocate, lock, print, or return early with an error: what
//! happens is counted. It is generic over the clock, so that the tests drive this very function.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use rtscope_model::{
    plan::{Overrun, Sleep},
    slice::RawSample,
};
use rtscope_sys::clock::Clock;

use crate::{
    offset::Offset,
    reign::{STOP, Shared, is_cell},
    slot::{Exchange, Figures, Late},
};

/// What a thread shows of its cell to whoever asks: at its next wake-up, and once more at its end. Looks
/// are rare and wake-ups are many: showing each would cost a quarter of the loop. Own cache lines: a look
/// from another CPU must not slow a neighbour down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LiveFigures {
    /// Somebody asks.
    pub asked: AtomicBool,
    /// CPU of the last wake-up.
    pub cpu: AtomicU32,
    /// Latency of the last wake-up.
    pub now_ns: AtomicU64,
    pub min_ns: AtomicU64,
    pub max_ns: AtomicU64,
    pub sum_ns: AtomicU64,
    pub recorded: AtomicU64,
    pub missed: AtomicU64,
    /// Of a network sampler: cycles in a row whose frame is not back.
    pub silent: AtomicU64,
}

/// When a thread wakes, and what happens when it wakes late.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// First programmed expiry, on the clock.
    pub first_ns: u64,
    /// Time between two activations; above 0.
    pub interval_ns: u64,
    /// How much later than its instant of the grid an activation is due. Without meaning for [`Sleep::Relative`].
    pub offset: Offset,
    /// How the thread sleeps.
    pub sleep: Sleep,
    /// What happens to swallowed activations.
    pub overrun: Overrun,
    /// Stop everything when a latency is above this; `u64::MAX` is never.
    pub break_above_ns: u64,
    /// Samples below this don't go into the raw ring; 0 for all.
    pub raw_from_ns: u64,
}

/// What the loop counted over its whole life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopTally {
    /// Wake-ups, discarded ones included.
    pub wakeups: u64,
    /// Wake-ups on another CPU than the one before.
    pub migrations: u64,
    /// Raw samples that found the ring full.
    pub raw_lost: u64,
    /// Missed activations that were not expanded into the corrected histogram.
    pub omitted_unexpanded: u64,
    /// Wake-ups that found no free slot to be recorded in: they are in no slice.
    pub without_slot: u64,
    /// How many of those were due in a cell.
    pub cell_without_slot: u64,
    /// When the loop ended, on the clock.
    pub ended_ns: u64,
    /// The latency that broke the run, and its programmed expiry on the clock.
    pub broke_at: Option<(u64, u64)>,
}

impl LoopTally {
    #[inline]
    fn count(&mut self, moved: bool) {
        self.wakeups += 1;
        self.migrations += u64::from(moved);
    }

    #[inline]
    pub(crate) fn keep_raw(&mut self, ring: &mut rtrb::Producer<RawSample>, sample: RawSample) {
        self.raw_lost += u64::from(ring.push(sample).is_err());
    }

    /// The loop has ended: adds what found no slot.
    pub(crate) fn close(&mut self, exchange: &Exchange, ended_ns: u64) {
        self.ended_ns = ended_ns;
        self.wakeups += exchange.lost;
        self.without_slot = exchange.lost;
        self.cell_without_slot = exchange.lost_in_cells;
    }
}

/// Wakes, measures and records until it is told to stop. Activations are counted by the instants of the grid, and
/// measured from their expiries.
pub fn run<C: Clock>(
    clock: &C,
    beat: &Beat,
    shared: &Shared,
    live: &LiveFigures,
    exchange: &mut Exchange,
    mut raw: Option<&mut rtrb::Producer<RawSample>>,
) -> LoopTally {
    let mut tally = LoopTally::default();
    let (mut instant_ns, mut expiry_ns) = (beat.first_ns, beat.due_ns(beat.first_ns));
    let (mut last_cpu, mut last_ns) = (clock.cpu(), 0);
    // Who looks for instants to aim at needs the clock of each wake-up.
    let marks_all = matches!(beat.offset, Offset::Aimed { .. });
    loop {
        (instant_ns, expiry_ns) = sleep(clock, beat, shared, (instant_ns, expiry_ns));
        let (now_ns, cpu) = (clock.now_ns(), clock.cpu());
        let reign = shared.reign();
        let latency_ns = now_ns.saturating_sub(expiry_ns);
        let (next_ns, next_expiry_ns, missed) = following(beat, instant_ns, now_ns);
        // At the stop an activation whose expiry lies ahead isn't due, though its instant may have passed.
        let is_due = reign != STOP || now_ns >= expiry_ns;
        let owner = if is_due { exchange.owner(reign, instant_ns, shared) } else { None };
        if let Some(owner) = owner {
            let moved = cpu != last_cpu;
            tally.count(moved);
            let slot = exchange.slot();
            slot.record(latency_ns, expiry_ns, cpu, marks_all);
            slot.end_ns = next_ns;
            if moved || now_ns < expiry_ns {
                slot.migrations += u64::from(moved);
                slot.early += u64::from(now_ns < expiry_ns);
            }
            if let Some(missed) = missed {
                let late = Late { instant_ns, answered_ns: now_ns, missed };
                let (_, until_ns) = shared.span_ns(owner);
                tally.omitted_unexpanded += slot.omit(late, beat, until_ns);
            }
            if let Some(ring) = raw.as_deref_mut().filter(|_| is_cell(owner))
                && latency_ns >= beat.raw_from_ns
            {
                let cycle = exchange.counted().saturating_sub(1);
                tally.keep_raw(ring, RawSample { expiry_ns, latency_ns, cycle });
            }
            if exchange.counted() >= shared.limit() {
                shared.end_cell(owner, now_ns.min(next_ns));
            }
            let limit_ns = beat.break_above_ns;
            if latency_ns > limit_ns
                && shared.break_off(owner, now_ns.min(next_ns), latency_ns, limit_ns)
            {
                tally.broke_at = tally.broke_at.or(Some((latency_ns, expiry_ns)));
            }
            if live.asked.load(Relaxed) {
                live.show(exchange.figures(), latency_ns, cpu);
            }
            (last_cpu, last_ns) = (cpu, latency_ns);
        }
        if reign == STOP {
            break;
        }
        (instant_ns, expiry_ns) = (next_ns, next_expiry_ns);
    }
    tally.close(exchange, clock.now_ns());
    exchange.close();
    live.show(exchange.figures(), last_ns, last_cpu);
    tally
}

impl Beat {
    /// When the activation of an instant of the grid is due: before the next instant.
    #[inline]
    pub(crate) fn due_ns(&self, instant_ns: u64) -> u64 {
        self.offset.due_ns(instant_ns, self.first_ns, self.interval_ns)
    }
}

/// Sleeps until the next activation, of this instant of the grid and this expiry; the answer is those that it really
/// had. A signal ends the sleep when it comes with a [`STOP`], and else nothing.
#[inline]
pub(crate) fn sleep<C: Clock>(
    clock: &C,
    beat: &Beat,
    shared: &Shared,
    (instant_ns, expiry_ns): (u64, u64),
) -> (u64, u64) {
    if beat.sleep == Sleep::Absolute {
        while clock.doze_until_ns(expiry_ns) && shared.reign() != STOP {}
        return (instant_ns, expiry_ns);
    }
    loop {
        let expiry_ns = clock.now_ns() + beat.interval_ns;
        if !clock.doze_for_ns(beat.interval_ns) || shared.reign() == STOP {
            return (expiry_ns, expiry_ns);
        }
    }
}

/// The next activation after a wake-up: its instant of the grid and its expiry. If that one was due already, how many
/// the wake-up swallowed; they are skipped.
#[inline]
fn following(beat: &Beat, instant_ns: u64, now_ns: u64) -> (u64, u64, Option<u64>) {
    let next_ns = instant_ns + beat.interval_ns;
    let expiry_ns = beat.due_ns(next_ns);
    if now_ns <= expiry_ns {
        return (next_ns, expiry_ns, None);
    }
    let missed = swallowed(beat, instant_ns, now_ns);
    let next_ns = next_ns + missed * beat.interval_ns;
    (next_ns, beat.due_ns(next_ns), Some(missed))
}

/// How many activations a wake-up swallowed that came after the next one was due: expiries that lie strictly before it.
#[cold]
#[inline(never)]
fn swallowed(beat: &Beat, instant_ns: u64, now_ns: u64) -> u64 {
    let skips = matches!((beat.sleep, beat.overrun), (Sleep::Absolute, Overrun::Skip));
    if !skips {
        return 0;
    }
    // All but the last of these instants lie a whole interval back, so they were due.
    let passed = (now_ns - instant_ns) / beat.interval_ns;
    let last_ns = instant_ns + passed * beat.interval_ns;
    passed.saturating_sub(u64::from(beat.due_ns(last_ns) >= now_ns))
}

impl LiveFigures {
    /// Publishes the figures: this thread is their only writer.
    #[cold]
    #[inline(never)]
    pub(crate) fn show(&self, figures: Figures, latency_ns: u64, cpu: u32) {
        self.asked.store(false, Relaxed);
        self.cpu.store(cpu, Relaxed);
        self.now_ns.store(latency_ns, Relaxed);
        self.min_ns.store(figures.min_ns, Relaxed);
        self.max_ns.store(figures.max_ns, Relaxed);
        self.sum_ns.store(figures.sum_ns, Relaxed);
        self.missed.store(figures.missed, Relaxed);
        self.recorded.store(figures.recorded, Relaxed);
    }
}
