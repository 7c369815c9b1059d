//! axe-core, which finds what keeps people with a screen reader or weak eyes from a page. Its licence is the MPL:
//! it is fetched from its own registry for the tests and never becomes part of the project.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;

use crate::shell;

/// What is fetched: one version, so that a new rule doesn't fail the tests on its own.
const PACKAGE: &str = "axe-core@4.14.1";

/// How long that may take: 600 KB.
const LIMIT: Duration = Duration::from_secs(3 * 60);

/// Puts axe-core into a folder where it isn't there. Without npm or a network there is none, which is no
/// failure: the test that needs it skips itself, and the skip is expected.
pub(super) fn fetch(folder: &Path, log: &Path) -> Result<String> {
    if folder.join("node_modules/axe-core/axe.min.js").is_file() {
        return Ok(format!("{PACKAGE} is there"));
    }
    let Some(npm) = shell::find("npm") else {
        return Ok("none: npm is not installed".to_owned());
    };
    fetch_with(&npm, folder, log)
}

fn fetch_with(npm: &Path, folder: &Path, log: &Path) -> Result<String> {
    let mut command = Command::new(npm);
    command.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]);
    command.arg("--prefix").arg(folder).arg(PACKAGE);
    let fetched = shell::logged(&mut command, log, LIMIT)?;
    Ok(match fetched.is_ok() {
        true => format!("fetched {PACKAGE}"),
        false => format!("none: {}", shell::last_lines(&fetched.log, 1)),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn outcome(script: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let npm = folder.path().join("npm");
        fs::write(&npm, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&npm, fs::Permissions::from_mode(0o755)).expect("executable");
        fetch_with(&npm, folder.path(), &folder.path().join("log")).expect("no failure")
    }

    #[test]
    fn without_a_network_there_is_no_axe_and_no_failure() {
        assert_eq!(outcome("echo 'no route to host' >&2; exit 1"), "none: no route to host");
        assert_eq!(outcome("exit 0"), format!("fetched {PACKAGE}"));
    }

    #[test]
    fn what_is_there_is_not_fetched_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("node_modules/axe-core");
        fs::create_dir_all(&inside).expect("a folder");
        fs::write(inside.join("axe.min.js"), "").expect("written");
        let said = fetch(folder.path(), Path::new("/nowhere/log")).expect("no failure");
        assert_eq!(said, format!("{PACKAGE} is there"));
    }
}
