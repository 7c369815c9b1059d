//! A record: everything one run left behind, read back from its files.
//!
//! ```text
//! plan.toml                 the plan as it was run
//! environment.before.json   what was found before
//! events.jsonl              one event a line
//! slices/tN.jsonl           one slice a line, a file for each thread
//! histograms.json           sums of the slices, written when the run ends
//! environment.after.json    what was found after
//! ```
//!
//! Reading never fails on a damaged line: what can't be read becomes a finding. A record without
//! plan or events can't be judged at all and is an error.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    environment::Environment,
    event::{Event, FORMAT, Stamped, Tally},
    finding::{Finding, Weight},
    histogram::{Bin, Histogram, Layout, Unplaced},
    origin::Origin,
    plan::{self, Plan},
    printable::from_json,
    schedule::{Placement, Policy},
    slice::{Scope, Slice},
};

/// The files of a record as texts; a missing file is an empty text.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `plan.toml`.
    pub plan: String,
    /// `environment.before.json`.
    pub before: String,
    /// `environment.after.json`.
    pub after: String,
    /// `events.jsonl`.
    pub events: String,
    /// Name and text of each file in `slices/`, in order of name.
    pub slices: Vec<(String, String)>,
    /// `histograms.json`.
    pub histograms: String,
}

/// Everything one run left behind.
#[derive(Clone, Debug)]
pub struct Record {
    /// The plan as it was run.
    pub plan: Plan,
    /// What was found before.
    pub before: Option<Environment>,
    /// What was found after.
    pub after: Option<Environment>,
    /// Events in order, slices not among them.
    pub events: Vec<Stamped>,
    /// The sampling threads.
    pub threads: Vec<ThreadRecord>,
    /// All slices, by thread and then by time.
    pub slices: Vec<Slice>,
    /// Damage that was found on reading.
    pub findings: Vec<Finding>,
}

/// One sampling thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadRecord {
    /// Index over all sessions.
    pub thread: u32,
    /// Its session.
    pub session: u32,
    /// Its interval.
    pub interval_ns: u64,
    /// What the plan asked.
    pub asked: Placement,
    /// What was read back.
    pub found: Placement,
    /// What was read back when it had left its loop; none when the record doesn't say.
    pub found_at_end: Option<Placement>,
    /// What it cost and suffered; none when the record was cut short.
    pub tally: Option<Tally>,
    /// Name of an imported thread. Of such a one nothing was read back: its placement holds no more
    /// than its CPU, if that is known, and an interval of 0 is one that is not known.
    pub imported: Option<String>,
}

/// Why a folder is not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotARecord(pub String);

impl fmt::Display for NotARecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotARecord {}

/// `histograms.json`: the sums of the slices, for readers that want no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histograms {
    /// [`FORMAT`].
    pub format: u32,
    /// One entry for each cell and thread that recorded anything.
    pub histograms: Vec<CellHistogram>,
}

/// The histogram of one thread in one cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellHistogram {
    /// Index of the cell.
    pub cell: u32,
    /// Index of the thread over all sessions.
    pub thread: u32,
    /// Buckets.
    pub layout: Layout,
    /// Activations planned, recorded, missed.
    pub planned: u64,
    /// Measured activations.
    pub recorded: u64,
    /// Swallowed activations.
    pub missed: u64,
    /// Exact smallest latency.
    pub min_ns: u64,
    /// Exact largest latency.
    pub max_ns: u64,
    /// Exact sum of latencies.
    pub sum_ns: u64,
    /// Measured latencies.
    pub bins: Vec<Bin>,
    /// Latencies without a bucket: in imports only.
    #[serde(default, skip_serializing_if = "Unplaced::is_empty")]
    pub unplaced: Unplaced,
    /// What the missed activations would have seen.
    pub omitted: Vec<Bin>,
}

/// A sum of slices in the making: constant memory however long the run.
#[derive(Clone, Debug)]
pub struct CellSum {
    measured: Histogram,
    omitted: Histogram,
    planned: u64,
    missed: u64,
}

impl CellSum {
    /// Nothing yet.
    #[must_use]
    pub fn new(layout: Layout) -> CellSum {
        let (measured, omitted) = (Histogram::new(layout), Histogram::new(layout));
        CellSum { measured, omitted, planned: 0, missed: 0 }
    }

    /// Adds a slice.
    pub fn add(&mut self, slice: &Slice) {
        self.planned += slice.planned;
        self.missed += slice.missed;
        let sum_ns = u128::from(slice.sum_ns);
        self.measured.add_all(&slice.bins, slice.unplaced, slice.min_ns, slice.max_ns, sum_ns);
        let extent = slice.omitted_extent;
        self.omitted.add(&slice.omitted, extent.min_ns, extent.max_ns, u128::from(extent.sum_ns));
    }

    /// The sum as `histograms.json` holds it.
    #[must_use]
    pub fn of(&self, cell: u32, thread: u32) -> CellHistogram {
        CellHistogram {
            cell,
            thread,
            layout: self.measured.layout(),
            planned: self.planned,
            recorded: self.measured.count(),
            missed: self.missed,
            min_ns: self.measured.min_ns().unwrap_or(0),
            max_ns: self.measured.max_ns().unwrap_or(0),
            sum_ns: u64::try_from(self.measured.sum_ns()).unwrap_or(u64::MAX),
            bins: self.measured.bins(),
            unplaced: self.measured.unplaced(),
            omitted: self.omitted.bins(),
        }
    }
}

impl Record {
    /// What a reader calls a thread: its CPU when it has that one alone, else its place in its
    /// session. An imported one has a name.
    #[must_use]
    pub fn label(&self, thread: &ThreadRecord) -> String {
        if let Some(name) = &thread.imported {
            return name.clone();
        }
        let session = self.threads.iter().filter(|other| other.session == thread.session);
        let nth = session.clone().take_while(|other| other.thread != thread.thread).count();
        let cpus = &thread.found.cpus;
        match (cpus.len(), session.filter(|other| other.found.cpus == *cpus).count()) {
            (1, 0 | 1) => format!("CPU {cpus}"),
            (1, _) => format!("CPU {cpus} thread {nth}"),
            _ => format!("thread {nth}"),
        }
    }

    /// Reads a record from its files.
    ///
    /// # Errors
    ///
    /// When there is no plan or no first event, or the record is of a later format.
    pub fn read(files: &Files) -> Result<Record, NotARecord> {
        if files.plan.is_empty() && files.events.is_empty() {
            return Err(NotARecord("it has neither plan.toml nor events.jsonl".to_owned()));
        }
        if files.plan.trim().is_empty() {
            return Err(NotARecord("its plan.toml is missing or empty".to_owned()));
        }
        let plan =
            plan::parse_kept("plan.toml", &files.plan).map_err(|e| NotARecord(e.to_string()))?;
        let mut findings = Vec::new();
        let events: Vec<Stamped> = lines("events.jsonl", &files.events, &mut findings);
        match events.first().map(|first| &first.event) {
            Some(Event::RunStarted { format, version, .. }) if *format > FORMAT => {
                return Err(NotARecord(format!(
                    "it was written by rtscope {version} in format {format}; this rtscope reads up to {FORMAT}"
                )));
            }
            Some(Event::RunStarted { .. }) => {}
            _ => return Err(NotARecord("events.jsonl does not begin with run-started".to_owned())),
        }
        let mut slices = Vec::new();
        for (name, text) in &files.slices {
            slices.extend(lines::<Slice>(name, text, &mut findings));
        }
        slices.sort_by_key(|slice| (slice.thread, slice.start_ns));
        let mut record = Record {
            plan,
            before: json("environment.before.json", &files.before, &mut findings),
            after: json("environment.after.json", &files.after, &mut findings),
            threads: threads(&events),
            events,
            slices,
            findings,
        };
        record.check(&files.histograms);
        Ok(record)
    }

    /// The histogram layout of a cell.
    #[must_use]
    pub fn layout_of(&self, cell: u32) -> Layout {
        let by_event = self.events.iter().find_map(|stamped| match &stamped.event {
            Event::SessionStarted { first_cell, cells, layout, .. }
                if (*first_cell..first_cell + cells).contains(&cell) =>
            {
                Some(*layout)
            }
            Event::CellImported { cell: imported, layout, .. } if *imported == cell => {
                Some(*layout)
            }
            _ => None,
        });
        by_event.unwrap_or_else(|| {
            self.plan.phases.get(cell as usize).map(|p| p.sampler.layout()).unwrap_or_default()
        })
    }

    /// Where the figures of a cell come from; none when rtscope measured them.
    #[must_use]
    pub fn origin_of(&self, cell: u32) -> Option<&Origin> {
        self.origins().find(|(of, _)| *of == cell).map(|(_, origin)| origin)
    }

    /// Imported cells and where they come from.
    pub fn origins(&self) -> impl Iterator<Item = (u32, &Origin)> {
        self.events.iter().filter_map(|stamped| match &stamped.event {
            Event::CellImported { cell, origin, .. } => Some((*cell, origin)),
            _ => None,
        })
    }

    /// Whether the figures were imported: rtscope measured none of them.
    #[must_use]
    pub fn is_imported(&self) -> bool {
        self.origins().next().is_some()
    }

    /// Whether the run came to its own end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.events.iter().any(|stamped| matches!(stamped.event, Event::RunEnded { .. }))
    }

    /// The slices of a cell, by thread and then by time.
    pub fn slices_of(&self, cell: u32) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| slice.scope == Scope::Cell(cell))
    }

    /// Notes what doesn't add up.
    fn check(&mut self, histograms: &str) {
        if !self.is_complete() {
            self.findings.push(Finding::new(
                "record-cut-short",
                Weight::PreventsPass,
                "the run did not come to its end: the record holds what was written up to then",
            ));
        }
        let wrong = self.slices.iter().filter(|slice| !slice.adds_up()).count();
        if wrong > 0 {
            self.findings.push(Finding::new(
                "accounting",
                Weight::Invalidates,
                format!("planned = recorded + missed does not hold in {wrong} slices"),
            ));
        }
        let Some(sums) = json::<Histograms>("histograms.json", histograms, &mut self.findings)
        else {
            return;
        };
        let differs = |kept: &CellHistogram| {
            let mut sum = CellSum::new(kept.layout);
            let of_thread = |slice: &&Slice| slice.thread == kept.thread;
            self.slices_of(kept.cell).filter(of_thread).for_each(|slice| sum.add(slice));
            sum.of(kept.cell, kept.thread) != *kept
        };
        if sums.histograms.iter().any(differs) {
            self.findings.push(Finding::new(
                "histograms-differ",
                Weight::Warning,
                "histograms.json is not the sum of the slices: the slices are used",
            ));
        }
    }
}

/// Reads JSON lines, skipping damaged ones with a finding for each file.
fn lines<T: DeserializeOwned>(name: &str, text: &str, findings: &mut Vec<Finding>) -> Vec<T> {
    let mut read = Vec::new();
    let mut damaged: Vec<usize> = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match from_json(line) {
            Ok(value) => read.push(value),
            Err(_) => damaged.push(i + 1),
        }
    }
    if let Some(first) = damaged.first() {
        findings.push(Finding::new(
            "record-damaged",
            Weight::PreventsPass,
            match damaged.len() {
                1 => format!("{name}: line {first} can't be read"),
                n => format!("{name}: {n} lines can't be read, the first is line {first}"),
            },
        ));
    }
    read
}

fn json<T: DeserializeOwned>(name: &str, text: &str, findings: &mut Vec<Finding>) -> Option<T> {
    if text.is_empty() {
        return None;
    }
    match from_json(text) {
        Ok(value) => Some(value),
        Err(e) => {
            let text = format!("{name} can't be read: {e}");
            findings.push(Finding::new("record-damaged", Weight::Warning, text));
            None
        }
    }
}

fn threads(events: &[Stamped]) -> Vec<ThreadRecord> {
    let mut threads: Vec<ThreadRecord> = Vec::new();
    for stamped in events {
        match &stamped.event {
            Event::ThreadPlaced { thread, session, interval_ns, asked, found, .. } => {
                threads.push(ThreadRecord {
                    thread: *thread,
                    session: *session,
                    interval_ns: *interval_ns,
                    asked: asked.clone(),
                    found: found.clone(),
                    found_at_end: None,
                    tally: None,
                    imported: None,
                });
            }
            Event::ThreadImported { thread, session, label, cpu, interval_ns } => {
                let place = Placement {
                    policy: Policy::Other,
                    priority: 0,
                    nice: 0,
                    budget: None,
                    cpus: cpu.iter().copied().collect(),
                };
                threads.push(ThreadRecord {
                    thread: *thread,
                    session: *session,
                    interval_ns: interval_ns.unwrap_or(0),
                    asked: place.clone(),
                    found: place,
                    found_at_end: None,
                    tally: None,
                    imported: Some(label.clone()),
                });
            }
            Event::ThreadEnded { thread, tally, found } => {
                if let Some(ended) = threads.iter_mut().find(|t| t.thread == *thread) {
                    ended.found_at_end.clone_from(found);
                    ended.tally = Some(*tally);
                }
            }
            _ => {}
        }
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_a_plan_says_so() {
        let files = Files { events: "{}\n".to_owned(), plan: "\n".to_owned(), ..Files::default() };
        let said = Record::read(&files).expect_err("refused").to_string();
        assert_eq!(said, "its plan.toml is missing or empty");
    }

    #[test]
    fn one_damaged_line_is_one() {
        let said = |text| {
            let mut findings = Vec::new();
            lines::<u64>("x.jsonl", text, &mut findings);
            findings[0].text.clone()
        };
        assert_eq!(said("1\n{\n3\n"), "x.jsonl: line 2 can't be read");
        assert_eq!(said("1\n{\n?\n"), "x.jsonl: 2 lines can't be read, the first is line 2");
    }
}
