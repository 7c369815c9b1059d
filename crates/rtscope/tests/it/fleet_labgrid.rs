//! Places that a real labgrid coordinator hands out: coordinator, exporter and two network namespaces with sshd.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rtscope_testing::{executable, skip::skip};
use serde_json::Value;

use crate::{
    fleet_ssh::Far,
    support::{json, output, start, text, wait_for},
};

/// Coordinator and exporter with two places; all of it ends with the value.
pub(crate) struct Labgrid {
    far: [Far; 2],
    coordinator: Child,
    exporter: Option<Child>,
    port: u16,
}

impl Labgrid {
    pub(crate) fn start(test: &str) -> Option<Labgrid> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/xtask/labgrid");
        if !package.join("bin/labgrid-coordinator").is_file() {
            skip(test, "without labgrid");
            return None;
        }
        let far = [Far::make(test, "")?, Far::make(test, "")?];
        let room = far[0].room.path();
        let python = room.join("python");
        let path = package.canonicalize().expect("a folder");
        let wrapped = format!(
            "#!/bin/sh\nexport PYTHONPATH={} LG_USERNAME=tester\nexec /usr/bin/python3 \"$@\"\n",
            path.display()
        );
        executable::write(&python, &wrapped);
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|one| one.local_addr())
            .expect("a port")
            .port();
        fs::write(room.join("places.yaml"), saved_places(&far)).expect("written");
        let coordinator = Labgrid::coordinator(room, port);
        let mut labgrid = Labgrid { far, coordinator, exporter: None, port };
        labgrid.export();
        labgrid.write_places();
        Some(labgrid)
    }

    fn program(room: &Path, name: &str, words: &[&str]) -> Child {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../target/xtask/labgrid/bin/labgrid-{name}"));
        let log = fs::File::create(room.join(format!("{name}.log"))).expect("a log");
        let mut command = Command::new(room.join("python"));
        command.arg(script.canonicalize().expect("a script")).args(words).current_dir(room);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("starts")
    }

    fn coordinator(room: &Path, port: u16) -> Child {
        Labgrid::program(room, "coordinator", &["-l", &format!("127.0.0.1:{port}")])
    }

    pub(crate) fn room(&self) -> PathBuf {
        self.far[0].room.path().to_owned()
    }

    pub(crate) fn kill_coordinator(&mut self) {
        self.coordinator.kill().expect("killed");
        self.coordinator.wait().expect("ends");
    }

    /// Starts the coordinator again.
    pub(crate) fn coordinate(&mut self) {
        self.coordinator = Labgrid::coordinator(&self.room(), self.port);
    }

    pub(crate) fn kill_exporter(&mut self) {
        if let Some(mut exporter) = self.exporter.take() {
            exporter.kill().expect("killed");
            exporter.wait().expect("ends");
        }
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        self.far[0].assert_nothing_is_left();
    }

    /// Starts the exporter, and waits until the coordinator has its resources.
    pub(crate) fn export(&mut self) {
        let room = self.far[0].room.path().to_owned();
        let service = |far: &Far, name: &str| {
            format!(
                "{name}:\n  NetworkService:\n    address: {}\n    username: root\n",
                far.address()
            )
        };
        let text = service(&self.far[0], "drill") + &service(&self.far[1], "mill");
        fs::write(room.join("exporter.yaml"), text).expect("written");
        let coordinator = format!("127.0.0.1:{}", self.port);
        // An exporter that finds no coordinator ends.
        wait_for("the coordinator", Duration::from_secs(60), || {
            TcpStream::connect(&coordinator).is_ok()
        });
        self.exporter =
            Some(Labgrid::program(&room, "exporter", &["-c", &coordinator, "exporter.yaml"]));
        wait_for("the exporter", Duration::from_secs(60), || {
            let mut listed = Labgrid::program(&room, "client", &["-x", &coordinator, "resources"]);
            let done = listed.wait().is_ok_and(|status| status.success());
            done && fs::read_to_string(room.join("client.log"))
                .is_ok_and(|text| text.contains("mill"))
        });
    }

    fn write_places(&self) {
        let rooms = self.far.each_ref().map(|far| far.room.path());
        let known =
            rooms.map(|room| fs::read_to_string(room.join("known")).expect("known")).concat();
        fs::write(rooms[0].join("known"), known).expect("written");
        // The second sshd takes the first one's key as well.
        fs::copy(rooms[0].join("key.pub"), rooms[1].join("key.pub")).expect("copied");
        let at = rooms[0].display();
        let text = format!(
            "[defaults]\nshares-machine = true\nfolder = \"{at}/base\"\nprogram = \"small\"\nssh-options = [\"-F\", \"none\", \"-i\", \
             \"{at}/key\", \"-o\", \"IdentitiesOnly=yes\", \"-o\", \"UserKnownHostsFile={at}/known\"]\n\
             [labgrid]\ncoordinator = \"127.0.0.1:{}\"\npython = \"{at}/python\"\n",
            self.port
        );
        fs::write(rooms[0].join("places.toml"), text).expect("written");
    }

    /// Who has each place.
    pub(crate) fn holders(&self) -> Vec<Value> {
        let listed = json(self.far[0].room.path(), "fleet list --json");
        listed.as_array().expect("places").iter().map(|place| place["taken_by"].clone()).collect()
    }
}

/// What a coordinator reads when it starts: each call of labgrid's client, which could make the places too, takes most of a
/// second of CPU time.
fn saved_places(far: &[Far; 2]) -> String {
    let place = |(far, name): (&Far, &str)| {
        format!(
            "{name}:\n  matches:\n  - {{exporter: '*', group: {name}, cls: NetworkService}}\n  \
             tags: {{rt: 'yes', at: {}}}\n",
            far.address()
        )
    };
    far.iter().zip(["drill", "mill"]).map(place).collect()
}

impl Drop for Labgrid {
    fn drop(&mut self) {
        for child in [Some(&mut self.coordinator), self.exporter.as_mut()].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn places_of_labgrid_are_acquired_and_released_whoever_is_killed() {
    let Some(mut labgrid) =
        Labgrid::start("places_of_labgrid_are_acquired_and_released_whoever_is_killed")
    else {
        return;
    };
    let room = labgrid.far[0].room.path().to_owned();
    // Two places, one page. They share a folder, so they run one after the other.
    let run = output(&room, "fleet run plan.toml --on rt=yes --at-once 1 --out out --json");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let places = report["places"].as_array().expect("places");
    assert_eq!(places.len(), 2);
    assert!(places.iter().all(|place| place["is_whole"] == true), "{report}");
    assert!(labgrid.holders().iter().all(Value::is_null), "{:?}", labgrid.holders());

    // Killed in the middle, the place stays ours until it is collected.
    let mut killed = start(&room, "fleet run plan.toml --on place=drill --out killed");
    let steps = || fs::read_to_string(room.join("killed/fleet.jsonl")).unwrap_or_default();
    wait_for("the run to begin", Duration::from_secs(30), || steps().contains("\"started\""));
    killed.kill().expect("killed");
    killed.wait().expect("ends");
    assert!(labgrid.holders()[0].as_str().is_some_and(|holder| holder.ends_with("/tester")));
    let other = output(&room, "fleet run plan.toml --on place=drill --tries 1 --out other");
    assert!(text(&other.stdout).contains("the place is taken by "), "{}", text(&other.stdout));
    let collected = output(&room, "fleet collect killed --json");
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    assert!(labgrid.holders().iter().all(Value::is_null), "{:?}", labgrid.holders());

    // A dead exporter is no place, and takes none.
    labgrid.kill_exporter();
    let dead = output(&room, "fleet run plan.toml --on place=mill --tries 1 --out dead");
    assert_eq!(dead.status.code(), Some(1));
    assert!(text(&dead.stdout).contains("no matching remote resource"), "{}", text(&dead.stdout));
    labgrid.export();
    assert!(labgrid.holders().iter().all(Value::is_null), "{:?}", labgrid.holders());
    let back = output(&room, "fleet run plan.toml --on place=mill --out back");
    assert_eq!(back.status.code(), Some(0), "{}", text(&back.stderr));
    labgrid.far[0].assert_nothing_is_left();
}
