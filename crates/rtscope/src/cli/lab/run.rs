//! `rtscope lab run`: one plan, several kernels, several seeds.

use std::process::ExitCode;

use rtscope_lab::record_folders::names;

use super::{collect, explain, guest_options, output};
use crate::{cli::shape, plans};

/// Run a plan in several kernels and compare them
///
/// Each kernel boots in an emulator. The guest contains this same program and nothing else. In virtual
/// time (the default) rtscope logs each run with one CPU, and `rtscope lab replay` reproduces its record bit for
/// bit. The pages say what virtual time can show and what it can't.
///
/// Without a plan rtscope runs `lab-quick`: rest, a message load and a disk load, one second each in the guest. A
/// guest has no disk, so the disk load writes to its memory (tmpfs). `lab run` takes the options of `rtscope run`
/// that shape the plan. It refuses those that make no sense in a guest, such as --until, and says why.
///
/// Examples:
///   rtscope lab run --kernel debian-stock --kernel debian-rt
///   rtscope lab run --kernel debian-stock:preempt=full --seeds 5
///   rtscope lab run --kernel debian-stock --kernel debian-rt --explain
///   rtscope lab run lab-course --kernel debian-rt --scale 0.1
///   rtscope lab run -k debian-rt -i 200us -p 50 --require 'max < 300us'
///   rtscope lab run --kernel debian-rt --wall --smp 2 --cpus 1 --duration 2s
///   rtscope lab run my-plan.toml --kernel path=/boot/vmlinuz-6.1 --wall
///   rtscope lab run --kernel rt=path=/boot/vmlinuz --kernel stock=debian-stock
///   rtscope lab run --kernel linux-image-6.1.0-56-amd64_6.1.192-2_amd64.deb
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file [default: lab-quick]
    plan: Option<String>,
    /// Kernel to run: debian-stock, debian-rt, debian-cloud, one that you built, path=FILE, or the file of a
    /// Debian package (.deb); repeatable. Append kernel parameters after colons, for example
    /// debian-stock:preempt=full. Put a label before it, for example mine=debian-stock:preempt=full, to choose its
    /// name in folders, pages and JSON
    #[arg(short, long, value_name = "KERNEL", required = true)]
    kernel: Vec<String>,
    #[command(flatten)]
    judging: guest_options::Judging,
    #[command(flatten)]
    options: guest_options::Options,
    #[command(flatten)]
    why: explain::Explain,
    #[command(flatten)]
    shape: shape::Shape,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.guest_plan(args.plan.as_deref(), plans::DEFAULT_LAB)?;
    let mut lab = args.why.open_lab(&args.options)?;
    let out = output::place(args.judging.out.as_ref(), &plan.name)?;
    let kernels = lab.kernels(&args.kernel)?;
    let names = names(kernels.iter().map(|kernel| kernel.label.as_str()))?;
    let mut runs = Vec::new();
    for (kernel, name) in kernels.iter().zip(names) {
        for seed in 1..=args.judging.seeds.unwrap_or(1) {
            let folder = out.join(format!("{name}-seed{seed}"));
            runs.push(lab.plan_run(kernel, &plan, seed, folder)?);
        }
    }
    let outcomes = lab.run_into(&out, &runs)?;
    let mut all = collect::records(&plan, lab.timing(), &runs, outcomes)?;
    args.why.add_to(&mut all, &out, &lab);
    collect::publish(&all, &out, args.judging.json)
}
