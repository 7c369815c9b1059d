//! What every fuzz target does with its bytes: the whole path from a file to the last document.
//!
//! `crates/rtscope/tests/fuzz_corpus.rs` includes this file and replays the corpora with it.

mod explain;
mod fleet;
mod guest;
mod kernel;
mod kernel_ci;
mod machine;
mod pages;
mod pipe;
mod series;
mod trace;

use rtscope_analyse::{
    import::{self, Import, ImportOptions, Stream},
    instrument::{self, CaptureChoice},
    report::wave::capture,
    statistics::wave,
};
use rtscope_model::{
    plan,
    record::{Files, Record},
};

pub use self::{
    explain::explain,
    fleet::places,
    guest::guest,
    kernel::{kconfig, spec},
    kernel_ci::{kcidb, pull_lab},
    machine::{cmdline, doctor, symbols},
    pages::pages,
    pipe::Stages,
    series::series,
    trace::trace,
};

/// Imports bytes as a format, in pieces of a size that they choose, and takes the record through stages.
///
/// # Panics
///
/// When a stage fails, or when what was imported is not a sound record. The fuzzer looks for this.
pub fn import(format: &str, bytes: &[u8], stages: Stages) {
    if let Some(record) = imported(Some(format), bytes) {
        pipe::show(&record, bytes, stages);
    }
}

/// The record that an import makes of bytes, if any.
fn imported(format: Option<&str>, bytes: &[u8]) -> Option<Record> {
    let options = ImportOptions { name: "file".to_owned(), ..ImportOptions::default() };
    let mut stream = Stream::open(format, options).expect("a known format");
    let piece = bytes.first().map_or(1, |&byte| usize::from(byte) + 1);
    bytes.chunks(piece).for_each(|piece| stream.feed(piece));
    let readings = vec![("file".to_owned(), stream.finish())];
    let files = import::files(&Import::default(), readings).ok()?;
    let record = Record::read(&files).expect("a record");
    assert!(record.findings.is_empty(), "{:?}", record.findings);
    Some(record)
}

/// Reads bytes as the files of a record and takes it through stages. Each file begins with a line
/// `== NAME`, for example `== events.jsonl`.
///
/// # Panics
///
/// When a stage fails.
pub fn record(bytes: &[u8], stages: Stages) {
    if let Ok(record) = Record::read(&files(bytes)) {
        pipe::show(&record, bytes, stages);
    }
}

/// The parts of an input by their names.
fn parts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("== ").map(|part| part.split_once('\n').unwrap_or((part, "")))
}

fn files(bytes: &[u8]) -> Files {
    let text = String::from_utf8_lossy(bytes);
    let mut files = Files::default();
    for (name, content) in parts(&text) {
        let content = content.to_owned();
        match name {
            "plan.toml" => files.plan = content,
            "environment.before.json" => files.before = content,
            "environment.after.json" => files.after = content,
            "events.jsonl" => files.events = content,
            "histograms.json" => files.histograms = content,
            name if name.starts_with("slices/") => files.slices.push((name.to_owned(), content)),
            _ => {}
        }
    }
    files
}

/// Reads bytes as a plan; what is accepted is written out and must read back as the same plan.
///
/// # Panics
///
/// When it does not.
pub fn plan(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(plan) = plan::parse("fuzz", &text) else { return };
    let written = plan.to_toml();
    let again = plan::parse("fuzz", &written).expect("a plan that was written can be read");
    assert_eq!(again.to_toml(), written);
}

/// Reads bytes as a capture of a logic analyser, judges its edges, draws its page and writes it out; what
/// was written must have the same edges, where there are no gaps.
///
/// # Panics
///
/// When it has not, or a drawing is not well formed.
pub fn wave(bytes: &[u8], stages: Stages) {
    let choice = CaptureChoice { channel: None, samples_hz: Some(1e6) };
    let Ok(reading) = instrument::read(bytes, choice) else { return };
    let capture = &reading.capture;
    let wave = wave::judge(capture, None);
    let written = instrument::write_vcd(capture);
    let again = instrument::read(written.as_bytes(), choice).expect("a capture that was written");
    // Two edges at one instant may be none.
    let is_plain = capture.edges.windows(2).all(|pair| pair[0].at_ns() < pair[1].at_ns());
    if is_plain && capture.gaps.is_empty() {
        assert_eq!(again.capture.edges, capture.edges);
    }
    if stages.has(pipe::Stage::Page, bytes) {
        let shown = capture::CapturePage {
            capture,
            wave: &wave,
            wanted_hz: None,
            scope: "a file",
            finding: None,
            written: None,
        };
        pipe::check_page(&capture::page(&shown));
    }
}
