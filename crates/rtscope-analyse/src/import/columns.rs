//! Plain columns: a latency and how often each thread had it, line by line; or one latency a line.
//!
//! OSADL's histogram files are the first kind, a column for each core. `sort -n | uniq -c` writes the
//! count first: that is noticed by the latencies, which ascend.

use rtscope_model::{finding::Weight, histogram::Layout, origin::Origin};

use super::{
    ImportOptions, ImportReading, Importer, Reader,
    cell::{ImportedCell, ImportedThread, LATENCY_NS_MAX, Rows, Said},
    contradiction::Contradictions,
    detect::Beginning,
    lines::{Lines, without_colours},
    number::{Printed, latency, whole},
    samples::Samples,
};

pub(super) const OSADL: Importer = Importer {
    name: "osadl",
    reads: "OSADL histogram files: a latency in us and a count for each core",
    is: |beginning| {
        let rows = || beginning.lines.iter().filter(|line| !line.starts_with('#'));
        let is_row = |line: &str| {
            let mut words = split_words(line.as_bytes());
            let index = words.next().unwrap_or_default();
            index.len() == 6 && whole(index).is_some() && words.next().is_some_and(|w| w.len() >= 6)
        };
        rows().count() > 0 && rows().take(20).all(|line| is_row(line))
    },
    open: |options| Box::new(Columns::new(options, "CPU", "OSADL histogram file")),
};

pub(super) const COLUMNS: Importer = Importer {
    name: "columns",
    reads: "plain columns: a latency and counts, or one latency a line",
    is: |beginning| {
        let mut rows = beginning.lines.iter().filter(|line| !line.starts_with('#'));
        // The first may be a heading.
        let all = |line: &str| split_words(line.as_bytes()).all(|word| decimal(word).is_some());
        let is_heading = rows.clone().next().is_some_and(|line| !all(line));
        let rows: Vec<_> = rows.by_ref().skip(usize::from(is_heading)).take(20).collect();
        !rows.is_empty() && rows.iter().all(|line| all(line)) && question(beginning).is_none()
    },
    open: |options| Box::new(Columns::new(options, "column", "plain columns")),
};

/// What to ask of a table whose columns nothing explains: a latency and counts may stand there, or times and
/// latencies, or figures of something else.
pub(super) fn question(beginning: &Beginning<'_>) -> Option<String> {
    let mut rows = beginning.lines.iter().filter(|line| !line.starts_with('#'));
    let of = |line: &str| -> Vec<String> {
        split_words(line.as_bytes())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    };
    let is_number = |word: &String| decimal(word.as_bytes()).is_some();
    let first = of(rows.next()?);
    let has_heading = !first.iter().all(is_number);
    let row = if has_heading { of(rows.next()?) } else { first.clone() };
    let is_table = row.len() > 1 && row.iter().filter(|word| is_number(word)).count() > 1;
    let is_explained = match has_heading {
        // One latency and how often it came, in either order.
        false => row.len() == 2,
        true => is_latency(&first[0]) && first[1..].iter().all(|name| !is_measure(name)),
    };
    // Words that differ in number are a sentence above the table, or no table.
    if !is_table || is_explained || first.len() != row.len() {
        return None;
    }
    let names: Vec<&str> = first.iter().take(6).map(String::as_str).collect();
    let heading = if has_heading { format!(" ({})", names.join(", ")) } else { String::new() };
    Some(format!(
        "nothing explains its {} columns{heading}, so rtscope doesn't guess which one is a latency. If the first \
         is a latency and the others count it, add --format columns. If one of them has a latency in each line, \
         import that column alone, for example: cut -d, -f2 FILE | rtscope import - --unit us",
        row.len()
    ))
}

/// Whether the name of a column is that of a latency.
fn is_latency(name: &str) -> bool {
    let name = name.trim_matches(['"', '\'']).to_lowercase();
    let is_time = ["time", "date", "stamp", "elapsed"].iter().any(|word| name.contains(word));
    let is_class =
        ["lat", "bucket", "bin", "class", "index"].iter().any(|word| name.starts_with(word));
    !is_time && (is_class || name.contains("latenc") || unit_ns(&name).is_some())
}

/// Whether the name of a column is that of something that isn't counted.
fn is_measure(name: &str) -> bool {
    let name = name.trim_matches(['"', '\'']).to_lowercase();
    let measures = ["time", "date", "stamp", "lat", "min", "max", "avg", "mean", "temp", "freq"];
    measures.iter().any(|word| name.starts_with(word)) || unit_ns(&name).is_some()
}

/// Columns that are told apart.
const COLUMNS_MAX: usize = 512;

struct Columns {
    lines: Lines,
    table: Table,
    label: &'static str,
    tool: &'static str,
}

struct Table {
    options: ImportOptions,
    layout: Layout,
    rows: Rows,
    /// The same of two columns the other way round: the count first.
    turned: Rows,
    single: Option<Samples>,
    heading: Vec<String>,
    /// The unit that the heading names, in ns.
    named_ns: Option<u64>,
    foreign: u64,
    negative: u64,
    fractions: u64,
}

impl Columns {
    fn new(options: &ImportOptions, label: &'static str, tool: &'static str) -> Columns {
        let table = Table {
            options: options.clone(),
            layout: layout(options.unit_ns.unwrap_or(1_000)),
            rows: Rows::default(),
            turned: Rows::default(),
            single: None,
            heading: Vec::new(),
            named_ns: None,
            foreign: 0,
            negative: 0,
            fractions: 0,
        };
        Columns { lines: Lines::default(), table, label, tool }
    }
}

fn layout(unit_ns: u64) -> Layout {
    Layout { unit_ns, exact: if unit_ns == 1_000 { 10_000 } else { 100_000 } }
}

/// The unit that a heading ends in, in ns: `latency_ns`, `latency(us)`, `ms`.
fn unit_ns(heading: &str) -> Option<u64> {
    let word = heading.trim_matches(['"', '\'', ')', ']']).to_ascii_lowercase();
    match word.rsplit(['_', '-', '(', '[', '/', '.']).next()? {
        "ns" => Some(1),
        "us" | "µs" | "μs" => Some(1_000),
        "ms" => Some(1_000_000),
        _ => None,
    }
}

fn split_words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b';');
    line.split(is_between).filter(|word| !word.is_empty())
}

/// A number that may have decimals, cut to a whole one; whether it had any.
fn decimal(word: &[u8]) -> Option<(Printed, bool)> {
    match word.iter().position(|&byte| byte == b'.') {
        None => Some((latency(word)?, false)),
        Some(at) => {
            let decimals = &word[at + 1..];
            let is_number = decimals.iter().all(u8::is_ascii_digit) && decimals.len() <= 20;
            let has_any = decimals.iter().any(|&digit| digit != b'0');
            is_number.then_some((latency(&word[..at])?, has_any))
        }
    }
}

impl Reader for Columns {
    fn feed(&mut self, bytes: &[u8]) {
        self.lines.feed(&mut self.table, bytes, |_, _| 0, Table::line);
    }

    fn finish(mut self: Box<Self>) -> ImportReading {
        if let Some(line) = self.lines.last() {
            self.table.line(&line);
        }
        self.table.finish(self.label, self.tool, self.lines.overlong)
    }
}

impl Table {
    fn line(&mut self, line: &[u8]) {
        let line = without_colours(line);
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") || line.starts_with(b"%") {
            return;
        }
        let numbers: Option<Vec<(Printed, bool)>> =
            split_words(line).take(COLUMNS_MAX + 1).map(decimal).collect();
        match numbers.as_deref() {
            Some([(value, is_cut)]) => {
                self.fractions += u64::from(*is_cut);
                self.sample(*value);
            }
            Some([(Printed::Late(index), is_cut), counts @ ..]) => {
                self.fractions += u64::from(*is_cut);
                let count = |&(count, _): &(Printed, bool)| match count {
                    Printed::Late(count) => count,
                    Printed::Early => 0,
                };
                self.negative +=
                    counts.iter().filter(|(count, _)| *count == Printed::Early).count() as u64;
                let counts: Vec<u64> = counts.iter().map(count).collect();
                self.rows.add(*index, &counts);
                if let [count] = counts.as_slice() {
                    self.turned.add(*count, &[*index]);
                }
            }
            Some(_) => self.negative += 1,
            None if self.heading.is_empty() && self.rows.rows == 0 && self.single.is_none() => {
                let words = split_words(line).take(COLUMNS_MAX + 1);
                self.heading = words
                    .map(|word| String::from_utf8_lossy(word).chars().take(40).collect())
                    .collect();
                self.named_ns = self.heading.iter().find_map(|word| unit_ns(word));
                if self.options.unit_ns.is_none() {
                    self.layout = layout(self.named_ns.unwrap_or(1_000));
                }
            }
            None => self.foreign += 1,
        }
    }

    fn sample(&mut self, value: Printed) {
        let layout = self.layout;
        let samples = self.single.get_or_insert_with(|| Samples::new(layout, 0));
        let cycle = samples.next();
        match value {
            Printed::Late(value) if value > LATENCY_NS_MAX / layout.unit_ns => samples.absurd += 1,
            Printed::Late(value) => samples.add(cycle, value),
            Printed::Early => samples.add_printed(cycle, value),
        }
    }

    fn finish(mut self, label: &str, tool: &str, overlong: u64) -> ImportReading {
        let mut reading = ImportReading::default();
        let is_single = self.single.is_some() && self.rows.rows == 0;
        let absurd = self.single.as_ref().map_or(0, |samples| samples.absurd);
        let single = self.single.take().map(Samples::finish).unwrap_or_default();
        let mut mixed = 0;
        if !is_single {
            mixed = single.iter().map(|part| part.count).sum();
            let is_turned = self.rows.disordered > 0
                && self.turned.disordered == 0
                && self.turned.rows == self.rows.rows;
            if is_turned {
                self.rows = std::mem::take(&mut self.turned);
                let text = "the second column ascends and the first does not: the first is taken \
                            for counts";
                reading.note("import-columns", Weight::Note, text);
            }
        }
        self.add_findings(&mut reading, is_single, absurd, self.foreign + mixed + overlong);
        let unit_ns = self.layout.unit_ns;
        let thread = |index: usize| {
            let part = self.rows.part(index, unit_ns, &Said::default());
            let named = self.heading.get(index + 1).filter(|name| !name.is_empty());
            ImportedThread {
                label: named.cloned().unwrap_or_else(|| format!("{label} {index}")),
                cpu: (label == "CPU").then_some(index as u32),
                interval_ns: self.options.interval_ns,
                parts: if part.count > 0 { vec![part] } else { Vec::new() },
                ..ImportedThread::default()
            }
        };
        let threads = match is_single {
            true => vec![ImportedThread {
                label: "latencies".to_owned(),
                interval_ns: self.options.interval_ns,
                parts: single,
                ..ImportedThread::default()
            }],
            false => (0..self.rows.width()).map(thread).collect(),
        };
        let origin = Origin {
            tool: tool.to_owned(),
            form: if is_single { "one latency a line" } else { "histogram" }.to_owned(),
            is_in_order: is_single,
            ..Origin::default()
        };
        let layout = if is_single { self.layout } else { self.rows.layout(unit_ns) };
        // Plain columns may be of several runs.
        let is_one_run = label == "CPU";
        let cell = ImportedCell { layout, threads, origin, is_one_run, ..ImportedCell::default() };
        if cell.count() == 0 {
            // A file that holds no latency isn't a damaged one of this format.
            reading.findings.retain(|finding| finding.code != "import-damaged");
        }
        reading.cells.push(cell);
        reading
    }

    fn add_findings(
        &self,
        reading: &mut ImportReading,
        is_single: bool,
        absurd: u64,
        foreign: u64,
    ) {
        let mut found = Contradictions::default();
        found.units(self.named_ns.into_iter().chain(self.options.unit_ns));
        found.add_findings(reading);
        if self.options.unit_ns.or(self.named_ns).is_none() {
            let text = "the columns don't name their unit: rtscope assumes microseconds";
            reading.note("import-unit", Weight::Warning, text).advice =
                "name it with --unit us or --unit ns".to_owned();
        }
        if !is_single && self.rows.rows > 0 {
            let text = "the columns don't say whether latencies lay beyond the histogram: minimum \
                        and maximum are those of its rows";
            reading.note("import-overflow-unknown", Weight::PreventsPass, text);
        }
        if self.fractions > 0 {
            let text = format!(
                "{} latencies have decimals, which were cut off: give them in a smaller unit",
                self.fractions
            );
            reading.note("import-fractions", Weight::Warning, text);
        }
        if self.rows.disordered > 0 && !is_single {
            let text = format!(
                "the latency goes down {} times: perhaps the file holds several runs, which are \
                 added together",
                self.rows.disordered
            );
            reading.note("import-several-runs", Weight::PreventsPass, text).advice =
                "import each run from a file of its own".to_owned();
        }
        // What has decimals may be of several rows and is cut to one.
        let repeated = if self.fractions > 0 { 0 } else { self.rows.repeated };
        let damage =
            foreign + self.negative + absurd + self.rows.absurd + self.rows.short + repeated;
        if damage > 0 {
            let text = format!(
                "{damage} lines or numbers are repeated, or don't belong to this format and were skipped"
            );
            reading.note("import-damaged", Weight::PreventsPass, text);
        }
    }
}
