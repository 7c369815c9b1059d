//! The program itself: how fast it starts, how much memory it takes, how large it is.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    MeasuredProgram, Options, process,
    table::{Goal, Line, Spread},
};
use crate::shell;

/// Starts of which the median is taken.
const STARTS: usize = 20;

pub(super) fn lines(subject: &MeasuredProgram, _options: &Options) -> Result<Vec<Line>> {
    let size = fs::metadata(&subject.rtscope)?.len();
    let line = |what: &str, unit, figure, limit| {
        let (ours, theirs) = (vec![figure], Vec::new());
        Line { what: what.to_owned(), unit, ours, theirs, goal: Goal::AtMost(limit) }
    };
    Ok(vec![
        line("rtscope --version", "ms", start_ms(subject)?, 10.0),
        line("peak memory of a run, 2 CPUs", "MB", peak_memory_bytes(subject)? as f64 / 1e6, 16.0),
        line("release binary", "MB", size as f64 / 1e6, 12.0),
    ])
}

/// The median time from start to end of `rtscope --version`.
fn start_ms(subject: &MeasuredProgram) -> Result<f64> {
    let mut times_ms = Vec::new();
    for _ in 0..STARTS {
        let began = Instant::now();
        let output = Command::new(&subject.rtscope).arg("--version").output()?;
        times_ms.push(began.elapsed().as_secs_f64() * 1e3);
        if !output.status.success() {
            bail!("rtscope --version failed");
        }
    }
    Ok(Spread::of(&times_ms).median)
}

/// The most memory that the measuring process of a short `quick` used, page and all. Its loads are
/// processes of their own.
fn peak_memory_bytes(subject: &MeasuredProgram) -> Result<u64> {
    let cpus: Vec<String> = process::cpus().iter().rev().take(2).map(u32::to_string).collect();
    let mut command = Command::new(&subject.rtscope);
    command.args(["run", "quick", "--quiet", "--duration", "5s", "--cpus", &cpus.join(",")]);
    command.arg("--out").arg(subject.folder.join("quick"));
    let file = File::create(subject.folder.join("quick.txt"))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = shell::start(&mut command)?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut peak = None;
    while child.try_wait()?.is_none() {
        // It only grows, so the last look is the one that counts.
        peak = process::peak_memory_bytes(child.id()).or(peak);
        if Instant::now() > deadline {
            shell::kill_tree(&mut child);
            bail!("rtscope run quick did not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
    peak.context("rtscope run quick ended at once")
}
