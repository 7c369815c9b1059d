//! A plan at several places of this machine: what comes back, and that nothing is left, whoever is killed when.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use rtscope_testing::{executable, skip::root_or_skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    fleet_kills::Moments,
    support::{folder, json, kill, output, processes_with, refused, start, text, wait_for},
};

/// How often something is killed: more by hand.
pub(crate) const KILLS: &str = "RTSCOPE_KILLS";

const PLAN: &str = "name = 'short'\n[[phase]]\nname = 'rest'\nduration = '2s'\n";
const LONG: &str = "name = 'long'\n[[phase]]\nname = 'rest'\nduration = '60s'\n";

/// The program without what only debuggers read, so that a copy takes less time.
pub(crate) fn small_program(to: &Path) {
    let program = env!("CARGO_BIN_EXE_rtscope");
    let stripped = Command::new("strip").arg("-o").arg(to).arg(program).status();
    if !stripped.is_ok_and(|status| status.success()) {
        executable::copy(program.as_ref(), to);
    }
}

/// A room with places of this machine, each with a folder of its own.
fn room(places: &[&str], plan: &str) -> TempDir {
    let room = folder();
    small_program(&room.path().join("small"));
    fs::write(room.path().join("plan.toml"), plan).expect("written");
    let mut text = "[defaults]\nprogram = \"small\"\nshares-machine = true\n".to_owned();
    for place in places {
        let base = room.path().join(format!("at-{place}"));
        fs::create_dir(&base).expect("made");
        text += &format!(
            "[places.{place}]\nlocal = true\nfolder = {base:?}\ntags = [\"of={place}\"]\n"
        );
    }
    fs::write(room.path().join("places.toml"), text).expect("written");
    room
}

/// That no place holds anything, and no process of a job goes on.
fn assert_nothing_is_left(room: &Path) {
    let jobs = format!("{}/at-", room.display());
    wait_for("the keepers to end", Duration::from_secs(40), || {
        processes_with(&jobs).into_iter().all(|pid| !is_of_job(pid))
    });
    for entry in fs::read_dir(room).expect("listed").flatten() {
        if entry.file_name().to_string_lossy().starts_with("at-") {
            let left: Vec<_> =
                fs::read_dir(entry.path()).expect("listed").flatten().map(|e| e.path()).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

/// Whether a process is a keeper or its run: those that start jobs name the places' folders too.
fn is_of_job(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text(&line).contains("fleet-agent\0keep") || text(&line).contains("rtscope\0run")
}

fn steps(room: &Path, out: &str) -> String {
    fs::read_to_string(room.join(out).join("fleet.jsonl")).unwrap_or_default()
}

/// How many slices the runs in a place's folder have recorded after their warm-up.
pub(crate) fn recorded_slices(base: &Path) -> usize {
    let below = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    // The folders of users, and in them those of jobs.
    let jobs = below(base).into_iter().flat_map(|user| below(&user));
    let slices = jobs.map(|job| job.join("record/slices/t0.jsonl"));
    let texts = slices.filter_map(|slices| fs::read_to_string(slices).ok());
    texts.map(|text| text.lines().filter(|line| line.contains("\"cell\"")).count()).sum()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}\n{}", text(&output.stdout), text(&output.stderr)))
}

#[test]
fn a_plan_runs_at_each_place_and_nothing_is_left_there() {
    let room = room(&["one", "two", "three"], PLAN);
    let run =
        output(room.path(), "fleet run plan.toml --on of=one --on place=th* --out out --json");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let report = document(&run);
    let places = report["places"].as_array().expect("places");
    let mut names: Vec<&str> = places.iter().filter_map(|place| place["place"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "three"]);
    for place in places {
        assert_eq!(place["outcome"], "judged", "{place}");
        assert_eq!(place["is_whole"], true, "{place}");
        assert!(place["cells"][0]["recorded"].as_u64().is_some_and(|n| n > 1000), "{place}");
        let record = room.path().join("out").join(place["record"].as_str().expect("a record"));
        assert!(record.join("report.html").is_file() && record.join("verdict.json").is_file());
    }
    assert_nothing_is_left(room.path());
    // Every later verb finds a record.
    let record = json(room.path(), "report out/places/one --json");
    assert_eq!(record["plan"], "short", "{record}");
    assert!(
        fs::read_to_string(room.path().join("out/index.html"))
            .expect("a page")
            .contains("2 places")
    );
    refused(room.path(), "fleet run plan.toml --out out", 64, &["already holds a fleet run"]);
}

#[test]
fn a_fleet_is_compared_and_followed_place_by_place() {
    let room = room(&["one", "two"], "name = 'p'\n[[phase]]\nname = 'rest'\nduration = '300ms'\n");
    for (out, more) in
        [("a1", ""), ("a2", ""), ("b1", "--interval 3ms"), ("b2", "--interval 3ms --on place=one")]
    {
        let run = output(room.path(), &format!("fleet run plan.toml --out {out} --json {more}"));
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    }
    let compared = json(room.path(), "fleet compare --out pages --json a1 a2 -- b1 b2");
    let mut names: Vec<&str> = compared["places"]
        .as_array()
        .expect("places")
        .iter()
        .filter_map(|one| one["place"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "two"]);
    let one =
        compared["places"].as_array().expect("places").iter().find(|one| one["place"] == "one");
    assert_eq!(
        one.expect("a place")["b"].as_array().map(Vec::len),
        Some(2),
        "two runs of this place, one of the other"
    );
    assert!(
        room.path().join("pages/places/one.html").is_file()
            && room.path().join("pages/index.html").is_file()
    );
    let only = json(room.path(), "fleet compare a1 b2 --out pages2 --json");
    assert_eq!(only["on_one_side"], serde_json::json!(["two"]));
    refused(room.path(), "fleet compare a1 places.toml", 64, &["was not written by"]);
    refused(room.path(), "fleet compare a1 -- b1 --json", 64, &["write options before"]);

    let added = output(room.path(), "history import a1 b2 --store h.sqlite");
    assert_eq!(text(&added.stdout).lines().count(), 3, "{}", text(&added.stdout));
    let count = |more: &str| {
        let list = json(room.path(), &format!("history list --store h.sqlite --json {more}"));
        list.as_array().map(Vec::len)
    };
    assert_eq!(
        (count("--place one"), count("--tag of=two"), count("--tag two")),
        (Some(2), Some(1), Some(0))
    );
}

#[test]
fn a_requirement_is_judged_here_and_decides_the_exit_code() {
    let room = room(&["one"], PLAN);
    let run = output(room.path(), "fleet run plan.toml --require 'max < 1ns' --out out");
    assert_eq!(run.status.code(), Some(2), "{}", text(&run.stderr));
    assert!(text(&run.stdout).contains("1 place: 1 failed"), "{}", text(&run.stdout));
}

#[test]
fn a_killed_rtscope_loses_no_place() {
    let kills: u32 = std::env::var(KILLS).ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let mut moments = Moments::new();
    let room = room(&["one", "two"], PLAN);
    let (mut collected, mut without) = (0, 0);
    for n in 0..kills {
        let after = moments.below(6000);
        let out = format!("out{n}");
        let mut run = start(room.path(), &format!("fleet run plan.toml --out {out}"));
        std::thread::sleep(after);
        kill(run.id(), "KILL");
        run.wait().expect("ends");
        let journal = || format!("killed after {after:?}:\n{}", steps(room.path(), &out));
        if !room.path().join(&out).join("fleet.jsonl").exists() {
            continue;
        }
        let brought = output(room.path(), &format!("fleet collect {out} --json"));
        let report = document(&brought);
        for place in report["places"].as_array().expect("places") {
            let started = journal().lines().any(|line| {
                line.contains("started")
                    && place["place"].as_str().is_some_and(|name| line.contains(name))
            });
            assert!(!started || place["outcome"] == "judged", "{place} {}", journal());
            match place["outcome"] == "judged" {
                true => collected += 1,
                false => without += 1,
            }
        }
        let status = json(room.path(), &format!("fleet status {out} --json")).to_string();
        assert!(
            !status.contains("running") && !status.contains("copied"),
            "{status} {}",
            journal()
        );
        assert_nothing_is_left(room.path());
    }
    println!("{kills} kills: {collected} records collected, {without} places that had not begun");
}

#[test]
fn a_run_that_is_cut_at_its_place_gives_what_it_had() {
    let room = room(&["one"], LONG);
    let mut run = start(room.path(), "fleet run plan.toml --out out --lease 2min");
    let base = room.path().join("at-one");
    let keeper = format!("fleet-agent keep --base {}", base.display());
    wait_for("two slices", Duration::from_secs(60), || recorded_slices(&base) >= 2);
    for pid in processes_with(&keeper) {
        kill(pid, "KILL");
    }
    kill(run.id(), "KILL");
    run.wait().expect("ends");
    let report = document(&output(room.path(), "fleet collect out --json"));
    let place = &report["places"][0];
    assert_eq!(
        (&place["outcome"], &place["is_whole"]),
        (&"judged".into(), &false.into()),
        "{place}"
    );
    assert!(place["cells"][0]["recorded"].as_u64().is_some_and(|n| n > 100), "{place}");
    assert_nothing_is_left(room.path());
}

/// What fails here after a run, as a full disk, costs no record: it stays at its place until it is collected.
#[test]
fn a_full_disk_here_costs_no_record() {
    let test = "a_full_disk_here_costs_no_record";
    if !root_or_skip(test) {
        return;
    }
    let room = room(&["one"], PLAN);
    let full = room.path().join("full");
    fs::create_dir(&full).expect("made");
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "none"]).arg(&full);
        assert!(command.status().is_ok_and(|status| status.success()), "root can mount");
    };
    mount("size=64k");
    let run = output(room.path(), "fleet run plan.toml --out full/out");
    let journal = steps(room.path(), "full/out");
    mount("remount,size=64m");
    let collected = output(room.path(), "fleet collect full/out --json");
    let brought = fs::exists(full.join("out/places/one/plan.toml")).unwrap_or(false);
    let _ = Command::new("umount").arg("-l").arg(&full).status();
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    assert!(journal.contains("ended") && !journal.contains("given-back"), "{journal}");
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    assert_eq!(document(&collected)["places"][0]["is_whole"], true);
    assert!(brought);
    assert_nothing_is_left(room.path());
}

#[test]
fn a_place_has_one_run_at_a_time_and_comes_free_when_its_lease_ends() {
    let room = room(&["one"], PLAN);
    let mut run = start(room.path(), "fleet run plan.toml --out first --lease 40s");
    wait_for("the run to begin", Duration::from_secs(30), || {
        steps(room.path(), "first").contains("started")
    });
    // Stopped, it doesn't give the place back before the others have come, however slow they are.
    kill(run.id(), "STOP");
    let second = output(room.path(), "fleet run plan.toml --out second --tries 1");
    assert_eq!(second.status.code(), Some(1), "{}", text(&second.stderr));
    assert!(text(&second.stdout).contains("the place is taken by "), "{}", text(&second.stdout));
    let listed = json(room.path(), "fleet list --json");
    assert!(listed[0]["taken_by"].is_string() && listed[0]["answers"] == true, "{listed}");
    kill(run.id(), "KILL");
    run.wait().expect("ends");
    // Nobody gives it back: its keeper does.
    assert_nothing_is_left(room.path());
    let late = output(room.path(), "fleet collect first --patience 1s");
    assert_eq!(late.status.code(), Some(1), "{}", text(&late.stdout));
    let listed = json(room.path(), "fleet list --json");
    assert!(listed[0]["taken_by"].is_null(), "{listed}");
}

#[test]
fn a_place_that_somebody_else_has_is_waited_for() {
    let room = room(&["one"], PLAN);
    let mut first = start(room.path(), "fleet run plan.toml --out first");
    wait_for("the first run to begin", Duration::from_secs(30), || {
        steps(room.path(), "first").contains("\"taken\"")
    });
    let second = output(room.path(), "fleet run plan.toml --out second --tries 1 --wait 1min");
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("waiting for it").count(), 1, "{said}");
    assert!(first.wait().expect("ends").success());
    assert_nothing_is_left(room.path());
}

#[test]
fn places_that_could_run_nothing_are_listed_with_the_reason() {
    let room = room(&["one"], PLAN);
    let mut program = fs::read(room.path().join("small")).expect("read");
    // The machine in the header of an ELF file: RISC-V.
    program[18] = 243;
    fs::write(room.path().join("other"), program).expect("written");
    let base = room.path().join("at-one").display().to_string();
    let places = |name: &str, program: &str| {
        format!("[places.{name}]\nlocal = true\nprogram = \"{program}\"\nfolder = \"{base}\"\n")
    };
    let folderless = places("nowhere", "small").replace(&base, "/nonexistent/folder");
    let text_of =
        [places("good", "small"), places("missing", "none"), folderless, places("wrong", "other")];
    fs::write(room.path().join("places.toml"), text_of.concat()).expect("written");
    let listed = output(room.path(), "fleet list --json");
    assert_eq!(listed.status.code(), Some(1), "{}", text(&listed.stderr));
    let listed = document(&listed);
    let problem = |n: usize| listed[n]["program_problem"].to_string();
    assert_eq!(problem(0), "null", "{listed}");
    assert!(problem(1).contains("none") && problem(1).contains("No such file"), "{listed}");
    assert!(problem(3).contains("other") && problem(3).contains("riscv64"), "{listed}");
    let problem = listed[2]["problem"].to_string();
    assert!(problem.contains("there is no folder /nonexistent/folder here: make it"), "{listed}");
    let listed = output(room.path(), "fleet list");
    assert!(text(&listed.stdout).contains("; can't run: "), "{}", text(&listed.stdout));
    assert_eq!(output(room.path(), "fleet list --on place=good").status.code(), Some(0));
}

#[test]
fn two_names_for_one_machine_are_refused() {
    let room = room(&["one", "two"], PLAN);
    let file = room.path().join("places.toml");
    let places = fs::read_to_string(&file).expect("read").replace("shares-machine = true\n", "");
    fs::write(&file, places).expect("written");
    let run = output(room.path(), "fleet run plan.toml --out out");
    let said = text(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("it is the same machine as place ").count(), 1, "{said}");
    assert_eq!(said.matches("record collected").count(), 1, "{said}");
    assert_nothing_is_left(room.path());
}

#[test]
fn wrong_places_are_refused_before_anything_is_taken() {
    let room = room(&["one"], PLAN);
    refused(room.path(), "fleet run --on tag=rt", 64, &["no place", "tag=rt", "the file has one"]);
    refused(room.path(), "fleet list --on rt", 64, &["is not a condition"]);
    refused(room.path(), "fleet list --places none.toml", 1, &["none.toml", "[places.NAME]"]);
    refused(room.path(), "fleet status plan.toml", 64, &["was not written by `rtscope fleet run`"]);
    refused(
        room.path(),
        "fleet run plan.toml --lease 1s --out out",
        64,
        &["shorter than the plan"],
    );
    fs::write(
        room.path().join("places.toml"),
        "[places.a]\nlocal = true\nprogram = \"plan.toml\"\n",
    )
    .expect("written");
    let run = output(room.path(), "fleet run plan.toml --out out");
    assert_eq!(run.status.code(), Some(1));
    assert!(text(&run.stdout).contains("not a program for Linux"), "{}", text(&run.stdout));
}
