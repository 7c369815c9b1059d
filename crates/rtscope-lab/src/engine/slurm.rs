//! Slurm: one task of a job array for each task. It is asked by its own programs, and needs no accounting.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

use rtscope_model::text::shell_word;
use rtscope_sys::slurm;

use super::{Engine, EngineTask, LiveTask, ORDER, SubmittedBatches, words_of_task};
use crate::{
    engine::order::WorkOrder,
    error::LabError,
    tool::{self, Need},
};

/// Array tasks where Slurm doesn't say how many it takes: its default.
const TASKS_MAX: usize = 1001;

/// Slurm, for one order.
#[derive(Debug)]
pub struct Slurm {
    out: PathBuf,
    /// Folder in which tasks begin.
    folder: PathBuf,
    /// What its jobs are called, before the number of the submission.
    name: String,
    /// CPUs of a task.
    cpus: u32,
    /// Tasks of an array that run at a time.
    throttle: Option<u16>,
    tasks_max: Option<usize>,
    /// Jobs by submission, as far as they are known.
    jobs: BTreeMap<usize, String>,
    lists: BTreeMap<usize, SubmittedBatches>,
    live_jobs: BTreeSet<String>,
}

impl Slurm {
    /// Slurm as this machine reaches it.
    ///
    /// # Errors
    ///
    /// Its programs are missing.
    pub fn new(
        out: PathBuf,
        order: &WorkOrder,
        cpus: u32,
        throttle: Option<u16>,
    ) -> Result<Slurm, LabError> {
        let needs = ["sbatch", "squeue", "scontrol"].map(|name| Need::of(name, "slurm-client"));
        tool::require(&needs)?;
        let name = format!("rtscope-{}", order.key);
        let folder = order.folder.clone();
        let (jobs, lists) = (BTreeMap::new(), BTreeMap::new());
        let live_jobs = BTreeSet::new();
        Ok(Slurm { out, folder, name, cpus, throttle, tasks_max: None, jobs, lists, live_jobs })
    }

    /// How many nodes take tasks.
    ///
    /// # Errors
    ///
    /// Slurm isn't here, or doesn't answer.
    pub fn nodes() -> Result<usize, LabError> {
        tool::require(&[Need::of("sinfo", "slurm-client")])?;
        let mut command = program("sinfo");
        command.args(["--noheader", "--Node", "--format=%N", "--states=idle,alloc,mix"]);
        let names: BTreeSet<String> =
            tool::output(&mut command)?.lines().map(|line| line.trim().to_owned()).collect();
        Ok(names.len())
    }

    fn list(&mut self, number: usize) -> Option<&SubmittedBatches> {
        if !self.lists.contains_key(&number) {
            self.lists.insert(number, SubmittedBatches::read(&self.out, number).ok()?);
        }
        self.lists.get(&number)
    }

    /// What an array waits for: the job that prepares its kernel. Slurm's throttle is one for each array, so with a
    /// throttle arrays run one after the other.
    fn dependency(&self, tasks: &SubmittedBatches, after: Option<usize>) -> Option<String> {
        let kernel = after.and_then(|after| self.jobs.get(&after));
        let runs_cells = tasks.tasks.iter().any(|task| matches!(task, EngineTask::Batch(_)));
        let is_behind = self.throttle.is_some() && runs_cells;
        let others = self.live_jobs.iter().filter(|job| is_behind && Some(*job) != kernel);
        let others: Vec<&str> = others.map(String::as_str).collect();
        let mut all: Vec<String> = kernel.map(|job| format!("afterok:{job}")).into_iter().collect();
        if !others.is_empty() {
            all.push(format!("afterany:{}", others.join(":")));
        }
        (!all.is_empty()).then(|| all.join(","))
    }
}

impl Engine for Slurm {
    fn tasks_max(&mut self) -> Result<usize, LabError> {
        if let Some(known) = self.tasks_max {
            return Ok(known);
        }
        let said = tool::output(program("scontrol").args(["show", "config"]))?;
        let max = array_max(&said);
        self.tasks_max = Some(max);
        Ok(max)
    }

    fn submit(&mut self, tasks: &SubmittedBatches, after: Option<usize>) -> Result<(), LabError> {
        let folder = self.out.join(ORDER).join("slurm");
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        let script = folder.join(format!("{}.sh", tasks.number));
        let text =
            script_of(&WorkOrder::program(&self.out), &words_of_task(&self.out, tasks.number));
        fs::write(&script, text).map_err(LabError::file("write", &script))?;
        let throttle = self.throttle.map_or(String::new(), |at_a_time| format!("%{at_a_time}"));
        let mut command = Command::new("sbatch");
        command
            .args(["--parsable", "--requeue", "--open-mode=append", "--kill-on-invalid-dep=yes"])
            .arg(format!("--job-name={}-{}", self.name, tasks.number))
            .arg(format!("--array=0-{}{throttle}", tasks.tasks.len().saturating_sub(1)))
            .arg(format!("--cpus-per-task={}", self.cpus))
            .arg(format!("--chdir={}", self.folder.display()))
            .arg(format!("--output={}/%A_%a.txt", folder.display()));
        if let Some(dependency) = self.dependency(tasks, after) {
            command.arg(format!("--dependency={dependency}"));
        }
        let said = tool::output(command.arg(&script)).inspect_err(|_| {
            let _ = fs::remove_file(&script);
        })?;
        let job = said.trim().split(';').next().unwrap_or_default().to_owned();
        self.live_jobs.insert(job.clone());
        self.jobs.insert(tasks.number, job);
        self.lists.insert(tasks.number, tasks.clone());
        Ok(())
    }

    fn live(&mut self) -> Result<Vec<LiveTask>, LabError> {
        let mut command = program("squeue");
        command.args(["--noheader", "--me", "--array", "--format=%j|%K|%F|%T|%r"]);
        let said = tool::output(&mut command)?;
        let name = format!("{}-", self.name);
        let queued: Vec<Queued> = said.lines().filter_map(|line| Queued::of(line, &name)).collect();
        self.live_jobs = queued.iter().map(|queued| queued.job.clone()).collect();
        let mut live = Vec::new();
        for queued in queued {
            let task = self.list(queued.submission);
            if let Some(task) = task.and_then(|list| list.tasks.get(queued.index)) {
                live.push(LiveTask {
                    task: *task,
                    is_running: queued.is_running,
                    reason: queued.reason,
                });
            }
        }
        Ok(live)
    }

    fn finish(&mut self) {
        if !self.live_jobs.is_empty() {
            let _ = tool::output(program("scancel").args(&self.live_jobs));
        }
    }

    fn leave(&mut self) -> Option<String> {
        let jobs: Vec<&str> = self.live_jobs.iter().map(String::as_str).collect();
        (!jobs.is_empty()).then(|| {
            format!(
                "Slurm goes on: the same command waits for it, and `scancel {}` ends it",
                jobs.join(" ")
            )
        })
    }
}

/// A program of Slurm whose answers don't depend on the user's defaults.
fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    slurm::without_defaults(&mut command);
    command
}

/// A line of squeue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Queued {
    submission: usize,
    index: usize,
    job: String,
    is_running: bool,
    reason: String,
}

impl Queued {
    /// Reads a line that belongs to an order; none of other jobs, and of those that have ended.
    fn of(line: &str, name: &str) -> Option<Queued> {
        let fields: Vec<&str> = line.trim().split('|').collect();
        let [of_job, index, job, state, reason] = fields.as_slice() else { return None };
        let submission = of_job.strip_prefix(name)?.parse().ok()?;
        (!slurm::ENDED.contains(state)).then(|| {
            Some(Queued {
                submission,
                index: index.parse().ok()?,
                job: (*job).to_owned(),
                is_running: !matches!(*state, "PENDING" | "REQUEUED" | "REQUEUE_HOLD"),
                reason: (*reason).to_owned(),
            })
        })?
    }
}

/// How many tasks an array may have: `MaxArraySize` is one more than the highest index.
fn array_max(config: &str) -> usize {
    let value = config.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == "MaxArraySize").then(|| value.trim().parse().ok())?
    });
    // Without arrays, index 0 alone.
    value.unwrap_or(TASKS_MAX).max(1)
}

/// A script that becomes the program with its words and the number of the array's task.
fn script_of(program: &std::path::Path, words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let program = shell_word(&program.display().to_string());
    format!(
        "#!/bin/sh\nexec {program} {} --task \"${{SLURM_ARRAY_TASK_ID:-0}}\"\n",
        words.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_arrays_is_that_of_slurm() {
        let said =
            "MaxArrayTasks           = 5\nMaxArraySize            = 1001\nMaxJobCount = 10000\n";
        assert_eq!(array_max(said), 1001);
        assert_eq!(array_max("MaxArraySize = 0\n"), 1);
        assert_eq!(array_max("nothing"), TASKS_MAX);
    }

    #[test]
    fn arrays_wait_for_their_kernel_and_with_a_throttle_for_each_other() {
        let mut slurm = Slurm {
            out: "out".into(),
            folder: "folder".into(),
            name: "rtscope-abc".to_owned(),
            cpus: 1,
            throttle: None,
            tasks_max: None,
            jobs: BTreeMap::from([(0, "7".to_owned()), (1, "8".to_owned()), (2, "9".to_owned())]),
            lists: BTreeMap::new(),
            live_jobs: ["7", "8", "9"].map(str::to_owned).into(),
        };
        let cells = SubmittedBatches { number: 3, tasks: vec![EngineTask::Batch(0)] };
        let kernel = SubmittedBatches { number: 3, tasks: vec![EngineTask::Kernel(0)] };
        assert_eq!(slurm.dependency(&cells, None), None);
        assert_eq!(slurm.dependency(&cells, Some(1)).as_deref(), Some("afterok:8"));
        slurm.throttle = Some(5);
        let both = slurm.dependency(&cells, Some(1));
        assert_eq!(both.as_deref(), Some("afterok:8,afterany:7:9"));
        assert_eq!(slurm.dependency(&cells, None).as_deref(), Some("afterany:7:8:9"));
        assert_eq!(slurm.dependency(&kernel, None), None, "no guest runs in it");
    }

    #[test]
    fn tasks_of_this_order_are_told_from_other_jobs() {
        let read = |line| Queued::of(line, "rtscope-abc-");
        let running = read("rtscope-abc-12|7|345|RUNNING|None").expect("ours");
        assert_eq!((running.submission, running.index, running.is_running), (12, 7, true));
        let waits = read("rtscope-abc-0|0|9|PENDING|JobArrayTaskLimit").expect("ours");
        assert!(!waits.is_running && waits.reason == "JobArrayTaskLimit" && waits.job == "9");
        for line in [
            "rtscope-abd-0|0|9|RUNNING|None",
            "wrap|N/A|9|RUNNING|None",
            "rtscope-abc-0|0|9|FAILED|x",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn a_path_with_any_character_stays_one_word_of_the_script() {
        let text =
            script_of("/a b/it's".as_ref(), &["lab-batch".to_owned(), "$(x) `y`".to_owned()]);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("script");
        fs::write(&path, text.replace("exec ", "printf '%s\\n' ")).expect("written");
        let said = Command::new("sh").arg(path).env("SLURM_ARRAY_TASK_ID", "4").output();
        let said = String::from_utf8(said.expect("sh").stdout).expect("text");
        assert_eq!(said, "/a b/it's\nlab-batch\n$(x) `y`\n--task\n4\n");
    }
}
