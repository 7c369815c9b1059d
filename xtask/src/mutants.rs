//! `cargo xtask mutants`: whether the judge's tests notice when the judge is changed.
//!
//! cargo-mutants changes one expression or function of the statistics or the verdict at a time, builds the crate and
//! runs its unit tests. A change that no test notices is a survivor. There are thousands, so the crate is the judge
//! alone: without plots, pages, imports and exports, a build takes a fraction of the time.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// What judges, from a record to a verdict: what is changed.
const JUDGE: [&str; 2] = ["crates/judge/src/statistics/**", "crates/judge/src/verdict/**"];

/// Parts of rtscope-analyse that the judge and its tests need.
const PARTS: [&str; 10] = [
    "statistics",
    "verdict",
    "doctor",
    "judgement.rs",
    "number.rs",
    "test_support.rs",
    "plot/table.rs",
    "plot/fixture.rs",
    "report/check.rs",
    "report/tune.rs",
];

/// Files of the checkout that tests read.
const READ: [&str; 4] = ["fixtures", "docs/method/verdict.md", "Cargo.lock", ".cargo/config.toml"];

const LIBRARY: &str = "\
pub mod doctor;
pub mod judgement;
pub mod number;
pub mod plot { #[cfg(test)] pub(crate) mod fixture; pub mod table; }
pub mod report { pub mod check; pub mod tune; }
pub mod statistics;
#[cfg(test)] mod test_support;
pub mod verdict;
pub use judgement::Judgement;
pub fn judge(record: &rtscope_model::record::Record, accept: &[String]) -> Judgement {
    verdict::decide(record, statistics::summary::cells(record), accept)
}
";

const PACKAGE: &str = "\
[package]
name = 'judge'
version = '0.0.0'
edition = '2024'
[dependencies]
jiff.workspace = true
rtscope-model.workspace = true
serde.workspace = true
serde_json.workspace = true
statrs.workspace = true
thiserror.workspace = true
[dev-dependencies]
insta.workspace = true
proptest.workspace = true
";

/// How long all mutants may take: thousands of builds.
const LIMIT: Duration = Duration::from_secs(7 * 86_400);

/// Tests that simulate for seconds. They take three quarters of the test time, so they run only for mutants that survive
/// the others.
const SLOW: [&str; 4] = [
    "extending_a_run_until_the_claim_holds_backs_few_false_claims",
    "the_body_of_a_distribution_is_not_taken_for_its_tail",
    "the_interval_holds_the_truth_under_spells_or_is_refused",
    "runs_that_resemble_their_neighbours_are_no_change",
];

/// Seconds that the tests may take. A mutant may loop for ever.
const TEST_SECONDS: &str = "120";

/// How long the slow tests may take. A mutant may loop for ever.
const SLOW_LIMIT: Duration = Duration::from_secs(180);

/// The first build has all dependencies.
const BUILD_LIMIT: Duration = Duration::from_secs(15 * 60);

const PATCH_LIMIT: Duration = Duration::from_secs(60);

const USAGE: &str = "usage: cargo xtask mutants [--shard K/N] [--list]";

/// What became of the mutants, by the names of the files that cargo-mutants writes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mutants {
    caught: Vec<String>,
    missed: Vec<String>,
    timeout: Vec<String>,
    /// Those that the compiler refuses.
    unviable: Vec<String>,
}

impl Mutants {
    fn read(folder: &Path) -> Mutants {
        let names = |file: &str| {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        };
        Mutants {
            caught: names("caught.txt"),
            missed: names("missed.txt"),
            timeout: names("timeout.txt"),
            unviable: names("unviable.txt"),
        }
    }

    /// Runs the slow tests on missed mutants, and sorts these again.
    fn try_slow_tests(&mut self, folder: &Path, results: &Path) -> Result<()> {
        let missed = std::mem::take(&mut self.missed);
        if missed.is_empty() {
            return Ok(());
        }
        if slow_tests(folder)? != Some(true) {
            bail!("the slow tests fail without a change; see {}", folder.display());
        }
        for mutant in missed {
            let diff = diff_of(results, &mutant)?;
            patch(folder, &diff, "--forward")?;
            let passed = slow_tests(folder);
            patch(folder, &diff, "--reverse")?;
            match passed? {
                Some(true) => self.missed.push(mutant),
                Some(false) => self.caught.push(mutant),
                None => self.timeout.push(mutant),
            }
        }
        for (file, mutants) in
            [("caught", &self.caught), ("missed", &self.missed), ("timeout", &self.timeout)]
        {
            fs::write(results.join(file).with_extension("txt"), mutants.join("\n") + "\n")?;
        }
        Ok(())
    }

    /// The share of mutants that a test notices, in percent: of those that compile. A test that doesn't come to its
    /// end has noticed.
    fn score(&self) -> Option<f64> {
        let noticed = self.caught.len() + self.timeout.len();
        let all = noticed + self.missed.len();
        (all > 0).then(|| noticed as f64 / all as f64 * 100.0)
    }
}

/// Changes the judge, and answers whether there were mutants and the tests noticed all of them.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let scratch = crate::scratch()?;
    let folder = scratch.join("judge");
    judge(&folder)?;
    if shell::find("patch").is_none() {
        bail!("patch is missing: install it");
    }
    let chosen = match words {
        [] => vec![],
        ["--list"] => vec!["--list"],
        ["--shard", shard] => vec!["--shard", shard, "--sharding", "round-robin"],
        _ => bail!("{USAGE}"),
    };
    if words == ["--list"] {
        print!("{}", shell::output(command(&folder, scratch)?.args(chosen), LIMIT)?);
        return Ok(true);
    }
    let began = Instant::now();
    let mut quick = command(&folder, scratch)?;
    quick.args(chosen).args(["--", "--"]).args(SLOW.iter().flat_map(|test| ["--skip", test]));
    // It fails where a mutant survives, and says so in its files.
    let finished = shell::logged(&mut quick, &scratch.join("mutants.log"), LIMIT)?;
    let mut found = Mutants::read(&scratch.join("mutants.out"));
    found.try_slow_tests(&folder, &scratch.join("mutants.out"))?;
    let Some(score) = found.score() else {
        bail!("no mutant was tested: {}", shell::last_lines(&finished.log, 20));
    };
    found.missed.iter().for_each(|mutant| println!("missed: {mutant}"));
    println!(
        "{} caught, {} timeouts, {} missed, {} unviable, in {} min",
        found.caught.len(),
        found.timeout.len(),
        found.missed.len(),
        found.unviable.len(),
        began.elapsed().as_secs() / 60
    );
    println!("score {score:.1} %: (caught + timeouts) / (caught + timeouts + missed)");
    Ok(found.missed.is_empty())
}

/// Path of the diff that makes a mutant.
fn diff_of(results: &Path, mutant: &str) -> Result<PathBuf> {
    let outcomes: Value = serde_json::from_str(&shell::read(&results.join("outcomes.json"))?)?;
    let mut all = outcomes["outcomes"].as_array().into_iter().flatten();
    let is_it = |one: &&Value| one["scenario"]["Mutant"]["name"] == mutant;
    let below = all.find(is_it).and_then(|one| one["diff_path"].as_str());
    Ok(results.join(below.with_context(|| format!("cargo-mutants has no diff for {mutant}"))?))
}

/// Makes the change of a mutant, or takes it back. cargo-mutants can't test chosen mutants again: its option `--re` also
/// selects all mutants that delete a field, whatever the expression.
fn patch(folder: &Path, diff: &Path, direction: &str) -> Result<()> {
    let mut patch = Command::new("patch");
    patch.args(["--strip=0", "--silent", direction, "--directory"]).arg(folder);
    shell::output(patch.arg("--input").arg(diff), PATCH_LIMIT).map(drop)
}

/// Whether the slow tests pass. `None` if they time out.
fn slow_tests(folder: &Path) -> Result<Option<bool>> {
    let mut build = cargo(folder);
    shell::output(build.args(["test", "--lib", "--no-run", "--quiet"]), BUILD_LIMIT)?;
    let mut tests = cargo(folder);
    tests.args(["test", "--lib", "--"]).args(SLOW);
    let finished = shell::logged(&mut tests, &folder.join("slow-tests.log"), SLOW_LIMIT)?;
    Ok(finished.status.map(|status| status.success()))
}

/// cargo in the small workspace: it reuses earlier builds.
fn cargo(folder: &Path) -> Command {
    let mut command = shell::cargo();
    command.current_dir(folder);
    command.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_DEV_DEBUG", "false");
    command.env("INSTA_UPDATE", "no");
    command
}

/// cargo-mutants with what is the same for each call.
fn command(folder: &Path, scratch: &Path) -> Result<Command> {
    if shell::find("cargo-mutants").is_none() {
        bail!("cargo-mutants is missing: run `cargo install cargo-mutants --locked`");
    }
    let mut command = cargo(folder);
    // Random order, so the tested mutants are a fair sample even if the run is stopped early.
    command.args(["mutants", "--shuffle", "--colors", "never"]);
    // Each has a copy of the folder. Half of a build is the work of one thread.
    command.arg("--jobs").arg(std::thread::available_parallelism()?.to_string());
    command.args(["--timeout", TEST_SECONDS, "--cargo-test-arg=--lib"]);
    for files in JUDGE {
        command.args(["--file", files]);
    }
    command.arg("--output").arg(scratch);
    Ok(command)
}

/// Makes a workspace with the crate that is the judge alone.
fn judge(folder: &Path) -> Result<()> {
    for old in ["crates", "fixtures"] {
        let _ = fs::remove_dir_all(folder.join(old));
    }
    let root = crate::root();
    let parts = Path::new("crates/rtscope-analyse/src");
    for part in PARTS {
        copy(&root.join(parts).join(part), &folder.join("crates/judge/src").join(part))?;
    }
    for read in READ {
        copy(&root.join(read), &folder.join(read))?;
    }
    fs::write(folder.join("crates/judge/src/lib.rs"), LIBRARY)?;
    fs::write(folder.join("crates/judge/Cargo.toml"), PACKAGE)?;
    fs::write(
        folder.join("Cargo.toml"),
        workspace(&fs::read_to_string(root.join("Cargo.toml"))?)?,
    )?;
    Ok(())
}

/// A workspace with the dependencies of ours.
fn workspace(ours: &str) -> Result<String> {
    let mut ours: toml::Table = ours.parse()?;
    let workspace = ours.get_mut("workspace").and_then(toml::Value::as_table_mut);
    let mut all = workspace
        .and_then(|workspace| workspace.remove("dependencies"))
        .context("a workspace without dependencies")?;
    for (_, one) in all.as_table_mut().into_iter().flatten() {
        if let Some(path) = one.get_mut("path") {
            let below = path.as_str().unwrap_or_default();
            *path = crate::root().join(below).display().to_string().into();
        }
    }
    let made = toml::toml! {
        [workspace]
        resolver = "3"
        members = ["crates/judge"]
    };
    let mut made: toml::Table = made;
    // Simulations call some of the dependencies millions of times.
    made.extend(ours.remove_entry("profile"));
    if let Some(workspace) = made.get_mut("workspace").and_then(toml::Value::as_table_mut) {
        workspace.insert("dependencies".to_owned(), all);
    }
    Ok(made.to_string())
}

/// Copies a file, or a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file without a folder")?)?;
    if from.is_dir() {
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    fs::copy(from, to).with_context(|| format!("can't copy {}", from.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_score_is_of_those_that_compile() {
        let names = |count| vec![String::new(); count];
        let found =
            Mutants { caught: names(6), missed: names(2), timeout: names(1), unviable: names(9) };
        let score = found.score().expect("a score");
        assert!((score - 700.0 / 9.0).abs() < 1e-9, "{score}");
        assert_eq!(Mutants::default().score(), None);
    }

    #[test]
    fn the_change_of_a_mutant_is_found_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = r#"{"outcomes": [{"scenario": "Baseline", "diff_path": null},
            {"scenario": {"Mutant": {"name": "a.rs:1: one"}}, "diff_path": "diff/one.diff"}]}"#;
        fs::write(folder.path().join("outcomes.json"), text).expect("written");
        let found = diff_of(folder.path(), "a.rs:1: one").expect("found");
        assert_eq!(found, folder.path().join("diff/one.diff"));
        assert!(diff_of(folder.path(), "a.rs:2: two").is_err());
    }

    #[test]
    fn the_slow_tests_are_there() {
        let statistics = crate::root().join("crates/rtscope-analyse/src/statistics");
        let mut grep = Command::new("grep");
        grep.args(["--recursive", "--no-filename", "fn "]).arg(statistics);
        let all = shell::output(&mut grep, PATCH_LIMIT).expect("functions");
        assert!(SLOW.iter().all(|test| all.contains(&format!("fn {test}()"))));
    }

    #[test]
    fn the_files_of_cargo_mutants_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("caught.txt"), "a.rs:1: one\nb.rs:2: two\n").expect("written");
        fs::write(folder.path().join("missed.txt"), "c.rs:3: three\n").expect("written");
        let found = Mutants::read(folder.path());
        assert_eq!((found.caught.len(), found.missed.len(), found.timeout.len()), (2, 1, 0));
    }

    #[test]
    fn the_judge_is_made_of_parts_that_are_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        judge(folder).expect("made");
        assert!(folder.join("crates/judge/src/verdict/requirement.rs").is_file());
        let source = folder.join("crates/judge/src");
        let mut grep = Command::new("grep");
        // A room has only those of its modules that the judge needs.
        grep.args(["--recursive", "--no-filename", "--only-matching", "--word-regexp"]);
        grep.args(["--extended-regexp", "(plot|report)::[a-z_]+"]).arg(source);
        let named = shell::output(&mut grep, PATCH_LIMIT).expect("paths");
        let of_rooms = named.lines().filter_map(|path| path.split("::").nth(1));
        let lacking: BTreeSet<&str> =
            of_rooms.filter(|module| !LIBRARY.contains(&format!("mod {module};"))).collect();
        assert_eq!(lacking, BTreeSet::new());
        let made = fs::read_to_string(folder.join("Cargo.toml")).expect("made");
        let made: toml::Table = made.parse().expect("TOML");
        let model = &made["workspace"]["dependencies"]["rtscope-model"];
        let path = model["path"].as_str().expect("a path");
        assert!(Path::new(path).join("Cargo.toml").is_file(), "{path}");
    }
}
