//! The search for what broke a latency: a list of changes between a good kernel and a bad one, and as few
//! kernels run as can be.
//!
//! A list of changes is searched by halves. Where one change alone does not make the kernel bad, the search
//! goes on with that one applied until the found ones together do: their number times the logarithm of
//! the list's length. This holds where more changes never make a bad kernel good again.
//!
//! The commits of a git tree are searched by git itself (`rev-list --bisect-all`), which knows merges.

mod axis;
pub mod search;

use std::{path::Path, process::Command};

use crate::{
    error::LabError,
    tool::{self, Need},
};

/// What a kernel with some of the changes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It meets the requirement.
    Good,
    /// It does not.
    Bad,
    /// It can't be told: it doesn't build, or doesn't boot. Why.
    Unknown(String),
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundChanges {
    /// Indices of the changes that together make the kernel bad; several in a row where the kernels
    /// between them could not be judged.
    pub changes: Vec<usize>,
    /// Whether kernels in between could not be judged, so that some of the changes may be innocent.
    pub vague: bool,
}

/// Finds the first bad one of a row of states: 0 is good and `last` is bad. Returns the last state that is
/// known to be good and the first that is known to be bad; they are neighbours unless those between
/// can't be judged.
pub fn first_bad<E>(
    last: usize,
    judge: &mut dyn FnMut(usize) -> Result<Answer, E>,
) -> Result<(usize, usize), E> {
    let (mut good, mut bad) = (0, last);
    let mut unknown: Vec<usize> = Vec::new();
    loop {
        let middle = good + (bad - good) / 2;
        // The nearest to the middle that may still be judged.
        let next = (good + 1..bad)
            .filter(|state| !unknown.contains(state))
            .min_by_key(|state| state.abs_diff(middle));
        let Some(next) = next else { return Ok((good, bad)) };
        match judge(next)? {
            Answer::Good => good = next,
            Answer::Bad => bad = next,
            Answer::Unknown(_) => unknown.push(next),
        }
    }
}

/// Finds a smallest set of `count` changes that makes the kernel bad. `judge` is given the indices that are
/// applied, in their order; none is good and all are bad, which the caller knows.
pub fn culprits<E>(
    count: usize,
    judge: &mut dyn FnMut(&[usize]) -> Result<Answer, E>,
) -> Result<FoundChanges, E> {
    let mut found: Vec<usize> = Vec::new();
    let mut vague = false;
    // With the found ones, the changes before this one are enough.
    let mut enough = count;
    while enough > 0 {
        if !found.is_empty() && judge(&found)? == Answer::Bad {
            break;
        }
        let mut state = |applied: usize| {
            let mut all: Vec<usize> = (0..applied).chain(found.iter().copied()).collect();
            all.sort_unstable();
            judge(&all)
        };
        let (good, bad) = first_bad(enough, &mut state)?;
        vague |= bad - good > 1;
        found.extend(good..bad);
        found.sort_unstable();
        enough = good;
    }
    Ok(FoundChanges { changes: found, vague })
}

/// Finds the first bad commit between a good and a bad one; commits that can't be judged are left out.
/// Returns its name, and the names of others that may be it because they could not be judged.
pub fn first_bad_commit<E: From<LabError>>(
    tree: &Path,
    good: &str,
    bad: &str,
    judge: &mut dyn FnMut(&str) -> Result<Answer, E>,
) -> Result<(String, Vec<String>), E> {
    let mut bad = commit(tree, bad)?;
    let mut goods = vec![commit(tree, good)?];
    let base = git(tree, &["merge-base", &goods[0], &bad])?;
    if base.trim() != goods[0] {
        let why = format!(
            "{good} is not an ancestor of the bad commit, so no series of commits connects them"
        );
        return Err(LabError::Refused(why).into());
    }
    let mut unknown: Vec<String> = Vec::new();
    loop {
        let mut words = vec!["rev-list".to_owned(), "--bisect-all".to_owned(), bad.clone()];
        words.extend(goods.iter().map(|good| format!("^{good}")));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // The best to judge comes first; the bad one itself is among them.
        let left = git(tree, &words)?;
        let names = || left.lines().filter_map(|line| line.split_whitespace().next());
        let next = names().find(|name| *name != bad && !unknown.iter().any(|known| known == name));
        let Some(next) = next else {
            let may_be = names().filter(|name| *name != bad).map(str::to_owned).collect();
            return Ok((bad, may_be));
        };
        match judge(next)? {
            Answer::Good => goods.push(next.to_owned()),
            Answer::Bad => bad = next.to_owned(),
            Answer::Unknown(_) => unknown.push(next.to_owned()),
        }
    }
}

/// The full name of a commit.
///
/// # Errors
///
/// There is no such commit, or no git.
pub fn commit(tree: &Path, name: &str) -> Result<String, LabError> {
    tool::require(&[Need::of("git", "git")])?;
    let asked = format!("{name}^{{commit}}");
    let found = git(tree, &["rev-parse", "--verify", "--quiet", &asked])
        .map_err(|_| LabError::Refused(format!("{} has no commit {name:?}", tree.display())))?;
    Ok(found.trim().to_owned())
}

/// A commit in a line: its short name and its subject.
pub fn in_words(tree: &Path, commit: &str) -> Result<String, LabError> {
    Ok(git(tree, &["show", "--no-patch", "--format=%h %s", commit])?.trim().to_owned())
}

/// Puts a commit's files into a folder beside the tree; the tree itself is left as it is.
pub fn check_out(tree: &Path, commit: &str, folder: &Path) -> Result<(), LabError> {
    if folder.join(".git").exists() {
        return git(folder, &["checkout", "--quiet", "--force", "--detach", commit]).map(drop);
    }
    let shown = folder.display().to_string();
    git(tree, &["worktree", "prune"])?;
    git(tree, &["worktree", "add", "--quiet", "--force", "--detach", &shown, commit]).map(drop)
}

fn git(tree: &Path, words: &[&str]) -> Result<String, LabError> {
    tool::output(Command::new("git").arg("-C").arg(tree).args(words))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A kernel that is bad when all of these are applied.
    fn bad_with(needed: &[usize], applied: &[usize]) -> Answer {
        match needed.iter().all(|change| applied.contains(change)) {
            true => Answer::Bad,
            false => Answer::Good,
        }
    }

    proptest! {
        #[test]
        fn whatever_is_needed_is_found_and_nothing_else(
            count in 1_usize..60,
            picks in proptest::collection::btree_set(0_usize..60, 1..4),
        ) {
            let needed: Vec<usize> = picks.into_iter().filter(|pick| *pick < count).collect();
            prop_assume!(!needed.is_empty());
            let mut runs = 0;
            let found = culprits::<()>(count, &mut |applied| {
                runs += 1;
                Ok(bad_with(&needed, applied))
            });
            prop_assert_eq!(found, Ok(FoundChanges { changes: needed.clone(), vague: false }));
            // Halving: a logarithm for each, and the test of what was found so far.
            let each = count.ilog2() as usize + 2;
            prop_assert!(runs <= needed.len() * each, "{} runs for {} of {}", runs, needed.len(), count);
        }

        #[test]
        fn the_first_bad_state_is_found(last in 1_usize..200, at in 1_usize..200) {
            let at = at.min(last);
            let judged = first_bad::<()>(last, &mut |state| {
                Ok(if state >= at { Answer::Bad } else { Answer::Good })
            });
            prop_assert_eq!(judged, Ok((at - 1, at)));
        }
    }

    #[test]
    fn what_cannot_be_judged_is_gone_around_and_told() {
        let unknown = |state: usize| Answer::Unknown(format!("{state} does not build"));
        // 5 breaks it; 4 and 6 don't build: 5 itself can still be told from 3.
        let mut judged = Vec::new();
        let found = first_bad::<()>(8, &mut |state| {
            judged.push(state);
            Ok(match state {
                4 | 6 => unknown(state),
                5.. => Answer::Bad,
                _ => Answer::Good,
            })
        });
        assert_eq!(found, Ok((3, 5)));
        let mut sorted = judged.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), judged.len(), "nothing is judged twice: {judged:?}");
        let found = culprits::<()>(8, &mut |applied| {
            Ok(match applied.len() {
                3..6 => unknown(applied.len()),
                6.. => Answer::Bad,
                _ => Answer::Good,
            })
        });
        assert!(found.as_ref().is_ok_and(|found| found.vague), "{found:?}");
    }

    #[test]
    fn a_failing_judge_ends_the_search() {
        assert_eq!(culprits(8, &mut |_| Err("no disk")), Err("no disk"));
    }

    /// A tree of commits in which the file holds their number.
    fn tree(commits: usize) -> Option<tempfile::TempDir> {
        tool::find("git")?;
        let folder = tempfile::tempdir().expect("a folder");
        git(folder.path(), &["init", "--quiet"]).expect("made");
        for number in 0..commits {
            std::fs::write(folder.path().join("file"), number.to_string()).expect("written");
            git(folder.path(), &["add", "file"]).expect("added");
            let subject = format!("number {number}");
            let own = ["-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "-m"];
            git(folder.path(), &[&own[..], &[&subject]].concat()).expect("committed");
        }
        Some(folder)
    }

    #[test]
    fn the_first_bad_commit_of_a_tree_is_found_and_the_tree_stays_as_it_is() {
        let Some(folder) = tree(20) else { return };
        let out = tempfile::tempdir().expect("a folder");
        let place = out.path().join("place");
        let mut judged = 0;
        let found = first_bad_commit::<LabError>(folder.path(), "HEAD~19", "HEAD", &mut |commit| {
            judged += 1;
            check_out(folder.path(), commit, &place)?;
            let number: usize = std::fs::read_to_string(place.join("file"))
                .expect("there")
                .parse()
                .expect("a number");
            Ok(match number {
                10 => Answer::Unknown("does not build".to_owned()),
                13.. => Answer::Bad,
                _ => Answer::Good,
            })
        });
        let (name, may_be) = found.expect("found");
        assert!(in_words(folder.path(), &name).expect("there").ends_with(" number 13"));
        assert_eq!(may_be, Vec::<String>::new());
        assert!(judged <= 7, "{judged} commits were judged");
        let now = std::fs::read_to_string(folder.path().join("file")).expect("there");
        assert_eq!(now, "19");
    }

    #[test]
    fn commits_without_a_row_between_them_are_refused() {
        let Some(folder) = tree(3) else { return };
        let mut never = |_: &str| panic!("nothing is judged");
        let said = first_bad_commit::<LabError>(folder.path(), "HEAD", "HEAD~1", &mut never)
            .expect_err("no ancestor")
            .to_string();
        assert!(said.contains("not an ancestor"), "{said}");
        let said = commit(folder.path(), "v9").expect_err("none").to_string();
        assert!(said.contains("no commit \"v9\""), "{said}");
    }
}
