//! Packages of Python that read what rtscope exports or releases, or hand out places: those of the other projects themselves. They are
//! fetched from their own registry for the tests and never become part of the project.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;

use crate::shell;

/// What is fetched: one version, so that a new one doesn't fail the tests on its own.
pub(super) struct PythonPackage {
    /// The step of the test run, and the folder's name.
    pub(super) name: &'static str,
    requirement: &'static str,
    /// The folder of its module.
    module: &'static str,
}

/// Perfetto's own classes of its traces, KernelCI's own check of its documents, labgrid's coordinator and exporter, the
/// schema of Kubernetes, and that of a bill of materials.
pub(super) const ALL: [PythonPackage; 5] = [
    PythonPackage { name: "perfetto", requirement: "perfetto==0.59.1", module: "perfetto" },
    PythonPackage { name: "kcidb", requirement: "kcidb-io==141", module: "kcidb_io" },
    PythonPackage { name: "labgrid", requirement: "labgrid==26.0.1", module: "labgrid" },
    PythonPackage {
        name: "kubernetes",
        requirement: "kubernetes-validate==1.37.0",
        module: "kubernetes_validate",
    },
    PythonPackage {
        name: "cyclonedx",
        requirement: "cyclonedx-python-lib[json-validation]==11.12.0",
        module: "cyclonedx",
    },
];

/// How long that may take: some MB, with what they need.
const LIMIT: Duration = Duration::from_secs(3 * 60);

/// Puts one into a folder where it isn't there. Without pip or a network there is none, which is no failure: the test that
/// needs it skips itself, and the skip is expected.
pub(super) fn fetch(package: &PythonPackage, folder: &Path, log: &Path) -> Result<String> {
    let PythonPackage { requirement, module, .. } = package;
    if folder.join(module).is_dir() {
        return Ok(format!("{requirement} is there"));
    }
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", "pip", "install", "--quiet", "--target"]).arg(folder).arg(requirement);
    if !Path::new("/usr/bin/python3").exists() {
        return Ok("none: python3 is not installed".to_owned());
    }
    let fetched = shell::logged(&mut command, log, LIMIT)?;
    Ok(match fetched.is_ok() {
        true => format!("fetched {requirement}"),
        false => format!("none: {}", shell::last_lines(&fetched.log, 1)),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_there_is_not_fetched_again() {
        for package in &ALL {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir_all(folder.path().join(package.module)).expect("a folder");
            let said =
                fetch(package, folder.path(), Path::new("/nowhere/log")).expect("no failure");
            assert_eq!(said, format!("{} is there", package.requirement));
        }
    }
}
