//! A fleet run's folder: what was asked, and a line for each step of each job, written before the next one.
//!
//! So a later process knows what is at which place, whatever became of the one that put it there.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rtscope_model::printable;
use rtscope_sys::whole::write_to_disk;
use serde::{Deserialize, Serialize};

use crate::{
    agent::RunEnd,
    error::FleetError,
    step_log::{StepLog, locked, now},
};

/// Version of the two files.
const FORMAT: u32 = 1;
const ORDER: &str = "fleet.json";
const STEPS: &str = "fleet.jsonl";

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetOrder {
    pub format: u32,
    /// The plan, as TOML.
    pub plan: String,
    /// The file of places, to find them again.
    pub places_file: PathBuf,
    /// The places in the order in which they are asked, with their tags.
    pub places: BTreeMap<String, Vec<String>>,
}

impl FleetOrder {
    #[must_use]
    pub fn new(
        plan: String,
        places_file: PathBuf,
        places: BTreeMap<String, Vec<String>>,
    ) -> FleetOrder {
        FleetOrder { format: FORMAT, plan, places_file, places }
    }
}

/// A step of a job at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum JobStep {
    /// It is asked for the place: from here on there may be something to remove.
    Asked,
    /// The place is ours.
    Taken {
        base: PathBuf,
        machine: String,
        kernel: String,
        model: Option<String>,
        lease_seconds: u64,
    },
    /// Program and plan are there.
    Copied { program_bytes: u64 },
    /// The keeper runs the plan.
    Started,
    /// The run is over, or was cut: then there is no end.
    Ended { end: Option<RunEnd> },
    /// The record is here: its folder, below that of the fleet.
    Collected { record: PathBuf, bytes: u64, is_whole: bool },
    /// Nothing is left at the place.
    GivenBack,
    /// This try brings no record; `is_final` when there is none after it.
    Failed { why: String, is_final: bool },
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    at: String,
    place: String,
    job: String,
    #[serde(flatten)]
    step: JobStep,
}

/// A job as far as the steps tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetJob {
    pub name: String,
    /// Where it is at the place, if it was taken.
    pub base: Option<PathBuf>,
    pub machine: String,
    pub kernel: String,
    pub model: Option<String>,
    pub has_started: bool,
    /// The run is over, or cut.
    pub end: Option<Option<RunEnd>>,
    /// Where its record is here, and whether the run came to its end.
    pub record: Option<(PathBuf, bool)>,
    pub is_given_back: bool,
    pub failed: Option<String>,
    pub at: String,
}

/// The folder, for the one process that works with it.
#[derive(Debug)]
pub struct FleetJournal {
    folder: PathBuf,
    log: Mutex<StepLog>,
    /// Held while it is open.
    _lock: File,
}

impl FleetJournal {
    /// Makes a new folder for an order.
    ///
    /// # Errors
    ///
    /// There is one already, or it can't be written.
    pub fn create(folder: &Path, order: &FleetOrder) -> Result<FleetJournal, FleetError> {
        fs::create_dir_all(folder).map_err(FleetError::file("make", folder))?;
        // The lock first: of two that begin at once, one writes.
        let journal = FleetJournal::open(folder)?;
        let path = folder.join(ORDER);
        if path.exists() {
            return Err(FleetError::Refused(format!(
                "{} already holds a fleet run: collect it with `rtscope fleet collect`, or name another folder with --out",
                folder.display()
            )));
        }
        let text = serde_json::to_string_pretty(order).unwrap_or_default() + "\n";
        write_to_disk(&path, text.as_bytes(), None).map_err(FleetError::file("write", &path))?;
        Ok(journal)
    }

    /// Opens the folder of an earlier run.
    ///
    /// # Errors
    ///
    /// Another process works with it, or it can't be written.
    pub fn open(folder: &Path) -> Result<FleetJournal, FleetError> {
        let path = folder.join(STEPS);
        let lock = locked(&path)?;
        let (log, _) = StepLog::open(path)?;
        Ok(FleetJournal { folder: folder.to_owned(), log: Mutex::new(log), _lock: lock })
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a step to the disk.
    ///
    /// # Errors
    ///
    /// The disk is full, for example: then the job must not go on.
    pub fn step(&self, place: &str, job: &str, step: JobStep) -> Result<(), FleetError> {
        let line = Line { at: now(), place: place.to_owned(), job: job.to_owned(), step };
        self.log.lock().unwrap_or_else(PoisonError::into_inner).add(&line)
    }
}

/// Whether a folder is that of a fleet's run, as far as its names say.
#[must_use]
pub fn is_fleet(folder: &Path) -> bool {
    folder.join(ORDER).is_file()
}

/// Reads what was asked.
///
/// # Errors
///
/// It is no folder of a fleet's run, or of a newer version.
pub fn read_order(folder: &Path) -> Result<FleetOrder, FleetError> {
    let path = folder.join(ORDER);
    let text = fs::read_to_string(&path).map_err(|e| {
        FleetError::Refused(format!(
            "{} was not written by `rtscope fleet run`: {ORDER}: {e}",
            folder.display()
        ))
    })?;
    // Of our own making, and a plan has lines.
    let order: FleetOrder = serde_json::from_str(&text).map_err(|e| {
        FleetError::Refused(format!("{} does not describe a fleet run: {e}", path.display()))
    })?;
    match order.format {
        FORMAT => Ok(order),
        other => Err(FleetError::Refused(format!(
            "{} has format {other}; this version reads format {FORMAT}",
            path.display()
        ))),
    }
}

/// The jobs of each place, in the order in which they began. Lines that can't be read are left out.
///
/// # Errors
///
/// The file can't be read.
pub fn read_jobs(folder: &Path) -> Result<BTreeMap<String, Vec<FleetJob>>, FleetError> {
    let path = folder.join(STEPS);
    let text = match fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        text => text.map_err(FleetError::file("read", path))?,
    };
    Ok(jobs_of(&String::from_utf8_lossy(&text)))
}

/// The same of the file's text.
#[must_use]
pub fn jobs_of(text: &str) -> BTreeMap<String, Vec<FleetJob>> {
    let mut places: BTreeMap<String, Vec<FleetJob>> = BTreeMap::new();
    for line in text.lines() {
        let Ok(line) = printable::from_json::<Line>(line) else { continue };
        let jobs = places.entry(line.place).or_default();
        let at = jobs.iter().position(|job| job.name == line.job).unwrap_or_else(|| {
            jobs.push(FleetJob { name: line.job.clone(), ..FleetJob::default() });
            jobs.len() - 1
        });
        jobs[at].at = line.at;
        jobs[at].take(line.step);
    }
    places
}

impl FleetJob {
    fn take(&mut self, step: JobStep) {
        match step {
            JobStep::Taken { base, machine, kernel, model, .. } => {
                self.base = Some(base);
                (self.machine, self.kernel, self.model) = (machine, kernel, model);
            }
            JobStep::Asked | JobStep::Copied { .. } => {}
            JobStep::Started => self.has_started = true,
            JobStep::Ended { end } => self.end = Some(end),
            JobStep::Collected { record, is_whole, .. } => self.record = Some((record, is_whole)),
            JobStep::GivenBack => self.is_given_back = true,
            JobStep::Failed { why, .. } => self.failed = Some(why),
        }
    }

    /// Whether something of it may still be at the place.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_given_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_was_cut_tells_what_is_where() {
        let room = tempfile::tempdir().expect("a folder");
        let order = FleetOrder::new("name = \"x\"".into(), "places.toml".into(), BTreeMap::new());
        let journal = FleetJournal::create(room.path(), &order).expect("made");
        assert!(
            FleetJournal::open(room.path())
                .expect_err("taken")
                .to_string()
                .contains("another rtscope")
        );
        drop(journal);
        let said = FleetJournal::create(room.path(), &order).expect_err("there").to_string();
        assert!(said.contains("already"), "{said}");
        let journal = FleetJournal::open(room.path()).expect("open");
        let taken = JobStep::Taken {
            base: "/var/tmp/x".into(),
            machine: "aarch64".into(),
            kernel: "6.12\u{1b}[2J".into(),
            model: None,
            lease_seconds: 60,
        };
        journal.step("a", "one", taken.clone()).expect("written");
        journal
            .step("a", "one", JobStep::Failed { why: "no connection".into(), is_final: false })
            .expect("written");
        journal.step("a", "one", JobStep::GivenBack).expect("written");
        journal.step("a", "two", JobStep::Asked).expect("written");
        journal.step("a", "two", taken).expect("written");
        journal.step("b", "three", JobStep::Started).expect("written");
        // A job is one, whatever was written between its lines.
        journal.step("a", "one", JobStep::GivenBack).expect("written");
        drop(journal);
        let path = room.path().join(STEPS);
        let mut text = fs::read_to_string(&path).expect("read");
        text += "{\"at\":\"now\",\"pla";
        fs::write(&path, text).expect("written");
        let journal = FleetJournal::open(room.path()).expect("open");
        journal.step("a", "two", JobStep::Started).expect("written");
        let jobs = read_jobs(room.path()).expect("read");
        let [one, two] = jobs["a"].as_slice() else { panic!("{jobs:?}") };
        assert!(!one.is_open() && one.failed.as_deref() == Some("no connection"));
        assert!(two.is_open() && two.has_started);
        assert!(!two.kernel.contains('\u{1b}'), "{:?}", two.kernel);
        assert_eq!(jobs["b"].len(), 1);
        assert_eq!(read_order(room.path()).expect("read"), order);
    }
}
