//! What the processes of an order did, a line for each step, in a file for each process.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{ORDER, unique};
use crate::error::LabError;

/// What a process did with a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellStep {
    Began,
    /// The guest ran, and its record is in its place.
    Ran,
    /// The record of the same inputs was in the cache.
    Known,
    /// The guest ran and brought no record.
    Failed,
    /// The guest could not be run here.
    NotRun,
    /// The process was told to end.
    Ended,
    /// Another process had taken the cell over.
    Lost,
}

impl CellStep {
    /// What is printed of it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            CellStep::Began => "began",
            CellStep::Ran => "ran",
            CellStep::Known => "known",
            CellStep::Failed => "no record",
            CellStep::NotRun => "not run",
            CellStep::Ended => "ended by a signal",
            CellStep::Lost => "done by another process",
        }
    }
}

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLine {
    pub cell: String,
    pub step: CellStep,
    /// How long the guest ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl TaskLine {
    /// A line without more than a step.
    #[must_use]
    pub fn of(cell: &str, step: CellStep) -> TaskLine {
        TaskLine { cell: cell.to_owned(), step, took_ms: None, why: None }
    }
}

/// The file that this process writes.
#[derive(Debug)]
pub struct TaskJournal {
    path: PathBuf,
    file: File,
}

impl TaskJournal {
    /// Makes the file of a process that runs a task.
    ///
    /// # Errors
    ///
    /// It can't be made.
    pub fn open(out: &Path, task: &str) -> Result<TaskJournal, LabError> {
        let folder = out.join(ORDER).join("tasks");
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        let path = folder.join(format!("{task}-{}.jsonl", unique()));
        let file = File::options().create(true).append(true).open(&path);
        Ok(TaskJournal { file: file.map_err(LabError::file("write", &path))?, path })
    }

    /// Writes a line.
    ///
    /// # Errors
    ///
    /// It can't be written.
    pub fn add(&mut self, line: &TaskLine) -> Result<(), LabError> {
        let text = serde_json::to_string(line).unwrap_or_default() + "\n";
        self.file.write_all(text.as_bytes()).map_err(LabError::file("write", &self.path))
    }

    /// All lines of all processes, those of a process in their order. A line that was cut short is left out.
    #[must_use]
    pub fn read_all(out: &Path) -> Vec<TaskLine> {
        let entries = fs::read_dir(out.join(ORDER).join("tasks")).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        let texts = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
        let read = |text: String| {
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<_>>()
        };
        texts.flat_map(read).collect()
    }
}

/// What the guests of an order have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Guests that ran to their end.
    pub guests: u32,
    /// Time that they took, added up.
    pub time: Duration,
}

impl Spent {
    /// Adds up what the journals say.
    #[must_use]
    pub fn of(lines: &[TaskLine]) -> Spent {
        let took = lines.iter().filter_map(|line| line.took_ms);
        let add = |sum: Spent, ms: u64| Spent {
            guests: sum.guests + 1,
            time: sum.time + Duration::from_millis(ms),
        };
        took.fold(Spent::default(), add)
    }

    /// What so many more guests will take, at the pace of these.
    #[must_use]
    pub fn of_more(self, guests: usize) -> Option<Duration> {
        let each = self.time.checked_div(self.guests)?;
        Some(each * u32::try_from(guests).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_wrote_is_read_together_and_a_cut_line_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = |cell: &str, took_ms| TaskLine { took_ms, ..TaskLine::of(cell, CellStep::Ran) };
        for (task, cell, took) in
            [("0-1", "b", Some(3000)), ("0-0", "a", Some(1000)), ("0-2", "c", None)]
        {
            TaskJournal::open(folder.path(), task)
                .expect("made")
                .add(&line(cell, took))
                .expect("written");
        }
        let cut = folder.path().join(ORDER).join("tasks/1-0-host.jsonl");
        fs::write(cut, "{\"cell\":\"d\",\"step\":\"began\"}\n{\"cell\":\"d\",\"st")
            .expect("written");
        let lines = TaskJournal::read_all(folder.path());
        let cells: Vec<&str> = lines.iter().map(|line| line.cell.as_str()).collect();
        assert_eq!(cells, ["a", "b", "c", "d"]);
        let spent = Spent::of(&lines);
        assert_eq!(spent, Spent { guests: 2, time: Duration::from_secs(4) });
        assert_eq!(spent.of_more(5), Some(Duration::from_secs(10)));
        assert_eq!(Spent::default().of_more(5), None);
    }
}
