//! What is said of a record besides what its own plan says: requirements of the user, or of the lab, and codes of
//! findings that the user accepts.

use std::collections::BTreeMap;

use rtscope_model::{
    finding::{Finding, Weight},
    plan::Plan,
    record::Record,
    verdict::Requirement,
};
use serde::{Deserialize, Serialize};

use crate::{Judgement, judge};

/// Version of the files in which accepted codes and requirements are kept beside a record.
pub const KEPT_FORMAT: u32 = 1;

/// What the user adds to a record when it is judged.
#[derive(Clone, Debug, Default)]
pub struct Additions {
    /// Requirements besides the plan's.
    pub require: Vec<Requirement>,
    /// Codes of findings that the user takes responsibility for.
    pub accept: Vec<String>,
}

impl Additions {
    /// Judges a record with them: its plan has the requirements from then on.
    #[must_use]
    pub fn judge(&self, record: &mut Record) -> Judgement {
        add(&mut record.plan.require, &self.require);
        judge(record, &self.accept)
    }
}

/// What is required of a record whose plan doesn't say it.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
pub struct AddedRequirements {
    /// [`KEPT_FORMAT`].
    format: u32,
    /// Of all phases.
    require: Vec<Requirement>,
    /// Of some phases, by their names.
    phases: BTreeMap<String, Vec<Requirement>>,
}

impl AddedRequirements {
    /// What a plan requires; none when it requires nothing.
    #[must_use]
    pub fn from_plan(plan: &Plan) -> Option<AddedRequirements> {
        let demanding = plan.phases.iter().filter(|phase| !phase.require.is_empty());
        let phases: BTreeMap<_, _> =
            demanding.map(|phase| (phase.name.clone(), phase.require.clone())).collect();
        let is_something = !plan.require.is_empty() || !phases.is_empty();
        let require = plan.require.clone();
        is_something.then_some(AddedRequirements { format: KEPT_FORMAT, require, phases })
    }

    /// Adds what a plan doesn't have yet.
    pub fn add_to(&self, plan: &mut Plan) {
        add(&mut plan.require, &self.require);
        for phase in &mut plan.phases {
            if let Some(from) = self.phases.get(&phase.name) {
                add(&mut phase.require, from);
            }
        }
    }
}

fn add(to: &mut Vec<Requirement>, from: &[Requirement]) {
    for requirement in from {
        if !to.contains(requirement) {
            to.push(*requirement);
        }
    }
}

/// Puts one requirement in the place of all that a plan has.
pub fn require_only(plan: &mut Plan, requirement: Requirement) {
    plan.phases.iter_mut().for_each(|phase| phase.require.clear());
    plan.require = vec![requirement];
}

/// That the file of accepted codes can't be read.
#[must_use]
pub fn accepted_unreadable(file: &str, why: &str) -> Finding {
    let text = format!("{file} can't be read, so nothing in it is accepted: {why}");
    let advice = "accept the findings again with `rtscope report DIR --accept CODE`";
    Finding::new("accepted-unreadable", Weight::Warning, text).advise(advice)
}

/// That the file of requirements can't be read.
#[must_use]
pub fn required_unreadable(file: &str, why: &str) -> Finding {
    let text = format!("{file} can't be read, so it is not known what was required: {why}");
    Finding::new("required-unreadable", Weight::PreventsPass, text)
}

#[cfg(test)]
mod tests {
    use rtscope_model::plan;

    use super::*;

    #[test]
    fn what_was_required_comes_back_to_a_bare_plan_once() {
        let text = "name = 'x'\nrequire = ['max < 50us']\n[[phase]]\nname = 'a'\nduration = '1s'\n\
                    [[phase]]\nname = 'b'\nduration = '1s'\nrequire = ['p99 < 9us']";
        let plan = plan::parse("x", text).expect("a plan");
        let required = AddedRequirements::from_plan(&plan).expect("something is required");
        let mut bare = plan.clone();
        bare.require.clear();
        bare.phases.iter_mut().for_each(|phase| phase.require.clear());
        assert_eq!(AddedRequirements::from_plan(&bare), None);
        required.add_to(&mut bare);
        required.add_to(&mut bare);
        assert_eq!(bare, plan);
        let only = plan.require[0];
        require_only(&mut bare, only);
        assert_eq!(bare.require, [only]);
        assert!(bare.phases.iter().all(|phase| phase.require.is_empty()));
    }
}
