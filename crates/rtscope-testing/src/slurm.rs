//! A Slurm with a controller and two nodes of one CPU, all on this machine.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::skip::{program, root_or_skip, skip};

const MUNGED: &str = "/usr/sbin/munged";
const CONTROLLER: &str = "/usr/sbin/slurmctld";
const NODE: &str = "/usr/sbin/slurmd";

/// The names of the nodes.
pub const NODES: [&str; 2] = ["n1", "n2"];

/// All of it ends with the value.
#[derive(Debug)]
pub struct SlurmCluster {
    at: PathBuf,
    munged: Child,
    controller: Child,
    nodes: [Child; 2],
}

impl SlurmCluster {
    /// Starts it with its files in a folder; none, and a skip, where this machine can't. `more` are further lines of the
    /// configuration.
    ///
    /// # Panics
    ///
    /// A part doesn't start.
    #[must_use]
    pub fn start(test: &str, at: &Path, more: &str) -> Option<SlurmCluster> {
        if !root_or_skip(test) {
            return None;
        }
        let daemons = [MUNGED, CONTROLLER, NODE];
        if !daemons.iter().all(|path| Path::new(path).exists()) || program("sbatch").is_none() {
            skip(test, "without munge, slurmctld, slurmd and slurm-client");
            return None;
        }
        // munge refuses a socket that not everybody reaches, and a key that others can read.
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        mode(at, 0o755).expect("changed");
        for folder in ["munge", "key", "state"] {
            fs::create_dir(at.join(folder)).expect("made");
        }
        mode(&at.join("munge"), 0o755).expect("changed");
        mode(&at.join("key"), 0o700).expect("changed");
        let key: Vec<u8> = (0..64).collect();
        fs::write(at.join("key/key"), key).expect("written");
        mode(&at.join("key/key"), 0o600).expect("changed");
        fs::write(at.join("slurm.conf"), config(at, more)).expect("written");
        let munge = |name: &str| at.join("munge").join(name).display().to_string();
        let munged = Command::new(MUNGED)
            .args(["--foreground", &format!("--key-file={}/key/key", at.display())])
            .args([format!("--socket={}", munge("socket")), format!("--pid-file={}", munge("pid"))])
            .args([
                format!("--log-file={}", munge("log")),
                format!("--seed-file={}", munge("seed")),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("munged starts");
        wait_for("munged", || at.join("munge/socket").exists());
        let controller = daemon(at, CONTROLLER, &["-D", "-c"]);
        let nodes = NODES.map(|node| daemon(at, NODE, &["-D", "-N", node]));
        let cluster = SlurmCluster { at: at.to_owned(), munged, controller, nodes };
        cluster.wait_for_idle();
        Some(cluster)
    }

    /// Waits until no node does anything.
    ///
    /// # Panics
    ///
    /// It takes more than a minute.
    pub fn wait_for_idle(&self) {
        wait_for("two idle nodes", || {
            self.ask("sinfo", &["--noheader", "--format=%D %T"]).contains("2 idle")
        });
    }

    /// Kills the daemon of a node. What it started goes on.
    ///
    /// # Panics
    ///
    /// It can't be killed.
    pub fn kill_node(&mut self, node: usize) {
        self.nodes[node].kill().expect("killed");
        self.nodes[node].wait().expect("gone");
    }

    /// Starts the daemon of a node again.
    ///
    /// # Panics
    ///
    /// It doesn't start.
    pub fn start_node(&mut self, node: usize) {
        self.nodes[node] = daemon(&self.at, NODE, &["-D", "-N", NODES[node]]);
    }

    /// Makes a command ask this Slurm.
    pub fn with_config(&self, command: &mut Command) {
        command.env("SLURM_CONF", self.at.join("slurm.conf"));
    }

    /// What a program of Slurm says, on both streams.
    #[must_use]
    pub fn ask(&self, program: &str, words: &[&str]) -> String {
        let mut command = Command::new(program);
        self.with_config(command.args(words));
        command.output().map_or(String::new(), |output| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            text(&output.stdout) + &text(&output.stderr)
        })
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        let _ = self.ask("scancel", &["--me", "--signal=KILL", "--full"]);
        let _ = self.ask("scancel", &["--me"]);
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && !self.ask("squeue", &["--noheader"]).trim().is_empty() {
            thread::sleep(Duration::from_millis(200));
        }
        for child in self.nodes.iter_mut().chain([&mut self.controller, &mut self.munged]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(240);
    while !holds() {
        assert!(Instant::now() < until, "waited for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn daemon(at: &Path, program: &str, words: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(words).env("SLURM_CONF", at.join("slurm.conf"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|e| panic!("{program}: {e}"))
}

fn config(at: &Path, more: &str) -> String {
    // They are free now, and nobody else asks for one in the meantime.
    let held = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let port = |n: usize| held[n].local_addr().expect("bound").port();
    let (at, host) = (at.display(), fs::read_to_string("/proc/sys/kernel/hostname"));
    let host = host.expect("a name");
    let host = host.trim().split('.').next().unwrap_or_default();
    let [first, second] = NODES;
    format!(
        "ClusterName=rtscope\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={at}/munge/socket\nStateSaveLocation={at}/state\n\
         SlurmdSpoolDir={at}/spool-%n\nSlurmctldPidFile={at}/slurmctld.pid\nSlurmdPidFile={at}/slurmd-%n.pid\n\
         SlurmctldLogFile={at}/slurmctld.log\nSlurmdLogFile={at}/slurmd-%n.log\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nMpiDefault=none\n\
         ReturnToService=2\nSchedulerParameters=batch_sched_delay=0,sched_interval=1\n\
         NodeName={first} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=1 Feature=rt,board=drill\n\
         NodeName={second} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=1\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE\n{more}\n",
        port(0),
        port(1),
        port(2)
    )
}
