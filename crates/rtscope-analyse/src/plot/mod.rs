//! Plots as SVG: what was measured, drawn so that it can be read without a script, in light and in
//! dark, on screen and on paper.
//!
//! A plot is one file and one line of [`PlotKind::plot`]. Each can draw itself, state in words what it
//! shows in this record, and give the numbers behind it as a table.

mod columns;
mod edges;
mod exceedance;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod flame;
pub(crate) mod frame_parts;
pub mod gantt;
mod heatmap;
mod histogram;
pub(crate) mod kernels;
mod load;
mod losses;
pub(crate) mod overlay;
pub(crate) mod phase;
mod samples;
mod scale;
mod scene;
mod sheet;
pub(crate) mod spike;
mod svg;
pub(crate) mod sweep;
pub(crate) mod table;
mod theme;
pub(crate) mod throughput;
mod timeline;
pub mod trend;
pub(crate) mod trials;
pub(crate) mod wave;
pub(crate) mod words;

use std::{fmt, str::FromStr};

use rtscope_model::record::Record;

use self::table::Table;
pub(crate) use self::{
    scene::{PlottedCell, Scene},
    theme::{cell_rules, dark_rules},
};
use crate::judgement::Judgement;

/// Width that plots inside of pages are drawn for; the page scales them. Their texts are legible on paper then.
pub(crate) const INLINE_WIDTH: u32 = 720;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlotKind {
    /// How often each latency was seen.
    Histogram,
    /// The share of wake-ups that were later than a latency.
    Exceedance,
    /// The largest and the mean latency of each slice over the run.
    Timeline,
    /// The latency of every wake-up, of a run that kept them.
    Samples,
    /// How often each latency was seen in each slice of the run.
    Heatmap,
    /// What was missed, or measured with less than full detail.
    Losses,
    /// What the loads achieved and how busy the CPUs were.
    Load,
    /// How long each part of a frame's way took, of a network sampler.
    FrameParts,
}

/// How to draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlotOptions {
    /// Width in pixels, 320 to 4000.
    pub width: u32,
    /// Height in pixels, 160 to 8000; none is what suits the plot.
    pub height: Option<u32>,
    /// Whether the SVG is a file of its own: then it has a heading, a background and a dark look of
    /// its own. Otherwise the page around it gives those.
    pub standalone: bool,
    /// Indices of the cells to show; none is all.
    pub cells: Option<Vec<u32>>,
}

impl Default for PlotOptions {
    /// A file of its own, 900 pixels wide, of all cells.
    fn default() -> PlotOptions {
        PlotOptions { width: 900, height: None, standalone: true, cells: None }
    }
}

/// What a plot is, beside its drawing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plot {
    /// Word on the command line, and `id` of its section in the page.
    pub(crate) name: &'static str,
    /// Two or three words.
    pub(crate) title: &'static str,
    /// What it shows and what it can't, for someone who sees it for the first time.
    pub(crate) shows: &'static str,
    /// What it shows in this record, as one sentence without a full stop.
    pub(crate) headline: fn(&Scene<'_>) -> String,
    pub(crate) draw: fn(&Scene<'_>, &PlotOptions) -> String,
    /// The numbers behind it.
    pub(crate) table: fn(&Scene<'_>) -> Table,
}

impl PlotKind {
    /// All plots, in the order of the page.
    pub const ALL: [PlotKind; 8] = [
        PlotKind::Histogram,
        PlotKind::Exceedance,
        PlotKind::Timeline,
        PlotKind::Samples,
        PlotKind::Heatmap,
        PlotKind::Losses,
        PlotKind::Load,
        PlotKind::FrameParts,
    ];

    /// Those that have a section of their own in a page of the record.
    pub(crate) fn of_page(record: &Record) -> impl Iterator<Item = PlotKind> {
        let has_samples = !record.samples.is_empty();
        PlotKind::ALL.into_iter().filter(move |kind| match kind {
            PlotKind::Samples => has_samples,
            // The section of the frames has it.
            PlotKind::FrameParts => false,
            _ => true,
        })
    }

    /// The word on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.plot().name
    }

    /// Why a record has nothing to draw here; none where it has.
    pub(crate) fn lacks(self, scene: &Scene<'_>) -> Option<&'static str> {
        if self == PlotKind::Samples {
            let none = "The run kept no samples: measure with `rtscope run --raw` to keep them";
            return scene.record.samples.is_empty().then_some(none);
        }
        if self == PlotKind::FrameParts {
            return frame_parts::lacks(scene);
        }
        let mut origins = scene.record.origins().peekable();
        origins.peek()?;
        let no_bins = || {
            let all = || scene.cells.iter().map(|cell| &cell.summary.all.histogram);
            all().any(|histogram| histogram.count() > 0) && all().all(|h| h.bins().is_empty())
        };
        let text = match self {
            PlotKind::Histogram | PlotKind::Exceedance => {
                return no_bins().then_some("The imported file holds extremes and no histogram");
            }
            PlotKind::Timeline | PlotKind::Heatmap => {
                if origins.all(|(_, origin)| origin.is_in_order) && scene.span_ns().is_some() {
                    return None;
                }
                "The imported file does not say when its latencies occurred"
            }
            PlotKind::Losses => {
                "An import does not say what was planned, so what was missed is not known"
            }
            PlotKind::Load | PlotKind::Samples | PlotKind::FrameParts => {
                "An import holds no proof of load"
            }
        };
        Some(text)
    }

    pub(crate) fn plot(self) -> &'static Plot {
        match self {
            PlotKind::Histogram => &histogram::PLOT,
            PlotKind::Exceedance => &exceedance::PLOT,
            PlotKind::Timeline => &timeline::PLOT,
            PlotKind::Samples => &samples::PLOT,
            PlotKind::Heatmap => &heatmap::PLOT,
            PlotKind::Losses => &losses::PLOT,
            PlotKind::Load => &load::PLOT,
            PlotKind::FrameParts => &frame_parts::PLOT,
        }
    }
}

impl fmt::Display for PlotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PlotKind {
    type Err = String;

    fn from_str(text: &str) -> Result<PlotKind, String> {
        let words = PlotKind::ALL.map(PlotKind::name);
        PlotKind::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("{text:?} is not a plot: one of {}", words.join(", ")))
    }
}

/// What a plot of latencies says when there are none.
pub(crate) const NO_LATENCY: &str = "No latency was recorded";

/// Why a record has nothing to draw; none where it has. [`draw`] draws the reason.
#[must_use]
pub fn lacks(kind: PlotKind, record: &Record, judgement: &Judgement) -> Option<&'static str> {
    let scene = Scene::new(record, judgement, None);
    kind.lacks(&scene).or_else(|| match kind {
        PlotKind::Load => load::is_empty(&scene).then_some(load::NONE),
        PlotKind::Losses => None,
        _ => scene.extremes_ns().is_none().then_some(NO_LATENCY),
    })
}

/// Draws a plot of a record as SVG. The same record gives the same bytes.
#[must_use]
pub fn draw(
    kind: PlotKind,
    record: &Record,
    judgement: &Judgement,
    options: &PlotOptions,
) -> String {
    let scene = Scene::new(record, judgement, options.cells.as_deref());
    match kind.lacks(&scene) {
        Some(why) => nothing(kind, &scene, options, why),
        None => (kind.plot().draw)(&scene, options),
    }
}

/// A plot that says why it is empty.
pub(crate) fn nothing(
    kind: PlotKind,
    scene: &Scene<'_>,
    options: &PlotOptions,
    why: &str,
) -> String {
    sheet::Sheet::new(kind, scene, options, why).empty(why)
}

#[cfg(test)]
mod tests {
    use super::{fixture, *};
    use crate::judge;

    fn draw_all(record: &Record, options: &PlotOptions) -> Vec<(PlotKind, String)> {
        let judgement = judge(record, &[]);
        PlotKind::ALL.map(|kind| (kind, draw(kind, record, &judgement, options))).into()
    }

    #[test]
    fn names_are_read_back() {
        for kind in PlotKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!(
            "scatter".parse::<PlotKind>().is_err_and(|why| why.contains("histogram, exceedance"))
        );
    }

    #[test]
    fn plots_look_as_reviewed() {
        for (kind, svg) in draw_all(&fixture::small(), &PlotOptions::default()) {
            insta::assert_snapshot!(kind.name(), svg);
        }
    }

    #[test]
    fn every_record_gives_well_formed_plots_that_say_what_they_are() {
        let records = [
            fixture::small(),
            fixture::empty(),
            fixture::cut_short(),
            fixture::hostile(),
            fixture::long(900),
            fixture::wide(20, 14),
            fixture::network().record(),
        ];
        for record in records.iter().chain(&fixture::extreme()) {
            let judgement = judge(record, &[]);
            for standalone in [true, false] {
                let options = PlotOptions { standalone, ..PlotOptions::default() };
                for (kind, svg) in draw_all(record, &options) {
                    let name = format!("{kind} of {}", record.plan.name);
                    fixture::check_markup(&svg).unwrap_or_else(|why| panic!("{name}: {why}"));
                    let title = format!("<title id=\"plot-{kind}-title\">");
                    assert!(svg.contains(&title) && svg.contains("<desc"), "{name}");
                    assert!(svg.contains("role=\"img\""), "{name}");
                    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
                    assert_eq!(svg.contains("<style>"), standalone, "{name}");
                    let is_empty = svg.contains("There is nothing to draw.");
                    assert_eq!(lacks(kind, record, &judgement).is_some(), is_empty, "{name}");
                    assert!(!svg.contains("<script") && !svg.contains("<img"), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_static_renderer_needs_no_style_sheet() {
        for (kind, svg) in draw_all(&fixture::small(), &PlotOptions::default()) {
            assert!(!svg.contains("var("), "{kind}");
            for element in svg.split('<').filter(|element| element.starts_with("path ")) {
                let is_painted = element.contains("stroke=") || element.contains("fill=");
                assert!(is_painted, "{kind}: {element}");
            }
        }
    }

    #[test]
    fn a_plot_is_as_large_as_asked() {
        let options = PlotOptions { width: 640, height: Some(520), ..PlotOptions::default() };
        for (kind, svg) in draw_all(&fixture::small(), &options) {
            let known = matches!(kind, PlotKind::Losses);
            assert!(known || svg.contains("viewBox=\"0 0 640 520\""), "{kind}: {}", &svg[..300]);
        }
    }

    #[test]
    fn chosen_cells_are_the_only_ones() {
        let options = PlotOptions { cells: Some(vec![1]), ..PlotOptions::default() };
        for (kind, svg) in draw_all(&fixture::small(), &options) {
            assert!(!svg.contains("rest before"), "{kind}");
        }
    }

    #[test]
    fn a_long_or_wide_run_is_drawn_in_bounded_size() {
        let (wide, judgement) = &*fixture::WIDEST;
        let wide =
            PlotKind::ALL.map(|kind| (kind, draw(kind, wide, judgement, &PlotOptions::default())));
        let long = draw_all(&fixture::long(20_000), &PlotOptions::default());
        for (kind, svg) in long.into_iter().chain(wide) {
            assert!(svg.len() < 200_000, "{kind}: {} bytes", svg.len());
        }
    }
}
