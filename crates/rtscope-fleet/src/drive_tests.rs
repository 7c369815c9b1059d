//! The scripts of a place, run here.

use std::{fs, os::unix::fs::symlink, process::Command};

use super::*;

/// Starts the script that takes a place.
fn take(folder: &Path, job: &str) -> std::process::Child {
    let mut command = Command::new("sh");
    command.args(["-c", include_str!("scripts/take.sh"), "take"]).arg(folder).args([job, "60"]);
    command.stdout(std::process::Stdio::piped()).spawn().expect("starts")
}

#[test]
fn a_copy_whose_installation_was_not_heard_of_is_installed_once() {
    let room = tempfile::tempdir().expect("a folder");
    let [copy, program] = ["copy-1", "rtscope"].map(|name| room.path().join(name));
    let install = || {
        let mut command = Command::new("sh");
        command.args(["-c", INSTALL, "install"]).args([&copy, &program]);
        command.status().expect("starts").success()
    };
    assert!(!install(), "there is no copy");
    for bytes in ["a damaged copy", "the program"] {
        fs::write(&copy, bytes).expect("a copy");
        assert!(install() && install(), "the second time, the copy is gone");
        assert_eq!(fs::read_to_string(&program).expect("a program"), bytes);
        assert!(!copy.exists());
    }
}

#[test]
fn of_two_that_ask_for_an_expired_lease_one_gets_it() {
    let room = tempfile::tempdir().expect("a folder");
    let facts = |child: std::process::Child| {
        Facts::read(&String::from_utf8_lossy(&child.wait_with_output().expect("ends").stdout))
    };
    let first = facts(take(room.path(), "first"));
    let base = first.base.clone();
    for round in 0..40 {
        let _ = fs::remove_file(base.join("lease"));
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
        symlink(format!("old {} 0 0", boot.trim()), base.join("lease")).expect("linked");
        let both = [take(room.path(), "one"), take(room.path(), "two")].map(facts);
        let holder = fs::read_link(base.join("lease")).expect("a lease");
        let holder = holder.to_string_lossy().split(' ').next().map(str::to_owned);
        let winners = both.iter().filter(|facts| facts.held.is_none()).count();
        // Uptime is below the grace just after a boot: then the old lease still holds.
        assert!(
            winners == 1 || holder.as_deref() == Some("old"),
            "round {round}: {both:?} {holder:?}"
        );
        for job in ["one", "two"] {
            let _ = fs::remove_dir_all(base.join(job));
        }
    }
    let _ = fs::remove_dir_all(&base);
}
