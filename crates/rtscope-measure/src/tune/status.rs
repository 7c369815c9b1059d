//! Which settings are changed now, by whom, and whether somebody changed them since.

use std::path::Path;

use rtscope_sys::tree::Tree;
use serde::Serialize;

use super::{
    change::{Change, ChangeKind},
    journal::{Author, find_all},
};

/// Who has changed a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum SettingOwner {
    /// A run that restores it when it ends.
    Held { pid: u32 },
    /// `rtscope tune apply --keep`.
    Kept,
    /// A process that was killed.
    Left { pid: u32 },
}

/// A setting that is changed now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedSetting {
    pub setting: String,
    /// A file, a thread, a service, or how many threads.
    pub place: String,
    pub before: String,
    pub asked: String,
    /// What it holds now; none where it can't be read, or is no more.
    pub now: Option<String>,
    /// Whether it holds another value than the one that rtscope wrote.
    pub changed_since: bool,
    #[serde(flatten)]
    pub owner: SettingOwner,
    /// Command line of the process that changed it.
    pub command: String,
}

/// Every setting that a journal of a folder names as changed.
///
/// # Errors
///
/// The folder is there and can't be read, as root's by others.
pub fn status(tree: &Tree, journal_dir: &Path) -> std::io::Result<Vec<ChangedSetting>> {
    let mut found = Vec::new();
    for journal in find_all(journal_dir)?.into_iter().filter(|one| !one.of_earlier_boot) {
        let owner = match journal.author {
            Author::Kept(_) => SettingOwner::Kept,
            Author::Process(owner) if owner.is_alive() => SettingOwner::Held { pid: owner.pid },
            Author::Process(owner) => SettingOwner::Left { pid: owner.pid },
        };
        let single = journal.changes.iter().filter(|change| !change.kind.is_bulk());
        found.extend(single.filter_map(|change| {
            let now = change.present(tree).ok();
            // The kernel has refused the change, or it is back already.
            if now.as_ref() == Some(&change.old) {
                return None;
            }
            Some(ChangedSetting {
                setting: change.setting.clone(),
                place: change.place(tree),
                before: before(change),
                asked: change.new.clone(),
                changed_since: now.as_ref().is_some_and(|now| !change.is_as_asked(now)),
                now,
                owner: owner.clone(),
                command: journal.command.clone(),
            })
        }));
        found.extend(super::shield::moved(&journal.changes).map(|moved| ChangedSetting {
            setting: "shield".to_owned(),
            place: moved,
            before: "every CPU".to_owned(),
            asked: "other CPUs".to_owned(),
            now: None,
            changed_since: false,
            owner: owner.clone(),
            command: journal.command.clone(),
        }));
    }
    Ok(found)
}

fn before(change: &Change) -> String {
    match change.kind {
        ChangeKind::FileOfFolder => super::cgroup::ABSENT.to_owned(),
        _ => change.old.clone(),
    }
}
