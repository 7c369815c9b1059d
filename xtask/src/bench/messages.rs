//! Messages a second, beside hackbench at the same groups, descriptors and size.
//!
//! hackbench passes a number of messages and says how long it took from the start signal to the last
//! one; rtscope passes messages for a time and says how many a second. hackbench's number is chosen so
//! that both run equally long.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result};

use super::{
    MeasuredProgram, Options,
    table::{Goal, Line},
};
use crate::shell;

const GROUPS: u64 = 2;
/// Senders in a group, and as many receivers.
const FDS: u64 = 20;
const SIZE: u64 = 100;

/// Loops of hackbench's trial run.
const TRIAL_LOOPS: u64 = 500;

/// Ways to pass messages: our options, and hackbench's.
const WAYS: &[(&str, &str, &[&str])] = &[
    ("process", "socket", &["--process"]),
    ("process", "pipe", &["--process", "--pipe"]),
    ("thread", "socket", &["--threads"]),
    ("thread", "pipe", &["--threads", "--pipe"]),
];

pub(super) fn lines(subject: &MeasuredProgram, options: &Options) -> Result<Vec<Line>> {
    WAYS.iter()
        .map(|(mode, via, words)| {
            let trial = hackbench(words, TRIAL_LOOPS)?;
            let loops = (trial * options.messages.as_secs_f64() / messages(1)).ceil() as u64;
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..options.rounds.max(5) {
                theirs.push(hackbench(words, loops.max(1))? / 1e6);
                ours.push(rtscope(subject, mode, via, options.messages)? / 1e6);
            }
            let what = format!("messages a second, {mode} {via}");
            Ok(Line { what, unit: "million", ours, theirs, goal: Goal::AtLeast(1.0) })
        })
        .collect()
}

/// How many messages hackbench passes: each sender sends `loops` to each receiver of its group.
fn messages(loops: u64) -> f64 {
    (GROUPS * FDS * FDS * loops) as f64
}

/// Messages a second of hackbench.
fn hackbench(words: &[&str], loops: u64) -> Result<f64> {
    let mut command = Command::new("hackbench");
    // Short options: rt-tests 2.4 does not read the number after --datasize=.
    for (option, number) in [("-g", GROUPS), ("-f", FDS), ("-s", SIZE), ("-l", loops)] {
        command.arg(option).arg(number.to_string());
    }
    command.args(words);
    let output = shell::output(&mut command, Duration::from_secs(120)).context("hackbench")?;
    let seconds = seconds(&output).context("hackbench printed no time")?;
    Ok(messages(loops) / seconds)
}

/// The time in hackbench's output: `Time: 0.962`.
fn seconds(output: &str) -> Option<f64> {
    let time = output.lines().find_map(|line| line.strip_prefix("Time:"))?;
    time.trim().parse().ok().filter(|seconds| *seconds > 0.0)
}

/// Messages a second of ours.
fn rtscope(subject: &MeasuredProgram, mode: &str, via: &str, duration: Duration) -> Result<f64> {
    let mut command = Command::new(&subject.rtscope);
    command.args(["load", "message", "--json", "--duration"]);
    command.arg(format!("{}ms", duration.as_millis()));
    command.arg(format!("groups={GROUPS}")).arg(format!("fds={FDS}"));
    command.arg(format!("size={SIZE}")).arg(format!("mode={mode}")).arg(format!("via={via}"));
    let output = shell::output(&mut command, duration + Duration::from_secs(60))?;
    per_second(&output).context("rtscope load printed no rate")
}

/// The rate in the JSON document of `rtscope load`.
fn per_second(output: &str) -> Option<f64> {
    let document: serde_json::Value = serde_json::from_str(output).ok()?;
    document["per_second"].as_f64().filter(|_| document["unit"] == "messages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_hackbench_is_read() {
        let output = "Running in process mode with 2 groups\nEach sender\nTime: 0.962\n";
        assert_eq!(seconds(output), Some(0.962));
        assert_eq!(seconds("Time: 0.000\n"), None);
        assert_eq!(seconds("Running\n"), None);
    }

    #[test]
    fn the_rate_of_a_load_is_read() {
        let output = r#"{ "work": 5, "unit": "messages", "per_second": 1250.5 }"#;
        assert_eq!(per_second(output), Some(1250.5));
        assert_eq!(per_second(&output.replace("messages", "blocks")), None);
        assert_eq!(per_second("oops"), None);
    }
}
