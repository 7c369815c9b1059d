//! How far guests are, told on standard error.

use std::{io, time::Instant};

use rtscope_lab::{
    boot::Ending,
    costs::minutes,
    queue::{AT_WORK, News},
};

use crate::output::{can_redraw, note, progress};

/// Tells on standard error how far the guests are.
pub(super) struct Teller {
    terminal: bool,
    /// Every line of a guest is told, and stays.
    verbose: bool,
    /// When something was said last.
    told: Instant,
}

impl Teller {
    pub(super) fn new(verbose: bool) -> Teller {
        Teller { terminal: can_redraw(&io::stderr()), verbose, told: Instant::now() }
    }

    /// A line that the next one may replace.
    fn passing(&self, line: &str) {
        if self.terminal { progress(line) } else { note(line) }
    }

    pub(super) fn show(&mut self, news: &News<'_>) {
        match news {
            News::AtWork(elapsed) if self.told.elapsed() >= AT_WORK => {
                self.passing(&format!("{} s: guests are running", elapsed.as_secs()));
            }
            News::AtWork(_) => return,
            News::Line(item, line) if self.verbose => note!("{}: {line}", item.name()),
            News::Line(item, line) if self.terminal => {
                progress(&format!("{}: {line}", item.name()));
            }
            News::Line(..) => return,
            News::Done { item, ending, took, done, all, left } => {
                let how = match (ending, took) {
                    (Ok(Ending::Sent), None) => "known".to_owned(),
                    (Ok(Ending::Sent), Some(took)) => format!("{:.1} s", took.as_secs_f64()),
                    (Ok(ending), _) => item.run.explain(ending),
                    (Err(error), _) => error.to_string(),
                };
                let left = left.filter(|left| !left.is_zero());
                let left = left.map_or(String::new(), |left| format!(", {} left", minutes(left)));
                if self.terminal {
                    progress("");
                }
                note!("[{done}/{all}] {}: {how}{left}", item.name());
            }
        }
        self.told = Instant::now();
    }
}
