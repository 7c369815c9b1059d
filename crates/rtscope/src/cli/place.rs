//! Where a thread of ours runs, and how: the options of every verb that starts one.

use std::{fmt, str::FromStr};

use rtscope_model::{
    cpu::CpuSet,
    schedule::{Placement, Policy},
};
use rtscope_sys::sched;

use super::Refused;

/// The CPU of one thread.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct OneCpu {
    /// CPU to run on, for example 3
    #[arg(short, long, alias = "cpu", value_name = "CPU")]
    cpus: Option<CpuSet>,
}

/// CPU, policy and priority of one thread. The verb's text names the defaults.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Place {
    #[command(flatten)]
    pub(super) cpu: OneCpu,
    /// Policy: other, batch, idle, fifo or rr; also with its priority, for example fifo:80
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyChoice>,
    /// Real-time priority, 1 to 99, if the policy doesn't name it
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    priority: Option<u8>,
}

/// A policy, and its priority where it was named: `other`, `fifo`, `fifo:80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolicyChoice {
    pub(super) policy: Policy,
    pub(super) priority: Option<u8>,
}

/// A policy with its priority; 0 where it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduling {
    pub(super) policy: Policy,
    priority: u8,
}

impl FromStr for PolicyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicyChoice, String> {
        let (word, number) = text.split_once(':').map_or((text, None), |(w, n)| (w, Some(n)));
        let policy: Policy = word.parse()?;
        let read = |number: &str| {
            let priority = number.parse().ok().filter(|n| (1..=99).contains(n));
            priority.ok_or_else(|| {
                format!("{number:?} is not a priority: write 1 to 99, for example fifo:80")
            })
        };
        let priority = number.map(read).transpose()?;
        if priority.is_some() && !policy.has_priority() {
            return Err(format!("{policy} has no priority: only fifo and rr have one"));
        }
        Ok(PolicyChoice { policy, priority })
    }
}

impl PolicyChoice {
    /// The same with what --priority says.
    ///
    /// # Errors
    ///
    /// The two don't go together.
    pub(super) fn with_priority(self, priority: Option<u8>) -> Result<PolicyChoice, Refused> {
        match (self.priority, priority) {
            (_, None) => Ok(self),
            (Some(known), Some(other)) if known != other => Err(self.contradicts(&other)),
            (_, Some(_)) if !self.policy.has_priority() => Err(Refused(format!(
                "--priority: {} has no priority, only fifo and rr have one: add --policy fifo, or leave it out",
                self.policy
            ))),
            (_, priority) => Ok(PolicyChoice { priority, ..self }),
        }
    }
}

impl PolicyChoice {
    /// What is said when --priority names another priority.
    pub(super) fn contradicts(self, priority: &dyn fmt::Display) -> Refused {
        Refused(format!(
            "--policy {self} and --priority {priority} contradict each other: leave one priority out"
        ))
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.priority {
            Some(priority) => write!(f, "{}:{priority}", self.policy),
            None => self.policy.fmt(f),
        }
    }
}

impl OneCpu {
    /// The CPU that was asked for.
    ///
    /// # Errors
    ///
    /// Several were, for one thread.
    pub(super) fn asked(&self) -> Result<Option<u32>, Refused> {
        let Some(cpus) = &self.cpus else { return Ok(None) };
        match cpus.iter().collect::<Vec<u32>>()[..] {
            [cpu] => Ok(Some(cpu)),
            _ => Err(Refused(format!(
                "--cpus {cpus}: this command runs one thread, so name one CPU"
            ))),
        }
    }

    /// The CPU that was asked for, or the last one that may be used.
    pub(super) fn or_last(&self) -> anyhow::Result<CpuSet> {
        let allowed = sched::affinity(sched::SELF)?;
        match self.asked()? {
            Some(cpu) if !allowed.contains(cpu) => Err(Refused(format!(
                "CPU {cpu} can't be used: this process may use {}",
                allowed.named()
            ))
            .into()),
            Some(cpu) => Ok([cpu].into_iter().collect()),
            None => Ok(allowed.last().into_iter().collect()),
        }
    }
}

impl Place {
    /// Refuses all of these options, where another decides.
    pub(super) fn refuse(&self, why: &str) -> Result<(), Refused> {
        let given = [
            ("--cpus", self.cpu.cpus.is_some()),
            ("--policy", self.policy.is_some()),
            ("--priority", self.priority.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Refused(format!("{name}: {why}; leave it out"))),
            None => Ok(()),
        }
    }

    /// How to run, where that was said; a real-time policy without a priority has this one. A priority alone means
    /// fifo.
    ///
    /// # Errors
    ///
    /// Policy and priority don't go together, or the policy needs more than these options say.
    pub(super) fn scheduling(&self, priority: u8) -> Result<Option<Scheduling>, Refused> {
        let fifo = || PolicyChoice { policy: Policy::Fifo, priority: None };
        let Some(policy) = self.policy.or_else(|| self.priority.map(|_| fifo())) else {
            return Ok(None);
        };
        let policy = policy.with_priority(self.priority)?;
        Scheduling::new(policy, priority).map(Some)
    }
}

impl Scheduling {
    /// An ordinary thread.
    pub(super) const OTHER: Scheduling = Scheduling { policy: Policy::Other, priority: 0 };

    /// A choice, with the priority that it takes where it names none.
    ///
    /// # Errors
    ///
    /// No thread of ours can have it.
    pub(super) fn new(choice: PolicyChoice, priority: u8) -> Result<Scheduling, Refused> {
        let PolicyChoice { policy, priority: named } = choice;
        match (policy.has_priority(), named.unwrap_or(priority)) {
            (true, 99) => Err(Refused(format!(
                "--policy {policy}:99: the kernel's own threads run at 99; use 98 or less"
            ))),
            (true, priority) => Ok(Scheduling { policy, priority }),
            (false, _) if policy == Policy::Deadline => Err(Refused(
                "--policy deadline needs a runtime and a period, which only `rtscope run` takes: \
                 write other, batch, idle, fifo or rr"
                    .to_owned(),
            )),
            (false, _) => Ok(Scheduling { policy, priority: 0 }),
        }
    }

    /// The FIFO policy with a priority.
    pub(super) const fn fifo(priority: u8) -> Scheduling {
        Scheduling { policy: Policy::Fifo, priority }
    }

    pub(super) fn on(self, cpus: CpuSet) -> Placement {
        Placement { policy: self.policy, priority: self.priority, nice: 0, budget: None, cpus }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy.has_priority() {
            true => write!(f, "{}:{}", self.policy, self.priority),
            false => self.policy.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        place: Place,
    }

    /// What is understood of words on the command line: CPU and scheduling.
    fn typed(words: &str) -> Result<(Option<u32>, Option<String>), String> {
        let words = std::iter::once("x").chain(words.split_whitespace());
        let place = Typed::try_parse_from(words).map_err(|e| e.to_string())?.place;
        let scheduling = place.scheduling(49).map_err(|e| e.to_string())?;
        let cpu = place.cpu.asked().map_err(|e| e.to_string())?;
        Ok((cpu, scheduling.map(|scheduling| scheduling.to_string())))
    }

    #[test]
    fn policy_and_priority_are_said_in_one_word_or_in_two() {
        let fifo = |priority: &str| Ok((None, Some(format!("fifo:{priority}"))));
        assert_eq!(typed("--policy fifo:80"), fifo("80"));
        assert_eq!(typed("--policy fifo --priority 80"), fifo("80"));
        assert_eq!(typed("--policy fifo:80 -p 80"), fifo("80"));
        assert_eq!(typed("-p 80"), fifo("80"));
        assert_eq!(typed("--policy fifo"), fifo("49"));
        assert_eq!(typed("--cpu 3 --policy other"), Ok((Some(3), Some("other".to_owned()))));
        assert_eq!(typed("-c 3"), Ok((Some(3), None)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_advice() {
        for (words, why) in [
            ("--policy fifo:80 -p 70", "contradict each other"),
            ("--policy other -p 70", "add --policy fifo"),
            ("--policy other:5", "only fifo and rr have one"),
            ("--policy fifo:99", "use 98 or less"),
            ("--policy fifo:x", "write 1 to 99, for example fifo:80"),
            ("--policy deadline", "only `rtscope run` takes"),
            ("--policy fast", "is not a policy: one of"),
            ("--cpus 0-3", "name one CPU"),
        ] {
            let said = typed(words).expect_err(words);
            assert!(said.contains(why), "{words}: {said}");
        }
    }
}
