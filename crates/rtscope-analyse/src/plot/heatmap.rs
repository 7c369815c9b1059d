//! How often each latency was seen in each slice of the run: time across, latency upwards, both
//! counts and latency logarithmic.
//!
//! The field has at most 400 columns and 64 rows; a column of a long run holds several slices, a
//! row several buckets, and their counts are summed. The plot can't tell threads apart.

use super::{
    NO_LATENCY, Plot, PlotKind, PlotOptions,
    columns::Columns,
    edges::Edges,
    scale::Scale,
    scene::Scene,
    sheet::{Frame, HEADER, Readout, ReadoutGrid, ReadoutPanel, Series, Sheet},
    svg::Path,
    table::Table,
    theme::HEATS,
    timeline,
    words::{instant, time},
};
use crate::{
    number::grouped,
    statistics::{exceedance::round_limits_ns, quantile},
};

pub(super) const PLOT: Plot = Plot {
    name: "heatmap",
    title: "Heat map",
    shows: "It shows how often each latency was seen in each slice: the darker, the more often (in \
            dark mode the brighter), on a logarithmic scale. A level that moves shows that the whole \
            system changed, and a single cell far up shows a rare event. It can't tell threads apart.",
    headline,
    draw,
    table,
};

/// Rows wanted; buckets may make them fewer.
const ROWS: usize = 60;

/// The least width of a cell in pixels.
const CELL_WIDTH_MIN: f64 = 3.0;

/// Spans of time in the table behind the plot.
const TABLE_SPANS: usize = 24;

/// Counts of each column by row.
struct Field<'a> {
    columns: &'a Columns,
    edges: Edges,
    counts: Vec<Vec<u64>>,
    /// The largest of the counts, at least 1.
    most: u64,
}

fn headline(scene: &Scene<'_>) -> String {
    let Some(everything) = scene.everything() else {
        return NO_LATENCY.to_owned();
    };
    let at = |parts| quantile::estimate(&everything, parts).map_or(0, |quantile| quantile.value_ns);
    format!(
        "98 % of the latencies lie between {} and {}, the rest reaches up to {}",
        time(at(10_000_000)),
        time(at(990_000_000)),
        time(everything.max_ns().unwrap_or(0))
    )
}

fn field<'a>(scene: &'a Scene<'_>, rows: usize) -> Option<Field<'a>> {
    let columns = scene.columns();
    let edges = Edges::over(scene.layout(), scene.extremes_ns()?, true, rows);
    let mut counts = vec![vec![0; edges.len()]; columns.columns.len()];
    for slice in &scene.record.slices {
        let Some(at) = columns.index_of(slice) else { continue };
        let cell = columns.columns[at].cell;
        let layout = scene.cells[cell].summary.all.histogram.layout();
        edges.add(layout, &slice.bins, &mut counts[at]);
    }
    let most = counts.iter().flatten().copied().max().unwrap_or(1).max(1);
    Some(Field { columns, edges, counts, most })
}

impl Field<'_> {
    /// The level of a count: equal steps of its logarithm.
    fn level(&self, count: u64) -> usize {
        let share = (count as f64).ln() / (self.most as f64).ln().max(1e-9);
        ((share * HEATS as f64) as usize).min(HEATS - 1)
    }

    /// Left and right edge of each column on an axis. In a long run they overlap, so that a single
    /// cell stays visible; levels of more wake-ups are drawn over those of fewer.
    fn places(&self, x: &Scale) -> Vec<(f64, f64)> {
        let place = |(start, end): (u64, u64)| {
            let (left, right) = (x.place(start as f64), x.place(end as f64));
            (left, right.max(left + CELL_WIDTH_MIN))
        };
        timeline::steps(&self.columns.columns).into_iter().map(place).collect()
    }
}

fn draw(scene: &Scene<'_>, options: &PlotOptions) -> String {
    let mut sheet = Sheet::new(PlotKind::Heatmap, scene, options, &headline(scene));
    let (Some(field), Some(span)) = (field(scene, ROWS), scene.span_ns()) else {
        return sheet.empty(NO_LATENCY);
    };
    let frame = sheet.panels(1, 290.0, HEADER, 66.0)[0];
    let x = timeline::time_scale(&frame, span);
    let (first, last) = (field.edges.edges_ns[0], field.edges.end_ns());
    let y = frame.y(true, first as f64, last as f64 * 1.2);
    ramp(&mut sheet, &frame, field.most);
    timeline::bands(&mut sheet, scene, &frame, &x);
    sheet.x_axis(&[frame], &x, &x.time_ticks(9), "time since the start of the run");
    sheet.y_axis(&frame, &y, &y.latency_ticks(frame.height as usize / 31));
    sheet.y_name(&[frame], "latency");
    sheet.plane(&frame, 0);
    sheet.svg.element("g").attribute("shape-rendering", "crispEdges").open();
    for (level, path) in paths(&field, &x, &y).iter().enumerate() {
        sheet.svg.path(&format!("h{level}"), path);
    }
    sheet.svg.close();
    sheet.end_plane();
    sheet.base_line(&frame);
    sheet.horizontal_limits(&frame, &y, &scene.limits);
    sheet.read_out(readout(scene, &field, &frame, x, y));
    sheet.finish(&format!(
        "Counts of latencies in {} spans of time and {} steps of latency.",
        field.counts.len(),
        field.edges.len()
    ))
}

/// One path for each level. Neighbours of one level in a row are one rectangle.
fn paths(field: &Field<'_>, x: &Scale, y: &Scale) -> Vec<Path> {
    let places = field.places(x);
    let mut paths = vec![Path::default(); HEATS];
    for row in 0..field.edges.len() {
        let bottom = y.place(field.edges.edges_ns[row] as f64);
        let top = y.place(field.edges.edges_ns[row + 1] as f64);
        let mut run: Option<(usize, f64, f64)> = None;
        let mut flush = |run: Option<(usize, f64, f64)>| {
            if let Some((level, left, right)) = run {
                paths[level].rect(left, top, right - left, bottom - top);
            }
        };
        for (counts, &(left, right)) in field.counts.iter().zip(&places) {
            let level = (counts[row] > 0).then(|| field.level(counts[row]));
            run = match (run, level) {
                (Some((old, from, to)), Some(level)) if old == level && left - to < 0.6 => {
                    Some((old, from, right.max(to)))
                }
                (old, level) => {
                    flush(old);
                    level.map(|level| (level, left, right))
                }
            };
        }
        flush(run);
    }
    paths
}

/// What the colours mean, above the right end of the frame.
fn ramp(sheet: &mut Sheet, frame: &Frame, most: u64) {
    let (width, y) = (14.0, frame.bottom() + 27.0);
    let text = grouped(most);
    let right = frame.right() - text.len() as f64 * 6.6 - 6.0;
    let left = right - width * HEATS as f64;
    sheet.svg.label("tick", "end", left - 6.0, y + 9.0, "wake-ups 1");
    for level in 0..HEATS {
        let x = left + width * level as f64;
        sheet.svg.rect(&format!("h{level}"), x, y, width, 10.0);
    }
    sheet.svg.label("tick", "start", right + 6.0, y + 9.0, &text);
}

fn readout(scene: &Scene<'_>, field: &Field<'_>, frame: &Frame, x: Scale, y: Scale) -> Readout {
    let columns = &field.columns.columns;
    let sparse = |counts: &Vec<u64>| {
        counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect()
    };
    let series = |name: &str, kind, value: &dyn Fn(usize) -> Option<f64>| Series {
        name: name.to_owned(),
        kind,
        values: (0..columns.len()).map(value).collect(),
    };
    Readout {
        x: "time",
        log: false,
        domain: (x.from, x.to),
        range: (frame.left, frame.width),
        steps: timeline::steps(columns),
        phases: timeline::phases(scene),
        panels: vec![ReadoutPanel {
            name: String::new(),
            range: (frame.top, frame.height),
            series: vec![
                series("wake-ups", "count", &|n| Some(columns[n].all().recorded as f64)),
                series("max", "latency", &|n| Some(columns[n].all().max_ns as f64)),
            ],
        }],
        grid: Some(ReadoutGrid {
            edges: field.edges.edges_ns.clone(),
            domain: (y.from, y.to),
            cells: field.counts.iter().map(sparse).collect(),
        }),
    }
}

/// A coarser field: round steps of latency, some tens of spans.
fn table(scene: &Scene<'_>) -> Table {
    let Some((min_ns, max_ns)) = scene.extremes_ns() else {
        return Table::new(["from", "to", "phase"]);
    };
    let mut steps = round_limits_ns(min_ns, max_ns);
    if min_ns < steps[0] {
        steps.insert(0, 0);
    }
    let mut head = vec!["from".to_owned(), "to".to_owned(), "phase".to_owned()];
    head.extend(steps.windows(2).map(|pair| format!("{} to {}", time(pair[0]), time(pair[1]))));
    let mut table = Table::new(head);
    let Some(field) = field(scene, 4 * ROWS) else { return table };
    let columns = &field.columns.columns;
    let each = columns.len().div_ceil(TABLE_SPANS).max(1);
    let mut from = 0;
    while from < columns.len() {
        let cell = columns[from].cell;
        let same = columns[from..].iter().take_while(|column| column.cell == cell).count();
        let to = from + same.min(each);
        let mut counts = vec![0; steps.len() - 1];
        for (n, edge_ns) in field.edges.edges_ns[..field.edges.len()].iter().enumerate() {
            let after = steps.partition_point(|step| step <= edge_ns);
            let step = after.saturating_sub(1).min(counts.len() - 1);
            counts[step] += field.counts[from..to].iter().map(|column| column[n]).sum::<u64>();
        }
        let name = scene.cells[cell].summary.name.clone();
        let span = [instant(columns[from].start_ns), instant(columns[to - 1].end_ns), name];
        table.row(span.into_iter().chain(counts.into_iter().map(grouped)));
        from = to;
    }
    table.note = "Steps of the plot count where they begin.".to_owned();
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, plot::fixture, test_support::Run};

    /// There is one round limit, above them all.
    #[test]
    fn latencies_below_a_microsecond_have_a_step() {
        let plan = "name = \"p\"\n[[phase]]\nname = \"rest\"\nduration = \"2s\"";
        let record = Run::new(plan, 1).cell(0, &[&[10; 1_000], &[10; 1_000]]).end().record();
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        let rows = table(&scene).rows;
        assert!(!rows.is_empty() && rows.iter().all(|row| row.len() == 4), "{rows:?}");
    }

    #[test]
    fn the_field_is_bounded_and_holds_every_wake_up() {
        for record in [fixture::small(), fixture::long(3_000), fixture::wide(3, 20)] {
            let judgement = judge(&record, &[]);
            let scene = Scene::new(&record, &judgement, None);
            let field = field(&scene, ROWS).expect("latencies");
            assert!(field.counts.len() <= 400 && field.edges.len() <= 64, "{}", record.plan.name);
            let recorded: u64 = scene.cells.iter().map(|cell| cell.summary.all.recorded).sum();
            assert_eq!(field.counts.iter().flatten().sum::<u64>(), recorded);
            let rows = table(&scene).rows;
            assert!(rows.len() <= TABLE_SPANS + scene.cells.len(), "{} rows", rows.len());
            let counts = rows.iter().flat_map(|row| &row[3..]);
            let sum: u64 = counts.map(|n| n.replace(',', "").parse::<u64>().expect("count")).sum();
            assert_eq!(sum, recorded, "table of {}", record.plan.name);
        }
    }
}
