//! `rtscope network`: that each cycle and each frame is counted once, that faults of a peer come out as they were put
//! in, that nothing stays behind, and that mistakes are said. How long a frame takes is nobody's business here.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::UdpSocket,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rtscope_testing::devices;
use serde_json::Value;

use crate::support::{
    folder, json, kill, output, processes_of_ours, refused, root_or_skip, rtscope, start, text,
    wait_for, words,
};

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Asserts that the books of all cells balance; the frames of each.
fn frames(document: &Value) -> Vec<Value> {
    let cells = document["cells"].as_array().expect("cells");
    let one = |cell: &Value| {
        let (all, frames) = (&cell["all"], cell["all"]["frames"].clone());
        assert!(frames.is_object(), "{cell}");
        assert_eq!(count(all, "planned"), count(all, "recorded") + count(all, "missed"), "{cell}");
        let of = |key: &str| count(&frames, key);
        assert_eq!(of("planned"), count(all, "planned"), "{frames}");
        assert_eq!(of("in_time"), count(all, "recorded"), "{frames}");
        assert_eq!(of("sent"), of("in_time") + of("late") + of("lost"), "{frames}");
        assert_eq!(of("planned"), of("sent") + of("not_sent"), "{frames}");
        for part in frames["parts"].as_array().expect("parts") {
            assert!(count(part, "count") <= of("in_time"), "{part}");
        }
        frames
    };
    cells.iter().map(one).collect()
}

fn part<'a>(frames: &'a Value, name: &str) -> Option<&'a Value> {
    frames["parts"].as_array().expect("parts").iter().find(|part| part["part"] == name)
}

/// A run of one phase, on any machine: an ordinary thread, a cycle that a busy machine keeps, no wait.
fn plan(folder: &Path, network: &str, seconds: &str) {
    let plan = format!(
        "name = 'net'\n[sampler]\npolicy = 'other'\ninterval = '4ms'\ncpus = 'last'\nnetwork = '{network}'\n\
         [[phase]]\nname = 'rest'\nduration = '{seconds}'\n"
    );
    fs::write(folder.join("p.toml"), plan).expect("a plan");
}

#[test]
fn each_frame_over_loopback_is_counted_once_and_its_way_has_parts() {
    let folder = folder();
    plan(folder.path(), "udp", "2s");
    let document =
        json(folder.path(), "network p.toml --out run --json --require 'lost <= 100000'");
    let frames = frames(&document);
    assert!(count(&frames[0], "in_time") > 100, "{}", frames[0]);
    for name in ["wake_up", "send", "wire", "receive", "round_trip"] {
        let part = part(&frames[0], name).unwrap_or_else(|| panic!("{name}: {}", frames[0]));
        assert!(count(part, "count") > 0 && count(part, "max") > 0, "{part}");
    }
    assert!(part(&frames[0], "card").is_none(), "the loopback device has no clock");
    assert_eq!(document["requirements"][0]["requirement"], "lost <= 100000");
    let page = fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    for words in ["id=\"frames\"", "send path", "out of order", "receive path and wake-up"] {
        assert!(page.contains(words), "{words}");
    }
    assert_eq!(json(folder.path(), "report run --json"), document, "judged again");
    // Exports and comparison are those of every run.
    for format in ["csv", "csv-slices", "openmetrics", "junit"] {
        let exported = output(folder.path(), &format!("export run --format {format} --out -"));
        assert!(exported.status.success(), "{format}: {}", text(&exported.stderr));
        assert!(!exported.stdout.is_empty(), "{format}");
    }
    let shown = text(&output(folder.path(), "report run").stdout);
    for words in
        ["until the frame is back", "Frames\n", "Parts of the round trip in us", "round trip"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

/// How many of the frames that were sent in the cell have a number that a fault hits: to within the one whose number
/// the cell doesn't begin with.
fn hits(sent: u64, period: u64) -> std::ops::RangeInclusive<u64> {
    sent / period..=sent.div_ceil(period)
}

#[test]
fn frames_that_a_peer_drops_doubles_and_delays_are_counted_as_such() {
    let folder = folder();
    // A frame of a busy machine may be late by itself: there may be more, but never fewer.
    for (fault, key, period) in [
        ("drop", "lost", 7),
        ("duplicate", "duplicates", 5),
        ("late", "late", 10),
        ("swap", "out_of_order", 9),
    ] {
        plan(folder.path(), "udp", "2s");
        let run = format!("network p.toml --fault {fault}={period} --out {fault} --json");
        let document = json(folder.path(), &run);
        let frames = frames(&document);
        let (found, sent) = (count(&frames[0], key), count(&frames[0], "sent"));
        let expected = hits(sent, period);
        // The answer of the last frame of the phase is due in none.
        assert!(found + 1 >= *expected.start(), "{fault}: {found} of {sent}: {}", frames[0]);
        let late = count(&frames[0], "late") + count(&frames[0], "lost");
        let most = expected.end() + if key == "late" || key == "lost" { late } else { 0 };
        assert!(found <= most, "{fault}: {found} of {sent}: {}", frames[0]);
        let codes = document["findings"].to_string();
        let code = if fault == "duplicate" { "frames-odd" } else { "frames-not-back" };
        assert!(codes.contains(code), "{fault}: {codes}");
    }
    let run = "network p.toml --fault drop=2 --out failed --quiet --require 'lost = 0'";
    assert_eq!(
        output(folder.path(), run).status.code(),
        Some(2),
        "a requirement on lost frames fails"
    );
}

#[test]
fn ethernet_frames_cross_a_cable_that_is_gone_afterwards() {
    if !root_or_skip("ethernet_frames_cross_a_cable_that_is_gone_afterwards") {
        return;
    }
    let before = devices::lasting();
    let folder = folder();
    for transport in ["udp", "raw", "xdp"] {
        plan(folder.path(), "udp", "1s");
        // An ordinary thread may be kept off its CPU for all that time.
        let run = format!(
            "network p.toml --policy fifo --transport {transport} --over veth --out {transport} --json"
        );
        let document = json(folder.path(), &run);
        let frames = frames(&document);
        assert!(count(&frames[0], "in_time") > 50, "{transport}: {}", frames[0]);
        // Rings have no stamps of the kernel.
        assert_eq!(part(&frames[0], "wire").is_some(), transport != "xdp", "{transport}");
        assert!(part(&frames[0], "round_trip").is_some(), "{transport}");
        assert_eq!(devices::lasting(), before);
    }
    // A killed run leaves nothing: no device, no process, and a record that is read.
    plan(folder.path(), "raw over=veth", "50s");
    let mut child = start(folder.path(), "network p.toml --out killed --slice 200ms --quiet");
    let slices = folder.path().join("killed/slices/t0.jsonl");
    wait_for("some slices", Duration::from_secs(20), || {
        fs::read_to_string(&slices).is_ok_and(|text| text.lines().count() >= 5)
    });
    kill(child.id(), "KILL");
    child.wait().expect("ends");
    wait_for("the peer to die", Duration::from_secs(5), || processes_of_ours().is_empty());
    assert_eq!(devices::lasting(), before);
    let document = json(folder.path(), "report killed --json");
    assert!(count(&document["cells"][0]["all"]["frames"], "in_time") > 50, "{document}");
}

/// Two interfaces of this machine with a cable between them, as two cards of it; gone when dropped.
struct Cable(&'static str, &'static str);

impl Cable {
    fn lay() -> Cable {
        let cable = Cable("rts-test-a", "rts-test-b");
        let ip = |words: &[&str]| {
            let output = Command::new("ip").args(words).output().expect("ip");
            assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        };
        // Of a run of the tests that was killed.
        let _ = Command::new("ip").args(["link", "del", cable.0]).output();
        ip(&["link", "add", cable.0, "type", "veth", "peer", "name", cable.1]);
        [cable.0, cable.1].into_iter().for_each(|name| ip(&["link", "set", name, "up"]));
        cable
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", self.0]).output();
    }
}

#[test]
fn frames_go_out_of_one_interface_and_in_at_another_or_to_a_peer_behind_one() {
    let test = "frames_go_out_of_one_interface_and_in_at_another_or_to_a_peer_behind_one";
    if !root_or_skip(test) {
        return;
    }
    let cable = Cable::lay();
    let (a, b) = (cable.0, cable.1);
    let folder = folder();
    plan(folder.path(), "udp", "1s");
    for transport in ["raw", "xdp"] {
        let run = format!(
            "network p.toml --transport {transport} --cards {a},{b} --out {transport} --json"
        );
        let frames = frames(&json(folder.path(), &run));
        assert!(count(&frames[0], "in_time") > 50, "{transport}: {}", frames[0]);
    }
    // A peer behind an interface is searched for, and found.
    let (mut serving, _) = start_server(folder.path(), &format!("--interface {b}"));
    let run = format!("network p.toml --interface {a} --out peer --json");
    let document = json(folder.path(), &run);
    kill(serving.id(), "INT");
    assert!(serving.wait().expect("ends").success(), "Ctrl-C ends it well");
    assert!(count(&frames(&document)[0], "in_time") > 50, "{document}");
    refused(folder.path(), &run, 1, &["no peer answers", a]);
    refused(
        folder.path(),
        &format!("network --interface {a} --size 1600"),
        64,
        &["size 1600 does not fit", "at most 1500"],
    );
    let _ = Command::new("ip").args(["link", "set", b, "down"]).output();
    refused(folder.path(), &format!("network --interface {a}"), 1, &["no carrier"]);
    refused(folder.path(), &format!("network --interface {b}"), 1, &["is down", "ip link set"]);
}

/// Starts a server, and waits until it says where it listens.
fn start_server(folder: &Path, options: &str) -> (Child, String) {
    let mut child = rtscope(folder)
        .args(words(&format!("network --serve {options}")))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, line)
}

/// Starts a server at a free port, and waits until it says which one.
fn serve(folder: &Path, options: &str) -> (Child, String) {
    let (child, line) = start_server(folder, &format!("127.0.0.1:0 {options}"));
    let address =
        line.split_whitespace().nth(2).expect("an address").trim_end_matches('.').to_owned();
    (child, address)
}

#[test]
fn a_peer_by_its_address_answers_and_its_end_ends_the_run() {
    let folder = folder();
    let (mut serving, address) = serve(folder.path(), "--fault drop=4");
    plan(folder.path(), "udp", "2s");
    let document = json(folder.path(), &format!("network p.toml --to {address} --out a --json"));
    let found = &frames(&document)[0];
    assert!(count(found, "lost") + 1 >= count(found, "sent") / 4, "{found}");
    // A peer that dies in mid-run: what was measured stays, and the run says why it ended.
    plan(folder.path(), "udp", "50s");
    let run = format!("network p.toml --to {address} --out b --json --slice 200ms");
    let mut child = rtscope(folder.path());
    let child = child.args(words(&run)).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let child = child.expect("starts");
    let slices = folder.path().join("b/slices/t0.jsonl");
    wait_for("some slices", Duration::from_secs(20), || {
        fs::read_to_string(&slices).is_ok_and(|text| text.lines().count() >= 5)
    });
    kill(serving.id(), "KILL");
    serving.wait().expect("ends");
    let output = child.wait_with_output().expect("ends by itself");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["cells"][0]["ended"], "failed", "{document}");
    assert!(document["findings"].to_string().contains("peer-silent"), "{document}");
    let found = &frames(&document)[0];
    assert!(count(found, "in_time") > 50 && count(found, "lost") > 100, "{found}");
    // And nobody at all.
    let said = ["no peer answers at", &address, "rtscope network --serve"];
    refused(folder.path(), &format!("network p.toml --to {address} --out c"), 1, &said);
    assert!(!folder.path().join("c").exists(), "no record of nothing");
}

#[test]
fn a_load_runs_beside_the_frames() {
    let folder = folder();
    let plan = "name = 'net'\n[sampler]\ninterval = '4ms'\npolicy = 'other'\ncpus = 'last'\nnetwork = 'udp'\n\
                [matrix]\nduration = '1s'\nload = ['none', 'message groups=1', 'network']\n";
    fs::write(folder.path().join("p.toml"), plan).expect("a plan");
    let document = json(folder.path(), "network p.toml --out run --json");
    assert_eq!(frames(&document).len(), 3);
    for cell in &document["cells"].as_array().expect("cells")[1..] {
        assert!(count(&cell["loads"][0], "work") > 0, "{cell}");
    }
}

#[test]
fn wrong_requests_are_refused_before_anything_is_measured() {
    let folder = folder();
    let at = folder.path();
    refused(at, "network --transport tcp", 64, &["tcp", "udp"]);
    refused(at, "network --cycle 50us", 64, &["100us to 1s", "50us"]);
    refused(at, "network --cycle 2s", 64, &["100us to 1s"]);
    refused(at, "network --cycle 1ms --timeout 2ms", 64, &["longer than the cycle of 1ms"]);
    refused(at, "network --timeout 1us", 64, &["less than 10us"]);
    refused(at, "network --size 10", 64, &["24 to 9000"]);
    refused(at, "network --size 99999", 64, &["24 to 9000"]);
    refused(at, "network --transport raw --over loopback", 64, &["carries no Ethernet"]);
    refused(at, "network --transport raw --to 02:00:00:00:00:01", 64, &["interface=NAME"]);
    refused(at, "network --interface no-such-if0", 64, &["no network interface \"no-such-if0\""]);
    refused(at, "network --cards eth0", 64, &["two interfaces"]);
    refused(at, "network --cards lo,lo", 64, &["two interfaces"]);
    refused(at, "network --transport udp --cards a,b", 64, &["without a card"]);
    refused(at, "network --to no.such.host.invalid", 64, &["no host", "no.such.host.invalid"]);
    refused(at, "network --to 127.0.0.1 --over veth", 64, &["--over"]);
    refused(at, "network --fault drop=1", 64, &["2 to 1000000"]);
    refused(at, "network --fault fall=3", 64, &["no option \"fall\""]);
    refused(at, "network quick", 64, &["sends no frames", "--transport"]);
    refused(at, "network --sleep relative", 64, &["fixed cycle", "--sleep absolute"]);
    refused(at, "network --clock realtime", 64, &["--clock monotonic"]);
    refused(at, "network --network udp --size 64", 64, &["--network", "use only one of them"]);
    refused(at, "run --network tcp", 64, &["is not a way to send frames"]);
    refused(at, "network --require 'lost < 0'", 64, &["never below 0"]);
    refused(at, "network --serve --transport raw", 64, &["--interface eth1"]);
    refused(at, "network --serve 127.0.0.1", 64, &["--serve"]);
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    refused(at, &format!("network --serve {address}"), 1, &["can't listen on", "in use"]);
    assert_eq!(fs::read_dir(at).expect("a folder").count(), 0, "a refused command leaves nothing");
}
