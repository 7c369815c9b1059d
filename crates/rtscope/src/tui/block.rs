//! A block of lines under the prompt that is drawn over and over in place.
//!
//! ratatui's inline viewport asks the terminal where its cursor is: it writes the question to
//! standard output, waits up to two seconds for the answer and takes the keys that the user typed
//! meanwhile. A run can't afford that, so this block moves the cursor only relative to itself. Between
//! frames the cursor rests at the block's first character: to erase from there down removes the
//! block and nothing else, even after the terminal was made narrower and wrapped its lines.

use std::io::{self, Write};

use ratatui::{
    backend::IntoCrossterm,
    buffer::{Buffer, CellDiffOption},
    crossterm::{
        cursor::{MoveToColumn, MoveUp},
        queue,
        style::{Attribute, Print, SetAttribute, SetStyle},
        terminal::{Clear, ClearType},
    },
    layout::{Rect, Size},
    style::{Color, Style},
};

/// Every so many frames the whole block is written, changed or not: the terminal echoes what a user
/// types into it.
const WHOLE: u8 = 8;

/// What is on the terminal, and the next frame.
#[derive(Debug)]
pub(super) struct Block {
    shown: Buffer,
    next: Buffer,
    frame: u8,
}

impl Block {
    pub(super) fn new() -> Block {
        Block { shown: Buffer::empty(Rect::ZERO), next: Buffer::empty(Rect::ZERO), frame: 0 }
    }

    /// Draws a frame of this size; mostly only what changed is written. The last column stays free,
    /// so that no terminal wraps a line.
    pub(super) fn draw(
        &mut self,
        out: &mut impl Write,
        size: Size,
        draw: impl FnOnce(&mut Buffer),
    ) -> io::Result<()> {
        let area = Rect::new(0, 0, size.width.saturating_sub(1), size.height);
        if self.shown.area != area {
            self.erase(out)?;
            self.shown = Buffer::empty(area);
            self.next = Buffer::empty(area);
        }
        self.next.reset();
        draw(&mut self.next);
        self.frame = (self.frame + 1) % WHOLE;
        if self.frame == 0 {
            for cell in &mut self.next.content {
                cell.set_diff_option(CellDiffOption::AlwaysUpdate);
            }
        }
        queue!(out, MoveToColumn(0))?;
        let line = write_changes(out, &self.shown, &self.next)?;
        if line > 0 {
            queue!(out, MoveUp(line))?;
        }
        queue!(out, MoveToColumn(0))?;
        std::mem::swap(&mut self.shown, &mut self.next);
        out.flush()
    }

    /// Puts these lines where the block was: they stay, and the next frame comes below them.
    pub(super) fn print(&mut self, out: &mut impl Write, lines: &Buffer) -> io::Result<()> {
        self.erase(out)?;
        let line = write_changes(out, &Buffer::empty(lines.area), lines)?;
        for _ in line..lines.area.height {
            queue!(out, Print("\r\n"))?;
        }
        out.flush()
    }

    /// Removes the block; the cursor is where it began.
    pub(super) fn erase(&mut self, out: &mut impl Write) -> io::Result<()> {
        if !self.shown.area.is_empty() {
            queue!(out, MoveToColumn(0), Clear(ClearType::FromCursorDown))?;
            self.shown = Buffer::empty(Rect::ZERO);
        }
        out.flush()
    }
}

/// Writes the cells that changed, from the first character of the first line on, and returns the line
/// where the cursor then is. A line feed goes down, because it makes room at the screen's end.
fn write_changes(out: &mut impl Write, shown: &Buffer, next: &Buffer) -> io::Result<u16> {
    let (mut column, mut line) = (0, 0);
    let mut style = Style::new();
    for (x, y, cell) in shown.diff_iter(next) {
        for _ in line..y {
            queue!(out, Print("\r\n"))?;
            column = 0;
        }
        line = y;
        if column != x {
            queue!(out, MoveToColumn(x))?;
        }
        if style_of(cell) != style {
            style = style_of(cell);
            queue!(out, SetAttribute(Attribute::Reset), SetStyle(style.into_crossterm()))?;
        }
        queue!(out, Print(cell.symbol()))?;
        column = x + 1;
    }
    if style != Style::new() {
        queue!(out, SetAttribute(Attribute::Reset))?;
    }
    Ok(line)
}

/// A cell's style as a change from the terminal's own.
fn style_of(cell: &ratatui::buffer::Cell) -> Style {
    let own = |color: Color| (color != Color::Reset).then_some(color);
    let style = Style { fg: own(cell.fg), bg: own(cell.bg), ..Style::new() };
    style.add_modifier(cell.modifier)
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use super::*;

    /// A terminal of 20 by 6 that has seen these bytes.
    fn screen(bytes: &[u8]) -> Vec<String> {
        let mut parser = terminal(100);
        parser.process(bytes);
        let rows = parser.screen().rows(0, 20).map(|row| row.trim_end().to_owned());
        rows.collect()
    }

    fn lines(texts: &[&str]) -> Buffer {
        Buffer::with_lines(texts.iter().copied())
    }

    fn size(height: u16) -> Size {
        Size { width: 20, height }
    }

    fn fill(texts: &'static [&'static str]) -> impl FnOnce(&mut Buffer) {
        move |buffer| {
            for (y, text) in texts.iter().enumerate() {
                buffer.set_string(0, y as u16, text, Color::Red);
            }
        }
    }

    /// A terminal of 6 lines and 20 columns that remembers so many lines above it.
    fn terminal(remembered: usize) -> vt100::Parser {
        let [rows, columns] = [6, 20].map(|size| NonZero::new(size).expect("a size"));
        vt100::Parser::new(rows, columns, remembered)
    }

    #[test]
    fn frames_are_drawn_in_place_and_lines_above_stay() {
        let (mut block, mut out) = (Block::new(), b"$ rtscope run\r\n".to_vec());
        block.draw(&mut out, size(2), fill(&["one 1", "two"])).expect("memory");
        assert_eq!(screen(&out)[..4], ["$ rtscope run", "one 1", "two", ""]);
        let before = out.len();
        block.draw(&mut out, size(2), fill(&["one 2", "two"])).expect("memory");
        assert_eq!(screen(&out)[..4], ["$ rtscope run", "one 2", "two", ""]);
        assert!(!String::from_utf8_lossy(&out[before..]).contains("two"), "it hadn't changed");
        block.print(&mut out, &lines(&["rest 5 s"])).expect("memory");
        block.draw(&mut out, size(2), fill(&["one 3", "two"])).expect("memory");
        assert_eq!(screen(&out)[..4], ["$ rtscope run", "rest 5 s", "one 3", "two"]);
        block.erase(&mut out).expect("memory");
        out.extend(b"the table");
        assert_eq!(screen(&out)[..4], ["$ rtscope run", "rest 5 s", "the table", ""]);
    }

    #[test]
    fn at_the_end_of_the_screen_it_scrolls() {
        let (mut block, mut out) = (Block::new(), b"a\r\nb\r\nc\r\nd\r\ne\r\n$ run\r\n".to_vec());
        block.draw(&mut out, size(3), fill(&["1", "", "3"])).expect("memory");
        assert_eq!(screen(&out), ["d", "e", "$ run", "1", "", "3"]);
        block.draw(&mut out, size(3), fill(&["1", "2", "3"])).expect("memory");
        assert_eq!(screen(&out), ["d", "e", "$ run", "1", "2", "3"]);
        block.print(&mut out, &lines(&["done 1", "done 2"])).expect("memory");
        block.draw(&mut out, size(4), fill(&["1", "2", "3", "4"])).expect("memory");
        assert_eq!(screen(&out), ["done 1", "done 2", "1", "2", "3", "4"]);
        block.draw(&mut out, size(1), fill(&["1"])).expect("memory");
        block.erase(&mut out).expect("memory");
        assert_eq!(screen(&out), ["done 1", "done 2", "", "", "", ""]);
    }

    #[test]
    fn what_a_user_types_is_drawn_over() {
        let (mut block, mut out) = (Block::new(), Vec::new());
        block.draw(&mut out, size(2), fill(&["one", "two"])).expect("memory");
        out.extend(b"^Cxyz\r\nab");
        for _ in 0..WHOLE {
            block.draw(&mut out, size(2), fill(&["one", "two"])).expect("memory");
        }
        // A line that the user began stays above; the block below it is whole.
        assert_eq!(screen(&out)[..4], ["^Cxyz", "one", "two", ""]);
    }

    #[test]
    fn wide_characters_and_styles_leave_no_trace() {
        let (mut block, mut out) = (Block::new(), Vec::new());
        block.draw(&mut out, size(1), fill(&["日本 ▁▂█ x"])).expect("memory");
        assert_eq!(screen(&out)[0], "日本 ▁▂█ x");
        block.draw(&mut out, size(1), fill(&["ab ▁▂█"])).expect("memory");
        assert_eq!(screen(&out)[0], "ab ▁▂█");
        out.extend(b"plain");
        let mut parser = terminal(0);
        parser.process(&out);
        let colour = parser.screen().cell(0, 0).map(vt100::Cell::fgcolor);
        assert_eq!(colour, Some(vt100::Color::Default));
    }
}
