//! `rtscope wave capture`: the scope.

use std::process::ExitCode;

use rtscope_measure::wave::{
    WaveError,
    gpio::{self, InputLine},
    line::{self, Address},
    scope::{self, CaptureLimits, Rest},
    seat::Seat,
};
use rtscope_model::{schedule::Policy, time::Nanos};
use rtscope_sys::{clock::SystemClock, tree::Tree};

use super::{
    Hertz, PRIORITY,
    show::{self, Outputs, Seen},
    spin_is_bearable,
};
use crate::cli::place::Place;

/// Room for edges: 32 MB of memory.
const EDGES_MAX: usize = 4_000_000;

/// Room for gaps.
pub(super) const GAPS_MAX: usize = 500_000;

/// Capture a line and measure its wave
///
/// A thread on its own CPU samples the line as often as it can. It first measures its own resolution,
/// and records every gap in which it could not sample. The kernel stamps and numbers edges of a GPIO
/// line; edges that don't fit into its buffer count as lost. If the scope can't resolve the frequency,
/// it refuses to give one, and the exit code is 3.
///
/// The scope runs on the last CPU, with fifo:49 where that is permitted and does no harm. Make the wave on another
/// CPU.
///
/// Examples:
///   rtscope wave capture memory:test
///   rtscope wave capture memory:test --freq 1kHz --duration 10s --json
///   rtscope wave capture gpio:gpiochip0/17 --duration 10s --out software
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The line: memory:NAME or gpio:CHIP/LINE
    line: String,
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
    let seen = match args.line.parse()? {
        Address::Memory(name) => memory(args, &name)?,
        Address::Gpio(chip, line) => gpio(args, &chip, &line)?,
        other => return Err(WaveError::NotReadable(other.to_string()).into()),
    };
    show::finish(&seen, args.freq.map(|hz| hz.0), &args.outputs)
}

/// Looks at a word in memory from a thread of its own.
fn memory(args: &Args, name: &str) -> anyhow::Result<Seen> {
    let seat = seat(args)?;
    let line = line::open_memory(name)?;
    let limits = limits(args, seat.rest);
    let clock = SystemClock::MONOTONIC;
    let capture = scope::capture(&line, &args.line, &seat.place, &clock, limits)?;
    Ok(Seen { capture, scope: seat.place.to_string(), finding: seat.finding })
}

/// Lets the kernel stamp the edges of a pin.
fn gpio(args: &Args, chip: &str, line: &str) -> anyhow::Result<Seen> {
    let mut line = InputLine::open(chip, line, &Tree::default())?;
    let clock = SystemClock::MONOTONIC;
    let (capture, finding) = gpio::collect(&mut line, &args.line, &clock, limits(args, None));
    Ok(Seen { capture, scope: "the kernel's stamps".to_owned(), finding })
}

fn limits(args: &Args, rest: Option<Rest>) -> CaptureLimits {
    CaptureLimits { duration_ns: args.duration.0, edges_max: EDGES_MAX, gaps_max: GAPS_MAX, rest }
}

/// Where to look from: what was asked, else the best there is.
fn seat(args: &Args) -> anyhow::Result<Seat> {
    let (tree, cpus) = (Tree::default(), args.place.cpu.or_last()?);
    let Some(asked) = args.place.scheduling(PRIORITY)? else { return Ok(Seat::best(&cpus, &tree)) };
    spin_is_bearable(asked, &tree)?;
    Ok(match asked.policy {
        Policy::Other => Seat::ordinary(&cpus, "the scope is an ordinary thread, as was asked"),
        policy if policy.is_real_time() => Seat::real_time(asked.on(cpus)),
        _ => Seat { place: asked.on(cpus), rest: None, finding: None },
    })
}
