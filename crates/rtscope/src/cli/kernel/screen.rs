//! Progress of long work, on standard error.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::output;
use rtscope_lab::{costs::minutes, progress::StepProgress};

/// Time between two lines of progress where the output is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows progress: one line that changes on a terminal, else a line now and then.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: bool,
    /// Every line of the programs that run for us is shown, and stays.
    verbose: bool,
    last: Option<Instant>,
    open: bool,
}

impl Screen {
    /// On standard error.
    pub(super) fn new(verbose: bool) -> Screen {
        Screen { terminal: output::can_redraw(&io::stderr()), verbose, last: None, open: false }
    }

    pub(super) fn show(&mut self, progress: &StepProgress) {
        match progress {
            StepProgress::Step(text) => self.line(text),
            StepProgress::Warning(text) => self.line(&format!("warning: {text}")),
            StepProgress::Amount { unit, done, total, seconds_left, at } => {
                let of = total.map_or(String::new(), |total| {
                    format!(" of about {total} ({} %)", done * 100 / total.max(1))
                });
                let left = seconds_left.map_or(String::new(), |left| {
                    format!(", {} left", minutes(Duration::from_secs_f64(left)))
                });
                self.amount(&format!("{done}{of} {unit}{left}"), at);
            }
        }
    }

    fn amount(&mut self, text: &str, at: &str) {
        if self.verbose && !at.is_empty() {
            return note!("{text}  {at}");
        }
        let every = if self.terminal { Duration::from_millis(200) } else { LINE_EVERY };
        if self.last.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        self.last = Some(Instant::now());
        if self.terminal {
            let line: String = format!("{text}  {at}").chars().take(79).collect();
            output::progress(&line);
            self.open = true;
        } else {
            note!("{text}");
        }
    }

    fn line(&mut self, text: &str) {
        self.close();
        note!("{text}");
        self.last = None;
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            note!("");
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
}
