//! Keeps an engine at work until every cell of an order is there, or nothing helps any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    Engine, LiveTask, Submission, Task,
    journal::{CellStep, Journal, Spent},
    order::{CellState, MatrixOrder, Survey},
};
use crate::{costs::minutes, error::LabError, kernel_ref::KernelRef, lab::Host};

/// How often a task is submitted that gets no further.
const TRIES: u32 = 3;

/// How often is looked at the engine, at first and later.
const LOOKS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];

/// How often is told how far it is: after so long at least when it has changed, and after so long in any case.
const TELLS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];

/// For how long an engine may fail to answer.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// How a drive ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveEnd {
    /// Nothing is left to do, or nothing helps.
    Done,
    /// The user went away; what goes on without this process.
    Left(Option<String>),
}

/// A drive of an order.
#[expect(missing_debug_implementations, reason = "holds functions, which show nothing")]
pub struct Drive<'a> {
    pub order: &'a MatrixOrder,
    pub out: &'a Path,
    pub engine: &'a mut dyn Engine,
    pub host: &'a Host<'a>,
    /// For each kernel the one whose task prepares it, where it isn't there yet.
    pub prepared_by: Vec<Option<usize>>,
}

/// What was tried of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    times: u32,
    /// Its missing cells at the last time.
    missing: usize,
}

/// How far an order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderProgress {
    pub cells: usize,
    pub whole: usize,
    pub failed: usize,
    pub running: usize,
    pub waiting: usize,
    pub spent: Spent,
}

impl fmt::Display for OrderProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OrderProgress { cells, whole, failed, running, waiting, spent } = *self;
        write!(f, "[{}/{cells}] ", whole + failed)?;
        if failed > 0 {
            write!(f, "{failed} without a record, ")?;
        }
        write!(f, "{running} tasks running, {waiting} waiting")?;
        let more = spent.of_more(cells - whole - failed);
        if let Some(more) = more.filter(|more| !more.is_zero()) {
            let left = more / u32::try_from(running.max(1)).unwrap_or(1);
            write!(f, ", about {} left", minutes(left))?;
            write!(f, "; {} used, about {} more", core_hours(spent.time), core_hours(more))
        } else {
            write!(f, "; {} used", core_hours(spent.time))
        }
    }
}

/// A time of one core.
#[must_use]
pub fn core_hours(time: Duration) -> String {
    let hours = time.as_secs_f64() / 3600.0;
    let digits = if hours < 1.0 { 3 } else { 1 };
    format!("{hours:.digits$} core hours")
}

impl Drive<'_> {
    /// Submits what is missing, waits, and submits again what a lost task left.
    ///
    /// # Errors
    ///
    /// The engine refuses everything, or doesn't answer for long.
    pub fn run(&mut self) -> Result<DriveEnd, LabError> {
        let mut tried: BTreeMap<Task, Tried> = BTreeMap::new();
        let (began, mut answered) = (Instant::now(), Instant::now());
        let mut teller = Teller::default();
        loop {
            if (self.host.stop)() {
                return Ok(DriveEnd::Left(self.engine.leave()));
            }
            // First the engine, then the folder: a task that ended in between has left its cells.
            match self.engine.live() {
                Ok(live) => {
                    answered = Instant::now();
                    let survey = self.order.survey(self.out);
                    teller.tell(&self.progress(&survey, &live), self.host);
                    let due = self.due(&survey, &live, &mut tried);
                    if live.is_empty() && due.is_empty() {
                        teller.told = None;
                        teller.tell(&self.progress(&survey, &live), self.host);
                        return Ok(DriveEnd::Done);
                    }
                    self.submit(due, live.is_empty())?;
                }
                Err(e) if answered.elapsed() > PATIENCE => return Err(e),
                Err(e) => teller.no_answer(&e, self.host),
            }
            let pause = (began.elapsed() / 30).clamp(LOOKS[0], LOOKS[1]);
            let until = Instant::now() + pause;
            while Instant::now() < until && !(self.host.stop)() {
                thread::sleep(LOOKS[0]);
            }
        }
    }

    fn progress(&self, survey: &Survey, live: &[LiveTask]) -> OrderProgress {
        let running = live.iter().filter(|live| live.is_running).count();
        OrderProgress {
            cells: survey.cells.len(),
            whole: survey.count(CellState::Whole),
            failed: survey.count(CellState::Failed),
            running,
            waiting: live.len() - running,
            spent: Spent::of(&Journal::read_all(self.out)),
        }
    }

    /// What is to be submitted: for each list the task that it waits for, and its tasks.
    fn due(
        &self,
        survey: &Survey,
        live: &[LiveTask],
        tried: &mut BTreeMap<Task, Tried>,
    ) -> Vec<(Option<Task>, Vec<Task>)> {
        let busy: BTreeSet<Task> = live.iter().map(|live| live.task).collect();
        let mut lists: BTreeMap<Option<Task>, Vec<Task>> = BTreeMap::new();
        for (number, batch) in self.order.batches.iter().enumerate() {
            let is_missing = |cell: &&usize| survey.cells[**cell] == CellState::Missing;
            let (task, missing) = (Task::Batch(number), batch.iter().filter(is_missing).count());
            if missing == 0 || busy.contains(&task) {
                continue;
            }
            let first = self.task_before(number);
            if first.is_some_and(|first| {
                busy.contains(&first) || tried.get(&first).is_some_and(|it| it.times >= TRIES)
            }) {
                continue;
            }
            let known = tried.entry(task).or_default();
            // One that gets further is no failure, however often a time limit ends it.
            *known = if missing < known.missing { Tried::default() } else { *known };
            if known.times < TRIES {
                *known = Tried { times: known.times + 1, missing };
                lists.entry(first).or_default().push(task);
            }
        }
        for first in lists.keys().flatten() {
            tried.entry(*first).or_default().times += 1;
        }
        lists.into_iter().collect()
    }

    /// The task that prepares the kernel of a batch, where it isn't there.
    fn task_before(&self, batch: usize) -> Option<Task> {
        let by = self.prepared_by[self.order.kernel_of(batch)]?;
        let kernel = KernelRef::parse(&self.order.kernels[by]).ok()?;
        (!MatrixOrder::is_pinned(self.out, &kernel)).then_some(Task::Kernel(by))
    }

    /// Submits lists of tasks in pieces that the engine takes. What it refuses comes again later, while others are at
    /// work.
    fn submit(
        &mut self,
        lists: Vec<(Option<Task>, Vec<Task>)>,
        is_idle: bool,
    ) -> Result<(), LabError> {
        let mut is_first = is_idle;
        for (before, tasks) in lists {
            let refused = self.submit_list(before, &tasks, &mut is_first);
            match refused {
                Err(e) if is_first => return Err(e),
                Err(e) => (self.host.note)(&format!("{e}; it is tried again later")),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn submit_list(
        &mut self,
        before: Option<Task>,
        tasks: &[Task],
        is_first: &mut bool,
    ) -> Result<(), LabError> {
        let after = match before {
            None => None,
            Some(task) => {
                let kernel = Submission::write(self.out, vec![task])?;
                self.engine.submit(&kernel, None)?;
                *is_first = false;
                Some(kernel.number)
            }
        };
        let max = self.engine.tasks_max()?.max(1);
        for piece in tasks.chunks(max) {
            let submission = Submission::write(self.out, piece.to_vec())?;
            self.engine.submit(&submission, after)?;
            *is_first = false;
        }
        Ok(())
    }
}

/// Tells how far an order is, no more often than it helps.
#[derive(Default)]
struct Teller {
    told: Option<(Instant, OrderProgress)>,
    silent: bool,
}

impl Teller {
    fn tell(&mut self, progress: &OrderProgress, host: &Host<'_>) {
        self.silent = false;
        let is_due = self.told.is_none_or(|(at, told)| {
            let [changed, any] = TELLS;
            at.elapsed() >= if told == *progress { any } else { changed }
        });
        if is_due {
            (host.note)(&progress.to_string());
            self.told = Some((Instant::now(), *progress));
        }
    }

    fn no_answer(&mut self, error: &LabError, host: &Host<'_>) {
        if !self.silent {
            (host.note)(&format!("{error}; rtscope asks again"));
        }
        self.silent = true;
    }
}

/// Why a cell isn't there.
#[must_use]
pub fn why_missing(out: &Path, order: &MatrixOrder) -> BTreeMap<String, String> {
    let mut why = BTreeMap::new();
    for line in Journal::read_all(out) {
        let said = match (line.step, line.why) {
            (_, Some(why)) => why,
            (CellStep::Began, None) => "the process that ran its guest was killed".to_owned(),
            (CellStep::Ended, None) => "the process that ran its guest was told to end".to_owned(),
            _ => continue,
        };
        why.insert(line.cell, said);
    }
    let of_kernels: BTreeMap<usize, String> = order
        .kernels
        .iter()
        .enumerate()
        .filter_map(|(at, typed)| Some((at, KernelRef::parse(typed).ok()?.name().to_owned())))
        .filter_map(|(at, name)| Some((at, why.get(&kernel_line(&name))?.clone())))
        .collect();
    for cell in &order.cells {
        let other = || of_kernels.get(&cell.kernel).cloned();
        if !why.contains_key(&cell.name)
            && let Some(text) = other()
        {
            why.insert(cell.name.clone(), text);
        }
    }
    why
}

/// What a kernel is called in the journal.
#[must_use]
pub fn kernel_line(name: &str) -> String {
    format!("kernel {name}")
}
