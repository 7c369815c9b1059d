//! The table of sampling threads: a line each, and one for all together.

use ratatui::style::{Color, Style};
use rtscope_analyse::number;
use rtscope_model::{event::Live, time::Nanos};

use super::pen::{ALARM, BOLD, CALM, CARE, DIM, Pen, Symbols};
use crate::tui::{
    axis::LogAxis,
    state::{Lane, Limits, State, Trail},
};

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Place,
    Interval,
    Min,
    Now,
    Mean,
    Max,
    Recorded,
    Missed,
    Recent,
}

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Column::Place => "policy",
            Column::Interval => "every",
            Column::Min => "min",
            Column::Now => "now",
            Column::Mean => "avg",
            Column::Max => "max",
            Column::Recorded => "recorded",
            Column::Missed => "missed",
            Column::Recent => "max of each slice",
        }
    }

    fn width(self) -> u16 {
        match self {
            Column::Place | Column::Recorded => 13,
            Column::Min | Column::Now | Column::Mean | Column::Max => 9,
            Column::Interval | Column::Missed => 9,
            Column::Recent => 20,
        }
    }

    /// The columns, what can best be done without first.
    const DISPENSABLE: [Column; 8] = [
        Column::Recent,
        Column::Interval,
        Column::Place,
        Column::Recorded,
        Column::Now,
        Column::Min,
        Column::Mean,
        Column::Missed,
    ];
}

/// Every column: for the full screen.
pub(crate) const ALL: [Column; 9] = [
    Column::Place,
    Column::Interval,
    Column::Min,
    Column::Now,
    Column::Mean,
    Column::Max,
    Column::Recorded,
    Column::Missed,
    Column::Recent,
];

/// The latencies: for the block under the prompt.
pub(crate) const LATENCIES: [Column; 5] =
    [Column::Min, Column::Now, Column::Mean, Column::Max, Column::Missed];

/// The columns of those that fit beside the labels.
fn fitting(wanted: &[Column], width: u16, labels: u16) -> Vec<Column> {
    let mut columns = wanted.to_vec();
    for dispensable in Column::DISPENSABLE {
        let needed: u16 = columns.iter().map(|column| column.width()).sum();
        if labels + needed <= width {
            break;
        }
        columns.retain(|column| *column != dispensable);
    }
    columns
}

/// One line of the table.
struct Row<'a> {
    label: &'a str,
    style: Style,
    lane: Option<&'a Lane>,
    live: Live,
    trail: Option<&'a Trail>,
}

/// Draws the table: a heading, the line of all threads if it is wanted and there are several, then the
/// lanes that are given. The selected line is 0 for all, n for the n-th lane.
pub(crate) struct Table<'a> {
    pub(crate) state: &'a State,
    pub(crate) symbols: &'a Symbols,
    pub(crate) columns: &'a [Column],
    pub(crate) lanes: std::ops::Range<usize>,
    pub(crate) selected: Option<usize>,
}

impl Table<'_> {
    /// Draws it from the first line of the pen on.
    pub(crate) fn draw(&self, pen: &mut Pen<'_>) {
        let state = self.state;
        let longest = state.lanes.iter().map(|lane| lane.label.len()).max().unwrap_or(0);
        let labels = longest.max(8) as u16 + 4;
        let columns = fitting(self.columns, pen.width(), labels);
        pen.text(3, 0, "us", DIM);
        let mut end = labels;
        for column in &columns {
            end += column.width();
            match column {
                Column::Recent => pen.text(end - column.width() + 2, 0, column.heading(), DIM),
                _ => pen.text_right(end, 0, column.heading(), DIM),
            };
        }
        let mut y = 1;
        let mut line = |row: &Row<'_>, nth: usize| {
            let is_selected = self.selected == Some(nth);
            if is_selected {
                pen.text(1, y, self.symbols.selected, CALM);
            }
            pen.text(3, y, row.label, if is_selected { row.style.patch(BOLD) } else { row.style });
            self.figures(pen, y, labels, &columns, row);
            y += 1;
        };
        if self.selected.is_some() && state.lanes.len() > 1 {
            line(&all(&state.lanes), 0);
        }
        for nth in self.lanes.clone() {
            let lane = &state.lanes[nth];
            let (label, trail) = (lane.label.as_str(), Some(&state.trails[lane.trail]));
            // Colours tell lanes apart over time: where there is no chart they would mean nothing.
            let has_chart = self.selected.is_some();
            let style = if has_chart { lane_style(nth, state.lanes.len()) } else { Style::new() };
            line(&Row { label, style, lane: Some(lane), live: lane.live, trail }, nth + 1);
        }
    }

    fn figures(&self, pen: &mut Pen<'_>, y: u16, labels: u16, columns: &[Column], row: &Row<'_>) {
        let mut end = labels;
        for &column in columns {
            let begin = end;
            end += column.width();
            if column == Column::Recent {
                let room = pen.width().saturating_sub(begin + 3);
                self.recent(&mut pen.part(begin + 2, y, room, 1), row);
            } else if let Some((text, style)) = figure(column, row, self.state.limits()) {
                pen.text_right(end, y, &text, style);
            }
        }
    }

    /// The maxima of the last slices, on one scale for all threads.
    fn recent(&self, pen: &mut Pen<'_>, row: &Row<'_>) {
        let Some(trail) = row.trail else { return };
        let last = |trail: &Trail| trail.points.len().saturating_sub(pen.width() as usize);
        let maxima = || self.state.trails.iter().flat_map(|t| &t.points[last(t)..]).map(|p| p.1);
        let Some((min_ns, max_ns)) = maxima().min().zip(maxima().max()) else { return };
        let axis = LogAxis::around(min_ns, max_ns);
        let points = trail.points[last(trail)..].iter();
        pen.bars(
            &self.symbols.bars,
            points.map(|point| (axis.position(point.1).max(0.01), row.style)),
        );
    }
}

/// A figure and how loud it is; none where there is nothing to say.
fn figure(column: Column, row: &Row<'_>, limits: Limits) -> Option<(String, Style)> {
    let live = &row.live;
    let plain = Style::new();
    let above = |ns: u64, limit_ns: Option<u64>, otherwise| match limit_ns {
        Some(limit_ns) if ns >= limit_ns => ALARM,
        _ => otherwise,
    };
    match column {
        Column::Place => return row.lane.map(|lane| (lane.place.clone(), DIM)),
        Column::Interval => return row.lane.map(|lane| (Nanos(lane.interval_ns).to_string(), DIM)),
        Column::Recent => return None,
        _ if live.recorded == 0 => return Some(("-".to_owned(), DIM)),
        _ => {}
    }
    Some(match column {
        Column::Min => (number::us(live.min_ns), plain),
        Column::Now => (number::us(live.now_ns), above(live.now_ns, limits.max_ns, plain)),
        Column::Mean => (number::us(live.mean_ns), above(live.mean_ns, limits.mean_ns, plain)),
        Column::Max => (number::us(live.max_ns), above(live.max_ns, limits.max_ns, BOLD)),
        Column::Recorded => (number::grouped(live.recorded), plain),
        _ => (number::grouped(live.missed), missed_style(live.missed, limits)),
    })
}

/// How loud a count of missed activations is.
pub(crate) fn missed_style(missed: u64, limits: Limits) -> Style {
    match (missed, limits.missed) {
        (0, _) => DIM,
        (n, Some(limit)) if n > limit => ALARM,
        _ => CARE,
    }
}

/// The figures of all threads as of one: smallest, latest worst, mean over all, largest.
fn all(lanes: &[Lane]) -> Row<'static> {
    let mut sum = Live { min_ns: u64::MAX, ..Live::default() };
    let mut sum_ns = 0u128;
    for live in lanes.iter().map(|lane| &lane.live).filter(|live| live.recorded > 0) {
        sum.min_ns = sum.min_ns.min(live.min_ns);
        sum.now_ns = sum.now_ns.max(live.now_ns);
        sum.max_ns = sum.max_ns.max(live.max_ns);
        sum.recorded += live.recorded;
        sum.missed += live.missed;
        sum_ns += u128::from(live.mean_ns) * u128::from(live.recorded);
    }
    sum.mean_ns = sum_ns.checked_div(u128::from(sum.recorded)).unwrap_or(0) as u64;
    Row { label: "all CPUs", style: Style::new(), lane: None, live: sum, trail: None }
}

/// The colours of lanes, in the table and over time; one for all where there are too many to tell.
const COLOURS: [Color; 6] = [
    Color::Green,
    Color::Yellow,
    Color::Magenta,
    Color::Blue,
    Color::LightGreen,
    Color::LightMagenta,
];

/// The colour of the n-th of so many lanes.
pub(crate) fn lane_style(nth: usize, lanes: usize) -> Style {
    Style::new().fg(COLOURS[if lanes <= COLOURS.len() { nth } else { 0 }])
}
