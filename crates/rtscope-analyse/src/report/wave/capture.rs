//! A capture as a page: figures, waveform, periods, jitter over time, and its spectrum.

use std::fmt::Write as _;

use askama::Template;
use rtscope_model::{time::Nanos, wave::Capture};
use serde_json::Value;

use crate::{
    number::{counted, exact_hertz, grouped, hertz},
    plot,
    statistics::wave::{Wave, spectrum},
};

/// What is shown.
#[derive(Clone, Debug)]
pub struct CapturePage<'a> {
    pub capture: &'a Capture,
    pub wave: &'a Wave,
    /// The frequency that was wanted.
    pub wanted_hz: Option<f64>,
    /// Who looked.
    pub scope: &'a str,
    /// What has to be said of it.
    pub finding: Option<&'a str>,
    pub written: Option<&'a str>,
}

/// A picture with what it shows.
pub(super) struct Picture {
    pub(super) title: &'static str,
    pub(super) about: String,
    pub(super) svg: String,
}

#[derive(Template)]
#[template(path = "wave_capture.html")]
pub(super) struct Page<'a> {
    pub(super) style: &'static str,
    pub(super) dark: String,
    pub(super) line: &'a str,
    pub(super) headline: String,
    pub(super) rows: Vec<(&'static str, String)>,
    pub(super) pictures: Vec<Picture>,
    pub(super) allan: Vec<(String, String, String)>,
    pub(super) facts: &'a [(String, String)],
}

/// The page. The same capture gives the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &CapturePage<'_>) -> String {
    let facts = [("scope", Some(all.scope)), ("finding", all.finding), ("written", all.written)];
    let known = |(name, value): (&str, Option<&str>)| Some((name.to_owned(), value?.to_owned()));
    let facts: Vec<(String, String)> = facts.into_iter().filter_map(known).collect();
    let page = Page {
        style: include_str!("../template/style.css"),
        dark: plot::dark_rules(),
        line: &all.capture.line,
        headline: headline(all),
        rows: rows(all.wave),
        pictures: pictures(all),
        allan: all.wave.phase.iter().flat_map(|phase| &phase.allan).map(allan).collect(),
        facts: &facts,
    };
    page.render().expect("a string takes every text")
}

/// The figures as a JSON document.
///
/// # Errors
///
/// Never for values that a wave can hold.
pub fn document(all: &CapturePage<'_>) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(all.wave)?;
    document["line"] = Value::from(all.capture.line.as_str());
    document["scope"] = Value::from(all.scope);
    document["finding"] = Value::from(all.finding);
    document["ended_early"] = Value::from(all.capture.is_full);
    Ok(document)
}

/// What the capture says, for a terminal.
#[must_use]
pub fn text(all: &CapturePage<'_>) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<16}{value}");
    };
    row("line", all.capture.line.clone());
    figures(all.wave, &mut row);
    losses(all.wave, all.scope, &mut row);
    if let Some(finding) = all.finding {
        row("finding", finding.to_owned());
    }
    if all.capture.is_full {
        row("ended early", format!("after {}: its memory was full", Nanos(all.wave.span_ns)));
    }
    text
}

/// Frequency, duty cycle, jitter.
fn figures(wave: &Wave, row: &mut impl FnMut(&str, String)) {
    match (wave.frequency_hz, &wave.refused) {
        (Some(hz), _) => {
            let uncertainty = wave.uncertainty_ppm.unwrap_or_default();
            row("frequency", format!("{} +- {uncertainty:.2} ppm", exact_hertz(hz)));
        }
        (None, why) => {
            row("frequency", format!("refused: {}", why.as_deref().unwrap_or("unknown")))
        }
    }
    if let Some((counted_hz, hz)) = wave.counted_hz.zip(wave.frequency_hz) {
        let ppm = (hz / counted_hz - 1.0) * 1e6;
        row(
            "by its count",
            format!("{} outside gaps: the scope is {ppm:+.1} ppm off", exact_hertz(counted_hz)),
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

/// What the capture says in a sentence.
fn headline(all: &CapturePage<'_>) -> String {
    let line = &all.capture.line;
    match (all.wave.frequency_hz, &all.wave.refused) {
        (Some(hz), _) => {
            let ppm = all.wave.uncertainty_ppm.unwrap_or_default();
            format!("{line}: {hz:.4} Hz +- {ppm:.2} ppm")
        }
        (None, Some(why)) => format!("no frequency for {line}: {why}"),
        (None, None) => format!("no frequency for {line}"),
    }
}

pub(super) fn ns(value: f64) -> String {
    Nanos(value.round() as u64).to_string()
}

fn rows(wave: &Wave) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &'static str, value: Option<String>| rows.extend(value.map(|v| (name, v)));
    row("frequency", wave.frequency_hz.map(|hz| format!("{hz:.6} Hz")));
    let by_count = |hz: f64| format!("{hz:.6} Hz, outside the scope's gaps");
    row("by the line's own count", wave.counted_hz.map(by_count));
    row("error", wave.error_ppm.map(|ppm| format!("{ppm:+.1} ppm of the wanted frequency")));
    row("duty cycle", wave.duty.map(|duty| format!("{:.3} %", duty * 100.0)));
    if let Some(period) = &wave.period {
        let (min, median, max) =
            (Nanos(period.ns_min), Nanos(period.ns_median), Nanos(period.ns_max));
        row("period", Some(format!("{min} to {max}, median {median}")));
        row("period jitter", Some(format!("{} rms", ns(period.jitter_ns_rms))));
        let cycles = period.cycle_to_cycle_ns_rms.zip(period.cycle_to_cycle_ns_max);
        let words = |(rms, max): (f64, u64)| format!("{} rms, {} at most", ns(rms), Nanos(max));
        row("cycle to cycle", cycles.map(words));
    }
    if let Some(phase) = &wave.phase {
        let (rms, span) = (ns(phase.tie_ns_rms), ns(phase.tie_ns_peak_to_peak));
        row("time-interval error", Some(format!("{rms} rms, {span} peak to peak")));
    }
    row("edges seen", Some(grouped(wave.edges)));
    row("edges lost", wave.lost.map(grouped));
    let wrong = format!(
        "{} missing, {} extra, {} by short pulses",
        grouped(wave.missing_edges),
        grouped(wave.extra_edges),
        grouped(2 * wave.glitches)
    );
    row("wrong", Some(wrong));
    row("resolution", Some(Nanos(wave.resolution_ns).to_string()));
    let share = wave.blind_share * 100.0;
    row("blind", Some(format!("{share:.2} % in {}", counted(wave.gaps, "gap"))));
    rows
}

fn allan(allan: &crate::statistics::wave::Allan) -> (String, String, String) {
    (ns(allan.tau_s * 1e9), format!("{:.3e}", allan.deviation), grouped(allan.terms))
}

fn pictures(all: &CapturePage<'_>) -> Vec<Picture> {
    let Some(period) = &all.wave.period else { return Vec::new() };
    let mut pictures = vec![
        Picture {
            title: "Waveform",
            about: "The first periods. A shaded part is a gap: the scope could not look."
                .to_owned(),
            svg: plot::wave::waveform(all.capture, period.ns_median),
        },
        Picture {
            title: "Periods",
            about: "The number of periods of each length, on a logarithmic axis.".to_owned(),
            svg: plot::wave::periods(period),
        },
    ];
    let Some((deviations, period_ns)) = spectrum::deviations(all.capture) else { return pictures };
    pictures.push(Picture {
        title: "Jitter over time",
        about: format!(
            "How much later each rising edge is than that of the best-fitting ideal clock of {}.",
            hertz(1e9 / period_ns)
        ),
        svg: plot::wave::jitter(&deviations),
    });
    let lines = spectrum::spectrum(&deviations, period_ns);
    let top = lines.iter().max_by(|a, b| a.amplitude_ns.total_cmp(&b.amplitude_ns));
    if let Some(top) = top {
        pictures.push(Picture {
            title: "Spectrum of the time-interval error",
            about: format!(
                "A line is a disturbance with that rhythm. The highest is {} with {}.",
                hertz(top.hz),
                ns(top.amplitude_ns)
            ),
            svg: plot::wave::spectrum(&lines),
        });
    }
    pictures
}

#[cfg(test)]
mod tests {
    use rtscope_model::wave::{Edge, Gap};

    use super::*;
    use crate::{plot::fixture, statistics::wave};

    fn capture(count: u64) -> Capture {
        let late = |n: u64| 200 * (n % 8).min(8 - n % 8);
        let pulse = |n: u64| {
            let at_ns = n * 10_000 + late(n);
            [Edge::new(at_ns, true), Edge::new(at_ns + 3_000, false)]
        };
        let mut edges: Vec<Edge> = (1..=count).flat_map(pulse).collect();
        edges.retain(|edge| !(52_000..=94_000).contains(&edge.at_ns()));
        Capture {
            line: "memory:<x>".to_owned(),
            start_ns: 0,
            end_ns: count * 10_000 + 9_000,
            resolution_ns: 240,
            starts_high: None,
            edges,
            gaps: vec![Gap { start_ns: 52_000, end_ns: 94_000, moved: true }],
            made: None,
            made_in_gaps: None,
            is_full: false,
        }
    }

    fn shown(capture: &Capture) -> String {
        let wave = wave::judge(capture, Some(100_000.0));
        let scope = "fifo 49 on CPU 1";
        let wanted_hz = Some(100_000.0);
        page(&CapturePage { capture, wave: &wave, wanted_hz, scope, finding: None, written: None })
    }

    #[test]
    fn a_capture_has_four_pictures_that_are_well_formed() {
        let page = shown(&capture(512));
        let pictures: Vec<&str> = page.split("<svg").skip(1).collect();
        assert_eq!(pictures.len(), 4);
        for picture in pictures {
            let end = picture.find("</svg>").expect("its end");
            fixture::check_markup(&format!("<svg{}</svg>", &picture[..end])).expect("well-formed");
        }
        // A triangle of eight edges: a rhythm of an eighth of 100 kHz.
        assert!(page.contains("The highest is 12.5 kHz"));
        assert!(page.contains("fifo 49 on CPU 1") && page.contains("&#60;x&#62;"));
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }

    #[test]
    fn what_gives_no_frequency_says_why_and_has_no_picture() {
        let silent = Capture { edges: Vec::new(), gaps: Vec::new(), ..capture(1) };
        let page = shown(&silent);
        assert!(page.contains("no edge was seen") && !page.contains("<svg"));
        // A few edges have a waveform and perhaps no spectrum.
        for count in [1, 2, 3, 12, 20] {
            assert!(!shown(&capture(count)).contains("NaN"));
        }
    }
}
