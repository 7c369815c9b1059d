//! What settings would change, without changing anything.

use std::{collections::BTreeMap, path::Path};

use rtscope_model::finding::Finding;
use rtscope_sys::tree::Tree;
use serde::Serialize;

use super::{
    TuneError,
    change::{Change, ChangeKind},
    journal, plan_all, requests,
    setting::Target,
};

/// A change that a setting would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProposedChange {
    pub setting: String,
    /// A file, a thread, a service, or how many threads.
    pub place: String,
    pub from: String,
    pub to: String,
}

/// What settings would do here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Proposal {
    pub changes: Vec<ProposedChange>,
    /// Settings of which everything is already as asked.
    pub already: Vec<String>,
    /// What would stay as it is, and why.
    pub notes: Vec<Finding>,
}

/// Finds what settings would change. Needs no more permission than reading does.
///
/// # Errors
///
/// As [`super::apply`], as far as that is known before anything is written.
pub fn propose(
    tree: &Tree,
    journal_dir: &Path,
    settings: &BTreeMap<String, String>,
) -> Result<Proposal, TuneError> {
    let asked = requests(settings)?;
    // Who may not read the journals may not apply anything either.
    let changed = journal::changed_by_others(journal_dir).unwrap_or_default();
    let plans = plan_all(tree, asked).map_err(|error| error.or_owner_of_shield(tree, &changed))?;
    let mut proposal = Proposal::default();
    for (request, planned) in plans {
        let name = request.setting.name;
        journal::refuse_held(&changed, tree, name, &planned.claims)?;
        if let Target::Held(path) = request.setting.target {
            let (place, to) = (tree.path(path).display().to_string(), request.text.clone());
            proposal.changes.push(ProposedChange {
                setting: name.to_owned(),
                place,
                from: "as other programs ask".to_owned(),
                to,
            });
            continue;
        }
        if planned.changes.is_empty() {
            proposal.already.push(name.to_owned());
        }
        proposal.changes.extend(listed(tree, name, &planned.changes));
        proposal.notes.extend(planned.notes);
    }
    Ok(proposal)
}

/// Changes as they are shown: threads that a shield moves are counted.
fn listed(tree: &Tree, setting: &str, changes: &[Change]) -> Vec<ProposedChange> {
    let single = changes.iter().filter(|change| !change.kind.is_bulk());
    let mut shown: Vec<ProposedChange> = single
        .map(|change| ProposedChange {
            setting: setting.to_owned(),
            place: change.place(tree),
            from: match change.kind {
                ChangeKind::FileOfFolder => cgroup_state(),
                _ => change.old.clone(),
            },
            to: change.new.clone(),
        })
        .collect();
    if let Some(moved) = super::shield::moved(changes) {
        shown.push(ProposedChange {
            setting: setting.to_owned(),
            place: moved,
            from: "every CPU".to_owned(),
            to: "other CPUs".to_owned(),
        });
    }
    shown
}

fn cgroup_state() -> String {
    super::cgroup::ABSENT.to_owned()
}
