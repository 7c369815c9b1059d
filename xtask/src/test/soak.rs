//! A short soak: a few rounds of the faults that take little time, so that the soak itself is tested.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Result, anyhow};

use crate::shell;

/// The rounds take this long, and what comes before and after them about as long again.
const LASTS: &str = "12s";

/// The same rounds each time: what fails once, fails again.
const SEED: &str = "18";

/// Commands that wait for other work may take long.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Runs it as a process of its own, because it takes its own mounts.
pub(super) fn short(log: &Path) -> Result<String> {
    let program = shell::tested("rtscope")?;
    // Not this very program: its file is gone since the tests' build made it anew.
    let mut command = Command::new(program.with_file_name("xtask"));
    command.args(["soak", "--mild", "--for", LASTS, "--seed", SEED]);
    command.args(["--only", "kill,term,int,stop,disk,tracefs"]);
    command.arg("--program").arg(program);
    let soaked = shell::logged(&mut command, log, LIMIT)?;
    let counts = soaked.log.lines().find(|line| line.contains(" rounds, "));
    let counts = counts.and_then(|line| line.split(", ").nth(2)).unwrap_or_default();
    match soaked.is_ok() && !counts.is_empty() {
        true => Ok(counts.to_owned()),
        false => Err(anyhow!(
            "{}\nthe whole output is in {}",
            shell::last_lines(&soaked.log, 30),
            log.display()
        )),
    }
}
