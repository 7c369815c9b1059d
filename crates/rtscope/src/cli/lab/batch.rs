//! `rtscope lab-batch`: one task of an order, as an engine of `lab matrix` starts it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, bail};
use rtscope_lab::{
    cache::Cache,
    engine::{
        EngineTask, SubmittedBatches,
        batch::BatchRun,
        drive::kernel_line,
        journal::{CellStep, TaskJournal, TaskLine},
        order::WorkOrder,
    },
    error::LabError,
    kernel_ref::KernelRef,
    kernel_under_test::is_to_build,
    options::GuestOptions,
    source, spec, tool,
};
use serde_json::Value;

use super::guest_options::Lab;
use crate::exit;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Folder of the order
    out: PathBuf,
    /// Number of the list of tasks
    #[arg(long)]
    submission: usize,
    /// Place of the task in the list
    #[arg(long)]
    task: usize,
}

pub(in crate::cli) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let out = fs::canonicalize(&args.out)
        .with_context(|| format!("can't find {}", args.out.display()))?;
    let order = WorkOrder::read(&out)?;
    env::set_current_dir(&order.folder)
        .with_context(|| format!("can't change to the folder {}", order.folder.display()))?;
    let list = SubmittedBatches::read(&out, args.submission)?;
    let Some(task) = list.tasks.get(args.task).copied() else {
        bail!("list {} has no task {}", args.submission, args.task);
    };
    let journal = TaskJournal::open(&out, &format!("{}-{}", args.submission, args.task))?;
    let done = match task {
        EngineTask::Kernel(kernel) => prepare(&out, &order, kernel, journal)?,
        EngineTask::Batch(batch) => run(&out, &order, batch, journal)?,
    };
    Ok(ExitCode::from(if done { exit::PASS } else { exit::ERROR }))
}

/// The lab of an order: one guest at a time, because a task has the CPUs of one.
fn lab(out: &Path, order: &WorkOrder) -> anyhow::Result<Lab> {
    let options = GuestOptions { jobs: Some(1), ..order.options.clone() };
    let program = order.has_guest_program.then(|| WorkOrder::guest_program(out));
    Lab::open_with(options, program.as_deref(), Cache::at(&order.cache), false)
}

fn run(
    out: &Path,
    order: &WorkOrder,
    batch: usize,
    mut journal: TaskJournal,
) -> anyhow::Result<bool> {
    let Some(first) = order.batches.get(batch).and_then(|cells| cells.first()) else {
        bail!("the order has no batch {batch}");
    };
    let mut opened = match lab(out, order) {
        Ok(opened) => opened,
        Err(e) => {
            let line = TaskLine::of(&order.cells[*first].name, CellStep::NotRun);
            journal.add(&TaskLine { why: Some(format!("{e:#}")), ..line })?;
            return Err(e);
        }
    };
    let Lab { lab, console } = &mut opened;
    let ran = console.with(|host| BatchRun { order, out, lab, host, journal }.run(batch));
    Ok(ran?)
}

/// Fetches or builds a kernel, and takes note of its hash.
fn prepare(
    out: &Path,
    order: &WorkOrder,
    kernel: usize,
    mut journal: TaskJournal,
) -> anyhow::Result<bool> {
    let asked = KernelRef::parse(&order.kernels[kernel])?;
    let line = TaskLine::of(&kernel_line(asked.name()), CellStep::Ran);
    let prepared = prepared(out, order, &asked);
    let step = if prepared.is_ok() { CellStep::Ran } else { CellStep::NotRun };
    let why = prepared.as_ref().err().map(|e| format!("{e:#}"));
    journal.add(&TaskLine { step, why, ..line })?;
    prepared.map(|()| true)
}

fn prepared(out: &Path, order: &WorkOrder, asked: &KernelRef) -> anyhow::Result<()> {
    let lab = lab(out, order)?;
    let cache = lab.lab.cache();
    if WorkOrder::is_to_prepare(out, &order.specs, asked, cache) {
        match order.specs.get(asked.name()) {
            Some(spec) => {
                let key = build(order, &spec.display().to_string(), &["--lost-options-too"])?;
                WorkOrder::note_built(out, asked, &key)?;
                let spec = spec::find(&spec.display().to_string())?;
                lab.console.with(|host| source::discard(&spec, cache, &mut host.report()))?;
            }
            None if is_to_build(asked.name(), cache) => {
                build(order, asked.name(), &[])?;
            }
            None => {}
        }
    }
    let found = lab
        .console
        .with(|host| WorkOrder::find_kernel(out, asked, &lab.lab, &mut host.report()))?;
    Ok(WorkOrder::pin(out, asked, &found.sha256)?)
}

/// Builds a kernel with the program that runs this: its key.
fn build(order: &WorkOrder, name: &str, more: &[&str]) -> anyhow::Result<String> {
    let mut build = Command::new(env::current_exe()?);
    build.args(["kernel", "build", name, "--json", "--cache"]).arg(&order.cache).args(more);
    let said = match tool::output_aloud(&mut build) {
        Err(LabError::Program { status, .. }) => {
            bail!("`rtscope kernel build {name}` failed ({status})")
        }
        other => other?,
    };
    let manifest: Value = serde_json::from_str(&said)?;
    let key = manifest["key"].as_str().context("`rtscope kernel build` names no key")?;
    Ok(key.to_owned())
}
