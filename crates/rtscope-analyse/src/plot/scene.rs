//! What all plots of one record share: the cells that are shown and where they lie in time, the
//! threads that get a colour of their own, and the limits that were required.

use std::{cell::OnceCell, collections::BTreeMap};

use rtscope_model::{
    event::Event,
    histogram::{Histogram, Layout},
    record::Record,
    verdict::Statistic,
};

use super::{columns::Columns, theme::COLOURS};
use crate::judgement::{CellSummary, FigureRow, Judgement};

/// The most cells that a plot shows in panels or curves of their own.
pub(crate) const CELLS_SHOWN: usize = 10;

/// A record and its figures, seen with the eyes of a plot.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) record: &'a Record,
    /// The chosen cells that started, in the order of the run.
    pub(crate) cells: Vec<PlottedCell<'a>>,
    /// Names of all threads, in the order of their first appearance.
    pub(crate) labels: Vec<String>,
    /// The place of each thread among the labels, by its index.
    pub(crate) places: BTreeMap<u32, usize>,
    /// The threads that get a colour: all, or those with the largest latencies.
    pub(crate) tracks: Vec<Track>,
    /// Required limits of latency, ascending.
    pub(crate) limits: Vec<Limit>,
    /// Whether nothing is known of other programs that kept the machine busy in phases without a load.
    pub(crate) was_at_rest: bool,
    columns: OnceCell<Columns>,
}

/// A cell and where it lies.
#[derive(Debug)]
pub(crate) struct PlottedCell<'a> {
    pub(crate) summary: &'a CellSummary,
    /// Start, since the start of the run.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Colour: 0 is rest, and cells with the same loads have the same.
    pub(crate) ink: usize,
    /// How many earlier cells have the same colour.
    pub(crate) twin: usize,
}

/// A thread with a colour of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Track {
    /// Its name, as `CPU 1`.
    pub(crate) label: String,
    /// Its place among [`Scene::labels`].
    pub(crate) place: usize,
}

/// A limit that a requirement sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) limit_ns: u64,
    pub(crate) label: String,
    /// The only cell it applies to.
    pub(crate) cell: Option<u32>,
    /// Whether every single latency must stay below: `max < ...`.
    pub(crate) for_all: bool,
}

impl<'a> Scene<'a> {
    /// Looks at a record. `chosen` are indices of cells; none is all.
    pub(crate) fn new(
        record: &'a Record,
        judgement: &'a Judgement,
        chosen: Option<&[u32]>,
    ) -> Scene<'a> {
        let spans = spans(record);
        let is_chosen = |cell: u32| chosen.is_none_or(|chosen| chosen.contains(&cell));
        let mut cells: Vec<PlottedCell<'a>> = judgement
            .cells
            .iter()
            .filter(|summary| is_chosen(summary.cell))
            .filter_map(|summary| {
                let &(start_ns, end_ns) = spans.get(&summary.cell)?;
                Some(PlottedCell { summary, start_ns, end_ns, ink: 0, twin: 0 })
            })
            .collect();
        colour(&mut cells);
        let (labels, places) = labels(&cells);
        let tracks = tracks(&cells, &labels, &places);
        let limits = limits(record, &cells);
        let was_at_rest = judgement.findings.iter().all(|found| found.code != "not-at-rest");
        let columns = OnceCell::new();
        Scene { record, cells, labels, places, tracks, limits, was_at_rest, columns }
    }

    /// The slices as columns of time.
    pub(crate) fn columns(&self) -> &Columns {
        self.columns.get_or_init(|| {
            let cells: Vec<u32> = self.cells.iter().map(|cell| cell.summary.cell).collect();
            Columns::new(self.record, &cells, &self.places, self.labels.len())
        })
    }

    /// Every latency of every shown cell that has the layout of the first; none when nothing was
    /// recorded.
    pub(crate) fn everything(&self) -> Option<Histogram> {
        let mut rows = self.cells.iter().map(|cell| &cell.summary.all.histogram);
        let mut sum = rows.find(|histogram| histogram.count() > 0)?.clone();
        let layout = sum.layout();
        rows.filter(|histogram| histogram.layout() == layout).for_each(|other| sum.merge(other));
        Some(sum)
    }

    /// Smallest and largest latency of all shown cells.
    pub(crate) fn extremes_ns(&self) -> Option<(u64, u64)> {
        let rows = || self.cells.iter().map(|cell| &cell.summary.all.histogram);
        Some((
            rows().filter_map(Histogram::min_ns).min()?,
            rows().filter_map(Histogram::max_ns).max()?,
        ))
    }

    /// The coarsest buckets of the shown cells.
    pub(crate) fn layout(&self) -> Layout {
        let layouts = self.cells.iter().map(|cell| cell.summary.all.histogram.layout());
        Layout::coarsest(layouts).unwrap_or_default()
    }

    /// The cell with the largest latency.
    pub(crate) fn worst(&self) -> Option<&PlottedCell<'a>> {
        // The first of equals: max_by_key would give the last.
        self.cells
            .iter()
            .rev()
            .max_by_key(|cell| cell.summary.all.max_ns())
            .filter(|cell| cell.summary.all.max_ns().is_some())
    }

    /// The cells that are shown one by one: all, or those with the largest latencies, in order.
    pub(crate) fn shown(&self) -> Vec<&PlottedCell<'a>> {
        let mut shown: Vec<&PlottedCell<'a>> = self.cells.iter().collect();
        shown.sort_by_key(|cell| std::cmp::Reverse(cell.summary.all.max_ns()));
        shown.truncate(CELLS_SHOWN);
        shown.sort_by_key(|cell| cell.summary.cell);
        shown
    }

    /// What [`Scene::shown`] leaves out, as a sentence.
    pub(crate) fn left_out(&self) -> Option<String> {
        (self.cells.len() > CELLS_SHOWN).then(|| {
            format!(
                "Shown: the {CELLS_SHOWN} phases of {} with the largest latencies.",
                self.cells.len()
            )
        })
    }

    /// First and last instant of the shown cells; none without cells.
    pub(crate) fn span_ns(&self) -> Option<(u64, u64)> {
        let start = self.cells.iter().map(|cell| cell.start_ns).min()?;
        let end = self.cells.iter().map(|cell| cell.end_ns).max()?;
        (end > start).then_some((start, end))
    }

    /// Whether a latency axis must be logarithmic: the tail reaches ten times beyond p99.
    pub(crate) fn has_long_tail(&self) -> bool {
        let far = |cell: &PlottedCell<'_>| {
            let histogram = &cell.summary.all.histogram;
            let rank = (histogram.count() as f64 * 0.99).ceil() as u64;
            (histogram.at_rank_ns(rank.max(1)), histogram.max_ns())
        };
        let (p99s, maxima): (Vec<_>, Vec<_>) = self.cells.iter().map(far).unzip();
        let p99 = p99s.into_iter().flatten().max().unwrap_or(0);
        let max = maxima.into_iter().flatten().max().unwrap_or(0);
        let limit = self.limits.iter().map(|limit| limit.limit_ns).max().unwrap_or(0);
        max.max(limit.min(max.saturating_mul(10))) > p99.saturating_mul(10)
    }

    pub(crate) fn row<'c>(&self, cell: &PlottedCell<'c>, track: &Track) -> Option<&'c FigureRow> {
        let place =
            |row: &FigureRow| row.thread.and_then(|thread| self.places.get(&thread)).copied();
        cell.summary.threads.iter().find(|row| place(row) == Some(track.place))
    }

    /// The threads without a colour of their own.
    pub(crate) fn others(&self) -> usize {
        self.labels.len() - self.tracks.len()
    }
}

/// Where each cell lies: from its first to its last slice, or between its events.
fn spans(record: &Record) -> BTreeMap<u32, (u64, u64)> {
    let mut spans: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for stamped in &record.events {
        match &stamped.event {
            Event::PhaseStarted { cell, .. } => {
                spans.insert(*cell, (stamped.at_ns, stamped.at_ns));
            }
            Event::PhaseEnded { cell, .. } => {
                spans.entry(*cell).and_modify(|span| span.1 = span.1.max(stamped.at_ns));
            }
            _ => {}
        }
    }
    for slice in &record.slices {
        if let rtscope_model::slice::Scope::Cell(cell) = slice.scope {
            let span = spans.entry(cell).or_insert((slice.start_ns, slice.end_ns));
            *span = (span.0.min(slice.start_ns), span.1.max(slice.end_ns));
        }
    }
    spans
}

/// Rest is 0; each other combination of loads gets the next colour, again from 1 when they run out.
fn colour(cells: &mut [PlottedCell<'_>]) {
    let mut known: Vec<Vec<&str>> = Vec::new();
    let mut seen = [0; COLOURS];
    for cell in cells {
        let lines: Vec<&str> = cell.summary.loads.iter().map(|load| load.line.as_str()).collect();
        if !lines.is_empty() {
            let place = known.iter().position(|known| *known == lines).unwrap_or_else(|| {
                known.push(lines);
                known.len() - 1
            });
            cell.ink = 1 + place % (COLOURS - 1);
        }
        cell.twin = seen[cell.ink];
        seen[cell.ink] += 1;
    }
}

/// Names of all threads, and the place of each among them.
fn labels(cells: &[PlottedCell<'_>]) -> (Vec<String>, BTreeMap<u32, usize>) {
    let mut labels: Vec<String> = Vec::new();
    let mut places = BTreeMap::new();
    for row in cells.iter().flat_map(|cell| &cell.summary.threads) {
        let place = labels.iter().position(|known| *known == row.label).unwrap_or_else(|| {
            labels.push(row.label.clone());
            labels.len() - 1
        });
        places.extend(row.thread.map(|thread| (thread, place)));
    }
    (labels, places)
}

/// All threads, or of many those with the largest latencies.
fn tracks(
    cells: &[PlottedCell<'_>],
    labels: &[String],
    places: &BTreeMap<u32, usize>,
) -> Vec<Track> {
    let mut max_ns: Vec<Option<u64>> = vec![None; labels.len()];
    for row in cells.iter().flat_map(|cell| &cell.summary.threads) {
        if let Some(&place) = row.thread.and_then(|thread| places.get(&thread)) {
            max_ns[place] = max_ns[place].max(row.histogram.max_ns());
        }
    }
    let track = |(place, label): (usize, &String)| Track { label: label.clone(), place };
    let mut tracks: Vec<Track> = labels.iter().enumerate().map(track).collect();
    if tracks.len() > COLOURS {
        tracks.sort_by_key(|track| std::cmp::Reverse(max_ns[track.place]));
        tracks.truncate(COLOURS - 1);
        tracks.sort_by_key(|track| track.place);
    }
    tracks
}

fn limits(record: &Record, cells: &[PlottedCell<'_>]) -> Vec<Limit> {
    let of_plan = record.plan.require.iter().map(|requirement| (requirement, None));
    let of_cells = cells.iter().filter_map(|cell| {
        let phase = record.plan.phases.get(cell.summary.cell as usize)?;
        Some(phase.require.iter().map(|requirement| (requirement, Some(cell.summary.cell))))
    });
    let mut limits: Vec<Limit> = of_plan
        .chain(of_cells.flatten())
        .filter_map(|(requirement, cell)| {
            let limit_ns = requirement.limit_ns()?;
            let for_all = requirement.statistic == Statistic::Max;
            Some(Limit { limit_ns, label: requirement.to_string(), cell, for_all })
        })
        .collect();
    limits.sort_by(|a, b| (a.limit_ns, &a.label, a.cell).cmp(&(b.limit_ns, &b.label, b.cell)));
    limits.dedup();
    limits
}

#[cfg(test)]
mod tests {
    use rtscope_model::event::Event;

    use super::*;
    use crate::{
        judge,
        plot::fixture,
        test_support::{Run, fifo},
    };

    #[test]
    fn threads_that_share_a_cpu_stay_apart() {
        let plan = "name = \"p\"\n[[phase]]\nname = \"a\"\nduration = \"1s\"\n";
        let all_on_cpu_3 = |event: &mut Event| {
            if let Event::ThreadPlaced { found, .. } = event {
                *found = fifo(3);
            }
        };
        let latencies: [&[u64]; 3] = [&[1_000], &[2_000, 2_000], &[3_000]];
        let record = Run::new(plan, 3).cell(0, &latencies).end().edit(all_on_cpu_3).record();
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        assert_eq!(scene.labels, ["CPU 3 thread 0", "CPU 3 thread 1", "CPU 3 thread 2"]);
        let rows = scene.tracks.iter().filter_map(|track| scene.row(&scene.cells[0], track));
        assert_eq!(rows.map(|row| row.recorded).collect::<Vec<_>>(), [1, 2, 1]);
    }

    #[test]
    fn of_many_threads_the_worst_get_a_colour() {
        let (record, judgement) = &*fixture::WIDEST;
        let scene = Scene::new(record, judgement, None);
        assert_eq!((scene.labels.len(), scene.tracks.len(), scene.others()), (64, 7, 57));
        let max_ns = |track: &Track| {
            scene.cells.iter().filter_map(|cell| scene.row(cell, track)?.histogram.max_ns()).max()
        };
        let worst = scene.extremes_ns().map(|extremes| extremes.1);
        assert!(scene.tracks.iter().any(|track| max_ns(track) == worst));
        assert_eq!(scene.shown().len(), CELLS_SHOWN);
        assert!(scene.left_out().is_some_and(|text| text.contains("10 phases of 30")));
    }

    #[test]
    fn rest_is_grey_and_equal_loads_are_alike() {
        let record = fixture::small();
        let judgement = judge(&record, &[]);
        let inks: Vec<(usize, usize)> = Scene::new(&record, &judgement, None)
            .cells
            .iter()
            .map(|cell| (cell.ink, cell.twin))
            .collect();
        assert_eq!(inks, [(0, 0), (1, 0), (0, 1)]);
    }
}
