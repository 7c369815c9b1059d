//! `rtscope wave sweep`: the highest frequency of programs, at rest and under load.

use std::{io, path::PathBuf, process::ExitCode};

use rtscope_analyse::{
    number::exact_hertz,
    report::{published as report, wave::sweep as page},
    statistics::wave::sweep::{Curve, SearchRange, Sweep, SweepSearch, Try},
};
use rtscope_measure::{
    load::{Launcher, RunningLoad, check},
    signals::Interrupt,
    wave::{
        WaveError,
        bench::{Bench, Scratch, Seen},
        subject::{self, ShippedSubject, Subject},
    },
};
use rtscope_model::{load::LoadLine, time::Nanos};
use rtscope_sys::{sched, tree::Tree};

use super::{Hertz, PRIORITY, Share};
use crate::{
    cli::{
        Refused,
        place::{OneCpu, PolicyChoice, Scheduling},
        published::{self, Choice},
        this_program, wall_clock,
    },
    exit, output,
    record::Destination,
};

/// How long a load may last before the kernel ends it.
const LOAD_LIMIT: Nanos = Nanos::from_secs(24 * 3_600);

/// Find how fast programs can make a square wave, also under load
///
/// rtscope raises the requested frequency until the wave is out of tolerance, then bisects to find the
/// limit. Subjects are c, c-rt, cpp, rust, python and ada (or all of these), and the programs of a university course
/// (course-c, course-c-rt and course-python). A path to your own program is a subject, too: rtscope runs it as PROGRAM LINE
/// FREQUENCY. Most subjects need a compiler on this machine.
///
/// Examples:
///   rtscope wave sweep --subject all --quick
///   rtscope wave sweep --subject python --load cpu --policy other --policy fifo:49
///   rtscope wave sweep --subject course-c --load cpu --published course-lab
///   rtscope wave sweep --subject ./mine --subject rust --from 100Hz --to 100kHz
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// Subject to try: a name, a program's path, or all; repeatable
    #[arg(long, value_name = "SUBJECT", required = true)]
    subject: Vec<String>,
    /// Folder of subjects that were compiled before; the lab names it in a guest
    #[arg(long, value_name = "DIR", hide = true)]
    compiled: Option<PathBuf>,
    #[command(flatten)]
    tries: Tries,
    #[command(flatten)]
    published: Choice,
    /// Write the page to FILE; - is standard output [default: rtscope-runs/wave-sweep-TIME.html]
    #[arg(short, long, alias = "page", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What subjects are asked for.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Tries {
    /// First frequency
    #[arg(long, value_name = "FREQUENCY", default_value = "50Hz")]
    from: Hertz,
    /// Last frequency
    #[arg(long, value_name = "FREQUENCY", default_value = "1MHz")]
    to: Hertz,
    /// Permitted deviation of the measured from the requested frequency
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    tolerance: Share,
    /// Measure under this load too, for example cpu or 'message groups=2'; repeatable
    #[arg(long, value_name = "LOAD")]
    load: Vec<String>,
    /// Policy with which subjects start, for example other or fifo:49; repeatable [default: other]
    #[arg(long, value_name = "POLICY")]
    policy: Vec<PolicyChoice>,
    /// Use fewer steps and shorter captures; usually takes less than a minute
    #[arg(long)]
    quick: bool,
}

impl Tries {
    /// Refuses what makes no sense, before anything is done.
    pub(in crate::cli) fn check(&self) -> anyhow::Result<()> {
        if self.from.0 >= self.to.0 {
            return Err(Refused("--from must be below --to".to_owned()).into());
        }
        self.loads()?;
        self.policies().map(drop)
    }

    /// No load, and those that were asked for.
    fn loads(&self) -> anyhow::Result<Vec<Option<LoadLine>>> {
        let mut loads = vec![None];
        for text in &self.load {
            let line: LoadLine = text.parse().map_err(Refused)?;
            check(&line).map_err(|problem| Refused(problem.to_string()))?;
            loads.push(Some(line));
        }
        Ok(loads)
    }

    fn policies(&self) -> anyhow::Result<Vec<Scheduling>> {
        if self.policy.is_empty() {
            return Ok(vec![Scheduling::OTHER]);
        }
        let policies = self.policy.iter().map(|choice| Scheduling::new(*choice, PRIORITY));
        Ok(policies.collect::<Result<_, _>>()?)
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let out = Destination::new(args.out.as_deref(), "wave-sweep", "html");
    out.refuse_two(args.json)?;
    args.tries.check()?;
    // A mistake in a table is told before minutes are spent.
    args.published.entries("none")?;
    let scratch = Scratch::new()?;
    let words = with_all_in_full(&args.subject, subject::all());
    let program = std::env::current_exe().unwrap_or_else(|_| this_program());
    let subjects: Vec<Subject> = words
        .iter()
        .map(|word| Subject::prepare(word, &program, scratch.path(), args.compiled.as_deref()))
        .collect::<Result<_, _>>()?;
    let policies = args.tries.policies()?;
    let real_time = policies.iter().any(|policy| policy.policy.is_real_time())
        || words.iter().any(|word| word == "c-rt" || word == "course-c-rt");
    let bench = Bench::new(&OneCpu::default().or_last()?, real_time)?;
    let interrupt = Interrupt::install()?;
    let all = sched::affinity(sched::SELF)?;
    let launcher = Launcher::new(bench.cpus.clone(), all);
    let (mut curves, mut is_whole) = (Vec::new(), true);
    for line in &args.tries.loads()? {
        if interrupt.is_stopped() {
            break;
        }
        // It ends when it is dropped, at the end of this turn.
        let mut running = line.as_ref().map(|line| launcher.start(line, LOAD_LIMIT)).transpose()?;
        let load = line.as_ref().map_or_else(|| "none".to_owned(), LoadLine::to_string);
        for (subject, policy) in
            subjects.iter().flat_map(|one| policies.iter().map(move |p| (one, *p)))
        {
            if interrupt.is_stopped() {
                break;
            }
            let curve = curve(&args.tries, &bench, &interrupt, (subject, policy, &load))?;
            // What was measured since it ended was measured at rest.
            if let Some(ended) = running.as_mut().and_then(RunningLoad::poll) {
                note!(
                    "the load {load} ended during the search for {} ({}): rtscope leaves out this search and all \
                     later ones under this load",
                    subject.name,
                    ended.how
                );
                is_whole = false;
                break;
            }
            curves.push(curve);
        }
    }
    report(args, &out, &bench, curves)?;
    let is_done = is_whole && !interrupt.is_stopped();
    Ok(ExitCode::from(if is_done { exit::PASS } else { exit::ERROR }))
}

/// The subjects' words, with `all` in full: those that are there. The missing ones are told.
pub(in crate::cli) fn with_all_in_full(
    asked: &[String],
    (there, missing): (Vec<&str>, Vec<&ShippedSubject>),
) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in asked {
        if word == "all" {
            missing.iter().for_each(|shipped| note!("{}", shipped.lack()));
            words.extend(there.iter().map(|word| (*word).to_owned()));
        } else {
            words.push(word.clone());
        }
    }
    words
}

/// The search for one subject, policy and load.
fn curve(
    tries: &Tries,
    bench: &Bench,
    interrupt: &Interrupt,
    (subject, policy, load): (&Subject, Scheduling, &str),
) -> anyhow::Result<Curve> {
    let tolerance = tries.tolerance.0;
    let range = SearchRange::new(tries.from.0, tries.to.0, tolerance, tries.quick);
    let mut search = SweepSearch::new(range);
    let is_terminal = output::can_redraw(&io::stderr());
    while let Some(wanted_hz) = search.next_hz().filter(|_| !interrupt.is_stopped()) {
        if is_terminal {
            let hertz = exact_hertz(wanted_hz);
            output::progress(&format!("{} under {load}: {hertz}", subject.name));
        }
        let wanted = (wanted_hz, search.look_ns());
        search.add_try(match bench.look(&this_program(), subject, &policy, wanted) {
            Ok(Seen::Edges(capture)) => Try::judge(&capture, wanted_hz, tolerance),
            Ok(Seen::Counts(readings)) => Try::judge_count(&readings, wanted_hz, tolerance),
            Err(silent @ WaveError::NoEdge { .. }) => Try::silent(wanted_hz, silent.to_string()),
            Err(other) => return Err(other.into()),
        });
    }
    if is_terminal {
        output::progress("");
    }
    let (name, load, found) = (subject.name.clone(), load.to_owned(), search.found());
    Ok(Curve { name, load, policy: policy.to_string(), found })
}

fn report(args: &Args, out: &Destination, bench: &Bench, curves: Vec<Curve>) -> anyhow::Result<()> {
    let mut facts = bench.facts();
    facts.extend([
        ("subjects".to_owned(), format!("on CPU {}", bench.cpus)),
        (
            "tries".to_owned(),
            "3 to 5 of each frequency, as many again of the two at the limit".to_owned(),
        ),
        ("written".to_owned(), wall_clock()),
    ]);
    let tries = &args.tries;
    let (from_hz, to_hz, tolerance) = (tries.from.0, tries.to.0, tries.tolerance.0);
    let sweep = Sweep { from_hz, to_hz, tolerance, curves, facts };
    let published = args.published.entries("none")?;
    let release = Tree::default().read("proc/sys/kernel/osrelease").unwrap_or_default();
    let published = report::of_table(&published, &sweep.ours(published::whose(&release)));
    let document = || serde_json::to_string_pretty(&sweep.document(&published)?);
    let document = args.json.then(document).transpose()?;
    let page = page::page(&sweep, &published);
    out.publish(&page, document, || page::text(&sweep) + &report::text(&published))
}
