//! The loop of a network sampler on a simulated clock and a simulated wire: what it counts is known exactly.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use rtscope_model::{
    frames::{FramePart, Frames, PART_LAYOUT},
    slice::Extent,
};
use rtscope_sys::frame::Stamps;
use rtscope_testing::clock::SimulatedClock;

use super::*;
use crate::{
    frames::{Came, FrameLoop, Wire},
    ledger::Ledger,
    slot::exchange_with,
};

/// From the kernel's hand-over of a frame to the driver, and from the arrival of an answer until it is read.
const SEND_NS: u64 = 2_000;
const RECEIVE_NS: u64 = 7_000;

/// When nothing else is said, an answer is back in the kernel so long after its frame was handed over.
const WIRE_NS: u64 = 40_000;

/// The clock of the stamps is so far ahead.
const AHEAD_NS: u64 = 1_000_000_000_000;

/// A wire on which the script says what becomes of each frame.
struct SimulatedWire<'a> {
    clock: &'a SimulatedClock,
    shared: &'a Shared,
    /// The times from the hand-over of a frame until its answers arrive; none comes back.
    answers_ns: BTreeMap<u64, Vec<u64>>,
    refused: Vec<u64>,
    /// Answers on their way, by the instant of their arrival.
    coming: RefCell<BTreeMap<(u64, u64), u64>>,
    sent_at_ns: Cell<u64>,
    /// Cells end and begin when these frames are about to be sent; all ends with the last.
    turns: Vec<u64>,
    last: u64,
    /// A frame that isn't ours comes with each of these.
    strays: Vec<u64>,
    has_one_card: bool,
}

impl Wire for SimulatedWire<'_> {
    fn send(&mut self, number: u64) -> bool {
        let now_ns = self.clock.time_ns();
        if self.turns.contains(&number) {
            let reign = self.shared.reign();
            // Before the instant of this cycle, which so belongs to the next cell.
            let at_ns = now_ns - INTERVAL_NS / 2;
            if is_cell(reign) {
                self.shared.end_cell(reign, at_ns);
            }
            self.shared.enter(at_ns, None);
        }
        if number == self.last {
            self.shared.stop(now_ns + INTERVAL_NS / 2);
        }
        self.clock.advance(SEND_NS);
        self.sent_at_ns.set(self.clock.time_ns());
        if self.refused.contains(&number) {
            return false;
        }
        let usual = vec![WIRE_NS];
        let answers = self.answers_ns.get(&number).unwrap_or(&usual);
        for (nth, after_ns) in (0u64..).zip(answers) {
            let at_ns = self.sent_at_ns.get() + after_ns;
            self.coming.borrow_mut().insert((at_ns, number * 10 + nth), number);
        }
        if self.strays.contains(&number) {
            let at_ns = self.sent_at_ns.get() + 10;
            self.coming.borrow_mut().insert((at_ns, 0), u64::MAX);
        }
        true
    }

    fn receive(&mut self, wait_ns: u64) -> Came {
        let until_ns = self.clock.time_ns() + wait_ns;
        let first = self.coming.borrow().first_key_value().map(|(at, number)| (*at, *number));
        let Some(((at_ns, nth), number)) = first.filter(|((at_ns, _), _)| *at_ns < until_ns) else {
            self.clock.sleep_until_ns(until_ns);
            return Came::Nothing;
        };
        self.coming.borrow_mut().remove(&(at_ns, nth));
        self.clock.sleep_until_ns(at_ns);
        self.clock.advance(RECEIVE_NS);
        match number {
            u64::MAX => Came::Stray,
            number => {
                let stamps = Stamps { kernel_ns: Some(at_ns + AHEAD_NS), card_ns: Some(at_ns + 5) };
                Came::Frame(number, stamps)
            }
        }
    }

    fn sent(&mut self) -> Stamps {
        let at_ns = self.sent_at_ns.get();
        Stamps { kernel_ns: Some(at_ns + AHEAD_NS), card_ns: Some(at_ns + 1_005) }
    }

    fn stamp_clock_ns(&self) -> Option<u64> {
        Some(self.clock.time_ns() + AHEAD_NS)
    }

    fn has_one_card(&self) -> bool {
        self.has_one_card
    }
}

struct Story {
    answers_ns: Vec<(u64, Vec<u64>)>,
    refused: Vec<u64>,
    strays: Vec<u64>,
    turns: Vec<u64>,
    last: u64,
    has_one_card: bool,
    timeout_ns: u64,
    /// The thread is held up at the first clock reading after these instants.
    pauses: Vec<(u64, u64)>,
}

impl Default for Story {
    fn default() -> Story {
        Story {
            answers_ns: Vec::new(),
            refused: Vec::new(),
            strays: Vec::new(),
            turns: Vec::new(),
            last: 99,
            has_one_card: true,
            timeout_ns: INTERVAL_NS,
            pauses: Vec::new(),
        }
    }
}

/// The slices of a story, and the tally.
fn told(story: Story) -> (Vec<Slice>, LoopTally) {
    let cells = 1 + story.turns.len() as u32;
    let shared = Shared::new(cells);
    shared.enter(0, None);
    let clock = SimulatedClock::at(0).with_pauses(story.pauses);
    let mut wire = SimulatedWire {
        clock: &clock,
        shared: &shared,
        answers_ns: story.answers_ns.into_iter().collect(),
        refused: story.refused,
        coming: RefCell::default(),
        sent_at_ns: Cell::new(0),
        turns: story.turns,
        last: story.last,
        strays: story.strays,
        has_one_card: story.has_one_card,
    };
    // A slice of 10 cycles: more slots than the whole story needs.
    let (mut ours, mut slots) = exchange_with(40, LAYOUT, 10 * INTERVAL_NS, true);
    let (beat, live) = (beat(), LiveFigures::default());
    let timeout_ns = story.timeout_ns;
    let frames = FrameLoop { clock: &clock, beat: &beat, timeout_ns, shared: &shared, live: &live };
    let tally = frames.run(&mut wire, &mut Ledger::default(), &mut ours, None);
    let numbers: Vec<u32> = (0..cells).collect();
    let owner = SlotOwner { thread: 0, origin_ns: 0, grid_ns: Some(INTERVAL_NS), cells: &numbers };
    let (mut slices, mut cover) = (Vec::new(), Cover::new(LAYOUT, 0));
    cover.start(beat.first_ns);
    slots.drain(&owner, |taken| cover.add(&owner, &shared, taken, |slice| slices.push(slice)));
    if let Some(taken) = ours.rest(&owner) {
        cover.add(&owner, &shared, taken, |slice| slices.push(slice));
    }
    cover.close(&owner, &shared, tally.ended_ns, |slice| slices.push(slice));
    (slices, tally)
}

/// The sum of a cell's slices, and its frames.
fn sum(slices: &[Slice], cell: u32) -> (Slice, Frames) {
    let of_cell = slices.iter().filter(|slice| slice.scope == Scope::Cell(cell)).cloned();
    let sum = of_cell.reduce(|mut sum, next| {
        assert_eq!(sum.end_ns, next.start_ns, "slices join");
        sum.absorb(&next);
        sum
    });
    let sum = sum.expect("slices");
    let frames = *sum.frames.clone().expect("frames");
    (sum, frames)
}

/// What must hold of every cell.
fn adds_up(slice: &Slice, frames: &Frames) {
    assert!(slice.adds_up(), "{slice:?}");
    assert_eq!(frames.sent, slice.recorded + frames.late + frames.lost, "{slice:?}");
    let omitted: u64 = slice.omitted.iter().map(|bin| bin.1).sum();
    assert_eq!(omitted, slice.missed, "each missed cycle has waited for some time");
    let woke = frames.parts.iter().find(|part| part.part == FramePart::WakeUp);
    let woke: u64 = woke.map_or(0, |part| part.bins.iter().map(|bin| bin.1).sum());
    assert_eq!(woke, slice.recorded, "each frame in time has its parts");
}

/// The one latency of a frame that nothing happens to.
const USUAL_NS: u64 = SEND_NS + WIRE_NS + RECEIVE_NS;

#[test]
fn a_quiet_wire_brings_each_frame_back_with_all_its_parts() {
    let (slices, tally) = told(Story::default());
    let (slice, frames) = sum(&slices, 0);
    adds_up(&slice, &frames);
    assert_eq!((slice.planned, slice.recorded, slice.missed, tally.wakeups), (100, 100, 0, 100));
    assert_eq!((slice.min_ns, slice.max_ns), (USUAL_NS, USUAL_NS));
    let extent = |ns: u64| Extent { min_ns: ns, max_ns: ns, sum_ns: 100 * ns };
    let parts: Vec<(FramePart, Extent)> =
        frames.parts.iter().map(|part| (part.part, part.extent)).collect();
    let expected = [
        (FramePart::WakeUp, extent(0)),
        (FramePart::Send, extent(SEND_NS)),
        (FramePart::Wire, extent(WIRE_NS)),
        // The card stamps 1,000 ns after the kernel on the way out, by another clock.
        (FramePart::Card, extent(WIRE_NS - 1_000)),
        (FramePart::Receive, extent(RECEIVE_NS)),
        (FramePart::RoundTrip, extent(USUAL_NS)),
    ];
    assert_eq!(parts, expected);
    let bins = &frames.parts[1].bins;
    assert_eq!(bins[..], [(PART_LAYOUT.index(SEND_NS), 100)]);
}

/// The clock of the card that received was taken for that of the card that sent.
#[test]
fn two_cards_have_no_part_by_the_card() {
    let (slices, _) = told(Story { has_one_card: false, ..Story::default() });
    let (slice, frames) = sum(&slices, 0);
    adds_up(&slice, &frames);
    let parts: Vec<FramePart> = frames.parts.iter().map(|part| part.part).collect();
    let expected = [
        FramePart::WakeUp,
        FramePart::Send,
        FramePart::Wire,
        FramePart::Receive,
        FramePart::RoundTrip,
    ];
    assert_eq!(parts, expected);
}

#[test]
fn lost_late_doubled_and_overtaken_frames_are_counted_exactly() {
    // 7 and 8 are lost, 20 and 30 come 1.3 cycles after they were sent, 40 after the answer to 41, 50 twice at once,
    // 60 twice with 3.5 cycles between, 70 is refused.
    let story = Story {
        answers_ns: vec![
            (7, vec![]),
            (8, vec![]),
            (20, vec![1_300_000]),
            (30, vec![1_000_010]),
            (40, vec![1_060_000]),
            (50, vec![WIRE_NS, WIRE_NS + 1]),
            (60, vec![WIRE_NS, 3_500_000]),
        ],
        refused: vec![70],
        strays: vec![80, 81],
        ..Story::default()
    };
    let (slices, tally) = told(story);
    let (slice, frames) = sum(&slices, 0);
    adds_up(&slice, &frames);
    assert_eq!((slice.planned, slice.recorded, slice.missed), (100, 94, 6));
    assert_eq!((frames.sent, frames.late, frames.lost, frames.refused), (100, 3, 3, 1));
    // 20 comes after the answer to 21, 30 before that to 31, 40 after that to 41.
    assert_eq!((frames.out_of_order, frames.duplicates, frames.strays), (2, 2, 2));
    assert_eq!(tally.wakeups, 94);
    // The late ones have their own latencies, counted until they were read: 20 and 40 at the next cycle's look.
    let waits = slice.omitted_extent;
    let first_ns = beat().first_ns;
    let lost: u64 = [7, 8, 70].iter().map(|n| tally.ended_ns - (first_ns + n * INTERVAL_NS)).sum();
    // A look for frames begins when the next is sent: 20 and 40 wait for those of 22 and 42.
    let late = 2 * (2 * INTERVAL_NS + SEND_NS + RECEIVE_NS) + SEND_NS + 1_000_010 + RECEIVE_NS;
    assert_eq!(waits.sum_ns, lost + late);
}

#[test]
fn a_frame_still_on_its_way_at_the_end_of_a_cell_is_lost_there_and_a_stray_in_the_next() {
    // 29 comes back in the next cell, which begins with 30; 45 comes back in its own.
    let answers_ns = vec![(29, vec![2_500_000]), (45, vec![1_500_000])];
    let (slices, _) = told(Story { answers_ns, turns: vec![30], last: 59, ..Story::default() });
    let (first, of_first) = sum(&slices, 0);
    adds_up(&first, &of_first);
    assert_eq!((first.planned, first.missed, of_first.lost, of_first.late), (30, 1, 1, 0));
    let second = slices.iter().filter(|slice| slice.scope != Scope::Cell(0));
    let strays: u64 = second.filter_map(|s| s.frames.as_ref()).map(|f| f.strays).sum();
    assert_eq!(strays, 1);
}

#[test]
fn a_shorter_timeout_makes_the_same_frame_late() {
    let story = |timeout_ns| Story {
        answers_ns: vec![(10, vec![300_000]), (11, vec![600_000])],
        timeout_ns,
        ..Story::default()
    };
    for (timeout_ns, late) in [(INTERVAL_NS, 0), (500_000, 1), (200_000, 2)] {
        let (slices, _) = told(story(timeout_ns));
        let (slice, frames) = sum(&slices, 0);
        adds_up(&slice, &frames);
        assert_eq!((slice.missed, frames.late, frames.lost), (late, late, 0), "{timeout_ns}");
    }
}

#[test]
fn a_thread_that_is_held_up_sends_late_or_not_at_all() {
    // Held up by 3.4 cycles before it sends frame 20: that one is late when it is sent, and two more are swallowed;
    // the cycle after them can still be sent.
    let at_ns = beat().first_ns + 20 * INTERVAL_NS;
    let (slices, tally) =
        told(Story { pauses: vec![(at_ns, 3_400_000)], last: 50, ..Story::default() });
    let (slice, frames) = sum(&slices, 0);
    assert!(slice.adds_up());
    assert_eq!(slice.planned, slice.recorded + slice.missed);
    // 20 was sent after its timeout and is late; 21 and 22 were never sent.
    assert_eq!((frames.sent, frames.late, frames.lost), (slice.planned - 2, 1, 0));
    assert_eq!(slice.missed, 3);
    assert_eq!(tally.wakeups, slice.recorded);
    // 23 was sent 400 us late, which is a part of its latency.
    let wake_up = frames.parts.iter().find(|part| part.part == FramePart::WakeUp).expect("parts");
    // The answer to 20 is read before its own.
    assert_eq!(slice.max_ns, wake_up.extent.max_ns + USUAL_NS + RECEIVE_NS - SEND_NS);
    assert!((400_000..500_000).contains(&wake_up.extent.max_ns), "{wake_up:?}");
}

#[test]
fn a_silent_wire_leaves_slices_that_say_so() {
    let answers_ns = (0..100).map(|number| (number, Vec::new())).collect();
    let (slices, tally) = told(Story { answers_ns, ..Story::default() });
    let (slice, frames) = sum(&slices, 0);
    adds_up(&slice, &frames);
    assert_eq!((slice.planned, slice.recorded, slice.missed), (100, 0, 100));
    assert_eq!((frames.sent, frames.lost, tally.wakeups), (100, 100, 0));
    assert!(slices.iter().all(|slice| slice.frames.is_some()), "no thread was unanswered");
}

proptest! {
    /// Whatever becomes of frames, each is counted once.
    #[test]
    fn every_frame_is_counted_once(
        fates in proptest::collection::vec((0u64..6, 0u64..3_000_000), 60),
        timeout_ns in 100_000u64..INTERVAL_NS,
        pauses in proptest::collection::vec((0u64..60, 0u64..4_000_000), 0..5),
    ) {
        let answers = |(kind, after_ns): &(u64, u64)| match kind {
            0 => vec![],
            1 => vec![*after_ns],
            2 => vec![WIRE_NS, *after_ns],
            _ => vec![WIRE_NS],
        };
        let mut pauses: Vec<(u64, u64)> =
            pauses.iter().map(|(n, ns)| (beat().first_ns + n * INTERVAL_NS, *ns)).collect();
        pauses.sort_unstable();
        let answers_ns = (0..).zip(fates.iter().map(answers)).collect();
        let (slices, tally) = told(Story { answers_ns, timeout_ns, pauses, last: 59, ..Story::default() });
        let of_cell: Vec<Slice> =
            slices.iter().filter(|slice| slice.scope == Scope::Cell(0)).cloned().collect();
        let (slice, frames) = sum(&of_cell, 0);
        prop_assert!(slice.adds_up());
        prop_assert_eq!(frames.sent, slice.recorded + frames.late + frames.lost);
        prop_assert!(frames.sent <= slice.planned);
        prop_assert_eq!(tally.wakeups, slice.recorded);
    }
}
