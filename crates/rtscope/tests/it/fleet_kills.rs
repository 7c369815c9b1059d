//! What hands places out, and what reaches them, is killed at random moments of a run. Each place brings its record once,
//! no place stays taken, and no process goes on.

use std::{
    fs,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;

use crate::{
    fleet::KILLS,
    fleet_labgrid::Labgrid,
    fleet_slurm::Nodes,
    fleet_ssh::{COMPRESSED, Far},
    support::{start, wait_for},
};

/// How often each is killed where nobody says how often.
const FEW: u32 = 2;

/// How long a run with a kill may take.
const LIMIT: Duration = Duration::from_secs(240);

/// A linear congruential generator (Numerical Recipes), begun with the time of day.
pub(crate) struct Moments(u32);

impl Moments {
    pub(crate) fn new() -> Moments {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
        Moments(now.subsec_nanos())
    }

    /// Below so many milliseconds.
    pub(crate) fn below(&mut self, ms: u64) -> Duration {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Duration::from_millis(u64::from(self.0 >> 8) % ms)
    }
}

fn kills() -> u32 {
    std::env::var(KILLS).ok().and_then(|n| n.parse().ok()).unwrap_or(FEW)
}

fn ended(run: &mut Child, limit: Duration) -> ExitStatus {
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = run.try_wait().expect("a child") {
            return status;
        }
        if Instant::now() > until {
            crate::support::kill(run.id(), "KILL");
            panic!("rtscope goes on after {limit:?}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits for a step at the first place, as long as the run goes on.
fn until_step(steps: &dyn Fn() -> String, step: &str, run: &mut Child) {
    let step = format!("\"step\":\"{step}\"");
    while !steps().contains(&step) && run.try_wait().expect("a child").is_none() {
        thread::sleep(Duration::from_millis(10));
    }
}

/// That each of so many places brought its record once, and was given back after all of its jobs.
fn assert_each_came_once(folder: &std::path::Path, places: usize, what: &str) {
    let steps = fs::read_to_string(folder.join("fleet.jsonl")).expect("a journal");
    let lines: Vec<Value> =
        steps.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let of = |step: &str| lines.iter().filter(|line| line["step"] == step).collect::<Vec<_>>();
    let collected = of("collected");
    let mut names: Vec<&str> = collected.iter().filter_map(|line| line["place"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((collected.len(), names.len()), (places, places), "{what}:\n{steps}");
    assert!(collected.iter().all(|line| line["is_whole"] == true), "{what}:\n{steps}");
    for asked in of("asked") {
        let is_back = of("given-back").iter().any(|back| back["job"] == asked["job"]);
        assert!(is_back, "{what}: {}\n{steps}", asked["job"]);
    }
}

#[test]
fn a_killed_sshd_loses_no_place() {
    let Some(far) = Far::make("a_killed_sshd_loses_no_place", COMPRESSED) else { return };
    let (room, mut moments) = (far.room.path().to_owned(), Moments::new());
    let kills = kills();
    for n in 0..kills {
        let out = format!("out{n}");
        let mut run = start(&room, &format!("fleet run plan.toml --tries 5 --out {out}"));
        // Every other one in the middle of the copy.
        let steps = || fs::read_to_string(room.join(&out).join("fleet.jsonl")).unwrap_or_default();
        let after = match n % 2 {
            0 => {
                until_step(&steps, "taken", &mut run);
                moments.below(500)
            }
            _ => moments.below(6000),
        };
        thread::sleep(after);
        far.kill_sshd();
        thread::sleep(moments.below(2000));
        far.listen();
        let status = ended(&mut run, LIMIT);
        let what = format!("kill {n} after {after:?}: {status}");
        assert_each_came_once(&room.join(&out), 1, &what);
        assert!(status.success(), "{what}");
        far.assert_nothing_is_left();
    }
    println!("sshd was killed {kills} times");
}

#[test]
fn a_killed_slurmd_loses_no_place() {
    let Some(mut nodes) = Nodes::start("a_killed_slurmd_loses_no_place") else { return };
    let mut moments = Moments::new();
    let kills = kills();
    for n in 0..kills {
        let out = format!("out{n}");
        let mut run = nodes.spawn(&format!("fleet run plan.toml --tries 5 --out {out}"));
        let after = moments.below(7000);
        thread::sleep(after);
        let node = n as usize % 2;
        nodes.cluster.kill_node(node);
        thread::sleep(moments.below(4000));
        nodes.cluster.start_node(node);
        let status = ended(&mut run, LIMIT);
        let said = fs::read_to_string(nodes.at().join("errors")).unwrap_or_default();
        let what = format!("kill {n} after {after:?}: {status}\n{said}");
        assert_each_came_once(&nodes.at().join(&out), 2, &what);
        assert!(status.success(), "{what}");
        nodes.assert_nothing_is_left();
    }
    println!("slurmd was killed {kills} times");
}

/// Whenever rtscope is killed, `fleet collect` finds what Slurm has allocated, and brings each record that was begun.
#[test]
fn a_killed_rtscope_loses_no_node() {
    let Some(nodes) = Nodes::start("a_killed_rtscope_loses_no_node") else { return };
    let mut moments = Moments::new();
    let (kills, mut collected) = (kills(), 0);
    for n in 0..kills {
        let out = format!("out{n}");
        let mut run = nodes.spawn(&format!("fleet run plan.toml --out {out}"));
        // Every other one while jobs are submitted and start.
        let after = moments.below(if n % 2 == 0 { 1000 } else { 7000 });
        thread::sleep(after);
        crate::support::kill(run.id(), "KILL");
        run.wait().expect("ends");
        if nodes.at().join(&out).join("fleet.json").exists() {
            let started = nodes.steps(&out).matches("\"started\"").count();
            let report = nodes.json(&format!("fleet collect {out} --json"));
            let places = report["places"].as_array().expect("places");
            let judged = places.iter().filter(|place| place["outcome"] == "judged").count();
            let what = || format!("killed after {after:?}: {report}\n{}", nodes.steps(&out));
            assert!(judged >= started, "{}", what());
            assert_eq!(nodes.steps(&out).matches("\"collected\"").count(), judged, "{}", what());
            collected += judged;
        }
        nodes.assert_nothing_is_left();
        nodes.cluster.wait_for_idle();
    }
    println!("rtscope was killed {kills} times: {collected} records collected");
}

/// Kills a part of labgrid at a random moment of each run, and starts it again.
fn labgrid_loses_no_place(test: &str, kill: fn(&mut Labgrid, Duration)) {
    let Some(mut labgrid) = Labgrid::start(test) else { return };
    let (room, mut moments) = (labgrid.room(), Moments::new());
    let kills = kills();
    for n in 0..kills {
        let out = format!("out{n}");
        let line = format!("fleet run plan.toml --on place=drill --tries 8 --out {out}");
        let mut run = start(&room, &line);
        // Without a coordinator at the start, nothing would begin.
        let order = room.join(&out).join("fleet.json");
        wait_for("the run to begin", Duration::from_secs(60), || order.exists());
        let after = moments.below(9000);
        thread::sleep(after);
        kill(&mut labgrid, moments.below(3000));
        let status = ended(&mut run, LIMIT);
        let what = format!("kill {n} after {after:?}: {status}");
        assert_each_came_once(&room.join(&out), 1, &what);
        assert!(status.success(), "{what}");
        assert!(labgrid.holders().iter().all(Value::is_null), "{what}: {:?}", labgrid.holders());
        labgrid.assert_nothing_is_left();
    }
    println!("{test}: {kills} kills");
}

#[test]
fn a_killed_exporter_loses_no_place() {
    labgrid_loses_no_place("a_killed_exporter_loses_no_place", |labgrid, pause| {
        labgrid.kill_exporter();
        thread::sleep(pause);
        labgrid.export();
    });
}

#[test]
fn a_killed_coordinator_loses_no_place() {
    labgrid_loses_no_place("a_killed_coordinator_loses_no_place", |labgrid, pause| {
        labgrid.kill_coordinator();
        labgrid.kill_exporter();
        thread::sleep(pause);
        labgrid.coordinate();
        labgrid.export();
    });
}
