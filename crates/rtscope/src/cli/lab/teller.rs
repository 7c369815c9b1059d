//! How far guests are, told on standard error.

use std::{
    io,
    time::{Duration, Instant},
};

use rtscope_lab::{
    boot::Ending,
    queue::{Item, News},
};

use crate::output::{can_redraw, note, progress};

/// After so long without a line the teller says that guests are at work.
pub(super) const SILENT: Duration = Duration::from_secs(20);

/// Tells on standard error how far the cells are.
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

    /// Says that guests are at work when nothing else was said for long.
    pub(super) fn still_there(&mut self, elapsed: Duration) {
        if self.told.elapsed() >= SILENT {
            self.passing(&format!("{} s: the guests are at work", elapsed.as_secs()));
            self.told = Instant::now();
        }
    }

    /// A line that the next one may replace.
    fn passing(&self, line: &str) {
        if self.terminal { progress(line) } else { note(line) }
    }

    pub(super) fn tell(&mut self, news: &News<'_>) {
        let name = |item: &Item| {
            let cell = &item.cell;
            format!("{} seed {} {}", cell.subject.label, cell.seed, cell.plan)
        };
        match news {
            News::Line(item, line) if self.verbose => note!("{}: {line}", name(item)),
            News::Line(item, line) if self.terminal => {
                progress(&format!("{}: {line}", name(item)));
            }
            News::Line(..) => return,
            News::Done { item, ending, took, done, all, left } => {
                let how = match (ending, took) {
                    (Ok(Ending::Sent), None) => "known".to_owned(),
                    (Ok(Ending::Sent), Some(took)) => format!("{:.1} s", took.as_secs_f64()),
                    (Ok(ending), _) => item.cell.explain(ending),
                    (Err(error), _) => error.to_string(),
                };
                let left = left.filter(|left| !left.is_zero());
                let left = left.map_or(String::new(), |left| format!(", {} left", minutes(left)));
                if self.terminal {
                    progress("");
                }
                note!("[{done}/{all}] {}: {how}{left}", name(item));
            }
        }
        self.told = Instant::now();
    }
}

pub(super) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}
