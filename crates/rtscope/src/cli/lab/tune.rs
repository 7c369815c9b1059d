//! `rtscope lab tune`: kernel parameters and other kernels, tried in guests in virtual time.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::anyhow;
use rtscope_analyse::{
    compare::trial::{
        TrialCell, TrialSide, TrialStatistic, best_together, is_left_out, is_usable,
        measured_blocks, trials,
    },
    report::trials::{self as report, NotTried, TrialSeries, TuneTrials},
};
use rtscope_lab::{
    brought::{self, Brought},
    kernel_ref::KernelRef,
    queue::QueuedRun,
    record_folders::names,
};
use rtscope_measure::guest_init::SHOWN;
use rtscope_model::{
    finding::Finding,
    plan::{Plan, trial::AS_FOUND},
    text::shell_word,
};

use super::{
    guest_options::{self, Lab},
    output,
};
use crate::{
    cli::{shape, tune::refuse_frames},
    exit,
    failure::{Refused, error_text},
    output::shown,
    plans,
    record::{self, Additions},
};

/// Try kernel parameters and kernels in guests
///
/// rtscope runs the plan in guests with the kernel as it is, and in guests with each change alone, with the same seeds.
/// Then it applies all changes that helped, all at once, and runs the plan again with other seeds. For each change it
/// says better, worse, or no difference shown, and what the change costs in work of the loads. The answer allows for
/// the number of figures that were compared. A change by a factor of less than 1.5 is never called a difference,
/// because another build of the same kernel moves figures by as much.
///
/// Virtual time shows the kernel's paths, but not the effects of caches, buses and idle states: see
/// docs/method/virtual-time.md.
///
/// Exit codes: 0 something helped, 3 nothing is shown to help, 1 error, 64 wrong command line.
///
/// Examples:
///   rtscope lab tune --kernel debian-stock
///   rtscope lab tune --kernel debian-stock --try preempt=full --try threadirqs
///   rtscope lab tune -k debian-stock --try 'preempt=full threadirqs'
///   rtscope lab tune lab-matrix -k debian-stock --try kernel=debian-rt
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file [default: lab-quick]
    plan: Option<String>,
    /// Kernel to tune, as `rtscope lab run` takes it
    #[arg(short, long, value_name = "KERNEL")]
    kernel: String,
    /// Kernel parameter to try. Several of them, separated by spaces, are tried as one. kernel=NAME tries another
    /// kernel; repeatable [default: preempt=full, threadirqs, nohz=off, mitigations=off, transparent_hugepage=never]
    #[arg(long = "try", value_name = "PARAMETER")]
    tried: Vec<String>,
    /// Number of guests for the kernel and for each change, each with its own seed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(5..=1000))]
    seeds: u64,
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

/// Parameters that can shorten a kernel's paths.
const USUAL: [&str; 5] =
    ["preempt=full", "threadirqs", "nohz=off", "mitigations=off", "transparent_hugepage=never"];

/// Another build of a kernel moves a 99.9th percentile by less.
const LEAST_RATIO: f64 = 1.5;

/// A change of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TriedKernel {
    /// Another kernel in place of the one that is tuned.
    other: Option<String>,
    words: Vec<String>,
}

impl TriedKernel {
    fn parse(text: &str) -> anyhow::Result<TriedKernel> {
        let mut tried = TriedKernel { other: None, words: Vec::new() };
        for word in text.split_whitespace() {
            if word.contains(':') {
                let text = format!("--try {text}: write a space between parameters, not a colon");
                return Err(Refused(text).into());
            }
            match word.strip_prefix("kernel=") {
                Some(name) if tried.other.is_none() => tried.other = Some(name.to_owned()),
                Some(_) => {
                    let text = format!("--try {text}: it names two kernels; leave one out");
                    return Err(Refused(text).into());
                }
                None => tried.words.push(word.to_owned()),
            }
        }
        if tried.other.is_none() && tried.words.is_empty() {
            let text = "--try '': name a kernel parameter, for example --try preempt=full";
            return Err(Refused(text.to_owned()).into());
        }
        Ok(tried)
    }

    fn name(&self) -> String {
        let other = self.other.iter().map(|name| format!("kernel={name}"));
        other.chain(self.words.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    /// The kernel with this change.
    fn of(&self, base: &KernelRef) -> KernelRef {
        let words: Vec<String> = base.words().iter().chain(&self.words).cloned().collect();
        KernelRef::named(self.other.as_deref().unwrap_or(base.name()), words)
    }

    /// The other kernel without the parameters; none where it names only one of them.
    fn kernel_alone(&self) -> Option<TriedKernel> {
        let is_both = self.other.is_some() && !self.words.is_empty();
        is_both.then(|| TriedKernel { other: self.other.clone(), words: Vec::new() })
    }

    /// Takes another change in, too; none where the two contradict each other.
    fn with(&self, other: &TriedKernel) -> Option<TriedKernel> {
        let key = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
        let apart =
            |word: &String| self.words.iter().any(|own| own != word && key(own) == key(word));
        let are_two = self.other.is_some() && other.other.is_some() && self.other != other.other;
        if are_two || other.words.iter().any(apart) {
            return None;
        }
        let new = other.words.iter().filter(|word| !self.words.contains(word));
        Some(TriedKernel {
            other: self.other.clone().or_else(|| other.other.clone()),
            words: self.words.iter().chain(new).cloned().collect(),
        })
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.guest_plan(args.plan.as_deref(), plans::DEFAULT_LAB)?;
    refuse_frames(&plan)?;
    let base = KernelRef::parse(&args.kernel)?;
    let tried = tried(args, &base)?;
    let lab = Lab::open(&args.options)?;
    let out = output::empty(args.out.as_ref(), &plan.name)?;
    let mut bench = Bench { lab, plan, out, base, not_tried: Vec::new() };
    let all = bench.measure(&tried, args.seeds)?;
    let (page, table) = (report::page(&all), report::text(&all));
    let document = serde_json::to_value(&all)?;
    output::publish(&bench.out, report::DOCUMENT, &page, &document, (&table, args.json))?;
    Ok(ExitCode::from(if all.helps() { exit::PASS } else { exit::INCONCLUSIVE }))
}

/// What is tried: what is named, or the usual parameters that the kernel doesn't have yet.
fn tried(args: &Args, base: &KernelRef) -> anyhow::Result<Vec<TriedKernel>> {
    let usual = || USUAL.iter().filter(|word| !base.words().iter().any(|own| own == *word));
    let texts: Vec<String> = match args.tried.as_slice() {
        [] => usual().map(|word| (*word).to_owned()).collect(),
        named => named.to_vec(),
    };
    let mut all: Vec<TriedKernel> = Vec::new();
    for text in &texts {
        let one = TriedKernel::parse(text)?;
        if all.contains(&one) {
            let text = format!("--try {} is given twice: leave one out", one.name());
            return Err(Refused(text).into());
        }
        all.push(one);
    }
    Ok(all)
}

/// Where changes are tried.
struct Bench {
    lab: Lab,
    plan: Plan,
    out: PathBuf,
    base: KernelRef,
    not_tried: Vec<NotTried>,
}

impl Bench {
    fn measure(&mut self, tried: &[TriedKernel], seeds: u64) -> anyhow::Result<TuneTrials> {
        let alone = self.series(tried, 1..=seeds, "alone")?;
        let best = best_together(tried, &alone.trials, TriedKernel::name, TriedKernel::with);
        let together = match &best {
            // Other seeds: those that it was chosen by would flatter it.
            Some(best) if !self.lab.console.interrupt().is_stopped() => {
                self.again(best, seeds + 1..=2 * seeds)
            }
            _ => None,
        };
        let mut all = TuneTrials {
            format: report::FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: self.plan.name.clone(),
            kernel: self.base.label().to_owned(),
            block: "seed",
            is_virtual: true,
            budget_ns: None,
            alone,
            not_tried: std::mem::take(&mut self.not_tried),
            together,
            apply: None,
        };
        let words = best.filter(|best| all.helps() && best.other.is_none()).map(|best| best.words);
        all.apply = words.map(|words| boot_command(&words));
        Ok(all)
    }

    /// Runs what helped once more. What goes wrong now must not lose what was measured before.
    fn again(&mut self, best: &TriedKernel, seeds: RangeInclusive<u64>) -> Option<TrialSeries> {
        let series = self.series(std::slice::from_ref(best), seeds.clone(), "together");
        // A parameter that helped one kernel may be unknown to the other, which is then measured without any.
        if series.as_ref().is_ok_and(|series| series.trials.is_empty())
            && let Some(kernel) = best.kernel_alone()
            && !self.lab.console.interrupt().is_stopped()
        {
            return self.again(&kernel, seeds);
        }
        let left_out = |error: &anyhow::Error| {
            self.leave_out(
                &best.name(),
                format!("it was not measured again: {}", error_text(error)),
            );
        };
        series.inspect_err(left_out).ok()
    }

    /// Runs guests of the kernel as it is and with each change, and compares them.
    fn series(
        &mut self,
        tried: &[TriedKernel],
        seeds: RangeInclusive<u64>,
        folder: &str,
    ) -> anyhow::Result<TrialSeries> {
        let refs =
            std::iter::once(self.base.clone()).chain(tried.iter().map(|it| it.of(&self.base)));
        let typed: Vec<String> = refs.map(|kernel| kernel.to_string()).collect();
        let kernels = self.lab.kernels(&typed)?;
        let names = names(kernels.iter().map(|kernel| kernel.label.as_str()))?;
        let out = self.out.join(folder);
        let mut runs: Vec<(usize, QueuedRun)> = Vec::new();
        for (nth, (kernel, name)) in kernels.iter().zip(names).enumerate() {
            for seed in seeds.clone() {
                let folder = out.join(format!("{name}-seed{seed}"));
                runs.push((nth, self.lab.plan_run(kernel, &self.plan, seed, folder)?));
            }
        }
        let queue: Vec<QueuedRun> = runs.iter().map(|(_, run)| run.clone()).collect();
        let outcomes = self.lab.run_into(&out, &queue)?;
        let labels =
            std::iter::once(AS_FOUND.to_owned()).chain(tried.iter().map(TriedKernel::name));
        let mut sides: Vec<TrialSide> =
            labels.map(|name| TrialSide { name, cells: Vec::new() }).collect();
        let (mut cells_left_out, mut findings) = (0, Vec::new());
        for ((nth, queued), outcome) in runs.iter().zip(outcomes) {
            let side = &mut sides[*nth];
            match queued.brought(outcome, SHOWN) {
                Brought::Record(_) => {
                    match self.refused_word(&queued.folder, tried.get(nth.wrapping_sub(1))) {
                        Some(why) => self.leave_out(&side.name.clone(), why),
                        None => {
                            let guest = self.guest(queued)?;
                            side.cells.extend(guest.cells);
                            cells_left_out += guest.left_out;
                            findings.extend(guest.findings);
                        }
                    }
                }
                Brought::NotReached(why) | Brought::Nothing { why, .. } => {
                    self.leave_out(&side.name.clone(), why);
                }
            }
        }
        let found = sides.remove(0);
        if found.cells.is_empty() {
            let why = self.not_tried.iter().find(|one| one.name == AS_FOUND);
            let why =
                why.map_or_else(|| "no guest returned a record".to_owned(), |one| one.why.clone());
            return Err(anyhow!("{}: {why}", self.base));
        }
        sides.retain(|side| !side.cells.is_empty());
        let statistics = TrialStatistic::of(&self.plan.require);
        let mut series = TrialSeries {
            record: shown(&out),
            blocks: measured_blocks(&found, &sides),
            cell_ns: 0,
            cells_left_out,
            findings: Vec::new(),
            trials: trials(&found, &sides, &statistics, LEAST_RATIO),
        };
        series.add_findings(&findings);
        Ok(series)
    }

    /// A parameter of a change that the guest's kernel didn't know.
    fn refused_word(&self, folder: &Path, tried: Option<&TriedKernel>) -> Option<String> {
        let start = brought::start(folder)?;
        let unknown = tried?.words.iter().find(|word| start.unknown_words.contains(word))?;
        Some(format!("the kernel doesn't know {unknown}"))
    }

    fn leave_out(&mut self, name: &str, why: String) {
        let is_known = self.not_tried.iter().any(|known| known.name == name && known.why == why);
        if !is_known {
            self.not_tried.push(NotTried { name: name.to_owned(), why });
        }
    }

    /// Judges a guest's record.
    fn guest(&self, queued: &QueuedRun) -> anyhow::Result<JudgedGuest> {
        record::keep_required(&queued.folder, &self.plan)?;
        let judged = record::open(&queued.folder, &Additions::default())?;
        let statistics = TrialStatistic::of(&self.plan.require);
        let all = &judged.judgement.cells;
        let seed = queued.run.spec.seed;
        let usable = all.iter().filter(|cell| is_usable(cell));
        let cells = usable
            .map(|cell| TrialCell::of(seed, &cell.name, cell, &judged.record, &statistics))
            .collect();
        let left_out = all.iter().filter(|cell| is_left_out(cell)).count() as u64;
        Ok(JudgedGuest { cells, left_out, findings: judged.judgement.findings })
    }
}

/// What a guest has shown.
struct JudgedGuest {
    cells: Vec<TrialCell>,
    /// Number of cells that can't be compared.
    left_out: u64,
    findings: Vec<Finding>,
}

/// The command that sets parameters at each boot.
fn boot_command(words: &[String]) -> String {
    let each = words.iter().map(|word| format!(" --boot {}", shell_word(word)));
    format!("rtscope tune apply{}", each.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(text: &str) -> TriedKernel {
        TriedKernel::parse(text).expect("sound")
    }

    #[test]
    fn a_change_adds_parameters_or_takes_another_kernel() {
        let base = KernelRef::parse("debian-stock:quiet").expect("a kernel");
        let of = |text: &str| tried(text).of(&base).to_string();
        assert_eq!(of("preempt=full threadirqs"), "debian-stock:quiet:preempt=full:threadirqs");
        assert_eq!(of("kernel=debian-rt nohz=off"), "debian-rt:quiet:nohz=off");
        for wrong in ["", " ", "a:b", "kernel=a kernel=b"] {
            assert!(TriedKernel::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_kernel_with_parameters_can_be_tried_without_them() {
        let alone = |text: &str| tried(text).kernel_alone().map(|it| it.name());
        assert_eq!(alone("kernel=debian-rt preempt=full").as_deref(), Some("kernel=debian-rt"));
        assert_eq!(alone("kernel=debian-rt"), None);
        assert_eq!(alone("preempt=full"), None);
    }

    /// Of `--boot preempt=full threadirqs`, the second parameter was taken for a setting and refused.
    #[test]
    fn each_parameter_of_the_printed_command_has_its_own_option() {
        let words = ["preempt=full", "threadirqs", "a=x;y"].map(str::to_owned);
        assert_eq!(
            boot_command(&words),
            "rtscope tune apply --boot preempt=full --boot threadirqs --boot 'a=x;y'"
        );
    }

    #[test]
    fn changes_that_contradict_each_other_are_not_joined() {
        let full = tried("preempt=full");
        assert_eq!(
            full.with(&tried("threadirqs")).map(|it| it.name()).as_deref(),
            Some("preempt=full threadirqs")
        );
        assert_eq!(full.with(&tried("preempt=voluntary")), None);
        assert_eq!(tried("kernel=a").with(&tried("kernel=b")), None);
        assert_eq!(
            full.with(&tried("kernel=b")).map(|it| it.name()).as_deref(),
            Some("kernel=b preempt=full")
        );
        assert_eq!(full.with(&full), Some(full.clone()));
    }
}
