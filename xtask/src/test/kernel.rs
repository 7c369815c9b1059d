//! The small real-time kernel of our own that some tests of the lab boot where it is kept: fetched, built and kept by the
//! program itself, once for all checkouts on this machine.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Result, bail};

use crate::shell;

/// Its name; Debian's prebuilt kernels lack its simulated GPIO lines.
const NAME: &str = "tiny-6.12-rt";

/// How long the source may take to come: 150 MB.
const FETCH_LIMIT: Duration = Duration::from_secs(5 * 60);

/// How long the build may make no progress. All of it takes 8 to 15 minutes on two idle cores, and half an hour
/// beside other builds.
const BUILD_SILENCE: Duration = Duration::from_secs(10 * 60);

/// Makes the kernel where it isn't kept. Without a package source there is none, which is no failure:
/// the tests that need it skip themselves, and their skips are expected. A build that fails is one.
pub(super) fn make(log: &Path) -> Result<String> {
    if !cfg!(target_arch = "x86_64") {
        return Ok("none: it is for x86-64".to_owned());
    }
    steps(&shell::tested("rtscope")?, log)
}

fn steps(program: &Path, log: &Path) -> Result<String> {
    let command = |verb: &str| {
        let mut command = Command::new(program);
        command.args(["kernel", verb, NAME]);
        command
    };
    let said = |log: &str| shell::last_lines(log, 1).trim_start_matches("rtscope: ").to_owned();
    let fetched = shell::logged(&mut command("fetch"), log, FETCH_LIMIT)?;
    match fetched.status.map(|status| status.code()) {
        Some(Some(0)) => {}
        // What it can't fetch is an error that it tells.
        Some(Some(1)) => return Ok(format!("none: {}", said(&fetched.log))),
        None => return Ok(format!("none: not fetched within {} s", FETCH_LIMIT.as_secs())),
        Some(_) => bail!(
            "{NAME} can't be fetched: {}\nthe whole output is in {}",
            said(&fetched.log),
            log.display()
        ),
    }
    let built = shell::logged_while_it_writes(&mut command("build"), log, BUILD_SILENCE)?;
    if built.is_ok() {
        let first = built.log.lines().find(|line| line.starts_with(NAME)).unwrap_or(NAME);
        return Ok(first.to_owned());
    }
    if said(&built.log).starts_with("this machine lacks ") {
        return Ok(format!("none: {}", said(&built.log)));
    }
    let how = if built.status.is_none() { "made no progress" } else { "failed" };
    bail!("{NAME} {how}: {}\nthe whole output is in {}", said(&built.log), log.display());
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// An rtscope that answers to `kernel fetch` and `kernel build`.
    fn outcome(fetch: &str, build: &str) -> Result<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("rtscope");
        let script = format!("#!/bin/sh\ncase $2 in\nfetch) {fetch};;\nbuild) {build};;\nesac\n");
        fs::write(&program, script).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        steps(&program, &folder.path().join("log"))
    }

    #[test]
    fn without_a_source_or_a_tool_there_is_no_kernel_and_a_build_that_fails_is_a_failure() {
        let fails = |text: &str| format!("echo 'rtscope: {text}' >&2; exit 1");
        let built = "echo building; echo 'tiny-6.12-rt 6.12.9-rt #1'; echo 9 objects";
        assert_eq!(outcome("true", built).expect("there"), "tiny-6.12-rt 6.12.9-rt #1");
        let none = outcome(&fails("no archive"), "exit 9").expect("no failure");
        assert_eq!(none, "none: no archive");
        outcome("kill -SEGV $$", built).expect_err("a crash is no lack of a source");
        let lacks = fails("this machine lacks bc: run `apt-get install bc`");
        assert!(outcome("true", &lacks).expect("no failure").starts_with("none: this machine"));
        let said = outcome("true", &fails("the build failed in a.o")).expect_err("fails");
        assert!(said.to_string().contains("failed: the build failed in a.o\nthe whole"), "{said}");
    }
}
