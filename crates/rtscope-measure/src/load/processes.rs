//! Finding processes that a load's command has started, wherever they have gone since.

use std::fs;

use rtscope_sys::tree::Tree;

use super::worker::LIMITS;
use crate::processes::Processes;

fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
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
    let stat = |pid| fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    all().filter(|&pid| waits_in(group, &String::from_utf8_lossy(&stat(pid)))).count()
}

/// Every process below a process, those before the ones that they started.
pub(super) fn descendants(ancestor: u32) -> Vec<u32> {
    let all = Processes::read(&Tree::default());
    let mut below: Vec<u32> =
        all.family(ancestor).into_iter().filter(|pid| *pid != ancestor).collect();
    below.sort_by_key(|pid| all.ancestors(*pid).count());
    below
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
