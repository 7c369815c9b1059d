//! Two captures of the same wave side by side, as a page and as rows for the terminal.

use askama::Template as _;
use rtscope_model::wave::Capture;

use super::capture::{Page, Picture, ns};
use crate::{
    number::grouped,
    plot,
    statistics::{
        wave::compare::Compared,
        wave::{Wave, spectrum::Deviation},
    },
};

/// What is shown.
#[derive(Clone, Debug)]
pub struct WaveComparisonPage<'a> {
    /// The first, mostly of our scope.
    pub first: &'a Capture,
    /// The second, mostly of an instrument.
    pub second: &'a Capture,
    pub compared: &'a Compared,
    /// What is known: name and value.
    pub facts: Vec<(String, String)>,
}

/// The comparison as names and values.
#[must_use]
pub fn rows(compared: &Compared) -> Vec<(&'static str, String)> {
    let aligned = &compared.alignment;
    let frequency = |wave: &Wave| match (wave.frequency_hz, wave.uncertainty_ppm) {
        (Some(hz), Some(ppm)) => format!("{hz:.6} Hz +- {ppm:.2} ppm"),
        _ => format!("refused: {}", wave.refused.as_deref().unwrap_or("unknown")),
    };
    let jitter = |wave: &Wave| {
        let rms = wave.period.as_ref().map(|period| ns(period.jitter_ns_rms));
        rms.map_or_else(|| "none".to_owned(), |rms| format!("period {rms} rms"))
    };
    let missing = |all: u64, in_gaps: u64| {
        format!("{} rising edges, {} of them in its gaps", grouped(all), grouped(in_gaps))
    };
    let sure = if aligned.is_certain {
        ""
    } else {
        ", or whole periods more or less, because the wave is too regular"
    };
    let sign = if aligned.offset_ns < 0.0 { "-" } else { "" };
    vec![
        ("first", frequency(&compared.first)),
        ("second", frequency(&compared.second)),
        ("pairs", format!("{} rising edges", grouped(aligned.pairs))),
        ("offset", format!("{sign}{}{sure}", ns(aligned.offset_ns.abs()))),
        ("drift", format!("{:+.3} ppm", aligned.drift_ppm)),
        ("first lacks", missing(aligned.missing_in_first, aligned.missing_in_gaps_of_first)),
        ("second lacks", missing(aligned.missing_in_second, aligned.missing_in_gaps_of_second)),
        ("first's jitter", jitter(&compared.first)),
        ("second's jitter", jitter(&compared.second)),
        (
            "between them",
            format!("{} rms, {} at most", ns(aligned.residual_ns_rms), ns(aligned.residual_ns_max)),
        ),
    ]
}

/// The page. The same captures give the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &WaveComparisonPage<'_>) -> String {
    let aligned = &all.compared.alignment;
    let deviation = |(number, &(at_s, tie_ns)): (usize, &(f64, f64))| Deviation {
        number: number as u64,
        at_ns: at_s * 1e9,
        tie_ns,
    };
    let deviations: Vec<Deviation> = aligned.residuals.iter().enumerate().map(deviation).collect();
    let mut pictures = vec![Picture {
        title: "Between the two",
        about: "How much later each edge is in the second capture, without offset and drift."
            .to_owned(),
        svg: plot::wave::jitter(&deviations),
    }];
    if let Some(period) = &all.compared.first.period {
        pictures.push(Picture {
            title: "The first's waveform",
            about: "A shaded part is a gap.".to_owned(),
            svg: plot::wave::waveform(all.first, period.ns_median),
        });
    }
    let line = format!("{} and {}", all.first.line, all.second.line);
    let page = Page {
        style: include_str!("../template/style.css"),
        dark: plot::dark_rules(),
        line: &line,
        headline: format!(
            "{line}: {} edges in both, {:+.2} ppm of drift, {} rms between them",
            grouped(aligned.pairs),
            aligned.drift_ppm,
            ns(aligned.residual_ns_rms)
        ),
        rows: rows(all.compared),
        pictures,
        allan: Vec::new(),
        facts: &all.facts,
    };
    page.render().expect("a string takes every text")
}
