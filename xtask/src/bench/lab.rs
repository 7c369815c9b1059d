//! What a cell of the lab costs beyond the time that passes in its guest.
//!
//! Wall time says what a user waits for, on this machine as busy as it is. It is judged by CPU time: that of
//! rtscope and of the emulator, the building of the page too. The guest's time is what its kernel says when it
//! switches off; that of the firmware before it isn't in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    MeasuredProgram, Options, process,
    table::{Goal, Line},
};
use crate::shell;

/// The kernel of our own that the tests make, too.
const KERNEL: &str = "tiny-6.12-rt";

/// What a cell may cost beyond its own time.
const BEYOND_S: f64 = 2.0;

/// How long a guest may take.
const GUEST_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Runs of each plan: a guest's time is the same in each.
const ROUNDS_MAX: usize = 5;

/// A plan's name, its phases and its text; none for a shipped one.
const PLANS: [(&str, f64, Option<&str>); 2] = [
    (
        "one-cell",
        1.0,
        Some(
            "name = 'one-cell'\ntitle = 'a second at rest'\n[sampler]\npolicy = 'fifo'\n\
             priority = 90\ninterval = '500us'\n[[phase]]\nname = 'rest'\ncycles = 2000\n",
        ),
    ),
    ("lab-quick", 3.0, None),
];

/// What one run took, in seconds.
struct Took {
    /// In the guest.
    own_s: f64,
    wall_s: f64,
    cpu_s: f64,
}

pub(super) fn lines(subject: &MeasuredProgram, options: &Options) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (plan, cells, text) in PLANS {
        let file = subject.folder.join(format!("{plan}.toml"));
        let plan_word = match text {
            Some(text) => fs::write(&file, text).map(|()| file.display().to_string())?,
            None => plan.to_owned(),
        };
        let rounds = 0..options.rounds.min(ROUNDS_MAX);
        let all = rounds.map(|_| run(subject, &plan_word)).collect::<Result<Vec<_>>>()?;
        let line = |what: &str, goal, figure: &dyn Fn(&Took) -> f64| Line {
            what: format!("lab, {plan}: {what}"),
            unit: "s",
            ours: all.iter().map(figure).collect(),
            theirs: Vec::new(),
            goal,
        };
        let none = Goal::None;
        lines.push(line("virtual time", none, &|took| took.own_s));
        lines.push(line("wall time", none, &|took| took.wall_s));
        lines.push(line("wall beyond virtual, a cell", none, &|took| {
            (took.wall_s - took.own_s) / cells
        }));
        lines.push(line("CPU beyond virtual, a cell", Goal::AtMost(BEYOND_S), &|took| {
            (took.cpu_s - took.own_s) / cells
        }));
    }
    Ok(lines)
}

fn run(subject: &MeasuredProgram, plan: &str) -> Result<Took> {
    let out = subject.folder.join("lab");
    let _ = fs::remove_dir_all(&out);
    let mut command = Command::new(&subject.rtscope);
    command.args(["lab", "run", plan, "--kernel", KERNEL, "--fresh", "--out"]).arg(&out);
    let (began, before) = (Instant::now(), process::children_cpu_time());
    let ran = shell::logged(&mut command, &subject.folder.join("lab.txt"), GUEST_LIMIT)?;
    let cpu = process::children_cpu_time().saturating_sub(before);
    let wall = began.elapsed();
    if !ran.is_ok() {
        bail!(
            "`rtscope lab run` failed: {} (`rtscope kernel build {KERNEL}` makes the kernel)",
            shell::last_lines(&ran.log, 5)
        );
    }
    let console = fs::read_to_string(console(&out).context("no guest has run")?)?;
    let own_s = switched_off(&console).context("the guest did not switch itself off")?;
    Ok(Took { own_s, wall_s: wall.as_secs_f64(), cpu_s: cpu.as_secs_f64() })
}

/// The console of the only guest in a folder.
fn console(out: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(out).ok()?.flatten();
    entries.map(|entry| entry.path().join("console.txt")).find(|path| path.is_file())
}

/// When a guest's kernel switched off, in seconds of its own time.
fn switched_off(console: &str) -> Option<f64> {
    let line = console.lines().find(|line| line.contains("reboot: Power down"))?;
    line.trim().strip_prefix('[')?.split_once(']')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_s_own_time_is_when_it_switched_off() {
        let console = "rtscope: sent 12 files\r\n[    2.867793] reboot: Power down\r\n";
        assert_eq!(switched_off(console), Some(2.867_793));
        assert_eq!(switched_off("rtscope: sent 12 files\r\n"), None);
    }
}
