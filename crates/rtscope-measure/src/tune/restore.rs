//! Putting values back: of this run, and of runs that died.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rtscope_sys::{Error, process, tree::Tree};

use super::{
    change::{Change, ChangeKind},
    journal::{
        Author, DAMAGED, Found, Lock, Owner, find_all, find_foreign, find_left, is_file_of, named,
        narrow, parse, remove_parts,
    },
    request::is_gone,
};

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RestoreOutcome {
    /// The old value is back.
    Restored,
    /// The old value was there already.
    AsBefore,
    /// The file holds neither value: somebody else has changed it since, and it is left alone.
    ChangedElsewhere(String),
    /// The file is no more, as of an interrupt whose device was removed: nothing to put back.
    Gone,
    /// The file belongs to this CPU, which is offline. rtscope can restore it when the CPU is back online.
    Offline(u32),
    /// It could not be put back: why.
    Failed(String),
}

/// What to do about a CPU that is offline.
pub(super) const ONLINE: &str = "bring it online, and run `rtscope restore`";

/// Puts the old value back where the file still holds the new one.
pub(super) fn put_back(tree: &Tree, change: &Change) -> RestoreOutcome {
    let attempt = || -> Result<RestoreOutcome, Error> {
        if change.kind == ChangeKind::FileOfFolder {
            return Ok(RestoreOutcome::AsBefore);
        }
        let found = change.present(tree)?;
        if found == change.old && !change.has_more_cpus(tree) {
            return Ok(RestoreOutcome::AsBefore);
        }
        if change.kind == ChangeKind::Remembered || found == change.old {
            return change.write(tree, &change.old).map(|()| RestoreOutcome::Restored);
        }
        if !change.is_as_asked(&found) {
            return Ok(RestoreOutcome::ChangedElsewhere(found));
        }
        change.write(tree, &change.old)?;
        let found = change.present(tree)?;
        if change.is_restored(tree, &found) {
            return Ok(RestoreOutcome::Restored);
        }
        // A thread that has begun to end meanwhile answers with an error.
        let found = change.present(tree)?;
        Ok(RestoreOutcome::Failed(format!("it reads {found:?} after {:?} was written", change.old)))
    };
    match attempt() {
        Ok(outcome) => outcome,
        Err(error) if is_gone(&error) => match offline_cpu(tree, &change.path) {
            Some(cpu) => RestoreOutcome::Offline(cpu),
            None => RestoreOutcome::Gone,
        },
        Err(error) => RestoreOutcome::Failed(error.to_string()),
    }
}

/// The CPU whose frequency a file is about, if that CPU is offline. The file disappears with it, but the kernel keeps the
/// governor until the CPU comes back. (The soak shows that it forgets which idle states were disabled.)
fn offline_cpu(tree: &Tree, path: &str) -> Option<u32> {
    let (number, rest) = path.strip_prefix("sys/devices/system/cpu/cpu")?.split_once('/')?;
    let cpu: u32 = number.parse().ok().filter(|_| rest.starts_with("cpufreq/"))?;
    let online = tree.read(format!("sys/devices/system/cpu/cpu{cpu}/online")).ok()?;
    (online.trim() == "0").then_some(cpu)
}

/// A setting that a run left changed, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Name, as `throttling`; `journal` when the journal itself is the trouble.
    pub setting: String,
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
/// nothing in it is left to do; one with a damaged line, or an empty one, is set aside under the ending
/// `.damaged`, so that it is reported once. A journal that isn't this user's is reported until it is removed.
#[must_use]
pub fn restore_leftovers(tree: &Tree, journal_dir: &Path) -> Vec<Restored> {
    let ignored = "it is not a regular file of this user, so rtscope ignores it: remove it";
    let foreign = find_foreign(journal_dir).unwrap_or_default().into_iter();
    let foreign = foreign.map(|path| trouble(&path, ignored.to_owned()));
    foreign.chain(restore_all(tree, journal_dir, Found::is_left)).collect()
}

/// What is wrong with a journal, or with the folder of all.
fn trouble(path: &Path, error: String) -> Restored {
    Restored {
        setting: "journal".to_owned(),
        path: path.display().to_string(),
        to: String::new(),
        error: Some(error),
    }
}

/// Restores what `rtscope tune apply --keep` has left changed, the newest first.
#[must_use]
pub fn restore_kept(tree: &Tree, journal_dir: &Path) -> Vec<Restored> {
    restore_all(tree, journal_dir, |journal| matches!(journal.author, Author::Kept(_)))
}

/// Restores what this very process has changed, when it is about to end without doing so itself: at a panic.
#[must_use]
pub fn restore_own(tree: &Tree, journal_dir: &Path) -> Vec<Restored> {
    restore_all(tree, journal_dir, Found::is_own)
}

fn restore_all(tree: &Tree, journal_dir: &Path, is_over: impl Fn(&Found) -> bool) -> Vec<Restored> {
    if !journal_dir.exists() {
        return Vec::new();
    }
    let lock = match Lock::take(journal_dir) {
        Ok(lock) => lock,
        Err(error) => return vec![trouble(journal_dir, error.to_string())],
    };
    remove_parts(journal_dir, &lock);
    let journals = match find_all(journal_dir) {
        Ok(journals) => journals,
        Err(error) => return vec![trouble(journal_dir, error.to_string())],
    };
    let mut restored = Vec::new();
    for journal in journals.iter().rev().filter(|journal| is_over(journal)) {
        restored.extend(journal.damaged.iter().map(|line| trouble(&journal.path, line.clone())));
        let failed = match journal.of_earlier_boot {
            true => Vec::new(),
            false => restore_one(tree, journal, &mut restored),
        };
        let left = match (failed.is_empty(), journal.damaged.is_empty()) {
            (true, true) => std::fs::remove_file(&journal.path),
            (true, false) => std::fs::rename(&journal.path, journal.path.with_extension(DAMAGED)),
            (false, true) => narrow(&journal.path, &failed),
            (false, false) => Ok(()),
        };
        restored.extend(left.err().map(|error| trouble(&journal.path, error.to_string())));
    }
    restored
}

/// What an ordinary user must know of root's runs: one that was killed has left a journal in this
/// folder. None when there is none.
///
/// # Errors
///
/// When the folder can't be listed: a sentence that says so, and what to do.
pub fn left_by_root(journal_dir: &Path) -> Result<Option<String>, String> {
    let left = find_left(journal_dir).map_err(|error| {
        format!(
            "only root can see whether a killed run of root has left settings changed, because \
             {} can't be read ({error}): run `sudo rtscope restore`, which restores them and opens \
             the folder",
            journal_dir.display()
        )
    })?;
    Ok(left.map(|path| {
        format!(
            "a run of root was killed and has left settings changed ({}): run `sudo rtscope restore`",
            path.display()
        )
    }))
}

/// A run that is still going and has changed settings, which it will restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    /// Names of the settings; empty when its journal can't be read, as root's by others.
    pub settings: Vec<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = match self.settings.as_slice() {
            [] => "settings".to_owned(),
            names => names.join(", "),
        };
        write!(f, "rtscope process {} still holds {settings}", self.pid)?;
        f.write_str(" and restores what it changed when it ends")
    }
}

/// The runs that hold settings by their journals in this folder, by process number.
#[must_use]
pub fn holders(journal_dir: &Path) -> Vec<Holder> {
    let holder = |(owner, path): (Owner, PathBuf)| {
        let journal = std::fs::read(&path).map(|bytes| parse(Author::Process(owner), &bytes, path));
        let mut settings: Vec<String> = Vec::new();
        for change in journal.into_iter().flat_map(|journal| journal.changes) {
            if !settings.contains(&change.setting) {
                settings.push(change.setting);
            }
        }
        Holder { pid: owner.pid, settings }
    };
    let process = |(author, path)| match author {
        Author::Process(owner) => Some((owner, path)),
        Author::Kept(_) => None,
    };
    let mut holders: Vec<Holder> = named(journal_dir)
        .unwrap_or_default()
        .into_iter()
        .filter_map(process)
        .filter(|(owner, path)| owner.is_alive() && is_file_of(path, &[0, process::user()]))
        .map(holder)
        .collect();
    holders.sort_by_key(|holder| holder.pid);
    holders
}

/// Restores what a journal names, and answers what is left to do, in the journal's order.
fn restore_one(tree: &Tree, journal: &Found, restored: &mut Vec<Restored>) -> Vec<Change> {
    let mut failed = Vec::new();
    for change in journal.changes.iter().rev() {
        let outcome = put_back(tree, change);
        if change.is_quiet(&outcome) {
            continue;
        }
        let error = match outcome {
            RestoreOutcome::AsBefore | RestoreOutcome::Gone => continue,
            RestoreOutcome::Restored => None,
            RestoreOutcome::ChangedElsewhere(found) => Some(format!(
                "it has been changed to {found} since, so rtscope leaves it alone; the original value was {}",
                change.old
            )),
            RestoreOutcome::Offline(cpu) => {
                failed.insert(0, change.clone());
                Some(format!("CPU {cpu} is offline: {ONLINE}"))
            }
            RestoreOutcome::Failed(why) => {
                failed.insert(0, change.clone());
                Some(format!("{why}; as root, run: {}", change.repair_command(tree)))
            }
        };
        restored.push(Restored {
            setting: change.setting.clone(),
            path: change.place(tree),
            to: change.old.clone(),
            error,
        });
    }
    failed
}
