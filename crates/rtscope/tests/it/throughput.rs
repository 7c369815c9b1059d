//! `rtscope throughput`: that both sides count the same bytes, that what is lost is counted, that nothing
//! stays behind, and that a missing peer is said. How fast it goes is nobody's business here.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Command, Stdio},
    time::Duration,
};

use rtscope_testing::devices;
use serde_json::Value;

use crate::support::{
    folder, json, kill, output, processes_of_ours, refused, root_or_skip, rtscope, skip, text,
    wait_for,
};

fn count(transfer: &Value, key: &str) -> u64 {
    transfer[key].as_u64().unwrap_or_else(|| panic!("{key} of {transfer}"))
}

/// Asserts that the books of all transfers balance; how many there are.
fn balance(document: &Value) -> usize {
    let transfers = document["transfers"].as_array().expect("transfers");
    for one in transfers {
        assert!(count(one, "received_bytes") > 0, "{one}");
        if one["protocol"] == "tcp" {
            assert_eq!(one["sent_bytes"], one["received_bytes"], "{one}");
        } else {
            let (sent, lost) = (count(one, "sent_datagrams"), count(one, "lost_datagrams"));
            assert_eq!(sent, count(one, "received_datagrams") + lost, "{one}");
            let each = count(one, "sent_bytes") / sent;
            let received = count(one, "received_datagrams") * each;
            assert_eq!(received, count(one, "received_bytes"), "{one}");
        }
        let load = one["cpu_load"].as_f64().expect("a share");
        assert!((0.0..=1.0).contains(&load), "{one}");
    }
    transfers.len()
}

#[test]
fn both_sides_count_the_same_bytes() {
    let folder = folder();
    let arguments = "throughput --protocol both --windows 16,128 --duration 100ms --policy other \
                     --out run --json";
    let document = json(folder.path(), arguments);
    // Two protocols, two windows, without and with the sampler.
    assert_eq!(balance(&document), 8);
    // An ordinary thread may not run at all for as long as one transfer.
    let samplers = document["transfers"].as_array().expect("all").iter().map(|one| &one["sampler"]);
    let samplers: Vec<&Value> = samplers.filter(|sampler| !sampler.is_null()).collect();
    let sampled = |sampler: &&Value| sampler["samples"].as_u64() > Some(0);
    assert_eq!(samplers.len(), 4);
    assert!(samplers.iter().any(sampled), "{document}");
    assert!(document["rest"]["latency_ns_max"].as_u64() > Some(0), "{document}");
    let page = fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    for part in ["<svg", "UDP with a sampler", "1082.8"] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(json(folder.path(), "throughput --from run --json"), document, "judged again");
}

#[test]
fn namespaces_and_their_cable_are_gone_afterwards() {
    let test = "namespaces_and_their_cable_are_gone_afterwards";
    if !root_or_skip(test) {
        return;
    }
    // Namespaces that outlive their processes have a name here.
    let names = || -> BTreeSet<_> {
        let all = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        all.map(|entry| entry.file_name()).collect()
    };
    let before = (names(), devices::lasting());
    let folder = folder();
    let arguments = "throughput --over veth --protocol both --windows 64 --duration 100ms \
                     --no-sampler --out run --json";
    let document = json(folder.path(), arguments);
    assert_eq!((balance(&document), &document["over"]), (2, &Value::from("veth")));
    assert!(document["rest"].is_null() && document["transfers"][0]["sampler"].is_null());
    assert_eq!((names(), devices::lasting()), before);
    // Others have none but while a process is in them.
    assert!(processes_of_ours().is_empty());
}

#[test]
fn a_peer_serves_and_a_missing_one_is_said() {
    let folder = folder();
    let mut serving = rtscope(folder.path())
        .args(["throughput", "--serve", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(serving.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let address = line.split_whitespace().nth(2).expect("an address").trim_end_matches('.');
    let to = format!("throughput --to {address} --duration 60ms --windows 64 --no-sampler --json");
    for run in ["a", "b"] {
        let document = json(folder.path(), &format!("{to} --protocol both --out {run}"));
        assert_eq!((balance(&document), document["over"].as_str()), (2, Some(address)));
    }
    if root_or_skip("a_peer_serves_and_a_missing_one_is_said") {
        let load = format!("load network kind=icmp over=peer peer={address} --duration 2s --json");
        let document = json(folder.path(), &load);
        assert!(document["work"].as_u64() > Some(0), "the peer floods: {document}");
        assert_eq!(document["ok"], true, "{document}");
    }
    kill(serving.id(), "INT");
    assert!(serving.wait().expect("ends").success(), "Ctrl-C ends it well");
    let gone = output(folder.path(), &format!("{to} --out c"));
    let said = text(&gone.stderr);
    assert_eq!(gone.status.code(), Some(1), "{said}");
    for part in [address, "rtscope throughput --serve"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!folder.path().join("c").exists(), "no record of nothing");
    for (arguments, code, part) in [
        ("throughput --duration 1ms", 64, "50ms"),
        ("throughput --windows 0", 64, "windows"),
        ("throughput --serve 192.0.2.1:1", 1, "--serve"),
        ("throughput --from nowhere", 1, "nowhere/throughput.json"),
    ] {
        refused(folder.path(), arguments, code, &[part]);
    }
}

#[test]
fn an_iperf3_server_counts_what_was_sent() {
    let test = "an_iperf3_server_counts_what_was_sent";
    let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr());
    let port = port.expect("a free port").port().to_string();
    let mut serving = Command::new("timeout");
    serving.args(["60", "iperf3", "-s", "-B", "127.0.0.1", "-p", &port]);
    let is_there = Command::new("iperf3").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        skip(test, "without iperf3");
        return;
    }
    let mut serving = serving.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let folder = folder();
    // A client that only looks for it would end its first test: it listens anew then, and resets who came meanwhile.
    let listens =
        format!(" 0100007F:{:04X} 00000000:0000 0A ", port.parse::<u16>().expect("a port"));
    wait_for("iperf3", Duration::from_secs(20), || {
        std::fs::read_to_string("/proc/net/tcp").is_ok_and(|all| all.contains(&listens))
    });
    let arguments = format!(
        "throughput --iperf3 127.0.0.1:{port} --windows 16,64 --duration 100ms --policy other --json \
         --out run"
    );
    let ran = output(folder.path(), &arguments);
    kill(serving.id(), "TERM");
    let _ = serving.wait();
    // 3: on a machine that is very busy it has not read the last bytes when the test ends.
    assert!(matches!(ran.status.code(), Some(0 | 3)), "{}", text(&ran.stderr));
    let document: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let transfers = document["transfers"].as_array().expect("transfers");
    assert_eq!(transfers.len(), 4, "{document:#}");
    for one in transfers {
        let (sent, received) = (count(one, "sent_bytes"), count(one, "received_bytes"));
        let room = 4 * count(one, "window_bytes");
        assert!(received > 0 && (sent - room..=sent).contains(&received), "{one}");
        assert!(one["receive_buffer_bytes"].is_null() && one["receiver_cpu_load"].is_null());
    }
    let gone = output(folder.path(), &arguments.replace("run", "gone"));
    assert_eq!(gone.status.code(), Some(1), "{}", text(&gone.stderr));
    assert!(text(&gone.stderr).contains("iperf3 -s"), "{}", text(&gone.stderr));
    let udp = output(folder.path(), &format!("{arguments} --protocol udp"));
    assert_eq!(udp.status.code(), Some(64), "{}", text(&udp.stderr));
}
