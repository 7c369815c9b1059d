//! The largest latency of each slice over the run, by CPU, with the phases marked.

use ratatui::{
    style::Color,
    widgets::canvas::{Canvas, Line, Points},
};

use super::{
    cpus::lane_style,
    pen::{ALARM, DIM, Pen, Symbols, axis_label, columns},
};
use crate::tui::{
    axis::{LogAxis, Places, clock, label},
    state::{State, Status, Trail},
};

/// Room for the latencies at the left.
const GUTTER: u16 = 10;

/// A plan up to this long is drawn in its whole length from the beginning.
const WHOLE_NS: u64 = 600_000_000_000;

/// Draws phases, points and both axes. The selected lane is 0 for all, n for the n-th.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State, symbols: &Symbols, selected: usize) {
    let (rows, width) = (pen.height().saturating_sub(2), pen.width().saturating_sub(GUTTER + 1));
    if rows == 0 || width == 0 {
        return;
    }
    let span_ns = span_ns(state);
    let column = |ns: u64| (ns as f64 / span_ns as f64 * f64::from(width)) as u16;
    let mut below = pen.part(GUTTER, rows + 1, width, 1);
    let mut places = Places::default();
    let step_ns = tick_ns(span_ns, width);
    for ns in (0..=span_ns / step_ns).map(|n| n * step_ns) {
        axis_label(&mut below, column(ns), &clock(ns), &mut places);
    }
    let Some(axis) = latencies(&state.trails) else {
        pen.text(GUTTER + 2, 1 + rows / 2, "comes with the first slice", DIM);
        phases(&mut pen.part(GUTTER, 0, width, rows + 1), state, symbols.marks[0], column);
        return;
    };
    let row = |ns: u64| 1 + ((1.0 - axis.position(ns)) * f64::from(rows - 1)).round() as u16;
    let mut places = Places::default();
    for ns in axis.ticks() {
        if places.take(row(ns), row(ns) + 1) {
            pen.text_right(GUTTER - 1, row(ns), &label(ns), DIM);
        }
    }
    let mut plot = pen.part(GUTTER, 1, width, rows);
    points(&mut plot, state, symbols, selected, axis, span_ns);
    if let Some(limit_ns) =
        state.limits().max_ns.filter(|ns| (axis.from_ns..axis.to_ns).contains(ns))
    {
        (0..width).for_each(|x| pen.mark(GUTTER + x, row(limit_ns), symbols.marks[1], ALARM));
    }
    phases(&mut pen.part(GUTTER, 0, width, rows + 1), state, symbols.marks[0], column);
}

/// The phases that began: their names above, a line where each begins.
fn phases(pen: &mut Pen<'_>, state: &State, mark: &str, column: impl Fn(u64) -> u16) {
    for cell in state.cells.iter().filter(|cell| cell.status != Status::ToCome) {
        let x = column(cell.started_ns);
        let end = if cell.ended_ns > 0 { column(cell.ended_ns) } else { pen.width() };
        (0..pen.height()).for_each(|y| pen.mark(x, y, mark, DIM));
        let room = end.saturating_sub(x + 1);
        if room >= columns(&cell.name) {
            pen.part(x + 1, 0, room, 1).text(0, 0, &cell.name, DIM);
        }
    }
}

fn points(
    pen: &mut Pen<'_>,
    state: &State,
    symbols: &Symbols,
    selected: usize,
    axis: LogAxis,
    span_ns: u64,
) {
    let chosen =
        selected.checked_sub(1).and_then(|nth| state.lanes.get(nth)).map(|lane| lane.trail);
    let colour = |trail: usize| {
        let nth = state.lanes.iter().position(|lane| lane.trail == trail);
        let own = nth.and_then(|nth| lane_style(nth, state.lanes.len()).fg);
        let is_back = chosen.is_some_and(|chosen| chosen != trail);
        own.filter(|_| !is_back).unwrap_or(Color::DarkGray)
    };
    let dots = pen.width() as usize * 2;
    let canvas = Canvas::default()
        .marker(symbols.marker)
        .x_bounds([0.0, span_ns as f64])
        .y_bounds([0.0, 1.0])
        .paint(|context| {
            let back_first = (0..state.trails.len()).filter(|trail| Some(*trail) != chosen);
            for trail in back_first.chain(chosen) {
                let at = |point: (u64, u64)| (point.0 as f64, axis.position(point.1));
                let mut known = thinned(&state.trails[trail].points, dots).map(at);
                let Some(mut from) = known.next() else { continue };
                context.draw(&Points::new(&[from], colour(trail)));
                for to in known {
                    context.draw(&Line::new(from.0, from.1, to.0, to.1, colour(trail)));
                    from = to;
                }
                context.layer();
            }
        });
    pen.widget(canvas);
}

/// As many points as can be told apart: of neighbours the largest.
fn thinned(points: &[(u64, u64)], most: usize) -> impl Iterator<Item = (u64, u64)> {
    let each = points.len().div_ceil(most.max(1)).max(1);
    points.chunks(each).filter_map(|near| near.iter().max_by_key(|point| point.1).copied())
}

/// How much time the chart shows: a short plan as a whole, a long one up to now.
fn span_ns(state: &State) -> u64 {
    let whole_ns = state.at_ns.saturating_add(state.left_ns).max(state.expected_ns).max(1);
    if whole_ns <= WHOLE_NS { whole_ns } else { state.at_ns.max(60_000_000_000) }
}

fn latencies(trails: &[Trail]) -> Option<LogAxis> {
    let maxima = || trails.iter().flat_map(|trail| &trail.points).map(|point| point.1);
    maxima().min().zip(maxima().max()).map(|(min_ns, max_ns)| LogAxis::around(min_ns, max_ns))
}

/// A round step that leaves room for its labels.
fn tick_ns(span_ns: u64, width: u16) -> u64 {
    const STEPS_S: [u64; 14] = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200];
    let labels = u64::from(width / 12).max(1);
    let round = STEPS_S.iter().map(|s| s * 1_000_000_000).find(|step| span_ns / step <= labels);
    round.unwrap_or_else(|| (span_ns / labels).max(1))
}
