//! What goes beyond the figures of each phase: coverage of the maximum, humps, return levels and why
//! there are none.

use rtscope_model::time::Rounding;

use crate::{
    judgement::{CellSummary, Judgement},
    plot::{NO_LATENCY, table::Table},
    statistics::{
        modes,
        tail::{self, Fit, TailEstimate},
    },
};

#[derive(Debug)]
pub(super) struct TailView {
    pub(super) headline: String,
    pub(super) cells: Vec<CellView>,
    /// What holds of every level.
    pub(super) indicative: &'static str,
    /// The fits and checks behind the statements.
    pub(super) table: Table,
}

#[derive(Debug)]
pub(super) struct CellView {
    pub(super) name: String,
    pub(super) coverage: String,
    pub(super) modes: String,
    /// Each statement on the tail, or why there is none.
    pub(super) sentences: Vec<String>,
}

impl TailView {
    pub(super) fn new(judgement: &Judgement) -> TailView {
        let cells: Vec<&CellSummary> =
            judgement.cells.iter().filter(|cell| cell.all.recorded > 0).collect();
        let fitted =
            |cell: &&&CellSummary| cell.tail.maxima.fit.is_some() || cell.tail.peaks.fit.is_some();
        let headline = match (cells.iter().filter(fitted).count(), cells.len()) {
            (_, 0) => NO_LATENCY.to_owned(),
            (0, _) => "No phase allows tail extrapolation".to_owned(),
            (n, all) if n == all => "Extrapolated tail of the latency".to_owned(),
            (n, all) => format!("{n} of {all} phases allow tail extrapolation"),
        };
        let mut table = Table::new([
            "phase",
            "model",
            "fitted to",
            "location",
            "scale",
            "shape",
            "95 % of the shape",
            "fit, p",
        ]);
        for cell in &cells {
            row(&mut table, cell, "block maxima", &cell.tail.maxima);
            row(&mut table, cell, "peaks over threshold", &cell.tail.peaks);
        }
        let checks: Vec<String> = cells
            .iter()
            .filter(|cell| !cell.tail.checks.is_empty())
            .map(|cell| {
                let texts: Vec<&str> = cell.tail.checks.iter().map(|c| c.text.as_str()).collect();
                format!("{}: {}.", cell.name, texts.join("; "))
            })
            .collect();
        table.note = checks.join(" ");
        let cells = cells.into_iter().map(cell_view).collect();
        TailView { headline, cells, indicative: tail::INDICATIVE, table }
    }
}

fn cell_view(cell: &CellSummary) -> CellView {
    let sentence = |text: String| super::sentence(&text);
    CellView {
        name: cell.name.clone(),
        coverage: sentence(cell.all.coverage_sentence()),
        modes: sentence(modes::sentence(&cell.modes)),
        sentences: cell.tail.sentences().into_iter().map(sentence).collect(),
    }
}

fn row(table: &mut Table, cell: &CellSummary, model: &str, estimate: &TailEstimate) {
    let Some(fit) = &estimate.fit else { return };
    let Fit { fitted_to, location_ns, scale_ns, shape, shape_low, shape_high, goodness, .. } = fit;
    let end = |end: &Option<f64>, rounding: Rounding| match end {
        Some(end) => format!("{:.2}", rounding.decimals(*end, 2)),
        None => "no bound".to_owned(),
    };
    let us = |ns: &f64| format!("{:.2} us", ns / 1e3);
    table.row([
        cell.name.clone(),
        model.to_owned(),
        fitted_to.to_string(),
        us(location_ns),
        us(scale_ns),
        format!("{shape:.3}"),
        format!("{} to {}", end(shape_low, Rounding::Down), end(shape_high, Rounding::Up)),
        goodness.map_or_else(|| "not known".to_owned(), |p| format!("{p:.3}")),
    ]);
}
