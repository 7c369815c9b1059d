//! Wake-ups every 200 us on one CPU: what they cost and how late they are, beside cyclictest.
//!
//! Cost is CPU time over a window in the middle of the run, read from the scheduler: neither tool's
//! start nor end is in it. A line of its own has them, user and system time of the whole run.
//! Latencies are from both tools' own histograms; a histogram says nothing of the clock reading
//! itself, which both do alike.
//!
//! Both tools lock their memory and keep a histogram. They are compared twice: with idle states as they are
//! found, and with CPUs kept awake (`/dev/cpu_dma_latency` held at 0), as cyclictest does unless told
//! otherwise. What a wake-up from a virtual machine's idle state costs depends on what its host does meanwhile,
//! and on the moods of the kernel's idle governor.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{
    MeasuredProgram, Options,
    histogram::Histogram,
    process::{self, Cost, Snapshot},
    read_json,
    table::{Goal, Line},
};
use crate::shell;

const INTERVAL_US: u64 = 200;

const PRIORITY: u8 = 80;

/// Latencies beyond this many us are overflow with both.
const BUCKETS: u32 = 2_000;

/// From the start of the sampling thread to the window, and from the window to the end.
const MARGIN: Duration = Duration::from_secs(1);

/// "No worse" for latencies: the median of the ratios may be a tenth above 1, because two runs of
/// one tool differ by that much on a shared machine.
const NO_WORSE: f64 = 1.1;

/// What one run of one tool showed.
struct Seen {
    cost: Cost,
    /// User and system time of the whole run.
    whole_ms: f64,
    histogram: Histogram,
}

/// The lines of this section: of idle states as they are found.
pub(super) fn lines(subject: &MeasuredProgram, options: &Options) -> Result<Vec<Line>> {
    compare(subject, options, Idle::AsFound)
}

/// The lines of the section of CPUs kept awake.
pub(super) fn lines_awake(subject: &MeasuredProgram, options: &Options) -> Result<Vec<Line>> {
    compare(subject, options, Idle::Awake)
}

/// What CPUs may do between two wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    AsFound,
    Awake,
}

fn compare(subject: &MeasuredProgram, options: &Options, idle: Idle) -> Result<Vec<Line>> {
    let cpu = *process::cpus().last().context("there is no CPU")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        theirs.push(cyclictest(subject, options.wakeups, cpu, idle).context("cyclictest")?);
        ours.push(rtscope(subject, options.wakeups, cpu, idle).context("rtscope")?);
    }
    let line = |what: &str, unit, goal, figure: fn(&Seen) -> f64| Line {
        what: if idle == Idle::Awake { format!("{what}, awake") } else { what.to_owned() },
        unit,
        ours: ours.iter().map(figure).collect(),
        theirs: theirs.iter().map(figure).collect(),
        goal,
    };
    // The aim beyond the goal is 0.8.
    let cheap = Goal::AtMost(1.0);
    let punctual = Goal::AtMost(NO_WORSE);
    Ok(vec![
        line("CPU time a wake-up, whole process", "us", cheap, |seen| seen.cost.process_us),
        line("CPU time a wake-up, sampling thread", "us", cheap, |seen| seen.cost.thread_us),
        line("CPU time of the run, start and end too", "ms", Goal::None, |seen| seen.whole_ms),
        line("latency, minimum", "us", punctual, |seen| seen.histogram.min_us()),
        line("latency, median", "us", punctual, |seen| seen.histogram.quantile_us(0.5)),
        line("latency, 99 %", "us", punctual, |seen| seen.histogram.quantile_us(0.99)),
    ])
}

fn cyclictest(subject: &MeasuredProgram, duration: Duration, cpu: u32, idle: Idle) -> Result<Seen> {
    let mut command = Command::new("cyclictest");
    command.args(["--quiet", "--mlockall", "--threads=1"]);
    if idle == Idle::AsFound {
        command.arg("--default-system");
    }
    command.arg(format!("--priority={PRIORITY}")).arg(format!("--interval={INTERVAL_US}"));
    command.arg(format!("--affinity={cpu}")).arg(format!("--histogram={BUCKETS}"));
    command.arg(format!("--duration={}", duration.as_secs()));
    let output = subject.folder.join("cyclictest.txt");
    let (cost, whole_ms) = observe(&mut command, &output, duration)?;
    let histogram = Histogram::of_cyclictest(&fs::read_to_string(&output)?);
    checked(Seen { cost, whole_ms, histogram }, duration)
}

fn rtscope(subject: &MeasuredProgram, duration: Duration, cpu: u32, idle: Idle) -> Result<Seen> {
    let (plan, record) = (subject.folder.join("wake-ups.toml"), subject.folder.join("wake-ups"));
    fs::write(&plan, plan_text(duration, cpu))?;
    let _ = fs::remove_dir_all(&record);
    let mut command = Command::new(&subject.rtscope);
    command.arg("run").arg(&plan).arg("--out").arg(&record).arg("--quiet");
    if idle == Idle::Awake {
        command.args(["--set", "dma-latency=0"]);
    }
    let (cost, whole_ms) = observe(&mut command, &subject.folder.join("rtscope.txt"), duration)?;
    let histogram = Histogram::of_record(&read_json(&record.join("histograms.json"))?)?;
    checked(Seen { cost, whole_ms, histogram }, duration)
}

/// cyclictest's options as a plan.
fn plan_text(duration: Duration, cpu: u32) -> String {
    format!(
        "name = \"wake-ups\"\n\n[sampler]\npolicy = \"fifo\"\npriority = {PRIORITY}\n\
         interval = \"{INTERVAL_US}us\"\ncpus = \"{cpu}\"\nbuckets = {BUCKETS}\n\n\
         [[phase]]\nname = \"rest\"\nduration = \"{}s\"\n",
        duration.as_secs()
    )
}

/// Runs a tool and takes what its wake-ups cost over a window in the middle, and its whole time in ms.
fn observe(command: &mut Command, output: &Path, duration: Duration) -> Result<(Cost, f64)> {
    let before = process::children_cpu_time();
    let file = File::create(output)?;
    let mut child =
        shell::start(command.stdout(file.try_clone()?).stderr(file).stdin(Stdio::null()))?;
    let cost = process::sampling_thread(&mut child, PRIORITY).and_then(|sampler| {
        thread::sleep(MARGIN);
        let first = Snapshot::take(child.id())?;
        thread::sleep(duration.saturating_sub(MARGIN * 2));
        let last = Snapshot::take(child.id())?;
        last.since(&first, sampler).context("its sampling thread never woke")
    });
    let status = shell::wait(&mut child, duration + Duration::from_secs(30))?;
    let said = || shell::last_lines(&fs::read_to_string(output).unwrap_or_default(), 3);
    match status {
        None => bail!("it did not end: {}", said()),
        // A verdict is an exit code too; the record tells whether it measured.
        Some(_) => {
            let whole = process::children_cpu_time().saturating_sub(before);
            Ok((cost.with_context(said)?, whole.as_secs_f64() * 1e3))
        }
    }
}

/// A tool that recorded less than half of what it should can't be compared.
fn checked(seen: Seen, duration: Duration) -> Result<Seen> {
    let expected = duration.as_micros() as u64 / INTERVAL_US;
    let count = seen.histogram.count();
    if count < expected / 2 {
        bail!("it recorded {count} wake-ups of about {expected}");
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_hardly_measured_is_not_compared() {
        let seen = |count| Seen {
            cost: Cost { thread_us: 1.0, process_us: 1.0 },
            whole_ms: 1.0,
            histogram: Histogram::of_cyclictest(&format!("000005 {count}\n")),
        };
        assert!(checked(seen(24_000), Duration::from_secs(5)).is_ok());
        assert!(checked(seen(12_000), Duration::from_secs(5)).is_err());
    }
}
