//! A folder in which lines for the shell call a program of ours by its name, as a reader would type them.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Result;

use crate::shell;

/// How long a program takes at most that only looks something up.
const LOOK_UP: Duration = Duration::from_secs(10);

pub(crate) struct Room {
    path: PathBuf,
}

impl Room {
    /// Makes the folder anew. `rtscope` is then that program, and `fixtures` a folder of the checkout.
    pub(crate) fn new(path: PathBuf, program: &Path, fixtures: &str) -> Result<Room> {
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(path.join("bin"))?;
        symlink(program, path.join("bin/rtscope"))?;
        symlink(crate::root().join(fixtures), path.join("fixtures"))?;
        Ok(Room { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A shell that runs lines in the folder.
    pub(crate) fn shell(&self, lines: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", lines]).current_dir(&self.path).stdin(Stdio::null());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.path.join("bin").display()));
        command
    }
}

/// Today, as 2026-11-26, and the kernel's release: figures without them mean nothing.
pub(crate) fn date_and_kernel() -> Result<(String, String)> {
    let said = |program: &str, words: &[&str]| -> Result<String> {
        Ok(shell::output(Command::new(program).args(words), LOOK_UP)?.trim().to_owned())
    };
    Ok((said("date", &["-u", "+%F"])?, said("uname", &["-r"])?))
}
