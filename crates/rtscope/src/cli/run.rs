//! `rtscope run`: the main job.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};

use rtscope_analyse::report::{
    self,
    terminal::{self, Style},
};
use rtscope_measure::{RunOptions, interrupt::Interrupt, tune};
use rtscope_model::{plan::Plan, time::Nanos, verdict::Requirement};
use rtscope_sys::tree::Tree;

use super::{Refused, compare, print, restore_leftovers, said, sampler, this_program, until};
use crate::{
    exit,
    output::{self, shown},
    plans,
    record::{self, Judged, Terms},
    screen::{self, Show},
};

/// Measure: run a plan, judge it, write a page
///
/// Without a plan rtscope runs `quick`: 5 s at rest, 10 s under a message load, 5 s at rest, with one
/// FIFO thread on each CPU. `rtscope plan list` shows the other plans; a plan of your own is a TOML file.
///
/// Examples:
///   rtscope run
///   rtscope run --require 'max < 200us' --require 'missed = 0'
///   rtscope run policies --scale 0.1 --out try
///   rtscope run osadl --cycles 100000
///   rtscope run my-plan.toml --cpus 3 --priority 80 --interval 200us
///   rtscope run --compare-with before --out after
///   rtscope run --until 'max < 200us once in 1h' --at-most 8h
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// A shipped plan's name, or a file [default: quick, or soak with --until]
    plan: Option<String>,
    /// Folder for the record and the page [default: rtscope-runs/PLAN-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Requirement for every phase, for example 'max < 200us', 'p99.99 < 50us', 'missed = 0'; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Ignore this finding when computing the verdict. The report still lists it, and the record keeps
    /// the code; repeatable
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
    /// Change a system setting for the run, for example throttling=off, and restore it afterwards;
    /// repeatable
    #[arg(long, value_name = "SETTING=VALUE")]
    set: Vec<String>,
    /// Multiply all durations and cycle counts by FACTOR
    #[arg(long, value_name = "FACTOR", conflicts_with = "duration", allow_hyphen_values = true)]
    scale: Option<f64>,
    /// Scale the whole plan to about this long
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Nanos>,
    /// End every phase when a thread has recorded this many activations, however long that takes
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with_all = ["duration", "scale"])]
    cycles: Option<u64>,
    /// Measure until this claim is backed or refuted with 95 % confidence, for example
    /// 'max < 200us once in 1h'. The plan must have one phase, which lasts as long as it takes
    #[arg(long, value_name = "CLAIM", conflicts_with_all = ["duration", "scale", "cycles"])]
    until: Option<Requirement>,
    /// Stop after this time even if the claim is still open
    /// [default: long enough to back the claim in spite of three exceedances]
    #[arg(long, value_name = "TIME", requires = "until")]
    at_most: Option<Nanos>,
    /// Compare this run with an earlier record afterwards, and write compare.html beside the report
    #[arg(long, value_name = "RUN")]
    compare_with: Option<String>,
    /// Print the verdict as one JSON document
    #[arg(long)]
    json: bool,
    /// Show nothing during the run, and only the verdict at the end
    #[arg(short, long, conflicts_with = "live")]
    quiet: bool,
    /// Show a full-screen display during the run
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    sampler: sampler::Options,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    restore_leftovers();
    let plan = plan(args)?;
    if let Some(earlier) = &args.compare_with {
        // Before minutes are spent on a run that has nothing to be compared with.
        record::open(&compare::split(earlier).0, &Terms::default())?;
    }
    let interrupt = Interrupt::install_patient()?;
    let options = options(args, plan, interrupt);
    let show = match (args.live, args.quiet) {
        (true, _) => Show::Live,
        (_, true) => Show::Quiet,
        _ => Show::Usual,
    };
    let mut screen = screen::open(show, &options.plan, &options.interrupt)?;
    let mut watched = until::Watched::new(&options.plan, &options.interrupt);
    let finished = rtscope_measure::run(&options, &mut |stamped| {
        if let Some(claim) = watched.as_mut().and_then(|watched| watched.event(stamped)) {
            screen.claim(&claim);
        }
        screen.event(stamped);
    });
    drop(screen);
    let finished = finished?;

    let terms = Terms { require: Vec::new(), accept: args.accept.clone() };
    let judged = record::judged(&finished.source, &terms)?;
    let page = judged.publish(&options.folder);
    let whole = finished.not_written.is_none() && page.is_ok();
    if let Some(why) = &finished.not_written {
        note!(
            "rtscope: a part of the record is not on disk: {why}; the figures below are made of all that \
             was measured"
        );
    }
    tell(args, &judged)?;
    match page {
        Ok(page) if !args.json => print(&format!("Report: {}\n", shown(&page)))?,
        Ok(page) => note!("Report: {}", page.display()),
        Err(e) => note!("rtscope: no page was written: {}", said(&e)),
    }
    if let Some(earlier) = &args.compare_with
        && let Err(e) = compared(args, earlier, &options)
    {
        note!("rtscope: the runs can't be compared: {}", said(&e));
    }
    Ok(exit::of_record(&judged.judgement, whole))
}

/// What changed from an earlier run to this one.
fn compared(args: &Args, earlier: &str, options: &RunOptions) -> anyhow::Result<()> {
    let this = options.folder.display().to_string();
    let comparison = compare::between(&[earlier.to_owned()], &[this], &[], &[])?;
    let page = options.folder.join("compare.html");
    compare::write_page(&comparison, &page)?;
    if args.json || args.quiet {
        note!("Comparison: {}", page.display());
        return Ok(());
    }
    print(&format!("\n{}\n", report::compare::text(&comparison, style())))?;
    print(&format!("Comparison: {}\n", shown(&page)))
}

fn options(args: &Args, plan: Plan, interrupt: Interrupt) -> RunOptions {
    let wall_clock = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    RunOptions {
        folder: args.out.clone().unwrap_or_else(|| record::fresh_folder(&plan.name, &wall_clock)),
        plan,
        tree: Tree::default(),
        journal: tune::journal_dir(),
        program: this_program(),
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall_clock,
        interrupt,
        unattended: rtscope_measure::UNATTENDED,
    }
}

/// The plan with what the command line changes.
fn plan(args: &Args) -> anyhow::Result<Plan> {
    let default = if args.until.is_some() { plans::DEFAULT_UNTIL } else { plans::DEFAULT };
    let mut plan = plans::load(args.plan.as_deref().unwrap_or(default))?;
    let patch = args.sampler.patch()?;
    plan.patch_sampler(&patch);
    if let Some(refusal) = plan.refusals(&patch).into_iter().next() {
        return Err(Refused(refusal).into());
    }
    match (args.scale, args.duration) {
        (Some(factor), _) if !(factor.is_finite() && factor > 0.0) => {
            return Err(Refused(format!("--scale {factor}: write a factor above 0, as 0.1")).into());
        }
        (Some(factor), _) => plan.scale(factor),
        (None, Some(Nanos::ZERO)) => {
            return Err(Refused("--duration 0: nothing to measure".to_owned()).into());
        }
        (None, Some(duration)) => plan.scale_to(duration),
        (None, None) => {}
    }
    match args.cycles {
        Some(0) => return Err(Refused("--cycles 0: nothing to measure".to_owned()).into()),
        Some(cycles) => plan.end_by_cycles(cycles),
        None => {}
    }
    if let Some(claim) = args.until {
        until::prolong(&mut plan, claim, args.at_most)?;
    }
    if let Some(why) = plan.too_long() {
        return Err(Refused(why).into());
    }
    plan.require.extend(&args.require);
    let mut given = BTreeSet::new();
    for setting in &args.set {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| Refused(format!("--set {setting}: write it as throttling=off")))?;
        tune::check(name, value)
            .map_err(|problem| Refused(format!("--set {setting}: {problem}")))?;
        if !given.insert(name) {
            let text = format!("--set {setting}: {name} is set twice; leave one out");
            return Err(Refused(text).into());
        }
        plan.settings.insert(name.to_owned(), value.to_owned());
    }
    Ok(plan)
}

/// How standard output shows text.
pub(super) fn style() -> Style {
    let colour = output::has_attributes(&io::stdout());
    let width = ratatui::crossterm::terminal::size().map_or(100, |(columns, _)| columns);
    let width = if io::stdout().is_terminal() { usize::from(width) } else { 100 };
    Style { width, colour }
}

/// The verdict on standard output, in the form that was asked.
pub(super) fn summary(judged: &Judged) -> String {
    terminal::summary(&judged.judgement, &judged.record, style())
}

fn tell(args: &Args, judged: &Judged) -> anyhow::Result<()> {
    if args.json {
        print(&judged.json()?)
    } else if args.quiet {
        print(&format!("{}\n", judged.judgement.verdict))
    } else {
        print(&summary(judged))
    }
}
