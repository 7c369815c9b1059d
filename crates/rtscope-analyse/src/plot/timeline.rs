//! The largest latency of each slice over the run, by thread, with the mean as a thin line.
//!
//! Instants are programmed expiries since the start of the run. In a long run several slices share a
//! column, which keeps the largest of their maxima. The plot can't show how many late wake-ups a
//! slice held: the heat map does.

use super::{
    NO_LATENCY, Plot, PlotKind, PlotOptions,
    columns::{Column, ColumnShare},
    histogram,
    scale::{Scale, nice_above, nice_below},
    scene::{PlottedCell, Scene},
    sheet::{Frame, HEADER, Key, Readout, ReadoutPanel, Sample, Series, Sheet},
    svg::Path,
    table::Table,
    words::{at_least, cut, instant, mean, time},
};
use crate::number::grouped;

pub(super) const PLOT: Plot = Plot {
    name: "timeline",
    title: "Over time",
    shows: "It shows the largest latency of each slice, thread by thread, and the mean as a thin \
            line; rings mark the worst. It can't show how many wake-ups of a slice were late, nor \
            what happened between two phases.",
    headline,
    draw,
    table,
};

/// Spikes that are marked and named.
const SPIKES: usize = 3;

/// Estimated width of a character of a spike's name.
const NAME_CHARACTER: f64 = 6.9;

/// Rows of the table behind the plot.
const TABLE_ROWS: usize = 120;

/// A large latency and where it was.
#[derive(Clone, Copy, Debug)]
struct Spike {
    latency_ns: u64,
    at_ns: u64,
    cell: usize,
    place: usize,
}

fn spikes(columns: &[Column]) -> Vec<Spike> {
    let mut spikes: Vec<Spike> = columns
        .iter()
        .flat_map(|column| {
            let seen = column.seen.iter().enumerate().filter(|(_, seen)| seen.recorded > 0);
            seen.map(|(place, seen)| Spike {
                latency_ns: seen.max_ns,
                at_ns: seen.max_at_ns,
                cell: column.cell,
                place,
            })
        })
        .collect();
    spikes.sort_by_key(|spike| (std::cmp::Reverse(spike.latency_ns), spike.at_ns));
    spikes
}

fn headline(scene: &Scene<'_>) -> String {
    match spikes(&scene.columns().columns).first() {
        None => NO_LATENCY.to_owned(),
        Some(worst) => format!(
            "The worst wake-up, {} on {}, came {} into the run, in {}{}",
            time(worst.latency_ns),
            scene.labels[worst.place],
            instant(worst.at_ns),
            scene.cells[worst.cell].summary.name,
            longest_wait(scene, worst.latency_ns)
        ),
    }
}

/// An activation that was never answered has no place in the plot.
fn longest_wait(scene: &Scene<'_>, worst_ns: u64) -> String {
    let wait =
        |cell: &PlottedCell<'_>| Some((cell.summary.all.waited_ns()?, cell.summary.name.clone()));
    match scene.cells.iter().filter_map(wait).max() {
        Some((ns, name)) if ns > worst_ns => {
            format!(
                ". An activation in {name} that was never answered waited {} or more",
                at_least(ns)
            )
        }
        _ => String::new(),
    }
}

fn draw(scene: &Scene<'_>, options: &PlotOptions) -> String {
    let columns = &scene.columns().columns;
    let spikes = spikes(columns);
    let mut sheet = Sheet::new(PlotKind::Timeline, scene, options, &headline(scene));
    let (Some(span), Some(worst)) = (scene.span_ns(), spikes.first()) else {
        return sheet.empty(NO_LATENCY);
    };
    let mut keys = histogram::track_keys(scene, Sample::Line);
    if scene.others() > 0 {
        let label = format!("other {} threads, largest", scene.others());
        let ink = "others".to_owned();
        keys.push(Key { label, ink, sample: Sample::Line(0), toggles: None });
    }
    sheet.legend(&keys);
    let frame = sheet.panels(1, 280.0, HEADER, 66.0)[0];
    let (x, y) = (time_scale(&frame, span), y_scale(scene, &frame, columns, worst.latency_ns));
    bands(&mut sheet, scene, &frame, &x);
    sheet.x_axis(&[frame], &x, &x.time_ticks(9), "time since the start of the run");
    sheet.y_axis(&frame, &y, &y.latency_ticks(frame.height as usize / 31));
    sheet.y_name(&[frame], "latency");
    sheet.plane(&frame, 0);
    if scene.others() > 0 {
        sheet.curve("others", 0, &line(columns, &x, |column| others_max(scene, column), &y));
    }
    for (place, track) in scene.tracks.iter().enumerate() {
        let of = |column: &Column| column.seen[track.place];
        let max = |column: &Column| some(of(column)).map(|seen| seen.max_ns as f64);
        sheet.svg.element("g").attribute("data-track", &place.to_string()).open();
        sheet.curve(&format!("c{place}"), place, &line(columns, &x, max, &y));
        let means = line(columns, &x, |column| of(column).mean_ns(), &y);
        sheet.svg.path(&format!("mean c{place}"), &means);
        sheet.svg.close();
    }
    sheet.end_plane();
    sheet.base_line(&frame);
    sheet.horizontal_limits(&frame, &y, &scene.limits);
    mark(&mut sheet, scene, &frame, &spikes, (&x, &y));
    sheet.read_out(readout(scene, &frame, columns, x));
    sheet.finish(&format!(
        "Largest and mean latency over time, in {} columns, one curve a thread; phases as bands.",
        columns.len()
    ))
}

/// What a thread saw, if it recorded anything.
fn some(seen: ColumnShare) -> Option<ColumnShare> {
    (seen.recorded > 0).then_some(seen)
}

fn others_max(scene: &Scene<'_>, column: &Column) -> Option<f64> {
    let shown = |place: usize| scene.tracks.iter().any(|track| track.place == place);
    let others = column.seen.iter().enumerate().filter(|(place, _)| !shown(*place));
    let seen = others.filter_map(|(_, seen)| some(*seen));
    seen.map(|seen| seen.max_ns).max().map(|max_ns| max_ns as f64)
}

/// The axis of time over all shown cells.
pub(super) fn time_scale(frame: &Frame, (start_ns, end_ns): (u64, u64)) -> Scale {
    frame.x(false, start_ns as f64, end_ns as f64)
}

fn y_scale(scene: &Scene<'_>, frame: &Frame, columns: &[Column], worst_ns: u64) -> Scale {
    let near = scene
        .limits
        .iter()
        .map(|limit| limit.limit_ns)
        .filter(|ns| *ns <= worst_ns.saturating_mul(4));
    let means = columns.iter().flat_map(|column| &column.seen).filter_map(ColumnShare::mean_ns);
    let lowest = means.fold(f64::MAX, f64::min);
    latency_scale(scene, frame, lowest, near.fold(worst_ns, u64::max) as f64)
}

/// The axis of latency: from 0, or from below the lowest value where there is a long tail.
pub(super) fn latency_scale(
    scene: &Scene<'_>,
    frame: &Frame,
    lowest_ns: f64,
    top_ns: f64,
) -> Scale {
    if scene.has_long_tail() {
        return frame.y(true, nice_below(lowest_ns.max(1.0)), top_ns * 1.8);
    }
    let step = nice_above(top_ns / 10.0);
    frame.y(false, 0.0, (top_ns * 1.12 / step).ceil() * step)
}

/// Phases as shades over the frames.
pub(super) fn shade(sheet: &mut Sheet, scene: &Scene<'_>, frames: &[Frame], x: &Scale) {
    for (number, frame) in frames.iter().enumerate() {
        sheet.plane(frame, 10 + number);
        for cell in &scene.cells {
            let (left, right) = (x.place(cell.start_ns as f64), x.place(cell.end_ns as f64));
            let width = (right - left).max(0.5);
            sheet.svg.rect(&format!("band K{}", cell.ink), left, frame.top, width, frame.height);
            sheet.svg.rect(&format!("K{}", cell.ink), left, frame.top - 2.0, width, 3.0);
        }
        sheet.end_plane();
    }
}

/// Phases as shades over a frame, with their names above.
pub(super) fn bands(sheet: &mut Sheet, scene: &Scene<'_>, frame: &Frame, x: &Scale) {
    shade(sheet, scene, &[*frame], x);
    for cell in &scene.cells {
        let (left, right) = (x.place(cell.start_ns as f64), x.place(cell.end_ns as f64));
        let room = ((right - left) / 6.4) as usize;
        // A name that would be cut to nothing is left to the read-out and the table.
        if room >= cell.summary.name.chars().count().min(7) {
            let name = cut(&cell.summary.name, room);
            let group = sheet.svg.element("g").attribute("class", "pin phase");
            let group = group.pinned(left, frame.top - 8.0);
            group.number("data-from", left).number("data-to", right).open();
            sheet.svg.label("text", "start", 0.0, 0.0, &name);
            sheet.svg.close();
        }
    }
}

/// A step curve over columns; it is lifted where a column has no value, and between cells.
pub(super) fn line(
    columns: &[Column],
    x: &Scale,
    value: impl Fn(&Column) -> Option<f64>,
    y: &Scale,
) -> Path {
    let mut path = Path::default();
    let mut cell = None;
    for column in columns {
        let value = value(column);
        if cell != Some(column.cell) || value.is_none() {
            path.lift();
        }
        cell = Some(column.cell);
        let Some(value) = value else { continue };
        let (left, right) = (x.place(column.start_ns as f64), x.place(column.end_ns as f64));
        path.to(left, y.place(value));
        path.to(right.max(left + 1.5), y.place(value));
    }
    path
}

/// Rings around the worst latencies, named where there is room.
fn mark(
    sheet: &mut Sheet,
    scene: &Scene<'_>,
    frame: &Frame,
    spikes: &[Spike],
    (x, y): (&Scale, &Scale),
) {
    let typical_ns = spikes[spikes.len() / 2].latency_ns;
    let least_ns = (typical_ns * 3 / 2).max(spikes[0].latency_ns / 8);
    let mut rings: Vec<f64> = Vec::new();
    let mut names: Vec<(f64, f64, f64)> = Vec::new();
    for spike in spikes {
        let (at, top) = (x.place(spike.at_ns as f64), y.place(spike.latency_ns as f64));
        if rings.len() >= SPIKES || (spike.latency_ns < least_ns && !rings.is_empty()) {
            break;
        }
        if rings.iter().any(|other| (other - at).abs() < 40.0) {
            continue;
        }
        rings.push(at);
        sheet.svg.element("g").attribute("class", "pin").pinned(at, top).open();
        let ring = "M-5.5 0A5.5 5.5 0 1 1 5.5 0A5.5 5.5 0 1 1 -5.5 0Z";
        sheet.svg.element("path").ink("ring").attribute("d", ring).done();
        let text = format!(
            "{} at {}, {}",
            time(spike.latency_ns),
            instant(spike.at_ns),
            scene.labels[spike.place]
        );
        let dy = if top < frame.top + 14.0 { 14.0 } else { -5.0 };
        let width = text.chars().count() as f64 * NAME_CHARACTER;
        let sides = [("start", 10.0, at + 10.0), ("end", -10.0, at - 10.0 - width)];
        let fits = |left: f64| {
            let clear = |&(from, to, y): &(f64, f64, f64)| {
                left > to || left + width < from || (top + dy - y).abs() > 14.0
            };
            left > frame.left && left + width < frame.right() && names.iter().all(clear)
        };
        if let Some((anchor, dx, left)) = sides.into_iter().find(|side| fits(side.2)) {
            sheet.svg.label("name", anchor, dx, dy, &text);
            names.push((left, left + width, top + dy));
        }
        sheet.svg.close();
    }
}

fn readout(scene: &Scene<'_>, frame: &Frame, columns: &[Column], x: Scale) -> Readout {
    let series = |name: String, value: &dyn Fn(&Column) -> Option<f64>| Series {
        name,
        kind: "latency",
        values: columns.iter().map(|column| value(column).map(f64::round)).collect(),
    };
    let mut all: Vec<Series> = Vec::new();
    for track in &scene.tracks {
        let of = |column: &Column| column.seen[track.place];
        all.push(series(format!("{} max", track.label), &|column| {
            some(of(column)).map(|seen| seen.max_ns as f64)
        }));
        all.push(series(format!("{} mean", track.label), &|column| of(column).mean_ns()));
    }
    if scene.others() > 0 {
        all.push(series("others max".to_owned(), &|column| others_max(scene, column)));
    }
    Readout {
        x: "time",
        log: false,
        domain: (x.from, x.to),
        range: (frame.left, frame.width),
        steps: steps(columns),
        phases: phases(scene),
        panels: vec![ReadoutPanel {
            name: String::new(),
            range: (frame.top, frame.height),
            series: all,
        }],
        grid: None,
    }
}

/// Where each phase lies, for the read-out.
pub(super) fn phases(scene: &Scene<'_>) -> Vec<(u64, u64, String)> {
    let phase = |cell: &PlottedCell<'_>| (cell.start_ns, cell.end_ns, cell.summary.name.clone());
    scene.cells.iter().map(phase).collect()
}

/// Start and end of each column.
pub(super) fn steps(columns: &[Column]) -> Vec<(u64, u64)> {
    columns.iter().map(|column| (column.start_ns, column.end_ns)).collect()
}

fn table(scene: &Scene<'_>) -> Table {
    let columns = &scene.columns().columns;
    let mut head = vec!["from".to_owned(), "to".to_owned(), "phase".to_owned()];
    for track in &scene.tracks {
        head.push(format!("{} mean", track.label));
        head.push(format!("{} max", track.label));
    }
    head.push("all: wake-ups".to_owned());
    head.push("all: max".to_owned());
    let mut table = Table::new(head);
    // A long table names its worst columns, in the order of time.
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    if columns.len() > TABLE_ROWS {
        kept.sort_by_cached_key(|&n| std::cmp::Reverse(columns[n].all().max_ns));
        kept.truncate(TABLE_ROWS);
        kept.sort_unstable();
        table.note =
            format!("The {TABLE_ROWS} of {} spans with the largest latencies.", columns.len());
    }
    for column in kept.into_iter().map(|n| &columns[n]) {
        let mut row = vec![
            instant(column.start_ns),
            instant(column.end_ns),
            scene.cells[column.cell].summary.name.clone(),
        ];
        for track in &scene.tracks {
            let seen = some(column.seen[track.place]);
            let of = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            row.push(of(seen.and_then(|seen| seen.mean_ns()).map(mean)));
            row.push(of(seen.map(|seen| time(seen.max_ns))));
        }
        let all = column.all();
        row.push(grouped(all.recorded));
        row.push(some(all).map_or_else(|| "-".to_owned(), |all| time(all.max_ns)));
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, plot::fixture};

    #[test]
    fn the_worst_latency_survives_any_shortening() {
        for slices in [10, 399, 400, 401, 5_003] {
            let record = fixture::long(slices);
            let judgement = judge(&record, &[]);
            let scene = Scene::new(&record, &judgement, None);
            let columns = &scene.columns().columns;
            assert!(columns.len() <= 400, "{slices} slices in {} columns", columns.len());
            let worst = columns.iter().map(|column| column.all().max_ns).max();
            assert_eq!(worst, Some(777_000), "{slices} slices");
            let recorded: u64 = columns.iter().map(|column| column.all().recorded).sum();
            assert_eq!(recorded, 10 * slices);
            assert!(headline(&scene).starts_with("The worst wake-up, 777 us on CPU 0, came"));
            assert!(table(&scene).rows.len() <= TABLE_ROWS);
        }
    }

    #[test]
    fn a_spike_is_marked_with_its_latency_and_instant() {
        let record = fixture::typical();
        let judgement = judge(&record, &[]);
        let svg = draw(&Scene::new(&record, &judgement, None), &PlotOptions::default());
        assert!(svg.contains(">3.41 ms at 11.00 s, CPU 0<"), "{svg}");
    }
}
