//! Phase against time: one panel a thread, and one with all of them where there are several.
//!
//! A sloping line is drift. A column of the plot keeps the smallest and the largest phase in it.

use super::{
    scale::Scale,
    svg::{Path, Svg},
    theme::DASHES,
};

const LEFT: f64 = 92.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 150.0;
const HEAD: f64 = 30.0;
const COLUMNS: f64 = 500.0;

/// A thread's name and its phase: instants and phases in nanoseconds.
pub(crate) type Curve<'a> = (&'a str, &'a [(f64, f64)]);

/// Draws the plot for a page.
pub(crate) fn draw(curves: &[Curve<'_>], description: &str) -> String {
    draw_titled("phase", "Phase against time", curves, description)
}

/// Draws the plot with a title and an identifier of its own.
pub(crate) fn draw_titled(
    id: &str,
    title: &str,
    curves: &[Curve<'_>],
    description: &str,
) -> String {
    const WIDTH: f64 = super::INLINE_WIDTH as f64;
    let all = curves.len() > 1;
    let panels = curves.len() + usize::from(all);
    let height = panels as f64 * (PANEL + HEAD) + 46.0;
    let mut svg = Svg::plot(id, (WIDTH, height), title, Some(description));
    let to = curves.iter().filter_map(|curve| curve.1.last()).map(|p| p.0).fold(1.0, f64::max);
    let x = Scale::linear(0.0, to, LEFT, WIDTH - LEFT - RIGHT);
    let numbered: Vec<(usize, &Curve<'_>)> = curves.iter().enumerate().collect();
    let mut top = HEAD;
    if all {
        panel(&mut svg, &numbered, &x, top, "on one scale");
        top += PANEL + HEAD;
    }
    for one in &numbered {
        panel(&mut svg, std::slice::from_ref(one), &x, top, one.1.0);
        top += PANEL + HEAD;
    }
    for tick in x.time_ticks(8) {
        svg.label("tick", "middle", x.place(tick.value), top - HEAD + 18.0, &tick.label);
    }
    svg.label("sub", "end", WIDTH - RIGHT, top - HEAD + 38.0, "since the first activation");
    svg.finish()
}

/// One panel, with a scale of its own.
fn panel(svg: &mut Svg, curves: &[(usize, &Curve<'_>)], x: &Scale, top: f64, name: &str) {
    let phases = || curves.iter().flat_map(|(_, curve)| curve.1.iter().map(|p| p.1));
    let (low, high) = (phases().fold(0.0, f64::min), phases().fold(0.0, f64::max));
    let room = ((high - low) * 0.05).max(500.0);
    let y = Scale::linear(low - room, high + room, top + PANEL, -PANEL);
    let right = x.place(x.to);
    for tick in x.time_ticks(8) {
        svg.line("grid", x.place(tick.value), top, x.place(tick.value), top + PANEL);
    }
    for value in y.values(5) {
        let at = y.place(value);
        svg.line("grid", LEFT, at, right, at);
        svg.label("tick", "end", LEFT - 8.0, at + 4.0, &signed(value));
    }
    svg.line("axis", LEFT, y.place(0.0), right, y.place(0.0));
    for (place, curve) in curves {
        let path = thinned(curve.1, x, &y);
        let element = svg.element("path").ink(&format!("curve c{place}"));
        element.attribute("stroke-dasharray", DASHES[place % DASHES.len()]).path(&path).done();
    }
    svg.label("name", "start", LEFT, top - 8.0, name);
}

/// The curve, with at most two points a column.
fn thinned(phase: &[(f64, f64)], x: &Scale, y: &Scale) -> Path {
    let mut path = Path::default();
    let column = |at: f64| (at / x.to * COLUMNS) as u64;
    for chunk in phase.chunk_by(|a, b| column(a.0) == column(b.0)) {
        let (mut low, mut high) = (chunk[0], chunk[0]);
        for point in chunk {
            low = if point.1 < low.1 { *point } else { low };
            high = if point.1 > high.1 { *point } else { high };
        }
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        path.to(x.place(first.0), y.place(first.1));
        path.to(x.place(second.0), y.place(second.1));
    }
    path
}

/// A time that may be below 0, in three figures: `-1.2 ms`.
pub(crate) fn signed(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        0.0 => return "0".to_owned(),
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "us"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let decimals = match value.abs() {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_below_0_is_told() {
        assert_eq!(signed(-1_250_000.0), "-1.25 ms");
        assert_eq!(signed(614e9), "614 s");
        assert_eq!([0.0, 12.0, 45_600.0].map(signed), ["0", "12 ns", "45.6 us"]);
    }

    #[test]
    fn several_curves_have_a_panel_each_and_one_together() {
        let line: Vec<(f64, f64)> = (0..10_000).map(|n| (f64::from(n) * 1e6, 0.0)).collect();
        let spike: Vec<(f64, f64)> =
            line.iter().map(|p| (p.0, if p.0 == 5e9 { 7e6 } else { 0.0 })).collect();
        let svg = draw(&[("a", &line), ("b<", &spike)], "d");
        assert_eq!(svg.matches(">a<").count() + svg.matches(">b&lt;<").count(), 2);
        assert!(svg.contains("on one scale"));
        // The spike is a single point of ten thousand: it is still at the top of its panel.
        assert!(svg.contains(">6 ms<"), "the scale reaches to it");
        assert!(svg.len() < 60_000, "{}", svg.len());
    }
}
