//! The search for what broke a latency: a list of changes between a good kernel and a bad one, and as few
//! kernels run as can be.
//!
//! A list of changes is searched by halves, or by more parts where several kernels are judged in one go. Where one
//! change alone does not make the kernel bad, the search goes on with that one applied until the found ones together
//! do: their number times the logarithm of the list's length. This holds where more changes never make a bad kernel
//! good again.
//!
//! The commits of a git tree are searched by git itself (`rev-list --bisect-all`), which knows merges; several in one
//! go are spread over the topological order.

mod axis;
pub mod guest_bench;
pub mod search;

use std::{collections::BTreeSet, path::Path, process::Command};

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

/// Judges several states in one go; the answers are in the order of the states.
pub type JudgeAll<'a, T, E> = &'a mut dyn FnMut(&[T]) -> Result<Vec<Answer>, E>;

/// States between a good one and a bad one to judge in one go: at most so many, as evenly spread as those allow that
/// can be judged, in ascending order. None when nothing is left between the two.
fn spread(good: usize, bad: usize, ways: usize, unknown: &BTreeSet<usize>) -> Vec<usize> {
    let mut left: BTreeSet<usize> =
        (good + 1..bad).filter(|state| !unknown.contains(state)).collect();
    let mut chosen = BTreeSet::new();
    for part in 1..=ways.max(1) {
        let target = good + (bad - good) * part / (ways.max(1) + 1);
        let nearest = left.iter().copied().min_by_key(|state| state.abs_diff(target));
        let Some(nearest) = nearest else { break };
        left.remove(&nearest);
        chosen.insert(nearest);
    }
    chosen.into_iter().collect()
}

/// Finds the first bad one of a row of states: 0 is good and `last` is bad. `judge` is asked about up to `ways` states
/// in one go. Returns the last state that is known to be good and the first that is known to be bad; they are
/// neighbours unless those between can't be judged.
///
/// # Errors
///
/// Those of `judge`.
pub fn first_bad<E>(
    last: usize,
    ways: usize,
    judge: JudgeAll<'_, usize, E>,
) -> Result<(usize, usize), E> {
    let (mut good, mut bad) = (0, last);
    let mut unknown = BTreeSet::new();
    loop {
        let asked = spread(good, bad, ways, &unknown);
        if asked.is_empty() {
            return Ok((good, bad));
        }
        for (state, answer) in asked.iter().zip(judge(&asked)?) {
            match answer {
                Answer::Good => good = *state,
                Answer::Bad => {
                    bad = *state;
                    break;
                }
                Answer::Unknown(_) => {
                    unknown.insert(*state);
                }
            }
        }
    }
}

/// Finds a smallest set of `count` changes that makes the kernel bad. `judge` is given sets of indices that are
/// applied, in their order, up to `ways` in one go; none is good and all are bad, which the caller knows.
///
/// # Errors
///
/// Those of `judge`.
pub fn culprits<E>(
    count: usize,
    ways: usize,
    judge: JudgeAll<'_, Vec<usize>, E>,
) -> Result<FoundChanges, E> {
    let mut found: Vec<usize> = Vec::new();
    let mut vague = false;
    // With the found ones, the changes before this one are enough.
    let mut enough = count;
    while enough > 0 {
        if !found.is_empty() && judge(std::slice::from_ref(&found))? == [Answer::Bad] {
            break;
        }
        let mut states = |asked: &[usize]| {
            let with_found = |applied: &usize| {
                let mut all: Vec<usize> = (0..*applied).chain(found.iter().copied()).collect();
                all.sort_unstable();
                all
            };
            judge(&asked.iter().map(with_found).collect::<Vec<_>>())
        };
        let (good, bad) = first_bad(enough, ways, &mut states)?;
        vague |= bad - good > 1;
        found.extend(good..bad);
        found.sort_unstable();
        enough = good;
    }
    Ok(FoundChanges { changes: found, vague })
}

/// Finds the first bad commit between a good and a bad one; commits that can't be judged are left out. `judge` is
/// asked about up to `ways` commits in one go. Returns the commit's name, and the names of others that may be it
/// because they could not be judged.
///
/// # Errors
///
/// The one is no ancestor of the other, git fails, or those of `judge`.
pub fn first_bad_commit<E: From<LabError>>(
    tree: &Path,
    (good, bad): (&str, &str),
    ways: usize,
    judge: JudgeAll<'_, String, E>,
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
    let mut unknown: BTreeSet<String> = BTreeSet::new();
    loop {
        let asked = commits_to_judge(tree, &goods, &bad, ways, &unknown)?;
        if asked.is_empty() {
            let left = rev_list(tree, "--topo-order", &goods, &bad)?;
            return Ok((bad.clone(), left.into_iter().filter(|name| *name != bad).collect()));
        }
        let answers = judge(&asked)?;
        let mut bads = Vec::new();
        for (name, answer) in asked.into_iter().zip(answers) {
            match answer {
                Answer::Good => goods.push(name),
                Answer::Bad => bads.push(name),
                Answer::Unknown(_) => {
                    unknown.insert(name);
                }
            }
        }
        // The oldest: none of the others is its ancestor.
        bad = bads.into_iter().next().unwrap_or(bad);
    }
}

/// The commits to judge in one go, from the oldest to the newest. A single one is git's own choice, which divides a
/// history with merges best; several are spread over an order in which ancestors come first.
fn commits_to_judge(
    tree: &Path,
    goods: &[String],
    bad: &str,
    ways: usize,
    unknown: &BTreeSet<String>,
) -> Result<Vec<String>, LabError> {
    if ways <= 1 {
        let best_first = rev_list(tree, "--bisect-all", goods, bad)?;
        let next = best_first.into_iter().find(|name| name != bad && !unknown.contains(name));
        return Ok(next.into_iter().collect());
    }
    let mut oldest_first = rev_list(tree, "--topo-order", goods, bad)?;
    oldest_first.reverse();
    let skipped = oldest_first.iter().enumerate().filter(|(_, name)| unknown.contains(*name));
    let skipped = skipped.map(|(at, _)| at + 1).collect();
    let chosen = spread(0, oldest_first.len(), ways, &skipped);
    Ok(chosen.into_iter().map(|at| oldest_first[at - 1].clone()).collect())
}

/// The commits that the bad one has and none of the good ones, the bad one among them.
fn rev_list(
    tree: &Path,
    order: &str,
    goods: &[String],
    bad: &str,
) -> Result<Vec<String>, LabError> {
    let mut words = vec!["rev-list".to_owned(), order.to_owned(), bad.to_owned()];
    words.extend(goods.iter().map(|good| format!("^{good}")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let listed = git(tree, &words)?;
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
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
            for ways in 1..=5_usize {
                let mut rounds = 0;
                let found = culprits::<()>(count, ways, &mut |asked| {
                    rounds += 1;
                    assert!((1..=ways).contains(&asked.len()));
                    Ok(asked.iter().map(|applied| bad_with(&needed, applied)).collect())
                });
                prop_assert_eq!(found, Ok(FoundChanges { changes: needed.clone(), vague: false }));
                // A logarithm for each, to the base of the parts, and the test of what was found so far.
                let each = count.ilog(ways + 1) as usize + 2;
                prop_assert!(
                    rounds <= needed.len() * each,
                    "{} rounds of {} for {} of {}", rounds, ways, needed.len(), count
                );
            }
        }

        #[test]
        fn the_first_bad_state_is_found(
            last in 1_usize..200,
            at in 1_usize..200,
            ways in 1_usize..9,
        ) {
            let at = at.min(last);
            let judged = first_bad::<()>(last, ways, &mut |asked| {
                let answer = |state: &usize| if *state >= at { Answer::Bad } else { Answer::Good };
                Ok(asked.iter().map(answer).collect())
            });
            prop_assert_eq!(judged, Ok((at - 1, at)));
        }
    }

    #[test]
    fn what_cannot_be_judged_is_gone_around_and_told() {
        let unknown = |state: usize| Answer::Unknown(format!("{state} does not build"));
        // 5 breaks it; 4 and 6 don't build: 5 itself can still be told from 3.
        for ways in 1..=4 {
            let mut judged = Vec::new();
            let found = first_bad::<()>(8, ways, &mut |asked| {
                judged.extend(asked.iter().copied());
                let answer = |state: &usize| match state {
                    4 | 6 => unknown(*state),
                    5.. => Answer::Bad,
                    _ => Answer::Good,
                };
                Ok(asked.iter().map(answer).collect())
            });
            assert_eq!(found, Ok((3, 5)));
            let mut sorted = judged.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), judged.len(), "nothing is judged twice: {judged:?}");
            let found = culprits::<()>(8, ways, &mut |asked| {
                let answer = |applied: &Vec<usize>| match applied.len() {
                    3..6 => unknown(applied.len()),
                    6.. => Answer::Bad,
                    _ => Answer::Good,
                };
                Ok(asked.iter().map(answer).collect())
            });
            assert!(found.as_ref().is_ok_and(|found| found.vague), "{found:?}");
        }
    }

    #[test]
    fn what_is_judged_in_one_go_divides_the_rest_into_equal_parts() {
        let none = BTreeSet::new();
        assert_eq!(spread(0, 8, 1, &none), [4]);
        assert_eq!(spread(0, 8, 3, &none), [2, 4, 6]);
        assert_eq!(spread(4, 7, 5, &none), [5, 6]);
        assert_eq!(spread(4, 5, 5, &none), [0; 0]);
        assert_eq!(spread(0, 8, 1, &BTreeSet::from([4, 3])), [5]);
    }

    #[test]
    fn a_failing_judge_ends_the_search() {
        assert_eq!(culprits(8, 1, &mut |_| Err("no disk")), Err("no disk"));
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
    fn the_first_bad_commit_of_a_tree_is_found() {
        let Some(folder) = tree(20) else { return };
        for (ways, rounds) in [(1, 7), (3, 4), (19, 2)] {
            let (mut judged, mut asked_times) = (0, 0);
            let mut answer = |commit: &String| -> Result<Answer, LabError> {
                judged += 1;
                let text = git(folder.path(), &["show", &format!("{commit}:file")])?;
                Ok(match text.parse().expect("a number") {
                    10 => Answer::Unknown("does not build".to_owned()),
                    13.. => Answer::Bad,
                    _ => Answer::Good,
                })
            };
            let ends = ("HEAD~19", "HEAD");
            let found = first_bad_commit::<LabError>(folder.path(), ends, ways, &mut |asked| {
                asked_times += 1;
                asked.iter().map(&mut answer).collect()
            });
            let (name, may_be) = found.expect("found");
            assert!(in_words(folder.path(), &name).expect("there").ends_with(" number 13"));
            assert_eq!(may_be, Vec::<String>::new());
            assert!(asked_times <= rounds, "{asked_times} rounds of {ways}, {judged} commits");
        }
    }

    #[test]
    fn the_first_bad_commit_may_be_on_a_branch_that_was_merged() {
        let Some(folder) = tree(6) else { return };
        let run = |words: &[&str]| {
            let own = ["-c", "user.name=x", "-c", "user.email=x"];
            git(folder.path(), &[&own[..], words].concat()).expect(words[0])
        };
        run(&["checkout", "--quiet", "-b", "side", "HEAD~3"]);
        for number in 0..4 {
            let name = if number == 1 { "culprit" } else { "other" };
            std::fs::write(folder.path().join(name), number.to_string()).expect("written");
            run(&["add", name]);
            run(&["commit", "--quiet", "-m", &format!("side {number}")]);
        }
        run(&["checkout", "--quiet", "-"]);
        run(&["merge", "--quiet", "--no-ff", "-m", "merged", "side"]);
        for ways in 1..=5 {
            let mut judge = |asked: &[String]| {
                let has_it = |commit: &String| {
                    let files = git(folder.path(), &["ls-tree", "--name-only", commit])?;
                    let is_bad = files.lines().any(|name| name == "culprit");
                    Ok(if is_bad { Answer::Bad } else { Answer::Good })
                };
                asked.iter().map(has_it).collect()
            };
            let ends = ("HEAD~5", "HEAD");
            let (name, may_be) =
                first_bad_commit::<LabError>(folder.path(), ends, ways, &mut judge).expect("found");
            let text = in_words(folder.path(), &name).expect("there");
            assert!(text.ends_with(" side 1") && may_be.is_empty(), "{ways}: {text} {may_be:?}");
        }
    }

    #[test]
    fn commits_without_a_row_between_them_are_refused() {
        let Some(folder) = tree(3) else { return };
        let mut never = |_: &[String]| panic!("nothing is judged");
        let said = first_bad_commit::<LabError>(folder.path(), ("HEAD", "HEAD~1"), 1, &mut never)
            .expect_err("no ancestor")
            .to_string();
        assert!(said.contains("not an ancestor"), "{said}");
        let said = commit(folder.path(), "v9").expect_err("none").to_string();
        assert!(said.contains("no commit \"v9\""), "{said}");
    }
}
