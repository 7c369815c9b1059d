//! What `rtscope import` makes of an instrument's capture: it meets the same judge as our own scope's.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use rtscope_analyse::instrument::{self, CaptureChoice, CaptureReading};

use super::{
    Hertz,
    show::{self, CAPTURE, Outputs, SeenWave},
};
use crate::{
    cli::{Refused, wall_clock},
    record,
};

/// How to read captures, for `import` and `compare`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Captures")]
#[group(id = "captures")]
pub(in crate::cli) struct Options {
    /// Channel of the capture [default: the only one that changes].
    #[arg(long, value_name = "NAME")]
    channel: Vec<String>,
    /// Samples per second of the instrument, if the file doesn't contain the rate
    #[arg(long, value_name = "FREQUENCY")]
    samplerate: Option<Hertz>,
    /// Intended frequency of the wave
    #[arg(long, value_name = "FREQUENCY")]
    freq: Option<Hertz>,
}

/// Formats of captures, as `--format` names them.
pub(in crate::cli) const FORMATS: [(&str, &str); 2] = [
    ("vcd", "captures as VCD: sigrok, PulseView, Saleae, pigpio's piscope, wave capture"),
    ("sigrok-csv", "captures as CSV of sigrok"),
];

impl Options {
    /// Whether any was given: then the file is a capture, whatever it looks like.
    pub(in crate::cli) fn are_given(&self) -> bool {
        !self.channel.is_empty() || self.samplerate.is_some() || self.freq.is_some()
    }

    pub(super) fn wanted_hz(&self) -> Option<f64> {
        self.freq.map(|hz| hz.0)
    }

    /// Reads one of the sides' captures; one channel that is named is that of every side.
    pub(in crate::cli) fn read(
        &self,
        path: &Path,
        bytes: &[u8],
        side: usize,
    ) -> anyhow::Result<CaptureReading> {
        let channel = self.channel.get(side).or(self.channel.first()).map(String::as_str);
        let choice = CaptureChoice { channel, samples_hz: self.samplerate.map(|hz| hz.0) };
        instrument::read(bytes, choice)
            .map_err(|why| Refused(format!("{}: {why}", path.display())).into())
    }
}

/// Imports a capture into a folder.
pub(in crate::cli) fn main(
    path: &Path,
    source: impl Read,
    options: &Options,
    out: Option<&Path>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let bytes =
        whole(source, BYTES_MAX).with_context(|| format!("can't read {}", path.display()))?;
    let reading = options.read(path, &bytes, 0)?;
    let scope = format!("{} of an instrument", reading.format);
    let finding = (!reading.findings.is_empty()).then(|| reading.findings.join("; "));
    let seen = SeenWave { capture: reading.capture, scope, finding };
    let folder = record::new_folder(out, "import", &wall_clock(), CAPTURE)?;
    show::finish(&seen, options.wanted_hz(), &Outputs::into_folder(folder, json))
}

/// A capture is read as a whole: a larger one would fill the memory.
pub(super) const BYTES_MAX: u64 = 2 << 30;

/// All bytes of a source that isn't longer than this.
pub(super) fn whole(source: impl Read, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        let text =
            format!("it is larger than {} MiB: capture less, or fewer channels", longest >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// The capture in a folder that `import` or `wave capture --out` wrote, or in a file.
pub(in crate::cli) fn capture_of(
    path: &Path,
    options: &Options,
) -> anyhow::Result<Option<PathBuf>> {
    let inside = path.join(CAPTURE);
    if inside.is_file() {
        return Ok(Some(inside));
    }
    if !path.is_file() {
        return Ok(None);
    }
    let mut head = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
        .with_context(|| format!("can't read {}", path.display()))?;
    Ok((options.are_given() || instrument::is_capture(&head)).then(|| path.to_owned()))
}

/// Bytes that a file is known by.
pub(in crate::cli) const HEAD_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_without_an_end_is_refused() {
        assert_eq!(whole(&[7; 100][..], 100).expect("it fits").len(), 100);
        let said = whole(io::repeat(0), 1 << 20).expect_err("endless").to_string();
        assert!(said.contains("larger than 1 MiB"), "{said}");
    }
}
