//! Who works on a cell, so that no other process does.
//!
//! A claim is a file that only one process can make: `CELL.1`. Its owner rewrites it every few seconds. If it no longer
//! changes, or its owner was a process of this machine that is gone, the next process makes `CELL.2`, and the owner of
//! the highest number works on the cell. So no clocks of two machines are compared, and no lock of a file system is
//! needed: some shared ones have none. A process that was only slow sees the higher number and gives up.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{ORDER, host};
use crate::error::LabError;

/// How often an owner rewrites its claim.
const BEAT: Duration = Duration::from_secs(5);

/// A claim that doesn't change for so long has no owner any more. Network file systems show a change within a minute
/// at most by their defaults.
pub const STANDS_STILL: Duration = Duration::from_secs(75);

/// What stands in a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    host: String,
    /// The boot and the namespace in which the number of the process has its meaning.
    boot: String,
    pid: u32,
    /// When the process began, in ticks since the boot.
    began: String,
    beat: u64,
}

impl Owner {
    fn this() -> Owner {
        let pid = std::process::id();
        let began = began(pid).unwrap_or_default();
        Owner { host: host(), boot: boot(), pid, began, beat: 0 }
    }

    /// Whether it was a process of this machine and is gone.
    fn is_gone(&self) -> bool {
        self.boot == boot() && began(self.pid).as_ref() != Some(&self.began)
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), space.display())
}

/// When a process began, by proc_pid_stat(5); none when it is gone or only waits to be reaped.
fn began(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    (!matches!(*fields.first()?, "Z" | "X")).then(|| fields.get(19).map(|&it| it.to_owned()))?
}

/// What came of the wish for a cell.
#[derive(Debug)]
pub enum ClaimAnswer {
    Granted(CellClaim),
    /// Another process works on it.
    Taken(ForeignClaim),
}

/// A claim of another process, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignClaim {
    path: PathBuf,
    text: String,
}

/// Watches the claims of others.
#[derive(Debug, Default)]
pub struct Watch {
    seen: Vec<(ForeignClaim, Instant)>,
}

impl Watch {
    /// Whether a claim has stood still for so long that it has no owner any more.
    fn stands_still(&mut self, seen: &ForeignClaim, limit: Duration) -> bool {
        match self.seen.iter_mut().find(|(known, _)| known.path == seen.path) {
            Some((known, since)) if known == seen => since.elapsed() >= limit,
            Some(known) => {
                *known = (seen.clone(), Instant::now());
                false
            }
            None => {
                self.seen.push((seen.clone(), Instant::now()));
                false
            }
        }
    }
}

/// A cell that this process alone works on, until this is dropped.
#[derive(Debug)]
pub struct CellClaim {
    folder: PathBuf,
    cell: String,
    /// Its number; that of the part, too.
    pub number: u32,
    lost: Arc<AtomicBool>,
    end: Option<mpsc::Sender<()>>,
    beats: Option<JoinHandle<()>>,
}

impl CellClaim {
    /// Asks for a cell.
    ///
    /// # Errors
    ///
    /// The claim can't be written.
    pub fn ask(out: &Path, cell: &str, watch: &mut Watch) -> Result<ClaimAnswer, LabError> {
        CellClaim::ask_within(out, cell, watch, STANDS_STILL)
    }

    fn ask_within(
        out: &Path,
        cell: &str,
        watch: &mut Watch,
        limit: Duration,
    ) -> Result<ClaimAnswer, LabError> {
        let folder = out.join(ORDER).join("claims");
        fs::create_dir_all(&folder).map_err(LabError::file("make", &folder))?;
        let highest = numbers(&folder, cell).into_iter().max().unwrap_or(0);
        if highest > 0 {
            let path = at(&folder, cell, highest);
            // It may be gone by now; then the next attempt finds out.
            let text = fs::read_to_string(&path).unwrap_or_default();
            let is_gone = serde_json::from_str::<Owner>(&text).is_ok_and(|owner| owner.is_gone());
            let seen = ForeignClaim { path, text };
            if !is_gone && !watch.stands_still(&seen, limit) {
                return Ok(ClaimAnswer::Taken(seen));
            }
        }
        let path = at(&folder, cell, highest + 1);
        let mut owner = Owner::this();
        match fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                let written = file.write_all(owner.text().as_bytes());
                written.map_err(LabError::file("write", &path))?;
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Ok(ClaimAnswer::Taken(ForeignClaim { path, text: String::new() }));
            }
            Err(e) => return Err(LabError::file("write", &path)(e)),
        }
        let lost = Arc::new(AtomicBool::new(false));
        let (end, ended) = mpsc::channel();
        let next = at(&folder, cell, highest + 2);
        let seen = lost.clone();
        let beats = thread::spawn(move || {
            while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                if next.exists() {
                    seen.store(true, Relaxed);
                    return;
                }
                owner.beat += 1;
                let part = path.with_extension(format!("{}.beat", highest + 1));
                let _ = fs::write(&part, owner.text()).and_then(|()| fs::rename(&part, &path));
            }
        });
        let (end, beats) = (Some(end), Some(beats));
        Ok(ClaimAnswer::Granted(CellClaim {
            folder,
            cell: cell.to_owned(),
            number: highest + 1,
            lost,
            end,
            beats,
        }))
    }

    /// Whether another process has taken the cell over, as far as is known yet.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// Looks whether another process has taken the cell over.
    #[must_use]
    pub fn is_still_ours(&self) -> bool {
        !self.is_lost() && !at(&self.folder, &self.cell, self.number + 1).exists()
    }
}

impl Drop for CellClaim {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(beats) = self.beats.take() {
            let _ = beats.join();
        }
        // Those before it first: while the highest is there, nobody makes another one.
        for number in 1..=self.number {
            let _ = fs::remove_file(at(&self.folder, &self.cell, number));
        }
    }
}

fn at(folder: &Path, cell: &str, number: u32) -> PathBuf {
    folder.join(format!("{cell}.{number}"))
}

/// The numbers of the claims of a cell. They are few, and begin with any number.
fn numbers(folder: &Path, cell: &str) -> Vec<u32> {
    let prefix = format!("{cell}.");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        entry.file_name().to_string_lossy().strip_prefix(&prefix)?.parse().ok()
    };
    entries.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(out: &Path, watch: &mut Watch, limit: Duration) -> Option<CellClaim> {
        match CellClaim::ask_within(out, "rt-rest-seed1", watch, limit).expect("a claim") {
            ClaimAnswer::Granted(claim) => Some(claim),
            ClaimAnswer::Taken(_) => None,
        }
    }

    #[test]
    fn a_cell_has_one_owner_until_that_one_lets_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let (out, watch, never) = (folder.path(), &mut Watch::default(), Duration::MAX);
        let first = ask(out, watch, never).expect("free");
        assert!(ask(out, watch, never).is_none() && first.is_still_ours());
        // A name that only begins in the same way is another cell.
        assert!(matches!(CellClaim::ask(out, "rt-rest-seed", watch), Ok(ClaimAnswer::Granted(_))));
        drop(first);
        let second = ask(out, watch, never).expect("free again");
        assert_eq!(second.number, 1);
    }

    #[test]
    fn the_cell_of_a_process_that_is_gone_is_taken_over_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let claims = folder.path().join(ORDER).join("claims");
        fs::create_dir_all(&claims).expect("made");
        let leave = |owner: Owner| {
            fs::write(claims.join("rt-rest-seed1.3"), owner.text()).expect("written");
        };
        let watch = &mut Watch::default();
        // The number of a process may be that of another one now.
        leave(Owner { began: "1".to_owned(), ..Owner::this() });
        let claim = ask(folder.path(), watch, Duration::MAX).expect("taken over");
        assert_eq!(claim.number, 4);
        drop(claim);
        assert_eq!(fs::read_dir(&claims).expect("listed").count(), 0, "nothing is left");
        // Of another machine nothing is known but what it writes.
        leave(Owner { boot: "another".to_owned(), began: "1".to_owned(), ..Owner::this() });
        assert!(ask(folder.path(), watch, Duration::MAX).is_none());
    }

    #[test]
    fn a_claim_that_stands_still_is_taken_over_and_its_owner_sees_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (out, watch) = (folder.path(), &mut Watch::default());
        let slow = ask(out, watch, Duration::ZERO).expect("free");
        assert!(ask(out, watch, Duration::ZERO).is_none(), "seen for the first time");
        let path = at(&out.join(ORDER).join("claims"), "rt-rest-seed1", 1);
        let text = fs::read_to_string(&path).expect("there");
        fs::write(&path, text.replace("\"beat\":0", "\"beat\":1")).expect("written");
        assert!(ask(out, watch, Duration::ZERO).is_none(), "it has changed");
        let next = ask(out, watch, Duration::ZERO).expect("it stood still");
        assert!(!slow.is_still_ours() && next.is_still_ours());
        drop(slow);
        assert!(next.is_still_ours(), "the slow one takes nothing away");
    }
}
