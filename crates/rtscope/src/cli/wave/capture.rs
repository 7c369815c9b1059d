//! `rtscope wave capture`: the scope.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use rtscope_analyse::{
    number::{counted, grouped},
    statistics::edges::{self, Wave},
};
use rtscope_measure::signal::{
    SignalError,
    gpio::{self, InputLine},
    line::{self, Address},
    scope::{self, Rest, Terms},
    seat::Seat,
};
use rtscope_model::{schedule::Policy, time::Nanos, wave::Capture};
use rtscope_sys::{clock::SystemClock, process, tree::Tree};
use serde_json::Value;

use super::{Hertz, Scheduling, one_cpu, spin_is_bearable};
use crate::{cli::print, exit};

/// Room for edges: 32 MB of memory.
const EDGES_MAX: usize = 4_000_000;

/// Room for gaps.
pub(super) const GAPS_MAX: usize = 500_000;

/// How much longer than asked the process may live.
const GRACE: Duration = Duration::from_secs(30);

/// Look at a line, and say what its wave is
///
/// A thread on a CPU of its own looks at the line as often as it can. It measures its own resolution
/// first, notes every time in which it could not look, and invents no edge in it. Edges of a GPIO line are
/// stamped and numbered by the kernel; those that it had no room for are counted as lost. A frequency that it
/// can't resolve is refused: the exit code is 3 then.
///
/// Examples:
///   rtscope wave capture memory:test
///   rtscope wave capture memory:test --freq 1kHz --duration 10s --json
///   rtscope wave capture gpio:gpiochip0/17 --duration 10s
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The line, as memory:NAME or gpio:CHIP/LINE
    line: String,
    /// How long
    #[arg(short, long, value_name = "TIME", default_value = "1s")]
    duration: Nanos,
    /// The frequency that the wave should have
    #[arg(short, long, value_name = "FREQUENCY")]
    freq: Option<Hertz>,
    /// The CPU to look from [default: the last; make the wave on another]
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// other, or fifo:PRIORITY [default: fifo:49 where that is permitted and does no harm]
    #[arg(long, value_name = "POLICY")]
    policy: Option<Scheduling>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What was seen, and how.
struct Seen {
    capture: Capture,
    /// Who looked, for people.
    scope: String,
    /// What has to be said of it.
    finding: Option<String>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    process::end_after(Duration::from_nanos(args.duration.0) + GRACE);
    let seen = match args.line.parse()? {
        Address::Memory(name) => memory(args, &name)?,
        Address::Gpio(chip, line) => gpio(args, &chip, &line)?,
        other => return Err(SignalError::NotReadable(other.to_string()).into()),
    };
    process::end_after(Duration::ZERO);
    let wave = edges::judge(&seen.capture, args.freq.map(|hz| hz.0));
    if args.json {
        let mut document = serde_json::to_value(&wave)?;
        document["line"] = Value::from(args.line.as_str());
        document["scope"] = Value::from(seen.scope);
        document["finding"] = Value::from(seen.finding);
        document["ended_early"] = Value::from(seen.capture.is_full);
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print(&text(&seen, &wave))?;
    }
    Ok(ExitCode::from(if wave.refused.is_some() { exit::INCONCLUSIVE } else { exit::PASS }))
}

/// Looks at a word in memory from a thread of its own.
fn memory(args: &Args, name: &str) -> anyhow::Result<Seen> {
    let seat = seat(args)?;
    let line = line::open_memory(name)?;
    let terms = terms(args, seat.rest);
    let clock = SystemClock::MONOTONIC;
    let capture = scope::capture(&line, &args.line, &seat.place, &clock, terms)?;
    Ok(Seen { capture, scope: seat.place.to_string(), finding: seat.finding })
}

/// Lets the kernel stamp the edges of a pin.
fn gpio(args: &Args, chip: &str, line: &str) -> anyhow::Result<Seen> {
    let mut line = InputLine::open(chip, line, &Tree::default())?;
    let clock = SystemClock::MONOTONIC;
    let (capture, finding) = gpio::collect(&mut line, &args.line, &clock, terms(args, None));
    Ok(Seen { capture, scope: "the kernel's stamps".to_owned(), finding })
}

fn terms(args: &Args, rest: Option<Rest>) -> Terms {
    Terms { duration_ns: args.duration.0, edges_max: EDGES_MAX, gaps_max: GAPS_MAX, rest }
}

/// Where to look from: what was asked, else the best there is.
fn seat(args: &Args) -> anyhow::Result<Seat> {
    let (tree, cpus) = (Tree::default(), one_cpu(args.cpu)?);
    let Some(asked) = args.policy else { return Ok(Seat::best(&cpus, &tree)) };
    spin_is_bearable(asked, &tree)?;
    Ok(match asked.policy {
        Policy::Other => Seat::ordinary(&cpus, "the scope is an ordinary thread, as was asked"),
        policy if policy.is_real_time() => Seat::real_time(asked.on(cpus)),
        _ => Seat { place: asked.on(cpus), rest: None, finding: None },
    })
}

fn text(seen: &Seen, wave: &Wave) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<16}{value}");
    };
    row("line", seen.capture.line.clone());
    figures(wave, &mut row);
    losses(wave, &seen.scope, &mut row);
    if let Some(finding) = &seen.finding {
        row("finding", finding.clone());
    }
    if seen.capture.is_full {
        row("ended early", format!("after {}: its memory was full", Nanos(wave.span_ns)));
    }
    text
}

/// Frequency, duty cycle, jitter.
fn figures(wave: &Wave, row: &mut impl FnMut(&str, String)) {
    match (wave.frequency_hz, &wave.refused) {
        (Some(hz), _) => {
            let uncertainty = wave.uncertainty_ppm.unwrap_or_default();
            row("frequency", format!("{} +- {uncertainty:.2} ppm", hertz(hz)));
        }
        (None, why) => {
            row("frequency", format!("refused: {}", why.as_deref().unwrap_or("unknown")))
        }
    }
    if let Some(error_ppm) = wave.error_ppm {
        row("error", format!("{error_ppm:+.1} ppm of the wanted frequency"));
    }
    if let Some(duty) = wave.duty {
        row("duty cycle", format!("{:.2} %", duty * 100.0));
    }
    if let Some(period) = &wave.period {
        let (min, median, max) =
            (Nanos(period.ns_min), Nanos(period.ns_median), Nanos(period.ns_max));
        row("period", format!("{min} to {max}, median {median}"));
        let cycles = period.cycle_to_cycle_ns_rms.map_or_else(String::new, |ns| {
            format!("; cycle to cycle {} rms", Nanos(ns.round() as u64))
        });
        row("jitter", format!("period {} rms{cycles}", Nanos(period.jitter_ns_rms.round() as u64)));
    }
    if let Some(phase) = &wave.phase {
        let (rms, span) =
            (phase.tie_ns_rms.round() as u64, phase.tie_ns_peak_to_peak.round() as u64);
        row("interval error", format!("{} rms, {} peak to peak", Nanos(rms), Nanos(span)));
    }
}

/// What was not seen, and what is wrong with the wave.
fn losses(wave: &Wave, scope: &str, row: &mut impl FnMut(&str, String)) {
    let lost = wave.lost.map_or_else(
        || "the line doesn't count".to_owned(),
        |lost| match wave.made_in_gaps {
            Some(hidden) => format!("{} lost, {} made in gaps", grouped(lost), grouped(hidden)),
            None => format!("{} lost", grouped(lost)),
        },
    );
    row("edges", format!("{} seen, {lost}", grouped(wave.edges)));
    row(
        "wrong",
        format!(
            "{} missing, {} extra, {}",
            grouped(wave.missing_edges),
            grouped(wave.extra_edges),
            if wave.glitches == 1 {
                "1 glitch".to_owned()
            } else {
                format!("{} glitches", grouped(wave.glitches))
            }
        ),
    );
    row(
        "scope",
        format!(
            "{}, {} resolution, blind {:.2} % in {}",
            scope,
            Nanos(wave.resolution_ns),
            wave.blind_share * 100.0,
            counted(wave.gaps, "gap")
        ),
    );
}

/// A frequency with six digits.
pub(super) fn hertz(hz: f64) -> String {
    match hz {
        hz if hz >= 1e6 => format!("{:.6} MHz", hz / 1e6),
        hz if hz >= 1e3 => format!("{:.6} kHz", hz / 1e3),
        hz => format!("{hz:.4} Hz"),
    }
}
