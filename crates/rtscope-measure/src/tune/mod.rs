//! System settings, changed in one way only: the old value is journalled on disk, the new one applied
//! and read back, and the old one restored when the run ends, fails or is killed.
//!
//! ```text
//! read all -> refuse what another run holds -> journal -> write, read back -> ... -> restore
//! ```
//!
//! Restoring leaves alone what somebody else has changed in between. Settings that are already as
//! asked are neither written nor journalled.

mod cgroup;
mod change;
mod error;
mod held;
mod irq;
mod journal;
mod kernel_thread;
mod persist;
mod proposal;
mod request;
mod restore;
mod service;
mod setting;
mod shield;
mod status;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use rtscope_model::{
    event::Event,
    finding::{Finding, Weight},
    text::Problem,
};
use rtscope_sys::tree::Tree;

use self::{
    change::{Change, ChangeKind},
    held::Held,
    journal::{Journal, Lock},
    request::{Planned, SettingRequest},
    restore::{ONLINE, RestoreOutcome, put_back},
    setting::Target,
};
pub use self::{
    error::TuneError,
    journal::{JOURNALS_OF_ROOT, damaged, journal_dir},
    persist::{PersistError, Persisted, StartFile, persisted, remove_persisted, with_earlier},
    proposal::{Proposal, ProposedChange, propose},
    restore::{
        Holder, Restored, holders, left_by_root, restore_kept, restore_leftovers, restore_own,
    },
    setting::{SETTINGS, SettingDescriptor, check},
    status::{ChangedSetting, SettingOwner, status},
};
use crate::signals;

/// Settings that are changed. Dropping the value restores them, last first; [`Applied::restore`] also
/// tells what it did.
#[derive(Debug)]
#[must_use = "dropping it restores the settings at once"]
pub struct Applied {
    tree: Tree,
    journal: Option<Journal>,
    changes: Vec<Change>,
    held: Vec<Held>,
}

/// Changes settings: all of them, or none.
///
/// Emits [`Event::SettingChanged`] for each file that was changed, and a finding for interrupts that
/// can't be steered.
///
/// # Errors
///
/// A setting or value that does not exist, here or at all; one that another run holds or has left
/// changed; what the kernel refuses or does not keep. What was changed before the error is restored.
pub fn apply(
    tree: &Tree,
    journal_dir: &Path,
    settings: &BTreeMap<String, String>,
    on_event: &mut dyn FnMut(Event),
) -> Result<Applied, TuneError> {
    let asked = requests(settings)?;
    if !asked.is_empty() {
        signals::protect_settings().map_err(TuneError::Signals)?;
    }
    let (journal, plans) = journal_all(tree, journal_dir, asked)?;
    let mut applied =
        Applied { tree: tree.clone(), journal, changes: Vec::new(), held: Vec::new() };
    for (asked, planned) in plans {
        if let Err(error) = applied.change(&asked, planned, on_event) {
            applied.undo(on_event);
            return Err(error);
        }
    }
    Ok(applied)
}

/// Settings with what each takes on this machine, in the order in which they are applied.
type Plans = Vec<(SettingRequest, Planned)>;

/// Reads the names and values of settings, and puts them in order.
fn requests(settings: &BTreeMap<String, String>) -> Result<Vec<SettingRequest>, TuneError> {
    let asked = settings.iter().map(|(name, value)| SettingRequest::new(name, value));
    let mut asked = asked.collect::<Result<Vec<SettingRequest>, _>>()?;
    // Without throttling the kernel does not check whether the fair server's bandwidth fits: some releases
    // count it wrongly, and refuse to change it. What is changed last is put back first. A shield leaves alone what
    // others set, and services are stopped before what they would set back.
    asked.sort_by_key(|one| match one.setting.name {
        "services" => 0,
        "throttling" => 1,
        "shield" => 3,
        _ => 2,
    });
    Ok(asked)
}

/// Finds what is to be changed. Two settings that set the same are refused.
fn plan_all(tree: &Tree, asked: Vec<SettingRequest>) -> Result<Plans, TuneError> {
    let mut owners: BTreeMap<String, &'static str> = BTreeMap::new();
    let mut plans = Plans::new();
    for request in asked {
        let taken: BTreeSet<String> = owners.keys().cloned().collect();
        let planned = request.plan(tree, &taken)?;
        for key in &planned.claims {
            let name = request.setting.name;
            if let Some(other) = owners.insert(key.clone(), name).filter(|other| *other != name) {
                let text = format!("{other} and {name} both set {key}: leave one of them out");
                return Err(Problem::new(text).into());
            }
        }
        plans.push((request, planned));
    }
    Ok(plans)
}

/// Finds what is to be changed and writes it down. Refuses a file that another run has changed, even one that is
/// already as asked: that run will change it back.
fn journal_all(
    tree: &Tree,
    dir: &Path,
    asked: Vec<SettingRequest>,
) -> Result<(Option<Journal>, Plans), TuneError> {
    if asked.iter().all(SettingRequest::is_held) {
        return Ok((None, plan_all(tree, asked)?));
    }
    // Read under the lock: what another run restores at this moment is not a value to go back to.
    let lock = Lock::take(dir)?;
    let changed = journal::changed_by_others(dir)?;
    let plans = plan_all(tree, asked).map_err(|error| error.or_owner_of_shield(tree, &changed))?;
    for (request, planned) in &plans {
        journal::refuse_held(&changed, tree, request.setting.name, &planned.claims)?;
    }
    let all: Vec<Change> =
        plans.iter().flat_map(|(_, planned)| planned.changes.iter().cloned()).collect();
    let journal = if all.is_empty() { None } else { Some(Journal::write(dir, &lock, &all)?) };
    Ok((journal, plans))
}

impl Applied {
    fn change(
        &mut self,
        asked: &SettingRequest,
        planned: Planned,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TuneError> {
        if let Target::Held(path) = asked.setting.target {
            return self.hold(asked, path, on_event);
        }
        let name = asked.setting.name;
        let (claimed, to_do) = (planned.claims.len(), planned.changes.len());
        let mut refused: Vec<(String, TuneError)> = Vec::new();
        let first = self.changes.len();
        for change in planned.changes {
            let place = change.place(&self.tree);
            let needed = matches!(
                change.kind,
                ChangeKind::Folder | ChangeKind::FileOfFolder | ChangeKind::Controller
            );
            match self.write(change, on_event) {
                Ok(()) => {}
                Err(error) if planned.may_be_refused && !needed => refused.push((place, error)),
                Err(error) => return Err(error),
            }
        }
        self.after_shield(first, on_event);
        if refused.len() == claimed.max(to_do)
            && let Some((_, error)) = refused.pop()
        {
            return Err(error);
        }
        if !refused.is_empty() {
            on_event(Event::Found(request::partly_refused(name, &refused, claimed.max(to_do))));
        }
        planned.notes.into_iter().for_each(|note| on_event(Event::Found(note)));
        Ok(())
    }

    /// What follows when threads were moved: those that were started meanwhile or were spread too far, and one event for
    /// all.
    fn after_shield(&self, first: usize, on_event: &mut dyn FnMut(Event)) {
        let changes = &self.changes[first.min(self.changes.len())..];
        shield::sweep(&self.tree, changes);
        if changes.iter().any(|change| change.kind == ChangeKind::Remembered) {
            // Also those that another setting of this command has placed.
            shield::narrow(&self.tree, &self.changes);
        }
        let Some(moved) = shield::moved(changes) else { return };
        let setting = changes[0].setting.clone();
        let (path, from, to) = (moved, "every CPU".to_owned(), "other CPUs".to_owned());
        on_event(Event::SettingChanged { setting, path, from, to });
    }

    fn write(&mut self, change: Change, on_event: &mut dyn FnMut(Event)) -> Result<(), TuneError> {
        if change.kind == ChangeKind::File
            && let Ok(found) = change.present(&self.tree)
            && found != change.old
            && !change.is_as_asked(&found)
        {
            let path = change.place(&self.tree).into();
            let Change { setting, old: was, .. } = change;
            return Err(TuneError::ChangedMeanwhile { setting, path, was, found });
        }
        // Noted before it is tried: a write that fails may still have changed something.
        self.changes.push(change.clone());
        let written = change.write(&self.tree, &change.new);
        if change.kind == ChangeKind::Remembered {
            // The kernel moves it when the partition is made.
            return Ok(());
        }
        let found = change.present(&self.tree);
        match &found {
            Ok(found) if *found == change.old => drop(self.changes.pop()),
            // Ours too: it is what the kernel made of it.
            Ok(found) => self.changes.last_mut().expect("noted").new.clone_from(found),
            Err(_) => {}
        }
        if change.kind.is_bulk() && found.as_ref().is_err_and(request::is_gone) {
            return Ok(());
        }
        written?;
        let (found, path) = (found?, change.place(&self.tree));
        if !change.is_as_asked(&found) {
            let Change { setting, new: asked, .. } = change;
            return Err(TuneError::NotKept { setting, path: path.into(), asked, found });
        }
        if !change.kind.is_bulk() && change.kind != ChangeKind::FileOfFolder {
            on_event(Event::SettingChanged {
                setting: change.setting,
                path,
                from: change.old,
                to: found,
            });
        }
        Ok(())
    }

    fn hold(
        &mut self,
        asked: &SettingRequest,
        path: &'static str,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TuneError> {
        let latency_us = asked.text.parse().expect("the table admits numbers only");
        let held = Held::take(&self.tree, asked.setting.name, path, latency_us)?;
        let (setting, path) = (held.setting.to_owned(), self.tree.path(path).display().to_string());
        let (from, to) = (held.from.to_string(), held.to.to_string());
        on_event(Event::SettingChanged { setting, path, from, to });
        if held.to != latency_us {
            let text = format!(
                "{} is {} us, not {latency_us} us as requested: another program holds it",
                held.setting, held.to
            );
            on_event(Event::Found(Finding::new("setting-not-as-asked", Weight::Warning, text)));
        }
        self.held.push(held);
        Ok(())
    }

    /// Restores everything, last first. Emits [`Event::SettingRestored`] for each file, and a finding
    /// for each that somebody else has changed or that can't be restored, with the command that
    /// repairs it. The journal of what can't be restored is kept.
    pub fn restore(mut self, on_event: &mut dyn FnMut(Event)) {
        self.undo(on_event);
    }

    /// Leaves the settings as they are when this process ends, until [`restore_kept`] or the next boot.
    ///
    /// # Errors
    ///
    /// The journal can't be kept; then the settings are restored. So they are when one of them lasts only as long as
    /// the process does.
    pub fn keep(mut self, journal_dir: &Path) -> Result<(), TuneError> {
        if let Some(held) = self.held.first() {
            return Err(TuneError::EndsWithProcess { setting: held.setting.to_owned() });
        }
        let lock = Lock::take(journal_dir)?;
        if let Some(journal) = &self.journal {
            journal.keep(journal_dir, &lock)?;
        }
        self.journal = None;
        self.changes.clear();
        Ok(())
    }

    fn undo(&mut self, on_event: &mut dyn FnMut(Event)) {
        for held in self.held.drain(..).rev() {
            let setting = held.setting.to_owned();
            let path = self.tree.path(held.path).display().to_string();
            let to = held.release(&self.tree).map_or("unknown".to_owned(), |us| us.to_string());
            on_event(Event::SettingRestored { setting, path, to });
        }
        let mut failed = Vec::new();
        let moved = shield::moved(&self.changes);
        for change in self.changes.drain(..).rev() {
            let path = change.place(&self.tree);
            let outcome = put_back(&self.tree, &change);
            if matches!(outcome, RestoreOutcome::Failed(_) | RestoreOutcome::Offline(_)) {
                failed.insert(0, change.clone());
            }
            if change.is_quiet(&outcome) {
                continue;
            }
            on_event(match outcome {
                // Where CPUs share a frequency, putting one back puts all back.
                RestoreOutcome::Restored | RestoreOutcome::AsBefore => {
                    Event::SettingRestored { setting: change.setting, path, to: change.old }
                }
                RestoreOutcome::Gone => Event::Found(gone(&change, &path)),
                RestoreOutcome::ChangedElsewhere(found) => {
                    Event::Found(left_alone(&change, &path, &found))
                }
                RestoreOutcome::Offline(cpu) => {
                    let text = format!("{} was not restored: CPU {cpu} is offline", change.setting);
                    Event::Found(Finding::new(NOT_RESTORED, Weight::Warning, text).advise(ONLINE))
                }
                RestoreOutcome::Failed(why) => {
                    Event::Found(not_restored(&self.tree, &change, &path, &why))
                }
            });
        }
        if let Some(path) = moved {
            let (setting, to) = ("shield".to_owned(), "every CPU".to_owned());
            on_event(Event::SettingRestored { setting, path, to });
        }
        match self.journal.take() {
            Some(journal) if failed.is_empty() => journal.remove(),
            Some(journal) => journal.leave(&failed),
            None => {}
        }
    }
}

fn gone(change: &Change, path: &str) -> Finding {
    let text = format!("{}: {path} disappeared, along with its value", change.setting);
    Finding::new("setting-gone", Weight::Note, text)
}

fn left_alone(change: &Change, path: &str, found: &str) -> Finding {
    let text = format!(
        "{}: {path} was changed to {found} by somebody else, so rtscope did not restore it; the original value was {}",
        change.setting, change.old
    );
    Finding::new("setting-changed-elsewhere", Weight::Warning, text)
}

fn not_restored(tree: &Tree, change: &Change, path: &str, why: &str) -> Finding {
    let text = format!("{} was not restored: {path}: {why}", change.setting);
    let advice = format!("as root, run: {}", change.repair_command(tree));
    Finding::new(NOT_RESTORED, Weight::Warning, text).advise(advice)
}

/// Code of the finding about a setting that could not be restored.
pub const NOT_RESTORED: &str = "setting-not-restored";

impl Drop for Applied {
    fn drop(&mut self) {
        self.undo(&mut |event| {
            if let Event::Found(finding) = event {
                eprintln!("{}", finding.line());
            }
        });
    }
}
