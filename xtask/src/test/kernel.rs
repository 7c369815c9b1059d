//! The small real-time kernel of our own that some tests of the lab boot where it is kept: fetched, built and kept by the
//! program itself, once for all checkouts on this machine.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Result, bail};

use crate::shell;

/// Its name; Debian's prebuilt kernels lack its simulated GPIO lines, and hang in virtual time with two CPUs.
const NAME: &str = "tiny-6.12-rt";

/// How long it may make no progress. All of it takes 8 to 15 minutes on two idle cores, and half an hour beside other
/// builds.
const SILENCE: Duration = Duration::from_secs(10 * 60);

/// Makes the kernel where it isn't kept.
pub(super) fn make(log: &Path) -> Result<String> {
    if !cfg!(target_arch = "x86_64") {
        return Ok("none: it is for x86-64".to_owned());
    }
    build(&shell::tested("rtscope")?, log)
}

fn build(program: &Path, log: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(["kernel", "build", NAME]);
    let built = shell::logged_while_it_writes(&mut command, log, SILENCE)?;
    if built.is_ok() {
        let first = built.log.lines().find(|line| line.starts_with(NAME)).unwrap_or(NAME);
        return Ok(first.to_owned());
    }
    let how = if built.status.is_none() { "made no progress" } else { "failed" };
    let said = shell::last_lines(&built.log, 1);
    bail!("{NAME} {how}: {said}\nthe whole output is in {}", log.display());
}

#[cfg(test)]
mod tests {
    use rtscope_testing::executable;

    use super::*;

    /// An rtscope that answers to `kernel build`.
    fn outcome(script: &str) -> Result<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("rtscope");
        executable::write(&program, &format!("#!/bin/sh\n{script}\n"));
        build(&program, &folder.path().join("log"))
    }

    #[test]
    fn the_kernel_s_line_is_shown_and_what_fails_says_why() {
        let built = "echo building; echo \"$3 6.12.9-rt #1\"; echo 9 objects";
        assert_eq!(outcome(built).expect("there"), "tiny-6.12-rt 6.12.9-rt #1");
        for why in ["rtscope: no archive", "rtscope: this machine lacks bc"] {
            let said = outcome(&format!("echo '{why}' >&2; exit 1")).expect_err("fails");
            assert!(said.to_string().contains(&format!("failed: {why}\nthe whole")), "{said}");
        }
        outcome("kill -SEGV $$").expect_err("fails");
    }
}
