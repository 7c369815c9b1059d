//! Who else uses the CPUs in a phase: looks at all processes at its start and its end, and at
//! real-time threads that came up meanwhile.
//!
//! Looking reads a file of each process, some milliseconds of one CPU. It is done just outside the
//! time that counts. Inside it is done every [`LOOK_SPAN`], and only where the control thread has a CPU
//! of its own, so that processes which end before the phase does are named too.
//!
//! A process that started and ended between two looks is not named: its time is what the CPUs were
//! busy beyond everybody who is. The same holds for processes that this one may not see, as those
//! outside a container.

use std::collections::BTreeMap;

use rtscope_model::{
    environment::RealTimeThread,
    other_work::{BusyProcess, NewRealTimeThreads, OtherWork},
    schedule::Policy,
    time::Nanos,
};
use rtscope_sys::{system::ticks_per_second, thread::SchedStat, tree::Tree};

use crate::{
    environment::{RunTimes, SystemCounters, real_time},
    processes::Processes,
};

/// Time between two looks inside a phase.
const LOOK_SPAN: Nanos = Nanos::from_secs(10);

/// How many processes are named.
const NAMED: usize = 5;

/// How many processes that have ended are remembered, the busiest ones.
const REMEMBERED: usize = 64;

/// How many real-time threads of one owner are listed.
const THREADS_LISTED: usize = 8;

/// The watch over one phase.
pub(crate) struct OtherWorkWatch {
    started_ns: u64,
    looked_ns: u64,
    counters: SystemCounters,
    run_times: RunTimes,
    ours: Ours,
    seen: BTreeMap<Identity, Seen>,
}

/// The CPU time of this process and all below it.
#[derive(Clone, Copy, Default)]
struct Ours {
    ns: u64,
    /// What rounding may have hidden of it.
    hidden_ns: u64,
}

/// A process's number and when it started, in ticks since boot: no later process has both.
type Identity = (u32, u64);

/// A process of others.
struct Seen {
    name: String,
    kernel: bool,
    /// CPU time, when the phase began and when it was last looked at.
    first_ns: u64,
    last_ns: u64,
    ended: bool,
}

impl Seen {
    fn used_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

impl OtherWorkWatch {
    pub(crate) fn start(tree: &Tree, own_pid: u32, now_ns: u64) -> OtherWorkWatch {
        let mut watch = OtherWorkWatch {
            started_ns: now_ns,
            looked_ns: now_ns,
            counters: SystemCounters::read(tree),
            run_times: RunTimes::read(tree),
            ours: Ours::default(),
            seen: BTreeMap::new(),
        };
        watch.ours = watch.look(tree, own_pid, now_ns);
        // What was used before the phase doesn't count.
        watch.seen.values_mut().for_each(|seen| seen.first_ns = seen.last_ns);
        watch
    }

    /// Looks again when the last look was long ago.
    pub(crate) fn look_if_due(&mut self, tree: &Tree, own_pid: u32, now_ns: u64) {
        if now_ns - self.looked_ns >= LOOK_SPAN.0 {
            self.look(tree, own_pid, now_ns);
        }
    }

    /// What was done since the start; none where the kernel doesn't show it.
    pub(crate) fn finish(
        mut self,
        tree: &Tree,
        own_pid: u32,
        now_ns: u64,
        cell: u32,
    ) -> Option<OtherWork> {
        let span_ns = now_ns - self.started_ns;
        let mut cpus = SystemCounters::read(tree).threads_since(&self.counters, span_ns);
        let run_times = RunTimes::read(tree);
        for cpu in &mut cpus {
            let exact_ns = run_times.since(&self.run_times, cpu.cpu, span_ns);
            cpu.threads_ns = cpu.threads_ns.min(exact_ns.unwrap_or(u64::MAX));
        }
        let ours = self.look(tree, own_pid, now_ns);
        if cpus.is_empty() {
            return None;
        }
        let of = |kernel| -> u64 {
            let seen = self.seen.values().filter(|seen| seen.kernel == kernel);
            seen.map(Seen::used_ns).sum()
        };
        let ours_ns = ours.ns.saturating_sub(self.ours.ns);
        let (kernel_ns, named_ns) = (of(true), of(false));
        let busy_ns: u64 = cpus.iter().map(|cpu| cpu.threads_ns).sum();
        let known_ns = ours_ns + kernel_ns + ours.hidden_ns;
        // Ticks of many short processes may add up to more than the CPUs were busy.
        let others_ns = named_ns.min(busy_ns).max(busy_ns.saturating_sub(known_ns));
        let processes = self.busiest();
        Some(OtherWork { cell, span_ns, ours_ns, kernel_ns, others_ns, cpus, processes })
    }

    fn busiest(&self) -> Vec<BusyProcess> {
        let busy = self.seen.iter().filter(|(_, seen)| seen.used_ns() > 0);
        let mut processes: Vec<BusyProcess> = busy
            .map(|((pid, _), seen)| BusyProcess {
                pid: *pid,
                name: seen.name.clone(),
                kernel: seen.kernel,
                cpu_ns: seen.used_ns(),
            })
            .collect();
        processes.sort_by_key(|process| (std::cmp::Reverse(process.cpu_ns), process.pid));
        processes.truncate(NAMED);
        processes
    }

    /// Brings the processes up to date, and answers the CPU time of ours so far.
    fn look(&mut self, tree: &Tree, own_pid: u32, now_ns: u64) -> Ours {
        self.looked_ns = now_ns;
        let all = Processes::read(tree);
        let ours = all.family(own_pid);
        self.seen.values_mut().for_each(|seen| seen.ended = true);
        let tick_ns = 1_000_000_000 / ticks_per_second();
        let mut sum = Ours::default();
        for (pid, stat) in all.0 {
            let told_ns = stat.cpu_ticks * tick_ns;
            if ours.contains(&pid) {
                // A child that ends leaves its time to the parent that waits for it, so the sum over
                // all of ours loses nothing but what rounding cuts off.
                let run_ns = run_ns(tree, pid);
                sum.ns += run_ns.unwrap_or(0).max(told_ns) + stat.children_ticks * tick_ns;
                // User and system time are cut to whole ticks each.
                sum.hidden_ns += if run_ns.is_none() { 2 * tick_ns } else { 0 };
                continue;
            }
            let last_ns = match stat.is_kernel() {
                true => run_ns(tree, pid).unwrap_or(0).max(told_ns),
                false => told_ns,
            };
            let seen = self.seen.entry((pid, stat.started_ticks)).or_insert(Seen {
                name: String::new(),
                kernel: stat.is_kernel(),
                first_ns: 0,
                last_ns: 0,
                ended: false,
            });
            (seen.name, seen.last_ns, seen.ended) = (stat.name, last_ns, false);
        }
        self.forget();
        sum
    }

    /// Forgets ended processes that used little, so that a long phase doesn't gather them all.
    fn forget(&mut self) {
        let ended = self.seen.iter().filter(|(_, seen)| seen.ended);
        let mut ended: Vec<(u64, Identity)> =
            ended.map(|(identity, seen)| (seen.used_ns(), *identity)).collect();
        ended.sort_unstable_by_key(|(used, _)| std::cmp::Reverse(*used));
        for (_, identity) in ended.into_iter().skip(REMEMBERED) {
            self.seen.remove(&identity);
        }
    }
}

/// How long the first thread of a process ran, to the nanosecond, where the kernel shows it: of hundreds
/// of processes that ran for less than a tick each, `stat` tells of no time at all.
fn run_ns(tree: &Tree, pid: u32) -> Option<u64> {
    let text = tree.read(format!("proc/{pid}/schedstat")).ok()?;
    SchedStat::parse(&text).map(|stat| stat.ran_ns)
}

/// Real-time threads that were not there, or not so, in an earlier look; told by owner.
pub(crate) fn new_real_time_threads(
    tree: &Tree,
    own_pid: u32,
    cell: u32,
    loads: &[Option<u32>],
    earlier: &[RealTimeThread],
) -> Vec<NewRealTimeThreads> {
    let found = real_time(tree, own_pid);
    let new: Vec<RealTimeThread> =
        found.into_iter().filter(|thread| !earlier.contains(thread)).collect();
    if new.is_empty() {
        return Vec::new();
    }
    let all = Processes::read(tree);
    let owner = |thread: &RealTimeThread| {
        let load = |pid| loads.iter().position(|load| *load == Some(pid));
        all.ancestors(thread.pid).find_map(load).map(|load| load as u32)
    };
    let mut by_owner: BTreeMap<Option<u32>, Vec<RealTimeThread>> = BTreeMap::new();
    for thread in new {
        by_owner.entry(owner(&thread)).or_default().push(thread);
    }
    let told = by_owner.into_iter().map(|(load, mut threads)| {
        let rank = |t: &RealTimeThread| (t.policy != Policy::Deadline, u8::MAX - t.priority, t.tid);
        threads.sort_by_key(rank);
        let count = threads.len() as u32;
        threads.truncate(THREADS_LISTED);
        NewRealTimeThreads { cell, load, threads, count }
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, process::Stdio};

    use super::*;
    use crate::environment::fake::FakeTree;

    const OWN: u32 = 500;
    const SECOND_NS: u64 = 1_000_000_000;

    /// `PF_KTHREAD`.
    const KERNEL: u32 = 0x0020_0000;

    struct Process {
        pid: u32,
        parent: u32,
        name: &'static str,
        flags: u32,
        ticks: u64,
        children_ticks: u64,
    }

    fn process(pid: u32, parent: u32, name: &'static str, ticks: u64) -> Process {
        Process { pid, parent, name, flags: 0, ticks, children_ticks: 0 }
    }

    /// A machine with these processes, of which two CPUs were busy for so many ticks.
    fn machine(busy: [u64; 2], processes: &[Process]) -> FakeTree {
        let fake = rounding_machine(busy, processes);
        for Process { pid, ticks, .. } in processes {
            fake.file(&format!("proc/{pid}/schedstat"), &format!("{} 9 9\n", ns(*ticks)));
        }
        fake
    }

    /// The same, of which the kernel shows whole ticks only.
    fn rounding_machine(busy: [u64; 2], processes: &[Process]) -> FakeTree {
        let fake = FakeTree::new();
        let [a, b] = busy;
        fake.file("proc/stat", &format!("cpu0 {a} 0 0 0 0 0 0 0\ncpu1 {b} 0 0 0 0 0 0 0\n"));
        for one in processes {
            let Process { pid, parent, name, flags, ticks, children_ticks } = one;
            let stat = format!(
                "{pid} ({name}) S {parent} 1 1 0 -1 {flags} 0 0 0 0 {ticks} 0 {children_ticks} 0 \
                 20 0 1 0 7{pid} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0\n"
            );
            fake.file(&format!("proc/{pid}/stat"), &stat);
        }
        fake
    }

    fn ns(ticks: u64) -> u64 {
        ticks * (SECOND_NS / ticks_per_second())
    }

    fn watched(before: &FakeTree, after: &FakeTree) -> OtherWork {
        let watch = OtherWorkWatch::start(&before.tree, OWN, 7);
        watch.finish(&after.tree, OWN, 7 + 10 * SECOND_NS, 3).expect("counters")
    }

    #[test]
    fn the_time_of_others_is_told_from_ours_and_the_kernels() {
        let kworker = |ticks| Process { flags: KERNEL, ..process(40, 2, "kworker/0:1", ticks) };
        let before = machine(
            [1_000, 1_000],
            &[process(OWN, 9, "rtscope", 10), kworker(5), process(70, 1, "firefox", 900)],
        );
        let load = Process { children_ticks: 30, ..process(501, OWN, "rtscope", 300) };
        let after = machine(
            [1_700, 1_690],
            &[
                process(OWN, 9, "rtscope", 30),
                load,
                process(502, 501, "worker", 100),
                kworker(15),
                process(70, 1, "firefox", 1_400),
                process(71, 70, "Web Content", 200),
            ],
        );
        let work = watched(&before, &after);
        assert_eq!((work.cell, work.span_ns), (3, 10 * SECOND_NS));
        // 20 of the process itself, 330 and 100 of its load.
        assert_eq!((work.ours_ns, work.kernel_ns), (ns(450), ns(10)));
        // 1,390 ticks in all; named are 500 and 200, the other 230 came and went.
        assert_eq!(work.others_ns, ns(1_390 - 450 - 10));
        let named: Vec<_> = work.processes.iter().map(|p| (p.pid, p.kernel, p.cpu_ns)).collect();
        assert_eq!(named, [(70, false, ns(500)), (71, false, ns(200)), (40, true, ns(10))]);
    }

    #[test]
    fn the_time_of_a_load_that_was_waited_for_stays_ours() {
        let own = |children_ticks| Process { children_ticks, ..process(OWN, 9, "rtscope", 10) };
        let before = machine([0, 0], &[own(0), process(501, OWN, "load", 50)]);
        let after = machine([250, 0], &[own(300)]);
        let work = watched(&before, &after);
        assert_eq!((work.ours_ns, work.others_ns), (ns(250), 0));
    }

    #[test]
    fn many_processes_that_ran_for_less_than_a_tick_each_are_ours() {
        let load = (1..=400).map(|n| process(OWN + n, OWN, "message", 0));
        let all: Vec<Process> =
            std::iter::once(process(OWN, 9, "rtscope", 0)).chain(load).collect();
        let (before, after) = (machine([0, 0], &all), machine([200, 200], &all));
        let each = |n: u32| after.file(&format!("proc/{}/schedstat", OWN + n), "9000000 9 9\n");
        (1..=400).for_each(each);
        let work = watched(&before, &after);
        assert_eq!((work.ours_ns, work.others_ns), (400 * 9_000_000, ns(400) - 400 * 9_000_000));
        // Without the exact times, what rounding may have hidden is nobody's.
        let rounding = rounding_machine([200, 200], &all);
        assert_eq!(watched(&rounding_machine([0, 0], &all), &rounding).others_ns, 0);
    }

    #[test]
    fn real_processes_that_run_for_a_few_milliseconds_each_are_told_in_full() {
        let tree = Tree::default();
        let own_pid = std::process::id();
        if run_ns(&tree, own_pid).is_none() || !std::path::Path::new("/proc/self/sched").exists() {
            return rtscope_testing::skip::skip_this(
                "needs a kernel with /proc/PID/schedstat and /proc/PID/sched",
            );
        }
        let watch = OtherWorkWatch::start(&tree, own_pid, 0);
        let spin = "i=0; while [ $i -lt 1500 ]; do i=$((i+1)); done; echo done; read line";
        let start = |_| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", spin]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("a shell")
        };
        let mut children: Vec<_> = (0..40).map(start).collect();
        for child in &mut children {
            let mut said = [0; 4];
            child.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("it is done");
        }
        // Exact, from a file that the code doesn't read.
        let exact_ns: u64 = children.iter().map(|child| exact_ns(child.id())).sum();
        let work = watch.finish(&tree, own_pid, SECOND_NS, 0).expect("counters");
        for mut child in children {
            drop(child.stdin.take());
            child.wait().expect("it ends");
        }
        assert!(work.ours_ns >= exact_ns, "{} of {exact_ns} ns", work.ours_ns);
    }

    /// `se.sum_exec_runtime`, in milliseconds with six decimals, of a process of one thread.
    fn exact_ns(pid: u32) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/sched")).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("se.sum_exec_runtime"));
        let value = line.and_then(|line| line.rsplit(':').next()).expect("a time").trim();
        value.replace('.', "").parse().expect("a number")
    }

    #[test]
    fn a_process_number_that_is_used_again_is_another_process() {
        let before = machine([0, 0], &[process(70, 1, "old", 1_000)]);
        let after = machine([300, 0], &[]);
        let stat = "70 (new) S 1 1 1 0 -1 0 0 0 0 0 300 0 0 0 20 0 1 0 9999 \
                    0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0\n";
        after.file("proc/70/stat", stat);
        let work = watched(&before, &after);
        assert_eq!(work.processes.len(), 1, "{:?}", work.processes);
        assert_eq!((work.processes[0].name.as_str(), work.processes[0].cpu_ns), ("new", ns(300)));
    }

    #[test]
    fn a_process_that_ends_before_the_phase_is_named_by_a_look_in_between() {
        let start = machine([0, 0], &[process(70, 1, "make", 0)]);
        let middle = machine([0, 0], &[process(70, 1, "make", 600)]);
        let end = machine([700, 0], &[]);
        let mut watch = OtherWorkWatch::start(&start.tree, OWN, 0);
        watch.look_if_due(&middle.tree, OWN, LOOK_SPAN.0 - 1);
        assert_eq!(watch.busiest().len(), 0, "it is not yet due");
        watch.look_if_due(&middle.tree, OWN, LOOK_SPAN.0);
        let work = watch.finish(&end.tree, OWN, 2 * LOOK_SPAN.0, 0).expect("counters");
        assert_eq!((work.processes[0].cpu_ns, work.others_ns), (ns(600), ns(700)));
    }

    #[test]
    fn a_long_phase_remembers_a_bounded_number_of_ended_processes() {
        let many: Vec<Process> = (0..1_000).map(|n| process(1_000 + n, 1, "job", 0)).collect();
        let mut watch = OtherWorkWatch::start(&machine([0, 0], &many).tree, OWN, 0);
        watch.look(&machine([0, 0], &[]).tree, OWN, 1);
        assert_eq!(watch.seen.len(), REMEMBERED);
    }

    #[test]
    fn interrupts_of_an_idle_cpu_are_nobodys_where_the_kernel_has_exact_times() {
        let (before, after) = (machine([0, 0], &[]), machine([590, 590], &[]));
        let exact = |fake: &FakeTree, ns: u64, stints: u64| {
            let cpu = |cpu: u32| format!("cpu{cpu} 0 0 0 0 0 0 {ns} 0 {stints}\n");
            fake.file("proc/schedstat", &format!("version 15\n{}{}", cpu(0), cpu(1)));
        };
        exact(&before, 7, 7);
        exact(&after, 7 + ns(490), 100_000);
        assert_eq!(watched(&before, &after).others_ns, 2 * ns(490));
        exact(&after, 7 + ns(490), 8);
        assert_eq!(watched(&before, &after).others_ns, 2 * ns(590), "a thread may still run");
    }

    #[test]
    fn nothing_is_told_where_nothing_can_be_read() {
        let empty = FakeTree::new();
        let watch = OtherWorkWatch::start(&empty.tree, OWN, 0);
        assert_eq!(watch.finish(&empty.tree, OWN, 1, 0), None);
    }

    #[test]
    fn new_real_time_threads_are_told_by_owner() {
        let processes = [process(OWN, 9, "rtscope", 0), process(501, OWN, "rtscope", 0)];
        let fake = machine([0, 0], &[]);
        let thread = |pid: u32, parent: u32, name: &str, priority: u32| {
            let stat = format!(
                "{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 -2 0 1 0 42 0 0 0 0 0 0 0 0 \
                 0 0 0 0 0 0 0 17 1 {priority} 1 0 0 0\n"
            );
            fake.file(&format!("proc/{pid}/stat"), &stat);
            fake.file(&format!("proc/{pid}/task/{pid}/stat"), &stat);
            fake.file(&format!("proc/{pid}/task/{pid}/status"), "Cpus_allowed_list:\t0-1\n");
        };
        thread(OWN, 9, processes[0].name, 90);
        thread(60, 2, "irq/9-acpi", 50);
        let earlier = real_time(&fake.tree, OWN);
        assert_eq!(earlier.len(), 1);
        thread(501, OWN, processes[1].name, 0);
        (0..20).for_each(|n| thread(600 + n, 501, "rtscope", 49));
        thread(80, 1, "jackd", 70);
        let found = new_real_time_threads(&fake.tree, OWN, 1, &[None, Some(501)], &earlier);
        let [others, load] = &found[..] else { panic!("two owners: {found:?}") };
        assert_eq!((others.load, others.count, others.cell), (None, 1, 1));
        assert_eq!((others.threads[0].name.as_str(), others.threads[0].priority), ("jackd", 70));
        assert_eq!((load.load, load.count, load.threads.len()), (Some(1), 21, THREADS_LISTED));
        assert_eq!(load.threads[0].priority, 49);
    }
}
