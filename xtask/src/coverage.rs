//! `cargo xtask coverage`: the lines of each crate that the tests reach.
//!
//! The compiler counts how often each region runs (`-Cinstrument-coverage`). The tools of the toolchain's own LLVM read
//! the counts. A line that is reached is not a line that is checked: `cargo xtask mutants` shows that.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// How long the build and the tests may take.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

const USAGE: &str = "usage: cargo xtask coverage [--program] [CRATE]...";

/// Lines with code, and those of them that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    count: u64,
    covered: u64,
}

/// Runs the unit tests of all crates or of some, and with `--program` the tests that run the program; prints the
/// coverage.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let (options, crates): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with('-'));
    let has_program = match options[..] {
        [] => false,
        ["--program"] => true,
        _ => bail!("{USAGE}"),
    };
    let tools = tools()?;
    let folder = crate::metadata()?.target_directory.into_std_path_buf().join("coverage");
    let profiles = folder.join("profiles");
    let _ = fs::remove_dir_all(&profiles);
    fs::create_dir_all(&profiles)?;
    let mut units = vec!["--lib"];
    match crates.is_empty() {
        true => units.extend(["--bins", "--workspace"]),
        false => crates.iter().for_each(|name| units.extend(["--package", *name])),
    }
    let mut tests = vec![units];
    if has_program {
        tests.push(vec!["--package", "rtscope", "--test", "it"]);
    }
    let mut objects = Vec::new();
    for (at, words) in tests.iter().enumerate() {
        println!("running {}", words.join(" "));
        objects.extend(built(&folder, words)?);
        let mut cargo = cargo(&folder, words);
        cargo.args(["--no-fail-fast", "--", "--test-threads=1"]);
        cargo.env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
        let log = folder.join(format!("tests-{at}.log"));
        if !shell::logged(&mut cargo, &log, LIMIT)?.is_ok() {
            println!("some tests failed: {}", log.display());
        }
    }
    let lines = lines(&exported(&tools, &folder, &profiles, &objects)?, crate::root());
    print!("{}", table(&lines));
    Ok(!lines.is_empty())
}

/// The folder of llvm-profdata and llvm-cov that are as new as the compiler.
fn tools() -> Result<PathBuf> {
    let ask = |words: &[&str]| shell::output(Command::new("rustc").args(words), LIMIT);
    let root = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
    let about = ask(&["-vV"])?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("no host")?;
    let tools = root.join("lib/rustlib").join(host).join("bin");
    if !tools.join("llvm-cov").is_file() {
        bail!("llvm-cov is missing: run `rustup component add llvm-tools`");
    }
    Ok(tools)
}

/// Tests, instrumented.
fn cargo(folder: &Path, words: &[&str]) -> Command {
    let mut cargo = shell::cargo();
    cargo.arg("test").args(words);
    // It takes the place of the flags in .cargo/config.toml.
    cargo.env("RUSTFLAGS", "-Cinstrument-coverage -Ctarget-feature=+crt-static");
    cargo.env("CARGO_TARGET_DIR", folder);
    cargo
}

/// Builds tests; answers every program that was built for them.
fn built(folder: &Path, words: &[&str]) -> Result<Vec<PathBuf>> {
    let mut cargo = cargo(folder, words);
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    // The build's own programs are instrumented too, and count elsewhere.
    cargo.env("LLVM_PROFILE_FILE", "/dev/null");
    Ok(shell::executables(&shell::output(&mut cargo, LIMIT)?))
}

/// The counts of all files as llvm-cov writes them.
fn exported(tools: &Path, folder: &Path, profiles: &Path, objects: &[PathBuf]) -> Result<Value> {
    let merged = folder.join("all.profdata");
    let mut profdata = Command::new(tools.join("llvm-profdata"));
    // A program that was killed leaves a profile that ends in the middle.
    profdata.args(["merge", "--sparse", "--failure-mode=all", "--output"]);
    shell::output(profdata.arg(&merged).arg(profiles), LIMIT)?;
    let mut cov = Command::new(tools.join("llvm-cov"));
    cov.args(["export", "--summary-only", "--instr-profile"]).arg(&merged);
    for object in objects {
        cov.arg("--object").arg(object);
    }
    let text = shell::output(&mut cov, LIMIT)?;
    serde_json::from_str(&text).context("what llvm-cov wrote")
}

/// The lines of each crate.
fn lines(document: &Value, root: &Path) -> BTreeMap<String, Lines> {
    let mut crates: BTreeMap<String, Lines> = BTreeMap::new();
    for file in document["data"][0]["files"].as_array().into_iter().flatten() {
        let path = Path::new(file["filename"].as_str().unwrap_or_default());
        let Ok(path) = path.strip_prefix(root) else { continue };
        let below = path.strip_prefix("crates").unwrap_or(path);
        let Some(name) = below.iter().next() else { continue };
        let lines = crates.entry(name.to_string_lossy().into_owned()).or_default();
        let number = |key: &str| file["summary"]["lines"][key].as_u64().unwrap_or_default();
        lines.count += number("count");
        lines.covered += number("covered");
    }
    crates
}

fn table(crates: &BTreeMap<String, Lines>) -> String {
    let row = |name: &str, Lines { count, covered }: Lines| {
        let share = covered as f64 / count.max(1) as f64 * 100.0;
        format!("{name:<18}{covered:>8} of {count:>6} lines{share:>7.1} %\n")
    };
    let mut all = Lines::default();
    let mut text = String::new();
    for (name, lines) in crates {
        text += &row(name, *lines);
        (all.count, all.covered) = (all.count + lines.count, all.covered + lines.covered);
    }
    text + &row("all", all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_added_up_by_crate() {
        let file = |name: &str, count: u64, covered: u64| json!({ "filename": name, "summary": { "lines": { "count": count, "covered": covered } } });
        let files = [
            file("/w/crates/one/src/a.rs", 10, 5),
            file("/w/crates/one/src/b/c.rs", 30, 25),
            file("/w/xtask/src/main.rs", 4, 0),
            file("/registry/serde/src/lib.rs", 1_000, 9),
        ];
        let found = lines(&json!({ "data": [{ "files": files }] }), Path::new("/w"));
        assert_eq!(found["one"], Lines { count: 40, covered: 30 });
        assert_eq!(found.len(), 2);
        let table = table(&found);
        assert!(
            table.contains("one") && table.contains("75.0 %") && table.contains("68.2 %"),
            "{table}"
        );
    }
}
