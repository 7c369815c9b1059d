//! `rtscope tune try`: settings measured in turn with the system as it was found.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::{
    compare::trial::{
        TrialCell, TrialSide, TrialStatistic, best_together, is_left_out, is_usable,
        measured_blocks, trials,
    },
    doctor::Purpose,
    number::counted,
    report::trials::{self as report, NotTried, TrialSeries, TuneTrials},
};
use rtscope_measure::{RunError, doctor as measure, signals::Interrupt, tune};
use rtscope_model::{
    doctor::SettingValue,
    event::Event,
    finding::{Finding, Weight},
    plan::{
        CpuChoice, Plan,
        trial::{AS_FOUND, TrialPlan, TriedSettings},
    },
    text::shell_word,
    time::Nanos,
    verdict::Statistic,
};
use rtscope_sys::tree::Tree;

use super::{settings, suggest};
use crate::{
    cli::{doctor, print, run, shape},
    exit,
    failure::{Refused, error_text},
    output::{print_folded, shown},
    plans,
    record::{self, Additions, JudgedRecord},
    screen::{self, Show},
};

/// Find out which settings shorten wake-up latencies
///
/// rtscope measures the system as found and each setting in turn, in several rounds, under each load of the plan. Then
/// it applies all settings that helped, all at once, and measures once more. For each setting it says better, worse, or
/// no difference shown. The answer allows for the number of figures that were compared, so that settings without any
/// effect are called better or worse in at most 5 % of trials. It also says what each setting costs: work of the loads,
/// and power if the machine shows it.
///
/// Each setting is restored after its turn. Nothing stays changed; the last line names the command that applies what
/// helped. Without --try, rtscope tries the settings that `rtscope tune suggest` names and that can be changed while
/// the system runs.
///
/// rtscope compares p99, or the figures that --require names. With `max < 200us` it compares how often a latency
/// reaches 200 us.
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
    /// Purpose of the machine, which decides what doctor suggests if there is no --try
    #[arg(long = "for", value_name = "PURPOSE", default_value = rtscope_analyse::doctor::PURPOSES[0].name, value_parser = doctor::Names)]
    purpose: &'static Purpose,
    /// Time for the whole trial, for example 20min
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
    /// Show nothing while rtscope measures
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    shape: shape::Shape,
}

/// Suggestions that are tried: more of them need a larger budget, or show less.
const TRIED_MOST: usize = 8;

/// Share of the budget in which settings are measured alone, in percent; what helped has the rest. A single setting is
/// measured twice in the same way.
fn alone_percent(tried: usize) -> u64 {
    if tried == 1 { 50 } else { 60 }
}

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
                let text = format!("--try {} is given twice: leave one out", tried.name);
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
    refuse_frames(&plan)?;
    let first = lay_out(&plan, &tried, args.budget)?;
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
        let text = "doctor found no problem here that a setting would fix: name settings, for example --try throttling=off";
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

/// Refuses to compare frames of a plan that sends none: nothing would be compared.
pub(in crate::cli) fn refuse_frames(plan: &Plan) -> anyhow::Result<()> {
    let of_frames = |statistic| matches!(statistic, Statistic::Late | Statistic::Lost);
    let required = plan.require.iter().find(|one| of_frames(one.statistic));
    let sends = plan.phases.iter().all(|phase| phase.sampler.network.path().is_some());
    match required {
        Some(one) if !sends => Err(Refused(format!(
            "{one}: {} needs frames, but the plan {} has phases that send none: require `missed`, `max` or a quantile, \
             or name a plan that sends frames in each phase",
            one.statistic, plan.name
        ))
        .into()),
        _ => Ok(()),
    }
}

/// The shortest budget in which so many settings can be measured alone, and what helped once more, in whole seconds.
fn shortest(plan: &Plan, tried: usize) -> Nanos {
    let whole = |tried: usize, percent: u64| {
        TrialPlan::shortest(plan, tried).0.div_ceil(percent).saturating_mul(100)
    };
    let percent = alone_percent(tried);
    let needed = Nanos(whole(tried, percent).max(whole(1, 100 - percent)));
    Nanos::from_secs(needed.0.div_ceil(Nanos::from_secs(1).0))
}

/// Lays out the trials of each setting alone. What is left of the budget is enough for those of what helped.
fn lay_out(plan: &Plan, tried: &[TriedSettings], budget: Nanos) -> anyhow::Result<TrialPlan> {
    let whole = shortest(plan, tried.len());
    let part = Nanos(budget.0 / 100 * alone_percent(tried.len()));
    let layout = TrialPlan::new(plan, tried, part).ok().filter(|_| budget >= whole);
    layout.ok_or_else(|| {
        let text = format!(
            "{} under the loads of {} needs {whole} or more: raise --budget to {}s, or try fewer settings",
            counted(tried.len() as u64, "setting"),
            plan.name,
            whole.0 / Nanos::from_secs(1).0
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
        "{} of {}, {} per cell. A round measures each line below under {}. That takes about {}. Then rtscope measures \
         once more what helped. The whole trial takes at most {budget}.",
        counted(trial.rounds, "round"),
        counted(trial.cells.len() as u64 / trial.rounds.max(1), "cell"),
        trial.cell,
        distinct.join(" and under "),
        trial.plan.expected()
    );
    let _ = writeln!(text, "  {AS_FOUND}");
    for one in tried {
        let state = match changes(&one.settings) {
            Ok(0) => " (already set: it will not be tried)".to_owned(),
            Ok(_) => String::new(),
            Err(why) => format!(" ({why}: it will not be tried)"),
        };
        let _ = writeln!(text, "  {}{state}", one.name);
    }
    print_folded(&text)?;
    Ok(ExitCode::from(exit::PASS))
}

/// How many files settings would change, as far as that is known without changing any.
fn changes(settings: &BTreeMap<String, String>) -> Result<usize, tune::TuneError> {
    let proposal = tune::propose(&Tree::default(), &tune::journal_dir(), settings)?;
    Ok(proposal.changes.len())
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
            Ok(0) => "it is already set".to_owned(),
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
        mut not_tried: Vec<NotTried>,
    ) -> anyhow::Result<TuneTrials> {
        let budget = self.args.budget;
        let layout = lay_out(&self.plan, tried, budget)?;
        let (alone, kernel) = self.series(&layout, tried, "alone")?;
        let join = |all: &TriedSettings, one: &TriedSettings| {
            joined(all, one, |settings| changes(settings).is_ok())
        };
        let name = |one: &TriedSettings| one.name.clone();
        let helpful = best_together(tried, &alone.trials, name, join);
        let together = match &helpful {
            Some(helpful) if !self.interrupt.is_stopped() => {
                let rest = Nanos(budget.0.saturating_sub(layout.plan.expected().0));
                // What goes wrong now must not lose what was measured before.
                self.again(helpful, rest).map_err(|why| not_tried.push(why)).ok()
            }
            _ => None,
        };
        let mut all = TuneTrials {
            format: report::FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: self.plan.name.clone(),
            kernel,
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

    /// Measures what helped once more.
    fn again(&self, helpful: &TriedSettings, rest: Nanos) -> Result<TrialSeries, NotTried> {
        let tried = std::slice::from_ref(helpful);
        let measure = || {
            let layout = TrialPlan::new(&self.plan, tried, rest).map_err(|needed| {
                anyhow::anyhow!("the budget has {rest} left, but this needs {needed}")
            })?;
            Ok(self.series(&layout, tried, "together")?.0)
        };
        measure().map_err(|error: anyhow::Error| {
            let why = format!("it was not measured again: {}", error_text(&error));
            NotTried { name: helpful.name.clone(), why }
        })
    }

    /// Measures settings in turn, and compares each with the system as found; with the kernel's release.
    fn series(
        &self,
        layout: &TrialPlan,
        tried: &[TriedSettings],
        name: &str,
    ) -> anyhow::Result<(TrialSeries, String)> {
        let folder = self.out.join(name);
        let (judged, failure) = self.run(&layout.plan, &folder)?;
        let statistics = TrialStatistic::of(&self.plan.require);
        let side = |of: Option<usize>, name: &str| TrialSide {
            name: name.to_owned(),
            cells: cells(&judged, layout, of, &statistics),
        };
        let found = side(None, AS_FOUND);
        let sides: Vec<TrialSide> =
            (0..).zip(tried).map(|(nth, one)| side(Some(nth), &one.name)).collect();
        let left_out = judged.judgement.cells.iter().filter(|cell| is_left_out(cell));
        let mut series = TrialSeries {
            record: shown(&folder),
            blocks: measured_blocks(&found, &sides),
            cell_ns: layout.cell.0,
            cells_left_out: left_out.count() as u64,
            findings: failure.into_iter().collect(),
            trials: trials(&found, &sides, &statistics, 1.0),
        };
        series.add_findings(&judged.judgement.findings);
        let kernel = judged.record.before.as_ref().map(|found| found.kernel.release.clone());
        Ok((series, kernel.unwrap_or_default()))
    }

    /// Runs a plan; also why the run failed, where it had measured something by then.
    fn run(&self, plan: &Plan, folder: &Path) -> anyhow::Result<(JudgedRecord, Option<Finding>)> {
        let options = run::options(Some(folder), plan.clone(), self.interrupt.clone());
        let show = if self.args.quiet { Show::Quiet } else { Show::Usual };
        let mut screen = screen::open(show, &options.plan, &options.interrupt)?;
        let finished = rtscope_measure::run(&options, &mut |stamped| screen.event(stamped));
        drop(screen);
        let (judged, failure) = match finished {
            Ok(finished) => {
                if let Some(why) = &finished.not_written {
                    note!("rtscope: a part of the record is not on disk: {why}");
                }
                (record::judged(&finished.source, &Additions::default())?, None)
            }
            Err(error) => {
                let (judged, failure) = judged_after(folder, error)?;
                (judged, Some(failure))
            }
        };
        judged.publish(folder)?;
        Ok((judged, failure))
    }

    fn publish(&self, all: &TuneTrials) -> anyhow::Result<()> {
        let document = serde_json::to_string_pretty(all)? + "\n";
        record::write_in(&self.out, report::DOCUMENT, &document)?;
        let page = record::write_in(&self.out, "index.html", report::page(all))?;
        if self.args.json {
            print(&document)?;
            note!("Report: {}", page.display());
            return Ok(());
        }
        print_folded(&report::text(all))?;
        print_folded(&format!("Report: {}\n", shown(&page)))
    }
}

/// What a run recorded before it failed.
///
/// # Errors
///
/// The run's, where it measured nothing.
fn judged_after(folder: &Path, error: RunError) -> anyhow::Result<(JudgedRecord, Finding)> {
    let judged = match record::is_one(folder) {
        true => record::open(folder, &Additions::default()).ok(),
        false => None,
    };
    match judged.filter(|it| it.judgement.cells.iter().any(|cell| cell.all.recorded > 0)) {
        None => Err(error.into()),
        Some(judged) => {
            let text = format!("the trial ended early: {}", error_text(&error.into()));
            Ok((judged, Finding::new("trial-failed", Weight::PreventsPass, text)))
        }
    }
}

/// The cells of one of the settings, or of the system as found.
fn cells(
    judged: &JudgedRecord,
    layout: &TrialPlan,
    of: Option<usize>,
    statistics: &[TrialStatistic],
) -> Vec<TrialCell> {
    let summaries = judged.judgement.cells.iter().filter(|cell| is_usable(cell));
    let of_cell = summaries.filter_map(|cell| {
        let planned = layout.cells.get(cell.cell as usize).filter(|planned| planned.tried == of)?;
        Some(TrialCell::of(planned.round, &planned.load, cell, &judged.record, statistics))
    });
    of_cell.collect()
}

/// Two that were better as one; none where they give a setting two values, or where they can't be applied together.
fn joined(
    all: &TriedSettings,
    one: &TriedSettings,
    can_apply: impl Fn(&BTreeMap<String, String>) -> bool,
) -> Option<TriedSettings> {
    let agrees = |(name, value): (&String, &String)| {
        all.settings.get(name).is_none_or(|known| known == value)
    };
    let mut settings = all.settings.clone();
    settings.extend(one.settings.clone());
    (one.settings.iter().all(agrees) && can_apply(&settings)).then(|| TriedSettings::new(settings))
}

/// What the user types to have the settings: kept, where they outlive the process that changes them.
fn apply_command(helpful: &TriedSettings) -> String {
    let words: Vec<String> = helpful
        .settings
        .iter()
        .map(|(name, value)| shell_word(&format!("{name}={value}")))
        .collect();
    let ends_with_process = tune::SETTINGS
        .iter()
        .any(|one| one.needs_its_process() && helpful.settings.contains_key(one.name));
    match ends_with_process {
        true => format!("rtscope tune apply {} -- COMMAND", words.join(" ")),
        false => format!("rtscope tune apply --keep {}", words.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::plan;

    use super::*;

    fn tried(text: &str) -> TriedSettings {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        TriedSettings::new(settings::read("", &words).expect("settings"))
    }

    fn base(require: &str) -> Plan {
        let text = format!(
            "name = 'base'\nrequire = [{require}]\n[[phase]]\nname = 'rest'\nduration = '5s'\n\
             [[phase]]\nname = 'busy'\nduration = '5s'\nload = ['message groups=1']\n"
        );
        plan::parse("base", &text).expect("a plan")
    }

    #[test]
    fn settings_that_set_the_same_are_not_joined() {
        let (state, latency) = (tried("idle-state=0"), tried("idle-latency=9"));
        let clash = |settings: &BTreeMap<String, String>| {
            !(settings.contains_key("idle-state") && settings.contains_key("idle-latency"))
        };
        assert_eq!(joined(&state, &latency, clash), None);
        assert_eq!(joined(&tried("thp=never"), &tried("thp=madvise"), |_| true), None);
        let all = joined(&state, &tried("thp=never"), clash).expect("they go together");
        assert_eq!(all, tried("thp=never idle-state=0"));
    }

    /// `--keep` refuses what lasts only as long as its process, and a quote ended the quoted word.
    #[test]
    fn the_printed_command_can_be_typed() {
        let command = |text: &str| apply_command(&tried(text));
        assert_eq!(
            command("timer-migration=off thp=never"),
            "rtscope tune apply --keep thp=never timer-migration=off"
        );
        assert_eq!(
            command("thp=never dma-latency=0"),
            "rtscope tune apply dma-latency=0 thp=never -- COMMAND"
        );
        let settings = BTreeMap::from([("irq-affinity".to_owned(), "0@it's".to_owned())]);
        assert_eq!(
            apply_command(&TriedSettings::new(settings)),
            r"rtscope tune apply --keep 'irq-affinity=0@it'\''s'"
        );
    }

    /// A budget that the first series needed alone was taken, and refused by the second one after all was measured.
    #[test]
    fn the_budget_that_is_asked_for_is_enough_for_both_series() {
        let plan = base("");
        for count in 1..=5usize {
            let all: Vec<TriedSettings> =
                (0..count).map(|nth| tried(&format!("stat-interval={}", nth + 1))).collect();
            let needed = shortest(&plan, count);
            let first = lay_out(&plan, &all, needed).expect("enough");
            let rest = Nanos(needed.0 - first.plan.expected().0);
            assert!(TrialPlan::new(&plan, &all[..1], rest).is_ok(), "{count}: {rest}");
            let error = lay_out(&plan, &all, Nanos(needed.0 - 1)).expect_err("too short");
            let error = error.to_string();
            let typed = error.split_once("--budget to ").expect("what to type").1;
            let typed = typed.split_once(',').expect("an alternative").0;
            assert_eq!(typed.parse::<Nanos>(), Ok(needed), "{error}");
        }
    }

    #[test]
    fn frames_are_required_only_of_a_plan_that_sends_some() {
        assert!(refuse_frames(&base("'max < 1ms', 'missed = 0'")).is_ok());
        let error = refuse_frames(&base("'lost = 0'")).expect_err("no frames").to_string();
        assert!(error.starts_with("lost = 0: lost needs frames"), "{error}");
        let network = plans::load("network").expect("a shipped plan");
        assert!(refuse_frames(&network).is_ok());
    }
}
