//! The answer of a run.
//!
//! ```text
//! record, cells -> requirement: each requirement in each cell    -> outcomes \
//!               -> validity:    each rule that questions the run -> findings  -> outcomes settled -> verdict
//! ```
//!
//! The verdict of each requirement is settled here, and the run's verdict is the worst of them. No
//! output computes its own.
//!
//! A run that can't answer never passes: what makes the figures answer another question than the
//! one that was asked (`Weight::Invalidates`) makes every answer inconclusive; what may have hidden
//! or left out worse latencies (`Weight::PreventsPass`) takes away a pass but not a fail, since a
//! latency that was seen was real.

pub mod additions;
pub mod check;
#[cfg(test)]
mod coverage_tests;
pub mod requirement;
pub mod validity;

use rtscope_model::{
    event::Event,
    finding::{DAMAGE, Finding, Weight},
    printable::quoted,
    record::{PLAN_CHANGED, Record},
    text::slip,
    verdict::Verdict,
};

use crate::judgement::{CellSummary, Judgement, RequirementOutcome};

/// Judges the figures of a record. `accept` holds codes of findings that the user answers for: they
/// stay in the list, at most as warnings.
#[must_use]
pub fn decide(record: &Record, cells: Vec<CellSummary>, accept: &[String]) -> Judgement {
    let (findings, accepted) = findings(record, &cells, accept);
    let mut outcomes = requirement::outcomes(record, &cells);
    outcomes.iter_mut().for_each(|outcome| settle(outcome, &findings));
    let verdict = verdict(&outcomes, &findings, &cells);
    let reasons = reasons(verdict, &outcomes, &findings);
    Judgement { verdict, reasons, findings, accepted, outcomes, cells }
}

/// Everything that was found, the weightiest first: while reading, while running, and by the rules.
/// Then the codes of those that were accepted and would have touched the verdict.
fn findings(
    record: &Record,
    cells: &[CellSummary],
    accept: &[String],
) -> (Vec<Finding>, Vec<String>) {
    let while_running = record.events.iter().filter_map(|stamped| match &stamped.event {
        Event::Found(finding) => Some(finding.clone()),
        _ => None,
    });
    let told: Vec<Finding> = record.findings.iter().cloned().chain(while_running).collect();
    // Who was there tells it better than a rule that infers it.
    let mut inferred = validity::findings(record, cells);
    inferred.retain(|finding| told.iter().all(|known| known.code != finding.code));
    let told = told.into_iter().map(|finding| match validity::against_holders(record, cells) {
        Some(advice) if finding.code == "unanswered" => finding.advise(advice),
        _ => finding,
    });
    let mut findings: Vec<Finding> = Vec::new();
    let mut accepted: Vec<String> = Vec::new();
    for mut finding in told.chain(inferred) {
        let is_accepted = accept.contains(&finding.code) && !DAMAGE.contains(&&*finding.code);
        if finding.weight > Weight::Warning && is_accepted {
            finding.weight = Weight::Warning;
            finding.text += " (accepted: it does not affect the verdict)";
            if !accepted.contains(&finding.code) {
                accepted.push(finding.code.clone());
            }
        }
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    let unused = accept.iter().filter(|code| findings.iter().all(|f| f.code != **code));
    let unused = unused.map(|code| {
        let near = slip(code, findings.iter().map(|finding| &*finding.code));
        let near = near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
        let text = format!("{} was accepted, but no finding has this code{near}", quoted(code));
        Finding::new("accept-unused", Weight::Note, text)
    });
    let damage = DAMAGE.iter().filter(|damage| findings.iter().any(|found| found.code == **damage));
    let refused = damage.filter(|damage| accept.iter().any(|code| code == *damage)).map(|damage| {
        let text = format!("{damage} can't be accepted: the figures themselves are damaged");
        Finding::new("accept-refused", Weight::Note, text)
    });
    for finding in unused.chain(refused).collect::<Vec<_>>() {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    (findings, accepted)
}

/// Takes away the verdict that the findings, the weightiest first, don't allow.
fn settle(outcome: &mut RequirementOutcome, findings: &[Finding]) {
    let Some(worst) = findings.first() else { return };
    let stands = match outcome.figures_verdict {
        Verdict::Pass => worst.weight < Weight::PreventsPass,
        Verdict::Fail => worst.weight < Weight::Invalidates,
        Verdict::Inconclusive | Verdict::Measured => true,
    };
    if !stands {
        outcome.verdict = Verdict::Inconclusive;
        outcome.withheld_because = Some(worst.text.clone());
    }
}

/// The worst verdict of any requirement. A plan without requirements asked none only if it is the plan that was
/// run, and if anything was measured.
fn verdict(
    outcomes: &[RequirementOutcome],
    findings: &[Finding],
    cells: &[CellSummary],
) -> Verdict {
    let is_known = findings.iter().all(|finding| finding.code != PLAN_CHANGED);
    let is_measured = cells.iter().any(|cell| cell.all.recorded + cell.all.missed > 0);
    let of_none = if is_known && is_measured { Verdict::Measured } else { Verdict::Inconclusive };
    Verdict::worst(outcomes.iter().map(|outcome| outcome.verdict)).unwrap_or(of_none)
}

/// Outcomes up to which a pass names each.
const OUTCOMES_NAMED: usize = 6;

fn reasons(verdict: Verdict, outcomes: &[RequirementOutcome], findings: &[Finding]) -> Vec<String> {
    let of = |wanted: Verdict| {
        let outcomes = outcomes.iter().filter(move |outcome| outcome.figures_verdict == wanted);
        outcomes.map(|o| format!("{}, {}: {}", o.name, o.requirement, o.sentence))
    };
    let weighty = findings.iter().filter(|f| f.weight >= Weight::PreventsPass);
    match verdict {
        Verdict::Measured => vec!["no requirement was given".to_owned()],
        Verdict::Pass if outcomes.len() > OUTCOMES_NAMED => {
            vec![format!("all {} requirements are met", outcomes.len())]
        }
        Verdict::Pass => of(Verdict::Pass).collect(),
        Verdict::Fail => of(Verdict::Fail).collect(),
        Verdict::Inconclusive => weighty
            .map(|finding| finding.text.clone())
            .chain(of(Verdict::Inconclusive))
            .chain(of(Verdict::Fail))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::event::EndReason;

    use super::*;
    use crate::{judge, test_support::Run};

    fn plan(require: &str) -> String {
        format!(
            "name = \"p\"\nrequire = [{require}]\n[[phase]]\nname = \"rest\"\nduration = \"2s\""
        )
    }

    fn run(require: &str) -> Run {
        let mut latencies = vec![10_000u64; 2_000];
        latencies[77] = 90_500;
        Run::new(&plan(require), 1).cell(0, &[&latencies]).end()
    }

    fn of(run: &Run, accept: &[&str]) -> Judgement {
        let accept: Vec<String> = accept.iter().map(|&code| code.to_owned()).collect();
        judge(&run.record(), &accept)
    }

    #[test]
    fn a_good_run_is_measured_passes_and_fails() {
        let measured = of(&run(""), &[]);
        assert_eq!(measured.verdict, Verdict::Measured);
        assert_eq!(measured.reasons, ["no requirement was given"]);
        assert_eq!(measured.findings, []);
        let passed = of(&run("\"max < 91us\", \"missed = 0\""), &[]);
        assert_eq!(passed.verdict, Verdict::Pass);
        assert_eq!(passed.reasons.len(), 2);
        let failed = of(&run("\"max < 90us\", \"mean < 50us\""), &[]);
        assert_eq!(failed.verdict, Verdict::Fail);
        assert_eq!(failed.reasons.len(), 1);
        assert!(failed.reasons[0].starts_with("rest, max < 90us: the maximum is 90.500 us;"));
    }

    #[test]
    fn a_run_in_which_nothing_was_measured_is_not_measured() {
        let nothing = Run::new(&plan(""), 1).cell(0, &[&[]]).end();
        assert_eq!(of(&nothing, &[]).verdict, Verdict::Inconclusive);
    }

    #[test]
    fn findings_come_before_requirements() {
        let in_a_guest = |require| {
            run(require).machine(|machine| machine.virtualisation = Some("kvm".to_owned()))
        };
        assert_eq!(of(&in_a_guest(""), &[]).verdict, Verdict::Measured);
        let passing = of(&in_a_guest("\"max < 1ms\""), &[]);
        assert_eq!(passing.verdict, Verdict::Inconclusive);
        assert!(passing.reasons[0].contains("virtual machine"), "{:?}", passing.reasons);
        assert_eq!(of(&in_a_guest("\"max < 50us\""), &[]).verdict, Verdict::Fail);
        let faulty = run("\"max < 50us\"").tally(|tally| tally.minor_faults = 1);
        let faulty = of(&faulty, &[]);
        assert_eq!(faulty.verdict, Verdict::Inconclusive);
        assert!(faulty.reasons[1].contains("max < 50us"), "the fail is told: {:?}", faulty.reasons);
    }

    #[test]
    fn what_is_accepted_stays_in_the_list() {
        let run = run("\"max < 1ms\"").tally(|tally| tally.major_faults = 1);
        let accepted = of(&run, &["page-faults", "steel-time"]);
        assert_eq!(accepted.verdict, Verdict::Pass);
        assert_eq!(accepted.findings.len(), 2);
        assert_eq!(accepted.findings[0].weight, Weight::Warning);
        assert!(accepted.findings[0].text.contains("accepted"));
        assert_eq!(accepted.findings[1].code, "accept-unused");
        let mistyped = of(&run, &["page-fauts"]);
        assert!(
            mistyped
                .findings
                .iter()
                .any(|found| found.text.ends_with("(did you mean page-faults?)"))
        );
    }

    #[test]
    fn damage_is_not_accepted() {
        let mut killed = run("\"max < 1ms\"");
        killed.events.pop();
        let judgement = of(&killed, &["record-cut-short"]);
        assert_eq!((judgement.verdict, judgement.accepted), (Verdict::Inconclusive, Vec::new()));
        let text = "record-cut-short can't be accepted: the figures themselves are damaged";
        assert!(judgement.findings.iter().any(|finding| finding.text == text));
    }

    #[test]
    fn an_open_requirement_is_inconclusive() {
        let judgement = of(&run("\"p99.99 < 1ms\", \"max < 1ms\""), &[]);
        assert_eq!(judgement.verdict, Verdict::Inconclusive);
        assert_eq!(judgement.reasons.len(), 1);
        assert!(
            judgement.reasons[0].contains("a 95 % upper bound needs"),
            "{:?}",
            judgement.reasons
        );
    }

    #[test]
    fn findings_of_the_run_are_merged_once_and_ordered() {
        let note = || Event::Found(Finding::new("a", Weight::Note, "noted"));
        let fatal = || Event::Found(Finding::new("b", Weight::Invalidates, "wrong"));
        let mut run = run("");
        for event in [note(), note(), fatal()] {
            let last = run.events.len() - 1;
            run.events.insert(last, rtscope_model::event::Stamped { at_ns: 1, event });
        }
        let codes: Vec<String> = of(&run, &[]).findings.into_iter().map(|f| f.code).collect();
        assert_eq!(codes, ["b", "a"]);
    }

    #[test]
    fn a_rule_does_not_repeat_what_the_run_told() {
        let mut run = run("").tally(|tally| tally.minor_faults = 3);
        assert_eq!(of(&run, &[]).findings.len(), 1);
        let told = Event::Found(Finding::new("page-faults", Weight::Invalidates, "told"));
        run.events.insert(1, rtscope_model::event::Stamped { at_ns: 1, event: told });
        let findings = of(&run, &[]).findings;
        assert_eq!((findings.len(), findings[0].text.as_str()), (1, "told"));
    }

    #[test]
    fn a_requirement_that_was_deleted_from_the_plan_does_not_leave_a_measured_run() {
        let mut record = run("").record();
        assert_eq!(judge(&record, &[]).verdict, Verdict::Measured);
        record.findings.push(Finding::new(
            PLAN_CHANGED,
            Weight::Invalidates,
            "the plan is another",
        ));
        let judgement = judge(&record, &[]);
        assert_eq!(judgement.verdict, Verdict::Inconclusive);
        assert_eq!(judgement.reasons, ["the plan is another"]);
    }

    #[test]
    fn a_run_that_was_cut_short_does_not_pass() {
        let mut killed = run("\"max < 1ms\"");
        killed.events.pop();
        assert_eq!(of(&killed, &[]).verdict, Verdict::Inconclusive);
        for why in [EndReason::Interrupted, EndReason::Failed, EndReason::Break] {
            let ended = run("\"max < 1ms\"").edit(|event| {
                if let Event::RunEnded { why: ended, .. } = event {
                    *ended = why;
                }
            });
            assert_eq!(of(&ended, &[]).verdict, Verdict::Inconclusive, "{why:?}");
        }
        assert_eq!(of(&run("\"max < 1ms\""), &[]).verdict, Verdict::Pass);
    }
}
