//! `rtscope fleet list`: the places, and who has them.

use std::{collections::BTreeMap, fs, path::PathBuf, process::ExitCode, thread};

use rtscope_fleet::{
    error::FleetError,
    facts::{self, Facts},
    places::FleetPlace,
};
use rtscope_measure::signals::Interrupt;
use rtscope_model::time::Nanos;
use serde_json::{Value, json};

use super::{Chosen, run};
use crate::{
    exit,
    output::{print, print_folded},
};

/// Show the places, whether they answer, and who holds them
///
/// rtscope connects to each chosen place and changes nothing there. The exit code is 1 if a place doesn't answer, or if
/// its folder is missing. It is also 1 if its rtscope binary is missing or is for another kind of machine.
///
/// Examples:
///   rtscope fleet list
///   rtscope fleet list --on tag=rt --on place=drill-*
///   rtscope fleet list --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Places that are asked at the same time.
const AT_ONCE: usize = 32;

type Found = Result<Seen, FleetError>;

/// An answer, and why the program for the place wouldn't run there.
struct Seen {
    facts: Facts,
    problem: Option<String>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let places = args.chosen.read()?;
    let interrupt = Interrupt::install()?;
    let stop = || interrupt.is_stopped();
    let mut found: Vec<Found> = Vec::new();
    // The same file is looked at once for each kind of machine.
    let mut programs: BTreeMap<(Option<PathBuf>, String), Option<String>> = BTreeMap::new();
    for some in places.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let looks: Vec<_> =
                some.iter().map(|place| scope.spawn(|| facts::look(place, &stop))).collect();
            let seen = some.iter().zip(looks).map(|(place, look)| {
                let facts = look.join().expect("a look doesn't panic")?;
                let program = (place.program.clone(), facts.machine.clone());
                let problem = programs.entry(program).or_insert_with(|| problem(place, &facts));
                Ok(Seen { facts, problem: problem.clone() })
            });
            found.extend(seen);
        });
    }
    let all = || places.iter().zip(&found);
    if args.json {
        let rows: Vec<Value> = all().map(|(place, found)| document(place, found)).collect();
        print(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    } else {
        let width = places.iter().map(|place| place.name.len()).max().unwrap_or(0);
        let rows: Vec<String> = all().map(|(place, found)| line(place, found, width)).collect();
        print_folded(&(rows.join("\n") + "\n"))?;
    }
    let is_ready = |one: &Found| one.as_ref().is_ok_and(|seen| seen.problem.is_none());
    Ok(ExitCode::from(if found.iter().all(is_ready) { exit::PASS } else { exit::ERROR }))
}

fn line(place: &FleetPlace, found: &Found, width: usize) -> String {
    let tags =
        if place.tags.is_empty() { String::new() } else { format!("  [{}]", place.tags.join(" ")) };
    let said = match found {
        Err(e) => e.to_string(),
        Ok(Seen { facts, problem }) => {
            let held = facts.held.as_ref();
            let held =
                held.map_or_else(|| "free".to_owned(), |(holder, left)| taken(holder, *left));
            let problem = problem.as_ref().map(|why| format!("; can't run: {why}"));
            held + &machine(facts) + &problem.unwrap_or_default()
        }
    };
    format!("{:width$}  {:5}  {said}{tags}", place.name, place.reach.word())
}

/// Why the program for a place wouldn't run there. Where the machine isn't known yet, only the file is checked.
fn problem(place: &FleetPlace, facts: &Facts) -> Option<String> {
    match (facts.machine.as_str(), &place.program) {
        ("", None) => None,
        ("", Some(path)) => fs::metadata(path).err().map(|e| format!("{}: {e}", path.display())),
        (machine, _) => run::program_for(place, machine).err().map(|e| e.to_string()),
    }
}

/// What it is; empty where only the one who has a place may ask it.
fn machine(facts: &Facts) -> String {
    let Facts { machine, kernel, model, .. } = facts;
    if machine.is_empty() {
        return String::new();
    }
    let model = model.as_deref().map(|model| format!(", {model}")).unwrap_or_default();
    format!("; {machine}, Linux {kernel}{model}")
}

fn taken(holder: &str, left: Option<u64>) -> String {
    let left = left.map(|seconds| Nanos::from_ms(seconds.saturating_mul(1000)));
    let at_most = left.map(|left| format!(", for at most {left}")).unwrap_or_default();
    format!("taken by {holder}{at_most}")
}

fn document(place: &FleetPlace, found: &Found) -> Value {
    let mut row = json!({ "place": place.name, "reach": place.reach.word(), "tags": place.tags });
    let more = match found {
        Err(e) => json!({ "answers": false, "problem": e.to_string() }),
        Ok(Seen { facts: Facts { machine, kernel, model, held, .. }, problem }) => json!({
            "answers": true, "machine": machine, "kernel": kernel, "model": model,
            "program_problem": problem,
            "taken_by": held.as_ref().map(|(holder, _)| holder),
            "lease_left_ns": held.as_ref().map(|(_, left)| left.map(|s| s.saturating_mul(1_000_000_000))),
        }),
    };
    if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
        row.extend(more);
    }
    row
}
