//! Kernels over one another under one load: the share of wake-ups at or above each latency, both axes
//! logarithmic, a curve for each kernel over all its seeds, and a band from its best to its worst seed.
//!
//! The band is the spread of replicas on one machine: it is no confidence interval for other hardware.

use rtscope_model::histogram::{Histogram, Layout};

use super::{
    PlotOptions,
    edges::Edges,
    exceedance::{share_readout, share_ticks},
    scale::Scale,
    sheet::{Frame, Key, NO_HEADER, Readout, Sample, Series, Sheet},
    svg::Path,
    theme::COLOURS,
    words::time,
};

/// Steps of the latency axis.
const STEPS: usize = 120;

/// Kernels up to which each has a band: more would lie on each other.
const BANDS: usize = 4;

/// What one kernel showed under the load.
#[derive(Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    /// Its place among all kernels of the page: the same colour and dash under every load.
    pub(crate) place: usize,
    /// The wake-ups of each seed; at least one.
    pub(crate) seeds: Vec<&'a Histogram>,
}

/// A curve with the wake-ups at or above each edge, of all seeds and of each.
struct Shares<'a> {
    curve: &'a Curve<'a>,
    all: Vec<f64>,
    each: Vec<Vec<f64>>,
    max_ns: u64,
    /// Of the largest latency.
    least: f64,
}

/// Draws the kernels under a load, or whatever else a curve stands for. `number` tells the sheets of one page apart; none without a wake-up.
pub(crate) fn draw(
    (what, load): (&str, &str),
    number: usize,
    curves: &[Curve<'_>],
    width: u32,
) -> Option<String> {
    let all = || curves.iter().flat_map(|curve| &curve.seeds);
    let min_ns = all().filter_map(|seed| seed.min_ns()).min()?;
    let max_ns = all().filter_map(|seed| seed.max_ns()).max()?;
    let layout = Layout::coarsest(all().map(|seed| seed.layout()))?;
    let edges = Edges::over(layout, (min_ns, max_ns), true, STEPS);
    let shares: Vec<Shares<'_>> = curves.iter().filter_map(|one| shares(one, &edges)).collect();
    let least = shares.iter().map(|one| one.least).fold(1.0, f64::min);
    let options = PlotOptions { width, standalone: false, ..PlotOptions::default() };
    let title = format!("Share of wake-ups at or above each latency under {load}, by {what}");
    let mut sheet = Sheet::named(format!("kernels-{number}"), &options, &title, "");
    sheet.legend(&shares.iter().enumerate().map(key).collect::<Vec<Key>>());
    let frames = sheet.panels(1, 260.0, NO_HEADER, 112.0);
    let frame = frames[0];
    let x = frame.x(true, edges.edges_ns[0] as f64, edges.end_ns() as f64 * 1.05);
    let y = frame.y(true, 0.4 * least, 1.0);
    sheet.x_axis(&frames, &x, &x.latency_ticks(10), "latency (logarithmic)");
    sheet.y_axis(&frame, &y, &share_ticks(&y));
    sheet.y_name(&frames, "share of wake-ups at or above");
    for (n, one) in shares.iter().enumerate() {
        draw_curve(&mut sheet, &frame, (one, n, shares.len() <= BANDS), &edges, (&x, &y));
    }
    sheet.base_line(&frame);
    sheet.read_out(readout(&frame, &shares, &edges, &x));
    let has_bands = curves.iter().any(|curve| curve.seeds.len() > 1);
    let over = if has_bands {
        " over all its seeds; the band goes from its best to its worst seed"
    } else {
        ""
    };
    Some(sheet.finish(&format!("One curve per {what}{over}.")))
}

fn shares<'a>(curve: &'a Curve<'a>, edges: &Edges) -> Option<Shares<'a>> {
    let max_ns = curve.seeds.iter().filter_map(|seed| seed.max_ns()).max()?;
    let counts: Vec<Vec<u64>> = curve.seeds.iter().map(|seed| above(seed, edges)).collect();
    let totals: Vec<u64> = curve.seeds.iter().map(|seed| seed.count()).collect();
    let wakeups = totals.iter().sum::<u64>() as f64;
    let sum = |n: usize| counts.iter().map(|counts| counts[n]).sum::<u64>() as f64;
    let share = |(counts, total): (&Vec<u64>, &u64)| {
        counts.iter().map(|&count| count as f64 / (*total).max(1) as f64).collect()
    };
    Some(Shares {
        curve,
        all: (0..edges.len()).map(|n| sum(n) / wakeups).collect(),
        each: counts.iter().zip(&totals).map(share).collect(),
        max_ns,
        least: 1.0 / wakeups,
    })
}

/// How many wake-ups were at or above each edge but the last.
fn above(histogram: &Histogram, edges: &Edges) -> Vec<u64> {
    let mut above = edges.sums(histogram.layout(), &histogram.bins());
    let mut sum = 0;
    for count in above.iter_mut().rev() {
        sum += *count;
        *count = sum;
    }
    above
}

fn key((number, one): (usize, &Shares<'_>)) -> Key {
    Key {
        label: format!("{}, max {}", one.curve.name, time(one.max_ns)),
        ink: format!("c{}", one.curve.place % COLOURS),
        sample: Sample::Line(one.curve.place),
        toggles: Some(("curve", number)),
    }
}

fn draw_curve(
    sheet: &mut Sheet,
    frame: &Frame,
    (one, number, has_band): (&Shares<'_>, usize, bool),
    edges: &Edges,
    (x, y): (&Scale, &Scale),
) {
    let ink = one.curve.place % COLOURS;
    let floor = y.place(y.from);
    let at = |n: usize| x.place(edges.edges_ns[n] as f64);
    let height = |share: f64| if share > 0.0 { y.place(share).min(floor) } else { floor };
    let (mut line, mut band) = (Path::default(), Path::default());
    let below = |n: &usize| edges.edges_ns[*n] < one.max_ns && one.all[*n] > 0.0;
    (0..edges.len()).filter(below).for_each(|n| line.to(at(n), height(one.all[n])));
    let end = (x.place(one.max_ns as f64), y.place(one.least));
    line.to(end.0, end.1);
    if has_band && one.each.len() > 1 {
        let of = |n: usize, pick: fn(f64, f64) -> f64| {
            one.each.iter().map(|seed| seed[n]).reduce(pick).unwrap_or(0.0)
        };
        (0..edges.len()).filter(below).for_each(|n| band.to(at(n), height(of(n, f64::max))));
        (0..edges.len()).rev().filter(below).for_each(|n| band.to(at(n), height(of(n, f64::min))));
        band.close();
    }
    sheet.svg.element("g").attribute("data-curve", &number.to_string()).open();
    sheet.plane(frame, number);
    sheet.svg.path(&format!("between C{ink}"), &band);
    sheet.curve(&format!("c{ink}"), one.curve.place, &line);
    sheet.end_plane();
    sheet.marker(one.curve.place, end.0, end.1);
    sheet.svg.close();
}

fn readout(frame: &Frame, shares: &[Shares<'_>], edges: &Edges, x: &Scale) -> Readout {
    // Four digits: more would make the page larger and tell nothing.
    let short = |share: f64| format!("{share:.3e}").parse().unwrap_or(share);
    let value = |share: &f64| (*share > 0.0).then(|| short(*share));
    let series = |one: &Shares<'_>| Series {
        name: one.curve.name.to_owned(),
        kind: "share",
        values: one.all.iter().map(value).collect(),
    };
    share_readout(frame, edges, x, shares.iter().map(series).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::fixture;

    fn histogram(latencies_ns: impl Iterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new(Layout::default());
        latencies_ns.for_each(|ns| histogram.record(ns));
        histogram
    }

    #[test]
    fn a_share_counts_the_wake_ups_of_all_seeds_at_or_above() {
        let seeds =
            [histogram((1..=100).map(|n| n * 1_000)), histogram((1..=300).map(|n| n * 1_000))];
        let curve = Curve { name: "rt", place: 0, seeds: seeds.iter().collect() };
        let edges = Edges::over(Layout::default(), (1_000, 300_000), true, STEPS);
        let shares = shares(&curve, &edges).expect("some");
        for (n, &edge_ns) in edges.edges_ns[..edges.len()].iter().enumerate() {
            let of = |last: u64| (1..=last).filter(|n| n * 1_000 >= edge_ns).count() as f64;
            assert!((shares.all[n] - (of(100) + of(300)) / 400.0).abs() < 1e-9, "at {edge_ns}");
            assert!((shares.each[1][n] - of(300) / 300.0).abs() < 1e-9, "at {edge_ns}");
        }
        assert_eq!(shares.max_ns, 300_000);
    }

    #[test]
    fn each_kernel_is_a_curve_and_keeps_its_colour() {
        let stock = [histogram((1..=900).map(|n| n * 700)), histogram((1..=800).map(|n| n * 900))];
        let rt = histogram((1..=900).map(|n| 4_000 + n));
        let curves = [
            Curve { name: "stock", place: 0, seeds: stock.iter().collect() },
            Curve { name: "<rt>", place: 2, seeds: vec![&rt] },
        ];
        let drawn = draw(("kernel", "disk"), 3, &curves, 720).expect("wake-ups");
        fixture::check_markup(&drawn).expect("well-formed");
        assert_eq!(drawn.matches("data-curve=").count(), 2);
        assert!(drawn.contains("stock, max 720 us") && drawn.contains("&lt;rt&gt;, max 4.9 us"));
        assert!(drawn.contains("curve c2") && drawn.contains("between C0"));
        assert!(!drawn.contains("between C2"), "one seed has no spread");
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
        assert_eq!(draw(("kernel", "disk"), 3, &[], 720), None);
    }
}
