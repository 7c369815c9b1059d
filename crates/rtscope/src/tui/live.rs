//! The full screen of `--live`: alternate screen, raw mode, keys.
//!
//! Keys are looked at whenever an event comes, eight times a second and more, without waiting; no
//! thread of its own waits for them.

use std::io;

use rtscope_analyse::statistics::claim::Claim;
use rtscope_model::{
    event::{Event, Stamped},
    plan::Plan,
    printable::printable,
};

use super::{
    Screen,
    full_screen::{FullScreen, KEYS},
    input,
    state::State,
    view::{self, Look, Symbols},
};

/// The screen; the terminal is put back on drop.
pub(crate) struct Live {
    screen: FullScreen,
    state: State,
    /// What is shown while the screen is frozen.
    frozen: Option<Box<State>>,
    look: Look,
    stop: Box<dyn Fn()>,
}

impl Live {
    pub(super) fn open(plan: &Plan, stop: impl Fn() + 'static) -> io::Result<Live> {
        let screen = FullScreen::open()?;
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
        Ok(Live { screen, state, frozen: None, look, stop })
    }

    /// Takes in the keys that were pressed.
    fn keys(&mut self) -> io::Result<()> {
        for _ in 0..KEYS {
            let Some(event) = self.screen.key()? else { break };
            let Some(action) = input::action(&event) else { continue };
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
        self.screen.fit()?;
        let state = self.frozen.as_deref().unwrap_or(&self.state);
        // A session may have fewer threads than the one before.
        self.look.selected = self.look.selected.min(state.lanes.len());
        let look = &self.look;
        self.screen.draw(|frame| {
            let area = frame.area();
            view::draw(frame.buffer_mut(), area, state, look);
        })
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
        if !self.screen.is_on() {
            return;
        }
        // A terminal whose keys can't be read still shows the run.
        let _ = self.keys();
        if matches!(stamped.event, Event::Progress(_)) {
            let _ = self.draw();
        }
    }
}
