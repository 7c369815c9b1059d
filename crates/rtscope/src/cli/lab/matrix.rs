//! `rtscope lab matrix`: kernels x preemption models x loads x seeds, each cell in a guest of its own.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use rtscope_lab::{
    kernel_ref::KernelRef, kernel_under_test::KernelUnderTest, record_folders::names,
};
use rtscope_model::time::Nanos;

use super::{collect, explain, guest_options, output, work_order};
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
///   rtscope lab matrix -k debian-stock -k debian-rt --seeds 200 --engine slurm
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
    /// Run the cells in batches that can be killed and continued: as processes of this machine (local), or as job arrays
    /// of Slurm (slurm). --jobs limits how many run at a time
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineKind>,
    /// Approximate time that a batch of --engine takes
    #[arg(
        long,
        value_name = "TIME",
        default_value = "5min",
        requires = "engine",
        hide_default_value = false
    )]
    batch: Nanos,
    #[command(flatten)]
    judging: guest_options::Judging,
    #[command(flatten)]
    options: guest_options::Options,
    #[command(flatten)]
    why: explain::Explain,
    #[command(flatten)]
    shape: shape::Shape,
}

/// What runs the batches of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum EngineKind {
    Local,
    Slurm,
}

/// The preemption models of PREEMPT_DYNAMIC.
const MODELS: [&str; 4] = ["none", "voluntary", "full", "lazy"];

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.guest_plan(args.plan.as_deref(), plans::DEFAULT_MATRIX)?;
    let mut lab = args.why.open_lab(&args.options)?;
    let out = output::place(args.judging.out.as_ref(), &plan.name)?;
    if let Some(engine) = args.engine {
        let (kernels, ignored) = asked_kernels(args, &lab)?;
        let matrix = work_order::Matrix {
            plans: plan.one_by_one(),
            kernels,
            specs: BTreeMap::new(),
            seeds: args.judging.seeds.unwrap_or(1),
            program: args.options.program(),
            engine,
            batch: Duration::from_nanos(args.batch.0),
        };
        let mut all = work_order::collected(&mut lab, &out, &plan, &matrix)?;
        all.page.warnings.extend(ignored);
        args.why.add_to(&mut all, &out, &lab);
        return collect::publish(&all, &out, args.judging.json);
    }
    let named = lab.kernels(&args.kernel)?;
    let (kernels, ignored) = in_models(args, &named);
    let phases = plan.one_by_one();
    let loads = names(phases.iter().map(|phase| phase.name.as_str()))?;
    let names = names(kernels.iter().map(|kernel| kernel.label.as_str()))?;
    let mut runs = Vec::new();
    for (kernel, name) in kernels.iter().zip(names) {
        for (phase, load) in phases.iter().zip(&loads) {
            for seed in 1..=args.judging.seeds.unwrap_or(1) {
                let folder = out.join(format!("{name}-{load}-seed{seed}"));
                runs.push(lab.plan_run(kernel, phase, seed, folder)?);
            }
        }
    }
    let outcomes = lab.run_into(&out, &runs)?;
    let mut all = collect::records(&plan, lab.timing(), &runs, outcomes)?;
    all.page.warnings.extend(ignored);
    args.why.add_to(&mut all, &out, &lab);
    collect::publish(&all, &out, args.judging.json)
}

/// The kernels of an order as they would be typed. What --preempt does shows only in a kernel that is there.
fn asked_kernels(
    args: &Args,
    lab: &guest_options::Lab,
) -> anyhow::Result<(Vec<KernelRef>, Vec<String>)> {
    if args.preempt.is_empty() {
        let parsed = args.kernel.iter().map(|typed| KernelRef::parse(typed));
        return Ok((parsed.collect::<Result<_, _>>()?, Vec::new()));
    }
    let (kernels, ignored) = in_models(args, &lab.kernels(&args.kernel)?);
    Ok((kernels.into_iter().map(|kernel| kernel.reference).collect(), ignored))
}

/// The kernels in each of the preemption models that were asked for, and what is said of those that have only one.
fn in_models(args: &Args, named: &[KernelUnderTest]) -> (Vec<KernelUnderTest>, Vec<String>) {
    let has_models = |kernel: &KernelUnderTest| kernel.has_option("PREEMPT_DYNAMIC");
    let ignores = named.iter().filter(|one| !args.preempt.is_empty() && !has_models(one));
    let ignored: Vec<String> = ignores.map(preempt_ignored).collect();
    ignored.iter().for_each(|text| note!("{text}"));
    let in_model = |kernel: &KernelUnderTest| -> Vec<KernelUnderTest> {
        if args.preempt.is_empty() || !has_models(kernel) {
            return vec![kernel.clone()];
        }
        let word = |model: &String| kernel.with_word(&format!("preempt={model}"));
        args.preempt.iter().map(word).collect()
    };
    (named.iter().flat_map(in_model).collect(), ignored)
}

/// Why a kernel runs once, in its own preemption model.
fn preempt_ignored(kernel: &KernelUnderTest) -> String {
    let why = match kernel.lacks("PREEMPT_DYNAMIC") {
        true => "it was built without CONFIG_PREEMPT_DYNAMIC",
        false => "its configuration isn't known; write KERNEL:preempt=MODEL to try one",
    };
    format!("{}: --preempt has no effect on this kernel: {why}", kernel.label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_preempt_does_not_change_is_named_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("config");
        std::fs::write(&config, "CONFIG_PREEMPT_RT=y\n").expect("written");
        let kernel = KernelUnderTest {
            label: "mine".to_owned(),
            reference: KernelRef::named("mine", Vec::new()),
            file: "vmlinuz".into(),
            sha256: String::new(),
            unpacked: None,
            arch: "x86_64".to_owned(),
            release: None,
            config: Some(config),
            dtbs: None,
            device_tree: None,
            append: Vec::new(),
            identity: None,
        };
        let said = preempt_ignored(&kernel);
        assert_eq!(
            said,
            "mine: --preempt has no effect on this kernel: it was built without CONFIG_PREEMPT_DYNAMIC"
        );
        let said = preempt_ignored(&KernelUnderTest { config: None, ..kernel });
        assert!(said.contains("isn't known; write KERNEL:preempt=MODEL"), "{said}");
    }

    #[test]
    fn each_phase_becomes_a_plan_that_can_be_read_back() {
        let plan = plans::load("lab-matrix").expect("shipped");
        let single = plan.one_by_one();
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
