//! The histograms of `rtla timerlat hist` and `rtla osnoise hist`.
//!
//! timerlat gives two or three latencies of one activation: of the interrupt, of the thread, and of
//! the return to user space. They are cells of their own, never one distribution. osnoise counts the
//! durations of interruptions: those are no wake-up latencies at all.

use std::collections::BTreeMap;

use rtscope_model::{finding::Weight, origin::Origin};

use super::{
    ImportOptions, ImportReading, Importer, Reader,
    cell::{ImportedCell, ImportedThread, Rows, Said},
    contradiction::Contradictions,
    lines::{Lines, without_colours},
    number::whole,
};

pub(super) const IMPORTER: Importer = Importer {
    name: "rtla",
    reads: "histograms of rtla timerlat and osnoise",
    is: |beginning| {
        beginning.any(|line| {
            line.starts_with("# RTLA ") || line.strip_prefix("Index").is_some_and(is_head)
        })
    },
    open: |options| {
        let table = Table { options: options.clone(), ..Table::default() };
        Box::new(Text { lines: Lines::default(), tables: vec![table] })
    },
};

/// Columns that are told apart: three for each of 512 CPUs.
const COLUMNS_MAX: usize = 3 * 512;

/// Tables of one file.
const TABLES_MAX: usize = 64;

/// Whether the rest of a heading names columns of rtla.
fn is_head(rest: &str) -> bool {
    !rest.trim().is_empty() && rest.split_ascii_whitespace().all(|word| column(word).is_some())
}

/// `Thr-003` is the latency of the thread on CPU 3.
fn column(word: &str) -> Option<(&'static str, u32)> {
    let (word, cpu) = word.split_once('-')?;
    Some((kind(word)?, cpu.parse().ok()?))
}

fn kind(word: &str) -> Option<&'static str> {
    Some(match word {
        "IRQ" => "IRQ",
        "Thr" => "thread",
        "Usr" => "return to user space",
        "CPU" => "noise",
        _ => return None,
    })
}

struct Text {
    lines: Lines,
    tables: Vec<Table>,
}

/// A word of a summary.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Number(u64),
    /// `-`: there is no latency.
    Nothing,
    /// With decimals, as osnoise's averages have them, or damaged.
    Other,
}

impl Figure {
    fn parse(word: &str) -> Figure {
        match whole(word.as_bytes()) {
            Some(number) => Figure::Number(number),
            None if word == "-" => Figure::Nothing,
            None => Figure::Other,
        }
    }

    fn number(self) -> Option<u64> {
        if let Figure::Number(number) = self { Some(number) } else { None }
    }
}

/// One run.
#[derive(Clone, Debug, Default)]
struct Table {
    options: ImportOptions,
    tool: String,
    /// Units that the file names, in ns; none for one that isn't known.
    units: Vec<Option<u64>>,
    duration_ns: Option<u64>,
    columns: Vec<(&'static str, u32)>,
    rows: Rows,
    summary: BTreeMap<&'static str, Vec<Figure>>,
    /// The figures of all CPUs follow, which are sums of those above.
    over: bool,
    /// Their columns.
    all: Vec<&'static str>,
    of_all: BTreeMap<&'static str, Vec<Figure>>,
    /// Lines of a summary that came a second time.
    repeated: u64,
    foreign: u64,
    widths: u64,
    missed_events: Option<String>,
    /// It stopped at a latency above its threshold.
    is_stopped: bool,
    /// What it says of that latency follows, up to the end.
    analyses: bool,
}

impl Reader for Text {
    fn feed(&mut self, bytes: &[u8]) {
        self.lines.feed(&mut self.tables, bytes, |_, _| 0, line);
    }

    fn finish(mut self: Box<Self>) -> ImportReading {
        let is_cut = self.lines.last().is_some_and(|last| {
            line(&mut self.tables, &last);
            true
        });
        let mut reading = ImportReading::default();
        let many = self.tables.iter().filter(|table| !table.columns.is_empty()).count();
        if many > 1 {
            let text = format!("the file holds {many} histograms: each becomes separate cells");
            reading.note("import-several-runs", Weight::Note, text);
        }
        for (n, table) in self.tables.into_iter().enumerate() {
            let run = if many > 1 { format!("run {} ", n + 1) } else { String::new() };
            table.cells(&run, is_cut, &mut reading);
        }
        reading
    }
}

/// The rows of a summary.
const SUMMARY: [&str; 5] = ["over:", "count:", "min:", "avg:", "max:"];

fn line(tables: &mut Vec<Table>, line: &[u8]) {
    let line = without_colours(line);
    let text = String::from_utf8_lossy(&line);
    let text = text.trim();
    let begins = text.starts_with("# RTLA ");
    let is_used = tables.last().is_some_and(|table| !table.columns.is_empty());
    if begins && is_used && tables.len() < TABLES_MAX {
        let options = tables[0].options.clone();
        tables.push(Table { options, ..Table::default() });
    }
    if let Some(table) = tables.last_mut() {
        table.line(text);
    }
}

impl Table {
    fn line(&mut self, text: &str) {
        if let Some(rest) = text.strip_prefix("# RTLA ") {
            self.tool =
                rest.split_whitespace().next().unwrap_or_default().chars().take(24).collect();
        } else if let Some(unit) = text.strip_prefix("# Time unit is ") {
            let unit_ns = unit_ns(unit);
            if !self.units.contains(&unit_ns) {
                self.units.push(unit_ns);
            }
        } else if let Some(rest) = text.strip_prefix("# Duration:") {
            self.duration_ns = duration_ns(rest);
        } else if let Some(rest) = text.strip_prefix("Index") {
            if self.columns.is_empty() {
                let words = rest.split_ascii_whitespace().take(COLUMNS_MAX);
                self.columns = words.filter_map(column).collect();
            }
        } else if let Some(rest) = text.strip_prefix("ALL:") {
            self.over = true;
            self.all = rest.split_ascii_whitespace().take(3).filter_map(kind).collect();
        } else if let Some((key, rest)) =
            SUMMARY.iter().find_map(|key| Some((*key, text.strip_prefix(key)?)))
        {
            let words = rest.split_ascii_whitespace().take(COLUMNS_MAX);
            let figures: Vec<Figure> = words.map(Figure::parse).collect();
            let summary = if self.over { &mut self.of_all } else { &mut self.summary };
            self.repeated += u64::from(summary.contains_key(key));
            summary.entry(key).or_insert(figures);
        } else if text.contains("hit stop tracing") {
            // A sentence of its own, or the heading of an analysis.
            self.is_stopped = true;
            self.analyses |= text.starts_with("##");
        } else if text.starts_with("Saving trace to ") || self.analyses {
        } else if text.contains("missed") && text.contains("event") {
            self.missed_events = Some(text.chars().take(200).collect());
        } else if text.starts_with(|c: char| c.is_ascii_digit()) && !self.over {
            let numbers: Option<Vec<u64>> = text
                .split_ascii_whitespace()
                .take(COLUMNS_MAX + 1)
                .map(|word| whole(word.as_bytes()))
                .collect();
            match numbers.as_deref() {
                Some([index, counts @ ..]) if counts.len() == self.columns.len() => {
                    self.rows.add(*index, counts);
                }
                Some(_) => self.widths += 1,
                None => self.foreign += 1,
            }
        } else if !text.is_empty() && !text.starts_with('#') {
            self.foreign += 1;
        }
    }

    fn of_thread(&self, column: usize) -> Said {
        let of = |key: &str| self.summary.get(key).and_then(|of| of.get(column))?.number();
        let is_osnoise = self.tool == "osnoise";
        Said {
            count: of("count:"),
            min: of("min:"),
            max: of("max:"),
            // The mean of osnoise is that of kinds of durations in old versions, not of durations.
            mean: of("avg:").filter(|_| !is_osnoise).map(|mean| mean as f64),
            overflow: of("over:"),
            ..Said::default()
        }
    }

    /// Whether the summary says that no CPU had any latency.
    fn is_quiet(&self) -> bool {
        (0..self.columns.len()).all(|column| self.of_thread(column).count == Some(0))
    }

    /// Whether a maximum lies behind its last row, or a minimum behind its first: then buckets are wider than
    /// a unit.
    fn has_wide_buckets(&self) -> bool {
        let is_behind = |column: usize| {
            let (said, rows) = (self.of_thread(column), self.rows.counts(column)?);
            let (first, last) = (rows.keys().next()?, rows.keys().next_back()?);
            let max = said.max.filter(|_| said.overflow == Some(0));
            Some(max.is_some_and(|max| max > *last) || said.min.is_some_and(|min| min > *first))
        };
        (0..self.columns.len()).any(|column| is_behind(column) == Some(true))
    }

    /// Figures that can't be read, and lines of the summary with more or fewer figures than columns.
    fn unreadable(&self) -> u64 {
        let is_damaged = |(key, figures): (&&'static str, &Vec<Figure>)| {
            let is_mean_of_noise = *key == "avg:" && self.tool == "osnoise";
            let is_whole = figures.iter().enumerate().all(|(column, figure)| match figure {
                Figure::Number(_) => true,
                Figure::Nothing => self.of_thread(column).count == Some(0),
                Figure::Other => is_mean_of_noise,
            });
            figures.len() != self.columns.len() || !is_whole
        };
        self.summary.iter().filter(|line| is_damaged(*line)).count() as u64
    }

    /// Holds the rows, the summary and the figures of all CPUs against each other.
    fn contradictions(&self) -> Contradictions {
        let mut found = Contradictions::default();
        let label = |column: usize| {
            let (kind, cpu) = self.columns[column];
            format!("CPU {cpu} ({kind})")
        };
        for column in 0..self.columns.len() {
            if self.columns[..column].contains(&self.columns[column]) {
                found.add(format!("{} has two columns", label(column)));
            }
            if self.summary.contains_key("max:") {
                found.of_rows(&label(column), &self.rows, column, &self.of_thread(column));
            }
        }
        found.units(self.units.iter().copied().flatten().chain(self.options.unit_ns));
        if self.repeated > 0 {
            found.add(format!("{} lines of a summary are repeated", self.repeated));
        }
        for (at, kind) in self.all.iter().enumerate() {
            let of_all = |key: &str| self.of_all.get(key).and_then(|of| of.get(at))?.number();
            let columns = (0..self.columns.len()).filter(|column| self.columns[*column].0 == *kind);
            let said: Vec<Said> = columns.map(|column| self.of_thread(column)).collect();
            let count = said.iter().filter_map(|said| said.count).fold(0, u64::saturating_add);
            let is_counted = |said: &&Said| said.count != Some(0);
            let min = said.iter().filter(is_counted).filter_map(|said| said.min).min();
            let max = said.iter().filter(is_counted).filter_map(|said| said.max).max();
            for (key, of_cpus) in [("count:", Some(count)), ("min:", min), ("max:", max)] {
                if let (Some(all), Some(of_cpus)) = (of_all(key), of_cpus)
                    && all != of_cpus
                {
                    found.add(format!(
                        "of all CPUs ({kind}) '{key}' is {all}, and {of_cpus} by the columns of the CPUs"
                    ));
                }
            }
        }
        found
    }

    fn cells(mut self, run: &str, is_cut: bool, reading: &mut ImportReading) {
        if self.columns.is_empty() {
            return;
        }
        // Of several units the widest is taken, so that no latency becomes shorter than it was.
        let named_ns = self.units.iter().copied().flatten().max();
        let unit_ns = self.options.unit_ns.or(named_ns).unwrap_or(1_000);
        self.rows.is_wide = self.has_wide_buckets();
        let mut cells: Vec<ImportedCell> = Vec::new();
        let mut beyond = 0u64;
        for (at, &(kind, cpu)) in self.columns.iter().enumerate() {
            let said = self.of_thread(at);
            let part = self.rows.part(at, unit_ns, &said);
            beyond = beyond.saturating_add(self.rows.beyond(at, &said));
            let thread = ImportedThread {
                label: format!("CPU {cpu}"),
                cpu: Some(cpu),
                interval_ns: self.options.interval_ns,
                duration_ns: self.duration_ns,
                parts: part.known(&said),
                ..ImportedThread::default()
            };
            let name = format!("{run}{kind}");
            let known = cells.iter_mut().find(|cell| cell.name == name);
            match known {
                Some(cell) => cell.threads.push(thread),
                None => cells.push(ImportedCell {
                    name,
                    layout: self.rows.layout(unit_ns),
                    threads: vec![thread],
                    origin: Origin { grain_ns: unit_ns, ..self.origin() },
                    ran_ns: self.duration_ns.filter(|_| kind != "noise"),
                    is_quiet: kind == "noise" && self.is_quiet(),
                    is_one_run: kind != "noise",
                }),
            }
        }
        self.contradictions().add_findings(reading);
        self.add_findings(is_cut, beyond, unit_ns, reading);
        reading.cells.extend(cells);
    }

    fn origin(&self) -> Origin {
        let tool = if self.tool.is_empty() { "timerlat" } else { &self.tool };
        Origin { tool: format!("rtla {tool}"), form: "histogram".to_owned(), ..Origin::default() }
    }

    fn add_findings(&self, is_cut: bool, beyond: u64, unit_ns: u64, reading: &mut ImportReading) {
        if self.columns.iter().any(|column| column.0 == "noise") {
            let text = "osnoise counts how long each interruption of a busy thread took: these are \
                        not wake-up latencies, and can't be compared with them";
            reading.note("import-not-latency", Weight::PreventsPass, text);
        }
        if !self.summary.contains_key("max:") || is_cut && !self.over {
            let text = "the histogram has no summary after it: it was cut off, or written without \
                        one, and latencies beyond it are perhaps not known";
            reading.note("import-truncated", Weight::PreventsPass, text);
        }
        if self.is_stopped {
            let text =
                "rtla stopped at a latency above its threshold: what came after was not measured";
            reading.note("break-hit", Weight::PreventsPass, text);
        }
        if self.is_quiet() && self.columns.iter().all(|column| column.0 == "noise") {
            let text = "no CPU had noise: nothing interrupted the busy threads for as long as the threshold";
            reading.note("import-no-noise", Weight::Note, text);
        }
        if beyond > 0 {
            let text = format!(
                "{beyond} latencies lie beyond the histogram: each is known to be at \
                 least {} us, and only the maximum of each CPU is known exactly",
                (self.rows.last + 1).saturating_mul(unit_ns) / 1_000
            );
            reading.note("import-overflow", Weight::Warning, text).advice =
                "run rtla with more entries, for example -E 1000".to_owned();
        }
        if self.units.contains(&None) && self.options.unit_ns.is_none() {
            let text = "the file names a time unit that rtla doesn't have: how long its latencies are is not known";
            reading.note("import-unit", Weight::PreventsPass, text).advice =
                "name the unit with --unit us or --unit ns".to_owned();
        }
        if self.rows.bucket_width() > 1 {
            let text = format!(
                "the rows are {} units apart: rtscope takes this as the width of a bucket",
                self.rows.bucket_width()
            );
            reading.note("import-buckets", Weight::Note, text);
        }
        if let Some(text) = &self.missed_events {
            let text = format!("rtla says: {text}");
            reading.note("import-samples-missing", Weight::PreventsPass, text);
        }
        let rows = &self.rows;
        let damage = self.foreign + self.widths + rows.absurd + rows.disordered + rows.repeated;
        let damage = damage + self.unreadable();
        if damage > 0 {
            let text = format!(
                "{damage} lines are not from rtla, can't be read, are repeated, are out of order or have another width"
            );
            reading.note("import-damaged", Weight::PreventsPass, text);
        }
    }
}

/// The length of a time unit in ns, as rtla names it.
fn unit_ns(name: &str) -> Option<u64> {
    match name.trim() {
        "nanoseconds (ns)" => Some(1),
        "microseconds (us)" => Some(1_000),
        "milliseconds (ms)" => Some(1_000_000),
        _ => None,
    }
}

/// `  0 00:01:00` is days, hours, minutes, seconds.
fn duration_ns(text: &str) -> Option<u64> {
    let (days, clock) = text.trim().split_once(' ')?;
    let days: u64 = days.parse().ok().filter(|days| *days < 100_000)?;
    let parts: Vec<u64> =
        clock.trim().split(':').take(4).map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let &[hours, minutes, seconds] = parts.as_slice() else { return None };
    let is_clock = hours < 24 && minutes < 60 && seconds < 60;
    let all = is_clock.then(|| days * 86_400 + hours * 3_600 + minutes * 60 + seconds)?;
    all.checked_mul(1_000_000_000).filter(|ns| *ns > 0)
}
