//! `rtscope lab run`: one plan, several kernels, several seeds.

use std::process::ExitCode;

use rtscope_lab::queue::Item;

use super::{
    compare::Comparison,
    order::{self, Lab},
    output,
};
use crate::plans;

/// Run a plan in several kernels and compare them
///
/// Each kernel boots in an emulator, with this very program as all there is in the guest. In virtual
/// time (the default) each run with one CPU is logged, and `rtscope lab replay` makes its record again to
/// the bit. The pages say what virtual time can show and what it can't.
///
/// Examples:
///   rtscope lab run lab-quick --kernel debian-stock --kernel debian-rt
///   rtscope lab run lab-quick --kernel debian-stock:preempt=full --seeds 5
///   rtscope lab run my-plan.toml --kernel path=/boot/vmlinuz-6.1 --wall
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file
    plan: String,
    /// A kernel: debian-stock, debian-rt, one you built, or path=FILE; words of the kernel command line
    /// follow after colons, as debian-stock:preempt=full; repeatable
    #[arg(short, long, value_name = "KERNEL", required = true)]
    kernel: Vec<String>,
    #[command(flatten)]
    judging: order::Judging,
    #[command(flatten)]
    options: order::Options,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let mut plan = plans::load(&args.plan)?;
    plan.require.extend(&args.judging.require);
    let mut lab = Lab::open(&args.options)?;
    let out = output::place(args.judging.out.as_ref(), &plan.name)?;
    let mut items: Vec<Item> = Vec::new();
    let subjects = lab.subjects(&args.kernel)?;
    let names = output::names(subjects.iter().map(|subject| subject.label.as_str()))?;
    for (subject, name) in subjects.iter().zip(names) {
        for seed in 1..=args.judging.seeds.unwrap_or(1) {
            let cell = lab.cell(subject, &plan, seed)?;
            items.push(Item { cell, folder: out.join(format!("{name}-seed{seed}")) });
        }
    }
    let outcomes = lab.run_into(&out, &items)?;
    Comparison::of(&plan, lab.timing(), &items, outcomes)?.publish(&out, args.judging.json)
}
