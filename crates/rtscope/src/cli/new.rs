//! `rtscope new`: the skeleton of a real-time application, in a folder of its own.

use std::{fmt::Write, io, path::Path, process::ExitCode};

use super::{Refused, print};
use crate::{
    exit,
    skeletons::{self, Language},
};

/// Write the skeleton of a periodic real-time application
///
/// The folder contains sources, a build file and a README. The application locks its memory, touches its stack, asks
/// for its policy and priority, and sleeps until absolute times. It skips and counts overruns. It ends on SIGINT, SIGTERM
/// or after --cycles, and writes a histogram that rtscope import reads. The options are the same in every language.
///
/// Examples:
///   rtscope new motor --lang c
///   cd motor && make && sudo ./motor --period-us 500 --histogram motor.txt
///   rtscope import motor.txt
///   rtscope check --expect fifo:80 -- ./motor
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The application's name, and that of the new folder here
    name: String,
    /// Language
    #[arg(long, value_enum)]
    lang: Language,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let name = &args.name;
    if let Some(problem) = skeletons::problem_of(name) {
        return Err(Refused(format!("{name:?}: {problem}")).into());
    }
    let written = match skeletons::write(args.lang, name, Path::new(name)) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = format!("{name} is there already: choose another name, or move it away");
            return Err(Refused(text).into());
        }
        Err(error) => anyhow::bail!("can't write {name}: {error}"),
    };
    let mut text = format!("{name}: {}\n", written.join(", "));
    let (build, run) = args.lang.commands(name);
    let build = build.map_or(String::new(), |build| format!("{build} && "));
    let _ = writeln!(text, "Next: cd {name} && {build}sudo {run} --cycles 5000");
    print(&text)?;
    Ok(ExitCode::from(exit::PASS))
}
