//! The cgroups of a shield: CPUs that are kept for the threads that enter it.
//!
//! Version 1 of cgroups: every other thread is in [`OTHERS`], which has the other CPUs. Version 2: [`SHIELD`] is a
//! partition that owns its CPUs. It is threaded, so that single threads of a process can enter it; the process must be
//! in the root cgroup for that.

use std::fs;

use rtscope_model::cpu::CpuSet;

use crate::tree::Tree;

/// Folder of the threads that may use the shielded CPUs.
pub const SHIELD: &str = "rtscope-shield";

/// Folder of all other threads, with version 1 of cgroups.
pub const OTHERS: &str = "rtscope-others";

/// Where the hierarchy with the cpuset controller of version 1 is mounted, below the root.
pub const VERSION_1: [&str; 2] = ["sys/fs/cgroup/cpuset", "dev/cpuset"];

/// Where the hierarchy of version 2 is mounted, below the root.
pub const VERSION_2: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// Moves the calling thread into the shield that has all of these CPUs. False where there is none, or it can't enter.
#[must_use]
pub fn enter(cpus: &CpuSet) -> bool {
    let tree = Tree::default();
    let has = |hierarchy: &&&str| {
        let own = shielded(&tree, hierarchy);
        !cpus.is_empty() && own.is_some_and(|own| cpus.without(&own).is_empty())
    };
    if let Some(hierarchy) = VERSION_1.iter().find(has) {
        return write(&tree, &format!("{hierarchy}/{SHIELD}/tasks"));
    }
    let Some(hierarchy) = VERSION_2.iter().find(has) else { return false };
    // From a cgroup of its own a thread can't enter: the whole process goes to the root first.
    let threads = format!("{hierarchy}/{SHIELD}/cgroup.threads");
    write(&tree, &threads)
        || (write(&tree, &format!("{hierarchy}/cgroup.procs")) && write(&tree, &threads))
}

/// The CPUs of the shield in a hierarchy; none where it has no shield.
#[must_use]
pub fn shielded(tree: &Tree, hierarchy: &str) -> Option<CpuSet> {
    tree.read(format!("{hierarchy}/{SHIELD}/cpuset.cpus")).ok()?.parse().ok()
}

/// `0` stands for the calling thread or its process.
fn write(tree: &Tree, path: &str) -> bool {
    fs::write(tree.path(path), "0").is_ok()
}
