//! A record: everything one run left behind, read back from its files.
//!
//! ```text
//! plan.toml                 the plan as it was run
//! environment.before.json   what was found before
//! events.jsonl              one event a line
//! slices/tN.jsonl           one slice a line, a file for each thread
//! histograms.json           sums of the slices, written when the run ends
//! environment.after.json    what was found after
//! explain.json              late wake-ups with the kernel's events around them, where they were watched
//! lab.json                  of a guest: how its time passed
//! ```
//!
//! Reading never fails on a damaged line: what can't be read becomes a finding. A record without
//! plan or events can't be judged at all and is an error.
//!
//! A record of any length is read in one pass and bounded memory ([`RecordReader`]): of a long one,
//! neighbouring slices are joined.

mod condense;
mod ends;
mod events;
mod histograms;
mod lines;
mod pyramid;
mod reader;
mod samples;
mod spans;
pub(crate) mod thread;

use self::{condense::Condensed, events::Events, lines::Lines};
pub use self::{
    condense::{Condenser, Counts},
    ends::PLAN_CHANGED,
    histograms::{CellHistogram, CellSum, Histograms},
    pyramid::{FINE_NS, Pyramid, limits_ns, span_length_ns},
    reader::{EventFile, EventReader, RecordReader, SliceFile, SliceReader},
    samples::{DRAWN_SPANS, LISTED_SPANS, SampleReader, SampleSpan, Samples},
    spans::Spans,
    thread::ThreadRecord,
};

/// Files in a record's folder that whoever judges it writes, or the lab that holds several. What a guest or another
/// machine sends by these names is left out: it would count as ours.
pub const JUDGED_HERE: [&str; 4] =
    ["verdict.json", "accepted.json", "required.json", "comparison.json"];
use crate::{
    environment::Environment,
    event::{Event, Stamped},
    explain::ExplainRecord,
    finding::Finding,
    guest::VirtualTime,
    histogram::Layout,
    origin::Origin,
    plan::Plan,
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
    /// `lab.json`, of a guest's record.
    pub lab: String,
    /// `explain.json`, of a run whose late wake-ups were watched.
    pub explained: String,
}

impl Files {
    /// Name and text of each file that is written as a whole.
    #[must_use]
    pub fn whole(&self) -> [(&'static str, &str); 4] {
        [
            ("plan.toml", &self.plan),
            ("environment.before.json", &self.before),
            ("environment.after.json", &self.after),
            ("histograms.json", &self.histograms),
        ]
    }
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
    /// Events in order, slices not among them. Of a long run, spans of counters and of loads' rates
    /// that follow each other are joined: their sums stay exact.
    pub events: Vec<Stamped>,
    /// Late wake-ups with the kernel's events around them, where they were watched.
    pub explained: Option<Box<ExplainRecord>>,
    /// How time passed in a guest of the lab; none when it was the machine's own.
    pub virtual_time: Option<VirtualTime>,
    pub threads: Vec<ThreadRecord>,
    /// All slices, by thread and then by time. Of a long run, slices that follow each other are
    /// joined: counts, sums and extremes stay exact, and their lengths differ.
    pub slices: Vec<Slice>,
    /// Every wake-up of the threads whose run kept them (`raw`), joined where there are many.
    pub samples: Vec<Samples>,
    /// What the files held before anything was joined.
    pub content: Content,
    /// Damage that was found on reading.
    pub findings: Vec<Finding>,
}

/// What the files of a record held, whatever was joined on reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub events: u64,
    /// Slices by thread and scope.
    pub slices: Counts,
    /// Length that slices were joined to, in nanoseconds, as the run went or on reading; none where they
    /// are as they were measured.
    pub joined_ns: Option<u64>,
}

/// Why a folder is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotARecord(pub String);

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

    /// Reads a record from files that are in memory.
    ///
    /// # Errors
    ///
    /// When there is no plan or no first event, or the record is of a later format.
    pub fn read(files: &Files) -> Result<Record, NotARecord> {
        let mut events = EventReader::default();
        events.feed(files.events.as_bytes());
        let reader = RecordReader::new(files, events.finish())?;
        let slices = files.slices.iter().map(|(name, text)| {
            let mut slices = reader.slices(name, files.slices.len());
            slices.feed(text.as_bytes());
            slices.finish()
        });
        let slices = slices.collect();
        Ok(reader.finish(slices))
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
}
