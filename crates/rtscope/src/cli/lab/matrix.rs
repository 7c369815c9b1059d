//! `rtscope lab matrix`: kernels x preemption models x loads x seeds, each cell in a guest of its own.

use std::process::ExitCode;

use rtscope_lab::{queue::Item, subject::Subject};
use rtscope_model::plan::Plan;

use super::{
    compare::Comparison,
    order::{self, Lab},
    output,
};
use crate::{cli::shape, plans};

/// Run every phase of a plan in every kernel, each in its own guest
///
/// A cell is one phase in one kernel with one seed. Cells run in parallel on this machine's CPUs. rtscope doesn't
/// run a cell again if it has the record, so the same command continues an interrupted matrix. The page is a heat
/// map, in which each cell links to its histogram.
///
/// Without a plan rtscope runs `lab-matrix`: rest and seven loads. `lab matrix` takes the options of `rtscope run`
/// that shape the plan.
///
/// Examples:
///   rtscope lab matrix --kernel debian-stock --kernel debian-rt
///   rtscope lab matrix --kernel debian-rt --scale 0.2 --interval 1ms
///   rtscope lab matrix -k debian-stock --preempt none,voluntary,full --seeds 5
///   rtscope lab matrix -k old=path=vmlinuz-6.1 -k new=path=vmlinuz-6.12
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file; each of its phases is a row [default: lab-matrix]
    plan: Option<String>,
    /// Kernel to run, as for `lab run`; repeatable
    #[arg(short, long, value_name = "KERNEL", required = true)]
    kernel: Vec<String>,
    /// Run kernels with PREEMPT_DYNAMIC in each of these preemption models, by boot parameter. Other kernels run
    /// as they are
    #[arg(long, value_name = "MODEL,...", value_delimiter = ',', value_parser = MODELS)]
    preempt: Vec<String>,
    #[command(flatten)]
    judging: order::Judging,
    #[command(flatten)]
    options: order::Options,
    #[command(flatten)]
    shape: shape::Shape,
}

/// The preemption models of PREEMPT_DYNAMIC.
const MODELS: [&str; 4] = ["none", "voluntary", "full", "lazy"];

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.guest_plan(args.plan.as_deref(), plans::DEFAULT_MATRIX)?;
    let mut lab = Lab::open(&args.options)?;
    let out = output::place(args.judging.out.as_ref(), &plan.name)?;
    let named = lab.subjects(&args.kernel)?;
    let in_model = |subject: &Subject| -> Vec<Subject> {
        if args.preempt.is_empty() || !subject.has_option("PREEMPT_DYNAMIC") {
            return vec![subject.clone()];
        }
        let word = |model: &String| subject.with_word(&format!("preempt={model}"));
        args.preempt.iter().map(word).collect()
    };
    let subjects: Vec<Subject> = named.iter().flat_map(in_model).collect();
    let mut items: Vec<Item> = Vec::new();
    let names = output::names(subjects.iter().map(|subject| subject.label.as_str()))?;
    let phases = one_by_one(&plan);
    let loads = output::names(phases.iter().map(|phase| phase.name.as_str()))?;
    for (subject, kernel) in subjects.iter().zip(names) {
        for (phase, load) in phases.iter().zip(&loads) {
            for seed in 1..=args.judging.seeds.unwrap_or(1) {
                let cell = lab.cell(subject, phase, seed)?;
                let folder = out.join(format!("{kernel}-{load}-seed{seed}"));
                items.push(Item { cell, folder });
            }
        }
    }
    let outcomes = lab.run_into(&out, &items)?;
    Comparison::of(&plan, lab.timing(), &items, outcomes)?.publish(&out, args.judging.json)
}

/// A plan of its own for each phase.
fn one_by_one(plan: &Plan) -> Vec<Plan> {
    let single = |phase: &rtscope_model::plan::Phase| Plan {
        name: phase.name.clone(),
        phases: vec![phase.clone()],
        ..plan.clone()
    };
    plan.phases.iter().map(single).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_becomes_a_plan_that_can_be_read_back() {
        let plan = plans::load("lab-matrix").expect("shipped");
        let single = one_by_one(&plan);
        assert_eq!(single.len(), plan.phases.len());
        for (one, phase) in single.iter().zip(&plan.phases) {
            let read = rtscope_model::plan::parse(&one.name, &one.to_toml()).expect("sound");
            assert_eq!(
                (read.phases.as_slice(), &read.name),
                ([phase.clone()].as_slice(), &phase.name)
            );
        }
    }
}
