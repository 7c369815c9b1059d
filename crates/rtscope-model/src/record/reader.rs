//! Reads a record in one pass over its lines, in bounded memory.
//!
//! ```text
//! EventReader  events.jsonl, piece by piece
//! Reader       takes its events and the small files
//! SliceReader  one of each file of slices: several may be fed at a time
//! Record       what Reader makes of the events and all slices
//! ```

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::{
    CellHistogram, CellSum, Condensed, Content, Counts, Events, Files, Histograms, Lines,
    NotARecord, Record, ends, lines::Read, thread::threads,
};
use crate::{
    chain::Chain,
    coverage::Coverage,
    event::{Event, FORMAT, Stamped},
    finding::{Finding, Weight},
    guest::VirtualTime,
    plan::{self, Plan},
    printable::from_json,
    slice::{Scope, Slice},
};

/// Reads `events.jsonl`.
#[derive(Debug)]
pub struct EventReader {
    lines: Lines<Stamped>,
    events: Events,
}

#[derive(Debug)]
pub struct EventFile {
    read: Read,
    events: Vec<Stamped>,
    count: u64,
}

impl Default for EventReader {
    fn default() -> EventReader {
        EventReader { lines: Lines::new("events.jsonl"), events: Events::default() }
    }
}

impl EventReader {
    /// Takes the next piece of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        let events = &mut self.events;
        self.lines.feed(bytes, &mut |event| events.add(event));
    }

    #[must_use]
    pub fn finish(mut self) -> EventFile {
        let events = &mut self.events;
        let read = self.lines.finish(&mut |event| events.add(event));
        let (events, count) = self.events.finish();
        EventFile { read, events, count }
    }
}

/// Reads one of the files in `slices/`.
#[derive(Debug)]
pub struct SliceReader {
    lines: Lines<Slice>,
    pass: Pass,
}

#[derive(Debug)]
pub struct SliceFile {
    read: Read,
    pass: Pass,
}

/// What is done with each slice of a file, in the order of the file, before any are joined.
#[derive(Debug)]
struct Pass {
    condensed: Condensed,
    counts: Counts,
    coverage: Coverage,
    /// Slices in which planned = recorded + missed doesn't hold.
    wrong: u64,
}

impl Pass {
    fn add(&mut self, slice: Slice) {
        *self.counts.entry((slice.thread, slice.scope)).or_default() += 1;
        self.wrong += u64::from(!slice.adds_up());
        self.coverage.add(&slice);
        self.condensed.add(slice);
    }
}

impl SliceReader {
    /// Takes the next piece of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        let pass = &mut self.pass;
        self.lines.feed(bytes, &mut |slice| pass.add(slice));
    }

    #[must_use]
    pub fn finish(mut self) -> SliceFile {
        let pass = &mut self.pass;
        let read = self.lines.finish(&mut |slice| pass.add(slice));
        SliceFile { read, pass: self.pass }
    }
}

/// A record of which everything but the slices is read.
#[derive(Debug)]
pub struct RecordReader {
    record: Record,
    histograms: Option<Histograms>,
    coverage: Coverage,
    chains: BTreeMap<String, Chain>,
    /// Findings about the files of slices go before those about the other files.
    later: Vec<Finding>,
    slice_ns: u64,
}

impl RecordReader {
    /// Takes what was read from `events.jsonl`, and from `files` the small files: its events and
    /// slices are not looked at.
    ///
    /// # Errors
    ///
    /// When there is no plan or no first event, or the record is of a later format.
    pub fn new(files: &Files, events: EventFile) -> Result<RecordReader, NotARecord> {
        let plan = plan_of(&files.plan, events.count + events.read.findings.len() as u64 > 0)?;
        match events.events.first().map(|first| &first.event) {
            Some(Event::RunStarted { format, version, .. }) if *format > FORMAT => {
                return Err(NotARecord(format!(
                    "it was written by rtscope {version} in format {format}; this rtscope reads up to {FORMAT}"
                )));
            }
            Some(Event::RunStarted { .. }) => {}
            _ => return Err(NotARecord("events.jsonl does not begin with run-started".to_owned())),
        }
        let mut later = ends::altered(&events.events, files);
        later.extend(ends::unsealed(&events.events, &events.read.chain));
        let before = json("environment.before.json", &files.before, &mut later);
        let after = json("environment.after.json", &files.after, &mut later);
        let explained = json("explain.json", &files.explained, &mut later);
        let slices = plan.phases.iter().map(|phase| phase.sampler.slice.0);
        let slice_ns = slices.min().unwrap_or(1_000_000_000);
        let content = Content { events: events.count, ..Content::default() };
        let threads = threads(&events.events);
        let coverage = Coverage::new(&plan, &events.events, &threads);
        let record = Record {
            plan,
            before,
            after,
            explained,
            virtual_time: VirtualTime::find(&files.lab),
            threads,
            events: events.events,
            slices: Vec::new(),
            samples: Vec::new(),
            content,
            findings: events.read.findings,
        };
        let histograms = json("histograms.json", &files.histograms, &mut later);
        let chains = std::iter::once((events.read.name, events.read.chain)).collect();
        Ok(RecordReader { record, histograms, coverage, chains, later, slice_ns })
    }

    /// A reader of one of so many files of slices.
    #[must_use]
    pub fn slices(&self, name: &str, files: usize) -> SliceReader {
        let condensed = Condensed::new(self.slice_ns, files);
        let coverage = self.coverage.of_some_threads();
        let pass = Pass { condensed, counts: Counts::new(), coverage, wrong: 0 };
        SliceReader { lines: Lines::new(name), pass }
    }

    /// The record with its slices: the files in order of name, whichever was read first.
    #[must_use]
    pub fn finish(mut self, mut files: Vec<SliceFile>) -> Record {
        files.sort_by(|a, b| a.read.name.cmp(&b.read.name));
        let length_ns = files.iter().map(|file| file.pass.condensed.length_ns).max().unwrap_or(0);
        let joined_ns = files.iter().map(|file| file.pass.condensed.joined_ns()).max().unwrap_or(0);
        let record = &mut self.record;
        // A slice of an import may be all that the file had.
        let joined_ns = if record.is_imported() { length_ns } else { joined_ns };
        record.content.joined_ns = Some(joined_ns).filter(|&joined_ns| joined_ns > 0);
        let mut wrong = 0;
        for SliceFile { read, pass } in files {
            record.findings.extend(read.findings);
            for (of, count) in pass.counts {
                *record.content.slices.entry(of).or_default() += count;
            }
            wrong += pass.wrong;
            self.coverage.join(pass.coverage);
            record.slices.extend(pass.condensed.finish(length_ns));
            self.chains.insert(read.name, read.chain);
        }
        record.slices.sort_by_key(|slice| (slice.thread, slice.start_ns));
        record.findings.extend(ends::differ(&record.events, &self.chains));
        record.findings.append(&mut self.later);
        let missing = self.coverage.finish(&record.threads, |thread| record.label(thread));
        record.findings.extend(missing);
        record.findings.extend(cut_short(record));
        record.findings.extend(accounting(wrong));
        record.findings.extend(self.histograms.as_ref().and_then(|sums| differs(record, sums)));
        self.record
    }
}

fn plan_of(text: &str, has_events: bool) -> Result<Plan, NotARecord> {
    if text.is_empty() && !has_events {
        return Err(NotARecord("it has neither plan.toml nor events.jsonl".to_owned()));
    }
    if text.trim().is_empty() {
        return Err(NotARecord("its plan.toml is missing or empty".to_owned()));
    }
    plan::parse_kept("plan.toml", text).map_err(|e| NotARecord(e.to_string()))
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

fn cut_short(record: &Record) -> Option<Finding> {
    (!record.is_complete()).then(|| {
        Finding::new(
            "record-cut-short",
            Weight::PreventsPass,
            "the run did not reach its end: the record holds what was written until then",
        )
    })
}

fn accounting(wrong: u64) -> Option<Finding> {
    let text = format!("planned = recorded + missed does not hold in {wrong} slices");
    (wrong > 0).then(|| Finding::new("accounting", Weight::Invalidates, text))
}

/// Whether the sums that the run wrote are those of its slices.
fn differs(record: &Record, sums: &Histograms) -> Option<Finding> {
    let key = |kept: &CellHistogram| (kept.cell, kept.thread);
    let mut found: BTreeMap<(u32, u32), CellSum> =
        sums.histograms.iter().map(|kept| (key(kept), CellSum::new(kept.layout))).collect();
    for slice in &record.slices {
        if let Scope::Cell(cell) = slice.scope
            && let Some(sum) = found.get_mut(&(cell, slice.thread))
        {
            sum.add(slice);
        }
    }
    let same = |kept: &CellHistogram| found[&key(kept)].histogram(kept.cell, kept.thread) == *kept;
    let text = "histograms.json is not the sum of the slices: a part of the record is missing or was changed. \
                The slices are used";
    (!sums.histograms.iter().all(same))
        .then(|| Finding::new("histograms-differ", Weight::PreventsPass, text))
}
