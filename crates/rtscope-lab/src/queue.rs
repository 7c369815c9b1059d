//! Runs many runs, several at a time, and says how far it is.

use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    boot::Ending,
    error::LabError,
    guest_run::{GuestOutcome, GuestRun, Surroundings},
};

/// A run and where its record goes.
#[derive(Clone, Debug)]
pub struct QueuedRun {
    /// The run.
    pub run: GuestRun,
    /// A folder that does not exist yet.
    pub folder: PathBuf,
}

impl QueuedRun {
    /// What its folder is called among the others.
    #[must_use]
    pub fn folder_name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Kernel, seed and plan, as they are told.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} seed {} {}", self.run.kernel.label, self.run.spec.seed, self.run.plan)
    }
}

/// How often it is said that guests are at work.
pub const AT_WORK: Duration = Duration::from_secs(20);

/// What is said while guests run.
#[derive(Clone, Debug)]
pub enum News<'a> {
    /// They are at work, for so long now.
    AtWork(Duration),
    /// A guest says a line.
    Line(&'a QueuedRun, &'a str),
    /// A guest is done.
    Done {
        /// Which.
        item: &'a QueuedRun,
        /// How it ended, or why it could not be run.
        ending: Result<&'a Ending, &'a LabError>,
        /// How long it took; none when its record was known.
        took: Option<Duration>,
        /// Cells that are done, this one among them.
        done: usize,
        /// All guests.
        all: usize,
        /// Time left, estimated from the guests that were run; none while nothing is known.
        left: Option<Duration>,
    },
}

/// Runs every guest, `jobs` at a time, and returns what came of each, in their order. One that
/// fails doesn't end the others; an interruption does.
pub fn run_all(
    items: &[QueuedRun],
    jobs: usize,
    emulator: impl Fn(&GuestRun) -> String + Sync,
    around: &Surroundings<'_>,
    news: &(dyn Fn(&News<'_>) + Sync),
) -> Vec<Result<GuestOutcome, LabError>> {
    let next = AtomicUsize::new(0);
    let pace = Mutex::new(Pace::default());
    let outcomes: Vec<Mutex<Option<Result<GuestOutcome, LabError>>>> =
        items.iter().map(|_| Mutex::new(None)).collect();
    let work = &|| {
        while let Some((item, slot)) = Some(next.fetch_add(1, Relaxed))
            .filter(|_| !(around.stop)())
            .and_then(|at| Some((items.get(at)?, &outcomes[at])))
        {
            let version = emulator(&item.run);
            let mut on_line = |line: &str| news(&News::Line(item, line));
            let outcome = item.run.run(&version, &item.folder, around, &mut on_line);
            let took = outcome.as_ref().ok().and_then(|outcome| outcome.took);
            let (done, left) = locked(&pace).count(took, items.len(), jobs);
            let ending = outcome.as_ref().map(|outcome| &outcome.ending);
            news(&News::Done { item, ending, took, done, all: items.len(), left });
            *locked(slot) = Some(outcome);
        }
    };
    // The kernel ends an emulator when the thread that started it ends: each waits for its own.
    let (over, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let began = Instant::now();
            // Ends when the other side is dropped.
            while end.recv_timeout(AT_WORK) == Err(RecvTimeoutError::Timeout) {
                news(&News::AtWork(began.elapsed()));
            }
        });
        // Each worker holds its own end, so that the last one to end ends the watch, too.
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            let over = over.clone();
            scope.spawn(move || {
                work();
                drop(over);
            });
        }
        drop(over);
    });
    let outcome = |slot: Mutex<Option<_>>| slot.into_inner().ok().flatten();
    outcomes.into_iter().map(|slot| outcome(slot).unwrap_or(Err(LabError::NotReached))).collect()
}

/// A lock whose holder panicked still holds what was written.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How fast guests are done.
#[derive(Default)]
struct Pace {
    done: usize,
    /// Those of the done that were really run.
    run: u32,
    /// How long they took, added up.
    took: Duration,
}

impl Pace {
    /// Counts a guest; how many are done, and the time left.
    fn count(
        &mut self,
        took: Option<Duration>,
        all: usize,
        jobs: usize,
    ) -> (usize, Option<Duration>) {
        self.done += 1;
        self.run += u32::from(took.is_some());
        self.took += took.unwrap_or_default();
        let remaining = u32::try_from(all - self.done).unwrap_or(u32::MAX);
        (self.done, self.left(remaining, jobs))
    }

    /// Time left: the remaining guests take as long as those before, `jobs` at a time. Nothing is known
    /// before one was run.
    fn left(&self, remaining: u32, jobs: usize) -> Option<Duration> {
        let each = self.took.checked_div(self.run)?;
        Some(each * remaining / u32::try_from(jobs.max(1)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_pace() {
        let seconds = Duration::from_secs;
        let mut pace = Pace::default();
        assert_eq!(pace.count(None, 23, 2), (1, None), "nothing was run yet");
        assert_eq!(pace.count(Some(seconds(10)), 23, 2), (2, Some(seconds(105))));
        assert_eq!(pace.count(Some(seconds(30)), 23, 2), (3, Some(seconds(200))));
        pace.done = 22;
        assert_eq!(pace.count(None, 23, 2), (23, Some(Duration::ZERO)));
    }
}
