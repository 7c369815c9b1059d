//! The judgement as one self-contained page: no address outside it, readable without a script, in
//! light and in dark, on a phone and on paper.
//!
//! A section is a view (what it says, made here) and a template (how it is set, in `template/`).
//! Every text is escaped by the templates; only SVG of our own and the JSON block go in as they are.

mod environment;
mod figures;
mod frames;
mod machine_use;
mod provenance;
mod tail;
#[cfg(test)]
mod tests;
pub(in crate::report) mod verdict;

use askama::Template;
use rtscope_model::{finding::Weight, record::Record};

use self::{
    environment::EnvironmentView, figures::FiguresView, frames::FramesView,
    machine_use::MachineUseView, provenance::ProvenanceView, tail::TailView, verdict::VerdictView,
};
use crate::{
    judgement::Judgement,
    plot::{self, PlotKind, PlotOptions, Scene, table::Table},
    report::{
        explain,
        published::{self, PublishedBesideOurs},
    },
};

#[derive(Debug, Template)]
#[template(path = "page.html")]
struct Page {
    title: String,
    style: &'static str,
    plot_rules: String,
    script: &'static str,
    sections: Vec<(&'static str, &'static str)>,
    verdict: VerdictView,
    findings: Vec<FindingView>,
    figures: FiguresView,
    /// None where no frame was sent.
    frames: Option<FramesView>,
    tail: TailView,
    published: Vec<PublishedBesideOurs>,
    plots: Vec<PlotView>,
    /// None where the record holds neither.
    machine_use: Option<MachineUseView>,
    /// The section about late wake-ups, where they were watched.
    why: Option<String>,
    environment: EnvironmentView,
    provenance: ProvenanceView,
}

#[derive(Debug)]
struct FindingView {
    class: &'static str,
    weight: &'static str,
    code: String,
    text: String,
    advice: String,
}

/// A plot with what it says.
#[derive(Debug)]
struct PlotView {
    name: &'static str,
    title: &'static str,
    headline: String,
    shows: &'static str,
    svg: String,
    table: Table,
}

/// One row of names and values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    name: String,
    value: String,
    /// Whether the value is text of the machine, set in a fixed-width font.
    code: bool,
}

impl Fact {
    fn new(name: &str, value: impl Into<String>) -> Fact {
        Fact { name: name.to_owned(), value: value.into(), code: false }
    }

    fn code(name: &str, value: impl Into<String>) -> Fact {
        Fact { code: true, ..Fact::new(name, value) }
    }
}

/// The page of a record and its judgement. The same record gives the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(record: &Record, judgement: &Judgement) -> String {
    let scene = Scene::new(record, judgement, None);
    let plots: Vec<PlotView> =
        PlotKind::of_page(record).map(|kind| plot_view(kind, &scene, plot::INLINE_WIDTH)).collect();
    let machine_use = MachineUseView::new(record, judgement);
    let frames = FramesView::new(judgement, &scene);
    let page = Page {
        title: format!("{}: rtscope run {}", judgement.verdict, record.plan.name),
        style: include_str!("../template/style.css"),
        plot_rules: plot::cell_rules() + &plot::dark_rules(),
        script: include_str!("../template/script.js"),
        sections: sections(record, frames.is_some(), machine_use.is_some()),
        verdict: VerdictView::new(record, judgement, &scene),
        findings: judgement.findings.iter().map(finding_view).collect(),
        figures: FiguresView::new(judgement),
        frames,
        tail: TailView::new(judgement),
        published: published::of_run(record, judgement),
        plots,
        machine_use,
        why: record.explained.as_deref().map(|explained| explain::section(record, explained)),
        environment: EnvironmentView::new(record),
        provenance: ProvenanceView::new(record, judgement),
    };
    page.render().expect("a string takes every text")
}

/// Identifier and name of each section, in order.
fn sections(record: &Record, has_frames: bool, uses: bool) -> Vec<(&'static str, &'static str)> {
    let why = record.explained.is_some().then_some(("why", "Why late"));
    let plots = PlotKind::of_page(record).flat_map(|kind| {
        let plot = (kind.name(), kind.plot().title);
        std::iter::once(plot).chain(why.filter(|_| kind == PlotKind::Timeline))
    });
    let published = (!record.plan.published.is_empty()).then_some(("published", "Published"));
    [("verdict", "Verdict"), ("findings", "Findings"), ("figures", "Figures")]
        .into_iter()
        .chain(has_frames.then_some(("frames", "Frames")))
        .chain([("tail", "Tail")])
        .chain(published)
        .chain(plots)
        .chain(uses.then_some(("cpu-time", "CPU time")))
        .chain([
            ("environment", "Environment"),
            ("provenance", "Provenance"),
            ("raw", "Raw numbers"),
        ])
        .collect()
}

fn plot_view(kind: PlotKind, scene: &Scene<'_>, width: u32) -> PlotView {
    let plot = kind.plot();
    let options = PlotOptions { width, standalone: false, ..PlotOptions::default() };
    if let Some(why) = kind.lacks(scene) {
        return PlotView {
            name: plot.name,
            title: plot.title,
            headline: why.to_owned(),
            shows: plot.shows,
            svg: plot::nothing(kind, scene, &options, why),
            table: Table::default(),
        };
    }
    PlotView {
        name: plot.name,
        title: plot.title,
        headline: (plot.headline)(scene),
        shows: plot.shows,
        svg: (plot.draw)(scene, &options),
        table: (plot.table)(scene).trimmed(),
    }
}

fn finding_view(finding: &rtscope_model::finding::Finding) -> FindingView {
    let (class, weight) = match finding.weight {
        Weight::Note => ("note", "Note"),
        Weight::Warning => ("warning", "Warning"),
        Weight::PreventsPass => ("prevents", "Prevents Pass"),
        Weight::Invalidates => ("invalidates", "Invalidates the run"),
    };
    FindingView {
        class,
        weight,
        code: finding.code.clone(),
        text: sentence(&finding.text),
        advice: sentence(&finding.advice),
    }
}

/// A name with a capital at its start.
fn capitalised(name: &str) -> String {
    let mut characters = name.chars();
    let initial = characters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    initial + characters.as_str()
}

/// A text with a capital at its start, unless that is a name as `p99.9`, and a full stop at its end.
pub(super) fn sentence(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    let mut characters = text.chars();
    match characters.next() {
        Some(initial) if first.chars().all(|c| c.is_alphabetic() || c == '-') => {
            ended(&format!("{}{}", initial.to_uppercase(), characters.as_str()))
        }
        _ => ended(text),
    }
}

/// A text with a full stop at its end; nothing stays nothing.
fn ended(text: &str) -> String {
    let end = if text.is_empty() || text.ends_with(['.', '!', '?', ':']) { "" } else { "." };
    format!("{text}{end}")
}
