//! The threads of the machine: how each is scheduled and what it did between two looks.
//!
//! Read from `/proc/PID/task/TID`: `stat`, `status`, `schedstat`, and `sched` where the kernel has
//! it. A thread that starts and ends between the looks is not seen; the reading itself takes some
//! milliseconds of one CPU and is part of what it shows.

mod change;
mod holder;
mod starve;

use std::collections::BTreeMap;

use rtscope_model::{
    schedule::{Placement, Policy},
    thread::{Look, Thread, role},
};
use rtscope_sys::{sched::policy_of, system::ticks_per_second, thread::SchedStat, tree::Tree};

pub use self::{
    change::{ChangeError, Changed, WantedChange, change},
    holder::holder,
    starve::starvation,
};
use crate::environment::{Stat, irqs, numbered, value};

/// All threads, those that run first before the others. `tree` is read once.
#[must_use]
pub fn threads(tree: &Tree) -> Vec<Thread> {
    let devices: BTreeMap<u32, String> =
        irqs(tree).into_iter().map(|irq| (irq.irq, irq.name)).collect();
    let mut found = Vec::new();
    for (pid, _) in numbered(tree.list("proc"), "") {
        for (tid, _) in numbered(tree.list(format!("proc/{pid}/task")), "") {
            found.extend(one(tree, pid, tid, &devices));
        }
    }
    found.sort_by_key(|thread: &Thread| (thread.rank(), thread.pid, thread.tid));
    found
}

/// The threads of a process; none when it is gone.
#[must_use]
pub fn threads_of(tree: &Tree, pid: u32) -> Vec<Thread> {
    let tasks = numbered(tree.list(format!("proc/{pid}/task")), "");
    tasks.into_iter().filter_map(|(tid, _)| one(tree, pid, tid, &BTreeMap::new())).collect()
}

/// Notes in each thread of the later look what it did since the earlier one.
pub fn compare(earlier: &[Thread], later: &mut [Thread], span_ns: u64) {
    let before: BTreeMap<(u32, u32), &Thread> =
        earlier.iter().map(|thread| ((thread.pid, thread.tid), thread)).collect();
    for thread in later {
        let Some(old) = before.get(&(thread.pid, thread.tid)) else { continue };
        let grown = |new: Option<u64>, old: Option<u64>| {
            new.unwrap_or_default().saturating_sub(old.unwrap_or_default())
        };
        thread.look = Some(Look {
            span_ns,
            cpu_ns: grown(thread.cpu_ns, old.cpu_ns),
            waited_ns: grown(thread.waited_ns, old.waited_ns),
            wakeups: grown(thread.voluntary_switches, old.voluntary_switches),
            preemptions: grown(thread.involuntary_switches, old.involuntary_switches),
        });
    }
}

fn one(tree: &Tree, pid: u32, tid: u32, devices: &BTreeMap<u32, String>) -> Option<Thread> {
    let folder = format!("proc/{pid}/task/{tid}");
    let stat = Stat::parse(&tree.read_bytes(format!("{folder}/stat")).ok()?)?;
    let status = tree.read(format!("{folder}/status")).unwrap_or_default();
    let schedstat = tree.read(format!("{folder}/schedstat")).ok();
    let schedstat = schedstat.and_then(|text| SchedStat::parse(&text));
    let sched = tree.read(format!("{folder}/sched")).unwrap_or_default();
    let count = |text: &str, key: &str| value(text, key)?.parse::<u64>().ok();
    let policy = policy_of(stat.policy);
    let kernel = stat.is_kernel();
    Some(Thread {
        pid,
        tid,
        parent: stat.parent,
        state: stat.state.clone(),
        placement: Placement {
            policy,
            priority: stat.priority,
            nice: if matches!(policy, Policy::Other | Policy::Batch) { stat.nice } else { 0 },
            budget: None,
            cpus: value(&status, "Cpus_allowed_list")
                .and_then(|list| list.parse().ok())
                .unwrap_or_default(),
        },
        cpu: stat.cpu,
        kernel,
        role: kernel.then(|| role(&stat.name, |irq| devices.get(&irq).cloned())).flatten(),
        cpu_ns: schedstat
            .map(|times| times.ran_ns)
            .or_else(|| Some(stat.cpu_ticks * (1_000_000_000 / ticks_per_second()))),
        waited_ns: schedstat.map(|times| times.queued_ns),
        voluntary_switches: count(&status, "voluntary_ctxt_switches"),
        involuntary_switches: count(&status, "nonvoluntary_ctxt_switches"),
        migrations: count(&sched, "se.nr_migrations"),
        look: None,
        name: stat.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    fn machine(cpu_ns: u64, voluntary: u64) -> FakeTree {
        let fake = FakeTree::new();
        let folder = "proc/40/task/41";
        let stat = "41 (a) b) R 3 1 1 0 -1 64 0 0 0 0 5 6 0 0 20 -5 1 0 42 0 0 \
                    0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 3 0 0 0 0 0\n";
        fake.file(&format!("{folder}/stat"), stat);
        let status = format!(
            "Cpus_allowed_list:\t0,2-3\nvoluntary_ctxt_switches:\t{voluntary}\n\
             nonvoluntary_ctxt_switches:\t4\n"
        );
        fake.file(&format!("{folder}/status"), &status);
        fake.file(&format!("{folder}/schedstat"), &format!("{cpu_ns} 500 9\n"));
        fake.file(&format!("{folder}/sched"), "se.nr_migrations     :     12\n");
        fake
    }

    #[test]
    fn a_thread_is_read_and_what_it_did_is_the_difference() {
        let earlier = threads(&machine(1_000, 10).tree);
        let mut later = threads(&machine(251_000, 17).tree);
        compare(&earlier, &mut later, 1_000_000);
        let [thread] = &later[..] else { panic!("one thread: {later:?}") };
        assert_eq!((thread.pid, thread.tid, thread.parent, thread.cpu), (40, 41, 3, 1));
        assert_eq!(thread.name, "a) b");
        assert_eq!(thread.placement.to_string(), "batch nice -5 on CPUs 0,2-3");
        assert_eq!((thread.migrations, thread.involuntary_switches), (Some(12), Some(4)));
        let look = thread.look.expect("seen twice");
        assert_eq!((look.cpu_ns, look.wakeups, look.preemptions), (250_000, 7, 0));
        assert!((look.cpu_percent() - 25.0).abs() < 1e-9);
    }

    #[test]
    fn a_thread_that_came_in_between_has_no_share() {
        let mut later = threads(&machine(5, 1).tree);
        compare(&[], &mut later, 1_000);
        assert_eq!(later[0].look, None);
    }

    #[test]
    fn this_machines_own_thread_is_among_them() {
        let own = u32::try_from(rtscope_sys::thread::id()).expect("a number");
        let found = threads(&Tree::default());
        let thread = found.iter().find(|thread| thread.tid == own).expect("this thread");
        let place = rtscope_sys::sched::placement(rtscope_sys::sched::SELF).expect("own place");
        assert_eq!(thread.placement, place);
        assert!(thread.cpu_ns.is_some() && thread.voluntary_switches.is_some());
    }
}
