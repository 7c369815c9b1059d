//! What jitterdebugger shows: a `T:` line for each thread, in place of cyclictest's `P:` with the CPU, as
//! `T: 0 ( 1234) A: 0 C:      1000 Min:         2 Avg:    3.25 Max:        41`.
//!
//! The last line of a thread has its figures. There is no histogram.

use std::collections::BTreeMap;

use rtscope_model::{finding::Weight, histogram::Layout, origin::Origin};

use super::{
    ImportOptions, ImportReading, Importer, Reader,
    cell::{ImportedCell, ImportedThread, LATENCY_NS_MAX, Said},
    contradiction::Contradictions,
    jitterdebugger::tell_replayed,
    lines::{Lines, without_colours},
};

pub(super) const IMPORTER: Importer = Importer {
    name: "jitterdebugger-text",
    reads: "what jitterdebugger shows on its screen",
    is: |beginning| beginning.any(|line| figures(line).is_some()),
    open: |options| Box::new(Text { options: options.clone(), ..Text::default() }),
};

/// Threads that are told apart.
const THREADS_MAX: usize = 512;

#[derive(Default)]
struct Text {
    options: ImportOptions,
    lines: Lines,
    state: State,
}

#[derive(Default)]
struct State {
    threads: BTreeMap<u64, Figures>,
    contradictions: Contradictions,
    foreign: u64,
    unreadable: u64,
}

/// What a line says of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    cpu: u32,
    said: Said,
}

impl Reader for Text {
    fn feed(&mut self, bytes: &[u8]) {
        self.lines.feed(&mut self.state, bytes, |_, _| 0, State::line);
    }

    fn finish(mut self: Box<Self>) -> ImportReading {
        let mut reading = ImportReading::default();
        if let Some(line) = self.lines.last() {
            self.state.line(&line);
            let text = "the file ends without a line break: its last line may be cut off";
            reading.note("import-truncated", Weight::PreventsPass, text);
        }
        tell_replayed(&mut reading);
        let text = "the file holds minimum, mean and maximum, but no histogram: quantiles and exceedances \
                    are not known";
        reading.note("import-no-histogram", Weight::PreventsPass, text).advice =
            "import jitterdebugger's results.json (jitterdebugger -o FOLDER)".to_owned();
        let damage = [
            (
                self.state.foreign,
                Weight::Warning,
                "lines are not those of threads and were skipped",
            ),
            (self.state.unreadable, Weight::PreventsPass, "lines of threads can't be read"),
        ];
        for (count, weight, what) in damage.into_iter().filter(|damage| damage.0 > 0) {
            reading.note("import-damaged", weight, format!("{count} {what}"));
        }
        let unit_ns = self.options.unit_ns.unwrap_or(1_000);
        let mut found = std::mem::take(&mut self.state.contradictions);
        let mut threads = Vec::new();
        for (index, Figures { cpu, said }) in &self.state.threads {
            let label = format!("thread {index}");
            found.of_figures(&label, said);
            threads.push(ImportedThread {
                label,
                cpu: Some(*cpu),
                interval_ns: self.options.interval_ns,
                parts: said.part(unit_ns).known(said),
                ..ImportedThread::default()
            });
        }
        found.add_findings(&mut reading);
        let origin = Origin {
            tool: "jitterdebugger".to_owned(),
            form: "figures without a histogram".to_owned(),
            ..Origin::default()
        };
        let layout = Layout { unit_ns, exact: 10_000 };
        reading.cells.push(ImportedCell {
            layout,
            threads,
            origin,
            is_one_run: true,
            ..ImportedCell::default()
        });
        reading
    }
}

impl State {
    fn line(&mut self, line: &[u8]) {
        let line = without_colours(line);
        let text = String::from_utf8_lossy(&line);
        let Some((thread, new)) = figures(text.trim()) else {
            let is_of_thread = text.trim_start().starts_with("T:");
            self.unreadable += u64::from(is_of_thread);
            self.foreign += u64::from(!is_of_thread && !text.trim().is_empty());
            return;
        };
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread) {
            self.unreadable += 1;
            return;
        }
        let before = self.threads.insert(thread, new);
        if before.is_some_and(|before| before.said.max > new.said.max) {
            self.contradictions.add(format!("the maximum of thread {thread} gets smaller"));
        }
    }
}

/// Number and figures of a thread.
fn figures(line: &str) -> Option<(u64, Figures)> {
    if !line.starts_with("T:") {
        return None;
    }
    let after = |key: &str| line.split_once(key)?.1.split_ascii_whitespace().next();
    let number = |key: &str| after(key)?.parse::<u64>().ok();
    // In either unit, more is damage.
    let latency = |key: &str| number(key).filter(|value| *value <= LATENCY_NS_MAX / 1_000);
    let cpu = number(" A:").and_then(|cpu| u32::try_from(cpu).ok())?;
    let mean = after(" Avg:")?.parse::<f64>().ok().filter(|mean| mean.is_finite());
    let count = number(" C:")?;
    let said = Said {
        count: Some(count),
        min: Some(latency(" Min:")?),
        max: Some(latency(" Max:")?),
        mean,
        ..Said::default()
    };
    Some((number("T:")?, Figures { cpu, said }))
}
