//! What stands below a histogram: figures of each thread, and with `-H` some of all.

use crate::import::{
    cell::{Rows, Said},
    contradiction::Contradictions,
    number::{Printed, latency},
};

use super::{RUNS_MAX, THREADS_MAX};

/// The lines of a summary, each a list with a figure for each thread.
const LINES: [&str; 5] =
    ["Total:", "Min Latencies:", "Avg Latencies:", "Max Latencies:", "Histogram Overflows:"];

const TOTALS: usize = 0;
const MINIMA: usize = 1;
const AVERAGES: usize = 2;
const MAXIMA: usize = 3;
const OVERFLOWS: usize = 4;

/// The figures of each thread below the rows. A file may lack some lines, and of a word that isn't a number
/// nothing is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    lists: [Vec<Option<Printed>>; LINES.len()],
    /// Lines that came a second time. The first one counts.
    repeated: u64,
}

impl Summary {
    /// Reads a comment, if it is one of the summary.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let line = LINES.iter().zip(&mut self.lists);
        let found = line.filter_map(|(key, list)| Some((list, text.strip_prefix(key)?))).next();
        let Some((list, rest)) = found else { return false };
        let words = rest.split_ascii_whitespace().take(THREADS_MAX + 1);
        if list.is_empty() {
            *list = words.map(|word| latency(word.as_bytes())).collect();
        } else {
            self.repeated = (self.repeated + 1).min(RUNS_MAX as u64);
        }
        true
    }

    /// Whether there is none at all.
    pub(super) fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// Whether the file says what the maxima are: without, it was cut off.
    pub(super) fn has_maxima(&self) -> bool {
        !self.lists[MAXIMA].is_empty()
    }

    /// How many threads have a number of latencies beyond the rows.
    pub(super) fn overflows(&self) -> usize {
        self.lists[OVERFLOWS].len()
    }

    fn figure(&self, line: usize, thread: usize) -> Option<u64> {
        match self.lists[line].get(thread).copied().flatten()? {
            Printed::Late(value) => Some(value),
            Printed::Early => None,
        }
    }

    /// What is said of a thread.
    pub(super) fn said(&self, thread: usize) -> Said {
        let is_early =
            |line: usize| self.lists[line].get(thread).copied().flatten() == Some(Printed::Early);
        Said {
            total: self.figure(TOTALS, thread),
            min: self.figure(MINIMA, thread),
            max: self.figure(MAXIMA, thread),
            mean: self.figure(AVERAGES, thread).map(|mean| mean as f64),
            overflow: self.figure(OVERFLOWS, thread),
            early: u64::from(is_early(MINIMA) || is_early(MAXIMA)),
            ..Said::default()
        }
    }

    /// Latencies beyond the rows of so many threads.
    pub(super) fn overflow(&self, threads: usize) -> u64 {
        (0..threads).fold(0, |sum: u64, thread| {
            sum.saturating_add(self.figure(OVERFLOWS, thread).unwrap_or(0))
        })
    }

    /// Whether the last column is the sum of the others: `-H` prints no minimum of all.
    pub(super) fn has_sum(&self, rows: &Rows) -> bool {
        match self.lists[MINIMA].len() {
            0 => rows.width() > 2 && rows.last_is_sum(),
            threads => threads + 1 == rows.width(),
        }
    }

    /// Words that are no numbers.
    pub(super) fn unreadable(&self) -> u64 {
        self.lists.iter().flatten().filter(|word| word.is_none()).count() as u64
    }

    /// Holds the rows against the summary. The column of sums is no thread's.
    pub(super) fn check(&self, rows: &Rows, found: &mut Contradictions) {
        let has_sum = self.has_sum(rows);
        let threads = rows.width() - usize::from(has_sum);
        if has_sum && !rows.last_is_sum() {
            found.add("the last column isn't the sum of the others");
        }
        if self.repeated > 0 {
            found.add(format!("{} lines of the summary are repeated", self.repeated));
        }
        // One thread has no line of its own for all.
        let is_whole = |list: &Vec<_>| {
            list.is_empty() || list.len() == threads || has_sum && list.len() == threads + 1
        };
        if rows.rows > 0
            && let Some((name, list)) =
                LINES.iter().zip(&self.lists).find(|(_, list)| !is_whole(list))
        {
            found.add(format!(
                "the rows are of {threads} threads, and '{name}' has {} figures",
                list.len()
            ));
        }
        // A file that was cut off is told of already.
        for thread in 0..if self.has_maxima() { threads } else { 0 } {
            let label = format!("thread {thread}");
            found.of_rows(&label, rows, thread, &self.said(thread));
        }
    }
}
