//! Nothing is silently lost: on every CPU, in every cell.

use crate::support::{folder, json, output, text};

fn balances(document: &serde_json::Value) {
    let cells = document["cells"].as_array().expect("cells");
    assert!(!cells.is_empty());
    for cell in cells {
        let cpus = cell["cpus"].as_array().expect("CPUs");
        assert!(!cpus.is_empty(), "{}", cell["name"]);
        for row in cpus {
            let count = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"));
            assert_eq!(count("planned"), count("recorded") + count("missed"), "{row}");
            if count("recorded") == 0 {
                // Nothing promises an ordinary thread a CPU while others want it.
                let policy = row["policy"].as_str().expect("a policy");
                assert!(["other", "batch", "idle"].contains(&policy), "{row}");
                continue;
            }
            let latency = |key: &str| row["latency_ns"][key].as_u64().expect("an integer");
            let order = ["min", "p50", "p99", "p99_9", "p99_99", "max"].map(latency);
            assert!(order.is_sorted(), "{order:?}");
            assert!((latency("min")..=latency("max")).contains(&latency("mean")));
        }
    }
}

#[test]
fn planned_is_recorded_and_missed_on_every_cpu() {
    let folder = folder();
    let document = json(folder.path(), "run quick --duration 3s --out run --json");
    assert_eq!(document["verdict"], "measured");
    let names: Vec<&str> = document["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!(names, ["rest", "message load", "rest again"]);
    balances(&document);
    let load = &document["cells"][1]["loads"][0];
    assert!(load["work"].as_u64() > Some(0), "{load}");
}

#[test]
fn a_record_alone_gives_the_same_verdict_and_the_same_page() {
    let folder = folder();
    let printed = json(folder.path(), "run quick --duration 2s --out run --json");
    let first = std::fs::read(folder.path().join("run/report.html")).expect("a page");
    let again = json(folder.path(), "report run --json");
    assert_eq!(printed, again);
    let second = std::fs::read(folder.path().join("run/report.html")).expect("a page");
    assert!(first == second, "the same record gives the same bytes");
}

#[test]
fn slices_may_be_10_ms_long() {
    let folder = folder();
    let document = json(
        folder.path(),
        "run --duration 2s --slice 10ms --policy other --threads 1 --out run --json",
    );
    balances(&document);
    let slices =
        std::fs::read_to_string(folder.path().join("run/slices/t0.jsonl")).expect("slices");
    let lengths: Vec<u64> = slices
        .lines()
        .map(|line| {
            let slice: serde_json::Value = serde_json::from_str(line).expect("a slice");
            let at = |key: &str| slice[key].as_u64().expect("an instant");
            at("end_ns") - at("start_ns")
        })
        .collect();
    // A control thread that is held up makes some of them longer.
    let short = lengths.iter().filter(|ns| **ns <= 10_000_000).count();
    assert!(short >= 10, "{lengths:?}");
}

#[test]
fn every_way_to_sample_balances() {
    let folder = folder();
    let ways = [
        "--policy rr --priority 50",
        "--policy other --nice 5",
        "--policy batch",
        "--policy idle",
        "--policy deadline --placement free --interval 2ms",
        "--sleep relative",
        "--clock realtime",
        "--overrun replay",
        "--start second --stagger 100us",
        "--threads 3 --placement free --distance 500us",
        "--threads 2 --intervals 500us,2ms --resolution 1ns --buckets 100000",
        "--spread --interval 500us --threads 2 --distance 250us",
        "--warmup 0 --slice 100ms --interval 200us",
    ];
    for (i, way) in ways.iter().enumerate() {
        std::fs::write(
            folder.path().join("one.toml"),
            "name = 'one'\n[[phase]]\nname = 'rest'\nduration = '600ms'\n",
        )
        .expect("a plan");
        let document = json(folder.path(), &format!("run one.toml {way} --out w{i} --json"));
        balances(&document);
    }
}

#[test]
fn cycles_end_a_phase_exactly() {
    let folder = folder();
    let plan = "name = 'cycles'\n[sampler]\ncpus = 'last'\n[[phase]]\nname = 'p'\ncycles = 123\n";
    std::fs::write(folder.path().join("p.toml"), plan).expect("a plan");
    let document = json(folder.path(), "run p.toml --out run --json");
    assert_eq!(document["cells"][0]["all"]["recorded"], 123);
    assert_eq!(document["cells"][0]["ended"], "cycles");
    let document = json(folder.path(), "run p.toml --cycles 45 --out fewer --json");
    assert_eq!(document["cells"][0]["all"]["recorded"], 45);
}

#[test]
fn a_threshold_ends_the_run() {
    let folder = folder();
    // Every latency is above a nanosecond.
    let document = json(folder.path(), "run quick --break-above 1ns --out run --json");
    assert_eq!(document["cells"][0]["ended"], "break");
    let events = std::fs::read_to_string(folder.path().join("run/events.jsonl")).expect("events");
    assert!(events.contains("\"break-hit\""));
}

#[test]
fn raw_samples_are_kept_one_by_one() {
    let folder = folder();
    let document =
        json(folder.path(), "run quick --duration 1s --cpus last --raw --out run --json");
    let recorded: u64 = document["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .filter_map(|cell| cell["all"]["recorded"].as_u64())
        .sum();
    let raw = std::fs::metadata(folder.path().join("run/raw/t0.bin")).expect("raw samples");
    assert_eq!(raw.len(), recorded * 16);
}

#[test]
fn requirements_decide_the_exit_code() {
    let folder = folder();
    let run = |terms: &str, n: u32| {
        let output =
            output(folder.path(), &format!("run quick --duration 1s --out r{n} --quiet {terms}"));
        (output.status.code(), text(&output.stdout))
    };
    // No machine answers in a nanosecond.
    let (code, said) = run("--require 'max < 1ns'", 1);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.starts_with("Fail"), "{said}");
    // An hour is met by every machine; what else is found here may keep it from a Pass.
    let (code, said) = run("--require 'max < 1h'", 2);
    assert!(matches!(code, Some(0 | 3)), "{code:?} {said}");
    assert_eq!(code == Some(0), said.starts_with("Pass"), "{said}");
}
