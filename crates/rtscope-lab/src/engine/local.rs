//! The processes of this machine: a queue of tasks, so many at a time. They end with this process.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{Engine, EngineTask, LiveTask, ORDER, SubmittedBatches, words_of_task};
use crate::{engine::order::WorkOrder, error::LabError};

/// How long a task may take to end its guest in order.
const ENDS_IN: Duration = Duration::from_secs(15);

/// A task that waits.
#[derive(Debug)]
struct QueuedTask {
    submission: usize,
    index: usize,
    task: EngineTask,
    after: Option<usize>,
}

/// What has ended of a submission.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    left: usize,
    failed: bool,
}

/// The processes of this machine.
#[derive(Debug)]
pub struct LocalEngine {
    out: PathBuf,
    folder: PathBuf,
    /// Words before a task's: they end it when this process ends.
    guard: Vec<String>,
    jobs: usize,
    queue: VecDeque<QueuedTask>,
    running: Vec<(QueuedTask, Child)>,
    submissions: BTreeMap<usize, Ended>,
}

impl LocalEngine {
    #[must_use]
    pub fn new(out: PathBuf, order: &WorkOrder, jobs: usize, guard: Vec<String>) -> LocalEngine {
        LocalEngine {
            out,
            folder: order.folder.clone(),
            guard,
            jobs: jobs.max(1),
            queue: VecDeque::new(),
            running: Vec::new(),
            submissions: BTreeMap::new(),
        }
    }

    fn start(&self, task: &QueuedTask) -> Result<Child, LabError> {
        let folder = self.out.join(ORDER).join("local");
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        let path = folder.join(format!("{}_{}.txt", task.submission, task.index));
        let said = File::create(&path).map_err(LabError::file("write", &path))?;
        let program = WorkOrder::program(&self.out);
        let mut words = self.guard.iter().map(String::as_str);
        let mut command = Command::new(words.next().unwrap_or_default());
        let child = command
            .args(words)
            .arg(&program)
            .args(words_of_task(&self.out, task.submission))
            .args(["--task", &task.index.to_string()])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn();
        child.map_err(LabError::file("run", &program))
    }

    fn reap(&mut self) {
        let mut running = Vec::new();
        for (task, mut child) in self.running.drain(..) {
            match child.try_wait() {
                Ok(None) => running.push((task, child)),
                ended => {
                    let failed = !ended.ok().flatten().is_some_and(|status| status.success());
                    note_end(&mut self.submissions, &task, failed);
                }
            }
        }
        self.running = running;
    }

    /// Starts what may begin, and drops what waits for something that failed.
    fn fill(&mut self) -> Result<(), LabError> {
        let (mut later, mut refused) = (VecDeque::new(), Ok(()));
        while let Some(task) = self.queue.pop_front() {
            let before = task.after.and_then(|after| self.submissions.get(&after).copied());
            match before {
                Some(Ended { failed: true, .. }) => {
                    note_end(&mut self.submissions, &task, true);
                }
                Some(Ended { left, .. }) if left > 0 => later.push_back(task),
                _ if self.running.len() >= self.jobs => later.push_back(task),
                _ => match self.start(&task) {
                    Ok(child) => self.running.push((task, child)),
                    Err(e) => {
                        note_end(&mut self.submissions, &task, true);
                        refused = Err(e);
                    }
                },
            }
        }
        self.queue = later;
        refused
    }
}

fn note_end(submissions: &mut BTreeMap<usize, Ended>, task: &QueuedTask, failed: bool) {
    if let Some(of) = submissions.get_mut(&task.submission) {
        *of = Ended { left: of.left.saturating_sub(1), failed: of.failed || failed };
    }
}

impl Engine for LocalEngine {
    fn tasks_max(&mut self) -> Result<usize, LabError> {
        Ok(usize::MAX)
    }

    fn submit(&mut self, tasks: &SubmittedBatches, after: Option<usize>) -> Result<(), LabError> {
        let submission = tasks.number;
        let ended = Ended { left: tasks.tasks.len(), failed: false };
        self.submissions.insert(submission, ended);
        let queued = tasks.tasks.iter().enumerate();
        self.queue.extend(queued.map(|(index, task)| QueuedTask {
            submission,
            index,
            task: *task,
            after,
        }));
        self.fill()
    }

    fn live(&mut self) -> Result<Vec<LiveTask>, LabError> {
        self.reap();
        self.fill()?;
        let live = |task: &QueuedTask, is_running| LiveTask {
            task: task.task,
            is_running,
            reason: String::new(),
        };
        let running = self.running.iter().map(|(task, _)| live(task, true));
        Ok(running.chain(self.queue.iter().map(|task| live(task, false))).collect())
    }

    fn finish(&mut self) {
        self.queue.clear();
    }

    fn leave(&mut self) -> Option<String> {
        self.queue.clear();
        for (_, child) in &self.running {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        let until = Instant::now() + ENDS_IN;
        while !self.running.is_empty() && Instant::now() < until {
            self.reap();
            thread::sleep(Duration::from_millis(20));
        }
        for (_, mut child) in self.running.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rtscope_testing::executable;

    use super::*;

    fn engine(out: &Path, jobs: usize, program: &str) -> LocalEngine {
        executable::write(&WorkOrder::program(out), program);
        LocalEngine {
            out: out.to_owned(),
            folder: out.to_owned(),
            guard: vec!["env".to_owned()],
            jobs,
            queue: VecDeque::new(),
            running: Vec::new(),
            submissions: BTreeMap::new(),
        }
    }

    fn submission(number: usize, tasks: Vec<EngineTask>) -> SubmittedBatches {
        SubmittedBatches { number, tasks }
    }

    fn until_idle(engine: &mut LocalEngine) -> usize {
        let (mut most, until) = (0, Instant::now() + Duration::from_secs(60));
        loop {
            let live = engine.live().expect("answers");
            most = most.max(live.iter().filter(|live| live.is_running).count());
            if live.is_empty() {
                return most;
            }
            assert!(Instant::now() < until, "still at work");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn so_many_tasks_run_at_a_time_and_those_behind_a_failed_one_don_t() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path();
        // `lab-batch OUT --submission N --task I`: the third list fails.
        let script = "#!/bin/sh\n: >> ran-$4-$6\nsleep 0.1\n[ $4 -ne 2 ]\n";
        let mut engine = engine(out, 2, script);
        let batches = |count| (0..count).map(EngineTask::Batch).collect::<Vec<_>>();
        engine.submit(&submission(0, vec![EngineTask::Kernel(0)]), None).expect("taken");
        engine.submit(&submission(1, batches(3)), Some(0)).expect("taken");
        engine.submit(&submission(2, vec![EngineTask::Kernel(1)]), None).expect("taken");
        engine.submit(&submission(3, batches(2)), Some(2)).expect("taken");
        assert!(!out.join("ran-1-0").exists(), "it waits for the kernel");
        assert_eq!(until_idle(&mut engine), 2);
        let ran = |list: u32, task: u32| out.join(format!("ran-{list}-{task}")).exists();
        assert!(ran(0, 0) && ran(1, 0) && ran(1, 1) && ran(1, 2) && ran(2, 0));
        assert!(!ran(3, 0) && !ran(3, 1), "their kernel isn't there");
    }

    #[test]
    fn who_leaves_ends_what_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut engine = engine(folder.path(), 1, "#!/bin/sh\nexec sleep 1000\n");
        let tasks = vec![EngineTask::Batch(0), EngineTask::Batch(1)];
        engine.submit(&submission(0, tasks), None).expect("taken");
        assert_eq!(engine.live().expect("answers").len(), 2);
        assert_eq!(engine.leave(), None);
        assert!(engine.live().expect("answers").is_empty());
    }
}
