//! `rtscope lab stat`: counters of programs in kernels.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::report::{lab::figures, published::Whose, stat as report};
use rtscope_lab::lab::GuestVerbs;
use rtscope_model::time::Nanos;

use super::{
    typed::Typed,
    verb::{self, Guests, Measured, Verb},
};
use crate::cli::{
    published::Choice,
    stat::{self, Counting},
};

/// Count a program's CPU time and page faults in kernels
///
/// Each kernel boots in an emulator and runs `rtscope stat`: the branch workload, or programs of yours. A guest has no
/// shared libraries, so a program must be static. It must take all its input from its arguments. The
/// emulator's processor can't count cycles, instructions and branches. They are
/// "not supported".
///
/// Examples:
///   rtscope lab stat --kernel debian-stock --kernel debian-rt --compare
///   rtscope lab stat -k debian-stock -k debian-rt --compare --published course-lab
///   rtscope lab stat -k debian-rt --workload sorted --passes 500 --repeat 5
///   rtscope lab stat -k debian-stock -k debian-rt -- ./my-program --fast
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    guests: Guests,
    #[command(flatten)]
    counting: Typed<Counting>,
    #[command(flatten)]
    published: Choice,
}

/// What virtual time can't say.
const LIMITS: &[&str] = &[
    "Every instruction takes the same time: no caches, and no branch is mispredicted. So the loop over sorted data is \
     no faster here, and sorting takes additional time. `rtscope stat --simulate` counts what a processor would \
     mispredict.",
    "CPU time counts the instructions of the program and of the kernel on its behalf. --wall uses this \
     computer's clock instead.",
];

/// About how long programs run of which nothing is known.
const LENGTH: Nanos = Nanos::from_secs(5);

/// Folder of programs in a guest.
const PROGRAMS: &str = "programs";

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let published = args.published.entries("none")?;
    let counting = &args.counting.options;
    let mut words = args.counting.words.clone();
    let mut needs = GuestVerbs::default();
    let commands = counting.commands()?;
    if !commands.is_empty() {
        words.truncate(words.iter().position(|word| word == "--").unwrap_or(words.len()));
    }
    for (n, command) in commands.into_iter().enumerate() {
        let (program, arguments) = command.split_first().expect("no command is empty");
        let path = PathBuf::from(program);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let in_guest = format!("{PROGRAMS}/{n}/{name}");
        words.extend(["--".to_owned(), format!("/{in_guest}")]);
        words.extend_from_slice(arguments);
        needs.files.push(verb::program_file(&path, in_guest)?);
    }
    let read = |guest: &Path, whose: Whose<'_>| {
        let record = stat::read(&guest.join("stat"))?;
        Ok(Measured {
            figures: figures::of_stat(&record),
            ours: report::ours(&record, whose),
            document: report::document(&record, &[]),
            page: Some(report::page(&record, &[])),
            code: stat::code(&record),
        })
    };
    let verb = Verb {
        name: "stat",
        words: &words,
        out: verb::out("stat"),
        length: Nanos(LENGTH.0.saturating_mul(counting.runs())),
        needs,
        limits: LIMITS,
        published,
        read: &read,
    };
    verb::main(&args.guests, verb)
}
