//! `rtscope tune`: changes system settings, shows which are changed, and restores them.

pub(super) mod settings;
mod trial;

use std::process::ExitCode;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    Try(Box<trial::Args>),
}

impl Verb {
    /// Whether it changes settings.
    pub(super) fn changes(&self) -> bool {
        matches!(self, Verb::Try(args) if !args.only_shows())
    }
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Try(args) => trial::main(args),
    }
}
