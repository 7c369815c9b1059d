//! The figures of each phase and thread, measured and corrected.

use rtscope_model::{event::EndReason, histogram::Histogram, verdict::Statistic};

use crate::{
    judgement::{CellSummary, Judgement, Row},
    number::{grouped, us},
    plot::words::{cut, time},
    statistics::quantile::{self, LADDER, Quantile},
};

/// Rows up to which each phase lists its threads in sight.
const OPEN_ROWS: usize = 40;

/// The section of figures.
#[derive(Debug)]
pub(super) struct FiguresView {
    pub(super) headline: String,
    pub(super) quantiles: Vec<String>,
    pub(super) cells: Vec<CellView>,
    /// Whether the threads of a phase are in sight, or behind a line to open.
    pub(super) open: bool,
    pub(super) corrected: bool,
}

/// A phase.
#[derive(Debug)]
pub(super) struct CellView {
    pub(super) name: String,
    pub(super) remark: String,
    /// How much wake-ups depend on each other.
    pub(super) dependence: String,
    pub(super) all: RowView,
    pub(super) corrected: Option<RowView>,
    /// Intervals if wake-ups were independent, where they differ.
    pub(super) independent: Option<RowView>,
    pub(super) threads: Vec<RowView>,
}

/// A row of figures.
#[derive(Debug)]
pub(super) struct RowView {
    pub(super) class: &'static str,
    pub(super) label: String,
    pub(super) counts: Vec<String>,
    pub(super) latencies: Vec<Figure>,
}

/// A latency in microseconds, and its 95 % interval.
#[derive(Debug, Default)]
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
        FiguresView {
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
            quantiles: LADDER.iter().map(|&parts| Statistic::Quantile(parts).to_string()).collect(),
            cells: judgement.cells.iter().map(cell_view).collect(),
            open: rows <= OPEN_ROWS,
            corrected: judgement.cells.iter().any(|cell| is_corrected(&cell.all)),
        }
    }
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
    CellView {
        name: cell.name.clone(),
        remark: format!("{}, {duration}, {ended}", cut(&loads, 60)),
        all: row_view("all", "all", &cell.all),
        dependence: dependence(cell),
        corrected: corrected_view(&cell.all),
        independent: independent_view(&cell.all),
        threads: cell
            .threads
            .iter()
            .flat_map(|row| [Some(row_view("", &row.label, row)), corrected_view(row)])
            .flatten()
            .collect(),
    }
}

/// Whether the missed activations change what is said about the latencies.
fn is_corrected(row: &Row) -> bool {
    row.corrected != row.histogram
}

fn row_view(class: &'static str, label: &str, row: &Row) -> RowView {
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
    let latencies = LADDER.iter().map(|&parts| quantile(parts));
    RowView {
        class,
        label: label.to_owned(),
        counts: counts.into(),
        latencies: around(row, &row.histogram, latencies),
    }
}

fn interval(quantile: &Quantile) -> String {
    match (quantile.low_ns, quantile.high_ns) {
        (Some(low), Some(high)) => format!("{}\u{2013}{}", us(low), us(high)),
        (Some(low), None) => format!("from {}", us(low)),
        (None, Some(high)) => format!("up to {}", us(high)),
        (None, None) => String::new(),
    }
}

/// How much the wake-ups of a phase depend on each other, in words; empty when they don't.
fn dependence(cell: &CellSummary) -> String {
    super::sentence(&cell.dependence_clauses().join("; "))
}

/// The intervals that independent wake-ups would have.
fn independent_view(row: &Row) -> Option<RowView> {
    let figure = |quantile: &Quantile| {
        let found = quantile::of(&row.histogram, quantile.parts);
        let value = found.as_ref().map_or_else(String::new, interval);
        Figure { value, ..Figure::default() }
    };
    let figures: Vec<Figure> = row.quantiles.iter().map(figure).collect();
    let honest = row.quantiles.iter().map(interval);
    if figures.iter().map(|figure| figure.value.as_str()).eq(honest) {
        return None;
    }
    let blank = std::iter::repeat_with(Figure::default);
    let figures = blank.take(2).chain(figures).chain(blank.take(1));
    Some(RowView {
        class: "corrected",
        label: "if wake-ups were independent".to_owned(),
        counts: vec![String::new(); 4],
        latencies: figures.collect(),
    })
}

fn corrected_view(row: &Row) -> Option<RowView> {
    if !is_corrected(row) {
        return None;
    }
    let histogram = &row.corrected;
    let value = |parts: u32| Figure {
        value: quantile::of(histogram, parts).map_or_else(String::new, |q| us(q.value_ns)),
        ..Figure::default()
    };
    Some(RowView {
        class: "corrected",
        label: "corrected".to_owned(),
        counts: vec![String::new(); 4],
        latencies: around(row, histogram, LADDER.iter().map(|&parts| value(parts))),
    })
}

/// Minimum and mean before the quantiles, the maximum after them; with what they are below, where another tool
/// cut them.
fn around(
    row: &Row,
    histogram: &Histogram,
    quantiles: impl Iterator<Item = Figure>,
) -> Vec<Figure> {
    let exact = |ns: Option<u64>, below_ns: Option<u64>| Figure {
        value: ns.map_or_else(|| "-".to_owned(), us),
        interval: below_ns.map_or_else(String::new, |below_ns| format!("below {}", us(below_ns))),
        ..Figure::default()
    };
    let max = match row.max_ns() {
        Some(max_ns) if row.max_is_at_least() => format!("≥{}", us(max_ns)),
        _ => histogram.max_ns().map_or_else(|| "-".to_owned(), us),
    };
    let mean_below_ns = row.mean_below_ns().map(|ns| ns.round() as u64);
    let mean_ns = histogram.mean_ns().map(|mean_ns| mean_ns.round() as u64);
    [exact(histogram.min_ns(), None), exact(mean_ns, mean_below_ns)]
        .into_iter()
        .chain(quantiles)
        .chain([Figure { value: max, ..exact(None, row.max_below_ns()) }])
        .collect()
}
