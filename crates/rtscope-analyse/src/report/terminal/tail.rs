//! What goes beyond the figures: what the maximum covers, humps, and how the latency may go on.

use super::style::Style;
use crate::{
    judgement::{CellSummary, Judgement},
    statistics::{modes, tail},
};

/// Cells up to which each is told about; a matrix may have hundreds.
const CELLS_TOLD: usize = 4;

/// The section; empty when nothing was recorded.
pub(super) fn tail(judgement: &Judgement, style: Style) -> String {
    let told: Vec<&CellSummary> =
        judgement.cells.iter().filter(|cell| cell.all.recorded > 0).collect();
    if told.is_empty() {
        return String::new();
    }
    let mut text = "Beyond the figures\n".to_owned();
    if told.len() > CELLS_TOLD {
        let more = "  the report has the coverage of the maxima, modes and tails\n";
        return text + more;
    }
    told.iter().for_each(|cell| text += &of_cell(cell, style));
    if told.iter().any(|cell| cell.tail.has_levels()) {
        text += &style.paragraph("", 0, tail::INDICATIVE);
    }
    if told.iter().all(|cell| cell.tail.is_too_short()) {
        text += &style.paragraph("", 0, &tail::takes_longer());
    }
    text
}

fn of_cell(cell: &CellSummary, style: Style) -> String {
    let mut sentences = vec![cell.all.coverage_sentence(), modes::sentence(&cell.modes)];
    if !cell.tail.is_too_short() {
        sentences.extend(cell.tail.sentences());
    }
    let lines = sentences.iter().map(|sentence| style.paragraph("    ", 4, sentence));
    format!("  {}\n", cell.name) + &lines.collect::<String>()
}
