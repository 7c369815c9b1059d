//! `rtscope tune` on this machine, and on roots made of files.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use rtscope_model::doctor::SuggestionDocument;
use serde_json::Value;

use crate::{
    machine_state::{
        KEEP, differences, forget_a_killed_test, lasting_differences, state, swap_areas,
    },
    support::{
        folder, json, kill, output, refused, root_or_skip, rtscope, skip, start, text, wait_for,
        words,
    },
};

/// The last CPU, if there is another one; and whether a shield can be made here.
fn shieldable() -> Option<u32> {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let version_1 = Path::new("/sys/fs/cgroup/cpuset/tasks").exists();
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    (cpus > 1 && (version_1 || controllers.contains("cpuset"))).then(|| cpus - 1)
}

/// A run that is killed while everything is changed at once.
#[test]
fn a_killed_shield_is_restored_to_the_byte() {
    let test = "a_killed_shield_is_restored_to_the_byte";
    if !root_or_skip(test) {
        return;
    }
    let Some(cpu) = shieldable() else {
        return skip(test, "needs two CPUs and the cpuset controller");
    };
    let folder = folder();
    let before = state();
    let settings = format!(
        "shield={cpu} stat-interval=77 swappiness=11 thread-priority=fifo:7@ksoftirqd/* thread-affinity=0@kauditd"
    );
    let mut child = start(folder.path(), &format!("tune apply {settings} -- sleep 60"));
    wait_for("the shield", Duration::from_secs(30), || {
        let running =
            fs::read_to_string("/proc/sys/vm/swappiness").is_ok_and(|text| text == "11\n");
        let balance = fs::read_dir("/sys/fs/cgroup/cpuset/rtscope-shield");
        running && (balance.is_ok() || Path::new("/sys/fs/cgroup/rtscope-shield").exists())
    });
    std::thread::sleep(Duration::from_millis(300));
    let during = state();
    kill(child.id(), "KILL");
    child.wait().expect("ends");
    let restored = output(folder.path(), "tune restore");
    let left = lasting_differences(&before);
    let said = text(&restored.stderr);
    assert_eq!(restored.status.code(), Some(0), "{said}");
    let changed = differences(&before, &during);
    for part in ["smp_affinity_list", "stat_interval", "swappiness", "workqueue", "thread 1 "] {
        assert!(changed.iter().any(|one| one.contains(part)), "{part}: {changed:#?}");
    }
    assert_eq!(left, [""; 0]);
    let status = json(folder.path(), "tune status --json");
    assert_eq!(status["settings"], serde_json::json!([]));
}

#[test]
fn a_command_runs_inside_of_the_shield_and_its_code_is_ours() {
    let test = "a_command_runs_inside_of_the_shield_and_its_code_is_ours";
    if !root_or_skip(test) {
        return;
    }
    let Some(cpu) = shieldable() else {
        return skip(test, "needs two CPUs and the cpuset controller");
    };
    let (folder, before) = (folder(), state());
    let line = format!(
        "tune apply shield={cpu} -- sh -c 'grep Cpus_allowed_list /proc/self/status; exit 7'"
    );
    let ran = output(folder.path(), &line);
    let (out, said) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(7), "{said}");
    assert_eq!(out.trim(), format!("Cpus_allowed_list:\t{cpu}"), "{said}");
    assert!(said.contains("threads of the kernel that belong to CPU"), "{said}");
    // A run of ours measures inside of it, and stays outside with all else.
    let line =
        format!("run quick --duration 300ms --cpus {cpu} --set shield={cpu} --out run --json");
    let document = json(folder.path(), &line);
    assert_eq!(document["cells"][0]["cpus"][0]["cpu"].as_u64(), Some(u64::from(cpu)), "{document}");
    assert_eq!(lasting_differences(&before), [""; 0]);
}

#[test]
fn settings_are_kept_until_they_are_taken_back() {
    if !root_or_skip("settings_are_kept_until_they_are_taken_back") {
        return;
    }
    forget_a_killed_test();
    let folder = folder();
    let interval = || fs::read_to_string("/proc/sys/vm/stat_interval").expect("readable");
    let before = interval();
    let kept = output(folder.path(), KEEP);
    assert_eq!(kept.status.code(), Some(0), "{}", text(&kept.stderr));
    assert_eq!(interval(), "93\n");
    // Neither the next run nor `restore` takes it back.
    let run = output(folder.path(), "load cpu --duration 50ms");
    assert!(run.status.success(), "{}", text(&run.stderr));
    let none = output(folder.path(), "restore");
    assert!(text(&none.stdout).contains("no killed run"), "{}", text(&none.stdout));
    assert_eq!(interval(), "93\n");
    let status = json(folder.path(), "tune status --json");
    let one = &status["settings"][0];
    assert_eq!(
        (one["setting"].as_str(), one["state"].as_str()),
        (Some("stat-interval"), Some("kept"))
    );
    refused(folder.path(), "tune apply stat-interval=5 -- true", 1, &["rtscope tune restore"]);
    fs::write("/proc/sys/vm/stat_interval", "94").expect("written");
    let told = output(folder.path(), "tune status");
    assert_eq!(told.status.code(), Some(2));
    assert!(text(&told.stdout).contains("changed to 94 since"), "{}", text(&told.stdout));
    fs::write("/proc/sys/vm/stat_interval", "93").expect("written");
    let back = output(folder.path(), "tune restore");
    assert_eq!(back.status.code(), Some(0), "{}", text(&back.stderr));
    assert_eq!(interval(), before);
    assert!(text(&output(folder.path(), "tune status").stdout).contains("no setting is changed"));
}

/// Looks at what a dry run says, and that it did nothing.
#[test]
fn a_dry_run_shows_from_what_to_what() {
    let (folder, before) = (folder(), state());
    let shown = output(folder.path(), "tune apply --dry-run stat-interval=93 thp=never");
    let out = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert!(out.contains("/proc/sys/vm/stat_interval: ") && out.contains(" -> 93"), "{out}");
    assert!(out.contains("Nothing was changed"), "{out}");
    assert_eq!(differences(&before, &state()), [""; 0]);
}

#[test]
fn wrong_input_is_said_clearly() {
    let folder = folder();
    let usage = [
        ("tune apply", "name at least one setting"),
        ("tune apply -- true", "name at least one setting"),
        ("tune apply throttling", "write it as throttling=off"),
        ("tune apply throtling=off", "did you mean \"throttling\"?"),
        ("tune apply throttling=of", "did you mean \"off\"?"),
        ("tune apply thp=never thp=always", "thp is set twice"),
        ("tune apply swappiness=201", "a number, 0 to 200"),
        ("tune apply stat-interval=0", "a time in s, 1 to 86400"),
        ("tune apply swap=on", "is not a valid value for swap: use off"),
        ("tune apply --dry-run shield=0-9999", "not online"),
        ("tune apply --dry-run shield=x", "is not a valid value for shield"),
        ("tune apply --dry-run irq-affinity=9999", "is not online"),
        ("tune apply --dry-run irq-affinity=0@99999", "there is no interrupt 99999"),
        ("tune apply --dry-run irq-affinity=0@nosuchcard", "no interrupt or device is called"),
        ("tune apply --dry-run thread-priority=fifo:50@nosuch*", "no kernel thread is called"),
        (
            "tune apply --dry-run thread-priority=fifo:100@ksoftirqd/0",
            "is not a valid value for thread-priority",
        ),
        ("tune apply --dry-run thread-priority=fifo:50", "a policy and a pattern"),
        (
            "tune apply --dry-run thread-affinity=@ksoftirqd/0",
            "is not a valid value for thread-affinity",
        ),
        ("tune apply --dry-run services=sshd", "is not a valid value for services"),
        ("tune apply --dry-run workqueue-cpus=9999", "not online"),
        ("tune apply --dry-run idle-latency=-1", "a latency in us"),
        ("tune apply --keep dma-latency=0", "lasts only while a program holds it"),
        ("tune apply --boot isolcpu=1", "did you mean isolcpus?"),
        ("tune apply --boot isolcpus=x", "takes a set of CPUs"),
        ("tune apply --boot isolcpus=9999", "this machine has CPUs"),
        ("tune apply --boot isolcpus=0-9999", "this machine has CPUs"),
        ("tune apply --root nosuch --boot threadirqs", "no such folder"),
        ("tune apply --root . throttling=off", "add --persist"),
        ("tune apply --keep throttling=off -- true", "cannot be used with"),
        ("tune restore --root .", "add --persist or --boot"),
        ("tune restore --force", "--persist"),
        ("tune suggest --cpus 9999", "this machine has CPUs"),
        ("tune suggest --deadline 20s", "from 1us to 10s"),
        ("tune suggest --for audo", "audio"),
        ("tune aply throttling=off", "apply"),
    ];
    for (line, said) in usage {
        refused(folder.path(), line, 64, &[said]);
    }
    for (line, said) in [
        ("tune apply --root . --boot threadirqs", 64, "no boot loader that rtscope knows"),
        ("tune apply --root . --boot threadirqs --layout grub", 64, "is the layout right?"),
        ("tune apply --root . --persist throttling=off", 1, "isn't there: copy rtscope"),
    ]
    .map(|(line, code, said)| ((line, code), said))
    {
        refused(folder.path(), line.0, line.1, &[said]);
    }
}

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_card_gets_settings_and_parameters_and_loses_them_again() {
    let folder = folder();
    let card = folder.path().join("card");
    file(&card, "boot/firmware/config.txt", "dtparam=audio=on\n");
    file(&card, "boot/firmware/cmdline.txt", "console=tty1 root=PARTUUID=7-02 isolcpus=1\n");
    file(&card, "boot/firmware/kernel8.img", "image");
    file(&card, "usr/lib/systemd/systemd", "");
    file(&card, "usr/bin/rtscope", "");
    let line = "tune apply --root card --boot isolcpus=2-3 --boot threadirqs --persist throttling=off thp=never";
    let shown = said(&output(folder.path(), &format!("{line} --dry-run")));
    assert!(shown.contains("-> console=tty1") || shown.contains("->: console=tty1"), "{shown}");
    assert!(
        shown.contains("  ExecStart=/usr/bin/rtscope tune apply --keep thp=never throttling=off\n")
            && shown.contains("Would link card/etc/systemd/system/multi-user.target.wants/"),
        "{shown}"
    );
    assert!(!card.join("etc").exists(), "a dry run writes nothing");
    let done = said(&output(folder.path(), line));
    assert!(
        done.contains("isolcpus=2-3 threadirqs") && done.contains("rtscope-tune.service"),
        "{done}"
    );
    let unit =
        fs::read_to_string(card.join("etc/systemd/system/rtscope-tune.service")).expect("a unit");
    assert!(
        unit.contains("ExecStart=/usr/bin/rtscope tune apply --keep thp=never throttling=off"),
        "{unit}"
    );
    let new =
        fs::read_to_string(card.join("boot/firmware/rtscope-parameters.txt")).expect("a line");
    assert_eq!(new, "console=tty1 root=PARTUUID=7-02 isolcpus=2-3 threadirqs\n");
    file(&card, "etc/systemd/system/rtscope-tune.service", &unit.replace("never", "always"));
    refused(folder.path(), "tune restore --root card --persist", 1, &["was edited", "--force"]);
    let back = said(&output(folder.path(), "tune restore --root card --persist --boot --force"));
    assert!(
        back.contains("removed ") && back.contains("without isolcpus=2-3 threadirqs"),
        "{back}"
    );
    let config = fs::read_to_string(card.join("boot/firmware/config.txt")).expect("a file");
    assert_eq!(config, "dtparam=audio=on\n");
    assert!(!card.join("boot/firmware/rtscope-parameters.txt").exists());
    assert!(!card.join("etc/systemd/system/rtscope-tune.service").exists());
    let none = said(&output(folder.path(), "tune restore --root card --persist --boot"));
    assert!(
        none.contains("no settings are permanent") && none.contains("no boot parameters"),
        "{none}"
    );
}

/// What is suggested for a captured machine can be typed as it is: every setting and value is one that `tune apply`
/// reads.
#[test]
fn every_suggestion_is_a_setting_with_a_value() {
    let room = folder();
    let mut settings = 0;
    for machine in crate::collect::machines() {
        let root = crate::collect::unpack(&machine, room.path());
        let line = format!("tune suggest --json --deadline 1us --root {}", root.display());
        let found = output(room.path(), &line);
        let found: SuggestionDocument =
            serde_json::from_slice(&found.stdout).unwrap_or_else(|error| {
                panic!("{line}: {error}: {}", text(&found.stderr));
            });
        for one in &found.suggestions {
            assert!(!one.cost.is_empty(), "{one:?}");
            assert!(one.by_hand.is_some() != one.command.is_some(), "{one:?}");
            let place = format!("--root {}", root.display());
            assert!(one.command.as_ref().is_none_or(|typed| typed.contains(&place)), "{one:?}");
            for setting in &one.settings {
                rtscope_measure::tune::check(&setting.name, &setting.value).expect("a setting");
                settings += 1;
            }
        }
        let shown = said(&output(room.path(), &format!("tune suggest --root {}", root.display())));
        assert!(shown.contains("real-time threads on CPU"), "{shown}");
    }
    assert!(settings > 20, "{settings}");
}

#[test]
fn cpus_that_the_user_names_are_shielded() {
    if std::thread::available_parallelism().map_or(1, |count| count.get()) < 2 {
        return skip("cpus_that_the_user_names_are_shielded", "needs two CPUs");
    }
    let folder = folder();
    let found = json(folder.path(), "tune suggest --cpus 1 --json");
    let command = found["command"].as_str().expect("a command");
    assert!(command.contains(" shield=1"), "{command}");
    let line = found["boot_line"].as_str().expect("a line");
    assert!(line.contains("isolcpus=") && line.contains("irqaffinity="), "{line}");
}

#[test]
fn settings_are_tried_in_turn_and_nothing_stays_changed() {
    if !root_or_skip("settings_are_tried_in_turn_and_nothing_stays_changed") {
        return;
    }
    let (folder, before) = (folder(), state());
    let plan = "name = \"busy\"\n[[phase]]\nname = \"busy\"\nduration = \"1s\"\nload = [\"message groups=1\"]\n";
    fs::write(folder.path().join("busy.toml"), plan).expect("written");
    let now = fs::read_to_string("/proc/sys/vm/stat_interval").expect("a setting");
    let words = format!(
        "tune try busy.toml --quiet --budget 44s --try 'timer-migration=off stat-interval=93' --try stat-interval={} \
         --out tried --cpus 0",
        now.trim()
    );
    let words = words.as_str();
    let tried = output(folder.path(), words);
    assert!(matches!(tried.status.code(), Some(0 | 3)), "{}", text(&tried.stderr));
    assert!(differences(&before, &state()).is_empty());
    let document: Value = serde_json::from_slice(
        &fs::read(folder.path().join("tried/trials.json")).expect("written"),
    )
    .expect("a document");
    let trials = document["alone"]["trials"].as_array().expect("trials");
    let rounds = document["alone"]["blocks"].as_u64().expect("rounds");
    assert!(rounds >= 4 && rounds.is_multiple_of(2) && trials.len() == 1);
    assert_eq!(document["not_tried"][0]["why"], "it is already set");
    for trial in trials {
        assert_eq!(trial["blocks"], rounds, "{trial}");
        let loads: Vec<&str> = trial["figures"]
            .as_array()
            .expect("figures")
            .iter()
            .filter_map(|it| it["load"].as_str())
            .collect();
        assert_eq!(loads, ["busy"]);
        assert!(
            trial["costs"][0]["what"]
                .as_str()
                .is_some_and(|what| what.starts_with("work of message"))
        );
    }
    // The record has each cell, and each of them under the settings of its turn.
    let plan = fs::read_to_string(folder.path().join("tried/alone/plan.toml")).expect("a plan");
    let cells = plan.matches("[[phase]]").count() as u64;
    assert_eq!(cells, rounds * (1 + trials.len() as u64));
    assert!(folder.path().join("tried/index.html").exists());
}

/// A setting that was refused in a late round threw away all that was measured before.
#[test]
fn a_trial_that_fails_midway_tells_what_it_measured() {
    if !root_or_skip("a_trial_that_fails_midway_tells_what_it_measured") {
        return;
    }
    let (folder, before) = (folder(), state());
    let plan = "name = \"rest\"\n[[phase]]\nname = \"rest\"\nduration = \"1s\"\n";
    fs::write(folder.path().join("rest.toml"), plan).expect("written");
    let trying =
        "tune try rest.toml --quiet --budget 30s --try stat-interval=93 --out tried --cpus 0";
    let mut trial = start(folder.path(), trying);
    let events = folder.path().join("tried/alone/events.jsonl");
    wait_for("two rounds", Duration::from_secs(40), || {
        let events = fs::read_to_string(&events).unwrap_or_default();
        events.matches("\"phase-ended\"").count() >= 4
    });
    // Refused while the trial has it, and taken as soon as the system is as found.
    let other = "tune apply stat-interval=77 -- sleep 60";
    let mut holder = start(folder.path(), other);
    let value = || fs::read_to_string("/proc/sys/vm/stat_interval").unwrap_or_default();
    wait_for("another holder", Duration::from_secs(20), || {
        if holder.try_wait().expect("started").is_some() {
            holder = start(folder.path(), other);
        }
        value() == "77\n"
    });
    let status = trial.wait().expect("ends");
    kill(holder.id(), "TERM");
    holder.wait().expect("ends");
    assert_eq!(status.code(), Some(3), "nothing is shown to help");
    let document =
        fs::read(folder.path().join("tried/trials.json")).expect("what was measured is told");
    let document: Value = serde_json::from_slice(&document).expect("a document");
    let alone = &document["alone"];
    assert!(alone["blocks"].as_u64().is_some_and(|blocks| (2..4).contains(&blocks)), "{alone}");
    let findings = alone["findings"].as_array().expect("findings");
    let failure = findings.iter().find(|one| one["code"] == "trial-failed").expect("a finding");
    assert!(
        failure["text"].as_str().is_some_and(|text| text.contains("stat-interval is held by")),
        "{failure}"
    );
    assert!(differences(&before, &state()).is_empty());
}

/// The first Ctrl-C ended COMMAND by a SIGTERM, also a debugger that only stops its program then.
#[test]
fn ctrl_c_is_for_the_command_and_sigterm_is_sent_on() {
    if !root_or_skip("ctrl_c_is_for_the_command_and_sigterm_is_sent_on") {
        return;
    }
    let (folder, before) = (folder(), state());
    let script = "trap \"echo int >> signals\" INT; trap \"echo term >> signals; exit 9\" TERM; \
                  echo ready >> signals; while :; do sleep 0.05; done";
    let mut command = rtscope(folder.path());
    command.args(words(&format!("tune apply stat-interval=93 -- sh -c '{script}'")));
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().expect("starts");
    let signals =
        || fs::read_to_string(folder.path().join("signals")).unwrap_or_default().replace('\n', " ");
    wait_for("the command", Duration::from_secs(20), || signals() == "ready ");
    for expected in ["ready int ", "ready int int "] {
        // As a terminal does: to all of the foreground.
        let group = format!("-{}", child.id());
        Command::new("kill").args(["-INT", "--", &group]).status().expect("sent");
        wait_for("the signal", Duration::from_secs(20), || signals().starts_with(expected));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(signals(), expected);
        assert!(child.try_wait().expect("started").is_none(), "it goes on");
    }
    kill(child.id(), "TERM");
    assert_eq!(child.wait().expect("ends").code(), Some(9));
    assert_eq!(signals(), "ready int int term ");
    assert!(differences(&before, &state()).is_empty());
}

#[test]
fn a_trial_refuses_what_it_can_t_try() {
    let folder = folder();
    for (words, code, said) in [
        ("tune try --try throtling=off", 64, "did you mean \"throttling\"?"),
        ("tune try --try thp=never --try thp=never", 64, "given twice"),
        ("tune try --try ''", 64, "name a setting"),
        ("tune try --try thp=never --set thp=always", 64, "is set by the plan or by --set"),
        ("tune try --try thp=never --budget 5s", 64, "raise --budget"),
        ("tune try --try thp=never --duration 5s", 64, "--budget sets how long it takes"),
        (
            "tune try --try thp=never --until 'max < 1ms once in 1h'",
            64,
            "--budget sets how long it takes",
        ),
        ("tune try --try thp=never --require 'lost = 0'", 64, "lost needs frames"),
        ("lab tune --kernel debian-stock --require 'late = 0'", 64, "late needs frames"),
        ("lab tune --kernel debian-stock --try a:b", 64, "a space between parameters"),
        ("lab tune --kernel debian-stock --try nohz=off --try nohz=off", 64, "given twice"),
        ("lab tune --kernel debian-stock --seeds 2", 64, "5..=1000"),
    ] {
        refused(folder.path(), words, code, &[said]);
    }
}

/// Two swap areas whose priorities the kernel chose. They come back in their order.
#[test]
fn swap_areas_are_used_again_as_before() {
    let folder = folder();
    let before = swap_areas();
    let areas = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
    let run = |program: &str, words: &[&str]| {
        Command::new(program).args(words).output().is_ok_and(|done| done.status.success())
    };
    for area in &areas {
        fs::write(area, vec![0; 1 << 20]).expect("written");
        fs::set_permissions(area, fs::Permissions::from_mode(0o600)).expect("set");
    }
    let used = areas.each_ref().map(|area| run("mkswap", &[area]) && run("swapon", &[area]));
    let found = swap_areas();
    let ran = output(folder.path(), "tune apply swap=off -- cat /proc/swaps");
    let after = swap_areas();
    for area in &areas {
        run("swapoff", &[area]);
    }
    if used != [true; 2] {
        return skip("swap_areas_are_used_again_as_before", "needs a file system with swap files");
    }
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(!text(&ran.stdout).contains(&areas[0]), "{}", text(&ran.stdout));
    assert!(!text(&ran.stderr).contains("not restored"), "{}", text(&ran.stderr));
    let order = |text: &str| {
        let line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Some((words.last()?.parse::<i32>().ok()?, words.first()?.to_string()))
        };
        let mut lines: Vec<_> = text.lines().filter_map(line).collect();
        lines.sort();
        lines
    };
    assert_eq!(order(&after), order(&found));
    assert_eq!(swap_areas(), before);
}
