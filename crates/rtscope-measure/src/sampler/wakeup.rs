//! The loop of one sampling thread.
//!
//! From when to when: a latency starts at the programmed expiry and ends at the first clock reading
//! after the wake-up. With [`Sleep::Relative`] the expiry is the clock reading before the sleep plus
//! the interval.
//!
//! After its start the loop doesn't allocate, lock, print, or return early with an error: what
//! happens is counted. It is generic over the clock, so that the tests drive this very function.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use rtscope_model::plan::{Overrun, Sleep};
use rtscope_sys::{clock::Clock, tracefs::Marker};

use super::slot::{Exchange, Figures, RawSample};

/// Scope of activations that are counted but not judged.
pub const DISCARD: u32 = u32::MAX - 1;

/// Scope that ends the loop.
pub const STOP: u32 = u32::MAX;

/// The most omitted activations that one stall is expanded into; a clock step of years would
/// otherwise keep a real-time thread busy for minutes. The rest is counted.
const OMITTED_MAX: u64 = 1 << 20;

/// What the control thread and the sampling threads of a session tell each other.
#[derive(Debug)]
pub struct Shared {
    /// The cell that activations belong to from now on, [`DISCARD`] or [`STOP`].
    pub scope: AtomicU32,
    /// Activations after which the running cell is full; `u64::MAX` is never. Set before `scope`.
    pub limit: AtomicU64,
    /// The cell in which a thread reached the limit.
    pub full: AtomicU32,
    /// A latency was above the break threshold.
    pub broken: AtomicBool,
    /// Where the kernel's trace is marked and stopped by the very thread that was too late; none
    /// when nobody asked for that.
    pub marker: Option<Marker>,
    /// There is one cell: when it is full or broken the loop ends, and the live figures stay as they
    /// were at its end.
    pub one_cell: bool,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            scope: AtomicU32::new(DISCARD),
            limit: AtomicU64::new(u64::MAX),
            full: AtomicU32::new(DISCARD),
            broken: AtomicBool::new(false),
            marker: None,
            one_cell: false,
        }
    }
}

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
    /// Smallest.
    pub min_ns: AtomicU64,
    /// Largest.
    pub max_ns: AtomicU64,
    /// Sum.
    pub sum_ns: AtomicU64,
    /// Recorded.
    pub recorded: AtomicU64,
    /// Missed.
    pub missed: AtomicU64,
}

/// When a thread wakes, and what happens when it wakes late.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// First programmed expiry, on the clock.
    pub first_ns: u64,
    /// Time between two activations; above 0.
    pub interval_ns: u64,
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
    /// Activations of a cell that found no free slot to be recorded in: not recorded.
    pub without_slot: u64,
    /// The latency that broke the run, and its programmed expiry on the clock.
    pub broke_at: Option<(u64, u64)>,
}

/// Wakes, measures and records until the scope is [`STOP`].
pub fn run<C: Clock>(
    clock: &C,
    beat: &Beat,
    shared: &Shared,
    live: &LiveFigures,
    exchange: &mut Exchange,
    mut raw: Option<&mut rtrb::Producer<RawSample>>,
) -> LoopTally {
    let mut tally = LoopTally::default();
    let mut expiry_ns = beat.first_ns;
    let (mut last_cpu, mut last_ns) = (clock.cpu(), 0);
    loop {
        if beat.sleep == Sleep::Absolute {
            clock.sleep_until_ns(expiry_ns);
        } else {
            expiry_ns = clock.now_ns() + beat.interval_ns;
            clock.sleep_for_ns(beat.interval_ns);
        }
        let now_ns = clock.now_ns();
        let cpu = clock.cpu();
        let Some(scope) = scope(shared) else { break };
        let latency_ns = now_ns.saturating_sub(expiry_ns);
        let mut next_ns = expiry_ns + beat.interval_ns;
        let mut missed = 0;
        if latency_ns > beat.interval_ns {
            missed = swallowed(beat, latency_ns);
            next_ns += missed * beat.interval_ns;
        }
        let moved = cpu != last_cpu;
        tally.wakeups += 1;
        tally.migrations += u64::from(moved);

        if let Some(slot) = exchange.slot(scope, expiry_ns) {
            slot.record(latency_ns, expiry_ns, cpu);
            slot.end_ns = next_ns;
            if moved || now_ns < expiry_ns {
                slot.migrations += u64::from(moved);
                slot.early += u64::from(now_ns < expiry_ns);
            }
            if latency_ns > beat.interval_ns {
                tally.omitted_unexpanded += slot.omit(latency_ns, missed, beat.interval_ns);
            }
            if exchange.counted() >= shared.limit.load(Relaxed) {
                fill(shared, scope);
            }
        } else {
            tally.without_slot += u64::from(scope != DISCARD);
        }
        if let Some(ring) = raw.as_deref_mut().filter(|_| scope != DISCARD)
            && latency_ns >= beat.raw_from_ns
        {
            let cycle = exchange.counted().saturating_sub(1);
            let kept = ring.push(RawSample { expiry_ns, latency_ns, cycle }).is_ok();
            tally.raw_lost += u64::from(!kept);
        }
        if latency_ns > beat.break_above_ns && stop(shared, scope, latency_ns, beat.break_above_ns)
        {
            tally.broke_at = tally.broke_at.or(Some((latency_ns, expiry_ns)));
        }
        if live.asked.load(Relaxed) {
            live.show(exchange.figures(), latency_ns, cpu);
        }
        (last_cpu, last_ns) = (cpu, latency_ns);
        expiry_ns = next_ns;
    }
    exchange.close();
    live.show(exchange.figures(), last_ns, last_cpu);
    tally
}

/// What activations belong to from now on; none when the loop is to end.
#[inline]
fn scope(shared: &Shared) -> Option<u32> {
    match shared.scope.load(Acquire) {
        STOP => None,
        scope if scope != shared.full.load(Relaxed) => Some(scope),
        DISCARD => Some(DISCARD),
        _ => (!shared.one_cell).then_some(DISCARD),
    }
}

/// The running cell has as many activations as it was to have.
#[cold]
#[inline(never)]
fn fill(shared: &Shared, scope: u32) {
    if scope != DISCARD {
        shared.full.store(scope, Relaxed);
    }
}

/// Ends the cell, if there is one: a latency was above the threshold. Marks and stops the kernel's trace
/// first, if that was asked, before anything else goes into it. Answers whether there was a cell.
#[cold]
#[inline(never)]
fn stop(shared: &Shared, scope: u32, latency_ns: u64, limit_ns: u64) -> bool {
    if scope == DISCARD {
        return false;
    }
    if let Some(marker) = shared.marker.as_ref().filter(|_| !shared.broken.load(Relaxed)) {
        marker.hit(latency_ns, limit_ns);
    }
    shared.full.store(scope, Relaxed);
    shared.broken.store(true, Release);
    true
}

/// How many activations a wake-up more than an interval late swallowed: expiries that lie strictly before
/// it.
#[cold]
#[inline(never)]
fn swallowed(beat: &Beat, latency_ns: u64) -> u64 {
    let skips = matches!((beat.sleep, beat.overrun), (Sleep::Absolute, Overrun::Skip));
    if skips { (latency_ns - 1) / beat.interval_ns } else { 0 }
}

/// The most omitted activations to expand for one stall.
pub(super) const fn expanded(missed: u64) -> u64 {
    if missed < OMITTED_MAX { missed } else { OMITTED_MAX }
}

impl LiveFigures {
    /// Publishes the figures: this thread is their only writer.
    #[cold]
    #[inline(never)]
    fn show(&self, figures: Figures, latency_ns: u64, cpu: u32) {
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
