//! `rtscope report`: verdict and page from a record alone.

use std::{path::PathBuf, process::ExitCode};

use rtscope_model::verdict::Requirement;

use super::{print, run::summary};
use crate::{
    exit,
    record::{self, Terms},
};

/// Judge a record again, and write its verdict and its page
///
/// The record may come from a run that was killed: what it holds up to then is judged, and the
/// verdict says that it is not complete.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The record's folder
    run: PathBuf,
    /// What must hold besides the plan's requirements; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Take responsibility for a finding; repeatable
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
    /// Print the verdict as one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let terms = Terms { require: args.require.clone(), accept: args.accept.clone() };
    let judged = record::open(&args.run, &terms)?;
    let page = judged.publish(&args.run)?;
    if args.json {
        print(&judged.json()?)?;
    } else {
        print(&summary(&judged))?;
        print(&format!("Report: {}\n", page.display()))?;
    }
    Ok(exit::of_record(&judged.judgement, true))
}
