//! Whether a long run's memory and open files stay as they are: the witness, a run that lasts as long as the soak.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{
    fault::send,
    keeper::{Held, Keeper, Undo},
};
use crate::shell;

/// glibc asks the kernel for heap in steps of this size and a page (`M_TOP_PAD`): one step is no leak.
const ALLOCATOR_STEP_KIB: f64 = 132.0;

/// By the line of least squares, a step after the part f of the samples is a growth of 6 f (1 - f) steps: this many in the
/// middle.
const STEP_IN_THE_MIDDLE: f64 = 1.5;

/// A week of growth must fit into the peak memory that `cargo xtask bench` allows a run.
const PER_WEEK_KIB: f64 = 16.0 * 1024.0;

const WEEK_S: f64 = 7.0 * 24.0 * 3600.0;

/// Fewer samples show no slope.
const SAMPLES_MIN: usize = 30;

/// How long the witness may take to start.
const STARTS_IN: Duration = Duration::from_secs(60);

/// One look at the witness.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    pub(super) rss_kib: f64,
    pub(super) files: f64,
}

/// What the samples show, after the first third: a run still makes its threads and reads its first loads there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Growth {
    pub(super) samples: usize,
    pub(super) span_s: f64,
    pub(super) rss_kib: f64,
    /// By the line of least squares, over the whole span.
    pub(super) grown_kib: f64,
    pub(super) grown_files: f64,
}

impl Growth {
    /// None when there are too few samples.
    pub(super) fn of(samples: &[Sample]) -> Option<Growth> {
        let samples = &samples[samples.len() / 3..];
        let (first, last) = (samples.first()?, samples.last()?);
        if samples.len() < SAMPLES_MIN {
            return None;
        }
        let span_s = last.at_s - first.at_s;
        let slope = |value: fn(&Sample) -> f64| {
            let count = samples.len() as f64;
            let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
            let (at, level) = (mean(|sample| sample.at_s), mean(value));
            let products = |a: &Sample| (a.at_s - at) * (value(a) - level);
            let squares: f64 = samples.iter().map(|a| (a.at_s - at).powi(2)).sum();
            samples.iter().map(products).sum::<f64>() / squares
        };
        Some(Growth {
            samples: samples.len(),
            span_s,
            rss_kib: last.rss_kib,
            grown_kib: slope(|sample| sample.rss_kib) * span_s,
            grown_files: slope(|sample| sample.files) * span_s,
        })
    }

    /// What it may grow by: one step of the allocator, and its share of a week's growth.
    pub(super) fn allowed_kib(&self) -> f64 {
        ALLOCATOR_STEP_KIB * STEP_IN_THE_MIDDLE + PER_WEEK_KIB * self.span_s / WEEK_S
    }

    /// What is wrong, in words.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.grown_kib > self.allowed_kib() {
            problems.push(format!(
                "the witness grew by {:.0} KiB in {:.0} s; {:.0} KiB are allowed",
                self.grown_kib,
                self.span_s,
                self.allowed_kib()
            ));
        }
        // One file more at the end than at the beginning is a slope of one.
        if self.grown_files >= 1.0 {
            let text = format!("the witness opened {:.1} files more", self.grown_files);
            problems.push(text);
        }
        problems
    }
}

/// A run for as long as the soak.
pub(super) struct Witness<'a> {
    child: Child,
    held: Option<Held<'a>>,
    began: Instant,
    pub(super) record: PathBuf,
    pub(super) samples: Vec<Sample>,
}

impl<'a> Witness<'a> {
    /// Starts it on the first CPU, which no fault takes away. It has few buckets: with 10,000, the histogram of the phase
    /// grows for hours, as latencies reach buckets for the first time, up to half a MiB.
    pub(super) fn start(program: &Path, folder: &Path, keeper: &'a Keeper) -> Result<Witness<'a>> {
        let plan = folder.join("witness.toml");
        let text = "name = 'witness'\n[sampler]\ncpus = '0'\nbuckets = 64\n[[phase]]\nname = 'rest'\nduration = '8d'\n";
        fs::write(&plan, text)?;
        let record = folder.join("witness");
        // Its control thread too: the CPUs of a thread that is pinned to the last CPU change when that goes away.
        let mut command = Command::new("taskset");
        command
            .args(["--cpu-list", "0"])
            .arg(program)
            .arg("run")
            .arg(&plan)
            .arg("--out")
            .arg(&record)
            .arg("--quiet");
        let file = fs::File::create(folder.join("witness.log"))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = shell::start(&mut command)?;
        let held = Some(keeper.hold(Undo::Process(child.id()))?);
        let mut witness =
            Witness { child, held, began: Instant::now(), record, samples: Vec::new() };
        witness.wait_until_it_measures()?;
        Ok(witness)
    }

    /// From here on its threads stay where they are.
    fn wait_until_it_measures(&mut self) -> Result<()> {
        let events = self.record.join("events.jsonl");
        while self.began.elapsed() < STARTS_IN {
            anyhow::ensure!(self.child.try_wait()?.is_none(), "the witness did not start");
            if fs::read_to_string(&events).is_ok_and(|text| text.contains("phase-started")) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        anyhow::bail!("the witness did not start within {} s", STARTS_IN.as_secs());
    }

    /// Stops it for a moment, and lets it go on.
    pub(super) fn stop_for(&self, lasts: Duration) {
        send(self.child.id(), Signal::STOP);
        thread::sleep(lasts);
        send(self.child.id(), Signal::CONT);
    }

    /// Each look: seconds, KiB, open files.
    pub(super) fn samples_json(&self) -> serde_json::Value {
        let look = |one: &Sample| serde_json::json!([one.at_s, one.rss_kib, one.files]);
        self.samples.iter().map(look).collect()
    }

    /// How long it has run.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Looks at its memory and files. Fails when it has ended by itself.
    pub(super) fn look(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            anyhow::bail!("the witness has ended: {status}");
        }
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(folder.join("status"))?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let rss_kib = rss.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
        self.samples.push(Sample {
            at_s: self.began.elapsed().as_secs_f64(),
            rss_kib: rss_kib.context("/proc shows no VmRSS")?,
            files: fs::read_dir(folder.join("fd"))?.count() as f64,
        });
        Ok(())
    }

    /// Ends it with SIGINT, as a user does. Its exit code.
    pub(super) fn end(&mut self) -> Result<Option<i32>> {
        send(self.child.id(), Signal::INT);
        let status = shell::wait(&mut self.child, Duration::from_secs(60))?;
        if let Some(held) = self.held.take() {
            held.forget()?;
        }
        Ok(status.context("the witness did not end at SIGINT within 60 s")?.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: usize, rss_kib: impl Fn(usize) -> f64, files: f64) -> Vec<Sample> {
        let sample = |i: usize| Sample {
            at_s: 10.0 * i as f64,
            rss_kib: rss_kib(i),
            files: 10.0 + files * i as f64,
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn a_leak_is_found_and_the_noise_of_pages_is_none() {
        let noise = |i: usize| 12_000.0 + [0.0, 4.0, 64.0][i % 3];
        let growth = Growth::of(&samples(300, noise, 0.0)).expect("enough");
        assert_eq!(growth.problems(), [""; 0]);
        // The first third doesn't count.
        let begins = |i: usize| if i < 90 { 10.0 * i as f64 } else { 12_000.0 };
        assert_eq!(Growth::of(&samples(300, begins, 0.0)).expect("enough").problems(), [""; 0]);
        // A page a look.
        let leak = |i: usize| 12_000.0 + 4.0 * i as f64;
        let growth = Growth::of(&samples(300, leak, 0.0)).expect("enough");
        // 199 steps of 4 KiB between the 200 samples that count.
        assert!((growth.grown_kib - 796.0).abs() < 1e-6, "{growth:?}");
        assert!(growth.problems()[0].contains("grew by 796 KiB in 1990 s"), "{growth:?}");
    }

    #[test]
    fn one_step_of_the_allocator_is_no_leak_wherever_it_comes_and_two_are() {
        let problems = |steps: &dyn Fn(usize) -> f64| {
            let rss_kib = |i: usize| 12_000.0 + ALLOCATOR_STEP_KIB * steps(i);
            Growth::of(&samples(300, rss_kib, 0.0)).expect("enough").problems()
        };
        for at in 100..300 {
            assert_eq!(problems(&|i| f64::from(i >= at)), [""; 0], "at {at}");
        }
        let two = |i: usize| f64::from(i >= 170) + f64::from(i >= 230);
        assert!(problems(&two)[0].contains("the witness grew by"));
    }

    #[test]
    fn a_file_that_stays_open_is_found() {
        let growth = Growth::of(&samples(300, |_| 12_000.0, 0.01)).expect("enough");
        assert!(growth.problems()[0].contains("opened 2.0 files more"), "{growth:?}");
    }

    #[test]
    fn a_few_samples_show_nothing() {
        assert_eq!(Growth::of(&samples(30, |_| 1.0, 0.0)), None);
        assert_eq!(Growth::of(&[]), None);
    }
}
