//! Text and bars in a part of the screen: what lies outside is cut off, never a panic.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    symbols::{Marker, bar},
    text::Span,
    widgets::{Sparkline, SparklineBar, Widget},
};

use crate::tui::axis::Places;

/// The characters that a terminal can show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbols {
    pub(crate) bars: bar::Set<'static>,
    pub(crate) marker: Marker,
    /// Progress: done and to come.
    pub(crate) gauge: [&'static str; 2],
    /// Phases: to come, running, done, cut, failed.
    pub(crate) phases: [&'static str; 5],
    pub(crate) selected: &'static str,
    /// Lines that mark something: down and across.
    pub(crate) marks: [&'static str; 2],
}

impl Symbols {
    /// The Linux console has 256 or 512 characters: neither eighths of a block nor dots.
    const CONSOLE: Symbols = Symbols {
        bars: bar::THREE_LEVELS,
        marker: Marker::HalfBlock,
        gauge: ["█", "░"],
        phases: ["·", "►", "√", "!", "x"],
        selected: "►",
        marks: ["│", "-"],
    };

    const FULL: Symbols = Symbols {
        bars: bar::NINE_LEVELS,
        marker: Marker::Braille,
        gauge: ["━", "─"],
        phases: ["·", "▶", "✓", "◦", "✗"],
        selected: "▶",
        marks: ["┊", "╌"],
    };

    /// For the terminal that `TERM` names.
    pub(crate) fn for_terminal(term: &str) -> &'static Symbols {
        if term == "linux" { &Symbols::CONSOLE } else { &Symbols::FULL }
    }
}

/// What stands back.
pub(crate) const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// What stands out.
pub(crate) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// What is above a limit.
pub(crate) const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// What needs a look.
pub(crate) const CARE: Style = Style::new().fg(Color::Yellow);

/// What is all right, or runs.
pub(crate) const CALM: Style = Style::new().fg(Color::Cyan);

/// Writes into one part of a buffer, in coordinates from its upper left corner.
#[derive(Debug)]
pub(crate) struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl<'a> Pen<'a> {
    pub(crate) fn new(buffer: &'a mut Buffer, area: Rect) -> Pen<'a> {
        let area = area.intersection(buffer.area);
        Pen { buffer, area }
    }

    pub(crate) fn width(&self) -> u16 {
        self.area.width
    }

    pub(crate) fn height(&self) -> u16 {
        self.area.height
    }

    pub(crate) fn part(&mut self, x: u16, y: u16, width: u16, height: u16) -> Pen<'_> {
        let x = self.area.x.saturating_add(x);
        let y = self.area.y.saturating_add(y);
        let area = Rect { x, y, width, height }.intersection(self.area);
        Pen { buffer: self.buffer, area }
    }

    /// Writes to the right; returns where the text ended.
    pub(crate) fn text(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let room = self.area.width - x;
        let at = (self.area.x + x, self.area.y + y);
        if columns(text) <= room {
            return self.buffer.set_stringn(at.0, at.1, text, room as usize, style).0 - self.area.x;
        }
        let (end, _) = self.buffer.set_stringn(at.0, at.1, text, room as usize - 1, style);
        self.buffer.set_stringn(end, at.1, "…", 1, style);
        self.area.width
    }

    /// Writes so that the text ends before `end`; returns where it began. Text that is too long
    /// loses its end.
    pub(crate) fn text_right(&mut self, end: u16, y: u16, text: &str, style: Style) -> u16 {
        let begin = end.saturating_sub(columns(text));
        self.part(0, y, end, 1).text(begin, 0, text, style);
        begin
    }

    /// Writes one character where nothing is drawn yet.
    pub(crate) fn mark(&mut self, x: u16, y: u16, mark: &str, style: Style) {
        let at = (self.area.x.saturating_add(x), self.area.y.saturating_add(y));
        if self.buffer.cell(at).is_some_and(|cell| cell.symbol() == " ") {
            self.text(x, y, mark, style);
        }
    }

    /// Writes a text into as many rows as it needs.
    pub(crate) fn paragraph(&mut self, y: u16, text: &str, style: Style) {
        for (row, y) in wrapped(text, self.width()).iter().zip(y..) {
            self.text(0, y, row, style);
        }
    }

    /// A line across, with a heading at its beginning and a remark at its end.
    pub(crate) fn heading(&mut self, heading: &str, remark: &str) {
        let width = self.width();
        let begin = self.text(0, 0, "─ ", DIM);
        let begin = self.text(begin, 0, heading, BOLD) + 1;
        let long = columns(remark);
        let end = match width.checked_sub(begin + long + 4) {
            Some(_) if long > 0 => {
                self.text(width - 1, 0, "─", DIM);
                self.text_right(width - 2, 0, remark, DIM) - 1
            }
            _ => width,
        };
        self.text(begin, 0, &"─".repeat(end.saturating_sub(begin) as usize), DIM);
    }

    /// Bars side by side over the whole part, one a column: each from 0 (none) to 1 (all of the
    /// height). A bar above 0 is always seen.
    pub(crate) fn bars(
        &mut self,
        set: &bar::Set<'static>,
        bars: impl Iterator<Item = (f64, Style)>,
    ) {
        let full = u64::from(self.area.height) * 8;
        let least = if set.one_eighth == set.empty { 2 } else { 1 };
        let data = bars.map(|(height, style)| {
            let eighths = (height * full as f64).round() as u64;
            let eighths = if height > 0.0 { eighths.clamp(least, full) } else { 0 };
            SparklineBar::from(eighths).style(style)
        });
        Sparkline::default()
            .bar_set(set.clone())
            .max(full.max(1))
            .data(data)
            .render(self.area, self.buffer);
    }

    /// Draws a widget of the library over the whole part.
    pub(crate) fn widget(&mut self, widget: impl Widget) {
        widget.render(self.area, self.buffer);
    }
}

/// How many columns a text takes.
pub(crate) fn columns(text: &str) -> u16 {
    Span::raw(text).width().min(usize::from(u16::MAX)) as u16
}

/// A text in rows of so many columns. A word that is wider than a row goes on in the next.
pub(crate) fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = width.max(1);
    let mut rows = vec![String::new()];
    for word in text.split_whitespace() {
        let row = rows.last().map_or("", String::as_str);
        let is_beside = !row.is_empty() && columns(row) + 1 + columns(word) <= width;
        if !row.is_empty() && !is_beside {
            rows.push(String::new());
        }
        for (n, character) in word.chars().enumerate() {
            if rows.last().is_some_and(|row| columns(row) + 1 > width) {
                rows.push(String::new());
            }
            if let Some(row) = rows.last_mut() {
                row.extend((n == 0 && is_beside).then_some(' '));
                row.push(character);
            }
        }
    }
    rows
}

/// The axis label that sits at a column: centred, moved inwards at the ends; none where it would touch
/// another.
pub(crate) fn axis_label(pen: &mut Pen<'_>, column: u16, text: &str, places: &mut Places) {
    let width = columns(text);
    let begin = column.saturating_sub(width / 2).min(pen.width().saturating_sub(width));
    if places.take(begin, begin + width) {
        pen.text(begin, 0, text, DIM);
    }
}
