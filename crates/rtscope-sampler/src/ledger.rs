//! What became of each frame that was sent: it came in time, late, twice, or not at all.
//!
//! The last [`FRAMES`] frames are remembered. One that comes back when it is forgotten, or when its cell has ended, is
//! a stray.

use crate::slot::Slot;

/// Frames that are remembered: at a cycle of 250 us, those of a second.
const FRAMES: usize = 4_096;

/// The reign of a frame whose cycle isn't over.
const NOT_YET: u32 = u32::MAX;

/// The frames of a thread. Made before its start, and of constant size.
#[derive(Debug)]
pub(crate) struct Ledger {
    frames: Box<[Entry]>,
    /// The number after the last one that was sent.
    next: u64,
    /// The largest number that came back.
    newest: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: FrameState,
    instant_ns: u64,
    /// Whose frame it is: known when its cycle is over.
    reign: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameState {
    /// On its way.
    Open,
    /// It came when its own cycle was just over: at this instant.
    JustLate(u64),
    /// It came back.
    Back,
    /// It counts as lost, or belongs to nobody.
    Closed,
}

impl Default for Ledger {
    fn default() -> Ledger {
        let none = Entry { state: FrameState::Closed, instant_ns: 0, reign: NOT_YET };
        Ledger { frames: vec![none; FRAMES].into_boxed_slice(), next: 0, newest: None }
    }
}

impl Ledger {
    #[inline]
    fn entry(&mut self, number: u64) -> &mut Entry {
        &mut self.frames[number as usize % FRAMES]
    }

    /// The frame with the next number is about to be sent, at an instant. The one that it takes the place of is lost if
    /// it is still on its way.
    #[inline]
    pub(crate) fn send(&mut self, number: u64, instant_ns: u64, now_ns: u64, slot: &mut Slot) {
        if self.entry(number).state == FrameState::Open {
            self.entry(number).lose(now_ns, slot);
        }
        *self.entry(number) = Entry { state: FrameState::Open, instant_ns, reign: NOT_YET };
        self.next = number + 1;
    }

    /// The cycle of the frame is over, and is counted in this slot; none when it is counted in no slot.
    #[inline]
    pub(crate) fn belongs(&mut self, number: u64, slot: Option<&mut Slot>) {
        let entry = self.entry(number);
        let Some(slot) = slot else {
            entry.state = FrameState::Closed;
            return;
        };
        entry.reign = slot.reign();
        if let FrameState::JustLate(at_ns) = entry.state {
            entry.come_late(at_ns, false, slot);
        }
    }

    /// A frame came back. True if it is the last that was sent, for the first time and before its cycle was over;
    /// everything else is counted in the slot in use.
    #[inline]
    pub(crate) fn arrive(
        &mut self,
        number: u64,
        is_in_time: bool,
        now_ns: u64,
        slot: &mut Slot,
    ) -> bool {
        let is_last = number + 1 == self.next;
        let is_known = number < self.next && number + FRAMES as u64 >= self.next;
        if !is_known {
            slot.count_frames(|frames| frames.strays += 1);
            return false;
        }
        let is_overtaken = self.newest.is_some_and(|newest| number < newest);
        self.newest = self.newest.max(Some(number));
        let entry = self.entry(number);
        match entry.state {
            FrameState::Open if is_last => {
                entry.state =
                    if is_in_time { FrameState::Back } else { FrameState::JustLate(now_ns) };
                return is_in_time;
            }
            FrameState::Open if entry.reign == slot.reign() => {
                entry.come_late(now_ns, is_overtaken, slot);
            }
            FrameState::Back if entry.reign == slot.reign() => {
                slot.count_frames(|frames| frames.duplicates += 1);
            }
            _ => slot.count_frames(|frames| frames.strays += 1),
        }
        false
    }

    /// Nobody waits for the frames of the slot's cell any more.
    #[cold]
    #[inline(never)]
    pub(crate) fn close(&mut self, slot: &mut Slot, now_ns: u64) {
        for entry in self.frames.iter_mut().filter(|entry| entry.state == FrameState::Open) {
            entry.lose(now_ns, slot);
        }
    }
}

impl Entry {
    #[cold]
    fn come_late(&mut self, now_ns: u64, is_overtaken: bool, slot: &mut Slot) {
        self.state = FrameState::Back;
        slot.resolve(now_ns.saturating_sub(self.instant_ns));
        slot.count_frames(|frames| {
            frames.late += 1;
            frames.out_of_order += u64::from(is_overtaken);
        });
    }

    /// It has waited until now at least.
    #[cold]
    fn lose(&mut self, now_ns: u64, slot: &mut Slot) {
        if self.reign == slot.reign() {
            self.state = FrameState::Closed;
            slot.resolve(now_ns.saturating_sub(self.instant_ns));
            slot.count_frames(|frames| frames.lost += 1);
        }
    }
}
