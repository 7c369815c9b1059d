//! What `wave capture` and `import` print and write of a capture.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_analyse::{
    instrument,
    report::wave::capture as report,
    statistics::wave::{
        between::{Between, between},
        judge,
    },
};
use rtscope_model::wave::Capture;

use crate::{
    cli::{Refused, print, wall_clock},
    exit,
    output::shown,
    record,
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
                let text = "only one document can go to standard output: use only one of --json, --page - and --save -";
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
        record::make_folder(folder)?;
        Ok([CAPTURE, "report.html"].map(|name| Some(Destination::named(&folder.join(name)))))
    }
}

/// What was seen, and how.
pub(super) struct SeenWave {
    pub(super) capture: Capture,
    /// Who looked, for people.
    pub(super) scope: String,
    /// What has to be said of it.
    pub(super) finding: Option<String>,
}

/// Judges, prints, writes. A refused frequency is the exit code for nothing known.
pub(super) fn finish(
    seen: &SeenWave,
    wanted_hz: Option<f64>,
    outputs: &Outputs,
) -> anyhow::Result<ExitCode> {
    let wave = judge(&seen.capture, wanted_hz);
    let SeenWave { capture, scope, finding } = seen;
    let (finding, written) = (finding.as_deref(), wall_clock());
    let written = Some(written.as_str());
    let shown = report::CapturePage { capture, wave: &wave, wanted_hz, scope, finding, written };
    outputs.check()?;
    let [save, page] = outputs.destinations()?;
    let mut has_stdout = true;
    if let Some(to) = &save {
        has_stdout &= to.write(instrument::write_vcd(capture).as_bytes())?;
    }
    if let Some(to) = &page {
        has_stdout &= to.write(report::page(&shown).as_bytes())?;
    }
    if outputs.json {
        print(&(serde_json::to_string_pretty(&report::document(&shown)?)? + "\n"))?;
    } else if has_stdout {
        print(&report::text(&shown))?;
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

/// The same of several lines that were captured at once, and how each stands to the first. The exit code is that
/// of the first line: an alarm has no frequency.
pub(super) fn finish_several(
    seen: &[SeenWave],
    wanted_hz: Option<f64>,
    outputs: &Outputs,
) -> anyhow::Result<ExitCode> {
    if outputs.page.is_some() || outputs.save.is_some() {
        let text = "--page and --save take one line: write several into a folder with --out";
        return Err(Refused(text.to_owned()).into());
    }
    let (mut text, mut documents, written) = (String::new(), Vec::new(), wall_clock());
    let mut code = exit::PASS;
    for (n, SeenWave { capture, scope, finding }) in seen.iter().enumerate() {
        // The others may be of any frequency.
        let wanted_hz = wanted_hz.filter(|_| n == 0);
        let wave = judge(capture, wanted_hz);
        let (finding, written) = (finding.as_deref(), Some(written.as_str()));
        let facts =
            report::CapturePage { capture, wave: &wave, wanted_hz, scope, finding, written };
        if let Some(folder) = &outputs.out {
            let own = Outputs::into_folder(folder.join((n + 1).to_string()), false);
            let [save, page] = own.destinations()?;
            save.map(|to| to.write(instrument::write_vcd(capture).as_bytes())).transpose()?;
            page.map(|to| to.write(report::page(&facts).as_bytes())).transpose()?;
        }
        documents.push(report::document(&facts)?);
        text += &format!("{}\n", report::text(&facts));
        if n == 0 && wave.refused.is_some() {
            code = exit::INCONCLUSIVE;
        }
    }
    let others = seen.iter().skip(1);
    let all: Vec<Between> =
        others.map(|second| between(&seen[0].capture, &second.capture)).collect();
    all.iter().for_each(|one| text += &(sentence(one) + "\n"));
    let document = serde_json::json!({ "lines": documents, "between": all });
    let document = serde_json::to_string_pretty(&document)? + "\n";
    if let Some(folder) = &outputs.out {
        record::write_in(folder, "lines.json", &document)?;
        text += &format!("Captures: {}\n", shown(folder));
    }
    print(if outputs.json { &document } else { &text })?;
    Ok(ExitCode::from(code))
}

/// How a line stands to the first one.
fn sentence(found: &Between) -> String {
    let [first, second] = &found.lines;
    let us = |ns: f64| format!("{:.3} us", ns / 1e3);
    let (Some(low), Some(mean), Some(high)) =
        (found.delay_ns_min, found.delay_ns_mean, found.delay_ns_max)
    else {
        return format!("{second} has no rising edge after one of {first}");
    };
    let phase = match found.phase_degrees {
        Some(degrees) => format!("phase {degrees:.1} degrees"),
        None => "no fixed phase".to_owned(),
    };
    format!(
        "{second} rises {} to {} after {first}, {} on average, in {} edges; {phase}",
        us(low as f64),
        us(high as f64),
        us(mean),
        found.edges
    )
}
