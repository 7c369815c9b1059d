//! The terminal screens of a run: a block under the prompt, or the full screen of `--live`.
//!
//! Both are fed by the run's one stream of events, on the control thread. [`state`] is what the events
//! add up to and draws nothing; [`view`] draws it and knows nothing else; [`terminal`] never waits
//! and never fails: a run must not suffer from its terminal.

mod axis;
mod block;
mod full_screen;
mod inline;
mod input;
mod live;
pub(crate) mod oscilloscope;
#[cfg(test)]
pub(crate) mod script;
pub(crate) mod state;
mod terminal;
mod view;

use std::io;

use ratatui::{buffer::Buffer, style::Style};
use rtscope_analyse::statistics::claim::Claim;
use rtscope_model::{event::Stamped, plan::Plan};

pub(crate) use self::{inline::Inline, live::Live};
use crate::output;

/// Takes colours and attributes out of a finished frame where the user wants none (`NO_COLOR`).
fn respect_no_color(frame: &mut Buffer) {
    if !output::wants_attributes() {
        frame.set_style(frame.area, Style::reset());
    }
}

/// Something that shows a run while it runs. It closes on drop.
pub(crate) trait Screen {
    /// Takes in the next event, in order; draws at most once for each
    /// [`Progress`](rtscope_model::event::Event::Progress).
    fn event(&mut self, stamped: &Stamped);

    /// Takes in how far the claim is that the run goes on for, about once a second.
    fn claim(&mut self, claim: &Claim);
}

/// A block of a few lines under the prompt, at standard error. Each finished phase leaves a line.
///
/// # Errors
///
/// When standard error is no terminal, or one that can't move its cursor: print plain lines instead.
pub(crate) fn inline(plan: &Plan) -> io::Result<Inline> {
    Inline::open(plan)
}

/// The full screen, at standard error. `stop` is called when the user ends the run by a key: Ctrl-C
/// raises no signal here.
///
/// # Errors
///
/// When standard error is no terminal, or no key can be read: the terminal is left as it was.
pub(crate) fn live(plan: &Plan, stop: impl Fn() + 'static) -> io::Result<Live> {
    Live::open(plan, stop)
}
