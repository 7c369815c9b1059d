//! The progress of an order, and when it is reported.

use std::{
    fmt,
    time::{Duration, Instant},
};

use super::journal::Spent;
use crate::{costs::minutes, error::LabError, lab::Host};

/// Shortest time between two reports of the progress: if it has changed, and if it hasn't.
const TELLS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];

/// How far an order is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OrderProgress {
    pub(super) cells: usize,
    pub(super) whole: usize,
    pub(super) failed: usize,
    pub(super) running: usize,
    pub(super) waiting: usize,
    /// Why the first of them waits, in the engine's words.
    pub(super) reason: String,
    pub(super) spent: Spent,
    /// CPUs of a guest.
    pub(super) cpus: u32,
}

impl fmt::Display for OrderProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OrderProgress { cells, whole, failed, running, waiting, ref reason, spent, cpus } =
            *self;
        write!(f, "[{}/{cells}] ", whole + failed)?;
        if failed > 0 {
            write!(f, "{failed} without a record, ")?;
        }
        let tasks = if running == 1 { "task" } else { "tasks" };
        write!(f, "{running} {tasks} running, {waiting} waiting")?;
        if !matches!(reason.as_str(), "" | "None") {
            write!(f, " ({reason})")?;
        }
        let more = spent.of_more(cells - whole - failed);
        if let Some(more) = more.filter(|more| !more.is_zero()) {
            let left = more / u32::try_from(running.max(1)).unwrap_or(1);
            write!(f, ", about {} left", minutes(left))?;
            write!(
                f,
                "; used {}, about {} to come",
                core_hours(spent.time * cpus),
                core_hours(more * cpus)
            )
        } else {
            write!(f, "; used {}", core_hours(spent.time * cpus))
        }
    }
}

/// A time of one core.
fn core_hours(time: Duration) -> String {
    let hours = time.as_secs_f64() / 3600.0;
    let digits = if hours < 1.0 { 3 } else { 1 };
    format!("{hours:.digits$} core hours")
}

/// Reports the progress of an order, but not too often.
#[derive(Default)]
pub(super) struct Teller {
    told: Option<(Instant, OrderProgress)>,
    silent: bool,
}

impl Teller {
    pub(super) fn tell(&mut self, progress: &OrderProgress, host: &Host<'_>) {
        self.silent = false;
        let is_due = self.told.as_ref().is_none_or(|(at, told)| {
            let [changed, any] = TELLS;
            at.elapsed() >= if told == progress { any } else { changed }
        });
        if is_due {
            (host.note)(&progress.to_string());
            self.told = Some((Instant::now(), progress.clone()));
        }
    }

    /// Reports the progress at the end, unless it was reported already.
    pub(super) fn last(&mut self, progress: &OrderProgress, host: &Host<'_>) {
        if self.told.as_ref().is_none_or(|(_, told)| told != progress) {
            (host.note)(&progress.to_string());
        }
    }

    pub(super) fn no_answer(&mut self, error: &LabError, host: &Host<'_>) {
        if !self.silent {
            (host.note)(&format!("{error}; rtscope asks again"));
        }
        self.silent = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_an_order_is_fits_into_a_line() {
        let mut progress = OrderProgress {
            cells: 1000,
            whole: 400,
            failed: 2,
            running: 10,
            waiting: 3,
            reason: "Resources".to_owned(),
            spent: Spent { guests: 400, time: Duration::from_secs(1200) },
            cpus: 2,
        };
        assert_eq!(
            progress.to_string(),
            "[402/1000] 2 without a record, 10 tasks running, 3 waiting (Resources), about 3 min left; used \
             0.667 core hours, about 0.997 core hours to come"
        );
        (progress.whole, progress.waiting, progress.reason) = (998, 0, "None".to_owned());
        assert!(
            progress.to_string().ends_with("10 tasks running, 0 waiting; used 0.667 core hours")
        );
    }
}
