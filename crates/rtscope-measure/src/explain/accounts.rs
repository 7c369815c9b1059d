//! Whether the events of a CPU show what ran there: the kernel charges its threads independently of its events.
//!
//! Only threads that can't run on another CPU say something about this one.

use std::collections::HashMap;

use rtscope_model::{
    cpu::CpuSet, interruptions::Accounts, thread::Thread as RunningThread, time::Nanos,
};
use rtscope_sys::tree::Tree;

use crate::ps;

/// Threads of a CPU, as they were at an instant.
#[derive(Debug)]
pub(super) struct Pinned {
    cpu: CpuSet,
    threads: Vec<RunningThread>,
}

impl Pinned {
    /// Those of a CPU that can run nowhere else.
    pub(super) fn to(cpu: u32, tree: &Tree) -> Pinned {
        let cpu = CpuSet::from_iter([cpu]);
        let threads = ps::threads(tree);
        Pinned { threads: threads.into_iter().filter(|it| is_pinned(it, &cpu)).collect(), cpu }
    }

    /// What the kernel charged them since then, and how far the events are from that. None where they hardly ran.
    pub(super) fn compare(&self, tree: &Tree, by_events: &HashMap<u32, u64>) -> Option<Accounts> {
        let mut later = ps::threads(tree);
        later.retain(|thread| is_pinned(thread, &self.cpu));
        ps::compare(&self.threads, &mut later, 0);
        let (mut charged_ns, mut apart_ns) = (0, 0);
        for thread in &later {
            let Some(look) = thread.look else { continue };
            let seen_ns = by_events.get(&thread.tid).copied().unwrap_or_default();
            charged_ns += look.cpu_ns;
            apart_ns += look.cpu_ns.abs_diff(seen_ns);
        }
        (charged_ns >= LEAST_NS)
            .then_some(Accounts { charged: Nanos(charged_ns), apart: Nanos(apart_ns) })
    }
}

/// With less CPU time nothing can be compared: the two begin and end some time apart.
const LEAST_NS: u64 = 5_000_000;

/// Whether it can run on this CPU only, and the kernel says in nanoseconds for how long it did.
fn is_pinned(thread: &RunningThread, cpu: &CpuSet) -> bool {
    thread.placement.cpus == *cpu && thread.waited_ns.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    /// What follows the state.
    const STAT: &str =
        "1 1 1 0 -1 64 0 0 0 0 5 6 0 0 20 0 1 0 42 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0\n";

    #[test]
    fn threads_of_one_cpu_say_whether_its_events_are_whole() {
        let fake = FakeTree::new();
        let thread = |tid: u32, cpus: &str, cpu_ms: u64| {
            let folder = format!("proc/{tid}/task/{tid}");
            fake.file(&format!("{folder}/stat"), &format!("{tid} (a) S {STAT}"));
            fake.file(&format!("{folder}/status"), &format!("Cpus_allowed_list:\t{cpus}\n"));
            fake.file(&format!("{folder}/schedstat"), &format!("{} 0 1\n", cpu_ms * 1_000_000));
        };
        thread(7, "1", 100);
        thread(8, "0-1", 100);
        let before = Pinned::to(1, &fake.tree);
        thread(7, "1", 160);
        thread(8, "0-1", 900);
        let by_events = |ms: u64| HashMap::from([(7, ms * 1_000_000), (8, 5)]);
        let found = before.compare(&fake.tree, &by_events(47)).expect("it ran");
        assert_eq!((found.charged.0, found.apart.0), (60_000_000, 13_000_000));
        assert!(!found.agree());
        assert!(before.compare(&fake.tree, &by_events(57)).is_some_and(|it| it.agree()));
        thread(7, "1", 104);
        assert_eq!(before.compare(&fake.tree, &by_events(4)), None);
    }
}
