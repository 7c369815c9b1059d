//! What `rtscope compare` says of two captures: our scope beside an instrument.

use std::{fmt::Write as _, fs::File, path::Path, process::ExitCode};

use anyhow::Context as _;
use rtscope_analyse::{
    instrument::CaptureReading,
    report::wave::compare as page,
    statistics::wave::compare::{Compared, compare},
};
use serde_json::Value;

use super::import::{BYTES_MAX, Options, whole};
use crate::{
    cli::{Refused, wall_clock},
    exit,
    output::shown,
    record::Destination,
};

/// Compares two captures of one wave, edge by edge.
pub(in crate::cli) fn main(
    sides: [&Path; 2],
    options: &Options,
    out: &Destination,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let read = |side: usize| -> anyhow::Result<CaptureReading> {
        let path = sides[side];
        let bytes = File::open(path).and_then(|file| whole(file, BYTES_MAX));
        let bytes = bytes.with_context(|| format!("can't read {}", path.display()))?;
        options.read(path, &bytes, side)
    };
    let (first, second) = (read(0)?, read(1)?);
    let compared = compare(&first.capture, &second.capture, options.wanted_hz())
        .map_err(|why| Refused(why.to_string()))?;
    let sides = [(sides[0], &first), (sides[1], &second)];
    let findings: Vec<String> = sides
        .iter()
        .flat_map(|(file, side)| side.findings.iter().map(move |f| format!("{}: {f}", shown(file))))
        .collect();
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
    let all = page::WaveComparisonPage { first, second, compared: &compared, facts };
    let document = || -> serde_json::Result<String> {
        let mut document = serde_json::to_value(&compared)?;
        document["findings"] = Value::from(findings.as_slice());
        serde_json::to_string_pretty(&document)
    };
    let document = json.then(document).transpose()?;
    out.publish(&page::page(&all), document, || text(&compared, &findings))?;
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
