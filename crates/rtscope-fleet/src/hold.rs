//! What a job is at its place: a folder below a base, and the lease, a symbolic link beside it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::error::FleetError;

/// The lease's name in the base.
const LEASE: &str = "lease";

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A job's folder at this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    base: PathBuf,
    job: String,
}

impl Hold {
    /// # Errors
    ///
    /// The name can't be that of a job.
    pub fn new(base: &Path, job: &str) -> Result<Hold, FleetError> {
        match is_job(job) {
            true => Ok(Hold { base: base.to_owned(), job: job.to_owned() }),
            false => Err(FleetError::Refused(format!("{job:?} is not a valid job name"))),
        }
    }

    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.base.join(&self.job)
    }

    /// A file or a folder of the job.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    #[must_use]
    pub fn base(&self) -> &Path {
        &self.base
    }

    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// How long the lease still goes; none when this job doesn't have it.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let text = fs::read_link(self.base.join(LEASE)).ok()?;
        let boot = fs::read_to_string(BOOT_ID).ok()?;
        left_of(text.to_str()?, &self.job, boot.trim(), uptime())
    }

    /// Removes everything of the job, and the base when it was the last.
    ///
    /// # Errors
    ///
    /// The folder can't be removed. Then the lease stays.
    pub fn remove(&self) -> Result<(), FleetError> {
        let folder = self.folder();
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(FleetError::file("remove", folder)(e));
            }
            _ => {}
        }
        if self.left().is_some() {
            let _ = fs::remove_file(self.base.join(LEASE));
        }
        // It may hold another job by now.
        let _ = fs::remove_dir(&self.base);
        Ok(())
    }
}

/// Lower-case letters, digits and `-`: it is a word in scripts and in the lease.
fn is_job(name: &str) -> bool {
    let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=100).contains(&name.len()) && name.chars().all(is_known)
}

/// A name for a job that nobody else has: who asked, when, and a number for this process.
#[must_use]
pub fn job_name(user: &str, host: &str, at: jiff::Timestamp, number: usize) -> String {
    let plain = |text: &str| -> String {
        let text = text.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        text.chars().take(24).collect()
    };
    let time = at.strftime("%Y%m%dt%H%M%S");
    format!("{}-{}-{time}-{}-{number}", plain(user), plain(host), std::process::id())
}

/// Time since the boot, also while the machine was suspended: as `/proc/uptime` counts.
fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), 0)
}

/// What is left of a lease `JOB BOOT END SECONDS`. After a reboot it counts from the boot.
#[must_use]
pub fn left_of(text: &str, job: &str, boot: &str, uptime: Duration) -> Option<Duration> {
    let words: Vec<&str> = text.split(' ').collect();
    let [holder, taken_in, end, seconds] = words.as_slice() else { return None };
    let end = if *taken_in == boot { end } else { seconds };
    let end = Duration::from_secs(end.parse().ok()?);
    (*holder == job).then(|| end.saturating_sub(uptime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_the_boot_after_a_reboot() {
        let left = |text, boot| left_of(text, "a", boot, Duration::from_secs(100));
        assert_eq!(left("a one 160 70", "one"), Some(Duration::from_secs(60)));
        assert_eq!(left("a one 160 170", "two"), Some(Duration::from_secs(70)));
        assert_eq!(left("a one 90 10", "one"), Some(Duration::ZERO));
        for other in ["b one 160 70", "a one 160", "a one x 70", ""] {
            assert_eq!(left(other, "one"), None, "{other}");
        }
    }

    /// Bash runs a command in the index of an array wherever it expects a number, and another user may have made the
    /// folder.
    #[test]
    fn a_lease_runs_no_command_in_any_shell() {
        let boot = fs::read_to_string(BOOT_ID).expect("a number");
        for script in [include_str!("scripts/look.sh"), include_str!("scripts/take.sh")] {
            for (shell, boot) in [("sh", boot.trim()), ("bash", boot.trim()), ("bash", "earlier")] {
                let room = tempfile::tempdir().expect("a folder");
                let made = room.path().join("made");
                let uid = rustix::process::getuid().as_raw();
                let base = room.path().join(format!("rtscope-fleet-{uid}"));
                fs::create_dir(&base).expect("made");
                let number = format!("a[$(>{})0]", made.display());
                let lease = format!("job {boot} {number} {number}");
                std::os::unix::fs::symlink(&lease, base.join(LEASE)).expect("a link");
                let folder = room.path().display().to_string();
                let words = ["-c", script, shell, &folder, "other", "1"];
                let ran = std::process::Command::new(shell).args(words).output();
                assert!(ran.is_ok() || shell == "bash", "{ran:?}");
                assert!(!made.exists(), "{shell}: {lease}");
            }
        }
    }

    #[test]
    fn a_name_of_a_job_is_one_word_whoever_asks() {
        let at = "2026-03-04T05:06:07Z".parse().expect("a time");
        let name = job_name("Zo\u{eb} X", "bench.local", at, 3);
        assert!(
            name.starts_with("zo--x-bench-local-20260304t050607-") && name.ends_with("-3"),
            "{name}"
        );
        assert!(is_job(&name));
        for wrong in ["", "..", "a/b", "A", "a b"] {
            assert!(Hold::new(Path::new("/tmp"), wrong).is_err(), "{wrong}");
        }
    }
}
