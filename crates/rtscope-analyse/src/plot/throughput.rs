//! Bandwidth, CPU load and latency by window size: one panel each, one curve a protocol without and
//! with the sampler, and the published ones beside them.

use super::{
    phase::signed,
    scale::Scale,
    svg::{Path, Svg},
    theme::DASHES,
};

const WIDTH: f64 = super::INLINE_WIDTH as f64;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 24.0;
const PANEL: f64 = 180.0;
const HEAD: f64 = 34.0;

/// A curve: windows in bytes, and a value.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Its colour and dash.
    pub(crate) place: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

/// What a panel shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bits in a second.
    Bits,
    Percent,
    /// Nanoseconds, on a logarithmic axis.
    Latency,
}

/// Draws the panels, one below the other.
pub(crate) fn draw(panels: &[(&str, Unit, Vec<Curve>)], description: &str) -> String {
    let curves = panels.iter().flat_map(|panel| &panel.2);
    let mut keys: Vec<(usize, &str)> = Vec::new();
    for curve in curves.clone() {
        if !keys.iter().any(|(place, _)| *place == curve.place) {
            keys.push((curve.place, &curve.name));
        }
    }
    let legend = 20.0 * keys.len().div_ceil(2) as f64 + 8.0;
    let height = legend + panels.len() as f64 * (PANEL + HEAD) + 44.0;
    let windows: Vec<f64> = {
        let mut all: Vec<f64> = curves.flat_map(|curve| &curve.points).map(|p| p.0).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    };
    let (from, to) = (windows.first().copied(), windows.last().copied());
    let (from, to) = (from.unwrap_or(1.0), to.unwrap_or(2.0));
    let x = Scale::log(from / 1.15, to * 1.15, LEFT, WIDTH - LEFT - RIGHT);
    let title = "Throughput and latency by window size";
    let mut svg = Svg::plot("throughput", (WIDTH, height), title, Some(description));
    for (n, (place, name)) in keys.iter().enumerate() {
        let (left, top) = (LEFT + (n % 2) as f64 * 390.0, 18.0 + (n / 2) as f64 * 20.0);
        let mut sample = Path::default();
        sample.to(left, top - 4.0);
        sample.to(left + 34.0, top - 4.0);
        stroke(&mut svg, *place, &sample);
        svg.label("text", "start", left + 42.0, top, name);
    }
    let mut top = legend + HEAD;
    for (name, unit, curves) in panels {
        panel(&mut svg, name, *unit, curves, &x, &windows, top);
        top += PANEL + HEAD;
    }
    for window in &windows {
        let text = format!("{}", (window / 1024.0).round());
        svg.label("tick", "middle", x.place(*window), top - HEAD + 18.0, &text);
    }
    svg.label("sub", "end", WIDTH - RIGHT, top - HEAD + 38.0, "window (socket buffer) in KiB");
    svg.finish()
}

fn stroke(svg: &mut Svg, place: usize, path: &Path) {
    let element = svg.element("path").ink(&format!("curve c{}", place % DASHES.len()));
    element.attribute("stroke-dasharray", DASHES[place % DASHES.len()]).path(path).done();
}

fn panel(
    svg: &mut Svg,
    name: &str,
    unit: Unit,
    curves: &[Curve],
    x: &Scale,
    windows: &[f64],
    top: f64,
) {
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|p| p.1);
    let high = values().fold(0.0, f64::max).max(1.0);
    let y = match unit {
        Unit::Bits => Scale::linear(0.0, high * 1.08, top + PANEL, -PANEL),
        Unit::Percent => Scale::linear(0.0, 100.0, top + PANEL, -PANEL),
        Unit::Latency => {
            let low = values().filter(|v| *v > 0.0).fold(high, f64::min);
            Scale::log(low / 1.6, high * 1.6, top + PANEL, -PANEL)
        }
    };
    for window in windows {
        svg.line("grid", x.place(*window), top, x.place(*window), top + PANEL);
    }
    for value in y.values(5) {
        let text = match unit {
            Unit::Bits => bits(value),
            Unit::Percent => format!("{value:.0} %"),
            Unit::Latency => signed(value),
        };
        svg.line("grid", LEFT, y.place(value), WIDTH - RIGHT, y.place(value));
        svg.label("tick", "end", LEFT - 8.0, y.place(value) + 4.0, &text);
    }
    svg.line("axis", LEFT, top + PANEL, WIDTH - RIGHT, top + PANEL);
    for curve in curves {
        let mut path = Path::default();
        for (window, value) in &curve.points {
            path.to(x.place(*window), y.place(*value));
            svg.element("circle")
                .ink(&format!("C{}", curve.place % DASHES.len()))
                .number("cx", x.place(*window))
                .number("cy", y.place(*value))
                .number("r", 2.6)
                .done();
        }
        stroke(svg, curve.place, &path);
    }
    svg.label("name", "start", LEFT, top - 8.0, name);
}

/// Bits in a second, in three figures: `1.08 Gbit/s`.
fn bits(rate: f64) -> String {
    bits_beside(rate, rate)
}

/// Bits in a second in the unit of the largest rate of a table, so that its column can be compared.
pub(crate) fn bits_beside(rate: f64, largest: f64) -> String {
    let (value, unit) = match largest {
        1e9.. => (rate / 1e9, "Gbit/s"),
        1e6.. => (rate / 1e6, "Mbit/s"),
        1e3.. => (rate / 1e3, "kbit/s"),
        _ => (rate, "bit/s"),
    };
    match value {
        100.0.. => format!("{value:.0} {unit}"),
        10.0.. => format!("{value:.1} {unit}"),
        0.0 => "0".to_owned(),
        1.0.. => format!("{value:.2} {unit}"),
        _ => format!("{value:.3} {unit}"),
    }
}
