//! A matrix of many cells as an order of batches, which an engine runs: the processes of this machine, or Slurm.
//!
//! The folder of the results is the truth, and an engine only starts processes that fill it. A cell is there when its
//! record was renamed into its place; until then its claim says who works on it. So a task may be killed, started
//! again or started twice, and several sites may share the folder.

pub mod batch;
pub mod claim;
pub mod drive;
pub mod journal;
pub mod local;
pub mod order;
mod progress;
pub mod slurm;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// Folder of an order in the folder of its results.
pub const ORDER: &str = "order";

/// What one process of an engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineTask {
    /// Fetches or builds a kernel.
    Kernel(usize),
    /// Runs the cells of a batch.
    Batch(usize),
}

/// Tasks that were handed to an engine in one go. An engine knows a task by its place in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedBatches {
    pub number: usize,
    pub tasks: Vec<EngineTask>,
}

impl SubmittedBatches {
    /// Writes a list of tasks into an order under a number that no other process takes.
    ///
    /// # Errors
    ///
    /// The file can't be written.
    pub fn write(out: &Path, tasks: Vec<EngineTask>) -> Result<SubmittedBatches, LabError> {
        let folder = out.join(ORDER).join("submissions");
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        let mut submission =
            SubmittedBatches { number: fs::read_dir(&folder).map_or(0, Iterator::count), tasks };
        let part = folder.join(format!("part-{}", unique()));
        loop {
            let text = serde_json::to_string(&submission).unwrap_or_default() + "\n";
            fs::write(&part, text).map_err(LabError::file("write", &part))?;
            let path = SubmittedBatches::path(out, submission.number);
            match fs::hard_link(&part, &path) {
                Ok(()) => break,
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => submission.number += 1,
                Err(e) => return Err(LabError::file("write", &path)(e)),
            }
        }
        let _ = fs::remove_file(&part);
        Ok(submission)
    }

    /// Removes the list: no engine took it.
    fn remove(&self, out: &Path) {
        let _ = fs::remove_file(SubmittedBatches::path(out, self.number));
    }

    /// Reads a list of tasks.
    ///
    /// # Errors
    ///
    /// There is none of this number, or it can't be read.
    pub fn read(out: &Path, number: usize) -> Result<SubmittedBatches, LabError> {
        let path = SubmittedBatches::path(out, number);
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        let damaged = |e: serde_json::Error| LabError::Refused(format!("{}: {e}", path.display()));
        serde_json::from_str(&text).map_err(damaged)
    }

    fn path(out: &Path, number: usize) -> PathBuf {
        out.join(ORDER).join("submissions").join(format!("{number}.json"))
    }
}

/// A task that an engine has not ended yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTask {
    pub task: EngineTask,
    pub is_running: bool,
    /// Why it waits, in the engine's own words.
    pub reason: String,
}

/// What starts processes for tasks. It measures nothing and knows nothing of their results.
pub trait Engine {
    /// Tasks that one submission may have.
    ///
    /// # Errors
    ///
    /// The engine doesn't answer.
    fn tasks_max(&mut self) -> Result<usize, LabError>;

    /// Takes tasks over, which begin when all of the submission `after` have succeeded.
    ///
    /// # Errors
    ///
    /// The engine refuses them.
    fn submit(&mut self, tasks: &SubmittedBatches, after: Option<usize>) -> Result<(), LabError>;

    /// The tasks that wait or run, also those that an earlier process submitted.
    ///
    /// # Errors
    ///
    /// The engine doesn't answer now, so nothing is known.
    fn live(&mut self) -> Result<Vec<LiveTask>, LabError>;

    /// All cells are there: takes back tasks that still wait, for they have nothing left to do.
    fn finish(&mut self);

    /// The user goes away: ends what can't go on alone, and says what goes on.
    fn leave(&mut self) -> Option<String>;
}

/// The words of the hidden verb that runs a task, behind the program's.
#[must_use]
pub fn words_of_task(out: &Path, submission: usize) -> [String; 4] {
    let out = out.display().to_string();
    ["lab-batch".to_owned(), out, "--submission".to_owned(), submission.to_string()]
}

/// A name that no other process has, on this machine or another one that shares a folder with it.
#[must_use]
pub fn unique() -> String {
    format!("{}-{}", host(), std::process::id())
}

/// What this machine is called.
pub(crate) fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    crate::record_folders::safe(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lists_of_tasks_never_have_one_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |tasks| SubmittedBatches::write(folder.path(), tasks).expect("written");
        let first = write(vec![EngineTask::Kernel(0)]);
        // Another site wrote one meanwhile, and an older one is gone.
        fs::write(SubmittedBatches::path(folder.path(), 1), "{}").expect("written");
        let second = write(vec![EngineTask::Batch(3), EngineTask::Batch(7)]);
        assert_eq!((first.number, second.number), (0, 2));
        assert_eq!(SubmittedBatches::read(folder.path(), 2).expect("read"), second);
        SubmittedBatches::read(folder.path(), 1).expect_err("damaged");
    }
}
