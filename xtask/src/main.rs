//! The project's own chores: `cargo xtask test`, `tidy`, `icount`, `bench`, `fuzz`, `mutants`, `coverage`, `soak`,
//! `lab-repeat`, `documents`, `book`, `gallery`, `notices`, `packaging`, `formats` and `dist`.

#![forbid(unsafe_code)]

mod advisories;
mod bench;
mod book;
mod busy;
mod coverage;
mod dist;
mod documents;
mod formats;
mod fuzz;
mod gallery;
mod icount;
mod lab_repeat;
mod mutants;
mod notices;
mod packages;
mod packaging;
mod room;
mod shell;
mod soak;
mod test;
mod tidy;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// A chore: its name, its line in the usage, and what it does with the words that follow. It
/// answers whether all is well.
struct Chore {
    name: &'static str,
    about: &'static str,
    run: fn(&[&str]) -> Result<bool>,
}

const CHORES: &[Chore] = &[
    Chore {
        name: "test",
        about: "set up what is missing, then run every check and the tests [--long: also those that boot guests for minutes] \
                [--busy N: beside N busy processes]",
        run: test::run,
    },
    Chore {
        name: "tidy",
        about: "check the rules of the code, the dependencies and the documents",
        run: |words| no_words(words).and_then(|()| tidy::run()),
    },
    Chore {
        name: "advisories",
        about: "look up our dependencies in the RustSec database, where this machine has a copy",
        run: |words| no_words(words).and_then(|()| advisories::run()),
    },
    Chore {
        name: "icount",
        about: "count the instructions of one tick of the sampler's loop (valgrind)",
        run: |words| no_words(words).and_then(|()| icount::run()),
    },
    Chore {
        name: "bench",
        about: "measure side by side with cyclictest and hackbench [--quick] [--json FILE], or with another version \
                of rtscope [--against last|COMMIT|PROGRAM]",
        run: bench::run,
    },
    Chore {
        name: "fuzz",
        about: "run fuzz targets for a while, 5 minutes in all [--minutes N] [TARGET]...",
        run: fuzz::run,
    },
    Chore {
        name: "mutants",
        about: "change the statistics and the verdict, and count the changes that no test notices [--shard K/N] \
                [--list]",
        run: mutants::run,
    },
    Chore {
        name: "coverage",
        about: "count the lines of each crate that the unit tests reach [--program] [CRATE]...",
        run: coverage::run,
    },
    Chore {
        name: "lab-repeat",
        about: "count how often runs of the lab with the same inputs are equal, and replays of them [--runs N] \
                [--load N,...] [--at-once N]",
        run: lab_repeat::run,
    },
    Chore {
        name: "soak",
        about: "kill, stop and starve rtscope at random moments, and check what it leaves [--for 30m] [--seed N] \
                [--round N] [--only FAULT,...] [--mild] [--program FILE]",
        run: soak::run,
    },
    Chore {
        name: "documents",
        about: "run what five public documents do, and write docs/documents.md [--list] [--only WORD] \
                [--program FILE]",
        run: documents::run,
    },
    Chore {
        name: "book",
        about: "make the documents a book in target/book, and check its links [--renew]",
        run: book::run,
    },
    Chore {
        name: "gallery",
        about: "make the pages of docs/gallery anew [--only NAME] [--program FILE]",
        run: gallery::run,
    },
    Chore {
        name: "notices",
        about: "print the licences that whoever passes the binary on has to pass on with it",
        run: |words| no_words(words).and_then(|()| notices::run()),
    },
    Chore {
        name: "packaging",
        about: "write the recipes of other build systems in packaging/ [--check] [--archive FILE]",
        run: packaging::run,
    },
    Chore {
        name: "formats",
        about: "write docs/format/json.md, the keys of the JSON documents [--check]",
        run: formats::run,
    },
    Chore {
        name: "dist",
        about: "build and try what is released [--target NAME]... [--profile NAME] [--no-guests]",
        run: dist::run,
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((chore, rest)) = words.split_first().and_then(|(name, rest)| {
        CHORES.iter().find(|chore| chore.name == *name).map(|chore| (chore, rest))
    }) else {
        eprint!("{}", usage());
        return ExitCode::from(64);
    };
    match (chore.run)(rest) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let lines: String =
        CHORES.iter().map(|chore| format!("  {:<11}{}\n", chore.name, chore.about)).collect();
    format!("cargo xtask CHORE\n\n{lines}")
}

fn no_words(words: &[&str]) -> Result<()> {
    if let Some(word) = words.first() {
        bail!("{word:?} is not expected here");
    }
    Ok(())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Whether the checkout has changes that no commit has.
fn has_changes() -> Result<bool> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["status", "--porcelain", "--untracked-files=no"]);
    Ok(!shell::output(&mut git, Duration::from_secs(60))?.trim().is_empty())
}

/// Cargo's metadata of the workspace and of everything that it builds for this machine.
fn metadata() -> Result<cargo_metadata::Metadata> {
    let mut command = cargo_metadata::MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml"));
    command.other_options(["--filter-platform".to_owned(), "host-tuple".to_owned()]);
    Ok(command.exec()?)
}

/// Where tools and packages of this user are kept, beside all checkouts.
fn tools() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || set("HOME").map(|home| home.join(".cache"));
    let cache = set("XDG_CACHE_HOME").or_else(home).context("neither XDG_CACHE_HOME nor HOME")?;
    Ok(cache.join("rtscope/tools"))
}

/// A folder of xtask's own below cargo's target folder, made when it is missing.
fn scratch() -> Result<&'static Path> {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    if let Some(folder) = SCRATCH.get() {
        return Ok(folder);
    }
    let folder = metadata()?.target_directory.into_std_path_buf().join("xtask");
    std::fs::create_dir_all(&folder)?;
    Ok(SCRATCH.get_or_init(|| folder))
}
