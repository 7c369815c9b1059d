//! `rtscope environment`: what matters for latency on this machine.

use std::{fmt::Write, process::ExitCode};

use rtscope_model::environment::Environment;
use rtscope_sys::tree::Tree;

use super::print;
use crate::exit;

/// Show what matters for latency here: kernel, CPUs, permissions
///
/// It also shows the clock, the throttling of real-time threads, and what a run records of the machine.
///
/// Examples:
///   rtscope environment
///   rtscope environment --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Print JSON, as in a record's environment.before.json
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let found = rtscope_measure::environment::collect(&Tree::default());
    let text = if args.json { serde_json::to_string_pretty(&found)? + "\n" } else { show(&found) };
    print(&text)?;
    Ok(ExitCode::from(exit::PASS))
}

fn show(found: &Environment) -> String {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    let governors: std::collections::BTreeSet<_> =
        found.cpus.each.iter().filter_map(|cpu| cpu.governor.clone()).collect();
    let throttling = match (found.throttling.runtime_us, found.throttling.period_us) {
        (Some(-1), _) => "off".to_owned(),
        (Some(runtime), Some(period)) => format!("{runtime} us in {period} us"),
        _ => "unknown".to_owned(),
    };
    let rows = [
        ("kernel", format!("{} {}", found.kernel.release, found.kernel.version)),
        ("preemption", found.kernel.preemption.word().to_owned()),
        ("machine", or_unknown(found.machine_model.clone())),
        ("virtual", found.virtualisation.clone().unwrap_or_else(|| "no".to_owned())),
        (
            "CPUs",
            format!(
                "{} online, {} usable: {}",
                found.cpus.online, found.cpus.allowed, found.cpus.model
            ),
        ),
        ("isolated", or_none(found.cpus.isolated.to_string())),
        ("nohz_full", or_none(found.cpus.nohz_full.to_string())),
        ("governor", or_none(governors.into_iter().collect::<Vec<_>>().join(", "))),
        ("clock source", or_unknown(found.clock.current.clone())),
        ("throttling", throttling),
        ("RT threads", found.real_time_threads.len().to_string()),
        (
            "permission",
            if found.permission.real_time { "real-time" } else { "none for real-time" }.to_owned(),
        ),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:13} {value}");
    }
    if !found.permission.real_time {
        text.push_str("\nTo get real-time permission, do one of these:\n");
        for way in rtscope_measure::environment::permission_advice(&found.permission) {
            let _ = writeln!(text, "  - {way}");
        }
    }
    text
}
