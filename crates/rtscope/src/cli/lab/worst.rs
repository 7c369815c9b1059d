//! `rtscope lab worst`: the worst wake-up of a guest, searched by aiming expiries at its longest stretches.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, anyhow};
use rtscope_analyse::{
    report::{
        explain_lab::Explanation,
        worst_lab::{self as report, AimedRun, FoundWakeup, SearchSide, WorstSearch},
    },
    statistics::worst_case::{Search, Step, aimed_latency_ns, scouted, worst_of},
};
use rtscope_lab::{
    brought::Brought, guest_run::GuestRun, queue::QueuedRun, record_folders::claim_empty,
    tool::Need, worst,
};
use rtscope_measure::guest_init::SHOWN;
use rtscope_model::{
    environment::Preemption,
    plan::{Plan, Sleep},
    record::Record,
    slice::Scope,
    stretches::Stretches,
    symbols::KernelSymbols,
    time::Nanos,
};

use super::{
    explain::explained,
    guest_options::{self, Lab},
    output,
};
use crate::{
    cli::{Refused, shape},
    exit, plans,
    record::{self, Additions},
};

/// Search for the worst wake-up of a kernel
///
/// A periodic sampler meets a rare long section of the kernel only by chance. In virtual time, rtscope can aim at it.
/// It runs the plan in a guest while a plugin of the emulator records the stretches in which a wake-up would have had
/// to wait. Then it runs the guest again, with one expiry moved to the beginning of the longest stretch. Up to that
/// instant both runs should be the same, so the stretch is there again, and the guest measures how late the wake-up
/// is. rtscope goes on with the other stretches, with earlier instants for the worst wake-up, and with other seeds.
///
/// Every result is a measured wake-up, and `rtscope lab replay` repeats its run. Afterwards rtscope samples
/// periodically for the same time, and sets both results side by side. So the command takes twice the budget.
///
/// The command needs a C compiler, an x86-64 guest with one CPU in virtual time, and QEMU with plugins.
///
/// Examples:
///   rtscope lab worst --kernel debian-stock
///   rtscope lab worst lab-quick --kernel debian-rt --budget 10min
///   rtscope lab worst --kernel debian-stock:preempt=full --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file [default: lab-quick]
    plan: Option<String>,
    /// Kernel to search, as `rtscope lab run` takes it
    #[arg(short, long, value_name = "KERNEL")]
    kernel: String,
    /// Time for the search, for example 10min; periodic sampling takes as long again
    #[arg(long, value_name = "TIME", default_value = "10min")]
    budget: Nanos,
    /// Folder for the records and the page [default: rtscope-runs/lab-PLAN-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: guest_options::Options,
    #[command(flatten)]
    shape: shape::Shape,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.guest_plan(args.plan.as_deref(), plans::DEFAULT_LAB)?;
    refuse_relative(&plan)?;
    let mut lab = Lab::open_with_tools(&args.options, vec![Need::of("cc", "gcc")])?;
    let out = output::empty(args.out.as_ref(), &plan.name)?;
    let kernels = lab.kernels(std::slice::from_ref(&args.kernel))?;
    let kernel = kernels.first().ok_or_else(|| anyhow!("no kernel is named"))?;
    let base = lab.plan_run(kernel, &plan, 1, out.clone())?.run;
    worst::shift_of(&base)?;
    let _claim = claim_empty(&out)?;
    let mut hunt = Hunt::new(lab, base, kernel.label.clone(), &out, args.budget)?;
    hunt.search()?;
    hunt.sample_as_long()?;
    let explained = hunt.explain();
    let (page, table) = (report::page(&hunt.all, explained.as_ref()), report::table(&hunt.all));
    let document = serde_json::to_value(&hunt.all)?;
    output::publish(&out, report::DOCUMENT, &page, &document, (&table, args.json))?;
    Ok(ExitCode::from(exit::PASS))
}

/// An aim moves an expiry of a grid.
fn refuse_relative(plan: &Plan) -> anyhow::Result<()> {
    let is_relative = plan.phases.iter().any(|phase| phase.sampler.sleep == Sleep::Relative);
    if is_relative {
        let text =
            "the search can't aim the expiries of relative sleeps: leave out sleep = \"relative\"";
        return Err(Refused(text.to_owned()).into());
    }
    Ok(())
}

/// Which way a guest is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Search,
    Periodic,
}

/// A search on its way.
struct Hunt<'a> {
    lab: Lab,
    base: GuestRun,
    out: &'a Path,
    search: Search,
    /// The start of each seed's run on the guest's clock, by cell.
    origins_ns: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// Seeds of periodic sampling so far.
    seeds: u64,
    all: WorstSearch,
}

impl<'a> Hunt<'a> {
    fn new(
        lab: Lab,
        base: GuestRun,
        kernel: String,
        out: &'a Path,
        budget: Nanos,
    ) -> anyhow::Result<Hunt<'a>> {
        let all = WorstSearch {
            format: report::FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel,
            plan: base.plan.clone(),
            budget_ns: budget.0,
            shift: worst::shift_of(&base)?,
            search: SearchSide::default(),
            periodic: SearchSide::default(),
            aims: Vec::new(),
            cause: None,
            not_explained: None,
        };
        let (search, origins_ns) = (Search::default(), BTreeMap::new());
        Ok(Hunt { lab, base, out, search, origins_ns, seeds: 0, all })
    }

    fn is_stopped(&self) -> bool {
        self.lab.console.interrupt().is_stopped()
    }

    fn with_seed(&self, seed: u64) -> GuestRun {
        let mut run = self.base.clone();
        run.spec.seed = seed;
        run
    }

    /// Runs guests, and opens their records.
    fn run(&mut self, runs: &[QueuedRun], way: Way) -> anyhow::Result<Vec<Option<Record>>> {
        let lab = &self.lab;
        let outcomes = lab.console.with(|host| lab.lab.run(runs, host))?;
        let mut records = Vec::new();
        for (queued, outcome) in runs.iter().zip(outcomes) {
            let brought = queued.brought(outcome, SHOWN);
            let side = self.side(way);
            side.guests += 1;
            records.push(match brought {
                Brought::Record(_) => {
                    let record = record::open(&queued.folder, &Additions::default())?.record;
                    self.note(&record, queued, way);
                    Some(record)
                }
                Brought::NotReached(why) | Brought::Nothing { why, .. } => {
                    side.failed += 1;
                    note!("{}: {why}", queued.name());
                    None
                }
            });
        }
        Ok(records)
    }

    fn side(&mut self, way: Way) -> &mut SearchSide {
        match way {
            Way::Search => &mut self.all.search,
            Way::Periodic => &mut self.all.periodic,
        }
    }

    /// Notes a record's wake-ups and its worst one.
    fn note(&mut self, record: &Record, queued: &QueuedRun, way: Way) {
        let in_cells = record.slices.iter().filter(|slice| matches!(slice.scope, Scope::Cell(_)));
        let wakeups = in_cells.clone().map(|slice| slice.recorded).sum();
        let least_ns = in_cells.map(|slice| slice.min_ns).min();
        let found = worst_of(record);
        if let (Some(worst), Some(least_ns), Way::Search) = (&found, least_ns, way) {
            self.search.add_worst(worst.latency_ns);
            self.search.add_least(least_ns);
        }
        let spec = queued.run.spec;
        let worst = found.map(|worst| FoundWakeup {
            latency_ns: worst.latency_ns,
            phase: record
                .plan
                .phases
                .get(worst.cell as usize)
                .map_or_else(String::new, |it| it.name.clone()),
            seed: spec.seed,
            aim_ns: spec.aim_ns.filter(|at_ns| *at_ns > 0),
            at_ns: worst.at_ns,
            record: queued.folder.display().to_string(),
        });
        self.side(way).add(wakeups, worst);
    }

    /// Samples periodically with the next seeds, one for each guest that runs at a time; the first one alone.
    fn sample(&mut self) -> anyhow::Result<Vec<Option<Record>>> {
        let began = Instant::now();
        let count = if self.seeds == 0 { 1 } else { self.lab.lab.jobs() as u64 };
        let one = |seed| QueuedRun {
            run: self.with_seed(seed),
            folder: self.out.join(format!("periodic-seed{seed}")),
        };
        let runs: Vec<QueuedRun> = (self.seeds + 1..=self.seeds + count).map(one).collect();
        self.seeds += count;
        let records = self.run(&runs, Way::Periodic)?;
        self.all.periodic.took_ns += began.elapsed().as_nanos() as u64;
        Ok(records)
    }

    /// Samples periodically until that has taken as long as the search.
    fn sample_as_long(&mut self) -> anyhow::Result<()> {
        while self.all.periodic.took_ns < self.all.search.took_ns && !self.is_stopped() {
            self.sample()?;
        }
        Ok(())
    }

    /// Scouts and aims until the budget is used up. The first guest samples periodically, and shows how the kernel
    /// preempts.
    fn search(&mut self) -> anyhow::Result<()> {
        let first = self.sample()?.pop().flatten();
        let first =
            first.ok_or_else(|| anyhow!("the guest returned no record: see the messages above"))?;
        let preemption = first.before.as_ref().map(|before| before.kernel.preemption);
        let preempts =
            matches!(preemption, Some(Preemption::Full | Preemption::Lazy | Preemption::RealTime));
        let symbols = self.symbols()?;
        let budget_ns = self.all.budget_ns;
        let mut longest_ns = 0;
        while self.all.search.took_ns + longest_ns < budget_ns && !self.is_stopped() {
            let began = Instant::now();
            let jobs = self.lab.lab.jobs();
            let steps: Vec<Step> = (0..jobs).map(|_| self.search.next_step()).collect();
            let runs: Vec<QueuedRun> = steps
                .iter()
                .map(|step| self.planned(*step, preempts, &symbols))
                .collect::<anyhow::Result<_>>()?;
            let records = self.run(&runs, Way::Search)?;
            for ((record, queued), step) in records.iter().zip(&runs).zip(steps) {
                if let Some(record) = record {
                    self.take(record, queued, step)?;
                }
            }
            let took_ns = began.elapsed().as_nanos() as u64;
            self.all.search.took_ns += took_ns;
            longest_ns = longest_ns.max(took_ns);
        }
        Ok(())
    }

    fn symbols(&self) -> anyhow::Result<KernelSymbols> {
        let (folder, lab) = (self.out.join("symbols.part"), &self.lab);
        let text = lab.console.with(|host| lab.lab.symbols(&self.base, &folder, host))?;
        KernelSymbols::parse(text).ok_or_else(|| {
            anyhow!(
                "the guest's kernel has no symbols (CONFIG_KALLSYMS): rtscope can't find its functions"
            )
        })
    }

    /// The guest of a step.
    fn planned(
        &self,
        step: Step,
        preempts: bool,
        symbols: &KernelSymbols,
    ) -> anyhow::Result<QueuedRun> {
        let (run, name) = match step {
            Step::Scout { seed } => {
                let (run, name) =
                    (worst::aimed(&self.with_seed(seed), 0), format!("scout-seed{seed}"));
                let (out, cache) = (self.stretches(&self.out.join(&name)), self.lab.lab.cache());
                (worst::watched(&run, preempts, symbols, &out, cache)?, name)
            }
            Step::Aim { seed, at_ns, .. } => {
                let run = worst::aimed(&self.with_seed(seed), at_ns);
                (run, format!("aim-seed{seed}-{at_ns}"))
            }
        };
        Ok(QueuedRun { run, folder: self.out.join(name) })
    }

    /// Where the plugin writes the stretches of a scouted run: beside its record.
    fn stretches(&self, record: &Path) -> PathBuf {
        record.with_extension("stretches")
    }

    /// Takes what a step's record shows.
    fn take(&mut self, record: &Record, queued: &QueuedRun, step: Step) -> anyhow::Result<()> {
        match step {
            Step::Scout { seed } => {
                let path = self.stretches(&queued.folder);
                let bytes =
                    fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
                let _ = fs::remove_file(&path);
                let stretches = Stretches::read(&bytes);
                if !stretches.is_whole {
                    note!(
                        "seed {seed}: the emulator couldn't write all stretches: is the disk full?"
                    );
                }
                let found = scouted(record, &stretches, self.all.shift, seed);
                self.search.add_scouted(&found.candidates);
                self.origins_ns.insert(seed, found.origins_ns);
            }
            Step::Aim { seed, at_ns, promised_ns } => {
                let origins_ns = self.origins_ns.entry(seed).or_default();
                let latency_ns = aimed_latency_ns(record, origins_ns, at_ns);
                self.search.add_aimed(seed, at_ns, latency_ns);
                self.all.aims.push(AimedRun { seed, aim_ns: at_ns, promised_ns, latency_ns });
            }
        }
        Ok(())
    }

    /// Explains the worst wake-up that the search found. Without an explanation the figure stands.
    fn explain(&mut self) -> Option<Explanation> {
        let worst = self.all.search.worst.as_ref()?;
        let (folder, phases) = (Path::new(&worst.record), std::slice::from_ref(&worst.phase));
        let (cache, interrupt) = (self.lab.lab.cache(), self.lab.console.interrupt());
        match explained(folder, phases, 1, cache, interrupt) {
            Ok(found) => {
                self.all.cause = report::cause_of(&found);
                Some(found)
            }
            Err(why) => {
                self.all.not_explained = Some(format!("{why:#}"));
                None
            }
        }
    }
}
