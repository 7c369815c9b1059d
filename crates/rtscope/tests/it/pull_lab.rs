//! `rtscope fleet pull-lab` with a small KernelCI on this machine. The guests are tested with the lab.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use rtscope_testing::kernel_ci::{API_TOKEN, FakeKernelCi, Fault, KCIDB_TOKEN};
use serde_json::{Value, json};

use crate::{
    export::{KCIDB, kernel_ci},
    support::{
        folder, kill, output_of, processes_with, program, root_or_skip, rtscope, skip, text,
        wait_for,
    },
};

const NODE: &str = "6870c1b2aaaaaaaaaaaaaaaa";
const OTHER: &str = "6870c1b2bbbbbbbbbbbbbbbb";

/// A command that asks this server once, with the tokens of the environment.
fn lab(server: &FakeKernelCi, folder: &Path) -> Command {
    let mut command = rtscope(folder);
    command.args(["fleet", "pull-lab", "--runtime", "mine", "--state", "state", "--once"]);
    command.args(["--api", &server.api(), "--kcidb", &server.kcidb(), "--origin", "my_lab"]);
    command.env("KERNELCI_API_TOKEN", API_TOKEN).env("KCIDB_JWT", KCIDB_TOKEN);
    command
}

fn once(server: &FakeKernelCi, folder: &Path) -> (Option<i32>, String) {
    let ran = output_of(&mut lab(server, folder));
    (ran.status.code(), said(&ran))
}

fn said(ran: &Output) -> String {
    let both = text(&ran.stdout) + &text(&ran.stderr);
    assert!(!both.contains(API_TOKEN) && !both.contains(KCIDB_TOKEN), "a token is shown: {both}");
    both
}

/// rtscope starts the emulator, which runs other people's kernels, in this way.
#[test]
fn a_guarded_program_has_no_token_in_its_environment() {
    let parent = std::process::id().to_string();
    let mut command = rtscope(Path::new("."));
    command.args(["guard", "--parent", &parent, "--", "env"]).env("OF_OURS", "kept");
    command.env("KERNELCI_API_TOKEN", API_TOKEN).env("KCIDB_JWT", KCIDB_TOKEN);
    let variables = said(&output_of(&mut command));
    assert!(variables.contains("OF_OURS=kept"), "{variables}");
    assert!(!variables.contains("KERNELCI") && !variables.contains("KCIDB"), "{variables}");
}

/// Whoever starts rtscope nice, or where no other wants the CPU, gets such an emulator, and nobody else does.
#[test]
fn a_guarded_program_gives_as_much_way_as_rtscope() {
    let parent = std::process::id().to_string();
    let guard = [env!("CARGO_BIN_EXE_rtscope"), "guard", "--parent", &parent, "--"];
    let placed = |before: &[&str], guard: &[&str]| {
        let mut command = Command::new("env");
        command.args(before).args(guard).args(["cat", "/proc/self/stat"]);
        let said = text(&output_of(&mut command).stdout);
        let fields: Vec<&str> = said.rsplit_once(") ").expect("a name").1.split(' ').collect();
        // Fields 19 and 41 of proc_pid_stat(5): nice value and policy.
        (fields[16].to_owned(), fields[38].to_owned())
    };
    for before in [&[][..], &["nice", "-n", "3"], &["chrt", "--idle", "0"]] {
        assert_eq!(placed(before, &guard), placed(before, &[]), "{before:?}");
    }
    if root_or_skip("a_guarded_program_gives_as_much_way_as_rtscope") {
        let in_real_time = ["nice", "-n", "3", "chrt", "--fifo", "1"];
        assert_eq!(placed(&in_real_time, &guard), placed(&in_real_time[..3], &[]));
    }
}

/// A definition as KernelCI's template writes it.
fn definition(server: &FakeKernelCi, tests: &[(&str, &str)]) -> Value {
    let test = |(id, kind): &(&str, &str)| json!({ "id": id, "type": kind, "depends": [], "timeout_s": 600, "pre-commands": [], "post-commands": [] });
    json!({
        "artifacts": { "kernel": server.file("bzImage"), "modules": server.file("modules.tar.xz") },
        "tests": tests.iter().map(test).collect::<Vec<_>>(),
        "environment": { "platform": "qemu-x86", "arch": "x86_64", "console": { "method": "serial", "baud": 115_200 } },
        "callback": { "url": "http://127.0.0.1/node/x", "token_name": "mine" },
    })
}

/// A server with a job for this lab; none, and said so, without curl.
fn server(test: &str) -> Option<FakeKernelCi> {
    if program("curl").is_none() {
        skip(test, "without curl");
        return None;
    }
    let server = FakeKernelCi::start();
    server.put_file("bzImage", b"this is no kernel");
    Some(server)
}

#[test]
fn a_test_that_no_plan_answers_is_posted_as_skipped_with_the_reason() {
    let test = "a_test_that_no_plan_answers_is_posted_as_skipped_with_the_reason";
    let Some(server) = server(test) else { return };
    let room = folder();
    server.add_job(NODE, "mine", &definition(&server, &[("ltp-smoketest", "ltp")]));
    server.add_job(OTHER, "another", &definition(&server, &[("boot", "boot")]));
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(0), "{said}");
    let node = server.node(NODE);
    assert_eq!((&node["state"], &node["result"]), (&json!("done"), &json!("skip")));
    let why = node["data"]["error_msg"].as_str().expect("a reason");
    assert!(why.contains("ltp-smoketest") && why.contains("no test of the type"), "{why}");
    assert_eq!(node["data"]["error_code"], Value::Null);
    assert!(node["data"]["job_id"].as_str().is_some_and(|id| id.starts_with("mine:")), "{node}");
    assert_eq!(node["owner"], "maestro");
    assert_eq!(server.requests("GET /files/bzImage"), [""; 0], "nothing needs the kernel");
    // Another lab's job.
    assert_eq!(server.node(OTHER)["data"]["job_id"], Value::Null);
    assert_eq!(server.node(OTHER)["state"], "available");
    let submissions = server.submissions();
    let [document] = submissions.as_slice() else { panic!("{submissions:?}") };
    let row = &document["tests"][0];
    assert_eq!((&row["status"], &row["path"]), (&json!("SKIP"), &json!("ltp")));
    assert_eq!(row["build_id"], "maestro:6870c1b20000000000000001");
    assert_eq!(row["id"], format!("my_lab:{NODE}.0"));
    // The tokens are nowhere.
    let mut grep = Command::new("grep");
    grep.args(["-rE", &format!("{API_TOKEN}|{KCIDB_TOKEN}")]).arg(room.path());
    assert_eq!(text(&output_of(&mut grep).stdout), "");
    // Nothing is repeated: our own updates of the node are events of an available job, too.
    let before = server.requests("").len();
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(0), "{said}");
    let after: Vec<String> = server.requests("").split_off(before);
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(after[0].contains("from=2026-07-21T06:02:2"), "{after:?}");
    if !kernel_ci(room.path(), "import kcidb_io", &[]).status.success() {
        return skip(test, "without KernelCI's Python package kcidb-io");
    }
    fs::write(room.path().join("sent"), document.to_string()).expect("written");
    let taken = kernel_ci(room.path(), KCIDB, &["sent"]);
    assert!(taken.status.success(), "{}", text(&taken.stderr));
}

#[test]
fn what_is_wrong_with_a_job_makes_it_incomplete_with_the_reason() {
    let test = "what_is_wrong_with_a_job_makes_it_incomplete_with_the_reason";
    let Some(server) = server(test) else { return };
    let boot = || definition(&server, &[("b", "boot")]);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut definition = boot();
        change(&mut definition);
        definition
    };
    let elsewhere = |path: &str| json!(server.file(path));
    let cases = [
        (json!([1]), "invalid_job_params", "not an object"),
        (with(&|job| job["tests"] = json!([])), "invalid_job_params", "0 tests"),
        (with(&|job| job["artifacts"] = json!({})), "invalid_job_params", "no artifact kernel"),
        (
            with(&|job| job["artifacts"]["kernel"] = json!("file:///etc/passwd")),
            "invalid_job_params",
            "not an HTTP address",
        ),
        (
            with(&|job| job["artifacts"]["kernel"] = elsewhere("none")),
            "Infrastructure",
            "answers 404",
        ),
        (
            with(&|job| job["integrity"]["sha256"]["kernel"] = json!("0".repeat(64))),
            "Infrastructure",
            "the job says 0000",
        ),
        (boot(), "Infrastructure", "not a kernel image"),
    ];
    let room = folder();
    for (at, (definition, ..)) in cases.iter().enumerate() {
        server.add_job(&format!("6870c1b3{at:016}"), "mine", definition);
    }
    let broken = "6870c1b2cccccccccccccccc";
    server.add_job(broken, "mine", &boot());
    server.put_file(&format!("{broken}.json"), b"{ \"artifacts\": ");
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(0), "{said}");
    let mut all: Vec<(String, &str, &str)> = cases
        .iter()
        .enumerate()
        .map(|(at, (_, code, why))| (format!("6870c1b3{at:016}"), *code, *why))
        .collect();
    all.push((broken.to_owned(), "invalid_job_params", "not JSON"));
    for (id, code, why) in all {
        let node = server.node(&id);
        assert_eq!(
            (&node["state"], &node["result"]),
            (&json!("done"), &json!("incomplete")),
            "{why}"
        );
        assert_eq!(node["data"]["error_code"], code, "{node}");
        assert!(
            node["data"]["error_msg"].as_str().is_some_and(|said| said.contains(why)),
            "{node}"
        );
    }
    assert_eq!(server.ended().len(), 8);
    assert_eq!(server.submissions().len(), 8);
    // What was fetched is gone.
    assert!(!room.path().join("state/jobs").join(NODE).join("kernel").exists());
}

#[test]
fn a_server_that_fails_for_a_while_loses_no_job() {
    let test = "a_server_that_fails_for_a_while_loses_no_job";
    let Some(server) = server(test) else { return };
    let room = folder();
    server.add_job(NODE, "mine", &definition(&server, &[("ltp", "ltp")]));
    let definition_line = format!("GET /files/{NODE}.json");
    let node_line = format!("PUT /latest/node/{NODE}");
    server.plan("GET /latest/events", "", Fault::Status(502), 1);
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no events: the server answers 502"), "{said}");
    // The claim isn't taken.
    for _ in 0..4 {
        server.plan(&node_line, "", Fault::Status(401), 1);
        let (code, said) = once(&server, room.path());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("not claimed yet") && said.contains("KERNELCI_API_TOKEN"), "{said}");
    }
    // The definition comes at the second try, and KCIDB fails.
    server.plan("POST /submit", "", Fault::Status(500), 1);
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("not submitted to KCIDB yet"), "{said}");
    assert_eq!(server.ended(), [format!("{NODE} skip")], "the node doesn't wait for KCIDB");
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!((server.ended().len(), server.submissions().len()), (1, 1));
    assert_eq!(server.requests(&definition_line).len(), 1, "it is not run again");
    server.add_job(OTHER, "mine", &definition(&server, &[("ltp", "ltp")]));
    server.plan(&format!("GET /files/{OTHER}.json"), "", Fault::Status(503), 2);
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(0), "{said}");
    let node = server.node(OTHER);
    assert_eq!((&node["result"], server.ended().len()), (&json!("skip"), 2));
    // KernelCI's time limit has ended the node: nothing is posted to it.
    let late = "6870c1b2dddddddddddddddd";
    server.add_job(late, "mine", &definition(&server, &[("ltp", "ltp")]));
    server.plan(&format!("PUT /latest/node/{late}"), "\"done\"", Fault::Status(503), 1);
    assert_eq!(once(&server, room.path()).0, Some(1));
    server.change(late, |node| {
        (node["state"], node["result"]) = (json!("done"), json!("incomplete"))
    });
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(server.node(late)["result"], "incomplete");
}

#[test]
fn a_job_that_another_lab_has_is_left() {
    let test = "a_job_that_another_lab_has_is_left";
    let Some(server) = server(test) else { return };
    let room = folder();
    server.add_job(NODE, "mine", &definition(&server, &[("ltp", "ltp")]));
    server.add_job(OTHER, "mine", &definition(&server, &[("ltp", "ltp")]));
    server.change(NODE, |node| node["data"]["job_id"] = json!("other:1"));
    server.change(OTHER, |node| node["state"] = json!("closing"));
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("taken by other:1") && said.contains("its state is closing"), "{said}");
    assert_eq!(server.requests("PUT"), [""; 0]);
    assert_eq!(server.submissions().len(), 0);
}

/// rtscope is killed in each of its requests, before the server has done what it asks and after.
#[test]
fn a_kill_in_any_request_loses_no_job_and_posts_none_twice() {
    let test = "a_kill_in_any_request_loses_no_job_and_posts_none_twice";
    let Some(server) = server(test) else { return };
    let room = folder();
    for (at, (line, body, fault)) in [
        ("GET /latest/events", "", Fault::Swallowed),
        ("GET /latest/node/NODE", "", Fault::Swallowed),
        ("PUT /latest/node/NODE", "job_id", Fault::Swallowed),
        ("PUT /latest/node/NODE", "job_id", Fault::Unanswered),
        ("GET /files/NODE.json", "", Fault::Swallowed),
        ("GET /files/bzImage", "", Fault::Swallowed),
        ("POST /submit", "", Fault::Swallowed),
        ("POST /submit", "", Fault::Unanswered),
        ("PUT /latest/node/NODE", "\"done\"", Fault::Swallowed),
        ("PUT /latest/node/NODE", "\"done\"", Fault::Unanswered),
    ]
    .into_iter()
    .enumerate()
    {
        let node = format!("6870c1b3{at:016}");
        server.add_job(&node, "mine", &definition(&server, &[("b", "boot"), ("l", "ltp")]));
        server.plan(&line.replace("NODE", &node), body, fault, 1);
        let mut command = lab(&server, room.path());
        let mut killed =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        server.wait_for_fault();
        kill(killed.id(), "KILL");
        killed.wait().expect("killed");
        let address = server.api().replace("/latest", "");
        wait_for("curl to end with it", std::time::Duration::from_secs(10), || {
            processes_with(&address).is_empty()
        });
        let (code, said) = once(&server, room.path());
        assert_eq!(code, Some(0), "{line} {fault:?}: {said}");
        let found = server.node(&node);
        assert_eq!((&found["state"], &found["result"]), (&json!("done"), &json!("incomplete")));
        let ends: Vec<String> =
            server.ended().into_iter().filter(|end| end.starts_with(&node)).collect();
        assert_eq!(ends.len(), 1, "{line} {fault:?}: {ends:?}");
        let mut documents = server.submissions();
        documents.retain(|document| document.to_string().contains(&node));
        let most = if (line, fault) == ("POST /submit", Fault::Unanswered) { 2 } else { 1 };
        assert_eq!(documents.len(), most, "{line} {fault:?}");
        // A second one would be the first once more: KCIDB keeps a test once by its name.
        assert!(documents.iter().all(|document| document == &documents[0]));
    }
}

#[test]
fn a_job_that_ends_rtscope_each_time_is_given_up() {
    let test = "a_job_that_ends_rtscope_each_time_is_given_up";
    let Some(server) = server(test) else { return };
    let room = folder();
    server.add_job(NODE, "mine", &definition(&server, &[("b", "boot")]));
    for _ in 0..3 {
        server.plan("GET /files/bzImage", "", Fault::Swallowed, 1);
        let mut command = lab(&server, room.path());
        let mut killed =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        server.wait_for_fault();
        kill(killed.id(), "KILL");
        killed.wait().expect("killed");
    }
    let (code, said) = once(&server, room.path());
    assert_eq!(code, Some(0), "{said}");
    let node = server.node(NODE);
    assert_eq!(
        (&node["result"], &node["data"]["error_code"]),
        (&json!("incomplete"), &json!("Infrastructure"))
    );
    let why = node["data"]["error_msg"].as_str().expect("a reason");
    assert!(why.contains("rtscope was interrupted 3 times"), "{why}");
}

#[test]
fn a_command_line_that_makes_no_sense_or_shows_a_token_is_refused() {
    let test = "a_command_line_that_makes_no_sense_or_shows_a_token_is_refused";
    if program("curl").is_none() {
        return skip(test, "without curl");
    }
    let room = folder();
    let refused = |words: &[&str], why: &str| {
        let mut command = rtscope(room.path());
        command.args(["fleet", "pull-lab"]).args(words).env_remove("KERNELCI_API_TOKEN");
        let ran = output_of(&mut command);
        assert_eq!(ran.status.code(), Some(64), "{words:?}: {}", said(&ran));
        assert!(said(&ran).contains(why), "{words:?}: {}", said(&ran));
    };
    let api = ["--api", "http://127.0.0.1:1/latest", "--runtime", "mine"];
    let with = |more: &[&'static str]| [&api[..], more].concat();
    refused(&api, "set the environment variable KERNELCI_API_TOKEN");
    refused(&["--api", "http://api.example/latest", "--runtime", "mine"], "use https");
    refused(&["--api", "api.example", "--runtime", "mine"], "not an HTTP address");
    refused(&["--api", api[1], "--runtime", "../x"], "the name of a runtime");
    refused(&with(&["--kcidb", "http://127.0.0.1:1/submit"]), "--origin");
    refused(&with(&["--test", "ltp=no-such-plan"]), "no-such-plan");
    refused(&with(&["--test", "ltp"]), "such as ltp-rt=lab-quick");
    fs::write(room.path().join("empty"), "\n").expect("written");
    refused(&with(&["--api-token", "empty"]), "empty has no token");
    assert!(!room.path().join("rtscope-runs").exists(), "nothing was begun");
}
