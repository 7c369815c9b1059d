//! The options that shape a plan before it runs: `rtscope run` and the verbs of `rtscope lab` share them.

use std::collections::BTreeMap;

use rtscope_model::{plan::Plan, time::Nanos, verdict::Requirement};

use super::{Refused, sampler, until};
use crate::plans;

/// What the command line changes of a plan. Without these options the plan is run as it is written.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Shape {
    /// Requirement for every phase, for example 'max < 200us' or 'missed = 0'; repeatable. Quantiles such as
    /// 'p99.99 < 50us' need long phases: p99.99 at least 57,500 wake-ups, p99.9 a tenth of that
    #[arg(short, long, alias = "requirement", value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Change a system setting for the run, for example throttling=off, and restore it afterwards;
    /// repeatable
    #[arg(long, value_name = "SETTING=VALUE")]
    set: Vec<String>,
    /// Multiply all durations and cycle counts by FACTOR
    #[arg(long, value_name = "FACTOR", conflicts_with = "duration", allow_hyphen_values = true)]
    scale: Option<f64>,
    /// Scale all phases so that the plan takes about this long
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
    /// [default: long enough to back the claim even after three exceedances]
    // What conflicts with --until would lift the requirement.
    #[arg(
        long,
        value_name = "TIME",
        requires = "until",
        conflicts_with_all = ["duration", "scale", "cycles"]
    )]
    at_most: Option<Nanos>,
    #[command(flatten)]
    sampler: sampler::Options,
}

/// Settings that no guest of the lab has: its CPU has one frequency, and no idle states to choose from.
const NOT_IN_GUESTS: [&str; 2] = ["governor", "idle-state"];

impl Shape {
    /// The requirements of the command line.
    pub(super) fn require(&self) -> &[Requirement] {
        &self.require
    }

    /// A plan with what the command line changes: the named one, else the default of the verb.
    pub(super) fn plan(&self, named: Option<&str>, default: &str) -> anyhow::Result<Plan> {
        self.plan_with_frames(named, default, None)
    }

    /// The same, where a verb has options of its own for the frames that threads send.
    pub(super) fn plan_with_frames(
        &self,
        named: Option<&str>,
        default: &str,
        network: Option<&str>,
    ) -> anyhow::Result<Plan> {
        let default = if self.until.is_some() { plans::DEFAULT_UNTIL } else { default };
        let mut plan = plans::load(named.unwrap_or(default))?;
        let mut patch = self.sampler.patch()?;
        if let Some(line) = network {
            if patch.network.is_some() {
                let text = "--network and this command's own options both choose the frames: use only one of them";
                return Err(Refused(text.to_owned()).into());
            }
            patch.network = Some(line.parse().map_err(Refused)?);
        }
        plan.patch_sampler(&patch);
        if let Some(refusal) = plan.refusals(&patch).into_iter().next() {
            return Err(Refused(refusal).into());
        }
        self.set_lengths(&mut plan)?;
        plan.require.extend(&self.require);
        plan.settings.extend(self.settings()?);
        Ok(plan)
    }

    fn set_lengths(&self, plan: &mut Plan) -> anyhow::Result<()> {
        match (self.scale, self.duration) {
            (Some(factor), _) if !(factor.is_finite() && factor > 0.0) => {
                let text = format!("--scale {factor}: write a factor above 0, for example 0.1");
                return Err(Refused(text).into());
            }
            (Some(factor), _) => plan.scale(factor),
            (None, Some(Nanos::ZERO)) => {
                return Err(Refused("--duration 0: nothing to measure".to_owned()).into());
            }
            (None, Some(duration)) => plan.scale_to(duration),
            (None, None) => {}
        }
        match self.cycles {
            Some(0) => return Err(Refused("--cycles 0: nothing to measure".to_owned()).into()),
            Some(cycles) => plan.end_by_cycles(cycles),
            None => {}
        }
        if let Some(claim) = self.until {
            until::prolong(plan, claim, self.at_most)?;
        }
        plan.too_long().map_or(Ok(()), |why| Err(Refused(why).into()))
    }

    /// The settings of the command line by name, each checked.
    fn settings(&self) -> anyhow::Result<BTreeMap<String, String>> {
        super::tune::settings::read("--set ", &self.set)
    }

    /// As [`Shape::plan`], for a guest of the lab.
    ///
    /// # Errors
    ///
    /// Also what makes no sense in a guest, with the reason.
    pub(super) fn guest_plan(&self, named: Option<&str>, default: &str) -> anyhow::Result<Plan> {
        self.refuse_until()?;
        let plan = self.plan(named, default)?;
        let of_phases = plan.phases.iter().flat_map(|phase| phase.settings.keys());
        refuse_settings(plan.settings.keys().chain(of_phases))?;
        Ok(plan)
    }

    /// The settings for experiments in a guest, which take nothing else of these options.
    ///
    /// # Errors
    ///
    /// What shapes a plan and not an experiment, with the reason.
    pub(super) fn experiment_settings(&self) -> anyhow::Result<BTreeMap<String, String>> {
        self.refuse_until()?;
        let lengths = [
            ("scale", self.scale.is_some()),
            ("duration", self.duration.is_some()),
            ("cycles", self.cycles.is_some()),
        ];
        let length = lengths.into_iter().find_map(|(name, given)| given.then_some(name));
        let why = if let Some(name) = length {
            format!(
                "--{name}: an experiment ends when its applications are done; --work sets how long they compute"
            )
        } else if !self.require.is_empty() {
            "--require: an experiment is compared with what the kernel's rules predict, and has no latency to \
             limit; use lab run"
                .to_owned()
        } else if let Some(name) = self.sampler.first_given() {
            format!(
                "--{name}: an experiment has no sampler; its file says how each application runs, and `rtscope \
                 sched show NAME` prints one to change"
            )
        } else {
            let settings = self.settings()?;
            refuse_settings(settings.keys())?;
            return Ok(settings);
        };
        Err(Refused(why).into())
    }

    /// Refuses what sets a plan's length, for a verb that sets it itself.
    ///
    /// # Errors
    ///
    /// The option, and what sets the length.
    pub(super) fn refuse_lengths(&self, instead: &str) -> Result<(), Refused> {
        let given = [
            ("scale", self.scale.is_some()),
            ("duration", self.duration.is_some()),
            ("cycles", self.cycles.is_some()),
            ("until", self.until.is_some()),
        ];
        match given.into_iter().find(|option| option.1) {
            None => Ok(()),
            Some((name, _)) => Err(Refused(format!("--{name}: leave it out; {instead}"))),
        }
    }

    fn refuse_until(&self) -> Result<(), Refused> {
        let why = "--until: a claimed rate takes hours to check on the real machine, with everything that \
                   disturbs it; measure there with `rtscope run --until`, or ask here for \
                   --require 'max < 50us'";
        if self.until.is_some() { Err(Refused(why.to_owned())) } else { Ok(()) }
    }
}

/// Refuses settings that no guest has.
fn refuse_settings<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<(), Refused> {
    let absent = names.into_iter().find(|name| NOT_IN_GUESTS.contains(&name.as_str()));
    absent.map_or(Ok(()), |name| {
        Err(Refused(format!(
            "the setting {name}: a guest's CPU has one frequency and no idle states; leave it out"
        )))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        shape: Shape,
    }

    fn typed(words: &[&str]) -> Shape {
        Typed::try_parse_from([&["x"], words].concat()).expect("known options").shape
    }

    #[test]
    fn a_guest_s_plan_is_shaped_as_that_of_a_run() {
        let words = [
            "--interval",
            "200us",
            "--priority",
            "50",
            "--cycles",
            "700",
            "--set",
            "throttling=off",
            "--require",
            "max < 50us",
        ];
        let options = typed(&words);
        let plan = options.guest_plan(None, plans::DEFAULT_LAB).expect("sound");
        assert_eq!(plan, options.plan(Some("lab-quick"), plans::DEFAULT).expect("sound"));
        assert_eq!((plan.name.as_str(), plan.require.len()), ("lab-quick", 1));
        assert_eq!(plan.settings["throttling"], "off");
        for phase in &plan.phases {
            assert_eq!(
                (phase.end.cycles, phase.sampler.interval, phase.sampler.priority),
                (Some(700), Nanos::from_us(200), 50)
            );
        }
        assert_eq!(typed(&[]).guest_plan(None, "lab-matrix").expect("shipped").name, "lab-matrix");
    }

    #[test]
    fn what_makes_no_sense_in_a_guest_is_refused_with_the_reason() {
        let said = |words: &[&str]| {
            typed(words).guest_plan(None, plans::DEFAULT_LAB).expect_err("refused").to_string()
        };
        assert!(
            said(&["--until", "max < 1ms once in 1h"])
                .contains("hours to check on the real machine")
        );
        assert!(said(&["--set", "governor=performance"]).contains("one frequency"));
        assert!(said(&["--set", "idle-state=0"]).contains("no idle states"));
        assert!(said(&["--interval", "soon"]).contains("interval"));
    }

    #[test]
    fn an_experiment_takes_settings_and_nothing_of_a_plan() {
        let settings = typed(&["--set", "throttling=off"]).experiment_settings().expect("sound");
        assert_eq!(settings["throttling"], "off");
        for (words, why) in [
            (["--scale", "0.1"], "--work sets"),
            (["--duration", "5s"], "--duration: an experiment ends"),
            (["--cycles", "5"], "--work sets"),
            (["--require", "max < 1ms"], "use lab run"),
            (["--break-above", "1ms"], "--break-above: an experiment has no sampler"),
            (["--set", "governor=powersave"], "one frequency"),
        ] {
            let said = typed(&words).experiment_settings().expect_err("refused").to_string();
            assert!(said.contains(why), "{said}");
        }
    }
}
