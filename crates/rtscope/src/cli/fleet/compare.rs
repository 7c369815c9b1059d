//! `rtscope fleet compare`: a fleet before and after a change, place by place.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::{
    compare,
    report::{
        self,
        fleet_compare::{self, FleetComparison},
    },
};
use rtscope_fleet::journal;
use rtscope_model::time::Nanos;

use crate::{
    cli::compare::{Opened, opened, runs, shared_requirements, sides},
    exit,
    failure::Refused,
    output::{print, print_folded, shown, style},
    record,
};

/// Compare a fleet before and after a change, place by place
///
/// A and B are each one or more folders of `rtscope fleet run`. rtscope compares each place with itself. The test
/// corrects for the number of figures and places (Holm). With more places, a single place needs a larger change to
/// count as different. The exit code is 0 even if places differ.
///
/// Examples:
///   rtscope fleet compare before after
///   rtscope fleet compare a1 a2 a3 -- b1 b2 b3
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Folders of A; of two folders without `--`, the second is B
    #[arg(required = true)]
    a: Vec<String>,
    /// Folders of B
    #[arg(last = true)]
    b: Vec<String>,
    /// Compare at this latency too, not only at the limits of the requirements; repeatable
    #[arg(short, long, value_name = "LATENCY")]
    limit: Vec<Nanos>,
    /// Folder for the pages [default: rtscope-runs/fleet-compare-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The records of each place.
type Records = BTreeMap<String, Vec<String>>;

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (a, b) = sides(&args.a, &args.b)?;
    let (records_a, mut records_b) = (records(a)?, records(b)?);
    let mut places: Vec<(String, [Vec<Opened>; 2])> = Vec::new();
    let mut on_one_side: Vec<String> = Vec::new();
    for (place, a) in records_a {
        let Some(b) = records_b.remove(&place) else {
            on_one_side.push(place);
            continue;
        };
        let require = shared_requirements(a.iter().chain(&b), &[])?;
        let open = |names: &[String]| -> anyhow::Result<Vec<Opened>> {
            names.iter().map(|name| opened(name, &require)).collect()
        };
        places.push((place, [open(&a)?, open(&b)?]));
    }
    on_one_side.extend(records_b.into_keys());
    if places.is_empty() {
        return Err(Refused("A and B have no place with a record in common".to_owned()).into());
    }
    let limits_ns: Vec<u64> = args.limit.iter().map(|limit| limit.0).collect();
    let sides: Vec<_> = places.iter().map(|(_, [a, b])| (runs(a), runs(b))).collect();
    let sides: Vec<compare::Sides<'_>> = sides.iter().map(|(a, b)| (&a[..], &b[..])).collect();
    let comparisons = compare::compare_each(&sides, &limits_ns);
    let compared = places.iter().map(|(place, _)| place.clone()).zip(comparisons).collect();
    let folders = [a, b].map(|side| side.iter().map(shown).collect());
    let version = env!("CARGO_PKG_VERSION");
    publish(args, &FleetComparison::new(folders, version, compared, on_one_side))?;
    Ok(ExitCode::from(exit::PASS))
}

/// The records of some fleets' folders, by place.
fn records(folders: &[String]) -> anyhow::Result<Records> {
    let mut places = Records::new();
    for folder in folders.iter().map(Path::new) {
        // Says what is wrong with a folder that is none.
        journal::read_order(folder)?;
        for (record, place) in super::records_in(folder)? {
            places.entry(place.name).or_default().push(record.display().to_string());
        }
    }
    Ok(places)
}

fn publish(args: &Args, all: &FleetComparison) -> anyhow::Result<()> {
    let wall_clock = record::wall_clock();
    let fresh = || record::fresh_folder("fleet-compare", &wall_clock);
    let out: PathBuf = args.out.as_deref().map_or_else(fresh, Path::to_owned);
    for place in &all.places {
        let page = report::compare::page(&place.comparison);
        record::write_in(&out.join("places"), &format!("{}.html", place.place), &page)?;
    }
    let page = record::write_in(&out, "index.html", fleet_compare::page(all))?;
    if args.json {
        print(&(serde_json::to_string_pretty(all)? + "\n"))?;
        note!("Report: {}", page.display());
        return Ok(());
    }
    print_folded(&format!("{}\nReport: {}\n", fleet_compare::text(all, style()), shown(&page)))
}
