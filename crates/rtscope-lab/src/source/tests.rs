//! Sources from git: a tree of a spec's own and a vendor's, fetched from repositories made here.

use std::fs;

use super::*;
use crate::spec;

/// A repository with a kernel's source as far as versions go, and a branch.
struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    fn new(branch: &str, sublevel: u32) -> Repository {
        let repository = Repository { folder: tempfile::tempdir().expect("a folder") };
        repository.git(&["init", "--quiet", &format!("--initial-branch={branch}")]);
        repository.commit(sublevel);
        repository
    }

    fn git(&self, words: &[&str]) -> String {
        let mut git = Command::new("git");
        git.arg("-C").arg(self.folder.path());
        git.args(["-c", "user.name=test", "-c", "user.email=test@example.invalid"]);
        tool::output(git.args(words)).expect("git").trim().to_owned()
    }

    fn commit(&self, sublevel: u32) -> String {
        let makefile = format!("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = {sublevel}\n");
        fs::write(self.folder.path().join("Makefile"), makefile).expect("written");
        self.git(&["add", "Makefile"]);
        self.git(&["commit", "--quiet", "--message", "a version"]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn address(&self) -> String {
        format!("file://{}", self.folder.path().display())
    }
}

fn skipped() -> bool {
    let missing = tool::find("git").is_none();
    if missing {
        rtscope_testing::skip::skip_this("without git");
    }
    missing
}

fn commit_of(fetched: &Fetched) -> (&Path, &str) {
    let SourceLocation::Commit(repository, commit) = &fetched.place else { panic!("a commit") };
    (repository, commit)
}

#[test]
fn a_vendors_branch_is_fetched_from_where_the_user_says() {
    if skipped() {
        return;
    }
    let room = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(room.path());
    let spec = spec::find("raspberry-pi-4-rt").expect("shipped");
    let said = fetch(&spec, &cache, None, &mut |_| {}).expect_err("from where?").to_string();
    assert!(said.contains("--from") && said.contains("rpi-6.12.y"), "{said}");

    let vendor = Repository::new("rpi-6.12.y", 93);
    let first = vendor.commit(94);
    let fetched = fetch(&spec, &cache, Some(&vendor.address()), &mut |_| {}).expect("fetched");
    let (repository, commit) = commit_of(&fetched);
    assert_eq!((commit, fetched.identity.as_str()), (first.as_str(), &*format!("commit {first}")));
    let mut log = Command::new("git");
    log.arg("--git-dir").arg(repository).args(["rev-list", "--count", commit]);
    assert_eq!(tool::output(&mut log).expect("git").trim(), "1", "its history stays there");

    let tree = tree(&fetched, &cache, &mut |_| {}).expect("unpacked");
    assert_eq!(tree.version, Version { major: 6, minor: 12, sublevel: 94 });
    let second = vendor.commit(95);
    let again = fetch(&spec, &cache, Some(&vendor.address()), &mut |_| {}).expect("fetched");
    assert_eq!(commit_of(&again).1, second, "the branch went on");
}

#[test]
fn another_branch_or_an_unreachable_tree_is_refused_in_words() {
    if skipped() {
        return;
    }
    let room = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(room.path());
    let spec = spec::find("ti-am62x-rt").expect("shipped");
    let other = Repository::new("main", 1);
    let said = fetch(&spec, &cache, Some(&other.address()), &mut |_| {}).expect_err("no branch");
    assert!(said.to_string().contains("ti-linux-6.12.y"), "{said}");
    let nowhere = format!("file://{}", room.path().join("nowhere").display());
    let said = fetch(&spec, &cache, Some(&nowhere), &mut |_| {}).expect_err("nowhere").to_string();
    let begin = format!("can't fetch ti-linux-6.12.y from {nowhere}: ");
    assert!(said.starts_with(&begin) && said.ends_with("with --from"), "{said}");
    assert!(said.contains("nowhere' does not appear to be a git repository"), "{said}");
}

#[test]
fn a_patch_that_is_missing_is_named_before_the_source_is_fetched() {
    let room = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(room.path());
    let mut spec = spec::find("raspberry-pi-5.4-rt").expect("shipped");
    let missing = room.path().join("patch-5.4.70-rt40.patch.gz").display().to_string();
    spec.patches = vec![Patch::File { from: missing.clone(), sha256: None, made_for: None }];
    let mut steps = Vec::new();
    let from = Some("https://example.invalid/linux");
    let said = fetch(&spec, &cache, from, &mut |p| steps.push(p)).expect_err("no patch");
    let said = said.to_string();
    assert!(said.contains(&format!("raspberry-pi-5.4-rt needs the patch {missing}")), "{said}");
    assert!(said.contains("`rtscope kernel show raspberry-pi-5.4-rt`"), "{said}");
    assert_eq!(steps, [], "nothing was fetched");
}

#[test]
fn a_place_that_holds_no_source_is_refused_in_our_words() {
    if skipped() {
        return;
    }
    let room = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(room.path().join("cache"));
    let spec = spec::find("raspberry-pi-4-rt").expect("shipped");
    let said = |place: &Path| {
        let from = place.display().to_string();
        let said = fetch(&spec, &cache, Some(&from), &mut |_| {}).expect_err("no source");
        assert!(said.is_usage(), "{said}");
        said.to_string()
    };
    assert!(said(&room.path().join("nowhere")).contains("nowhere isn't there: give"));
    assert!(said(room.path()).contains("has no Kbuild) nor a git repository: give"));
    let bare = Repository::new("rpi-6.12.y", 93);
    let plain = bare.folder.path().display().to_string();
    fetch(&spec, &cache, Some(&plain), &mut |_| {}).expect("a folder with a repository");
    let bare = bare.folder.path().join(".git").display().to_string();
    fetch(&spec, &cache, Some(&bare), &mut |_| {}).expect("a bare one");
}

#[test]
fn a_spec_that_names_a_commit_gets_that_one_or_none() {
    if skipped() {
        return;
    }
    let room = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(room.path());
    let repository = Repository::new("stable", 1);
    let first = repository.git(&["rev-parse", "HEAD"]);
    let mut spec = spec::find("raspberry-pi-4-rt").expect("shipped");
    spec.source = SpecSource::Git {
        from: repository.address(),
        reference: "stable".to_owned(),
        commit: Some(first.clone()),
    };
    let fetched = fetch(&spec, &cache, None, &mut |_| {}).expect("fetched");
    assert_eq!(commit_of(&fetched).1, first);
    repository.commit(2);
    let again = fetch(&spec, &cache, None, &mut |_| {}).expect("it is there already");
    assert_eq!(commit_of(&again).1, first);
    let fresh = Cache::at(room.path().join("fresh"));
    let said = fetch(&spec, &fresh, None, &mut |_| {}).expect_err("it moved on").to_string();
    assert!(said.contains(&first) && said.contains("stable is commit"), "{said}");
}

#[test]
fn a_word_of_a_spec_is_no_option_of_git() {
    if skipped() {
        return;
    }
    let room = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(room.path());
    let repository = Repository::new("stable", 1);
    let made = room.path().join("made");
    let command = format!("--upload-pack=touch {};echo", made.display());
    let mut spec = spec::find("raspberry-pi-4-rt").expect("shipped");
    for (from, reference) in
        [(format!("{command} ://"), "stable".to_owned()), (repository.address(), command.clone())]
    {
        spec.source = SpecSource::Git { from, reference, commit: None };
        let said = fetch(&spec, &cache, None, &mut |_| {}).expect_err("an option").to_string();
        assert!(said.contains("begin with '-'"), "{said}");
    }
    assert!(!made.exists());
}
