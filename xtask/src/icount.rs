//! `cargo xtask icount`: how many instructions one tick of the sampler's loop takes.
//!
//! A count, unlike a time, is the same on a busy machine and on a quiet one. The example `tick` runs
//! the very loop that measures on a simulated clock; valgrind counts what the whole program executes
//! at two lengths, and the difference has neither start-up nor end in it. The simulated clock's own
//! instructions are in the count; the kernel's, which a real clock would add, are not.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Result, anyhow};

use crate::shell;

/// The most instructions that one tick may take on x86-64, in a build for tests, which checks for overflows. With rustc 1.95, a
/// build that goes on from an earlier one took 142.4 on 2026-11-26, and a first build fewer: 5 % more for what another compiler may
/// do differently.
const BOUND: f64 = 150.0;

/// Ticks of the short run; the long one has three times as many.
const TICKS: u64 = 100_000;

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Words for cargo that build the example: as it is released, but with names. From all crates: older
/// versions have it in another one.
pub(crate) const EXAMPLE: [&str; 5] =
    ["--profile", "profiling", "--workspace", "--example", "tick"];

/// Counts in the build that the tests are made of, which takes no time when they have run; prints, and answers whether the
/// count is within its bound. `cargo xtask bench --against` counts what is released.
pub(crate) fn run() -> Result<bool> {
    let per_tick = per_tick(&shell::tested("tick")?)?;
    if cfg!(target_arch = "x86_64") {
        println!("{per_tick:.1} instructions a tick, at most {BOUND:.0}");
        Ok(per_tick <= BOUND)
    } else {
        println!("{per_tick:.1} instructions a tick; the bound is for x86-64");
        Ok(true)
    }
}

/// The instructions of one tick, in the example.
pub(crate) fn per_tick(example: &Path) -> Result<f64> {
    let [short, long] = [TICKS, 3 * TICKS].map(|ticks| {
        let mut command = Command::new(example);
        command.arg(ticks.to_string());
        count(&command)
    });
    Ok((long? as f64 - short? as f64) / (2 * TICKS) as f64)
}

/// The instructions that a command executes in all.
pub(crate) fn count(command: &Command) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-fd=1"]);
    valgrind.arg(command.get_program()).args(command.get_args());
    let output = shell::output(&mut valgrind, LIMIT)?;
    collected(&output).ok_or_else(|| {
        anyhow!("valgrind's output was not understood: {}", shell::last_lines(&output, 5))
    })
}

/// The count in callgrind's output: `==12== Collected : 3456`.
fn collected(output: &str) -> Option<u64> {
    let line = output.lines().find(|line| line.starts_with("==") && line.contains("Collected"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        let output =
            "==7== Callgrind\nwakeups 5\n==7== \n==7== Events    : Ir\n==7== Collected : 71234\n";
        assert_eq!(collected(output), Some(71_234));
        assert_eq!(collected("Collected : 5\n==7== Collected : many\n"), None);
    }
}
