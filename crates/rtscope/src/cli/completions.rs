//! `rtscope completions`: the command line, for a shell that completes it.

use std::process::ExitCode;

use clap_complete::Shell;

use super::{help, print};
use crate::exit;

/// Print the completions for a shell
///
/// `rtscope completions bash` prints what bash reads from
/// /usr/share/bash-completion/completions/rtscope or, for one user, from
/// ~/.local/share/bash-completion/completions/rtscope. The Debian package brings those for bash, zsh
/// and fish.
///
/// Examples:
///   rtscope completions bash > ~/.local/share/bash-completion/completions/rtscope
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "rtscope", &mut text);
    print(&String::from_utf8(text)?)?;
    Ok(ExitCode::from(exit::PASS))
}
