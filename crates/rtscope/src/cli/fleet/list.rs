//! `rtscope fleet list`: the places, and who has them.

use std::{process::ExitCode, thread};

use rtscope_fleet::{
    error::FleetError,
    facts::{self, Facts},
    places::FleetPlace,
};
use rtscope_measure::interrupt::Interrupt;
use rtscope_model::time::Nanos;
use serde_json::{Value, json};

use super::Chosen;
use crate::{
    exit,
    output::{print, print_folded},
};

/// Show the places, whether they answer, and who has them
///
/// rtscope connects to each chosen place and changes nothing there. The exit code is 1 if a place doesn't answer.
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

type Found = Result<Facts, FleetError>;

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let places = args.chosen.read()?;
    let interrupt = Interrupt::install()?;
    let stop = || interrupt.is_stopped();
    let mut found: Vec<Found> = Vec::new();
    for some in places.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let looks: Vec<_> =
                some.iter().map(|place| scope.spawn(|| facts::look(place, &stop))).collect();
            found.extend(looks.into_iter().map(|look| look.join().expect("a look doesn't panic")));
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
    let all_answer = found.iter().all(Result::is_ok);
    Ok(ExitCode::from(if all_answer { exit::PASS } else { exit::ERROR }))
}

fn line(place: &FleetPlace, found: &Found, width: usize) -> String {
    let tags =
        if place.tags.is_empty() { String::new() } else { format!("  [{}]", place.tags.join(" ")) };
    let said = match found {
        Err(e) => e.to_string(),
        Ok(facts) => {
            let held = facts.held.as_ref();
            let held =
                held.map_or_else(|| "free".to_owned(), |(holder, left)| taken(holder, *left));
            held + &machine(facts)
        }
    };
    format!("{:width$}  {:5}  {said}{tags}", place.name, place.reach.word())
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
        Ok(Facts { machine, kernel, model, held, .. }) => json!({
            "answers": true, "machine": machine, "kernel": kernel, "model": model,
            "taken_by": held.as_ref().map(|(holder, _)| holder),
            "lease_left_ns": held.as_ref().map(|(_, left)| left.map(|s| s.saturating_mul(1_000_000_000))),
        }),
    };
    if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
        row.extend(more);
    }
    row
}
