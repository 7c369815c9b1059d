//! The share of wake-ups that were at or above each latency, both axes logarithmic: one curve a
//! phase over all its threads, with its 95 % interval.
//!
//! Source of the interval: that of the rate ([`exceedance`]), as wide as the dependence between wake-ups
//! makes it; a phase whose dependence is not known has none. Below 3 in n nothing can be said: of n
//! independent wake-ups without an exceedance, a true share of 3/n would show none in 5 % of runs.

use rtscope_model::time::Rounding;

use super::{
    NO_LATENCY, Plot, PlotKind, PlotOptions,
    edges::Edges,
    histogram::max_of,
    scale::{Scale, Tick},
    scene::{Limit, PlottedCell, Scene},
    sheet::{Frame, Key, NO_HEADER, Readout, ReadoutPanel, Sample, Series, Sheet},
    svg::Path,
    table::Table,
    words::{at_least, one_in, power_of_ten, time},
};
use crate::{
    number::grouped,
    statistics::exceedance::{self, poisson_high},
};

pub(super) const PLOT: Plot = Plot {
    name: "exceedance",
    title: "Exceedance",
    shows: "It shows the share of wake-ups that were at or above each latency, with the 95 % \
            interval as a band; of many phases only the worst has one. In the grey area lie shares \
            that are too small for a run of this length to rule out. It can't show how the latency \
            goes on beyond the last wake-up: a longer run may find a larger one.",
    headline,
    draw,
    table,
};

/// Points of a curve.
const POINTS: usize = 140;

/// Curves up to which each has its interval as a band; of more only the worst.
const BANDS: usize = 4;

/// Rows of the table behind the plot.
const TABLE_ROWS: usize = 30;

fn headline(scene: &Scene<'_>) -> String {
    let Some(cell) = scene.worst() else {
        return NO_LATENCY.to_owned();
    };
    let row = &cell.summary.all;
    if let Some(limit) = scene.limits.iter().rev().find(|limit| limit.for_all) {
        let (_, at_most) = row.histogram.at_or_above(limit.limit_ns);
        let waited_ns = row.max_ns().filter(|&max_ns| max_ns >= limit.limit_ns);
        let (name, limit) = (&cell.summary.name, time(limit.limit_ns));
        return match (at_most, waited_ns, row.effective()) {
            (0, Some(waited_ns), _) => {
                format!(
                    "In {name}, a missed activation had waited at least {}",
                    at_least(waited_ns)
                )
            }
            (0, None, Ok(effective)) => format!(
                "No wake-up took {limit} or more: at 95 % that is at most {} in {name}",
                one_in(poisson_high(0) / effective as f64, Rounding::Up)
            ),
            (0, None, Err(_)) => format!("No wake-up took {limit} or more in {name}"),
            (n, _, _) => format!(
                "In {name}, {} of {} wake-ups took {limit} or more",
                grouped(n),
                grouped(row.recorded)
            ),
        };
    }
    match row.quantiles.iter().rev().find(|quantile| quantile.high_ns.is_some()) {
        Some(quantile) => format!(
            "In {}, {} wake-ups took longer than {}",
            cell.summary.name,
            one_in(1.0 - f64::from(quantile.parts) / 1e9, Rounding::Nearest),
            time(quantile.value_ns)
        ),
        None => format!("{} holds too few wake-ups for a tail", cell.summary.name),
    }
}

/// Exceedances of one cell at each edge.
struct Curve<'a> {
    cell: &'a PlottedCell<'a>,
    wakeups: u64,
    max_ns: u64,
    /// How many were at or above each edge.
    above: Vec<u64>,
}

impl Curve<'_> {
    fn share(&self, k: f64) -> f64 {
        k / self.wakeups as f64
    }
}

fn curves<'a>(shown: &[&'a PlottedCell<'a>], edges: &Edges) -> Vec<Curve<'a>> {
    let curve = |cell: &&'a PlottedCell<'a>| {
        let histogram = &cell.summary.all.histogram;
        let max_ns = histogram.max_ns()?;
        let sums = edges.sums(histogram.layout(), &histogram.bins());
        let mut above = vec![0; edges.len() + 1];
        for n in (0..edges.len()).rev() {
            above[n] = above[n + 1] + sums[n];
        }
        // What has no bucket may lie anywhere up to the maximum: the curve is never understated.
        let may_reach = |edge_ns: &u64| *edge_ns <= max_ns;
        for (above, _) in above.iter_mut().zip(&edges.edges_ns).filter(|of| may_reach(of.1)) {
            *above += histogram.unplaced().count;
        }
        Some(Curve { cell, wakeups: histogram.count(), max_ns, above })
    };
    shown.iter().filter_map(curve).collect()
}

fn draw(scene: &Scene<'_>, options: &PlotOptions) -> String {
    let mut sheet = Sheet::new(PlotKind::Exceedance, scene, options, &headline(scene));
    let Some(extremes) = scene.extremes_ns() else {
        return sheet.empty(NO_LATENCY);
    };
    let edges = Edges::over(scene.layout(), extremes, true, POINTS);
    let shown = scene.shown();
    let curves = curves(&shown, &edges);
    let most = curves.iter().map(|curve| curve.wakeups).max().unwrap_or(1) as f64;
    let effective = curves.iter().filter_map(|curve| curve.cell.summary.all.effective().ok()).max();
    sheet.legend(&keys(&curves));
    let frames = sheet.panels(1, 300.0, NO_HEADER, 112.0);
    let frame = frames[0];
    let reach = extremes.1 as f64 * 30.0;
    let near = scene.limits.iter().map(|limit| limit.limit_ns as f64).filter(|ns| *ns <= reach);
    let end = near.fold(edges.end_ns() as f64, |end, limit_ns| end.max(limit_ns * 1.04));
    let x = frame.x(true, edges.edges_ns[0] as f64, end * 1.05);
    let y = frame.y(true, 0.4 / most, 1.0);
    sheet.x_axis(&frames, &x, &x.latency_ticks(10), "latency (logarithmic)");
    sheet.y_axis(&frame, &y, &share_ticks(&y));
    sheet.y_name(&frames, "share of wake-ups at or above");
    if let Some(effective) = effective {
        blind_area(&mut sheet, &frame, &y, effective as f64);
    }
    let worst_ns = curves.iter().map(|curve| curve.max_ns).max();
    for (number, curve) in curves.iter().enumerate() {
        let has_band = curves.len() <= BANDS || Some(curve.max_ns) == worst_ns;
        let shape = shape_of(curve, &edges, &x, &y, has_band);
        draw_curve(&mut sheet, &frame, curve, &shape, number);
    }
    sheet.base_line(&frame);
    let limits: Vec<(&Limit, bool)> = scene.limits.iter().map(|limit| (limit, true)).collect();
    sheet.vertical_limits(&frame, &x, &limits);
    sheet.read_out(readout(&frame, &curves, &edges, x));
    let left_out = scene.left_out().map(|text| format!(" {text}")).unwrap_or_default();
    sheet.finish(&format!(
        "Share of wake-ups at or above each latency, one curve a phase, with its 95 % interval.\
         {left_out}"
    ))
}

fn keys(curves: &[Curve<'_>]) -> Vec<Key> {
    let key = |(number, curve): (usize, &Curve<'_>)| Key {
        label: format!(
            "{}, max {}",
            curve.cell.summary.name,
            max_of(&curve.cell.summary.all, curve.max_ns)
        ),
        ink: format!("k{}", curve.cell.ink),
        sample: Sample::Line(curve.cell.twin),
        toggles: Some(("curve", number)),
    };
    curves.iter().enumerate().map(key).collect()
}

/// Powers of ten as `1 in 1,000`.
pub(super) fn share_ticks(y: &Scale) -> Vec<Tick> {
    let label = |share: f64| match (1.0 / share).round() {
        1.0 => "all".to_owned(),
        n => format!("1 in {}", power_of_ten(n)),
    };
    let decades = |share: &f64| (share.log10() - share.log10().round()).abs() < 1e-6;
    let values = y.values(8).into_iter().filter(decades);
    values.map(|value| Tick { value, label: label(value) }).collect()
}

/// Shades the shares that a run of `n` wake-ups can't rule out.
fn blind_area(sheet: &mut Sheet, frame: &Frame, y: &Scale, n: f64) {
    let top = y.place(poisson_high(0) / n);
    sheet.svg.rect("blind", frame.left, top, frame.width, frame.bottom() - top);
    let text = format!("below 3 in {}: too rare for this run to rule out", grouped(n as u64));
    sheet.svg.label("sub", "start", frame.left + 8.0, frame.bottom() - 8.0, &text);
}

/// A curve as it lies on the sheet.
struct Shape {
    line: Path,
    /// Its interval; without a point when it has none.
    band: Path,
    /// Where it ends: at the largest latency.
    end: (f64, f64),
}

fn shape_of(curve: &Curve<'_>, edges: &Edges, x: &Scale, y: &Scale, has_band: bool) -> Shape {
    let place = |k: f64| y.place(curve.share(k));
    let points = edges.edges_ns.iter().copied().zip(curve.above.iter().copied());
    let points: Vec<(u64, u64)> = points
        .filter(|&(edge_ns, k)| k > 0 && edge_ns < curve.max_ns)
        .chain([(curve.max_ns, 1)])
        .collect();
    let (mut line, mut band) = (Path::default(), Path::default());
    points.iter().for_each(|&(at_ns, k)| line.to(x.place(at_ns as f64), place(k as f64)));
    let interval = |&(at_ns, k): &(u64, u64)| {
        let cell = curve.cell.summary;
        let (low, high) = exceedance::expected_in(&cell.blocks, cell.threads.len(), at_ns, k)?;
        Some((x.place(at_ns as f64), place(low), place(high)))
    };
    let ends: Vec<_> = points.iter().filter(|_| has_band).filter_map(interval).collect();
    ends.iter().for_each(|&(at, _, high)| band.to(at, high));
    ends.iter().rev().for_each(|&(at, low, _)| band.to(at, low));
    if !ends.is_empty() {
        band.close();
    }
    Shape { line, band, end: (x.place(curve.max_ns as f64), place(1.0)) }
}

fn draw_curve(sheet: &mut Sheet, frame: &Frame, curve: &Curve<'_>, shape: &Shape, number: usize) {
    let ink = curve.cell.ink;
    sheet.svg.element("g").attribute("data-curve", &number.to_string()).open();
    sheet.plane(frame, number);
    sheet.svg.path(&format!("between K{ink}"), &shape.band);
    sheet.curve(&format!("k{ink}"), curve.cell.twin, &shape.line);
    sheet.end_plane();
    let disc = "M-3.5 0A3.5 3.5 0 1 1 3.5 0A3.5 3.5 0 1 1 -3.5 0Z";
    let marker = sheet.svg.element("path").ink(&format!("K{ink}"));
    marker.pinned(shape.end.0, shape.end.1).attribute("d", disc).done();
    sheet.svg.close();
}

/// The shares at the edges that a pointer reads, in a panel of their own.
pub(super) fn share_readout(
    frame: &Frame,
    edges: &Edges,
    x: &Scale,
    series: Vec<Series>,
) -> Readout {
    Readout {
        x: "latency",
        log: true,
        domain: (x.from, x.to),
        range: (frame.left, frame.width),
        steps: edges.edges_ns.windows(2).map(|pair| (pair[0], pair[1])).collect(),
        phases: Vec::new(),
        panels: vec![ReadoutPanel {
            name: String::new(),
            range: (frame.top, frame.height),
            series,
        }],
        grid: None,
    }
}

fn readout(frame: &Frame, curves: &[Curve<'_>], edges: &Edges, x: Scale) -> Readout {
    let share = |curve: &Curve<'_>| -> Vec<Option<f64>> {
        let shares = curve.above[..edges.len()].iter();
        shares.map(|&k| (k > 0).then(|| curve.share(k as f64))).collect()
    };
    let series = |curve: &Curve<'_>| Series {
        name: curve.cell.summary.name.clone(),
        kind: "share",
        values: share(curve),
    };
    share_readout(frame, edges, &x, curves.iter().map(series).collect())
}

fn table(scene: &Scene<'_>) -> Table {
    let Some(extremes) = scene.extremes_ns() else {
        return Table::new(["latency", "share"]);
    };
    let edges = Edges::over(scene.layout(), extremes, true, TABLE_ROWS);
    let shown = scene.shown();
    let curves = curves(&shown, &edges);
    let mut head = vec!["at or above".to_owned()];
    for curve in &curves {
        head.push(format!("{}: wake-ups", curve.cell.summary.name));
        head.push("95 % interval of the share".to_owned());
    }
    let mut table = Table::new(head);
    for (n, &edge_ns) in edges.edges_ns.iter().enumerate().take(edges.len()) {
        let mut row = vec![time(edge_ns)];
        for curve in &curves {
            let k = curve.above[n];
            let cell = curve.cell.summary;
            let ends = exceedance::expected_in(&cell.blocks, cell.threads.len(), edge_ns, k);
            row.push(grouped(k));
            row.push(ends.map_or_else(String::new, |(low, high)| {
                let end = |k, rounding| one_in(curve.share(k).min(1.0), rounding);
                let (low, high) = (end(low, Rounding::Down), end(high, Rounding::Up));
                if low == high { low } else { format!("{low} to {high}") }
            }));
        }
        table.row(row);
    }
    table.note = scene.left_out().unwrap_or_default();
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, test_support::Run};

    fn scene_of(require: &str, latencies_ns: &[u64], check: impl Fn(&Scene<'_>)) {
        let plan = format!("name = \"p\"\n{require}\n[[phase]]\nname = \"a\"\nduration = \"1s\"\n");
        let record = Run::new(&plan, 1).cell(0, &[latencies_ns]).end().record();
        let judgement = judge(&record, &[]);
        check(&Scene::new(&record, &judgement, None));
    }

    #[test]
    fn shares_are_those_of_the_sorted_latencies() {
        let latencies_ns: Vec<u64> = (1..=500).map(|n| n * 2_000).collect();
        scene_of("", &latencies_ns, |scene| {
            let edges =
                Edges::over(scene.layout(), scene.extremes_ns().expect("some"), true, POINTS);
            let shown = scene.shown();
            let curves = curves(&shown, &edges);
            for (&edge_ns, &k) in edges.edges_ns.iter().zip(&curves[0].above) {
                let above = latencies_ns.iter().filter(|ns| **ns >= edge_ns).count() as u64;
                assert_eq!(k, above, "at or above {edge_ns}");
            }
        });
    }

    #[test]
    fn the_headline_answers_the_requirement() {
        let calm = [5_000; 10_000];
        scene_of("require = [\"max < 100us\"]", &calm, |scene| {
            let expected =
                "No wake-up took 100 us or more: at 95 % that is at most 1 in 1,940 in a";
            assert_eq!(headline(scene), expected);
        });
        let mut late = calm;
        late[7] = 100_000;
        scene_of("require = [\"max < 100us\"]", &late, |scene| {
            assert_eq!(headline(scene), "In a, 1 of 10,000 wake-ups took 100 us or more");
        });
        scene_of("", &late, |scene| {
            assert_eq!(headline(scene), "In a, 1 in 1,000 wake-ups took longer than 6 us");
        });
        // One slice: nothing tells whether late wake-ups come in clusters.
        scene_of("require = [\"max < 100us\"]", &calm[..1_000], |scene| {
            assert_eq!(headline(scene), "No wake-up took 100 us or more in a");
        });
        scene_of("", &[5_000], |scene| {
            assert_eq!(headline(scene), "a holds too few wake-ups for a tail");
        });
    }
}
