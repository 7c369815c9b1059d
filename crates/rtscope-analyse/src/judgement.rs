//! What a record says: the figures of each cell, what was found, and the verdict.

use rtscope_model::{
    event::EndReason,
    finding::Finding,
    frames::Frames,
    histogram::Histogram,
    verdict::{Requirement, Verdict},
};
use serde::Serialize;

use crate::statistics::{
    dependence::{Blocks, Dependence, IntervalRefusal, Margins},
    exceedance::{Exceedance, WatchedTime},
    modes::Mode,
    quantile::{self, Quantile},
    tail::Tail,
};

/// What a record says.
#[derive(Clone, Debug)]
pub struct Judgement {
    pub verdict: Verdict,
    /// Why, one sentence each, the weightiest first.
    pub reasons: Vec<String>,
    /// Everything its reader must know, the weightiest first.
    pub findings: Vec<Finding>,
    /// Codes of the findings that would have changed the verdict if the user hadn't accepted them.
    pub accepted: Vec<String>,
    /// Each requirement in each cell it applies to.
    pub outcomes: Vec<RequirementOutcome>,
    /// The cells in the order of the run.
    pub cells: Vec<CellSummary>,
}

/// A requirement in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct RequirementOutcome {
    pub requirement: Requirement,
    pub cell: u32,
    pub name: String,
    /// Pass, Fail or Inconclusive: the answer, with the findings considered. Every output shows this
    /// one.
    pub verdict: Verdict,
    /// What the figures alone would say.
    pub figures_verdict: Verdict,
    /// What was seen, as a sentence that statistics can back.
    pub sentence: String,
    /// Where the verdict is not that of the figures: the finding that decided it, in words.
    pub withheld_because: Option<String>,
}

impl RequirementOutcome {
    /// What was seen, and why the verdict is another than the figures alone would give.
    #[must_use]
    pub fn explanation(&self) -> String {
        match &self.withheld_because {
            Some(why) => format!("{}; inconclusive because {why}", self.sentence),
            None => self.sentence.clone(),
        }
    }
}

/// The figures of one cell.
#[derive(Clone, Debug)]
pub struct CellSummary {
    /// Index of the cell in the plan.
    pub cell: u32,
    pub name: String,
    /// What the loads achieved.
    pub loads: Vec<LoadSummary>,
    /// From its first to its last programmed expiry, on the wall.
    pub duration_ns: u64,
    /// Why it ended; none when the record was cut short.
    pub ended: Option<EndReason>,
    pub all: FigureRow,
    pub threads: Vec<FigureRow>,
    /// The wake-ups of all threads in blocks of time: how they depend on each other.
    pub blocks: Blocks,
    /// Humps of the latencies of all threads.
    pub modes: Vec<Mode>,
    /// How the latency goes on beyond what was seen, all threads together.
    pub tail: Tail,
}

/// What one load achieved in a cell.
#[derive(Clone, Debug, Serialize)]
pub struct LoadSummary {
    pub line: String,
    /// Units of work done.
    pub work: u64,
    pub unit: String,
    /// Units a second over the time that rates were reported for.
    pub per_second: f64,
    /// Spans in which rates were reported.
    pub spans: u64,
    /// Spans in which the load did nothing, though at its rate ten units or more were due: the proof
    /// of load has a hole.
    pub idle_spans: u64,
    /// Time from its end to the end of its phase; 0 while that is not known.
    pub unloaded_ns: u64,
    /// How it ended; none when the record was cut short.
    pub ended: Option<String>,
    /// Whether it ran and ended as it should.
    pub ok: bool,
}

/// The figures of one thread, or of all, in one cell.
#[derive(Clone, Debug)]
pub struct FigureRow {
    /// `CPU 1`, `thread 3`, `all`.
    pub label: String,
    /// Index of the thread; none for all.
    pub thread: Option<u32>,
    /// Its CPU; none for all, and for a thread that may use several.
    pub cpu: Option<u32>,
    /// Activations on the grid.
    pub planned: u64,
    /// Measured activations.
    pub recorded: u64,
    /// Activations swallowed by late wake-ups.
    pub missed: u64,
    /// Whether `planned` and `missed` are known: an import holds what was recorded, no more.
    pub missed_is_known: bool,
    /// Wake-ups before their expiry.
    pub early: u64,
    /// Time under observation, summed over the threads of the row.
    pub exposure_ns: u64,
    /// Latencies were cut to whole multiples of this by another tool: a real one is less than this longer. 1
    /// or less where they are exact.
    pub grain_ns: u64,
    pub histogram: Histogram,
    /// Measured latencies and what the missed activations would have seen.
    pub corrected: Histogram,
    /// Quantiles of the measured latencies with their intervals.
    pub quantiles: Vec<Quantile>,
    /// Exceedance of each required limit, and of a ladder of round ones.
    pub exceedances: Vec<Exceedance>,
    /// How far the 95 % interval of the mean of `corrected` reaches from it, or why there is none.
    pub mean_margins_ns: Result<Margins, IntervalRefusal>,
    /// Of a network sampler: what became of its frames.
    pub frames: Option<Frames>,
}

/// Quantiles from which on latencies are the tail: p99.
const TAIL_FROM: u32 = 990_000_000;

/// Shorter phases rarely contain several of the disturbances that last for seconds
/// (`docs/method/coverage.md`).
const SHORT_NS: u64 = 120_000_000_000;

/// What intervals of a short phase can't know.
const SHORT: &str = "in less than 2 min, disturbances that are rare or last for seconds may not have occurred: the \
    intervals do not allow for them";

impl CellSummary {
    /// How long all threads together were watched.
    #[must_use]
    pub fn watch(&self) -> WatchedTime {
        WatchedTime::of_threads(self.threads.iter().map(|row| row.exposure_ns), self.duration_ns)
    }

    /// How much the wake-ups beyond p99 depend on each other.
    ///
    /// # Errors
    ///
    /// When that is not known.
    pub fn dependence(&self) -> Result<Dependence, IntervalRefusal> {
        let found = self.all.quantiles.iter().find(|quantile| quantile.parts == TAIL_FROM);
        found.and_then(|quantile| quantile.dependence).unwrap_or(Err(IntervalRefusal::Nothing))
    }

    /// How much the wake-ups beyond p99 depend on each other, or why that is not known, in words, and what
    /// intervals of a short phase can't know: a clause each.
    #[must_use]
    pub fn dependence_clauses(&self) -> Vec<String> {
        match self.dependence() {
            Ok(found) => {
                let short = (self.duration_ns < SHORT_NS).then(|| SHORT.to_owned());
                found.sentence(self.all.recorded).into_iter().chain(short).collect()
            }
            Err(IntervalRefusal::Nothing) => Vec::new(),
            Err(refusal) => vec![format!("no intervals for the tail: {refusal}")],
        }
    }
}

impl FigureRow {
    /// Number of independent latencies that those of the tail are worth: by the quantile from p99 on
    /// beyond which they depend on each other most.
    ///
    /// # Errors
    ///
    /// When that is not known for one of them.
    pub fn effective(&self) -> Result<u64, IntervalRefusal> {
        let tail = self.quantiles.iter().filter(|quantile| quantile.parts >= TAIL_FROM);
        let found = tail.filter_map(|quantile| quantile.dependence);
        let inflation = found
            .map(|found| found.map(|found| found.inflation()))
            .try_fold(1.0, |largest: f64, inflation| {
                inflation.map(|inflation| largest.max(inflation))
            })?;
        Ok((self.recorded as f64 / inflation) as u64)
    }

    /// What the observed maximum covers, in words.
    #[must_use]
    pub fn coverage_sentence(&self) -> String {
        match self.effective() {
            Ok(effective) => quantile::coverage_sentence(effective),
            Err(refusal) => {
                format!(
                    "the share of wake-ups that the observed maximum covers is not known: {refusal}"
                )
            }
        }
    }
}

impl FigureRow {
    /// What the largest latency is below, where another tool cut it to a whole unit.
    #[must_use]
    pub fn max_below_ns(&self) -> Option<u64> {
        self.histogram
            .max_ns()
            .filter(|_| self.is_cut())
            .map(|max_ns| max_ns.saturating_add(self.grain_ns))
    }

    /// What the mean is below, where another tool cut latencies to whole units. A mean of latencies that are
    /// in no bucket was cut itself, too.
    #[must_use]
    pub fn mean_below_ns(&self) -> Option<f64> {
        let cuts = if self.histogram.unplaced().count > 0 { 2.0 } else { 1.0 };
        let mean_ns = self.histogram.mean_ns().filter(|_| self.is_cut())?;
        Some(mean_ns + cuts * self.grain_ns as f64)
    }

    const fn is_cut(&self) -> bool {
        self.grain_ns > 1
    }
}

impl FigureRow {
    /// The largest latency. An activation that was never answered has none that was measured: the time
    /// that it had waited at least counts, where it is larger.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        self.corrected.max_ns()
    }

    /// Whether the largest latency is the time that an activation which was never answered had waited at
    /// least.
    #[must_use]
    pub fn max_is_at_least(&self) -> bool {
        self.corrected.max_ns() > self.histogram.max_ns()
    }

    /// How long an activation that was never answered had waited at least, where that is longer than every
    /// latency.
    #[must_use]
    pub fn waited_ns(&self) -> Option<u64> {
        self.max_ns().filter(|_| self.max_is_at_least())
    }
}
