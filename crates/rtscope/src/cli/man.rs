//! `rtscope man`: the command line as pages of the manual, for whoever packs the program.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;

use super::help;
use crate::exit;

/// Writes the pages of the manual into a folder; run by `cargo xtask dist`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// An existing folder
    folder: PathBuf,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let mut command = help::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &args.folder)
        .with_context(|| format!("can't write the manual to {}", args.folder.display()))?;
    Ok(ExitCode::from(exit::PASS))
}

/// The page of a command and those of its subcommands.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    fs::write(folder.join(man.get_filename()), page(command, &man)?)?;
    command.get_subcommands().try_for_each(|below| write_pages(below, folder))
}

/// As `Man::render`, which would run the lines of the examples into one another.
fn page(command: &Command, man: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(examples) = help::examples(command) {
        write!(page, ".SH EXAMPLES\n.nf\n{}.fi\n", as_roff(&examples))?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// Lines as roff prints them unchanged.
fn as_roff(text: &str) -> String {
    let escaped = |line: &str| line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    text.lines().map(|line| format!("\\&{}\n", escaped(line))).collect()
}
