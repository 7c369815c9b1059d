//! Every wake-up over the run, by thread: a point each, or from the smallest to the largest latency where many lie
//! side by side.
//!
//! Instants are programmed expiries since the start of the run. Only a run with `raw` keeps its samples. The plot can't
//! show how many points lie on each other: the heat map does.

use rtscope_model::record::SampleSpan;

use super::{
    Plot, PlotKind, PlotOptions, histogram,
    scale::Scale,
    scene::Scene,
    sheet::{HEADER, Sample, Sheet},
    svg::Path,
    table::Table,
    timeline,
    words::{instant, time},
};
use crate::number::grouped;

pub(super) const PLOT: Plot = Plot {
    name: "samples",
    title: "Every wake-up",
    shows: "It shows the latency of every wake-up, thread by thread: a point each, or a line from the smallest to \
            the largest where many lie side by side. It can't show how many points overlap.",
    headline,
    draw,
    table,
};

/// Rows of the table behind the plot.
const TABLE_ROWS: usize = 40;

/// What a thread's file holds of the shown cells.
struct Seen<'a> {
    place: usize,
    spans: Vec<&'a SampleSpan>,
}

/// The samples of each thread that lie in the shown cells.
fn seen<'a>(scene: &Scene<'a>) -> Vec<Seen<'a>> {
    let is_shown = |span: &&SampleSpan| {
        let mut cells = scene.cells.iter();
        cells.any(|cell| span.end_ns >= cell.start_ns && span.start_ns < cell.end_ns)
    };
    let of = |samples: &'a rtscope_model::record::Samples| {
        let place = *scene.places.get(&samples.thread)?;
        Some(Seen { place, spans: samples.spans.iter().filter(is_shown).collect() })
    };
    let mut all: Vec<Seen<'_>> = scene.record.samples.iter().filter_map(of).collect();
    all.retain(|one| !one.spans.is_empty());
    all
}

fn count(all: &[Seen<'_>]) -> u64 {
    all.iter().flat_map(|one| &one.spans).map(|span| span.count).sum()
}

fn headline(scene: &Scene<'_>) -> String {
    let all = seen(scene);
    let spans = all.iter().flat_map(|one| one.spans.iter().map(|span| (one.place, *span)));
    match spans.max_by_key(|(_, span)| span.max_ns) {
        None => "No sample was kept".to_owned(),
        Some((place, worst)) => format!(
            "{} wake-ups, the worst {} late on {}",
            grouped(count(&all)),
            time(worst.max_ns),
            scene.labels[place]
        ),
    }
}

fn draw(scene: &Scene<'_>, options: &PlotOptions) -> String {
    let all = seen(scene);
    let mut sheet = Sheet::new(PlotKind::Samples, scene, options, &headline(scene));
    let worst = all.iter().flat_map(|one| &one.spans).map(|span| span.max_ns).max();
    let (Some(span), Some(worst_ns)) = (scene.span_ns(), worst) else {
        return sheet.empty("No sample was kept");
    };
    sheet.legend(&histogram::track_keys(scene, Sample::Line));
    let frame = sheet.panels(1, 280.0, HEADER, 66.0)[0];
    let x = timeline::time_scale(&frame, span);
    let lowest = all.iter().flat_map(|one| &one.spans).map(|span| span.min_ns).min();
    let lowest_ns = lowest.unwrap_or(0) as f64;
    let y = timeline::latency_scale(scene, &frame, lowest_ns, worst_ns as f64);
    timeline::bands(&mut sheet, scene, &frame, &x);
    sheet.x_axis(&[frame], &x, &x.time_ticks(9), "time since the start of the run");
    sheet.y_axis(&frame, &y, &y.latency_ticks(frame.height as usize / 31));
    sheet.y_name(&[frame], "latency");
    sheet.plane(&frame, 0);
    for one in &all {
        let track = scene.tracks.iter().position(|track| track.place == one.place);
        let path = points(&one.spans, &x, &y);
        match track {
            Some(place) => {
                sheet.svg.element("g").attribute("data-track", &place.to_string()).open();
                sheet.svg.path(&format!("samples c{place}"), &path);
                sheet.svg.close();
            }
            None => sheet.svg.path("samples others", &path),
        }
    }
    sheet.end_plane();
    sheet.base_line(&frame);
    sheet.horizontal_limits(&frame, &y, &scene.limits);
    sheet.finish(&format!(
        "Latency over time of {} wake-ups, a point each or joined from the smallest to the largest.",
        grouped(count(&all))
    ))
}

/// A short stroke for each wake-up, a longer one where several are joined. Logarithmic axes begin above 0.
fn points(spans: &[&SampleSpan], x: &Scale, y: &Scale) -> Path {
    let mut path = Path::default();
    for span in spans {
        let at = x.place((span.start_ns + (span.end_ns - span.start_ns) / 2) as f64);
        let (top, bottom) =
            (y.place(span.max_ns.max(1) as f64), y.place(span.min_ns.max(1) as f64));
        path.lift();
        path.to(at, top);
        path.to(at, bottom.max(top + 1.2));
    }
    path
}

fn table(scene: &Scene<'_>) -> Table {
    let mut table = Table::new(["from", "to", "thread", "wake-ups", "smallest", "largest"]);
    let all = seen(scene);
    let spans = all.iter().flat_map(|one| one.spans.iter().map(|span| (one.place, *span)));
    let mut worst: Vec<_> = spans.collect();
    let shown = worst.len().min(TABLE_ROWS);
    if worst.len() > shown {
        table.note =
            format!("The {shown} of {} with the largest latencies.", grouped(worst.len() as u64));
    }
    worst.sort_by_key(|(place, span)| (std::cmp::Reverse(span.max_ns), span.start_ns, *place));
    worst.truncate(shown);
    for (place, span) in worst {
        table.row(vec![
            instant(span.start_ns),
            instant(span.end_ns),
            scene.labels[place].clone(),
            grouped(span.count),
            time(span.min_ns),
            time(span.max_ns),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use rtscope_model::record::{DRAWN_SPANS, Record, SampleReader};

    use super::*;
    use crate::{judge, plot::fixture};

    /// The small record with samples of its first thread: 10 us each, and one of 3 ms in the second phase.
    fn record(count: u64) -> Record {
        let mut record = fixture::small();
        let end_ns = record.slices.iter().map(|slice| slice.end_ns).max().expect("slices");
        let mut reader = SampleReader::new(record.threads[0].thread, DRAWN_SPANS);
        for n in 0..count {
            let latency_ns: u64 = if n == count / 2 { 3_000_000 } else { 10_000 };
            reader.feed(&(end_ns * n / count).to_le_bytes());
            reader.feed(&latency_ns.to_le_bytes());
        }
        record.samples = vec![reader.finish()];
        record
    }

    #[test]
    fn every_sample_is_drawn_and_many_are_joined() {
        for (count, strokes) in [(400, 300..=400), (100_000, 2_000..=4_096)] {
            let record = record(count);
            let judgement = judge(&record, &[]);
            let scene = Scene::new(&record, &judgement, None);
            let svg = draw(&scene, &PlotOptions::default());
            fixture::check_markup(&svg).expect("well-formed");
            let path = svg.split("class=\"samples c0\"").nth(1).expect("the thread's path");
            let drawn = path.split("/>").next().expect("its end").matches('M').count();
            assert!(strokes.contains(&drawn), "{count}: {drawn}");
            let said = headline(&scene);
            assert!(said.ends_with("wake-ups, the worst 3 ms late on CPU 0"), "{said}");
            assert_eq!(table(&scene).rows[0].last().map(String::as_str), Some("3 ms"));
        }
    }

    #[test]
    fn a_page_has_the_plot_where_samples_were_kept() {
        let page = |record: &Record| crate::report::html::page(record, &judge(record, &[]));
        assert!(page(&record(400)).contains("plot-samples"));
        assert!(!page(&fixture::small()).contains("plot-samples"));
    }
}
