//! A judged record as a document for other programs.
//!
//! ```text
//! Record, Judgement -> Exported (all cells, or one) -> a format's text
//! ```
//!
//! One file a format, one line in [`FORMATS`]. A format that holds one run (cyclictest's, OSADL's, a
//! percentile table) takes one cell; the others take any number. No export says more than the
//! judgement: a requirement that is met in a run that is not valid is no pass anywhere.

#[cfg(test)]
mod agreement;
mod case;
mod csv;
pub mod cyclictest;
mod explained;
mod fleet;
mod hgrm;
pub mod json;
mod junit;
mod kcidb;
mod ktap;
mod lava;
mod markdown;
#[cfg(test)]
mod maximum_tests;
mod openmetrics;
mod osadl;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(test)]
mod tests;

use rtscope_model::{event::Event, record::Record};

pub use self::{
    explained::{Lateness, TRACE_FORMATS, TraceFormat},
    fleet::{FleetExported, PlaceExported, PlaceWithout},
    kcidb::{BuildId, NotAName, PublishedFiles, Submission, SubmissionOrigin},
};
use crate::judgement::{CellSummary, FigureRow, Judgement};

/// What is exported.
#[derive(Clone, Debug)]
pub struct Exported<'a> {
    pub record: &'a Record,
    /// What it says, of the cells that are exported.
    pub judgement: Judgement,
    /// What a document for KernelCI is named by.
    pub submission: Submission,
    /// Where it was run, if that is one of the places of a fleet.
    pub place: Option<String>,
}

/// One format: its name, what it holds, what writes it.
#[derive(Debug)]
pub struct Format {
    /// Word on the command line.
    pub name: &'static str,
    /// What is in it, for a list.
    pub what: &'static str,
    /// How the name of such a file ends, without the dot.
    pub ending: &'static str,
    /// Writes it; a sentence when that subject can't be written so.
    write: fn(&Exported<'_>) -> Result<Vec<u8>, String>,
}

pub const FORMATS: &[Format] = &[
    csv::FIGURES,
    csv::HISTOGRAM,
    csv::SLICES,
    csv::SAMPLES,
    json::FORMAT_OF_EXPORT,
    cyclictest::TEXT,
    cyclictest::JSON,
    osadl::FORMAT,
    hgrm::FORMAT,
    junit::FORMAT,
    kcidb::FORMAT,
    ktap::FORMAT,
    lava::FORMAT,
    openmetrics::FORMAT,
    markdown::FORMAT,
    #[cfg(feature = "parquet")]
    parquet::FORMAT,
];

impl Format {
    /// The format of a name.
    ///
    /// # Errors
    ///
    /// When there is none: a sentence that lists them.
    pub fn named(name: &str) -> Result<&'static Format, String> {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        FORMATS
            .iter()
            .find(|format| format.name == name)
            .ok_or_else(|| format!("{name:?} is not a format: one of {}", names.join(", ")))
    }

    /// The document.
    ///
    /// # Errors
    ///
    /// When the subject has several cells and the format holds one, or when there is no latency.
    pub fn write(&self, subject: &Exported<'_>) -> Result<Vec<u8>, String> {
        (self.write)(subject)
    }
}

impl<'a> Exported<'a> {
    /// All cells of a record, or the one of this name.
    ///
    /// # Errors
    ///
    /// When there is no cell of that name: a sentence that lists them.
    pub fn new(
        record: &'a Record,
        judgement: &Judgement,
        cell: Option<&str>,
    ) -> Result<Exported<'a>, String> {
        let mut judgement = judgement.clone();
        if let Some(name) = cell {
            if judgement.cells.iter().all(|cell| cell.name != name) {
                return Err(format!(
                    "there is no cell {name:?}: choose one of {}",
                    names(&judgement)
                ));
            }
            judgement.cells.retain(|cell| cell.name == name);
            judgement.outcomes.retain(|outcome| outcome.name == name);
        }
        Ok(Exported { record, judgement, submission: Submission::default(), place: None })
    }

    /// The only cell, which must have latencies.
    fn only(&self) -> Result<&CellSummary, String> {
        match self.judgement.cells.as_slice() {
            [cell] if cell.all.recorded == 0 => Err(format!("{} holds no latency", cell.name)),
            [cell] => Ok(cell),
            _ => Err(format!(
                "this format holds one cell, and the record has several ({}): name one as \
                 FOLDER@CELL",
                names(&self.judgement)
            )),
        }
    }

    /// Version of rtscope that wrote the record, and when the run began (RFC 3339).
    fn started(&self) -> (&str, &str) {
        match self.record.events.first().map(|first| &first.event) {
            Some(Event::RunStarted { version, wall_clock, .. }) => (version, wall_clock),
            _ => ("", ""),
        }
    }

    /// The host that was measured; empty when it is not known.
    fn host(&self) -> &str {
        let is_ours = !self.record.is_imported();
        self.record.before.as_ref().filter(|_| is_ours).map_or("", |found| &found.host)
    }
}

/// The cells, as one reads them.
fn names(judgement: &Judgement) -> String {
    let names: Vec<&str> = judgement.cells.iter().map(|cell| cell.name.as_str()).collect();
    names.join(", ")
}

/// The rows of a cell: each thread, and all together when there are several.
fn rows(cell: &CellSummary) -> impl Iterator<Item = &FigureRow> {
    let all = Some(&cell.all).filter(|_| cell.threads.len() != 1);
    cell.threads.iter().chain(all)
}
