//! Scheduling experiments: applications that are started together, and what became of each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    cpu::CpuSet,
    plan::mistakes,
    printable::{printable, printable_lines},
    published::{self, Published},
    schedule::{Budget, Placement, Policy},
    text::{Problem, TextError},
    time::Nanos,
};

/// Version of the format of [`ExperimentRecord`].
pub const FORMAT: u32 = 1;

/// Applications that are released together, as asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub name: String,
    /// What it shows, one line.
    pub title: String,
    /// Why it comes out as it does, in words.
    #[serde(default)]
    pub about: String,
    /// Computing of each application, unless it has a figure of its own: CPU time.
    #[serde(default = "Experiment::default_work")]
    pub work: Nanos,
    /// The applications in the order of their release.
    #[serde(rename = "application")]
    pub applications: Vec<Application>,
    /// Applications in the order in which their jobs of one round are expected, each done before the next
    /// begins; none where the order isn't judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// Settings that are changed meanwhile, as in a plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The mutex that applications with `holds` share.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub mutex: MutexProtocol,
    /// What others have published of the same experiment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// The same in records of an earlier version: seconds an application. Nothing writes it.
    #[serde(default, skip_serializing)]
    published_s: Vec<f64>,
}

/// An application: one thread with an amount of computing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    pub name: String,
    pub policy: Policy,
    /// Real-time priority, 1 to 99.
    #[serde(default)]
    pub priority: u8,
    #[serde(default)]
    pub nice: i8,
    /// `one` (the same CPU for all that say so) or `free`.
    #[serde(default)]
    pub cpus: Where,
    /// Computing, when it differs from the experiment's: of each job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Nanos>,
    /// Release after that of the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Nanos>,
    /// How much of the work it begins with while it holds the experiment's mutex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Nanos>,
    /// From one job to the next; none is one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Nanos>,
    /// Time from its release by which a job must be done; by default the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Nanos>,
    #[serde(default = "one_job", skip_serializing_if = "is_one")]
    pub jobs: u32,
    /// CPU time that a deadline application is granted in each period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Nanos>,
    /// Slice of an ordinary application, where the kernel has such (since 6.12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Nanos>,
}

fn one_job() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(jobs: &u32) -> bool {
    *jobs == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_plain(protocol: &MutexProtocol) -> bool {
    *protocol == MutexProtocol::Plain
}

/// What a mutex does for its holder while others wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MutexProtocol {
    /// Nothing.
    #[default]
    Plain,
    /// The holder runs with the highest priority of those that wait: priority inheritance.
    Inherit,
}

impl Application {
    /// The budget of a deadline application; none for others.
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        let (runtime, period) = (self.runtime?, self.period?);
        (self.policy == Policy::Deadline).then(|| Budget {
            runtime_ns: runtime.0,
            deadline_ns: self.deadline.unwrap_or(period).0,
            period_ns: period.0,
        })
    }

    fn problems(&self, default_work: Nanos) -> Vec<String> {
        let mut found = Vec::new();
        let mut say = |wrong: bool, what: &str| {
            if wrong {
                found.push(format!("{}: {what}", self.name));
            }
        };
        let work = self.work.unwrap_or(default_work);
        let is_deadline = self.policy == Policy::Deadline;
        let total = Nanos(work.0.saturating_mul(u64::from(self.jobs)));
        let (short, long) = (Nanos::from_ms(1), Nanos::from_secs(5));
        let lies = |time: Option<Nanos>, from: Nanos, to: Nanos| {
            time.is_none_or(|time| (from..=to).contains(&time))
        };
        say(
            self.policy.has_priority() != (1..=99).contains(&self.priority),
            "fifo and rr need a priority from 1 to 99, other policies take none",
        );
        say(
            !(-20..=19).contains(&self.nice) || self.nice != 0 && self.policy.is_real_time(),
            "other and batch take a nice value from -20 to 19, other policies take none",
        );
        say(!(short..=long).contains(&work), "work must be from 1ms to 5s");
        say(self.offset.unwrap_or_default() > long, "offset must be at most 5s");
        say(!lies(self.period, short, long), "period must be from 1ms to 5s");
        say(!(1..=100).contains(&self.jobs), "jobs must be from 1 to 100");
        say(self.jobs > 1 && self.period.is_none(), "several jobs need a period");
        say(total > long, "the work of all jobs must be at most 5s in total");
        say(
            !lies(self.deadline, short, self.period.unwrap_or(long)),
            "deadline must be from 1ms to the period",
        );
        say(self.holds.is_some_and(|holds| holds > work), "holds must be at most as long as work");
        say(
            self.holds.is_some() && self.jobs > 1,
            "holds is only for applications with a single job",
        );
        say(
            is_deadline && (self.runtime.is_none() || self.period.is_none()),
            "policy deadline needs a runtime and a period",
        );
        say(!is_deadline && self.runtime.is_some(), "runtime is only for policy deadline");
        let deadline = self.deadline.or(self.period).unwrap_or(long);
        say(!lies(self.runtime, short, deadline), "runtime must be from 1ms to the deadline");
        say(
            is_deadline && self.cpus == Where::One,
            "the kernel refuses to pin threads of policy deadline: leave out cpus = \"one\"",
        );
        say(
            is_deadline && self.jobs > 1 && self.runtime.is_some_and(|runtime| work > runtime),
            "with policy deadline and several jobs, work must be at most the runtime",
        );
        say(
            self.slice.is_some() && !matches!(self.policy, Policy::Other | Policy::Batch),
            "slice is only for policies other and batch",
        );
        say(
            !lies(self.slice, Nanos::from_us(100), Nanos::from_ms(100)),
            "slice must be from 100us to 100ms",
        );
        found
    }
}

/// The CPUs of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Where {
    /// The experiment's one CPU.
    One,
    /// Every CPU of the experiment.
    #[default]
    Free,
}

impl Experiment {
    fn default_work() -> Nanos {
        Nanos::from_ms(400)
    }

    /// Reads an experiment. `name` is for messages.
    ///
    /// # Errors
    ///
    /// What is wrong, with its line where that is known.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, TextError> {
        let fail = |mut problems: Vec<Problem>| {
            problems.sort_by_key(|problem| problem.line);
            TextError { name: name.to_owned(), problems }
        };
        let (read, unread) = mistakes::read::<Experiment>(text);
        // What else is wrong may only follow from a value that could not be read.
        let Some(read) = read.filter(|_| unread.is_empty()) else { return Err(fail(unread)) };
        let mut problems = read.problems();
        let names: Vec<&str> = read.applications.iter().map(|app| app.name.as_str()).collect();
        problems.extend(published::problems(text, "application", &names, &problems));
        if problems.is_empty() { Ok(read.with_printable_names()) } else { Err(fail(problems)) }
    }

    /// An experiment may come from anywhere, and its names go to the terminal.
    fn with_printable_names(mut self) -> Experiment {
        self.about = printable_lines(&self.about).into_owned();
        let names = self.applications.iter_mut().map(|application| &mut application.name);
        let names = names.chain(&mut self.order);
        for name in [&mut self.name, &mut self.title].into_iter().chain(names) {
            *name = printable(name).into_owned();
        }
        self.published.iter_mut().for_each(Published::make_printable);
        self
    }

    /// The text that [`Experiment::parse`] reads back.
    ///
    /// # Panics
    ///
    /// Never: every field can be written as TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain fields")
    }

    /// Computing of all its jobs.
    #[must_use]
    pub fn total_work(&self) -> Nanos {
        let work = |app: &Application| app.work.unwrap_or(self.work).0 * u64::from(app.jobs);
        Nanos(self.applications.iter().map(work).sum())
    }

    /// Whether it takes away what guards ordinary threads.
    fn is_unguarded(&self) -> bool {
        let is_off = |name: &str| self.settings.get(name).is_some_and(|value| value == "off");
        is_off("throttling") || is_off("fair-server")
    }

    fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut say = |message: String| {
            found.push(Problem { line: None, message, suggestion: None });
        };
        if self.applications.is_empty() || self.applications.len() > 12 {
            say("an experiment must have 1 to 12 applications".to_owned());
        }
        let works = self.applications.iter().flat_map(|app| app.problems(self.work));
        works.for_each(&mut say);
        if !self.order.is_empty() {
            let mut ordered: Vec<&str> = self.order.iter().map(String::as_str).collect();
            let mut names: Vec<&str> =
                self.applications.iter().map(|app| app.name.as_str()).collect();
            ordered.sort_unstable();
            names.sort_unstable();
            if ordered != names {
                say("order must name each application exactly once".to_owned());
            }
            if self.applications.windows(2).any(|pair| pair[0].jobs != pair[1].jobs) {
                say("with an order, all applications must have the same number of jobs".to_owned());
            }
        }
        if !self.published_s.is_empty() {
            say("published_s is from an earlier version: write [[published]] tables instead"
                .to_owned());
        }
        if self.is_unguarded() {
            let real_time = || self.applications.iter().filter(|app| app.policy.is_real_time());
            if real_time().any(|app| app.cpus == Where::Free) {
                say("without throttling, real-time applications must run on one CPU: write cpus = \"one\""
                    .to_owned());
            }
            let work = |app: &Application| app.work.unwrap_or(self.work).0 * u64::from(app.jobs);
            if real_time().map(work).sum::<u64>() > Nanos::from_secs(3).0 {
                say("without throttling, all real-time work together must be at most 3s".to_owned());
            }
        }
        found
    }
}

/// The rules of the machine that decide which thread runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulingRules {
    /// CPUs of the experiment.
    pub cpus: CpuSet,
    /// The CPU of applications that are placed on one.
    pub one: u32,
    /// Turn of an RR thread.
    pub rr_quantum_ns: u64,
    /// CPU time that real-time threads may have in each period; none is no limit.
    pub rt_runtime_ns: Option<u64>,
    pub rt_period_ns: u64,
    /// CPU time that the fair server grants ordinary threads in each period of it, since Linux 6.12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_server: Option<FairServer>,
}

/// The fair server of each CPU: a deadline reservation for ordinary threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairServer {
    /// Granted.
    pub runtime_ns: u64,
    pub period_ns: u64,
}

/// Time on a CPU without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuInterval {
    pub cpu: u32,
    /// From, since the release of the experiment.
    pub start_ns: u64,
    pub end_ns: u64,
}

/// A job of an application. Instants are since the release of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    /// Programmed release.
    pub release_ns: u64,
    /// First instant that it ran.
    pub start_ns: u64,
    /// It had done its work.
    pub finish_ns: u64,
    /// CPU time that it took; none in a record of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Times it was preempted; none in a record of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptions: Option<u64>,
}

impl JobRun {
    /// From release to finish.
    #[must_use]
    pub fn response_ns(&self) -> u64 {
        self.finish_ns.saturating_sub(self.release_ns)
    }
}

/// What became of an application. Instants are since the release of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedApplication {
    pub name: String,
    pub asked: Placement,
    /// As read back in the thread.
    pub found: Placement,
    /// Amount of computing, as CPU time of the calibration.
    pub work_ns: u64,
    /// Programmed release.
    pub release_ns: u64,
    /// First instant that it ran.
    pub start_ns: u64,
    /// It had done its work.
    pub finish_ns: u64,
    /// CPU time that the work took.
    pub cpu_ns: u64,
    /// Times it was preempted.
    pub preemptions: u64,
    /// When it ran where.
    pub runs: Vec<CpuInterval>,
    /// When it was held up by throttling, the fair server or its own budget: it was ready, and its CPU ran
    /// an ordinary thread or none. None where that is not known, or for an ordinary application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Vec<CpuInterval>>,
    /// Its jobs, where it has a period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobRun>,
    /// The kernel had no bandwidth for it: it never ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_refused: bool,
    /// Its slice as read back, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<u64>,
}

impl ObservedApplication {
    /// From release to finish; of several jobs the longest.
    #[must_use]
    pub fn response_ns(&self) -> u64 {
        let whole = self.finish_ns.saturating_sub(self.release_ns);
        self.jobs.iter().map(JobRun::response_ns).max().unwrap_or(whole)
    }

    /// Changes of the CPU from one run to the next.
    #[must_use]
    pub fn migrations(&self) -> u64 {
        changes(&self.runs)
    }

    /// Its runs for a job, which may begin and end within one of them.
    #[must_use]
    pub fn runs_of(&self, job: &JobRun) -> Vec<CpuInterval> {
        within(&self.runs, job)
    }

    /// Changes of the CPU from one run for a job to the next.
    #[must_use]
    pub fn migrations_of(&self, job: &JobRun) -> u64 {
        changes(&self.runs_of(job))
    }

    /// For how long it was held up; none where that is not known.
    #[must_use]
    pub fn throttled_ns(&self) -> Option<u64> {
        self.throttled.as_deref().map(length_ns)
    }

    /// For how long it was held up in a job; none where that is not known.
    #[must_use]
    pub fn throttled_ns_of(&self, job: &JobRun) -> Option<u64> {
        self.throttled.as_deref().map(|spans| length_ns(&within(spans, job)))
    }
}

/// The parts that lie between release and finish of a job.
fn within(runs: &[CpuInterval], job: &JobRun) -> Vec<CpuInterval> {
    let cut = |run: &CpuInterval| CpuInterval {
        start_ns: run.start_ns.max(job.release_ns),
        end_ns: run.end_ns.min(job.finish_ns),
        ..*run
    };
    runs.iter().map(cut).filter(|run| run.start_ns < run.end_ns).collect()
}

fn changes(runs: &[CpuInterval]) -> u64 {
    runs.windows(2).filter(|pair| pair[0].cpu != pair[1].cpu).count() as u64
}

fn length_ns(runs: &[CpuInterval]) -> u64 {
    runs.iter().map(|run| run.end_ns.saturating_sub(run.start_ns)).sum()
}

/// Where the runs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunSource {
    /// `sched_switch` events of the kernel.
    SchedSwitch,
    /// Gaps in the applications' own time stamps.
    TimeStamps,
}

/// Everything that was recorded of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentRecord {
    /// [`FORMAT`].
    pub format: u32,
    pub version: String,
    /// Wall clock at its start, RFC 3339.
    pub wall_clock: String,
    /// `uname -r`.
    pub kernel: String,
    pub experiment: Experiment,
    /// What decides who runs.
    pub rules: SchedulingRules,
    /// The applications in the order of the experiment.
    pub applications: Vec<ObservedApplication>,
    /// Where their runs come from.
    pub source: RunSource,
    /// Events or time stamps that were lost.
    pub lost: u64,
    /// Settings that were changed, as read back: `sched_rt_runtime_us: 950000 -> -1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Settings of the experiment that this machine does not have or keep, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_changed: Vec<String>,
}

impl ExperimentRecord {
    /// Whether every application was placed as asked.
    #[must_use]
    pub fn is_as_asked(&self) -> bool {
        self.applications.iter().all(|app| app.is_refused || app.asked == app.found)
    }
}

#[cfg(test)]
mod tests;
