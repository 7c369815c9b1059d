//! A shield: CPUs on which only threads run that enter it. Everything else that can be moved goes to the other CPUs.
//!
//! Version 2 of cgroups has partitions: the kernel itself moves threads off their CPUs. In version 1, all threads but
//! the bound ones go into a cpuset with the other CPUs. Interrupts and unbound kernel work are moved in either case.
//! What can't be moved is named: threads of the kernel that belong to a CPU, interrupts that can't be steered, and
//! threads in cpusets of others.

use std::collections::{BTreeMap, BTreeSet};

use rtscope_model::{
    cpu::CpuSet,
    finding::{Finding, Weight},
    text::Problem,
};
use rtscope_sys::{
    sched,
    shield::{OTHERS, SHIELD},
    tree::Tree,
};

use super::{
    cgroup::{self, Hierarchy},
    change::{Change, ChangeKind, ThreadName},
    error::TuneError,
    request::{Planned, refuse_absent},
    setting::{
        self, DEFAULT_IRQ_MASK, present,
        value::{ShieldValue, mask_like},
    },
};
use crate::environment::{Stat, numbered, online};

const NAME: &str = "shield";

/// The CPUs of a shield and the others.
struct Sides {
    shielded: CpuSet,
    others: CpuSet,
    balanced: bool,
}

/// What a shield takes on this machine.
pub(super) fn plan(
    tree: &Tree,
    text: &str,
    taken: &BTreeSet<String>,
) -> Result<Planned, TuneError> {
    let asked = ShieldValue::read(text)
        .ok_or_else(|| Problem::new(format!("{text:?} is not a valid value for shield")))?;
    let online = online(tree);
    let shielded = asked.cpus.unwrap_or_else(|| online.last().into_iter().collect());
    refuse_absent(tree, NAME, &shielded)?;
    let others = online.without(&shielded);
    if others.is_empty() {
        let text = format!(
            "shield: {} are all that this machine has: leave at least one for everything else",
            shielded.named()
        );
        return Err(Problem::new(text).into());
    }
    let sides = Sides { shielded, others, balanced: asked.balanced };
    let hierarchy = Hierarchy::find(tree).ok_or_else(|| {
        Problem::new(
            "shield: no cgroup hierarchy with the cpuset controller is mounted here. In a container, run it on the \
             host; otherwise mount one (mount -t cgroup2 none /sys/fs/cgroup), or use isolcpus (tune apply --boot)",
        )
    })?;
    let folder = format!("{}/{SHIELD}", hierarchy.folder());
    if tree.path(&folder).exists() {
        return Err(TuneError::ShieldThere { path: tree.path(&folder) });
    }
    let mut planned = Planned { may_be_refused: true, ..Planned::default() };
    interrupts(tree, &sides, taken, &mut planned);
    workqueues(tree, &sides, taken, &mut planned);
    match hierarchy {
        Hierarchy::Version1(at) => version_1(tree, at, &sides, taken, &mut planned)?,
        Hierarchy::Version2(at) => version_2(tree, at, &sides, taken, &mut planned)?,
    }
    planned.claims.extend(planned.changes.iter().map(Change::key));
    planned.notes.extend(bound(tree, &sides));
    Ok(planned)
}

/// Moves every interrupt that may come to a shielded CPU.
fn interrupts(tree: &Tree, sides: &Sides, taken: &BTreeSet<String>, planned: &mut Planned) {
    for (_, irq) in numbered(tree.list("proc/irq"), "") {
        let path = setting::irq_file(&irq);
        let Ok(old) = present(tree, &path) else { continue };
        let Ok(cpus) = old.parse::<CpuSet>() else { continue };
        if cpus.common(&sides.shielded).is_empty() || taken.contains(&path) {
            continue;
        }
        planned.changes.push(Change::file(NAME, &path, &old, &sides.kept_of(&cpus).to_string()));
    }
    mask(tree, DEFAULT_IRQ_MASK, sides, taken, planned);
}

fn workqueues(tree: &Tree, sides: &Sides, taken: &BTreeSet<String>, planned: &mut Planned) {
    for path in setting::workqueue_masks(tree) {
        mask(tree, &path, sides, taken, planned);
    }
}

fn mask(tree: &Tree, path: &str, sides: &Sides, taken: &BTreeSet<String>, planned: &mut Planned) {
    let Ok(old) = tree.read(path) else { return };
    let Some(cpus) = CpuSet::from_mask(&old) else { return };
    if cpus.common(&sides.shielded).is_empty() || taken.contains(path) {
        return;
    }
    planned.changes.push(Change::file(NAME, path, &old, &mask_like(&old, &sides.kept_of(&cpus))));
}

impl Sides {
    /// Of some CPUs those that aren't shielded; all that aren't where none is left.
    fn kept_of(&self, cpus: &CpuSet) -> CpuSet {
        let kept = cpus.common(&self.others);
        if kept.is_empty() { self.others.clone() } else { kept }
    }
}

fn folder(path: &str) -> Change {
    let change = Change::file(NAME, path, cgroup::ABSENT, cgroup::MADE);
    Change { kind: ChangeKind::Folder, ..change }
}

fn file_of_folder(folder: &str, name: &str, value: &str) -> Change {
    let change = Change::file(NAME, &format!("{folder}/{name}"), "", value);
    Change { kind: ChangeKind::FileOfFolder, ..change }
}

/// Two cpusets beside each other, and every thread of the root in the one with the other CPUs.
fn version_1(
    tree: &Tree,
    at: &str,
    sides: &Sides,
    taken: &BTreeSet<String>,
    planned: &mut Planned,
) -> Result<(), TuneError> {
    let memory = tree.read(format!("{at}/cpuset.mems"))?;
    let (shield, others) = (format!("{at}/{SHIELD}"), format!("{at}/{OTHERS}"));
    let balance = "cpuset.sched_load_balance";
    for (path, cpus, balanced) in
        [(&others, &sides.others, true), (&shield, &sides.shielded, sides.balanced)]
    {
        planned.changes.extend([
            folder(path),
            file_of_folder(path, "cpuset.cpus", &cpus.to_string()),
            file_of_folder(path, "cpuset.mems", &memory),
            file_of_folder(path, balance, if balanced { "1" } else { "0" }),
        ]);
    }
    // Without it the root spreads threads over all CPUs, whatever its children say.
    let root = format!("{at}/{balance}");
    let old = tree.read(&root)?;
    if old != "0" {
        planned.changes.push(Change::file(NAME, &root, &old, "0"));
    }
    let mut elsewhere: BTreeMap<String, u32> = BTreeMap::new();
    for (tid, stat) in every_thread(tree) {
        let Ok(cpuset) = tree.read(format!("proc/{tid}/cpuset")) else { continue };
        let Ok(cpus) = sched::affinity(tid as i32) else { continue };
        if cpuset != "/" {
            if !cpus.common(&sides.shielded).is_empty() {
                *elsewhere.entry(cpuset).or_default() += 1;
            }
            continue;
        }
        let change = Change {
            kind: ChangeKind::Cpuset,
            thread: Some(ThreadName::of(tid, &stat)),
            cpus: Some(cpus),
            ..Change::file(NAME, at, "/", &format!("/{OTHERS}"))
        };
        if !stat.is_bound() && !stat.is_kernel_parent() && !taken.contains(&change.key()) {
            planned.changes.push(change);
        }
    }
    planned.notes.extend(elsewhere.into_iter().map(|(cpuset, count)| {
        let text = format!(
            "shield: {count} threads stay on {}, because they are in the cpuset {cpuset} of another program",
            sides.shielded.named()
        );
        Finding::new("shield-not-moved", Weight::Note, text)
    }));
    Ok(())
}

/// A partition, which the kernel keeps free of other threads.
fn version_2(
    tree: &Tree,
    at: &str,
    sides: &Sides,
    taken: &BTreeSet<String>,
    planned: &mut Planned,
) -> Result<(), TuneError> {
    // Before the partition, so that they are restored after it: the kernel then gives all CPUs back. Before Linux 6.2 it
    // gives them to threads too that somebody has pinned to other CPUs, so each thread is remembered.
    for (tid, stat) in every_thread(tree) {
        let Ok(cpus) = sched::affinity(tid as i32) else { continue };
        let change = Change {
            kind: ChangeKind::Remembered,
            thread: Some(ThreadName::of(tid, &stat)),
            ..Change::file(
                NAME,
                &format!("proc/{tid}"),
                &cpus.to_string(),
                &sides.kept_of(&cpus).to_string(),
            )
        };
        if !stat.is_bound() && !taken.contains(&change.key()) {
            planned.changes.push(change);
        }
    }
    let control = format!("{at}/cgroup.subtree_control");
    let old = cgroup::controller(tree, &control)?;
    if old == cgroup::OFF {
        let change = Change::file(NAME, &control, &old, cgroup::ON);
        planned.changes.push(Change { kind: ChangeKind::Controller, ..change });
    }
    let shield = format!("{at}/{SHIELD}");
    let partition = if sides.balanced { "root" } else { "isolated" };
    planned.changes.extend([
        folder(&shield),
        file_of_folder(&shield, "cgroup.type", "threaded"),
        file_of_folder(&shield, "cpuset.cpus", &sides.shielded.to_string()),
        file_of_folder(&shield, "cpuset.cpus.partition", partition),
    ]);
    Ok(())
}

/// Every thread of every process.
fn every_thread(tree: &Tree) -> Vec<(u32, Stat)> {
    let mut found = Vec::new();
    for (pid, _) in numbered(tree.list("proc"), "") {
        for (tid, _) in numbered(tree.list(format!("proc/{pid}/task")), "") {
            let stat = tree.read_bytes(format!("proc/{pid}/task/{tid}/stat"));
            found.extend(stat.ok().and_then(|line| Stat::parse(&line)).map(|stat| (tid, stat)));
        }
    }
    found
}

/// Names the threads of the kernel that stay on shielded CPUs because they belong there.
fn bound(tree: &Tree, sides: &Sides) -> Option<Finding> {
    let stays = |(tid, stat): &(u32, Stat)| {
        let cpus = sched::affinity(*tid as i32).unwrap_or_default();
        // Workers of unbound queues follow the masks of workqueues.
        stat.is_bound() && !cpus.is_empty() && cpus.without(&sides.shielded).is_empty()
    };
    let threads = every_thread(tree).into_iter().filter(stays);
    let names: BTreeSet<String> = threads
        .map(|(_, stat)| match stat.name.split_once(':') {
            // `kworker/1:0-events` is one of many.
            Some((pool, _)) if pool.starts_with("kworker/") => format!("{pool}:*"),
            _ => stat.name,
        })
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| {
        let text = format!(
            "shield: threads of the kernel that belong to {} stay there: {}",
            sides.shielded.named(),
            names.join(", ")
        );
        Finding::new("shield-bound-threads", Weight::Note, text)
    })
}

/// Moves threads of programs that were started while others were moved. They go back with the cpuset that they are in.
pub(super) fn sweep(tree: &Tree, changes: &[Change]) {
    let is_ours = |change: &&Change| change.kind == ChangeKind::Cpuset;
    let Some(at) = changes.iter().find(is_ours).map(|change| change.path.as_str()) else { return };
    for _ in 0..5 {
        let listed = tree.read(format!("{at}/tasks")).unwrap_or_default();
        let moved = listed.lines().filter(|tid| {
            let stat = tree.read_bytes(format!("proc/{tid}/stat")).ok();
            let stat = stat.and_then(|line| Stat::parse(&line));
            let movable = stat.is_some_and(|stat| !stat.is_kernel());
            movable && tree.write(format!("{at}/{OTHERS}/tasks"), tid).is_ok()
        });
        if moved.count() == 0 {
            return;
        }
    }
}

/// Gives threads the CPUs that are left of their own. Before Linux 6.2, a new partition spreads every thread over all CPUs
/// outside of it, also those that somebody has pinned to some of them.
pub(super) fn narrow(tree: &Tree, changes: &[Change]) {
    let is_placed =
        |change: &&Change| matches!(change.kind, ChangeKind::Remembered | ChangeKind::Affinity);
    for change in changes.iter().filter(is_placed) {
        // A thread that has ended, or that isn't to be moved, needs nothing.
        let _ = change.narrow(tree);
    }
}

/// How many threads were moved, in one sentence.
pub(super) fn moved(changes: &[Change]) -> Option<String> {
    let is_moved = |change: &&Change| change.kind.is_bulk() && change.old != change.new;
    let count = changes.iter().filter(is_moved).count();
    (count > 0).then(|| format!("{count} threads"))
}
