//! Places that are reached by the real ssh: network namespaces of this machine, each with its sshd.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rtscope_testing::{
    devices, executable,
    skip::{program, root_or_skip, skip},
};
use tempfile::TempDir;

use crate::{
    fleet::small_program,
    support::{folder, kill, output, start, text, wait_for},
};

/// For sshd: rtscope's copy of itself is compressed, as everywhere else than in these tests. That takes a second or two of a
/// debug build, so that a kill may come in the middle of it.
pub(crate) const COMPRESSED: &str = "Compression delayed";

/// For sshd: ssh's default, which withstands quantum computers, costs a tenth of a second of CPU time on each side. The tests
/// make hundreds of connections.
const KEY_EXCHANGE: &str = "KexAlgorithms curve25519-sha256";

/// A network namespace with its own address, and the end of its cable on this side.
///
/// The name and the address belong to a number. Who has the number's lock has the number: several tests, and several
/// runs of them, can go on at the same time. What a killed run of the tests left is removed when its number is taken
/// again, because its lock went with it.
struct Network {
    number: u8,
    _lock: fs::File,
}

impl Network {
    fn make() -> Network {
        (1..=250).find_map(Network::take).expect("root can make a network namespace")
    }

    fn take(number: u8) -> Option<Network> {
        let lock = fs::File::create(format!("/run/rts-test{number}.lock")).ok()?;
        lock.try_lock().ok()?;
        let network = Network { number, _lock: lock };
        network.remove();
        let (name, [here, there]) = (network.name(), network.addresses());
        let is_made = run(&format!("ip netns add {name}"))
            && run(&format!("ip link add {name} type veth peer name eth0 netns {name}"))
            && run(&format!("ip addr add {here}/24 dev {name}"))
            && run(&format!("ip link set {name} up"))
            && run(&format!("ip -n {name} addr add {there}/24 dev eth0"))
            && run(&format!("ip -n {name} link set lo up"))
            && run(&format!("ip -n {name} link set eth0 up"));
        is_made.then_some(network)
    }

    /// Of the namespace, and of the cable's end on this side.
    fn name(&self) -> String {
        format!("{}{}", devices::OF_TESTS, self.number)
    }

    /// Of this side and of the namespace, of the block for benchmarks (RFC 2544), which no machine has as its own.
    fn addresses(&self) -> [String; 2] {
        [1, 2].map(|host| format!("198.19.{}.{host}", self.number))
    }

    fn processes(&self) -> Vec<u32> {
        let listed = Command::new("ip").args(["netns", "pids", &self.name()]).output();
        let listed = listed.map(|listed| text(&listed.stdout)).unwrap_or_default();
        listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// The cable goes with the namespace, which goes with its last process.
    fn remove(&self) {
        self.processes().into_iter().for_each(|pid| kill(pid, "KILL"));
        run(&format!("ip netns del {}", self.name()));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// A network namespace with a key and an sshd. All of it goes with the value.
pub(crate) struct Far {
    network: Network,
    pub(crate) room: TempDir,
}

fn run(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Far {
    /// Makes it; none, and a skip, where this machine can't.
    pub(crate) fn make(test: &str, more: &str) -> Option<Far> {
        let sshd = Path::new("/usr/sbin/sshd");
        if !root_or_skip(test) {
            return None;
        }
        if !sshd.exists() || program("ssh").is_none() || program("ip").is_none() {
            skip(test, "sshd, ssh or ip isn't installed");
            return None;
        }
        let far = Far { network: Network::make(), room: folder() };
        let (room, address) = (far.room.path(), far.address());
        for key in ["key", "hostkey"] {
            let path = room.join(key);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path)
                .status();
            assert!(made.is_ok_and(|status| status.success()));
        }
        let text = |name: &str| fs::read_to_string(room.join(name)).expect("a key");
        fs::write(room.join("known"), format!("{address} {}", text("hostkey.pub")))
            .expect("written");
        fs::create_dir_all("/run/sshd").expect("made");
        fs::create_dir(room.join("base")).expect("made");
        let at = room.display();
        let config = format!(
            "ListenAddress {address}\nHostKey {at}/hostkey\nAuthorizedKeysFile {at}/key.pub\nStrictModes no\nUsePAM no\n\
             PidFile none\nPermitRootLogin yes\nMaxStartups 100\n{KEY_EXCHANGE}\n{more}\nCompression no\n"
        );
        fs::write(room.join("sshd.conf"), config).expect("written");
        small_program(&room.join("small"));
        far.places("");
        far.listen();
        Some(far)
    }

    fn places(&self, options: &str) {
        let (at, address) = (self.room.path().display(), self.address());
        let text = format!(
            "[places.far]\nssh = \"root@{address}\"\nfolder = \"{at}/base\"\nprogram = \"small\"\n\
             ssh-options = [\"-F\", \"none\", \"-i\", \"{at}/key\", \"-o\", \"IdentitiesOnly=yes\", \"-o\", \
             \"UserKnownHostsFile={at}/known\"{options}]\n"
        );
        fs::write(self.room.path().join("places.toml"), text).expect("written");
        fs::write(
            self.room.path().join("plan.toml"),
            "name = 'short'\n[[phase]]\nname = 'rest'\nduration = '2s'\n",
        )
        .expect("written");
    }

    /// Starts sshd.
    pub(crate) fn listen(&self) {
        let config = self.room.path().join("sshd.conf");
        let started = Command::new("ip")
            .args(["netns", "exec", &self.network.name(), "/usr/sbin/sshd", "-f"])
            .arg(config)
            .status();
        assert!(started.is_ok_and(|status| status.success()), "sshd starts");
        // It goes into the background first, and listens then.
        let address = format!("{}:22", self.address()).parse().expect("an address");
        wait_for("sshd to listen", Duration::from_secs(20), || {
            TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
        });
    }

    /// Kills sshd and its sessions, but not what they left running.
    pub(crate) fn kill_sshd(&self) {
        // One that listens still would keep the next one from it.
        wait_for("sshd to end", Duration::from_secs(20), || {
            let mut sshd = self.network.processes();
            sshd.retain(|pid| name_of(*pid).starts_with("sshd"));
            sshd.iter().for_each(|pid| kill(*pid, "KILL"));
            sshd.is_empty()
        });
    }

    /// Its address.
    pub(crate) fn address(&self) -> String {
        let [_, there] = self.network.addresses();
        there
    }

    fn steps(&self) -> String {
        fs::read_to_string(self.room.path().join("out/fleet.jsonl")).unwrap_or_default()
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        let base = self.room.path().join("base");
        let is_empty = || fs::read_dir(&base).expect("listed").next().is_none();
        wait_for("the place to be free", Duration::from_secs(20), is_empty);
        let sleepers = || {
            let names = self.network.processes().into_iter().map(name_of);
            names.filter(|name| !name.starts_with("sshd") && !name.is_empty()).collect::<Vec<_>>()
        };
        wait_for("the place's processes to end", Duration::from_secs(20), || sleepers().is_empty());
    }
}

#[test]
fn a_plan_runs_over_ssh_although_sshd_is_killed_in_each_step() {
    let Some(far) =
        Far::make("a_plan_runs_over_ssh_although_sshd_is_killed_in_each_step", COMPRESSED)
    else {
        return;
    };
    let room = far.room.path();
    let errors = fs::File::create(room.join("errors")).expect("made");
    let child = crate::support::rtscope(room)
        .args(["fleet", "run", "plan.toml", "--out", "out", "--json"])
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .expect("starts");
    // In the middle of the copy, and while the plan runs.
    for step in ["\"taken\"", "\"started\""] {
        let errors = || fs::read_to_string(room.join("errors")).unwrap_or_default();
        wait_for(step, Duration::from_secs(30), || {
            assert!(!errors().contains("tried again"), "{step}: {}\n{}", errors(), far.steps());
            far.steps().contains(step)
        });
        std::thread::sleep(Duration::from_millis(150));
        far.kill_sshd();
        std::thread::sleep(Duration::from_millis(700));
        far.listen();
    }
    let done = child.wait_with_output().expect("ends");
    let said = far.steps();
    assert_eq!(done.status.code(), Some(0), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(report["places"][0]["is_whole"], true, "{report}\n{said}");
    let errors = fs::read_to_string(room.join("errors")).expect("read");
    let parts = ["far: no connection: ", "; trying again", "far: connected again"];
    assert!(parts.iter().all(|part| errors.contains(part)), "{errors}");
    far.assert_nothing_is_left();
}

#[test]
fn hosts_are_checked_and_nothing_is_asked() {
    let Some(far) = Far::make("hosts_are_checked_and_nothing_is_asked", "") else {
        return;
    };
    let room = far.room.path();
    let listed = output(room, "fleet list");
    assert_eq!(listed.status.code(), Some(0), "{}{}", text(&listed.stdout), text(&listed.stderr));
    fs::write(room.join("known"), "").expect("written");
    let listed = output(room, "fleet list");
    assert_eq!(listed.status.code(), Some(1));
    assert!(
        text(&listed.stdout).contains("Host key verification failed"),
        "{}",
        text(&listed.stdout)
    );
    far.places(", \"-o\", \"StrictHostKeyChecking=no\", \"-o\", \"PubkeyAuthentication=no\"");
    let listed = output(room, "fleet list");
    assert!(text(&listed.stdout).contains("Permission denied"), "{}", text(&listed.stdout));
}

/// What a hostile place answers to each request: names that leave the folder, more than was said, a verdict of its
/// own, what a terminal would obey.
const HOSTILE: &str = r#"#!/bin/sh
case $SSH_ORIGINAL_COMMAND in
    *"Takes the lease"*) printf 'base=%s\nmachine=x86_64\nkernel=\033[2J\033]0;owned\a\nmodel=x\n' "$BASE" ;;
    *"Appends standard input"*) cat >/dev/null; echo "have=$(cat "$BASE/size")" ;;
    *" begin "*) echo '{"state":"running"}' ;;
    *" state") echo '{"state":"ended","exit_code":0,"signal":null,"seconds":1,"said":"\u001b[2J pass"}' ;;
    *" list") cat "$BASE/list" ;;
    *" send "*) yes ;;
    *) cat >/dev/null; echo '"released"' ;;
esac
"#;

#[test]
fn a_hostile_place_harms_nothing_here() {
    let test = "a_hostile_place_harms_nothing_here";
    let Some(far) = Far::make(test, "PermitUserEnvironment no\nForceCommand \"$HOSTILE\"") else {
        return;
    };
    let room = far.room.path();
    let base = room.join("base");
    let script = room.join("hostile.sh");
    executable::write(&script, &HOSTILE.replace("$BASE", &base.display().to_string()));
    far.kill_sshd();
    let config = room.join("sshd.conf");
    let text_of = fs::read_to_string(&config).expect("read");
    fs::write(&config, text_of.replace("\"$HOSTILE\"", &script.display().to_string()))
        .expect("written");
    far.listen();
    let size = fs::metadata(room.join("small")).expect("there").len();
    fs::write(base.join("size"), size.to_string()).expect("written");
    let file = |path: &str, bytes: u64| {
        format!("{{\"path\":{path:?},\"bytes\":{bytes},\"sha256\":\"00\"}}")
    };
    for (n, (files, why)) in [
        (file("../../../../tmp/owned", 4), "an invalid record"),
        (file("/etc/owned", 4), "an invalid record"),
        (file("plan.toml", 10 << 30), "the maximum is 4096"),
        (format!("{},{}", file("verdict.json", 9), file("plan.toml", 9)), "is damaged"),
        (String::new(), "made no record"),
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(base.join("list"), format!("{{\"files\":[{files}]}}")).expect("written");
        let run = output(room, &format!("fleet run plan.toml --out out{n} --tries 1"));
        let said = format!("{}{}", text(&run.stdout), text(&run.stderr));
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(
            said.contains(why) && !said.contains('\u{1b}') && !said.contains('\u{7}'),
            "{why}: {said}"
        );
        assert!(!room.join(format!("out{n}/places/far")).exists(), "no record is made of it");
        let page = fs::read_to_string(room.join(format!("out{n}/index.html"))).expect("a page");
        assert!(!page.contains('\u{1b}'));
    }
    assert!(!Path::new("/tmp/owned").exists() && !Path::new("/etc/owned").exists());
}

#[test]
fn a_killed_rtscope_leaves_a_run_that_is_collected_over_ssh() {
    let Some(far) =
        Far::make("a_killed_rtscope_leaves_a_run_that_is_collected_over_ssh", COMPRESSED)
    else {
        return;
    };
    let room = far.room.path();
    let mut run = start(room, "fleet run plan.toml --out out");
    wait_for("the run to begin", Duration::from_secs(30), || far.steps().contains("\"started\""));
    kill(run.id(), "KILL");
    run.wait().expect("ends");
    let collected = output(room, "fleet collect out --json");
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    let report: serde_json::Value = serde_json::from_slice(&collected.stdout).expect("JSON");
    assert_eq!(report["places"][0]["is_whole"], true, "{report}");
    far.assert_nothing_is_left();
}
