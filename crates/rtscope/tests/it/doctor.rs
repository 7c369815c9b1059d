//! `rtscope doctor` and `rtscope collect` on trees of machines in `fixtures/doctor`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::OnceLock,
};

use rtscope_analyse::doctor::{PURPOSES, Purpose, against, codes, diagnose};
use rtscope_measure::doctor::collect;
use rtscope_model::{
    doctor::{DoctorDocument, FileReading, MachineFacts, Readiness, Severity},
    environment::{InterruptPacing, NetworkCard},
};
use rtscope_sys::tree::Tree;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    collect::{machines, unpack},
    support::{folder as room, output, text},
};

/// The folder of a machine, unpacked. `fixtures/doctor/README.md` has the format.
fn folder(name: &str) -> PathBuf {
    static ALL: OnceLock<TempDir> = OnceLock::new();
    ALL.get_or_init(unpacked).path().join(name)
}

fn unpacked() -> TempDir {
    let all = room();
    for machine in machines() {
        let _ = unpack(&machine, all.path());
    }
    all
}

fn facts(name: &str) -> MachineFacts {
    collect(&Tree::under(folder(name)))
}

/// Every tree with its facts.
fn trees() -> BTreeMap<String, MachineFacts> {
    let entries = fs::read_dir(folder("")).expect("trees").flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut all: BTreeMap<String, MachineFacts> = folders
        .map(|entry| entry.file_name().into_string().expect("a name"))
        .map(|name| (name.clone(), facts(&name)))
        .collect();
    // A folder can't answer what only a system call tells.
    let mut card = facts("server-isolated");
    let pacing = Some(InterruptPacing { receive_us: 50, ..InterruptPacing::default() });
    card.environment.network = vec![NetworkCard { name: "eno1".to_owned(), driver: None, pacing }];
    all.insert("a card that gathers packets".to_owned(), card);
    let mut balanced = facts("server-isolated");
    let line = &mut balanced.environment.kernel.cmdline;
    *line = line.replace("irqaffinity=0-3", "irqaffinity=0-2");
    balanced.services.push("irqbalance".to_owned());
    all.insert("irqbalance beside irqaffinity=".to_owned(), balanced);
    all
}

/// Examined for a deadline so short that everything matters.
fn examined(facts: &MachineFacts) -> DoctorDocument {
    diagnose(facts, &PURPOSES[0], 1_000, "test")
}

fn found(facts: &MachineFacts) -> BTreeSet<String> {
    examined(facts).findings.into_iter().map(|finding| finding.code).collect()
}

#[test]
fn every_rule_has_a_tree_in_which_it_fires_and_one_in_which_it_does_not() {
    let all: BTreeMap<String, BTreeSet<String>> =
        trees().into_iter().map(|(name, facts)| (name, found(&facts))).collect();
    let mut wrong = Vec::new();
    for code in codes() {
        let fires = all.values().filter(|found| found.contains(code)).count();
        if fires == 0 || fires == all.len() {
            wrong.push(format!("{code} fires in {fires} of {} trees", all.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unique: BTreeSet<&str> = codes().collect();
    assert_eq!(unique.len(), codes().count(), "a code is there twice");
}

#[test]
fn the_guide_lists_every_rule_and_every_purpose() {
    let guide = include_str!("../../../../docs/guide/doctor.md");
    let is_row = |line: &&str| line.starts_with("| `") && !line.starts_with("| `--");
    let rows: Vec<&str> = guide.lines().filter(is_row).collect();
    let listed = |name: &str| rows.iter().any(|row| row.starts_with(&format!("| `{name}` |")));
    let purposes = PURPOSES.iter().map(|purpose| purpose.name);
    let missing: Vec<&str> = codes().chain(purposes.clone()).filter(|name| !listed(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(rows.len(), codes().count() + purposes.count());
}

#[test]
fn every_finding_says_what_it_saw_why_it_matters_and_what_to_do() {
    for (name, facts) in trees() {
        for finding in examined(&facts).findings {
            let code = format!("{name}: {}", finding.code);
            assert!(!finding.found.is_empty(), "{code}");
            for text in [&finding.text, &finding.why, &finding.mend, &finding.cost] {
                assert!(
                    !text.is_empty() && !text.contains('\n') && !text.ends_with('.'),
                    "{code}: {text:?}"
                );
            }
        }
    }
}

#[test]
fn machines_that_are_set_up_well_have_no_finding() {
    for name in ["server-isolated", "raspberry-pi-5-rt"] {
        assert_eq!(found(&facts(name)), BTreeSet::new(), "{name}");
        assert_eq!(examined(&facts(name)).readiness, Readiness::Ready, "{name}");
    }
}

#[test]
fn contradictions_are_found_on_the_server_that_has_them() {
    assert!(found(&facts("ti-am65-rt")).contains("priority-above-servers"));
    let found = found(&facts("server-contradictions"));
    for code in [
        "irqaffinity-over-isolated",
        "irqs-on-isolated",
        "governor-set-back",
        "cmdline-repeated",
        "isolated-shares-core",
    ] {
        assert!(found.contains(code), "{code}: {found:?}");
    }
}

#[test]
fn a_mainline_real_time_kernel_is_recognised_without_its_name_and_a_name_is_not_enough() {
    let pi = examined(&facts("raspberry-pi-5-rt")).preemption;
    assert_eq!((pi.real_time.len(), pi.not_real_time.len()), (3, 0), "{pi:?}");
    let other = examined(&facts("raspberry-pi-4")).preemption;
    assert_eq!((other.real_time.len(), other.not_real_time.len()), (0, 3), "{other:?}");
    assert!(found(&facts("raspberry-pi-4")).contains("kernel-name-lies"));
}

/// What to do about a finding, and what it says.
fn told(facts: &MachineFacts, code: &str) -> (String, String) {
    let findings = examined(facts).findings;
    let finding = findings.into_iter().find(|finding| finding.code == code).expect(code);
    (finding.text, finding.mend)
}

/// A machine with another text in one of its files.
fn with_file(name: &str, path: &str, content: &str) -> MachineFacts {
    let mut facts = facts(name);
    facts.files.insert(path.to_owned(), FileReading::Text(content.to_owned()));
    facts
}

#[test]
fn the_running_kernel_counts_more_than_a_file_in_boot() {
    let document = examined(&facts("server-contradictions"));
    assert_eq!(document.preemption.model, "PREEMPT_RT not confirmed");
    let found = found(&facts("server-contradictions"));
    for code in ["kernel-not-rt", "rt-sources-disagree", "kernel-name-lies"] {
        assert!(found.contains(code), "{code}: {found:?}");
    }
}

#[test]
fn a_real_time_kernel_needs_no_preempt_parameter() {
    let mut pi = facts("raspberry-pi-5-rt");
    pi.environment.kernel.cmdline += " preempt=full";
    assert!(!found(&pi).contains("preempt-not-applied"));
    assert!(found(&facts("guest-armhf-neglected")).contains("preempt-not-applied"));
}

#[test]
fn a_line_to_write_does_not_keep_the_parameter_that_is_wrong() {
    let server = facts("server-contradictions");
    let (_, mend) = told(&server, "irqaffinity-over-isolated");
    assert!(mend.contains("irqaffinity=0-3") && !mend.contains("irqaffinity=0-7"), "{mend}");
    assert_eq!(
        told(&server, "cmdline-absent-cpus").1,
        "change rcu_nocbs=12-15 in /etc/default/grub so that it names only CPUs 0-7, run update-grub, and reboot"
    );
    let (text, mend) = told(&server, "clock-source-not-applied");
    assert!(text.contains("tsc=reliable"), "{text}");
    assert!(mend.ends_with(
        "or remove tsc=reliable from the kernel command line in /etc/default/grub, run update-grub, and reboot"
    ));
    let mut chosen = server;
    chosen.environment.kernel.cmdline += " clocksource=hpet";
    assert!(!found(&chosen).contains("clock-source-not-applied"));
}

#[test]
fn a_parameter_is_proposed_only_to_a_kernel_that_is_built_for_it() {
    let (text, mend) = told(&facts("guest-armhf-neglected"), "nothing-isolated");
    assert_eq!(text, "none of the CPUs 0-1 is isolated");
    assert!(!mend.contains("nohz_full") && !mend.contains("rcu_nocbs"), "{mend}");
    assert!(mend.contains("CONFIG_CPU_ISOLATION=y"), "{mend}");
    let (_, mend) = told(&facts("guest-armhf-neglected"), "kernel-not-rt");
    assert!(mend.ends_with(" linux-image-rt-armmp"), "{mend}");
}

#[test]
fn callbacks_of_cpus_without_a_tick_are_offloaded_since_linux_4_14() {
    let code = "nohz-full-without-rcu-nocbs";
    let mut old = facts("cgroup-v1");
    assert_eq!(told(&old, code).0, "CPU 1 is in nohz_full= but not in rcu_nocbs=");
    old.environment.kernel.release = "4.14.336".to_owned();
    assert!(!found(&old).contains(code) && !found(&facts("server-contradictions")).contains(code));
}

#[test]
fn a_quota_is_lifted_by_the_word_of_its_version() {
    let quota = "sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_quota_us";
    let (_, mend) = told(&facts("cgroup-v1"), "cgroup-quota");
    assert!(mend.starts_with(&format!("echo -1 > /{quota}")), "{mend}");
    let new = with_file("server-isolated", "sys/fs/cgroup/user.slice/cpu.max", "50000 100000");
    assert!(told(&new, "cgroup-quota").1.starts_with("echo max > /"));
}

#[test]
fn limits_for_everyone_name_no_group() {
    let path = "etc/security/limits.d/a.conf";
    let told =
        |line: &str| told(&with_file("guest-armhf-neglected", path, line), "limits-not-in-force");
    let (text, mend) = told("* - rtprio 99");
    assert_eq!(
        text,
        "/etc/security/limits.d/a.conf allows real-time threads to everyone, but the limit isn't in effect in this login"
    );
    assert!(mend.contains("pam_limits") && !mend.contains("usermod"), "{mend}");
    assert!(told("@audio - rtprio 95").1.starts_with("usermod -aG audio USER; "));
    assert!(!told("alice - rtprio 95").1.contains("usermod"));
}

#[test]
fn no_thread_is_told_to_be_above_priority_99() {
    let server = facts("server-contradictions");
    let (_, mend) = told(&server, "other-rt-threads");
    assert!(mend.contains("--set 812 --policy rr:40") && !mend.contains("higher"), "{mend}");
    let (text, mend) = told(&server, "priority-99");
    assert!(mend.contains("--set 813 --policy rr:90"), "{mend}");
    assert!(!text.contains("812"), "told of in other-rt-threads: {text}");
}

#[test]
fn the_interval_of_hardware_checks_is_decimal() {
    let (text, _) = told(&facts("server-contradictions"), "machine-check-poll");
    assert_eq!(text, "each CPU polls for corrected hardware errors every 300 s");
}

#[test]
fn the_reason_and_the_words_fit_what_was_found() {
    let mut server = facts("server-contradictions");
    let why = |facts: &MachineFacts| {
        let findings = examined(facts).findings;
        findings.into_iter().find(|one| one.code == "clock-source-slow").expect("slow").why
    };
    assert!(why(&server).contains("accesses a device"));
    server.environment.clock.current = Some("jiffies".to_owned());
    assert_eq!(why(&server), "this clock advances only at ticks");
    server.smi_counts = [(4, 1)].into();
    let text = told(&server, "smi-counted").0;
    let start = "CPU 4 counted 1 system management interrupt (SMI) since its reset, ";
    assert!(text.starts_with(start), "{text}");
    server.environment.kernel.cmdline = "console=ttyS0".to_owned();
    for (level, last) in [("7", "info"), ("8", "debug")] {
        server.environment.sysctl.insert("kernel/printk".to_owned(), level.to_owned());
        assert_eq!(
            told(&server, "serial-console-verbose").0,
            format!("kernel messages up to {last} go to the serial console ttyS0")
        );
    }
}

#[test]
fn a_service_that_leaves_the_governor_alone_is_no_finding() {
    let mut server = facts("server-isolated");
    server.services.push("thermald.service".to_owned());
    assert!(!found(&server).contains("governor-set-back"));
    server.services.push("tlp.service".to_owned());
    assert_eq!(
        told(&server, "governor-set-back").0,
        "tlp.service can change the frequency governor"
    );
}

#[test]
fn the_line_to_write_is_that_of_the_boot_loader() {
    let mend = |tree: &str, code: &str| {
        let findings = examined(&facts(tree)).findings;
        findings.into_iter().find(|finding| finding.code == code).expect(code).mend
    };
    assert!(mend("guest-cloud-neglected", "nothing-isolated").starts_with(
        "in /etc/default/grub: GRUB_CMDLINE_LINUX_DEFAULT=\"quiet threadirqs isolcpus=managed_irq,domain,2-3"
    ));
    assert!(mend("raspberry-pi-4", "irqs-not-threaded").contains("/boot/firmware/cmdline.txt"));
    assert!(mend("bone-parameters-ignored", "irqs-not-threaded").contains("/boot/uEnv.txt"));
    assert!(mend("ti-am65-rt", "nothing-isolated").contains("/boot/extlinux/extlinux.conf"));
    assert!(mend("all-isolated", "irqs-not-threaded").contains("/etc/kernel/cmdline"));
}

#[test]
fn a_purpose_leaves_out_what_it_does_not_need_and_a_deadline_ranks() {
    let desktop = facts("guest-cloud-neglected");
    let codes_for = |name: &str, deadline_ns: u64| {
        let purpose = Purpose::named(name).expect("a purpose");
        let document = diagnose(&desktop, purpose, deadline_ns, "test");
        let severity = |code: &str| {
            document
                .findings
                .iter()
                .find(|finding| finding.code == code)
                .map(|finding| finding.severity)
        };
        (severity("nothing-isolated"), severity("numa-balancing"), severity("fair-server-on"))
    };
    let polling = Some(Severity::High);
    assert_eq!(codes_for("5g", 20_000), (Some(Severity::High), Some(Severity::High), polling));
    // 100 us of 2.6 ms.
    assert_eq!(codes_for("audio", 2_600_000), (None, Some(Severity::Low), Some(Severity::Low)));
    // 20 us of 1 ms.
    assert_eq!(codes_for("general", 1_000_000).0, Some(Severity::Low));
    assert_eq!(codes_for("general", 10_000_000).0, None);
}

#[test]
fn two_machines_are_compared_by_findings_and_by_facts() {
    let (good, bad) = (facts("server-isolated"), facts("server-contradictions"));
    let apart = against::apart(&examined(&good), &examined(&bad));
    assert!(
        apart.only_here.is_empty() && apart.only_there.contains(&"irqs-on-isolated".to_owned())
    );
    let clock = apart.facts.iter().find(|fact| fact.what == "clock.current").expect("differs");
    assert_eq!((clock.here.as_deref(), clock.there.as_deref()), (Some("tsc"), Some("hpet")));
    assert_eq!(
        against::apart(&examined(&good), &examined(&good)),
        against::MachinesApart::default()
    );
}

/// Runs the program on a tree; its exit code and what it prints.
fn run(words: &str, tree: &str) -> (Option<i32>, String) {
    let room = room();
    let out = output(room.path(), &format!("{words} --root {}", folder(tree).display()));
    (out.status.code(), text(&out.stdout))
}

#[test]
fn what_is_collected_is_judged_the_same_elsewhere() {
    let room = room();
    let tree = folder("server-contradictions");
    let said = |words: &str| {
        let out = output(room.path(), words);
        (out.status.code(), text(&out.stdout))
    };
    let (code, words) = said(&format!("collect --root {} --out machine.json", tree.display()));
    assert!(code == Some(0) && words.starts_with("machine.json"), "{words}");
    let here = said(&format!("doctor --root {} --all", tree.display()));
    assert_eq!((said("doctor --from machine.json --all"), here.0), (here.clone(), Some(2)));
    let (_, compared) = said(&format!("doctor --root {} --against machine.json", tree.display()));
    assert!(compared.contains("findings only here: none"), "{compared}");
}

#[test]
fn the_exit_code_says_whether_the_machine_is_ready() {
    assert_eq!(run("doctor", "server-isolated").0, Some(0));
    let (code, text) = run("doctor --for ethercat --deadline 200us", "server-contradictions");
    assert!(code == Some(2) && text.starts_with("not ready for a deadline of 200 us"), "{text}");
    let (code, text) = run("doctor --json", "server-isolated/etc");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, document["readiness"].as_str()), (Some(3), Some("not-known")));
    assert_eq!(run("doctor", "no-such-machine").0, Some(64));
    assert_eq!(run("doctor --deadline 100ns", "server-isolated").0, Some(64));
}

#[test]
fn one_screen_shows_the_worst_five() {
    let (_, text) = run("doctor", "server-contradictions");
    assert_eq!(text.matches("\n  -> ").count(), 5, "{text}");
    assert!(text.lines().count() <= 30 && text.contains("rtscope doctor --all"), "{text}");
    // The rest is that of the same question.
    let (_, text) = run("doctor --for ethercat --deadline 300us", "server-contradictions");
    let all = "rtscope doctor --all --for ethercat --deadline 300us";
    assert!(text.lines().any(|line| line.ends_with(all)), "{text}");
    let (_, text) = run("doctor", "server-contradictions");
    // The old name of the verb.
    assert_eq!(run("environment", "server-contradictions").1, text);
}

#[test]
fn a_page_and_a_document_are_written_where_asked() {
    let room = room();
    let tree = folder("raspberry-pi-4");
    let out = output(room.path(), &format!("doctor --root {} --out seen", tree.display()));
    assert_eq!(out.status.code(), Some(2));
    let read =
        |name: &str| fs::read_to_string(room.path().join("seen").join(name)).expect("a file");
    assert!(read("report.html").contains("kernel-name-lies"));
    let document: DoctorDocument = serde_json::from_str(&read("doctor.json")).expect("a document");
    assert_eq!(
        document.facts.text("boot/firmware/config.txt").map(|text| text.lines().count()),
        Some(3)
    );
}
