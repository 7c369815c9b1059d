//! Settings that were tried beside a system as it was found: better, worse, or no difference shown.
//!
//! The trials are interleaved: a *block* (a round of a run, a seed of a guest) has each setting once, and the system
//! as found at least once. So a drift of the machine is in all trials of a block, and their differences don't have
//! it. For each figure, Student's t is taken on the differences of logarithms within the blocks: the randomized block
//! design (R. A. Fisher, The Design of Experiments, 1935, chapter 4). A spread is never taken as smaller than that of
//! Poisson counts. What the histogram's buckets leave open may be the same in each block, so more blocks don't lessen
//! it: a change counts as far as no bucket explains it. All figures of all settings are adjusted together (Holm), because
//! of twenty settings without any effect one looks better by chance.

use std::collections::BTreeSet;

use rtscope_model::{
    record::Record,
    time::Nanos,
    verdict::{Requirement, Statistic},
};
use serde::Serialize;

use super::ratio::{self, Chance, Difference, Values};
use crate::{
    judgement::{CellSummary, FigureRow},
    statistics::{machine_use, quantile},
};

/// Fewest blocks that show a spread.
pub const BLOCKS_MIN: usize = 3;

/// Variance of the logarithm of a latency, at least: nobody needs a change of 1 %.
const LATENCY_VARIANCE: f64 = 1e-4;

/// The quantile that is compared where nothing is required: p99.
const DEFAULT_QUANTILE: Statistic = Statistic::Quantile(990_000_000);

/// [`TrialCost::what`] of the power of the CPUs, which is no work of a load.
pub const POWER: &str = "power";

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialStatistic {
    /// A mean or a quantile, with what missed activations would have seen.
    Latency(Statistic),
    /// Share of activations at or above a limit.
    AtOrAbove(u64),
    /// Share of activations that were missed.
    Missed,
    /// Share of frames that came back after the timeout.
    Late,
    /// Share of frames that did not come back.
    Lost,
}

impl TrialStatistic {
    /// What decides requirements; p99 where nothing is required.
    #[must_use]
    pub fn of(requirements: &[Requirement]) -> Vec<TrialStatistic> {
        let of_one = |requirement: &Requirement| match requirement.statistic {
            Statistic::Max => TrialStatistic::AtOrAbove(requirement.limit),
            Statistic::Missed => TrialStatistic::Missed,
            Statistic::Late => TrialStatistic::Late,
            Statistic::Lost => TrialStatistic::Lost,
            statistic => TrialStatistic::Latency(statistic),
        };
        let mut all = Vec::new();
        for one in requirements.iter().map(of_one) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        if all.is_empty() {
            all.push(TrialStatistic::Latency(DEFAULT_QUANTILE));
        }
        all
    }

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            TrialStatistic::Latency(statistic) => statistic.to_string(),
            TrialStatistic::AtOrAbove(limit_ns) => {
                format!("{} or more", Nanos(limit_ns).unrounded())
            }
            TrialStatistic::Missed => "missed".to_owned(),
            TrialStatistic::Late => "late".to_owned(),
            TrialStatistic::Lost => "lost".to_owned(),
        }
    }

    /// Whether it is a share and not a latency.
    #[must_use]
    pub fn is_share(self) -> bool {
        !matches!(self, TrialStatistic::Latency(_))
    }

    /// Its figure in one cell; none where the cell recorded nothing, or sent no frames.
    fn of_row(self, row: &FigureRow) -> Option<Figure> {
        let all = row.corrected.count();
        let share = |count: u64, of: u64| (of > 0).then(|| Figure::share(count, of));
        let frames = row.frames.as_ref();
        match self {
            // The sum of latencies is exact.
            TrialStatistic::Latency(Statistic::Mean) => {
                quantile::statistic_ns(&row.corrected, Statistic::Mean).map(Figure::exact_latency)
            }
            TrialStatistic::Latency(statistic) => {
                let ns = quantile::statistic_ns(&row.corrected, statistic)?;
                Some(Figure::latency(ns, quantile::bucket_begin_ns(&row.corrected, ns)?))
            }
            TrialStatistic::AtOrAbove(limit_ns) => {
                share(row.corrected.at_or_above(limit_ns).1, all)
            }
            TrialStatistic::Missed => share(row.missed, row.planned),
            TrialStatistic::Late => frames.and_then(|frames| share(frames.late, frames.sent)),
            TrialStatistic::Lost => frames.and_then(|frames| share(frames.lost, frames.sent)),
        }
    }
}

/// A figure in a cell.
#[derive(Clone, Copy, Debug)]
struct Figure {
    value: f64,
    /// Its logarithm.
    log: f64,
    /// The variance that chance gives the logarithm at least, in each cell anew.
    least: f64,
    /// The true logarithm is smaller by so much at most.
    width: f64,
}

impl Figure {
    /// A latency that lies in a bucket which begins there.
    fn latency(ns: u64, begin_ns: u64) -> Figure {
        let [log, log_begin] = [ns, begin_ns].map(|ns| (ns.max(1) as f64).ln());
        Figure { value: ns as f64, log, least: LATENCY_VARIANCE, width: log - log_begin }
    }

    fn exact_latency(ns: u64) -> Figure {
        Figure::latency(ns, ns)
    }

    /// So many of them. Half an event more: a count of 0 has a logarithm, too.
    fn share(count: u64, of: u64) -> Figure {
        let more = count as f64 + 0.5;
        let (value, log) = (count as f64 / of as f64, (more / of as f64).ln());
        Figure { value, log, least: 1.0 / more, width: 0.0 }
    }

    /// A rate or a power.
    fn measured(value: f64) -> Figure {
        Figure { value, log: value.ln(), least: 0.0, width: 0.0 }
    }
}

/// What one cell showed.
#[derive(Clone, Debug)]
pub struct TrialCell {
    /// The block: a round, or a seed.
    pub block: u64,
    /// The load, by the name that tables show.
    pub load: String,
    figures: Vec<Option<Figure>>,
    /// Units of work by second, by load.
    work: Vec<(String, f64)>,
    power_w: Option<f64>,
}

/// Whether the figures of a cell are those of its load: something was recorded, and every load did run.
#[must_use]
pub fn is_usable(cell: &CellSummary) -> bool {
    cell.all.recorded > 0 && cell.loads.iter().all(|load| load.ok)
}

/// Whether a cell was measured, but its figures can't be compared.
#[must_use]
pub fn is_left_out(cell: &CellSummary) -> bool {
    cell.all.planned > 0 && !is_usable(cell)
}

impl TrialCell {
    /// Takes the figures of a judged cell.
    #[must_use]
    pub fn of(
        block: u64,
        load: &str,
        cell: &CellSummary,
        record: &Record,
        statistics: &[TrialStatistic],
    ) -> TrialCell {
        let work = cell.loads.iter().filter(|load| load.ok && load.per_second > 0.0);
        TrialCell {
            block,
            load: load.to_owned(),
            figures: statistics.iter().map(|statistic| statistic.of_row(&cell.all)).collect(),
            work: work.map(|load| (load.line.clone(), load.per_second)).collect(),
            power_w: machine_use::of_cell(record, cell.cell).power_w,
        }
    }
}

/// All that is known of one setting.
#[derive(Clone, Debug)]
pub struct TrialSide {
    /// What it is called.
    pub name: String,
    /// Its cells.
    pub cells: Vec<TrialCell>,
}

/// Number of blocks in which the system as found and at least one setting were measured.
#[must_use]
pub fn measured_blocks(found: &TrialSide, tried: &[TrialSide]) -> u64 {
    let blocks =
        |side: &TrialSide| -> BTreeSet<u64> { side.cells.iter().map(|cell| cell.block).collect() };
    let of_tried: BTreeSet<u64> = tried.iter().flat_map(blocks).collect();
    blocks(found).intersection(&of_tried).count() as u64
}

/// What a setting does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialEffect {
    /// At least one figure is better, and none is worse.
    Better,
    /// At least one figure is worse, and none is better.
    Worse,
    /// Some figures are better, and others are worse.
    Mixed,
    /// No figure differs by more than chance explains.
    NotShown,
}

impl TrialEffect {
    /// As tables show it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            TrialEffect::Better => "better",
            TrialEffect::Worse => "worse",
            TrialEffect::Mixed => "better and worse",
            TrialEffect::NotShown => "no difference shown",
        }
    }
}

/// How many times as large a figure is with a setting as without it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrialRatio {
    /// Geometric mean over the blocks.
    pub ratio: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of its 95 % interval.
    pub high: f64,
}

impl From<Difference> for TrialRatio {
    fn from(found: Difference) -> TrialRatio {
        TrialRatio { ratio: found.value.exp(), low: found.low.exp(), high: found.high.exp() }
    }
}

/// A figure under a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialFigure {
    /// The load.
    pub load: String,
    /// Name of the statistic.
    pub statistic: String,
    /// Whether it is a share of activations, else it is in nanoseconds.
    pub is_share: bool,
    /// As found: the geometric mean over the blocks of a latency, the mean of a share.
    pub found: f64,
    /// The same with the setting.
    pub tried: f64,
    /// The change; none with fewer than [`BLOCKS_MIN`] blocks.
    #[serde(flatten)]
    pub change: Option<TrialRatio>,
    /// Chance of such a change without any effect, alone and adjusted for all figures of all settings.
    #[serde(flatten)]
    pub chance: Option<Chance>,
    /// Whether it differs by more than chance explains.
    pub differs: bool,
}

/// What a setting costs: work that a load did, or power.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialCost {
    /// The load under which it was measured.
    pub load: String,
    /// `work of LOAD` or `power`.
    pub what: String,
    /// Geometric mean over the blocks as found: units by second, or watts.
    pub found: f64,
    /// The same with the setting.
    pub tried: f64,
    /// The change, with an interval of its own.
    #[serde(flatten)]
    pub change: TrialRatio,
}

/// A setting, and what it does.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// What it is called.
    pub name: String,
    /// What it does, all figures together.
    pub effect: TrialEffect,
    /// Blocks that have it.
    pub blocks: usize,
    /// Each statistic under each load.
    pub figures: Vec<TrialFigure>,
    /// What it costs.
    pub costs: Vec<TrialCost>,
}

impl Trial {
    /// The mean change of the logarithm of its figures: the smaller, the better.
    #[must_use]
    pub fn gain(&self) -> f64 {
        let logs = self.figures.iter().filter_map(|figure| figure.change.map(|it| it.ratio.ln()));
        logs.sum::<f64>() / self.figures.len().max(1) as f64
    }
}

/// All that was better at once, by the name of its trial. What gained most comes first, and `join` adds the next one: it
/// gives none for two that contradict each other, and the one that gained less is left out.
#[must_use]
pub fn best_together<T: Clone>(
    tried: &[T],
    trials: &[Trial],
    name: impl Fn(&T) -> String,
    join: impl Fn(&T, &T) -> Option<T>,
) -> Option<T> {
    let mut better: Vec<&Trial> =
        trials.iter().filter(|trial| trial.effect == TrialEffect::Better).collect();
    better.sort_by(|a, b| a.gain().total_cmp(&b.gain()));
    let of = |trial: &Trial| tried.iter().find(|one| name(one) == trial.name);
    better.into_iter().filter_map(of).fold(None, |all: Option<T>, one| match all {
        None => Some(one.clone()),
        Some(all) => Some(join(&all, one).unwrap_or(all)),
    })
}

/// Compares each setting with the system as found. Changes by less than `least_ratio` times are never called a
/// difference; 1 for none.
#[must_use]
pub fn trials(
    found: &TrialSide,
    tried: &[TrialSide],
    statistics: &[TrialStatistic],
    least_ratio: f64,
) -> Vec<Trial> {
    let mut all: Vec<Trial> = tried.iter().map(|side| trial(found, side, statistics)).collect();
    let mut figures: Vec<&mut TrialFigure> =
        all.iter_mut().flat_map(|trial| &mut trial.figures).collect();
    ratio::adjust(figures.iter_mut().filter_map(|figure| figure.chance.as_mut()).collect());
    for figure in figures {
        let is_large = figure.change.is_some_and(|it| it.ratio.ln().abs() >= least_ratio.ln());
        figure.differs = is_large && figure.chance.is_some_and(Chance::is_different);
    }
    for trial in &mut all {
        trial.effect = effect(&trial.figures);
    }
    all
}

fn effect(figures: &[TrialFigure]) -> TrialEffect {
    let differing = || figures.iter().filter(|figure| figure.differs);
    let is = |wanted: fn(f64) -> bool| {
        differing().any(|figure| figure.change.is_some_and(|change| wanted(change.ratio)))
    };
    match (is(|ratio| ratio < 1.0), is(|ratio| ratio > 1.0)) {
        (true, false) => TrialEffect::Better,
        (false, true) => TrialEffect::Worse,
        (true, true) => TrialEffect::Mixed,
        (false, false) => TrialEffect::NotShown,
    }
}

fn trial(found: &TrialSide, tried: &TrialSide, statistics: &[TrialStatistic]) -> Trial {
    let mut loads: Vec<&str> = Vec::new();
    for cell in &tried.cells {
        if !loads.contains(&cell.load.as_str()) {
            loads.push(&cell.load);
        }
    }
    let figures = loads.iter().flat_map(|load| {
        (0..)
            .zip(statistics)
            .filter_map(|(nth, statistic)| figure(found, tried, load, (nth, *statistic)))
    });
    let mut blocks: Vec<u64> = tried.cells.iter().map(|cell| cell.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    Trial {
        name: tried.name.clone(),
        effect: TrialEffect::NotShown,
        blocks: blocks.len(),
        figures: figures.collect(),
        costs: loads.iter().flat_map(|load| costs(found, tried, load)).collect(),
    }
}

/// What is known of one figure on both sides: its changes by block, and the means of its logarithms and of itself.
#[derive(Default)]
struct Paired {
    changes: Vec<f64>,
    /// Least variance of a change.
    least: f64,
    /// The logarithms of each side are too large by so much at most, in the mean.
    widths: [f64; 2],
    logs: [f64; 2],
    means: [f64; 2],
}

impl Paired {
    /// Pairs the cells of each block that both sides have; none where no block has both.
    fn new(
        found: &TrialSide,
        tried: &TrialSide,
        load: &str,
        of: impl Fn(&TrialCell) -> Option<Figure>,
    ) -> Option<Paired> {
        let in_block = |side: &TrialSide, block: u64| -> Vec<Figure> {
            let own = side.cells.iter().filter(|cell| cell.block == block && cell.load == load);
            own.filter_map(&of).collect()
        };
        let mut blocks: Vec<u64> = tried.cells.iter().map(|cell| cell.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut paired = Paired::default();
        for block in blocks {
            let (before, after) = (in_block(found, block), in_block(tried, block));
            if before.is_empty() || after.is_empty() {
                continue;
            }
            let mean = |side: &[Figure], of: fn(&Figure) -> f64| {
                side.iter().map(of).sum::<f64>() / side.len() as f64
            };
            paired.changes.push(mean(&after, |it| it.log) - mean(&before, |it| it.log));
            for (nth, side) in [&before, &after].into_iter().enumerate() {
                paired.least += mean(side, |it| it.least) / side.len() as f64;
                paired.widths[nth] += mean(side, |it| it.width);
                paired.logs[nth] += mean(side, |it| it.log);
                paired.means[nth] += mean(side, |it| it.value);
            }
        }
        let n = paired.changes.len() as f64;
        let sums = paired.logs.iter_mut().chain(&mut paired.means).chain(&mut paired.widths);
        sums.chain([&mut paired.least]).for_each(|sum| *sum /= n);
        (!paired.changes.is_empty()).then_some(paired)
    }

    /// The mean change; none with too few blocks.
    fn change(&self) -> Option<Difference> {
        if self.changes.len() < BLOCKS_MIN {
            return None;
        }
        let changes = Values::new(&self.changes, self.least);
        let from = |value: f64| ratio::difference(Values::exact(value), changes);
        let seen = from(0.0);
        let [found, tried] = self.widths;
        // The smallest change that rounding may have made as large as the one that was seen.
        let explained = seen.value.clamp(-found, tried);
        Some(Difference {
            low: seen.low - tried,
            high: seen.high + found,
            chance: from(explained).chance,
            ..seen
        })
    }
}

fn figure(
    found: &TrialSide,
    tried: &TrialSide,
    load: &str,
    (nth, statistic): (usize, TrialStatistic),
) -> Option<TrialFigure> {
    let paired = Paired::new(found, tried, load, |cell| cell.figures.get(nth).copied().flatten())?;
    let change = paired.change();
    let [found, tried] = match statistic.is_share() {
        true => paired.means,
        false => paired.logs.map(f64::exp),
    };
    Some(TrialFigure {
        load: load.to_owned(),
        statistic: statistic.name(),
        is_share: statistic.is_share(),
        found,
        tried,
        change: change.map(TrialRatio::from),
        chance: change.map(|it| it.chance),
        differs: false,
    })
}

/// What a setting costs under a load: the work of each load line, and power.
fn costs(found: &TrialSide, tried: &TrialSide, load: &str) -> Vec<TrialCost> {
    let cost = |what: String, of: &dyn Fn(&TrialCell) -> Option<f64>| {
        let paired = Paired::new(found, tried, load, |cell| of(cell).map(Figure::measured))?;
        let change = TrialRatio::from(paired.change()?);
        let [found, tried] = paired.logs.map(f64::exp);
        Some(TrialCost { load: load.to_owned(), what, found, tried, change })
    };
    let mut lines: Vec<&String> = Vec::new();
    for (line, _) in tried.cells.iter().filter(|cell| cell.load == load).flat_map(|cell| &cell.work)
    {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let work = lines.into_iter().filter_map(|line| {
        cost(format!("work of {line}"), &|cell| {
            cell.work.iter().find(|work| work.0 == *line).map(|work| work.1)
        })
    });
    let power = cost(POWER.to_owned(), &|cell| cell.power_w.filter(|watts| *watts > 0.0));
    work.chain(power).collect()
}

#[cfg(test)]
mod tests;
