//! A judgement as test cases: what test runners and labs read.
//!
//! A case for each requirement in each cell, with the judgement's verdict, and one for the run, that
//! it can be trusted.

use rtscope_model::{
    finding::{Finding, Weight},
    verdict::{Requirement, Verdict},
};

use super::{Exported, FleetExported, PlaceExported};
use crate::judgement::{CellSummary, Judgement, RequirementOutcome};

/// Name of the suite that says whether the run can be trusted.
const RUN: &str = "run";

/// Name of its case.
const VALIDITY: &str = "valid measurement";

/// A test case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// What is tested.
    pub(super) name: String,
    /// Pass, Fail or Inconclusive; a run without a requirement is Measured.
    pub(super) verdict: Verdict,
    /// A sentence.
    pub(super) text: String,
    /// The requirement; none of the run itself.
    pub(super) requirement: Option<Requirement>,
}

/// Cases that belong together.
#[derive(Clone, Debug)]
pub(super) struct Suite<'a> {
    /// Name of the cell, or [`RUN`]; of a run at a place of a fleet after the place's name and a dot.
    pub(super) name: String,
    /// The cell; none of the run.
    pub(super) cell: Option<&'a CellSummary>,
    pub(super) cases: Vec<Case>,
    /// What was run; none of a place that brought no record.
    pub(super) subject: Option<&'a Exported<'a>>,
}

/// The run's own case, then the requirements of each cell that has any.
pub(super) fn suites<'a>(subject: &'a Exported<'_>) -> Vec<Suite<'a>> {
    let judgement = &subject.judgement;
    let name = |name: &str| at_place(subject.place.as_deref(), name);
    let of_cell = |cell: &'a CellSummary| {
        let outcomes = judgement.outcomes.iter().filter(|outcome| outcome.cell == cell.cell);
        let cases = outcomes.map(case).collect();
        Suite { name: name(&cell.name), cell: Some(cell), cases, subject: Some(subject) }
    };
    let cases = vec![validity(judgement)];
    let run = Suite { name: name(RUN), cell: None, cases, subject: Some(subject) };
    std::iter::once(run).chain(judgement.cells.iter().map(of_cell)).collect()
}

/// The suites of each place. One without a record has the run's own case, which can't be told.
pub(super) fn suites_of_fleet<'a>(fleet: &'a FleetExported<'_>) -> Vec<Suite<'a>> {
    let of_place = |place: &'a PlaceExported<'_>| match place {
        PlaceExported::Run(subject) => suites(subject),
        PlaceExported::Without(without) => {
            let text = without.why.clone();
            let verdict = Verdict::Inconclusive;
            let case = Case { name: VALIDITY.to_owned(), verdict, text, requirement: None };
            let name = at_place(Some(&without.place), RUN);
            vec![Suite { name, cell: None, cases: vec![case], subject: None }]
        }
    };
    fleet.places.iter().flat_map(of_place).collect()
}

fn at_place(place: Option<&str>, name: &str) -> String {
    place.map_or_else(|| name.to_owned(), |place| format!("{place}.{name}"))
}

/// Whether the run can be trusted. What the user accepted is named: it is no longer tested.
fn validity(judgement: &Judgement) -> Case {
    let texts = |wanted: &dyn Fn(&Finding) -> bool| {
        let texts = judgement.findings.iter().filter(|finding| wanted(finding));
        texts.map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("; ")
    };
    let weighty = texts(&|finding| finding.weight >= Weight::PreventsPass);
    let accepted = texts(&|finding| judgement.accepted.contains(&finding.code));
    Case {
        name: VALIDITY.to_owned(),
        verdict: if weighty.is_empty() { Verdict::Pass } else { Verdict::Inconclusive },
        text: match (weighty.is_empty(), accepted.is_empty()) {
            (true, true) => "nothing was found that questions the figures".to_owned(),
            (true, false) => format!("nothing else questions the figures: {accepted}"),
            (false, _) => weighty,
        },
        requirement: None,
    }
}

fn case(outcome: &RequirementOutcome) -> Case {
    Case {
        name: outcome.requirement.to_string(),
        verdict: outcome.verdict,
        text: outcome.explanation(),
        requirement: Some(outcome.requirement),
    }
}
