//! `rtscope tune`: lists system settings, changes them, shows which are changed, and restores them.

mod apply;
mod boot;
mod list;
mod restore;
pub(super) mod settings;
mod status;
mod suggest;
mod trial;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

pub(super) use self::trial::refuse_frames;
use crate::{failure::Refused, output::shown};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    List(list::Args),
    Suggest(suggest::Args),
    Apply(Box<apply::Args>),
    Status(status::Args),
    Restore(restore::Args),
    Try(Box<trial::Args>),
}

impl Verb {
    /// Whether it changes settings.
    pub(super) fn changes(&self) -> bool {
        match self {
            Verb::Apply(args) => !args.only_shows(),
            Verb::Try(args) => !args.only_shows(),
            Verb::List(_) | Verb::Suggest(_) | Verb::Status(_) | Verb::Restore(_) => false,
        }
    }
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List(args) => list::main(args),
        Verb::Suggest(args) => suggest::main(args),
        Verb::Apply(args) => apply::main(args),
        Verb::Status(args) => status::main(args),
        Verb::Restore(args) => restore::main(args),
        Verb::Try(args) => trial::main(args),
    }
}

/// The root of the system that is changed; a folder that isn't there is none.
fn root_of(root: Option<&Path>) -> anyhow::Result<PathBuf> {
    match root {
        None => Ok(PathBuf::from("/")),
        Some(folder) if folder.is_dir() => Ok(folder.to_owned()),
        Some(folder) => {
            let text =
                format!("--root {}: no such folder; name the root of a system", shown(folder));
            Err(Refused(text).into())
        }
    }
}
