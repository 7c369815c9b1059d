//! Counting on a simulated processor: cachegrind of valgrind, whose branch predictor gives the same counts
//! in every run.
//!
//! What it can't show: time, and what a certain processor would do. Its predictor is a simple one.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rtscope_model::stat::{Count, Counted, CountedRun};
use rtscope_sys::process;

use super::{StatError, failure, run_to_end};

/// The simulator, found and asked for its version.
#[derive(Debug)]
pub struct Simulator {
    /// As it says itself.
    pub version: String,
    /// Where it writes its counts.
    folder: PathBuf,
}

/// Beginning of the names of the simulator's folders; the number of a process is behind it.
const FOLDER: &str = "rtscope-simulated-";

/// A folder that is so old is nobody's.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Makes a folder for the counts, and removes those that killed processes left.
fn make_folder(below: &Path) -> Result<PathBuf, StatError> {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(FOLDER));
        let Some(found) = entry.metadata().ok().filter(|_| is_ours) else { continue };
        let age = found.modified().ok().and_then(|at| at.elapsed().ok());
        if found.uid() == process::user() && age.is_some_and(|age| age > LEFT_AFTER) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let failed = |folder: &Path, error| {
        StatError::Simulator(format!("can't make {}: {error}", folder.display()))
    };
    for number in 0_u32.. {
        let folder = below.join(format!("{FOLDER}{}-{number}", std::process::id()));
        match fs::create_dir(&folder) {
            // In another container, a process may have the same number.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map_err(|e| failed(&folder, e)).map(|()| folder),
        }
    }
    Err(failed(below, io::ErrorKind::AlreadyExists.into()))
}

impl Simulator {
    /// Finds it.
    ///
    /// # Errors
    ///
    /// When there is none, with what to install.
    pub fn find() -> Result<Simulator, StatError> {
        let asked = Command::new("valgrind").arg("--version").stdin(Stdio::null()).output();
        let output = asked.map_err(|error| {
            StatError::Simulator(match error.kind() {
                io::ErrorKind::NotFound => {
                    "--simulate needs valgrind: on Debian run `apt-get install valgrind`".to_owned()
                }
                _ => format!("can't run valgrind: {error}"),
            })
        })?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let folder = make_folder(&std::env::temp_dir())?;
        Ok(Simulator { version, folder })
    }

    /// Runs a program on it once, with all that it starts.
    pub(super) fn run(
        &self,
        command: &[String],
        output_to_stderr: bool,
    ) -> Result<CountedRun, StatError> {
        let mut program = Command::new("valgrind");
        program
            .args(["--tool=cachegrind", "--cache-sim=no", "--branch-sim=yes", "--quiet"])
            .args(["--trace-children=yes", "--error-exitcode=0"])
            .arg(format!("--cachegrind-out-file={}/%p", self.folder.display()))
            // Its remarks about caches, which are not simulated.
            .arg(format!("--log-file={}/log-%p", self.folder.display()))
            .args(command);
        let (elapsed_ns, status) = run_to_end(&mut program, "valgrind", output_to_stderr)?;
        let tally = self.collect()?;
        let failed = failure(status);
        let Some(tally) = tally else {
            let how = failed.unwrap_or_else(|| "it wrote no counts".to_owned());
            let text = format!("valgrind could not simulate {}: {how}", command.join(" "));
            return Err(StatError::Simulator(text));
        };
        let value =
            |counted| Count::Value { counted, enabled_ns: 0, running_ns: 0, user_only: false };
        let counts = Counted::ALL.into_iter().map(|counted| match counted {
            Counted::Instructions => value(tally.instructions),
            Counted::Branches => value(tally.branches),
            Counted::BranchMisses => value(tally.misses),
            _ => Count::Absent(
                "not simulated: the simulator counts neither time nor the kernel's work".to_owned(),
            ),
        });
        Ok(CountedRun { elapsed_ns, failed, counts: counts.collect() })
    }

    /// Sums the files of all processes, and removes them.
    fn collect(&self) -> Result<Option<Tally>, StatError> {
        let failed = |path: &Path, error: io::Error| {
            StatError::Simulator(format!("can't read {}: {error}", path.display()))
        };
        let mut sum: Option<Tally> = None;
        let files = fs::read_dir(&self.folder).map_err(|error| failed(&self.folder, error))?;
        for file in files.flatten() {
            let path = file.path();
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            // A process that became another program writes an empty one.
            if let Some(tally) = Tally::parse(&text) {
                let so_far = sum.unwrap_or_default();
                sum = Some(Tally {
                    instructions: so_far.instructions + tally.instructions,
                    branches: so_far.branches + tally.branches,
                    misses: so_far.misses + tally.misses,
                });
            }
            let _ = fs::remove_file(&path);
        }
        Ok(sum)
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What one process did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    instructions: u64,
    branches: u64,
    misses: u64,
}

impl Tally {
    /// Reads the line `summary:` by the names of the line `events:`.
    fn parse(text: &str) -> Option<Tally> {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let names: Vec<&str> = line("events:")?.split_whitespace().collect();
        let values: Vec<u64> =
            line("summary:")?.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let value = |name: &str| {
            names.iter().position(|known| *known == name).and_then(|n| values.get(n)).copied()
        };
        Some(Tally {
            instructions: value("Ir")?,
            branches: value("Bc")? + value("Bi")?,
            misses: value("Bcm")? + value("Bim")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_by_the_names_of_its_columns() {
        let text = "desc: x\ncmd: ./a\nevents: Ir Bc Bcm Bi Bim\nfl=a\n1 2 3 4 5 6\nsummary: 26182127 6784024 6676 893 317\n";
        let tally = Tally { instructions: 26_182_127, branches: 6_784_917, misses: 6_993 };
        assert_eq!(Tally::parse(text), Some(tally));
        let other = "events: Ir I1mr Bc Bcm Bi Bim\nsummary: 9 8 7 6 5 4\n";
        let tally = Tally { instructions: 9, branches: 12, misses: 10 };
        assert_eq!(Tally::parse(other), Some(tally));
        assert_eq!(Tally::parse("events: Ir\nsummary: 9\n"), None);
        assert_eq!(Tally::parse(""), None);
    }
}
