//! The text of cyclictest (rt-tests 2.4): what its `-q`, `-h`, `-H`, `-v`, `-b` and `--spike` print,
//! byte for byte in form; [`json()`] is its `--json`.
//!
//! Latencies are cut down to whole units, us or ns. Averages are those of the exact latencies, where
//! cyclictest averages the cut ones: up to one unit more. A histogram holds whole units below its
//! limit; what lies at or above is counted as overflow.
//!
//! A drop-in run gives its threads as they are; a cell of a record becomes a run in `cell.rs`.

mod cell;
mod json;
mod running;

use std::fmt::Write as _;

use rtscope_model::{
    histogram::Histogram,
    schedule::{Placement, Policy},
};

pub(super) use self::cell::{JSON, TEXT, wait_comments, waits};
pub use self::{
    json::{CyclictestOrigin, json},
    running::{LiveRun, SampleOptions, changed_placement, lost_sentence},
};

/// What a thread shows for its minimum before its first cycle.
const MIN_AT_FIRST: u64 = 1_000_000;

/// Unit of the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CyclictestUnit {
    #[default]
    Us,
    /// Nanoseconds (`-N`).
    Ns,
}

impl CyclictestUnit {
    /// Nanoseconds in a unit.
    #[must_use]
    pub const fn ns(self) -> u64 {
        match self {
            CyclictestUnit::Us => 1_000,
            CyclictestUnit::Ns => 1,
        }
    }

    /// Its name, as on a command line of `rtscope import --unit`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CyclictestUnit::Us => "us",
            CyclictestUnit::Ns => "ns",
        }
    }

    /// A latency in whole units, cut.
    #[must_use]
    pub const fn whole(self, latency_ns: u64) -> u64 {
        latency_ns / self.ns()
    }
}

/// What a thread has measured so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CyclictestFigures {
    /// Measured activations; 0 when no more is known than how long a thread waited.
    pub cycles: u64,
    pub min_ns: u64,
    /// Of the last activation.
    pub last_ns: u64,
    pub mean_ns: f64,
    pub max_ns: u64,
}

impl CyclictestFigures {
    /// The exact ones of a histogram; none of an empty one.
    fn from_histogram(histogram: &Histogram, last_ns: u64) -> Option<CyclictestFigures> {
        let (min_ns, max_ns) = (histogram.min_ns()?, histogram.max_ns()?);
        let mean_ns = histogram.mean_ns()?;
        Some(CyclictestFigures { cycles: histogram.count(), min_ns, last_ns, mean_ns, max_ns })
    }
}

/// A measuring thread.
#[derive(Clone, Debug)]
pub struct CyclictestThread {
    pub tid: u32,
    pub policy: Policy,
    /// Its priority; 0 without one.
    pub priority: u8,
    pub interval_us: u64,
    pub cpu: u32,
    /// The memory node of that CPU, -1 when nobody asked.
    pub node: i32,
    /// None before the first activation.
    pub figures: Option<CyclictestFigures>,
    /// Every measured activation.
    pub histogram: Histogram,
    /// Activations that late wake-ups swallowed.
    pub missed: u64,
    /// Numbers of the first activations, from 0, that lie beyond the histogram.
    pub overflow_cycles: Vec<u64>,
    /// System management interrupts, where they are counted.
    pub smi: Option<u64>,
}

/// The latency that ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// The kernel's number of the thread.
    pub tid: u32,
    pub latency_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub struct CyclictestRun {
    pub unit: CyclictestUnit,
    /// Units in the histogram; 0 for none.
    pub buckets: u32,
    /// Whether the histogram has a column of sums (`-H`).
    pub sums: bool,
    /// Whether a threshold was set (`-b`).
    pub armed: bool,
    /// The latency above it.
    pub broke: Option<Break>,
    pub threads: Vec<CyclictestThread>,
    /// Threads whose last activation was never answered, and how long each had waited at least, where that is
    /// longer than its maximum.
    pub waits: Vec<(String, u64)>,
}

impl CyclictestThread {
    /// Counts of the units below `buckets`, and how many latencies lie at or above. A bucket of ours that is wider than a
    /// unit counts where it ends: no latency is told too small.
    pub(super) fn counts(&self, unit: CyclictestUnit, buckets: u32) -> (Vec<u64>, u64) {
        let mut counts = vec![0; buckets as usize];
        let mut overflow = self.histogram.unplaced().count;
        let (layout, max_ns) = (self.histogram.layout(), self.histogram.max_ns().unwrap_or(0));
        for (index, count) in self.histogram.bins() {
            match counts.get_mut(unit.whole(layout.upper_ns(index).min(max_ns)) as usize) {
                Some(counter) => *counter += count,
                None => overflow += count,
            }
        }
        (counts, overflow)
    }

    fn min(&self, unit: CyclictestUnit) -> u64 {
        self.figures.map_or(MIN_AT_FIRST, |figures| unit.whole(figures.min_ns))
    }

    fn max(&self, unit: CyclictestUnit) -> u64 {
        self.figures.map_or(0, |figures| unit.whole(figures.max_ns))
    }

    fn mean(&self, unit: CyclictestUnit) -> f64 {
        self.figures.map_or(0.0, |figures| figures.mean_ns / unit.ns() as f64)
    }

    /// Its line: `T: 0 ( 1234) P:80 I:1000 C:   3000 Min:      4 Act:   10 Avg:    9 Max:      98`.
    #[must_use]
    pub fn line(&self, index: usize, unit: CyclictestUnit) -> String {
        let width = match unit {
            CyclictestUnit::Us => 5,
            CyclictestUnit::Ns => 8,
        };
        let cycles = self.figures.map_or(0, |figures| figures.cycles);
        let last = self.figures.map_or(0, |figures| unit.whole(figures.last_ns));
        let (min, mean, max) = (self.min(unit), self.mean(unit) as u64, self.max(unit));
        let (tid, priority, interval) = (self.tid, self.priority, self.interval_us);
        let mut line = format!(
            "T:{index:2} ({tid:5}) P:{priority:2} I:{interval} C:{cycles:7} Min:{min:7} \
             Act:{last:width$} Avg:{mean:width$} Max:{max:8}"
        );
        if let Some(smi) = self.smi {
            let _ = write!(line, " SMI:{smi:8}");
        }
        line.push('\n');
        line
    }
}

impl CyclictestRun {
    /// The lines of all threads.
    #[must_use]
    pub fn lines(&self) -> String {
        self.threads.iter().enumerate().map(|(i, thread)| thread.line(i, self.unit)).collect()
    }

    /// The status that a screen shows: policy, load average, threads.
    #[must_use]
    pub fn screen(&self, policy: &str, load_average: &str) -> String {
        let other = if self.threads.iter().any(|t| t.priority == 0) { "/other" } else { "" };
        format!("policy: {policy}{other}: loadavg: {load_average}          \n\n{}", self.lines())
    }

    /// The current status, as SIGUSR1 and SIGUSR2 ask for it.
    #[must_use]
    pub fn status(&self) -> String {
        let rule = "#---------------------------\n";
        format!("{rule}# cyclictest current status:\n{}{rule}", self.lines())
    }

    /// The histogram block, from `# Histogram` to the empty line.
    #[must_use]
    pub fn histogram(&self) -> String {
        let (columns, overflows): (Vec<Vec<u64>>, Vec<u64>) =
            self.threads.iter().map(|thread| thread.counts(self.unit, self.buckets)).unzip();
        let sums = self.sums && self.threads.len() > 1;
        let mut text = "# Histogram\n".to_owned();
        for bucket in 0..self.buckets as usize {
            let row = columns.iter().map(|column| column[bucket]);
            let sum = sums.then(|| row.clone().sum());
            table_row(&mut text, bucket, row.chain(sum));
        }
        let totals: Vec<u64> = columns.iter().map(|column| column.iter().sum()).collect();
        let total_sum = sums.then(|| totals.iter().sum());
        text += &row("# Total:", 9, totals.iter().copied().chain(total_sum));
        let unit = self.unit;
        let maxima: Vec<u64> = self.threads.iter().map(|t| t.max(unit)).collect();
        let largest = sums.then(|| maxima.iter().copied().max().unwrap_or(0));
        text += &row("# Min Latencies:", 5, self.threads.iter().map(|t| t.min(unit)));
        text += &row("# Avg Latencies:", 5, self.threads.iter().map(|t| t.mean(unit) as u64));
        text += &row("# Max Latencies:", 5, maxima.iter().copied().chain(largest));
        let overflow_sum = sums.then(|| overflows.iter().sum());
        text += &row("# Histogram Overflows:", 5, overflows.iter().copied().chain(overflow_sum));
        text += "# Histogram Overflow at cycle number:\n";
        for (i, (thread, overflow)) in self.threads.iter().zip(&overflows).enumerate() {
            let told = thread.overflow_cycles.iter().take(self.buckets as usize).copied();
            let left = overflow.saturating_sub(told.len() as u64);
            text += row(&format!("# Thread {i}:"), 5, told).trim_end();
            if left > 0 {
                let _ = write!(text, " # {left:05} others");
            }
            text.push('\n');
        }
        if self.threads.iter().any(|thread| thread.smi.is_some()) {
            let smis = self.threads.iter().map(|thread| thread.smi.unwrap_or(0));
            text += &row("# SMIs:", 5, smis);
        }
        text.push('\n');
        text
    }

    /// What a run with a threshold says at its end; empty without one.
    #[must_use]
    pub fn threshold(&self) -> String {
        if !self.armed {
            return String::new();
        }
        let mut text = row("# Thread Ids:", 5, self.threads.iter().map(|t| u64::from(t.tid)));
        if let Some(Break { tid, latency_ns }) = self.broke {
            let value = self.unit.whole(latency_ns);
            let _ = write!(text, "# Break thread: {tid}\n# Break value: {value}\n");
        }
        text
    }
}

impl CyclictestThread {
    /// Adds a wait that was never answered: it is no cycle, but the maximum is at least as large.
    pub fn add_wait(&mut self, waited_ns: u64) {
        if waited_ns > 0 {
            let alone = CyclictestFigures {
                min_ns: waited_ns,
                mean_ns: waited_ns as f64,
                ..CyclictestFigures::default()
            };
            let figures = self.figures.get_or_insert(alone);
            figures.max_ns = figures.max_ns.max(waited_ns);
        }
    }

    /// A thread as it was placed, with what it has measured.
    #[must_use]
    pub fn placed(
        tid: u32,
        interval_ns: u64,
        found: &Placement,
        histogram: Histogram,
    ) -> CyclictestThread {
        let figures = CyclictestFigures::from_histogram(&histogram, 0);
        CyclictestThread {
            tid,
            policy: found.policy,
            priority: found.priority,
            interval_us: interval_ns / 1_000,
            cpu: found.cpus.iter().next().unwrap_or(0),
            node: 0,
            figures,
            histogram,
            missed: 0,
            overflow_cycles: Vec::new(),
            smi: None,
        }
    }
}

/// A line of the verbose form: `n:c:v`, thread, cycle from 0, latency.
fn sample_line(thread: usize, cycle: u64, latency_ns: u64, unit: CyclictestUnit) -> String {
    format!("{thread:8}:{cycle:8}:{:8}\n", unit.whole(latency_ns))
}

/// The latencies above `--spike`: thread, latency, instant on the clock.
fn spike_lines(spikes: &[(usize, u64, u64)], unit: CyclictestUnit) -> String {
    if spikes.is_empty() {
        return String::new();
    }
    let mut text = "\n".to_owned();
    for (thread, latency_ns, at_ns) in spikes {
        let (latency, at_us) = (unit.whole(*latency_ns), at_ns / 1_000);
        let _ = writeln!(text, "T:{thread:2} Spike:{latency:8}: TS: {at_us:12}");
    }
    let _ = write!(text, "spikes = {}\n\n", spikes.len());
    text
}

/// A line of a histogram: a latency, and how often each thread had it. There may be millions of them.
pub(super) fn table_row(text: &mut String, latency: usize, counts: impl Iterator<Item = u64>) {
    let _ = write!(text, "{latency:06} ");
    for (column, count) in counts.enumerate() {
        let _ = write!(text, "{}{count:06}", if column == 0 { "" } else { "\t" });
    }
    text.push('\n');
}

/// A comment line of numbers with leading zeroes.
fn row(title: &str, width: usize, numbers: impl Iterator<Item = u64>) -> String {
    let numbers: String = numbers.map(|number| format!(" {number:0width$}")).collect();
    format!("{title}{numbers}\n")
}

#[cfg(test)]
mod tests;
