//! Whoever has changed a system setting restores it, however often it is told to end.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
};

use rtscope_measure::{signals::Interrupt, tune};
use rtscope_sys::tree::Tree;

/// Set in the child, to the folder of its files: when it listens to signals, before or after the change.
const CHILD: &str = "RTSCOPE_TEST_PATIENCE";

const SETTING: &str = "proc/sys/kernel/timer_migration";

/// Changes a setting, is interrupted again and again, and restores it.
fn child(folder: &str, order: &str) {
    let root = fs::canonicalize(folder).expect("a folder");
    let before = (order == "before").then(|| Interrupt::install().expect("handlers"));
    let settings = BTreeMap::from([("timer-migration".to_owned(), "off".to_owned())]);
    let applied = tune::apply(&Tree::under(&root), &root.join("journals"), &settings, &mut |_| {});
    let applied = applied.expect("changed");
    let interrupt_all = || {
        for signal in ["INT", "INT", "TERM", "HUP", "INT"] {
            let pid = std::process::id().to_string();
            let sent = Command::new("kill").args([format!("-{signal}"), pid]).status();
            assert!(sent.expect("kill runs").success());
        }
    };
    interrupt_all();
    let interrupt = before.unwrap_or_else(|| Interrupt::install().expect("handlers"));
    assert!(interrupt.is_stopped(), "a signal before anybody listened is not lost");
    interrupt_all();
    applied.restore(&mut |_| {});
}

#[test]
fn no_number_of_interrupts_leaves_a_setting_changed() {
    if let Ok(order) = std::env::var(CHILD) {
        let (folder, order) = order.split_once(' ').expect("two words");
        return child(folder, order);
    }
    for order in ["before", "after"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(SETTING);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, "1\n").expect("written");
        let status = Command::new("/proc/self/exe")
            .args(["--exact", "no_number_of_interrupts_leaves_a_setting_changed"])
            .env(CHILD, format!("{} {order}", folder.path().display()))
            .stdout(Stdio::null())
            .status()
            .expect("starts");
        assert!(status.success(), "{order}: {status}");
        assert_eq!(fs::read_to_string(&path).expect("read").trim(), "1", "{order}");
    }
}
