//! `rtscope explain` of files that others recorded: what trace-cmd itself prints of them is the oracle.

use std::path::Path;

use serde_json::Value;

use crate::support::{folder, json, output, text};

/// A file of trace-cmd, unpacked.
fn unpacked(folder: &Path, name: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/trace-cmd");
    let packed = std::fs::File::open(from.join(format!("{name}.gz"))).expect("a fixture");
    let mut file = std::fs::File::create(folder.join(name)).expect("a file");
    std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut file).expect("unpacked");
    let _ = std::fs::copy(from.join("v7.report.txt"), folder.join("report.txt"));
}

/// What `trace-cmd report -t` printed of a file is the oracle for the file itself.
#[test]
fn a_file_of_trace_cmd_is_explained_as_what_trace_cmd_prints_of_it() {
    let folder = folder();
    unpacked(folder.path(), "v7.dat");
    let of = |line: &str| json(folder.path(), &format!("explain {line} --worst 1000 --json"));
    let (file, printed) = (of("v7.dat --out file"), of("report.txt --out text"));
    let figures = |document: &Value| -> Vec<[Value; 4]> {
        let spikes = document["spikes"].as_array().expect("spikes").iter();
        spikes
            .map(|one| ["tid", "cpu", "at_ns", "latency_ns"].map(|key| one[key].clone()))
            .collect()
    };
    assert!(figures(&file).len() >= 10, "{}", figures(&file).len());
    assert_eq!(figures(&file), figures(&printed));
    assert_eq!(file["kernel"], "6.18.44-example");
    let sleepers = file["threads"].as_array().expect("threads").iter();
    assert!(sleepers.filter(|thread| thread["name"] == "sleep").count() >= 5, "{file:#}");
}

/// Its events have the CPUs' own clock, and the timers have another one.
#[test]
fn a_file_of_version_6_with_the_clock_of_the_cpus_has_latencies_that_make_sense() {
    let folder = folder();
    unpacked(folder.path(), "v6.dat");
    let document = json(folder.path(), "explain v6.dat --worst 1000 --json --out run");
    let threads = document["threads"].as_array().expect("threads");
    let sleepers: Vec<&Value> = threads.iter().filter(|one| one["name"] == "sleep").collect();
    assert!(sleepers.len() >= 5, "{document:#}");
    for sleeper in sleepers {
        assert_eq!(sleeper["by_timer"], 1, "{sleeper}");
        // The look took 0.2 s. Without bringing the clocks together, the difference would be seconds, or none.
        let latency_ns = sleeper["latency_ns_max"].as_u64().expect("a latency");
        assert!((1..150_000_000).contains(&latency_ns), "{sleeper}");
    }
}

#[test]
fn damaged_files_of_trace_cmd_are_refused_with_the_reason() {
    let folder = folder();
    unpacked(folder.path(), "v7.dat");
    unpacked(folder.path(), "v6.dat");
    let path = |name: &str| folder.path().join(name);
    let bytes = std::fs::read(path("v6.dat")).expect("a file");
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    let cases: [(&[u8], &str); 6] = [
        (b"", "the file is empty"),
        (b"nothing that is known\n", "contains no trace events"),
        (&bytes[..40], "ends in the middle of the headers"),
        (&bytes[..bytes.len() - 5_000], "ends in the middle of the events"),
        (&changed(10, b'9'), "has version 9 of trace-cmd's format"),
        (&changed(12, 1 - bytes[12]), "a different byte order"),
    ];
    for (bytes, said) in cases {
        std::fs::write(path("bad.dat"), bytes).expect("written");
        let refused = output(folder.path(), "explain bad.dat --out none");
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(text(&refused.stderr).contains(said), "{said}: {}", text(&refused.stderr));
    }
    assert!(!path("none").exists(), "a refused file leaves nothing");
}
