//! How long each part of a frame's way took: a row for each part, a panel for each phase, one logarithmic axis for all.
//!
//! Rows can be compared with each other, but don't add up: the slowest send path and the slowest wake-up usually belong
//! to different frames.

use rtscope_model::{
    frames::{FramePart, Frames},
    histogram::Histogram,
};

use super::{
    Plot, PlotKind, PlotOptions,
    scale::{Scale, nice_above, nice_below},
    scene::{PlottedCell, Scene},
    sheet::{Frame, HEADER, Key, Sample, Sheet},
    svg::Path,
    table::Table,
    words::mean,
};
use crate::{
    number::counted,
    statistics::{
        frames::{parts, table_of_parts},
        quantile,
    },
};

pub(super) const PLOT: Plot = Plot {
    name: "frame-parts",
    title: "Parts of a frame's round trip",
    shows: "It shows how long each part of the round trip took, for the frames that came back in time. A bar begins at the \
            median. It can't show frames that were late or lost, and the rows don't add up: the slowest of each part \
            usually belong to different frames.",
    headline,
    draw,
    table,
};

/// Width that the page draws it for: a telephone shows all of it, without scrolling.
pub(crate) const PAGE_WIDTH: u32 = 460;

/// Room for the names of the parts.
const LEFT: f64 = 128.0;

/// Height of a part's row, and of its bar.
const ROW: f64 = 20.0;
const BAR: f64 = 10.0;

/// The end of the dark bar, and of the light one.
const P99: u32 = 990_000_000;
const P99_9: u32 = 999_000_000;

/// Why a record has nothing to draw; none where it has.
pub(super) fn lacks(scene: &Scene<'_>) -> Option<&'static str> {
    let has_parts = phases(scene).iter().any(|phase| !phase.parts.is_empty());
    (!has_parts).then_some("No frame came back in time. `rtscope network` sends frames")
}

/// The parts of one phase that were measured.
struct Phase<'a> {
    cell: &'a PlottedCell<'a>,
    parts: Vec<(FramePart, Histogram)>,
}

impl Phase<'_> {
    fn part(&self, wanted: FramePart) -> Option<&Histogram> {
        self.parts.iter().find(|(part, _)| *part == wanted).map(|(_, histogram)| histogram)
    }
}

fn measured(frames: &Frames) -> Vec<(FramePart, Histogram)> {
    parts(frames).filter(|(_, histogram)| histogram.count() > 0).collect()
}

fn phases<'a>(scene: &'a Scene<'_>) -> Vec<Phase<'a>> {
    let phase = |cell: &'a PlottedCell<'_>| {
        let frames = cell.summary.all.frames.as_ref()?;
        Some(Phase { cell, parts: measured(frames) })
    };
    scene.shown().into_iter().filter_map(phase).collect()
}

fn headline(scene: &Scene<'_>) -> String {
    let phases = phases(scene);
    let slowest = |phase: &&Phase<'_>| phase.part(FramePart::RoundTrip).and_then(Histogram::max_ns);
    let Some(phase) = phases.iter().rev().max_by_key(slowest) else {
        return "No frame came back in time".to_owned();
    };
    let Some(whole) = phase.part(FramePart::RoundTrip).and_then(Histogram::mean_ns) else {
        return format!("In {}, no frame came back in time", phase.cell.summary.name);
    };
    let name = &phase.cell.summary.name;
    let inside = [FramePart::Send, FramePart::Wire, FramePart::Receive];
    let means = inside.iter().filter_map(|&part| Some((part, phase.part(part)?.mean_ns()?)));
    match means.max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((part, of_part)) => format!(
            "In {name}, the longest part of the round trip is: {}, {} of {} on average",
            part.name(),
            mean(of_part),
            mean(whole)
        ),
        None => format!("In {name}, the round trip takes {} on average", mean(whole)),
    }
}

fn draw(scene: &Scene<'_>, options: &PlotOptions) -> String {
    let mut sheet = Sheet::new(PlotKind::FrameParts, scene, options, &headline(scene));
    let phases = phases(scene);
    let all = || phases.iter().flat_map(|phase| &phase.parts).map(|(_, histogram)| histogram);
    let ends =
        (all().filter_map(Histogram::min_ns).min(), all().filter_map(Histogram::max_ns).max());
    let (Some(min_ns), Some(max_ns)) = ends else {
        return sheet.empty("No frame came back in time");
    };
    sheet.legend(&keys(phases[0].cell.ink));
    let rows = phases.iter().map(|phase| phase.parts.len()).max().unwrap_or(1) as f64;
    let frames = sheet.panels(phases.len(), rows * ROW, HEADER, LEFT);
    let (from, to) = (nice_below(min_ns.max(1) as f64), nice_above(max_ns.max(2) as f64));
    let x = frames[0].x(true, from, to);
    sheet.x_axis(&frames, &x, &x.latency_ticks(8), "duration (logarithmic)");
    for (phase, frame) in phases.iter().zip(&frames) {
        draw_phase(&mut sheet, frame, &x, phase);
    }
    let left_out = scene.left_out().map(|text| format!(" {text}")).unwrap_or_default();
    sheet.finish(&format!(
        "One row a part, one panel a phase: a line from the shortest to the longest time, a dark bar from the median \
         to p99, a light bar from there to p99.9.{left_out}"
    ))
}

fn keys(ink: usize) -> [Key; 3] {
    let key = |label: &str, ink: String, sample: Sample| Key {
        label: label.to_owned(),
        ink,
        sample,
        toggles: None,
    };
    [
        key("shortest to longest", format!("k{ink}"), Sample::Line(0)),
        key("median to p99", format!("K{ink}"), Sample::Square),
        key("p99 to p99.9", format!("light K{ink}"), Sample::Square),
    ]
}

fn draw_phase(sheet: &mut Sheet, frame: &Frame, x: &Scale, phase: &Phase<'_>) {
    let of_frames = phase.part(FramePart::RoundTrip).map_or(0, Histogram::count);
    let name = &phase.cell.summary.name;
    sheet.header(frame, name, &counted(of_frames, "frame"));
    let rows = phase.parts.len().max(1) as f64;
    let each = frame.height / rows;
    for (nth, (part, histogram)) in phase.parts.iter().enumerate() {
        let y = frame.top + each * (nth as f64 + 0.5);
        sheet.svg.label("text", "end", frame.left - 10.0, y + 4.0, label(*part));
        draw_part(sheet, x, y, phase.cell.ink, histogram);
    }
    sheet.base_line(frame);
}

/// The name of a part, short enough for a telephone.
fn label(part: FramePart) -> &'static str {
    match part {
        FramePart::WakeUp => "wake-up",
        FramePart::Send => "send path",
        FramePart::Wire => "drivers, wire, peer",
        FramePart::Card => "by the card",
        FramePart::Receive => "receive, wake-up",
        FramePart::RoundTrip => "round trip",
    }
}

fn draw_part(sheet: &mut Sheet, x: &Scale, y: f64, ink: usize, histogram: &Histogram) {
    let place = |ns: Option<u64>| ns.map_or(x.place(x.from), |ns| x.place(ns as f64));
    let at = |parts| place(histogram.at_rank_ns(quantile::rank(histogram.count(), parts)));
    let (min, max) = (place(histogram.min_ns()), place(histogram.max_ns()));
    let (median, p99, p99_9) = (at(500_000_000), at(P99), at(P99_9));
    let bar = |from: f64, to: f64| {
        let mut bar = Path::default();
        bar.rect(from, y - BAR / 2.0, to - from, BAR);
        bar
    };
    if p99_9 > p99 {
        sheet.svg.path(&format!("light K{ink}"), &bar(p99, p99_9));
    }
    // Equal times still leave a mark.
    sheet.svg.path(&format!("K{ink}"), &bar(median, p99.max(median + 2.0)));
    let mut line = Path::default();
    line.to(min, y);
    line.to(max, y);
    for end in [min, max] {
        line.lift();
        line.to(end, y - BAR / 2.0);
        line.to(end, y + BAR / 2.0);
    }
    sheet.curve(&format!("k{ink}"), 0, &line);
}

fn table(scene: &Scene<'_>) -> Table {
    let rows = scene
        .cells
        .iter()
        .filter_map(|cell| Some((cell.summary.name.as_str(), cell.summary.all.frames.as_ref()?)));
    table_of_parts(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, plot::fixture};

    #[test]
    fn each_part_of_each_phase_is_a_row() {
        let record = fixture::network().record();
        let judgement = judge(&record, &[]);
        let svg = super::super::draw(
            PlotKind::FrameParts,
            &record,
            &judgement,
            &PlotOptions { standalone: false, ..PlotOptions::default() },
        );
        insta::assert_snapshot!(svg);
        let scene = Scene::new(&record, &judgement, None);
        assert_eq!(table(&scene).rows.len(), 10);
    }

    #[test]
    fn bars_begin_at_the_median_and_end_at_the_quantiles() {
        let mut histogram = Histogram::new(rtscope_model::frames::PART_LAYOUT);
        // Exact buckets: 989 frames of 10 ns, 9 of 20 ns, 1 of 40 ns, 1 of 50 ns.
        for (ns, count) in [(10, 989), (20, 9), (40, 1), (50, 1)] {
            (0..count).for_each(|_| histogram.record(ns));
        }
        let options = PlotOptions::default();
        let mut sheet = Sheet::named("x".to_owned(), &options, "", "");
        let x = Scale::linear(0.0, 100.0, 0.0, 100.0);
        draw_part(&mut sheet, &x, 50.0, 0, &histogram);
        let svg = sheet.finish("");
        // p99 is the 990th of 1,000 and p99.9 the 999th.
        for path in ["M20 45H40V55H20Z", "M10 45H20V55H10Z", "M10 50H50M10 45V55M50 45V55"] {
            assert!(svg.contains(&format!("d=\"{path}\"")), "{path}: {svg}");
        }
    }

    #[test]
    fn without_a_frame_it_says_how_to_send_some() {
        let record = fixture::small();
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        assert!(lacks(&scene).is_some_and(|why| why.contains("rtscope network")));
        // All frames were lost.
        let mut run = fixture::network();
        for slice in &mut run.slices {
            slice.frames = Some(Box::new(Frames { sent: 9, lost: 9, ..Frames::default() }));
        }
        let record = run.record();
        let judgement = judge(&record, &[]);
        assert!(lacks(&Scene::new(&record, &judgement, None)).is_some());
    }
}
