//! Guests as an order of batches: made, given to an engine, and collected.

use std::{
    collections::BTreeMap,
    env, fs, mem,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use rtscope_analyse::report::lab::collect::Collected;
use rtscope_lab::{
    boot::Ending,
    engine::{
        Engine, ORDER,
        batch::why_failed,
        drive::{DriveEnd, OrderDrive, why_missing},
        local::LocalEngine,
        order::{CellState, MatrixRequest, WorkOrder},
        slurm::Slurm,
        unique,
    },
    error::LabError,
    guest_run::{GuestOutcome, GuestRun},
    inputs::read_inputs,
    kernel_ref::{self, KernelRef},
    kernel_under_test::KernelUnderTest,
    lab::Outcomes,
    queue::QueuedRun,
    recheck,
};
use rtscope_model::plan::Plan;

use super::{
    collect,
    guest_options::{Lab, guard},
    matrix::EngineKind,
};

/// What is asked of the order.
pub(super) struct Matrix<'a> {
    /// What each kernel runs, each in a guest of its own.
    pub(super) plans: Vec<Plan>,
    pub(super) kernels: Vec<KernelRef>,
    /// Files of specs by the kernels' names, for kernels that are built and that nothing else knows.
    pub(super) specs: BTreeMap<String, PathBuf>,
    pub(super) seeds: u64,
    /// Another program for the guests than this one.
    pub(super) program: Option<&'a Path>,
    pub(super) engine: EngineKind,
    /// How long a batch takes, about.
    pub(super) batch: Duration,
}

/// The runs of the kernels that are there, by kernel and plan; those of other seeds are the same but for the seed.
type Planned = Vec<Option<Vec<GuestRun>>>;

/// What a guest takes, where nothing is known of its kernel.
const GUESS: Duration = Duration::from_secs(20);

/// What came of an order.
pub(super) struct Performed {
    /// The cells of the kernels that are there, and what became of each.
    pub(super) runs: Vec<QueuedRun>,
    pub(super) outcomes: Outcomes,
    /// The kernels that aren't there, as they were asked for, with the reason where it is known.
    pub(super) absent: Vec<(KernelRef, Option<String>)>,
    /// Whether the user went away before the end.
    pub(super) left: bool,
}

impl Performed {
    /// Takes out the cells of a kernel.
    pub(super) fn take(&mut self, kernel: &KernelRef) -> (Vec<QueuedRun>, Outcomes) {
        let all = mem::take(&mut self.runs).into_iter().zip(mem::take(&mut self.outcomes));
        let is_of_it = |(queued, _): &(QueuedRun, _)| queued.run.kernel.label == kernel.label();
        let (of_it, others): (Vec<_>, Vec<_>) = all.partition(is_of_it);
        (self.runs, self.outcomes) = others.into_iter().unzip();
        of_it.into_iter().unzip()
    }
}

/// Has an engine run a matrix, and takes in what there is.
pub(super) fn collected(
    lab: &mut Lab,
    out: &Path,
    plan: &Plan,
    matrix: &Matrix<'_>,
) -> anyhow::Result<Collected> {
    let Performed { runs, outcomes, absent, .. } = performed(lab, out, matrix)?;
    let mut all = collect::records(plan, lab.timing(), &runs, outcomes)?;
    all.page.warnings.extend(absent.into_iter().map(|(kernel, why)| {
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        format!("{kernel} isn't ready yet, and none of its cells has run{why}")
    }));
    Ok(all)
}

/// Makes the order or goes on with it, has an engine run what is missing, and says what became of each cell.
pub(super) fn performed(
    lab: &mut Lab,
    out: &Path,
    matrix: &Matrix<'_>,
) -> anyhow::Result<Performed> {
    let out = &std::path::absolute(out)?;
    kernel_ref::check_labels(&matrix.kernels)?;
    let mut planned: Planned = vec![None; matrix.kernels.len()];
    plan_kernels(lab, out, matrix, &mut planned)?;
    let order = ordered(lab, out, matrix, &planned)?;
    for (kernel, runs) in matrix.kernels.iter().zip(&planned) {
        if let Some(run) = runs.as_ref().and_then(|runs| runs.first()) {
            WorkOrder::pin(out, kernel, &run.kernel.sha256)?;
        }
    }
    let end = drive(lab, out, matrix, &order, &planned)?;
    let left = matches!(end, DriveEnd::Left(_));
    if let DriveEnd::Left(Some(what)) = &end {
        note!("{what}");
    }
    let planned_again = plan_kernels(lab, out, matrix, &mut planned);
    // After an interruption no tool runs any more.
    if !left {
        planned_again?;
    }
    let why = why_missing(out, &order);
    let (runs, outcomes) = outcomes(lab, out, &order, &planned, left, &why);
    let absent = matrix.kernels.iter().zip(&planned).enumerate();
    let absent = absent.filter(|(_, (_, runs))| runs.is_none()).map(|(at, (kernel, _))| {
        let cell = order.cells.iter().find(|cell| cell.kernel == at);
        (kernel.clone(), cell.and_then(|cell| why.get(&cell.name).cloned()))
    });
    Ok(Performed { runs, outcomes, absent: absent.collect(), left })
}

/// Makes the runs of kernels that are there and have none yet.
fn plan_kernels(
    lab: &mut Lab,
    out: &Path,
    matrix: &Matrix<'_>,
    planned: &mut Planned,
) -> anyhow::Result<()> {
    for (kernel, runs) in matrix.kernels.iter().zip(planned) {
        let cache = lab.lab.cache();
        if runs.is_some() || WorkOrder::is_to_prepare(out, &matrix.specs, kernel, cache) {
            continue;
        }
        let found = lab
            .console
            .with(|host| WorkOrder::find_kernel(out, kernel, &lab.lab, &mut host.report()))?;
        *runs = Some(runs_of(lab, &found, &matrix.plans)?);
    }
    Ok(())
}

fn runs_of(
    lab: &mut Lab,
    kernel: &KernelUnderTest,
    plans: &[Plan],
) -> anyhow::Result<Vec<GuestRun>> {
    let run = |plan: &Plan| Ok(lab.plan_run(kernel, plan, 1, PathBuf::new())?.run);
    plans.iter().map(run).collect()
}

/// The order in the folder, with the program that runs its tasks.
fn ordered(
    lab: &Lab,
    out: &Path,
    matrix: &Matrix<'_>,
    planned: &Planned,
) -> anyhow::Result<WorkOrder> {
    let request = MatrixRequest {
        kernels: matrix.kernels.clone(),
        plans: matrix.plans.clone(),
        seeds: matrix.seeds,
        options: lab.lab.options().clone(),
        cache: lab.lab.cache().root().to_owned(),
        program_sha256: lab.lab.program_sha256(),
        has_guest_program: matrix.program.is_some(),
        specs: matrix.specs.clone(),
    };
    let mut order = WorkOrder::new(&request)?;
    let costs: Vec<Option<Vec<Duration>>> = planned
        .iter()
        .map(|runs| runs.as_ref().map(|runs| runs.iter().map(|run| lab.lab.cost(run)).collect()))
        .collect();
    let cost = |kernel: usize, plan: usize| costs[kernel].as_ref().map_or(GUESS, |all| all[plan]);
    let total: Duration = order.cells.iter().map(|cell| cost(cell.kernel, cell.plan)).sum();
    let jobs = u32::try_from(lab.lab.jobs()).unwrap_or(1).max(1);
    let target = match matrix.engine {
        // A single long batch would leave CPUs idle.
        EngineKind::Local => matrix.batch.min(total / jobs),
        EngineKind::Slurm => matrix.batch,
    };
    order.split(target, cost);
    fs::create_dir_all(out).with_context(|| format!("can't make {}", out.display()))?;
    let order = order.keep(out)?;
    keep_program(&env::current_exe()?, &WorkOrder::program(out))?;
    if let Some(program) = matrix.program {
        keep_program(program, &WorkOrder::guest_program(out))?;
    }
    // What brought nothing is tried again by each command.
    let _ = fs::remove_dir_all(WorkOrder::failed(out, ""));
    let plural = |n: usize, one: &str, many: &str| {
        if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
    };
    note!(
        "{} in {}; {} there already",
        plural(order.cells.len(), "cell", "cells"),
        plural(order.batches.len(), "batch", "batches"),
        plural(order.survey(out).count(CellState::Whole), "record is", "records are")
    );
    Ok(order)
}

/// Copies a program into the order in one step, unless it is there.
fn keep_program(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        return Ok(());
    }
    let parent = to.parent().unwrap_or(to);
    let part = parent.join(format!("part-{}", unique()));
    fs::create_dir_all(parent)
        .and_then(|()| fs::copy(from, &part))
        .and_then(|_| fs::rename(&part, to))
        .with_context(|| format!("can't copy {} to {}", from.display(), to.display()))
}

fn drive(
    lab: &Lab,
    out: &Path,
    matrix: &Matrix<'_>,
    order: &WorkOrder,
    planned: &Planned,
) -> anyhow::Result<DriveEnd> {
    let options = lab.lab.options();
    // In virtual time several CPUs of a guest take turns on one.
    let cpus = if lab.timing().is_virtual() { 1 } else { options.spec.cpus };
    let mut engine: Box<dyn Engine> = match matrix.engine {
        EngineKind::Local => {
            Box::new(LocalEngine::new(out.to_owned(), order, lab.lab.jobs(), guard()))
        }
        EngineKind::Slurm => Box::new(Slurm::new(out.to_owned(), order, cpus, options.jobs)?),
    };
    let same = |kernel: &KernelRef| matrix.kernels.iter().position(|it| it.name() == kernel.name());
    let by = |(kernel, runs): (&KernelRef, &Option<Vec<GuestRun>>)| match runs {
        Some(_) => None,
        None => same(kernel),
    };
    let prepared_by = matrix.kernels.iter().zip(planned).map(by).collect();
    Ok(lab.console.with(|host| {
        let mut drive = OrderDrive { order, out, engine: engine.as_mut(), host, prepared_by, cpus };
        drive.run()
    })?)
}

/// What became of each cell of the kernels that are there.
fn outcomes(
    lab: &Lab,
    out: &Path,
    order: &WorkOrder,
    planned: &Planned,
    left: bool,
    why: &BTreeMap<String, String>,
) -> (Vec<QueuedRun>, Outcomes) {
    let survey = order.survey(out);
    let mut pairs: Vec<(QueuedRun, Result<GuestOutcome, LabError>)> = Vec::new();
    for (cell, state) in order.cells.iter().zip(survey.cells) {
        let Some(runs) = &planned[cell.kernel] else { continue };
        let run = runs[cell.plan].with_seed(cell.seed);
        let queued = QueuedRun { run, folder: out.join(&cell.name) };
        let outcome = match state {
            CellState::Whole => whole(lab, &queued),
            CellState::Failed => Err(LabError::NoRecord(why_failed(out, &cell.name))),
            CellState::Missing if left => Err(LabError::NotReached),
            CellState::Missing => Err(LabError::NoRecord(match why.get(&cell.name) {
                Some(why) => why.clone(),
                None => {
                    format!("no task ran it; the tasks' output is in {}", out.join(ORDER).display())
                }
            })),
        };
        pairs.push((queued, outcome));
    }
    pairs.into_iter().unzip()
}

/// The record in a cell's place, when it is the one that was ordered and nobody altered it.
fn whole(lab: &Lab, queued: &QueuedRun) -> Result<GuestOutcome, LabError> {
    let inputs = read_inputs(&queued.folder)?;
    recheck::check(&queued.folder, &inputs)?;
    if inputs.key != lab.lab.key(queued) {
        let text = "it was made with a different emulator, kernel or image than this machine uses";
        return Err(LabError::NoRecord(format!("{}: {text}", queued.folder.display())));
    }
    Ok(GuestOutcome { folder: queued.folder.clone(), ending: Ending::Sent, took: None, inputs })
}
