//! A test for each figure of each cell.

use rtscope_model::{
    event::{EndReason, Event},
    verdict::{Statistic, Verdict},
};
use serde_json::{Map, json};

use super::{
    Part,
    schema::{Number, Reached, Status, Test},
};
use crate::{
    judgement::{CellSummary, RequirementOutcome},
    statistics::quantile,
};

/// A figure of a cell.
struct Figure {
    /// The statistic, as in requirements.
    name: String,
    /// None where it isn't known.
    number: Option<Number>,
    /// Whether the true one may be larger.
    is_at_least: bool,
}

impl Part<'_> {
    pub(super) fn figures(&self) -> impl Iterator<Item = Test> {
        self.subject.judgement.cells.iter().flat_map(|cell| self.of_cell(cell))
    }

    fn of_cell(&self, cell: &CellSummary) -> Vec<Test> {
        let outcomes = &self.subject.judgement.outcomes;
        let outcomes: Vec<_> = outcomes.iter().filter(|of| of.cell == cell.cell).collect();
        let reached = self.cell_reached(cell);
        let mut tests = Vec::new();
        for figure in figures(cell, &outcomes) {
            let asked: Vec<&RequirementOutcome> = outcomes
                .iter()
                .filter(|of| of.requirement.statistic.to_string() == figure.name)
                .copied()
                .collect();
            if figure.number.is_some() || !asked.is_empty() || figure.name == ALWAYS {
                tests.push(self.figure(cell, reached, figure, &asked));
            }
        }
        tests
    }

    fn figure(
        &self,
        cell: &CellSummary,
        reached: Reached,
        figure: Figure,
        asked: &[&RequirementOutcome],
    ) -> Test {
        let status = Status::of(Verdict::worst(asked.iter().map(|of| of.verdict)), reached);
        let open = asked.iter().filter(|of| of.verdict == Verdict::Inconclusive);
        let open: Vec<String> = open.map(|of| of.explanation()).collect();
        let said = asked.iter().map(|of| format!("{}: {}", of.requirement, of.explanation()));
        let mut misc = Map::new();
        if !asked.is_empty() {
            let each = asked.iter().map(
                |of| json!({ "requirement": of.requirement.to_string(), "verdict": of.verdict }),
            );
            misc.insert("requirements".to_owned(), each.collect());
        }
        if !open.is_empty() {
            misc.insert("inconclusive".to_owned(), json!(open));
        }
        if figure.is_at_least {
            misc.insert("is_at_least".to_owned(), json!(true));
        }
        misc.insert("recorded".to_owned(), json!(cell.all.recorded));
        let number = figure.number.filter(|_| status != Status::Miss);
        let began = self.cell_began_ns(cell);
        Test {
            id: format!("{}.{}.{}", self.id, cell.cell, figure.name),
            origin: self.origin(),
            build_id: self.build.to_string(),
            path: self.path(&[&cell.name, &figure.name]),
            status,
            number,
            comment: said.collect::<Vec<_>>().join("; "),
            start_time: began.and_then(|at_ns| self.start_time(at_ns)),
            duration: self.duration(cell.duration_ns),
            log_url: None,
            output_files: Vec::new(),
            environment: self.environment.clone(),
            misc,
        }
    }

    fn cell_began_ns(&self, cell: &CellSummary) -> Option<u64> {
        let events = self.subject.record.events.iter();
        let mut began = events.filter(|stamped| {
            matches!(&stamped.event, Event::PhaseStarted { cell: of, .. } if *of == cell.cell)
        });
        began.next().map(|stamped| stamped.at_ns)
    }

    fn cell_reached(&self, cell: &CellSummary) -> Reached {
        match cell.ended {
            _ if self.subject.record.origin_of(cell.cell).is_some() => Reached::Complete,
            None if self.cell_began_ns(cell).is_none() => Reached::NeverBegan,
            None | Some(EndReason::Interrupted | EndReason::Failed) => Reached::WasCut,
            Some(_) => Reached::Complete,
        }
    }
}

/// What is a test of its own even where nothing was measured and nothing required, so that its lack is seen.
const ALWAYS: &str = "max";

/// All figures of a cell that there are, and those that are required. Like the requirements they count what missed
/// activations would have seen, so that a status and its number agree.
fn figures(cell: &CellSummary, outcomes: &[&RequirementOutcome]) -> Vec<Figure> {
    let row = &cell.all;
    let exact = |name: String, number: Option<Number>| Figure { name, number, is_at_least: false };
    let latency = |name: String, ns: Option<u64>| exact(name, ns.map(Number::seconds));
    // Beyond the last wake-up, a quantile is the maximum once more.
    let count = row.corrected.count();
    let ladder = quantile::LADDER.iter().copied();
    let mut parts: Vec<u32> =
        ladder.filter(|&parts| quantile::rank(count, parts) < count).collect();
    parts.extend(outcomes.iter().filter_map(|of| match of.requirement.statistic {
        Statistic::Quantile(parts) => Some(parts),
        _ => None,
    }));
    parts.sort_unstable();
    parts.dedup();
    let mut figures = vec![
        latency("min".to_owned(), row.histogram.min_ns()),
        latency(Statistic::Mean.to_string(), row.corrected.mean_ns().map(|ns| ns.round() as u64)),
    ];
    figures.extend(parts.into_iter().map(|parts| {
        let rank = quantile::rank(count, parts);
        latency(Statistic::Quantile(parts).to_string(), row.corrected.at_rank_ns(rank))
    }));
    let max = latency(Statistic::Max.to_string(), row.max_ns());
    figures.push(Figure { is_at_least: row.max_is_at_least(), ..max });
    let is_missed = row.missed_is_known || row.missed > 0;
    figures.push(Figure {
        name: Statistic::Missed.to_string(),
        number: is_missed.then(|| Number::count(row.missed)),
        is_at_least: !row.missed_is_known,
    });
    for (statistic, count) in [
        (Statistic::Late, row.frames.as_ref().map(|frames| frames.late)),
        (Statistic::Lost, row.frames.as_ref().map(|frames| frames.lost)),
    ] {
        figures.push(exact(statistic.to_string(), count.map(Number::count)));
    }
    figures
}
