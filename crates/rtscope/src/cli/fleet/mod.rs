//! `rtscope fleet`: the same plan on many machines.

pub(super) mod agent;
mod collect;
mod compare;
pub(super) mod exported;
mod judged;
mod lava;
mod list;
mod page;
mod pull_lab;
mod run;
mod status;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::Context;
use rtscope_fleet::{
    error::FleetError,
    journal::{self, FleetJob},
    places::{self, FleetPlace},
    selector::Selector,
};
use signal_hook::consts::SIGINT;

use crate::{
    exit,
    failure::{Refused, lab_failure},
    history::RunPlace,
    record::bounded_text,
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    List(list::Args),
    Run(Box<run::Args>),
    Status(status::Args),
    Collect(collect::Args),
    Compare(compare::Args),
    PullLab(Box<pull_lab::Args>),
    Lava(Box<lava::Args>),
}

/// The file of places, and which of them.
#[derive(Debug, clap::Args)]
pub(super) struct Chosen {
    /// File that lists the places
    #[arg(long, value_name = "FILE", default_value = "places.toml")]
    places: PathBuf,
    /// Choose places, for example tag=rt,arch=arm64 (all conditions must match), place=drill-* or rack!=3; repeatable: a
    /// place is chosen if any --on matches [default: all]
    #[arg(long, value_name = "SELECTOR")]
    on: Vec<Selector>,
}

impl Chosen {
    /// The chosen places, by name.
    fn read(&self) -> anyhow::Result<Vec<FleetPlace>> {
        let all = read_places(&self.places)?;
        let is_chosen =
            |place: &FleetPlace| self.on.is_empty() || self.on.iter().any(|one| one.selects(place));
        let chosen: Vec<FleetPlace> =
            all.iter().filter(|place| is_chosen(place)).cloned().collect();
        if chosen.is_empty() {
            let selectors: Vec<String> = self.on.iter().map(ToString::to_string).collect();
            let names: Vec<&str> = all.iter().map(|place| place.name.as_str()).take(12).collect();
            return Err(Refused(format!(
                "no place in {} matches {}; the file has {}: `rtscope fleet list` shows their tags",
                self.places.display(),
                selectors.join(" or "),
                names.join(", ")
            ))
            .into());
        }
        Ok(chosen)
    }
}

/// The records in a fleet's folder with their places; any other folder stands for itself.
pub(super) fn records_in(folder: &Path) -> anyhow::Result<Vec<(PathBuf, RunPlace)>> {
    if !journal::is_fleet(folder) {
        return Ok(vec![(folder.to_owned(), RunPlace::default())]);
    }
    let order = journal::read_order(folder)?;
    let jobs = journal::read_jobs(folder)?;
    let of_place = |(name, jobs): (String, Vec<FleetJob>)| {
        let job = jobs.into_iter().rev().find(|job| job.record.is_some())?;
        let tags = order.places.get(&name).map(|tags| tags.join(" ")).unwrap_or_default();
        let place = RunPlace { name, tags, model: job.model.unwrap_or_default() };
        Some((folder.join(job.record?.0), place))
    };
    Ok(jobs.into_iter().filter_map(of_place).collect())
}

/// Whether the user wants everything to end (SIGINT). A second SIGINT ends rtscope at once, as SIGTERM and SIGHUP do: then
/// the runs go on at their places.
fn listen() -> anyhow::Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_shutdown(
        SIGINT,
        i32::from(exit::INTERRUPTED),
        stopped.clone(),
    )?;
    signal_hook::flag::register(SIGINT, stopped.clone())?;
    Ok(stopped)
}

/// The largest file of places.
const PLACES_BYTES_MAX: u64 = 16 << 20;

fn read_places(file: &Path) -> anyhow::Result<Vec<FleetPlace>> {
    let text = bounded_text(file, PLACES_BYTES_MAX).with_context(|| {
        format!(
            "can't read the file of places {}: write a file with [places.NAME] and ssh = \"USER@HOST\" for each machine, or \
             name an existing file with --places",
            file.display()
        )
    })?;
    Ok(places::parse(file, &text)?.all()?)
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    let done = match verb {
        Verb::List(args) => list::main(args),
        Verb::Run(args) => run::main(args),
        Verb::Status(args) => status::main(args),
        Verb::Collect(args) => collect::main(args),
        Verb::Compare(args) => compare::main(args),
        Verb::Lava(args) => lava::main(args),
        Verb::PullLab(args) => pull_lab::main(args).map_err(lab_failure),
    };
    done.map_err(fleet_failure)
}

/// What was asked wrongly of a fleet has its own exit code.
fn fleet_failure(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<FleetError>() {
        Ok(FleetError::Places(problems)) => problems.into(),
        Ok(fleet) if fleet.is_usage() => Refused(fleet.to_string()).into(),
        Ok(fleet) => fleet.into(),
        Err(other) => other,
    }
}
