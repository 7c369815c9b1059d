//! Settings on a machine made of files. What fails does so for root too: a file of `/proc` that can be
//! opened but not written stands in for one that the kernel refuses to change.

mod kinds;
mod leftovers;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;
use crate::environment::fake::FakeTree;

const THROTTLING: &str = "proc/sys/kernel/sched_rt_runtime_us";
const MIGRATION: &str = "proc/sys/kernel/timer_migration";
const WATCHDOG: &str = "proc/sys/kernel/nmi_watchdog";
const HUGE: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const LATENCY: &str = "dev/cpu_dma_latency";

/// Read by anybody, written by nobody.
const REFUSES: &str = "/proc/version";

/// Above the highest process number there can be.
const NOBODY: &str = "4194999-1.jsonl";

struct Bench {
    fake: FakeTree,
    journals: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let fake = FakeTree::with_open_links();
        for (path, text) in
            [(THROTTLING, "950000"), (MIGRATION, "1"), (WATCHDOG, "1"), (HUGE, "madvise")]
        {
            fake.file(path, &format!("{text}\n"));
        }
        Bench { fake, journals: tempfile::tempdir().expect("a temporary folder") }
    }

    fn apply(&self, settings: &[(&str, &str)]) -> (Result<Applied, TuneError>, Vec<Event>) {
        let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let mut events = Vec::new();
        let applied = apply(&self.fake.tree, self.journals.path(), &settings, &mut |event| {
            events.push(event)
        });
        (applied, events)
    }

    fn applied(&self, settings: &[(&str, &str)]) -> Applied {
        self.apply(settings).0.expect("applied")
    }

    fn refused(&self, settings: &[(&str, &str)]) -> TuneError {
        self.apply(settings).0.expect_err("refused")
    }

    /// The names of journals, and what else lies in the folder, but the lock.
    fn journals(&self) -> Vec<String> {
        let mut names = Tree::under(self.journals.path()).list("");
        names.retain(|name| name != "lock");
        names
    }

    /// The journal of a process that is no more.
    fn left(&self, lines: &str) {
        fs::write(self.journals.path().join(NOBODY), lines).expect("a journal");
    }

    fn restore(&self) -> Vec<Restored> {
        restore_leftovers(&self.fake.tree, self.journals.path())
    }
}

fn line(setting: &str, path: &str, old: &str, new: &str) -> String {
    let change = Change::file(setting, path, old, new);
    serde_json::to_string(&change).expect("JSON") + "\n"
}

#[test]
fn settings_are_changed_journalled_and_restored_in_reverse() {
    let bench = Bench::new();
    let (applied, events) = bench.apply(&[("throttling", "off"), ("timer-migration", "off")]);
    let applied = applied.expect("applied");
    assert_eq!(bench.fake.read(THROTTLING), "-1");
    assert_eq!(bench.fake.read(MIGRATION), "0");
    let full = |path: &str| bench.fake.tree.path(path).display().to_string();
    let changed = |setting: &str, path: &str, from: &str, to: &str| Event::SettingChanged {
        setting: setting.to_owned(),
        path: full(path),
        from: from.to_owned(),
        to: to.to_owned(),
    };
    let expected = [
        changed("throttling", THROTTLING, "950000", "-1"),
        changed("timer-migration", MIGRATION, "1", "0"),
    ];
    assert_eq!(events, expected);

    let [name] = bench.journals().try_into().expect("one journal");
    let text = fs::read_to_string(bench.journals.path().join(name)).expect("a journal");
    let lines = line("throttling", THROTTLING, "950000", "-1")
        + &line("timer-migration", MIGRATION, "1", "0");
    assert!(text.starts_with("{\"boot\":") && text.ends_with(&lines), "{text}");

    let mut events = Vec::new();
    applied.restore(&mut |event| events.push(event));
    let restored = |setting: &str, path: &str, to: &str| Event::SettingRestored {
        setting: setting.to_owned(),
        path: full(path),
        to: to.to_owned(),
    };
    let expected =
        [restored("timer-migration", MIGRATION, "1"), restored("throttling", THROTTLING, "950000")];
    assert_eq!(events, expected);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.journals(), [""; 0]);
}

#[test]
fn dropping_restores() {
    let bench = Bench::new();
    drop(bench.applied(&[("throttling", "off"), ("thp", "never")]));
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.fake.read(HUGE), "madvise");
    assert_eq!(bench.journals(), [""; 0]);
}

#[test]
fn what_is_already_as_asked_is_left_alone() {
    let bench = Bench::new();
    // The brackets are the kernel's; a write would lose them here.
    bench.fake.file(HUGE, "always madvise [never]\n");
    let (applied, events) = bench.apply(&[("thp", "never"), ("throttling", "on")]);
    assert_eq!(events, []);
    assert_eq!(bench.journals(), [""; 0]);
    drop(applied);
    assert_eq!(bench.fake.read(HUGE), "always madvise [never]");
}

#[test]
fn a_write_that_fails_restores_what_was_done_before() {
    let bench = Bench::new();
    fs::remove_file(bench.fake.tree.path(MIGRATION)).expect("removed");
    bench.fake.link(MIGRATION, REFUSES);
    let (applied, events) =
        bench.apply(&[("thp", "never"), ("throttling", "off"), ("timer-migration", "off")]);
    let error = applied.expect_err("refused").to_string();
    assert!(error.contains("timer_migration"), "{error}");
    assert_eq!(bench.fake.read(HUGE), "madvise");
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.journals(), [""; 0]);
    let restored = events.iter().filter(|event| matches!(event, Event::SettingRestored { .. }));
    assert_eq!(restored.count(), 2);
}

#[test]
fn a_value_that_does_not_stay_is_an_error() {
    let bench = Bench::new();
    fs::remove_file(bench.fake.tree.path(MIGRATION)).expect("removed");
    // 0 stands for the usual slack, and reads as that.
    let slack = "/proc/self/timerslack_ns";
    fs::write(slack, "61000").expect("our own");
    bench.fake.link(MIGRATION, slack);
    let error = bench.refused(&[("throttling", "off"), ("timer-migration", "off")]);
    assert!(matches!(&error, TuneError::NotKept { asked, .. } if asked == "0"), "{error}");
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(fs::read_to_string(slack).expect("our own").trim(), "61000", "it is put back");
    fs::write(slack, "0").expect("our own");
}

#[test]
fn a_value_that_changed_since_it_was_looked_at_is_left_alone() {
    let bench = Bench::new();
    let settings = [("throttling", "off"), ("thp", "never")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    // As a service does that is stopped.
    let mut change = |event| {
        if let Event::SettingChanged { setting, .. } = event
            && setting == "throttling"
        {
            bench.fake.file(HUGE, "always\n");
        }
    };
    let applied = apply(&bench.fake.tree, bench.journals.path(), &settings, &mut change);
    let error = applied.expect_err("refused").to_string();
    assert!(error.contains("\"madvise\" at first and is \"always\" now"), "{error}");
    assert_eq!(
        (bench.fake.read(HUGE), bench.fake.read(THROTTLING)),
        ("always".into(), "950000".into())
    );
    assert_eq!(bench.journals(), [""; 0]);
}

#[test]
fn what_is_missing_or_wrong_changes_nothing() {
    let bench = Bench::new();
    let error = bench.refused(&[("governor", "performance"), ("throttling", "off")]);
    let text = error.to_string();
    assert!(text.contains("sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"), "{text}");
    let error = bench.refused(&[("throttling", "off"), ("throtling", "off")]).to_string();
    assert!(error.contains("did you mean \"throttling\"?"), "{error}");
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.journals(), [""; 0]);
}

#[test]
fn every_cpu_gets_its_governor() {
    let bench = Bench::new();
    let path = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    bench.fake.file(&path(0), "schedutil\n");
    bench.fake.file(&path(10), "powersave\n");
    // A CPU that is offline has no file.
    bench.fake.file("sys/devices/system/cpu/cpu2/online", "0\n");
    let applied = bench.applied(&[("governor", "performance")]);
    assert_eq!([0, 10].map(|cpu| bench.fake.read(&path(cpu))), ["performance"; 2]);
    drop(applied);
    assert_eq!([0, 10].map(|cpu| bench.fake.read(&path(cpu))), ["schedutil", "powersave"]);
}

#[test]
fn idle_states_deeper_than_one_are_forbidden_on_the_cpus_asked_for() {
    let bench = Bench::new();
    let path = |cpu: u32, state: u32| {
        format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable")
    };
    let all = [(0, 0), (0, 1), (0, 2), (3, 0), (3, 1)];
    for (cpu, state) in all {
        bench.fake.file(&path(cpu, state), if (cpu, state) == (0, 2) { "1\n" } else { "0\n" });
    }
    let states = || all.map(|(cpu, state)| bench.fake.read(&path(cpu, state))).join(" ");
    for (value, during) in [
        ("0", "0 1 1 0 1"),
        ("-1", "1 1 1 1 1"),
        ("-1@3", "0 0 1 1 1"),
        ("1", "0 0 1 0 0"),
        ("0@7", "0 0 1 0 0"),
    ] {
        let applied = bench.applied(&[("idle-state", value)]);
        assert_eq!(states(), during, "{value}");
        drop(applied);
        // What was forbidden before still is.
        assert_eq!(states(), "0 0 1 0 0", "{value}");
    }
}

#[test]
fn interrupts_that_cannot_be_steered_are_left_and_noted() {
    let bench = Bench::new();
    let path = |irq: u32| format!("proc/irq/{irq}/smp_affinity_list");
    bench.fake.file(&path(9), "0-3\n");
    bench.fake.link(&path(16), REFUSES);
    bench.fake.file("proc/irq/default_smp_affinity", "f\n");
    let (applied, events) = bench.apply(&[("irq-affinity", "1,0")]);
    assert_eq!(bench.fake.read(&path(9)), "0-1");
    let [Event::SettingChanged { to, .. }, Event::Found(note)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(to, "0-1");
    assert!(note.text.contains("1 of 2") && note.weight == Weight::Note, "{note:?}");
    drop(applied);
    assert_eq!(bench.fake.read(&path(9)), "0-3");

    fs::remove_file(bench.fake.tree.path(path(9))).expect("removed");
    let error = bench.refused(&[("irq-affinity", "0-1")]).to_string();
    assert!(error.contains("smp_affinity_list"), "{error}");
    assert_eq!(bench.journals(), [""; 0]);
}

#[test]
fn a_latency_is_held_without_a_journal() {
    let bench = Bench::new();
    bench.fake.bytes(LATENCY, &2_000_000_000_i32.to_ne_bytes());
    let (applied, events) = bench.apply(&[("dma-latency", "20")]);
    let held = fs::read(bench.fake.tree.path(LATENCY)).expect("a file");
    assert_eq!(held, 20_i32.to_ne_bytes());
    let [Event::SettingChanged { from, to, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((from.as_str(), to.as_str()), ("2000000000", "20"));
    assert_eq!(bench.journals(), [""; 0]);
    let mut events = Vec::new();
    applied.expect("applied").restore(&mut |event| events.push(event));
    assert!(matches!(events.as_slice(), [Event::SettingRestored { .. }]), "{events:?}");
}

#[test]
fn a_setting_that_another_run_holds_is_refused() {
    let bench = Bench::new();
    let first = bench.applied(&[("throttling", "off")]);
    // Even the same value: the first run will take it back.
    for value in ["off", "on"] {
        let error = bench.refused(&[("throttling", value)]);
        let own = std::process::id();
        assert!(matches!(&error, TuneError::Held { pid, .. } if *pid == own), "{error}");
    }
    assert_eq!(bench.restore(), []);
    assert_eq!(bench.fake.read(THROTTLING), "-1");
    drop(first);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    drop(bench.applied(&[("throttling", "off")]));
}

#[test]
fn an_ordinary_user_is_told_what_only_root_can_restore() {
    let bench = Bench::new();
    let left = || left_by_root(bench.journals.path()).expect("a folder");
    let (applied, _) = bench.apply(&[("throttling", "off")]);
    assert_eq!(left(), None, "the run that changed it lives");
    drop(applied);
    assert_eq!((bench.journals(), left()), (Vec::new(), None));
    bench.left("not for everybody to read");
    let text = left().expect("a journal");
    assert!(text.contains("has left settings changed") && text.contains("sudo"), "{text}");
    assert_eq!(left_by_root(&bench.journals.path().join("none")), Ok(None));
    // What can't be listed, whoever asks.
    let text = left_by_root(&bench.journals.path().join(NOBODY)).expect_err("no folder");
    assert!(text.contains("only root can see") && text.contains("sudo"), "{text}");
}

#[test]
fn who_holds_a_setting_is_named() {
    let bench = Bench::new();
    assert_eq!(holders(bench.journals.path()), []);
    bench.left("of nobody who lives");
    let (applied, _) = bench.apply(&[("throttling", "off"), ("timer-migration", "off")]);
    let [holder] = holders(bench.journals.path()).try_into().expect("one");
    assert_eq!(holder.pid, std::process::id());
    assert!(holder.to_string().contains("holds throttling, timer-migration and"), "{holder}");
    // Somebody else's pipe in a shared folder, by the name of a journal: reading it would never end.
    let journal = fs::read_dir(bench.journals.path()).expect("a folder").flatten();
    let own = journal.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{}-", std::process::id()))
    });
    let own = own.expect("the journal of this process");
    fs::remove_file(&own).expect("removed");
    assert!(Command::new("mkfifo").arg(&own).status().expect("mkfifo").success());
    assert_eq!(holders(bench.journals.path()), []);
    drop(applied);
    assert_eq!(holders(bench.journals.path()), []);
}

/// An older rtscope made the folder so that only root could look into it.
#[test]
fn a_closed_folder_of_journals_is_opened() {
    let bench = Bench::new();
    let mode =
        || fs::metadata(bench.journals.path()).expect("a folder").permissions().mode() & 0o777;
    fs::set_permissions(bench.journals.path(), fs::Permissions::from_mode(0o700)).expect("closed");
    assert_eq!(bench.restore(), []);
    assert_eq!(mode(), 0o755);
    fs::set_permissions(bench.journals.path(), fs::Permissions::from_mode(0o777)).expect("open");
    drop(bench.applied(&[("throttling", "off")]));
    assert_eq!(mode(), 0o755, "nobody else may write into it");
}

#[test]
fn a_folder_of_journals_that_is_not_ours_is_refused() {
    let bench = Bench::new();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let link = elsewhere.path().join("rtscope-0");
    std::os::unix::fs::symlink(bench.journals.path(), &link).expect("a link");
    let settings = [("throttling".to_owned(), "off".to_owned())].into();
    let refused = apply(&bench.fake.tree, &link, &settings, &mut |_| {}).expect_err("a link");
    assert!(refused.to_string().contains("not a folder of this user"), "{refused}");
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    // A journal of another user says what to write into the kernel: it is not read.
    if rtscope_sys::process::is_root() {
        bench.left(&line("throttling", THROTTLING, "1", "950000"));
        std::os::unix::fs::chown(bench.journals.path().join(NOBODY), Some(65_534), None)
            .expect("given");
        let [ignored] = bench.restore().try_into().expect("one");
        assert!(ignored.error.is_some_and(|why| why.contains("ignores it")));
        assert_eq!(bench.fake.read(THROTTLING), "950000");
    }
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let bench = Bench::new();
    let settings = BTreeMap::from([("throttling".to_owned(), "off".to_owned())]);
    let blocked = bench.fake.tree.path(THROTTLING).join("journals");
    let error = apply(&bench.fake.tree, &blocked, &settings, &mut |_| {}).expect_err("refused");
    assert!(matches!(error, TuneError::Journal { .. }), "{error}");
    assert_eq!(bench.fake.read(THROTTLING), "950000");
}

/// Set for the process that is killed: the folder of its machine and of its journals.
const VICTIM: &str = "RTSCOPE_TEST_TUNE_VICTIM";

#[test]
fn a_run_that_is_killed_is_restored_after() {
    if let Ok(folders) = std::env::var(VICTIM) {
        let (root, journals) = folders.split_once(':').expect("two folders");
        let settings = [("throttling", "off"), ("thp", "never")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = BTreeMap::from(settings);
        let applied = apply(&Tree::under(root), Path::new(journals), &settings, &mut |_| {});
        let _applied = applied.expect("applied");
        sleep(Duration::from_secs(60));
        panic!("nobody killed it");
    }
    let bench = Bench::new();
    let folders =
        format!("{}:{}", bench.fake.tree.path("").display(), bench.journals.path().display());
    let mut victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "tune::tests::a_run_that_is_killed_is_restored_after"])
        .env(VICTIM, folders)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    let started = Instant::now();
    // Throttling is applied first.
    while bench.fake.tree.read(HUGE).is_ok_and(|text| text != "never") {
        assert!(started.elapsed() < Duration::from_secs(30), "it never applied its settings");
        sleep(Duration::from_millis(5));
    }
    assert_eq!(bench.restore(), [], "it is alive");
    victim.kill().expect("killed");
    // Nobody has waited for it: the kernel still lists it, as dead.
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", victim.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    while !state() {
        assert!(started.elapsed() < Duration::from_secs(30), "it never died");
        sleep(Duration::from_millis(5));
    }
    let restored = bench.restore();
    assert!(restored.iter().all(|restored| restored.error.is_none()), "{restored:?}");
    assert_eq!(restored.len(), 2);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.fake.read(HUGE), "madvise");
    assert_eq!(bench.journals(), [""; 0]);
    victim.wait().expect("collected");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is asked and whichever file refuses, the machine is as before in the end.
    #[test]
    fn the_machine_is_always_as_before(
        throttling in proptest::option::of("off|on|[1-9][0-9]{3,5}"),
        thp in proptest::option::of("always|madvise|never"),
        migration in proptest::option::of("on|off"),
        watchdog in proptest::option::of("on|off"),
        broken in proptest::option::of(0usize..4),
    ) {
        let bench = Bench::new();
        let files = [THROTTLING, HUGE, MIGRATION, WATCHDOG];
        if let Some(broken) = broken {
            fs::remove_file(bench.fake.tree.path(files[broken])).expect("removed");
            bench.fake.link(files[broken], REFUSES);
        }
        let before = files.map(|path| bench.fake.read(path));
        let asked = [
            ("throttling", throttling),
            ("thp", thp),
            ("timer-migration", migration),
            ("nmi-watchdog", watchdog),
        ];
        let asked: Vec<(&str, &str)> =
            asked.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        let hits = broken.is_some_and(|broken| {
            let names = ["throttling", "thp", "timer-migration", "nmi-watchdog"];
            asked.iter().any(|(name, _)| *name == names[broken])
        });
        let (applied, _) = bench.apply(&asked);
        prop_assert_eq!(applied.is_err(), hits);
        drop(applied);
        prop_assert_eq!(files.map(|path| bench.fake.read(path)), before);
        prop_assert_eq!(bench.journals(), [""; 0]);
    }
}
