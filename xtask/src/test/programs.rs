//! Test programs: found in what cargo says of their build, and run as cargo runs them.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use anyhow::Result;
use cargo_metadata::{Artifact, Message};

use crate::shell::{self, Finished};

/// A test program that cargo has built.
#[derive(Clone, Debug)]
pub(super) struct TestProgram {
    /// Its crate's name.
    pub(super) of: String,
    /// Its own name, if it is one of `tests/`; none for the unit tests of a crate.
    pub(super) name: Option<String>,
    /// Where it runs: the crate's folder.
    folder: PathBuf,
    file: PathBuf,
}

impl TestProgram {
    /// Whether it is this one of `tests/`.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    #[cfg(test)]
    pub(super) fn at(folder: &Path, name: Option<&str>) -> TestProgram {
        let of = folder.file_name().expect("a crate").to_string_lossy().into_owned();
        let file = folder.join("not built");
        TestProgram { of, name: name.map(str::to_owned), folder: folder.to_owned(), file }
    }

    fn of_artifact(artifact: Artifact) -> Option<TestProgram> {
        let file = artifact.executable.filter(|_| artifact.profile.test)?.into_std_path_buf();
        let folder = artifact.manifest_path.parent()?;
        let name = artifact.target.is_test().then_some(artifact.target.name);
        let of = folder.file_name()?.to_owned();
        Some(TestProgram { of, name, folder: folder.into(), file })
    }
}

/// All of them, once they are built.
pub(super) fn all() -> Result<Vec<TestProgram>> {
    Ok(of_messages(&shell::messages_of_tests()?))
}

fn of_messages(messages: &str) -> Vec<TestProgram> {
    let messages = Message::parse_stream(messages.as_bytes()).flatten();
    messages
        .filter_map(|message| match message {
            Message::CompilerArtifact(artifact) => TestProgram::of_artifact(artifact),
            _ => None,
        })
        .collect()
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
    let mut all = Finished { status: Some(ExitStatus::default()), log: String::new() };
    for program in programs {
        let TestProgram { of, folder, file, .. } = program;
        let heading = format!("\n     Running {} of {of}\n", file.display());
        File::options().append(true).open(log)?.write_all(heading.as_bytes())?;
        let mut command = Command::new(file);
        command.args(words).current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        let one = shell::logged_behind(command.env(variable, value), log, limit)?;
        if all.is_ok() {
            all.status = one.status;
        }
        all.log = one.log;
    }
    Ok(all)
}
