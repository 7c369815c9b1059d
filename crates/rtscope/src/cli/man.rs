//! `rtscope man`: the command line as pages of the manual, for whoever packs the program.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::CommandFactory;

use super::Cli;
use crate::exit;

/// Writes the pages of the manual into a folder; run by `cargo xtask dist`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// An existing folder
    folder: PathBuf,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    clap_mangen::generate_to(Cli::command(), &args.folder)
        .with_context(|| format!("can't write the manual to {}", args.folder.display()))?;
    Ok(ExitCode::from(exit::PASS))
}
