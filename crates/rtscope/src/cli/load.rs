//! `rtscope load`: one load by itself.

use std::{fmt::Write as _, process::ExitCode};

use rtscope_measure::load::{COMMON_OPTIONS, LOADS, Launcher, LoadOption, Rate, check, run_alone};
use rtscope_model::{load::LoadLine, time::Nanos};
use rtscope_sys::sched;

use super::{Refused, print};
use crate::{exit, output::print_folded};

/// Run one load by itself and print the rate that it achieves
///
/// The arguments after the name are the load's options, as in a plan. `rtscope load list` shows the
/// loads and their options.
///
/// Examples:
///   rtscope load message groups=2 --duration 5s
///   rtscope load cpu percent=50 cpus=1
///   rtscope load external -- make -j4
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The load's name, or list
    name: String,
    /// Its options as key=value; after -- a command (external)
    words: Vec<String>,
    /// Run for this long
    #[arg(short, long, value_name = "TIME", default_value = "10s", allow_hyphen_values = true)]
    duration: Nanos,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
    /// The command of `external`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if args.name == "list" {
        match args.json {
            true => print(&(serde_json::to_string_pretty(&listed())? + "\n"))?,
            false => print_folded(&list())?,
        }
        return Ok(ExitCode::from(exit::PASS));
    }
    if args.duration == Nanos::ZERO {
        return Err(Refused("--duration must be more than 0".to_owned()).into());
    }
    let line = line(args)?;
    check(&line).map_err(|problem| Refused(problem.to_string()))?;
    let all = sched::affinity(sched::SELF)?;
    // Nothing is measured, so "measured" and "all" are the same CPUs.
    let launcher = Launcher::new(all.clone(), all);
    let mut on_rate = |rate: Rate| {
        if !args.json {
            let _ = print(&format!("{:>12.0} {}/s\n", rate.per_second(), rate.unit));
        }
    };
    let (ended, whole) = run_alone(&launcher, &line, args.duration, &mut on_rate)?;
    if args.json {
        let document = serde_json::json!({
            "load": line.to_string(), "work": whole.work, "unit": whole.unit,
            "span_ns": whole.span_ns, "per_second": whole.per_second(),
            "ok": ended.ok, "ended": ended.how,
        });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        let span = Nanos(whole.span_ns);
        let (work, unit, rate) = (whole.work, whole.unit, whole.per_second());
        print(&format!("{work} {unit} in {span}: {rate:.0} {unit}/s; {}\n", ended.how))?;
    }
    Ok(ExitCode::from(if ended.ok { exit::PASS } else { exit::ERROR }))
}

/// The load's line, as a plan would have it.
fn line(args: &Args) -> anyhow::Result<LoadLine> {
    let mut text =
        std::iter::once(&args.name).chain(&args.words).cloned().collect::<Vec<_>>().join(" ");
    if !args.command.is_empty() {
        text.push_str(" -- ");
        text.push_str(&args.command.join(" "));
    }
    Ok(text.parse().map_err(Refused)?)
}

fn listed() -> serde_json::Value {
    serde_json::json!({ "loads": LOADS, "options": COMMON_OPTIONS })
}

fn list() -> String {
    let mut text = String::new();
    let option = |text: &mut String, option: &LoadOption| {
        let default = match option.default {
            "" => String::new(),
            default => format!(" [{default}]"),
        };
        let _ = writeln!(text, "    {:12} {}{default}", option.name, option.about);
    };
    for load in LOADS {
        let _ = writeln!(text, "{:12} {}", load.name, load.about);
        load.options.iter().for_each(|o| option(&mut text, o));
    }
    text.push_str("\nEvery load:\n");
    COMMON_OPTIONS.iter().for_each(|o| option(&mut text, o));
    text
}
