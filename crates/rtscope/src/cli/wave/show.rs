//! What `wave capture` and `import` print and write of a capture.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use rtscope_analyse::{
    instrument,
    number::{counted, grouped},
    report::wave::capture as report,
    statistics::wave::{Wave, judge},
};
use rtscope_model::{time::Nanos, wave::Capture};
use serde_json::Value;

use crate::{
    cli::{Refused, print, wall_clock},
    exit,
    record::Destination,
};

/// The capture in a folder.
pub(super) const CAPTURE: &str = "capture.vcd";

/// Where a capture goes.
#[derive(Debug, clap::Args)]
pub(super) struct Outputs {
    /// Folder for the capture (capture.vcd) and the page; nothing is kept without it
    #[arg(short, long, value_name = "DIR", conflicts_with_all = ["page", "save"])]
    out: Option<PathBuf>,
    /// Write only the page to FILE: waveform, periods, jitter over time, spectrum; - is standard output
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write only the capture to FILE, as VCD; - is standard output
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Outputs {
    /// Everything into one folder.
    pub(super) fn into_folder(folder: PathBuf, json: bool) -> Outputs {
        Outputs { out: Some(folder), page: None, save: None, json }
    }

    /// Refuses what can't be done before anything is measured.
    pub(super) fn check(&self) -> Result<(), Refused> {
        let is_stdout = |file: &Option<PathBuf>| file.as_deref() == Some(Path::new("-"));
        let documents = [is_stdout(&self.page), is_stdout(&self.save), self.json];
        match documents.iter().filter(|goes| **goes).count() {
            0 | 1 => Ok(()),
            _ => {
                let text = "two documents for standard output: leave out one of --json, --page - and --save -";
                Err(Refused(text.to_owned()))
            }
        }
    }

    /// Where the capture and the page go.
    fn destinations(&self) -> anyhow::Result<[Option<Destination>; 2]> {
        let Some(folder) = &self.out else {
            let to = |file: &Option<PathBuf>| file.as_deref().map(Destination::named);
            return Ok([to(&self.save), to(&self.page)]);
        };
        fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
        Ok([CAPTURE, "report.html"].map(|name| Some(Destination::named(&folder.join(name)))))
    }
}

/// What was seen, and how.
pub(super) struct Seen {
    pub(super) capture: Capture,
    /// Who looked, for people.
    pub(super) scope: String,
    /// What has to be said of it.
    pub(super) finding: Option<String>,
}

/// Judges, prints, writes. A refused frequency is the exit code for nothing known.
pub(super) fn finish(
    seen: &Seen,
    wanted_hz: Option<f64>,
    outputs: &Outputs,
) -> anyhow::Result<ExitCode> {
    let wave = judge(&seen.capture, wanted_hz);
    outputs.check()?;
    let [save, page] = outputs.destinations()?;
    let mut has_stdout = true;
    if let Some(to) = &save {
        has_stdout &= to.write(instrument::write_vcd(&seen.capture).as_bytes())?;
    }
    if let Some(to) = &page {
        let mut facts = vec![("scope".to_owned(), seen.scope.clone())];
        facts.extend(seen.finding.clone().map(|finding| ("finding".to_owned(), finding)));
        facts.push(("written".to_owned(), wall_clock()));
        let all = report::Shown { capture: &seen.capture, wave: &wave, wanted_hz, facts };
        has_stdout &= to.write(report::page(&all).as_bytes())?;
    }
    if outputs.json {
        let mut document = serde_json::to_value(&wave)?;
        document["line"] = Value::from(seen.capture.line.as_str());
        document["scope"] = Value::from(seen.scope.as_str());
        document["finding"] = Value::from(seen.finding.clone());
        document["ended_early"] = Value::from(seen.capture.is_full);
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else if has_stdout {
        print(&text(seen, &wave))?;
    }
    for (what, to) in [("Capture", &save), ("Report", &page)] {
        match to {
            Some(to @ Destination::File(_)) if outputs.json => note!("{what}: {to}"),
            Some(to @ Destination::File(_)) if has_stdout => print(&format!("{what}: {to}\n"))?,
            _ => {}
        }
    }
    Ok(ExitCode::from(if wave.refused.is_some() { exit::INCONCLUSIVE } else { exit::PASS }))
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
    if let Some((counted_hz, hz)) = wave.counted_hz.zip(wave.frequency_hz) {
        let ppm = (hz / counted_hz - 1.0) * 1e6;
        row(
            "by its count",
            format!("{} outside gaps: the scope is {ppm:+.1} ppm off", hertz(counted_hz)),
        );
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
