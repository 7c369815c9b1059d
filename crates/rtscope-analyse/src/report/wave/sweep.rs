//! A sweep of square waves as a page and as a document: how fast each program can be, at rest and under
//! each load.

use askama::Template;
use serde_json::Value;

use crate::{
    number::{grouped, hertz},
    plot,
    statistics::wave::sweep::{Curve, Outcome, Sweep},
};

impl Sweep {
    /// The sweep as a JSON document.
    ///
    /// # Errors
    ///
    /// Never for values that a sweep can hold.
    pub fn document(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}

/// A row of the table.
struct Row {
    label: String,
    max: String,
    limit: String,
    tries: usize,
    too_fast: usize,
    blind: usize,
}

/// A try, in the table of all.
struct Try {
    label: String,
    wanted: String,
    measured: String,
    uncertainty: String,
    edges: String,
    lost: String,
    blind: String,
    outcome: String,
}

#[derive(Template)]
#[template(path = "wave_sweep.html")]
struct Page<'a> {
    style: &'static str,
    dark: String,
    all: &'a Sweep,
    headline: String,
    plot: String,
    rows: Vec<Row>,
    tries: Vec<Try>,
}

impl Page<'_> {
    fn percent(&self) -> String {
        format!("{:.3}", self.all.tolerance * 100.0)
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    }
}

/// The page. The same sweep gives the same bytes.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &Sweep) -> String {
    let headline = headline(all);
    let page = Page {
        style: include_str!("../template/style.css"),
        dark: plot::dark_rules(),
        all,
        plot: plot::sweep::draw(all, &headline),
        headline,
        rows: all.curves.iter().map(row).collect(),
        tries: all.curves.iter().flat_map(tries).collect(),
    };
    page.render().expect("a string takes every text")
}

/// What the sweep says in a sentence.
#[must_use]
pub fn headline(all: &Sweep) -> String {
    let mut order: Vec<&Curve> = all.curves.iter().collect();
    order.sort_by(|a, b| {
        let hz = |curve: &Curve| curve.found.max_frequency_hz.unwrap_or(0.0);
        hz(b).total_cmp(&hz(a))
    });
    let reaches = |curve: &Curve| match curve.found.max_frequency_hz {
        Some(hz) => format!("{} keeps up to {}", curve.label(), hertz(hz)),
        None => format!("no limit found of {}", curve.label()),
    };
    match order.as_slice() {
        [] => "Nothing was swept".to_owned(),
        [only] => reaches(only),
        [best, .., worst] => format!("{}; {}", reaches(best), reaches(worst)),
    }
}

fn row(curve: &Curve) -> Row {
    let found = &curve.found;
    let max = found.max_frequency_hz.map_or_else(|| "none".to_owned(), hertz);
    let limit = match (found.max_frequency_hz, found.first_bad_hz) {
        (Some(_), None) => "above the sweep's last frequency".to_owned(),
        (Some(good), Some(bad)) => format!("{} to {}", hertz(good), hertz(bad)),
        (None, _) => format!("none found: {}", found.no_limit.as_deref().unwrap_or_default()),
    };
    let of = |wanted: Outcome| found.points.iter().filter(|p| p.outcome == wanted).count();
    let (too_fast, blind) = (of(Outcome::TooFast), of(Outcome::Blind));
    Row { label: curve.label(), max, limit, tries: found.points.len(), too_fast, blind }
}

fn tries(curve: &Curve) -> Vec<Try> {
    let one = |point: &crate::statistics::wave::sweep::Point| Try {
        label: curve.label(),
        wanted: hertz(point.wanted_hz),
        measured: point.measured_hz.map_or_else(|| "none".to_owned(), hertz),
        uncertainty: point.uncertainty_ppm.map_or_else(String::new, |ppm| format!("{ppm:.1} ppm")),
        edges: grouped(point.edges),
        lost: point.lost.map_or_else(|| "not counted".to_owned(), grouped),
        blind: format!("{:.2} ms", point.blind_ns as f64 / 1e6),
        outcome: match &point.refused {
            Some(why) => format!("{}: {why}", point.outcome.text()),
            None => point.outcome.text().to_owned(),
        },
    };
    curve.found.points.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plot::fixture,
        statistics::wave::sweep::{Found, Point},
    };

    fn point(wanted_hz: f64, measured_hz: Option<f64>) -> Point {
        Point {
            wanted_hz,
            measured_hz,
            uncertainty_ppm: Some(1.5),
            within: measured_hz.is_some_and(|hz| (hz / wanted_hz - 1.0).abs() < 0.1),
            outcome: if measured_hz.is_some() { Outcome::Within } else { Outcome::TooFast },
            edges: 1_234,
            lost: Some(7),
            blind_ns: 1_500_000,
            jitter_ns_rms: Some(10.0),
            refused: measured_hz.is_none().then(|| "too <short>".to_owned()),
        }
    }

    fn sweep() -> Sweep {
        let curve = |name: &str, load: &str, max: Option<f64>, points| Curve {
            name: name.to_owned(),
            load: load.to_owned(),
            policy: "other".to_owned(),
            found: Found {
                max_frequency_hz: max,
                first_bad_hz: Some(7_000.0),
                no_limit: max.is_none().then(|| "only 1 of 3 tries were good".to_owned()),
                undecided_hz: vec![],
                points,
            },
        };
        Sweep {
            from_hz: 50.0,
            to_hz: 1e6,
            tolerance: 0.1,
            curves: vec![
                curve(
                    "python",
                    "none",
                    Some(900.0),
                    vec![point(900.0, Some(880.0)), point(7_000.0, None)],
                ),
                curve("c", "cpu", Some(40_000.0), vec![point(40_000.0, Some(39_000.0))]),
                curve("<x>", "none", None, vec![]),
            ],
            facts: vec![("scope".to_owned(), "other on CPU 1".to_owned())],
        }
    }

    #[test]
    fn the_page_has_every_figure_and_escapes_what_it_is_given() {
        let page = page(&sweep());
        for part in
            ["900 Hz to 7.00 kHz", "1,234", "1.50 ms", "too &#60;short&#62;", "other on CPU 1"]
        {
            assert!(page.contains(part), "{part} is missing");
        }
        assert!(!page.contains("<x>") && !page.contains("NaN"));
        let start = page.find("<svg").expect("a plot");
        let end = page.find("</svg>").expect("its end") + "</svg>".len();
        fixture::check_markup(&page[start..end]).expect("well-formed");
        // The refused try is a cross and no point: two points are drawn.
        assert_eq!(page[start..end].matches("<circle").count(), 2);
    }

    #[test]
    fn the_headline_names_the_fastest_and_the_slowest() {
        let said = headline(&sweep());
        assert_eq!(said, "c under cpu keeps up to 40.0 kHz; no limit found of <x> at rest");
    }

    #[test]
    fn the_document_has_one_entry_a_curve() {
        let document = sweep().document().expect("values");
        let subjects = document["subjects"].as_array().expect("an array");
        assert_eq!(subjects.len(), 3);
        assert_eq!(subjects[1]["name"], "c");
        assert_eq!(subjects[1]["load"], "cpu");
        assert_eq!(subjects[1]["max_frequency_hz"], 40_000.0);
        assert_eq!(subjects[0]["points"].as_array().expect("points").len(), 2);
        assert!(subjects[2]["max_frequency_hz"].is_null());
    }
}
