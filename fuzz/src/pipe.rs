//! From a record to the last document, in stages.

use rtscope_analyse::{
    Judgement,
    compare::{self, ComparedRun},
    export::{Exported, FORMATS},
    judge,
    plot::{self, PlotKind},
    report::{self, terminal::Style},
    statistics::claim,
    verdict_document,
};
use rtscope_model::{
    printable::{guarded, make_printable},
    record::Record,
    time::Nanos,
};

/// A plain terminal.
pub(crate) const STYLE: Style = Style { width: 100, colour: false };

/// A part of the pipe that costs ten times as much as reading, or a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Print,
    Plot,
    Page,
    Export,
    Compare,
    Claim,
}

/// Which stages an input goes through. Every record that is accepted is judged. The stages after that cost
/// so much that a fuzzer that went through all of them each time would try few inputs.
#[derive(Clone, Copy, Debug)]
pub enum Stages {
    /// All of them: for the inputs that are kept.
    All,
    /// One, or most often none, as the input's bytes choose: for the search.
    Chosen,
}

impl Stages {
    /// All of them when the environment has `RTSCOPE_FUZZ_ALL`, else those that the bytes choose.
    #[must_use]
    pub fn wanted() -> Stages {
        static ALL: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        match ALL.get_or_init(|| std::env::var_os("RTSCOPE_FUZZ_ALL").is_some()) {
            true => Stages::All,
            false => Stages::Chosen,
        }
    }

    pub(crate) fn has(self, stage: Stage, bytes: &[u8]) -> bool {
        let chosen = match number_of(bytes) % 4096 {
            0 => Stage::Export,
            1..=8 => Stage::Plot,
            9..=16 => Stage::Page,
            17..=24 => Stage::Compare,
            25..=152 => Stage::Claim,
            153..=664 => Stage::Print,
            _ => return self.is_all(),
        };
        self.is_all() || chosen == stage
    }

    pub(crate) fn is_all(self) -> bool {
        matches!(self, Stages::All)
    }
}

/// A number that any change of the bytes changes (FNV-1a, its halves mixed).
pub(crate) fn number_of(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    sum ^ sum >> 32
}

/// Takes a record through stages.
pub(crate) fn show(record: &Record, bytes: &[u8], stages: Stages) {
    let judgement = judge(record, &[]);
    if stages.has(Stage::Print, bytes) {
        check_text(&report::terminal::summary(&judgement, record, STYLE));
        let document = verdict_document::document(&judgement, record);
        let mut printable = document.clone();
        make_printable(&mut printable);
        assert_eq!(document, printable, "a text that a terminal would obey");
    }
    if stages.has(Stage::Plot, bytes) {
        draw(record, &judgement);
    }
    if stages.has(Stage::Page, bytes) {
        check_page(&report::html::page(record, &judgement));
    }
    if stages.has(Stage::Export, bytes) {
        export(record, &judgement);
    }
    if stages.has(Stage::Compare, bytes) {
        let run = ComparedRun { name: "a", record, judgement: &judgement, cell: None };
        compare(&[run], &[run]);
    }
    if stages.has(Stage::Claim, bytes) {
        claim(record, &judgement, number_of(bytes));
    }
}

/// Compares two sides and shows what came of it.
pub(crate) fn compare(a: &[ComparedRun<'_>], b: &[ComparedRun<'_>]) {
    let comparison = compare::compare(a, b, &[1_000_000]);
    check_text(&report::compare::text(&comparison, STYLE));
    check_page(&report::compare::page(&comparison));
    serde_json::to_string(&comparison).expect("a document");
}

/// A text for a terminal holds nothing that a terminal would obey: every name was made printable when it
/// was read.
pub(crate) fn check_text(text: &str) {
    assert_eq!(guarded(text, false), text);
}

/// A page is whole, and its drawings are XML.
pub(crate) fn check_page(page: &str) {
    assert!(page.trim_end().ends_with("</html>"));
    for drawing in page.split("<svg").skip(1) {
        let (inside, _) = drawing.split_once("</svg>").expect("a drawing with an end");
        check_svg(&format!("<svg{inside}</svg>"));
    }
}

/// A drawing is XML without a coordinate that is no number.
pub(crate) fn check_svg(svg: &str) {
    if let Err(error) = roxmltree::Document::parse(svg) {
        panic!("{error}: {svg}");
    }
    assert!(!svg.contains("=\"NaN") && !svg.contains("=\"inf"), "{svg}");
}

fn draw(record: &Record, judgement: &Judgement) {
    for kind in PlotKind::ALL {
        check_svg(&plot::draw(kind, record, judgement, &plot::PlotOptions::default()));
    }
}

fn export(record: &Record, judgement: &Judgement) {
    let names = judgement.cells.iter().map(|cell| Some(cell.name.as_str())).take(3);
    for name in names.chain([None]) {
        let subject = Exported::new(record, judgement, name).expect("a cell");
        FORMATS.iter().for_each(|format| drop(format.write(&subject)));
    }
}

/// Holds claims of all orders of magnitude against each cell.
fn claim(record: &Record, judgement: &Judgement, number: u64) {
    let limit = Nanos(1 << (number >> 8 & 63));
    let once_in = Nanos(1 << (number >> 16 & 63));
    for cell in judgement.cells.iter().take(3) {
        let Some(claim) = claim::of_cell(record, cell, limit, once_in) else { continue };
        check_text(&claim.sentence());
        check_text(&claim.progress());
        assert!(
            claim.events >= claim.events_surely && claim.events <= claim.latencies,
            "{claim:?}"
        );
    }
}
