//! What became of the frames of a network sampler, and how long the parts of their way took.

use super::style::Style;
use crate::{
    judgement::{CellSummary, Judgement},
    number::grouped,
    statistics::frames::table_of_parts,
};

/// Cells up to which the parts are shown; a matrix may have hundreds.
const CELLS_TOLD: usize = 6;

/// The section; empty where no frame was sent.
pub(super) fn frames(judgement: &Judgement, style: Style) -> String {
    let cells: Vec<&CellSummary> =
        judgement.cells.iter().filter(|cell| cell.all.frames.is_some()).collect();
    if cells.is_empty() {
        return String::new();
    }
    let mut text = "Frames\n".to_owned();
    for cell in &cells {
        text += &style.paragraph("  ", 4, &format!("{}: {}", cell.name, counts(cell)));
    }
    if cells.len() > CELLS_TOLD {
        return text + "  the report has the parts of the round trip in each phase\n";
    }
    text + "\nParts of the round trip in us\n" + &parts(&cells)
}

/// `5,000 cycles, 5,000 sent, 4,990 back in time, 3 late, 7 lost`.
fn counts(cell: &CellSummary) -> String {
    let always = ["planned", "sent", "in_time", "late", "lost"];
    let counts = cell.all.frame_counts().into_iter().flatten();
    let shown = counts.filter(|one| one.count > 0 || always.contains(&one.key));
    shown.map(|one| format!("{} {}", grouped(one.count), one.name)).collect::<Vec<_>>().join(", ")
}

fn parts(cells: &[&CellSummary]) -> String {
    let rows =
        cells.iter().filter_map(|cell| Some((cell.name.as_str(), cell.all.frames.as_ref()?)));
    let table = table_of_parts(rows);
    let columns = 1..table.head.len();
    let width = |n: usize| {
        let cells = table.rows.iter().map(|row| row[n].chars().count());
        cells.chain([table.head[n].chars().count()]).max().unwrap_or(0)
    };
    let line = |row: &[String]| {
        let cells = columns.clone().map(|n| match n {
            1 => format!("    {:<1$}", row[1], width(1)),
            n => format!("  {:>1$}", row[n], width(n)),
        });
        cells.collect::<String>() + "\n"
    };
    let mut head = table.head.clone();
    head[1].clear();
    let mut text = line(&head);
    let mut name = "";
    for row in &table.rows {
        if row[0] != name {
            name = &row[0];
            text += &format!("  {name}\n");
        }
        text += &line(row);
    }
    text
}
