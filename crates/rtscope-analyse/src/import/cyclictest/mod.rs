//! cyclictest's text: `T:` lines of a quiet run or a captured screen, `-v` logs, and the histogram
//! of `-h`, `-H` and `--histfile`, as rt-tests 0.x to 2.x print them.
//!
//! Latencies are whole units, cut off: the real one is up to a unit longer. A wake-up that was so
//! late that it swallowed activations counts once; how many it swallowed is nowhere.

mod findings;
mod line;
mod summary;

use std::collections::BTreeMap;

use rtscope_model::{finding::Weight, histogram::Layout, origin::Origin, time::Nanos};

use self::{
    line::{Status, fixed, is_like_sample, is_spike, sample, status},
    summary::Summary,
};
use super::{
    ImportOptions, ImportReading, Importer, Reader,
    cell::{ImportedCell, ImportedThread, Rows},
    contradiction::Contradictions,
    lines::{Lines, without_colours},
    number::{Printed, whole},
    samples::Samples,
};

pub(super) const IMPORTER: Importer = Importer {
    name: "cyclictest",
    reads: "cyclictest's text: T: lines, a captured screen, -v logs, histograms",
    is: |beginning| {
        beginning.any(|line| {
            line.starts_with("# Histogram")
                || line.starts_with("# /dev/cpu_dma_latency set")
                || line.starts_with("# Max Latencies:")
                // jitterdebugger writes such lines with A: for P:.
                || line.starts_with("T:")
                    && line.contains(" C:")
                    && line.contains("Max:")
                    && !line.contains(" A:")
                || line.starts_with("policy: ")
                || is_sample(line)
        })
    },
    open: |options| Box::new(Text { lines: Lines::default(), log: Log::new(options) }),
};

fn is_sample(line: &str) -> bool {
    let mut fields = line.split(':');
    let numbers = fields
        .by_ref()
        .take(3)
        .filter(|word| word.trim().strip_prefix('-').unwrap_or(word.trim()).parse::<u64>().is_ok());
    numbers.count() == 3 && fields.next().is_none()
}

/// Threads that are told apart; a machine has fewer CPUs.
const THREADS_MAX: usize = 512;

/// Runs that are told apart in one file.
const RUNS_MAX: usize = 256;

/// The text on its way in.
struct Text {
    lines: Lines,
    log: Log,
}

impl Reader for Text {
    fn feed(&mut self, bytes: &[u8]) {
        self.lines.feed(&mut self.log, bytes, Log::samples, Log::line);
    }

    fn finish(mut self: Box<Self>) -> ImportReading {
        let last = self.lines.last();
        let is_cut = last.as_deref().is_some_and(|line| self.log.last_line(line));
        let mut reading = self.log.finish();
        if self.lines.overlong > 0 {
            let text = format!("{} lines are too long for cyclictest", self.lines.overlong);
            reading.note("import-damaged", Weight::Warning, text);
        }
        if is_cut {
            let text = "the file ends in the middle of a line: it was cut off";
            reading.note("import-truncated", Weight::PreventsPass, text);
        }
        reading
    }
}

/// What is known of one thread.
#[derive(Clone, Debug, Default)]
struct Lane {
    status: Option<Status>,
    samples: Option<Samples>,
    /// The number of `Thread N Interval:`: the interval of the next thread.
    next_interval_us: Option<u64>,
    cpu: Option<u32>,
}

#[derive(Debug, Default)]
struct Run {
    lanes: Vec<Lane>,
    rows: Rows,
    in_histogram: bool,
    summary: Summary,
    /// What the state of a thread contradicts of an earlier one.
    contradictions: Contradictions,
    facts: BTreeMap<&'static str, String>,
    break_value: Option<u64>,
    /// How many threads `# Thread Ids:` lists.
    thread_ids: Option<usize>,
}

/// Runs, and what else a file holds.
struct Log {
    options: ImportOptions,
    layout: Layout,
    run: Run,
    done: Vec<ImportedCell>,
    reading: ImportReading,
    runs: usize,
    foreign: u64,
    unreadable: u64,
    dropped: u64,
    absurd: u64,
}

impl Log {
    fn new(options: &ImportOptions) -> Log {
        let unit_ns = options.unit_ns.unwrap_or(1_000);
        let exact = if unit_ns == 1_000 { 10_000 } else { 100_000 };
        Log {
            options: options.clone(),
            layout: Layout { unit_ns, exact },
            run: Run::default(),
            done: Vec::new(),
            reading: ImportReading::default(),
            runs: 0,
            foreign: 0,
            unreadable: 0,
            dropped: 0,
            absurd: 0,
        }
    }

    /// Takes sample lines of the usual width from the front; how many bytes they were.
    fn samples(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(line) = bytes.get(at..at + 27) {
            let sample = if line[26] == b'\n' { fixed(line) } else { None };
            let Some((thread, cycle, value)) = sample else { break };
            let samples = self.run.lanes.get_mut(thread as usize);
            match samples.and_then(|lane| lane.samples.as_mut()) {
                Some(samples) if cycle >= samples.next() => samples.add(cycle, value),
                _ => self.sample(thread, cycle, Printed::Late(value)),
            }
            at += 27;
        }
        at
    }

    /// A sample that may be the first of its thread, or of a new run.
    #[cold]
    fn sample(&mut self, thread: u64, cycle: u64, value: Printed) {
        let started = |lane: &Lane| lane.samples.as_ref().is_some_and(|samples| samples.next() > 1);
        let known = usize::try_from(thread).ok().and_then(|thread| self.run.lanes.get(thread));
        if cycle == 0 && known.is_some_and(started) {
            self.next_run();
        }
        let layout = self.layout;
        let Some(lane) = self.lane(thread) else { return };
        let samples = lane.samples.get_or_insert_with(|| Samples::new(layout, cycle));
        samples.add_printed(cycle, value);
        let threads = self.run.lanes.len() * (self.runs + 1);
        let all = self.run.lanes.iter_mut().filter_map(|lane| lane.samples.as_mut());
        all.for_each(|samples| samples.share(threads));
    }

    fn lane(&mut self, thread: u64) -> Option<&mut Lane> {
        let thread = usize::try_from(thread).ok().filter(|thread| *thread < THREADS_MAX);
        let Some(thread) = thread else {
            self.dropped += 1;
            return None;
        };
        if self.run.lanes.len() <= thread {
            self.run.lanes.resize(thread + 1, Lane::default());
        }
        self.run.lanes.get_mut(thread)
    }

    /// The line that a file without a last line break ends in; whether it is half a line.
    fn last_line(&mut self, line: &[u8]) -> bool {
        let foreign = self.foreign + self.unreadable;
        let is_whole = match sample(line) {
            // A number may be cut anywhere, but not within the width of a field.
            Some(_) => line.len() >= 26,
            None => true,
        };
        let text = without_colours(line);
        let comment = text.trim_ascii().strip_prefix(b"#").map(String::from_utf8_lossy);
        let list = comment.and_then(|text| self.run.summary.is_cut_list(text.trim()));
        if let Some(is_cut) = list {
            return is_cut;
        }
        if is_whole {
            self.line(line);
        }
        !is_whole
            || self.foreign + self.unreadable > foreign
            || text.trim_ascii_end().ends_with(b":")
    }

    fn line(&mut self, line: &[u8]) {
        let line = without_colours(line);
        let line = line.trim_ascii();
        match line.first() {
            None => {}
            Some(b'#') => self.comment(&line[1..]),
            Some(b'T') if line.starts_with(b"T:") => match status(line) {
                Some((thread, status)) => self.status(thread, status),
                None => self.unreadable += u64::from(!is_spike(line)),
            },
            Some(b'p') if line.starts_with(b"policy: ") => {
                let policy = line[8..].split(|&byte| byte == b':').next().unwrap_or_default();
                let policy = String::from_utf8_lossy(policy).trim().chars().take(24).collect();
                self.run.facts.insert("policy", policy);
            }
            Some(b'0'..=b'9') => match sample(line) {
                Some((thread, cycle, value)) => self.sample(thread, cycle, value),
                None => self.row(line),
            },
            Some(_) => self.read_words(line),
        }
    }

    /// A line of the histogram.
    fn row(&mut self, line: &[u8]) {
        let mut numbers = line
            .split(|byte| byte.is_ascii_whitespace())
            .filter(|word| !word.is_empty())
            .map(whole);
        let index = numbers.next().flatten();
        let counts: Option<Vec<u64>> = numbers.take(THREADS_MAX + 1).collect();
        match (index, counts) {
            (Some(index), Some(counts)) if !counts.is_empty() => {
                // A histogram begins at 0: without its heading, so does the next.
                if !self.run.summary.is_empty() || (index == 0 && self.run.rows.rows > 0) {
                    self.next_run();
                }
                self.run.rows.add(index, &counts);
            }
            _ if self.run.in_histogram || self.run.rows.rows > 0 => self.unreadable += 1,
            _ => self.skip(line),
        }
    }

    fn status(&mut self, thread: u64, mut status: Status) {
        // A screen stands above its histogram: below one, another run begins.
        if !self.run.summary.is_empty() {
            self.next_run();
        }
        let known = usize::try_from(thread).ok().and_then(|thread| self.run.lanes.get(thread));
        let before = known.and_then(|lane| lane.status);
        let is_other = |before: Status| before.cycles > status.cycles || before.tid != status.tid;
        if before.is_some_and(is_other) {
            self.next_run();
        } else if before.is_some_and(|before| before.said.max > status.said.max) {
            self.run.contradictions.add(format!("the maximum of thread {thread} gets smaller"));
        }
        let lane = usize::try_from(thread).ok().and_then(|thread| self.run.lanes.get(thread));
        status.act = status.act.max(lane.and_then(|lane| lane.status?.act));
        if let Some(lane) = self.lane(thread) {
            lane.status = Some(status);
        }
    }

    /// A line that begins with `#`.
    fn comment(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        let run = &mut self.run;
        if run.summary.take(text) {
        } else if text == "Histogram" {
            if run.rows.rows > 0 || run.in_histogram {
                self.next_run();
            }
            self.run.in_histogram = true;
        } else if let Some(value) = text.strip_prefix("Break value:") {
            run.break_value = whole(value.trim().as_bytes());
        } else if let Some(ids) = text.strip_prefix("Thread Ids:") {
            run.thread_ids = Some(ids.split_ascii_whitespace().count());
        } else if let Some(rest) = text.strip_prefix("/dev/cpu_dma_latency set to ") {
            self.begins();
            let value = rest.chars().take(24).collect();
            self.run.facts.insert("cpu_dma_latency", value);
        }
    }

    /// A line of words, as `Thread 0 Interval: 1500`.
    fn read_words(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let number = |word: &str| whole(word.trim_end_matches(['.', ',']).as_bytes());
        match words.as_slice() {
            ["Max", "CPUs", "=", _] => self.begins(),
            ["Online", "CPUs", ..] | ["Using", ..] | ["WARN:", ..] | ["INFO:", ..] => {}
            // What --spike notes is counted among the latencies.
            ["spikes", "=", _] => {}
            ["Thread", thread, "Interval:", interval] => {
                if let (Some(thread), Some(us)) = (number(thread), number(interval))
                    && let Some(lane) = self.lane(thread)
                {
                    lane.next_interval_us = Some(us);
                }
            }
            ["Thread", thread, "using", "cpu", cpu] => {
                if let (Some(thread), Some(cpu)) = (number(thread), number(cpu))
                    && let Some(lane) = self.lane(thread)
                {
                    lane.cpu = u32::try_from(cpu).ok();
                }
            }
            _ => self.skip(line),
        }
    }

    /// Counts a line that isn't read: it doesn't come from cyclictest, or is a damaged latency of a log.
    fn skip(&mut self, line: &[u8]) {
        match is_like_sample(line) {
            true => self.unreadable += 1,
            false => self.foreign += 1,
        }
    }

    /// A line that cyclictest prints when it starts.
    fn begins(&mut self) {
        if self.run.has_latencies() {
            self.next_run();
        }
    }

    fn next_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if !run.has_latencies() {
            // A summary without rows may hold the maximum of those that follow.
            self.unreadable += u64::from(!run.summary.is_empty());
            return;
        }
        self.runs += 1;
        if self.runs <= RUNS_MAX {
            let cell = run.cell(self);
            self.done.push(cell);
        }
    }

    fn finish(mut self) -> ImportReading {
        self.next_run();
        let many = self.done.len() > 1;
        for (i, cell) in self.done.iter_mut().enumerate().filter(|_| many) {
            cell.name = format!("run {}", i + 1);
        }
        let Log { mut reading, done, runs, .. } = self;
        reading.cells = done;
        if runs > 1 {
            let text = format!("the file holds {runs} runs: each becomes a separate cell");
            reading.note("import-several-runs", Weight::Note, text);
        }
        if runs > RUNS_MAX {
            let text = format!("{} runs are left out", runs - RUNS_MAX);
            reading.note("import-damaged", Weight::PreventsPass, text);
        }
        // What a terminal showed between the lines is no latency; what has the form of one may be.
        let damage = [
            (self.foreign, Weight::Warning, "lines don't come from cyclictest and were skipped"),
            (
                self.unreadable,
                Weight::PreventsPass,
                "figures of cyclictest can't be read: a latency, a count or a maximum is not known",
            ),
            (self.dropped, Weight::PreventsPass, "lines have thread numbers that no machine has"),
            (
                self.absurd,
                Weight::PreventsPass,
                "numbers are too large to be latencies or counts and were left out",
            ),
        ];
        for (count, weight, what) in damage.into_iter().filter(|damage| damage.0 > 0) {
            reading.note("import-damaged", weight, format!("{count} {what}"));
        }
        reading
    }
}

impl Run {
    fn has_latencies(&self) -> bool {
        let of_lane = |lane: &Lane| {
            lane.samples.as_ref().is_some_and(|samples| !samples.is_empty())
                || lane.status.is_some_and(|status| status.cycles > 0)
        };
        self.rows.rows > 0 || self.summary.overflows() > 0 || self.lanes.iter().any(of_lane)
    }

    /// The run as a cell; what its reader must know goes to the log's reading.
    fn cell(mut self, log: &mut Log) -> ImportedCell {
        let has_histogram = self.rows.rows > 0 || self.summary.overflows() > 0;
        let has_samples = self.lanes.iter().any(|lane| lane.samples.is_some());
        self.add_findings(log, has_histogram, has_samples);
        let (form, layout) = match (has_samples, has_histogram) {
            (true, _) => ("log of every latency", log.layout),
            (_, true) => ("histogram", self.rows.layout(log.layout.unit_ns)),
            _ => ("figures without a histogram", log.layout),
        };
        let mut facts: Vec<(String, String)> = Vec::new();
        for (name, value) in &self.facts {
            facts.push(((*name).to_owned(), value.clone()));
        }
        if let Some(status) = self.lanes.iter().find_map(|lane| lane.status) {
            facts.push(("priority asked".to_owned(), status.priority.to_string()));
        }
        let origin = Origin {
            tool: "cyclictest".to_owned(),
            form: form.to_owned(),
            facts,
            is_in_order: has_samples,
            ..Origin::default()
        };
        self.check(has_histogram, has_samples);
        let threads = match has_samples {
            true => self.threads_of_samples(log),
            false if has_histogram => self.threads_of_rows(log),
            false => self.threads_of_status(log),
        };
        std::mem::take(&mut self.contradictions).add_findings(&mut log.reading);
        ImportedCell { layout, threads, origin, is_one_run: true, ..ImportedCell::default() }
    }

    fn thread(&self, index: usize, log: &Log) -> ImportedThread {
        let lane = self.lanes.get(index);
        let interval_us = lane
            .and_then(|lane| lane.status)
            .map(|status| status.interval_us)
            .or_else(|| self.interval_us(index))
            .filter(|us| *us > 0);
        ImportedThread {
            label: format!("thread {index}"),
            cpu: lane.and_then(|lane| lane.cpu),
            interval_ns: log.options.interval_ns.or(interval_us.map(|us| us.saturating_mul(1_000))),
            ..ImportedThread::default()
        }
    }

    /// An interval from the lines `Thread N Interval:`, which say the next thread's: with two of
    /// them the distance is known, with one it is cyclictest's default of 500 us.
    fn interval_us(&self, index: usize) -> Option<u64> {
        let next = |index: usize| self.lanes.get(index)?.next_interval_us;
        let distance = match (next(0), next(1)) {
            (Some(first), Some(second)) => second.checked_sub(first)?,
            _ => 500,
        };
        next(index)?.checked_sub(distance)
    }

    fn threads_of_samples(&mut self, log: &Log) -> Vec<ImportedThread> {
        let mut threads = Vec::new();
        for index in 0..self.lanes.len() {
            let Some(samples) = self.lanes[index].samples.take() else { continue };
            let told = self.lanes[index].status.map(|status| status.said);
            let is_whole = samples.lost == 0
                && told.and_then(|said| said.count).is_none_or(|count| count <= samples.next());
            let mut parts = samples.finish();
            let in_log_ns = parts.iter().map(|part| part.max_ns).max().unwrap_or(0);
            let max_ns = told.and_then(|said| said.max?.checked_mul(log.layout.unit_ns));
            // A cycle that is not in the log may be the worst one.
            if let (Some(max_ns), Some(last)) =
                (max_ns.filter(|max_ns| *max_ns > in_log_ns), parts.last_mut())
            {
                last.add_maximum(max_ns);
            }
            if max_ns.is_some_and(|max_ns| max_ns < in_log_ns || is_whole && max_ns > in_log_ns) {
                self.contradictions.add(format!(
                    "the log of thread {index} has a maximum of {}, and its 'T:' line one of {}",
                    Nanos(in_log_ns),
                    Nanos(max_ns.unwrap_or(0))
                ));
            }
            threads.push(ImportedThread { parts, ..self.thread(index, log) });
        }
        threads
    }

    /// Holds the figures of the run against each other.
    fn check(&mut self, has_histogram: bool, has_samples: bool) {
        let threads = self.threads_in_rows();
        let found = &mut self.contradictions;
        if let Some(ids) = self.thread_ids.filter(|ids| has_histogram && *ids != threads) {
            found
                .add(format!("the rows are of {threads} threads, and '# Thread Ids:' lists {ids}"));
        }
        if has_histogram {
            self.summary.check(&self.rows, found);
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            let Some(status) = lane.status else { continue };
            let label = format!("thread {index}");
            if !has_histogram && !has_samples {
                found.of_figures(&label, &status.said);
            }
            status.check(&label, found);
            if !has_histogram || has_samples {
                continue;
            }
            match index < threads {
                true => {
                    let placed = self.rows.placed(index);
                    status.check_histogram(&label, placed, &self.summary.of_thread(index), found);
                }
                false => found
                    .add(format!("{label} has a 'T:' line, and the histogram lacks its column")),
            }
        }
    }

    /// Threads that the rows are of: the last column of -H is the sum of the others.
    fn threads_in_rows(&self) -> usize {
        let is_sum = self.summary.has_sum(&self.rows) && self.rows.last_is_sum();
        match self.rows.width() {
            0 => self.summary.overflows(),
            width => width - usize::from(is_sum),
        }
    }

    fn threads_of_rows(&self, log: &Log) -> Vec<ImportedThread> {
        let thread = |index: usize| {
            let said = self.summary.of_thread(index);
            let parts = self.rows.part(index, log.layout.unit_ns, &said).known(&said);
            ImportedThread { parts, ..self.thread(index, log) }
        };
        (0..self.threads_in_rows()).map(thread).collect()
    }

    fn threads_of_status(&self, log: &Log) -> Vec<ImportedThread> {
        let thread = |(index, lane): (usize, &Lane)| {
            let said = lane.status?.said;
            let parts = said.part(log.layout.unit_ns).known(&said);
            Some(ImportedThread { parts, ..self.thread(index, log) })
        };
        self.lanes.iter().enumerate().filter_map(thread).collect()
    }
}
