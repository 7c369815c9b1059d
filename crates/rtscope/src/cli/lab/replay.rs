//! `rtscope lab replay`: the run of a record made again from its log, and its files compared byte by byte.

use std::{path::PathBuf, process::ExitCode};

use rtscope_lab::replay::{Replay, Replayed, Way};
use rtscope_measure::signals::Interrupt;

use super::guest_options;
use crate::{
    cli::{ending, print},
    exit,
    output::shown,
};

/// Repeat the run of a record, and compare every byte
///
/// The emulator replays the run from the log in the record's folder. This reproduces the record's files bit for
/// bit, however busy this machine is. rtscope distinguishes a file that was altered on disk from a replay that
/// differs. The cache must still contain the kernel and the image, and the emulator must have the same version.
/// If a record has no log (older rtscope, or several CPUs), rtscope compares it with a fresh run.
///
/// Exit code: 0 when all bytes are equal, 2 when not. rtscope then keeps the files that differ beside the record.
///
/// Examples:
///   rtscope lab replay rtscope-runs/lab-quick-20260101T000000/debian-rt-seed1
///   rtscope lab replay lab/debian-rt-seed1 --fresh
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The record's folder
    record: PathBuf,
    /// Run the same inputs again instead of replaying the log. If this run differs, it is as valid as the
    /// record
    #[arg(long)]
    fresh: bool,
    /// Folder of kernels and images [default: that of `lab cache list`]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let cache = guest_options::cache_at(args.cache.as_ref());
    let replay = Replay::open(&args.record, args.fresh, &cache)?;
    replay.why.iter().try_for_each(|why| print(&format!("{why}\n")))?;
    let interrupt = Interrupt::install()?;
    ending::of_programs(&interrupt);
    let stop = || interrupt.is_stopped();
    let replayed =
        replay.run(&cache, &guest_options::guard(), &stop, &mut |line| note!("{line}"))?;
    let not_compared: String =
        replay.not_compared()?.iter().map(|line| format!("{line}\n")).collect();
    match replayed {
        Replayed::Equal(files) => {
            let how = match replay.way {
                Way::Log => "the replay of its log",
                Way::Fresh => "a fresh run",
            };
            print(&format!(
                "equal: {files} files that the guest sent, every byte, in {how}\n{not_compared}"
            ))?;
            Ok(ExitCode::from(exit::PASS))
        }
        Replayed::Different(text, kept) => {
            print(&(text + &not_compared))?;
            print(&match replay.way {
                Way::Log => format!("The files of the replay are kept in {}\n", shown(&kept)),
                Way::Fresh => format!(
                    "The fresh run is kept as a record of its own, which has its own log: {}\n",
                    shown(&kept)
                ),
            })?;
            Ok(ExitCode::from(exit::FAIL))
        }
    }
}
