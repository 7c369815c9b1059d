//! How often each latency was seen: one panel a phase, one step curve a thread, counts on a
//! logarithmic axis so that a single late wake-up stays visible beside a million punctual ones.
//!
//! Latencies run from the programmed expiry to the first instant the woken thread can read the
//! clock. The plot can't show when a latency came, nor what was missed.

use rtscope_model::verdict::Statistic;

use super::{
    NO_LATENCY, Plot, PlotKind, PlotOptions,
    edges::Edges,
    scale::{Scale, nice_above},
    scene::{Limit, PlottedCell, Scene, Track},
    sheet::{Frame, HEADER, Key, Readout, ReadoutPanel, Sample, Series, Sheet},
    svg::Path,
    table::Table,
    words::{at_least, time},
};
use crate::{
    judgement::FigureRow,
    number::{counted, grouped},
    statistics::quantile,
};

pub(super) const PLOT: Plot = Plot {
    name: "histogram",
    title: "Histogram",
    shows: "It shows how often each latency was seen, on a logarithmic axis: the first grid line is \
            a single wake-up. A marker sits at the largest latency of each thread. It can't show \
            when a latency came, nor what a missed activation would have seen.",
    headline,
    draw,
    table,
};

/// Steps over the width: about three pixels each.
const STEPS: usize = 260;

/// Rows of the table behind the plot.
const TABLE_ROWS: usize = 60;

/// Columns of the table behind the plot, beyond which threads are summed.
const TABLE_COLUMNS: usize = 12;

/// The y axis begins below 1, so that a single count rises from the base line.
const BASE: f64 = 0.5;

fn headline(scene: &Scene<'_>) -> String {
    let Some(cell) = scene.worst() else {
        return NO_LATENCY.to_owned();
    };
    let histogram = &cell.summary.all.histogram;
    // A quantile is the upper edge of its bucket, which may lie beyond the maximum of a tool that cuts.
    let max_ns = histogram.max_ns().unwrap_or(0);
    let half = quantile::estimate(histogram, 500_000_000).map_or(0, |quantile| quantile.value_ns);
    let wait = match cell.summary.all.waited_ns() {
        None => String::new(),
        Some(ns) => {
            format!(". An activation that was never answered waited {} or more", at_least(ns))
        }
    };
    format!(
        "Half of the wake-ups in {} came within {}, the latest after {}{wait}",
        cell.summary.name,
        time(half.min(max_ns)),
        time(max_ns)
    )
}

fn draw(scene: &Scene<'_>, options: &PlotOptions) -> String {
    let mut sheet = Sheet::new(PlotKind::Histogram, scene, options, &headline(scene));
    let Some((min_ns, max_ns)) = scene.extremes_ns() else {
        return sheet.empty(NO_LATENCY);
    };
    let edges = Edges::over(scene.layout(), (min_ns, max_ns), scene.has_long_tail(), STEPS);
    let shown = scene.shown();
    sheet.legend(&keys(scene));
    let natural = match shown.len() {
        0 | 1 => 300.0,
        2 => 200.0,
        3 => 150.0,
        _ => 110.0,
    };
    let frames = sheet.panels(shown.len(), natural, HEADER, 66.0);
    let counts: Vec<Vec<Vec<u64>>> =
        shown.iter().map(|cell| counts_of(scene, cell, &edges)).collect();
    let most = counts.iter().flatten().flatten().copied().max().unwrap_or(1);
    let x = x_scale(scene, &frames[0], &edges);
    sheet.x_axis(&frames, &x, &x.latency_ticks(11), x_name(&edges));
    sheet.y_name(&frames, "wake-ups");
    for (n, ((frame, cell), counts)) in frames.iter().zip(&shown).zip(&counts).enumerate() {
        let y = frame.y(true, BASE, most as f64 * 1.6);
        sheet.y_axis(frame, &y, &y.count_ticks(frame.height as usize / 30));
        panel(&mut sheet, scene, &Panel { frame, cell, counts, edges: &edges, x, y, number: n });
    }
    sheet.read_out(readout(scene, &frames, &shown, &edges, &counts, x));
    sheet.finish(&describe(scene, &edges))
}

/// One panel and what is drawn in it. The counts are those of each track, and at the end those of
/// all threads.
struct Panel<'a> {
    frame: &'a Frame,
    cell: &'a PlottedCell<'a>,
    counts: &'a [Vec<u64>],
    edges: &'a Edges,
    x: Scale,
    y: Scale,
    number: usize,
}

fn panel(sheet: &mut Sheet, scene: &Scene<'_>, panel: &Panel<'_>) {
    let Panel { frame, cell, counts, edges, x, y, number } = panel;
    sheet.header(frame, &cell.summary.name, &remark(cell));
    mark_overflow(sheet, scene, panel);
    sheet.plane(frame, *number);
    let many = scene.others() > 0;
    if let Some(all) = counts.last().filter(|_| many) {
        sheet.svg.path("others-area", &steps(all, edges, x, y, true));
    }
    for (place, counts) in counts.iter().take(scene.tracks.len()).enumerate() {
        sheet.svg.element("g").attribute("data-track", &place.to_string()).open();
        if scene.tracks.len() <= 3 {
            let area = steps(counts, edges, x, y, true);
            sheet.svg.path(&format!("area C{place}"), &area);
        }
        sheet.curve(&format!("c{place}"), 0, &steps(counts, edges, x, y, false));
        sheet.svg.close();
    }
    sheet.end_plane();
    sheet.base_line(frame);
    for (place, track) in scene.tracks.iter().enumerate() {
        let row = scene.row(cell, track).and_then(|row| row.histogram.max_ns());
        let Some(max_ns) = row else { continue };
        let at = y.place(counts[place][edges.step_of(max_ns)] as f64);
        sheet.svg.element("g").attribute("data-track", &place.to_string()).open();
        sheet.marker(place, x.place(max_ns as f64), at);
        sheet.svg.close();
    }
    // A limit of the plan is named in the first panel, one of a phase in its own.
    let own = |limit: &&Limit| limit.cell.is_none_or(|of| of == cell.summary.cell);
    let named = |limit: &Limit| limit.cell.is_some() || *number == 0;
    let limits: Vec<(&Limit, bool)> =
        scene.limits.iter().filter(own).map(|limit| (limit, named(limit))).collect();
    sheet.vertical_limits(frame, x, &limits);
}

/// Shades what lies beyond the exact buckets, and what another tool counted beyond its own.
fn mark_overflow(sheet: &mut Sheet, scene: &Scene<'_>, panel: &Panel<'_>) {
    let Panel { frame, cell, x, .. } = panel;
    let histogram = &cell.summary.all.histogram;
    let (limit_ns, unplaced) = (histogram.layout().limit_ns(), histogram.unplaced());
    let limit_ns = if unplaced.is_empty() { limit_ns } else { limit_ns.min(unplaced.from_ns) };
    let (from, overflow) = (limit_ns as f64, histogram.overflow());
    if overflow == 0 || from >= x.to {
        return;
    }
    let left = x.place(from);
    sheet.plane(frame, panel.number + scene.cells.len());
    sheet.svg.rect("beyond", left, frame.top, frame.right() - left, frame.height);
    sheet.end_plane();
    let (overflow, from) = (grouped(overflow), time(limit_ns));
    let text = match unplaced.is_empty() {
        true => format!("overflow: {overflow} beyond {from}"),
        false => format!("overflow: {overflow} at {from} or more"),
    };
    let group = sheet.svg.element("g").attribute("class", "pin");
    group.pinned(frame.right() - 4.0, frame.top + 14.0).open();
    sheet.svg.label("limit-text", "end", 0.0, 0.0, &text);
    sheet.svg.close();
}

/// A step curve over the counts; closed along the base line when it is an area.
fn steps(counts: &[u64], edges: &Edges, x: &Scale, y: &Scale, area: bool) -> Path {
    let base = y.place(BASE);
    let mut path = Path::default();
    let mut up = false;
    for (n, &count) in counts.iter().enumerate() {
        let (left, right) =
            (x.place(edges.edges_ns[n] as f64), x.place(edges.edges_ns[n + 1] as f64));
        if count > 0 {
            if !up {
                path.lift();
                path.to(left, base);
            }
            let top = y.place(count as f64);
            path.to(left, top);
            path.to(right, top);
        } else if up {
            path.to(left, base);
            if area {
                path.close();
            }
        }
        up = count > 0;
    }
    if up {
        path.to(x.place(edges.end_ns() as f64), base);
    }
    path
}

/// Counts of each track, and at the end of all threads.
fn counts_of(scene: &Scene<'_>, cell: &PlottedCell<'_>, edges: &Edges) -> Vec<Vec<u64>> {
    let rows = scene.tracks.iter().map(|track| scene.row(cell, track));
    rows.chain([Some(&cell.summary.all)])
        .map(|row| match row {
            Some(row) => edges.sums(row.histogram.layout(), &row.histogram.bins()),
            None => vec![0; edges.len()],
        })
        .collect()
}

/// From 0, or the first step, to the largest latency, and to the limits where they are not far.
fn x_scale(scene: &Scene<'_>, frame: &Frame, edges: &Edges) -> Scale {
    let (from, end) = (edges.edges_ns[0] as f64, edges.end_ns() as f64);
    let reach = if edges.log { end * 30.0 } else { end * 2.5 };
    let near = scene.limits.iter().map(|limit| limit.limit_ns as f64).filter(|ns| *ns <= reach);
    let end = near.fold(end, |end, limit_ns| end.max(limit_ns * 1.04));
    if edges.log {
        frame.x(true, from, end * 1.05)
    } else {
        let step = nice_above(end / 20.0);
        frame.x(false, 0.0, (end / step).ceil() * step)
    }
}

fn x_name(edges: &Edges) -> &'static str {
    if edges.log { "latency (logarithmic; steps widen with it)" } else { "latency" }
}

/// The largest latency, or how long an unanswered activation waited at least.
pub(super) fn max_of(row: &FigureRow, max_ns: u64) -> String {
    match row.waited_ns() {
        None => time(max_ns),
        Some(ns) => format!("at least {}", at_least(ns)),
    }
}

fn remark(cell: &PlottedCell<'_>) -> String {
    let row = &cell.summary.all;
    let Some(max_ns) = row.histogram.max_ns() else { return "nothing recorded".to_owned() };
    let deepest = row.quantiles.iter().rev().find(|quantile| quantile.high_ns.is_some());
    let mut words = vec![format!("max {}", max_of(row, max_ns))];
    words.extend(deepest.map(|q| format!("{} {}", Statistic::Quantile(q.parts), time(q.value_ns))));
    words.push(format!("{} wake-ups", grouped(row.recorded)));
    if row.missed > 0 {
        words.push(format!("{} missed", grouped(row.missed)));
    }
    if !row.histogram.unplaced().is_empty() {
        words.push(format!("{} without a bucket", grouped(row.histogram.unplaced().count)));
    }
    words.join("  |  ")
}

/// The legend: the tracks, and the grey area of all threads when there are more of them.
fn keys(scene: &Scene<'_>) -> Vec<Key> {
    let mut keys = track_keys(scene, Sample::Marked);
    if scene.others() > 0 {
        keys.push(Key {
            label: format!("all {}", counted(scene.labels.len() as u64, "thread")),
            ink: "others-area".to_owned(),
            sample: Sample::Square,
            toggles: None,
        });
    }
    keys
}

/// A legend's entry for each track.
pub(super) fn track_keys(scene: &Scene<'_>, sample: fn(usize) -> Sample) -> Vec<Key> {
    let key = |(place, track): (usize, &Track)| Key {
        label: track.label.clone(),
        ink: format!("c{place}"),
        sample: sample(place),
        toggles: Some(("track", place)),
    };
    scene.tracks.iter().enumerate().map(key).collect()
}

fn readout(
    scene: &Scene<'_>,
    frames: &[Frame],
    shown: &[&PlottedCell<'_>],
    edges: &Edges,
    counts: &[Vec<Vec<u64>>],
    x: Scale,
) -> Readout {
    let values = |counts: &Vec<u64>| counts.iter().map(|&n| Some(n as f64)).collect();
    let names: Vec<&str> = scene.tracks.iter().map(|track| track.label.as_str()).collect();
    let wanted = if scene.others() > 0 { names.len() + 1 } else { names.len() };
    let panel =
        |((frame, cell), counts): ((&Frame, &&PlottedCell<'_>), &Vec<Vec<u64>>)| ReadoutPanel {
            name: cell.summary.name.clone(),
            range: (frame.top, frame.height),
            series: names
                .iter()
                .chain([&"all"])
                .zip(counts)
                .take(wanted)
                .map(|(name, counts)| Series {
                    name: (*name).to_owned(),
                    kind: "count",
                    values: values(counts),
                })
                .collect(),
        };
    Readout {
        x: "latency",
        log: x.log,
        domain: (x.from, x.to),
        range: (frames[0].left, frames[0].width),
        steps: edges.edges_ns.windows(2).map(|pair| (pair[0], pair[1])).collect(),
        phases: Vec::new(),
        panels: frames.iter().zip(shown).zip(counts).map(panel).collect(),
        grid: None,
    }
}

fn describe(scene: &Scene<'_>, edges: &Edges) -> String {
    let width = match edges.log {
        true => "of growing width".to_owned(),
        false => format!("{} wide", time(edges.edges_ns[1] - edges.edges_ns[0])),
    };
    let left_out = scene.left_out().map(|text| format!(" {text}")).unwrap_or_default();
    format!(
        "Counts of latencies in steps {width}, one panel a phase, one curve a thread.{left_out}"
    )
}

fn table(scene: &Scene<'_>) -> Table {
    let Some(extremes) = scene.extremes_ns() else {
        return Table::new(["latency", "wake-ups"]);
    };
    let edges = Edges::over(scene.layout(), extremes, scene.has_long_tail(), TABLE_ROWS);
    let shown = scene.shown();
    let each = shown.len() * scene.tracks.len() <= TABLE_COLUMNS && scene.others() == 0;
    let mut head = vec!["latency from".to_owned(), "to below".to_owned()];
    let mut columns: Vec<Vec<u64>> = Vec::new();
    for cell in &shown {
        let mut counts = counts_of(scene, cell, &edges);
        let all = counts.pop().unwrap_or_default();
        if each {
            let name = |label: &String| format!("{}, {label}", cell.summary.name);
            head.extend(scene.tracks.iter().map(|track| name(&track.label)));
            columns.extend(counts);
        } else {
            head.push(cell.summary.name.clone());
            columns.push(all);
        }
    }
    let mut table = Table::new(head);
    for (n, pair) in edges.edges_ns.windows(2).enumerate() {
        if columns.iter().any(|counts| counts[n] > 0) {
            let counts = columns.iter().map(|counts| grouped(counts[n]));
            table.row([time(pair[0]), time(pair[1])].into_iter().chain(counts));
        }
    }
    table.note = scene.left_out().unwrap_or_default();
    table
}

#[cfg(test)]
mod tests {
    use rtscope_model::record::Record;

    use super::*;
    use crate::{import, judge, plot::fixture, test_support::Run};

    #[test]
    fn every_count_reappears_in_the_curves_and_in_the_table() {
        let record = fixture::small();
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        let edges = Edges::over(
            scene.layout(),
            scene.extremes_ns().expect("latencies"),
            scene.has_long_tail(),
            STEPS,
        );
        for cell in &scene.cells {
            let counts = counts_of(&scene, cell, &edges);
            let each: u64 = counts[..2].iter().flatten().sum();
            assert_eq!(each, cell.summary.all.recorded, "{}", cell.summary.name);
            assert_eq!(counts[2].iter().sum::<u64>(), each);
        }
        let numbers =
            table(&scene).rows.iter().flat_map(|row| row[2..].to_vec()).collect::<Vec<_>>();
        let sum: u64 =
            numbers.iter().map(|n| n.replace(',', "").parse::<u64>().expect("count")).sum();
        let recorded: u64 = scene.cells.iter().map(|cell| cell.summary.all.recorded).sum();
        assert_eq!(sum, recorded);
    }

    #[test]
    fn the_axis_is_linear_until_the_tail_is_long() {
        let plan = "name = \"p\"\n[[phase]]\nname = \"a\"\nduration = \"1s\"\n";
        let mut latencies_ns: Vec<u64> = (0..400).map(|n| 4_000 + n * 10).collect();
        let log = |latencies_ns: &[u64]| {
            let record = Run::new(plan, 1).cell(0, &[latencies_ns]).end().record();
            let judgement = judge(&record, &[]);
            let svg = draw(&Scene::new(&record, &judgement, None), &PlotOptions::default());
            svg.contains("logarithmic")
        };
        assert!(!log(&latencies_ns));
        latencies_ns[200] = 90_000;
        assert!(log(&latencies_ns));
    }

    #[test]
    fn overflow_is_marked_with_its_count() {
        let plan =
            "name = \"p\"\n[sampler]\nbuckets = 64\n[[phase]]\nname = \"a\"\nduration = \"1s\"\n";
        let record = Run::new(plan, 1).cell(0, &[&[5_000, 6_000, 70_000, 90_000]]).end().record();
        let judgement = judge(&record, &[]);
        let svg = draw(&Scene::new(&record, &judgement, None), &PlotOptions::default());
        assert!(svg.contains("overflow: 2 beyond 64 us"), "{svg}");
    }

    #[test]
    fn the_overflow_of_an_import_begins_where_its_rows_end() {
        let text = "# Histogram\n000005 000090\n000019 000008\n# Min Latencies: 00005\n\
                    # Avg Latencies: 00106\n# Max Latencies: 05000\n# Histogram Overflows: 00002\n";
        let options =
            import::ImportOptions { name: "file".to_owned(), ..import::ImportOptions::default() };
        let reading = import::read(None, options, text.as_bytes()).expect("a format");
        let readings = vec![("file".to_owned(), reading)];
        let files = import::files(&import::Import::default(), readings).expect("latencies");
        let record = Record::read(&files).expect("a record");
        let judgement = judge(&record, &[]);
        let svg = draw(&Scene::new(&record, &judgement, None), &PlotOptions::default());
        let svg = svg.replace('\u{a0}', " ");
        assert!(svg.contains("overflow: 2 at 20 us or more"), "{svg}");
        assert!(svg.contains("2 without a bucket") && !svg.contains("not drawn"), "{svg}");
    }
}
