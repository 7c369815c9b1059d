//! What a run lost, by thread and over time: activations that a late wake-up swallowed, latencies
//! beyond the exact buckets (kept with less detail), wake-ups before their expiry, and raw samples
//! that found their ring full.
//!
//! The plot can't show what a lost activation would have seen: the corrected figures do.

use rtscope_model::event::Tally;

use super::{
    Plot, PlotKind, PlotOptions,
    columns::{Column, ColumnShare},
    scale::nice_above,
    scene::Scene,
    sheet::{Frame, HEADER, Readout, ReadoutPanel, Series, Sheet},
    svg::Path,
    table::Table,
    timeline,
    words::{cut, percent},
};
use crate::number::{counted, grouped};

pub(super) const PLOT: Plot = Plot {
    name: "losses",
    title: "Losses",
    shows: "It shows what was planned and not measured, or measured with less than full detail, \
            thread by thread and over time. It can't show what a missed activation would have seen: \
            the corrected figures do.",
    headline,
    draw,
    table,
};

/// Rows of bars.
const ROWS: usize = 12;

/// Kinds of losses: name, class.
const KINDS: [(&str, &str); 4] =
    [("missed", "missed"), ("overflow", "overflow"), ("early", "early"), ("raw lost", "raw-lost")];

/// What one thread, or all, planned and lost.
#[derive(Clone, Debug, Default)]
struct Loss {
    label: String,
    planned: u64,
    recorded: u64,
    /// In the order of [`KINDS`].
    lost: [u64; 4],
}

impl Loss {
    fn total(&self) -> u64 {
        self.lost.iter().sum()
    }
}

/// The losses of each thread over all shown cells.
fn by_thread(scene: &Scene<'_>) -> Vec<Loss> {
    let mut losses: Vec<Loss> =
        scene.labels.iter().map(|label| Loss { label: label.clone(), ..Loss::default() }).collect();
    for row in scene.cells.iter().flat_map(|cell| &cell.summary.threads) {
        let Some(place) = row.thread.and_then(|thread| scene.places.get(&thread)) else { continue };
        let loss = &mut losses[*place];
        loss.planned += row.planned;
        loss.recorded += row.recorded;
        loss.lost[0] += row.missed;
        loss.lost[1] += row.histogram.overflow();
        loss.lost[2] += row.early;
    }
    for thread in &scene.record.threads {
        let Some(place) = scene.places.get(&thread.thread) else { continue };
        losses[*place].lost[3] += thread.tally.as_ref().map_or(0, |tally: &Tally| tally.raw_lost);
    }
    losses
}

fn sum(losses: &[Loss]) -> Loss {
    let mut all = Loss { label: "all".to_owned(), ..Loss::default() };
    for loss in losses {
        all.planned += loss.planned;
        all.recorded += loss.recorded;
        all.lost.iter_mut().zip(loss.lost).for_each(|(all, lost)| *all += lost);
    }
    all
}

fn headline(scene: &Scene<'_>) -> String {
    let all = sum(&by_thread(scene));
    let [missed, overflow, early, raw_lost] = all.lost;
    if all.planned == 0 {
        return "Nothing was planned, so nothing was lost".to_owned();
    }
    if missed > 0 {
        let most = scene.cells.iter().rev().max_by_key(|cell| cell.summary.all.missed);
        let most = most
            .filter(|_| scene.cells.len() > 1)
            .map_or_else(String::new, |cell| format!(", most of them in {}", cell.summary.name));
        return format!(
            "{} of {} activations were missed ({}){most}",
            grouped(missed),
            grouped(all.planned),
            percent(missed, all.planned)
        );
    }
    let mut rest = Vec::new();
    if overflow > 0 {
        rest.push(format!("{} beyond the exact buckets", grouped(overflow)));
    }
    if early > 0 {
        rest.push(format!("{} before their expiry", grouped(early)));
    }
    if raw_lost > 0 {
        rest.push(format!("{} lost by the ring", counted(raw_lost, "raw sample")));
    }
    let all_there = format!("All {} planned activations were measured", grouped(all.planned));
    match rest.is_empty() {
        true => all_there,
        false => format!("{all_there}, {}", rest.join(", ")),
    }
}

fn draw(scene: &Scene<'_>, options: &PlotOptions) -> String {
    let mut sheet = Sheet::new(PlotKind::Losses, scene, options, &headline(scene));
    let losses = by_thread(scene);
    let all = sum(&losses);
    if all.planned == 0 || all.total() == 0 {
        nothing_lost(&mut sheet, &all);
        return sheet.finish("Planned activations against recorded ones: nothing was lost.");
    }
    bars(&mut sheet, losses);
    let columns = &scene.columns().columns;
    let in_time = columns.iter().map(|column| lost(&column.all()).iter().sum::<u64>()).max();
    let (Some(span), Some(most @ 1..)) = (scene.span_ns(), in_time) else {
        return sheet.finish("Bars of losses, one row a thread.");
    };
    let frame = sheet.panels(1, 130.0, HEADER, 66.0)[0];
    over_time(&mut sheet, scene, &frame, columns, (span, most));
    sheet.finish("Bars of losses, one row a thread, and below them the losses over time.")
}

/// The calm picture: all planned activations are there.
fn nothing_lost(sheet: &mut Sheet, all: &Loss) {
    if all.planned == 0 {
        sheet.nothing("No activation was planned.");
        return;
    }
    let (y, width) = (sheet.top() + 8.0, sheet.width - 40.0);
    sheet.svg.rect("bar-ground", 20.0, y, width, 64.0);
    sheet.svg.rect("good", 20.0, y, 5.0, 64.0);
    let tick = "M44 32L53 41L70 22L73 25L53 47L41 35Z";
    let at = format!("translate(0 {y})");
    sheet.svg.element("path").ink("good").attribute("transform", &at).attribute("d", tick).done();
    let text = format!("planned {} = recorded {}", grouped(all.planned), grouped(all.recorded));
    sheet.svg.label("name", "start", 90.0, y + 28.0, &text);
    let text =
        "Nothing missed, nothing beyond the exact buckets, nothing early, no raw sample lost.";
    sheet.svg.label("sub", "start", 90.0, y + 46.0, text);
    sheet.advance(84.0);
}

/// One row a thread, one column a kind of loss: a bar and its number.
fn bars(sheet: &mut Sheet, mut losses: Vec<Loss>) {
    let dropped = losses.len().saturating_sub(ROWS);
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.total()));
    losses.truncate(ROWS);
    let (left, top) = (100.0, sheet.top() + 12.0);
    let width = (sheet.width - left - 20.0) / KINDS.len() as f64;
    for (n, (name, ink)) in KINDS.iter().enumerate() {
        let x = left + width * n as f64;
        sheet.svg.rect(ink, x, top - 9.0, 10.0, 10.0);
        sheet.svg.label("name", "start", x + 16.0, top, name);
    }
    let most: Vec<u64> =
        (0..4).map(|n| losses.iter().map(|loss| loss.lost[n]).max().unwrap_or(0)).collect();
    for (row, loss) in losses.iter().enumerate() {
        let y = top + 24.0 + 22.0 * row as f64;
        sheet.svg.label("text", "end", left - 14.0, y, &cut(&loss.label, 12));
        for (n, (_, ink)) in KINDS.iter().enumerate() {
            let (x, room) = (left + width * n as f64, width - 80.0);
            sheet.svg.rect("bar-ground", x, y - 9.0, room, 10.0);
            let share = loss.lost[n] as f64 / most[n].max(1) as f64;
            if loss.lost[n] > 0 {
                sheet.svg.rect(ink, x, y - 9.0, (room * share).max(2.0), 10.0);
            }
            sheet.svg.label("text", "start", x + room + 6.0, y, &grouped(loss.lost[n]));
        }
    }
    sheet.advance(34.0 + 22.0 * losses.len() as f64);
    if dropped > 0 {
        let text =
            format!("{} with fewer losses are in the table", counted(dropped as u64, "thread"));
        sheet.svg.label("sub", "start", left, sheet.top() + 8.0, &text);
        sheet.advance(18.0);
    }
}

/// Losses of a column that are known in time.
fn lost(seen: &ColumnShare) -> [u64; 3] {
    [seen.missed, seen.overflow, seen.early]
}

fn over_time(
    sheet: &mut Sheet,
    scene: &Scene<'_>,
    frame: &Frame,
    columns: &[Column],
    (span, most): ((u64, u64), u64),
) {
    let x = timeline::time_scale(frame, span);
    let step = nice_above(most as f64 / 4.0).max(1.0);
    let y = frame.y(false, 0.0, (most as f64 / step).ceil() * step);
    timeline::bands(sheet, scene, frame, &x);
    sheet.x_axis(&[*frame], &x, &x.time_ticks(9), "time since the start of the run");
    sheet.y_axis(frame, &y, &y.count_ticks(4));
    sheet.y_name(&[*frame], "losses");
    sheet.plane(frame, 0);
    for (n, (_, ink)) in KINDS.iter().enumerate().take(3) {
        let mut path = Path::default();
        for column in columns {
            let lost = lost(&column.all());
            let below: u64 = lost[..n].iter().sum();
            let (from, to) = (y.place(below as f64), y.place((below + lost[n]) as f64));
            let left = x.place(column.start_ns as f64);
            let width = (x.place(column.end_ns as f64) - left).max(1.5);
            if lost[n] > 0 {
                path.rect(left, to, width, from - to);
            }
        }
        sheet.svg.path(ink, &path);
    }
    sheet.end_plane();
    sheet.base_line(frame);
    let series = |n: usize| Series {
        name: KINDS[n].0.to_owned(),
        kind: "count",
        values: columns.iter().map(|column| Some(lost(&column.all())[n] as f64)).collect(),
    };
    sheet.read_out(Readout {
        x: "time",
        log: false,
        domain: (x.from, x.to),
        range: (frame.left, frame.width),
        steps: timeline::steps(columns),
        phases: timeline::phases(scene),
        panels: vec![ReadoutPanel {
            name: String::new(),
            range: (frame.top, frame.height),
            series: (0..3).map(series).collect(),
        }],
        grid: None,
    });
}

fn table(scene: &Scene<'_>) -> Table {
    let mut table = Table::new([
        "thread",
        "planned",
        "recorded",
        "missed",
        "overflow",
        "early",
        "raw lost",
        "page faults",
        "preempted",
        "migrations",
    ]);
    let losses = by_thread(scene);
    for (place, loss) in losses.iter().enumerate() {
        let mine = |thread: &&rtscope_model::record::ThreadRecord| {
            scene.places.get(&thread.thread) == Some(&place)
        };
        let tallies = || scene.record.threads.iter().filter(mine).filter_map(|t| t.tally);
        let of = |value: fn(Tally) -> u64| match tallies().next() {
            Some(_) => grouped(tallies().map(value).sum()),
            None => "-".to_owned(),
        };
        let mut row = vec![loss.label.clone(), grouped(loss.planned), grouped(loss.recorded)];
        row.extend(loss.lost.iter().map(|&lost| grouped(lost)));
        row.push(of(|tally| tally.minor_faults + tally.major_faults));
        row.push(of(|tally| tally.involuntary_switches));
        row.push(of(|tally| tally.migrations));
        table.row(row);
    }
    table.note = "Page faults, preemptions and migrations are of the whole run, warm-up included. \
                  A dash: the record was cut short before they were written."
        .to_owned();
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, test_support::Run};

    const PLAN: &str = "name = \"p\"\n[[phase]]\nname = \"a\"\nduration = \"1s\"\n";

    fn seen(run: &Run) -> (String, String) {
        let record = run.record();
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        (headline(&scene), draw(&scene, &PlotOptions::default()))
    }

    #[test]
    fn nothing_lost_is_said_in_so_many_words() {
        let (headline, svg) = seen(&Run::new(PLAN, 2).cell(0, &[&[5_000; 10], &[6_000; 10]]).end());
        assert_eq!(headline, "All 20 planned activations were measured");
        assert!(svg.contains("planned 20 = recorded 20"), "{svg}");
    }

    #[test]
    fn each_kind_of_loss_is_counted() {
        let run = Run::new(PLAN, 1).cell(0, &[&[5_000, 3_400_000, 6_000]]).end();
        let (headline, _) = seen(&run);
        assert_eq!(headline, "3 of 6 activations were missed (50 %)");
        let run =
            Run::new(PLAN, 1).cell(0, &[&[5_000; 10]]).end().tally(|tally| tally.raw_lost = 3);
        let (headline, svg) = seen(&run);
        assert_eq!(
            headline,
            "All 10 planned activations were measured, 3 raw samples lost by the ring"
        );
        assert!(svg.contains("raw lost"));
    }
}
