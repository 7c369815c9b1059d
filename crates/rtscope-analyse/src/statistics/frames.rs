//! What a network sampler counted, of a row of figures: what became of the frames, and how long the parts took.

use rtscope_model::{
    frames::{FramePart, Frames, PART_LAYOUT},
    histogram::Histogram,
};

use crate::{judgement::FigureRow, plot::table::Table};

/// The frames of a row, as counts with their names.
#[derive(Clone, Copy, Debug)]
pub struct FrameCount {
    pub key: &'static str,
    pub name: &'static str,
    pub count: u64,
}

impl FigureRow {
    /// Cycles in which no frame was sent: late wake-ups swallowed them, or no thread answered them.
    #[must_use]
    pub fn not_sent(&self) -> Option<u64> {
        let frames = self.frames.as_ref()?;
        Some(self.missed.saturating_sub(frames.late).saturating_sub(frames.lost))
    }

    /// What became of the cycles and frames of a network sampler; none of any other.
    #[must_use]
    pub fn frame_counts(&self) -> Option<[FrameCount; 10]> {
        let [sent, rest @ ..] = counts(self.frames.as_ref()?);
        let [late, lost, refused, out_of_order, duplicates, strays] = rest;
        let count = |key, name, count| FrameCount { key, name, count };
        Some([
            count("planned", "cycles", self.planned),
            count("not_sent", "not sent", self.not_sent().unwrap_or_default()),
            sent,
            count("in_time", "back in time", self.recorded),
            late,
            lost,
            refused,
            out_of_order,
            duplicates,
            strays,
        ])
    }
}

/// Keys of [`counts`].
pub const COUNTS: [&str; 7] =
    ["sent", "late", "lost", "refused", "out_of_order", "duplicates", "strays"];

/// What was counted of frames, in the order of [`COUNTS`].
#[must_use]
pub fn counts(frames: &Frames) -> [FrameCount; 7] {
    let each = [
        ("sent", frames.sent),
        ("late", frames.late),
        ("lost", frames.lost),
        ("refused by the kernel", frames.refused),
        ("out of order", frames.out_of_order),
        ("duplicates", frames.duplicates),
        ("strays", frames.strays),
    ];
    let mut keys = COUNTS.into_iter();
    each.map(|(name, count)| FrameCount { key: keys.next().unwrap_or_default(), name, count })
}

/// How long each part of the way took, in the order of the way.
pub fn parts(frames: &Frames) -> impl Iterator<Item = (FramePart, Histogram)> {
    frames.parts.iter().map(|counts| {
        let mut histogram = Histogram::new(PART_LAYOUT);
        let extent = counts.extent;
        histogram.add(&counts.bins, extent.min_ns, extent.max_ns, u128::from(extent.sum_ns));
        (counts.part, histogram)
    })
}

/// The quantiles that a table of parts shows.
const SHOWN: [(&str, u32); 3] =
    [("p50", 500_000_000), ("p99", 990_000_000), ("p99.9", 999_000_000)];

/// The parts as a table in microseconds.
#[must_use]
pub(crate) fn table_of_parts<'a>(rows: impl Iterator<Item = (&'a str, &'a Frames)>) -> Table {
    let head = ["phase", "part", "frames", "min", "mean"];
    let head = head.into_iter().chain(SHOWN.iter().map(|(name, _)| *name)).chain(["max"]);
    let mut table = Table::new(head);
    for (name, frames) in rows {
        for (part, histogram) in parts(frames) {
            let us = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), crate::number::us);
            let at = |parts| histogram.at_rank_ns(super::quantile::rank(histogram.count(), parts));
            let mean_ns = histogram.mean_ns().map(|ns| ns.round() as u64);
            let count = crate::number::grouped(histogram.count());
            let first = [name.to_owned(), part.name().to_owned(), count];
            let first = first.into_iter().chain([us(histogram.min_ns()), us(mean_ns)]);
            let quantiles = SHOWN.iter().map(|(_, parts)| us(at(*parts)));
            table.row(first.chain(quantiles).chain([us(histogram.max_ns())]));
        }
    }
    table
}
