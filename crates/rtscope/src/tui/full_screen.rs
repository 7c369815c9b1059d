//! The whole terminal in raw mode, given back on drop, and the keys that the user presses.
//!
//! Keys are read without waiting; no thread of its own waits for them.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    time::Duration,
};

use ratatui::{
    Frame, Terminal, TerminalOptions, Viewport,
    backend::CrosstermBackend,
    crossterm::{cursor, event, execute, terminal},
    layout::{Position, Rect},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::terminal::{Mode, Tty, Turned};

/// The most keys to take between two frames.
pub(super) const KEYS: usize = 32;

pub(super) struct FullScreen {
    tty: Tty,
    turned: Turned,
    terminal: Terminal<CrosstermBackend<Tty>>,
    area: Rect,
    keyboard: Keyboard,
}

impl FullScreen {
    /// Takes the whole terminal, at standard error.
    ///
    /// # Errors
    ///
    /// When standard error is no terminal, or no key can be read: the terminal is left as it was.
    pub(super) fn open() -> io::Result<FullScreen> {
        let mut tty = Tty::open()?;
        let area = Rect::from((Position::ORIGIN, tty.size()));
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        let terminal = Terminal::with_options(CrosstermBackend::new(tty.clone()), options)?;
        terminal::enable_raw_mode()?;
        let turned = Turned::into(Mode::Full);
        let all = terminal::ClearType::All;
        execute!(tty, terminal::EnterAlternateScreen, cursor::Hide, terminal::Clear(all))?;
        Ok(FullScreen { tty, turned, terminal, area, keyboard: Keyboard::open() })
    }

    /// Whether the terminal is still ours.
    pub(super) fn is_on(&self) -> bool {
        self.turned.is_on()
    }

    /// The next key that was pressed and not yet taken.
    pub(super) fn key(&mut self) -> io::Result<Option<event::Event>> {
        match self.keyboard.is_there() && event::poll(Duration::ZERO)? {
            true => event::read().map(Some),
            false => Ok(None),
        }
    }

    /// The size of the terminal now.
    pub(super) fn fit(&mut self) -> io::Result<Rect> {
        let area = Rect::from((Position::ORIGIN, self.tty.size()));
        if area != self.area {
            self.area = area;
            self.terminal.resize(area)?;
        }
        Ok(area)
    }

    /// Draws a frame. A terminal that has not taken the last one is left alone.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if self.tty.is_ready() {
            self.terminal.draw(|frame| {
                draw(frame);
                super::respect_no_color(frame.buffer_mut());
            })?;
        }
        Ok(())
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        self.turned.back(&mut self.tty);
    }
}

/// Where keys come from: standard input, or the terminal of the session where that is something else.
struct Keyboard(Option<File>);

impl Keyboard {
    fn open() -> Keyboard {
        let terminal = || File::open("/dev/tty").ok();
        Keyboard(if io::stdin().is_terminal() { None } else { terminal() })
    }

    /// Whether the terminal is still there. A closed window or a broken connection hangs it up, and
    /// reading keys from it would then never return.
    fn is_there(&self) -> bool {
        let stdin = io::stdin();
        let file = self.0.as_ref().map_or(stdin.as_fd(), |file| file.as_fd());
        let mut asked = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        poll(&mut asked, Some(&Timespec::default())).is_ok() && !asked[0].revents().intersects(gone)
    }
}
