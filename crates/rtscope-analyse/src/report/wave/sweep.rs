//! A sweep of square waves as a page and as a document: how fast each program can be, at rest and under
//! each load.

use std::fmt::Write as _;

use askama::Template;
use rtscope_model::{published::PublishedStatistic, schedule::Policy};
use serde_json::Value;

use crate::{
    number::{grouped, hertz},
    plot,
    report::published::{self, Ours, PublishedBesideOurs, Whose},
    statistics::wave::sweep::{Curve, Sweep, Try, TryOutcome},
};

impl Sweep {
    /// The sweep as a JSON document.
    ///
    /// # Errors
    ///
    /// Never for values that a sweep can hold.
    pub fn document(&self, published: &[PublishedBesideOurs]) -> Result<Value, serde_json::Error> {
        let mut document = serde_json::to_value(self)?;
        document["published"] = published::document(published);
        Ok(document)
    }

    /// What each curve shows, for published figures to be set beside: its limit, the frequency that it made where
    /// another one was asked for, and how many times its limit is that of each other subject.
    #[must_use]
    pub fn ours(&self, whose: Whose<'_>) -> Vec<Ours> {
        let curves = self.curves.iter();
        let ratios = curves.clone().flat_map(|one| {
            let alike = move |other: &&Curve| {
                (&other.load, &other.policy) == (&one.load, &one.policy) && other.name != one.name
            };
            self.curves.iter().filter(alike).map(move |other| ratio(one, other, whose))
        });
        curves.flat_map(|curve| of_curve(curve, whose)).chain(ratios).collect()
    }
}

#[must_use]
pub fn text(sweep: &Sweep) -> String {
    let mut text = format!(
        "{:<12}{:<10}{:<24}{:>16}  {:<14}tries\n",
        "subject", "policy", "load", "max frequency", "first bad"
    );
    for curve in &sweep.curves {
        let found = &curve.found;
        let known = |hz: Option<f64>| hz.map_or_else(|| "none".to_owned(), hertz);
        let _ = write!(
            text,
            "{:<12}{:<10}{:<24}{:>16}  {:<14}{}",
            curve.name,
            curve.policy,
            curve.load,
            known(found.max_frequency_hz),
            known(found.first_bad_hz),
            found.points.len()
        );
        let named =
            [TryOutcome::Blind, TryOutcome::TooFast, TryOutcome::Silent, TryOutcome::Unsteady];
        for outcome in named {
            let tries = found.points.iter().filter(|point| point.outcome == outcome).count();
            if tries > 0 {
                let _ = write!(text, ", {tries} {}", outcome.text());
            }
        }
        if !found.undecided_hz.is_empty() {
            let list: Vec<String> = found.undecided_hz.iter().map(|hz| hertz(*hz)).collect();
            let _ = write!(text, "; undecided: {}", list.join(", "));
        }
        text.push('\n');
        if let Some(why) = &found.no_limit {
            let _ = writeln!(text, "  no limit found: {why}");
        }
    }
    for (name, value) in &sweep.facts {
        if name.starts_with("scope") {
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    text
}

/// The limit of a curve, or why there is none.
fn limit(curve: &Curve) -> Result<f64, String> {
    let none = || curve.found.no_limit.clone().unwrap_or_else(|| "no limit was found".to_owned());
    curve.found.max_frequency_hz.ok_or_else(none)
}

fn whole(subject: &str, curve: &Curve, whose: Whose<'_>) -> Ours {
    // Policies of a sweep are written with their priority, as `fifo:49`.
    let policy = curve.policy.split(':').next().unwrap_or_default();
    Ours {
        policy: Policy::ALL.into_iter().find(|known| known.word() == policy),
        load: curve.load.clone(),
        ..whose.ours(subject)
    }
}

fn ratio(one: &Curve, other: &Curve, whose: Whose<'_>) -> Ours {
    let ratio = limit(one).and_then(|limit_of_one| Ok(limit_of_one / limit(other)?));
    let subject = format!("{} over {}", one.name, other.name);
    Ours {
        figures: vec![(PublishedStatistic::FrequencyRatio, ratio)],
        ..whole(&subject, one, whose)
    }
}

fn of_curve(curve: &Curve, whose: Whose<'_>) -> Vec<Ours> {
    let found = &curve.found;
    let whole = Ours {
        figures: vec![(PublishedStatistic::MaxFrequency, limit(curve))],
        ..whole(&curve.name, curve, whose)
    };
    let one = |point: &Try| Ours {
        condition: Some(format!("asked for {}", hertz(point.wanted_hz))),
        figures: vec![(
            PublishedStatistic::Frequency,
            point.measured_hz.ok_or_else(|| point.outcome.text().to_owned()),
        )],
        ..whole.clone()
    };
    let points: Vec<Ours> = found.points.iter().map(one).collect();
    std::iter::once(whole).chain(points).collect()
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
struct TryRow {
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
    tries: Vec<TryRow>,
    published: &'a [PublishedBesideOurs],
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
pub fn page(all: &Sweep, published: &[PublishedBesideOurs]) -> String {
    let headline = headline(all);
    let page = Page {
        style: include_str!("../template/style.css"),
        dark: plot::dark_rules(),
        all,
        plot: plot::sweep::draw(all, &headline),
        headline,
        rows: all.curves.iter().map(row).collect(),
        tries: all.curves.iter().flat_map(tries).collect(),
        published,
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
        Some(hz) => format!("{} keeps its frequency up to {}", curve.label(), hertz(hz)),
        None => format!("no limit found for {}", curve.label()),
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
    let of = |wanted: TryOutcome| found.points.iter().filter(|p| p.outcome == wanted).count();
    let (too_fast, blind) = (of(TryOutcome::TooFast), of(TryOutcome::Blind));
    Row { label: curve.label(), max, limit, tries: found.points.len(), too_fast, blind }
}

fn tries(curve: &Curve) -> Vec<TryRow> {
    let one = |point: &Try| TryRow {
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
    use crate::{plot::fixture, statistics::wave::sweep::FrequencyLimit};

    fn point(wanted_hz: f64, measured_hz: Option<f64>) -> Try {
        Try {
            wanted_hz,
            measured_hz,
            uncertainty_ppm: Some(1.5),
            within: measured_hz.is_some_and(|hz| (hz / wanted_hz - 1.0).abs() < 0.1),
            outcome: if measured_hz.is_some() { TryOutcome::Within } else { TryOutcome::TooFast },
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
            found: FrequencyLimit {
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
        let page = page(&sweep(), &[]);
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
    fn published_limits_stand_beside_ours() {
        let text = "name = 'x'\ntitle = 'x'\n[[published]]\nsubject = 'python'\nload = 'none'\nsource = 'a lab'\n\
                    figures = { max_frequency = '900Hz' }\n[[published]]\nsubject = 'c'\nload = 'cpu'\n\
                    policy = 'other'\nsource = 'a lab'\nfigures = { max_frequency = '20kHz' }\n[[published]]\n\
                    subject = 'python'\ncondition = 'asked for 900 Hz'\nsource = 'a lab'\n\
                    figures = { frequency = '440Hz' }\n[[published]]\nsubject = '<x>'\nsource = 'a lab'\n\
                    figures = { max_frequency = '1Hz' }\n";
        let published = rtscope_model::published::PublishedTable::parse("x", text);
        let published = published.expect("a table").published;
        let all = published::beside(&published, &sweep().ours(Whose::default()));
        let shown: Vec<(String, String)> =
            all.iter().map(|one| (one.ours(), one.ratio())).collect();
        let row = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            shown,
            [
                row("900Hz", "1.00"),
                row("40kHz", "2.00"),
                row("880Hz", "2.00"),
                row("none: only 1 of 3 tries were good", "")
            ]
        );
        assert!(page(&sweep(), &all).contains("Published figures beside ours"));
        assert_eq!(
            sweep().document(&all).expect("values")["published"][0]["ours"][0]["low"],
            900.0
        );
    }

    #[test]
    fn limits_are_divided_only_under_the_same_load_and_policy() {
        let mut all = sweep();
        let c = Curve { load: "none".to_owned(), ..all.curves[1].clone() };
        all.curves.push(c);
        let ours = all.ours(Whose::default());
        let ratio = |subject: &str, load: &str| {
            let found = ours.iter().find(|one| one.subject == subject && one.load == load);
            found.map(|one| one.figures[0].clone())
        };
        // By hand: 40,000 / 900.
        let figure = ratio("c over python", "none").expect("a ratio");
        assert_eq!(figure, (PublishedStatistic::FrequencyRatio, Ok(40_000.0 / 900.0)));
        assert_eq!(ratio("c over python", "cpu"), None);
        let none = ratio("c over <x>", "none").expect("a reason").1;
        assert_eq!(none, Err("only 1 of 3 tries were good".to_owned()));
    }

    #[test]
    fn the_headline_names_the_fastest_and_the_slowest() {
        let said = headline(&sweep());
        assert_eq!(
            said,
            "c under cpu keeps its frequency up to 40.0 kHz; no limit found for <x> at rest"
        );
    }

    #[test]
    fn the_document_has_one_entry_a_curve() {
        let document = sweep().document(&[]).expect("values");
        let subjects = document["subjects"].as_array().expect("an array");
        assert_eq!(subjects.len(), 3);
        assert_eq!(subjects[1]["name"], "c");
        assert_eq!(subjects[1]["load"], "cpu");
        assert_eq!(subjects[1]["max_frequency_hz"], 40_000.0);
        assert_eq!(subjects[0]["points"].as_array().expect("points").len(), 2);
        assert!(subjects[2]["max_frequency_hz"].is_null());
    }
}
