//! What changed from A to B in one pair of cells, with intervals, and what it means for a requirement.

use rtscope_model::{
    histogram::Histogram,
    time::{Nanos, Rounding},
    verdict::{Requirement, Statistic, Verdict},
};
use serde::Serialize;

use super::{
    limit::{self, Exceedances, Missed},
    pairing::{Member, Pair},
    ratio::{Chance, ShareRatio},
    sample::{self, Basis, Buckets, Sample, cumulative},
    shift::{self, Shift},
};
use crate::{
    judgement::{FigureRow, RequirementOutcome},
    number::{counted, grouped},
    statistics::{exceedance, quantile},
};

/// Limits that are looked at when none is required.
const LIMITS_UNASKED: usize = 4;

/// One pair of cells.
#[derive(Clone, Debug, Serialize)]
pub struct CellComparison {
    /// Name of the cell, or of both.
    pub name: String,
    pub a: SideFigures,
    pub b: SideFigures,
    /// What it means, the most important first, in words.
    pub sentences: Vec<String>,
    /// What it means for each requirement.
    pub effects: Vec<Effect>,
    /// How often each limit is reached.
    pub exceedances: Vec<Exceedances>,
    /// How far each quantile moved.
    pub shifts: Vec<Shift>,
    /// Missed activations; none where those of a side are not known.
    pub missed: Option<Missed>,
    /// Wasserstein's distance: how far latencies must move on average to turn one distribution into the
    /// other. None where latencies have no bucket.
    pub wasserstein_ns: Option<f64>,
    /// What the intervals are made from.
    pub basis: Basis,
    #[serde(skip)]
    pub(crate) histograms: [Histogram; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SideFigures {
    pub runs: usize,
    pub recorded: u64,
    /// Swallowed activations; none where that is not known, as of imports.
    pub missed: Option<u64>,
    /// What became of frames; none where a run of this side sent none.
    pub frames: Option<SideFrames>,
    /// Time under observation, summed over the threads.
    pub exposure_ns: u64,
    pub mean_ns: Option<u64>,
    /// The median; none where it has no bucket.
    pub p50_ns: Option<u64>,
    /// The largest of this side's runs. It is a single latency, so it is no basis for a comparison.
    pub max_ns: u64,
    /// Whether it is a lower bound: how long a missed activation had waited so far.
    pub max_is_at_least: bool,
}

/// What became of the frames of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SideFrames {
    /// Cycles in which no frame was sent.
    pub not_sent: u64,
    pub sent: u64,
    /// Came back after the timeout.
    pub late: u64,
    pub lost: u64,
    /// Of those lost, frames that the kernel did not take.
    pub refused: u64,
    pub out_of_order: u64,
    pub duplicates: u64,
    pub strays: u64,
}

/// What a difference means for a requirement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    pub requirement: Requirement,
    /// A's verdict on it: the worst of its runs.
    pub a: Verdict,
    pub b: Verdict,
    pub sentence: String,
    /// Why runs of A, of B are inconclusive although their figures meet the requirement.
    #[serde(skip)]
    pub(super) withheld: [Option<String>; 2],
}

/// Compares a pair. Its sentences come with [`CellComparison::conclude`].
pub(super) fn between(pair: &Pair<'_>, limits_ns: &[u64]) -> CellComparison {
    let (buckets, mut readings) = sample::samples(&pair.a, &pair.b);
    let shifts = shift::all(&buckets, &readings);
    let limits = limits(pair, limits_ns, &readings[0].0, &readings[0].1);
    let exceedances = limits.into_iter().map(|limit_ns| limit::exceedances(&readings, limit_ns));
    let exceedances = exceedances.collect();
    let wasserstein_ns = match &readings[..] {
        [(a, b)] => distance_ns(&buckets, a, b),
        // In several readings, a part of the distance would come from the buckets.
        _ => None,
    };
    let (a, b) = readings.swap_remove(0);
    CellComparison {
        name: pair.name.clone(),
        a: figures(&pair.a, &a),
        b: figures(&pair.b, &b),
        sentences: Vec::new(),
        effects: effects(pair),
        exceedances,
        shifts,
        missed: limit::missed(&a, &b),
        wasserstein_ns,
        basis: sample::basis(&a, &b),
        histograms: [a.histogram, b.histogram],
    }
}

impl CellComparison {
    /// The chances of all figures that were looked at.
    pub(super) fn chances(&mut self) -> impl Iterator<Item = &mut Chance> {
        let ratios = self.exceedances.iter_mut().map(|seen| &mut seen.ratio);
        let ratios = ratios.chain(self.missed.iter_mut().map(|missed| &mut missed.ratio));
        let shifts = self.shifts.iter_mut().filter_map(|shift| shift.chance.as_mut());
        ratios.filter_map(|ratio| ratio.as_mut().map(|ratio| &mut ratio.chance)).chain(shifts)
    }

    /// Figures that were looked at and whose interval can't be given.
    pub(super) fn refused(&self) -> usize {
        let limits = self.exceedances.iter().filter(|seen| seen.refused.is_some()).count();
        let missed = self.missed.iter().filter(|missed| missed.refused.is_some()).count();
        limits + missed + self.shifts.iter().filter(|shift| shift.refused.is_some()).count()
    }

    /// What differs, with its size.
    pub(crate) fn differing(&self) -> Vec<String> {
        let is_real = |ratio: &&ShareRatio| ratio.chance.is_different();
        let shifts = self.shifts.iter().filter(|shift| shift.is_different()).map(|shift| {
            format!(
                "{} ({} us)",
                Statistic::Quantile(shift.parts),
                shift::signed_us(shift.shift_ns, Rounding::Nearest)
            )
        });
        let limits = self.exceedances.iter().filter_map(|seen| {
            let ratio = seen.ratio.as_ref().filter(is_real)?;
            Some(format!("{} or more ({})", Nanos(seen.limit_ns).unrounded(), ratio.times()))
        });
        let missed = self.missed.iter().filter_map(|missed| missed.ratio.as_ref()).filter(is_real);
        let missed = missed.map(|ratio| format!("missed activations ({})", ratio.times()));
        shifts.chain(limits).chain(missed).collect()
    }

    /// Says what it means, once the chances are adjusted.
    pub(super) fn conclude(&mut self) {
        for effect in &mut self.effects {
            let limit_ns = effect.requirement.limit_ns();
            let seen = self.exceedances.iter().find(|seen| Some(seen.limit_ns) == limit_ns);
            let is_strict_maximum = effect.requirement.statistic == Statistic::Max
                && effect.requirement.once_in.is_none();
            let withheld = effect.withheld.each_ref().map(Option::as_deref);
            let seen = seen.filter(|_| is_strict_maximum);
            let sentence = seen.and_then(|seen| seen.sentence_if(withheld));
            effect.sentence = sentence
                .unwrap_or_else(|| verdicts_sentence(effect.requirement, effect.a, effect.b));
        }
        let mut sentences: Vec<String> =
            self.effects.iter().map(|effect| effect.sentence.clone()).collect();
        if sentences.is_empty() {
            sentences.extend(self.exceedances.iter().filter_map(Exceedances::sentence).take(1));
        }
        sentences.extend(shift::sentence(&self.shifts));
        sentences.extend(self.missed.as_ref().and_then(Missed::sentence));
        sentences.extend(frames_sentence(&self.a, &self.b));
        sentences.extend(self.wasserstein_ns.map(|ns| {
            format!("the distributions are {:.2} us apart (Wasserstein distance)", ns / 1e3)
        }));
        self.sentences = sentences;
    }
}

fn figures(members: &[Member<'_>], sample: &Sample<'_>) -> SideFigures {
    let rows = || members.iter().map(|member| &member.cell.all);
    let histogram = &sample.histogram;
    let is_known = rows().all(|row| row.missed_is_known);
    let middle = quantile::rank(histogram.count(), 500_000_000);
    SideFigures {
        runs: members.len(),
        recorded: histogram.count(),
        missed: is_known.then(|| rows().map(|row| row.missed).sum()),
        frames: side_frames(rows()),
        exposure_ns: rows().map(|row| row.exposure_ns).sum(),
        mean_ns: histogram.mean_ns().map(|mean_ns| mean_ns.round() as u64),
        p50_ns: histogram.at_rank_ns(middle),
        max_ns: rows().filter_map(|row| row.max_ns()).max().unwrap_or(0),
        max_is_at_least: rows().filter_map(|row| row.max_ns()).max() > histogram.max_ns(),
    }
}

/// What became of the frames, where some of a side did not come back in time.
fn frames_sentence(a: &SideFigures, b: &SideFigures) -> Option<String> {
    let (a, b) = (a.frames?, b.frames?);
    let text = |side: SideFrames| {
        format!(
            "{} late, {} lost and {} not sent of {}",
            grouped(side.late),
            grouped(side.lost),
            grouped(side.not_sent),
            counted(side.sent.saturating_add(side.not_sent), "cycle")
        )
    };
    let any = |side: SideFrames| side.late > 0 || side.lost > 0 || side.not_sent > 0;
    (any(a) || any(b)).then(|| format!("frames: {} against {}", text(a), text(b)))
}

fn side_frames<'a>(rows: impl Iterator<Item = &'a FigureRow>) -> Option<SideFrames> {
    let mut sum = SideFrames::default();
    for row in rows {
        let frames = row.frames.as_ref()?;
        for (own, more) in [
            (&mut sum.not_sent, row.not_sent()?),
            (&mut sum.sent, frames.sent),
            (&mut sum.late, frames.late),
            (&mut sum.lost, frames.lost),
            (&mut sum.refused, frames.refused),
            (&mut sum.out_of_order, frames.out_of_order),
            (&mut sum.duplicates, frames.duplicates),
            (&mut sum.strays, frames.strays),
        ] {
            *own = own.saturating_add(more);
        }
    }
    Some(sum)
}

/// The required limits, those asked for, and if there is none some round ones in the tails.
fn limits(pair: &Pair<'_>, asked_ns: &[u64], a: &Sample<'_>, b: &Sample<'_>) -> Vec<u64> {
    let mut limits: Vec<u64> = asked_ns.to_vec();
    limits.extend(requirements(pair).iter().filter_map(Requirement::limit_ns));
    if limits.is_empty() {
        let far = |side: &Sample<'_>| {
            let rank = quantile::rank(side.histogram.count(), 990_000_000);
            side.histogram.at_rank_ns(rank).or(side.histogram.max_ns()).unwrap_or(0)
        };
        let from = far(a).min(far(b));
        let to =
            [a, b].into_iter().filter_map(|side| side.histogram.max_ns()).max().unwrap_or(from);
        let round = exceedance::round_limits_ns(from, to);
        let reached = round.into_iter().filter(|&limit| limit > from && limit <= to);
        limits.extend(reached.take(LIMITS_UNASKED));
    }
    limits.sort_unstable();
    limits.dedup();
    limits
}

/// Every requirement that applies to a cell of the pair.
fn requirements(pair: &Pair<'_>) -> Vec<Requirement> {
    let mut all: Vec<Requirement> = Vec::new();
    for member in pair.a.iter().chain(&pair.b) {
        let outcomes = &member.run.judgement.outcomes;
        for outcome in outcomes.iter().filter(|outcome| outcome.cell == member.cell.cell) {
            if !all.contains(&outcome.requirement) {
                all.push(outcome.requirement);
            }
        }
    }
    all
}

fn effects(pair: &Pair<'_>) -> Vec<Effect> {
    let effect = |requirement: Requirement| {
        let (a, b) = (verdict(&pair.a, requirement)?, verdict(&pair.b, requirement)?);
        let withheld = [&pair.a, &pair.b].map(|members| {
            outcomes(members, requirement).find_map(|outcome| outcome.withheld_because.clone())
        });
        Some(Effect { requirement, a, b, sentence: String::new(), withheld })
    };
    requirements(pair).into_iter().filter_map(effect).collect()
}

/// What each run of a side says of a requirement.
fn outcomes<'a>(
    members: &[Member<'a>],
    requirement: Requirement,
) -> impl Iterator<Item = &'a RequirementOutcome> {
    members.iter().flat_map(move |member| {
        let cell = member.cell.cell;
        let outcomes = member.run.judgement.outcomes.iter();
        outcomes.filter(move |outcome| outcome.cell == cell && outcome.requirement == requirement)
    })
}

/// What a side's runs come to: the worst of them. None where the requirement doesn't apply.
fn verdict(members: &[Member<'_>], requirement: Requirement) -> Option<Verdict> {
    Verdict::worst(outcomes(members, requirement).map(|outcome| outcome.verdict))
}

fn verdicts_sentence(requirement: Requirement, a: Verdict, b: Verdict) -> String {
    let meets = |side: &str, verdict: Verdict| match verdict {
        Verdict::Pass => format!("{side} meets it"),
        Verdict::Fail => format!("{side} does not meet it"),
        _ => format!("{side} can't tell"),
    };
    let both = match (a, b) {
        (Verdict::Pass, Verdict::Pass) => "both sides meet it".to_owned(),
        (Verdict::Fail, Verdict::Fail) => "neither side meets it".to_owned(),
        (a, b) if a == b => "neither side can tell".to_owned(),
        (a, b) => format!("{}, {}", meets("A", a), meets("B", b)),
    };
    format!("{requirement}: {both}")
}

/// Wasserstein's distance of two distributions; none where latencies have no bucket.
fn distance_ns(buckets: &Buckets, a: &Sample<'_>, b: &Sample<'_>) -> Option<f64> {
    let is_whole = [a, b].iter().all(|side| side.histogram.unplaced().is_empty());
    let (whole_a, whole_b) = (cumulative(&a.all), cumulative(&b.all));
    let apart: Vec<f64> = whole_a.iter().zip(&whole_b).map(|(a, b)| b - a).collect();
    is_whole.then(|| buckets.area(&apart))
}
