//! The block under the prompt, and the line that stays when a phase is over.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use rtscope_analyse::number;

use super::{
    Symbols,
    cpus::{self, Table, missed_style},
    histogram::Histogram,
    panels,
    pen::{ALARM, BOLD, CALM, CARE, DIM, Pen, columns},
    progress,
};
use crate::tui::{
    axis::rounded,
    state::{Limits, State, Status, Sum, Summary, reason},
};

/// The most threads that get a line of their own.
const LANES: usize = 8;

/// The most loads that get a line.
const LOADS: usize = 2;

/// How many lines each part gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    claim: u16,
    lanes: u16,
    /// The line that speaks for the threads without a line.
    rest: u16,
    histogram: u16,
    loads: u16,
    finding: u16,
}

impl Lines {
    /// As many as there is something to say in, but no more than there is room for.
    fn new(state: &State, room: u16) -> Lines {
        let lanes = state.lanes.len();
        let mut lines = Lines {
            claim: u16::from(state.claim.is_some()),
            lanes: lanes.min(LANES) as u16,
            rest: u16::from(lanes > LANES),
            histogram: match lanes {
                0 => 0,
                1..=4 => 2,
                _ => 1,
            },
            loads: state.loads.len().min(LOADS) as u16,
            finding: u16::from(state.log.last_warning.is_some()),
        };
        while lines.all() > room && lines.shrink() {}
        lines
    }

    /// Takes away the line that is missed least; false when only the progress is left.
    fn shrink(&mut self) -> bool {
        if self.histogram > 0 {
            self.histogram -= 1;
        } else if self.loads > 0 {
            self.loads -= 1;
        } else if self.lanes > 1 {
            // The first to go takes one along: the line that speaks for them needs its place.
            self.lanes -= 2 - self.rest;
            self.rest = 1;
        } else if self.finding > 0 {
            self.finding -= 1;
        } else if self.lanes + self.rest > 0 {
            (self.lanes, self.rest) = (0, 0);
        } else if self.claim > 0 {
            self.claim -= 1;
        } else {
            return false;
        }
        true
    }

    fn table(self) -> u16 {
        if self.lanes > 0 { 1 + self.lanes } else { 0 }
    }

    fn all(self) -> u16 {
        1 + self.claim + self.table() + self.rest + self.histogram + self.loads + self.finding
    }
}

/// How high the block is on a terminal with so many lines.
pub(crate) fn height(state: &State, terminal: u16) -> u16 {
    let room = terminal.saturating_sub(1).max(1);
    Lines::new(state, room).all().min(room)
}

/// Draws the block over the whole buffer.
pub(crate) fn draw(buffer: &mut Buffer, state: &State, symbols: &Symbols) {
    let area = buffer.area;
    let lines = Lines::new(state, area.height);
    let mut pen = Pen::new(buffer, area);
    let width = pen.width();
    progress(&mut pen.part(0, 0, width, 1), state, symbols);
    let mut y = 1;
    if let Some(claim) = state.claim.as_deref().filter(|_| lines.claim > 0) {
        pen.text(1, y, claim, CALM);
        y += 1;
    }
    let lanes = 0..lines.lanes as usize;
    if lines.lanes > 0 {
        Table { state, symbols, columns: &cpus::LATENCIES, lanes, selected: None }
            .draw(&mut pen.part(0, y, width, lines.table()));
        y += lines.table();
    }
    if lines.rest > 0 {
        rest(&mut pen.part(3, y, width.saturating_sub(3), 1), state, lines.lanes as usize);
        y += 1;
    }
    if lines.histogram > 0 {
        let limit_ns = state.limits().max_ns;
        Histogram { density: &state.all, symbols, style: CALM, linear: false, limit_ns }
            .draw_small(&mut pen.part(0, y, width, lines.histogram));
        y += lines.histogram;
    }
    for load in state.loads.iter().take(lines.loads as usize) {
        // Narrow, so that the rate is near; what needs more room has all of it.
        let room = width.saturating_sub(3);
        let room = if panels::rows_of(load, room.min(60)) == 1 { room.min(60) } else { room };
        panels::load(&mut pen.part(3, y, room, 1), 0, load);
        y += 1;
    }
    if let Some(text) = state.log.last_warning.as_deref().filter(|_| lines.finding > 0) {
        pen.text(1, y, "!", ALARM);
        pen.text(3, y, text, CARE);
    }
}

/// One line for the threads without a line: how many, and the worst of them.
fn rest(pen: &mut Pen<'_>, state: &State, shown: usize) {
    let hidden = &state.lanes[shown.min(state.lanes.len())..];
    let Some(worst) = hidden.iter().max_by_key(|lane| lane.live.max_ns) else { return };
    let missed: u64 = hidden.iter().map(|lane| lane.live.missed).sum();
    let end =
        pen.text(0, 0, &format!("+ {} more, the worst {} max ", hidden.len(), worst.label), DIM);
    let limits = state.limits();
    let max = format!("{} us", number::us(worst.live.max_ns));
    let end = pen.text(end, 0, &max, max_style(worst.live.max_ns, limits));
    let missed_text = format!(", missed {}", number::grouped(missed));
    pen.text(end, 0, &missed_text, missed_style(missed, limits));
}

fn max_style(max_ns: u64, limits: Limits) -> Style {
    if limits.max_ns.is_some_and(|limit_ns| max_ns >= limit_ns) { ALARM } else { BOLD }
}

/// The line that stays: `rest    5 s   CPU 0 max 34.2 us   CPU 1 max 28.0 us   missed 0`. In less room
/// only the worst thread is named, or none.
pub(crate) fn summary(state: &State, summary: &Summary, width: u16) -> Buffer {
    let cell = &state.cells[summary.cell];
    let limits = cell.limits;
    let names = state.cells.iter().map(|cell| usize::from(columns(&cell.name)).min(24)).max();
    let names = names.unwrap_or(0);
    let head = [
        Span::styled(format!(" {:names$}", cell.name), BOLD),
        Span::raw(format!("  {:>7}", rounded(summary.took_ns))),
    ];
    let lanes = summary.lanes.iter();
    let all: Vec<_> = lanes.clone().flat_map(|(label, sum)| max(label, *sum, limits)).collect();
    let (label, worst) = lanes.max_by_key(|(_, sum)| sum.worst_ns()).cloned().unwrap_or_default();
    let of = if summary.lanes.len() > 1 {
        format!("worst of {}: ", summary.lanes.len())
    } else {
        String::new()
    };
    let missed: u64 = summary.lanes.iter().map(|(_, sum)| sum.missed).sum();
    let missed = [
        Span::raw("   "),
        Span::styled(format!("missed {}", number::grouped(missed)), missed_style(missed, limits)),
    ];
    let why = (cell.status != Status::Done).then(|| {
        let style = if cell.status == Status::Failed { ALARM } else { CARE };
        Span::styled(format!("   {}", reason(summary.why)), style)
    });
    let from_long_to_short = [
        all,
        max(&format!("{of}{label}"), worst, limits).to_vec(),
        max("", worst, limits).to_vec(),
    ];
    let line = |maxima: &Vec<Span<'static>>| {
        let spans = head.iter().chain(maxima).chain(&missed).chain(&why);
        Line::from_iter(spans.cloned())
    };
    let fits = |maxima: &&Vec<Span<'static>>| line(maxima).width() <= width as usize;
    let chosen = from_long_to_short.iter().find(fits).unwrap_or(&from_long_to_short[2]);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
    buffer.set_line(0, 0, &line(chosen), width);
    buffer
}

/// `CPU 0 max   34.2 us`: one width for all, so that the lines of several phases can be compared.
fn max(label: &str, sum: Sum, limits: Limits) -> [Span<'static>; 2] {
    let space = if label.is_empty() { "" } else { " " };
    let max_ns = sum.worst_ns();
    let least = if sum.is_at_least() { "\u{2265}" } else { "" };
    [
        Span::styled(format!("   {label}{space}max "), DIM),
        Span::styled(format!("{least}{:>6} us", number::us(max_ns)), max_style(max_ns, limits)),
    ]
}
