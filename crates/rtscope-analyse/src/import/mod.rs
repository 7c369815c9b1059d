//! Results of other tools, read as records.
//!
//! ```text
//! bytes -> detect -> a reader: lines, columns or JSON -> cells -> record::files
//! ```
//!
//! A reader is fed pieces of any size and keeps a bounded amount of memory, however long the file.
//! What can't be read is counted and told as a finding; nothing in a file makes a reader fail. Time of
//! a run that no latency covers is told, too (`coverage`).
//!
//! What an import can't show: how the machine was set up, where the threads really ran, what load
//! ran, and which activations were missed. The findings say so.

mod cell;
mod columns;
mod contradiction;
mod coverage;
mod cyclictest;
mod cyclictest_json;
mod detect;
mod jitterdebugger;
mod jitterdebugger_text;
mod json;
mod lines;
mod linuxcnc;
mod number;
mod record;
mod repeated;
mod rt_dataset;
mod rtla;
mod samples;

use rtscope_model::finding::{Finding, Weight};

pub use self::{
    cell::ImportedCell,
    record::{Import, files},
};

/// What a user adds to what a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// What a file is called in the record.
    pub name: String,
    /// Width of a unit of the file's numbers in ns; none is what the file says, else 1000.
    pub unit_ns: Option<u64>,
    /// The interval of the threads, where the file doesn't say it.
    pub interval_ns: Option<u64>,
}

/// What was read from a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportReading {
    /// What was measured, one cell for each run or kind of latency.
    pub cells: Vec<ImportedCell>,
    /// What its reader must know.
    pub findings: Vec<Finding>,
}

impl ImportReading {
    fn note(&mut self, code: &str, weight: Weight, text: impl Into<String>) -> &mut Finding {
        self.findings.push(Finding::new(code, weight, text));
        self.findings.last_mut().expect("just pushed")
    }
}

/// Reads one file.
pub(crate) trait Reader {
    /// Takes the next piece.
    fn feed(&mut self, bytes: &[u8]);
    fn finish(self: Box<Self>) -> ImportReading;
}

/// One format: what it is called, how it begins, what reads it.
pub(crate) struct Importer {
    /// Word on the command line.
    name: &'static str,
    /// What it reads, for a list.
    reads: &'static str,
    /// Whether the beginning of a file looks like it.
    is: fn(&detect::Beginning<'_>) -> bool,
    open: fn(&ImportOptions) -> Box<dyn Reader>,
}

/// Every format. The first that knows the beginning of a file reads it.
const IMPORTERS: [Importer; 9] = [
    rt_dataset::IMPORTER,
    cyclictest_json::IMPORTER,
    jitterdebugger::IMPORTER,
    jitterdebugger_text::IMPORTER,
    rtla::IMPORTER,
    linuxcnc::IMPORTER,
    cyclictest::IMPORTER,
    columns::OSADL,
    columns::COLUMNS,
];

/// Names of the formats and what they read.
pub fn formats() -> impl Iterator<Item = (&'static str, &'static str)> {
    IMPORTERS.iter().map(|importer| (importer.name, importer.reads))
}

/// Bytes of a file that its format is told from.
const BEGINNING: usize = 64 << 10;

/// No file of any format has so many bytes without a line break. One that has, as a device that gives
/// zeros, may never end.
const UNBROKEN_MAX: u64 = 64 << 20;

/// A file on its way in.
pub struct Stream {
    options: ImportOptions,
    format: Option<&'static Importer>,
    waiting: Vec<u8>,
    reader: Option<Box<dyn Reader>>,
    /// Bytes since the last line break.
    unbroken: u64,
    /// A file of text has no NUL: where one is, something was lost or overwritten.
    has_nul: bool,
    /// What must be known of a table before it can be read.
    question: Option<String>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("format", &self.format()).finish_non_exhaustive()
    }
}

impl Stream {
    /// A file whose format is to be detected, or is this one.
    ///
    /// # Errors
    ///
    /// When there is no format of that name: a sentence that lists them.
    pub fn open(format: Option<&str>, options: ImportOptions) -> Result<Stream, String> {
        let named = |name: &str| {
            let known: Vec<&str> = formats().map(|(name, _)| name).collect();
            let text = format!("{name:?} is not a format: one of {}", known.join(", "));
            IMPORTERS.iter().find(|importer| importer.name == name).ok_or(text)
        };
        let format = format.map(named).transpose()?;
        let reader = format.map(|importer| (importer.open)(&options));
        Ok(Stream {
            options,
            format,
            waiting: Vec::new(),
            reader,
            unbroken: 0,
            has_nul: false,
            question: None,
        })
    }

    /// The format; none while it isn't known.
    #[must_use]
    pub fn format(&self) -> Option<&'static str> {
        self.format.map(|importer| importer.name)
    }

    /// Whether the file has a line so long that nothing good can follow: who feeds it may stop.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        self.unbroken > UNBROKEN_MAX
    }

    /// Takes the next piece of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.unbroken = match memchr::memrchr(b'\n', bytes) {
            Some(at) => (bytes.len() - at) as u64,
            None => self.unbroken + bytes.len() as u64,
        };
        self.has_nul |= memchr::memchr(0, bytes).is_some();
        if let Some(reader) = &mut self.reader {
            return reader.feed(bytes);
        }
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= BEGINNING {
            self.begin();
        }
    }

    /// Chooses the reader and gives it what came so far.
    fn begin(&mut self) {
        let beginning = detect::Beginning::new(&self.waiting);
        self.format = IMPORTERS.iter().find(|importer| (importer.is)(&beginning));
        if self.format.is_none() {
            self.question = columns::question(&beginning);
        }
        // What no importer knows is held against the most patient one, which finds nothing in it.
        let importer = self.format.unwrap_or(&columns::COLUMNS);
        let mut reader = (importer.open)(&self.options);
        reader.feed(&std::mem::take(&mut self.waiting));
        self.reader = Some(reader);
    }

    #[must_use]
    pub fn finish(mut self) -> ImportReading {
        if self.reader.is_none() {
            self.begin();
        }
        let is_endless = self.is_endless();
        let mut reading = self.reader.map(Reader::finish).unwrap_or_default();
        if is_endless {
            let text = format!(
                "reading ended at a line of more than {} MiB: what follows it is not known",
                UNBROKEN_MAX >> 20
            );
            reading.note("import-truncated", Weight::PreventsPass, text);
        }
        let name = &self.options.name;
        if self.format.is_none() {
            return unknown(name, self.question);
        }
        for cell in &mut reading.cells {
            cell.origin.files = vec![name.clone()];
            if cell.origin.grain_ns == 0 {
                cell.origin.grain_ns = cell.layout.unit_ns;
            }
        }
        let mut cells = std::mem::take(&mut reading.cells);
        cells.iter_mut().for_each(|cell| coverage::check(cell, &mut reading));
        reading.cells = cells;
        reading.cells.retain(|cell| cell.count() > 0 || cell.is_quiet);
        if self.has_nul && !reading.cells.is_empty() {
            let text = "the file holds NUL bytes, which no tool writes: it is damaged, and latencies may be missing";
            reading.note("import-damaged", Weight::PreventsPass, text);
        }
        if reading.cells.is_empty() {
            // Nobody misses the unit of nothing.
            reading.findings.retain(|finding| finding.weight > Weight::Warning);
            reading.note("import-empty", Weight::Invalidates, format!("{name} holds no latency"));
        }
        for finding in &mut reading.findings {
            if !finding.text.contains(name.as_str()) {
                finding.text = format!("{name}: {}", finding.text);
            }
        }
        reading
    }
}

/// What is said of a file that no format fits.
fn unknown(name: &str, question: Option<String>) -> ImportReading {
    let known: Vec<&str> = formats().map(|(name, _)| name).collect();
    let mut reading = ImportReading::default();
    if let Some(question) = question {
        reading.note("import-columns", Weight::Invalidates, format!("{name}: {question}"));
        return reading;
    }
    let text = format!("{name} isn't a measurement in a format that rtscope reads");
    reading.note("import-empty", Weight::Invalidates, text).advice =
        format!("name the format if you know it (--format): one of {}", known.join(", "));
    reading
}

/// Reads a whole text: for tests and small files.
///
/// # Errors
///
/// When there is no format of that name.
pub fn read(
    format: Option<&str>,
    options: ImportOptions,
    bytes: &[u8],
) -> Result<ImportReading, String> {
    let mut stream = Stream::open(format, options)?;
    stream.feed(bytes);
    Ok(stream.finish())
}

#[cfg(test)]
mod contradiction_tests;
#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod tests;
