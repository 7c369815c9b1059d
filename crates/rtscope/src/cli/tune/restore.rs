//! `rtscope tune restore`: settings that are kept or were left go back.

use std::process::ExitCode;

use rtscope_measure::tune;
use rtscope_sys::tree::Tree;

use crate::{cli::print, exit, leftovers};

/// Restore settings that were kept, or that a killed process left
///
/// A setting that somebody else has changed since is left alone, and named with the value that it had. Settings that a
/// running process holds are its own to restore. `rtscope restore` restores only what killed processes left.
///
/// Examples:
///   sudo rtscope tune restore
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {}

pub(super) fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    let journal = tune::journal_dir();
    let kept = leftovers::said(tune::restore_kept(&Tree::default(), &journal));
    let left = leftovers::restore();
    let (found, sound) = (kept.0 + left.0, kept.1 && left.1);
    for holder in tune::holders(&journal) {
        print(&format!("{holder}\n"))?;
    }
    print(match (found, sound) {
        (0, true) => "no setting is kept or left changed\n",
        (_, true) => "every setting that was kept or left is as it was\n",
        (_, false) => "not every setting is as it was: see above\n",
    })?;
    Ok(ExitCode::from(if sound { exit::PASS } else { exit::ERROR }))
}
