//! A judgement as test cases: what test runners and labs read.
//!
//! A case for each requirement in each cell, and one for the run, that it can be trusted. What the
//! run's findings make inconclusive is an error, never a pass.

use rtscope_model::{
    finding::{Finding, Weight},
    verdict::{Requirement, Verdict},
};

use super::Subject;
use crate::judgement::{CellSummary, Outcome};

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
    /// Its cases.
    pub(super) cases: Vec<Case>,
}

/// The run's own case, then the requirements of each cell that has any.
pub(super) fn suites<'a>(subject: &'a Subject<'_>) -> Vec<Suite<'a>> {
    let judgement = &subject.judgement;
    let of_cell = |cell: &'a CellSummary| {
        let outcomes = judgement.outcomes.iter().filter(|outcome| outcome.cell == cell.cell);
        let cases = outcomes.map(|outcome| case(outcome, &judgement.findings)).collect();
        Suite { name: &cell.name, cell: Some(cell), cases }
    };
    let run = Suite { name: RUN, cell: None, cases: vec![validity(&judgement.findings)] };
    std::iter::once(run).chain(judgement.cells.iter().map(of_cell)).collect()
}

/// Whether the run can be trusted.
fn validity(findings: &[Finding]) -> Case {
    let weighty: Vec<&Finding> =
        findings.iter().filter(|finding| finding.weight >= Weight::PreventsPass).collect();
    let texts: Vec<&str> = weighty.iter().map(|finding| finding.text.as_str()).collect();
    Case {
        name: "valid measurement".to_owned(),
        verdict: if weighty.is_empty() { Verdict::Pass } else { Verdict::Inconclusive },
        text: match texts.is_empty() {
            true => "nothing was found that questions the figures".to_owned(),
            false => texts.join("; "),
        },
        requirement: None,
    }
}

/// A requirement, with what the findings leave of its verdict.
fn case(outcome: &Outcome, findings: &[Finding]) -> Case {
    let worst =
        findings.iter().filter(|f| f.weight >= Weight::PreventsPass).max_by_key(|f| f.weight);
    let (verdict, text) = match (outcome.verdict, worst) {
        (Verdict::Pass, Some(finding)) => (
            Verdict::Inconclusive,
            format!("{}; but it counts for nothing: {}", outcome.sentence, finding.text),
        ),
        (Verdict::Fail, Some(finding)) if finding.weight == Weight::Invalidates => (
            Verdict::Inconclusive,
            format!("{}; but the run can't answer: {}", outcome.sentence, finding.text),
        ),
        (verdict, _) => (verdict, outcome.sentence.clone()),
    };
    let name = outcome.requirement.to_string();
    Case { name, verdict, text, requirement: Some(outcome.requirement) }
}
