//! What became of the frames of a network sampler, and how long the parts of their way took.

use super::{PlotView, plot_view};
use crate::{
    judgement::{CellSummary, Judgement},
    number::{counted, grouped},
    plot::{PlotKind, Scene, frame_parts, table::Table},
};

#[derive(Debug)]
pub(super) struct FramesView {
    pub(super) headline: String,
    /// What became of them, phase by phase.
    pub(super) counts: Table,
    /// How long each part of their way took.
    pub(super) parts: PlotView,
}

impl FramesView {
    /// None where no frame was sent.
    pub(super) fn new(judgement: &Judgement, scene: &Scene<'_>) -> Option<FramesView> {
        let cells: Vec<&CellSummary> =
            judgement.cells.iter().filter(|cell| cell.all.frames.is_some()).collect();
        let first = cells.first()?.all.frame_counts()?;
        let names = std::iter::once("phase").chain(first.iter().map(|count| count.name));
        let mut counts = Table::new(names);
        for cell in &cells {
            let row = cell.all.frame_counts().into_iter().flatten().map(|one| grouped(one.count));
            counts.row(std::iter::once(cell.name.clone()).chain(row));
        }
        let parts = plot_view(PlotKind::FrameParts, scene, frame_parts::PAGE_WIDTH);
        Some(FramesView { headline: headline(&cells), counts, parts })
    }
}

fn headline(cells: &[&CellSummary]) -> String {
    let sum = |of: fn(&CellSummary) -> u64| cells.iter().map(|cell| of(cell)).sum::<u64>();
    let sent = sum(|cell| cell.all.frames.as_ref().map_or(0, |frames| frames.sent));
    let (late, lost) = (
        sum(|cell| cell.all.frames.as_ref().map_or(0, |frames| frames.late)),
        sum(|cell| cell.all.frames.as_ref().map_or(0, |frames| frames.lost)),
    );
    match (late, lost) {
        (0, 0) => format!("Each of {} came back in its cycle", counted(sent, "frame")),
        _ => format!(
            "Of {}, {} were late and {} lost",
            counted(sent, "frame"),
            grouped(late),
            grouped(lost)
        ),
    }
}
