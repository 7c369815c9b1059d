//! Places that a real Slurm hands out: a controller and two nodes of this machine.

use std::{fs, path::Path, process::Child, time::Duration};

use rtscope_testing::slurm::{NODES, SlurmCluster};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    fleet::{recorded_slices, small_program},
    support::{folder, kill, output_of, processes_with, rtscope, text, wait_for, words},
};

/// A cluster, and a file of places for it.
pub(crate) struct Nodes {
    pub(crate) cluster: SlurmCluster,
    pub(crate) room: TempDir,
}

impl Nodes {
    /// Makes it; none, and a skip, where this machine can't.
    pub(crate) fn start(test: &str) -> Option<Nodes> {
        let room = folder();
        let cluster = SlurmCluster::start(test, room.path(), "")?;
        let at = room.path();
        small_program(&at.join("small"));
        fs::create_dir(at.join("base")).expect("made");
        let places = format!(
            "[defaults]\nshares-machine = true\nprogram = \"small\"\nfolder = \"{}/base\"\n\
             [slurm]\npartition = \"all\"\narguments = [\"--nice=1\"]\ntags = [\"hall=3\"]\n",
            at.display()
        );
        fs::write(at.join("places.toml"), places).expect("written");
        for (name, time) in [("plan", "2s"), ("long", "60s")] {
            let text = format!("name = '{name}'\n[[phase]]\nname = 'rest'\nduration = '{time}'\n");
            fs::write(at.join(name).with_extension("toml"), text).expect("written");
        }
        Some(Nodes { cluster, room })
    }

    pub(crate) fn at(&self) -> &Path {
        self.room.path()
    }

    /// Runs rtscope: its exit code and all that it said.
    fn output(&self, arguments: &str) -> (Option<i32>, String) {
        let mut command = rtscope(self.at());
        self.cluster.with_config(command.args(words(arguments)));
        let output = output_of(&mut command);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    pub(crate) fn json(&self, arguments: &str) -> Value {
        let mut command = rtscope(self.at());
        self.cluster.with_config(command.args(words(arguments)));
        let output = output_of(&mut command);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{arguments}: {e}: {}", text(&output.stderr)))
    }

    pub(crate) fn spawn(&self, arguments: &str) -> Child {
        let mut command = rtscope(self.at());
        self.cluster.with_config(command.args(words(arguments)));
        let errors = fs::File::create(self.at().join("errors")).expect("made");
        command.stdout(std::process::Stdio::null()).stderr(errors).spawn().expect("starts")
    }

    pub(crate) fn steps(&self, out: &str) -> String {
        fs::read_to_string(self.at().join(out).join("fleet.jsonl")).unwrap_or_default()
    }

    fn wait_for_step(&self, out: &str, step: &str) {
        let step = format!("\"step\":\"{step}\"");
        wait_for(&step, Duration::from_secs(60), || self.steps(out).contains(&step));
    }

    /// That no job holds a node, no file is left at one, and no process goes on.
    pub(crate) fn assert_nothing_is_left(&self) {
        wait_for("an empty queue", Duration::from_secs(60), || {
            self.cluster.ask("squeue", &["--noheader"]).trim().is_empty()
        });
        let base = self.at().join("base");
        wait_for("the nodes' folders to be empty", Duration::from_secs(20), || {
            fs::read_dir(&base).expect("listed").next().is_none()
        });
        let keepers = format!("fleet-agent keep --base {}", base.display());
        wait_for("the keepers to end", Duration::from_secs(20), || {
            processes_with(&keepers).is_empty()
                && processes_with(&format!("rtscope run {}", base.display())).is_empty()
        });
    }
}

#[test]
fn a_plan_runs_at_nodes_of_slurm_and_a_taken_node_is_skipped() {
    let test = "a_plan_runs_at_nodes_of_slurm_and_a_taken_node_is_skipped";
    let Some(nodes) = Nodes::start(test) else { return };
    let listed = nodes.json("fleet list --json");
    let names: Vec<&str> =
        listed.as_array().expect("nodes").iter().filter_map(|one| one["place"].as_str()).collect();
    assert_eq!(names, NODES);
    let tags = |n: usize| listed[n]["tags"].to_string();
    assert!(tags(0).contains("board=drill") && tags(0).contains("hall=3"), "{listed}");
    assert!(tags(1).contains("\"arch=") && !tags(1).contains("rt\""), "{listed}");

    let report = nodes.json("fleet run plan.toml --out out --json");
    let places = report["places"].as_array().expect("places");
    assert_eq!(places.len(), 2, "{report}");
    assert!(places.iter().all(|place| place["is_whole"] == true), "{report}");
    nodes.assert_nothing_is_left();

    let other = ["--nodelist=n1", "--exclusive", "--output=/dev/null", "--wrap=sleep 100"];
    let _ = nodes.cluster.ask("sbatch", &other);
    wait_for("the other job", Duration::from_secs(60), || {
        nodes.cluster.ask("squeue", &["--noheader", "--format=%T"]).contains("RUNNING")
    });
    let (code, said) = nodes.output("fleet run plan.toml --out taken --tries 1");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("n1: the place is taken by root (Slurm's job "), "{said}");
    assert!(said.contains("n2: record collected"), "{said}");
    let _ = nodes.cluster.ask("scancel", &["--me"]);
    nodes.assert_nothing_is_left();

    let (code, said) = nodes.output("fleet run plan.toml --on board=drill --out named --json");
    assert_eq!(code, Some(0), "{said}");
    fs::write(nodes.at().join("wrong.toml"), "[slurm]\npartition = \"--x\"\n").expect("written");
    let (code, said) = nodes.output("fleet list --places wrong.toml");
    assert!(code == Some(64) && said.contains("is not a partition"), "{said}");
    fs::write(nodes.at().join("none.toml"), "[slurm]\npartition = \"none\"\n").expect("written");
    let (code, said) = nodes.output("fleet list --places none.toml");
    assert!(code == Some(64) && said.contains("no place"), "{said}");
}

#[test]
fn a_killed_rtscope_leaves_a_run_that_is_collected_at_a_node() {
    let test = "a_killed_rtscope_leaves_a_run_that_is_collected_at_a_node";
    let Some(nodes) = Nodes::start(test) else { return };
    let mut killed = nodes.spawn("fleet run plan.toml --on place=n1 --out out");
    nodes.wait_for_step("out", "started");
    kill(killed.id(), "KILL");
    killed.wait().expect("ends");
    let listed = nodes.json("fleet list --json");
    assert!(listed[0]["taken_by"].is_string() && listed[1]["taken_by"].is_null(), "{listed}");
    let report = nodes.json("fleet collect out --json");
    assert_eq!(report["places"][0]["is_whole"], true, "{report}");
    nodes.assert_nothing_is_left();

    // The keeper is killed too: what it recorded stays until it is collected.
    let mut killed = nodes.spawn("fleet run long.toml --on place=n2 --out cut");
    nodes.wait_for_step("cut", "started");
    let base = nodes.at().join("base");
    wait_for("two slices", Duration::from_secs(60), || recorded_slices(&base) >= 2);
    kill(killed.id(), "KILL");
    killed.wait().expect("ends");
    let keeper = format!("fleet-agent keep --base {}/base", nodes.at().display());
    processes_with(&keeper).into_iter().for_each(|pid| kill(pid, "KILL"));
    let report = nodes.json("fleet collect cut --json");
    let place = &report["places"][0];
    assert_eq!((&place["outcome"], &place["is_whole"]), (&"judged".into(), &false.into()));
    nodes.assert_nothing_is_left();

    // Ctrl-C gives it back at once.
    let mut ended = nodes.spawn("fleet run long.toml --on place=n1 --out ended");
    nodes.wait_for_step("ended", "started");
    kill(ended.id(), "INT");
    ended.wait().expect("ends");
    assert!(nodes.steps("ended").contains("given-back"), "{}", nodes.steps("ended"));
    nodes.assert_nothing_is_left();

    // Nobody collects: the allocation is given back all the same.
    let mut killed = nodes.spawn("fleet run plan.toml --on place=n1 --lease 10s --out late");
    nodes.wait_for_step("late", "started");
    kill(killed.id(), "KILL");
    killed.wait().expect("ends");
    nodes.assert_nothing_is_left();
    let (_, said) = nodes.output("fleet collect late");
    assert!(said.contains("Slurm"), "{said}");
}

#[test]
fn a_node_that_goes_down_loses_its_run_and_another_try_gets_it() {
    let test = "a_node_that_goes_down_loses_its_run_and_another_try_gets_it";
    let Some(mut nodes) = Nodes::start(test) else { return };
    // The daemon alone: its processes go on, and it finds them again.
    let mut run = nodes.spawn("fleet run plan.toml --on place=n1 --tries 1 --out back");
    nodes.wait_for_step("back", "started");
    nodes.cluster.kill_node(0);
    std::thread::sleep(Duration::from_secs(4));
    nodes.cluster.start_node(0);
    assert!(run.wait().expect("ends").success(), "{}", nodes.steps("back"));
    nodes.assert_nothing_is_left();
    nodes.cluster.wait_for_idle();

    // Slurm gives the node up.
    let mut run = nodes.spawn("fleet run long.toml --on place=n1 --tries 1 --out lost");
    nodes.wait_for_step("lost", "started");
    nodes.cluster.kill_node(0);
    let down = ["update", "nodename=n1", "state=down", "reason=no power"];
    let _ = nodes.cluster.ask("scontrol", &down);
    assert_eq!(run.wait().expect("ends").code(), Some(1));
    let (_, status) = nodes.output("fleet status lost");
    assert!(status.contains("NODE_FAIL") && !status.contains("may still"), "{status}");
    let page = fs::read_to_string(nodes.at().join("lost/index.html")).expect("a page");
    assert!(page.contains("NODE_FAIL"), "the page has the reason");
    let (_, said) = nodes.output("fleet run plan.toml --on place=n1 --tries 1 --out down");
    assert!(said.contains("node is DOWN") && said.contains("no power"), "{said}");
    // Back again: Slurm ends what went on there, and the next run gets the node.
    nodes.cluster.start_node(0);
    nodes.assert_nothing_is_left();
    nodes.cluster.wait_for_idle();
    let (code, said) = nodes.output("fleet run plan.toml --on place=n1 --out again");
    assert_eq!(code, Some(0), "{said}");
    nodes.assert_nothing_is_left();
}
