//! The journal: what was changed, written down before it is changed, so that a run that dies at any
//! instant can be cleaned up after.
//!
//! A folder holds one file for each process that has changed something, `PID-STARTTIME.jsonl`: a line
//! that says in which boot, then a line for each change. The file is on the disk before the first
//! change is applied, and goes when all is restored.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rtscope_model::printable::printable;
use rtscope_sys::{process, tree::Tree, whole::write_to_disk};
use serde::{Deserialize, Serialize};

use super::{change::Change, error::TuneError};
use crate::environment::Stat;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Heading {
    /// The kernel's name for this boot. Settings do not outlive a boot, a journal on a disk does.
    boot: String,
    /// The command line of the process, for people.
    #[serde(default)]
    command: String,
    /// How many changes follow; none in journals of older versions.
    #[serde(default)]
    changes: Option<usize>,
}

/// Where root's journals are kept.
pub const JOURNALS_OF_ROOT: &str = "/run/rtscope";

/// Where journals are kept: [`JOURNALS_OF_ROOT`] for root, which is gone after a reboot, as the settings
/// are; else a folder of the user's own.
#[must_use]
pub fn journal_dir() -> PathBuf {
    if process::is_root() {
        return PathBuf::from(JOURNALS_OF_ROOT);
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let name = format!("rtscope-{}", process::user());
    own.map_or_else(std::env::temp_dir, PathBuf::from).join(name)
}

/// A process, named so that no later one can have the name: number and start time in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) pid: u32,
    started_ticks: u64,
}

impl Owner {
    fn own() -> io::Result<Owner> {
        let pid = std::process::id();
        let stat =
            stat_of(pid).ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        Ok(Owner { pid, started_ticks: stat.started_ticks })
    }

    pub(super) fn is_alive(self) -> bool {
        // A dead process that nobody has waited for still has an entry, and so has one that was killed
        // a moment ago: it restores nothing any more.
        stat_of(self.pid).is_some_and(|stat| stat.lives_since(self.started_ticks))
            && !is_killed(self.pid)
    }

    fn file_name(self) -> String {
        format!("{}-{}.jsonl", self.pid, self.started_ticks)
    }
}

/// Whose changes a journal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Author {
    /// Those of a process, which restores them when it ends.
    Process(Owner),
    /// Changes that are kept, by number: the newest has the highest.
    Kept(u32),
}

impl Author {
    fn file_name(self) -> String {
        match self {
            Author::Process(owner) => owner.file_name(),
            Author::Kept(number) => format!("kept-{number:04}.jsonl"),
        }
    }

    fn of_file(path: &Path) -> Option<Author> {
        let (first, second) =
            path.file_name()?.to_str()?.strip_suffix(".jsonl")?.split_once('-')?;
        if first == "kept" {
            return second.parse().ok().map(Author::Kept);
        }
        let (pid, started_ticks) = (first.parse().ok()?, second.parse().ok()?);
        Some(Author::Process(Owner { pid, started_ticks }))
    }

    fn is_dead(self) -> bool {
        matches!(self, Author::Process(owner) if !owner.is_alive())
    }

    /// Why what it has changed can't be changed by another.
    pub(super) fn refusal(self, setting: &str, path: PathBuf) -> TuneError {
        let setting = setting.to_owned();
        match self {
            Author::Kept(_) => TuneError::Kept { setting, path },
            Author::Process(owner) if owner.is_alive() => {
                TuneError::Held { setting, path, pid: owner.pid }
            }
            Author::Process(_) => TuneError::Left { setting, path },
        }
    }
}

/// Processes are the real system's, whatever tree the settings are in.
fn stat_of(pid: u32) -> Option<Stat> {
    Stat::parse(&Tree::default().read_bytes(format!("proc/{pid}/stat")).ok()?)
}

/// Whether a SIGKILL waits for a process or its first thread: on a busy machine it takes a while until
/// they run again to obey.
fn is_killed(pid: u32) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let status = Tree::default().read(format!("proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let signals = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(signals.trim(), 16).ok()
    });
    pending.fold(0, |all, some| all | some) & SIGKILL != 0
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
        own(dir).map_err(failed("use", dir))?;
        let path = dir.join("lock");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(failed("open", &path))?;
        lock(&file, LOCK_WITHIN).map_err(failed("lock", &path))?;
        Ok(Lock(file))
    }
}

/// Another rtscope holds the lock while it reads and writes some files: milliseconds.
const LOCK_WITHIN: Duration = Duration::from_secs(10);

/// Sees to it that a folder of journals is this user's, and that nobody else may write into it. An
/// older rtscope made root's so that others could not see what is in it.
fn own(dir: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != process::user() {
        let text = "it is not a folder of this user: remove it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if found.permissions().mode() & 0o777 != 0o755 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Locks a file, and doesn't wait for ever.
fn lock(file: &File, within: Duration) -> io::Result<()> {
    let until = Instant::now() + within;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(fs::TryLockError::WouldBlock) => {
                let text = format!("another process has held it for {} s", within.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// The journal of this process.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// What this process changed before and could not restore.
    earlier: Vec<Change>,
}

impl Journal {
    /// Writes changes down. They are on the disk when this returns.
    pub(super) fn write(
        dir: &Path,
        _lock: &Lock,
        changes: &[Change],
    ) -> Result<Journal, TuneError> {
        let write = || {
            let owner = Owner::own()?;
            let path = dir.join(owner.file_name());
            let earlier = match fs::read(&path) {
                Ok(bytes) => parse(Author::Process(owner), &bytes, path.clone()).changes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(error),
            };
            write_lines(&path, &[&earlier, changes].concat())?;
            Ok(Journal { path, earlier })
        };
        write().map_err(|source| TuneError::Journal {
            operation: "write a journal to",
            path: dir.to_owned(),
            source,
        })
    }

    /// Makes it the journal of no process, so that only who asks for it restores what it names.
    pub(super) fn keep(&self, dir: &Path, _lock: &Lock) -> Result<(), TuneError> {
        let keep = || {
            let numbers = named(dir)?.into_iter().filter_map(|(author, _)| match author {
                Author::Kept(number) => Some(number),
                Author::Process(_) => None,
            });
            let number = numbers.max().unwrap_or(0) + 1;
            fs::rename(&self.path, dir.join(Author::Kept(number).file_name()))?;
            File::open(dir)?.sync_all()
        };
        keep().map_err(|source| TuneError::Journal {
            operation: "keep a journal in",
            path: dir.to_owned(),
            source,
        })
    }

    /// All is restored but these, in their order.
    pub(super) fn leave(self, changes: &[Change]) {
        // One that stays whole makes a later restore try the others again.
        let _ = narrow(&self.path, &[&self.earlier, changes].concat());
    }

    /// All is restored.
    pub(super) fn remove(self) {
        if !self.earlier.is_empty() {
            return self.leave(&[]);
        }
        // One that stays makes a later restore look again, and find the old values.
        let _ = fs::remove_file(self.path);
    }
}

/// Leaves only these changes in a journal: the others are undone, and whoever changes them again has nothing to fear
/// from it.
pub(super) fn narrow(path: &Path, changes: &[Change]) -> io::Result<()> {
    let whole = fs::read_to_string(path)?;
    let first = whole.lines().next().unwrap_or_default();
    let mut text = String::new();
    if let Ok(heading) = serde_json::from_str::<Heading>(first) {
        let heading = Heading { changes: Some(changes.len()), ..heading };
        text += &(serde_json::to_string(&heading)? + "\n");
    }
    for change in changes {
        text += &(serde_json::to_string(change)? + "\n");
    }
    write_to_disk(path, text.as_bytes(), Some(0o600))
}

fn write_lines(path: &Path, changes: &[Change]) -> io::Result<()> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let command = printable(&words.collect::<Vec<_>>().join(" ")).into_owned();
    let mut text =
        serde_json::to_string(&Heading { boot: boot(), command, changes: Some(changes.len()) })?
            + "\n";
    for change in changes {
        text += &serde_json::to_string(change)?;
        text.push('\n');
    }
    write_to_disk(path, text.as_bytes(), Some(0o600))
}

/// Ending of a journal that is being written: see [`rtscope_sys::whole`].
const PART: &str = "part";

/// Removes what processes were writing when they were killed: a whole journal that it would have replaced is still
/// there. A process that lives may be writing without the lock.
pub(super) fn remove_parts(dir: &Path, _lock: &Lock) {
    // Older versions call it PID-STARTTIME.part.
    let author = |part: &Path| {
        Author::of_file(&part.with_extension(""))
            .or_else(|| Author::of_file(&part.with_extension("jsonl")))
    };
    let lives = |part: &Path| match author(part) {
        Some(Author::Process(owner)) => owner.is_alive(),
        Some(Author::Kept(_)) | None => false,
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == PART) && !lives(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) author: Author,
    /// Command line of the process that wrote it.
    pub(super) command: String,
    pub(super) changes: Vec<Change>,
    /// Lines that are not changes, with what is wrong with each.
    pub(super) damaged: Vec<String>,
    /// It was written before the last boot.
    pub(super) of_earlier_boot: bool,
}

impl Found {
    /// Whether nobody is there who would restore it. What is kept in this boot is kept on purpose.
    pub(super) fn is_left(&self) -> bool {
        self.of_earlier_boot || self.author.is_dead()
    }

    /// Whether this process wrote it.
    pub(super) fn is_own(&self) -> bool {
        !self.of_earlier_boot && Owner::own().is_ok_and(|own| Author::Process(own) == self.author)
    }
}

/// The journal of a process that is no more, when a folder has one. Its name says so: it need not be
/// read.
pub(super) fn find_left(dir: &Path) -> io::Result<Option<PathBuf>> {
    let left = named(dir)?.into_iter().find(|(author, _)| author.is_dead());
    Ok(left.map(|(_, path)| path))
}

/// The files in a folder that are called as journals are, with their authors: of processes first, then those that
/// are kept, the oldest first. None when there is no folder.
pub(super) fn named(dir: &Path) -> io::Result<Vec<(Author, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found: Vec<(Author, PathBuf)> =
        paths.filter_map(|path| Some((Author::of_file(&path)?, path))).collect();
    found.sort();
    Ok(found)
}

/// The files called as journals are that are no regular files of this user: they are not believed.
pub(super) fn find_foreign(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = named(dir)?.into_iter().map(|(_, path)| path).collect();
    paths.retain(|path| !is_own_file(path) && path.symlink_metadata().is_ok());
    Ok(paths)
}

/// Every journal of this user in a folder, in the order of [`named`].
pub(super) fn find_all(dir: &Path) -> io::Result<Vec<Found>> {
    let own = named(dir)?.into_iter().filter(|(_, path)| is_own_file(path));
    let read = |(author, path): (Author, PathBuf)| match fs::read(&path) {
        Ok(bytes) => Some(Ok(parse(author, &bytes, path))),
        // A run that has ended meanwhile has restored all that it named: it removes its journal without the lock.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error)),
    };
    own.filter_map(read).collect()
}

/// A journal says what to write into the kernel: nobody else's is believed.
fn is_own_file(path: &Path) -> bool {
    is_file_of(path, &[process::user()])
}

/// Whether one of these users has a regular file there: another user may have put a pipe or a link in its place.
pub(super) fn is_file_of(path: &Path, users: &[u32]) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && users.contains(&found.uid()))
}

pub(super) fn parse(author: Author, bytes: &[u8], path: PathBuf) -> Found {
    let mut found = Found {
        path,
        author,
        command: String::new(),
        changes: Vec::new(),
        damaged: Vec::new(),
        of_earlier_boot: false,
    };
    let text = String::from_utf8_lossy(bytes);
    if text.is_empty() {
        found.damaged.push("it is empty".to_owned());
    }
    let mut said = None;
    for (i, line) in text.lines().enumerate() {
        if i == 0
            && let Ok(heading) = serde_json::from_str::<Heading>(line)
        {
            found.of_earlier_boot = heading.boot != boot();
            found.command = printable(&heading.command).into_owned();
            said = heading.changes;
            continue;
        }
        match serde_json::from_str::<Change>(line) {
            Ok(change) if change.is_owned() => found.changes.push(change),
            Ok(change) => found.damaged.push(format!(
                "line {}: {} is not a file of {}",
                i + 1,
                change.path,
                change.setting
            )),
            Err(error) => found.damaged.push(format!("line {}: {error}", i + 1)),
        }
    }
    let lines = found.changes.len() + found.damaged.len();
    if let Some(said) = said.filter(|said| *said > lines) {
        found
            .damaged
            .push(format!("it was cut: its first line says {said} changes, and it has {lines}"));
    }
    found
}

/// Journals that were damaged and set aside: what they named and could not be read may still be changed.
#[must_use]
pub fn damaged(journal_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(journal_dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == DAMAGED));
    paths.sort();
    paths
}

/// Ending of a journal that was set aside.
pub(super) const DAMAGED: &str = "damaged";

/// What others have changed, with who did.
pub(super) fn changed_by_others(dir: &Path) -> Result<Vec<(Change, Author)>, TuneError> {
    let found = find_all(dir);
    let found = found.map_err(|source| TuneError::Journal {
        operation: "read",
        path: dir.to_owned(),
        source,
    })?;
    let now = found.into_iter().filter(|journal| !journal.of_earlier_boot);
    let each = now.flat_map(|journal| {
        let author = journal.author;
        journal.changes.into_iter().map(move |change| (change, author))
    });
    Ok(each.collect())
}

/// Refuses what another journal names: two runs would restore it in the wrong order.
pub(super) fn refuse_held(
    changed: &[(Change, Author)],
    tree: &Tree,
    setting: &str,
    claims: &[String],
) -> Result<(), TuneError> {
    let taken = changed.iter().find(|(change, _)| claims.contains(&change.key()));
    taken.map_or(Ok(()), |(change, author)| Err(author.refusal(setting, change.place(tree).into())))
}
