//! System settings, changed in one way only: the old value is journalled on disk, the new one applied
//! and read back, and the old one restored when the run ends, fails or is killed.
//!
//! ```text
//! read all -> refuse what another run holds -> journal -> write, read back -> ... -> restore
//! ```
//!
//! Restoring leaves alone what somebody else has changed in between. Settings that are already as
//! asked are neither written nor journalled.

mod error;
mod held;
mod journal;
mod restore;
mod setting;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::Path};

use rtscope_model::{
    event::Event,
    finding::{Finding, Weight},
};
use rtscope_sys::tree::Tree;

pub use self::{
    error::TuneError,
    journal::{JOURNALS_OF_ROOT, journal_dir},
    restore::{Holder, Restored, holders, left_by_root, restore_leftovers, restore_own},
    setting::{SETTINGS, SettingDescriptor, check},
};
use self::{
    held::Held,
    journal::{Change, Journal, Lock},
    restore::{RestoreOutcome, put_back, repair_command},
    setting::{Target, present},
};
use crate::interrupt;

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
    let mut asked = settings
        .iter()
        .map(|(name, value)| SettingRequest::new(tree, name, value))
        .collect::<Result<Vec<SettingRequest>, TuneError>>()?;
    // Without throttling the kernel does not check whether the fair server's bandwidth fits: some releases
    // count it wrongly, and refuse to change it. What is changed last is put back first.
    asked.sort_by_key(|one| one.setting.name != "throttling");
    if !asked.is_empty() {
        interrupt::protect_settings().map_err(TuneError::Signals)?;
    }
    let (journal, changes) = journal_all(tree, journal_dir, &asked)?;
    let mut applied =
        Applied { tree: tree.clone(), journal, changes: Vec::new(), held: Vec::new() };
    for (asked, changes) in asked.iter().zip(changes) {
        if let Err(error) = applied.change(asked, changes, on_event) {
            applied.undo(on_event);
            return Err(error);
        }
    }
    Ok(applied)
}

/// A setting with its value and its files on this machine.
struct SettingRequest {
    setting: &'static SettingDescriptor,
    text: String,
    files: Vec<String>,
}

impl SettingRequest {
    fn new(tree: &Tree, name: &str, value: &str) -> Result<SettingRequest, TuneError> {
        let setting = setting::find(name)?;
        let text = setting.text(value)?;
        let files = setting.files(tree);
        if files.is_empty() {
            let path = tree.path(setting.place());
            return Err(TuneError::Absent { setting: name.to_owned(), path });
        }
        Ok(SettingRequest { setting, text, files })
    }

    /// Its files that hold another value than the one asked.
    fn changes(&self, tree: &Tree) -> Result<Vec<Change>, TuneError> {
        let mut changes = Vec::new();
        for path in self.files.iter().filter(|_| !self.is_held()) {
            let Some(new) = self.setting.wanted(path, &self.text) else { continue };
            let old = present(tree, path)?;
            if old != new {
                let (setting, path) = (self.setting.name.to_owned(), path.clone());
                changes.push(Change { setting, path, old, new });
            }
        }
        Ok(changes)
    }

    fn is_held(&self) -> bool {
        matches!(self.setting.target, Target::Held(_))
    }
}

/// Finds what is to be changed, by setting, and writes it down. Refuses a file that another run has
/// changed, even one that is already as asked: that run will change it back.
fn journal_all(
    tree: &Tree,
    dir: &Path,
    asked: &[SettingRequest],
) -> Result<(Option<Journal>, Vec<Vec<Change>>), TuneError> {
    if asked.iter().all(SettingRequest::is_held) {
        return Ok((None, asked.iter().map(|_| Vec::new()).collect()));
    }
    // Read under the lock: what another run restores at this moment is not a value to go back to.
    let lock = Lock::take(dir)?;
    let wanted: Vec<(&str, &str)> = asked
        .iter()
        .flat_map(|asked| asked.files.iter().map(|path| (asked.setting.name, path.as_str())))
        .collect();
    journal::refuse_held(dir, tree, &wanted)?;
    let mut changes = Vec::new();
    for asked in asked {
        changes.push(asked.changes(tree)?);
    }
    let all = changes.concat();
    let journal = if all.is_empty() { None } else { Some(Journal::write(dir, &lock, &all)?) };
    Ok((journal, changes))
}

impl Applied {
    fn change(
        &mut self,
        asked: &SettingRequest,
        changes: Vec<Change>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TuneError> {
        let some_refuse = match asked.setting.target {
            Target::Held(path) => return self.hold(asked, path, on_event),
            Target::Each { some_refuse, .. } => some_refuse,
            Target::File(_) | Target::IdleStates => false,
        };
        let mut kept = asked.files.len() - changes.len();
        let mut refused = Vec::new();
        for change in changes {
            let path = self.tree.path(&change.path);
            match self.write(change, on_event) {
                Ok(()) => kept += 1,
                Err(error) if some_refuse => refused.push((path, error)),
                Err(error) => return Err(error),
            }
        }
        let (count, all) = (refused.len(), asked.files.len());
        let Some((path, error)) = refused.into_iter().next() else { return Ok(()) };
        if kept == 0 {
            return Err(error);
        }
        let text = format!(
            "{}: {count} of {all} stay as they were, for the kernel does not let them be changed: \
             as {}",
            asked.setting.name,
            path.display()
        );
        on_event(Event::Found(Finding::new("setting-partly-refused", Weight::Note, text)));
        Ok(())
    }

    fn write(&mut self, change: Change, on_event: &mut dyn FnMut(Event)) -> Result<(), TuneError> {
        // Noted before it is tried: a write that fails may still have changed something.
        self.changes.push(change.clone());
        let written = self.tree.write(&change.path, &change.new);
        let found = present(&self.tree, &change.path);
        if found.as_ref().is_ok_and(|found| *found == change.old) {
            self.changes.pop();
        }
        written?;
        let (found, path) = (found?, self.tree.path(&change.path));
        if found != change.new {
            let Change { setting, new: asked, .. } = change;
            return Err(TuneError::NotKept { setting, path, asked, found });
        }
        let path = path.display().to_string();
        on_event(Event::SettingChanged {
            setting: change.setting,
            path,
            from: change.old,
            to: found,
        });
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
                "{} is {} us and not {latency_us} us as asked: another program holds it",
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

    fn undo(&mut self, on_event: &mut dyn FnMut(Event)) {
        for held in self.held.drain(..).rev() {
            let setting = held.setting.to_owned();
            let path = self.tree.path(held.path).display().to_string();
            let to = held.release(&self.tree).map_or("unknown".to_owned(), |us| us.to_string());
            on_event(Event::SettingRestored { setting, path, to });
        }
        let mut failed = false;
        for change in self.changes.drain(..).rev() {
            let path = self.tree.path(&change.path).display().to_string();
            let outcome = put_back(&self.tree, &change);
            failed |= matches!(outcome, RestoreOutcome::Failed(_));
            on_event(match outcome {
                // Where CPUs share a frequency, putting one back puts all back.
                RestoreOutcome::Restored | RestoreOutcome::AsBefore => {
                    Event::SettingRestored { setting: change.setting, path, to: change.old }
                }
                RestoreOutcome::Gone => Event::Found(gone(&change, &path)),
                RestoreOutcome::ChangedElsewhere(found) => {
                    Event::Found(left_alone(&change, &path, &found))
                }
                RestoreOutcome::Failed(why) => {
                    Event::Found(not_restored(&self.tree, &change, &path, &why))
                }
            });
        }
        if let Some(journal) = self.journal.take().filter(|_| !failed) {
            journal.remove();
        }
    }
}

fn gone(change: &Change, path: &str) -> Finding {
    let text =
        format!("{}: {path} went away during the run, and its value with it", change.setting);
    Finding::new("setting-gone", Weight::Note, text)
}

fn left_alone(change: &Change, path: &str, found: &str) -> Finding {
    let text = format!(
        "{}: somebody else made {path} {found} during the run, so it was left alone; before, it was {}",
        change.setting, change.old
    );
    Finding::new("setting-changed-elsewhere", Weight::Warning, text)
}

fn not_restored(tree: &Tree, change: &Change, path: &str, why: &str) -> Finding {
    let text = format!("{} was not restored: {path}: {why}", change.setting);
    let advice = format!("as root, run: {}", repair_command(tree, change));
    Finding::new("setting-not-restored", Weight::Warning, text).advise(advice)
}

impl Drop for Applied {
    fn drop(&mut self) {
        self.undo(&mut |event| {
            if let Event::Found(finding) = event {
                eprintln!("{} {}", finding.text, finding.advice);
            }
        });
    }
}
