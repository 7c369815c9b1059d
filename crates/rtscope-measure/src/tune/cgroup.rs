//! Folders of cgroups and their cpuset controller: made, read and removed as the values of a change.

use std::{fs, thread::sleep, time::Duration};

use rtscope_sys::{
    Error,
    shield::{OTHERS, SHIELD, VERSION_1, VERSION_2},
    tree::Tree,
};

pub(super) const ABSENT: &str = "absent";
pub(super) const MADE: &str = "made";
pub(super) const ON: &str = "on";
pub(super) const OFF: &str = "off";

/// How often a folder is emptied: a thread may be forked while others are moved out of it.
const TRIES: u32 = 50;

pub(super) fn state(tree: &Tree, path: &str) -> &'static str {
    if tree.path(path).is_dir() { MADE } else { ABSENT }
}

/// Makes a folder, or moves its threads to the folder above and removes it.
pub(super) fn make_or_remove(tree: &Tree, path: &str, value: &str) -> Result<(), Error> {
    let full = tree.path(path);
    if value == MADE {
        let made = fs::create_dir(&full);
        return made.map_err(|source| Error::File { operation: "make", path: full, source });
    }
    // Up to Linux 6.1 the removal of a valid partition ends it some time after `rmdir` has returned, and then gives
    // all CPUs to every thread, also to those whose mask was restored meanwhile. Written here, the same happens
    // before the masks' turn. A folder that is no partition, or not of cpuset, refuses: nothing to end.
    let partition = format!("{path}/cpuset.cpus.partition");
    if tree.path(&partition).exists() {
        let _ = tree.write(&partition, "member");
    }
    let mut tries = 0;
    loop {
        empty(tree, path);
        match fs::remove_dir(&full) {
            Ok(()) => return Ok(()),
            Err(_) if tries < TRIES && full.is_dir() => {
                tries += 1;
                sleep(Duration::from_millis(u64::from(tries)));
            }
            Err(source) => return Err(Error::File { operation: "remove", path: full, source }),
        }
    }
}

/// The file that lists the threads of a folder: version 1 has `tasks`, version 2 `cgroup.threads`.
fn threads_file(tree: &Tree, folder: &str) -> String {
    let old = format!("{folder}/tasks");
    if tree.path(&old).exists() { old } else { format!("{folder}/cgroup.threads") }
}

/// Moves all threads of a folder to the one above. One that is ending can't be moved, and needs not.
fn empty(tree: &Tree, folder: &str) {
    let Some((above, _)) = folder.rsplit_once('/') else { return };
    let to = threads_file(tree, above);
    let listed = tree.read(threads_file(tree, folder)).unwrap_or_default();
    for tid in listed.lines() {
        let _ = tree.write(&to, tid);
    }
}

/// Whether the children of a cgroup have the cpuset controller. `path` is its `cgroup.subtree_control`.
pub(super) fn controller(tree: &Tree, path: &str) -> Result<String, Error> {
    let has = tree.read(path)?.split_whitespace().any(|name| name == "cpuset");
    Ok(if has { ON } else { OFF }.to_owned())
}

pub(super) fn switch_controller(tree: &Tree, path: &str, value: &str) -> Result<(), Error> {
    tree.write(path, if value == ON { "+cpuset" } else { "-cpuset" })
}

/// The hierarchy that has the cpuset controller, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hierarchy {
    Version1(&'static str),
    Version2(&'static str),
}

impl Hierarchy {
    pub(super) fn find(tree: &Tree) -> Option<Hierarchy> {
        let has_tasks = |at: &&&str| {
            tree.path(format!("{at}/cpuset.cpus")).exists()
                && tree.path(format!("{at}/tasks")).exists()
        };
        if let Some(at) = VERSION_1.iter().find(has_tasks) {
            return Some(Hierarchy::Version1(at));
        }
        let has_controller = |at: &&&str| {
            let controllers = tree.read(format!("{at}/cgroup.controllers")).unwrap_or_default();
            controllers.split_whitespace().any(|name| name == "cpuset")
        };
        VERSION_2.iter().find(has_controller).map(|at| Hierarchy::Version2(at))
    }

    pub(super) fn folder(self) -> &'static str {
        match self {
            Hierarchy::Version1(at) | Hierarchy::Version2(at) => at,
        }
    }
}

/// Whether a path is one that a shield makes or changes in some hierarchy.
pub(super) fn is_ours(path: &str) -> bool {
    const FILES: [&str; 5] = [
        "cpuset.cpus",
        "cpuset.mems",
        "cpuset.sched_load_balance",
        "cpuset.cpus.partition",
        "cgroup.type",
    ];
    VERSION_1.iter().chain(&VERSION_2).any(|at| {
        let Some(below) = path.strip_prefix(at).and_then(|rest| rest.strip_prefix('/')) else {
            return false;
        };
        let (folder, file) = below.split_once('/').unwrap_or((below, ""));
        match folder {
            SHIELD | OTHERS => file.is_empty() || FILES.contains(&file),
            "cpuset.sched_load_balance" | "cgroup.subtree_control" => file.is_empty(),
            _ => false,
        }
    })
}

/// Whether a path is where a hierarchy of version 1 is mounted.
pub(super) fn is_version_1(path: &str) -> bool {
    VERSION_1.contains(&path)
}
