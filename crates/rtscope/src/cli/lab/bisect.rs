//! `rtscope lab bisect`: which change broke a latency.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use rtscope_analyse::report::lab::bisect;
use rtscope_lab::{
    bisect::{
        Answer,
        guest_bench::GuestBench,
        search::{Bisection, CandidateKernel, Ends, JudgedCandidate, KernelBench},
    },
    engine::slurm::Slurm,
    error::LabError,
    kernel_ref::KernelRef,
    kernel_under_test::{ExpectedKernel, is_to_build},
    lab::{self, Outcomes},
    queue::QueuedRun,
    spec,
};
use rtscope_model::{guest::Timing, plan::Plan};

use super::{
    collect,
    guest_options::{self, Lab},
    matrix::EngineKind,
    output,
    work_order::{self, Matrix},
};
use crate::{
    cli::{Refused, print, shape},
    exit, plans, record,
};

/// How many replicas of each kernel, unless the user says otherwise.
const SEEDS: u64 = 5;

/// How long a batch of --engine takes, about.
const BATCH: Duration = Duration::from_secs(300);

/// Find the change that made a latency too long
///
/// Name a kernel that meets the requirement and one that doesn't. They may differ in parameters of the kernel command
/// line or in configuration options. They may also be the ends of a series of kernels, or two commits of a git tree.
/// The search runs the plan in as few kernels as it can, with 4 or more seeds in each. If it has to build a kernel,
/// it keeps the kernel. With --engine, it judges several kernels at a time, and the same command with the same --out
/// continues an interrupted search. Without a plan, the search runs `lab-quick`. The options of `rtscope run` that
/// change a plan also work here.
///
/// Examples:
///   rtscope lab bisect --good debian-stock:preempt=full \
///     --bad debian-stock:preempt=none:nohz=off --require 'max < 600us'
///   rtscope lab bisect --good tiny-6.12-rt \
///     --bad tiny-6.12-dynamic -r 'max < 100us'
///   rtscope lab bisect lab-matrix --cycles 500 --good debian-rt \
///     --through debian-cloud --bad debian-stock --require 'max < 100us'
///   rtscope lab bisect --good A --through B --through C --bad D -r 'max < 100us'
///   rtscope lab bisect --tree linux --spec my-kernel.toml \
///     --good v6.12 --bad v6.13 --require 'max < 100us' --engine slurm
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file [default: lab-quick]
    plan: Option<String>,
    /// Kernel that meets the requirement, as for `lab run`; with --tree a commit
    #[arg(long, value_name = "KERNEL")]
    good: String,
    /// Kernel that doesn't meet the requirement; with --tree a commit
    #[arg(long, value_name = "KERNEL")]
    bad: String,
    /// Kernel between the good and the bad one; repeatable, in the order from good to bad
    #[arg(long, value_name = "KERNEL", conflicts_with = "tree")]
    through: Vec<String>,
    /// Git tree of the kernel's source; rtscope doesn't change it
    #[arg(long, value_name = "DIR", requires = "spec")]
    tree: Option<PathBuf>,
    /// Configure and build the commits in this way: a kernel's name, or the file of a spec
    #[arg(long, value_name = "KERNEL", requires = "tree")]
    spec: Option<String>,
    /// Build and run the kernels in batches, which can be killed and continued: as processes of this machine (local),
    /// or as job arrays of Slurm (slurm)
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineKind>,
    /// Number of kernels to judge at a time [default: 1; with --engine slurm one for each node]
    #[arg(long, value_name = "N", requires = "engine", value_parser = clap::value_parser!(u16).range(1..=100))]
    ways: Option<u16>,
    #[command(flatten)]
    judging: guest_options::Judging,
    #[command(flatten)]
    options: guest_options::Options,
    #[command(flatten)]
    shape: shape::Shape,
}

pub(super) fn main(args: &Args) -> Result<ExitCode> {
    let plan = args.shape.guest_plan(args.plan.as_deref(), plans::DEFAULT_LAB)?;
    if plan.require.is_empty() {
        let text =
            "name a requirement that the bad kernel fails, for example --require 'max < 100us'";
        return Err(Refused(text.to_owned()).into());
    }
    let seeds = args.judging.seeds.unwrap_or(SEEDS);
    bisect::check_seeds(seeds).map_err(Refused)?;
    let search = Search { args, plan: &plan, seeds };
    let lab = Lab::open(&args.options)?;
    if args.tree.is_none() {
        let names = [&args.good].into_iter().chain(&args.through).chain([&args.bad]);
        for kernel in names.map(|name| KernelRef::parse(name)) {
            let (kernel, cache) = (kernel?, lab.lab.cache());
            if !is_to_build(kernel.name(), cache) {
                ExpectedKernel::look_up(&kernel, cache)?;
            }
        }
    }
    match args.engine {
        None => search.one_by_one(lab),
        Some(engine) => search.in_batches(lab, engine),
    }
}

/// Folder of the specs of kernels that a search builds.
const SPECS: &str = "kernels";

/// What the user asked for, read.
struct Search<'a> {
    args: &'a Args,
    plan: &'a Plan,
    seeds: u64,
}

impl Search<'_> {
    fn one_by_one(&self, lab: Lab) -> Result<ExitCode> {
        let Lab { lab, console } = lab;
        let out = output::empty(self.args.judging.out.as_ref(), "bisect")?;
        let timing = lab.timing();
        let mut judge = |runs: &[QueuedRun], outcomes: Outcomes| -> Result<Answer> {
            answer(self.plan, timing, runs, outcomes)
        };
        console.with(|host| {
            let (plan, seeds) = (self.plan, self.seeds);
            let mut bench = GuestBench::new(lab, host, plan, seeds, out.clone(), &mut judge);
            self.find(&mut bench, 1, &out)
        })
    }

    fn in_batches(&self, lab: Lab, engine: EngineKind) -> Result<ExitCode> {
        let asked = self.args.judging.out.as_ref();
        // A search is continued from its first round, whose order fits the same command only.
        let is_begun = |out: &&PathBuf| round(out, 1).exists() || out.join(SPECS).exists();
        let out = match asked.filter(is_begun) {
            Some(out) => out.clone(),
            None => output::empty(asked, "bisect")?,
        };
        let ways = match (self.args.ways, engine) {
            (Some(ways), _) => usize::from(ways),
            (None, EngineKind::Slurm) => Slurm::nodes()?,
            (None, EngineKind::Local) => 1,
        };
        let mut bench = BatchBench { search: self, lab, engine, out: out.clone(), rounds: 0 };
        self.find(&mut bench, ways, &out)
    }

    fn find(
        &self,
        bench: &mut dyn KernelBench<anyhow::Error>,
        ways: usize,
        out: &Path,
    ) -> Result<ExitCode> {
        let Search { args, plan, seeds } = *self;
        let ends = Ends {
            good: &args.good,
            bad: &args.bad,
            through: &args.through,
            tree: args.tree.as_deref().zip(args.spec.as_deref()),
        };
        let note = |text: &str| note!("{text}");
        let mut search = Bisection::new(bench, ways, &note, out);
        let found = search.find(&ends)?;
        let told = bisect::BisectionReport {
            plan: &plan.name,
            require: args.shape.require(),
            good: &args.good,
            bad: &args.bad,
            between: found.between,
            steps: serde_json::to_value(search.steps())?,
            found: &found.changes,
            vague: found.vague,
            seeds,
            kernels: search.kernels(),
        };
        publish(&told, &out.join("bisect.json"), args.judging.json)
    }
}

fn answer(plan: &Plan, timing: Timing, runs: &[QueuedRun], outcomes: Outcomes) -> Result<Answer> {
    Ok(match collect::records(plan, timing, runs, outcomes)?.is_met() {
        Ok(true) => Answer::Good,
        Ok(false) => Answer::Bad,
        Err(why) => Answer::Unknown(why),
    })
}

/// The order of a round of a search.
fn round(out: &Path, number: usize) -> PathBuf {
    out.join(format!("round-{number:02}"))
}

/// A bench that orders the kernels of a round from an engine.
struct BatchBench<'a> {
    search: &'a Search<'a>,
    lab: Lab,
    engine: EngineKind,
    out: PathBuf,
    rounds: usize,
}

impl KernelBench<anyhow::Error> for BatchBench<'_> {
    fn lab(&self) -> &lab::Lab {
        &self.lab.lab
    }

    fn judge(&mut self, candidates: &[CandidateKernel]) -> Result<Vec<JudgedCandidate>> {
        self.rounds += 1;
        let out = round(&self.out, self.rounds);
        let folder = std::path::absolute(self.out.join(SPECS))?;
        let mut specs = BTreeMap::new();
        for candidate in candidates {
            if let Some(spec) = &candidate.spec {
                specs.insert(spec.name.clone(), spec::write(spec, &folder)?);
            }
        }
        let Search { args, plan, seeds } = *self.search;
        let matrix = Matrix {
            plans: vec![plan.clone()],
            kernels: candidates.iter().map(|candidate| candidate.kernel.clone()).collect(),
            specs,
            seeds,
            program: args.options.program(),
            engine: self.engine,
            batch: BATCH,
        };
        let mut performed = work_order::performed(&mut self.lab, &out, &matrix)?;
        if performed.left {
            return Err(LabError::Interrupted.into());
        }
        let mut judged = Vec::new();
        for CandidateKernel { kernel, .. } in candidates {
            let (runs, outcomes) = performed.take(kernel);
            let answer = match performed.absent.iter().find(|(absent, _)| absent == kernel) {
                Some((_, why)) => Answer::Unknown(why.clone().unwrap_or_else(|| {
                    format!("no task prepared it; the tasks' output is in {}", out.display())
                })),
                None => answer(plan, self.lab.timing(), &runs, outcomes)?,
            };
            let round = out.file_name().unwrap_or_default().to_string_lossy();
            let name = |queued: &QueuedRun| format!("{round}/{}", queued.folder_name());
            judged.push(JudgedCandidate { answer, records: runs.iter().map(name).collect() });
        }
        Ok(judged)
    }
}

/// Writes the document, and prints it or what was found.
fn publish(found: &bisect::BisectionReport<'_>, path: &Path, as_json: bool) -> Result<ExitCode> {
    let text = serde_json::to_string_pretty(&bisect::document(found))? + "\n";
    record::write(path, &text)?;
    print(&if as_json { text } else { bisect::text(found, &path.display().to_string()) })?;
    Ok(ExitCode::from(exit::PASS))
}
