//! `cargo xtask fuzz`: every fuzz target for a while, from its corpus.
//!
//! The targets are built without cargo-fuzz: libFuzzer's instrumentation is a pass that a stable compiler has
//! too. Inputs that reach new code are kept in `target/fuzz/found`, so that the next call goes on from there.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, bail};

use crate::shell;

/// How long the build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Coverage and comparisons for libFuzzer, with the checks of a debug build: an overflow is a finding.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks -Copt-level=2 \
    --cfg fuzzing";

/// One input may take this long, and this much memory.
const LIMITS: [&str; 3] = ["-timeout=30", "-rss_limit_mb=2048", "-max_len=16384"];

/// What became of a target.
struct Fuzzed {
    executions: u64,
    is_ok: bool,
}

/// Runs every target; all of them together take the minutes of `--minutes`, 5 when it is not given.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let minutes = match words {
        [] => 5,
        ["--minutes", number] => number.parse().context("--minutes takes a whole number")?,
        _ => bail!("usage: cargo xtask fuzz [--minutes N]"),
    };
    let folder = crate::metadata()?.target_directory.into_std_path_buf().join("fuzz");
    let targets = targets()?;
    let seconds = (minutes * 60 / targets.len() as u64).max(1);
    println!("building {} targets", targets.len());
    let programs = built(&folder)?;
    let (mut executions, mut is_ok) = (0, true);
    for target in &targets {
        let fuzzed = fuzzed(target, &programs, &folder, seconds)?;
        let how = if fuzzed.is_ok { "ok" } else { "FAILED" };
        println!("{target:<16}{:>12} executions  {how}", fuzzed.executions);
        executions += fuzzed.executions;
        is_ok &= fuzzed.is_ok;
    }
    println!("{executions} executions in {} targets", targets.len());
    if !is_ok {
        println!("what failed is in {}", folder.join("failed").display());
    }
    Ok(is_ok)
}

/// The names of the targets: those of their files.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(crate::root().join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        let name = path.file_stem().context("a target without a name")?;
        names.push(name.to_string_lossy().replace('_', "-"));
    }
    names.sort();
    Ok(names)
}

/// Builds the targets; answers the folder that they are in.
fn built(folder: &Path) -> Result<std::path::PathBuf> {
    let mut cargo = shell::cargo();
    cargo.current_dir(crate::root().join("fuzz"));
    cargo.args(["build", "--quiet", "--bins", "--message-format", "json-render-diagnostics"]);
    cargo.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", folder);
    let messages = shell::output(&mut cargo, BUILD_LIMIT)?;
    let program = shell::executable(&messages)?;
    Ok(program.parent().context("a program without a folder")?.to_owned())
}

fn fuzzed(target: &str, programs: &Path, folder: &Path, seconds: u64) -> Result<Fuzzed> {
    let (found, failed) = (folder.join("found").join(target), folder.join("failed"));
    fs::create_dir_all(&found)?;
    fs::create_dir_all(&failed)?;
    let mut command = Command::new(programs.join(target));
    command.args(LIMITS).args(["-print_final_stats=1", "-verbosity=0"]);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/{target}-", failed.display()));
    command.arg(found).arg(crate::root().join("fuzz/corpus").join(target));
    if target == "plan" {
        command.arg(crate::root().join("plans"));
    }
    let limit = Duration::from_secs(seconds * 2 + 600);
    let finished = shell::logged(&mut command, &folder.join(format!("{target}.log")), limit)?;
    let executions = finished
        .log
        .lines()
        .filter_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
        .find_map(|number| number.trim().parse().ok());
    Ok(Fuzzed { executions: executions.unwrap_or(0), is_ok: finished.is_ok() })
}
