//! `cargo xtask advisories`: whether the RustSec database warns of a package in `Cargo.lock`, because it has a
//! security hole, is unsound, or is no longer maintained.
//!
//! The database is used where cargo-audit or cargo-deny keep it, and is never fetched: the tests work without a
//! network.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustsec::{
    Database, Lockfile,
    advisory::Informational,
    report::{Report, Settings},
};

/// Says how to get the database.
pub(crate) const HOW_TO_GET: &str =
    "git clone --depth 1 https://github.com/RustSec/advisory-db ~/.cargo/advisory-db";

/// Advisories that don't concern us: the number, and why.
const ACCEPTED: &[(&str, &str)] = &[];

/// Prints what was found. Whether it was nothing.
pub(crate) fn run() -> Result<bool> {
    let Some(folder) = database() else {
        bail!("there is no advisory database on this machine: {HOW_TO_GET}");
    };
    println!("{}", check(&folder)?);
    Ok(true)
}

/// The database, where there is one.
pub(crate) fn database() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let of_deny = home.join("advisory-dbs").read_dir().into_iter().flatten().flatten();
    let mut folders = vec![home.join("advisory-db")];
    folders.extend(of_deny.map(|entry| entry.path()));
    folders.into_iter().find(|folder| folder.join("crates").is_dir())
}

/// Looks up our packages, and answers how many they are.
///
/// # Errors
///
/// A file can't be read, or an advisory concerns a package.
pub(crate) fn check(folder: &Path) -> Result<String> {
    let lockfile = Lockfile::load(crate::root().join("Cargo.lock")).context("Cargo.lock")?;
    let found = concerning(&lockfile, folder)?;
    if !found.is_empty() {
        bail!("{}", found.join("\n"));
    }
    Ok(format!("none for {} packages", lockfile.packages.len()))
}

/// A line for each advisory that concerns a package and isn't accepted.
fn concerning(lockfile: &Lockfile, folder: &Path) -> Result<Vec<String>> {
    let database = Database::open(folder).context("the advisory database")?;
    let accepted = ACCEPTED.iter().map(|(id, _)| id.parse());
    let settings = Settings {
        ignore: accepted.collect::<Result<_, _>>()?,
        informational_warnings: vec![Informational::Unmaintained, Informational::Unsound],
        ..Settings::default()
    };
    let report = Report::generate(&database, lockfile, &settings);
    let holes =
        report.vulnerabilities.list.iter().map(|hole| (&hole.package, Some(&hole.advisory)));
    let warnings = report.warnings.values().flatten();
    let all = holes.chain(warnings.map(|warning| (&warning.package, warning.advisory.as_ref())));
    let lines = all.filter_map(|(package, advisory)| {
        let advisory = advisory?;
        let (name, version) = (&package.name, &package.version);
        Some(format!("{name} {version}: {} {}", advisory.id, advisory.title))
    });
    Ok(lines.collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"old\"\nversion = \"1.2.0\"\n\
        source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";

    fn advisory(folder: &Path, number: u32, informational: &str) {
        let id = format!("RUSTSEC-2024-{number:04}");
        let text = format!(
            "```toml\n[advisory]\nid = \"{id}\"\npackage = \"old\"\ndate = \"2024-01-01\"\n{informational}\n\
             [versions]\npatched = [\">= 1.3.0\"]\n```\n\n# Something is wrong\n\nIn detail.\n"
        );
        fs::create_dir_all(folder.join("crates/old")).expect("a folder");
        fs::write(folder.join(format!("crates/old/{id}.md")), text).expect("written");
    }

    #[test]
    fn holes_and_packages_that_nobody_maintains_are_told_and_mended_versions_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        advisory(folder.path(), 1, "");
        advisory(folder.path(), 2, "informational = \"unmaintained\"");
        let told = |lock: &str| {
            concerning(&lock.parse().expect("a lockfile"), folder.path()).expect("a database")
        };
        assert_eq!(
            told(LOCK),
            [
                "old 1.2.0: RUSTSEC-2024-0001 Something is wrong",
                "old 1.2.0: RUSTSEC-2024-0002 Something is wrong"
            ]
        );
        assert!(told(&LOCK.replace("1.2.0", "1.3.1")).is_empty());
    }
}
