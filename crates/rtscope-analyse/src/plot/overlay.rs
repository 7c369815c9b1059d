//! Two sides on one sheet: how often each latency was seen, and the share of wake-ups at or above each,
//! both axes logarithmic, with the 95 % interval of the share.
//!
//! Counts are shares of each side's wake-ups, so that sides of different length lie on one scale.
//! Latencies of an import that have no bucket are counted and not drawn.
//!
//! The plot can't show which of two rare latencies is worse: where the bands overlap, nothing is known.

use rtscope_model::{
    histogram::{Histogram, Unplaced},
    time::Nanos,
};

use super::{
    NO_LATENCY, PlotOptions,
    edges::Edges,
    exceedance::share_ticks,
    scale::Scale,
    sheet::{Frame, HEADER, Key, Sample, Sheet},
    svg::Path,
};
use crate::{
    compare::CellComparison,
    number::{counted, grouped},
    statistics::exceedance::{poisson_high, poisson_low},
};

/// Steps of the latency axis.
const STEPS: usize = 120;

/// Colours of A and B: of the CPUs' palette, told apart by colour-blind readers, and B is dashed.
const INKS: [usize; 2] = [0, 1];

/// A side's counts by step.
struct Side {
    counts: Vec<u64>,
    wakeups: u64,
    max_ns: u64,
    /// Latencies without a bucket.
    unplaced: Unplaced,
    ink: usize,
    dash: usize,
}

impl Side {
    fn share(&self, k: f64) -> f64 {
        k / self.wakeups as f64
    }
}

/// Draws a pair of cells. `number` tells the sheets of one page apart.
pub(crate) fn draw(change: &CellComparison, number: usize, options: &PlotOptions) -> String {
    let name = format!("overlay-{number}");
    let title = format!("{}: A and B", change.name);
    let subtitle =
        "Share of wake-ups by latency, and at or above each latency, with 95 % intervals.";
    let mut sheet = Sheet::named(name, options, &title, subtitle);
    let histograms = &change.histograms;
    let extremes = |pick: fn(&Histogram) -> Option<u64>| histograms.iter().filter_map(pick);
    let (min, max) = (extremes(Histogram::min_ns).min(), extremes(Histogram::max_ns).max());
    let (Some(min_ns), Some(max_ns)) = (min, max) else {
        return sheet.empty(NO_LATENCY);
    };
    if histograms.iter().all(|histogram| histogram.bins().is_empty()) {
        return sheet.empty("Neither side has a histogram");
    }
    let edges = Edges::over(histograms[0].layout(), (min_ns, max_ns), true, STEPS);
    let sides: Vec<Side> = (0..2).filter_map(|n| side(&histograms[n], &edges, n)).collect();
    sheet.legend(&keys(change));
    let frames = sheet.panels(2, 220.0, HEADER, 112.0);
    let limits: Vec<u64> = change.exceedances.iter().map(|seen| seen.limit_ns).collect();
    let end_ns = edges.end_ns() as f64;
    let end = limits.iter().map(|&ns| ns as f64 * 1.04).filter(|&ns| ns < end_ns * 30.0);
    let end = end.fold(end_ns, f64::max);
    let x = frames[0].x(true, edges.edges_ns[0] as f64, end * 1.05);
    let most = sides.iter().map(|side| side.wakeups).max().unwrap_or(1) as f64;
    sheet.x_axis(&frames, &x, &x.latency_ticks(10), "latency (logarithmic)");
    for (n, frame) in frames.iter().enumerate() {
        let y = frame.y(true, 0.4 / most, 1.0);
        sheet.y_axis(frame, &y, &share_ticks(&y));
        let name = ["Share of wake-ups by latency", "Share at or above each latency"][n];
        sheet.header(frame, name, "");
        for side in &sides {
            sheet.plane(frame, 2 * n + side.ink);
            if n == 0 {
                steps(&mut sheet, side, &edges, &x, &y, frame);
            } else {
                exceedance(&mut sheet, side, &edges, &x, &y);
            }
            sheet.end_plane();
        }
        sheet.base_line(frame);
        draw_limits(&mut sheet, frame, &x, &limits, n == 1);
    }
    sheet.finish(&format!(
        "Two sides of {}: the share of wake-ups by latency, and the share at or above each latency.",
        change.name
    ))
}

fn side(histogram: &Histogram, edges: &Edges, n: usize) -> Option<Side> {
    Some(Side {
        counts: edges.sums(histogram.layout(), &histogram.bins()),
        wakeups: histogram.count(),
        max_ns: histogram.max_ns()?,
        unplaced: histogram.unplaced(),
        ink: INKS[n],
        dash: n,
    })
}

fn keys(change: &CellComparison) -> Vec<Key> {
    let key = |(n, figures): (usize, &crate::compare::SideFigures)| Key {
        label: match change.histograms[n].unplaced().count {
            0 => format!("{}: {}", ["A", "B"][n], counted(figures.recorded, "wake-up")),
            beyond => format!(
                "{}: {}, {} of them without a bucket",
                ["A", "B"][n],
                counted(figures.recorded, "wake-up"),
                grouped(beyond)
            ),
        },
        ink: format!("c{}", INKS[n]),
        sample: Sample::Line(n),
        toggles: None,
    };
    [change.a, change.b].iter().enumerate().map(key).collect()
}

/// The histogram as a line of steps with its area.
fn steps(sheet: &mut Sheet, side: &Side, edges: &Edges, x: &Scale, y: &Scale, frame: &Frame) {
    let (mut line, mut area) = (Path::default(), Path::default());
    for (pair, &count) in edges.edges_ns.windows(2).zip(&side.counts) {
        let height = if count == 0 { frame.bottom() } else { y.place(side.share(count as f64)) };
        for edge in pair {
            line.to(x.place(*edge as f64), height);
            area.to(x.place(*edge as f64), height);
        }
    }
    area.to(x.place(edges.end_ns() as f64), frame.bottom());
    area.to(x.place(edges.edges_ns[0] as f64), frame.bottom());
    area.close();
    sheet.svg.path(&format!("area C{}", side.ink), &area);
    sheet.curve(&format!("c{}", side.ink), side.dash, &line);
}

/// The share at or above each edge with its interval.
fn exceedance(sheet: &mut Sheet, side: &Side, edges: &Edges, x: &Scale, y: &Scale) {
    // What has no bucket lies above all that is drawn: from there on the curve is not known.
    let mut above = side.unplaced.count;
    let end_ns = if above > 0 { side.unplaced.from_ns + 1 } else { side.max_ns };
    let mut points: Vec<(f64, u64)> = Vec::new();
    for (edge_ns, count) in edges.edges_ns.iter().zip(&side.counts).rev() {
        above += count;
        if above > 0 && *edge_ns < end_ns {
            points.push((x.place(*edge_ns as f64), above));
        }
    }
    if points.is_empty() {
        return;
    }
    points.reverse();
    if side.unplaced.is_empty() {
        points.push((x.place(side.max_ns as f64), 1));
    }
    let place = |k: f64| y.place(side.share(k).min(1.0));
    let (mut line, mut band) = (Path::default(), Path::default());
    points.iter().for_each(|&(at, k)| line.to(at, place(k as f64)));
    points.iter().for_each(|&(at, k)| band.to(at, place(poisson_high(k))));
    points.iter().rev().for_each(|&(at, k)| band.to(at, place(poisson_low(k))));
    band.close();
    sheet.svg.path(&format!("between C{}", side.ink), &band);
    sheet.curve(&format!("c{}", side.ink), side.dash, &line);
}

fn draw_limits(sheet: &mut Sheet, frame: &Frame, x: &Scale, limits: &[u64], named: bool) {
    for (n, &limit_ns) in limits.iter().take(6).enumerate() {
        let at = x.place(limit_ns as f64);
        if limit_ns as f64 > x.to {
            continue;
        }
        sheet.svg.line("limit", at, frame.top, at, frame.bottom());
        if named {
            let (anchor, dx) =
                if at + 70.0 < frame.right() { ("start", 5.0) } else { ("end", -5.0) };
            let y = frame.top + 12.0 + 14.0 * n as f64;
            sheet.svg.label("limit-text", anchor, at + dx, y, &Nanos(limit_ns).unrounded());
        }
    }
}
