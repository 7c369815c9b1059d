//! Settings that are more than one file: interrupts by name, masks, idle states by latency, threads, services, what is
//! kept, and shields as far as a machine made of files can show them.

use std::sync::mpsc;

use rtscope_testing::executable;

use rtscope_model::{
    cpu::CpuSet,
    schedule::{Budget, Placement, Policy},
};
use rtscope_sys::{sched, thread};

use super::*;
use crate::tune::change::ThreadName;

const INTERRUPTS: &str = "           CPU0       CPU1\n 9:  0  0  IO-APIC    9-fasteoi   acpi\n \
    24:  5  6  PCI-MSI 0-edge      eth0-rx-0\n 25:  5  6  PCI-MSI 1-edge      eth0-tx-0\n \
    26:  5  6  PCI-MSI 2-edge      virtio3-input.0\n 27:  5  6  PCI-MSI 3-edge      nvme0q1\n";

fn irq(number: u32) -> String {
    format!("proc/irq/{number}/smp_affinity_list")
}

impl Bench {
    fn with_interrupts() -> Bench {
        let bench = Bench::new();
        bench.fake.file("sys/devices/system/cpu/online", "0-1\n");
        bench.fake.file("proc/interrupts", INTERRUPTS);
        for number in [9, 24, 25, 26, 27] {
            bench.fake.file(&irq(number), "0-1\n");
        }
        bench
    }

    fn affinities(&self) -> String {
        [9, 24, 25, 26, 27].map(|number| self.fake.read(&irq(number))).join(" ")
    }

    fn propose(&self, settings: &[(&str, &str)]) -> Result<Proposal, TuneError> {
        let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        propose(&self.fake.tree, self.journals.path(), &settings)
    }
}

#[test]
fn single_files_change_and_come_back() {
    for (setting, value, path, before, during) in [
        ("ksm", "unmerge", "sys/kernel/mm/ksm/run", "1", "2"),
        ("ksm", "off", "sys/kernel/mm/ksm/run", "1", "0"),
        ("numa-balancing", "off", "proc/sys/kernel/numa_balancing", "1", "0"),
        ("swappiness", "0", "proc/sys/vm/swappiness", "60", "0"),
        ("stat-interval", "120", "proc/sys/vm/stat_interval", "1", "120"),
        (
            "energy-preference",
            "performance",
            "sys/devices/system/cpu/cpu1/cpufreq/energy_performance_preference",
            "balance_power",
            "performance",
        ),
    ] {
        let bench = Bench::new();
        bench.fake.file(path, &format!("{before}\n"));
        let applied = bench.applied(&[(setting, value)]);
        assert_eq!(bench.fake.read(path), during, "{setting}");
        drop(applied);
        assert_eq!(bench.fake.read(path), before, "{setting}");
    }
}

#[test]
fn interrupts_are_found_by_number_name_and_device() {
    let bench = Bench::with_interrupts();
    bench.fake.file("sys/devices/virtio3/id", "");
    bench.fake.link("sys/class/net/eth1/device", "../../../devices/virtio3");
    bench.fake.file("sys/bus/pci/devices/0000:01:00.0/msi_irqs/27", "msix\n");
    for (value, during) in [
        ("0", "0 0 0 0 0"),
        ("0@24", "0-1 0 0-1 0-1 0-1"),
        ("1@eth0-*", "0-1 1 1 0-1 0-1"),
        ("1@eth1", "0-1 0-1 0-1 1 0-1"),
        ("1@nvme*", "0-1 0-1 0-1 0-1 1"),
        ("0@0000:01:00.0", "0-1 0-1 0-1 0-1 0"),
        ("0; 1@eth0-rx-0", "0 1 0 0 0"),
    ] {
        let applied = bench.applied(&[("irq-affinity", value)]);
        assert_eq!(bench.affinities(), during, "{value}");
        drop(applied);
        assert_eq!(bench.affinities(), "0-1 0-1 0-1 0-1 0-1", "{value}");
    }
    for (value, said) in [
        ("0@77", "there is no interrupt 77"),
        ("0@eth0-rx-1", "did you mean \"eth0-rx-0\"?"),
        ("0@../../etc", "no interrupt or device is called"),
        ("5@24", "CPU 5 is not online"),
    ] {
        let error = bench.refused(&[("irq-affinity", value)]).to_string();
        assert!(error.contains(said), "{value}: {error}");
    }
}

#[test]
fn masks_of_workqueues_keep_their_form() {
    let bench = Bench::new();
    let all = "sys/devices/virtual/workqueue/cpumask";
    let own = "sys/devices/virtual/workqueue/writeback/cpumask";
    bench.fake.file(all, "ff,ffffffff\n");
    bench.fake.file(own, "ff,ffffffff\n");
    let applied = bench.applied(&[("workqueue-cpus", "0-1,32")]);
    assert_eq!([all, own].map(|path| bench.fake.read(path)), ["01,00000003"; 2]);
    drop(applied);
    assert_eq!([all, own].map(|path| bench.fake.read(path)), ["ff,ffffffff"; 2]);
}

#[test]
fn idle_states_are_bounded_by_their_latency() {
    let bench = Bench::new();
    let file = |cpu: u32, state: u32, name: &str| {
        format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/{name}")
    };
    for cpu in [0, 1] {
        for (state, latency) in [(0, 0), (1, 2), (2, 10), (3, 133)] {
            bench.fake.file(&file(cpu, state, "disable"), "0\n");
            bench.fake.file(&file(cpu, state, "latency"), &format!("{latency}\n"));
        }
    }
    let states =
        |cpu| [0, 1, 2, 3].map(|state| bench.fake.read(&file(cpu, state, "disable"))).join("");
    for (value, during) in [
        ("10", ["0001", "0001"]),
        ("9@1", ["0000", "0011"]),
        ("0", ["0111", "0111"]),
        ("500", ["0000", "0000"]),
    ] {
        let applied = bench.applied(&[("idle-latency", value)]);
        assert_eq!([0, 1].map(states), during, "{value}");
        drop(applied);
        assert_eq!([0, 1].map(states), ["0000", "0000"]);
    }
    let error = bench.refused(&[("idle-latency", "10"), ("idle-state", "0")]).to_string();
    assert!(error.contains("idle-latency and idle-state both set"), "{error}");
}

/// A thread of this process that a fake tree shows as one of the kernel.
struct OwnThread {
    tid: u32,
    end: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl OwnThread {
    fn start(fake: &FakeTree, name: &str, started: Option<u64>) -> OwnThread {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(thread::id() as u32).expect("a listener");
            let _ = ended.recv();
        });
        let tid = told.recv().expect("a thread");
        let line = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).expect("a stat");
        let (_, rest) = line.rsplit_once(") ").expect("a name");
        let mut fields: Vec<String> = rest.split(' ').map(str::to_owned).collect();
        // Fields are numbered from 1, and the first after the name is the third.
        fields[9 - 3] = 0x0020_0000.to_string();
        if let Some(started) = started {
            fields[22 - 3] = started.to_string();
        }
        fake.file(&format!("proc/{tid}/stat"), &format!("{tid} ({name}) {}", fields.join(" ")));
        OwnThread { tid, end, thread }
    }

    fn policy(&self) -> Policy {
        sched::placement(self.tid as i32).expect("a thread").policy
    }

    fn stop(self) {
        self.end.send(()).expect("it listens");
        self.thread.join().expect("no panic");
    }
}

#[test]
fn threads_of_the_kernel_get_a_policy_by_their_name() {
    let bench = Bench::new();
    let own = OwnThread::start(&bench.fake, "irq/24-eth0", None);
    let applied = bench.applied(&[("thread-priority", "batch:3@irq/*eth0")]);
    assert_eq!(own.policy(), Policy::Batch);
    drop(applied);
    assert_eq!(own.policy(), Policy::Other);
    let error = bench.refused(&[("thread-priority", "batch@irq/*eth1")]).to_string();
    assert!(error.contains("no kernel thread is called"), "{error}");
    // One that isn't the kernel's.
    let user = Bench::new();
    let stat = fs::read_to_string("/proc/self/stat").expect("own stat");
    user.fake.file(&format!("proc/{}/stat", std::process::id()), &stat);
    let error = user.refused(&[("thread-affinity", "0@*")]).to_string();
    assert!(error.contains("is not a kernel thread") && error.contains("rtscope ps"), "{error}");
    own.stop();
}

#[test]
fn a_thread_that_was_made_idle_gets_its_policy_and_nice_value_back_after_a_kill() {
    let bench = Bench::new();
    let own = OwnThread::start(&bench.fake, "ksmd", None);
    kernel_thread::set_policy(own.tid as i32, "other:5").expect("allowed");
    std::mem::forget(bench.applied(&[("thread-priority", "idle@ksmd")]));
    assert_eq!(own.policy(), Policy::Idle);
    // As if this process had been killed.
    let [journal] = bench.journals().try_into().expect("one journal");
    let folder = bench.journals.path();
    fs::rename(folder.join(journal), folder.join(NOBODY)).expect("renamed");
    let restored = bench.restore();
    assert!(matches!(restored.as_slice(), [Restored { error: None, .. }]), "{restored:?}");
    assert_eq!(kernel_thread::policy(own.tid as i32).expect("a thread"), "other:5");
    own.stop();
}

/// SCHED_DEADLINE has a budget that no text of ours holds, and SCHED_IDLE keeps a nice value that can't be set.
#[test]
fn a_thread_whose_policy_could_not_be_restored_is_left_out() {
    let bench = Bench::new();
    let plain = OwnThread::start(&bench.fake, "worker/0", None);
    let others = [Policy::Idle, Policy::Deadline].map(|policy| {
        let own = OwnThread::start(&bench.fake, "sugov:0", None);
        kernel_thread::set_policy(own.tid as i32, "batch:5").expect("allowed");
        let budget =
            Budget { runtime_ns: 1_000_000, deadline_ns: 100_000_000, period_ns: 100_000_000 };
        let budget = (policy == Policy::Deadline).then_some(budget);
        let placement = Placement { policy, priority: 0, nice: 0, budget, cpus: CpuSet::default() };
        let set = sched::set_policy(own.tid as i32, &placement);
        // Only root may, and not in every container.
        assert!(set.is_ok() || policy == Policy::Deadline, "{set:?}");
        (own, set.is_ok())
    });
    let changed = others.iter().filter(|(_, is_set)| *is_set).map(|(own, _)| own.policy());
    let changed: Vec<Policy> = changed.collect();
    let error = bench.refused(&[("thread-priority", "batch:1@sugov*")]);
    let pattern = if changed.len() == 2 { "*" } else { "worker*" };
    let (applied, events) = bench.apply(&[("thread-priority", &format!("batch:1@{pattern}"))]);
    let applied = applied.expect("the others are changed");
    assert_eq!(plain.policy(), Policy::Batch);
    let now = others.iter().filter(|(_, is_set)| *is_set).map(|(own, _)| own.policy());
    assert_eq!(now.collect::<Vec<_>>(), changed);
    drop(applied);
    assert_eq!((plain.policy(), bench.journals()), (Policy::Other, Vec::<String>::new()));
    if changed.len() == 2 {
        assert!(error.to_string().contains("could not restore"), "{error}");
        let note = events.iter().find_map(|event| match event {
            Event::Found(finding) if finding.code == "setting-left-out" => Some(&finding.text),
            _ => None,
        });
        let note = note.expect("a note");
        assert!(note.contains("sugov:0") && note.contains("deadline:0"), "{note}");
    }
    plain.stop();
    others.into_iter().for_each(|(own, _)| own.stop());
}

/// The kernel gives out -2, -3 and so on, in the order in which areas come.
#[test]
fn swap_areas_with_automatic_priorities_come_back_in_their_order() {
    let bench = Bench::new();
    bench.fake.file(
        "proc/swaps",
        "Filename Type Size Used Priority\n/swap-2 file 1 0 -2\n/swap-3 file 1 0 -3\n/swap5 file 1 0 5\n",
    );
    let proposal = bench.propose(&[("swap", "off")]).expect("proposed");
    let shown = proposal.changes.iter().map(|one| (one.place.as_str(), one.from.as_str()));
    let shown: Vec<_> = shown.collect();
    // Restored from the last to the first.
    assert_eq!(shown, [("/swap-3", "auto"), ("/swap-2", "auto"), ("/swap5", "5")]);
    let change =
        |old| Change { kind: ChangeKind::Swap, ..Change::file("swap", "/swap-2", old, "off") };
    assert_eq!(change("auto").repair_command(&bench.fake.tree), "swapon /swap-2");
    assert_eq!(change("5").repair_command(&bench.fake.tree), "swapon -p 5 /swap-2");
    assert_eq!(change("auto").present(&bench.fake.tree).ok().as_deref(), Some("auto"));
}

#[test]
fn a_journal_that_goes_while_the_folder_is_read_is_no_error() {
    let bench = Bench::new();
    let folder = bench.journals.path().to_owned();
    let until = Instant::now() + Duration::from_secs(2);
    let writer = std::thread::spawn(move || {
        let path = folder.join(NOBODY);
        let mut count = 0_u32;
        while Instant::now() < until {
            fs::write(&path, "").expect("written");
            fs::remove_file(&path).expect("removed");
            count += 1;
        }
        count
    });
    let mut looks = 0_u32;
    while !writer.is_finished() {
        journal::find_all(bench.journals.path()).expect("no error");
        looks += 1;
    }
    assert!(writer.join().expect("no panic") > 10 && looks > 10);
}

#[test]
fn a_thread_that_took_the_number_of_another_is_left_alone() {
    let bench = Bench::new();
    let own = OwnThread::start(&bench.fake, "ksoftirqd/0", None);
    let stat = crate::environment::Stat::parse(
        &bench.fake.tree.read_bytes(format!("proc/{}/stat", own.tid)).expect("a stat"),
    );
    let thread = ThreadName::of(own.tid, &stat.expect("whole"));
    let earlier = ThreadName { started_ticks: thread.started_ticks - 1, ..thread };
    let change = Change {
        kind: ChangeKind::Policy,
        thread: Some(earlier),
        ..Change::file("thread-priority", &format!("proc/{}", own.tid), "batch:0", "other:0")
    };
    bench.left(&(serde_json::to_string(&change).expect("JSON") + "\n"));
    assert_eq!(bench.restore(), []);
    assert_eq!((own.policy(), bench.journals()), (Policy::Other, Vec::<String>::new()));
    own.stop();
}

/// A systemctl that keeps the state of units in files.
fn with_systemd(bench: &Bench) {
    let root = bench.fake.tree.path("");
    let script = format!(
        "#!/bin/sh\nfile={}/units/$2\ncase $1 in\nshow) [ -e $file ] && echo LoadState=loaded || echo LoadState=not-found\n\
         echo ActiveState=$(cat $file 2>/dev/null) ;;\nstop) echo inactive > $file ;;\nstart) echo active > $file ;;\nesac\n",
        root.display()
    );
    executable::write(&bench.fake.tree.path("usr/bin/systemctl"), &script);
    bench.fake.file("run/systemd/system/x", "");
    bench.fake.file("units/irqbalance.service", "active\n");
    bench.fake.file("units/smartd.service", "inactive\n");
    bench.fake.file("units/man-db.timer", "active\n");
}

#[test]
fn services_are_stopped_and_started_again() {
    let bench = Bench::new();
    with_systemd(&bench);
    let states = || {
        ["irqbalance.service", "smartd.service", "man-db.timer"]
            .map(|unit| bench.fake.read(&format!("units/{unit}")))
    };
    for (value, during) in [
        ("irqbalance", ["inactive", "inactive", "active"]),
        ("known", ["inactive", "inactive", "inactive"]),
        ("smartd,man-db.timer", ["active", "inactive", "inactive"]),
    ] {
        let applied = bench.applied(&[("services", value)]);
        assert_eq!(states(), during, "{value}");
        drop(applied);
        assert_eq!(states(), ["active", "inactive", "active"], "{value}");
    }
    let error = bench.refused(&[("services", "tuned")]).to_string();
    assert!(error.contains("tuned.service isn't installed"), "{error}");
    let error = bench.refused(&[("services", "sshd")]).to_string();
    assert!(error.contains("is not a valid value for services"), "{error}");
    let error = Bench::new().refused(&[("services", "irqbalance")]).to_string();
    assert!(error.contains("systemd doesn't run here"), "{error}");
}

#[test]
fn what_is_kept_outlives_its_process_until_it_is_taken_back() {
    let bench = Bench::new();
    bench.applied(&[("throttling", "off")]).keep(bench.journals.path()).expect("kept");
    bench.applied(&[("thp", "never")]).keep(bench.journals.path()).expect("kept");
    assert_eq!(bench.journals(), ["kept-0001.jsonl", "kept-0002.jsonl"]);
    // Nobody restores it by accident.
    assert_eq!(bench.restore(), []);
    assert_eq!(restore_own(&bench.fake.tree, bench.journals.path()), []);
    assert_eq!(bench.fake.read(THROTTLING), "-1");
    assert_eq!(holders(bench.journals.path()), []);
    assert_eq!(left_by_root(bench.journals.path()), Ok(None));
    let error = bench.refused(&[("throttling", "on")]).to_string();
    assert!(error.contains("--keep") && error.contains("rtscope tune restore"), "{error}");

    bench.fake.file(HUGE, "always\n");
    let found = status(&bench.fake.tree, bench.journals.path()).expect("readable");
    let told: Vec<_> = found
        .iter()
        .map(|one| (one.setting.as_str(), one.now.as_deref(), one.changed_since, &one.owner))
        .collect();
    let kept = &SettingOwner::Kept;
    assert_eq!(
        told,
        [("throttling", Some("-1"), false, kept), ("thp", Some("always"), true, kept)]
    );
    let restored = restore_kept(&bench.fake.tree, bench.journals.path());
    let told: Vec<_> =
        restored.iter().map(|one| (one.setting.as_str(), one.error.is_some())).collect();
    assert_eq!(told, [("thp", true), ("throttling", false)], "the newest first");
    assert_eq!(
        (bench.fake.read(THROTTLING), bench.fake.read(HUGE)),
        ("950000".into(), "always".into())
    );
    assert_eq!(bench.journals(), [""; 0]);
}

#[test]
fn what_was_kept_before_the_last_boot_is_forgotten() {
    let bench = Bench::new();
    bench.fake.file(THROTTLING, "-1\n");
    let text =
        "{\"boot\":\"earlier\"}\n".to_owned() + &line("throttling", THROTTLING, "950000", "-1");
    fs::write(bench.journals.path().join("kept-0001.jsonl"), text).expect("a journal");
    assert_eq!(status(&bench.fake.tree, bench.journals.path()).expect("readable"), []);
    assert_eq!(bench.restore(), []);
    assert_eq!(
        (bench.fake.read(THROTTLING), bench.journals()),
        ("-1".into(), Vec::<String>::new())
    );
}

#[test]
fn a_value_that_a_process_holds_is_not_kept() {
    let bench = Bench::new();
    bench.fake.bytes(LATENCY, &2_000_000_000_i32.to_ne_bytes());
    let applied = bench.applied(&[("dma-latency", "20"), ("thp", "never")]);
    let error = applied.keep(bench.journals.path()).expect_err("held").to_string();
    assert!(error.contains("idle-latency"), "{error}");
    assert_eq!(bench.fake.read(HUGE), "madvise", "it is restored instead");
}

#[test]
fn a_proposal_changes_nothing() {
    let bench = Bench::with_interrupts();
    let found = bench.propose(&[("thp", "never"), ("throttling", "on"), ("irq-affinity", "0@24")]);
    let found = found.expect("a proposal");
    let told: Vec<_> =
        found.changes.iter().map(|one| (one.from.as_str(), one.to.as_str())).collect();
    assert_eq!(told, [("0-1", "0"), ("madvise", "never")]);
    assert_eq!(found.already, ["throttling"]);
    assert_eq!((bench.fake.read(HUGE), bench.journals()), ("madvise".into(), Vec::<String>::new()));
    let _held = bench.applied(&[("thp", "never")]);
    let error = bench.propose(&[("thp", "always")]).expect_err("held").to_string();
    assert!(error.contains("is held by"), "{error}");
}

#[test]
fn a_shield_needs_cgroups_and_a_cpu_for_the_rest() {
    let bench = Bench::with_interrupts();
    let refused = |value: &str| bench.refused(&[("shield", value)]).to_string();
    assert!(refused("1").contains("no cgroup hierarchy with the cpuset controller"));
    assert!(refused("0-1").contains("are all that this machine has"));
    assert!(refused("3").contains("CPU 3 is not online"));
    for value in ["", "isolated", "isolated@", "member@1", "a"] {
        assert!(refused(value).contains("is not a valid value for shield"), "{value}");
    }
    bench.fake.file("sys/fs/cgroup/cgroup.controllers", "cpu cpuset io\n");
    bench.fake.file("sys/fs/cgroup/rtscope-shield/cpuset.cpus", "1\n");
    assert!(refused("1").contains("no journal mentions it"), "{}", refused("1"));
}

#[test]
fn a_shield_moves_interrupts_and_work_but_not_what_others_set() {
    let bench = Bench::with_interrupts();
    bench.fake.file("proc/irq/default_smp_affinity", "3\n");
    bench.fake.file("sys/devices/virtual/workqueue/cpumask", "3\n");
    bench.fake.file("sys/fs/cgroup/cgroup.controllers", "cpu cpuset io\n");
    bench.fake.file("sys/fs/cgroup/cgroup.subtree_control", "cpu\n");
    bench.fake.file(&irq(9), "1\n");
    let found = bench.propose(&[("shield", "1"), ("irq-affinity", "0-1@24")]).expect("a proposal");
    let name = |path: &str| path.rsplit_once("/irq/").map_or(path, |(_, rest)| rest).to_owned();
    let irqs: Vec<(String, String)> = found
        .changes
        .iter()
        .filter(|one| one.place.contains("/irq/"))
        .map(|one| (name(&one.place), one.to.clone()))
        .collect();
    let last =
        bench.propose(&[("shield", "last"), ("irq-affinity", "0-1@24")]).expect("a proposal");
    assert_eq!(last.changes, found.changes);
    let to = |path: &str, to: &str| (path.to_owned(), to.to_owned());
    assert_eq!(
        irqs,
        [
            // It was on the shielded CPU alone.
            to("9/smp_affinity_list", "0"),
            to("25/smp_affinity_list", "0"),
            to("26/smp_affinity_list", "0"),
            to("27/smp_affinity_list", "0"),
            to("default_smp_affinity", "1"),
        ]
    );
    let last: Vec<(&str, &str)> = found
        .changes
        .iter()
        .rev()
        .take(5)
        .map(|one| (one.from.as_str(), one.to.as_str()))
        .collect();
    assert_eq!(
        last,
        [
            ("absent", "root"),
            ("absent", "1"),
            ("absent", "threaded"),
            ("absent", "made"),
            ("off", "on")
        ]
    );
}

#[test]
fn a_journal_names_only_what_its_setting_changes() {
    let owned = |setting: &str, kind: ChangeKind, path: &str| {
        Change { kind, ..Change::file(setting, path, "/", "/rtscope-others") }.is_owned()
    };
    assert!(owned("shield", ChangeKind::Folder, "sys/fs/cgroup/rtscope-shield"));
    assert!(owned(
        "shield",
        ChangeKind::FileOfFolder,
        "sys/fs/cgroup/cpuset/rtscope-others/cpuset.cpus"
    ));
    assert!(owned("shield", ChangeKind::Cpuset, "sys/fs/cgroup/cpuset"));
    assert!(owned("shield", ChangeKind::File, "proc/irq/3/smp_affinity_list"));
    assert!(owned("shield", ChangeKind::File, "sys/devices/virtual/workqueue/writeback/cpumask"));
    assert!(owned("services", ChangeKind::Service, "irqbalance.service"));
    assert!(owned("swap", ChangeKind::Swap, "/dev/sda2"));
    for (setting, kind, path) in [
        ("shield", ChangeKind::Folder, "sys/fs/cgroup/system.slice"),
        ("shield", ChangeKind::Folder, "home"),
        ("shield", ChangeKind::File, "sys/fs/cgroup/rtscope-shield/../../../etc/passwd"),
        ("shield", ChangeKind::File, "sys/fs/cgroup/rtscope-shield/cgroup.procs"),
        ("shield", ChangeKind::File, "sys/devices/virtual/workqueue/../cpumask"),
        ("shield", ChangeKind::Cpuset, "etc"),
        ("throttling", ChangeKind::Folder, "sys/fs/cgroup/rtscope-shield"),
        ("throttling", ChangeKind::Policy, "proc/1"),
        ("services", ChangeKind::Service, "sshd.service"),
        ("swap", ChangeKind::Swap, "/dev/../etc/passwd"),
        ("workqueue-cpus", ChangeKind::File, "sys/devices/virtual/workqueue/a/b/cpumask"),
    ] {
        assert!(!owned(setting, kind, path), "{setting} {kind:?} {path}");
    }
}
