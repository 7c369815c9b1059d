//! The loop of a thread that sends a frame in each cycle and waits until it is back.
//!
//! From when to when: a latency starts at the programmed start of the cycle and ends at the first clock reading after
//! the answer was read. So a late wake-up, which delays the frame, is a part of it. The parts of the way are kept
//! beside it: see [`FramePart`].
//!
//! A frame that isn't back at the timeout counts as missed, and the next cycle sends the next one. Later it turns out
//! to be late or lost. What a cycle that was never sent would have waited is expanded as for any other sampler.
//!
//! As in [`crate::wakeup`], after its start the loop doesn't allocate, lock, print, or return early with an error. It
//! is generic over the clock and the wire.

use std::sync::atomic::Ordering::*;

use rtscope_model::{frames::FramePart, slice::RawSample};
use rtscope_sys::{clock::Clock, frame::Stamps};

use crate::{
    ledger::Ledger,
    reign::{STOP, Shared, is_cell},
    slot::{Exchange, Late},
    wakeup::{Beat, LiveFigures, LoopTally, sleep},
};

/// What carries frames there and back.
pub(crate) trait Wire {
    /// Sends the frame with this number. False when the kernel refused it.
    fn send(&mut self, number: u64) -> bool;
    /// Takes what comes next, and waits for it so long.
    fn receive(&mut self, wait_ns: u64) -> Came;
    /// The stamps of the frame that was sent last, where they are known by now.
    fn sent(&mut self) -> Stamps;
    /// The clock that the kernel stamps frames with; none where frames have no stamps.
    fn stamp_clock_ns(&self) -> Option<u64>;
    /// Whether one card stamps frames as they go and as they come. Two cards have clocks that nobody has compared.
    fn has_one_card(&self) -> bool;
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// A frame of ours, with its number.
    Frame(u64, Stamps),
    /// A frame that isn't ours.
    Stray,
    /// Nothing in all the time.
    Nothing,
    /// A signal, before the time was over.
    Interrupted,
}

/// What the loop needs besides the wire.
#[derive(Debug)]
pub(crate) struct FrameLoop<'a, C> {
    pub clock: &'a C,
    pub beat: &'a Beat,
    /// A frame that isn't back so long after the start of its cycle is late or lost; at most the interval.
    pub timeout_ns: u64,
    pub shared: &'a Shared,
    pub live: &'a LiveFigures,
}

/// A cycle as it went.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    instant_ns: u64,
    is_refused: bool,
    /// The first clock reading after the wake-up, which is the last before the frame was sent.
    woke_ns: u64,
    /// How far the clock of the stamps is ahead at that time.
    ahead_ns: Option<i128>,
    /// When the answer had been read, and its stamps.
    back: Option<(u64, Stamps)>,
}

/// How far the clock of the stamps is ahead of the session's. Both run at one rate, and a reading of two clocks one
/// after the other is never too small: the smallest is the best, until one of them is set.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead(Option<i128>);

/// A larger difference than this between two readings isn't an interruption, but a clock that was set.
const STEP_NS: i128 = 1_000_000;

impl Ahead {
    #[inline]
    fn read(&mut self, own_ns: u64, stamp_ns: Option<u64>) -> Option<i128> {
        let read = i128::from(stamp_ns?) - i128::from(own_ns);
        let is_better = |known: i128| read < known || read > known + STEP_NS;
        if self.0.is_none_or(is_better) {
            self.0 = Some(read);
        }
        self.0
    }
}

impl<C: Clock> FrameLoop<'_, C> {
    /// Sends, receives, measures and records until it is told to stop.
    pub(crate) fn run<W: Wire>(
        &self,
        wire: &mut W,
        ledger: &mut Ledger,
        exchange: &mut Exchange,
        mut raw: Option<&mut rtrb::Producer<RawSample>>,
    ) -> LoopTally {
        let mut tally = LoopTally::default();
        let (mut instant_ns, mut number) = (self.beat.first_ns, 0);
        let (mut last_cpu, mut last_ns) = (self.clock.cpu(), 0);
        let (mut ahead, mut silent) = (Ahead::default(), 0);
        loop {
            sleep(self.clock, self.beat, self.shared, (instant_ns, instant_ns));
            if self.shared.reign() == STOP {
                break;
            }
            let cycle = self.cycle(wire, ledger, exchange, (instant_ns, number), &mut ahead);
            let (now_ns, cpu) = (self.clock.now_ns(), self.clock.cpu());
            let (next_ns, swallowed) = self.following(instant_ns, now_ns);
            self.close_reign(ledger, exchange, instant_ns, now_ns);
            let owner = exchange.owner(self.shared.reign(), instant_ns, self.shared);
            ledger.belongs(number, owner.map(|_| exchange.slot()));
            if let Some(owner) = owner {
                silent = if cycle.back.is_some() { 0 } else { silent + 1 };
                self.live.silent.store(silent, Relaxed);
                last_ns = self.record(&cycle, exchange, wire, (cpu, cpu != last_cpu, next_ns));
                tally.migrations += u64::from(cpu != last_cpu);
                tally.wakeups += u64::from(cycle.back.is_some());
                if swallowed > 0 {
                    let late = Late { instant_ns, answered_ns: now_ns, missed: swallowed };
                    let (_, until_ns) = self.shared.span_ns(owner);
                    tally.omitted_unexpanded += exchange.slot().omit(late, self.beat, until_ns);
                }
                if let Some(ring) = raw.as_deref_mut().filter(|_| is_cell(owner))
                    && let Some((back_ns, _)) = cycle.back
                {
                    let latency_ns = back_ns.saturating_sub(instant_ns);
                    let nth = exchange.counted().saturating_sub(1);
                    let sample = RawSample { expiry_ns: instant_ns, latency_ns, cycle: nth };
                    tally.keep_raw(ring, sample);
                }
                self.end_if_due(
                    &mut tally,
                    exchange,
                    (owner, instant_ns, now_ns.min(next_ns)),
                    last_ns,
                );
                last_cpu = cpu;
                if self.live.asked.load(Relaxed) {
                    self.live.show(exchange.figures(), last_ns, cpu);
                }
            }
            (instant_ns, number) = (next_ns, number + 1);
        }
        ledger.close(exchange.slot(), self.clock.now_ns());
        tally.close(exchange, self.clock.now_ns());
        exchange.close();
        self.live.show(exchange.figures(), last_ns, last_cpu);
        tally
    }

    /// From the wake-up until the frame is back or the timeout has passed.
    fn cycle<W: Wire>(
        &self,
        wire: &mut W,
        ledger: &mut Ledger,
        exchange: &mut Exchange,
        (instant_ns, number): (u64, u64),
        ahead: &mut Ahead,
    ) -> Cycle {
        let woke_ns = self.clock.now_ns();
        let ahead_ns = ahead.read(woke_ns, wire.stamp_clock_ns());
        ledger.send(number, instant_ns, woke_ns, exchange.slot());
        let is_refused = !wire.send(number);
        let until_ns = instant_ns + self.timeout_ns;
        // Sending takes some of the time, too.
        let mut now_ns = self.clock.now_ns();
        let back = loop {
            let came = match until_ns.saturating_sub(now_ns) {
                0 => break None,
                wait_ns => wire.receive(wait_ns),
            };
            now_ns = self.clock.now_ns();
            match came {
                Came::Frame(came, stamps) => {
                    let is_in_time = came == number && now_ns <= until_ns;
                    if ledger.arrive(came, is_in_time, now_ns, exchange.slot()) {
                        break Some((now_ns, stamps));
                    }
                }
                Came::Stray => exchange.slot().count_frames(|frames| frames.strays += 1),
                Came::Interrupted if self.shared.reign() == STOP => break None,
                Came::Nothing | Came::Interrupted => {}
            }
        };
        Cycle { instant_ns, is_refused, woke_ns, ahead_ns, back }
    }

    /// The start of the next cycle that can still be sent, and how many cycles were swallowed: those whose timeout has
    /// passed.
    #[inline]
    fn following(&self, instant_ns: u64, now_ns: u64) -> (u64, u64) {
        let interval_ns = self.beat.interval_ns;
        let next_ns = instant_ns + interval_ns;
        match now_ns.checked_sub(next_ns + self.timeout_ns) {
            None => (next_ns, 0),
            Some(behind_ns) => {
                let swallowed = behind_ns / interval_ns + 1;
                (next_ns + swallowed * interval_ns, swallowed)
            }
        }
    }

    /// Before a slot of another cell is begun: frames of the one that ended, which are still on their way, are lost.
    #[inline]
    fn close_reign(
        &self,
        ledger: &mut Ledger,
        exchange: &mut Exchange,
        instant_ns: u64,
        now_ns: u64,
    ) {
        let current = exchange.slot().reign();
        if self.shared.reign() != current
            && self.shared.reign_at(current, instant_ns) != Some(current)
        {
            ledger.close(exchange.slot(), now_ns);
        }
    }

    /// Puts a cycle into its slot. Returns its latency, or for a frame that isn't back the time that it has had.
    #[inline]
    fn record<W: Wire>(
        &self,
        cycle: &Cycle,
        exchange: &mut Exchange,
        wire: &mut W,
        (cpu, moved, next_ns): (u32, bool, u64),
    ) -> u64 {
        let slot = exchange.slot();
        slot.end_ns = next_ns;
        slot.migrations += u64::from(moved);
        slot.early += u64::from(cycle.woke_ns < cycle.instant_ns);
        slot.count_frames(|frames| {
            frames.sent += 1;
            frames.refused += u64::from(cycle.is_refused);
        });
        let Some((back_ns, came)) = cycle.back else {
            slot.miss();
            return self.timeout_ns;
        };
        let latency_ns = back_ns.saturating_sub(cycle.instant_ns);
        slot.record(latency_ns, cycle.instant_ns, cpu, false);
        let sent = if cycle.ahead_ns.is_some() { wire.sent() } else { Stamps::default() };
        let came = if wire.has_one_card() { came } else { Stamps { card_ns: None, ..came } };
        for (part, ns) in parts(cycle, back_ns, sent, came) {
            if let Some(ns) = ns {
                slot.count_frames(|frames| frames.add(part, ns));
            }
        }
        latency_ns
    }

    /// Ends the cell when it is full, or a latency is above the limit.
    #[inline]
    fn end_if_due(
        &self,
        tally: &mut LoopTally,
        exchange: &Exchange,
        (owner, instant_ns, at_ns): (u32, u64, u64),
        latency_ns: u64,
    ) {
        if exchange.counted() >= self.shared.limit() {
            self.shared.end_cell(owner, at_ns);
        }
        let limit_ns = self.beat.break_above_ns;
        if latency_ns > limit_ns && self.shared.break_off(owner, at_ns, latency_ns, limit_ns) {
            tally.broke_at = tally.broke_at.or(Some((latency_ns, instant_ns)));
        }
    }
}

/// The parts of a way, each where the stamps at both its ends are known and in order.
#[inline]
fn parts(cycle: &Cycle, back_ns: u64, sent: Stamps, came: Stamps) -> [(FramePart, Option<u64>); 6] {
    // On the clock of the session.
    let own = |stamp_ns: Option<u64>| {
        let ns = i128::from(stamp_ns?) - cycle.ahead_ns?;
        u64::try_from(ns).ok().filter(|ns| (cycle.woke_ns..=back_ns).contains(ns))
    };
    // Stamps of another frame, or of a clock that was set meanwhile, lie outside.
    let (out_ns, in_ns) = (own(sent.kernel_ns), own(came.kernel_ns));
    let between = |from: Option<u64>, to: Option<u64>| to?.checked_sub(from?);
    [
        (FramePart::WakeUp, Some(cycle.woke_ns.saturating_sub(cycle.instant_ns))),
        (FramePart::Send, between(Some(cycle.woke_ns), out_ns)),
        (FramePart::Wire, between(out_ns, in_ns)),
        (FramePart::Card, between(sent.card_ns, came.card_ns)),
        (FramePart::Receive, between(in_ns, Some(back_ns))),
        (FramePart::RoundTrip, between(Some(cycle.woke_ns), Some(back_ns))),
    ]
}
