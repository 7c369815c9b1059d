//! A sampler whose CPU is held by a real-time thread above it: the run ends, and does not pass.

use std::fs;

use crate::support::{folder, json, output, root_or_skip, skip, text};

/// The sampler at FIFO 90, a load at FIFO 95 that never sleeps, for a phase of a second and a half. The kernel
/// throttles both, and the load has a kernel timer of its own.
const PLAN: &str = "name = 'starved'\nrequire = ['max < 5ms']\n\
                    [sampler]\npolicy = 'fifo'\npriority = 90\ncpus = '1'\n\
                    [[phase]]\nname = 'held'\nduration = '1500ms'\n\
                    load = ['cpu policy=fifo priority=95 cpus=1 workers=1']\n";

#[test]
fn a_phase_in_which_the_sampler_never_ran_does_not_pass() {
    let test = "a_phase_in_which_the_sampler_never_ran_does_not_pass";
    if !root_or_skip(test) {
        return;
    }
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    if !online.starts_with("0-") {
        return skip(test, "needs two CPUs");
    }
    let folder = folder();
    fs::write(folder.path().join("starved.toml"), PLAN).expect("written");
    let output = output(folder.path(), "run starved.toml --out run");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(matches!(output.status.code(), Some(2 | 3)), "{:?}: {said}", output.status);
    let verdict = json(folder.path(), "report run --json");
    assert_ne!(verdict["verdict"], "pass", "{said}");
    let held = &verdict["cells"][0]["all"];
    assert_eq!(
        held["planned"].as_u64(),
        held["recorded"].as_u64().zip(held["missed"].as_u64()).map(|(a, b)| a + b)
    );
    // However the kernel shares the CPU out, most of the phase was waited through.
    let longest_ns = held["corrected_latency_ns"]["max"].as_u64().expect("a maximum");
    assert!(longest_ns > 100_000_000, "{longest_ns} ns: {said}");
}
