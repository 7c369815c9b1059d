//! The full screen of `--live`: alternate screen, raw mode, keys.
//!
//! Keys are looked at whenever an event comes, eight times a second and more, without waiting; no
//! thread of its own waits for them.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    time::Duration,
};

use ratatui::{
    Terminal, TerminalOptions, Viewport,
    backend::CrosstermBackend,
    crossterm::{cursor, event, execute, terminal},
    layout::Rect,
};
use rtscope_analyse::statistics::claim::Claim;
use rtscope_model::{
    event::{Event, Stamped},
    plan::Plan,
    printable::printable,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    Screen, input,
    state::State,
    terminal::{Mode, Tty, Turned},
    view::{self, Look, Symbols},
};

/// The most keys taken in at one event.
const KEYS: usize = 32;

/// The screen; the terminal is put back on drop.
pub(crate) struct Live {
    tty: Tty,
    turned: Turned,
    terminal: Terminal<CrosstermBackend<Tty>>,
    area: Rect,
    state: State,
    /// What is shown while the screen is frozen.
    frozen: Option<Box<State>>,
    look: Look,
    keyboard: Keyboard,
    stop: Box<dyn Fn()>,
}

/// Where keys come from: standard input, or the terminal of the session where that is something else.
pub(super) struct Keyboard(Option<File>);

impl Keyboard {
    pub(super) fn open() -> Keyboard {
        let terminal = || File::open("/dev/tty").ok();
        Keyboard(if io::stdin().is_terminal() { None } else { terminal() })
    }

    /// Whether the terminal is still there. A closed window or a broken connection hangs it up, and
    /// reading keys from it would then never return.
    pub(super) fn is_there(&self) -> bool {
        let stdin = io::stdin();
        let file = self.0.as_ref().map_or(stdin.as_fd(), |file| file.as_fd());
        let mut asked = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        poll(&mut asked, Some(&Timespec::default())).is_ok() && !asked[0].revents().intersects(gone)
    }
}

impl Live {
    pub(super) fn open(plan: &Plan, stop: impl Fn() + 'static) -> io::Result<Live> {
        let mut tty = Tty::open()?;
        let area = Rect::from((ratatui::layout::Position::ORIGIN, tty.size()));
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        let backend = CrosstermBackend::new(tty.clone());
        let terminal = Terminal::with_options(backend, options)?;
        terminal::enable_raw_mode()?;
        let turned = Turned::into(Mode::Full);
        let all = terminal::ClearType::All;
        execute!(tty, terminal::EnterAlternateScreen, cursor::Hide, terminal::Clear(all))?;
        let look = Look {
            host: host(),
            symbols: Symbols::for_terminal(&std::env::var("TERM").unwrap_or_default()),
            selected: 0,
            linear: false,
            frozen: false,
            help: false,
            ending: false,
        };
        let (state, stop) = (State::new(plan), Box::new(stop));
        let keyboard = Keyboard::open();
        Ok(Live { tty, turned, terminal, area, state, frozen: None, look, keyboard, stop })
    }

    /// Takes in the keys that were pressed.
    fn keys(&mut self) -> io::Result<()> {
        for _ in 0..KEYS {
            if !self.keyboard.is_there() || !event::poll(Duration::ZERO)? {
                break;
            }
            let Some(action) = input::action(&event::read()?) else { continue };
            input::change(&mut self.look, action, self.state.lanes.len());
            match action {
                input::Action::Stop => (self.stop)(),
                input::Action::Freeze if self.look.frozen => {
                    self.frozen = Some(Box::new(self.state.clone()));
                }
                input::Action::Freeze => self.frozen = None,
                _ => {}
            }
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        let area = Rect::from((ratatui::layout::Position::ORIGIN, self.tty.size()));
        if area != self.area {
            self.area = area;
            self.terminal.resize(area)?;
        }
        let state = self.frozen.as_deref().unwrap_or(&self.state);
        // A session may have fewer threads than the one before.
        self.look.selected = self.look.selected.min(state.lanes.len());
        let look = &self.look;
        self.terminal.draw(|frame| {
            let area = frame.area();
            view::draw(frame.buffer_mut(), area, state, look);
            super::respect_no_color(frame.buffer_mut());
        })?;
        Ok(())
    }
}

/// The machine's name; empty where it isn't shown.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    printable(name.trim()).into_owned()
}

impl Screen for Live {
    fn claim(&mut self, claim: &Claim) {
        self.state.claim = Some(claim.progress());
    }

    fn event(&mut self, stamped: &Stamped) {
        self.state.apply(stamped);
        // Nobody prints the summaries here.
        while self.state.take_summary().is_some() {}
        if !self.turned.is_on() {
            return;
        }
        // A terminal whose keys can't be read still shows the run.
        let _ = self.keys();
        if matches!(stamped.event, Event::Progress(_)) && self.tty.is_ready() {
            let _ = self.draw();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.turned.back(&mut self.tty);
    }
}
