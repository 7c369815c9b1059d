//! What stands below a histogram: figures of each thread, and with `-H` some of all.

use std::collections::BTreeMap;

use crate::import::{
    cell::{Rows, Said},
    contradiction::Contradictions,
    number::{Printed, latency, whole},
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
    /// Cycles beyond the rows, by thread, as `# Thread 0: 00231 00249 # 00009 others` lists them.
    listed: BTreeMap<usize, u64>,
}

impl Summary {
    /// Reads a comment, if it is one of the summary.
    pub(super) fn take(&mut self, text: &str) -> bool {
        if let Some((thread, count)) = listed(text) {
            if self.listed.len() < THREADS_MAX {
                self.listed.insert(thread, count);
            }
            return true;
        }
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
    pub(super) fn of_thread(&self, thread: usize) -> Said {
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

    /// Words that are no numbers, and negative ones where there can't be any.
    pub(super) fn unreadable(&self) -> u64 {
        let is_unreadable = |line: usize, thread: usize, word: &Option<Printed>| match word {
            None => true,
            // Only wake-ups before their time make an average negative.
            Some(Printed::Early) if line == AVERAGES => {
                self.lists[MINIMA].get(thread).copied().flatten() != Some(Printed::Early)
            }
            Some(Printed::Early) => matches!(line, TOTALS | OVERFLOWS),
            Some(Printed::Late(_)) => false,
        };
        let words = self.lists.iter().enumerate().flat_map(|(line, list)| {
            list.iter().enumerate().filter(move |(thread, word)| is_unreadable(line, *thread, word))
        });
        words.count() as u64
    }

    /// Whether a line that the file ends in lists other cycles than there are latencies beyond the rows.
    pub(super) fn is_cut_list(&self, text: &str) -> Option<bool> {
        let (thread, count) = listed(text)?;
        Some(self.figure(OVERFLOWS, thread) != Some(count))
    }

    /// Holds the figures of all threads, which end the lists of `-H`, against those of each.
    fn check_sums(&self, threads: usize, found: &mut Contradictions) {
        for line in [TOTALS, MAXIMA, OVERFLOWS] {
            let figures: Option<Vec<u64>> =
                (0..self.lists[line].len()).map(|thread| self.figure(line, thread)).collect();
            let Some((all, each)) = figures.as_deref().and_then(<[u64]>::split_last) else {
                continue;
            };
            let expected = match line {
                MAXIMA => each.iter().copied().max().unwrap_or(0),
                _ => each.iter().fold(0, |sum: u64, figure| sum.saturating_add(*figure)),
            };
            if each.len() == threads && *all != expected {
                found.add(format!(
                    "'{}' of all threads is {all}, but {expected} by the figures of each",
                    LINES[line]
                ));
            }
        }
    }

    /// Holds the cycles that are listed against the number of latencies beyond the rows.
    fn check_listed(&self, threads: usize, found: &mut Contradictions) {
        for (&thread, &count) in &self.listed {
            let overflow = self.figure(OVERFLOWS, thread).unwrap_or(0);
            if thread >= threads {
                found.add(format!(
                    "the rows are of {threads} threads, and '# Thread {thread}:' lists cycles"
                ));
            } else if overflow != count {
                found.add(format!(
                    "thread {thread} has {overflow} latencies beyond the rows, but lists {count} such cycles"
                ));
            }
        }
    }

    /// Holds the rows against the summary. The column of sums is no thread's.
    pub(super) fn check(&self, rows: &Rows, found: &mut Contradictions) {
        let has_sum = self.has_sum(rows);
        let threads = rows.width() - usize::from(has_sum);
        if has_sum && !rows.last_is_sum() {
            found.add("the last column isn't the sum of the others");
        }
        if has_sum {
            self.check_sums(threads, found);
        }
        self.check_listed(threads, found);
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
            found.of_rows(&label, rows, thread, &self.of_thread(thread));
        }
    }
}

/// Thread of a list of cycles, and how many it has.
fn listed(text: &str) -> Option<(usize, u64)> {
    let (thread, cycles) = text.strip_prefix("Thread ")?.split_once(':')?;
    let (cycles, others) = cycles.split_once('#').unwrap_or((cycles, "0"));
    let others = whole(others.split_ascii_whitespace().next()?.as_bytes())?;
    let count = cycles.split_ascii_whitespace().count() as u64;
    Some((thread.parse().ok()?, count.saturating_add(others)))
}
