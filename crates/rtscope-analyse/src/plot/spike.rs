//! A late activation as a bar of its pieces in the order of time.

use super::{
    scale::Scale,
    svg::{Path, Svg},
    theme::COLOURS,
};
use crate::{
    number::us,
    statistics::explain::{Explained, Piece},
};

const WIDTH: f64 = 700.0;
const LEFT: f64 = 16.0;
const TOP: f64 = 22.0;
const BAR: f64 = 34.0;

/// A piece narrower than this has no number of its own in the bar.
const NUMBERED: f64 = 14.0;

/// The bar. Pieces have the numbers of their rows in the table below it.
#[must_use]
pub(crate) fn draw(one: &Explained, number: usize) -> String {
    let scale = Scale::linear(0.0, one.latency_ns as f64, LEFT, WIDTH - 2.0 * LEFT);
    let bottom = TOP + BAR;
    let (title, description) = (format!("spike-{number}-title"), format!("spike-{number}-desc"));
    let mut svg = Svg::default();
    svg.element("svg")
        .attribute("class", "plot")
        .attribute("viewBox", &format!("0 0 {WIDTH} {}", bottom + 28.0))
        .number("width", WIDTH)
        .number("height", bottom + 28.0)
        .attribute("role", "img")
        .attribute("aria-labelledby", &format!("{title} {description}"))
        .attribute("font-family", "sans-serif")
        .open();
    svg.element("title").attribute("id", &title).text(&format!("{} late", us(one.latency_ns)));
    svg.element("desc").attribute("id", &description).text(&described(one));
    for tick in scale.latency_ticks(8) {
        let x = scale.place(tick.value);
        svg.line("grid", x, TOP - 4.0, x, bottom + 4.0);
        svg.label("tick", "middle", x, bottom + 20.0, &tick.label);
    }
    for (n, piece) in one.pieces.iter().enumerate() {
        let from = scale.place(piece.at_ns.saturating_sub(one.at_ns) as f64);
        let width = (scale.place(piece.ns as f64) - LEFT).max(0.5);
        let mut bar = Path::default();
        bar.rect(from, TOP, width, BAR);
        svg.path(&format!("C{}", colour(piece)), &bar);
        if width >= NUMBERED {
            svg.label("text", "middle", from + width / 2.0, TOP - 7.0, &(n + 1).to_string());
        }
    }
    svg.finish()
}

/// A square in the colour of a piece.
#[must_use]
pub(crate) fn swatch(piece: &Piece) -> String {
    let mut svg = Svg::default();
    svg.element("svg")
        .attribute("class", "plot swatch")
        .attribute("viewBox", "0 0 12 12")
        .attribute("aria-hidden", "true")
        .open();
    svg.rect(&format!("C{}", colour(piece)), 0.0, 0.0, 12.0, 12.0);
    svg.finish()
}

/// A kind has one colour in all bars.
fn colour(piece: &Piece) -> usize {
    piece.kind as usize % COLOURS
}

fn described(one: &Explained) -> String {
    let piece = |piece: &Piece| format!("{} {}: {}", piece.kind.text(), piece.name, us(piece.ns));
    one.pieces.iter().map(piece).collect::<Vec<_>>().join("; ")
}
