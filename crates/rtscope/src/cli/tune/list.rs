//! `rtscope tune list`: the settings that can be changed.

use std::{fmt::Write as _, process::ExitCode};

use rtscope_measure::tune::SETTINGS;
use serde_json::{Value, json};

use crate::{cli::print, exit, output::print_folded};

/// List the settings that rtscope can change, with their values
///
/// Plans, `run --set`, `tune apply` and `tune try` take them as NAME=VALUE. A setting may be missing on this machine:
/// `tune apply --dry-run NAME=VALUE` says so, and shows the present value.
///
/// Examples:
///   rtscope tune list
///   rtscope tune list --json | jq -r '.settings[].name'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match args.json {
        true => print(&(serde_json::to_string_pretty(&document())? + "\n"))?,
        false => print_folded(&text())?,
    }
    Ok(ExitCode::from(exit::PASS))
}

fn document() -> Value {
    json!({ "settings": SETTINGS })
}

fn text() -> String {
    SETTINGS.iter().fold(String::new(), |mut text, setting| {
        let _ = writeln!(text, "{}", setting.name);
        let _ = writeln!(text, "    {}", setting.about);
        let _ = writeln!(text, "    values: {}", setting.values);
        text
    })
}
