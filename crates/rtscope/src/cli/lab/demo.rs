//! `rtscope lab demo`: stock against real-time, nothing built.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use rtscope_lab::{options::GuestOptions, record_folders::safe};

use super::{
    collect,
    guest_options::{Lab, cache_at},
    output,
};
use crate::plans;

const KERNELS: [&str; 2] = ["debian-stock", "debian-rt"];

const PLAN: &str = "lab-quick";

/// Compare a real-time kernel with a stock one, in minutes
///
/// rtscope fetches Debian's stock and real-time kernels (once, 140 MB) and boots both in virtual time. Each runs
/// idle and under two loads. rtscope builds no kernel. It prints the path of the page that compares them, and opens
/// the page if there is a graphical desktop.
///
/// Examples:
///   rtscope lab demo
///   rtscope lab demo --out demo --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Folder for the records and the page [default: rtscope-runs/lab-demo-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run the guests even if the cache has their records
    #[arg(long)]
    fresh: bool,
    /// Folder of kernels, images and records [default: that of `lab cache list`]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = plans::load(PLAN)?;
    let guests = GuestOptions { fresh: args.fresh, ..GuestOptions::default() };
    let mut lab = Lab::open_with(guests, None, cache_at(args.cache.as_ref()), false)?;
    let out = output::place(args.out.as_ref(), "demo")?;
    let mut runs = Vec::new();
    for kernel in lab.kernels(&KERNELS.map(str::to_owned))? {
        let folder = out.join(safe(&kernel.label));
        runs.push(lab.plan_run(&kernel, &plan, 1, folder)?);
    }
    let outcomes = lab.run_into(&out, &runs)?;
    let all = collect::records(&plan, lab.timing(), &runs, outcomes)?;
    let code = collect::publish(&all, &out, args.json)?;
    if !args.json && has_display(|name| std::env::var_os(name)) {
        open(&out.join("index.html"));
    }
    Ok(code)
}

/// Whether somebody sits before a screen that a page can be opened on.
fn has_display(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| variable(name).is_some_and(|v| !v.is_empty()))
}

/// Opens a page with the desktop's own program. Its path has been said, so a desktop that can't is no
/// failure.
fn open(page: &Path) {
    let opened = Command::new("xdg-open")
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    drop(opened);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_opened_only_where_there_is_a_screen() {
        let with = |set: &str, value: &str| {
            has_display(|name| (name == set).then(|| OsString::from(value)))
        };
        assert!(with("DISPLAY", ":0") && with("WAYLAND_DISPLAY", "wayland-0"));
        assert!(!with("DISPLAY", "") && !with("TERM", "xterm"));
    }
}
