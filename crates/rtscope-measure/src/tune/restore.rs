//! Putting values back: of this run, and of runs that died.

use std::{fmt, io::ErrorKind, path::Path};

use rtscope_sys::{Error, tree::Tree};

use super::{
    journal::{Change, Found, Lock, find_all, find_left},
    setting::present,
};

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The old value is back.
    Restored,
    /// The old value was there already.
    AsBefore,
    /// The file holds neither value: somebody else has changed it since, and it is left alone.
    ChangedElsewhere(String),
    /// The file is no more, as of an interrupt whose device was removed: nothing to put back.
    Gone,
    /// It could not be put back: why.
    Failed(String),
}

/// Puts the old value back where the file still holds the new one.
pub(super) fn put_back(tree: &Tree, change: &Change) -> Outcome {
    let attempt = || -> Result<Outcome, Error> {
        let found = present(tree, &change.path)?;
        if found == change.old {
            return Ok(Outcome::AsBefore);
        }
        if found != change.new {
            return Ok(Outcome::ChangedElsewhere(found));
        }
        tree.write(&change.path, &change.old)?;
        let found = present(tree, &change.path)?;
        if found == change.old {
            return Ok(Outcome::Restored);
        }
        Ok(Outcome::Failed(format!("it reads {found:?} after {:?} was written", change.old)))
    };
    match attempt() {
        Ok(outcome) => outcome,
        Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => Outcome::Gone,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// The shell command that does what a failed restore did not.
pub(super) fn repair_command(tree: &Tree, change: &Change) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.,".contains(c);
    let quoted = |text: &str| {
        if !text.is_empty() && text.chars().all(plain) {
            return text.to_owned();
        }
        format!("'{}'", text.replace('\'', r"'\''"))
    };
    let path = tree.path(&change.path).display().to_string();
    let path = if path.chars().all(|c| plain(c) || c == '/') { path } else { quoted(&path) };
    format!("echo {} > {path}", quoted(&change.old))
}

/// A setting that a run left changed, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Name, as `throttling`; `journal` when the journal itself is the trouble.
    pub setting: String,
    /// File.
    pub path: String,
    /// The old value; empty when the journal itself is the trouble.
    pub to: String,
    /// Why it does not hold the old value, and what to do; none when it does.
    pub error: Option<String>,
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            None => write!(f, "{} is restored: {} is {} again", self.setting, self.path, self.to),
            Some(error) => write!(f, "{} is not restored: {}: {error}", self.setting, self.path),
        }
    }
}

/// Restores what runs that are no longer alive have left changed. Empty when there is nothing to do.
///
/// A value that somebody else has changed since is left alone and reported. A journal goes when
/// nothing in it is left to do; one with a damaged line is set aside under the ending `.damaged`, so
/// that it is reported once.
#[must_use]
pub fn restore_leftovers(tree: &Tree, journal_dir: &Path) -> Vec<Restored> {
    if !journal_dir.exists() {
        return Vec::new();
    }
    let trouble = |path: &Path, error: String| Restored {
        setting: "journal".to_owned(),
        path: path.display().to_string(),
        to: String::new(),
        error: Some(error),
    };
    let _lock = match Lock::take(journal_dir) {
        Ok(lock) => lock,
        Err(error) => return vec![trouble(journal_dir, error.to_string())],
    };
    let journals = match find_all(journal_dir) {
        Ok(journals) => journals,
        Err(error) => return vec![trouble(journal_dir, error.to_string())],
    };
    let mut restored = Vec::new();
    for journal in journals.iter().filter(|journal| !journal.is_alive()) {
        restored.extend(journal.damaged.iter().map(|line| trouble(&journal.path, line.clone())));
        let done = journal.of_earlier_boot || restore_one(tree, journal, &mut restored);
        let left = if !done {
            Ok(())
        } else if journal.damaged.is_empty() {
            std::fs::remove_file(&journal.path)
        } else {
            std::fs::rename(&journal.path, journal.path.with_extension("damaged"))
        };
        restored.extend(left.err().map(|error| trouble(&journal.path, error.to_string())));
    }
    restored
}

/// Why an ordinary user can't say that every setting is as it was: a run of root has left a journal in
/// this folder, or it can't be seen whether one has. None when there is none.
#[must_use]
pub fn left_by_root(journal_dir: &Path) -> Option<String> {
    let found = match find_left(journal_dir) {
        Ok(None) => return None,
        Ok(Some(path)) => {
            format!("a run of root was killed and has left settings changed ({})", path.display())
        }
        Err(error) => format!(
            "only root can see whether a killed run of root has left settings changed ({}: {error})",
            journal_dir.display()
        ),
    };
    Some(format!("{found}: run `sudo rtscope restore`"))
}

/// True when nothing is left to do.
fn restore_one(tree: &Tree, journal: &Found, restored: &mut Vec<Restored>) -> bool {
    let mut done = true;
    for change in journal.changes.iter().rev() {
        let error = match put_back(tree, change) {
            Outcome::AsBefore | Outcome::Gone => continue,
            Outcome::Restored => None,
            Outcome::ChangedElsewhere(found) => Some(format!(
                "somebody else has made it {found} since, so it is left alone; before, it was {}",
                change.old
            )),
            Outcome::Failed(why) => {
                done = false;
                Some(format!("{why}; as root, run: {}", repair_command(tree, change)))
            }
        };
        restored.push(Restored {
            setting: change.setting.clone(),
            path: tree.path(&change.path).display().to_string(),
            to: change.old.clone(),
            error,
        });
    }
    done
}
