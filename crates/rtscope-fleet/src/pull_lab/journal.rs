//! The folder of a pull lab: how far the events were read, and a line for each step of each job, written before the next one.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use rtscope_model::printable;
use rtscope_sys::whole::write_to_disk;
use serde::{Deserialize, Serialize};

use super::api::{BEGINNING, is_later, is_node_id, is_time};
use crate::{
    error::FleetError,
    step_log::{StepLog, locked, now},
};

/// Version of the two files.
const FORMAT: u32 = 1;
const CURSOR: &str = "cursor.json";
const STEPS: &str = "jobs.jsonl";
const JOBS: &str = "jobs";
const LOCK: &str = "lock";

/// A journal that is longer is rewritten with what is still needed when it is opened.
const BYTES_MAX: u64 = 8 << 20;

/// Jobs that are over and remembered then. The API forgets an event after a week.
const OVER_KEPT: usize = 10_000;

/// How far the events were read, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EventCursor {
    format: u32,
    api: String,
    runtime: String,
    timestamp: String,
}

/// A step of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum PullStep {
    /// An event named it.
    Noticed { definition: String },
    /// It is claimed by this name.
    Named { claim: String },
    /// It is run from here on.
    Begun,
    /// The user ended rtscope, which was not the job's fault.
    Stopped,
    /// Its outcome is in its folder: it isn't run again.
    Judged,
    /// KCIDB has the document, under a name of its own.
    Submitted { id: String },
    /// KCIDB takes no such document.
    NotSubmitted { why: String },
    /// The job's node has its result.
    Posted { result: String },
    /// The job is none of ours (any more).
    Left { why: String },
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    at: String,
    node: String,
    #[serde(flatten)]
    step: PullStep,
}

/// A job as far as its steps say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PulledJob {
    pub node: String,
    /// Address of its definition.
    pub definition: String,
    pub claim: Option<String>,
    /// How often it was begun, and not stopped by the user.
    pub tries: u32,
    pub is_judged: bool,
    /// Whether KCIDB has said yes or no to its document.
    pub is_submitted: bool,
    pub is_posted: bool,
    pub left: Option<String>,
}

impl PulledJob {
    /// Whether something is to be done for it. `submits` says whether its tests go to KCIDB.
    #[must_use]
    pub fn is_open(&self, submits: bool) -> bool {
        self.left.is_none() && !(self.is_posted && (self.is_submitted || !submits))
    }

    fn take(&mut self, step: PullStep) {
        match step {
            PullStep::Noticed { definition } => self.definition = definition,
            PullStep::Named { claim } => self.claim = Some(claim),
            PullStep::Begun => self.tries += 1,
            PullStep::Stopped => self.tries = self.tries.saturating_sub(1),
            PullStep::Judged => self.is_judged = true,
            PullStep::Submitted { .. } | PullStep::NotSubmitted { .. } => self.is_submitted = true,
            PullStep::Posted { .. } => self.is_posted = true,
            PullStep::Left { why } => self.left = Some(why),
        }
    }
}

/// The folder, for the one process that works with it.
#[derive(Debug)]
pub struct PullJournal {
    folder: PathBuf,
    log: StepLog,
    /// Held while it is open.
    _lock: File,
    cursor: EventCursor,
    /// In the order in which they were noticed.
    jobs: Vec<PulledJob>,
    at: BTreeMap<String, usize>,
}

impl PullJournal {
    /// Opens the folder of a lab, or makes it.
    ///
    /// # Errors
    ///
    /// Another process works with it, it is that of another runtime, or it can't be written.
    pub fn open(folder: &Path, api: &str, runtime: &str) -> Result<PullJournal, FleetError> {
        let jobs = folder.join(JOBS);
        fs::create_dir_all(&jobs).map_err(FleetError::file("make", &jobs))?;
        let lock = locked(&folder.join(LOCK))?;
        let cursor = read_cursor(&folder.join(CURSOR), api, runtime)?;
        let path = folder.join(STEPS);
        let (log, text) = StepLog::open(path)?;
        let mut journal = PullJournal {
            folder: folder.to_owned(),
            log,
            _lock: lock,
            cursor,
            jobs: Vec::new(),
            at: BTreeMap::new(),
        };
        for line in String::from_utf8_lossy(&text).lines() {
            if let Ok(line) = printable::from_json::<Line>(line)
                && is_node_id(&line.node)
            {
                journal.take(&line.node, line.step);
            }
        }
        if text.len() as u64 > BYTES_MAX {
            journal.shorten()?;
        }
        Ok(journal)
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a job.
    #[must_use]
    pub fn job_folder(&self, node: &str) -> PathBuf {
        self.folder.join(JOBS).join(node)
    }

    /// When the last event was that is in the journal.
    #[must_use]
    pub fn cursor(&self) -> &str {
        &self.cursor.timestamp
    }

    /// Notes that the jobs of all events up to a time are in the journal.
    ///
    /// # Errors
    ///
    /// The file can't be written.
    pub fn move_cursor(&mut self, timestamp: &str) -> Result<(), FleetError> {
        if !is_later(timestamp, &self.cursor.timestamp) {
            return Ok(());
        }
        timestamp.clone_into(&mut self.cursor.timestamp);
        let text = serde_json::to_string(&self.cursor).unwrap_or_default() + "\n";
        store(&self.folder.join(CURSOR), text.as_bytes())
    }

    /// A job, if an event named it before.
    #[must_use]
    pub fn job(&self, node: &str) -> Option<&PulledJob> {
        self.at.get(node).map(|at| &self.jobs[*at])
    }

    /// The jobs for which something is to be done, in their order.
    #[must_use]
    pub fn open_jobs(&self, submits: bool) -> Vec<PulledJob> {
        self.jobs.iter().filter(|job| job.is_open(submits)).cloned().collect()
    }

    /// Writes a step to the disk.
    ///
    /// # Errors
    ///
    /// The disk is full, for example: then the job must not go on.
    pub fn step(&mut self, node: &str, step: PullStep) -> Result<(), FleetError> {
        let line = Line { at: now(), node: node.to_owned(), step };
        self.log.add(&line)?;
        self.take(node, line.step);
        Ok(())
    }

    fn take(&mut self, node: &str, step: PullStep) {
        let next = self.jobs.len();
        let at = *self.at.entry(node.to_owned()).or_insert(next);
        if at == next {
            self.jobs.push(PulledJob { node: node.to_owned(), ..PulledJob::default() });
        }
        self.jobs[at].take(step);
    }

    /// Rewrites the journal: the jobs that aren't over, and the last ones that are.
    fn shorten(&mut self) -> Result<(), FleetError> {
        let path = self.folder.join(STEPS);
        let old = fs::read(&path).map_err(FleetError::file("read", &path))?;
        let over = self.jobs.iter().rev().filter(|job| !job.is_open(true));
        let forgotten: Vec<String> = over.skip(OVER_KEPT).map(|job| job.node.clone()).collect();
        self.jobs.retain(|job| !forgotten.contains(&job.node));
        self.at = self.jobs.iter().enumerate().map(|(at, job)| (job.node.clone(), at)).collect();
        let is_kept = |line: &&str| {
            serde_json::from_str::<Line>(line).is_ok_and(|line| self.at.contains_key(&line.node))
        };
        let old = String::from_utf8_lossy(&old);
        let text: String = old.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect();
        store(&path, text.as_bytes())?;
        self.log = StepLog::open(path)?.0;
        Ok(())
    }
}

/// Reads how far the events were read; of a lab that is new, the beginning.
fn read_cursor(path: &Path, api: &str, runtime: &str) -> Result<EventCursor, FleetError> {
    let new = EventCursor {
        format: FORMAT,
        api: api.to_owned(),
        runtime: runtime.to_owned(),
        timestamp: BEGINNING.to_owned(),
    };
    let text = match fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            // Named from the first moment on, so that no other lab takes the folder.
            let text = serde_json::to_string(&new).unwrap_or_default() + "\n";
            return store(path, text.as_bytes()).map(|()| new);
        }
        text => text.map_err(FleetError::file("read", path))?,
    };
    let shown = path.display();
    let found: EventCursor = printable::from_json(&text).map_err(|e| {
        FleetError::Refused(format!("{shown} is damaged: {e}; remove it to read all events again"))
    })?;
    if found.format != FORMAT || !is_time(&found.timestamp) {
        return Err(FleetError::Refused(format!(
            "{shown} has format {}; this version reads format {FORMAT}",
            found.format
        )));
    }
    if (found.api.as_str(), found.runtime.as_str()) != (api, runtime) {
        return Err(FleetError::Refused(format!(
            "{shown} belongs to the runtime {} of {}: name another folder with --state",
            found.runtime, found.api
        )));
    }
    Ok(found)
}

/// Writes a file of the runtime whole or not at all, to the disk.
///
/// # Errors
///
/// It can't be written.
pub fn store(path: &Path, bytes: &[u8]) -> Result<(), FleetError> {
    write_to_disk(path, bytes, None).map_err(FleetError::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: &str = "https://api.example/latest";

    fn open(folder: &Path) -> PullJournal {
        PullJournal::open(folder, API, "mine").expect("opened")
    }

    #[test]
    fn a_journal_that_was_cut_says_what_is_left_to_do() {
        let room = tempfile::tempdir().expect("a folder");
        let mut journal = open(room.path());
        assert_eq!(journal.cursor(), BEGINNING);
        let noticed = |id: &str| PullStep::Noticed { definition: format!("http://a/{id}.json") };
        let claim = || PullStep::Named { claim: "mine:1".to_owned() };
        for id in ["a", "b", "c", "d"] {
            journal.step(id, noticed(id)).expect("written");
        }
        journal.move_cursor("2026-07-21T06:03:23").expect("written");
        journal.move_cursor("2026-07-21T06:03:22").expect("not moved back");
        journal.step("a", claim()).expect("written");
        journal.step("b", PullStep::Left { why: "taken".to_owned() }).expect("written");
        let posted = PullStep::Posted { result: "pass".into() };
        let (begun, stopped) = (PullStep::Begun, PullStep::Stopped);
        let tries = [begun.clone(), stopped, begun.clone(), begun];
        for step in [claim()].into_iter().chain(tries).chain([PullStep::Judged, posted]) {
            journal.step("c", step).expect("written");
        }
        let other = PullJournal::open(room.path(), API, "mine").expect_err("in use").to_string();
        assert!(other.contains("another rtscope"), "{other}");
        drop(journal);
        let path = room.path().join(STEPS);
        let text = fs::read_to_string(&path).expect("read") + "{\"at\":\"now\",\"node\":\"d\",\"st";
        fs::write(&path, text).expect("written");
        let mut journal = open(room.path());
        assert_eq!(journal.cursor(), "2026-07-21T06:03:23");
        let open_ids = |journal: &PullJournal, submits| -> Vec<String> {
            journal.open_jobs(submits).into_iter().map(|job| job.node).collect()
        };
        assert_eq!(open_ids(&journal, false), ["a", "d"]);
        assert_eq!(open_ids(&journal, true), ["a", "c", "d"]);
        let c = journal.job("c").expect("known");
        assert_eq!((c.tries, c.is_judged, c.is_posted), (2, true, true));
        assert_eq!(journal.job("d").map(|job| job.definition.as_str()), Some("http://a/d.json"));
        journal.step("c", PullStep::Submitted { id: "x".into() }).expect("written");
        journal.step("d", PullStep::Begun).expect("written behind the half line");
        drop(journal);
        let journal = open(room.path());
        assert_eq!(open_ids(&journal, true), ["a", "d"]);
        assert_eq!(journal.job("d").map(|job| job.tries), Some(1));
    }

    #[test]
    fn a_folder_belongs_to_one_lab() {
        let room = tempfile::tempdir().expect("a folder");
        drop(open(room.path()));
        for (api, runtime) in [(API, "other"), ("https://other.example", "mine")] {
            let said =
                PullJournal::open(room.path(), api, runtime).expect_err("another").to_string();
            assert!(said.contains("belongs to the runtime mine"), "{said}");
        }
        fs::write(room.path().join(CURSOR), "{}").expect("written");
        let said = PullJournal::open(room.path(), API, "mine").expect_err("damaged").to_string();
        assert!(said.contains("is damaged"), "{said}");
    }

    #[test]
    fn a_long_journal_keeps_what_is_open() {
        let room = tempfile::tempdir().expect("a folder");
        drop(open(room.path()));
        let line = |node: &str, step| {
            let line = Line { at: "x".repeat(400), node: node.to_owned(), step };
            serde_json::to_string(&line).expect("a line") + "\n"
        };
        let mut text = line("open", PullStep::Noticed { definition: "http://a/".to_owned() });
        for at in 0..12_000 {
            text += &line(&format!("n{at}"), PullStep::Left { why: "y".repeat(400) });
        }
        fs::write(room.path().join(STEPS), &text).expect("written");
        for _ in 0..2 {
            let journal = open(room.path());
            assert_eq!(journal.open_jobs(true).len(), 1);
            assert!(journal.job("n0").is_none() && journal.job("n11999").is_some());
        }
        let kept = fs::metadata(room.path().join(STEPS)).expect("there").len();
        assert!(kept < text.len() as u64, "{kept}");
    }
}
