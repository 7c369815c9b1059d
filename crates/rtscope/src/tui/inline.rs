//! The default screen: a block under the prompt, and a line above it for every finished phase.
//!
//! Raw mode is never turned on, so Ctrl-C raises SIGINT as ever.

use std::io;

use ratatui::layout::Size;
use rtscope_analyse::statistics::claim::Claim;
use rtscope_model::{
    event::{Event, Stamped},
    plan::Plan,
};

use super::{
    Screen,
    block::Block,
    state::State,
    terminal::{Mode, Tty, Turned},
    view::{Symbols, compact},
};

/// The block; removed on drop.
#[derive(Debug)]
pub(crate) struct Inline {
    tty: Tty,
    turned: Turned,
    state: State,
    block: Block,
    symbols: &'static Symbols,
}

impl Inline {
    pub(super) fn open(plan: &Plan) -> io::Result<Inline> {
        let tty = Tty::open()?;
        let symbols = Symbols::for_terminal(&std::env::var("TERM").unwrap_or_default());
        let turned = Turned::into(Mode::Inline);
        Ok(Inline { tty, turned, state: State::new(plan), block: Block::new(), symbols })
    }

    /// Prints the phases that are over.
    fn print_summaries(&mut self) -> io::Result<()> {
        let Size { width, .. } = self.tty.size();
        while let Some(summary) = self.state.take_summary() {
            let mut lines = compact::summary(&self.state, &summary, width.saturating_sub(1));
            super::respect_no_color(&mut lines);
            self.block.print(&mut self.tty, &lines)?;
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        self.print_summaries()?;
        let Size { width, height } = self.tty.size();
        let height = compact::height(&self.state, height);
        let (state, symbols) = (&self.state, self.symbols);
        let draw = |buffer: &mut _| {
            compact::draw(buffer, state, symbols);
            super::respect_no_color(buffer);
        };
        self.block.draw(&mut self.tty, Size { width, height }, draw)
    }
}

impl Screen for Inline {
    fn claim(&mut self, claim: &Claim) {
        self.state.claim = Some(claim.progress());
    }

    fn event(&mut self, stamped: &Stamped) {
        self.state.apply(stamped);
        if matches!(stamped.event, Event::Progress(_)) && self.turned.is_on() && self.tty.is_ready()
        {
            // The terminal itself never reports an error.
            let _ = self.draw();
        }
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        if self.turned.is_on() {
            self.state.close();
            let _ = self.print_summaries();
            let _ = self.block.erase(&mut self.tty);
        }
        self.turned.back(&mut self.tty);
    }
}
