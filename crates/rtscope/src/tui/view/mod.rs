//! The full screen: where what is drawn. Every part is left out where there is no room for it.

pub(crate) mod compact;
mod cpus;
mod histogram;
mod panels;
mod pen;
mod timeline;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    widgets::Clear,
};

pub(crate) use self::pen::Symbols;
use self::{
    cpus::{Table, lane_style},
    histogram::Histogram,
    pen::{ALARM, BOLD, CALM, CARE, DIM, Pen, columns},
};
use super::{
    axis::{clock, clock_left},
    state::{State, Status},
};

/// What the user chose to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) host: String,
    pub(crate) symbols: &'static Symbols,
    /// 0 is all threads together, n the n-th.
    pub(crate) selected: usize,
    /// Counts on a linear scale.
    pub(crate) linear: bool,
    pub(crate) frozen: bool,
    pub(crate) help: bool,
    /// The user ended the run.
    pub(crate) ending: bool,
}

/// The keys, as the last line and the help say them.
const KEYS: [(&str, &str, &str); 5] = [
    ("q", "end", "End the run and write the report. Ctrl-C does the same."),
    ("arrows", "CPU", "Select a CPU, or all of them. Tab does the same."),
    ("h", "scale", "Histogram: counts on a logarithmic or a linear scale."),
    ("f", "freeze", "Freeze the screen, or go on. The run goes on either way."),
    ("?", "help", "Show or hide this. Escape hides it, too."),
];

pub(crate) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look) {
    let mut pen = Pen::new(buffer, area);
    let (width, height) = (pen.width(), pen.height());
    header(&mut pen.part(0, 0, width, 1), state, look);
    progress(&mut pen.part(0, 1, width, 1), state, look.symbols);
    let mut top = 2;
    if height >= 16 {
        let mut line = pen.part(0, 2, width, 1);
        match &state.claim {
            // A run that goes on for a claim has one phase, and the line above names it.
            Some(claim) => drop(line.text(1, 0, claim, CALM)),
            None => phases(&mut line, state, look.symbols),
        }
        top = if height >= 30 { 4 } else { 3 };
    }
    let keys = u16::from(height >= 8);
    body(&mut pen.part(0, top, width, height.saturating_sub(top + keys)), state, look);
    if keys > 0 {
        let mut x = 1;
        for (key, what, _) in KEYS {
            x = pen.text(x, height - 1, key, CALM);
            x = pen.text(x + 1, height - 1, what, DIM) + 3;
        }
    }
    if look.help {
        help(&mut pen);
    }
}

/// The table, then both charts, then loads and events.
fn body(pen: &mut Pen<'_>, state: &State, look: &Look) {
    let (width, height) = (pen.width(), pen.height());
    let all = usize::from(state.lanes.len() > 1);
    let most = if height < 12 { height } else { height / 3 + 1 };
    let wanted = 1 + (all + state.lanes.len()).clamp(1, 1_000) as u16;
    let table = wanted.min(most);
    let lanes = window(look.selected, state.lanes.len(), table.saturating_sub(1 + all as u16));
    let columns = &cpus::ALL;
    let selected = Some(look.selected);
    Table { state, symbols: look.symbols, columns, lanes, selected }
        .draw(&mut pen.part(0, 0, width, table));
    let rest = height - table;
    let panels_height = match rest {
        0..5 => rest,
        5..12 => 0,
        12..24 => 5,
        _ => 8,
    };
    charts(&mut pen.part(0, table, width, rest - panels_height), state, look);
    panels(&mut pen.part(0, height - panels_height, width, panels_height), state);
}

/// Which lanes to show where there is no room for all: those around the selected one.
fn window(selected: usize, lanes: usize, room: u16) -> std::ops::Range<usize> {
    let room = (room as usize).min(lanes);
    let first = selected.saturating_sub(1).saturating_sub(room / 2).min(lanes - room);
    first..first + room
}

/// Histogram and time, one above the other, or side by side on a low screen.
fn charts(pen: &mut Pen<'_>, state: &State, look: &Look) {
    let (width, height) = (pen.width(), pen.height());
    if height < 5 {
        return;
    }
    if height >= 16 {
        let first = height / 2;
        shape(&mut pen.part(0, 0, width, first), state, look);
        over_time(&mut pen.part(0, first, width, height - first), state, look);
    } else if width >= 76 {
        let first = width / 2 + 1;
        shape(&mut pen.part(0, 0, first, height), state, look);
        over_time(&mut pen.part(first, 0, width - first, height), state, look);
    } else {
        shape(pen, state, look);
    }
}

fn shape(pen: &mut Pen<'_>, state: &State, look: &Look) {
    // One thread is all threads, and has a name.
    let chosen = if state.lanes.len() == 1 { Some(0) } else { look.selected.checked_sub(1) };
    let lane = chosen.and_then(|nth| Some((nth, state.lanes.get(nth)?)));
    let (label, density, style) = match lane {
        Some((nth, lane)) => {
            (lane.label.as_str(), &lane.density, lane_style(nth, state.lanes.len()))
        }
        None => ("all CPUs", &state.all, CALM),
    };
    let scale = if look.linear { "linear count" } else { "log count" };
    let phase = state.shown.map(|cell| state.cells[cell].name.as_str()).unwrap_or_default();
    pen.heading(&format!("Latency of {label}"), &format!("{phase}, {scale}"));
    let limit_ns = state.limits().max_ns;
    let (linear, symbols) = (look.linear, look.symbols);
    let (width, height) = (pen.width(), pen.height());
    Histogram { density, symbols, style, linear, limit_ns }.draw(&mut pen.part(
        0,
        1,
        width,
        height.saturating_sub(1),
    ));
}

fn over_time(pen: &mut Pen<'_>, state: &State, look: &Look) {
    pen.heading("Worst latency over time", "max of each slice");
    let (width, height) = (pen.width(), pen.height());
    let mut chart = pen.part(0, 1, width, height.saturating_sub(1));
    timeline::draw(&mut chart, state, look.symbols, look.selected);
}

fn panels(pen: &mut Pen<'_>, state: &State) {
    let (width, height) = (pen.width(), pen.height());
    if height < 2 {
        return;
    }
    let first = if width >= 70 { width / 2 + 1 } else { 0 };
    let mut left = pen.part(0, 0, first, height);
    left.heading("Loads", "");
    panels::loads(&mut left.part(2, 1, first.saturating_sub(3), height - 1), state);
    let mut right = pen.part(first, 0, width - first, height);
    let warnings = match state.log.warnings {
        0 => String::new(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    right.heading("Events", &warnings);
    panels::events(&mut right.part(0, 1, width - first, height - 1), state);
}

fn header(pen: &mut Pen<'_>, state: &State, look: &Look) {
    let width = pen.width();
    let mut end = width.saturating_sub(1);
    for (is_on, tag) in [(look.frozen, " frozen "), (look.ending, " ending ")] {
        if is_on {
            let style = CARE.add_modifier(Modifier::REVERSED);
            end = pen.text_right(end, 0, tag, style).saturating_sub(1);
        }
    }
    // Names are whole or not there: the plan's goes before the machine's, and both before the title.
    let plan_end = 10 + columns(&state.plan);
    if plan_end + 2 + columns(&look.host) <= end {
        end = pen.text_right(end, 0, &look.host, DIM).saturating_sub(2);
    }
    let mut left = pen.part(0, 0, end, 1);
    let x = left.text(1, 0, "rtscope", CALM.add_modifier(Modifier::BOLD));
    let x = left.text(x + 2, 0, &state.plan, BOLD);
    if x + 2 + columns(&state.title) <= end {
        left.text(x + 2, 0, &state.title, DIM);
    }
}

/// The running phase, how far the whole plan is, and the time that is left.
fn progress(pen: &mut Pen<'_>, state: &State, symbols: &Symbols) {
    let mut x = pen.text(1, 0, state.phase_name(), BOLD);
    if let Some(cell) = state.shown {
        x = pen.text(x + 1, 0, &format!("{}/{}", cell + 1, state.cells.len()), DIM);
    }
    let (at, left) = (clock(state.at_ns), clock_left(state.left_ns));
    let total = clock(state.at_ns.saturating_add(state.left_ns));
    let times = match pen.width().saturating_sub(x) {
        0..36 => format!("{left} left"),
        _ => format!("{at} of {total}, {left} left"),
    };
    let end = pen.text_right(pen.width().saturating_sub(1), 0, &times, Style::new());
    // The bar begins where the longest phase name ends, so that it doesn't jump.
    let longest = state.cells.iter().map(|cell| cell.name.chars().count()).max().unwrap_or(0);
    let column = (longest.min(24) as u16 + 8).min(pen.width() / 3);
    let begin = (x + 2).max(column);
    let bar = end.saturating_sub(2).saturating_sub(begin);
    if bar >= 4 {
        let done = (f64::from(bar) * state.done).round() as u16;
        pen.text(begin, 0, &symbols.gauge[0].repeat(done as usize), CALM);
        pen.text(begin + done, 0, &symbols.gauge[1].repeat((bar - done) as usize), DIM);
    }
}

/// The phases and where they are; of many, those around the running one. A name is whole, or counted among those
/// that there is no room for.
fn phases(pen: &mut Pen<'_>, state: &State, symbols: &Symbols) {
    let (all, running) = (state.cells.len(), state.shown.unwrap_or(0));
    let before =
        |first: usize| if first == 0 { String::new() } else { format!("{first} before   ") };
    let after =
        |end: usize| if end == all { String::new() } else { format!("+ {} more", all - end) };
    let width = |first: usize, end: usize| {
        let names = state.cells[first..end].iter().map(|cell| columns(&cell.name) + 5);
        1 + columns(&before(first)) + names.fold(0, u16::saturating_add) + columns(&after(end))
    };
    // Behind the last name is no gap.
    let fits = |first: usize, end: usize| {
        width(first, end) <= pen.width() + if end == all { 3 } else { 0 }
    };
    let least = (running + 1).min(all);
    let first = [0, running.saturating_sub(1)].into_iter().find(|first| fits(*first, least));
    let first = first.unwrap_or(running);
    let end = (least..=all).rev().find(|end| fits(first, *end)).unwrap_or(least);
    let mut x = pen.text(1, 0, &before(first), DIM);
    for cell in &state.cells[first..end] {
        let (symbol, style, name) = match cell.status {
            Status::ToCome => (symbols.phases[0], DIM, DIM),
            Status::Running => (symbols.phases[1], CALM, BOLD),
            Status::Done => (symbols.phases[2], CALM, Style::new()),
            Status::Cut => (symbols.phases[3], CARE, Style::new()),
            Status::Failed => (symbols.phases[4], ALARM, Style::new()),
        };
        x = pen.text(x, 0, symbol, style);
        x = pen.text(x + 1, 0, &cell.name, name) + 3;
    }
    pen.text(x, 0, &after(end), DIM);
}

fn help(pen: &mut Pen<'_>) {
    let (width, height) = (74.min(pen.width()), (KEYS.len() as u16 + 4).min(pen.height()));
    let (x, y) = ((pen.width() - width) / 2, (pen.height() - height) / 2);
    let mut sheet = pen.part(x, y, width, height);
    sheet.widget(Clear);
    sheet.widget(ratatui::widgets::Block::bordered().title(" Keys ").border_style(CALM));
    for (n, (key, _, meaning)) in KEYS.iter().enumerate() {
        let mut line = sheet.part(2, n as u16 + 2, width.saturating_sub(4), 1);
        line.text(0, 0, key, CALM);
        line.text(8, 0, meaning, Style::new());
    }
}

#[cfg(test)]
mod tests;
