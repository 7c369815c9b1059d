//! `cargo xtask fuzz`: every fuzz target for a while, from its corpus.
//!
//! The targets are built without cargo-fuzz: libFuzzer's instrumentation is a pass that a stable compiler has
//! too. Inputs that reach new code are kept in `target/fuzz/found`, so that the next call goes on from there.
//! When a target's time is over, some hundred inputs that were kept go through every stage of the pipe.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::shell;

/// How long the build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Inputs that were kept of which every stage is tried: drawing all plots of one takes up to 0.2 s.
const REPLAYED_MAX: usize = 300;

/// How long it may take to send these inputs through every stage.
const REPLAY_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Coverage for libFuzzer. Its hooks for comparisons took 40 % of the time in statistics.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    --cfg fuzzing";

/// One input may take 10 s.
const LIMITS: [&str; 2] = ["-timeout=10", "-rss_limit_mb=1024"];

/// All of a target's memory, libFuzzer's own included. The kernel refuses more at once; libFuzzer looks only
/// once a second.
const MEMORY_LIMIT: &str = "--as=1280000000";

/// Tells the targets to send each input through every stage.
const ALL_STAGES: &str = "RTSCOPE_FUZZ_ALL";

const USAGE: &str = "usage: cargo xtask fuzz [--minutes N] [TARGET]...";

/// What was asked.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    minutes: u64,
    targets: Vec<String>,
}

impl Options {
    fn read(words: &[&str], known: &[String]) -> Result<Options> {
        let mut options = Options { minutes: 5, targets: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--minutes" {
                let number = words.next().context(USAGE)?;
                options.minutes = number.parse().context("--minutes takes a whole number")?;
            } else if known.iter().any(|name| name == word) {
                options.targets.push((*word).to_owned());
            } else {
                bail!("{word:?} is not a target: one of {}\n{USAGE}", known.join(", "));
            }
        }
        if options.targets.is_empty() {
            options.targets = known.to_vec();
        }
        Ok(options)
    }
}

/// What became of a target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fuzzed {
    executions: u64,
    /// Pairs of an edge of the control flow and a magnitude of how often it was taken.
    features: u64,
    /// Inputs that were kept: each reaches something that no other does.
    kept: u64,
    is_ok: bool,
}

impl Fuzzed {
    fn read(log: &str, is_ok: bool) -> Fuzzed {
        let after = |text: &str, key: &str| -> Option<u64> {
            let rest = text.rsplit_once(key)?.1.trim_start();
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let done = log.lines().rfind(|line| line.contains(" ft: ")).unwrap_or_default();
        Fuzzed {
            executions: after(log, "stat::number_of_executed_units:").unwrap_or(0),
            features: after(done, " ft: ").unwrap_or(0),
            kept: after(done, " corp: ").unwrap_or(0),
            is_ok,
        }
    }
}

/// Runs targets; all of them together take the minutes of `--minutes`, 5 when it is not given.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let options = Options::read(words, &targets()?)?;
    let folder = crate::metadata()?.target_directory.into_std_path_buf().join("fuzz");
    let count = options.targets.len();
    let seconds = (options.minutes * 60 / count as u64).max(1);
    println!("building the targets");
    let programs = built(&folder)?;
    println!(
        "{:<16}{:>12}{:>11}{:>10}{:>7}",
        "target", "executions", "a second", "features", "kept"
    );
    let (mut executions, mut is_ok) = (0, true);
    for target in &options.targets {
        let began = Instant::now();
        let target = Target::new(target, &programs, &folder)?;
        let searched = target.search(seconds)?;
        let rate = searched.executions as f64 / began.elapsed().as_secs_f64();
        let Fuzzed { executions: own, features, kept, .. } = searched;
        let how = match (searched.is_ok, target.replay()?) {
            (true, true) => "ok",
            (false, _) => "FAILED",
            (true, false) => "FAILED in all stages",
        };
        println!("{:<16}{own:>12}{rate:>11.0}{features:>10}{kept:>7}  {how}", target.name);
        executions += own;
        is_ok &= how == "ok";
    }
    println!("{executions} executions in {count} targets");
    if !is_ok {
        println!("the inputs that failed are in {}", folder.join("failed").display());
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
fn built(folder: &Path) -> Result<PathBuf> {
    // The versions that are released: cargo keeps those of a lock, and adds what only the targets need.
    let root = crate::root();
    fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock"))?;
    let mut cargo = shell::cargo();
    cargo.current_dir(root.join("fuzz"));
    cargo.args(["build", "--quiet", "--bins", "--message-format", "json-render-diagnostics"]);
    cargo.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", folder);
    let messages = shell::output(&mut cargo, BUILD_LIMIT)?;
    let program = shell::executable(&messages)?;
    Ok(program.parent().context("a program without a folder")?.to_owned())
}

/// A target with its folders.
struct Target<'a> {
    name: &'a str,
    program: PathBuf,
    folder: &'a Path,
    /// Inputs that were kept, the first, and those of the checkout.
    inputs: Vec<PathBuf>,
}

impl<'a> Target<'a> {
    fn new(name: &'a str, programs: &Path, folder: &'a Path) -> Result<Target<'a>> {
        let found = folder.join("found").join(name);
        for folder in [&found, &folder.join("failed")] {
            fs::create_dir_all(folder)?;
        }
        let mut inputs = vec![found, crate::root().join("fuzz/corpus").join(name)];
        if name == "plan" {
            inputs.push(crate::root().join("crates/rtscope/plans"));
        }
        Ok(Target { name, program: programs.join(name), folder, inputs })
    }

    fn command(&self, inputs: &[PathBuf]) -> Command {
        let mut command = Command::new("prlimit");
        command.arg(MEMORY_LIMIT).arg(&self.program).args(LIMITS).args(inputs);
        let failed = self.folder.join("failed").join(self.name);
        command.arg(format!("-artifact_prefix={}-", failed.display()));
        command
    }

    /// Looks for inputs that fail.
    fn search(&self, seconds: u64) -> Result<Fuzzed> {
        let mut command = self.command(&self.inputs);
        // Choosing the next input by how rare what it reaches is takes more time than most executions.
        command.args(["-print_final_stats=1", "-max_len=8192", "-entropic=0"]);
        command.arg(format!("-max_total_time={seconds}"));
        let limit = Duration::from_secs(seconds * 2 + 600);
        let log = self.folder.join(format!("{}.log", self.name));
        let finished = shell::logged(&mut command, &log, limit)?;
        Ok(Fuzzed::read(&finished.log, finished.is_ok()))
    }

    /// Sends inputs through every stage: those of the checkout, and as many of those that were kept as take
    /// a minute or so. Their names are hashes of what they hold, so that the first ones are a fair sample.
    fn replay(&self) -> Result<bool> {
        let mut inputs: Vec<PathBuf> = Vec::new();
        for (at, folder) in self.inputs.iter().enumerate() {
            let mut files = fs::read_dir(folder)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<Vec<_>, _>>()?;
            // A folder among files would be refused.
            files.retain(|path| path.is_file());
            files.sort();
            files.truncate(if at == 0 { REPLAYED_MAX } else { usize::MAX });
            inputs.extend(files);
        }
        let mut command = self.command(&inputs);
        command.env(ALL_STAGES, "1");
        let log = self.folder.join(format!("{}-all.log", self.name));
        Ok(shell::logged(&mut command, &log, REPLAY_LIMIT)?.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_log() {
        let log = "#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                   #4096\tDONE   cov: 120 ft: 345 corp: 67/8Kb lim: 80 exec/s: 2048 rss: 31Mb\n\
                   stat::number_of_executed_units: 4096\nstat::average_exec_per_sec:     2048\n";
        let read = Fuzzed { executions: 4096, features: 345, kept: 67, is_ok: true };
        assert_eq!(Fuzzed::read(log, true), read);
        assert_eq!(Fuzzed::read("", false), Fuzzed::default());
    }

    #[test]
    fn targets_and_minutes_are_chosen() {
        let known = ["plan", "wave"].map(str::to_owned);
        let all = Options { minutes: 5, targets: known.to_vec() };
        assert_eq!(Options::read(&[], &known).expect("all"), all);
        let one = Options { minutes: 60, targets: vec!["wave".to_owned()] };
        assert_eq!(Options::read(&["wave", "--minutes", "60"], &known).expect("one"), one);
        for wrong in [["--minutes", "x"], ["plan", "--minutes"], ["plan", "other"]] {
            assert!(Options::read(&wrong, &known).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_target_has_a_corpus() {
        for name in targets().expect("targets") {
            let corpus = crate::root().join("fuzz/corpus").join(&name);
            assert!(fs::read_dir(corpus).is_ok_and(|mut files| files.next().is_some()), "{name}");
        }
    }
}
