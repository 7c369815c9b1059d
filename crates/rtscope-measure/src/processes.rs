//! The processes of the system, and who started whom.

use std::collections::{BTreeMap, BTreeSet};

use rtscope_sys::tree::Tree;

use crate::environment::{Stat, numbered};

/// All processes by their numbers.
pub(crate) struct Processes(pub(crate) BTreeMap<u32, Stat>);

impl Processes {
    /// Those that `/proc` shows, except those that end meanwhile.
    pub(crate) fn read(tree: &Tree) -> Processes {
        let pids = numbered(tree.list("proc"), "").into_iter();
        let read = pids.filter_map(|(pid, _)| {
            Some((pid, Stat::parse(&tree.read_bytes(format!("proc/{pid}/stat")).ok()?)?))
        });
        Processes(read.collect())
    }

    /// A process and everything below it; nothing if it isn't there.
    pub(crate) fn family(&self, head: u32) -> BTreeSet<u32> {
        let belongs = |pid: u32| self.ancestors(pid).any(|ancestor| ancestor == head);
        self.0.keys().copied().filter(|&pid| belongs(pid)).collect()
    }

    /// A process, its parent, and so on.
    pub(crate) fn ancestors(&self, pid: u32) -> impl Iterator<Item = u32> {
        // Two readings may fall before and after a number is used again, which could make a circle.
        let parent = |&pid: &u32| self.0.get(&pid).map(|stat| stat.parent);
        std::iter::successors(Some(pid), parent).take(self.0.len() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        let fake = FakeTree::new();
        for (pid, parent) in [(1, 0), (40, 1), (41, 40), (42, 41), (50, 1), (60, 61), (61, 60)] {
            // A name that the kernel cut inside a character.
            let mut stat = format!("{pid} (x) \u{e4}").into_bytes();
            stat.pop();
            let rest = format!(
                ") S {parent} 1 1 0 -1 64 7 0 2 0 5 6 0 0 20 -5 1 0 42 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 3 0 0 0 0 0\n"
            );
            stat.extend(rest.into_bytes());
            fake.bytes(&format!("proc/{pid}/stat"), &stat);
        }
        let all = Processes::read(&fake.tree);
        assert_eq!(all.family(40), [40, 41, 42].into());
        assert!(all.family(7).is_empty());
    }
}
