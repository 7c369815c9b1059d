//! Wanted against measured frequency of a sweep: one curve a subject, policy and load.
//!
//! A program that keeps time lies on the diagonal; the band around it is the tolerance. A try that was
//! too fast for the scope, or made no wave, has no measured frequency: it is a cross at the foot of the plot.
//! One in which the scope was blind is not drawn.

use std::collections::BTreeMap;

use super::{
    scale::{Scale, short},
    svg::{Path, Svg},
    theme::{COLOURS, DASHES},
};
use crate::statistics::wave::sweep::{Curve, Sweep, TryOutcome};

const WIDTH: f64 = super::INLINE_WIDTH as f64;
const LEFT: f64 = 76.0;
const TOP: f64 = 12.0;
const HEIGHT: f64 = 470.0;

/// Height of an entry of the legend.
const ENTRY: f64 = 20.0;

/// Draws the plot for a page.
pub(crate) fn draw(sweep: &Sweep, title: &str) -> String {
    let rows = sweep.curves.len().div_ceil(2) as f64;
    let legend = TOP + HEIGHT + 64.0;
    let height = legend + rows * ENTRY + 6.0;
    let mut svg = Svg::plot("plot-sweep", (WIDTH, height.ceil()), title, None);
    let lowest = sweep.from_hz.min(lowest_measured(sweep)).max(1e-3);
    let x = Scale::log(sweep.from_hz * 0.8, sweep.to_hz * 1.25, LEFT, WIDTH - LEFT - 16.0);
    let y = Scale::log(lowest * 0.6, sweep.to_hz * 1.6, TOP + HEIGHT, -HEIGHT);
    axes(&mut svg, &x, &y);
    tolerance(&mut svg, sweep, &x, &y);
    // Each subject has a colour, each load of it a dash.
    let (mut colours, mut dashes) = (BTreeMap::new(), BTreeMap::new());
    for (n, curve) in sweep.curves.iter().enumerate() {
        let colour = place_of(&mut colours, (curve.name.clone(), curve.policy.clone()));
        let dash = place_of(&mut dashes, curve.load.clone());
        curve_of(&mut svg, curve, colour, dash, &x, &y);
        let at = (LEFT + (n % 2) as f64 * 410.0, legend + (n / 2) as f64 * ENTRY);
        key(&mut svg, curve, colour, dash, at);
    }
    svg.finish()
}

/// The place of a name among those met so far, within the number of colours.
fn place_of<K: Ord>(known: &mut BTreeMap<K, usize>, name: K) -> usize {
    let next = known.len() % COLOURS;
    *known.entry(name).or_insert(next)
}

fn lowest_measured(sweep: &Sweep) -> f64 {
    let points = sweep.curves.iter().flat_map(|curve| &curve.found.points);
    points.filter_map(|point| point.measured_hz).fold(f64::INFINITY, f64::min)
}

fn axes(svg: &mut Svg, x: &Scale, y: &Scale) {
    let (right, bottom) = (WIDTH - 16.0, TOP + HEIGHT);
    for value in x.values(10) {
        svg.line("grid", x.place(value), TOP, x.place(value), bottom);
        svg.label("tick", "middle", x.place(value), bottom + 18.0, &short(value));
    }
    for value in y.values(10) {
        svg.line("grid", LEFT, y.place(value), right, y.place(value));
        svg.label("tick", "end", LEFT - 8.0, y.place(value) + 4.0, &short(value));
    }
    svg.line("axis", LEFT, bottom, right, bottom);
    svg.label("text", "middle", (LEFT + right) / 2.0, bottom + 40.0, "wanted frequency in Hz");
    svg.element("text")
        .ink("text")
        .attribute("text-anchor", "middle")
        .attribute("transform", &format!("translate(18 {}) rotate(-90)", TOP + HEIGHT / 2.0))
        .text("measured frequency in Hz");
}

fn tolerance(svg: &mut Svg, sweep: &Sweep, x: &Scale, y: &Scale) {
    let (from, to) = (sweep.from_hz, sweep.to_hz);
    let mut band = Path::default();
    for (hz, share) in [(from, 1.0), (to, 1.0), (to, -1.0), (from, -1.0)] {
        band.to(x.place(hz), y.place(hz * (1.0 + share * sweep.tolerance)));
    }
    band.close();
    svg.path("blind", &band);
    svg.line("lead", x.place(from), y.place(from), x.place(to), y.place(to));
}

fn curve_of(svg: &mut Svg, curve: &Curve, colour: usize, dash: usize, x: &Scale, y: &Scale) {
    let mut path = Path::default();
    for point in &curve.found.points {
        let at = x.place(point.wanted_hz);
        match point.measured_hz {
            Some(hz) => {
                path.to(at, y.place(hz));
                svg.element("circle")
                    .ink(&format!("C{colour}"))
                    .number("cx", at)
                    .number("cy", y.place(hz))
                    .number("r", if point.within { 3.0 } else { 2.0 })
                    .done();
            }
            // Nothing is known of the program there.
            None if point.outcome == TryOutcome::Blind => {}
            None => svg.label("limit-text", "middle", at, TOP + HEIGHT - 4.0, "x"),
        }
    }
    if !path.is_empty() {
        let element = svg.element("path").ink(&format!("curve c{colour}"));
        element.attribute("stroke-dasharray", DASHES[dash]).path(&path).done();
    }
}

fn key(svg: &mut Svg, curve: &Curve, colour: usize, dash: usize, (left, top): (f64, f64)) {
    let mut sample = Path::default();
    sample.to(left, top - 4.0);
    sample.to(left + 34.0, top - 4.0);
    let element = svg.element("path").ink(&format!("curve c{colour}"));
    element.attribute("stroke-dasharray", DASHES[dash]).path(&sample).done();
    svg.label("text", "start", left + 42.0, top, &curve.label());
}
