//! Comma-separated values (RFC 4180, lines end in a line feed): figures, buckets, slices.
//!
//! Times are in ns. What is not known is empty, never 0.

use std::fmt::Display;

use rtscope_model::{frames::Frames, verdict::Statistic};

use super::{Exported, Format, rows};
use crate::{
    judgement::{CellSummary, FigureRow},
    statistics::{frames, quantile},
};

pub(super) const FIGURES: Format = Format {
    name: "csv",
    what: "a line of figures for each thread of each cell",
    ending: "csv",
    write: |subject| Ok(figures(subject).into_bytes()),
};

pub(super) const HISTOGRAM: Format = Format {
    name: "csv-histogram",
    what: "a line for each bucket that holds a latency, by cell and thread",
    ending: "csv",
    write: |subject| Ok(histogram(subject).into_bytes()),
};

pub(super) const SLICES: Format = Format {
    name: "csv-slices",
    what: "a line for each slice (a second) of each thread: the course over time",
    ending: "csv",
    write: |subject| Ok(slices(subject).into_bytes()),
};

pub(super) const SAMPLES: Format = Format {
    name: "csv-samples",
    what: "a line for each wake-up of a run with --raw",
    ending: "csv",
    write: |subject| samples(subject).map(String::into_bytes),
};

/// A line of fields.
#[derive(Default)]
struct Line(String);

impl Line {
    fn with(mut self, value: impl Display) -> Line {
        let text = value.to_string();
        if !self.0.is_empty() {
            self.0.push(',');
        }
        match text.contains([',', '"', '\n', '\r']) {
            true => self.0 += &format!("\"{}\"", text.replace('"', "\"\"")),
            false => self.0 += &text,
        }
        self
    }

    fn with_known<T: Display>(self, value: Option<T>) -> Line {
        match value {
            Some(value) => self.with(value),
            None => self.with(""),
        }
    }

    fn end(self) -> String {
        self.0 + "\n"
    }
}

/// What tells a row: its cell, thread and CPU.
fn of_row(cell: &CellSummary, row: &FigureRow) -> Line {
    Line::default().with(&cell.name).with(&row.label).with_known(row.cpu)
}

/// The columns of what became of frames; they are empty of a sampler without frames.
fn frame_columns() -> String {
    frames::COUNTS.map(|key| format!(",frames_{key}")).concat()
}

fn with_frames(mut line: Line, found: Option<&Frames>) -> Line {
    let counts = found.map(frames::counts);
    for place in 0..frames::COUNTS.len() {
        line = line.with_known(counts.as_ref().map(|counts| counts[place].count));
    }
    line
}

fn figures(subject: &Exported<'_>) -> String {
    let quantiles = quantile::LADDER.map(|parts| format!("{}_ns", Statistic::Quantile(parts)));
    let mut text = format!(
        "cell,thread,cpu,planned,recorded,missed,overflow,early,exposure_ns,min_ns,mean_ns,{},max_ns,waited_at_least_ns{}\n",
        quantiles.join(","),
        frame_columns()
    );
    for cell in &subject.judgement.cells {
        for row in rows(cell) {
            let histogram = &row.histogram;
            let known = |count: u64| row.missed_is_known.then_some(count);
            let mut line = of_row(cell, row)
                .with_known(known(row.planned))
                .with(row.recorded)
                .with_known(known(row.missed))
                .with(histogram.overflow())
                .with(row.early)
                .with(row.exposure_ns)
                .with_known(histogram.min_ns())
                .with_known(histogram.mean_ns().map(|mean_ns| mean_ns.round() as u64));
            for parts in quantile::LADDER {
                let rank = quantile::rank(histogram.count(), parts);
                line = line.with_known(histogram.at_rank_ns(rank));
            }
            // The maximum is that of the latencies. An activation that was never answered has none.
            line = line.with_known(histogram.max_ns()).with_known(row.waited_ns());
            text += &with_frames(line, row.frames.as_ref()).end();
        }
    }
    text
}

fn histogram(subject: &Exported<'_>) -> String {
    let mut text = "cell,thread,cpu,from_ns,to_ns,count\n".to_owned();
    for cell in &subject.judgement.cells {
        for row in &cell.threads {
            let layout = row.histogram.layout();
            for (index, count) in row.histogram.bins() {
                let from_ns = layout.lower_ns(index);
                let to_ns = Some(layout.upper_ns(index)).filter(|ns| *ns < u64::MAX);
                let line = of_row(cell, row).with(from_ns).with_known(to_ns).with(count);
                text += &line.end();
            }
            // Counted by another tool, and in no bucket: from there on, anywhere up to the maximum.
            let unplaced = row.histogram.unplaced();
            if !unplaced.is_empty() {
                let line = of_row(cell, row).with(unplaced.from_ns);
                text += &line.with_known(row.histogram.max_ns()).with(unplaced.count).end();
            }
        }
    }
    text
}

fn slices(subject: &Exported<'_>) -> String {
    let heading = "cell,thread,cpu,start_ns,end_ns,planned,recorded,missed,min_ns,mean_ns,max_ns,max_at_ns,max_cpu";
    let mut text = format!("{heading}{}\n", frame_columns());
    for cell in &subject.judgement.cells {
        for slice in subject.record.slices_of(cell.cell) {
            let Some(row) = cell.threads.iter().find(|row| row.thread == Some(slice.thread)) else {
                continue;
            };
            let known = |count: u64| row.missed_is_known.then_some(count);
            let seen = |value: u64| (slice.recorded > 0).then_some(value);
            let line = of_row(cell, row)
                .with(slice.start_ns)
                .with(slice.end_ns)
                .with_known(known(slice.planned))
                .with(slice.recorded)
                .with_known(known(slice.missed))
                .with_known(seen(slice.min_ns))
                .with_known(seen(slice.sum_ns.checked_div(slice.recorded).unwrap_or(0)))
                .with_known(seen(slice.max_ns))
                .with_known(seen(slice.max_at_ns))
                .with_known(seen(u64::from(slice.max_cpu)));
            text += &with_frames(line, slice.frames.as_deref()).end();
        }
    }
    text
}

fn samples(subject: &Exported<'_>) -> Result<String, String> {
    let all = &subject.record.samples;
    if all.is_empty() {
        return Err(
            "the run kept no samples: measure with `rtscope run --raw` to keep them".to_owned()
        );
    }
    if all.iter().flat_map(|one| &one.spans).any(|span| span.count > 1) {
        let text = "there are more samples than fit one document: read raw/tN.bin, 16 bytes each (the format of the \
                    record describes them)";
        return Err(text.to_owned());
    }
    let mut text = "cell,thread,cpu,expiry_ns,latency_ns\n".to_owned();
    for cell in &subject.judgement.cells {
        let slices = || subject.record.slices_of(cell.cell);
        let start_ns = slices().map(|slice| slice.start_ns).min().unwrap_or(0);
        let end_ns = slices().map(|slice| slice.end_ns).max().unwrap_or(0);
        for row in &cell.threads {
            let of_row_s_thread = all.iter().filter(|one| row.thread == Some(one.thread));
            let within = of_row_s_thread
                .flat_map(|one| &one.spans)
                .filter(|span| (start_ns..end_ns).contains(&span.start_ns));
            for span in within {
                text += &of_row(cell, row).with(span.start_ns).with(span.max_ns).end();
            }
        }
    }
    Ok(text)
}
