//! `rtscope wave sweep`: the highest frequency of programs, at rest and under load.

use std::{
    fmt::Write as _,
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use anyhow::Context;
use rtscope_analyse::{
    number,
    report::wave::sweep as page,
    statistics::wave::{
        counted, judge,
        sweep::{Curve, Outcome, Point, Search, SearchRange, Sweep},
    },
};
use rtscope_measure::{
    interrupt::Interrupt,
    load::{Launcher, check},
    wave::{
        WaveError, count, line, scope,
        seat::{self, Seat},
        subject::{self, Running, Shipped, Subject},
    },
};
use rtscope_model::{load::LoadLine, schedule::Placement, time::Nanos};
use rtscope_sys::{clock::SystemClock, line::MemoryLine, sched, tree::Tree};

use super::{Hertz, PRIORITY, Share, capture::GAPS_MAX, show::hertz};
use crate::{
    cli::{
        Refused,
        place::{OneCpu, PolicyChoice, Scheduling},
        this_program, wall_clock,
    },
    exit, output,
    record::Destination,
};

/// Room for edges of one try: 8 MB.
const EDGES_MAX: usize = 1_000_000;

/// How long a load may outlive the sweep before the kernel ends it.
const LOAD_LIMIT: Nanos = Nanos::from_secs(3_600);

/// After this time the kernel ends a subject of one try.
const SUBJECT_LIMIT: &str = "30s";

/// Longer than a subject takes to start and end.
const START_LIMIT: Nanos = Nanos::from_secs(10);

/// Between the first edge and the first look.
const SETTLE: Duration = Duration::from_millis(20);

/// Find how fast programs can make a square wave, also under load
///
/// rtscope raises the requested frequency until the wave is out of tolerance, then bisects to find the
/// limit. Subjects: c, c-rt, cpp, rust, python, ada (compiled with the compiler found here), or the path of
/// your own program, which is run as PROGRAM LINE FREQUENCY.
///
/// Examples:
///   rtscope wave sweep --subject all --quick
///   rtscope wave sweep --subject python --load cpu --policy other --policy fifo:49
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

/// What stays the same in all tries.
struct Bench<'a> {
    args: &'a Args,
    line: MemoryLine,
    name: String,
    scope: Scope,
    /// The CPU of the subjects.
    cpu: String,
    interrupt: Interrupt,
}

/// Who sees the wave.
enum Scope {
    /// A thread on a CPU of its own, which looks at the line all the time.
    Looks {
        /// Where it looks from.
        seat: Seat,
        /// The same beside a subject that is a real-time thread, where there is no third CPU.
        modest: Seat,
    },
    /// A thread on the subject's CPU, the only one, which reads the line's own count now and then.
    Counts(Placement),
}

impl Scope {
    /// For people: name and value.
    fn facts(&self) -> Vec<(String, String)> {
        let fact = |name: &str, value: String| (name.to_owned(), value);
        match self {
            Scope::Looks { seat, modest } => vec![
                fact("scope", seat.text()),
                fact("scope beside a real-time subject", modest.text()),
            ],
            Scope::Counts(place) => vec![fact(
                "scope",
                format!("{place}, reads the count of edges that the subject keeps: one CPU only"),
            )],
        }
    }
}

/// A folder of our own that goes when we do.
pub(in crate::cli) struct Scratch(PathBuf);

impl Scratch {
    pub(in crate::cli) fn path(&self) -> &Path {
        &self.0
    }

    pub(in crate::cli) fn new() -> anyhow::Result<Scratch> {
        let folder = std::env::temp_dir().join(format!("rtscope-subjects-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let out = Destination::new(args.out.as_deref(), "wave-sweep", "html");
    out.refuse_two(args.json)?;
    args.tries.check()?;
    let scratch = Scratch::new()?;
    let program = std::env::current_exe().unwrap_or_else(|_| this_program());
    let subjects: Vec<Subject> = with_all_in_full(&args.subject, subject::all())
        .iter()
        .map(|word| Subject::prepare(word, &program, &scratch.0, args.compiled.as_deref()))
        .collect::<Result<_, _>>()?;
    let bench = bench(args)?;
    let policies = args.tries.policies()?;
    let all = sched::affinity(sched::SELF)?;
    let launcher = Launcher::new(bench.cpu.parse()?, all);
    let mut curves = Vec::new();
    for load in &args.tries.loads()? {
        // It ends when it is dropped, at the end of this turn.
        let _running = load.as_ref().map(|line| launcher.start(line, LOAD_LIMIT)).transpose()?;
        let load = load.as_ref().map_or_else(|| "none".to_owned(), LoadLine::to_string);
        for subject in &subjects {
            for policy in &policies {
                if bench.interrupt.is_stopped() {
                    break;
                }
                curves.push(curve(&bench, subject, *policy, &load)?);
            }
        }
    }
    fs::remove_file(bench.line.path()).ok();
    report(args, &out, &bench, curves)?;
    Ok(ExitCode::from(if bench.interrupt.is_stopped() { exit::ERROR } else { exit::PASS }))
}

/// The subjects' words, with `all` in full: those that are there. The missing ones are told.
pub(in crate::cli) fn with_all_in_full(
    asked: &[String],
    (there, missing): (Vec<&str>, Vec<&Shipped>),
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

fn bench(args: &Args) -> anyhow::Result<Bench<'_>> {
    let allowed = sched::affinity(sched::SELF)?;
    let eyes = OneCpu::default().or_last()?;
    let throttling =
        Tree::default().read("proc/sys/kernel/sched_rt_runtime_us").unwrap_or_default();
    let real_time = args.tries.policy.iter().any(|policy| policy.policy.is_real_time());
    if throttling == "-1"
        && (real_time
            || with_all_in_full(&args.subject, subject::all()).iter().any(|word| word == "c-rt"))
    {
        let why = "real-time throttling is off, and a subject that never sleeps would keep its CPU from \
                   everything else: switch it on (kernel.sched_rt_runtime_us = 950000)";
        return Err(Refused(why.to_owned()).into());
    }
    let (cpu, scope) = match allowed.without(&eyes).iter().next() {
        Some(cpu) => {
            let seat = Seat::best(&eyes, &Tree::default());
            let modest = if allowed.len() > 2 { seat.clone() } else { seat.modest() };
            (cpu.to_string(), Scope::Looks { seat, modest })
        }
        None => {
            let place = seat::counting(&eyes).ok_or_else(|| {
                let why = "with one CPU the scope must be a real-time thread above the subject: run it as \
                           root, or raise RLIMIT_RTPRIO to 99";
                Refused(why.to_owned())
            })?;
            (eyes.to_string(), Scope::Counts(place))
        }
    };
    let short = format!("sweep-{}", std::process::id());
    Ok(Bench {
        args,
        line: line::open_memory(&short)?,
        name: format!("memory:{short}"),
        scope,
        cpu,
        interrupt: Interrupt::install()?,
    })
}

/// The search for one subject, policy and load.
fn curve(
    bench: &Bench<'_>,
    subject: &Subject,
    policy: Scheduling,
    load: &str,
) -> anyhow::Result<Curve> {
    let (args, quick) = (&bench.args.tries, bench.args.tries.quick);
    let mut search = Search::new(SearchRange {
        from_hz: args.from.0,
        to_hz: args.to.0,
        tolerance: args.tolerance.0,
        steps: if quick { 2 } else { 4 },
        bisections: if quick { 3 } else { 5 },
        tries: 5,
    });
    let is_terminal = output::can_redraw(&io::stderr());
    while let Some(wanted_hz) = search.next_hz().filter(|_| !bench.interrupt.is_stopped()) {
        if is_terminal {
            let hertz = hertz(wanted_hz);
            output::progress(&format!("{} under {load}: {hertz}", subject.name));
        }
        // A blind look is repeated, and looks longer.
        let look_ns = look_ns(wanted_hz, quick) * u64::from(1 + search.blinds());
        search.add_try(attempt(bench, &Try { subject, policy, wanted_hz, look_ns })?);
    }
    if is_terminal {
        output::progress("");
    }
    let (name, load, found) = (subject.name.clone(), load.to_owned(), search.found());
    Ok(Curve { name, load, policy: policy.to_string(), found })
}

/// What is tried.
struct Try<'a> {
    subject: &'a Subject,
    policy: Scheduling,
    wanted_hz: f64,
    look_ns: u64,
}

/// One try: starts the subject, looks, ends it.
fn attempt(bench: &Bench<'_>, one: &Try<'_>) -> anyhow::Result<Point> {
    let seen = match &bench.scope {
        Scope::Looks { seat, modest } => look(bench, one, (seat, modest)),
        // Above the subject, or one that never sleeps would keep it from being started, seen and ended.
        Scope::Counts(place) => {
            scope::at_place(place, Nanos(one.look_ns + START_LIMIT.0), || count(bench, one))
        }
    };
    match seen {
        Err(silent @ WaveError::NoEdge { .. }) => Ok(without_wave(one.wanted_hz, &silent)),
        other => Ok(other?),
    }
}

/// Starts a subject, which has settled then.
fn start(bench: &Bench<'_>, one: &Try<'_>) -> Result<Running, WaveError> {
    let mut command = Command::new(this_program());
    command
        .arg0("rtscope")
        .args(["wave-subject", "--parent", &std::process::id().to_string()])
        .args([
            "--limit",
            SUBJECT_LIMIT,
            "--cpus",
            &bench.cpu,
            "--policy",
            &one.policy.to_string(),
            "--",
        ])
        .args(one.subject.command(&bench.name, one.wanted_hz));
    let running = Running::start(&one.subject.name, &mut command, &bench.line)?;
    thread::sleep(SETTLE);
    Ok(running)
}

/// A try that is looked at from another CPU.
fn look(
    bench: &Bench<'_>,
    one: &Try<'_>,
    (seat, modest): (&Seat, &Seat),
) -> Result<Point, WaveError> {
    let wanted_hz = one.wanted_hz;
    let mut running = start(bench, one)?;
    let seat = if running.is_real_time(&Tree::default()) { modest } else { seat };
    let limits = scope::CaptureLimits {
        duration_ns: one.look_ns,
        edges_max: EDGES_MAX,
        gaps_max: GAPS_MAX,
        rest: seat.rest,
    };
    let clock = SystemClock::MONOTONIC;
    let capture = scope::capture(&bench.line, &bench.name, &seat.place, &clock, limits)?;
    running.check()?;
    drop(running);
    let wave = judge(&capture, Some(wanted_hz));
    let outcome = Outcome::of(&capture, &wave, wanted_hz, bench.args.tries.tolerance.0);
    Ok(Point {
        wanted_hz,
        measured_hz: wave.frequency_hz,
        uncertainty_ppm: wave.uncertainty_ppm,
        within: outcome == Outcome::Within,
        outcome,
        edges: wave.edges,
        lost: wave.lost,
        blind_ns: wave.blind_ns,
        jitter_ns_rms: wave.period.map(|period| period.jitter_ns_rms),
        refused: wave.refused,
    })
}

/// A try whose edges the subject counts, on the only CPU.
fn count(bench: &Bench<'_>, one: &Try<'_>) -> Result<Point, WaveError> {
    let wanted_hz = one.wanted_hz;
    let mut running = start(bench, one)?;
    let parts = counted::parts(one.look_ns, wanted_hz);
    let readings = count::watch(&bench.line, &SystemClock::MONOTONIC, one.look_ns, parts);
    running.check()?;
    drop(running);
    let wave = counted::judge(&readings, wanted_hz, bench.args.tries.tolerance.0);
    let is_counted = readings.last().is_some_and(|last| last.changes > 0);
    let outcome = match is_counted {
        true => Outcome::of_count(&wave, wanted_hz, bench.args.tries.tolerance.0),
        false => Outcome::Blind,
    };
    let why = "it doesn't count its changes, and with one CPU nothing else shows them";
    Ok(Point {
        wanted_hz,
        measured_hz: wave.frequency_hz,
        uncertainty_ppm: (wave.edges > 0).then(|| 1e6 / wave.edges as f64),
        within: outcome == Outcome::Within,
        outcome,
        edges: wave.edges,
        lost: None,
        blind_ns: 0,
        jitter_ns_rms: None,
        refused: (!is_counted).then(|| why.to_owned()),
    })
}

/// A try of a subject that made no edge.
fn without_wave(wanted_hz: f64, why: &WaveError) -> Point {
    Point {
        wanted_hz,
        measured_hz: None,
        uncertainty_ppm: None,
        within: false,
        outcome: Outcome::Silent,
        edges: 0,
        lost: None,
        blind_ns: 0,
        jitter_ns_rms: None,
        refused: Some(why.to_string()),
    }
}

/// Fifty periods, so that one that is spoilt doesn't decide, but within bounds: of a fast wave a tenth of a
/// second or more, so that ticks and other threads are in it.
fn look_ns(wanted_hz: f64, quick: bool) -> u64 {
    let (least_s, most_s) = if quick { (0.1, 1.0) } else { (0.5, 2.0) };
    ((50.0 / wanted_hz).clamp(least_s, most_s) * 1e9) as u64
}

fn report(
    args: &Args,
    out: &Destination,
    bench: &Bench<'_>,
    curves: Vec<Curve>,
) -> anyhow::Result<()> {
    let sweep = Sweep {
        from_hz: args.tries.from.0,
        to_hz: args.tries.to.0,
        tolerance: args.tries.tolerance.0,
        curves,
        facts: bench
            .scope
            .facts()
            .into_iter()
            .chain([
                ("subjects".to_owned(), format!("on CPU {}", bench.cpu)),
                (
                    "tries".to_owned(),
                    "3 to 5 of each frequency, as many again of the two at the limit".to_owned(),
                ),
                ("written".to_owned(), wall_clock()),
            ])
            .collect(),
    };
    let document = || serde_json::to_string_pretty(&sweep.document()?);
    let document = args.json.then(document).transpose()?;
    out.publish(&page::page(&sweep), document, || text(&sweep))
}

fn text(sweep: &Sweep) -> String {
    let mut text = format!(
        "{:<12}{:<10}{:<24}{:>16}  {:<14}tries\n",
        "subject", "policy", "load", "max frequency", "first bad"
    );
    for curve in &sweep.curves {
        let found = &curve.found;
        let hertz = |hz: Option<f64>| hz.map_or_else(|| "none".to_owned(), number::hertz);
        let _ = write!(
            text,
            "{:<12}{:<10}{:<24}{:>16}  {:<14}{}",
            curve.name,
            curve.policy,
            curve.load,
            hertz(found.max_frequency_hz),
            hertz(found.first_bad_hz),
            found.points.len()
        );
        let of = |wanted: Outcome| found.points.iter().filter(|p| p.outcome == wanted).count();
        for outcome in [Outcome::Blind, Outcome::TooFast, Outcome::Silent, Outcome::Unsteady] {
            if of(outcome) > 0 {
                let _ = write!(text, ", {} {}", of(outcome), outcome.text());
            }
        }
        if !found.undecided_hz.is_empty() {
            let list: Vec<String> =
                found.undecided_hz.iter().map(|hz| number::hertz(*hz)).collect();
            let _ = write!(text, "; undecided: {}", list.join(", "));
        }
        text.push('\n');
        if let Some(why) = &found.no_limit {
            let _ = writeln!(text, "  no limit found: {why}");
        }
    }
    for (name, value) in &sweep.facts {
        if name.starts_with("scope") {
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    text
}
