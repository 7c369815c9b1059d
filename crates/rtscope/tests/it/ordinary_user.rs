//! Without real-time permission: loud, and refused only where a policy was asked by name.

use std::{os::unix::fs::PermissionsExt, process::Command};

use crate::support::{folder, output_of, root_or_skip, text, words};

/// The program as nobody, without any capability or limit that root has.
fn as_nobody(folder: &std::path::Path, arguments: &str) -> std::process::Output {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).expect("open folder");
    // The program where nobody can reach it: the build's own folder may be closed.
    let program = folder.join("rtscope");
    if !program.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_rtscope"), &program).expect("a copy");
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"])
        .arg(program)
        .args(words(arguments))
        .env("XDG_RUNTIME_DIR", folder)
        .current_dir(folder);
    output_of(&mut command)
}

#[test]
fn the_default_plan_is_measured_as_an_ordinary_thread_and_says_so() {
    if !root_or_skip("the_default_plan_is_measured_as_an_ordinary_thread_and_says_so") {
        return;
    }
    let folder = folder();
    let output = as_nobody(folder.path(), "run --duration 2s --out run --json");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(document["cells"][0]["cpus"][0]["policy"], "other");
    let findings = document["findings"].to_string();
    assert!(findings.contains("no-real-time-permission"), "{findings}");
    for way in ["rtprio", "setcap", "sudo"] {
        assert!(findings.contains(way), "{way}: {findings}");
    }
}

#[test]
fn a_policy_that_was_asked_by_name_is_refused_with_the_same_words() {
    if !root_or_skip("a_policy_that_was_asked_by_name_is_refused_with_the_same_words") {
        return;
    }
    let folder = folder();
    let output = as_nobody(folder.path(), "run --policy fifo --duration 1s --out run");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    for way in ["rtprio", "setcap", "sudo"] {
        assert!(said.contains(way), "{way}: {said}");
    }
    assert!(!folder.path().join("run").exists(), "nothing is left of a refused run");
}

#[test]
fn a_load_and_a_nice_value_are_refused_with_what_to_do() {
    if !root_or_skip("a_load_and_a_nice_value_are_refused_with_what_to_do") {
        return;
    }
    let folder = folder();
    let ways = ["/etc/security/limits.d", "setcap", "sudo"];
    for (arguments, own) in [
        ("load cpu policy=fifo --duration 100ms", "rtprio"),
        ("run --policy other --nice -5 --duration 1s --out run", "USER - nice -20"),
    ] {
        let output = as_nobody(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        for way in ways.into_iter().chain([own]) {
            assert!(said.contains(way), "{way}: {said}");
        }
    }
}

/// `/run/rtscope` as an older rtscope left it, closed to others: the user's own settings are all right.
#[test]
fn a_closed_folder_of_root_is_named_and_opened() {
    if !root_or_skip("a_closed_folder_of_root_is_named_and_opened") {
        return;
    }
    let journals = std::path::Path::new("/run/rtscope");
    std::fs::create_dir_all(journals).expect("a folder");
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(journals, closed).expect("closed");
    let folder = folder();
    let output = as_nobody(folder.path(), "restore");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("/run/rtscope can't be read") && said.contains("sudo"), "{said}");
    let by_root = crate::support::output(folder.path(), "restore");
    assert_eq!(by_root.status.code(), Some(0), "{}", text(&by_root.stderr));
    let output = as_nobody(folder.path(), "restore");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn a_damaged_journal_is_named_as_long_as_it_is_there() {
    if !root_or_skip("a_damaged_journal_is_named_as_long_as_it_is_there") {
        return;
    }
    let folder = folder();
    let journals = folder.path().join("rtscope-65534");
    let damaged = journals.join("4194999-1.damaged");
    std::fs::create_dir(&journals).expect("made");
    std::fs::write(&damaged, "torn").expect("written");
    for path in [&journals, &damaged] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("given away");
    }
    std::fs::set_permissions(&journals, std::fs::Permissions::from_mode(0o700)).expect("closed");
    for command in ["restore", "tune restore"] {
        let output = as_nobody(folder.path(), command);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("4194999-1.damaged is a damaged journal"), "{command}: {said}");
    }
    std::fs::remove_file(&damaged).expect("removed");
    assert_eq!(as_nobody(folder.path(), "tune restore").status.code(), Some(0));
}

#[test]
fn frames_over_loopback_need_no_permission_and_a_cable_says_what_it_needs() {
    if !root_or_skip("frames_over_loopback_need_no_permission_and_a_cable_says_what_it_needs") {
        return;
    }
    let folder = folder();
    let output = as_nobody(folder.path(), "network --cycle 4ms --duration 2s --out run --json");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    assert!(document["cells"][0]["all"]["frames"]["in_time"].as_u64() > Some(0), "{document}");
    for (arguments, words) in [
        ("network --over veth --out no", "this needs root"),
        ("network --transport raw --interface lo --out no", "carries no Ethernet"),
    ] {
        let output = as_nobody(folder.path(), arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert!(!folder.path().join("no").exists(), "nothing is left");
    }
}

/// It applied the settings for an instant: it changed them, and said of each that it can't be tried.
#[test]
fn the_plan_of_a_trial_is_shown_without_root() {
    if !root_or_skip("the_plan_of_a_trial_is_shown_without_root") {
        return;
    }
    let folder = folder();
    let shown = as_nobody(
        folder.path(),
        "tune try --dry-run --try stat-interval=93 --try 'swappiness=11 stat-interval=94'",
    );
    let plan = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{plan}{}", text(&shown.stderr));
    assert!(plan.contains("  stat-interval=93\n"), "{plan}");
    assert!(plan.contains("  stat-interval=94 swappiness=11\n"), "{plan}");
}
