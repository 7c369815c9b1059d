//! Where the released files come from: an in-toto statement with the predicate of SLSA's build provenance.
//!
//! It is not signed: it says what whoever built it says. The release workflow has the same files attested by its host,
//! which signs who built what from which commit.

use std::{collections::BTreeSet, iter, process::Command};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::LIMIT;
use crate::{packaging::Description, shell};

/// What a build began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Build {
    /// The commit; None without git.
    pub(super) commit: Option<String>,
    /// Whether files differ from the commit.
    pub(super) is_changed: bool,
    pub(super) profile: String,
    pub(super) targets: Vec<&'static str>,
    /// Each compiler, as it calls itself.
    pub(super) compilers: Vec<String>,
}

impl Build {
    /// `others` are compilers beside the one of this machine.
    pub(super) fn new(
        profile: &str,
        targets: Vec<&'static str>,
        others: BTreeSet<String>,
    ) -> Result<Build> {
        let mut git = Command::new("git");
        git.args(["rev-parse", "HEAD"]).current_dir(crate::root());
        let commit = shell::output(&mut git, LIMIT).ok().map(|said| said.trim().to_owned());
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let said = shell::output(Command::new(rustc).arg("--version"), LIMIT)?;
        Ok(Build {
            commit,
            is_changed: crate::has_changes().unwrap_or(true),
            profile: profile.to_owned(),
            targets,
            compilers: iter::once(said.trim().to_owned()).chain(others).collect(),
        })
    }
}

/// The statement about files whose checksums `sha256sum` printed.
pub(super) fn statement(sums: &str, build: &Build, description: &Description) -> Result<Value> {
    let mut subjects = Vec::new();
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").context("a line without a checksum")?;
        subjects.push(json!({ "name": name, "digest": { "sha256": sum } }));
    }
    let repository = format!("git+{}", description.homepage);
    let mut source = json!({ "uri": repository });
    if let Some(commit) = &build.commit {
        source["digest"] = json!({ "gitCommit": commit });
    }
    let lock = super::sum_of(&crate::root().join("Cargo.lock"))?;
    let compilers = build.compilers.iter().map(|name| json!({ "name": name }));
    let mut dependencies =
        vec![source, json!({ "name": "Cargo.lock", "digest": { "sha256": lock } })];
    dependencies.extend(compilers);
    Ok(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{}/xtask-dist/v1", description.homepage),
                "externalParameters": { "targets": build.targets, "profile": build.profile },
                "internalParameters": { "filesDifferFromCommit": build.is_changed },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                // Whoever called it: only a signature could say who that is.
                "builder": { "id": format!("{}/cargo-xtask-dist", description.homepage) },
            },
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_subject_with_its_checksum() {
        let build = Build {
            commit: Some("c0ffee".to_owned()),
            is_changed: false,
            profile: "release".to_owned(),
            targets: vec!["arm64"],
            compilers: vec!["rustc 1.99.0".to_owned()],
        };
        let description = Description::read().expect("a description");
        let sums = "aa  rtscope-1-arm64\nbb  man/rtscope.1\n";
        let said = statement(sums, &build, &description).expect("a statement");
        let subjects = json!([
            { "name": "rtscope-1-arm64", "digest": { "sha256": "aa" } },
            { "name": "man/rtscope.1", "digest": { "sha256": "bb" } },
        ]);
        assert_eq!(said["subject"], subjects);
        let definition = &said["predicate"]["buildDefinition"];
        assert_eq!(definition["externalParameters"]["targets"], json!(["arm64"]));
        let from = definition["resolvedDependencies"].as_array().expect("a list");
        assert_eq!(from[0]["digest"]["gitCommit"], "c0ffee");
        assert_eq!(from[1]["digest"]["sha256"].as_str().map(str::len), Some(64));
        assert_eq!(from[2]["name"], "rustc 1.99.0");
        assert!(statement("odd", &build, &description).is_err());
    }

    #[test]
    fn a_build_knows_its_compiler() {
        let build = Build::new("dev", vec!["x86-64"], BTreeSet::from(["another".to_owned()]));
        let build = build.expect("a build");
        assert!(build.compilers[0].starts_with("rustc 1."), "{build:?}");
        assert_eq!(build.compilers[1..], ["another"]);
        assert!(build.commit.is_none_or(|commit| commit.len() == 40));
    }
}
