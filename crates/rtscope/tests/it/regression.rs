//! One test for each mistake that was once made, with its story.

use std::{fs, process::Stdio, time::Duration};

use crate::support::{
    folder, kill, mark, output, processes_of_ours, program, skip, text, wait_for,
};

/// A reader that goes away (`rtscope plan list | head -1`) is no error of ours.
#[test]
fn a_closed_pipe_is_no_error() {
    let folder = folder();
    let program = env!("CARGO_BIN_EXE_rtscope");
    let script = format!("{program} plan show lab --resolved | true; echo ${{PIPESTATUS[0]}}");
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .expect("bash");
    assert_eq!(text(&output.stdout).trim(), "0", "{}", text(&output.stderr));
}

/// A terminal that was closed under a full screen: reading keys from it never returned, and the
/// run, real-time threads and all, went on for ever.
#[test]
fn a_closed_terminal_ends_a_live_run() {
    let Some(script) = program("script") else {
        return skip("a_closed_terminal_ends_a_live_run", "no script command");
    };
    let folder = folder();
    let command = format!("{} run quick --live --out run", env!("CARGO_BIN_EXE_rtscope"));
    let mut terminal = std::process::Command::new(script)
        .args(["-qfc", &command, "/dev/null"])
        .env("TERM", "xterm")
        .envs([mark()])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("script");
    let events = folder.path().join("run/events.jsonl");
    wait_for("the run", Duration::from_secs(20), || {
        fs::read_to_string(&events).is_ok_and(|text| text.contains("phase-started"))
    });
    kill(terminal.id(), "KILL");
    terminal.wait().expect("script ends");
    wait_for("the run's end", Duration::from_secs(10), || processes_of_ours().is_empty());
    let events = fs::read_to_string(&events).expect("events");
    assert!(events.contains("run-ended"), "it ended cleanly: {events}");
}

/// `printf '0\n' > z; rtscope import z`: the axis of a plot had no step, and the import panicked. And its table
/// said "nothing was measured" above a recorded latency, for it did not know how long.
#[test]
fn a_latency_of_0_is_imported_and_drawn() {
    let folder = folder();
    for (name, content) in
        [("zero", "0\n"), ("below", "0 5\n1 7\n"), ("most", "18446744073709551615\n")]
    {
        fs::write(folder.path().join(name), content).expect("a file");
        let output = output(folder.path(), &format!("import {name} --out {name}-run"));
        let said = text(&output.stdout);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{name}: {}", text(&output.stderr));
        assert!(said.contains("duration not known"), "{said}");
        assert!(!said.contains("nothing was measured"), "{said}");
    }
}
