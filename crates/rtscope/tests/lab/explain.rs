//! A spike explained by the instructions of a replay.

use rtscope_testing::{executable, skip::program};
use serde_json::Value;
use tempfile::TempDir;

use crate::{document, ready_or_skip, room, rtscope, text, worst_ns};

/// What all of them explain: the recipes for CI servers run the same, so that one guest does for all.
const RUN: [&str; 4] = ["run", "small.toml", "--kernel", "debian-stock"];

const RECORD: &str = "out/debian-stock-seed1";

#[test]
fn the_pieces_of_a_replayed_spike_add_up_and_name_what_held_the_cpu() {
    let test = "the_pieces_of_a_replayed_spike_add_up_and_name_what_held_the_cpu";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let lab = |words: &[&str]| {
        let words = [&["lab"], words].concat();
        rtscope(room.path(), &words).output().expect("starts")
    };
    let kernel = "debian-stock";
    let ran = lab(&[&RUN[..], &["--out", "out", "--explain"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    let explain = ["explain", RECORD, "--cell", "disk", "--worst", "2", "--json"];
    let explained = lab(&explain);
    assert_eq!(explained.status.code(), Some(0), "{}", text(&explained));
    let all: Value = serde_json::from_slice(&explained.stdout).expect("JSON");
    let spikes = all["spikes"].as_array().expect("spikes");
    assert_eq!(spikes.len(), 2, "the worst two of one phase");
    let ns = |value: &Value| value.as_u64().expect("nanoseconds");
    let worst_ns = worst_ns(&document(&room.path().join("out")));
    // `lab run --explain` named the same wake-up of each phase.
    let compared = document(&room.path().join("out"));
    let causes = compared["causes"].as_array().expect("causes");
    assert_eq!(causes.len(), 2, "rest and disk: {causes:?}");
    let disk = causes.iter().find(|cause| cause["load"] == "disk").expect("the disk's");
    assert_eq!(disk["latency_ns"], spikes[0]["latency_ns"], "{disk}");
    assert!(disk["cause"].as_str().is_some_and(|cause| cause.contains("of it: blocking, ")));
    assert_eq!(disk["instructions"], spikes[0]["instructions"]);
    let key = (kernel.to_owned(), "disk".to_owned());
    assert_eq!(ns(&spikes[0]["latency_ns"]), worst_ns[&key], "the record's maximum");
    assert!(all["equal_files"].as_u64() > Some(5) && all["is_whole"] == true);
    for spike in spikes {
        let pieces = spike["pieces"].as_array().expect("pieces");
        let mut at_ns = ns(&spike["at_ns"]);
        for piece in pieces {
            assert_eq!(ns(&piece["at_ns"]), at_ns, "no gap");
            at_ns += ns(&piece["ns"]);
        }
        assert_eq!(at_ns - ns(&spike["at_ns"]), ns(&spike["latency_ns"]), "nothing is left over");
        // Giving back a large mapping isn't preempted in a stock kernel.
        let longest = pieces.iter().max_by_key(|piece| ns(&piece["ns"])).expect("a piece");
        assert_eq!(longest["kind"], "blocking", "{longest}");
        let place = longest["where"].as_str().expect("a place");
        assert!(place.contains("page") && place.contains("up to "), "{place}");
        // Its locks are short, and between them nothing switches.
        let has_functions = place.contains("disabled in ") && place.contains("enabled again in ");
        assert!(place.contains("preemption was enabled for ") && has_functions, "{place}");
        let instructions = &spike["instructions"];
        assert!(instructions["wakeup_to_switch"].as_u64() > Some(10_000), "{instructions}");
        assert!(instructions["switch_to_user"].as_u64() < Some(5_000), "{instructions}");
    }
    let page = std::fs::read_to_string(room.path().join(RECORD).join("explain.html"));
    assert!(page.expect("a page").contains("up to "));
    let refused = lab(&["explain", RECORD, "--cell", "network"]);
    assert_eq!(refused.status.code(), Some(64), "{}", text(&refused));
    assert!(text(&refused).contains("it has rest, disk"), "{}", text(&refused));
}

/// A room with the record, which is made where no other test has made it; none where no guest can run.
fn room_with_record(test: &str) -> Option<TempDir> {
    if !ready_or_skip(test) {
        return None;
    }
    let room = room();
    let words = [&["lab"], &RUN[..], &["--out", "out"]].concat();
    let ran = rtscope(room.path(), &words).output().expect("starts");
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    Some(room)
}

/// The same kernel once more, which now records its events: the two ways of explaining agree, and two records are
/// compared by their instructions.
#[test]
#[ignore = "boots guests for minutes: cargo xtask test --long runs it"]
fn instructions_and_events_explain_a_spike_alike() {
    let Some(room) = room_with_record("instructions_and_events_explain_a_spike_alike") else {
        return;
    };
    let lab = |words: &[&str]| {
        rtscope(room.path(), &[&["lab"], words].concat()).output().expect("starts")
    };
    let ns = |value: &Value| value.as_u64().expect("nanoseconds");
    let ran = lab(&[&RUN[..], &["--shift", "0", "--events", "--out", "events"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    let recorded = "events/debian-stock-seed1";
    let explained = lab(&["explain", recorded, "--cell", "disk", "--worst", "4", "--json"]);
    let all: Value = serde_json::from_slice(&explained.stdout).expect("JSON");
    let both = all["events"]["compared"].as_array().expect("wake-ups that both explain");
    assert!(both.len() >= 2, "{}", all["events"]);
    // The end of an interrupt comes after its event: with several in a wake-up, the times differ by some microseconds.
    let apart = |one: &&Value| {
        let kinds = one["kinds"].as_array().expect("kinds");
        let blocking = kinds.iter().find(|kind| kind["kind"] == "blocking").expect("the cause");
        let both = ["by_instructions_ns", "by_events_ns"].map(|way| ns(&blocking[way]));
        assert!(both[0].abs_diff(both[1]) <= both[0] / 10, "{one}");
        both[0].abs_diff(both[1]) > (both[0] / 20).max(2_000)
    };
    assert!(both.iter().filter(apart).count() <= 1, "{both:?}");
    // Recording takes instructions between the interrupt and the wake-up, and the exit code says so.
    let compare = ["compare", RECORD, recorded, "--cell", "disk", "--worst", "1"];
    let compared = lab(&[&compare[..], &["--longer-by", "500", "--json"]].concat());
    assert_eq!(compared.status.code(), Some(2), "{}", text(&compared));
    let compared: Value = serde_json::from_slice(&compared.stdout).expect("JSON");
    let parts = compared["phases"][0]["parts"].as_array().expect("parts");
    let wakes = parts.iter().find(|part| part["part"] == "interrupt to wake-up").expect("the part");
    let shortest = [0, 1].map(|n| ns(&wakes["shortest"][n]));
    assert!(shortest[1] > shortest[0] + 500, "{wakes}");
}

/// With an emulator that knows no plugins, the guest runs once more with its kernel's events, and the cost is said.
#[test]
#[ignore = "boots guests for minutes: cargo xtask test --long runs it"]
fn without_plugins_the_guest_runs_once_more_with_its_events() {
    let Some(room) = room_with_record("without_plugins_the_guest_runs_once_more_with_its_events")
    else {
        return;
    };
    let room = room.path();
    let real = program("qemu-system-x86_64").expect("it made the record");
    let wrapper = room.join("qemu-system-x86_64");
    let script = format!(
        "#!/bin/sh\nfor word; do [ \"$word\" = -plugin ] && {{ echo >&2 -plugin: invalid option; exit 1; }}; done\n\
         exec {} \"$@\"\n",
        real.display()
    );
    executable::write(&wrapper, &script);
    let path = format!("{}:{}", room.display(), std::env::var("PATH").expect("a path"));
    let explained =
        rtscope(room, &["lab", "explain", RECORD]).env("PATH", path).output().expect("starts");
    let said = text(&explained);
    assert_eq!(explained.status.code(), Some(0), "{said}");
    assert!(
        said.contains("-plugin: invalid option). rtscope runs the guest once more instead"),
        "{said}"
    );
    assert!(
        said.contains("recording added to the mean latency: ") && said.contains("under disk"),
        "{said}"
    );
    assert!(room.join(format!("{RECORD}.events")).join("explain.html").is_file());
}
