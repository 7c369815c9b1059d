//! The real program. This test also makes cargo build it, so that code which only tests use is reported as dead.

use std::process::Command;

#[test]
fn a_wrong_chore_is_refused_and_the_chores_are_listed() {
    let ran = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("tset").output().expect("starts");
    assert_eq!(ran.status.code(), Some(64));
    let said = String::from_utf8(ran.stderr).expect("text");
    for chore in ["test", "tidy", "bench", "dist", "soak"] {
        assert!(said.contains(&format!("\n  {chore} ")), "{chore}: {said}");
    }
}
