//! LinuxCNC's `latency-histogram --nox`: for each thread and second the extremes so far, as
//! `   12 s  servo min: -11.200 us max: 14.300 us sdev: 1.000 us`.
//!
//! What it measures is not a wake-up latency: it is how far the time between two wake-ups is from
//! the period. A wake-up that is late by e gives +e and, with the next one, -e.

use std::collections::BTreeMap;

use rtscope_model::{
    finding::Weight,
    histogram::{Layout, Unplaced},
    origin::Origin,
};

use super::{
    ImportOptions, ImportReading, Importer, Reader,
    cell::{ImportedCell, ImportedThread, LATENCY_NS_MAX, Part},
    contradiction::Contradictions,
    lines::{Lines, without_colours},
};

pub(super) const IMPORTER: Importer = Importer {
    name: "linuxcnc",
    reads: "the text of LinuxCNC's latency-histogram --nox",
    is: |beginning| beginning.any(|line| figures(line).is_some()),
    open: |options| Box::new(Text { options: options.clone(), ..Text::default() }),
};

/// Threads of LinuxCNC; it has two.
const THREADS_MAX: usize = 16;

#[derive(Default)]
struct Text {
    lines: Lines,
    options: ImportOptions,
    state: State,
}

#[derive(Default)]
struct State {
    threads: BTreeMap<String, Figures>,
    foreign: u64,
    restarts: u64,
    /// Lines whose minimum is above their maximum.
    crossed: u64,
}

/// What a line says, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    elapsed_s: u64,
    low_ns: u64,
    high_ns: u64,
    /// The minimum is above the maximum.
    is_crossed: bool,
}

impl Reader for Text {
    fn feed(&mut self, bytes: &[u8]) {
        self.lines.feed(&mut self.state, bytes, |_, _| 0, State::line);
    }

    fn finish(mut self: Box<Self>) -> ImportReading {
        if let Some(line) = self.lines.last() {
            self.state.line(&line);
        }
        let mut reading = ImportReading::default();
        let text = "LinuxCNC measures how far the time between two wake-ups is from the period, in \
                    both directions: a late wake-up counts twice, and the figures can't be compared \
                    with wake-up latencies";
        reading.note("import-not-latency", Weight::PreventsPass, text);
        let text = "the file holds the two extremes of each thread, without their signs here, and \
                    no histogram: the number of wake-ups is not known and is shown as 2";
        reading.note("import-no-histogram", Weight::PreventsPass, text);
        if self.state.restarts > 0 {
            let text = format!(
                "the extremes start over {} times: the file holds several runs, and the largest \
                 extremes of all runs are shown",
                self.state.restarts
            );
            reading.note("import-several-runs", Weight::Warning, text);
        }
        let mut found = Contradictions::default();
        if self.state.crossed > 0 {
            found.add(format!("{} lines have a minimum above their maximum", self.state.crossed));
        }
        found.add_findings(&mut reading);
        if self.state.foreign > 0 {
            let text = format!("{} lines are not from LinuxCNC", self.state.foreign);
            reading.note("import-damaged", Weight::Note, text);
        }
        let thread = |(name, figures): (&String, &Figures)| {
            let (min_ns, max_ns) =
                (figures.low_ns.min(figures.high_ns), figures.low_ns.max(figures.high_ns));
            let part = Part {
                end: 2,
                count: 2,
                min_ns,
                max_ns,
                sum_ns: min_ns + max_ns,
                unplaced: Unplaced { count: 2, from_ns: min_ns },
                ..Part::default()
            };
            ImportedThread {
                label: format!("{name} thread"),
                interval_ns: self.options.interval_ns,
                duration_ns: Some(figures.elapsed_s.saturating_mul(1_000_000_000)),
                parts: vec![part],
                ..ImportedThread::default()
            }
        };
        reading.cells.push(ImportedCell {
            layout: Layout { unit_ns: 1, exact: 1_000 },
            threads: self.state.threads.iter().map(thread).collect(),
            origin: Origin {
                tool: "LinuxCNC".to_owned(),
                form: "extremes of latency-histogram".to_owned(),
                ..Origin::default()
            },
            ..ImportedCell::default()
        });
        reading
    }
}

impl State {
    fn line(&mut self, line: &[u8]) {
        let line = without_colours(line);
        let text = String::from_utf8_lossy(&line);
        let Some((name, new)) = figures(text.trim()) else {
            self.foreign += u64::from(!text.trim().is_empty());
            return;
        };
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(name) {
            self.foreign += 1;
            return;
        }
        let known = self.threads.entry(name.to_owned()).or_insert(new);
        self.crossed += u64::from(new.is_crossed);
        self.restarts += u64::from(new.elapsed_s < known.elapsed_s);
        known.elapsed_s = known.elapsed_s.max(new.elapsed_s);
        known.low_ns = known.low_ns.max(new.low_ns);
        known.high_ns = known.high_ns.max(new.high_ns);
    }
}

/// Name of the thread and figures of a line.
fn figures(line: &str) -> Option<(&str, Figures)> {
    // Older versions write `secs` and `uS`.
    let (elapsed, rest) = line.split_once(" s ").or_else(|| line.split_once(" secs "))?;
    let (name, rest) = rest.trim_start().split_once("min:")?;
    let unit = if rest.contains("uS") { "uS" } else { "us" };
    let (min, rest) = rest.split_once(unit)?;
    let max = rest.trim_start().strip_prefix("max:")?.split(unit).next()?;
    let us = |text: &str| text.trim().parse::<f64>().ok();
    let (min_us, max_us) = (us(min)?, us(max)?);
    let ns = |us: f64| {
        let ns = (us.abs() * 1_000.0).round();
        (ns <= LATENCY_NS_MAX as f64).then_some(ns as u64)
    };
    let name = name.trim();
    let is_name = !name.is_empty() && name.len() <= 32 && !name.contains(char::is_whitespace);
    let elapsed_s: u64 = elapsed.trim().parse().ok().filter(|s| *s < 1_000_000_000)?;
    let (low_ns, high_ns, is_crossed) = (ns(min_us)?, ns(max_us)?, min_us > max_us);
    is_name.then_some((name, Figures { elapsed_s, low_ns, high_ns, is_crossed }))
}
