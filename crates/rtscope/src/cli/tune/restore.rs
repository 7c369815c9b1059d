//! `rtscope tune restore`: settings that are kept or were left go back.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_measure::tune;
use rtscope_sys::tree::Tree;

use super::{apply, boot, root_of};
use crate::{cli::print, exit, failure::Refused, leftovers, output::shown};

/// Restore settings that were kept, or that a killed process left
///
/// If somebody else has changed a setting since, rtscope leaves it alone and prints the original value. It doesn't
/// touch settings that a running process holds: that process restores them. `rtscope restore` restores only what killed
/// processes left.
///
/// With --persist it removes the files of `tune apply --persist` instead, with --boot the boot entry of
/// `tune apply --boot`.
///
/// Examples:
///   sudo rtscope tune restore
///   sudo rtscope tune restore --persist --boot
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Remove the files that apply settings at each boot
    #[arg(long)]
    persist: bool,
    /// Remove the boot entry with parameters, and make the old one the default
    #[arg(long)]
    boot: bool,
    /// Remove the files of --persist and --boot below DIR, for example on a mounted SD card
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Remove the files of --persist even if they were edited
    #[arg(long, requires = "persist")]
    force: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if args.persist || args.boot {
        return permanent(args, &root_of(args.root.as_deref())?);
    }
    if args.root.is_some() {
        let text = "--root: only files can be restored there: add --persist or --boot";
        return Err(Refused(text.to_owned()).into());
    }
    let journal = tune::journal_dir();
    let kept = leftovers::said(&tune::restore_kept(&Tree::default(), &journal));
    let left = leftovers::restore();
    let whole = leftovers::no_damaged_journal()?;
    let (found, sound) = (kept.0 + left.0, kept.1 && left.1 && whole);
    for holder in tune::holders(&journal) {
        print(&format!("{holder}\n"))?;
    }
    print(match (found, sound) {
        (0, true) => "no setting to restore: none was kept or left changed\n",
        (_, true) => "every setting that was kept or left changed is restored\n",
        (_, false) => "some settings may not be as they were: see above\n",
    })?;
    Ok(ExitCode::from(if sound { exit::PASS } else { exit::ERROR }))
}

/// Removes what is there for the next boots.
fn permanent(args: &Args, root: &Path) -> anyhow::Result<ExitCode> {
    if args.persist {
        match tune::remove_persisted(root, args.force)? {
            None => print(&format!("no settings are permanent below {}\n", shown(root)))?,
            Some(removed) => {
                for path in &removed.files {
                    print(&format!("removed {}\n", shown(path)))?;
                }
                apply::reload(root);
            }
        }
    }
    if args.boot {
        print(&boot::remove(root)?)?;
    }
    Ok(ExitCode::from(exit::PASS))
}
