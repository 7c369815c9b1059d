//! `rtscope wave`: square waves on lines.

mod capture;
pub(super) mod compare;
mod generate;
pub(super) mod import;
mod live;
pub(super) mod runner;
mod show;
mod sweep;

use std::{process::ExitCode, str::FromStr};

use clap::Subcommand;
use rtscope_measure::wave::seat;
use rtscope_sys::tree::Tree;

pub(super) use self::{
    generate::WaveOptions,
    sweep::{Tries, with_all_in_full},
};
use super::{Refused, place::Scheduling};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    Capture(capture::Args),
    Generate(generate::Args),
    Live(live::Args),
    Sweep(sweep::Args),
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Capture(args) => capture::main(args),
        Verb::Generate(args) => generate::main(args),
        Verb::Live(args) => live::main(args),
        Verb::Sweep(args) => sweep::main(args),
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

/// The priority of a real-time thread that names none: below that of the kernel's interrupt threads.
const PRIORITY: u8 = 49;

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
    }
}
