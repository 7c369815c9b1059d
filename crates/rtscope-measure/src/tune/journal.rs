//! The journal: what was changed, written down before it is changed, so that a run that dies at any
//! instant can be cleaned up after.
//!
//! A folder holds one file for each process that has changed something, `PID-STARTTIME.jsonl`: a line
//! that says in which boot, then a line for each change. The file is on the disk before the first
//! change is applied, and goes when all is restored.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rtscope_sys::tree::Tree;
use serde::{Deserialize, Serialize};

use super::{error::TuneError, setting};
use crate::environment::Stat;

/// One change: what a file held, and what it was made to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) setting: String,
    /// Below the root, without a leading slash.
    pub(super) path: String,
    pub(super) old: String,
    pub(super) new: String,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Heading {
    /// The kernel's name for this boot. Settings do not outlive a boot, a journal on a disk does.
    boot: String,
}

/// Where root's journals are kept.
pub const JOURNALS_OF_ROOT: &str = "/run/rtscope";

/// Where journals are kept: [`JOURNALS_OF_ROOT`] for root, which is gone after a reboot, as the settings
/// are; else a folder of the user's own.
#[must_use]
pub fn journal_dir() -> PathBuf {
    if rtscope_sys::process::is_root() {
        return PathBuf::from(JOURNALS_OF_ROOT);
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    own.map_or_else(std::env::temp_dir, PathBuf::from).join("rtscope")
}

/// A process, named so that no later one can have the name: number and start time in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) pid: u32,
    started_ticks: u64,
}

impl Owner {
    /// The calling process.
    fn own() -> io::Result<Owner> {
        let pid = std::process::id();
        let stat =
            stat_of(pid).ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        Ok(Owner { pid, started_ticks: stat.started_ticks })
    }

    fn is_alive(self) -> bool {
        // A dead process that nobody has waited for still has an entry.
        let dead = |stat: &Stat| ["Z", "X"].contains(&stat.state.as_str());
        stat_of(self.pid)
            .is_some_and(|stat| stat.started_ticks == self.started_ticks && !dead(&stat))
    }

    fn file_name(self) -> String {
        format!("{}-{}.jsonl", self.pid, self.started_ticks)
    }

    fn of_file(path: &Path) -> Option<Owner> {
        let (pid, started) = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.split_once('-')?;
        Some(Owner { pid: pid.parse().ok()?, started_ticks: started.parse().ok()? })
    }
}

/// Processes are the real system's, whatever tree the settings are in.
fn stat_of(pid: u32) -> Option<Stat> {
    Stat::parse(&Tree::default().read_bytes(format!("proc/{pid}/stat")).ok()?)
}

fn boot() -> String {
    Tree::default().read("proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// The exclusive right to read and write a folder of journals; ends with the value, or the process.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "holds the lock")] File);

impl Lock {
    pub(super) fn take(dir: &Path) -> Result<Lock, TuneError> {
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| TuneError::Journal { operation, path, source }
        };
        // Nobody else may write what root will write into the kernel; that something is left to
        // restore, everybody may see.
        let make = || {
            fs::create_dir_all(dir.parent().unwrap_or(dir))?;
            DirBuilder::new().recursive(true).mode(0o755).create(dir)
        };
        make().map_err(failed("make", dir))?;
        let path = dir.join("lock");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(failed("open", &path))?;
        file.lock().map_err(failed("lock", &path))?;
        Ok(Lock(file))
    }
}

/// The journal of this process.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
}

impl Journal {
    /// Writes changes down. They are on the disk when this returns.
    pub(super) fn write(
        dir: &Path,
        _lock: &Lock,
        changes: &[Change],
    ) -> Result<Journal, TuneError> {
        let write = || {
            let path = dir.join(Owner::own()?.file_name());
            write_lines(&path, changes)?;
            File::open(dir)?.sync_all()?;
            Ok(Journal { path })
        };
        write().map_err(|source| TuneError::Journal {
            operation: "write a journal to",
            path: dir.to_owned(),
            source,
        })
    }

    /// All is restored.
    pub(super) fn remove(self) {
        // One that stays makes a later restore look again, and find the old values.
        let _ = fs::remove_file(self.path);
    }
}

fn write_lines(path: &Path, changes: &[Change]) -> io::Result<()> {
    let mut text = serde_json::to_string(&Heading { boot: boot() })? + "\n";
    for change in changes {
        text += &serde_json::to_string(change)?;
        text.push('\n');
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A journal as found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) owner: Owner,
    pub(super) changes: Vec<Change>,
    /// Lines that are not changes, with what is wrong with each.
    pub(super) damaged: Vec<String>,
    /// It was written before the last boot.
    pub(super) of_earlier_boot: bool,
}

impl Found {
    pub(super) fn is_alive(&self) -> bool {
        !self.of_earlier_boot && self.owner.is_alive()
    }
}

/// The journal of a process that is no more, when a folder has one. Its name says so: it need not be
/// read.
pub(super) fn find_left(dir: &Path) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.find(|path| Owner::of_file(path).is_some_and(|owner| !owner.is_alive())))
}

/// Every journal in a folder, by name. None when there is no folder.
pub(super) fn find_all(dir: &Path) -> io::Result<Vec<Found>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let owned = paths.into_iter().filter_map(|path| Some((Owner::of_file(&path)?, path)));
    owned.map(|(owner, path)| Ok(parse(owner, &fs::read(&path)?, path))).collect()
}

fn parse(owner: Owner, bytes: &[u8], path: PathBuf) -> Found {
    let mut found =
        Found { path, owner, changes: Vec::new(), damaged: Vec::new(), of_earlier_boot: false };
    for (i, line) in String::from_utf8_lossy(bytes).lines().enumerate() {
        if i == 0
            && let Ok(heading) = serde_json::from_str::<Heading>(line)
        {
            found.of_earlier_boot = heading.boot != boot();
            continue;
        }
        match serde_json::from_str::<Change>(line) {
            Ok(change) if owned(&change) => found.changes.push(change),
            Ok(change) => found.damaged.push(format!(
                "line {}: {} is not a file of {}",
                i + 1,
                change.path,
                change.setting
            )),
            Err(error) => found.damaged.push(format!("line {}: {error}", i + 1)),
        }
    }
    found
}

fn owned(change: &Change) -> bool {
    setting::find(&change.setting).is_ok_and(|setting| setting.owns(&change.path))
}

/// Refuses files that another journal names: two runs would restore them in the wrong order.
pub(super) fn refuse_held(
    dir: &Path,
    tree: &Tree,
    wanted: &[(&str, &str)],
) -> Result<(), TuneError> {
    let found = find_all(dir);
    let found = found.map_err(|source| TuneError::Journal {
        operation: "read",
        path: dir.to_owned(),
        source,
    })?;
    for journal in found.iter().filter(|journal| !journal.of_earlier_boot) {
        let named = |path: &str| journal.changes.iter().any(|change| change.path == path);
        if let Some((setting, path)) = wanted.iter().find(|(_, path)| named(path)) {
            let (setting, path) = ((*setting).to_owned(), tree.path(path));
            return Err(if journal.is_alive() {
                TuneError::Held { setting, path, pid: journal.owner.pid }
            } else {
                TuneError::Left { setting, path }
            });
        }
    }
    Ok(())
}
