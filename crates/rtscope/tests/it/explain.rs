//! `rtscope explain`: that an injected culprit is named first. Nothing here depends on how late the machine wakes: a
//! thread that computes for 20 ms of CPU time keeps one below it from running for as long at least, and other culprits
//! write down by the same clock when they were at work.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    folder, json, left_instances, output, output_of, root_or_skip, skip, text, wait_for,
};

/// Ends with the test.
struct Hog(Child);

impl Hog {
    fn start(folder: &Path) -> Hog {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rtscope"));
        command.args(HOG.split(' ')).current_dir(folder);
        Hog(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// 20 ms of CPU time in each 100 ms, above what is watched, on its CPU.
const HOG: &str = "drift --sleep absolute --period 100ms --work 20ms --policy fifo:90 --cpus 0 --duration 120s --out hog";

/// What is watched: 5 ms, so that each of the hog's times meets one of its activations near its begin.
const WATCHED: &str = "drift --sleep absolute --period 5ms --work 0us --policy fifo:50 --cpus 0 --duration 60s --out app";

#[test]
fn an_injected_culprit_is_named_first_with_its_time() {
    if !root_or_skip("an_injected_culprit_is_named_first_with_its_time") {
        return;
    }
    let folder = folder();
    let before = left_instances();
    let program = env!("CARGO_BIN_EXE_rtscope");
    let _hog = Hog::start(folder.path());
    let line = format!(
        "explain --duration 3s --above 1ms --worst 10 --json --out run -- {program} {WATCHED}"
    );
    let document = json(folder.path(), &line);
    let culprit = &document["culprits"][0];
    assert_eq!(culprit["kind"], "interference", "{culprit}");
    let name = culprit["name"].as_str().expect("a name");
    assert!(name.ends_with("(real-time priority 90)"), "{culprit}");
    assert!(culprit["worst_ns"].as_u64() >= Some(14_000_000), "{culprit}");
    assert!(culprit["remedy"].as_str().is_some_and(|text| text.contains("priority")), "{culprit}");
    let spikes = document["spikes"].as_array().expect("spikes");
    assert!(!spikes.is_empty());
    for spike in spikes {
        let pieces = spike["pieces"].as_array().expect("pieces");
        let sum: u64 = pieces.iter().filter_map(|piece| piece["ns"].as_u64()).sum();
        assert_eq!(Some(sum), spike["latency_ns"].as_u64(), "{spike}");
        assert!(spike["latency_ns"].as_u64() >= Some(1_000_000), "{spike}");
    }
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    assert!(page.contains("What was in the way") && page.contains("real-time priority 90"));
    assert_eq!(json(folder.path(), "explain --from run --json"), document, "explained again");
    let after = left_instances();
    assert!(after.is_subset(&before), "left behind: {:?}", after.difference(&before));
}

/// Computes for 2 ms of its CPU time in each 100 ms above everything else, and notes from when to when by
/// `CLOCK_MONOTONIC`. Where something stopped it meanwhile, as a host does, it notes nothing. It writes the note of a burst
/// in the next one, so that almost all that it does lies between the two instants.
const BURSTS: &str = "\
import os, time
os.sched_setaffinity(0, {0})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
log, note = open('bursts', 'w', 1), None
while True:
    time.sleep(0.098)
    begin = time.monotonic_ns()
    if note: print(*note, file=log)
    start, until = time.monotonic_ns(), time.thread_time_ns() + 2000000
    while time.thread_time_ns() < until: pass
    end = time.monotonic_ns()
    note = (begin, end) if end - start < 2050000 else None
";

/// Sends packets that the kernel takes some milliseconds to receive, in a softirq of the sender's CPU: 60 sockets look at
/// each by a long filter (`packet(7)`: PACKET_IGNORE_OUTGOING is 23). Its network is a namespace of its own
/// (`unshare(2)`: CLONE_NEWNET), in which it switches the loopback on (`netdevice(7)`: SIOCSIFFLAGS). It notes those that
/// took about as long as the shortest one.
const SOFTIRQS: &str = "\
import ctypes, fcntl, os, socket, struct, time
assert ctypes.CDLL(None).unshare(0x40000000) == 0
os.sched_setaffinity(0, {0})
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(sender, 0x8914, struct.pack('16sh14x', b'lo', 1))
code = b''.join(struct.pack('HBBI', 0x34, 0, 0, 3) for _ in range(4000)) + struct.pack('HBBI', 6, 0, 0, 0)
code = ctypes.create_string_buffer(code, len(code))
taps = []
for _ in range(150):
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    tap.setsockopt(263, 23, 1)
    tap.setsockopt(socket.SOL_SOCKET, 26, struct.pack('HxxxxxxP', 4001, ctypes.addressof(code)))
    tap.bind(('lo', 3))
    taps.append(tap)
log, shortest = open('bursts', 'w', 1), 1 << 60
while True:
    begin = time.monotonic_ns()
    sender.sendto(b'x', ('127.0.0.1', 9))
    end = time.monotonic_ns()
    shortest = min(shortest, end - begin)
    if end - begin < shortest * 1.2: print(begin, end, file=log)
    time.sleep(0.02)
";

/// Of the late activations that a burst explains for the most part: how many there are, and how many say so first, with a
/// time that differs by 5 % at most.
fn told(folder: &Path, document: &Value, kind: &str, name: &str) -> (usize, usize) {
    const MEETS_NS: u64 = 500_000;
    let log = std::fs::read_to_string(folder.join("bursts")).expect("bursts");
    let numbers =
        |line: &str| -> Vec<u64> { line.split(' ').filter_map(|it| it.parse().ok()).collect() };
    let bursts: Vec<Vec<u64>> = log.lines().map(numbers).filter(|all| all.len() == 2).collect();
    let number = |value: &Value| value.as_u64().expect("a number");
    let (mut meet, mut right) = (0, 0);
    for spike in document["spikes"].as_array().expect("spikes") {
        let from_ns = number(&spike["at_ns"]);
        let to_ns = from_ns + number(&spike["latency_ns"]);
        let overlap = |burst: &Vec<u64>| burst[1].min(to_ns).saturating_sub(burst[0].max(from_ns));
        let known_ns: u64 = bursts.iter().map(overlap).sum();
        if known_ns < MEETS_NS || known_ns * 10 < (to_ns - from_ns) * 9 {
            continue;
        }
        meet += 1;
        let mut sums = std::collections::BTreeMap::new();
        for piece in spike["pieces"].as_array().expect("pieces") {
            let is_it = piece["kind"] == kind && text_of(&piece["name"]).contains(name);
            let key =
                if is_it { String::new() } else { format!("{} {}", piece["kind"], piece["name"]) };
            *sums.entry(key).or_insert(0) += number(&piece["ns"]);
        }
        let told_ns = sums.remove("").unwrap_or(0);
        let is_first = sums.values().all(|other| *other < told_ns);
        right += usize::from(is_first && told_ns.abs_diff(known_ns) <= known_ns / 20);
    }
    (meet, right)
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What this machine does beside can stop a culprit for a moment, which its explanation then says.
#[test]
fn culprits_that_note_when_they_were_at_work_come_first_with_that_time() {
    const TEST: &str = "culprits_that_note_when_they_were_at_work_come_first_with_that_time";
    if !root_or_skip(TEST) {
        return;
    }
    let program = env!("CARGO_BIN_EXE_rtscope");
    for (script, kind, name) in
        [(BURSTS, "interference", "(real-time priority 99)"), (SOFTIRQS, "softirq", "NET_RX")]
    {
        let folder = folder();
        std::fs::write(folder.path().join("culprit.py"), script).expect("written");
        let mut culprit = Command::new("python3");
        culprit.arg("culprit.py").current_dir(folder.path());
        let _beside = Hog(culprit.spawn().expect("starts"));
        // On a busy machine few activations are late for this reason alone: the culprit gets more time then.
        let (mut meet, mut right) = (0, 0);
        for run in 0..16 {
            let line = format!(
                "explain --duration 5s --above 500us --worst 1000 --json --out run-{run} -- {program} drift --sleep \
                 absolute --period 1ms --work 0us --policy fifo:50 --cpus 0 --duration 60s --out app-{run}"
            );
            let document = json(folder.path(), &line);
            let more = told(folder.path(), &document, kind, name);
            (meet, right) = (meet + more.0, right + more.1);
            if meet >= 10 {
                break;
            }
        }
        assert!(meet >= 10 && right * 4 >= meet * 3, "{kind}: {right} of {meet}");
    }
}

/// The recording begins before the record does.
#[test]
fn a_run_that_cannot_begin_leaves_no_recording() {
    if !root_or_skip("a_run_that_cannot_begin_leaves_no_recording") {
        return;
    }
    let folder = folder();
    std::fs::write(folder.path().join("file"), "").expect("written");
    let mut run = Command::new(env!("CARGO_BIN_EXE_rtscope"));
    run.args(["run", "quick", "--explain", "--out", "file/run"]).current_dir(folder.path());
    let mut run = Hog(run.stderr(Stdio::null()).spawn().expect("starts"));
    assert_eq!(run.0.wait().expect("ended").code(), Some(1));
    let instance = format!("/sys/kernel/tracing/instances/rtscope-{}-0", run.0.id());
    assert!(!std::path::Path::new(&instance).exists(), "{instance}");
}

/// SIGKILL leaves no time to end the recording. The next start that measures does.
#[test]
fn the_recording_of_a_killed_process_is_removed() {
    if !root_or_skip("the_recording_of_a_killed_process_is_removed") {
        return;
    }
    let folder = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rtscope"));
    command.args(["explain", "--duration", "60s", "--out", "run", "--", "sleep", "60"]);
    command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut watching = Hog(command.spawn().expect("starts"));
    // It watches once it has waited for the program to settle: a second.
    let name = format!("rtscope-{}-0", watching.0.id());
    wait_for("the recording", Duration::from_secs(30), || {
        Path::new("/sys/kernel/tracing/instances").join(&name).exists()
    });
    watching.0.kill().expect("killed");
    watching.0.wait().expect("waited for");
    let restored = output(folder.path(), "restore");
    assert_eq!(restored.status.code(), Some(0), "{restored:?}");
    assert!(text(&restored.stderr).contains(&format!("removed {name}, ")), "{restored:?}");
    let again = output(folder.path(), "restore");
    assert!(!text(&again.stderr).contains(&name), "{again:?}");
}

/// A process that a timer wakes writes to a second one, which writes to a third one. On one CPU, the
/// first: on the others, the kernels of some virtual machines record nothing that their idle threads do.
const RELAY: &str = "\
import os, time
os.sched_setaffinity(0, {0})
first, second = os.pipe(), os.pipe()
if not os.fork():
    while True: os.write(second[1], os.read(first[0], 1))
if not os.fork():
    while True: os.read(second[0], 1)
while True:
    time.sleep(0.005); os.write(first[1], b'x')
";

#[test]
fn a_wake_up_through_pipes_is_followed_back_to_the_timer() {
    if !root_or_skip("a_wake_up_through_pipes_is_followed_back_to_the_timer") {
        return;
    }
    let folder = folder();
    std::fs::write(folder.path().join("relay.py"), RELAY).expect("written");
    // All, because beside busy processes the end of the way is never among the latest.
    let document = json(
        folder.path(),
        "explain --duration 1500ms --worst 1000 --json --out run -- python3 relay.py",
    );
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ways = document["spikes"].as_array().expect("spikes").iter().filter_map(|spike| {
        let wakers = spike["wakers"].as_array()?;
        let names: Vec<String> = wakers.iter().map(|waker| text(&waker["thread"])).collect();
        let origin = text(&wakers.last()?["woken_by"]);
        (text(&spike["woken_by"]) == names[0]).then_some((names.len(), origin))
    });
    let ways: Vec<(usize, String)> = ways.collect();
    assert!(ways.contains(&(1, "a timer".to_owned())), "{ways:?}");
    assert!(ways.contains(&(2, "a timer".to_owned())), "{ways:?}");
}

/// A thread that waits for a timerfd of 7 ms, once made for `CLOCK_MONOTONIC` (`timerfd_create(2)`), in `poll`.
const TIMERFD: &str = "\
import ctypes, os, select
os.sched_setaffinity(0, {0})
libc = ctypes.CDLL(None)
fd = libc.timerfd_create(1, 0)
spec = (ctypes.c_long * 4)(0, 7000000, 0, 7000000)
assert libc.timerfd_settime(fd, 0, ctypes.byref(spec), None) == 0
poll = select.poll()
poll.register(fd, select.POLLIN)
while True: poll.poll(1000); os.read(fd, 8)
";

#[test]
fn a_timerfd_is_the_begin_of_what_it_wakes() {
    if !root_or_skip("a_timerfd_is_the_begin_of_what_it_wakes") {
        return;
    }
    let folder = folder();
    std::fs::write(folder.path().join("timerfd.py"), TIMERFD).expect("written");
    let document =
        json(folder.path(), "explain --duration 2s --json --out run -- python3 timerfd.py");
    let thread = &document["threads"][0];
    let count = |name: &str| thread[name].as_u64().expect("a count");
    // The first one was set before rtscope looked.
    assert!(count("activations") > 50 && count("by_timer") + 2 >= count("activations"), "{thread}");
}

/// An ordinary thread whose timers may expire 2 ms late (`prctl(2)`: PR_SET_TIMERSLACK is 29).
const SLACK: &str = "\
import ctypes, os, time
os.sched_setaffinity(0, {0})
assert ctypes.CDLL(None).prctl(29, 2000000, 0, 0, 0) == 0
while True: time.sleep(0.007)
";

#[test]
fn a_thread_that_lets_its_timers_be_late_is_told_so() {
    if !root_or_skip("a_thread_that_lets_its_timers_be_late_is_told_so") {
        return;
    }
    let folder = folder();
    std::fs::write(folder.path().join("slack.py"), SLACK).expect("written");
    let document = json(
        folder.path(),
        "explain --duration 3s --worst 500 --json --out run -- python3 slack.py",
    );
    let culprits = document["culprits"].as_array().expect("culprits");
    let slack = culprits.iter().find(|one| one["kind"] == "timer-slack").expect("the slack");
    // Another timer of the CPU may take it along earlier, such as the tick of a busy CPU, up to 1,000 times a second. The
    // kernel lets none wait for longer, and one of an ordinary thread only 50 us if nobody asks for more.
    let worst_ns = slack["worst_ns"].as_u64().expect("a time");
    assert!((500_000..=2_000_000).contains(&worst_ns), "{slack}");
    // Where nothing else was in the way for long, it comes first.
    let number = |value: &Value| value.as_u64().expect("a number");
    let spikes = document["spikes"].as_array().expect("spikes").iter();
    let slack_ns = |spike: &Value| -> u64 {
        let pieces = spike["pieces"].as_array().expect("pieces").iter();
        pieces.filter(|it| it["kind"] == "timer-slack").map(|it| number(&it["ns"])).sum()
    };
    let alone = spikes.filter(|spike| number(&spike["latency_ns"]) < 3_000_000);
    let late: Vec<&Value> = alone.filter(|spike| slack_ns(spike) >= 1_900_000).collect();
    for spike in &late {
        let largest = spike["pieces"]
            .as_array()
            .and_then(|all| all.iter().max_by_key(|it| number(&it["ns"])));
        assert_eq!(largest.expect("a piece")["kind"], "timer-slack", "{spike}");
    }
}

#[test]
fn who_is_not_there_is_told_and_nothing_late_is_no_pass() {
    if !root_or_skip("who_is_not_there_is_told_and_nothing_late_is_no_pass") {
        return;
    }
    let folder = folder();
    let refused = output(folder.path(), "explain --pid 4000000 --duration 1s --out run");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("there is no process 4000000"), "{refused:?}");
    let own = std::process::id();
    let line = format!("explain --pid {own} --tid 1 --duration 1s --out run");
    let refused = output(folder.path(), &line);
    assert!(text(&refused.stderr).contains("has no thread 1"), "{refused:?}");
    let idle = output(
        folder.path(),
        "explain --duration 1s --settle 0s --above 1h --json --out run -- sleep 30",
    );
    assert_eq!(idle.status.code(), Some(3), "{}", text(&idle.stderr));
    let document: Value = serde_json::from_slice(&idle.stdout).expect("JSON");
    assert_eq!(document["spikes"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_run_explains_its_own_late_wake_ups() {
    if !root_or_skip("a_run_explains_its_own_late_wake_ups") {
        return;
    }
    let folder = folder();
    let ran = output(folder.path(), "run --scale 0.1 --explain --out run");
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let said = text(&ran.stdout);
    assert!(said.contains("Verdict: ") && said.contains("What was in the way"), "{said}");
    assert!(folder.path().join("run/explain.html").exists());
    let document = json(folder.path(), "explain --from run --json");
    let threads = document["threads"].as_array().expect("threads");
    assert!(!threads.is_empty());
    for thread in threads {
        let name = thread["name"].as_str().expect("a name");
        assert!(name.starts_with("sample-"), "{thread}");
        assert!(thread["activations"].as_u64() > Some(100), "{thread}");
    }
    let spikes = document["spikes"].as_array().expect("spikes");
    assert!(!spikes.is_empty() && spikes.len() <= 20);
    // Only activations of the cells are explained: none is later than the run's own maximum. The thread reads its clock
    // after the kernel's last event.
    let judged = json(folder.path(), "report run --json");
    let cells = judged["cells"].as_array().expect("cells").iter();
    let max_ns = cells
        .filter_map(|cell| cell["all"]["latency_ns"]["max"].as_u64())
        .max()
        .expect("a maximum");
    let explained_ns = spikes.iter().filter_map(|spike| spike["latency_ns"].as_u64()).max();
    assert!(explained_ns.is_some_and(|ns| ns <= max_ns), "{explained_ns:?} of {max_ns}");
    let record = std::fs::read_to_string(folder.path().join("run/explain.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let events = record["events"].as_array().expect("events");
    if events.iter().any(|event| event == "raw_syscalls/sys_exit") {
        for spike in spikes {
            let last =
                spike["pieces"].as_array().and_then(|pieces| pieces.last()).expect("a piece");
            let name = last["name"].as_str().expect("a name");
            assert!(["return to user space", "page fault"].contains(&name), "{spike}");
        }
    }
    let page = || std::fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    assert!(page().contains("id=\"why\"") && page().contains("Verdict"), "the run's own page");
    assert_eq!(judged["spikes"], document["spikes"]);
    assert_eq!(judged["culprits"], document["culprits"]);
}

/// trace-cmd's own reader finds the switch to each late thread, at the same nanosecond.
#[test]
fn trace_cmd_reads_the_kernels_events_around_what_was_late() {
    const TEST: &str = "trace_cmd_reads_the_kernels_events_around_what_was_late";
    if !root_or_skip(TEST) {
        return;
    }
    if Command::new("trace-cmd").arg("--version").output().is_err() {
        return skip(TEST, "without trace-cmd");
    }
    let folder = folder();
    let program = env!("CARGO_BIN_EXE_rtscope");
    json(
        folder.path(),
        &format!("explain --duration 1s --worst 5 --json --out run -- {program} {WATCHED}"),
    );
    let exported = output(folder.path(), "export run --format trace.dat,perfetto --out files");
    assert_eq!(exported.status.code(), Some(0), "{}", text(&exported.stderr));
    assert!(folder.path().join("files/late.perfetto-trace").exists());
    let mut report = Command::new("trace-cmd");
    report.args(["report", "-t", "files/late.dat"]).current_dir(folder.path());
    let report = text(&output_of(&mut report).stdout);
    let record = std::fs::read_to_string(folder.path().join("run/explain.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let spikes = record["spikes"].as_array().expect("spikes");
    assert!(!spikes.is_empty());
    for spike in spikes {
        let at_ns = spike["switched_ns"].as_u64().expect("a time");
        let at = format!(" {}.{:09}: sched_switch:", at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        let to = format!(":{} [", spike["tid"]);
        let is_switch = |line: &str| {
            line.contains(&at) && line.rsplit("==>").next().is_some_and(|rest| rest.contains(&to))
        };
        assert!(
            report.lines().any(is_switch),
            "no{at} to {to} in {} lines",
            report.lines().count()
        );
    }
    let refused = output(folder.path(), "export run --format csv");
    assert_ne!(refused.status.code(), Some(0), "it has no figures of a run");
}

/// Each track of slices with the length of the outer one and the sum of those in it, and how many of the kernel's events
/// there are.
const PERFETTO: &str = "\
import json
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
trace = Trace()
trace.ParseFromString(open('late.perfetto-trace', 'rb').read())
names, open_since, tracks, events = {}, {}, {}, 0
for packet in trace.packet:
    events += sum(1 for event in packet.ftrace_events.event if event.WhichOneof('event'))
    if packet.HasField('track_descriptor'):
        names[packet.track_descriptor.uuid] = packet.track_descriptor.name
    if packet.HasField('track_event'):
        event = packet.track_event
        if event.type == event.TYPE_SLICE_BEGIN:
            assert event.name
            open_since.setdefault(event.track_uuid, []).append(packet.timestamp)
        elif event.type == event.TYPE_SLICE_END:
            since = open_since[event.track_uuid]
            lengths = tracks.setdefault(names[event.track_uuid], [0, 0])
            lengths[len(since) - 1] += packet.timestamp - since.pop()
assert not any(open_since.values())
print(json.dumps({'tracks': tracks, 'events': events}))
";

/// The pieces of a latency don't overlap, and add up to it there, too.
#[test]
fn perfettos_own_classes_read_the_pieces_of_each_late_activation() {
    const TEST: &str = "perfettos_own_classes_read_the_pieces_of_each_late_activation";
    if !root_or_skip(TEST) {
        return;
    }
    let python = |script: &str, folder: &Path| {
        let classes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/xtask/perfetto");
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", script]).env("PYTHONPATH", classes).current_dir(folder);
        python.output().ok().filter(|output| output.status.success())
    };
    let folder = folder();
    if python("import perfetto.protos", folder.path()).is_none() {
        return skip(TEST, "without Perfetto's Python classes");
    }
    let program = env!("CARGO_BIN_EXE_rtscope");
    let line = format!("explain --duration 1s --worst 5 --json --out run -- {program} {WATCHED}");
    let document = json(folder.path(), &line);
    let exported = output(folder.path(), "export run --format perfetto --out late.perfetto-trace");
    assert_eq!(exported.status.code(), Some(0), "{}", text(&exported.stderr));
    let read = python(PERFETTO, folder.path()).expect("a trace of Perfetto");
    let read: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    let spikes = document["spikes"].as_array().expect("spikes");
    let mut latencies: Vec<u64> =
        spikes.iter().filter_map(|spike| spike["latency_ns"].as_u64()).collect();
    let tracks = read["tracks"].as_object().expect("tracks");
    assert!(tracks.values().all(|lengths| lengths[0] == lengths[1]), "{tracks:?}");
    let mut sums: Vec<u64> = tracks.values().filter_map(|lengths| lengths[1].as_u64()).collect();
    latencies.sort_unstable();
    sums.sort_unstable();
    assert_eq!(sums, latencies, "{tracks:?}");
    assert!(!sums.is_empty() && read["events"].as_u64() > Some(20), "{read}");
}

#[test]
fn a_process_that_ends_during_the_look_is_explained_by_what_was_seen() {
    if !root_or_skip("a_process_that_ends_during_the_look_is_explained_by_what_was_seen") {
        return;
    }
    let folder = folder();
    let mut short = Command::new("sleep").arg("10").spawn().expect("starts");
    let line = format!("explain --pid {} --duration 50s --json --out run", short.id());
    // Who waits for it lets it go.
    let waiting = std::thread::spawn(move || short.wait());
    let document = json(folder.path(), &line);
    waiting.join().expect("no panic").expect("waited for");
    let looked_ns = document["duration_ns"].as_u64().expect("a duration");
    assert!(looked_ns < 40_000_000_000, "{looked_ns}");
    // Some machines hide switches: then there is no more to see than that it ended.
    let seen = document["threads"].as_array().map_or(0, Vec::len);
    assert!(seen <= 1 && folder.path().join("run/report.html").exists(), "{document:#}");
}

#[test]
fn what_runs_on_a_cpu_is_named_with_its_time_and_all_times_add_up() {
    if !root_or_skip("what_runs_on_a_cpu_is_named_with_its_time_and_all_times_add_up") {
        return;
    }
    let folder = folder();
    let hog = Hog::start(folder.path());
    let document = json(folder.path(), "explain --cpu 0 --duration 3s --json --out run");
    let number = |value: &Value| value.as_u64().expect("a number");
    let rows = document["interruptions"].as_array().expect("rows");
    // 20 ms of CPU time in each 100 ms, by a thread of the highest priority here.
    let of_hog = rows.iter().find(|row| row["name"] == "rtscope").expect("the hog's thread");
    let duration_ns = number(&document["duration_ns"]);
    assert!(number(&of_hog["sum_ns"]) > duration_ns / 10, "{of_hog}");
    assert!(number(&of_hog["worst_ns"]) > 10_000_000, "{of_hog}");
    let sum_ns = rows.iter().map(|row| number(&row["sum_ns"])).sum::<u64>();
    let known_ns = sum_ns + number(&document["idle_ns"]);
    // What runs until the first event isn't known: the kernel's tick comes each 10 ms at the slowest, or nothing runs.
    assert!(
        known_ns <= duration_ns && known_ns * 10 >= duration_ns * 8,
        "{known_ns} of {duration_ns}"
    );
    assert_eq!(json(folder.path(), "explain --from run --json"), document, "shown again");

    // The hog can run there only, so the kernel's own account of it says whether the events are whole.
    let accounts = &document["accounts"];
    assert!(number(&accounts["charged_ns"]) > duration_ns / 10, "{accounts}");
    let is_reliable = number(&accounts["apart_ns"]) <= number(&accounts["charged_ns"]) / 5;
    assert_eq!(document["is_reliable"], is_reliable, "{accounts}");

    let tid = hog.0.id();
    let owned = json(
        folder.path(),
        &format!("explain --cpu 0 --tid {tid} --duration 1s --json --out owned"),
    );
    assert_eq!(number(&owned["owner"]["tid"]), u64::from(tid));
    let refused = output(folder.path(), "explain --cpu 4000 --duration 1s --out none");
    assert!(
        text(&refused.stderr).contains("CPU 4000 is not online: this machine has 0"),
        "{refused:?}"
    );
    let refused = output(folder.path(), "explain --cpu 0 --tid 4000000 --duration 1s --out none");
    assert!(text(&refused.stderr).contains("there is no thread 4000000"), "{refused:?}");
    assert!(!folder.path().join("none").exists(), "a refused look leaves nothing");
}
