//! What every fuzz target does with its bytes: the whole path from a file to the last document.
//!
//! `crates/rtscope-analyse/tests/fuzz_corpus.rs` includes this file and replays the corpora with it.

use rtscope_analyse::{
    Judgement,
    compare::{self, Run},
    export::{FORMATS, Subject},
    import::{self, Import, Options, Stream},
    instrument::{self, Choice},
    judge,
    plot::{self, Kind},
    report::{self, terminal::Style},
    statistics::edges,
};
use rtscope_model::{
    plan,
    record::{Files, Record},
};

/// A plain terminal.
const STYLE: Style = Style { width: 100, colour: false };

/// How far an execution goes. Pages and plots cost a thousand times as much as reading, so a fuzzer that
/// drew everything each time would try few inputs: the input itself chooses one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Read only.
    Read,
    /// Judge, and print the terminal's table and the JSON documents.
    Judge,
    /// Draw every plot.
    Plot,
    /// Write the HTML page.
    Page,
    /// Export each cell and the whole record in every format.
    Export,
    /// Compare the record with itself.
    Compare,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Stage; 6] =
        [Stage::Read, Stage::Judge, Stage::Plot, Stage::Page, Stage::Export, Stage::Compare];

    /// The stage that these bytes choose: by their sum, so that a changed byte is likely to choose another.
    /// Half of the inputs are read only.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Stage {
        let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        match sum % 16 {
            0..=7 => Stage::Read,
            8..=11 => Stage::Judge,
            12 => Stage::Plot,
            13 => Stage::Page,
            14 => Stage::Export,
            _ => Stage::Compare,
        }
    }
}

/// Imports bytes as a format, in pieces of a size that they choose, and takes the record to a stage.
///
/// # Panics
///
/// When a stage fails, or when what was imported is not a sound record. The fuzzer looks for this.
pub fn import(format: &str, bytes: &[u8], stage: Stage) {
    let options = Options { name: "file".to_owned(), ..Options::default() };
    let mut stream = Stream::open(Some(format), options).expect("a known format");
    let piece = bytes.first().map_or(1, |&byte| usize::from(byte) + 1);
    bytes.chunks(piece).for_each(|piece| stream.feed(piece));
    let readings = vec![("file".to_owned(), stream.finish())];
    let Ok(files) = import::files(&Import::default(), readings) else { return };
    let record = Record::read(&files).expect("a record");
    assert!(record.findings.is_empty(), "{:?}", record.findings);
    show(&record, stage);
}

/// Reads bytes as the files of a record and takes it to a stage. Each file begins with a line `== NAME`,
/// as `== events.jsonl`.
///
/// # Panics
///
/// When a stage fails.
pub fn record(bytes: &[u8], stage: Stage) {
    if let Ok(record) = Record::read(&files(bytes)) {
        show(&record, stage);
    }
}

fn files(bytes: &[u8]) -> Files {
    let text = String::from_utf8_lossy(bytes);
    let mut files = Files::default();
    for part in text.split("== ") {
        let (name, content) = part.split_once('\n').unwrap_or((part, ""));
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

/// Reads bytes as a capture of a logic analyser, judges its edges and writes it out.
pub fn wave(bytes: &[u8]) {
    let choice = Choice { channel: None, samples_hz: Some(1e6) };
    let Ok(reading) = instrument::read(bytes, choice) else { return };
    let _ = edges::judge(&reading.capture, None);
    let _ = instrument::write_vcd(&reading.capture);
}

/// Takes a record to a stage.
fn show(record: &Record, stage: Stage) {
    if stage == Stage::Read {
        return;
    }
    let judgement = judge(record, &[]);
    match stage {
        Stage::Read => {}
        Stage::Judge => {
            drop(report::terminal::summary(&judgement, record, STYLE));
            drop(rtscope_analyse::export::json::document(&judgement, record));
        }
        Stage::Plot => draw(record, &judgement),
        Stage::Page => {
            let page = report::html::page(record, &judgement);
            assert!(page.trim_end().ends_with("</html>"));
        }
        Stage::Export => export(record, &judgement),
        Stage::Compare => {
            let run = Run { name: "a", record, judgement: &judgement, cell: None };
            let comparison = compare::compare(&[run], &[run], &[1_000_000]);
            drop(report::compare::text(&comparison, STYLE));
            drop(report::compare::page(&comparison));
        }
    }
}

fn draw(record: &Record, judgement: &Judgement) {
    for kind in Kind::ALL {
        let svg = plot::draw(kind, record, judgement, &plot::Options::default());
        assert!(svg.trim_end().ends_with("</svg>"), "{kind}");
        assert!(!svg.contains("=\"NaN") && !svg.contains("=\"inf"), "{kind}");
    }
}

fn export(record: &Record, judgement: &Judgement) {
    let names = judgement.cells.iter().map(|cell| Some(cell.name.as_str())).take(3);
    for name in names.chain([None]) {
        let subject = Subject::new(record, judgement, name).expect("a cell");
        FORMATS.iter().for_each(|format| drop(format.write(&subject)));
    }
}
