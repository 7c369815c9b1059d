//! `rtscope wave`: square waves on lines.

mod capture;
mod compare;
mod generate;
mod import;
mod live;
mod runner;
mod show;
mod sweep;

use std::{process::ExitCode, str::FromStr};

use clap::Subcommand;
use rtscope_measure::wave::seat;
use rtscope_model::{
    cpu::CpuSet,
    schedule::{Placement, Policy},
};
use rtscope_sys::{sched, tree::Tree};

use super::Refused;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    Capture(capture::Args),
    Compare(compare::Args),
    Generate(generate::Args),
    Import(import::Args),
    Live(live::Args),
    Sweep(sweep::Args),
    /// Becomes a subject; started by `sweep`
    #[command(hide = true)]
    Subject(runner::Args),
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Capture(args) => capture::main(args),
        Verb::Compare(args) => compare::main(args),
        Verb::Generate(args) => generate::main(args),
        Verb::Import(args) => import::main(args),
        Verb::Live(args) => live::main(args),
        Verb::Sweep(args) => sweep::main(args),
        Verb::Subject(args) => runner::main(args),
    }
}

/// A frequency in Hz: `50Hz`, `2.5kHz`, `1MHz`, `900`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Hertz(f64);

impl FromStr for Hertz {
    type Err = String;

    fn from_str(text: &str) -> Result<Hertz, String> {
        let units = [("MHz", 1e6), ("kHz", 1e3), ("mHz", 1e-3), ("Hz", 1.0), ("", 1.0)];
        let (number, unit) = units
            .iter()
            .find_map(|(suffix, unit)| Some((text.trim().strip_suffix(suffix)?.trim_end(), *unit)))
            .expect("every text ends in nothing");
        let hz = number.parse::<f64>().ok().map(|number| number * unit);
        hz.filter(|hz| (1e-3..=1e8).contains(hz)).map(Hertz).ok_or_else(|| {
            format!("{text:?} is not a frequency: write 50Hz, 2.5kHz or 1MHz (0.001 Hz to 100 MHz)")
        })
    }
}

/// A share: `10%`, `0.1`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
        let share = number.trim().parse::<f64>().ok().map(|number| number / unit);
        share.filter(|share| (0.0..1.0).contains(share) && *share > 0.0).map(Share).ok_or_else(
            || format!("{text:?} is not a share: write 10% or 0.1, above 0 and below 1"),
        )
    }
}

/// A policy with its priority: `other`, `fifo`, `fifo:49`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduling {
    pub(super) policy: Policy,
    priority: u8,
}

impl FromStr for Scheduling {
    type Err = String;

    fn from_str(text: &str) -> Result<Scheduling, String> {
        let (word, number) = text.split_once(':').map_or((text, None), |(w, n)| (w, Some(n)));
        let policy: Policy = word.parse()?;
        let bad = || format!("{text:?}: write other, batch, idle, fifo:49 or rr:49");
        match (policy.has_priority(), number) {
            (true, number) => {
                let priority = number.unwrap_or("49").parse().ok();
                let priority = priority.filter(|n| (1..=98).contains(n)).ok_or_else(bad)?;
                Ok(Scheduling { policy, priority })
            }
            (false, None) if policy != Policy::Deadline => Ok(Scheduling { policy, priority: 0 }),
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.policy.has_priority() {
            true => write!(f, "{}:{}", self.policy, self.priority),
            false => self.policy.fmt(f),
        }
    }
}

impl Scheduling {
    pub(super) fn on(self, cpus: CpuSet) -> Placement {
        Placement { policy: self.policy, priority: self.priority, nice: 0, budget: None, cpus }
    }
}

/// The CPU that was asked for, or the last one that may be used.
pub(super) fn one_cpu(asked: Option<u32>) -> anyhow::Result<CpuSet> {
    let allowed = sched::affinity(sched::SELF)?;
    match asked {
        Some(cpu) if !allowed.contains(cpu) => {
            Err(Refused(format!("CPU {cpu} can't be used: there are {allowed}")).into())
        }
        Some(cpu) => Ok([cpu].into_iter().collect()),
        None => Ok(allowed.last().into_iter().collect()),
    }
}

/// A real-time thread that never sleeps needs throttling, and leaves a CPU to all others.
fn spin_is_bearable(scheduling: Scheduling, tree: &Tree) -> anyhow::Result<()> {
    if !scheduling.policy.is_real_time() {
        return Ok(());
    }
    match seat::obstacle(tree) {
        Some(why) => Err(Refused(format!("{why}: use --policy other")).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_read() {
        let hz = |text: &str| text.parse::<Hertz>().map(|hz| hz.0);
        assert_eq!(
            [hz("50Hz"), hz("2.5kHz"), hz("1MHz"), hz("900")],
            [50.0, 2500.0, 1e6, 900.0].map(Ok)
        );
        for wrong in ["", "Hz", "-5Hz", "0", "1GHz", "nan"] {
            assert!(hz(wrong).is_err(), "{wrong:?}");
        }
        let share = |text: &str| text.parse::<Share>().map(|share| share.0);
        assert_eq!([share("10%"), share("0.1")], [Ok(0.1), Ok(0.1)]);
        assert!(share("0").is_err() && share("100%").is_err() && share("x").is_err());
        for text in ["other", "fifo:49", "rr:1"] {
            assert_eq!(text.parse::<Scheduling>().expect("a policy").to_string(), text);
        }
        for wrong in ["fifo:99", "other:5", "deadline", "fast"] {
            assert!(wrong.parse::<Scheduling>().is_err(), "{wrong:?}");
        }
    }
}
