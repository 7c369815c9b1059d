//! `rtscope fleet pull-lab` with guests: a job's kernel boots, its tests are judged, and what comes of them is posted.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use rtscope_lab::{cache::Cache, kernel_ref::KernelRef, kernel_under_test::KernelUnderTest};
use rtscope_testing::{
    kernel_ci::{API_TOKEN, FakeKernelCi, KCIDB_TOKEN},
    skip::program,
};
use serde_json::{Value, json};

use crate::{any_kernel, emulators, ready_or_skip, rtscope, skip, text};

const NODE: &str = "6870c1b3aaaaaaaaaaaaaaaa";
const BROKEN: &str = "6870c1b3bbbbbbbbbbbbbbbb";

fn lab(server: &FakeKernelCi, folder: &Path) -> Command {
    let (api, kcidb) = (server.api(), server.kcidb());
    // Whole, so that the emulator's command line shows whose it is.
    let state = folder.join("state").display().to_string();
    let lab =
        ["fleet", "pull-lab", "--runtime", "mine", "--once", "--state", &state, "--api", &api];
    let links = ["--kcidb", &kcidb, "--origin", "my_lab", "--base-url", "https://results.example"];
    let words = [&lab[..], &links].concat();
    let mut command = rtscope(folder, &words);
    command.env("KERNELCI_API_TOKEN", API_TOKEN).env("KCIDB_JWT", KCIDB_TOKEN);
    // Records of an earlier run of this test would be known, and no guest would run.
    command.env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

fn definition(kernel: &str, tests: &Value) -> Value {
    json!({ "artifacts": { "kernel": kernel }, "tests": tests,
            "environment": { "platform": "qemu-x86", "arch": "x86_64" } })
}

/// A test of a job, as KernelCI's template writes it.
fn job_test(id: &str, kind: &str, parameters: &str, depends: &[&str]) -> Value {
    json!({ "id": id, "type": kind, "parameters": parameters, "depends": depends, "timeout_s": 600,
            "pre-commands": [], "post-commands": [] })
}

/// Starts the lab, and kills it while a guest runs.
fn kill_in_guest(server: &FakeKernelCi, here: &Path) {
    let mark = here.join("state").display().to_string();
    let mut killed = lab(server, here).spawn().expect("starts");
    while emulators(&mark).is_empty() {
        assert!(killed.try_wait().expect("known").is_none(), "it ended before its guest ran");
        thread::sleep(Duration::from_millis(50));
    }
    killed.kill().expect("killed");
    killed.wait().expect("ended");
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(50));
        if emulators(&mark).is_empty() {
            return;
        }
    }
    panic!("an emulator is left");
}

/// A job of five tests in a real-time kernel. rtscope is killed while the first guest runs, and goes on.
#[test]
fn a_job_s_kernel_is_judged_in_guests_and_posted_once_after_a_kill() {
    let test = "a_job_s_kernel_is_judged_in_guests_and_posted_once_after_a_kill";
    if !ready_or_skip(test) {
        return;
    }
    if program("curl").is_none() {
        return skip(test, "without curl");
    }
    let asked = KernelRef::parse(any_kernel()).expect("a name");
    let kernel = KernelUnderTest::find(&asked, &Cache::default(), &mut |_| {}).expect("a kernel");
    let room = tempfile::tempdir().expect("a folder");
    let here = room.path();
    let server = FakeKernelCi::start();
    let image = fs::read(kernel.file).expect("an image");
    server.put_file("bzImage", &image);
    let tests = json!([
        job_test("boot-test-6870c1b3", "boot", "", &[]),
        job_test(
            "good",
            "rt-tests",
            "tst_cmd=cyclictest max_latency=5000 cycles=200",
            &["boot-test-6870c1b3"]
        ),
        job_test("bad", "rtscope", "require=max<1us cycles=200", &[]),
        job_test("ltp-smoketest", "ltp", "tst_cmdfiles=smoketest", &[]),
        job_test("after", "cyclictest", "", &["bad"]),
    ]);
    server.add_job(NODE, "mine", &definition(&server.file("bzImage"), &tests));
    kill_in_guest(&server, here);
    assert_eq!(server.ended(), [""; 0]);
    // A kernel that was cut is no kernel: nothing is said of how it boots.
    server.put_file("cut", &image[..image.len() / 2]);
    let boot = json!([job_test("boot", "boot", "", &[])]);
    server.add_job(BROKEN, "mine", &definition(&server.file("cut"), &boot));

    let ran = lab(&server, here).output().expect("starts");
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    assert_eq!(
        server.ended(),
        [format!("{NODE} fail"), format!("{BROKEN} incomplete")],
        "{}",
        text(&ran)
    );
    let node = server.node(NODE);
    let why = node["data"]["error_msg"].as_str().expect("a reason");
    assert!(why.starts_with("bad: ") && why.contains("max < 1us"), "{why}");
    let cut = server.node(BROKEN)["data"]["error_msg"].to_string();
    assert!(cut.contains("cut short"), "{cut}");

    let documents = server.submissions();
    assert_eq!(documents.len(), 2);
    check_document(documents[0]["tests"].as_array().expect("tests"));
    assert!(here.join(format!("state/jobs/{NODE}/test-1/record/report.html")).is_file());
    assert!(!here.join(format!("state/jobs/{NODE}/kernel")).exists());
}

/// That KCIDB gets a test for each test of the job, and the figures of the guests.
fn check_document(rows: &[Value]) {
    let status = |id: &str| {
        let row = rows.iter().find(|row| row["misc"]["kernelci_test_id"] == id);
        row.map(|row| row["status"].as_str().unwrap_or_default().to_owned()).expect("a row")
    };
    assert_eq!(
        ["boot-test-6870c1b3", "good", "bad", "ltp-smoketest", "after"].map(status),
        ["PASS", "PASS", "FAIL", "SKIP", "SKIP"]
    );
    let good =
        rows.iter().find(|row| row["id"] == format!("my_lab:{NODE}.1.rtscope.lab-quick.disk.max"));
    let max_s = good.expect("a figure")["number"]["value"].as_f64().expect("a latency");
    assert!((1e-6..5e-3).contains(&max_s), "{max_s}");
    assert!(rows.iter().all(|row| row["build_id"] == "maestro:6870c1b20000000000000001"));
    let run = rows.iter().find(|row| row["misc"]["kernelci_test_id"] == "good").expect("a row");
    let log = format!("https://results.example/jobs/{NODE}/test-1/record/console.txt");
    assert_eq!(run["log_url"], log.as_str());
    let ids: std::collections::BTreeSet<&str> =
        rows.iter().filter_map(|row| row["id"].as_str()).collect();
    assert_eq!(ids.len(), rows.len());
}
