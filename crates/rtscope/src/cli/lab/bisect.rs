//! `rtscope lab bisect`: which change broke a latency.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::report::lab::bisect;
use rtscope_lab::{
    bisect::{
        Answer,
        search::{Bisection, Ends},
    },
    lab::Outcomes,
    queue::QueuedRun,
};

use super::{
    collect,
    order::{self, Lab},
    output,
};
use crate::{
    cli::{Refused, print, shape},
    exit, plans, record,
};

/// How many replicas of each kernel, unless the user says otherwise.
const SEEDS: u64 = 5;

/// Find the change that broke a latency
///
/// Name a kernel that meets the requirement and one that doesn't. They may differ in words of the kernel command
/// line, in options of the configuration, in a series of kernels, or in commits of a git tree. The search runs the
/// plan in as few kernels as it can, with 4 or more seeds in each. It builds kernels if it has to, and keeps them. Without a plan it runs
/// `lab-quick`. It takes the options of `rtscope run` that shape the plan.
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
///     --good v6.12 --bad v6.13 --require 'max < 100us'
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
    /// Kernel between the two; repeatable, in the order from good to bad
    #[arg(long, value_name = "KERNEL", conflicts_with = "tree")]
    through: Vec<String>,
    /// Git tree of the kernel's source; rtscope doesn't change it
    #[arg(long, value_name = "DIR", requires = "spec")]
    tree: Option<PathBuf>,
    /// Configure and build the commits in this way: a kernel's name, or the file of a spec
    #[arg(long, value_name = "KERNEL", requires = "tree")]
    spec: Option<String>,
    #[command(flatten)]
    judging: order::Judging,
    #[command(flatten)]
    options: order::Options,
    #[command(flatten)]
    shape: shape::Shape,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.guest_plan(args.plan.as_deref(), plans::DEFAULT_LAB)?;
    if plan.require.is_empty() {
        let text = "what is a bad kernel? Name a requirement, for example --require 'max < 100us'";
        return Err(Refused(text.to_owned()).into());
    }
    let seeds = args.judging.seeds.unwrap_or(SEEDS);
    bisect::check_seeds(seeds).map_err(Refused)?;
    let Lab { lab, console } = Lab::open(&args.options)?;
    let out = output::empty(args.judging.out.as_ref(), "bisect")?;
    let timing = lab.timing();
    let mut judge = |runs: &[QueuedRun], outcomes: Outcomes| -> anyhow::Result<Answer> {
        let is_met = collect::records(&plan, timing, runs, outcomes)?.is_met();
        Ok(match is_met {
            Ok(true) => Answer::Good,
            Ok(false) => Answer::Bad,
            Err(why) => Answer::Unknown(why),
        })
    };
    let ends = Ends {
        good: &args.good,
        bad: &args.bad,
        through: &args.through,
        tree: args.tree.as_deref().zip(args.spec.as_deref()),
    };
    console.with(|host| {
        let mut search = Bisection::new(lab, host, &plan, seeds, &out, &mut judge);
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
    })
}

/// Writes the document, and prints it or what was found.
fn publish(
    found: &bisect::BisectionReport<'_>,
    path: &Path,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let text = serde_json::to_string_pretty(&bisect::document(found))? + "\n";
    record::write(path, &text)?;
    print(&if as_json { text } else { bisect::text(found, &path.display().to_string()) })?;
    Ok(ExitCode::from(exit::PASS))
}
