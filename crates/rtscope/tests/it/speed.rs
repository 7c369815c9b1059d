//! Sizes that are promised: of the program, and of its memory. Times are for `cargo xtask bench`.

use crate::support::{folder, json};

#[test]
fn a_run_locks_little_memory() {
    let folder = folder();
    json(folder.path(), "run quick --duration 1s --out run --json");
    let events = std::fs::read_to_string(folder.path().join("run/events.jsonl")).expect("events");
    let first = |needle: &str| events.lines().find(|line| line.contains(needle)).expect("an event");
    let started: serde_json::Value = serde_json::from_str(first("session-started")).expect("JSON");
    assert!(started["locked_kib"].as_u64() > Some(0), "memory is locked and read back: {started}");
    for line in events.lines().filter(|line| line.contains("thread-ended")) {
        let ended: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(ended["tally"]["minor_faults"], 0, "{line}");
        assert_eq!(ended["tally"]["major_faults"], 0, "{line}");
    }
}
