//! A capture in four pictures: the waveform, the periods, the time-interval error over time, its spectrum.

use rtscope_model::{time::Nanos, wave::Capture};

use super::{
    scale::{Scale, short},
    svg::{Path, Svg},
};
use crate::statistics::wave::{
    Period,
    spectrum::{Deviation, SpectralLine},
};

const WIDTH: f64 = super::INLINE_WIDTH as f64;
const LEFT: f64 = 82.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 12.0;

/// Periods that the waveform shows.
const PERIODS_SHOWN: f64 = 12.0;

/// Columns of a picture: more would lie on each other.
const COLUMNS: usize = 400;

/// Bars of the periods.
const BARS: usize = 100;

/// A picture with a title and what stands below its x axis.
fn frame(id: &str, title: &str, height: f64, below: &str) -> Svg {
    let mut svg = Svg::plot(id, (WIDTH, height + 62.0), title, None);
    let bottom = TOP + height;
    svg.label("text", "middle", (LEFT + RIGHT) / 2.0, bottom + 40.0, below);
    svg
}

fn bottom_axis(svg: &mut Svg, x: &Scale, bottom: f64, label: impl Fn(f64) -> String) {
    for value in x.values(8) {
        svg.line("grid", x.place(value), TOP, x.place(value), bottom);
        svg.label("tick", "middle", x.place(value), bottom + 18.0, &label(value));
    }
    svg.line("axis", LEFT, bottom, RIGHT, bottom);
}

fn left_axis(svg: &mut Svg, y: &Scale, wanted: usize, label: impl Fn(f64) -> String) {
    for value in y.values(wanted) {
        svg.line("grid", LEFT, y.place(value), RIGHT, y.place(value));
        svg.label("tick", "end", LEFT - 8.0, y.place(value) + 4.0, &label(value));
    }
}

/// Nanoseconds that may be below zero.
fn signed(ns: f64) -> String {
    match ns.round() as i64 {
        0 => "0".to_owned(),
        ns if ns < 0 => format!("-{}", Nanos(ns.unsigned_abs())),
        ns => Nanos(ns as u64).to_string(),
    }
}

/// The first periods as an oscilloscope draws them; gaps are shaded and have no level.
pub(crate) fn waveform(capture: &Capture, median_ns: u64) -> String {
    let height = 130.0;
    let title = "The wave from its first edge on";
    let mut svg = frame("plot-waveform", title, height, "time from the first edge");
    let start_ns = capture.edges.first().map_or(capture.start_ns, |edge| edge.at_ns());
    let span_ns = (median_ns as f64 * PERIODS_SHOWN).max(1.0);
    let x = Scale::linear(0.0, span_ns, LEFT, RIGHT - LEFT);
    let y = Scale::linear(-0.2, 1.2, TOP + height, -height);
    bottom_axis(&mut svg, &x, TOP + height, signed);
    for (value, name) in [(0.0, "low"), (1.0, "high")] {
        svg.label("tick", "end", LEFT - 8.0, y.place(value) + 4.0, name);
    }
    let since = |at_ns: u64| at_ns.saturating_sub(start_ns) as f64;
    let gaps = capture.gaps.iter().filter(|gap| gap.end_ns > start_ns);
    let shown: Vec<_> = gaps.take_while(|gap| since(gap.start_ns) < span_ns).collect();
    for gap in &shown {
        let (from, to) = (x.place(since(gap.start_ns)), x.place(since(gap.end_ns)));
        svg.rect("blind", from, TOP, (to - from).max(1.0), height);
    }
    let level_y = |high: bool| y.place(f64::from(u8::from(high)));
    let (mut path, mut level) = (Path::default(), None);
    let mut gaps = shown.iter().peekable();
    for edge in capture.edges.iter().take_while(|edge| since(edge.at_ns()) <= span_ns) {
        let (at, high) = (x.place(since(edge.at_ns())), edge.rises());
        while let Some(gap) = gaps.next_if(|gap| gap.start_ns < edge.at_ns()) {
            // The level goes on up to the gap; what it is after the gap is known from the next edge.
            if let Some(level) = level.take() {
                path.to(x.place(since(gap.start_ns)), level_y(level));
            }
            path.lift();
            path.to(x.place(since(gap.end_ns)), level_y(!high));
        }
        path.to(at, level_y(!high));
        path.to(at, level_y(high));
        level = Some(high);
    }
    if let Some(last) = capture.edges.iter().take_while(|e| since(e.at_ns()) <= span_ns).last() {
        path.to(x.place(span_ns), level_y(last.rises()));
    }
    svg.path("curve c0", &path);
    svg.finish()
}

/// How many periods are how long.
pub(crate) fn periods(period: &Period) -> String {
    let height = 190.0;
    let title = "How many periods are how long";
    let mut svg = frame("plot-periods", title, height, "period");
    let (from, to) = (period.ns_min as f64, (period.ns_max + 1) as f64);
    let mut bars = vec![0_u64; BARS.min(period.ns_max.abs_diff(period.ns_min) as usize + 1)];
    let count = bars.len();
    for &(ns, periods) in &period.histogram {
        let place = ((ns as f64 - from) / (to - from) * count as f64) as usize;
        bars[place.min(count - 1)] += periods;
    }
    let most = bars.iter().copied().max().unwrap_or(1) as f64;
    let margin = ((to - from) * 0.03).max(1.0);
    let x = Scale::linear(from - margin, to + margin, LEFT, RIGHT - LEFT);
    let y = Scale::log(0.7, most.max(2.0) * 1.3, TOP + height, -height);
    bottom_axis(&mut svg, &x, TOP + height, signed);
    left_axis(&mut svg, &y, 4, short);
    for (n, periods) in bars.iter().enumerate().filter(|(_, periods)| **periods > 0) {
        let edge = |n: usize| x.place(from + (to - from) * n as f64 / count as f64);
        let top = y.place(*periods as f64);
        svg.rect("C0", edge(n), top, (edge(n + 1) - edge(n) - 0.5).max(1.0), TOP + height - top);
    }
    svg.finish()
}

/// How late each edge was against the ideal clock: least and largest of each column.
pub(crate) fn jitter(deviations: &[Deviation]) -> String {
    let height = 190.0;
    let title = "Time-interval error over time";
    let mut svg = frame("plot-jitter", title, height, "time in the capture");
    let at = |deviation: Option<&Deviation>| deviation.map_or(0.0, |one| one.at_ns);
    let x = Scale::linear(at(deviations.first()), at(deviations.last()), LEFT, RIGHT - LEFT);
    let fold = |start: f64, pick: fn(f64, f64) -> f64| {
        deviations.iter().map(|one| one.tie_ns).fold(start, pick)
    };
    let (least, most) = (fold(0.0, f64::min), fold(0.0, f64::max));
    let margin = ((most - least) * 0.06).max(1.0);
    let y = Scale::linear(least - margin, most + margin, TOP + height, -height);
    bottom_axis(&mut svg, &x, TOP + height, signed);
    left_axis(&mut svg, &y, 5, signed);
    let (mut path, mut next) = (Path::default(), deviations.first().map_or(0, |one| one.number));
    for part in deviations.chunks(deviations.len().div_ceil(COLUMNS).max(1)) {
        let ties = part.iter().map(|one| one.tie_ns);
        let (low, high) = ties.fold((f64::MAX, f64::MIN), |(l, h), t| (l.min(t), h.max(t)));
        let place = x.place(part[0].at_ns);
        // No line across edges that were not seen.
        if part[0].number != next {
            path.lift();
        }
        next = part[part.len() - 1].number + 1;
        path.to(place, y.place(low));
        path.to(place, y.place(high));
    }
    svg.path("curve c0", &path);
    svg.finish()
}

/// Which rhythms the lateness has.
pub(crate) fn spectrum(lines: &[SpectralLine]) -> String {
    let height = 190.0;
    let title = "Spectrum of the time-interval error";
    let mut svg = frame("plot-spectrum", title, height, "frequency in Hz");
    let last = lines.last().map_or(1.0, |line| line.hz);
    let most = lines.iter().map(|line| line.amplitude_ns).fold(1.0, f64::max);
    let x = Scale::linear(0.0, last, LEFT, RIGHT - LEFT);
    let y = Scale::linear(0.0, most * 1.08, TOP + height, -height);
    bottom_axis(&mut svg, &x, TOP + height, short);
    left_axis(&mut svg, &y, 5, signed);
    let mut path = Path::default();
    for part in lines.chunks(lines.len().div_ceil(COLUMNS).max(1)) {
        // A narrow line must not fall between two columns.
        let top = part.iter().max_by(|a, b| a.amplitude_ns.total_cmp(&b.amplitude_ns));
        let Some(top) = top else { continue };
        path.to(x.place(top.hz), y.place(top.amplitude_ns));
    }
    svg.path("curve c1", &path);
    svg.finish()
}
