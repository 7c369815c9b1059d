//! The command line.

use std::{ops::RangeInclusive, path::PathBuf, str::FromStr};

use crate::system::Policy;

pub const HELP: &str = "usage: skeleton_name [OPTION VALUE]...

  --period-us N      period, 50 to 10000000 us [1000]
  --policy NAME      fifo, rr or other [fifo]
  --priority N       1 to 99 for fifo and rr [80]
  --cpu N            the only CPU to run on [any]
  --cycles N         end after so many; 0 runs until SIGINT or SIGTERM [0]
  --histogram FILE   write the latencies there, as cyclictest does
";

/// What was asked.
#[derive(Debug)]
pub struct Options {
    pub period_us: i64,
    pub policy: Policy,
    pub priority: i32,
    pub cpu: Option<usize>,
    /// 0: until a signal.
    pub cycles: u64,
    pub histogram: Option<PathBuf>,
}

impl Options {
    pub fn read(words: &[String]) -> Result<Options, String> {
        let mut options = Options {
            period_us: 1000,
            policy: Policy::Fifo,
            priority: 80,
            cpu: None,
            cycles: 0,
            histogram: None,
        };
        for pair in words.chunks(2) {
            let [option, value] = pair else {
                return Err(format!("{}: an option with a value is expected", pair[0]));
            };
            match option.as_str() {
                "--period-us" => options.period_us = number(option, value, 50..=10_000_000)?,
                "--policy" => options.policy = policy(value)?,
                "--priority" => options.priority = number(option, value, 1..=99)?,
                "--cpu" => options.cpu = Some(number(option, value, 0..=1023)?),
                "--cycles" => options.cycles = number(option, value, 0..=i64::MAX as u64)?,
                "--histogram" => options.histogram = Some(value.into()),
                _ => return Err(format!("{option}: there is no such option")),
            }
        }
        if options.policy == Policy::Other {
            options.priority = 0;
        }
        Ok(options)
    }
}

fn number<N>(option: &str, text: &str, range: RangeInclusive<N>) -> Result<N, String>
where
    N: FromStr + PartialOrd + std::fmt::Display,
{
    text.parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            format!(
                "{option}: a number from {} to {}",
                range.start(),
                range.end()
            )
        })
}

fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "fifo" => Ok(Policy::Fifo),
        "rr" => Ok(Policy::Rr),
        "other" => Ok(Policy::Other),
        _ => Err("--policy: fifo, rr or other".to_owned()),
    }
}
