//! Keeps an engine at work until every cell of an order is there, or nothing helps any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    Engine, EngineTask, LiveTask, SubmittedBatches,
    journal::{CellStep, Spent, TaskJournal},
    order::{CellState, Survey, WorkOrder},
    progress::{OrderProgress, Teller},
};
use crate::{error::LabError, kernel_ref::KernelRef, lab::Host};

/// How often a task is submitted that gets no further.
const TRIES: u32 = 3;

/// How often is looked at the engine, at first and later.
const LOOKS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];

/// For how long an engine may fail to answer.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// How long to wait until refused tasks are submitted again: at first, and at most.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];

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
pub struct OrderDrive<'a> {
    pub order: &'a WorkOrder,
    pub out: &'a Path,
    pub engine: &'a mut dyn Engine,
    pub host: &'a Host<'a>,
    /// For each kernel the one whose task prepares it, where it isn't there yet.
    pub prepared_by: Vec<Option<usize>>,
    /// CPUs of a guest, in which its cost is counted.
    pub cpus: u32,
}

/// What a drive has done so far.
#[derive(Default)]
struct Course {
    tried: BTreeMap<EngineTask, Tried>,
    /// Whether the engine took a task.
    has_begun: bool,
    /// What it refused last, while others are at work.
    refusal: Option<Refusal>,
    teller: Teller,
}

/// What was tried of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    times: u32,
    /// Its missing cells at the last time.
    missing: usize,
}

impl OrderDrive<'_> {
    /// Submits what is missing, waits, and submits again what a lost task left.
    ///
    /// # Errors
    ///
    /// The engine refuses everything, or doesn't answer for long.
    pub fn run(&mut self) -> Result<DriveEnd, LabError> {
        let mut course = Course::default();
        let (began, mut answered) = (Instant::now(), Instant::now());
        loop {
            if (self.host.stop)() {
                return Ok(DriveEnd::Left(self.engine.leave()));
            }
            // First the engine, then the folder: a task that ended in between has left its cells.
            match self.engine.live() {
                Ok(live) => {
                    answered = Instant::now();
                    if self.go_on(&live, &mut course)?.is_break() {
                        self.engine.finish();
                        return Ok(DriveEnd::Done);
                    }
                }
                Err(e) if answered.elapsed() > PATIENCE => return Err(e),
                Err(e) => course.teller.no_answer(&e, self.host),
            }
            let pause = (began.elapsed() / 30).clamp(LOOKS[0], LOOKS[1]);
            let until = Instant::now() + pause;
            while Instant::now() < until && !(self.host.stop)() {
                thread::sleep(LOOKS[0]);
            }
        }
    }

    /// Tells how far the order is, and submits what is due. Breaks when nothing is left to do.
    fn go_on(
        &mut self,
        live: &[LiveTask],
        course: &mut Course,
    ) -> Result<ControlFlow<()>, LabError> {
        let survey = self.order.survey(self.out);
        course.teller.tell(&self.progress(&survey, live), self.host);
        let due = self.due(&survey, live, &mut course.tried);
        let is_complete = survey.count(CellState::Missing) == 0;
        let runs = live.iter().any(|live| live.is_running);
        if due.is_empty() && (live.is_empty() || is_complete && !runs) {
            course.teller.last(&self.progress(&survey, &[]), self.host);
            return Ok(ControlFlow::Break(()));
        }
        if course.refusal.as_ref().is_some_and(|refusal| !refusal.is_over(live.len())) {
            return Ok(ControlFlow::Continue(()));
        }
        let (accepted, refused) = self.submit(due, &mut course.tried);
        course.has_begun |= accepted > 0;
        let (earlier, at_work) = (course.refusal.take(), live.len() + accepted);
        match refused {
            None => {}
            Some(e) if at_work > 0 => {
                course.refusal = Some(Refusal::after(earlier, &e, at_work, self.host));
            }
            Some(e) if !course.has_begun => return Err(e),
            // What is done is worth telling.
            Some(e) => {
                (self.host.note)(&e.to_string());
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn progress(&self, survey: &Survey, live: &[LiveTask]) -> OrderProgress {
        let running = live.iter().filter(|live| live.is_running).count();
        let waits = live.iter().find(|live| !live.is_running);
        OrderProgress {
            cells: survey.cells.len(),
            whole: survey.count(CellState::Whole),
            failed: survey.count(CellState::Failed),
            running,
            waiting: live.len() - running,
            reason: waits.map_or(String::new(), |waits| waits.reason.clone()),
            spent: Spent::of(&TaskJournal::read_all(self.out)),
            cpus: self.cpus,
        }
    }

    /// What is to be submitted: for each list the task that it waits for, and its tasks.
    fn due(
        &self,
        survey: &Survey,
        live: &[LiveTask],
        tried: &mut BTreeMap<EngineTask, Tried>,
    ) -> Vec<(Option<EngineTask>, Vec<EngineTask>)> {
        let busy: BTreeSet<EngineTask> = live.iter().map(|live| live.task).collect();
        let mut lists: BTreeMap<Option<EngineTask>, Vec<EngineTask>> = BTreeMap::new();
        for (number, batch) in self.order.batches.iter().enumerate() {
            let is_missing = |cell: &&usize| survey.cells[**cell] == CellState::Missing;
            let (task, missing) =
                (EngineTask::Batch(number), batch.iter().filter(is_missing).count());
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
            let times = if missing < known.missing { 0 } else { known.times };
            *known = Tried { times, missing };
            if times < TRIES {
                lists.entry(first).or_default().push(task);
            }
        }
        lists.into_iter().collect()
    }

    /// The task that prepares the kernel of a batch, where it isn't there.
    fn task_before(&self, batch: usize) -> Option<EngineTask> {
        let by = self.prepared_by[self.order.kernel_of(batch)]?;
        let kernel = KernelRef::parse(&self.order.kernels[by]).ok()?;
        (!WorkOrder::is_pinned(self.out, &kernel)).then_some(EngineTask::Kernel(by))
    }

    /// Submits lists of tasks in pieces that the engine takes. Returns how many tasks it took, and why it refused
    /// others. A refused task doesn't count as tried.
    fn submit(
        &mut self,
        lists: Vec<(Option<EngineTask>, Vec<EngineTask>)>,
        tried: &mut BTreeMap<EngineTask, Tried>,
    ) -> (usize, Option<LabError>) {
        let (mut accepted, mut refused) = (0, None);
        for (before, tasks) in lists {
            refused = self.submit_list(before, &tasks, &mut accepted, tried).err().or(refused);
        }
        (accepted, refused)
    }

    fn submit_list(
        &mut self,
        before: Option<EngineTask>,
        tasks: &[EngineTask],
        accepted: &mut usize,
        tried: &mut BTreeMap<EngineTask, Tried>,
    ) -> Result<(), LabError> {
        let mut submit = |engine: &mut dyn Engine, tasks: &[EngineTask], after| {
            let submission = SubmittedBatches::write(self.out, tasks.to_vec())?;
            engine.submit(&submission, after).inspect_err(|_| submission.remove(self.out))?;
            *accepted += tasks.len();
            tasks.iter().for_each(|task| tried.entry(*task).or_default().times += 1);
            Ok(submission.number)
        };
        let after = match before {
            None => None,
            Some(task) => Some(submit(self.engine, &[task], None)?),
        };
        let max = self.engine.tasks_max()?.max(1);
        tasks.chunks(max).try_for_each(|piece| submit(self.engine, piece, after).map(drop))
    }
}

/// What an engine refused while others are at work: it is submitted again when one of these has ended, or after a time.
struct Refusal {
    text: String,
    at_work: usize,
    pause: Duration,
    since: Instant,
}

impl Refusal {
    fn after(
        earlier: Option<Refusal>,
        error: &LabError,
        at_work: usize,
        host: &Host<'_>,
    ) -> Refusal {
        let text = error.to_string();
        let known = earlier.filter(|earlier| earlier.text == text);
        if known.is_none() {
            (host.note)(&format!("{text}; rtscope tries again later"));
        }
        let [first, longest] = AGAIN_AFTER;
        let pause = known.map_or(first, |known| (known.pause * 2).min(longest));
        Refusal { text, at_work, pause, since: Instant::now() }
    }

    fn is_over(&self, live: usize) -> bool {
        live < self.at_work || self.since.elapsed() >= self.pause
    }
}

/// Why a cell isn't there.
#[must_use]
pub fn why_missing(out: &Path, order: &WorkOrder) -> BTreeMap<String, String> {
    let mut why = BTreeMap::new();
    for line in TaskJournal::read_all(out) {
        let said = match (line.step, line.why) {
            (_, Some(why)) => why,
            (CellStep::Began, None) => "the process that ran its guest was killed".to_owned(),
            (CellStep::Ended, None) => "the process that ran its guest was terminated".to_owned(),
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
    // A process that could not run the first cell of its batch has not tried the others.
    for batch in &order.batches {
        let names = || batch.iter().map(|cell| &order.cells[*cell]);
        let of_batch = names().find_map(|cell| why.get(&cell.name).cloned());
        for cell in names().filter(|cell| !why.contains_key(&cell.name)).collect::<Vec<_>>() {
            let text = of_batch.clone().or_else(|| of_kernels.get(&cell.kernel).cloned());
            text.map(|text| why.insert(cell.name.clone(), text));
        }
    }
    why
}

/// What a kernel is called in the journal.
#[must_use]
pub fn kernel_line(name: &str) -> String {
    format!("kernel {name}")
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, fs, time::Duration};

    use rtscope_model::plan;

    use super::*;
    use crate::{engine::order::MatrixRequest, options::GuestOptions};

    /// An engine on paper: each task makes the folders of its cells, or is lost.
    struct Paper<'a> {
        order: &'a WorkOrder,
        out: &'a Path,
        /// Lists that it got: the one that they wait for, and their tasks.
        got: Vec<(Option<usize>, SubmittedBatches)>,
        waiting: Vec<EngineTask>,
        /// Which tasks are lost, by how many began before.
        is_lost: &'a dyn Fn(usize) -> bool,
        began: usize,
        made: RefCell<BTreeMap<String, u32>>,
        max: usize,
        /// How many tasks it takes at a time, as Slurm with a limit of jobs. Each look ends one of them.
        jobs: Option<usize>,
        /// How often it refused one.
        refusals: usize,
    }

    impl Paper<'_> {
        fn perform(&mut self, task: EngineTask) {
            self.began += 1;
            let lost = (self.is_lost)(self.began);
            let EngineTask::Batch(batch) = task else {
                let kernel = KernelRef::parse(&self.order.kernels[0]).expect("a kernel");
                if !lost {
                    WorkOrder::pin(self.out, &kernel, "hash").expect("written");
                }
                return;
            };
            let cells = &self.order.batches[batch];
            // A lost task has done a half.
            let done = if lost { cells.len() / 2 } else { cells.len() };
            for cell in &cells[..done] {
                let name = &self.order.cells[*cell].name;
                if fs::create_dir(self.out.join(name)).is_ok() {
                    *self.made.borrow_mut().entry(name.clone()).or_default() += 1;
                }
            }
        }
    }

    impl Engine for Paper<'_> {
        fn tasks_max(&mut self) -> Result<usize, LabError> {
            Ok(self.max)
        }

        fn submit(
            &mut self,
            tasks: &SubmittedBatches,
            after: Option<usize>,
        ) -> Result<(), LabError> {
            assert!(tasks.tasks.len() <= self.max, "more than it takes");
            if self.jobs.is_some_and(|jobs| self.waiting.len() >= jobs) {
                self.refusals += 1;
                return Err(LabError::Refused("QOSMaxSubmitJobPerUserLimit".to_owned()));
            }
            self.waiting.extend(&tasks.tasks);
            self.got.push((after, tasks.clone()));
            Ok(())
        }

        fn live(&mut self) -> Result<Vec<LiveTask>, LabError> {
            if self.jobs.is_some() {
                let live = |task: &EngineTask| LiveTask {
                    task: *task,
                    is_running: true,
                    reason: String::new(),
                };
                if !self.waiting.is_empty() {
                    let ends = self.waiting.remove(0);
                    self.perform(ends);
                }
                return Ok(self.waiting.iter().map(live).collect());
            }
            let tasks = std::mem::take(&mut self.waiting);
            tasks.into_iter().for_each(|task| self.perform(task));
            Ok(Vec::new())
        }

        fn finish(&mut self) {}

        fn leave(&mut self) -> Option<String> {
            None
        }
    }

    fn order(kernels: &[&str], seeds: u64) -> WorkOrder {
        let text = |phase: &str| {
            format!("name = '{phase}'\n[[phase]]\nname = '{phase}'\nduration = '1s'\n")
        };
        let plan = |phase: &&str| plan::parse("x", &text(phase)).expect("a plan");
        let request = MatrixRequest {
            kernels: kernels.iter().map(|typed| KernelRef::parse(typed).expect("sound")).collect(),
            plans: ["rest", "cpu", "message", "disk", "memory"].iter().map(plan).collect(),
            seeds,
            options: GuestOptions::default(),
            cache: "cache".into(),
            program_sha256: "0".to_owned(),
            has_guest_program: false,
            specs: BTreeMap::new(),
        };
        let mut order = WorkOrder::new(&request).expect("an order");
        order.split(Duration::from_secs(300), |_, _| Duration::from_secs(6));
        order
    }

    fn paper<'a>(
        order: &'a WorkOrder,
        out: &'a Path,
        is_lost: &'a dyn Fn(usize) -> bool,
    ) -> Paper<'a> {
        Paper {
            order,
            out,
            got: Vec::new(),
            waiting: Vec::new(),
            is_lost,
            began: 0,
            made: RefCell::default(),
            max: 64,
            jobs: None,
            refusals: 0,
        }
    }

    fn drive(paper: &mut Paper<'_>, prepared_by: Vec<Option<usize>>) {
        let (order, out) = (paper.order, paper.out);
        let host = Host { guard: &[], stop: &|| false, note: &|_| {}, news: &|_| {} };
        let mut drive = OrderDrive { order, out, engine: paper, host: &host, prepared_by, cpus: 1 };
        assert_eq!(drive.run().expect("driven"), DriveEnd::Done);
    }

    #[test]
    fn ten_thousand_cells_come_each_once_although_every_seventh_task_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let order = order(&["one", "one:a", "one:b", "two"], 500);
        assert_eq!(order.cells.len(), 10_000);
        let sizes: Vec<usize> = order.batches.iter().map(Vec::len).collect();
        assert_eq!((sizes.iter().sum::<usize>(), sizes.iter().max()), (10_000, Some(&50)));
        let order = order.keep(folder.path()).expect("kept");
        let is_lost = |began: usize| began.is_multiple_of(7);
        let mut paper = paper(&order, folder.path(), &is_lost);
        drive(&mut paper, vec![None; 4]);
        let made = paper.made.borrow();
        assert_eq!((made.len(), made.values().max()), (10_000, Some(&1)));
        // 200 batches, 28 of them again, 4 of these a third time, and one of these a fourth time.
        let tasks: usize = paper.got.iter().map(|(_, list)| list.tasks.len()).sum();
        assert_eq!((paper.got.len(), tasks), (4 + 1 + 1 + 1, 200 + 28 + 4 + 1));
    }

    #[test]
    fn a_kernel_is_prepared_once_before_its_cells_and_what_never_works_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let order = order(&["debian-rt", "debian-rt:quiet", "other"], 1).keep(folder.path());
        let order = order.expect("kept");
        let none = |_: usize| false;
        let mut once = paper(&order, folder.path(), &none);
        drive(&mut once, vec![Some(0), Some(0), None]);
        let got: Vec<(Option<usize>, &[EngineTask])> =
            once.got.iter().map(|(after, list)| (*after, list.tasks.as_slice())).collect();
        let [other, kernel, cells] = got.as_slice() else { panic!("{got:?}") };
        assert_eq!((other.0, other.1), (None, [EngineTask::Batch(2)].as_slice()));
        assert_eq!((kernel.0, kernel.1), (None, [EngineTask::Kernel(0)].as_slice()));
        assert_eq!(cells.1, [EngineTask::Batch(0), EngineTask::Batch(1)]);
        assert_eq!(cells.0, Some(once.got[1].1.number), "it waits for the kernel");
        assert_eq!(order.survey(folder.path()).count(CellState::Whole), 15);

        let folder = tempfile::tempdir().expect("a folder");
        let order = order.keep(folder.path()).expect("kept");
        // Each task makes the same two cells and is lost: only the first one gets further.
        let all = |_: usize| true;
        let mut never = paper(&order, folder.path(), &all);
        drive(&mut never, vec![None; 3]);
        assert!(order.survey(folder.path()).count(CellState::Missing) > 0);
        assert_eq!(never.got.len(), 1 + TRIES as usize);
    }

    #[test]
    fn what_an_engine_refuses_was_not_tried() {
        let folder = tempfile::tempdir().expect("a folder");
        let kernels = ["one", "two", "three", "four", "five"];
        let order = order(&kernels, 1).keep(folder.path()).expect("kept");
        let none = |_: usize| false;
        let mut full = paper(&order, folder.path(), &none);
        (full.max, full.jobs) = (1, Some(1));
        drive(&mut full, vec![None; kernels.len()]);
        assert_eq!((full.got.len(), full.refusals), (5, 4));
        assert_eq!(order.survey(folder.path()).count(CellState::Whole), 25);
        let lists = folder.path().join(crate::engine::ORDER).join("submissions");
        assert_eq!(fs::read_dir(lists).expect("a folder").count(), 5, "only those that were taken");
    }
}
