//! What a network sampler counts besides latencies: what became of each frame, and how long each part of its way took.

use serde::{Deserialize, Serialize};

use crate::{
    histogram::{Bin, Layout, add_bins},
    slice::Extent,
};

/// The buckets of a part of the way: to within 3 %, from nanoseconds on.
pub const PART_LAYOUT: Layout = Layout { unit_ns: 1, exact: 64 };

/// A part of a frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FramePart {
    /// From the start of the cycle until the thread is about to send.
    WakeUp,
    /// From then until the kernel hands the frame to the network card's driver.
    Send,
    /// From there until the kernel has the answer: both drivers, the wire and the peer.
    Wire,
    /// From when the card sends the frame until it receives the answer, by the card's own clock.
    Card,
    /// From when the kernel has the answer until the thread has read it: the protocol stack and the thread's wake-up.
    Receive,
    /// From when the thread is about to send until it has read the answer.
    RoundTrip,
}

impl FramePart {
    /// Every part, in the order of the way.
    pub const ALL: [FramePart; 6] = [
        FramePart::WakeUp,
        FramePart::Send,
        FramePart::Wire,
        FramePart::Card,
        FramePart::Receive,
        FramePart::RoundTrip,
    ];

    /// Its place in [`FramePart::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FramePart::WakeUp => "wake-up at the start of the cycle",
            FramePart::Send => "send path",
            FramePart::Wire => "drivers, wire and peer",
            FramePart::Card => "wire and peer, by the card",
            FramePart::Receive => "receive path and wake-up",
            FramePart::RoundTrip => "round trip",
        }
    }

    /// The key in JSON documents and CSV.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            FramePart::WakeUp => "wake_up",
            FramePart::Send => "send",
            FramePart::Wire => "wire",
            FramePart::Card => "card",
            FramePart::Receive => "receive",
            FramePart::RoundTrip => "round_trip",
        }
    }
}

/// Frames of one thread in one slice.
///
/// Of a whole cell `sent = recorded + late + lost`, where `recorded` is that of the slices; what is planned and was not
/// sent was swallowed by a late wake-up. In a single slice it may be off by the frames that were on their way at its
/// ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frames {
    /// Handed to the kernel.
    pub sent: u64,
    /// Came back after the timeout.
    pub late: u64,
    /// Had not come back when their phase ended, or for so long that nobody waits any more.
    pub lost: u64,
    /// Came back after a frame that was sent later.
    #[serde(skip_serializing_if = "is_zero")]
    pub out_of_order: u64,
    /// Came back once more.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Frames that are not ours, damaged, or from a phase that had ended.
    #[serde(skip_serializing_if = "is_zero")]
    pub strays: u64,
    /// Of those sent, frames that the kernel refused: they count as lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: u64,
    /// The parts of the way of frames that came back in time.
    pub parts: Vec<PartCounts>,
}

/// How long a part of the way took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartCounts {
    pub part: FramePart,
    /// Buckets of [`PART_LAYOUT`]: `[bucket, count]`, ascending.
    pub bins: Vec<Bin>,
    pub extent: Extent,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Frames {
    /// Adds those of the slice that follows.
    pub fn absorb(&mut self, next: &Frames) {
        for (own, more) in [
            (&mut self.sent, next.sent),
            (&mut self.late, next.late),
            (&mut self.lost, next.lost),
            (&mut self.out_of_order, next.out_of_order),
            (&mut self.duplicates, next.duplicates),
            (&mut self.strays, next.strays),
            (&mut self.refused, next.refused),
        ] {
            *own = own.saturating_add(more);
        }
        for part in &next.parts {
            match self.parts.iter_mut().find(|own| own.part == part.part) {
                Some(own) => own.absorb(part),
                None => self.parts.push(part.clone()),
            }
        }
        self.parts.sort_by_key(|counts| counts.part);
    }

    /// Memory of its buckets, in numbers of buckets.
    #[must_use]
    pub fn bins(&self) -> usize {
        self.parts.iter().map(|part| part.bins.len()).sum()
    }
}

impl PartCounts {
    fn absorb(&mut self, next: &PartCounts) {
        if next.bins.is_empty() {
            return;
        }
        let is_first = self.bins.is_empty();
        let (own, new) = (self.extent, next.extent);
        self.extent = Extent {
            min_ns: if is_first { new.min_ns } else { own.min_ns.min(new.min_ns) },
            max_ns: own.max_ns.max(new.max_ns),
            sum_ns: own.sum_ns.saturating_add(new.sum_ns),
        };
        add_bins(&mut self.bins, &next.bins);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(part: FramePart, ns: u64, count: u64) -> PartCounts {
        let extent = Extent { min_ns: ns, max_ns: ns, sum_ns: ns * count };
        PartCounts { part, bins: vec![(PART_LAYOUT.index(ns), count)], extent }
    }

    #[test]
    fn frames_of_slices_add_up_part_by_part() {
        let first = Frames {
            sent: 3,
            late: 1,
            parts: vec![one(FramePart::Send, 900, 2)],
            ..Frames::default()
        };
        let second = Frames {
            sent: 4,
            lost: 2,
            duplicates: 1,
            parts: vec![one(FramePart::WakeUp, 50, 1), one(FramePart::Send, 700, 1)],
            ..Frames::default()
        };
        let mut sum = first;
        sum.absorb(&second);
        assert_eq!((sum.sent, sum.late, sum.lost, sum.duplicates), (7, 1, 2, 1));
        let parts: Vec<FramePart> = sum.parts.iter().map(|counts| counts.part).collect();
        assert_eq!(parts, [FramePart::WakeUp, FramePart::Send]);
        assert_eq!(sum.parts[1].extent, Extent { min_ns: 700, max_ns: 900, sum_ns: 2_500 });
        assert_eq!(sum.parts[1].bins.iter().map(|bin| bin.1).sum::<u64>(), 3);
        assert_eq!(sum.bins(), 3);
    }

    #[test]
    fn frames_are_written_and_read_back() {
        let frames =
            Frames { sent: 1, parts: vec![one(FramePart::RoundTrip, 1, 1)], ..Frames::default() };
        let text = serde_json::to_string(&frames).expect("json");
        assert!(text.contains("\"round-trip\"") && !text.contains("duplicates"), "{text}");
        assert_eq!(serde_json::from_str::<Frames>(&text).expect("read"), frames);
    }

    #[test]
    fn every_part_has_its_place() {
        assert!(FramePart::ALL.iter().enumerate().all(|(i, part)| part.index() == i));
    }
}
