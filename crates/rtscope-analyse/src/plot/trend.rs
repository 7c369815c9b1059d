//! A series of runs over months: one figure with the changes of its level, and all their histograms
//! one behind the other.

use rtscope_model::{
    histogram::{Histogram, Layout},
    time::Nanos,
    verdict::Statistic,
};

use super::{
    PlotOptions,
    edges::Edges,
    scale::{Scale, Tick},
    sheet::{Frame, HEADER, NO_HEADER, Sheet},
    svg::Path,
};
use crate::{
    number::counted,
    statistics::change_point::{self, ChangePoint, ChangePointRefusal},
};

/// One run of a series.
#[derive(Clone, Debug)]
pub struct TrendPoint {
    /// When it began, in seconds since 1970.
    pub at_s: i64,
    /// The day it began, as `2025-01-31`.
    pub day: String,
    /// What it was run on, as a kernel's release: where it changes, the plot says so.
    pub on: String,
    /// The figure.
    pub value_ns: u64,
    /// Whether it may be larger: an activation was never answered.
    pub is_lower_end: bool,
    pub histogram: Histogram,
}

/// Histograms that lie one behind the other, at most.
const LAYERS: usize = 80;

/// Steps of the latency axis.
const STEPS: usize = 100;

/// The changes of level of a series.
///
/// # Errors
///
/// When they can't be looked for: too few runs, or maxima of runs of different lengths.
pub fn changes(
    points: &[TrendPoint],
    statistic: Statistic,
) -> Result<Vec<ChangePoint>, ChangePointRefusal> {
    let values: Vec<f64> = points.iter().map(|point| point.value_ns as f64).collect();
    match statistic {
        Statistic::Max => {
            let counts: Vec<u64> = points.iter().map(|point| point.histogram.count()).collect();
            change_point::of_maxima(&values, &counts)
        }
        _ => change_point::find(&values),
    }
}

/// Draws a figure over time, with its changes. `what` names the figure, as `p99.9 of busy`.
#[must_use]
pub fn draw(
    points: &[TrendPoint],
    what: &str,
    found: &Result<Vec<ChangePoint>, ChangePointRefusal>,
    options: &PlotOptions,
) -> String {
    let values: Vec<f64> = points.iter().map(|point| point.value_ns as f64).collect();
    let changes = found.as_deref().unwrap_or_default();
    let title = match found {
        Ok(changes) => title(points, what, changes),
        Err(ChangePointRefusal::TooFew { runs }) => {
            format!("{what}: {}, too few to find a change", counted(*runs as u64, "run"))
        }
        Err(ChangePointRefusal::Lengths { .. }) => format!("{what}: runs of different lengths"),
    };
    let mut sheet = Sheet::named("trend".to_owned(), options, &title, &span(points));
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return sheet.empty("No run is in the history");
    };
    let frames = sheet.panels(1, 280.0, HEADER, 84.0);
    let frame = frames[0];
    let top = values.iter().copied().fold(1.0, f64::max) * 1.1;
    let x = frame.x(false, first.at_s as f64, (last.at_s as f64).max(first.at_s as f64 + 1.0));
    let y = frame.y(false, 0.0, top);
    sheet.x_axis(&frames, &x, &days(points, &x), "day of the run");
    sheet.y_axis(&frame, &y, &y.latency_ticks(6));
    sheet.y_name(&frames, what);
    let mut line = Path::default();
    points
        .iter()
        .zip(&values)
        .for_each(|(point, value)| line.to(x.place(point.at_s as f64), y.place(*value)));
    sheet.curve("c0", 0, &line);
    for (point, value) in points.iter().zip(&values) {
        sheet.marker(0, x.place(point.at_s as f64), y.place(*value));
    }
    levels(&mut sheet, points, changes, &values, &x, &y, &frame);
    sheet.base_line(&frame);
    sheet.finish(&format!(
        "{what} of {}, with the changes of its level.",
        counted(points.len() as u64, "run")
    ))
}

fn title(points: &[TrendPoint], what: &str, changes: &[ChangePoint]) -> String {
    let us = |ns: f64| Nanos(ns.round().max(0.0) as u64).to_string();
    match changes {
        [] => format!("{what}: no change of level in {}", counted(points.len() as u64, "run")),
        [one] => format!(
            "{what}: from {} to {} on {}",
            us(one.before),
            us(one.after),
            points[one.at].day
        ),
        all => format!("{what}: {} changes of level", all.len()),
    }
}

fn span(points: &[TrendPoint]) -> String {
    match (points.first(), points.last()) {
        (Some(first), Some(last)) => format!("{} to {}, {}", first.day, last.day, last.on),
        _ => String::new(),
    }
}

/// The day of a run near each of five places of the axis.
fn days(points: &[TrendPoint], x: &Scale) -> Vec<Tick> {
    let wanted = (0..5).map(|n| x.from + (x.to - x.from) * f64::from(n) / 4.0);
    let near = |at: f64| points.iter().min_by_key(|point| (point.at_s as f64 - at).abs() as u64);
    let mut ticks: Vec<Tick> = wanted
        .filter_map(near)
        .map(|point| Tick { value: point.at_s as f64, label: point.day.clone() })
        .collect();
    ticks.dedup_by(|a, b| a.value == b.value);
    ticks
}

/// The median of each level, and where the next begins.
fn levels(
    sheet: &mut Sheet,
    points: &[TrendPoint],
    changes: &[ChangePoint],
    values: &[f64],
    x: &Scale,
    y: &Scale,
    frame: &Frame,
) {
    let place = |n: usize| x.place(points[n].at_s as f64);
    let starts = [0].into_iter().chain(changes.iter().map(|change| change.at));
    let ends = changes.iter().map(|change| change.at).chain([values.len() - 1]);
    let medians =
        changes.first().map(|c| c.before).into_iter().chain(changes.iter().map(|c| c.after));
    for ((start, end), median) in starts.zip(ends).zip(medians) {
        sheet.svg.line("ring", place(start), y.place(median), place(end), y.place(median));
    }
    for (n, change) in changes.iter().enumerate() {
        let at = place(change.at);
        sheet.svg.line("limit", at, frame.top, at, frame.bottom());
        let point = &points[change.at];
        let room = at + 160.0 < frame.right();
        let (anchor, dx) = if room { ("start", 5.0) } else { ("end", -5.0) };
        let line = frame.top + 12.0 + 14.0 * (n % 5) as f64;
        let text = match points[change.at - 1].on == point.on {
            true => point.day.clone(),
            false => format!("{} now {}", point.day, point.on),
        };
        sheet.svg.label("limit-text", anchor, at + dx, line, &text);
    }
}

/// Draws the histograms one behind the other, the latest in front: counts and latencies logarithmic, as on
/// the long-term plots of test farms.
#[must_use]
pub fn surface(points: &[TrendPoint], what: &str, options: &PlotOptions) -> String {
    let title = format!("{what}: {}, the latest in front", counted(points.len() as u64, "run"));
    let mut sheet = Sheet::named("surface".to_owned(), options, &title, &span(points));
    let every = points.len().div_ceil(LAYERS).max(1);
    // The latest is always among them.
    let mut shown: Vec<&TrendPoint> = points.iter().rev().step_by(every).collect();
    shown.reverse();
    let histograms = || shown.iter().map(|point| &point.histogram);
    let (Some(min_ns), Some(max_ns), Some(latest)) = (
        histograms().filter_map(Histogram::min_ns).min(),
        histograms().filter_map(Histogram::max_ns).max(),
        shown.last(),
    ) else {
        return sheet.empty("No latency is in the history");
    };
    let layout = Layout::coarsest(histograms().map(Histogram::layout)).unwrap_or_default();
    let edges = Edges::over(layout, (min_ns, max_ns), true, STEPS);
    let frames = sheet.panels(1, 420.0, NO_HEADER, 84.0);
    let frame = frames[0];
    let depth = (shown.len() as f64 * 6.0).min(220.0);
    let front = Frame {
        width: frame.width - depth,
        top: frame.top + depth,
        height: frame.height - depth,
        ..frame
    };
    let x = front.x(true, edges.edges_ns[0] as f64, edges.end_ns() as f64);
    let most = histograms().map(Histogram::count).max().unwrap_or(1) as f64;
    let y = front.y(true, 0.5, most);
    sheet.x_axis(&[front], &x, &x.latency_ticks(8), "latency (logarithmic)");
    sheet.y_axis(&front, &y, &y.count_ticks(6));
    sheet.y_name(&[front], "wake-ups");
    let back = (shown.len() - 1).max(1) as f64;
    for (n, point) in shown.iter().enumerate() {
        let away = depth * (1.0 - n as f64 / back);
        layer(&mut sheet, point, &edges, &x, &y, &front, away);
    }
    let (x0, y0) = (front.right() + 6.0, front.bottom());
    sheet.svg.label("tick", "start", x0, y0, &latest.day);
    sheet.svg.label("tick", "end", frame.right(), y0 - depth - 6.0, &shown[0].day);
    sheet.base_line(&front);
    sheet.finish(&format!(
        "Histograms of {}, one behind the other.",
        counted(points.len() as u64, "run")
    ))
}

/// One histogram, `away` pixels behind the front.
fn layer(
    sheet: &mut Sheet,
    point: &TrendPoint,
    edges: &Edges,
    x: &Scale,
    y: &Scale,
    front: &Frame,
    away: f64,
) {
    let counts = edges.sums(point.histogram.layout(), &point.histogram.bins());
    let floor = front.bottom() - away;
    let height = |count: u64| if count == 0 { floor } else { y.place(count as f64) - away };
    let (mut line, mut area) = (Path::default(), Path::default());
    area.to(x.place(edges.edges_ns[0] as f64) + away, floor);
    for (pair, &count) in edges.edges_ns.windows(2).zip(&counts) {
        let middle = (pair[0].max(1) as f64 * pair[1] as f64).sqrt();
        line.to(x.place(middle) + away, height(count));
        area.to(x.place(middle) + away, height(count));
    }
    area.to(x.place(edges.end_ns() as f64) + away, floor);
    area.close();
    sheet.svg.path("paper", &area);
    sheet.svg.path("area C0", &area);
    sheet.curve("c0", 0, &line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plot::fixture::check_markup, statistics::random::Random};

    fn series(n: usize) -> Vec<TrendPoint> {
        let mut random = Random::new(3);
        let point = |i: usize| {
            let mut histogram = Histogram::new(Layout::default());
            let slow = if i >= 30 { 20e3 } else { 0.0 };
            (0..500)
                .for_each(|_| histogram.record((5e3 + slow + 4e3 * random.exponential()) as u64));
            TrendPoint {
                at_s: 1_735_689_600 + i as i64 * 86_400,
                day: format!("2025-{:02}-{:02}", 1 + i / 28, 1 + i % 28),
                on: if i >= 30 { "6.12.9" } else { "6.12.1" }.to_owned(),
                value_ns: histogram.max_ns().unwrap_or(0),
                is_lower_end: false,
                histogram,
            }
        };
        (0..n).map(point).collect()
    }

    #[test]
    fn a_change_is_drawn_where_the_kernel_changed() {
        let points = series(60);
        let found = changes(&points, Statistic::Max);
        let svg = draw(&points, "max of busy", &found, &PlotOptions::default());
        check_markup(&svg).expect("well-formed");
        assert!(svg.contains("2025-02-03 now 6.12.9"), "the change is named");
        assert!(svg.contains("max of busy: from"), "{}", &svg[..400]);
    }

    /// The buckets were the latest run's: of an earlier, coarser one, most columns were empty between high ones.
    #[test]
    fn the_coarsest_run_says_how_wide_the_columns_are() {
        let mut points = series(2);
        let mut fine = Histogram::new(Layout { unit_ns: 1, exact: 10_000 });
        (0..500).for_each(|n| fine.record(5_000 + 40 * n));
        points[1].histogram = fine;
        let columns = |points: &[TrendPoint]| {
            let svg = surface(points, "rest", &PlotOptions::default());
            let paths = svg.split(" d=\"").skip(1).filter_map(|path| path.split('"').next());
            paths.map(|path| path.matches(['L', 'H', 'V']).count()).max()
        };
        let latest_is_fine = columns(&points);
        points.reverse();
        assert_eq!(latest_is_fine, columns(&points));
    }

    #[test]
    fn every_length_of_series_gives_both_plots() {
        for n in [0, 1, 2, 9, 200] {
            let found = changes(&series(n), Statistic::Quantile(990_000_000));
            for svg in [
                draw(&series(n), "p99 of rest", &found, &PlotOptions::default()),
                surface(&series(n), "rest", &PlotOptions::default()),
            ] {
                check_markup(&svg).unwrap_or_else(|why| panic!("{n}: {why}"));
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{n}");
                assert!(svg.len() < 900_000, "{n}: {}", svg.len());
            }
        }
    }
}
