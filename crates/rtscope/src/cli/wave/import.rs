//! `rtscope wave import`: an instrument's capture before the same judge.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use rtscope_analyse::instrument::{self, Choice, Reading};

use super::{
    Hertz,
    show::{self, Outputs, Seen},
};
use crate::cli::Refused;

/// Analyse the capture of a logic analyser like one of rtscope's scope
///
/// rtscope recognises VCD (sigrok, PulseView, Saleae, pigpio's piscope, capture --save) and sigrok's CSV by
/// their content. An unknown level (x, z) is a gap. rtscope lists errors of the file and analyses the rest.
///
/// Examples:
///   rtscope wave import piscope.vcd --channel 17 --freq 1kHz
///   sigrok-cli -d fx2lafw -c samplerate=24m --time 1s -O csv > pin.csv
///   rtscope wave import pin.csv --channel D0
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The file
    file: PathBuf,
    /// Its channel [default: the only one that changes]
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Samples per second, for CSV that doesn't contain the rate
    #[arg(long, value_name = "FREQUENCY")]
    samplerate: Option<Hertz>,
    /// Intended frequency of the wave
    #[arg(long, value_name = "FREQUENCY")]
    freq: Option<Hertz>,
    #[command(flatten)]
    outputs: Outputs,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let choice =
        Choice { channel: args.channel.as_deref(), samples_hz: args.samplerate.map(|hz| hz.0) };
    let reading = read(&args.file, choice)?;
    let scope = format!("{} of an instrument", reading.format);
    let finding = (!reading.findings.is_empty()).then(|| reading.findings.join("; "));
    let seen = Seen { capture: reading.capture, scope, finding };
    show::finish(&seen, args.freq.map(|hz| hz.0), &args.outputs)
}

/// Reads a capture's file.
pub(super) fn read(file: &Path, choice: Choice<'_>) -> anyhow::Result<Reading> {
    let bytes = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    instrument::read(&bytes, choice)
        .map_err(|why| Refused(format!("{}: {why}", file.display())).into())
}
