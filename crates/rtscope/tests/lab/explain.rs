//! A spike explained by the instructions of a replay.

use serde_json::Value;

use crate::{document, ready_or_skip, room, rtscope, text, worst_ns};

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
    let run = ["run", "small.toml", "--kernel", kernel, "--memory", "1024", "--out", "out"];
    let ran = lab(&[&run[..], &["--explain"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    let record = "out/debian-stock-seed1";
    let explain = ["explain", record, "--cell", "disk", "--worst", "2", "--json"];
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
        let instructions = &spike["instructions"];
        assert!(instructions["wakeup_to_switch"].as_u64() > Some(10_000), "{instructions}");
        assert!(instructions["switch_to_user"].as_u64() < Some(5_000), "{instructions}");
    }
    let page = std::fs::read_to_string(room.path().join(record).join("explain.html"));
    assert!(page.expect("a page").contains("up to "));
    // The same replay gives the same document; and the files beside the record are no change of it.
    assert_eq!(lab(&explain).stdout, explained.stdout);
    let refused = lab(&["explain", record, "--cell", "network"]);
    assert_eq!(refused.status.code(), Some(64), "{}", text(&refused));
    assert!(text(&refused).contains("it has rest, disk"), "{}", text(&refused));
}
