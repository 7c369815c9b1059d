//! `rtscope tune try`: settings measured in turn with the system as it was found.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::{
    compare::trial::{Trial, TrialCell, TrialEffect, TrialSide, TrialStatistic, trials},
    doctor::Purpose,
    number::counted,
    report::trials::{self as report, NotTried, TrialSeries, TuneTrials},
};
use rtscope_measure::{doctor as measure, interrupt::Interrupt, tune};
use rtscope_model::{
    doctor::SettingValue,
    event::Event,
    plan::{
        CpuChoice, Plan,
        trial::{AS_FOUND, TrialPlan, TriedSettings},
    },
    time::Nanos,
};
use rtscope_sys::tree::Tree;

use super::{settings, suggest};
use crate::{
    cli::{doctor, print, run, shape},
    exit,
    failure::Refused,
    output::{print_folded, shown},
    plans,
    record::{self, Additions, JudgedRecord},
    screen::{self, Show},
};

/// Try settings: which shorten wake-up latencies?
///
/// rtscope measures the system as found and each setting in turn, in several rounds, under each load of the plan. Then it
/// measures those that helped once more, all of them together. It says of each setting whether it is better, worse, or no
/// difference is shown. The answer allows for the number of figures that were compared, so that settings without any
/// effect are called better or worse in at most 5 % of trials. It also says what each costs: work of the loads, and power
/// where the machine shows it.
///
/// Each setting is restored after its turn. Nothing stays changed; the last line names the command that applies what
/// helped. Without --try, rtscope tries the settings that `rtscope tune suggest` names and that can be changed while the
/// system runs.
///
/// What is compared: p99, or the figures that --require names. `max < 200us` compares how often 200 us are reached.
///
/// Exit codes: 0 something helped, 3 nothing is shown to help, 1 error, 64 wrong command line.
///
/// Examples:
///   sudo rtscope tune try --try throttling=off --try timer-migration=off
///   sudo rtscope tune try --budget 20min --require 'max < 200us'
///   sudo rtscope tune try --cpus 3 --try 'thp=never dma-latency=0'
///   rtscope tune try --dry-run
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file; phases with the same loads and sampler count once [default: quick]
    plan: Option<String>,
    /// Setting to try, for example throttling=off. Several of them, separated by spaces, are tried as one; repeatable
    #[arg(long = "try", value_name = "SETTING=VALUE")]
    tried: Vec<String>,
    /// Purpose of the machine, by which doctor's suggestions are chosen where --try names nothing
    #[arg(long = "for", value_name = "PURPOSE", default_value = rtscope_analyse::doctor::PURPOSES[0].name, value_parser = doctor::Names)]
    purpose: &'static Purpose,
    /// Time for all of it, for example 20min
    #[arg(long, value_name = "TIME", default_value = "10min")]
    budget: Nanos,
    /// Print what would be measured and how long it takes; change and measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Folder for the records and the page [default: rtscope-runs/tune-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Show nothing while it measures
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    shape: shape::Shape,
}

/// Suggestions that are tried: more of them need a larger budget, or show less.
const TRIED_MOST: usize = 8;

/// Share of the budget in which settings are measured alone, in percent; what helped has the rest.
const ALONE_PERCENT: u64 = 60;

impl Args {
    pub(super) fn only_shows(&self) -> bool {
        self.dry_run
    }

    /// What is to be tried.
    fn tried(&self) -> anyhow::Result<Vec<TriedSettings>> {
        let one = |text: &String| -> anyhow::Result<TriedSettings> {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() {
                let text = "--try '': name a setting, for example --try throttling=off";
                return Err(Refused(text.to_owned()).into());
            }
            Ok(TriedSettings::new(settings::read("--try ", &words)?))
        };
        let mut all: Vec<TriedSettings> = Vec::new();
        for text in &self.tried {
            let tried = one(text)?;
            if all.iter().any(|known| known.settings == tried.settings) {
                let text = format!("--try {}: it is named twice; leave one out", tried.name);
                return Err(Refused(text).into());
            }
            all.push(tried);
        }
        Ok(all)
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    args.shape.refuse_lengths("--budget sets how long it takes")?;
    let plan = args.shape.plan(args.plan.as_deref(), plans::DEFAULT)?;
    let tried = if args.tried.is_empty() { suggested(args, &plan)? } else { args.tried()? };
    refuse_own(&plan, &tried)?;
    let first = lay_out(&plan, &tried, Nanos(args.budget.0 / 100 * ALONE_PERCENT))?;
    if args.dry_run {
        return print_plan(&first, &tried, args.budget);
    }
    let out =
        record::new_folder(args.out.as_deref(), "tune", &record::wall_clock(), report::DOCUMENT)?;
    let bench = Bench { args, plan, out, interrupt: Interrupt::install_patient()? };
    let (tried, not_tried) = probe(tried)?;
    let all = bench.measure(&tried, not_tried)?;
    bench.publish(&all)?;
    Ok(ExitCode::from(if all.helps() { exit::PASS } else { exit::INCONCLUSIVE }))
}

/// What `tune suggest` names and can be tried on a system that goes on working: no services are stopped, and CPUs are
/// shielded only where the plan names those that it measures.
fn suggested(args: &Args, plan: &Plan) -> anyhow::Result<Vec<TriedSettings>> {
    let cpus = plan.phases.iter().find_map(|phase| match &phase.sampler.cpus {
        CpuChoice::These(cpus) => Some(cpus.clone()),
        CpuChoice::All | CpuChoice::Last => None,
    });
    let deadline = doctor::deadline(None, args.purpose)?;
    let facts = measure::collect(&Tree::default());
    let found = suggest::suggested(&facts, args.purpose, deadline, cpus.as_ref());
    let is_tried = |setting: &&SettingValue| {
        let is_own = plan.settings.contains_key(&setting.name);
        setting.name != "services" && (setting.name != "shield" || cpus.is_some()) && !is_own
    };
    let mut all: Vec<TriedSettings> = Vec::new();
    for suggestion in &found.suggestions {
        let settings = suggestion.settings.iter().filter(is_tried);
        let settings: BTreeMap<String, String> =
            settings.map(|one| (one.name.clone(), one.value.clone())).collect();
        let one = TriedSettings::new(settings);
        if !one.settings.is_empty() && !all.contains(&one) && all.len() < TRIED_MOST {
            all.push(one);
        }
    }
    if all.is_empty() {
        let text = "doctor finds nothing here that a setting changes: name settings, for example --try throttling=off";
        return Err(Refused(text.to_owned()).into());
    }
    Ok(all)
}

/// Refuses to try what the plan sets itself: it would be as found and tried at once.
fn refuse_own(plan: &Plan, tried: &[TriedSettings]) -> anyhow::Result<()> {
    let names = || tried.iter().flat_map(|one| one.settings.keys());
    let of_phases = plan.phases.iter().flat_map(|phase| phase.settings.keys());
    let mut own = plan.settings.keys().chain(of_phases);
    match own.find(|own| names().any(|name| name == *own)) {
        None => Ok(()),
        Some(name) => {
            let text =
                format!("{name} is set by the plan or by --set: leave it out there to try it");
            Err(Refused(text).into())
        }
    }
}

fn lay_out(plan: &Plan, tried: &[TriedSettings], budget: Nanos) -> anyhow::Result<TrialPlan> {
    TrialPlan::new(plan, tried, budget).map_err(|needed| {
        let whole = Nanos(needed.0 / ALONE_PERCENT * 100);
        let text = format!(
            "{} under the loads of {} needs {whole} or more: raise --budget, or try fewer settings",
            counted(tried.len() as u64, "setting"),
            plan.name
        );
        Refused(text).into()
    })
}

/// What would be measured.
fn print_plan(
    trial: &TrialPlan,
    tried: &[TriedSettings],
    budget: Nanos,
) -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    let loads: Vec<&str> = trial.cells.iter().map(|cell| cell.load.as_str()).collect();
    let mut distinct: Vec<&str> = Vec::new();
    for load in loads {
        if !distinct.contains(&load) {
            distinct.push(load);
        }
    }
    let _ = writeln!(
        text,
        "{} of {} each under {}, about {}. What helps is measured again afterwards, {budget} in all at most.",
        counted(trial.rounds, "round"),
        trial.cell,
        distinct.join(", "),
        trial.plan.expected()
    );
    let _ = writeln!(text, "  {AS_FOUND}");
    for one in tried {
        let state = match tune_effect(&one.settings) {
            Ok(0) => " (already so: it will not be tried)".to_owned(),
            Ok(_) => String::new(),
            Err(why) => format!(" ({why}: it will not be tried)"),
        };
        let _ = writeln!(text, "  {}{state}", one.name);
    }
    print_folded(&text)?;
    Ok(ExitCode::from(exit::PASS))
}

/// Applies settings for an instant: how many files they change.
fn tune_effect(settings: &BTreeMap<String, String>) -> Result<usize, tune::TuneError> {
    let mut changed = 0;
    let mut count =
        |event: Event| changed += usize::from(matches!(event, Event::SettingChanged { .. }));
    let applied = tune::apply(&Tree::default(), &tune::journal_dir(), settings, &mut count)?;
    applied.restore(&mut |_| ());
    Ok(changed)
}

/// Takes out what changes nothing and what the kernel refuses.
fn probe(tried: Vec<TriedSettings>) -> anyhow::Result<(Vec<TriedSettings>, Vec<NotTried>)> {
    let (mut left, mut not_tried) = (Vec::new(), Vec::new());
    for one in tried {
        let why = match tune_effect(&one.settings) {
            Ok(0) => "it is so already".to_owned(),
            Ok(_) => {
                left.push(one);
                continue;
            }
            Err(error) => error.to_string(),
        };
        not_tried.push(NotTried { name: one.name, why });
    }
    if left.is_empty() {
        let why = not_tried.iter().map(|one| format!("{}: {}", one.name, one.why));
        anyhow::bail!("nothing is left to try: {}", why.collect::<Vec<_>>().join("; "));
    }
    Ok((left, not_tried))
}

/// Where trials are measured.
struct Bench<'a> {
    args: &'a Args,
    plan: Plan,
    out: PathBuf,
    interrupt: Interrupt,
}

impl Bench<'_> {
    fn measure(
        &self,
        tried: &[TriedSettings],
        not_tried: Vec<NotTried>,
    ) -> anyhow::Result<TuneTrials> {
        let budget = self.args.budget;
        let layout = lay_out(&self.plan, tried, Nanos(budget.0 / 100 * ALONE_PERCENT))?;
        let (alone, judged) = self.series(&layout, tried, "alone")?;
        let helpful = best_together(tried, &alone.trials);
        let mut together = None;
        if let Some(helpful) = &helpful
            && !self.interrupt.is_stopped()
        {
            let rest = Nanos(budget.0.saturating_sub(layout.plan.expected().0));
            let tried = std::slice::from_ref(helpful);
            let layout = lay_out(&self.plan, tried, rest)?;
            together = Some(self.series(&layout, tried, "together")?.0);
        }
        let kernel = judged.record.before.as_ref().map(|found| found.kernel.release.clone());
        let mut all = TuneTrials {
            format: report::FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: self.plan.name.clone(),
            kernel: kernel.unwrap_or_default(),
            block: "round",
            is_virtual: false,
            budget_ns: Some(budget.0),
            alone,
            not_tried,
            together,
            apply: None,
        };
        all.apply = helpful.filter(|_| all.helps()).map(|it| apply_command(&it));
        Ok(all)
    }

    /// Measures settings in turn, and compares each with the system as found.
    fn series(
        &self,
        layout: &TrialPlan,
        tried: &[TriedSettings],
        name: &str,
    ) -> anyhow::Result<(TrialSeries, JudgedRecord)> {
        let folder = self.out.join(name);
        let judged = self.run(&layout.plan, &folder)?;
        let statistics = TrialStatistic::of(&self.plan.require);
        let side = |of: Option<usize>, name: &str| TrialSide {
            name: name.to_owned(),
            cells: cells(&judged, layout, of, &statistics),
        };
        let sides: Vec<TrialSide> =
            (0..).zip(tried).map(|(nth, one)| side(Some(nth), &one.name)).collect();
        let trials = trials(&side(None, AS_FOUND), &sides, &statistics, 1.0);
        let series = TrialSeries {
            record: shown(&folder),
            blocks: layout.rounds,
            cell_ns: layout.cell.0,
            trials,
        };
        Ok((series, judged))
    }

    fn run(&self, plan: &Plan, folder: &Path) -> anyhow::Result<JudgedRecord> {
        let options = run::options(Some(folder), plan.clone(), self.interrupt.clone());
        let show = if self.args.quiet { Show::Quiet } else { Show::Usual };
        let mut screen = screen::open(show, &options.plan, &options.interrupt)?;
        let finished = rtscope_measure::run(&options, &mut |stamped| screen.event(stamped));
        drop(screen);
        let finished = finished?;
        if let Some(why) = &finished.not_written {
            note!("rtscope: a part of the record is not on disk: {why}");
        }
        let judged = record::judged(&finished.source, &Additions::default())?;
        judged.publish(folder)?;
        Ok(judged)
    }

    fn publish(&self, all: &TuneTrials) -> anyhow::Result<()> {
        let document = serde_json::to_string_pretty(all)? + "\n";
        record::write_in(&self.out, report::DOCUMENT, &document)?;
        let page = record::write_in(&self.out, "index.html", &report::page(all))?;
        if self.args.json {
            print(&document)?;
            note!("Report: {}", page.display());
            return Ok(());
        }
        print_folded(&report::text(all))?;
        print_folded(&format!("Report: {}\n", shown(&page)))
    }
}

/// The cells of one of the settings, or of the system as found. A cell that recorded nothing is left out.
fn cells(
    judged: &JudgedRecord,
    layout: &TrialPlan,
    of: Option<usize>,
    statistics: &[TrialStatistic],
) -> Vec<TrialCell> {
    let summaries = judged.judgement.cells.iter().filter(|cell| cell.all.recorded > 0);
    let of_cell = summaries.filter_map(|cell| {
        let planned = layout.cells.get(cell.cell as usize).filter(|planned| planned.tried == of)?;
        Some(TrialCell::of(planned.round, &planned.load, cell, &judged.record, statistics))
    });
    of_cell.collect()
}

/// What was better, all of it at once: of two values of one setting, the one that gained more.
fn best_together(tried: &[TriedSettings], trials: &[Trial]) -> Option<TriedSettings> {
    let mut better: Vec<(&TriedSettings, f64)> = tried
        .iter()
        .zip(trials)
        .filter(|(_, trial)| trial.effect == TrialEffect::Better)
        .map(|(tried, trial)| (tried, trial.gain()))
        .collect();
    better.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (one, _) in better {
        if one.settings.iter().all(|(name, value)| all.get(name).is_none_or(|known| known == value))
        {
            all.extend(one.settings.clone());
        }
    }
    (!all.is_empty()).then(|| TriedSettings::new(all))
}

/// What the user types to keep the settings.
fn apply_command(helpful: &TriedSettings) -> String {
    let quoted = |text: String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:@/".contains(c);
        if text.chars().all(is_plain) { text } else { format!("'{text}'") }
    };
    let words: Vec<String> =
        helpful.settings.iter().map(|(name, value)| quoted(format!("{name}={value}"))).collect();
    format!("rtscope tune apply --keep {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use rtscope_analyse::compare::trial::{TrialFigure, TrialRatio};

    use super::*;

    fn tried(text: &str) -> TriedSettings {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        TriedSettings::new(settings::read("", &words).expect("settings"))
    }

    /// A trial whose only figure changed so many times.
    fn trial(name: &str, effect: TrialEffect, ratio: f64) -> Trial {
        let change = TrialRatio { ratio, low: ratio, high: ratio };
        let figure = TrialFigure {
            load: "rest".to_owned(),
            statistic: "p99".to_owned(),
            is_share: false,
            found: 1.0,
            tried: ratio,
            change: Some(change),
            chance: None,
            differs: effect != TrialEffect::NotShown,
        };
        Trial { name: name.to_owned(), effect, blocks: 5, figures: vec![figure], costs: vec![] }
    }

    #[test]
    fn of_two_values_of_a_setting_the_better_one_goes_with_the_others() {
        let all = ["thp=never", "thp=madvise", "throttling=off", "timer-migration=off"].map(tried);
        let trials = [
            trial("a", TrialEffect::Better, 0.9),
            trial("b", TrialEffect::Better, 0.5),
            trial("c", TrialEffect::NotShown, 0.1),
            trial("d", TrialEffect::Better, 0.8),
        ];
        let best = best_together(&all, &trials).expect("three are better");
        assert_eq!(best.name, "thp=madvise timer-migration=off");
        assert_eq!(
            apply_command(&best),
            "rtscope tune apply --keep thp=madvise timer-migration=off"
        );
        assert_eq!(best_together(&all, &[trial("a", TrialEffect::Worse, 2.0)]), None);
    }
}
