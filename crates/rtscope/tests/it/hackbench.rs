//! The program under hackbench's name.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    dropin::{bin, called, form},
    support::{folder, kill, output_of, program, skip, text, wait_for, words},
};

#[test]
fn signals_end_hackbench_with_its_time() {
    for signal in ["INT", "TERM"] {
        let folder = folder();
        let child = Command::new(bin(folder.path(), "hackbench"))
            .args(words("-g 1 -f 2 -l 1000000000"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let id = child.id();
        let children = || fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        wait_for("the work", Duration::from_secs(60), || children().is_ok_and(|of| !of.is_empty()));
        kill(id, signal);
        let output = child.wait_with_output().expect("ends");
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{signal}: {}", text(&output.stderr));
        let last = said.lines().last().and_then(|last| last.strip_prefix("Time: "));
        assert!(last.is_some_and(|time| time.parse::<f64>().is_ok()), "{signal}: {said}");
        assert!(said.contains("signaling 4 worker threads to terminate"), "{said}");
    }
}

#[test]
fn hackbench_says_its_time() {
    let folder = folder();
    for line in ["-g 1 -l 20", "-g1 -l20 -T -p -s 50 -f 3", "-g 1 -l 5 -i", "-P -g 1 -l 10 -s 1000"]
    {
        let ours = called(folder.path(), "hackbench", &words(line));
        let said = text(&ours.stdout);
        let time = said.lines().last().and_then(|last| last.strip_prefix("Time: "));
        let time = time.and_then(|time| time.parse::<f64>().ok());
        assert!(
            time.is_some_and(|time| (0.0..60.0).contains(&time)),
            "{line}: {said} {}",
            text(&ours.stderr)
        );
        if let Some(real) = program("hackbench") {
            let theirs = output_of(Command::new(real).args(words(line)));
            assert_eq!(form(&ours.stdout), form(&theirs.stdout), "{line}");
        } else {
            skip("hackbench_says_its_time", "without hackbench (rt-tests)");
        }
    }
    let refused = called(folder.path(), "hackbench", &words("-g 0"));
    assert_eq!(refused.status.code(), Some(1));
}
