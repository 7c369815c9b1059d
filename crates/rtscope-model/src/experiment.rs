//! Scheduling experiments: applications that are started together, and what became of each.

use serde::{Deserialize, Serialize};

use crate::{
    cpu::CpuSet,
    schedule::{Placement, Policy},
    text::{Problem, TextError, problem_of},
    time::Nanos,
};

/// Version of the format of [`ExperimentRecord`].
pub const FORMAT: u32 = 1;

/// Applications that are released together, as asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name.
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
    /// What somebody else has published of the same experiment, seconds an application.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published_s: Vec<f64>,
}

/// An application: one thread with an amount of computing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// Policy; deadline is not offered here.
    pub policy: Policy,
    /// Real-time priority, 1 to 99.
    #[serde(default)]
    pub priority: u8,
    /// Nice value.
    #[serde(default)]
    pub nice: i8,
    /// `one` (the same CPU for all that say so) or `free`.
    #[serde(default)]
    pub cpus: Where,
    /// Computing, when it differs from the experiment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Nanos>,
    /// Release after that of the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Nanos>,
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
        let fail = |problems| TextError { name: name.to_owned(), problems };
        let read: Experiment =
            toml::from_str(text).map_err(|error| fail(vec![problem_of(text, &error)]))?;
        let problems = read.problems();
        if problems.is_empty() { Ok(read) } else { Err(fail(problems)) }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut say = |message: String| {
            found.push(Problem { line: None, message, suggestion: None });
        };
        if self.applications.is_empty() || self.applications.len() > 12 {
            say("an experiment has 1 to 12 applications".to_owned());
        }
        for app in &self.applications {
            let name = &app.name;
            let work = app.work.unwrap_or(self.work);
            if app.policy == Policy::Deadline {
                say(format!("{name}: deadline applications are not offered"));
            }
            if app.policy.has_priority() != (1..=99).contains(&app.priority) {
                say(format!("{name}: fifo and rr take a priority from 1 to 99, others none"));
            }
            if !(-20..=19).contains(&app.nice) || app.nice != 0 && app.policy.is_real_time() {
                say(format!(
                    "{name}: other and batch take a nice value from -20 to 19, others none"
                ));
            }
            if !(Nanos::from_ms(1)..=Nanos::from_secs(5)).contains(&work) {
                say(format!("{name}: work from 1ms to 5s"));
            }
            if app.offset.unwrap_or_default() > Nanos::from_secs(5) {
                say(format!("{name}: offset up to 5s"));
            }
        }
        found
    }
}

/// What of the machine decides who runs.
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
    /// That period.
    pub rt_period_ns: u64,
}

/// Time on a CPU without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The CPU.
    pub cpu: u32,
    /// From, since the release of the experiment.
    pub start_ns: u64,
    /// To.
    pub end_ns: u64,
}

/// What became of an application. Instants are since the release of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// As asked.
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
    pub runs: Vec<Run>,
}

impl Observed {
    /// From release to finish.
    #[must_use]
    pub fn response_ns(&self) -> u64 {
        self.finish_ns.saturating_sub(self.release_ns)
    }

    /// Changes of the CPU from one run to the next.
    #[must_use]
    pub fn migrations(&self) -> u64 {
        self.runs.windows(2).filter(|pair| pair[0].cpu != pair[1].cpu).count() as u64
    }
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
    /// Version of rtscope.
    pub version: String,
    /// Wall clock at its begin, RFC 3339.
    pub wall_clock: String,
    /// `uname -r`.
    pub kernel: String,
    /// What was asked.
    pub experiment: Experiment,
    /// What decides who runs.
    pub rules: SchedulingRules,
    /// The applications in the order of the experiment.
    pub applications: Vec<Observed>,
    /// Where their runs come from.
    pub source: RunSource,
    /// Events or time stamps that were lost.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = 'x'\ntitle = 't'\nwork = '20ms'\n[[application]]\nname = 'a'\n\
                        policy = 'fifo'\npriority = 5\ncpus = 'one'\n[[application]]\nname = 'b'\n\
                        policy = 'other'\nnice = 5\nwork = '5ms'\n";

    #[test]
    fn an_experiment_is_read() {
        let read = Experiment::parse("x", TEXT).expect("sound");
        assert_eq!(read.applications[0].cpus, Where::One);
        assert_eq!(read.applications[1].cpus, Where::Free);
        assert_eq!(read.applications[1].work, Some(Nanos::from_ms(5)));
        assert_eq!(read.work, Nanos::from_ms(20));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (from, to, word) in [
            ("priority = 5", "priority = 0", "priority"),
            ("nice = 5", "nice = 25", "nice"),
            ("'fifo'", "'deadline'", "deadline"),
            ("'20ms'", "'20min'", "work"),
            ("title", "titel", "title"),
        ] {
            let error = Experiment::parse("x", &TEXT.replace(from, to)).expect_err("refused");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
