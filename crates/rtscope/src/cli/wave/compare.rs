//! `rtscope wave compare`: our scope beside an instrument.

use std::{fmt::Write as _, fs, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use rtscope_analyse::{
    instrument::Choice,
    report::wave::compare as page,
    statistics::wave::compare::{Compared, compare},
};
use serde_json::Value;

use super::{Hertz, import};
use crate::{
    cli::{Refused, print, wall_clock},
    exit,
    output::shown,
};

/// Compare two captures of the same wave, edge by edge
///
/// Their clocks may have different zeros and rates. rtscope computes offset and drift; the remaining
/// differences are the jitter of one or the other. An edge without a partner within a quarter of a period is
/// missing in the other capture. Edges in the gaps of the other capture are counted separately.
///
/// Examples:
///   rtscope wave capture gpio:gpiochip0/27 --duration 10s --save software.vcd
///   rtscope wave compare software.vcd analyser.vcd --second-channel D0
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The software scope's capture, as `wave capture --save` writes it, or any that `wave import` reads
    software: PathBuf,
    /// The instrument's
    hardware: PathBuf,
    /// Channel of the first file
    #[arg(long, value_name = "NAME")]
    first_channel: Option<String>,
    /// Channel of the second file
    #[arg(long, value_name = "NAME")]
    second_channel: Option<String>,
    /// Samples per second, for CSV that doesn't contain the rate
    #[arg(long, value_name = "FREQUENCY")]
    samplerate: Option<Hertz>,
    /// Intended frequency of the wave
    #[arg(long, value_name = "FREQUENCY")]
    freq: Option<Hertz>,
    /// Also write a page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let samples_hz = args.samplerate.map(|hz| hz.0);
    let read = |file: &PathBuf, channel: &Option<String>| {
        import::read(file, Choice { channel: channel.as_deref(), samples_hz })
    };
    let first = read(&args.software, &args.first_channel)?;
    let second = read(&args.hardware, &args.second_channel)?;
    let wanted_hz = args.freq.map(|hz| hz.0);
    let compared = compare(&first.capture, &second.capture, wanted_hz)
        .map_err(|why| Refused(why.to_string()))?;
    let sides = [(&args.software, &first), (&args.hardware, &second)];
    let findings: Vec<String> = sides
        .iter()
        .flat_map(|(file, side)| side.findings.iter().map(move |f| format!("{}: {f}", shown(file))))
        .collect();
    if let Some(file) = &args.page {
        let mut facts: Vec<(String, String)> = ["first", "second"]
            .iter()
            .zip(sides)
            .map(|(name, (file, side))| {
                ((*name).to_owned(), format!("{}, {}", shown(file), side.format))
            })
            .collect();
        facts.extend(findings.iter().map(|finding| ("finding".to_owned(), finding.clone())));
        facts.push(("written".to_owned(), wall_clock()));
        let (first, second) = (&first.capture, &second.capture);
        let all = page::Shown { first, second, compared: &compared, facts };
        fs::write(file, page::page(&all)).with_context(|| format!("write {}", file.display()))?;
    }
    if args.json {
        let mut document = serde_json::to_value(&compared)?;
        document["findings"] = Value::from(findings);
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print(&text(&compared, &findings))?;
    }
    Ok(ExitCode::from(exit::PASS))
}

fn text(compared: &Compared, findings: &[String]) -> String {
    let mut text = String::new();
    for (name, value) in page::rows(compared) {
        let _ = writeln!(text, "{name:<16}{value}");
    }
    for finding in findings {
        let _ = writeln!(text, "{:<16}{finding}", "finding");
    }
    text
}
