//! The figures of each phase and thread, measured and corrected.

use rtscope_model::{event::EndReason, histogram::Histogram, time::Rounding, verdict::Statistic};

use crate::{
    judgement::{CellSummary, FigureRow, Judgement},
    number::{grouped, us, us_rounded},
    plot::words::{cut, time},
    statistics::quantile::{self, LADDER, Quantile},
};

/// Rows up to which each phase lists its threads in sight.
const OPEN_ROWS: usize = 40;

#[derive(Debug)]
pub(super) struct FiguresView {
    pub(super) headline: String,
    /// Names of the columns. The first three decide: where there is no room, the others are folded away.
    pub(super) columns: Vec<String>,
    pub(super) cells: Vec<CellView>,
    /// Whether the threads of a phase are in sight, or behind a line to open.
    pub(super) open: bool,
    pub(super) corrected: bool,
}

#[derive(Debug)]
pub(super) struct CellView {
    pub(super) name: String,
    pub(super) remark: String,
    /// How much wake-ups depend on each other.
    pub(super) dependence: String,
    /// All threads; none when the phase did not start.
    pub(super) all: Option<RowView>,
    pub(super) corrected: Option<RowView>,
    /// Intervals if wake-ups were independent, where they differ.
    pub(super) independent: Option<RowView>,
    pub(super) threads: Vec<RowView>,
}

#[derive(Debug)]
pub(super) struct RowView {
    pub(super) class: &'static str,
    pub(super) label: String,
    /// A figure for each column, in their order.
    pub(super) figures: Vec<Figure>,
}

/// A count, or a latency in microseconds with its 95 % interval.
#[derive(Clone, Debug, Default)]
pub(super) struct Figure {
    pub(super) value: String,
    pub(super) interval: String,
    /// Whether the run is too short to bound it.
    pub(super) thin: bool,
}

impl FiguresView {
    pub(super) fn new(judgement: &Judgement) -> FiguresView {
        let rows: usize = judgement.cells.iter().map(|cell| cell.threads.len() + 1).sum();
        let planned: u64 = judgement.cells.iter().map(|cell| cell.all.planned).sum();
        let recorded: u64 = judgement.cells.iter().map(|cell| cell.all.recorded).sum();
        let missed: u64 = judgement.cells.iter().map(|cell| cell.all.missed).sum();
        let is_known = judgement.cells.iter().all(|cell| cell.all.missed_is_known);
        let imported =
            format!("{} latencies were imported: what was missed is not known", grouped(recorded));
        let mut view = FiguresView {
            headline: if !is_known {
                imported
            } else {
                format!(
                    "{} activations were planned: {} recorded, {} missed",
                    grouped(planned),
                    grouped(recorded),
                    grouped(missed)
                )
            },
            columns: columns(),
            cells: judgement.cells.iter().map(cell_view).collect(),
            open: rows <= OPEN_ROWS,
            corrected: judgement.cells.iter().any(|cell| is_corrected(&cell.all)),
        };
        view.leave_out_empty_columns();
        view
    }

    /// Leaves out columns without a figure in any row, but none of those that decide.
    fn leave_out_empty_columns(&mut self) {
        for n in (DECIDING_COLUMNS..self.columns.len()).rev() {
            let is_empty = |row: &mut RowView| row.figures[n].is_empty();
            if self.cells.iter_mut().flat_map(CellView::rows).all(is_empty) {
                self.columns.remove(n);
                let rows = self.cells.iter_mut().flat_map(CellView::rows);
                rows.for_each(|row| drop(row.figures.remove(n)));
            }
        }
    }
}

impl CellView {
    fn rows(&mut self) -> impl Iterator<Item = &mut RowView> {
        let more = self.corrected.iter_mut().chain(&mut self.independent);
        self.all.iter_mut().chain(more).chain(&mut self.threads)
    }
}

/// The quantile that decides beside the maximum and what was missed.
const DECIDING: u32 = 999_000_000;

/// How many columns decide: the maximum, what was missed, and that quantile.
const DECIDING_COLUMNS: usize = 3;

/// The other quantiles.
fn folded() -> impl Iterator<Item = u32> {
    LADDER.into_iter().filter(|&parts| parts != DECIDING)
}

fn columns() -> Vec<String> {
    let quantile = |parts: u32| Statistic::Quantile(parts).to_string();
    let mut columns = vec!["max".to_owned(), "missed".to_owned(), quantile(DECIDING)];
    columns.extend(folded().map(quantile));
    columns.extend(["mean", "min", "recorded", "planned", "over\u{ad}flow"].map(str::to_owned));
    columns
}

/// The figures of a row in the order of [`columns`]: planned, recorded, missed and overflow; minimum and mean; the
/// quantiles of the ladder; the maximum.
fn in_order(
    [planned, recorded, missed, overflow]: [Figure; 4],
    [min, mean]: [Figure; 2],
    quantile: impl Fn(u32) -> Figure,
    max: Figure,
) -> Vec<Figure> {
    let mut figures = vec![max, missed, quantile(DECIDING)];
    figures.extend(folded().map(quantile));
    figures.extend([mean, min, recorded, planned, overflow]);
    figures
}

fn cell_view(cell: &CellSummary) -> CellView {
    let loads: Vec<&str> = cell.loads.iter().map(|load| load.line.as_str()).collect();
    let loads = match loads.is_empty() {
        true if !cell.all.missed_is_known => "load not known".to_owned(),
        true => "no load".to_owned(),
        false => loads.join(" + "),
    };
    let ended = match cell.ended {
        None if !cell.all.missed_is_known => "imported",
        None if cell.all.planned == 0 => "did not start",
        None => "cut short",
        Some(EndReason::Interrupted) => "interrupted",
        Some(EndReason::Failed) => "failed",
        Some(EndReason::Break) => "stopped by a latency above the break threshold",
        Some(_) => "complete",
    };
    let duration = match (cell.duration_ns, cell.all.recorded) {
        (0, 1..) => "duration not known".to_owned(),
        (ns, _) => time(ns),
    };
    let has_figures = cell.all.planned > 0 || cell.all.recorded > 0;
    CellView {
        name: cell.name.clone(),
        remark: format!("{}, {duration}, {ended}", cut(&loads, 60)),
        all: has_figures.then(|| row_view("all", "all", &cell.all)),
        dependence: dependence(cell),
        corrected: corrected_view(&cell.all),
        independent: independent_view(&cell.all),
        threads: cell
            .threads
            .iter()
            .filter(|_| has_figures)
            .flat_map(|row| [Some(row_view("", &row.label, row)), corrected_view(row)])
            .flatten()
            .collect(),
    }
}

/// Whether the missed activations change what is said about the latencies.
fn is_corrected(row: &FigureRow) -> bool {
    row.corrected != row.histogram
}

fn row_view(class: &'static str, label: &str, row: &FigureRow) -> RowView {
    let known = |count: u64| {
        if row.missed_is_known { grouped(count) } else { "\u{2013}".to_owned() }
    };
    let counts = [
        known(row.planned),
        grouped(row.recorded),
        known(row.missed),
        grouped(row.histogram.overflow()),
    ];
    let quantile = |parts: u32| {
        let Some(q) = row.quantiles.iter().find(|q| q.parts == parts) else {
            return Figure::default();
        };
        Figure { value: us(q.value_ns), interval: interval(q), thin: q.high_ns.is_none() }
    };
    let (ends, max) = around(row, &row.histogram);
    RowView {
        class,
        label: label.to_owned(),
        figures: in_order(counts.map(Figure::plain), ends, quantile, max),
    }
}

impl Figure {
    fn is_empty(&self) -> bool {
        self.value.is_empty() && self.interval.is_empty()
    }

    /// A value without an interval.
    fn plain(value: String) -> Figure {
        Figure { value, ..Figure::default() }
    }
}

fn interval(quantile: &Quantile) -> String {
    let low = quantile.low_ns.map(|ns| us_rounded(ns, Rounding::Down));
    let high = quantile.high_ns.map(|ns| us_rounded(ns, Rounding::Up));
    match (low, high) {
        (Some(low), Some(high)) => format!("{low}\u{2013}{high}"),
        (Some(low), None) => format!("from {low}"),
        (None, Some(high)) => format!("up to {high}"),
        (None, None) => String::new(),
    }
}

/// How much the wake-ups of a phase depend on each other, in words; empty when they don't.
fn dependence(cell: &CellSummary) -> String {
    super::sentence(&cell.dependence_clauses().join("; "))
}

/// The intervals that independent wake-ups would have.
fn independent_view(row: &FigureRow) -> Option<RowView> {
    let independent = |parts: u32| {
        let known = row.quantiles.iter().any(|q| q.parts == parts);
        let found = known.then(|| quantile::estimate(&row.histogram, parts)).flatten();
        found.as_ref().map_or_else(String::new, interval)
    };
    if row.quantiles.iter().all(|q| independent(q.parts) == interval(q)) {
        return None;
    }
    let quantile = |parts: u32| Figure { interval: independent(parts), ..Figure::default() };
    Some(RowView {
        class: "corrected",
        label: "if wake-ups were independent".to_owned(),
        figures: in_order(Default::default(), Default::default(), quantile, Figure::default()),
    })
}

fn corrected_view(row: &FigureRow) -> Option<RowView> {
    if !is_corrected(row) {
        return None;
    }
    let value = |parts: u32| {
        let quantile = quantile::estimate(&row.corrected, parts);
        Figure::plain(quantile.map_or_else(String::new, |q| us(q.value_ns)))
    };
    let (ends, max) = around(row, &row.corrected);
    Some(RowView {
        class: "corrected",
        label: "corrected".to_owned(),
        figures: in_order(Default::default(), ends, value, max),
    })
}

/// Minimum and mean, and the maximum; with what they are below, where another tool cut them.
fn around(row: &FigureRow, histogram: &Histogram) -> ([Figure; 2], Figure) {
    let exact = |ns: Option<u64>, below_ns: Option<u64>| Figure {
        value: ns.map_or_else(|| "-".to_owned(), us),
        interval: below_ns.map_or_else(String::new, |below_ns| format!("below {}", us(below_ns))),
        ..Figure::default()
    };
    let max = match row.max_ns() {
        Some(max_ns) if row.max_is_at_least() => {
            format!("≥{}", us_rounded(max_ns, Rounding::Down))
        }
        _ => histogram.max_ns().map_or_else(|| "-".to_owned(), us),
    };
    let mean_below_ns = row.mean_below_ns().map(|ns| ns.round() as u64);
    let mean_ns = histogram.mean_ns().map(|mean_ns| mean_ns.round() as u64);
    let ends = [exact(histogram.min_ns(), None), exact(mean_ns, mean_below_ns)];
    (ends, Figure { value: max, ..exact(None, row.max_below_ns()) })
}
