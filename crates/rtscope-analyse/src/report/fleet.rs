//! A fleet's places side by side: each with its verdict, the ones that differ most first.

use std::fmt::Write as _;

use askama::Template;
use rtscope_model::{histogram::Histogram, plan::Plan, verdict::Verdict};
use serde::Serialize;

use crate::{
    judgement::Judgement,
    number::{counted, grouped, us},
    plot::{self, kernels::Curve},
};

/// [`FleetReport::format`].
pub const FORMAT: u32 = 1;

/// p99.9, in parts per billion.
const TAIL: u32 = 999_000_000;

/// With fewer places it can't be said which of them differ from the rest.
const OUTLIERS_FROM: usize = 5;

/// How many robust standard deviations, and which factor, a place must be above the fleet's median.
const DEVIATIONS: f64 = 3.0;
const FACTOR: f64 = 1.5;

/// What scales the median absolute deviation to the standard deviation of a normal distribution.
const MAD_SCALE: f64 = 1.4826;

/// Places that a plot shows: more lie on each other.
const CURVES_MAX: usize = 12;

/// What a plan showed at the places of a fleet.
#[derive(Debug, Serialize)]
pub struct FleetReport {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    pub plan: String,
    /// Worst of all places; none before any record is there.
    pub verdict: Option<Verdict>,
    /// The ones that need a look first.
    pub places: Vec<PlaceReport>,
}

/// What is known of one place.
#[derive(Debug, Serialize)]
pub struct PlaceReport {
    pub place: String,
    pub tags: Vec<String>,
    /// As `uname -m` and `uname -r` say; empty before it has answered.
    pub machine: String,
    pub kernel: String,
    /// Of the device tree.
    pub model: Option<String>,
    #[serde(flatten)]
    pub outcome: PlaceOutcome,
    /// In what it stands out; empty where it doesn't, or where nobody can say.
    pub outlier: Vec<String>,
}

/// What a place brought.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum PlaceOutcome {
    Judged {
        verdict: Verdict,
        /// Why, the weightiest first.
        reasons: Vec<String>,
        /// Folder of the record, below that of the fleet.
        record: String,
        /// Whether the run came to its end.
        is_whole: bool,
        cells: Vec<PlaceCell>,
    },
    /// There is no record, and why.
    NoRecord { why: String },
    /// It goes on there.
    Open { step: String },
}

/// A cell at one place.
#[derive(Debug, Serialize)]
pub struct PlaceCell {
    pub name: String,
    pub recorded: u64,
    /// None where that is not known.
    pub missed: Option<u64>,
    pub p999_ns: Option<u64>,
    /// Lower end of its 95 % interval; none when the run is too short to have one.
    pub p999_low_ns: Option<u64>,
    pub max_ns: Option<u64>,
    #[serde(skip)]
    histogram: Histogram,
}

impl PlaceOutcome {
    /// What a record of a place says.
    #[must_use]
    pub fn judged(judgement: &Judgement, record: String, is_whole: bool) -> PlaceOutcome {
        let cells = judgement.cells.iter().map(|cell| {
            let histogram = cell.all.histogram.clone();
            let tail = cell.all.quantiles.iter().find(|one| one.parts == TAIL);
            PlaceCell {
                name: cell.name.clone(),
                recorded: cell.all.recorded,
                missed: cell.all.missed_is_known.then_some(cell.all.missed),
                p999_ns: tail.map(|tail| tail.value_ns),
                p999_low_ns: tail.and_then(|tail| tail.low_ns),
                max_ns: histogram.max_ns(),
                histogram,
            }
        });
        PlaceOutcome::Judged {
            verdict: judgement.verdict,
            reasons: judgement.reasons.clone(),
            record,
            is_whole,
            cells: cells.collect(),
        }
    }

    fn cells(&self) -> &[PlaceCell] {
        match self {
            PlaceOutcome::Judged { cells, .. } => cells,
            _ => &[],
        }
    }

    /// What it is called, in one or two words.
    fn word(&self) -> String {
        match self {
            PlaceOutcome::Judged { verdict, is_whole: true, .. } => verdict.to_string(),
            PlaceOutcome::Judged { verdict, .. } => format!("{verdict}, cut short"),
            PlaceOutcome::NoRecord { .. } => "No record".to_owned(),
            PlaceOutcome::Open { .. } => "Open".to_owned(),
        }
    }

    /// How much it needs a look.
    fn weight(&self) -> u8 {
        match self {
            PlaceOutcome::Judged { verdict: Verdict::Fail, .. } => 5,
            PlaceOutcome::NoRecord { .. } => 4,
            PlaceOutcome::Judged { is_whole: false, .. } => 3,
            PlaceOutcome::Judged { verdict: Verdict::Inconclusive, .. } => 2,
            PlaceOutcome::Open { .. } => 1,
            PlaceOutcome::Judged { .. } => 0,
        }
    }
}

impl FleetReport {
    /// Finds the outliers and sorts the places.
    #[must_use]
    pub fn new(plan: &Plan, version: &str, mut places: Vec<PlaceReport>) -> FleetReport {
        mark_outliers(&mut places);
        let worst_ns = |place: &PlaceReport| {
            place.outcome.cells().iter().filter_map(|cell| cell.p999_ns).max()
        };
        places.sort_by(|a, b| {
            let key = |place: &PlaceReport| {
                (!place.outlier.is_empty(), place.outcome.weight(), worst_ns(place))
            };
            key(b).cmp(&key(a)).then_with(|| a.place.cmp(&b.place))
        });
        let verdicts = places.iter().filter_map(|place| match &place.outcome {
            PlaceOutcome::Judged { verdict, .. } => Some(*verdict),
            _ => None,
        });
        let verdict = Verdict::worst(verdicts);
        let (format, version) = (FORMAT, version.to_owned());
        FleetReport { format, version, plan: plan.name.clone(), verdict, places }
    }

    /// Number of places whose outcome has a word.
    fn count(&self, is_one: impl Fn(&PlaceOutcome) -> bool) -> u64 {
        self.places.iter().filter(|place| is_one(&place.outcome)).count() as u64
    }

    /// Whether every place brought the record of a run that came to its end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_whole =
            |one: &PlaceOutcome| matches!(one, PlaceOutcome::Judged { is_whole: true, .. });
        self.count(is_whole) == self.places.len() as u64
    }

    /// What the fleet says in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let of = |verdict: Verdict| {
            self.count(|one| matches!(one, PlaceOutcome::Judged { verdict: found, .. } if *found == verdict))
        };
        let parts = [
            (of(Verdict::Fail), "failed"),
            (of(Verdict::Inconclusive), "inconclusive"),
            (of(Verdict::Pass), "passed"),
            (of(Verdict::Measured), "measured without a requirement"),
            (self.count(|one| matches!(one, PlaceOutcome::NoRecord { .. })), "without a record"),
            (self.count(|one| matches!(one, PlaceOutcome::Open { .. })), "still open"),
        ];
        let told = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
        let told: Vec<String> = told.collect();
        let outliers = self.places.iter().filter(|place| !place.outlier.is_empty()).count() as u64;
        let outliers = match outliers {
            0 => String::new(),
            1 => "; 1 stands out".to_owned(),
            n => format!("; {n} stand out"),
        };
        format!("{}: {}{outliers}", counted(self.places.len() as u64, "place"), told.join(", "))
    }
}

/// Marks the places whose p99.9 of a cell is far above the fleet's median, even at the lower end of its interval.
/// Latencies differ by factors, so their logarithms are compared; the median absolute deviation stands a few outliers
/// among many places.
fn mark_outliers(places: &mut [PlaceReport]) {
    for name in names(places) {
        let log = |ns: u64| (ns.max(1) as f64).ln();
        let cell =
            |place: &PlaceReport| place.outcome.cells().iter().position(|cell| cell.name == name);
        let of = |place: &PlaceReport| place.outcome.cells()[cell(place)?].p999_ns.map(log);
        let all: Vec<f64> = places.iter().filter_map(of).collect();
        if all.len() < OUTLIERS_FROM {
            continue;
        }
        let middle = median(all.clone());
        let spread = MAD_SCALE * median(all.iter().map(|one| (one - middle).abs()).collect());
        let limit = middle + (DEVIATIONS * spread).max(FACTOR.ln());
        for place in places.iter_mut() {
            let low = cell(place).and_then(|n| place.outcome.cells()[n].p999_low_ns).map(log);
            if let Some(low) = low.filter(|low| *low > limit) {
                place.outlier.push(format!(
                    "{name}: its p99.9 is at least {:.1} times the fleet's median of {} us",
                    (low - middle).exp(),
                    us(middle.exp() as u64)
                ));
            }
        }
    }
}

/// The names of the cells, in the order of the plan.
fn names(places: &[PlaceReport]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for cell in places.iter().flat_map(|place| place.outcome.cells()) {
        if !names.contains(&cell.name) {
            names.push(cell.name.clone());
        }
    }
    names
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// The places for a terminal, each in a few lines.
#[must_use]
pub fn text(all: &FleetReport) -> String {
    let mut text = format!("{}\n", all.headline());
    let width = all.places.iter().map(|place| place.place.len()).max().unwrap_or(0);
    for place in &all.places {
        let _ = write!(text, "\n{:width$}  {}", place.place, place.outcome.word());
        let machine =
            [place.machine.as_str(), &place.kernel].into_iter().filter(|word| !word.is_empty());
        let machine: Vec<&str> = machine.collect();
        if !machine.is_empty() {
            let _ = write!(text, " ({})", machine.join(", "));
        }
        text.push('\n');
        for cell in place.outcome.cells() {
            let [p999, max] = [cell.p999_ns, cell.max_ns].map(figure);
            let _ = writeln!(
                text,
                "    {}: p99.9 {p999} us, max {max} us, {}",
                cell.name,
                missed(cell)
            );
        }
        for line in place.outlier.iter().map(String::as_str).chain(first_reason(&place.outcome)) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn figure(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), us)
}

fn missed(cell: &PlaceCell) -> String {
    cell.missed.map_or_else(|| "missed unknown".to_owned(), |n| format!("{} missed", grouped(n)))
}

/// Why a place is not well, or where it is.
fn first_reason(outcome: &PlaceOutcome) -> Option<&str> {
    match outcome {
        PlaceOutcome::Judged { verdict: Verdict::Pass | Verdict::Measured, .. } => None,
        PlaceOutcome::Judged { reasons, .. } => reasons.first().map(String::as_str),
        PlaceOutcome::NoRecord { why } => Some(why),
        PlaceOutcome::Open { step } => Some(step),
    }
}

#[derive(Debug, Template)]
#[template(path = "fleet.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    headline: String,
    all: &'a FleetReport,
    rows: Vec<PlaceRow<'a>>,
    cells: Vec<CellView>,
    json: String,
}

#[derive(Debug)]
struct PlaceRow<'a> {
    place: &'a PlaceReport,
    word: String,
    /// The address of its own page, below the fleet's folder.
    page: Option<String>,
    why: Option<&'a str>,
}

#[derive(Debug)]
struct CellView {
    name: String,
    svg: Option<String>,
    /// Places that the plot leaves out.
    hidden: usize,
    rows: Vec<[String; 5]>,
}

/// The page. The same records give the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &FleetReport) -> String {
    let cells = names(&all.places).into_iter().enumerate();
    let cells = cells.map(|(number, name)| cell_view(all, number, name));
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::cell_rules() + &plot::dark_rules(),
        headline: all.headline(),
        all,
        rows: all.places.iter().map(place_row).collect(),
        cells: cells.collect(),
        json: super::harmless_json(all),
    };
    page.render().expect("writing to a string never fails")
}

fn place_row(place: &PlaceReport) -> PlaceRow<'_> {
    let outcome = &place.outcome;
    let page = match outcome {
        PlaceOutcome::Judged { record, .. } => Some(format!("{record}/report.html")),
        _ => None,
    };
    PlaceRow { place, word: outcome.word(), page, why: first_reason(outcome) }
}

fn cell_view<'a>(all: &'a FleetReport, number: usize, name: String) -> CellView {
    let found: Vec<(&PlaceReport, &PlaceCell)> = all
        .places
        .iter()
        .filter_map(|place| {
            Some((place, place.outcome.cells().iter().find(|cell| cell.name == name)?))
        })
        .collect();
    let curve = |(n, (place, cell)): (usize, &(&'a PlaceReport, &'a PlaceCell))| Curve {
        name: &place.place,
        place: n,
        seeds: vec![&cell.histogram],
    };
    let curves: Vec<Curve<'_>> = found.iter().take(CURVES_MAX).enumerate().map(curve).collect();
    let svg = plot::kernels::draw(("place", &name), number, &curves, plot::INLINE_WIDTH);
    let row = |(place, cell): &(&PlaceReport, &PlaceCell)| {
        [
            place.place.clone(),
            grouped(cell.recorded),
            cell.missed.map_or_else(|| "not known".to_owned(), grouped),
            figure(cell.p999_ns),
            figure(cell.max_ns),
        ]
    };
    let hidden = found.len().saturating_sub(CURVES_MAX);
    CellView { name, svg, hidden, rows: found.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use rtscope_model::histogram::Layout;

    use super::*;

    fn place(name: &str, (low_ns, p999_ns): (u64, u64), verdict: Verdict) -> PlaceReport {
        let cell = PlaceCell {
            name: "rest".to_owned(),
            recorded: 1,
            missed: Some(0),
            p999_ns: Some(p999_ns),
            p999_low_ns: Some(low_ns),
            max_ns: None,
            histogram: Histogram::new(Layout::default()),
        };
        let (reasons, record, cells) = (Vec::new(), name.to_owned(), vec![cell]);
        let outcome = PlaceOutcome::Judged { verdict, reasons, record, is_whole: true, cells };
        let text = String::new;
        PlaceReport {
            place: name.to_owned(),
            tags: Vec::new(),
            machine: text(),
            kernel: text(),
            model: None,
            outcome,
            outlier: Vec::new(),
        }
    }

    fn sorted(places: Vec<PlaceReport>) -> FleetReport {
        let plan = rtscope_model::plan::parse_kept(
            "p",
            "name = \"p\"\n[[phase]]\nname = \"rest\"\nduration = \"1s\"\n",
        );
        FleetReport::new(&plan.expect("a plan"), "0", places)
    }

    #[test]
    fn a_place_stands_out_only_if_its_interval_does() {
        let near =
            |n: usize| place(&format!("n{n}"), (9_000, 10_000 + 200 * n as u64), Verdict::Pass);
        let all = |more: Vec<PlaceReport>| sorted((0..6).map(near).chain(more).collect());
        let found = all(vec![place("far", (30_000, 40_000), Verdict::Pass)]);
        assert_eq!(found.places[0].place, "far");
        assert!(
            found.places[0].outlier[0].starts_with("rest: its p99.9 is at least 2.8 times"),
            "{:?}",
            found.places[0].outlier
        );
        assert!(found.headline().ends_with("; 1 stands out"), "{}", found.headline());
        // Its latencies are as long, but its run is too short to tell.
        let found = all(vec![place("short", (11_000, 40_000), Verdict::Pass)]);
        assert!(found.places.iter().all(|place| place.outlier.is_empty()));
        // Of few, nobody can say which of them is the odd one.
        let few = sorted(
            (0..3).map(near).chain([place("far", (30_000, 40_000), Verdict::Pass)]).collect(),
        );
        assert!(few.places.iter().all(|place| place.outlier.is_empty()));
    }

    #[test]
    fn what_needs_a_look_comes_first() {
        let mut lost = place("lost", (1, 1), Verdict::Pass);
        lost.outcome = PlaceOutcome::NoRecord { why: "gone".to_owned() };
        let all = sorted(vec![
            place("good", (1, 1), Verdict::Pass),
            place("open", (1, 1), Verdict::Inconclusive),
            lost,
            place("bad", (1, 1), Verdict::Fail),
        ]);
        let names: Vec<&str> = all.places.iter().map(|place| place.place.as_str()).collect();
        assert_eq!(names, ["bad", "lost", "open", "good"]);
        assert_eq!(
            all.headline(),
            "4 places: 1 failed, 1 inconclusive, 1 passed, 1 without a record"
        );
        assert_eq!((all.verdict, all.is_complete()), (Some(Verdict::Fail), false));
        assert!(text(&all).contains("lost  No record\n    gone\n"), "{}", text(&all));
    }
}
