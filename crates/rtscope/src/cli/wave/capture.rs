//! `rtscope wave capture`: the scope.

use std::process::ExitCode;

use rtscope_measure::wave::{
    WaveError,
    gpio::{self, InputLine},
    line::{self, Address},
    scope::{self, CaptureLimits, GAPS_MAX, Rest},
    scopes::{self, LINES_MAX},
    seat::Seat,
};
use rtscope_model::{schedule::Policy, time::Nanos};
use rtscope_sys::{clock::SystemClock, line::MemoryLine, tree::Tree};

use super::{
    Hertz, PRIORITY,
    show::{self, Outputs, SeenWave},
    spin_is_bearable,
};
use crate::cli::{Refused, place::Place};

/// Room for edges: 32 MB of memory.
const EDGES_MAX: usize = 4_000_000;

/// Capture a line, or several at once, and measure the wave
///
/// A thread on its own CPU samples the line as often as it can. It first measures its own resolution,
/// and records every gap in which it could not sample. The kernel stamps and numbers edges of a GPIO
/// line; edges that don't fit into its buffer count as lost. If the scope can't resolve the frequency,
/// it refuses to give one, and the exit code is 3.
///
/// With several lines rtscope also prints the delay and the phase of each line after the first one. The lines must
/// be all memory lines or all GPIO lines. The exit code is that of the first line.
///
/// The scope runs on the last CPU, with fifo:49 where that is permitted and does no harm. Make the wave on another
/// CPU.
///
/// Examples:
///   rtscope wave capture memory:test
///   rtscope wave capture memory:test --freq 1kHz --duration 10s --json
///   rtscope wave capture gpio:gpiochip0/17 --duration 10s --out software
///   rtscope wave capture memory:test memory:alarm --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The line: memory:NAME or gpio:CHIP/LINE; up to four lines at once
    #[arg(value_name = "LINE", required = true, num_args = 1..=LINES_MAX)]
    lines: Vec<String>,
    /// Capture for this long
    #[arg(short, long, value_name = "TIME", default_value = "1s")]
    duration: Nanos,
    /// Intended frequency of the wave
    #[arg(long, value_name = "FREQUENCY")]
    freq: Option<Hertz>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    outputs: Outputs,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    args.outputs.check()?;
    let wanted_hz = args.freq.map(|hz| hz.0);
    match args.lines.as_slice() {
        [line] => {
            let seen = match line.parse()? {
                Address::Memory(name) => memory(args, line, &name)?,
                Address::Gpio(chip, pin) => gpio(args, line, &chip, &pin)?,
                other => return Err(WaveError::NotReadable(other.to_string()).into()),
            };
            show::finish(&seen, wanted_hz, &args.outputs)
        }
        lines => show::finish_several(&several(args, lines)?, wanted_hz, &args.outputs),
    }
}

/// Captures several lines in the same time.
fn several(args: &Args, lines: &[String]) -> anyhow::Result<Vec<SeenWave>> {
    let addresses: Vec<Address> =
        lines.iter().map(|line| line.parse()).collect::<Result<_, _>>()?;
    if addresses.iter().enumerate().any(|(n, one)| addresses[..n].contains(one)) {
        return Err(Refused("a line is named twice".to_owned()).into());
    }
    let memory = addresses.iter().map(|address| match address {
        Address::Memory(name) => Some(name.as_str()),
        _ => None,
    });
    if let Some(names) = memory.collect::<Option<Vec<&str>>>() {
        return memories(args, lines, &names);
    }
    let pins = addresses.iter().map(|address| match address {
        Address::Gpio(chip, pin) => Ok((chip.as_str(), pin.as_str())),
        Address::Memory(_) => {
            let text =
                "several lines must be all memory: or all gpio:, because one scope reads them all";
            Err(anyhow::Error::from(Refused(text.to_owned())))
        }
        other => Err(WaveError::NotReadable(other.to_string()).into()),
    });
    let pins = pins.collect::<anyhow::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let looking: Vec<_> = pins
            .iter()
            .zip(lines)
            .map(|((chip, pin), line)| scope.spawn(move || gpio(args, line, chip, pin)))
            .collect();
        let seen = looking.into_iter().map(|one| one.join().expect("a scope does not panic"));
        seen.collect()
    })
}

/// Looks at words in memory from one thread.
fn memories(args: &Args, lines: &[String], names: &[&str]) -> anyhow::Result<Vec<SeenWave>> {
    let seat = seat(args)?;
    let opened: Vec<MemoryLine> =
        names.iter().map(|name| line::open_memory(name)).collect::<Result<_, _>>()?;
    let limits = limits(args, seat.rest);
    let clock = SystemClock::MONOTONIC;
    let captures = scopes::capture(&opened, lines, &seat.place, &clock, limits);
    opened.iter().for_each(line::remove_unused);
    let seen = captures?.into_iter().map(|capture| SeenWave {
        capture,
        scope: seat.place.to_string(),
        finding: seat.finding.clone(),
    });
    Ok(seen.collect())
}

/// Looks at a word in memory from a thread of its own.
fn memory(args: &Args, address: &str, name: &str) -> anyhow::Result<SeenWave> {
    let seat = seat(args)?;
    let line = line::open_memory(name)?;
    let limits = limits(args, seat.rest);
    let clock = SystemClock::MONOTONIC;
    let capture = scope::capture(&line, address, &seat.place, &clock, limits);
    line::remove_unused(&line);
    Ok(SeenWave { capture: capture?, scope: seat.place.to_string(), finding: seat.finding })
}

/// Lets the kernel stamp the edges of a pin.
fn gpio(args: &Args, address: &str, chip: &str, pin: &str) -> anyhow::Result<SeenWave> {
    let mut line = InputLine::open(chip, pin, &Tree::default())?;
    let clock = SystemClock::MONOTONIC;
    let (capture, finding) = gpio::collect(&mut line, address, &clock, limits(args, None));
    Ok(SeenWave { capture, scope: "the kernel's stamps".to_owned(), finding })
}

fn limits(args: &Args, rest: Option<Rest>) -> CaptureLimits {
    let edges_max = EDGES_MAX / args.lines.len();
    CaptureLimits { duration_ns: args.duration.0, edges_max, gaps_max: GAPS_MAX, rest }
}

/// Where to look from: what was asked, else the best there is.
fn seat(args: &Args) -> anyhow::Result<Seat> {
    let (tree, cpus) = (Tree::default(), args.place.cpu.or_last()?);
    let Some(asked) = args.place.scheduling(PRIORITY)? else { return Ok(Seat::best(&cpus, &tree)) };
    spin_is_bearable(asked, &tree)?;
    Ok(match asked.policy {
        Policy::Other => Seat::ordinary(&cpus, "the scope is an ordinary thread, as requested"),
        policy if policy.is_real_time() => Seat::real_time(asked.on(cpus)),
        _ => Seat { place: asked.on(cpus), rest: None, finding: None },
    })
}
