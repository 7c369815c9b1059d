//! `rtscope run`: the main job.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::report::{self, terminal};
use rtscope_measure::{RunOptions, signals::Interrupt, tune};
use rtscope_model::{
    finding::{Finding, Weight},
    plan::Plan,
    verdict::Verdict,
};
use rtscope_sampler::GuestExpiries;
use rtscope_sys::tree::Tree;

use super::{compare, error_text, explain, print, shape, this_program, until};
use crate::{
    exit,
    output::{print_folded, shown, style},
    plans,
    record::{self, Additions, JudgedRecord},
    screen::{self, Show},
};

/// Run a plan, judge it, and write a page
///
/// Without a plan rtscope runs `quick`: 5 s at rest, 10 s under a message load, 5 s at rest, with one
/// FIFO thread on each CPU. `rtscope plan list` shows the other plans; a plan of your own is a TOML file.
///
/// A phase is a part of a plan during which the loads stay the same (or there are none). A cell is the set of figures of one phase. A
/// slice is what one thread counted in a short time of a cell, usually one second.
///
/// Examples:
///   rtscope run
///   rtscope run --require 'max < 200us' --require 'missed = 0'
///   rtscope run policies --scale 0.1 --out try
///   rtscope run osadl --cycles 100000
///   rtscope run my-plan.toml --cpus 3 --priority 80 --interval 200us
///   rtscope run --compare-with before --out after
///   rtscope run --explain --above 200us
///   rtscope run --until 'max < 200us once in 1h' --at-most 8h
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// A shipped plan's name, or a file; - is standard input [default: quick, or soak with --until]
    plan: Option<String>,
    /// Folder for the record and the page [default: rtscope-runs/PLAN-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Ignore this finding when computing the verdict. The report still lists it, and the record keeps
    /// the code; repeatable
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
    /// Compare this run with an earlier record afterwards, and write compare.html beside the report
    #[arg(long, value_name = "RUN")]
    compare_with: Option<String>,
    /// Print the verdict as one JSON document
    #[arg(long)]
    json: bool,
    /// Show nothing during the run, and at the end only the verdict with its reason and the path of the report. Without
    /// a requirement, also show the findings that would prevent a pass
    #[arg(short, long, conflicts_with = "live")]
    quiet: bool,
    /// Print lines during the run, including where each thread runs, and every finding
    #[arg(short, long, conflicts_with_all = ["quiet", "live"])]
    verbose: bool,
    /// Show a full-screen display during the run
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    explained: explain::OfRun,
    #[command(flatten)]
    shape: shape::Shape,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    measured(args, args.shaped(plans::DEFAULT, None)?)
}

impl Args {
    /// The plan that was named, or the default of the verb, as the options shape it; with frames if a verb has its own
    /// options for them.
    pub(super) fn shaped(&self, default: &str, network: Option<&str>) -> anyhow::Result<Plan> {
        self.shape.plan_with_frames(self.plan.as_deref(), default, network)
    }
}

/// Measures, judges, and writes the page.
pub(super) fn measured(args: &Args, plan: Plan) -> anyhow::Result<ExitCode> {
    if let Some(earlier) = &args.compare_with {
        // Before minutes are spent on a run that has nothing to be compared with.
        record::open(&compare::split(earlier).0, &Additions::default())?;
    }
    let interrupt = Interrupt::install_patient()?;
    let options = options(args.out.as_deref(), plan, interrupt);
    let show = match (args.live, args.quiet) {
        (true, _) => Show::Live,
        (_, true) => Show::Quiet,
        _ if args.verbose => Show::Verbose,
        _ => Show::Usual,
    };
    let mut screen = screen::open(show, &options.plan, &options.interrupt)?;
    let mut watched = until::Watched::new(&options.plan, &options.interrupt);
    let explained = args.explained.watch(&options.plan, &options.wall_clock);
    let finished = rtscope_measure::run(&options, &mut |stamped| {
        if let Some(claim) = watched.as_mut().and_then(|watched| watched.event(stamped)) {
            screen.claim(&claim);
        }
        if let Some(explained) = &explained {
            explained.see(&options.plan, stamped);
        }
        screen.event(stamped);
    });
    drop(screen);
    let mut finished = finished?;
    let explained = explained.map(|watched| explain::finish_run(watched, &options.folder));
    if let Some(Ok([record, _])) = &explained {
        finished.source.explain(record.clone());
    }

    let additions = Additions { require: Vec::new(), accept: args.accept.clone() };
    let judged = record::judged(&finished.source, &additions)?;
    let page = judged.publish(&options.folder);
    let whole = finished.not_written.is_none() && page.is_ok();
    if let Some(why) = &finished.not_written {
        note!(
            "rtscope: a part of the record is not on disk: {why}; the figures below cover everything that \
             was measured"
        );
    }
    print_result(args, &judged)?;
    match page {
        Ok(page) if !args.json => print(&format!("Report: {}\n", shown(&page)))?,
        Ok(page) => note!("Report: {}", page.display()),
        Err(e) => note!("rtscope: no page was written: {}", error_text(&e)),
    }
    match explained {
        Some(Ok([_, table])) if !args.json && !args.quiet => {
            let record = judged.record.explained.as_deref();
            let more = record.map(|explained| report::explain::of_run(&judged.record, explained));
            let more = more.unwrap_or_default().join("\n");
            print_folded(&format!("\n{table}{more}\n"))?;
        }
        Some(Err(e)) => note!("rtscope: late wake-ups can't be explained: {}", error_text(&e)),
        _ => {}
    }
    if let Some(earlier) = &args.compare_with
        && let Err(e) = compared(args, earlier, &options)
    {
        note!("rtscope: the runs can't be compared: {}", error_text(&e));
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

/// A run of this program.
pub(super) fn options(out: Option<&Path>, mut plan: Plan, interrupt: Interrupt) -> RunOptions {
    let findings = rtscope_measure::leave_out(&mut plan, &Tree::default()).into_iter().collect();
    let wall_clock = record::wall_clock();
    RunOptions {
        folder: out.map_or_else(|| record::fresh_folder(&plan.name, &wall_clock), Path::to_owned),
        plan,
        findings,
        tree: Tree::default(),
        journal: tune::journal_dir(),
        program: this_program(),
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall_clock,
        interrupt,
        unattended: rtscope_measure::watchdog::UNATTENDED,
        expiries: GuestExpiries::default(),
    }
}

fn print_result(args: &Args, judged: &JudgedRecord) -> anyhow::Result<()> {
    if args.json {
        print(&judged.json()?)
    } else if args.quiet {
        // Figures without a verdict must not look better than they are.
        let has_no_verdict = judged.judgement.verdict == Verdict::Measured;
        let is_told = |finding: &&Finding| {
            finding.code == tune::NOT_RESTORED || has_no_verdict && finding.weight > Weight::Warning
        };
        for finding in judged.judgement.findings.iter().filter(is_told) {
            note!("rtscope: {}", finding.line());
        }
        print_folded(&format!("{}\n", terminal::verdict_line(&judged.judgement)))
    } else {
        print(&judged.summary())
    }
}
