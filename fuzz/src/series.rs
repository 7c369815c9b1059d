//! Several measurements at once: compared, and as a series over months.

use rtscope_analyse::{
    compare::ComparedRun,
    judge,
    plot::{
        PlotOptions,
        trend::{self, TrendPoint},
    },
};
use rtscope_model::{record::Record, verdict::Statistic};

use super::{Stages, files, imported, pipe};

/// What stands between two measurements of an input.
const BETWEEN: &str = "\n====\n";

/// Reads bytes as measurements one after the other, each a record or a file of another tool. The first is
/// compared with the others, and all together are a series whose changes are looked for and drawn.
///
/// # Panics
///
/// When a stage fails.
pub fn series(bytes: &[u8], stages: Stages) {
    let text = String::from_utf8_lossy(bytes);
    let read = |part: &str| {
        let record = Record::read(&files(part.as_bytes())).ok();
        record.or_else(|| imported(None, part.as_bytes()))
    };
    let records: Vec<Record> = text.split(BETWEEN).take(4).filter_map(read).collect();
    let judgements: Vec<_> = records.iter().map(|record| judge(record, &[])).collect();
    let run = |(record, judgement)| ComparedRun { name: "a", record, judgement, cell: None };
    let runs: Vec<ComparedRun<'_>> = records.iter().zip(&judgements).map(run).collect();
    if runs.len() < 2 {
        return;
    }
    let choice = pipe::number_of(bytes);
    if stages.is_all() || choice.is_multiple_of(32) {
        pipe::compare(&runs[..1], &runs[1..]);
    }
    if stages.is_all() || choice % 32 == 1 {
        draw(&runs, choice);
    }
}

/// A series in which each run comes several times, so that there are enough to look for changes.
fn draw(runs: &[ComparedRun<'_>], choice: u64) {
    let cells = runs.iter().flat_map(|run| &run.judgement.cells);
    let points = cells.filter_map(|cell| {
        let histogram = cell.all.histogram.clone();
        Some(TrendPoint {
            at_s: 1_700_000_000,
            day: "2025-01-02".to_owned(),
            on: cell.name.clone(),
            value_ns: histogram.max_ns()?,
            is_lower_end: cell.all.max_is_at_least(),
            histogram,
        })
    });
    let mut points: Vec<TrendPoint> = points.take(6).flat_map(|point| vec![point; 6]).collect();
    // Runs that began in the same second are one case, those that are a long time apart the other.
    let step_s = if choice >> 8 & 1 == 0 { 0 } else { 1 << (choice >> 9 & 31) };
    for (point, n) in points.iter_mut().zip(0i64..) {
        point.at_s += n * step_s;
    }
    let options = PlotOptions { width: 1_000, ..PlotOptions::default() };
    for statistic in [Statistic::Max, Statistic::Mean] {
        let found = trend::changes(&points, statistic);
        pipe::check_svg(&trend::draw(&points, "max of a", &found, &options));
    }
    pipe::check_svg(&trend::surface(&points, "a", &options));
}
