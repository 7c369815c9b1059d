//! What a run shows while it goes: nothing, plain lines, or one of the terminal screens.

use std::io::{self, IsTerminal, Write};

use rtscope_measure::interrupt::Interrupt;
use rtscope_model::{
    event::{Event, Stamped},
    finding::Weight,
    plan::Plan,
    time::Nanos,
};

use crate::tui::{self, Screen};

/// How much a run shows while it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Nothing.
    Quiet,
    /// An in-place block on a terminal, plain lines elsewhere.
    Usual,
    /// The full screen.
    Live,
}

/// The screen for a run. Screens go to standard error, so that standard output stays clean.
pub(crate) fn open(
    show: Show,
    plan: &Plan,
    interrupt: &Interrupt,
) -> anyhow::Result<Box<dyn Screen>> {
    let terminal = io::stderr().is_terminal();
    match show {
        Show::Quiet => Ok(Box::new(Silence)),
        Show::Live if !terminal => {
            anyhow::bail!("--live needs a terminal: leave it out, or don't redirect standard error")
        }
        Show::Live => {
            let interrupt = interrupt.clone();
            Ok(Box::new(tui::live(plan, move || interrupt.stop())?))
        }
        // A terminal that can't be drawn on (TERM=dumb) still takes lines.
        Show::Usual if terminal && std::env::var_os("TERM").is_some_and(|term| term != "dumb") => {
            match tui::inline(plan) {
                Ok(screen) => Ok(Box::new(screen)),
                Err(_) => Ok(Box::new(Lines::new(plan))),
            }
        }
        Show::Usual => Ok(Box::new(Lines::new(plan))),
    }
}

/// Shows nothing.
struct Silence;

impl Screen for Silence {
    fn event(&mut self, _: &Stamped) {}
}

/// A line when a phase starts and one when it ends, for pipes and logs.
struct Lines {
    expected: Vec<Nanos>,
    last: Vec<rtscope_model::event::Live>,
}

impl Lines {
    fn new(plan: &Plan) -> Lines {
        let expected = plan.phases.iter().map(rtscope_model::plan::Phase::expected).collect();
        Lines { expected, last: Vec::new() }
    }

    fn text(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::PhaseStarted { cell, name } => {
                let expected = self.expected.get(*cell as usize)?;
                Some(format!("[{}/{}] {name}: {expected}", cell + 1, self.expected.len()))
            }
            Event::Progress(progress) if progress.cell.is_some() => {
                self.last.clone_from(&progress.threads);
                None
            }
            Event::PhaseEnded { .. } => {
                let worst = self.last.iter().map(|live| live.max_ns).max()?;
                let missed: u64 = self.last.iter().map(|live| live.missed).sum();
                Some(format!("      max {}, missed {missed}", Nanos(worst)))
            }
            Event::SettingChanged { setting, from, to, .. } => {
                Some(format!("setting {setting}: {from} -> {to}, until the run ends"))
            }
            Event::Found(finding) if finding.weight >= Weight::Warning => {
                Some(format!("note: {}", finding.text))
            }
            _ => None,
        }
    }
}

impl Screen for Lines {
    fn event(&mut self, stamped: &Stamped) {
        if let Some(text) = self.text(&stamped.event) {
            // A closed pipe must not end a measurement.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}
