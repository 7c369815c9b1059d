//! The table of figures: a line for each thread and for all of a cell, in microseconds.

use rtscope_model::{
    event::EndReason,
    plan::{Phase, Plan},
    time::{Nanos, Rounding},
    verdict::Statistic,
};

use super::style::{Ink, Style};
use crate::{
    judgement::{CellSummary, FigureRow, Judgement, LoadSummary},
    number::{grouped, per_second, us, us_rounded},
    statistics::quantile::Quantile,
};

/// Cells up to which each thread has a line; of more, only all threads together.
const CELLS_IN_FULL: usize = 6;

/// Threads of a cell that have a line: the worst of more.
const THREADS_SHOWN: usize = 8;

/// The longest label that is shown whole.
const LABEL_MAX: usize = 32;

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Column {
    Recorded,
    Missed,
    Min,
    Mean,
    Quantile(u32),
    Max,
}

/// The columns in their order.
const COLUMNS: [Column; 9] = [
    Column::Recorded,
    Column::Missed,
    Column::Min,
    Column::Mean,
    Column::Quantile(500_000_000),
    Column::Quantile(990_000_000),
    Column::Quantile(999_000_000),
    Column::Quantile(999_900_000),
    Column::Max,
];

/// Columns that a narrow terminal does without, the first to go first.
const DISPENSABLE: [Column; 4] = [
    Column::Quantile(500_000_000),
    Column::Quantile(999_000_000),
    Column::Quantile(990_000_000),
    Column::Mean,
];

impl Column {
    fn heading(self) -> String {
        match self {
            Column::Recorded => "recorded".to_owned(),
            Column::Missed => "missed".to_owned(),
            Column::Min => "min".to_owned(),
            Column::Mean => "mean".to_owned(),
            Column::Quantile(parts) => Statistic::Quantile(parts).to_string(),
            Column::Max => "max".to_owned(),
        }
    }

    fn value(self, row: &FigureRow) -> String {
        let histogram = &row.histogram;
        let latency_ns = match self {
            Column::Recorded => return grouped(row.recorded),
            Column::Missed if !row.missed_is_known => return "-".to_owned(),
            Column::Missed => return grouped(row.missed),
            Column::Min => histogram.min_ns(),
            Column::Mean => histogram.mean_ns().map(|ns| ns.round() as u64),
            Column::Quantile(parts) => quantile_of(row, parts).map(|q| q.value_ns),
            Column::Max => row.max_ns(),
        };
        let below_ns = match self {
            Column::Mean => row.mean_below_ns().map(|ns| ns.round() as u64),
            Column::Max => row.max_below_ns(),
            _ => None,
        };
        match (latency_ns, below_ns) {
            (None, _) => "-".to_owned(),
            (Some(ns), _) if self == Column::Max && row.max_is_at_least() => {
                format!(">={}", us_rounded(ns, Rounding::Down))
            }
            (Some(ns), None) => us(ns),
            (Some(ns), Some(below_ns)) => format!("{} to {}", us(ns), us(below_ns)),
        }
    }

    /// A maximum shows whether it keeps the limit, a quantile whether it has an upper end.
    fn ink(self, row: &FigureRow, limit_ns: Option<u64>) -> Ink {
        match self {
            Column::Max => match (row.max_ns(), limit_ns) {
                (Some(max_ns), Some(limit_ns)) if max_ns >= limit_ns => Ink::Bad,
                (Some(_), Some(_)) => Ink::Good,
                _ => Ink::Strong,
            },
            Column::Missed if row.missed > 0 => Ink::Doubtful,
            Column::Quantile(parts) => match quantile_of(row, parts) {
                Some(Quantile { high_ns: None, .. }) => Ink::Faint,
                _ => Ink::Plain,
            },
            _ => Ink::Plain,
        }
    }
}

fn quantile_of(row: &FigureRow, parts: u32) -> Option<&Quantile> {
    row.quantiles.iter().find(|quantile| quantile.parts == parts)
}

/// A line of the table, before its columns are aligned.
enum Line<'a> {
    /// A cell's name and duration, above its threads.
    Cell(&'a CellSummary),
    /// What a load of the cell above achieved.
    Load(&'a LoadSummary),
    /// Threads that are not shown.
    More(usize),
    Figures {
        label: String,
        row: &'a FigureRow,
        limit_ns: Option<u64>,
    },
}

/// The table with its heading, at most as wide as the terminal.
pub(super) fn table(judgement: &Judgement, plan: &Plan, style: Style) -> String {
    let in_full = judgement.cells.len() <= CELLS_IN_FULL;
    let lines: Vec<Line> = judgement
        .cells
        .iter()
        .flat_map(
            |cell| if in_full { lines_of(judgement, cell) } else { one_line(judgement, cell) },
        )
        .collect();
    let labels = lines.iter().filter_map(|line| match line {
        Line::Figures { label, .. } => Some(label.chars().count()),
        _ => None,
    });
    let label_width = labels.max().unwrap_or(0);
    let columns = fitting(&lines, style.width.saturating_sub(label_width));
    let mut text = format!("{} in us\n{}", what(plan), " ".repeat(label_width));
    for (column, width) in &columns {
        text += &style.paint(Ink::Faint, &format!("{:>width$}", column.heading()));
    }
    text.push('\n');
    for line in &lines {
        text += &match line {
            Line::Cell(cell) => heading(cell, planned(cell, plan), style),
            Line::Load(load) => style.paragraph("  load ", 7, &achieved(load)),
            Line::More(n) => format!("  and {n} threads with smaller maxima\n"),
            Line::Figures { label, row, limit_ns } => {
                let mut line = format!("{label:<label_width$}");
                for &(column, width) in &columns {
                    let value = format!("{:>width$}", column.value(row));
                    line += &style.paint(column.ink(row, *limit_ns), &value);
                }
                line + "\n"
            }
        };
    }
    text += &notes(judgement, &columns, style);
    if in_full && judgement.cells.iter().any(|cell| planned(cell, plan).is_some()) {
        text += &style.paint(Ink::Faint, style.paragraph("", 0, LATE_ENDS).trim_end());
        text.push('\n');
    }
    if !in_full {
        text += &loads_apart(judgement, style);
    }
    text
}

/// What a plan measures, in words.
pub(crate) fn what(plan: &Plan) -> &'static str {
    let has_frames = |phase: &Phase| phase.sampler.network.path().is_some();
    match (plan.phases.iter().any(has_frames), plan.phases.iter().all(has_frames)) {
        (true, true) => "From the start of the cycle until the frame is back,",
        (true, false) => "Wake-up latency, or from the start of the cycle until the frame is back,",
        _ => "Wake-up latency",
    }
}

/// A cell with a line for each thread, or the worst of many.
fn lines_of<'a>(judgement: &Judgement, cell: &'a CellSummary) -> Vec<Line<'a>> {
    let mut lines = vec![Line::Cell(cell)];
    lines.extend(loads_of(cell).map(Line::Load));
    let limit_ns = tightest_limit_ns(judgement, cell);
    let figures =
        |row: &'a FigureRow| Line::Figures { label: format!("  {}", row.label), row, limit_ns };
    if cell.threads.len() > 1 {
        let mut shown: Vec<&FigureRow> = cell.threads.iter().collect();
        if shown.len() > THREADS_SHOWN {
            shown.sort_by_key(|row| std::cmp::Reverse(row.max_ns()));
            shown.truncate(THREADS_SHOWN);
            shown.sort_by_key(|row| row.thread);
        }
        let more = cell.threads.len() - shown.len();
        lines.extend(shown.into_iter().map(figures));
        lines.extend((more > 0).then_some(Line::More(more)));
    }
    // One thread is all there is: it keeps its own name.
    let all = if let [only] = &cell.threads[..] { only } else { &cell.all };
    lines.push(figures(all));
    lines
}

/// A cell as one of many.
fn one_line<'a>(judgement: &Judgement, cell: &'a CellSummary) -> Vec<Line<'a>> {
    let mut label = cell.name.clone();
    if label.chars().count() > LABEL_MAX {
        label = label.chars().take(LABEL_MAX - 2).collect::<String>() + "..";
    }
    let limit_ns = tightest_limit_ns(judgement, cell);
    vec![Line::Figures { label, row: &cell.all, limit_ns }]
}

/// The tightest limit that the cell's maximum must keep.
fn tightest_limit_ns(judgement: &Judgement, cell: &CellSummary) -> Option<u64> {
    let outcomes = judgement.outcomes.iter().filter(|outcome| {
        outcome.cell == cell.cell && outcome.requirement.statistic == Statistic::Max
    });
    outcomes.map(|outcome| outcome.requirement.limit).min()
}

/// The columns that fit, with their widths.
fn fitting(lines: &[Line], room: usize) -> Vec<(Column, usize)> {
    let width_of = |column: Column| {
        let values = lines.iter().filter_map(|line| match line {
            Line::Figures { row, .. } => Some(column.value(row).len()),
            _ => None,
        });
        values.max().unwrap_or(0).max(column.heading().len()) + 2
    };
    let mut columns: Vec<_> = COLUMNS.iter().map(|&c| (c, width_of(c))).collect();
    for spare in DISPENSABLE {
        if columns.iter().map(|(_, width)| width).sum::<usize>() > room {
            columns.retain(|(column, _)| *column != spare);
        }
    }
    columns
}

/// Why a phase may be longer than planned.
const LATE_ENDS: &str = "rtscope ends a phase when its control thread next runs: eight times a second, or later on busy \
                         CPUs. The figures and intervals are for the measured time.";

/// The planned duration of a phase that took a tenth more or less, though nothing else ended it.
fn planned(cell: &CellSummary, plan: &Plan) -> Option<Nanos> {
    let planned = plan.phases.get(cell.cell as usize)?.end.duration?;
    let differs = cell.duration_ns.abs_diff(planned.0) > planned.0 / 10;
    (cell.ended == Some(EndReason::Duration) && cell.duration_ns > 0 && differs).then_some(planned)
}

fn heading(cell: &CellSummary, planned: Option<Nanos>, style: Style) -> String {
    let name = style.paint(Ink::Strong, &cell.name);
    match (cell.duration_ns, cell.all.recorded) {
        (0, 0) => format!("{name}  nothing was measured\n"),
        (0, _) => format!("{name}  duration not known\n"),
        (ns, _) => {
            let planned = planned.map(|time| format!(" (planned: {time})")).unwrap_or_default();
            format!("{name}  {}{planned}\n", Nanos(ns))
        }
    }
}

/// What a load achieved: `message groups=1: 1,500 messages a second`.
fn achieved(load: &LoadSummary) -> String {
    let rate = match load.spans {
        0 if load.work == 0 => "no work was reported".to_owned(),
        0 => format!("{} {} in all", grouped(load.work), load.unit),
        _ => format!("{} {} a second", per_second(load.per_second), load.unit),
    };
    let idle = match load.idle_spans {
        0 => String::new(),
        n => format!(", idle in {n} of {} spans", load.spans),
    };
    let end = match &load.ended {
        Some(how) if !load.ok => format!(", {how}"),
        _ => String::new(),
    };
    format!("{}: {rate}{idle}{end}", load.line)
}

/// The loads of a cell that the run reached.
fn loads_of(cell: &CellSummary) -> impl Iterator<Item = &LoadSummary> {
    let is_reached = cell.duration_ns > 0 || cell.ended.is_some();
    cell.loads.iter().filter(move |_| is_reached)
}

/// The loads of many cells, below the table.
fn loads_apart(judgement: &Judgement, style: Style) -> String {
    let loads = judgement.cells.iter().flat_map(|cell| {
        loads_of(cell).map(move |load| format!("{}, {}", cell.name, achieved(load)))
    });
    let lines: String = loads.map(|load| style.paragraph("  ", 4, &load)).collect();
    if lines.is_empty() { lines } else { format!("\nLoads\n{lines}") }
}

/// What the intervals of the quantiles lack, and what it takes.
fn notes(judgement: &Judgement, columns: &[(Column, usize)], style: Style) -> String {
    let note = |text: &str| style.paint(Ink::Faint, style.paragraph("", 0, text).trim_end()) + "\n";
    let mut text = too_few(judgement, columns).map(|text| note(&text)).unwrap_or_default();
    // What holds for several phases is said once.
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for cell in &judgement.cells {
        for clause in cell.dependence_clauses() {
            match told.iter_mut().find(|known| known.0 == clause) {
                Some(known) => known.1.push(&cell.name),
                None => told.push((clause, vec![&cell.name])),
            }
        }
    }
    for (clause, names) in told {
        let names = match names.len() {
            0..=CELLS_IN_FULL => names.join(", "),
            n => format!("{n} phases"),
        };
        text += &note(&format!("{names}: {clause}."));
    }
    text
}

/// Which of the shown quantiles have no upper end, and how many samples it takes.
fn too_few(judgement: &Judgement, columns: &[(Column, usize)]) -> Option<String> {
    let need = |(column, _): &(Column, usize)| {
        let Column::Quantile(parts) = *column else { return None };
        let rows = judgement.cells.iter().map(|cell| &cell.all);
        let quantiles = rows.filter_map(|row| quantile_of(row, parts));
        let open =
            quantiles.filter(|quantile| quantile.high_ns.is_none() && quantile.refusal().is_none());
        let needed = open.map(Quantile::samples_for_interval).max()?;
        Some(format!("{} for {}", grouped(needed), Statistic::Quantile(parts)))
    };
    let needs: Vec<String> = columns.iter().filter_map(need).collect();
    let text = format!("A 95 % upper bound needs more samples: {}.", needs.join(", "));
    (!needs.is_empty()).then_some(text)
}

/// The table as Markdown, every thread of every cell, in microseconds. `escape` makes the names of phases and threads
/// harmless there.
#[must_use]
pub fn table_markdown(judgement: &Judgement, escape: impl Fn(&str) -> String) -> String {
    let headings: Vec<String> = COLUMNS.iter().map(|column| column.heading()).collect();
    let rule = "---:|".repeat(COLUMNS.len());
    let mut text = format!("| cell | thread | {} |\n|:---|:---|{rule}\n", headings.join(" | "));
    for cell in &judgement.cells {
        let all = Some(&cell.all).filter(|_| cell.threads.len() != 1);
        for row in cell.threads.iter().chain(all) {
            let values: Vec<String> = COLUMNS.iter().map(|column| column.value(row)).collect();
            let (name, thread) = (escape(&cell.name), escape(&row.label));
            text += &format!("| {name} | {thread} | {} |\n", values.join(" | "));
        }
    }
    text
}
