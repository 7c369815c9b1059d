//! Perfetto's own Python classes, which read what rtscope exports for it. They are fetched from their own registry for the
//! tests and never become part of the project.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;

use crate::shell;

/// What is fetched: one version, so that a new one doesn't fail the tests on its own.
const PACKAGE: &str = "perfetto==0.59.1";

/// How long that may take: some MB, with protobuf.
const LIMIT: Duration = Duration::from_secs(3 * 60);

/// Puts them into a folder where they aren't there. Without pip or a network there are none, which is no failure: the
/// test that needs them skips itself, and the skip is expected.
pub(super) fn fetch(folder: &Path, log: &Path) -> Result<String> {
    if folder.join("perfetto").is_dir() {
        return Ok(format!("{PACKAGE} is there"));
    }
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", "pip", "install", "--quiet", "--target"]).arg(folder).arg(PACKAGE);
    if !Path::new("/usr/bin/python3").exists() {
        return Ok("none: python3 is not installed".to_owned());
    }
    let fetched = shell::logged(&mut command, log, LIMIT)?;
    Ok(match fetched.is_ok() {
        true => format!("fetched {PACKAGE}"),
        false => format!("none: {}", shell::last_lines(&fetched.log, 1)),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_there_is_not_fetched_again() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("perfetto")).expect("a folder");
        let said = fetch(folder.path(), Path::new("/nowhere/log")).expect("no failure");
        assert_eq!(said, format!("{PACKAGE} is there"));
    }
}
