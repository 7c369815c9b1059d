//! Finding processes that a load's command has started, wherever they have gone since.

use std::{collections::BTreeMap, fs};

use super::worker::LIMITS;

fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent of a process, from the text of its `stat` file: the second field after the name,
/// which is in brackets and may hold any character.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a process of this group waits in the kernel and can't be ended, as for a disk; from the
/// text of its `stat` file.
fn waits_in(group: u32, stat: &str) -> bool {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().take(3).collect();
    matches!(fields[..], ["D", _, of] if of.parse() == Ok(group))
}

/// How many processes of a group wait in the kernel.
pub(super) fn waiting(group: u32) -> usize {
    let stat = |pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    all().filter(|&pid| waits_in(group, &stat(pid))).count()
}

/// Every process below a process, children before their own children.
pub(super) fn descendants(ancestor: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in all() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = children.remove(&ancestor).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next]).unwrap_or_default());
        next += 1;
    }
    found
}

/// Every process that has inherited a load's mark in its environment.
pub(super) fn marked(mark: &str) -> Vec<u32> {
    let entry = format!("{LIMITS}={mark}").into_bytes();
    let has_mark = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == entry)
    };
    all().filter(has_mark).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_parent() {
        assert_eq!(parent_of("12 (a) b (c)) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (cut"), None);
    }

    #[test]
    fn only_a_process_of_the_group_that_waits_in_the_kernel_counts() {
        assert!(waits_in(12, "40 (load: io) D 12 12 12 0 -1"));
        assert!(!waits_in(12, "40 (load: io) S 12 12 12 0 -1"));
        assert!(!waits_in(12, "40 (load: io) D 12 7 12 0 -1"));
        assert!(!waits_in(12, "40 (cut) D"));
    }

    #[test]
    fn a_child_is_found_by_ancestor_and_by_mark() {
        let mut child = Command::new("sleep")
            .arg("60")
            .env(LIMITS, "a mark of this test")
            .stdout(Stdio::null())
            .spawn()
            .expect("sleep");
        let (below, marked) = (descendants(std::process::id()), marked("a mark of this test"));
        child.kill().expect("alive");
        child.wait().expect("a child");
        assert!(below.contains(&child.id()));
        assert_eq!(marked, [child.id()]);
    }
}
