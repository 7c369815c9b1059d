//! `rtscope plan`: list, show and check plans.

use std::process::ExitCode;

use clap::Subcommand;
use rtscope_sys::tree::Tree;

use super::print;
use crate::{exit, output::print_folded, plans};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the shipped plans
    ///
    /// Examples:
    ///   rtscope plan list
    ///   rtscope plan list --json
    #[command(verbatim_doc_comment)]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print a plan's text, to save it to a file and change it
    ///
    /// Examples:
    ///   rtscope plan show quick > my-plan.toml
    ///   rtscope plan show policies --resolved
    #[command(verbatim_doc_comment)]
    Show {
        /// A shipped plan's name, or a file; - is standard input
        plan: String,
        /// Fill in every default and multiply out every matrix
        #[arg(long)]
        resolved: bool,
    },
    /// Check a plan without running it
    ///
    /// It also says what this machine lacks for the plan.
    ///
    /// Examples:
    ///   rtscope plan check my-plan.toml
    ///   rtscope plan show quick | rtscope plan check -
    #[command(verbatim_doc_comment)]
    Check {
        /// A shipped plan's name, or a file; - is standard input
        plan: String,
    },
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List { json } => list(*json)?,
        Verb::Show { plan, resolved: false } => print(&plans::text(plan)?.1)?,
        Verb::Show { plan, resolved: true } => print(&plans::load(plan)?.to_toml())?,
        Verb::Check { plan } => {
            let plan = plans::load(plan)?;
            let (sessions, phases) = (plan.sessions().len(), plan.phases.len());
            let expected = plan.expected();
            let s = |n: usize| if n == 1 { "" } else { "s" };
            print_folded(&format!(
                "{}: sound; {phases} phase{} in {sessions} session{}, {expected}\n",
                plan.name,
                s(phases),
                s(sessions)
            ))?;
            // It may be meant for another machine, or for a guest.
            if let Err(refused) = rtscope_measure::check_plan(&plan, &Tree::default()) {
                print_folded(&format!(
                    "note: 'rtscope run' would refuse this plan on this machine: {refused}\n"
                ))?;
            }
        }
    }
    Ok(ExitCode::from(exit::PASS))
}

fn list(json: bool) -> anyhow::Result<()> {
    let all: anyhow::Result<Vec<_>> = plans::SHIPPED.iter().map(|p| plans::load(p.name)).collect();
    let all = all?;
    if json {
        let rows = all.iter().map(|plan| {
            serde_json::json!({
                "name": plan.name, "title": plan.title, "phases": plan.phases.len(),
                "expected_ns": plan.expected().0,
            })
        });
        return print(&(serde_json::to_string_pretty(&rows.collect::<Vec<_>>())? + "\n"));
    }
    let width = all.iter().map(|plan| plan.name.len()).max().unwrap_or(0);
    for plan in &all {
        print_folded(&format!("{:width$}  {}\n", plan.name, plan.title))?;
    }
    print_folded(
        "\n`rtscope plan show NAME` prints one; `rtscope run NAME --scale 0.1` tries it quickly.\n",
    )
}
