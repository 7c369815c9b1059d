//! Test programs: found in what cargo says of their build, and run in their crates' folders, as cargo does.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use anyhow::{Result, anyhow};
use cargo_metadata::Artifact;

use super::libtest;
use crate::shell::{self, Finished};

/// Before what a program says, as cargo writes it.
const RUNNING: &str = "     Running ";

/// A test program that cargo has built.
#[derive(Clone, Debug)]
pub(super) struct TestProgram {
    /// Its crate's folder, where it runs.
    folder: PathBuf,
    /// Its own name, if it is one of `tests/`; none for the unit tests of a crate.
    pub(super) name: Option<String>,
    file: PathBuf,
}

impl TestProgram {
    /// Whether it is this one of `tests/`.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    #[cfg(test)]
    pub(super) fn at(folder: &Path, name: Option<&str>) -> TestProgram {
        let (folder, name) = (folder.to_owned(), name.map(str::to_owned));
        TestProgram { folder, name, file: "not built".into() }
    }

    /// The name of its crate's folder.
    pub(super) fn of(&self) -> &str {
        self.folder.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} of {} ({})", self.of(), self.file.display()),
            None => format!("unit tests of {} ({})", self.of(), self.file.display()),
        }
    }

    fn of_artifact(artifact: Artifact) -> Option<TestProgram> {
        let file = artifact.executable.filter(|_| artifact.profile.test)?.into_std_path_buf();
        let folder = artifact.manifest_path.parent()?.into();
        let name = artifact.target.is_test().then_some(artifact.target.name);
        Some(TestProgram { folder, name, file })
    }
}

/// All of them, in the order of their names, once they are built.
pub(super) fn all() -> Result<Vec<TestProgram>> {
    let made = shell::messages_of_tests()?;
    let mut all: Vec<_> = shell::artifacts(&made).filter_map(TestProgram::of_artifact).collect();
    all.sort_by(|a, b| (&a.folder, &a.name).cmp(&(&b.folder, &b.name)));
    Ok(all)
}

/// Runs programs one after the other, each as long as the limit at most, with all that they say in one file. The status is that
/// of the first that failed.
pub(super) fn run<'a>(
    programs: impl Iterator<Item = &'a TestProgram>,
    words: &[String],
    (variable, value): (&str, &Path),
    log: &Path,
    limit: Duration,
) -> Result<Finished> {
    fs::write(log, "")?;
    let say = |text: &str| -> Result<()> {
        Ok(File::options().append(true).open(log)?.write_all(text.as_bytes())?)
    };
    let mut failed = None;
    for program in programs {
        let name = program.shown();
        say(&format!("\n{RUNNING}{name}\n"))?;
        let mut command = Command::new(&program.file);
        command.args(words).current_dir(&program.folder).env(variable, value);
        let ended = match shell::appended(&mut command, log, limit) {
            Ok(Some(status)) if status.success() => {
                let all = shell::read(log)?;
                if all.rsplit(RUNNING).next().is_some_and(libtest::has_run) {
                    continue;
                }
                Err(anyhow!("ended well, but ran no test"))
            }
            ended => ended,
        };
        match &ended {
            Ok(Some(status)) => say(&format!("\n{name}: {status}\n"))?,
            Ok(None) => say(&format!("\n{name}: killed after {} s\n", limit.as_secs()))?,
            Err(e) => say(&format!("\n{name}: {e:#}\n"))?,
        }
        // What couldn't be run has no status of its own; none at all would mean that it took too long.
        failed.get_or_insert(ended.unwrap_or_else(|_| Some(ExitStatus::from_raw(1 << 8))));
    }
    let status = failed.unwrap_or_else(|| Some(ExitStatus::default()));
    Ok(Finished { status, log: shell::read(log)? })
}

#[cfg(test)]
mod tests {
    use rtscope_testing::executable;

    use super::*;

    #[test]
    fn each_program_runs_and_the_log_says_how_a_failed_one_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = |name: &str, script: &str| {
            let file = folder.path().join(name);
            executable::write(&file, &format!("#!/bin/sh\n{script}\n"));
            TestProgram { file, ..TestProgram::at(folder.path(), Some(name)) }
        };
        let log = folder.path().join("log");
        let within = |seconds: u64, programs: &[TestProgram]| {
            let words = ["--skip".to_owned(), "x".to_owned()];
            let (variable, limit) =
                (("VARIABLE", Path::new("value")), Duration::from_secs(seconds));
            run(programs.iter(), &words, variable, &log, limit).expect("it ran")
        };
        let outcome = |programs: &[TestProgram]| within(60, programs);
        let passes = program("passes", "echo $VARIABLE $2; pwd; echo 'test result: ok. 1 passed'");
        let filtered = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";
        let none = program("none", &format!("echo '{filtered}'"));
        let all = outcome(std::slice::from_ref(&passes));
        assert!(all.is_ok() && all.log.contains("value x\n"), "{}", all.log);
        assert!(all.log.contains(&format!("{}\n", folder.path().display())), "{}", all.log);
        let crashes = program("crashes", "kill -SEGV $$");
        let hangs = program("hangs", "sleep 1000");
        let missing = TestProgram::at(folder.path(), Some("missing"));
        let silent = program("silent", "true");
        for (program, is_ok) in [(passes.clone(), true), (none, false), (silent, false)] {
            let all = outcome(&[program]);
            assert_eq!(all.is_ok(), is_ok, "{}", all.log);
        }
        // The limit is each program's own: long enough for one that passes on a busy machine.
        let all = within(5, &[crashes, hangs, missing, passes]);
        assert!(all.status.is_some_and(|status| !status.success()));
        for part in ["signal: 11", "killed after 5 s", "can't start not built", "value x\n"] {
            assert!(all.log.contains(part), "{part}: {}", all.log);
        }
    }
}
