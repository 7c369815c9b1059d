//! A judgement as test cases: what test runners and labs read.
//!
//! A case for each requirement in each cell, with the judgement's verdict, and one for the run, that
//! it can be trusted.

use rtscope_model::{
    finding::{Finding, Weight},
    verdict::{Requirement, Verdict},
};

use super::Exported;
use crate::judgement::{CellSummary, Judgement, RequirementOutcome};

/// Name of the suite that says whether the run can be trusted.
pub(super) const RUN: &str = "run";

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
    /// Name of the cell, or [`RUN`].
    pub(super) name: &'a str,
    /// The cell; none of the run.
    pub(super) cell: Option<&'a CellSummary>,
    pub(super) cases: Vec<Case>,
}

/// The run's own case, then the requirements of each cell that has any.
pub(super) fn suites<'a>(subject: &'a Exported<'_>) -> Vec<Suite<'a>> {
    let judgement = &subject.judgement;
    let of_cell = |cell: &'a CellSummary| {
        let outcomes = judgement.outcomes.iter().filter(|outcome| outcome.cell == cell.cell);
        let cases = outcomes.map(case).collect();
        Suite { name: &cell.name, cell: Some(cell), cases }
    };
    let run = Suite { name: RUN, cell: None, cases: vec![validity(judgement)] };
    std::iter::once(run).chain(judgement.cells.iter().map(of_cell)).collect()
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
        name: "valid measurement".to_owned(),
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
